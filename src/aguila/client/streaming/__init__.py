"""Follow a run: read its stream, and resume it after a broken connection."""
