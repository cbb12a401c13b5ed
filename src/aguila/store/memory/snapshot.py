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
from aguila.store.feed import ThreadKey
from aguila.store.records import ThreadSummary


class MemorySnapshot(Snapshot):
    """The archives of all threads. They share the values of the store, which never change."""

    def __init__(
        self,
        threads: dict[ThreadKey, ThreadArchive],
        summaries: dict[ThreadKey, ThreadSummary],
        rest: Sequence[FileArchive | RemovedThreads],
    ) -> None:
        self._threads = threads
        self._summaries = summaries
        self._rest = rest

    async def threads(self) -> Sequence[ThreadKey]:
        """See ``Snapshot``."""
        return list(self._threads)

    async def summaries(self, scope: str, *, before: int | None = None, limit: int = 500) -> Sequence[ThreadSummary]:
        """See ``Snapshot``."""
        found = [one for key, one in self._summaries.items() if key[0] == scope]
        found = [one for one in found if before is None or one.position < before]
        return sorted(found, key=lambda one: one.position, reverse=True)[:limit]

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
