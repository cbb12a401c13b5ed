"""Layer: store. The event log in memory: for tests, demos and agents whose threads may be forgotten.

Below: ``aguila.store.base``, ``feed`` and the parts in ``_memory``. It is bounded: beyond its limits the threads that
were idle for longest are removed whole, never one with a run on, and files that no thread has. No method waits between
looking and changing, so each is atomic on its event loop.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Callable, Iterator, Sequence
from itertools import islice

import msgspec

from aguila.codec.large import LARGE
from aguila.errors import (
    AgentMismatch,
    InterruptTaken,
    NotFound,
    RunExists,
    StaleLease,
    StoreUnavailable,
    ThreadBusy,
    ThreadMoved,
    TooManyRuns,
)
from aguila.store.base import (
    DEFAULT_AGENT,
    RECENT_THREADS,
    Batch,
    Blob,
    CancelRequest,
    InterruptRecord,
    Lease,
    Retention,
    RunEnd,
    RunRecord,
    Store,
    ThreadSummary,
    ThreadUpdate,
)
from aguila.store.encoding import ROOM, blob_id_of, check_ids, rows_of, size_of, thread_hash
from aguila.store.feed import Feed, Key
from aguila.store.memory.blobs import Files
from aguila.store.memory.thread import Thread

_replace = msgspec.structs.replace

MAX_REMOVED = 20_000
"""Of how many removed threads it is known which numbers they had, the last ones."""

_FULL = "the memory store is full, and nothing in it is idle"


class MemoryStore(Store):
    """Keeps everything in this process, and forgets it when it is closed.

    ``max_bytes`` (of events, inputs, sessions, results and files) and ``max_threads`` bound it. When nothing idle is
    left to remove, a call that needs room raises ``StoreUnavailable``; closing a run always succeeds. Of removed
    threads the numbers of the last ``MAX_REMOVED`` are known: the id of an earlier one is as if it was never used.
    """

    def __init__(
        self,
        *,
        max_bytes: int = 256 * 1024 * 1024,
        max_threads: int = 10_000,
        clock: Callable[[], float] = time.time,
    ) -> None:
        self._max_bytes = max_bytes
        self._max_threads = max_threads
        self._clock = clock
        self._feed: Feed | None = None
        self._loop: asyncio.AbstractEventLoop | None = None
        self._users = 0
        self._threads: dict[Key, Thread] = {}  # the one that was updated last is the last
        self._position = 0  # that one's
        self._files = Files()
        self._raised: dict[Key, dict[str, None]] = {}  # scope and interrupt -> the threads it is of, the newest last
        self._removed: dict[int, int] = {}  # hash of a removed thread -> its last number, the newest last
        self._running: dict[str, int] = {}  # scope -> how many of its threads have a run that is on
        self._bytes = 0  # of the threads, without files

    async def open(self) -> None:
        """See ``Store``."""
        if self._loop is not None and self._loop.is_closed():  # nobody who waited there will come back
            self._feed, self._users = None, 0
        if self._feed is None:
            self._feed = Feed(ring_bytes=64 * 1024)  # what is in the log anyway, found faster
            self._loop = asyncio.get_running_loop()
        self._users += 1

    async def close(self) -> None:
        """See ``Store``."""
        self._users = max(0, self._users - 1)
        if self._feed is not None and not self._users:
            self._feed.close()
            self._feed = None
            self._threads.clear()
            self._files.clear()
            self._raised.clear()
            self._removed.clear()
            self._running.clear()
            self._bytes = 0

    async def check(self) -> None:
        """See ``Store``."""
        self._open()
        # Whatever is idle would make room.
        running = [thread for thread in self._threads.values() if thread.running is not None]
        stays = sum(thread.bytes for thread in running) + self._files.bytes_held([thread.key for thread in running])
        room = min(ROOM, self._max_bytes // 16)
        if stays + room > self._max_bytes or len(running) >= self._max_threads:
            raise StoreUnavailable(_FULL)

    # Runs

    async def begin(
        self,
        scope: str,
        thread_id: str,
        run_id: str,
        *,
        owner: str,
        lease_seconds: float,
        input: bytes,  # noqa: A002
        fingerprint: str,
        events: Sequence[bytes],
        parent_run_id: str | None = None,
        claims: Sequence[str] = (),
        waiting: frozenset[str] | None = None,
        max_running: int | None = None,
        agent: str = DEFAULT_AGENT,
    ) -> tuple[Lease, Batch]:
        """See ``Store``."""
        feed = self._open()
        check_ids(scope, thread_id, run_id)
        size = size_of(rows_of(events))
        key = (scope, thread_id)
        thread = self._threads.get(key)
        if thread is not None:
            if thread.agent != agent:
                raise AgentMismatch(f"thread {thread_id!r} belongs to agent {thread.agent!r}", agent=thread.agent)
            if run_id in thread.runs:
                raise RunExists(f"run {run_id!r} exists", run=thread.record_of(run_id))
            if thread.running is not None:
                raise ThreadBusy(f"thread {thread_id!r} is busy", run=thread.record_of(thread.running))
        running = self._running.get(scope, 0)
        if max_running is not None and running >= max_running:
            raise TooManyRuns(f"{running} runs of this scope are on")
        if thread is not None and waiting is not None:
            for record in thread.interrupts.values():
                if record.status == "open" and record.interrupt_id not in waiting:
                    raise ThreadMoved(f"interrupt {record.interrupt_id!r} was raised meanwhile")
        for interrupt_id in claims:
            interrupt = None if thread is None else thread.interrupts.get(interrupt_id)
            if interrupt is None or interrupt.status != "open":
                raise InterruptTaken(f"interrupt {interrupt_id!r} is not open", interrupt_id=interrupt_id)
        size += len(input)
        self._make_room(size, new_thread=thread is None, keep=thread)
        now = self._clock()
        if thread is None:
            # Not the number after its predecessor's last: that one may be a cursor.
            first = self._removed.pop(thread_hash(scope, thread_id), -1) + 2 if self._removed else 1
            thread = self._threads[key] = Thread(key, now, first, agent)
        thread.running = run_id
        self._running[scope] = running + 1
        thread.lease_seconds = lease_seconds
        thread.runs[run_id] = RunRecord(
            scope=scope,
            thread_id=thread_id,
            run_id=run_id,
            parent_run_id=parent_run_id,
            input=input,
            fingerprint=fingerprint,
            first=thread.last + 1,
            last=thread.last,
            outcome=None,
            owner=owner,
            epoch=1,
            lease_until=now + lease_seconds,
            cancel_requested=False,
            started_at=now,
            ended_at=None,
            agent=agent,
        )
        thread.claim(run_id, claims)
        lease = Lease(scope=scope, thread_id=thread_id, run_id=run_id, epoch=1, owner=owner)
        batch = self._write(thread, events, size, now)
        if key in feed.channels:  # else nobody follows it yet, and whoever does will find it in the log
            feed.publish(lease, batch, size)
        return lease, batch

    async def append(self, lease: Lease, events: Sequence[bytes], *, end: RunEnd | None = None) -> Batch:
        """See ``Store``."""
        feed = self._open()
        size = size_of(rows_of(events))
        thread, run = self._hold(lease)
        if end is None:
            self._make_room(size, keep=thread)
        else:
            thread.settle(run.run_id, end.settles)
        now = self._clock()
        batch = self._write(thread, events, size, now)
        if end is None:
            if run.lease_until <= now:
                thread.runs[run.run_id] = _replace(run, lease_until=now + thread.lease_seconds)
        else:
            self._end(thread, run, end, now)
        feed.publish(lease, batch, size, ended=end is not None)
        return batch

    async def renew(self, lease: Lease, lease_seconds: float) -> bool:
        """See ``Store``."""
        thread, run = self._hold(lease)
        thread.lease_seconds = lease_seconds
        thread.runs[run.run_id] = _replace(run, lease_until=self._clock() + lease_seconds)
        return thread.cancel == "always"

    async def settle(self, lease: Lease, interrupt_ids: Sequence[str]) -> None:
        """See ``Store``."""
        thread, run = self._hold(lease)
        thread.settle(run.run_id, interrupt_ids)

    async def expired(self) -> Sequence[RunRecord]:
        """See ``Store``."""
        self._open()
        now = self._clock()
        found: list[RunRecord] = []
        for thread in self._threads.values():
            if thread.running is None:
                continue
            run = thread.record_of(thread.running)
            # After the clock was set back: one whole lease from now for each, or a dead one would hold on to it.
            for viewer, (until, seconds) in thread.viewers.items():
                thread.viewers[viewer] = (min(until, now + seconds), seconds)
            if run.lease_until <= now:
                found.append(run)
            elif run.lease_until > now + thread.lease_seconds:
                thread.runs[run.run_id] = _replace(run, lease_until=now + thread.lease_seconds)
        return found

    async def take_over(self, run: RunRecord, *, owner: str, lease_seconds: float) -> Lease | None:
        """See ``Store``."""
        feed = self._open()
        thread = self._threads.get((run.scope, run.thread_id))
        if thread is None or thread.running != run.run_id:
            return None
        current = thread.runs[run.run_id]
        now = self._clock()
        if (current.epoch, current.owner) != (run.epoch, run.owner) or current.lease_until > now:
            return None
        epoch = current.epoch + 1
        thread.lease_seconds = lease_seconds
        thread.runs[run.run_id] = _replace(current, owner=owner, epoch=epoch, lease_until=now + lease_seconds)
        thread.reopen_claims(run.run_id)
        lease = Lease(scope=run.scope, thread_id=run.thread_id, run_id=run.run_id, epoch=epoch, owner=owner)
        feed.own(lease)
        return lease

    async def request_cancel(self, scope: str, thread_id: str, run_id: str, *, unwatched: bool = False) -> RunRecord:
        """See ``Store``."""
        feed = self._open()
        thread = self._thread(scope, thread_id)
        if run_id not in thread.runs:
            raise NotFound(f"no run {run_id!r}")
        if thread.running == run_id:
            if not unwatched:
                thread.cancel = "always"
            elif thread.cancel is None:
                thread.cancel = "unwatched"
            feed.control((scope, thread_id))
        return thread.record_of(run_id)

    async def settle_cancel(self, scope: str, thread_id: str, run_id: str, *, granted: bool) -> None:
        """See ``Store``."""
        thread = self._find(scope, thread_id)
        if thread is not None and thread.running == run_id and thread.cancel == "unwatched":
            thread.cancel = "always" if granted else None
            self._open().control((scope, thread_id))

    async def cancel_requested(self, lease: Lease) -> CancelRequest:
        """See ``Store``."""

        async def asked() -> CancelRequest | None:
            try:
                return self._hold(lease)[0].cancel
            except StaleLease:
                return "always"

        return await self._open().controlled((lease.scope, lease.thread_id), asked)

    async def cancel_settled(self, scope: str, thread_id: str, run_id: str) -> RunRecord:
        """See ``Store``."""

        async def settled() -> RunRecord | None:
            thread = self._thread(scope, thread_id)
            run = await self.run(scope, thread_id, run_id)
            return None if run.is_running and thread.cancel == "unwatched" else run

        return await self._open().controlled((scope, thread_id), settled)

    async def watch(self, scope: str, thread_id: str, run_id: str, *, viewer: str, seconds: float) -> None:
        """See ``Store``."""
        thread = self._find(scope, thread_id)
        if thread is not None and thread.running == run_id:
            thread.viewers[viewer] = (self._clock() + seconds, seconds)

    async def unwatch(self, scope: str, thread_id: str, run_id: str, *, viewer: str) -> None:
        """See ``Store``."""
        thread = self._find(scope, thread_id)
        if thread is not None and thread.running == run_id and viewer in thread.viewers:
            until, seconds = thread.viewers[viewer]
            thread.viewers[viewer] = (min(until, self._clock()), seconds)

    async def watched(self, lease: Lease, *, within: float = 0.0) -> bool:
        """See ``Store``."""
        thread = self._find(lease.scope, lease.thread_id)
        if thread is None or thread.running != lease.run_id:
            return False
        since = self._clock() - within
        return any(until > since for until, _ in thread.viewers.values())

    async def run(self, scope: str, thread_id: str, run_id: str) -> RunRecord:
        """See ``Store``."""
        thread = self._thread(scope, thread_id)
        if run_id not in thread.runs:
            raise NotFound(f"no run {run_id!r}")
        return thread.record_of(run_id)

    async def runs(self, scope: str, thread_id: str) -> Sequence[RunRecord]:
        """See ``Store``."""
        thread = self._find(scope, thread_id)
        return [] if thread is None else [thread.record_of(run_id) for run_id in thread.runs]

    async def run_thread(self, scope: str, run_id: str) -> str | None:
        """See ``Store``."""
        self._open()
        threads = (thread for key, thread in reversed(self._threads.items()) if key[0] == scope)
        found = (thread for thread in islice(threads, RECENT_THREADS) if run_id in thread.runs)
        return next((thread.key[1] for thread in found), None)

    # The log

    async def last(self, scope: str, thread_id: str) -> int:
        """See ``Store``."""
        return self._thread(scope, thread_id).last

    async def read(
        self, scope: str, thread_id: str, after: int = 0, *, until: int | None = None, limit: int = 1024
    ) -> Sequence[Batch]:
        """See ``Store``."""
        return self._thread(scope, thread_id).read(after, until, limit)[0]

    def tail(self, scope: str, thread_id: str, after: int = 0) -> AsyncIterator[Batch]:
        """See ``Store``."""

        async def read(position: int) -> tuple[Sequence[Batch], int]:
            return self._thread(scope, thread_id).read(position, None, 1024)

        return self._open().tail((scope, thread_id), after, read)

    # Threads

    async def thread(self, scope: str, thread_id: str) -> ThreadSummary:
        """See ``Store``."""
        return self._thread(scope, thread_id).summary()

    async def threads(
        self,
        scope: str,
        *,
        limit: int = 50,
        before: int | None = None,
        agent: str | None = None,
        archived: bool | None = None,
    ) -> Sequence[ThreadSummary]:
        """See ``Store``."""
        self._open()
        found: list[ThreadSummary] = []
        for key, thread in reversed(self._threads.items()):
            if key[0] != scope or (before is not None and thread.position >= before):
                continue
            if agent not in (None, thread.agent) or archived not in (None, thread.archived):
                continue
            if len(found) >= limit:
                break
            found.append(thread.summary())
        return found

    async def update_thread(self, scope: str, thread_id: str, update: ThreadUpdate) -> ThreadSummary:
        """See ``Store``."""
        thread = self._thread(scope, thread_id)
        self._make_room(update.size, keep=thread)
        self._count(thread, thread.update(update))
        return thread.summary()

    async def delete_thread(self, scope: str, thread_id: str) -> None:
        """See ``Store``."""
        thread = self._find(scope, thread_id)
        if thread is None and self._files.holds((scope, thread_id)):
            self._files.release((scope, thread_id))  # which were given to it before its first run
            return
        thread = self._thread(scope, thread_id)
        if thread.running is not None:
            raise ThreadBusy(f"thread {thread_id!r} is busy", run=thread.record_of(thread.running))
        self._remove(thread)

    async def prune(self, retention: Retention) -> int:
        """See ``Store``."""
        self._open()
        now = self._clock()
        threads = len(self._threads)
        removed = 0
        for one in list(self._removable()):
            is_thread = isinstance(one, Thread)
            at = one.updated_at if is_thread else one[1].created_at
            stored = self._bytes + self._files.bytes
            if (
                (retention.max_age is not None and at < now - retention.max_age)
                or (retention.max_bytes is not None and stored > retention.max_bytes)
                or (is_thread and retention.max_threads is not None and threads - removed > retention.max_threads)
            ):
                self._drop(one)
                removed += is_thread
        return removed

    # Interrupts, session, recorded effects

    async def interrupts(self, scope: str, thread_id: str) -> Sequence[InterruptRecord]:
        """See ``Store``."""
        thread = self._find(scope, thread_id)
        return [] if thread is None else list(thread.interrupts.values())

    async def interrupt_thread(self, scope: str, interrupt_id: str) -> str | None:
        """See ``Store``."""
        self._open()
        threads = self._raised.get((scope, interrupt_id))
        return None if threads is None else next(reversed(threads))

    async def session(self, scope: str, thread_id: str) -> bytes | None:
        """See ``Store``."""
        thread = self._find(scope, thread_id)
        return None if thread is None else thread.session

    async def record(self, lease: Lease, root_run_id: str, key: str, value: bytes) -> None:
        """See ``Store``."""
        thread, _ = self._hold(lease)
        if key in thread.effects.get(root_run_id, {}):
            return
        self._make_room(len(value), keep=thread)
        thread.effects.setdefault(root_run_id, {})[key] = value
        self._count(thread, len(value))

    async def recorded(self, scope: str, thread_id: str, root_run_id: str) -> dict[str, bytes]:
        """See ``Store``."""
        thread = self._find(scope, thread_id)
        return {} if thread is None else dict(thread.effects.get(root_run_id, {}))

    # Files

    async def put_blob(
        self, scope: str, data: bytes, *, media_type: str, filename: str | None = None, thread_id: str | None = None
    ) -> Blob:
        """See ``Store``."""
        if len(data) > LARGE:
            blob_id = await asyncio.to_thread(blob_id_of, scope, data, media_type, filename)
        else:
            blob_id = blob_id_of(scope, data, media_type, filename)
        self._open()
        if not self._files.has(scope, blob_id):
            self._make_room(len(data), keep=None if thread_id is None else self._threads.get((scope, thread_id)))
            blob = Blob(
                blob_id=blob_id, media_type=media_type, filename=filename, size=len(data), created_at=self._clock()
            )
            self._files.add(scope, blob, data)
        return self._files.hold(scope, blob_id, thread_id)

    async def blob(self, scope: str, blob_id: str) -> tuple[Blob, bytes]:
        """See ``Store``."""
        self._open()
        return self._files.get(scope, blob_id)

    async def delete_blob(self, scope: str, blob_id: str) -> None:
        """See ``Store``."""
        self._open()
        self._files.delete(scope, blob_id)

    # Inside

    def _open(self) -> Feed:
        if self._feed is None:
            raise StoreUnavailable("the store is not open")
        return self._feed

    def _find(self, scope: str, thread_id: str) -> Thread | None:
        self._open()
        return self._threads.get((scope, thread_id))

    def _thread(self, scope: str, thread_id: str) -> Thread:
        thread = self._find(scope, thread_id)
        if thread is None:
            raise NotFound(f"no thread {thread_id!r}")
        return thread

    def _hold(self, lease: Lease) -> tuple[Thread, RunRecord]:
        """The thread and run of a lease that is good. Raises ``StaleLease``."""
        feed = self._open()
        thread = self._threads.get((lease.scope, lease.thread_id))
        if thread is not None and thread.running == lease.run_id:
            run = thread.runs[lease.run_id]
            if (run.epoch, run.owner) == (lease.epoch, lease.owner):
                return thread, run
        feed.disown(lease)
        raise StaleLease(f"run {lease.run_id!r} is closed or has another owner")

    def _write(self, thread: Thread, events: Sequence[bytes], size: int, now: float) -> Batch:
        batch = thread.write(events, now)
        self._count(thread, size)
        del self._threads[thread.key]
        self._threads[thread.key] = thread
        self._position += 1
        thread.position = self._position
        return batch

    def _end(self, thread: Thread, run: RunRecord, end: RunEnd, now: float) -> None:
        thread.runs[run.run_id] = _replace(
            run, outcome=end.outcome, last=thread.last, ended_at=now, cancel_requested=thread.cancel == "always"
        )
        thread.running = thread.cancel = None
        self._running[run.scope] -= 1
        if not self._running[run.scope]:
            del self._running[run.scope]
        thread.viewers.clear()
        thread.reopen_claims(run.run_id)
        for interrupt_id, body in end.interrupts:
            thread.interrupts.pop(interrupt_id, None)  # raised again: it is the newest, and open
            thread.interrupts[interrupt_id] = InterruptRecord(
                interrupt_id=interrupt_id, run_id=run.run_id, status="open", body=body
            )
            threads = self._raised.setdefault((run.scope, interrupt_id), {})
            threads.pop(run.thread_id, None)
            threads[run.thread_id] = None
            self._count(thread, len(body))
        if end.session is not None:
            self._count(thread, len(end.session) - len(thread.session or b""))
            thread.session = end.session

    # Room

    def _count(self, thread: Thread, size: int) -> None:
        thread.bytes += size
        self._bytes += size

    def _make_room(self, size: int, *, new_thread: bool = False, keep: Thread | None = None) -> None:
        """Remove what is idle until ``size`` more bytes fit. Raises ``StoreUnavailable``."""
        while (
            self._bytes + self._files.bytes + size > self._max_bytes
            or len(self._threads) + new_thread > self._max_threads
        ):
            is_crowded = len(self._threads) + new_thread > self._max_threads
            one = next((one for one in self._removable(keep) if isinstance(one, Thread) or not is_crowded), None)
            if one is None:
                raise StoreUnavailable(_FULL)
            self._drop(one)

    def _removable(self, keep: Thread | None = None) -> Iterator[Thread | tuple[str, Blob]]:
        """The idle threads, and the files that no thread holds, oldest first."""
        threads = (thread for thread in self._threads.values() if thread.running is None and thread is not keep)
        thread = next(threads, None)
        for scope, blob in self._files.loose(self._threads):
            while thread is not None and thread.updated_at <= blob.created_at:
                yield thread
                thread = next(threads, None)
            yield scope, blob
        while thread is not None:
            yield thread
            thread = next(threads, None)

    def _drop(self, one: Thread | tuple[str, Blob]) -> None:
        if isinstance(one, Thread):
            self._remove(one)
        else:
            self._files.delete(one[0], one[1].blob_id)

    def _remove(self, thread: Thread) -> None:
        del self._threads[thread.key]
        self._bytes -= thread.bytes
        scope, thread_id = thread.key
        mark = thread_hash(scope, thread_id)
        self._removed.pop(mark, None)
        self._removed[mark] = thread.last
        if len(self._removed) > MAX_REMOVED:
            del self._removed[next(iter(self._removed))]
        for interrupt_id in thread.interrupts:
            threads = self._raised[scope, interrupt_id]
            del threads[thread_id]
            if not threads:
                del self._raised[scope, interrupt_id]
        self._files.release(thread.key)
        self._open().look_again(thread.key)
