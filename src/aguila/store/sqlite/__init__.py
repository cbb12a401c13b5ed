"""The event log in one SQLite file, which several processes may share: see ``store``."""
