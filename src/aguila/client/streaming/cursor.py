"""Layer: client. Where a stream has come to, by the ids of its events: what to go on after, and what came again.

Below: the frames of ``aguila.codec.sse``. Above: ``exchange``. Ids that are numbers are taken to grow; of others the
first and the last few thousand that were seen are remembered.
"""

from __future__ import annotations

from collections.abc import Callable

from aguila.codec.sse import Frame

WINDOW = 4096
"""How many of the last ids that are no numbers are remembered, at least; a long run would fill the memory with all.

A server that sends again what it was asked to go on after begins where a backlog of its own does, which is somewhere
among the last, or at the very beginning, because it does not know the header. Either is recognised, and what follows up
to the cursor is then known to have come as well.
"""


class Cursor:
    """The id of the last event that was taken in. A frame without an id of its own has that of the one before it."""

    def __init__(self) -> None:
        self.id: str | None = None
        self.is_covered = False
        """Whether the last event had an id of its own: only then is the next one the one after it."""
        self._first: str | None = None
        self._seen: dict[str, None] = {}  # ids that are no numbers, oldest first
        self._is_forgetting = False

    def advance(self, frames: list[Frame]) -> bool:
        """These were taken in; whether they brought an id."""
        last = frames[-1].id
        before = self.id if len(frames) == 1 else frames[-2].id
        self.is_covered = last is not None and last != before
        if last is None or last == self.id:
            return False
        self.id = last
        if not is_number(last):
            seen = self._seen
            seen.update((frame.id, None) for frame in frames if frame.id is not None)
            if self._first is None:
                self._first = next(iter(seen))
            if len(seen) > 2 * WINDOW:  # seldom, for it costs as much as what is left
                self._seen = dict.fromkeys(list(seen)[-WINDOW:])
                self._is_forgetting = True
        return True

    def is_new(self) -> Callable[[Frame], bool]:
        """A test for the frames of a stream that was asked to go on after the cursor, until the first that is new."""
        after = None if self.id is None or not is_number(self.id) else int(self.id)
        is_behind = False  # and what comes next may have been forgotten

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
                is_behind = self._is_forgetting
                return False
            return not is_behind

        return test


def is_number(id: str) -> bool:  # noqa: A002
    """Whether an id is a number, written as one."""
    return id.isascii() and id.isdigit() and len(id) <= _LONGEST_NUMBER


_LONGEST_NUMBER = 40  # more digits take long to read, and count nothing
