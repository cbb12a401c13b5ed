"""The page: chat and inspector in a browser. ``make web`` and the wheel build its files from ``web/``."""
