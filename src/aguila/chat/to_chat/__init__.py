"""Convert AG-UI messages and events to chat messages and updates."""
