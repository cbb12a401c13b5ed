"""The threads of the memory store, in the order of their last update, and the last sequence numbers of removed ones."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Sequence

import msgspec

from aguila.store.archives.thread_archive import ThreadArchive
from aguila.store.encoding import hash_thread
from aguila.store.feed import ThreadKey
from aguila.store.memory.scope_index import ScopeIndex
from aguila.store.memory.thread import Thread
from aguila.store.records import Batch, InterruptRecord, MetadataFilter, RunEnd, RunRecord, ThreadUpdate

MAX_REMOVED = 20_000
"""For how many removed threads the last sequence number is remembered."""


class Threads:
    """All threads of a store. ``bytes`` is their total size, without files."""

    def __init__(self) -> None:
        self.bytes = 0
        self._threads: dict[ThreadKey, Thread] = {}  # the last one was updated last
        self._scopes: defaultdict[str, ScopeIndex] = defaultdict(ScopeIndex)
        self._position = 0
        self._version = 0
        self._raised: dict[ThreadKey, dict[str, None]] = {}  # (scope, interrupt) -> ids of its threads, the newest last
        self._removed: dict[int, int] = {}  # hash of a removed thread -> its last number, the newest last

    def __len__(self) -> int:
        return len(self._threads)

    def __contains__(self, key: object) -> bool:
        return key in self._threads

    def __iter__(self) -> Iterator[Thread]:
        """Iterate over the threads, the one updated longest ago first."""
        return iter(self._threads.values())

    def get(self, scope: str, thread_id: str) -> Thread | None:
        """Return a thread, or None."""
        return self._threads.get((scope, thread_id))

    def newest_first(
        self,
        scope: str,
        before: int | None = None,
        archived: bool | None = None,
        metadata: MetadataFilter | None = None,
    ) -> Iterator[Thread]:
        """Iterate over threads of a scope, the one updated last first; see ``ScopeIndex.newest_first``."""
        index = self._scopes.get(scope)
        return iter(()) if index is None else index.newest_first(before, archived, metadata)

    def update(self, thread: Thread, update: ThreadUpdate) -> None:
        """Change the title, the archived flag or the metadata of a thread."""
        index = self._scopes[thread.key[0]]
        index.remove_details(thread)
        self.grow(thread, thread.update(update))
        index.add_details(thread)
        self._version = index.version = self._version + 1

    def find_scope(self, scope: str) -> ScopeIndex | None:
        """Return the threads of a scope, or None if it has none."""
        return self._scopes.get(scope)

    def find_interrupt(self, scope: str, interrupt_id: str) -> str | None:
        """Return the id of the thread that raised this interrupt last, or None."""
        threads = self._raised.get((scope, interrupt_id))
        return None if threads is None else next(reversed(threads))

    def add(self, key: ThreadKey, now: float, agent: str) -> Thread:
        """Create a thread."""
        # The number after the predecessor's last one is skipped: the last one may be a cursor.
        first = self._removed.pop(hash_thread(*key), -1) + 2 if self._removed else 1
        thread = self._threads[key] = Thread(key, agent, now, now, first, first - 1)
        return thread

    def write(self, thread: Thread, events: Sequence[bytes], size: int, now: float, token: str = "") -> Batch:
        """Append events to a thread, which becomes the one updated last."""
        batch = thread.write(events, now, token)
        index = self._scopes[thread.key[0]]
        thread.size += size
        self.bytes += size
        index.bytes += size
        self._version = index.version = self._version + 1
        if thread.position != self._position:  # otherwise it is the one updated last
            del self._threads[thread.key]
            self._threads[thread.key] = thread
            self._position += 1
            index.move(thread, self._position)
        return batch

    def grow(self, thread: Thread, size: int) -> None:
        """Count bytes that a thread gained or lost."""
        thread.size += size
        self.bytes += size
        self._scopes[thread.key[0]].bytes += size

    def open_run(self, thread: Thread, run: RunRecord, lease_seconds: float) -> None:
        """Make a run the open run of a thread."""
        thread.runs[run.run_id] = run
        thread.running = run.run_id
        thread.lease_seconds = lease_seconds
        self._scopes[run.scope].running += 1

    def close_run(self, thread: Thread, run: RunRecord, end: RunEnd, now: float) -> None:
        """Close the open run of a thread: reopen its claims, add its interrupts and store its session."""
        thread.runs[run.run_id] = msgspec.structs.replace(
            run,
            outcome=end.outcome,
            last=thread.last,
            ended_at=now,
            cancel_requested=thread.cancel == "always",
            token=thread.last_token,
        )
        thread.running = thread.cancel = None
        self._scopes[run.scope].running -= 1
        thread.viewers.clear()
        thread.reopen_claims(run.run_id)
        for interrupt_id, body in end.interrupts:
            old = thread.interrupts.pop(interrupt_id, None)  # an interrupt that is raised again is the newest one
            thread.interrupts[interrupt_id] = InterruptRecord(
                interrupt_id=interrupt_id, run_id=run.run_id, status="open", body=body
            )
            self._note_raised(thread, interrupt_id)
            self.grow(thread, len(body) - (0 if old is None else len(old.body)))
        if end.session is not None:
            self.grow(thread, len(end.session) - len(thread.session or b""))
            thread.session = end.session
        if end.update is not None:
            self.update(thread, end.update)

    def remove(self, thread: Thread) -> None:
        """Remove a thread and remember its last sequence number."""
        del self._threads[thread.key]
        self.bytes -= thread.size
        scope, thread_id = thread.key
        index = self._scopes[scope]
        index.bytes -= thread.size
        index.remove(thread)
        self._version = index.version = self._version + 1
        if not index:
            del self._scopes[scope]
        removed = hash_thread(scope, thread_id)
        self.note_removed(removed, thread.last)
        for interrupt_id in thread.interrupts:
            threads = self._raised[scope, interrupt_id]
            del threads[thread_id]
            if not threads:
                del self._raised[scope, interrupt_id]

    @property
    def removed(self) -> dict[int, int]:
        """The last sequence number of each removed thread, by its hash."""
        return dict(self._removed)

    def note_removed(self, removed: int, last: int) -> None:
        """Remember the last sequence number of a removed thread."""
        self._removed[removed] = max(last, self._removed.pop(removed, 0))
        if len(self._removed) > MAX_REMOVED:
            del self._removed[next(iter(self._removed))]

    def restore(self, archive: ThreadArchive) -> None:
        """Create a thread from an archive."""
        key, first = (archive.scope, archive.thread_id), archive.first
        thread = Thread(key, archive.agent, archive.created_at, archive.updated_at, first, first - 1)
        self._threads[thread.key] = thread
        for interrupt in archive.interrupts:
            self._note_raised(thread, interrupt.interrupt_id)
        self.write(thread, (), thread.restore(archive), archive.updated_at)
        self._scopes[archive.scope].add_details(thread)

    def _note_raised(self, thread: Thread, interrupt_id: str) -> None:
        scope, thread_id = thread.key
        threads = self._raised.setdefault((scope, interrupt_id), {})
        threads.pop(thread_id, None)
        threads[thread_id] = None
