"""Cursors: the number of an event, and the token of the run and epoch that wrote it.

If an older copy of a store is put back, other runs reuse the numbers that were lost. Their tokens differ, so a cursor
from before is refused instead of continuing in the middle of another run.
"""

from __future__ import annotations

from functools import partial
from secrets import token_urlsafe
from typing import Final

from aguila.errors import CursorExpired

_BYTES: Final = 6
PATTERN: Final = "^([A-Za-z0-9_-]{8})?$"
"""A token, or no token."""


new_token: Final = partial(token_urlsafe, _BYTES)
"""Return a random token for the events of one run and epoch."""


def format_cursor(number: int, token: str) -> str:
    """Return the cursor of an event. An event of an earlier version of the store has no token."""
    return f"{number}-{token}" if token else str(number)


def check_token(number: int, token: str | None, stored: str) -> None:
    """Raise ``CursorExpired`` if the event of a cursor was written by another run. None is a cursor without a token."""
    if token is not None and token != stored:
        raise CursorExpired(
            f"event {number} is not the event of this cursor: an older copy of the store was put back; read the thread "
            "again, or the log from 0"
        )
