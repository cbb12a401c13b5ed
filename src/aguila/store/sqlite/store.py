"""Layer: store. The event log in one SQLite file, which several processes may share.

Below: ``aguila.store.base``, ``feed`` and the parts in ``_sqlite``. Above: ``aguila.agent`` and ``aguila.server``.

One connection writes (``_sqlite/writer``): on a thread, or on the event loop if the write is short and nothing is in
its way. A few read, each with a thread and a connection of its own. The event loop never waits for a lock or the disk.
Leases are checked inside the transaction that writes. A change made by another process is told by a datagram
(``_sqlite/wake``); while somebody waits, the file is also polled, in case one is lost.
"""

from __future__ import annotations

import asyncio
import os
import sqlite3
import time
from collections.abc import AsyncIterator, Callable, Sequence
from functools import partial
from math import inf
from pathlib import Path
from typing import TypeVar

from aguila.errors import NotFound, StaleLease, StoreUnavailable
from aguila.store.base import (
    DEFAULT_AGENT,
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
from aguila.store.encoding import blob_id_of, check_ids, rows_of, size_of
from aguila.store.feed import Key
from aguila.store.sqlite import queries, run_writes, thread_writes
from aguila.store.sqlite.connection import Synchronous, connect
from aguila.store.sqlite.engine import Engine
from aguila.store.sqlite.locks import Owners

T = TypeVar("T")

SHORT = 32 * 1024
"""How many bytes of a run a transaction may write and still count as short; see ``_sqlite/writer``."""


class SQLiteStore(Store):
    """Keeps everything in one file.

    ``synchronous="NORMAL"`` survives the death of the process at any point; ``"FULL"`` also the loss of power, for an
    fsync per commit. A file that is locked for longer than ``busy_seconds``, a full disk, or a file that would grow
    beyond ``max_bytes``, raises ``StoreUnavailable``; the store works again as soon as the cause is gone.

    An owner is there for as long as the store through which it became one is open: when its process dies, or closes
    that store, its runs can be taken over at once, where the platform tells (``_sqlite/owners``).
    """

    def __init__(
        self,
        path: str | os.PathLike[str],
        *,
        synchronous: Synchronous = "NORMAL",
        busy_seconds: float = 5.0,
        max_bytes: int | None = None,
        poll_seconds: float = 0.15,
        readers: int = 4,
        clock: Callable[[], float] = time.time,
    ) -> None:
        if os.fspath(path) in ("", ":memory:"):
            raise ValueError("SQLiteStore needs a file; MemoryStore keeps threads in memory")
        if synchronous not in ("NORMAL", "FULL"):
            raise ValueError('synchronous is "NORMAL" or "FULL"')
        self.path = Path(path)
        self._synchronous: Synchronous = synchronous
        self._busy_seconds = busy_seconds
        self._max_bytes = max_bytes
        self._poll_seconds = poll_seconds
        self._readers = readers
        self._clock = clock
        self._changing = asyncio.Lock()
        self._engine: Engine | None = None
        self._users = 0
        self._owners = Owners(self.path)

    async def open(self) -> None:
        """See ``Store``."""
        self._let_go()
        async with self._changing:
            if self._engine is None:
                engine = Engine(
                    self.path,
                    partial(
                        connect,
                        self.path,
                        busy_seconds=self._busy_seconds,
                        synchronous=self._synchronous,
                        max_bytes=self._max_bytes,
                    ),
                    busy_seconds=self._busy_seconds,
                    poll_seconds=self._poll_seconds,
                    readers=self._readers,
                    is_patient=self._synchronous == "FULL",
                )
                try:
                    await engine.open()
                except StoreUnavailable as error:
                    reason = _reason(self.path, error)
                    raise StoreUnavailable(f"{self.path} cannot be used as a store: {reason}") from error
                try:
                    await engine.compute(self._owners.open)
                except BaseException:
                    await engine.close()
                    raise
                self._engine = engine
            self._users += 1

    def _let_go(self) -> None:
        """Forget what belongs to an event loop that is closed."""
        if self._engine is not None and self._engine.is_orphaned:
            self._engine.abandon()
            self._owners.close()
            self._engine, self._users, self._changing = None, 0, asyncio.Lock()

    async def close(self) -> None:
        """See ``Store``."""
        self._let_go()
        async with self._changing:
            self._users = max(0, self._users - 1)
            engine = self._engine
            if engine is not None and not self._users:
                self._engine = None
                try:
                    await engine.close()
                finally:  # whoever gave up waiting for that is gone as well
                    self._owners.close()

    @property
    def wrote_at(self) -> float:
        """See ``Store``."""
        return -inf if self._engine is None else self._engine.wrote_at

    async def check(self) -> None:
        """See ``Store``."""
        await self._open().write(lambda db: thread_writes.check(db, self._clock()))

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
        engine = self._open()
        check_ids(scope, thread_id, run_id)
        rows = rows_of(events)
        size = size_of(rows)
        first = tuple(events)
        lease = Lease(scope=scope, thread_id=thread_id, run_id=run_id, epoch=1, owner=owner)
        lock = self._owners.hold(owner)
        batch = await engine.write(
            lambda db: run_writes.begin(
                db,
                self._clock(),
                lease,
                lease_seconds,
                input,
                fingerprint,
                first,
                rows,
                parent_run_id,
                claims,
                waiting,
                max_running,
                lock,
                agent,
            ),
            [(scope, thread_id)],
            lambda batch: engine.feed.publish(lease, batch, size, begun=True),
            is_short=len(input) + size <= SHORT,
            size=len(input) + size,
        )
        return lease, batch

    async def append(self, lease: Lease, events: Sequence[bytes], *, end: RunEnd | None = None) -> Batch:
        """See ``Store``."""
        engine = self._open()
        rows = rows_of(events)
        size = size_of(rows)
        kept = tuple(events)
        return await self._leased(
            lease,
            lambda db: run_writes.append(db, self._clock(), lease, kept, rows, end),
            lambda batch: engine.feed.publish(lease, batch, size, ended=end is not None),
            is_short=size + (0 if end is None else end.size) <= SHORT,
            size=size,
        )

    async def renew(self, lease: Lease, lease_seconds: float) -> bool:
        """See ``Store``."""
        return await self._leased(
            lease, lambda db: run_writes.renew(db, self._clock(), lease, lease_seconds), told=False
        )

    async def settle(self, lease: Lease, interrupt_ids: Sequence[str]) -> None:
        """See ``Store``."""
        await self._leased(lease, lambda db: run_writes.settle(db, lease, interrupt_ids), told=False)

    async def expired(self) -> Sequence[RunRecord]:
        """See ``Store``."""
        engine = self._open()
        found, is_too_long = await engine.read(queries.expired, self._clock(), self._owners.is_gone)
        if is_too_long:
            await engine.write(lambda db: run_writes.shorten_leases(db, self._clock()))
        return found

    async def take_over(self, run: RunRecord, *, owner: str, lease_seconds: float) -> Lease | None:
        """See ``Store``."""
        engine = self._open()
        owners = self._owners
        lock = owners.hold(owner)

        def own(lease: Lease | None) -> None:
            if lease is not None:
                engine.feed.own(lease)

        return await engine.write(
            lambda db: run_writes.take_over(db, self._clock(), run, owner, lease_seconds, lock, owners.is_gone),
            [(run.scope, run.thread_id)],
            own,
        )

    async def request_cancel(self, scope: str, thread_id: str, run_id: str, *, unwatched: bool = False) -> RunRecord:
        """See ``Store``."""
        engine = self._open()
        key = (scope, thread_id)
        return await engine.write(
            lambda db: run_writes.request_cancel(db, scope, thread_id, run_id, unwatched),
            [key],
            lambda _: engine.feed.control(key),
        )

    async def settle_cancel(self, scope: str, thread_id: str, run_id: str, *, granted: bool) -> None:
        """See ``Store``."""
        engine = self._open()
        key = (scope, thread_id)
        await engine.write(
            lambda db: run_writes.settle_cancel(db, scope, thread_id, run_id, granted),
            [key],
            lambda _: engine.feed.control(key),
        )

    async def cancel_requested(self, lease: Lease) -> CancelRequest:
        """See ``Store``."""
        engine = self._open()
        key = (lease.scope, lease.thread_id)
        return await engine.feed.controlled(key, lambda: engine.read(queries.cancel_requested, lease), lease)

    async def cancel_settled(self, scope: str, thread_id: str, run_id: str) -> RunRecord:
        """See ``Store``."""
        engine = self._open()
        return await engine.feed.controlled(
            (scope, thread_id), lambda: engine.read(queries.cancel_settled, scope, thread_id, run_id)
        )

    async def watch(self, scope: str, thread_id: str, run_id: str, *, viewer: str, seconds: float) -> None:
        """See ``Store``."""
        engine = self._open()
        lock = self._owners.hold(viewer)
        await engine.write(
            lambda db: run_writes.watch(db, self._clock(), scope, thread_id, run_id, viewer, seconds, lock)
        )

    async def unwatch(self, scope: str, thread_id: str, run_id: str, *, viewer: str) -> None:
        """See ``Store``."""
        await self._open().write(lambda db: run_writes.unwatch(db, self._clock(), scope, thread_id, run_id, viewer))

    async def watched(self, lease: Lease, *, within: float = 0.0) -> bool:
        """See ``Store``."""
        found, gone = await self._open().read(queries.watched, self._clock(), within, lease, self._owners.is_gone)
        for viewer in gone:  # or it would have been there just now whenever somebody looks, until its note runs out
            await self.unwatch(lease.scope, lease.thread_id, lease.run_id, viewer=viewer)
        return found

    async def run(self, scope: str, thread_id: str, run_id: str) -> RunRecord:
        """See ``Store``."""
        return await self._open().read(queries.run, scope, thread_id, run_id)

    async def runs(self, scope: str, thread_id: str) -> Sequence[RunRecord]:
        """See ``Store``."""
        return await self._open().read(queries.runs, scope, thread_id)

    async def run_thread(self, scope: str, run_id: str) -> str | None:
        """See ``Store``."""
        try:
            return await self._open().read(queries.run_thread, scope, run_id)
        except NotFound:  # an id that the file cannot hold
            return None

    # The log

    async def last(self, scope: str, thread_id: str) -> int:
        """See ``Store``."""
        return (await self._open().read(queries.thread_key, scope, thread_id))[1]

    async def read(
        self, scope: str, thread_id: str, after: int = 0, *, until: int | None = None, limit: int = 1024
    ) -> Sequence[Batch]:
        """See ``Store``."""
        return (await self._open().read(queries.log, scope, thread_id, after, until, limit))[0]

    def tail(self, scope: str, thread_id: str, after: int = 0) -> AsyncIterator[Batch]:
        """See ``Store``."""
        engine = self._open()
        return engine.feed.tail(
            (scope, thread_id), after, lambda position: engine.read(queries.log, scope, thread_id, position, None, 1024)
        )

    # Threads

    async def thread(self, scope: str, thread_id: str) -> ThreadSummary:
        """See ``Store``."""
        return await self._open().read(queries.thread, scope, thread_id)

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
        return await self._open().read(queries.threads, scope, limit, before, agent, archived)

    async def update_thread(self, scope: str, thread_id: str, update: ThreadUpdate) -> ThreadSummary:
        """See ``Store``."""
        return await self._open().write(lambda db: thread_writes.update_thread(db, scope, thread_id, update))

    async def delete_thread(self, scope: str, thread_id: str) -> None:
        """See ``Store``."""
        engine = self._open()
        key = (scope, thread_id)
        await engine.write(
            lambda db: thread_writes.delete_thread(db, scope, thread_id),
            [key],
            lambda _: engine.feed.look_again(key),
            frees=True,
        )

    async def prune(self, retention: Retention) -> int:
        """See ``Store``."""
        engine = self._open()
        removed: list[Key] = []

        def remove(db: sqlite3.Connection) -> int:
            removed[:] = thread_writes.prune(db, self._clock(), retention)
            return len(removed)

        def look(_: int) -> None:
            for key in removed:
                engine.feed.look_again(key)

        return await engine.write(remove, removed, look, frees=True)

    # Interrupts, session, recorded effects

    async def interrupts(self, scope: str, thread_id: str) -> Sequence[InterruptRecord]:
        """See ``Store``."""
        return await self._open().read(queries.interrupts, scope, thread_id)

    async def interrupt_thread(self, scope: str, interrupt_id: str) -> str | None:
        """See ``Store``."""
        try:
            return await self._open().read(queries.interrupt_thread, scope, interrupt_id)
        except NotFound:  # an id that the file cannot hold
            return None

    async def session(self, scope: str, thread_id: str) -> bytes | None:
        """See ``Store``."""
        return await self._open().read(queries.session, scope, thread_id)

    async def record(self, lease: Lease, root_run_id: str, key: str, value: bytes) -> None:
        """See ``Store``."""
        await self._leased(lease, lambda db: run_writes.record(db, lease, root_run_id, key, value), told=False)

    async def recorded(self, scope: str, thread_id: str, root_run_id: str) -> dict[str, bytes]:
        """See ``Store``."""
        return await self._open().read(queries.recorded, scope, thread_id, root_run_id)

    # Files

    async def put_blob(
        self, scope: str, data: bytes, *, media_type: str, filename: str | None = None, thread_id: str | None = None
    ) -> Blob:
        """See ``Store``."""
        engine = self._open()
        blob_id = await engine.compute(blob_id_of, scope, data, media_type, filename)
        blob = Blob(blob_id=blob_id, media_type=media_type, filename=filename, size=len(data), created_at=self._clock())
        return await engine.write(lambda db: thread_writes.put_blob(db, scope, blob, data, thread_id), size=len(data))

    async def blob(self, scope: str, blob_id: str) -> tuple[Blob, bytes]:
        """See ``Store``."""
        return await self._open().read(queries.blob, scope, blob_id)

    async def delete_blob(self, scope: str, blob_id: str) -> None:
        """See ``Store``."""
        await self._open().write(lambda db: thread_writes.delete_blob(db, scope, blob_id), frees=True)

    # Inside

    def _open(self) -> Engine:
        if self._engine is None:
            raise StoreUnavailable("the store is not open")
        return self._engine

    async def _leased(
        self,
        lease: Lease,
        operation: Callable[[sqlite3.Connection], T],
        after: Callable[[T], None] | None = None,
        *,
        told: bool = True,
        is_short: bool = False,
        size: int = 0,
    ) -> T:
        """Write with a lease. ``told`` says that other processes may wait for what it changes."""
        engine = self._open()
        try:
            changed = [(lease.scope, lease.thread_id)] if told else ()
            return await engine.write(operation, changed, after, is_short=is_short, size=size)
        except StaleLease:
            engine.feed.disown(lease)
            raise


def _reason(path: Path, error: StoreUnavailable) -> str:
    """Why a file could not be opened: SQLite has one text for everything that it cannot open."""
    if not path.parent.is_dir():
        return f"there is no folder {path.parent}"
    return "it is a folder" if path.is_dir() else str(error)
