"""Layer: client. Where a stream has come to, by the ids of its events: what to go on after, and what came again.

Below: the frames of ``aguila.codec.sse``. Above: ``exchange``. Ids that are numbers are taken to grow; of others those
that were seen are remembered.
"""

from __future__ import annotations

from collections.abc import Callable

from aguila.codec.sse import Frame


class Cursor:
    """The id of the last event that was taken in. A frame without an id of its own has that of the one before it."""

    def __init__(self) -> None:
        self.id: str | None = None
        self.is_covered = False
        """Whether the last event had an id of its own: only then is the next one the one after it."""
        self._seen: set[str] = set()  # ids that are no numbers

    def advance(self, frames: list[Frame]) -> bool:
        """These were taken in; whether they brought an id."""
        last = frames[-1].id
        before = self.id if len(frames) == 1 else frames[-2].id
        self.is_covered = last is not None and last != before
        if last is None or last == self.id:
            return False
        self.id = last
        if not is_number(last):
            self._seen.update(frame.id for frame in frames if frame.id is not None)
        return True

    def is_new(self) -> Callable[[Frame], bool]:
        """A test for the frames of a stream that was asked to go on after the cursor, until the first that is new."""
        after = None if self.id is None or not is_number(self.id) else int(self.id)

        def test(frame: Frame) -> bool:
            if frame.id is None:
                return True
            if after is not None and is_number(frame.id):
                return int(frame.id) > after
            return frame.id not in self._seen and frame.id != self.id

        return test


def is_number(id: str) -> bool:  # noqa: A002
    """Whether an id is a number, written as one."""
    return id.isascii() and id.isdigit() and len(id) <= _LONGEST_NUMBER


_LONGEST_NUMBER = 40  # more digits take long to read, and count nothing
