"""The event log in memory: see ``store``."""
