"""The threads of one scope of the memory store: by the order of their last update, by their metadata, and counted."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterator

from aguila.store.encoding import encodable, index_value, list_members
from aguila.store.memory.thread import Thread
from aguila.store.records import MetadataFilter


class ScopeIndex:
    """Finds a page of threads without a look at all of them.

    ``_positions`` is sorted, since a thread always moves to the highest position. Positions that threads have left stay
    in it until they are more than the others.
    """

    __slots__ = ("_archived", "_members", "_positions", "_threads", "bytes", "running", "version")

    def __init__(self) -> None:
        self.bytes = 0
        """The total size of the threads, without files."""
        self.running = 0
        """The number of open runs."""
        self.version = 0
        """Another number after each change of a summary."""
        self._positions: list[int] = []
        self._threads: dict[int, Thread] = {}  # by position
        self._archived: dict[Thread, None] = {}
        self._members: dict[tuple[str, str | None], dict[Thread, None]] = {}  # (name, value), and (name, None) for all

    def __len__(self) -> int:
        return len(self._threads)

    def move(self, thread: Thread, position: int) -> None:
        """Move a thread to the highest position."""
        self._threads.pop(thread.position, None)
        thread.position = position
        self._threads[position] = thread
        self._positions.append(position)
        if len(self._positions) > 2 * len(self._threads) + 64:
            self._positions = list(self._threads)

    def remove(self, thread: Thread) -> None:
        """Remove a thread."""
        del self._threads[thread.position]
        self.remove_details(thread)

    def newest_first(
        self, before: int | None, archived: bool | None, metadata: MetadataFilter | None
    ) -> Iterator[Thread]:
        """Iterate over threads below a position, the one updated last first: all selected ones, and maybe others."""
        few = self._archived if archived else None
        if metadata is not None:
            value = None if metadata.value is None else index_value(metadata.value)
            found = self._members.get((encodable(metadata.key), value), {})
            few = found if few is None or len(found) < len(few) else few
        if few is not None and len(few) < len(self._threads) // 8:
            chosen = [one for one in few if before is None or one.position < before]
            yield from sorted(chosen, key=lambda one: -one.position)
            return
        at = len(self._positions) if before is None else bisect_left(self._positions, before)
        for index in range(at - 1, -1, -1):
            thread = self._threads.get(self._positions[index])
            if thread is not None:
                yield thread

    def add_details(self, thread: Thread) -> None:
        """Index the archived flag and the metadata of a thread."""
        if thread.archived:
            self._archived[thread] = None
        for name, value in list_members(thread.metadata):
            for key in ((name, value), (name, None)):
                self._members.setdefault(key, {})[thread] = None

    def remove_details(self, thread: Thread) -> None:
        """Remove the archived flag and the metadata of a thread from the index."""
        self._archived.pop(thread, None)
        for name, value in list_members(thread.metadata):
            for key in ((name, value), (name, None)):
                found = self._members[key]
                found.pop(thread, None)
                if not found:
                    del self._members[key]
