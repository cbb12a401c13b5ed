"""The limits of the memory store: its sizes, and the removal of threads to make room."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from heapq import merge
from typing import TypeAlias

from aguila.errors import StoreUnavailable
from aguila.store import refusals
from aguila.store.encoding import SMALL_RUN
from aguila.store.feed import ThreadKey
from aguila.store.memory.blobs import Blobs
from aguila.store.memory.thread import Thread
from aguila.store.memory.threads import Threads
from aguila.store.records import Blob, Quotas, Retention, Usage

_Entry: TypeAlias = "Thread | tuple[str, Blob]"
"""An object that can be removed: a thread, or a file with its scope."""

_NOTHING = Usage()

_FULL = "the memory store is full and every thread has an open run; raise max_bytes or max_threads, or use SQLiteStore"


class Capacity:
    """Counts the threads and files of a store, and removes the oldest. ``on_removed`` is called for each thread."""

    def __init__(
        self,
        threads: Threads,
        blobs: Blobs,
        *,
        max_bytes: int,
        max_threads: int,
        on_removed: Callable[[ThreadKey], None],
    ) -> None:
        self._threads = threads
        self._blobs = blobs
        self._max_bytes = max_bytes
        self._max_threads = max_threads
        self._on_removed = on_removed

    def check(self) -> None:
        """Raise ``StoreUnavailable`` if a small run would not fit."""
        # Everything that belongs to no open run could be removed.
        running = [thread for thread in self._threads if thread.running is not None]
        used = sum(thread.size for thread in running) + self._blobs.bytes_held([thread.key for thread in running])
        room = min(SMALL_RUN, self._max_bytes // 16)
        if used + room > self._max_bytes or len(running) >= self._max_threads:
            raise StoreUnavailable(_FULL)

    def usage(self, scope: str | None = None) -> Usage:
        """Return the usage of a scope; without one, of the whole store."""
        threads, files = self._threads, self._blobs
        if scope is None:
            return Usage(threads=len(threads), files=files.uploads, bytes=threads.bytes + files.bytes)
        count, size = files.usage(scope)
        index = threads.find_scope(scope)
        if index is None:
            return Usage(files=count, bytes=size)
        return Usage(threads=len(index), files=count, bytes=index.bytes + size)

    def check_quotas(self, quotas: Quotas, scope: str, new: Usage) -> None:
        """Raise ``QuotaExceeded`` if a scope may not store this much more."""
        exceeded = quotas.find_exceeded(self.usage(scope), self.usage() if quotas.is_total else _NOTHING, new=new)
        if exceeded is not None:
            raise refusals.quota_exceeded(exceeded)

    def make_room(self, size: int, *, new_thread: bool = False, keep: Thread | None = None) -> None:
        """Remove threads without an open run, and files, until ``size`` bytes fit. Raises ``StoreUnavailable``."""
        while (
            is_crowded := new_thread and len(self._threads) >= self._max_threads
        ) or self._threads.bytes + self._blobs.bytes + size > self._max_bytes:
            removable = self._removable(keep)
            oldest = next((entry for entry in removable if isinstance(entry, Thread) or not is_crowded), None)
            if oldest is None:
                raise StoreUnavailable(_FULL)
            self.remove(oldest)

    def prune(self, retention: Retention, now: float) -> int:
        """Remove threads and files beyond the retention. Return the number of removed threads."""
        removed = 0
        for entry in list(self._removable()):
            is_thread = isinstance(entry, Thread)
            age = now - _stored_at(entry)
            used = self.usage(entry.key[0] if is_thread else entry[0])
            if retention.is_exceeded(age=age, size=used.bytes, threads=used.threads if is_thread else 0):
                self.remove(entry)
                removed += is_thread
        return removed

    def remove(self, entry: _Entry) -> None:
        """Remove a thread with its files, or a file."""
        if isinstance(entry, Thread):
            self._threads.remove(entry)
            self._blobs.release(entry.key)
            self._on_removed(entry.key)
        else:
            self._blobs.delete(entry[0], entry[1].blob_id)

    def _removable(self, keep: Thread | None = None) -> Iterator[_Entry]:
        """Iterate over the threads without an open run and the files without a thread, oldest first."""
        threads: Iterator[_Entry] = (one for one in self._threads if one.running is None and one is not keep)
        return merge(threads, self._blobs.without_thread(self._threads), key=_stored_at)


def _stored_at(entry: _Entry) -> float:
    return entry.updated_at if isinstance(entry, Thread) else entry[1].created_at
