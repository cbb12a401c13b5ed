"""The archives of the memory store at one moment."""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence

from aguila.store import refusals
from aguila.store.archives.thread_archive import (
    FileArchive,
    RemovedThreads,
    Snapshot,
    ThreadArchive,
    end_open_run,
)
from aguila.store.feed import Key


class MemorySnapshot(Snapshot):
    """The archives of all threads. They share the values of the store, which never change."""

    def __init__(self, threads: dict[Key, ThreadArchive], rest: Sequence[FileArchive | RemovedThreads]) -> None:
        self._threads = threads
        self._rest = rest

    async def threads(self) -> Sequence[Key]:
        """See ``Snapshot``."""
        return list(self._threads)

    async def thread(self, scope: str, thread_id: str, *, ends_run: bool = True) -> ThreadArchive:
        """See ``Snapshot``."""
        found = self._threads.get((scope, thread_id))
        if found is None:
            raise refusals.no_thread(thread_id)
        return end_open_run(found) if ends_run else found

    async def rest(self) -> AsyncIterator[FileArchive | RemovedThreads]:
        """See ``Snapshot``."""
        for archive in self._rest:
            yield archive
