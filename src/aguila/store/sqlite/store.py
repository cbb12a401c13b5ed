"""``SQLiteStore``: the event log in one SQLite file, which several processes may share.

One connection writes (``writer``), on a thread or, if the write is short and nothing can block it, on the event loop. A
few connections read, each on a thread of its own (``readers``). The event loop never waits for a lock or the disk.
Leases are checked inside the transaction that writes. Other processes learn of a change by a datagram (``wakeup``);
while readers wait, the file is also polled, in case one is lost.
"""

from __future__ import annotations

import asyncio
import os
import sqlite3
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from contextlib import AbstractAsyncContextManager
from functools import partial
from math import inf
from pathlib import Path
from typing import TypeVar

from aguila.errors import NotFound, StaleLease, StoreUnavailable
from aguila.store import refusals
from aguila.store.archives.thread_archive import Archive, Snapshot, ThreadArchive
from aguila.store.base import Store
from aguila.store.encoding import check_ids, encode_rows, hash_blob, join_events, size_of_rows
from aguila.store.feed import ThreadKey
from aguila.store.large_strings import HUGE
from aguila.store.records import (
    Batch,
    Blob,
    CancelRequest,
    Durability,
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
from aguila.store.run_inputs import CutInput, CutProjection, cut_input, cut_projection, is_inline
from aguila.store.shared_engine import SharedEngine
from aguila.store.sqlite import archives, queries, run_writes, thread_writes
from aguila.store.sqlite.database.connection import connect
from aguila.store.sqlite.database.locks import OwnerLocks
from aguila.store.sqlite.engine import Engine
from aguila.store.sqlite.inputs import read_input
from aguila.store.sqlite.projections import list_projections, read_values, save_projections

T = TypeVar("T")

SHORT = 32 * 1024
"""Bytes that a job may write and still be short; see ``writer.Job``."""


class SQLiteStore(Store):
    """A store in one file.

    With ``durability="process"``, stored events survive the death of the process at any point. With ``"power"`` they
    also survive the loss of power; each commit then waits for the disk.

    A call raises ``StoreUnavailable`` if the file is locked for longer than ``busy_seconds``, if the disk is full, or
    if the file would grow beyond ``max_bytes``. The store works again as soon as the cause is gone.

    When a process dies or closes its store, its runs can be taken over at once, if the platform supports owner locks
    (``sqlite/database/locks``). Otherwise they can be taken over when their leases expire: when the owner has not
    renewed them for their length, on the monotonic clock, which all processes of a machine share. ``clock`` is for
    the times that are stored; leases do not depend on it.
    """

    def __init__(
        self,
        path: str | os.PathLike[str],
        *,
        durability: Durability = "process",
        busy_seconds: float = 5.0,
        max_bytes: int | None = None,
        poll_seconds: float = 0.15,
        readers: int = 4,
        clock: Callable[[], float] = time.time,
        monotonic: Callable[[], float] = time.monotonic,
    ) -> None:
        if os.fspath(path) in ("", ":memory:"):
            raise ValueError("SQLiteStore needs a file; use MemoryStore to keep threads in memory")
        if durability not in ("process", "power"):
            raise ValueError(f'durability is {durability!r}; use "process" or "power"')
        self.path = Path(path)
        self._make_engine = partial(
            Engine,
            self.path,
            partial(connect, self.path, busy_seconds=busy_seconds, durability=durability, max_bytes=max_bytes),
            busy_seconds=busy_seconds,
            poll_seconds=poll_seconds,
            readers=readers,
            syncs_commits=durability == "power",
        )
        self._clock = clock
        self._monotonic = monotonic
        self._locks = OwnerLocks(self.path)
        self._engine = SharedEngine(self._open_engine)

    @property
    def location(self) -> str:
        return str(self.path.resolve())

    async def open(self) -> None:
        await self._engine.open()

    async def close(self) -> None:
        await self._engine.close()

    async def _open_engine(self) -> Engine:
        engine = self._make_engine(locks=self._locks)
        try:
            await engine.open()
        except StoreUnavailable as error:
            reason = _explain(self.path, error)
            raise StoreUnavailable(f"{self.path} cannot be used as a store: {reason}") from error
        return engine

    @property
    def wrote_at(self) -> float:
        engine = self._engine.current
        return -inf if engine is None else engine.writer.wrote_at

    async def check(self) -> None:
        await self._engine.get().write(lambda db: thread_writes.check(db, self._clock()))

    # Runs

    def begin(self, new: NewRun) -> Awaitable[tuple[Lease, Batch]]:
        engine = self._engine.get()
        check_ids(new.scope, new.thread_id, new.run_id)
        if len(new.input) > HUGE:
            return self._begin_large(engine, new)
        return self._begin(engine, new, cut_input(new.input))

    async def _begin_large(self, engine: Engine, new: NewRun) -> tuple[Lease, Batch]:
        return await self._begin(engine, new, await engine.compute(cut_input, new.input))

    def _begin(self, engine: Engine, new: NewRun, input: CutInput) -> asyncio.Future[tuple[Lease, Batch]]:  # noqa: A002
        lease, rows = new.lease, encode_rows(new.events)
        lock, size = self._locks.hold(lease.owner), size_of_rows(rows)
        return engine.write(
            lambda db: (lease, run_writes.begin(db, self._clock(), self._monotonic(), new, lease, rows, input, lock)),
            [(lease.scope, lease.thread_id)],
            lambda begun: engine.feed.publish(lease, begun[1], size, begun=True),
            is_short=input.size + size <= SHORT,
            size=input.size + size,
        )

    async def append(self, lease: Lease, events: Sequence[bytes], *, end: RunEnd | None = None) -> Batch:
        engine = self._engine.get()
        rows = encode_rows(events)
        size = size_of_rows(rows)
        batch_events = tuple(events)
        parts = None if end is None or end.projection is None else await self._cut(end.projection)
        return await self._write_leased(
            lease,
            lambda db: run_writes.append(db, self._clock(), self._monotonic(), lease, batch_events, rows, end, parts),
            lambda batch: engine.feed.publish(lease, batch, size, ended=end is not None),
            is_short=size + (0 if end is None else end.size) <= SHORT,
            size=size,
        )

    async def renew(self, lease: Lease, lease_seconds: float) -> bool:
        return await self._write_leased(
            lease, lambda db: run_writes.renew(db, self._monotonic(), lease, lease_seconds), notifies=False
        )

    async def settle(self, lease: Lease, interrupt_ids: Sequence[str]) -> None:
        await self._write_leased(lease, lambda db: run_writes.settle(db, lease, interrupt_ids), notifies=False)

    async def expired(self) -> Sequence[RunRecord]:
        engine = self._engine.get()
        found, has_too_long = await engine.read(queries.find_expired, self._monotonic(), self._locks.is_dead)
        if has_too_long:
            await engine.write(lambda db: run_writes.shorten_leases(db, self._monotonic()))
        return found

    async def take_over(self, run: RunRecord, *, owner: str, lease_seconds: float) -> Lease | None:
        engine = self._engine.get()
        locks = self._locks
        lock = locks.hold(owner)

        def own(lease: Lease | None) -> None:
            if lease is not None:
                engine.feed.own(lease)

        return await engine.write(
            lambda db: run_writes.take_over(db, self._monotonic(), run, owner, lease_seconds, lock, locks.is_dead),
            [(run.scope, run.thread_id)],
            own,
        )

    async def request_cancel(self, scope: str, thread_id: str, run_id: str, *, unwatched: bool = False) -> RunRecord:
        return await self._write_control(
            scope, thread_id, lambda db: run_writes.request_cancel(db, scope, thread_id, run_id, unwatched)
        )

    async def settle_cancel(self, scope: str, thread_id: str, run_id: str, *, granted: bool) -> None:
        await self._write_control(
            scope, thread_id, lambda db: run_writes.settle_cancel(db, scope, thread_id, run_id, granted)
        )

    async def cancel_requested(self, lease: Lease) -> CancelRequest:
        engine = self._engine.get()
        return await engine.feed.wait_for_cancel(lease, lambda: engine.read(queries.read_cancel_request, lease))

    def listen_for_cancel(self, lease: Lease, callback: Callable[[], None]) -> None:
        self._engine.get().feed.listen_for_cancel(lease, callback)

    async def cancel_settled(self, scope: str, thread_id: str, run_id: str) -> RunRecord:
        engine = self._engine.get()
        return await engine.feed.wait_for_control(
            (scope, thread_id), lambda: engine.read(queries.read_settled_run, scope, thread_id, run_id)
        )

    async def watch(self, scope: str, thread_id: str, run_id: str, *, viewer: str, seconds: float) -> None:
        engine = self._engine.get()
        lock = self._locks.hold(viewer)
        await engine.write(
            lambda db: run_writes.watch(db, self._monotonic(), scope, thread_id, run_id, viewer, seconds, lock)
        )

    async def unwatch(self, scope: str, thread_id: str, run_id: str, *, viewer: str) -> None:
        await self._engine.get().write(
            lambda db: run_writes.unwatch(db, self._monotonic(), scope, thread_id, run_id, viewer)
        )

    async def watched(self, lease: Lease, *, within: float = 0.0) -> bool:
        found, dead = await self._engine.get().read(
            queries.has_viewers, self._monotonic(), within, lease, self._locks.is_dead
        )
        for viewer in dead:  # the time of death is unknown; record now, so that ``within`` counts from here
            await self.unwatch(lease.scope, lease.thread_id, lease.run_id, viewer=viewer)
        return found

    async def run(self, scope: str, thread_id: str, run_id: str) -> RunRecord:
        return await self._engine.get().read(queries.read_run, scope, thread_id, run_id)

    async def input(self, scope: str, thread_id: str, run_id: str) -> bytes:
        return await self._engine.get().read(read_input, scope, thread_id, run_id)

    async def runs(self, scope: str, thread_id: str) -> Sequence[RunRecord]:
        return await self._engine.get().read(queries.list_runs, scope, thread_id)

    async def run_thread(self, scope: str, run_id: str) -> str | None:
        return await self._find_thread(queries.find_run_thread, scope, run_id)

    # The log

    async def last(self, scope: str, thread_id: str) -> int:
        return (await self._engine.get().read(queries.find_thread, scope, thread_id))[1]

    async def token(self, scope: str, thread_id: str, number: int) -> str:
        return await self._engine.get().read(queries.read_token, scope, thread_id, number)

    async def read(
        self, scope: str, thread_id: str, after: int = 0, *, until: int | None = None, limit: int = 1024
    ) -> Sequence[Batch]:
        return (await self._engine.get().read(queries.read_log, scope, thread_id, after, until, limit))[0]

    def tail(self, scope: str, thread_id: str, after: int = 0) -> AsyncIterator[Batch]:
        engine = self._engine.get()
        return engine.feed.tail(
            (scope, thread_id),
            after,
            lambda position: engine.read(queries.read_log, scope, thread_id, position, None, 1024),
        )

    # Threads

    async def thread(self, scope: str, thread_id: str) -> ThreadSummary:
        return await self._engine.get().read(queries.read_thread, scope, thread_id)

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
        return await self._engine.get().read(queries.list_threads, scope, limit, before, agent, archived, metadata)

    async def threads_stamp(self, scope: str) -> str:
        return await self._engine.get().read_version()

    async def update_thread(self, scope: str, thread_id: str, update: ThreadUpdate) -> ThreadSummary:
        return await self._engine.get().write(lambda db: thread_writes.update_thread(db, scope, thread_id, update))

    async def delete_thread(self, scope: str, thread_id: str) -> None:
        engine = self._engine.get()
        key = (scope, thread_id)
        await engine.write(
            lambda db: thread_writes.delete_thread(db, scope, thread_id),
            [key],
            lambda _: engine.feed.invalidate(key),
            frees_pages=True,
        )

    async def prune(self, retention: Retention) -> int:
        engine = self._engine.get()
        removed: list[ThreadKey] = []

        def remove(db: sqlite3.Connection) -> int:
            removed[:] = thread_writes.prune(db, self._clock(), retention)
            return len(removed)

        def invalidate(_: int) -> None:
            for key in removed:
                engine.feed.invalidate(key)

        return await engine.write(remove, removed, invalidate, frees_pages=True)

    async def usage(self, scope: str | None = None) -> Usage:
        return await self._engine.get().read(queries.read_usage, scope)

    # Projections

    async def projections(self, scope: str, thread_id: str, after: int = 0) -> Sequence[StoredProjection]:
        return await self._engine.get().read(list_projections, scope, thread_id, after)

    async def values(self, scope: str, thread_id: str, digests: Sequence[bytes]) -> dict[bytes, bytes]:
        return await self._engine.get().read(read_values, scope, thread_id, digests)

    async def save_projections(self, scope: str, thread_id: str, projections: Mapping[str, RunProjection]) -> None:
        parts = {run_id: await self._cut(projection) for run_id, projection in projections.items()}
        await self._engine.get().write(
            lambda db: save_projections(db, self._clock(), scope, thread_id, parts),
            size=sum([projection.size for projection in projections.values()]),
        )

    async def _cut(self, projection: RunProjection) -> CutProjection:
        if projection.size > HUGE:
            return await self._engine.get().compute(cut_projection, projection)
        return cut_projection(projection)

    # Compaction

    async def compactable(self, seconds: float, limit: int = 100) -> Sequence[RunRecord]:
        return await self._engine.get().read(queries.list_compactable, self._clock() - seconds, limit)

    async def compact_run(self, run: RunRecord, events: Sequence[bytes]) -> None:
        engine = self._engine.get()
        key = (run.scope, run.thread_id)
        row = join_events(events)
        await engine.write(
            lambda db: thread_writes.compact_run(db, run, events, row),
            [key],
            lambda _: engine.feed.invalidate(key),
            frees_pages=True,
            size=len(row),
        )

    # Interrupts, session, recorded effects

    async def interrupts(self, scope: str, thread_id: str) -> Sequence[InterruptRecord]:
        return await self._engine.get().read(queries.list_interrupts, scope, thread_id)

    async def interrupt_thread(self, scope: str, interrupt_id: str) -> str | None:
        return await self._find_thread(queries.find_interrupt_thread, scope, interrupt_id)

    async def session(self, scope: str, thread_id: str) -> bytes | None:
        return await self._engine.get().read(queries.read_session, scope, thread_id)

    async def record(self, lease: Lease, root_run_id: str, key: str, value: bytes) -> None:
        await self._write_leased(
            lease, lambda db: run_writes.record(db, lease, root_run_id, key, value), notifies=False
        )

    async def recorded(self, scope: str, thread_id: str, root_run_id: str) -> dict[str, bytes]:
        return await self._engine.get().read(queries.read_effects, scope, thread_id, root_run_id)

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
        engine = self._engine.get()
        blob_id = await engine.compute(hash_blob, scope, data, media_type, filename)
        blob = Blob(blob_id=blob_id, media_type=media_type, filename=filename, size=len(data), created_at=self._clock())
        return await engine.write(
            lambda db: thread_writes.put_blob(db, scope, blob, data, thread_id, quotas), size=len(data)
        )

    async def blob(self, scope: str, blob_id: str) -> tuple[Blob, bytes]:
        if is_inline(blob_id):
            raise refusals.no_blob(blob_id)
        return await self._engine.get().read(queries.read_blob, scope, blob_id)

    async def blob_part(self, scope: str, blob_id: str, start: int, size: int) -> tuple[Blob, bytes]:
        if is_inline(blob_id):
            raise refusals.no_blob(blob_id)
        return await self._engine.get().read(queries.read_blob_part, scope, blob_id, start, size)

    async def delete_blob(self, scope: str, blob_id: str) -> None:
        if is_inline(blob_id):
            raise refusals.no_blob(blob_id)
        await self._engine.get().write(lambda db: thread_writes.delete_blob(db, scope, blob_id), frees_pages=True)

    # Archives

    def snapshot(self) -> AbstractAsyncContextManager[Snapshot]:
        return archives.open_snapshot(self._engine.get())

    async def restore(self, archive: Archive, *, replace: bool = False) -> None:
        engine = self._engine.get()
        if not isinstance(archive, ThreadArchive):
            await engine.write(lambda db: archives.restore_rest(db, archive))
            return
        archive.check()
        check_ids(archive.scope, archive.thread_id, *[run.record.run_id for run in archive.runs])
        key = (archive.scope, archive.thread_id)
        await engine.write(
            lambda db: archives.restore_thread(db, archive, replace),
            [key],
            lambda _: engine.feed.invalidate(key),
            size=archive.size,
        )

    async def _find_thread(
        self, query: Callable[[sqlite3.Connection, str, str], str | None], scope: str, name: str
    ) -> str | None:
        try:
            return await self._engine.get().read(query, scope, name)
        except NotFound:  # an id that UTF-8 cannot encode
            return None

    async def _write_control(self, scope: str, thread_id: str, operation: Callable[[sqlite3.Connection], T]) -> T:
        """Write a cancel request or its answer."""
        engine = self._engine.get()
        key = (scope, thread_id)
        return await engine.write(operation, [key], lambda _: engine.feed.wake_control(key))

    async def _write_leased(
        self,
        lease: Lease,
        operation: Callable[[sqlite3.Connection], T],
        after: Callable[[T], None] | None = None,
        *,
        notifies: bool = True,
        is_short: bool = False,
        size: int = 0,
    ) -> T:
        """Write with a lease. ``notifies``: other processes may wait for the change."""
        engine = self._engine.get()
        try:
            changed = [(lease.scope, lease.thread_id)] if notifies else ()
            return await engine.write(operation, changed, after, is_short=is_short, size=size)
        except StaleLease:
            engine.feed.disown(lease)
            raise


def _explain(path: Path, error: StoreUnavailable) -> str:
    """Return why a file cannot be opened. SQLite has one message for all reasons."""
    if not path.parent.is_dir():
        return f"there is no folder {path.parent}"
    return "it is a folder" if path.is_dir() else str(error)
