"""``PostgresStore``: the event log in a PostgreSQL database, which processes on many machines share.

Writes are grouped: all appends that wait are one call of one function, and so are all runs that begin. A call is a
transaction of its own, so a process that is suspended or cut off holds no locks. Leases are checked by the statement
that writes, with the database's clock. Other processes learn of a change by NOTIFY (``wakeups``); while readers wait,
the database is also polled, in case a notification is lost.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import AbstractAsyncContextManager
from functools import partial
from math import inf
from typing import Any

from aguila.errors import NotFound, StaleLease
from aguila.store import refusals
from aguila.store.archives.thread_archive import Archive, Snapshot, ThreadArchive
from aguila.store.base import Store
from aguila.store.columns import CANCEL
from aguila.store.cursors import new_token, token_to_int
from aguila.store.encoding import check_ids, encode_rows, hash_blob, join_events, size_of_rows, to_milliseconds
from aguila.store.large_strings import HUGE
from aguila.store.locations import describe_postgres
from aguila.store.postgres import archives, files, queries, thread_writes
from aguila.store.postgres.begins import Beginning
from aguila.store.postgres.database.connections import Database, Wakeups, load_driver
from aguila.store.postgres.database.hosts import check_url
from aguila.store.postgres.database.migrations import check_schema_name
from aguila.store.postgres.engine import Engine
from aguila.store.postgres.inputs import read_input
from aguila.store.postgres.projections import list_projections, put_inline_files, read_values, save_projections
from aguila.store.records import (
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
from aguila.store.run_inputs import CutProjection, cut_input, cut_projection, is_inline
from aguila.store.shared_engine import SharedEngine

_POLL_SECONDS: dict[Wakeups, float] = {"listen": 0.75, "poll": 0.15}

_BEGIN_DELAY = 0.002
"""Seconds after which other processes learn of a new run, unless it has written more before."""

_TAKE_OVER = """
WITH taken AS (SELECT thread, run, last FROM aguila.take_over($1, $2, $3, $4, $5, $6, $7, $8, $9)),
noted AS (
  INSERT INTO aguila.take_overs (thread, first, token) SELECT thread, last + 1, $10 FROM taken
  ON CONFLICT (thread, first) DO UPDATE SET token = excluded.token
)
SELECT thread, run, last FROM taken
"""
_TAKEN = f"{queries.RUN_BY_IDS} AND r.epoch = $4 AND r.owner = $5 AND r.outcome IS NULL"
_SETTLE = "SELECT is_stale, unclaimed FROM aguila.settle_interrupts($1, $2, $3, $4)"
_COMPACT = "SELECT aguila.compact_run($1, $2, $3, $4, $5, $6, $7)"
_RECORD = "SELECT aguila.record_effect($1, $2, $3, $4, $5, $6)"


class PostgresStore(Store):
    """A store in a PostgreSQL database (15 or later). Needs the ``postgres`` extra.

    ``dsn`` is a URL as libpq reads it; with several hosts, add ``target_session_attrs=read-write``. ``schema`` has the
    tables; it is created or upgraded when the store opens, unless ``migrate`` is false. ``pool`` is the number of
    connections that reads and rare writes share; three more are used for appends, new runs and notifications.

    ``wakeups="poll"`` is for poolers in transaction mode (PgBouncer) and servers without LISTEN: it uses no session
    state, so a dead process is found by its leases only.

    A call raises ``StoreUnavailable`` if the server is away for longer than ``patience`` seconds. Until then it waits,
    connects again and continues. The clock of the database judges leases; ``clock`` replaces it in tests.
    """

    def __init__(
        self,
        dsn: str,
        *,
        schema: str = "aguila",
        pool: int = 8,
        wakeups: Wakeups = "listen",
        patience: float = 5.0,
        migrate: bool = True,
        poll_seconds: float | None = None,
        clock: Callable[[], float] | None = None,
    ) -> None:
        load_driver()
        check_url(dsn)
        if wakeups not in ("listen", "poll"):
            raise ValueError(f'wakeups is {wakeups!r}; use "listen" or "poll"')
        if pool < 1:
            raise ValueError(f"pool is {pool}; a store needs at least one connection")
        self._dsn = dsn
        self._schema = check_schema_name(schema)
        self.make_database = partial(
            Database,
            dsn,
            schema=self._schema,
            connections=pool,
            wakeups=wakeups,
            patience=patience,
            migrates=migrate,
        )
        """Return new connections to the database, which are not open yet."""
        self._poll_seconds = _POLL_SECONDS[wakeups] if poll_seconds is None else poll_seconds
        self._clock = clock
        self._engine = SharedEngine(self._open_engine)

    @property
    def location(self) -> str:
        return describe_postgres(self._dsn, self._schema)

    async def migrate(self) -> tuple[int, int]:
        """Create or upgrade the schema; return its version before and after. Raises ``StoreUnavailable``."""
        return await self.make_database().migrate()

    async def open(self) -> None:
        await self._engine.open()

    async def close(self) -> None:
        await self._engine.close()

    async def _open_engine(self) -> Engine:
        engine = Engine(self.make_database(), self._clock, self._poll_seconds)
        await engine.open()
        return engine

    @property
    def wrote_at(self) -> float:
        engine = self._engine.current
        return -inf if engine is None else engine.database.wrote_at

    async def check(self) -> None:
        engine = self._engine.get()
        await engine.appends.check()
        await thread_writes.check(engine.database)

    # Runs

    async def begin(self, new: NewRun) -> tuple[Lease, Batch]:
        engine = self._engine.get()
        check_ids(new.scope, new.thread_id, new.run_id)
        rows = encode_rows(new.events)
        parts = await asyncio.to_thread(cut_input, new.input) if len(new.input) > HUGE else cut_input(new.input)
        begun = await engine.begins.begin(Beginning(new, rows, parts))
        lease = new.lease
        batch = Batch(begun.before + 1, tuple(new.events), to_milliseconds(begun.at), lease.token)
        engine.appends.own(lease, begun.thread, begun.run, batch.last)
        engine.feed.publish(lease, batch, size_of_rows(rows), begun=True)
        # After the response has its first event, and together with the next events of a quick agent.
        engine.notify([(new.scope, new.thread_id)], delay=_BEGIN_DELAY)
        return lease, batch

    async def append(self, lease: Lease, events: Sequence[bytes], *, end: RunEnd | None = None) -> Batch:
        engine = self._engine.get()
        rows = encode_rows(events)
        projection = None
        if end is not None and end.projection is not None:
            projection = await _cut(end.projection)
            if projection.files:  # the files belong to the thread, even if the append is refused
                await self._put_inline(lease, projection, end.projection.size)
        try:
            return await engine.appends.append(lease, tuple(events), rows, end, projection)
        except StaleLease:
            engine.feed.disown(lease)
            raise

    async def renew(self, lease: Lease, lease_seconds: float) -> bool:
        return await self._engine.get().renew(lease, lease_seconds)

    async def settle(self, lease: Lease, interrupt_ids: Sequence[str]) -> None:
        row = await self._write_leased(lease, _SETTLE, list(interrupt_ids))
        if row["is_stale"]:
            raise self._stale(lease)
        if row["unclaimed"] is not None:
            raise refusals.interrupt_not_claimed(row["unclaimed"], lease.run_id)

    async def expired(self) -> Sequence[RunRecord]:
        return await self._engine.get().find_expired()

    async def take_over(self, run: RunRecord, *, owner: str, lease_seconds: float) -> Lease | None:
        engine = self._engine.get()
        database = engine.database
        ids = (run.scope, run.thread_id, run.run_id)
        lease = Lease(
            scope=run.scope,
            thread_id=run.thread_id,
            run_id=run.run_id,
            epoch=run.epoch + 1,
            owner=owner,
            token=new_token(),
        )
        token = token_to_int(lease.token)
        attempts = 0

        async def take(db: Any) -> Any:
            nonlocal attempts
            attempts += 1
            return await db.fetchrow(
                database.sql(_TAKE_OVER), engine.now, database.lock, *ids, run.epoch, run.owner, owner, lease_seconds,
                token,
            )  # fmt: skip

        row = await database.run(take)
        if row is not None:
            engine.appends.own(lease, row["thread"], row["run"], row["last"])
        elif attempts == 1 or await database.fetchrow(_TAKEN, *ids, lease.epoch, owner) is None:
            return None  # otherwise an earlier attempt was committed
        engine.feed.own(lease)
        engine.notify([(run.scope, run.thread_id)])
        return lease

    async def request_cancel(self, scope: str, thread_id: str, run_id: str, *, unwatched: bool = False) -> RunRecord:
        run = await thread_writes.request_cancel(self._engine.get().database, scope, thread_id, run_id, unwatched)
        self._wake_control(scope, thread_id)
        return run

    async def settle_cancel(self, scope: str, thread_id: str, run_id: str, *, granted: bool) -> None:
        await thread_writes.replace_cancel_request(
            self._engine.get().database,
            scope,
            thread_id,
            run_id,
            "always" if granted else None,
            CANCEL["unwatched"],
        )
        self._wake_control(scope, thread_id)

    async def cancel_requested(self, lease: Lease) -> CancelRequest:
        engine = self._engine.get()
        return await engine.feed.wait_for_cancel(lease, lambda: queries.read_cancel_request(engine.database, lease))

    def listen_for_cancel(self, lease: Lease, callback: Callable[[], None]) -> None:
        self._engine.get().feed.listen_for_cancel(lease, callback)

    async def cancel_settled(self, scope: str, thread_id: str, run_id: str) -> RunRecord:
        engine = self._engine.get()
        return await engine.feed.wait_for_control(
            (scope, thread_id), lambda: queries.read_settled_run(engine.database, scope, thread_id, run_id)
        )

    async def watch(self, scope: str, thread_id: str, run_id: str, *, viewer: str, seconds: float) -> None:
        engine = self._engine.get()
        await thread_writes.watch(engine.database, engine.now, scope, thread_id, run_id, viewer, seconds)

    async def unwatch(self, scope: str, thread_id: str, run_id: str, *, viewer: str) -> None:
        engine = self._engine.get()
        await thread_writes.unwatch(engine.database, engine.now, scope, thread_id, run_id, viewer)

    async def watched(self, lease: Lease, *, within: float = 0.0) -> bool:
        engine = self._engine.get()
        ids = (lease.scope, lease.thread_id, lease.run_id)
        return await engine.database.fetchrow(queries.WATCHED, *ids, engine.now, within) is not None

    async def run(self, scope: str, thread_id: str, run_id: str) -> RunRecord:
        return await queries.read_run(self._engine.get().database, scope, thread_id, run_id)

    async def input(self, scope: str, thread_id: str, run_id: str) -> bytes:
        return await read_input(self._engine.get().database, scope, thread_id, run_id)

    async def runs(self, scope: str, thread_id: str) -> Sequence[RunRecord]:
        rows = await self._engine.get().database.fetch(queries.RUNS_OF_THREAD, scope, thread_id)
        return [queries.run_record(tuple(row)) for row in rows]

    async def run_thread(self, scope: str, run_id: str) -> str | None:
        try:
            return await queries.find_run_thread(self._engine.get().database, scope, run_id)
        except NotFound:  # an id that PostgreSQL cannot store
            return None

    # The log

    async def token(self, scope: str, thread_id: str, number: int) -> str:
        return await queries.read_token(self._engine.get().database, scope, thread_id, number)

    async def last(self, scope: str, thread_id: str) -> int:
        row = await self._engine.get().database.fetchrow(queries.LAST, scope, thread_id)
        if row is None:
            raise refusals.no_thread(thread_id)
        return row[0]

    async def read(
        self, scope: str, thread_id: str, after: int = 0, *, until: int | None = None, limit: int = 1024
    ) -> Sequence[Batch]:
        return (await queries.read_log(self._engine.get().database, scope, thread_id, after, until, limit))[0]

    def tail(self, scope: str, thread_id: str, after: int = 0) -> AsyncIterator[Batch]:
        engine = self._engine.get()
        return engine.feed.tail(
            (scope, thread_id),
            after,
            lambda position: queries.read_log(engine.database, scope, thread_id, position, None, 1024),
        )

    # Threads

    async def thread(self, scope: str, thread_id: str) -> ThreadSummary:
        return await queries.read_thread(self._engine.get().database, scope, thread_id)

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
        return await queries.list_threads(self._engine.get().database, scope, limit, before, agent, archived, metadata)

    async def threads_stamp(self, scope: str) -> str:
        return await queries.read_snapshot(self._engine.get().database)

    async def update_thread(self, scope: str, thread_id: str, update: ThreadUpdate) -> ThreadSummary:
        return await thread_writes.update_thread(self._engine.get().database, scope, thread_id, update)

    async def delete_thread(self, scope: str, thread_id: str) -> None:
        engine = self._engine.get()
        await thread_writes.delete_thread(engine.database, scope, thread_id)
        self._removed([(scope, thread_id)])

    async def prune(self, retention: Retention) -> int:
        engine = self._engine.get()
        removed = await thread_writes.prune(engine.database, engine.now, retention)
        self._removed(removed)
        return len(removed)

    async def usage(self, scope: str | None = None) -> Usage:
        return await queries.read_usage(self._engine.get().database, scope)

    # Projections

    async def projections(self, scope: str, thread_id: str, after: int = 0) -> Sequence[StoredProjection]:
        return await list_projections(self._engine.get().database, scope, thread_id, after)

    async def values(self, scope: str, thread_id: str, digests: Sequence[bytes]) -> dict[bytes, bytes]:
        return await read_values(self._engine.get().database, scope, thread_id, digests)

    async def save_projections(self, scope: str, thread_id: str, projections: Mapping[str, RunProjection]) -> None:
        engine = self._engine.get()
        parts = {run_id: await _cut(projection) for run_id, projection in projections.items()}
        await save_projections(
            engine.database, engine.now, scope, thread_id, parts, sum(one.size for one in projections.values())
        )

    async def _put_inline(self, lease: Lease, projection: CutProjection, size: int) -> None:
        engine = self._engine.get()
        scope, thread_id, inline = lease.scope, lease.thread_id, projection.files
        await engine.database.transact(
            lambda db: put_inline_files(engine.database, db, engine.now, scope, thread_id, inline), size
        )

    # Compaction

    async def compactable(self, seconds: float, limit: int = 100) -> Sequence[RunRecord]:
        engine = self._engine.get()
        rows = await engine.database.fetch(queries.COMPACTABLE, engine.now, seconds, limit)
        return [queries.run_record(tuple(row)) for row in rows]

    async def compact_run(self, run: RunRecord, events: Sequence[bytes]) -> None:
        engine = self._engine.get()
        key = (run.scope, run.thread_id)
        await engine.database.fetch(_COMPACT, *key, run.run_id, run.first, run.last, len(events), join_events(events))
        engine.feed.invalidate(key)
        engine.notify([key])

    # Interrupts, session, recorded effects

    async def interrupts(self, scope: str, thread_id: str) -> Sequence[InterruptRecord]:
        rows = await self._engine.get().database.fetch(queries.INTERRUPTS, scope, thread_id)
        return [queries.interrupt_record(row) for row in rows]

    async def interrupt_thread(self, scope: str, interrupt_id: str) -> str | None:
        try:
            row = await self._engine.get().database.fetchrow(queries.INTERRUPT_THREAD, scope, interrupt_id)
        except NotFound:  # an id that PostgreSQL cannot store
            return None
        return None if row is None else row[0]

    async def session(self, scope: str, thread_id: str) -> bytes | None:
        row = await self._engine.get().database.fetchrow(queries.SESSION, scope, thread_id)
        return None if row is None else row[0]

    async def record(self, lease: Lease, root_run_id: str, key: str, value: bytes) -> None:
        row = await self._write_leased(lease, _RECORD, root_run_id, key, value)
        if not row[0]:
            raise self._stale(lease)

    async def recorded(self, scope: str, thread_id: str, root_run_id: str) -> dict[str, bytes]:
        rows = await self._engine.get().database.fetch(queries.EFFECTS, scope, thread_id, root_run_id)
        return {row[0]: row[1] for row in rows}

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
        blob_id = await asyncio.to_thread(hash_blob, scope, data, media_type, filename)
        blob = Blob(blob_id=blob_id, media_type=media_type, filename=filename, size=len(data), created_at=0.0)
        database = engine.database
        return await database.transact(
            lambda db: files.put(database, db, engine.now, scope, blob, data, thread_id, quotas), len(data)
        )

    async def blob(self, scope: str, blob_id: str) -> tuple[Blob, bytes]:
        if is_inline(blob_id):
            raise refusals.no_blob(blob_id)
        return await files.read(self._engine.get().database, scope, blob_id)

    async def blob_part(self, scope: str, blob_id: str, start: int, size: int) -> tuple[Blob, bytes]:
        if is_inline(blob_id):
            raise refusals.no_blob(blob_id)
        return await files.read_range(self._engine.get().database, scope, blob_id, start, size)

    async def delete_blob(self, scope: str, blob_id: str) -> None:
        if is_inline(blob_id):
            raise refusals.no_blob(blob_id)
        await files.delete(self._engine.get().database, scope, blob_id)

    # Archives

    def snapshot(self) -> AbstractAsyncContextManager[Snapshot]:
        return archives.open_snapshot(self._engine.get().database)

    async def restore(self, archive: Archive, *, replace: bool = False) -> None:
        database = self._engine.get().database
        if not isinstance(archive, ThreadArchive):
            await archives.restore_rest(database, archive)
            return
        archive.check()
        check_ids(archive.scope, archive.thread_id, *[run.record.run_id for run in archive.runs])
        await archives.restore_thread(database, archive, replace)
        self._removed([(archive.scope, archive.thread_id)])

    def _wake_control(self, scope: str, thread_id: str) -> None:
        """Wake the tasks that wait for a cancel request or its answer, in all processes."""
        engine = self._engine.current
        if engine is not None:
            engine.feed.wake_control((scope, thread_id))
            engine.notify([(scope, thread_id)])

    def _removed(self, keys: Sequence[tuple[str, str]]) -> None:
        """Wake the readers of removed or replaced threads, and delete the rest of their rows."""
        engine = self._engine.current
        if engine is not None and keys:
            for key in keys:
                engine.feed.invalidate(key)
            engine.notify(keys)
            engine.clean()

    async def _write_leased(self, lease: Lease, statement: str, *args: Any) -> Any:
        """Run a statement whose first arguments are the keys of a run and its epoch. Raises ``StaleLease``."""
        engine = self._engine.get()
        try:
            position = await engine.appends.find(lease)
        except StaleLease:
            engine.feed.disown(lease)
            raise
        return await engine.database.fetchrow(statement, position.thread, position.run, lease.epoch, *args)

    def _stale(self, lease: Lease) -> StaleLease:
        self._engine.get().disown(lease)
        return refusals.stale_lease(lease)


async def _cut(projection: RunProjection) -> CutProjection:
    if projection.size > HUGE:
        return await asyncio.to_thread(cut_projection, projection)
    return cut_projection(projection)
