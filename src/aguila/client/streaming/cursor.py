"""The position in a stream, by the ids of its events: where to resume, and which events are repeated."""

from __future__ import annotations

import re
from collections.abc import Callable

from aguila.codec.sse import Frame

WINDOW = 4096
"""How many of the last ids that are not numbers are remembered, at least. All of a long run would fill the memory.

A server that repeats events starts at its own backlog, which is among the last ids, or at the very first event, because
it ignores the header. Both are recognised. Everything after that, up to the cursor, is then known to be repeated.
"""


class Cursor:
    """The id of the last consumed event. A frame without an id has that of the one before.

    Numeric ids grow, also with the token that our server appends: they are compared by the number, and sent back as
    they came.
    """

    def __init__(self) -> None:
        self.id: str | None = None
        self.can_resume = False
        """Whether the last event had an id of its own: only then does the log after it begin with the next event."""
        self._first: str | None = None
        self._seen: dict[str, None] = {}  # ids that are not numbers, oldest first
        self._has_forgotten = False

    def advance(self, id: str) -> None:  # noqa: A002
        """Move to the id of an event."""
        self.id = id
        if number_of(id) is None:
            if self._first is None:
                self._first = id
            self._seen[id] = None
            if len(self._seen) > 2 * WINDOW:  # rarely, because it copies the rest
                self._seen = dict.fromkeys(list(self._seen)[-WINDOW:])
                self._has_forgotten = True

    def new_frame_test(self) -> Callable[[Frame], bool]:
        """Return a test for the first new frame of a stream that was resumed after the cursor."""
        after = None if self.id is None else number_of(self.id)
        is_behind = False  # the next ids may be forgotten ones

        def test(frame: Frame) -> bool:
            nonlocal is_behind
            if frame.id is None:
                return True
            number = None if after is None else number_of(frame.id)
            if after is not None and number is not None:
                return number > after or (number == after and frame.id != self.id)
            if frame.id == self.id:
                is_behind = False
                return False
            if frame.id in self._seen or frame.id == self._first:
                is_behind = self._has_forgotten
                return False
            return not is_behind

        return test


def number_of(id: str) -> int | None:  # noqa: A002
    """Return the number of an id: a decimal number of reasonable length, or one with a token of our server."""
    found = _NUMBERED.fullmatch(id)
    return None if found is None else int(found[1])


_NUMBERED = re.compile(r"([0-9]{1,40})(?:-[A-Za-z0-9_-]{8})?")  # longer numbers are slow to parse
