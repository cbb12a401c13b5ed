"""The position in a stream, by the ids of its events: where to resume, and which events are repeated."""

from __future__ import annotations

from collections.abc import Callable

from aguila.codec.sse import Frame

WINDOW = 4096
"""How many of the last ids that are not numbers are remembered, at least. All of a long run would fill the memory.

A server that repeats events starts at its own backlog, which is among the last ids, or at the very first event, because
it ignores the header. Both are recognised. Everything after that, up to the cursor, is then known to be repeated.
"""


class Cursor:
    """The id of the last consumed event. Numeric ids grow. A frame without an id has that of the one before."""

    def __init__(self) -> None:
        self.id: str | None = None
        self.can_resume = False
        """Whether the last event had an id of its own: only then does the log after it begin with the next event."""
        self._first: str | None = None
        self._seen: dict[str, None] = {}  # ids that are not numbers, oldest first
        self._has_forgotten = False

    def advance(self, frames: list[Frame]) -> bool:
        """Move past consumed frames. Return whether they had an id."""
        last = frames[-1].id
        before = self.id if len(frames) == 1 else frames[-2].id
        self.can_resume = last is not None and last != before
        if last is None or last == self.id:
            return False
        self.id = last
        if not is_number(last):
            seen = self._seen
            seen.update((frame.id, None) for frame in frames if frame.id is not None)
            if self._first is None:
                self._first = next(iter(seen))
            if len(seen) > 2 * WINDOW:  # rarely, because it copies what is left
                self._seen = dict.fromkeys(list(seen)[-WINDOW:])
                self._has_forgotten = True
        return True

    def new_frame_test(self) -> Callable[[Frame], bool]:
        """Return a test for the first new frame of a stream that was resumed after the cursor."""
        after = None if self.id is None or not is_number(self.id) else int(self.id)
        is_behind = False  # the next ids may be forgotten ones

        def test(frame: Frame) -> bool:
            nonlocal is_behind
            if frame.id is None:
                return True
            if after is not None and is_number(frame.id):
                return int(frame.id) > after
            if frame.id == self.id:
                is_behind = False
                return False
            if frame.id in self._seen or frame.id == self._first:
                is_behind = self._has_forgotten
                return False
            return not is_behind

        return test


def is_number(id: str) -> bool:  # noqa: A002
    """Return whether an id is a decimal number of reasonable length."""
    return id.isascii() and id.isdigit() and len(id) <= _MAX_DIGITS


_MAX_DIGITS = 40  # longer ones are slow to parse
