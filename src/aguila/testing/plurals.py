"""Counts with their nouns, for messages."""


def counted(number: int, noun: str) -> str:
    """Format a count: ``1 error``, ``2 errors``."""
    return f"{number} {noun}" if number == 1 else f"{number} {noun}s"
