"""Convert chat messages and updates to AG-UI messages and events."""
