"""Threads as values: export, import and copies between stores."""
