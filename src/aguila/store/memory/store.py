"""``MemoryStore``: the event log in memory, for tests, demos and threads that need not survive the process.

No method awaits between a check and the change that depends on it, so each call is atomic on its event loop.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from contextlib import AbstractAsyncContextManager, nullcontext
from itertools import islice

import msgspec

from aguila.errors import StaleLease, StoreError
from aguila.store import refusals
from aguila.store.archives.thread_archive import Archive, FileArchive, RemovedThreads, Snapshot, ThreadArchive
from aguila.store.base import Store
from aguila.store.cursors import new_token
from aguila.store.encoding import check_ids, hash_blob, size_of_events
from aguila.store.feed import Feed
from aguila.store.large_strings import HUGE
from aguila.store.memory.blobs import Blobs
from aguila.store.memory.capacity import Capacity
from aguila.store.memory.snapshot import MemorySnapshot
from aguila.store.memory.thread import Thread
from aguila.store.memory.threads import Threads
from aguila.store.records import (
    RECENT_THREADS,
    Batch,
    Blob,
    CancelRequest,
    InterruptRecord,
    Lease,
    MetadataFilter,
    NewRun,
    Quotas,
    Retention,
    RunEnd,
    RunProjection,
    RunRecord,
    StoredProjection,
    ThreadSummary,
    ThreadUpdate,
    Usage,
)
from aguila.store.run_inputs import (
    CutInput,
    CutProjection,
    cut_input,
    cut_projection,
    inline_file,
    inline_id,
    is_inline,
    join_value,
)

_NEW_THREAD = Usage(threads=1, bytes=1)
_NEW_RUN = Usage(bytes=1)
"""What a run needs at least."""

_replace = msgspec.structs.replace


class MemoryStore(Store):
    """A store in the memory of this process. Closing it deletes everything.

    ``max_bytes`` (events, inputs, projections, sessions, effects and files) and ``max_threads`` bound it. Beyond them,
    threads without an open run and files without a thread are removed, oldest first. If there are none, a call that
    needs room raises ``StoreUnavailable``; closing a run always succeeds. The last sequence number is remembered
    for the last ``threads.MAX_REMOVED`` removed threads.
    """

    def __init__(
        self,
        *,
        max_bytes: int = 256 * 1024 * 1024,
        max_threads: int = 10_000,
        clock: Callable[[], float] = time.time,
        monotonic: Callable[[], float] = time.monotonic,
    ) -> None:
        self._max_bytes = max_bytes
        self._max_threads = max_threads
        self._clock = clock
        self._monotonic = monotonic
        self._feed: Feed | None = None
        self._loop: asyncio.AbstractEventLoop | None = None
        self._users = 0
        self._clear()

    def _clear(self) -> None:
        self._token = new_token()
        self._threads = Threads()
        self._blobs = Blobs()
        self._capacity = Capacity(
            self._threads,
            self._blobs,
            max_bytes=self._max_bytes,
            max_threads=self._max_threads,
            on_removed=lambda key: self._opened().invalidate(key),
        )

    async def open(self) -> None:
        if self._loop is not None and self._loop.is_closed():  # the tails of that loop are gone
            self._feed, self._users = None, 0
        if self._feed is None:
            self._feed = Feed(ring_bytes=64 * 1024)  # small, because the log has the same events
            self._loop = asyncio.get_running_loop()
        self._users += 1

    async def close(self) -> None:
        self._users = max(0, self._users - 1)
        if self._feed is not None and not self._users:
            self._feed.close()
            self._feed = None
            self._clear()

    async def check(self) -> None:
        self._opened()
        self._capacity.check()

    # Runs

    def begin(self, new: NewRun) -> Awaitable[tuple[Lease, Batch]]:
        feed = self._opened()
        check_ids(new.scope, new.thread_id, new.run_id)
        if len(new.input) > HUGE:
            return self._begin_large(new)
        done: asyncio.Future[tuple[Lease, Batch]] = feed.loop.create_future()
        try:
            done.set_result(self._begin(feed, new, cut_input(new.input)))
        except StoreError as error:
            done.set_exception(error.with_traceback(None))  # its frames would hold this future, and with it the request
        return done

    async def _begin_large(self, new: NewRun) -> tuple[Lease, Batch]:
        cut = await asyncio.to_thread(cut_input, new.input)
        missing = [digest for digest in cut.files if not self._blobs.has(new.scope, inline_id(digest))]
        if missing:  # their bytes are part of the request: copy them in a thread, too
            copies = await asyncio.to_thread(lambda: {digest: bytes(cut.files[digest]) for digest in missing})
            cut = _replace(cut, files={**cut.files, **copies})
        return self._begin(self._opened(), new, cut)

    def _begin(self, feed: Feed, new: NewRun, input: CutInput) -> tuple[Lease, Batch]:  # noqa: A002
        lease = new.lease
        scope, thread_id, run_id = new.scope, new.thread_id, new.run_id
        size = size_of_events(new.events)
        key = (scope, thread_id)
        thread = self._threads.get(scope, thread_id)
        if thread is not None:
            if thread.agent != new.agent:
                raise refusals.agent_mismatch(thread_id, thread.agent)
            if run_id in thread.runs:
                raise refusals.run_exists(thread.record_of(run_id))
            if thread.running is not None:
                raise refusals.thread_busy(thread.record_of(thread.running))
        index = self._threads.find_scope(scope)
        if index is not None and new.max_running is not None and index.running >= new.max_running:
            raise refusals.too_many_runs(index.running)
        if new.quotas is not None:
            self._capacity.check_quotas(new.quotas, scope, _NEW_THREAD if thread is None else _NEW_RUN)
        if new.after is not None and new.after != (0 if thread is None else thread.last):
            raise refusals.thread_continued(lease.thread_id)
        if thread is not None and new.waiting is not None:
            for record in thread.interrupts.values():
                if record.status == "open" and record.interrupt_id not in new.waiting:
                    raise refusals.thread_moved(record.interrupt_id)
        for interrupt_id in new.claims:
            interrupt = None if thread is None else thread.interrupts.get(interrupt_id)
            if interrupt is None or interrupt.status != "open":
                raise refusals.interrupt_not_open(interrupt_id)
        self._capacity.make_room(size + input.size, new_thread=thread is None, keep=thread)
        now = self._clock()
        if thread is None:
            thread = self._threads.add(key, now, new.agent)
        run = RunRecord(
            scope=scope,
            thread_id=thread_id,
            run_id=run_id,
            parent_run_id=new.parent_run_id,
            fingerprint=new.fingerprint,
            first=thread.last + 1,
            last=thread.last,
            outcome=None,
            owner=lease.owner,
            epoch=lease.epoch,
            lease_until=self._monotonic() + new.lease_seconds,
            cancel_requested=False,
            started_at=now,
            ended_at=None,
            agent=new.agent,
            sent_run_id=new.sent_run_id,
        )
        size += thread.inputs.add(run_id, input)
        if input.files:
            self._hold_inline(thread, input.files, now)
        self._threads.open_run(thread, run, new.lease_seconds)
        if new.claims:
            thread.claim(run_id, new.claims)
        batch = self._threads.write(thread, new.events, size, now, lease.token)
        if key in feed.channels:  # otherwise it has no readers yet, and later ones read the log
            feed.publish(lease, batch, size)
        return lease, batch

    async def append(self, lease: Lease, events: Sequence[bytes], *, end: RunEnd | None = None) -> Batch:
        feed = self._opened()
        size = size_of_events(events)
        projection = None if end is None else end.projection
        parts = None if projection is None else await _cut(projection)
        thread, run = self._check_lease(lease)
        if end is None:
            self._capacity.make_room(size, keep=thread)
        else:
            thread.settle(run.run_id, end.settles)
        now = self._clock()
        batch = self._threads.write(thread, events, size, now, lease.token)
        if end is None:
            monotonic = self._monotonic()
            if run.lease_until <= monotonic:
                thread.runs[run.run_id] = _replace(run, lease_until=monotonic + thread.lease_seconds)
        else:
            self._threads.close_run(thread, run, end, now)
            if parts is not None:
                self._write_projection(thread, run.run_id, parts, now)
        feed.publish(lease, batch, size, ended=end is not None)
        return batch

    async def renew(self, lease: Lease, lease_seconds: float) -> bool:
        thread, run = self._check_lease(lease)
        thread.lease_seconds = lease_seconds
        thread.runs[run.run_id] = _replace(run, lease_until=self._monotonic() + lease_seconds)
        return thread.cancel == "always"

    async def settle(self, lease: Lease, interrupt_ids: Sequence[str]) -> None:
        thread, run = self._check_lease(lease)
        thread.settle(run.run_id, interrupt_ids)

    async def expired(self) -> Sequence[RunRecord]:
        self._opened()
        now = self._monotonic()
        running = [thread.record_of(thread.running) for thread in self._threads if thread.running is not None]
        return [run for run in running if run.lease_until <= now]

    async def take_over(self, run: RunRecord, *, owner: str, lease_seconds: float) -> Lease | None:
        feed = self._opened()
        thread = self._threads.get(run.scope, run.thread_id)
        if thread is None or thread.running != run.run_id:
            return None
        current = thread.runs[run.run_id]
        now = self._monotonic()
        if (current.epoch, current.owner) != (run.epoch, run.owner) or current.lease_until > now:
            return None
        epoch = current.epoch + 1
        thread.lease_seconds = lease_seconds
        thread.runs[run.run_id] = _replace(current, owner=owner, epoch=epoch, lease_until=now + lease_seconds)
        thread.reopen_claims(run.run_id)
        lease = Lease(
            scope=run.scope, thread_id=run.thread_id, run_id=run.run_id, epoch=epoch, owner=owner, token=new_token()
        )
        feed.own(lease)
        return lease

    async def request_cancel(self, scope: str, thread_id: str, run_id: str, *, unwatched: bool = False) -> RunRecord:
        feed = self._opened()
        thread = self._thread(scope, thread_id)
        if run_id not in thread.runs:
            raise refusals.no_run(thread_id, run_id)
        if thread.running == run_id:
            if not unwatched:
                thread.cancel = "always"
            elif thread.cancel is None:
                thread.cancel = "unwatched"
            feed.wake_control((scope, thread_id))
        return thread.record_of(run_id)

    async def settle_cancel(self, scope: str, thread_id: str, run_id: str, *, granted: bool) -> None:
        thread = self._find(scope, thread_id)
        if thread is not None and thread.running == run_id and thread.cancel == "unwatched":
            thread.cancel = "always" if granted else None
            self._opened().wake_control((scope, thread_id))

    async def cancel_requested(self, lease: Lease) -> CancelRequest:
        async def find_request() -> CancelRequest | None:
            try:
                return self._check_lease(lease)[0].cancel
            except StaleLease:
                return "always"

        return await self._opened().wait_for_control((lease.scope, lease.thread_id), find_request)

    def listen_for_cancel(self, lease: Lease, callback: Callable[[], None]) -> None:
        """Do nothing: no other process can use this store."""

    async def cancel_settled(self, scope: str, thread_id: str, run_id: str) -> RunRecord:
        async def find_settled() -> RunRecord | None:
            thread = self._thread(scope, thread_id)
            run = await self.run(scope, thread_id, run_id)
            return None if run.is_running and thread.cancel == "unwatched" else run

        return await self._opened().wait_for_control((scope, thread_id), find_settled)

    async def watch(self, scope: str, thread_id: str, run_id: str, *, viewer: str, seconds: float) -> None:
        thread = self._find(scope, thread_id)
        if thread is not None and thread.running == run_id:
            thread.viewers[viewer] = self._monotonic() + seconds

    async def unwatch(self, scope: str, thread_id: str, run_id: str, *, viewer: str) -> None:
        thread = self._find(scope, thread_id)
        if thread is not None and thread.running == run_id and viewer in thread.viewers:
            thread.viewers[viewer] = min(thread.viewers[viewer], self._monotonic())

    async def watched(self, lease: Lease, *, within: float = 0.0) -> bool:
        thread = self._find(lease.scope, lease.thread_id)
        if thread is None or thread.running != lease.run_id:
            return False
        since = self._monotonic() - within
        return any(until > since for until in thread.viewers.values())

    async def run(self, scope: str, thread_id: str, run_id: str) -> RunRecord:
        thread = self._thread(scope, thread_id)
        if run_id not in thread.runs:
            raise refusals.no_run(thread_id, run_id)
        return thread.record_of(run_id)

    async def input(self, scope: str, thread_id: str, run_id: str) -> bytes:
        thread = self._find(scope, thread_id)
        if thread is None or run_id not in thread.runs:
            raise refusals.no_run(thread_id, run_id)
        return thread.inputs.join(run_id, self._inline_of(scope))

    async def runs(self, scope: str, thread_id: str) -> Sequence[RunRecord]:
        thread = self._find(scope, thread_id)
        return [] if thread is None else [thread.record_of(run_id) for run_id in thread.runs]

    async def run_thread(self, scope: str, run_id: str) -> str | None:
        self._opened()
        recent = islice(self._threads.newest_first(scope), RECENT_THREADS)
        return next((thread.key[1] for thread in recent if run_id in thread.runs), None)

    # The log

    async def last(self, scope: str, thread_id: str) -> int:
        return self._thread(scope, thread_id).last

    async def token(self, scope: str, thread_id: str, number: int) -> str:
        return self._thread(scope, thread_id).token(number)

    async def read(
        self, scope: str, thread_id: str, after: int = 0, *, until: int | None = None, limit: int = 1024
    ) -> Sequence[Batch]:
        return self._thread(scope, thread_id).read(after, until, limit)[0]

    def tail(self, scope: str, thread_id: str, after: int = 0) -> AsyncIterator[Batch]:
        async def read(position: int) -> tuple[Sequence[Batch], int]:
            return self._thread(scope, thread_id).read(position, None, 1024)

        return self._opened().tail((scope, thread_id), after, read)

    # Threads

    async def thread(self, scope: str, thread_id: str) -> ThreadSummary:
        return self._thread(scope, thread_id).summary()

    async def threads(
        self,
        scope: str,
        *,
        limit: int = 50,
        before: int | None = None,
        agent: str | None = None,
        archived: bool | None = None,
        metadata: MetadataFilter | None = None,
    ) -> Sequence[ThreadSummary]:
        self._opened()
        found: list[ThreadSummary] = []
        for thread in self._threads.newest_first(scope, before, archived, metadata):
            if agent not in (None, thread.agent) or archived not in (None, thread.archived):
                continue
            if metadata is not None and not metadata.matches(thread.metadata):
                continue
            if len(found) >= limit:
                break
            found.append(thread.summary())
        return found

    async def threads_stamp(self, scope: str) -> str:
        self._opened()
        index = self._threads.find_scope(scope)
        return f"{self._token}-{0 if index is None else index.version}"

    async def update_thread(self, scope: str, thread_id: str, update: ThreadUpdate) -> ThreadSummary:
        thread = self._thread(scope, thread_id)
        self._capacity.make_room(update.size, keep=thread)
        self._threads.update(thread, update)
        return thread.summary()

    async def delete_thread(self, scope: str, thread_id: str) -> None:
        if self._find(scope, thread_id) is None and self._blobs.has_files((scope, thread_id)):
            self._blobs.release((scope, thread_id))  # stored for a thread that never ran
            return
        thread = self._thread(scope, thread_id)
        if thread.running is not None:
            raise refusals.thread_busy(thread.record_of(thread.running))
        self._capacity.remove(thread)

    async def prune(self, retention: Retention) -> int:
        self._opened()
        return self._capacity.prune(retention, self._clock())

    async def usage(self, scope: str | None = None) -> Usage:
        self._opened()
        return self._capacity.usage(scope)

    # Projections

    async def projections(self, scope: str, thread_id: str, after: int = 0) -> Sequence[StoredProjection]:
        thread = self._find(scope, thread_id)
        return [] if thread is None else thread.list_projections(after)

    async def values(self, scope: str, thread_id: str, digests: Sequence[bytes]) -> dict[bytes, bytes]:
        thread = self._find(scope, thread_id)
        values = {} if thread is None else thread.values
        return {digest: join_value(values[digest], self._inline_of(scope)) for digest in digests if digest in values}

    async def save_projections(self, scope: str, thread_id: str, projections: Mapping[str, RunProjection]) -> None:
        parts = {run_id: await _cut(projection) for run_id, projection in projections.items()}
        thread = self._find(scope, thread_id)
        if thread is not None:
            self._capacity.make_room(sum([projection.size for projection in projections.values()]), keep=thread)
            for run_id, new in parts.items():
                if run_id in thread.runs and thread.running != run_id:
                    self._write_projection(thread, run_id, new, self._clock())

    def _write_projection(self, thread: Thread, run_id: str, new: CutProjection, now: float) -> None:
        self._threads.grow(thread, thread.save_projection(run_id, new))
        self._hold_inline(thread, new.files, now)

    def _hold_inline(self, thread: Thread, files: Mapping[bytes, bytes | memoryview], now: float) -> None:
        """Store the inline files of a request or a projection for a thread."""
        scope, thread_id = thread.key
        for digest, data in files.items():
            if not self._blobs.has(scope, inline_id(digest)):
                self._blobs.add(scope, inline_file(digest, data, now), bytes(data))
            self._blobs.hold(scope, inline_id(digest), thread_id)

    def _inline_of(self, scope: str) -> Callable[[bytes], bytes]:
        return lambda digest: self._blobs.get(scope, inline_id(digest))[1]

    # Compaction

    async def compactable(self, seconds: float, limit: int = 100) -> Sequence[RunRecord]:
        self._opened()
        before = self._clock() - seconds
        found = [run for thread in self._threads for run in thread.runs.values() if thread.is_compactable(run, before)]
        return sorted(found, key=lambda run: run.ended_at or 0.0)[:limit]

    async def compact_run(self, run: RunRecord, events: Sequence[bytes]) -> None:
        thread = self._find(run.scope, run.thread_id)
        if thread is not None and thread.runs.get(run.run_id) == run and run.run_id not in thread.compacted:
            self._threads.grow(thread, thread.compact(run, events))
            self._opened().invalidate(thread.key)

    # Interrupts, session, recorded effects

    async def interrupts(self, scope: str, thread_id: str) -> Sequence[InterruptRecord]:
        thread = self._find(scope, thread_id)
        return [] if thread is None else list(thread.interrupts.values())

    async def interrupt_thread(self, scope: str, interrupt_id: str) -> str | None:
        self._opened()
        return self._threads.find_interrupt(scope, interrupt_id)

    async def session(self, scope: str, thread_id: str) -> bytes | None:
        thread = self._find(scope, thread_id)
        return None if thread is None else thread.session

    async def record(self, lease: Lease, root_run_id: str, key: str, value: bytes) -> None:
        thread, _ = self._check_lease(lease)
        if key in thread.effects.get(root_run_id, {}):
            return
        self._capacity.make_room(len(value), keep=thread)
        thread.effects.setdefault(root_run_id, {})[key] = value
        self._threads.grow(thread, len(value))

    async def recorded(self, scope: str, thread_id: str, root_run_id: str) -> dict[str, bytes]:
        thread = self._find(scope, thread_id)
        return {} if thread is None else dict(thread.effects.get(root_run_id, {}))

    # Files

    async def put_blob(
        self,
        scope: str,
        data: bytes,
        *,
        media_type: str,
        filename: str | None = None,
        thread_id: str | None = None,
        quotas: Quotas | None = None,
    ) -> Blob:
        if len(data) > HUGE:
            blob_id = await asyncio.to_thread(hash_blob, scope, data, media_type, filename)
        else:
            blob_id = hash_blob(scope, data, media_type, filename)
        self._opened()
        if not self._blobs.has(scope, blob_id):
            if quotas is not None:
                self._capacity.check_quotas(quotas, scope, Usage(files=1, bytes=len(data)))
            self._capacity.make_room(len(data), keep=None if thread_id is None else self._threads.get(scope, thread_id))
            blob = Blob(
                blob_id=blob_id, media_type=media_type, filename=filename, size=len(data), created_at=self._clock()
            )
            self._blobs.add(scope, blob, data)
        return self._blobs.hold(scope, blob_id, thread_id)

    async def blob(self, scope: str, blob_id: str) -> tuple[Blob, bytes]:
        self._opened()
        if is_inline(blob_id):
            raise refusals.no_blob(blob_id)
        return self._blobs.get(scope, blob_id)

    async def delete_blob(self, scope: str, blob_id: str) -> None:
        self._opened()
        if is_inline(blob_id):
            raise refusals.no_blob(blob_id)
        self._blobs.delete(scope, blob_id)

    # Archives

    def snapshot(self) -> AbstractAsyncContextManager[Snapshot]:
        self._opened()
        threads = {thread.key: thread.archive(self._blobs.archive(thread.key)) for thread in self._threads}
        summaries = {thread.key: thread.summary() for thread in self._threads}
        rest = [*self._blobs.archive_rest(self._threads), RemovedThreads(self._threads.removed)]
        return nullcontext(MemorySnapshot(threads, summaries, rest))

    async def restore(self, archive: Archive, *, replace: bool = False) -> None:
        feed = self._opened()
        match archive:
            case RemovedThreads():
                for removed, last in archive.last.items():
                    self._threads.note_removed(removed, last)
            case FileArchive():
                self._capacity.make_room(archive.file.blob.size)
                self._blobs.restore(archive.scope, archive.file, archive.thread_id)
            case ThreadArchive():
                archive.check()
                old = self._threads.get(archive.scope, archive.thread_id)
                if old is not None:
                    if not replace:
                        raise refusals.thread_exists(archive.thread_id)
                    if old.running is not None:
                        raise refusals.thread_busy(old.record_of(old.running))
                    self._capacity.remove(old)
                self._capacity.make_room(archive.size, new_thread=True)
                self._threads.restore(archive)
                for file in archive.files:
                    self._blobs.restore(archive.scope, file, archive.thread_id)
                feed.invalidate((archive.scope, archive.thread_id))

    def _opened(self) -> Feed:
        if self._feed is None:
            raise refusals.not_open()
        return self._feed

    def _find(self, scope: str, thread_id: str) -> Thread | None:
        self._opened()
        return self._threads.get(scope, thread_id)

    def _thread(self, scope: str, thread_id: str) -> Thread:
        thread = self._find(scope, thread_id)
        if thread is None:
            raise refusals.no_thread(thread_id)
        return thread

    def _check_lease(self, lease: Lease) -> tuple[Thread, RunRecord]:
        """Return the thread and the run of a valid lease. Raises ``StaleLease``."""
        thread = self._threads.get(lease.scope, lease.thread_id)
        if thread is not None and thread.running == lease.run_id:
            run = thread.runs[lease.run_id]
            if run.epoch == lease.epoch and run.owner == lease.owner:
                return thread, run
        self._opened().disown(lease)
        raise refusals.stale_lease(lease)


async def _cut(projection: RunProjection) -> CutProjection:
    if projection.size > HUGE:
        return await asyncio.to_thread(cut_projection, projection)
    return cut_projection(projection)
