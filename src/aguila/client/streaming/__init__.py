"""Following a run: reading its stream, and resuming it after a broken connection."""
