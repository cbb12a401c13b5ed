"""Read threads as archives from one snapshot of the database, and restore them. See ``store/archives``."""

from __future__ import annotations

import asyncio
from bisect import bisect_left, bisect_right
from collections.abc import AsyncGenerator, AsyncIterator, Sequence
from contextlib import asynccontextmanager
from itertools import pairwise
from typing import Any

from aguila.store import refusals
from aguila.store.archives.thread_archive import (
    ArchivedFile,
    ArchivedRun,
    FileArchive,
    RemovedThreads,
    Snapshot,
    ThreadArchive,
    assemble_archive,
    end_open_run,
)
from aguila.store.cursors import int_to_token, token_to_int
from aguila.store.encoding import decode_row, encode_rows, hash_members, hash_thread, join_events
from aguila.store.feed import ThreadKey
from aguila.store.postgres import files, queries
from aguila.store.postgres.database.connections import Database, outages_as_unavailable
from aguila.store.postgres.inputs import decode_files, input_rows, stored_messages
from aguila.store.records import Batch, ThreadSummary
from aguila.store.run_inputs import MAX_DEPTH, ListDelta, StoredJSON, compare_lists

_THREADS = "SELECT scope, thread_id FROM aguila.threads ORDER BY scope, touched"
_REST = """
SELECT b.key, b.scope, h.thread_id FROM aguila.blobs b LEFT JOIN aguila.holds h ON h.blob = b.key
LEFT JOIN aguila.threads t ON t.scope = h.scope AND t.thread_id = h.thread_id
WHERE t.key IS NULL ORDER BY b.created_at, b.key
"""
_INPUTS = """
SELECT i.run, i.base, i.messages, i.files, i.body FROM aguila.inputs i JOIN aguila.runs r ON r.key = i.run
WHERE r.thread = $1 ORDER BY r.key
"""
_FILE = f"{files.BLOB} WHERE key = $1"

_REPLACED = "SELECT key, running FROM aguila.threads WHERE scope = $1 AND thread_id = $2 FOR UPDATE"
_THREAD = """
INSERT INTO aguila.threads (scope, thread_id, created_at, updated_at, touched, first, last, bytes, agent, archived)
VALUES ($1, $2, $3, $4, nextval('aguila.touches'), $5, $6, $7, $8, $9) ON CONFLICT DO NOTHING RETURNING key
"""
_RUN = """
INSERT INTO aguila.runs (thread, run_id, parent_run_id, fingerprint, first, last, outcome, owner, epoch, lease_seconds,
  lease_until, cancel_requested, started_at, ended_at, sent_run_id, compacted, token)
VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, 0, $10, $11, $12, $13, $14, $15, $16) RETURNING key
"""
_INPUT = "INSERT INTO aguila.inputs (run, base, messages, depth, files, body) VALUES ($1, $2, $3, $4, $5, $6)"
_MESSAGE = """
INSERT INTO aguila.messages (thread, digest, body, files) VALUES ($1, $2, $3, $4) ON CONFLICT DO NOTHING RETURNING 1
"""
_LOG = "INSERT INTO aguila.log (thread, first, last, at, compacted, events) VALUES ($1, $2, $3, $4, $5, $6)"
_TAKEN_OVER = "INSERT INTO aguila.take_overs (thread, first, token) VALUES ($1, $2, $3)"
_INTERRUPT = """
INSERT INTO aguila.interrupts (scope, thread, interrupt_id, run_id, status, claimed_by, body)
VALUES ($1, $2, $3, $4, $5, $6, $7)
"""
_EFFECT = "INSERT INTO aguila.effects (thread, root_run_id, name, value) VALUES ($1, $2, $3, $4)"
_REMOVED = """
INSERT INTO aguila.removed (thread, last) SELECT * FROM unnest($1::bigint[], $2::bigint[])
ON CONFLICT (thread) DO UPDATE SET last = greatest(removed.last, excluded.last)
"""


@asynccontextmanager
async def begin_snapshot(database: Database) -> AsyncGenerator[Any]:
    """Hold one read transaction open on a connection of its own. The first read fixes the snapshot."""
    db = await database.connect_first()
    try:
        with outages_as_unavailable():
            transaction = db.transaction(isolation="repeatable_read", readonly=True)
            await transaction.start()
            # The transaction is idle while its caller writes the data elsewhere, however long that takes.
            await db.execute("SET LOCAL idle_in_transaction_session_timeout = 0")
        yield db
    finally:
        await database.drop(db)


@asynccontextmanager
async def open_snapshot(database: Database) -> AsyncGenerator[Snapshot]:
    """Return one state of the store."""
    async with begin_snapshot(database) as db:
        with outages_as_unavailable():
            await db.execute(database.sql("SELECT 1 FROM aguila.threads LIMIT 1"))  # fixes the snapshot
        yield _Snapshot(database, db)


class _Snapshot(Snapshot):
    """A read transaction."""

    def __init__(self, database: Database, db: Any) -> None:
        self._database = database
        self._db = db
        self._turn = asyncio.Lock()

    async def threads(self) -> Sequence[ThreadKey]:
        return [(row[0], row[1]) for row in await self._fetch(_THREADS)]

    async def summaries(self, scope: str, *, before: int | None = None, limit: int = 500) -> Sequence[ThreadSummary]:
        statement = queries.threads_statement(None, None, None)
        rows = await self._fetch(statement, scope, queries.below(before), limit)
        return [queries.summary(tuple(row)) for row in rows]

    async def thread(self, scope: str, thread_id: str, *, ends_run: bool = True) -> ThreadArchive:
        async with self._turn:
            with outages_as_unavailable():
                found = await read_thread(self._database, self._db, scope, thread_id)
        return end_open_run(found) if ends_run else found

    async def rest(self) -> AsyncIterator[FileArchive | RemovedThreads]:
        for key, scope, thread_id in await self._fetch(_REST):
            async with self._turn:
                with outages_as_unavailable():
                    file = await _read_file(self._database, self._db, key)
            yield FileArchive(scope=scope, thread_id=thread_id, file=file)
        rows = await self._fetch("SELECT thread, last FROM aguila.removed")
        yield RemovedThreads({row[0]: row[1] for row in rows})

    async def _fetch(self, text: str, *args: Any) -> list[Any]:
        async with self._turn:
            with outages_as_unavailable():
                return await self._db.fetch(self._database.sql(text), *args)


async def read_thread(database: Database, db: Any, scope: str, thread_id: str) -> ThreadArchive:
    """Return a thread, whose run may be open. Raises ``NotFound``."""
    sql = database.sql
    row = await db.fetchrow(sql(queries.THREAD), scope, thread_id)
    if row is None:
        raise refusals.no_thread(thread_id)
    summary = queries.summary(tuple(row))
    key, first = await db.fetchrow(
        sql("SELECT key, first FROM aguila.threads WHERE scope = $1 AND thread_id = $2"), scope, thread_id
    )
    records = [queries.run_record(tuple(row)) for row in await db.fetch(sql(queries.RUNS_OF_THREAD), scope, thread_id)]
    lists: dict[int, bytes | None] = {}
    runs: list[ArchivedRun] = []
    for record, (run, base, change, places, body) in zip(records, await db.fetch(sql(_INPUTS), key), strict=True):
        lists[run] = None if change is None else ListDelta.decode(change).apply(lists.get(base) or b"")
        stored = StoredJSON(body, decode_files(places))
        runs.append(ArchivedRun(record=record, body=stored, digests=lists[run]))
    messages = await db.fetch(
        sql("SELECT digest, body, files FROM aguila.messages WHERE thread = $1 ORDER BY digest"), key
    )
    log = await db.fetch(sql(queries.LOG_OF_THREAD), key)
    effects = await db.fetch(
        sql("SELECT root_run_id, name, value FROM aguila.effects WHERE thread = $1 ORDER BY key"), key
    )
    held = await db.fetch(
        sql(
            "SELECT b.key FROM aguila.holds h JOIN aguila.blobs b ON b.key = h.blob "
            "WHERE h.scope = $1 AND h.thread_id = $2 ORDER BY b.blob_id"
        ),
        scope,
        thread_id,
    )
    return assemble_archive(
        summary,
        scope=scope,
        first=first,
        runs=runs,
        messages=stored_messages(messages),
        batches=[Batch(row[0], tuple(decode_row(row[1])), row[2], int_to_token(row[3])) for row in log],
        interrupts=[queries.interrupt_record(row) for row in await db.fetch(sql(queries.INTERRUPTS), scope, thread_id)],
        session=await db.fetchval(sql(queries.SESSION), scope, thread_id),
        effects=effects,
        files=[await _read_file(database, db, row[0]) for row in held],
    )


async def _read_file(database: Database, db: Any, key: int) -> ArchivedFile:
    row = await db.fetchrow(database.sql(_FILE), key)
    data = await files.read_parts(database, db, key, row["size"])
    return ArchivedFile(blob=files.blob_of(row), data=data, is_kept=row["kept"])


async def restore_rest(database: Database, archive: FileArchive | RemovedThreads) -> None:
    """Write a file without a thread, or the numbers of removed threads."""
    if isinstance(archive, FileArchive):
        await database.transact(
            lambda db: _write_file(database, db, archive.scope, archive.file, archive.thread_id),
            archive.file.blob.size,
        )
    else:
        await database.fetch(_REMOVED, list(archive.last), list(archive.last.values()))


async def _write_file(database: Database, db: Any, scope: str, file: ArchivedFile, thread_id: str | None) -> None:
    blob = file.blob
    await files.put(database, db, blob.created_at, scope, blob, file.data, thread_id)
    if file.is_kept and thread_id is not None:
        await files.put(database, db, blob.created_at, scope, blob, file.data, None)


async def restore_thread(database: Database, archive: ThreadArchive, replace: bool) -> None:
    """Write a thread. Raises ``ThreadExists``, ``ThreadBusy``."""
    await database.transact(lambda db: _restore(database, db, archive, replace), archive.size)


async def _restore(database: Database, db: Any, archive: ThreadArchive, replace: bool) -> None:
    sql = database.sql
    scope, thread_id = archive.scope, archive.thread_id
    old = await db.fetchrow(sql(_REPLACED), scope, thread_id)
    if old is not None:
        if not replace:
            raise refusals.thread_exists(thread_id)
        if old["running"] is not None:
            run = await db.fetchrow(sql(queries.RUNS_BY_KEYS), [old["running"]])
            raise refusals.thread_busy(queries.run_record(tuple(run)[1:]))
        await db.execute(
            sql("SELECT aguila.remove_thread($1, $2, $3)"), scope, thread_id, hash_thread(scope, thread_id)
        )
    rows: list[tuple[int, int, int, int | None, bytes]] = []
    compacted = archive.find_compacted()
    run_starts = {
        compacted[run.record.run_id]: run.record.first for run in archive.runs if run.record.run_id in compacted
    }
    for batch in archive.batches:
        if batch.first in run_starts:
            rows.append((batch.first, batch.last, batch.at, run_starts[batch.first], join_events(batch.events)))
            continue
        last = batch.first - 1
        for count, lines in encode_rows(batch.events):
            rows.append((last + 1, last + count, batch.at, None, lines))
            last += count
    size = sum(len(lines) for *_, lines in rows) + sum(run.body.size for run in archive.runs)
    thread = await db.fetchval(
        sql(_THREAD), scope, thread_id, archive.created_at, archive.updated_at, archive.first, archive.last,
        size + archive.size_of_values, archive.agent, archive.archived,
    )  # fmt: skip
    if thread is None:  # another process has just created it
        raise refusals.thread_exists(thread_id)
    if archive.title is not None or archive.metadata is not None:
        insert = "INSERT INTO aguila.details (thread, title, metadata, members) VALUES ($1, $2, $3, $4)"
        members = hash_members(scope, archive.metadata)
        await db.execute(sql(insert), thread, archive.title, archive.metadata, members)
    await db.executemany(sql(_LOG), [(thread, *row) for row in rows])
    await _write_runs(database, db, thread, archive)
    await db.executemany(
        sql(_INTERRUPT),
        [(scope, thread, one.interrupt_id, one.run_id, one.status, one.claimed_by, one.body)
         for one in archive.interrupts],
    )  # fmt: skip
    if archive.session is not None:
        insert = "INSERT INTO aguila.sessions (thread, body) VALUES ($1, $2)"
        await db.execute(sql(insert), thread, archive.session)
    for run_id, results in archive.effects.items():
        await db.executemany(sql(_EFFECT), [(thread, run_id, name, value) for name, value in results.items()])
    for file in archive.files:
        await _write_file(database, db, scope, file, thread_id)


async def _write_runs(database: Database, db: Any, thread: int, archive: ThreadArchive) -> None:
    sql = database.sql
    compacted = archive.find_compacted()
    lasts = [batch.last for batch in archive.batches]
    base: tuple[int, bytes, int] | None = None  # the run before, its list and its depth
    size = 0
    for run in archive.runs:
        record = run.record
        written = archive.batches[bisect_left(lasts, record.first) : bisect_right(lasts, record.last)]
        tokens = [(batch.first, token_to_int(batch.token)) for batch in written]
        token = tokens[0][1] if tokens else None
        changes = [(thread, *after) for before, after in pairwise(tokens) if before[1] != after[1]]
        await db.executemany(sql(_TAKEN_OVER), changes)
        key = await db.fetchval(
            sql(_RUN), thread, record.run_id, record.parent_run_id, record.fingerprint, record.first, record.last,
            record.outcome, record.owner, record.epoch, record.lease_until, int(record.cancel_requested),
            record.started_at, record.ended_at, record.sent_run_id, record.run_id in compacted, token,
        )  # fmt: skip
        if run.digests is None:
            await db.execute(sql(_INPUT), key, None, None, None, None, run.body.text)
            base = None
            continue
        delta = ListDelta((run.digests,))
        at, depth = None, 0
        if base is not None and base[2] < MAX_DEPTH:
            at, depth, delta = base[0], base[2] + 1, compare_lists(base[1], run.digests)
        stored = input_rows(archive.input_of(run), at, depth, delta)
        await db.execute(sql(_INPUT), key, at, stored.digests, depth, stored.files, stored.body)
        size += len(stored.digests or b"")
        for digest, message_size, body, places in stored.messages:
            if await db.fetchval(sql(_MESSAGE), thread, digest, body, places):
                size += message_size
        base = (key, run.digests, depth)
    await db.execute(sql("UPDATE aguila.threads SET bytes = bytes + $2 WHERE key = $1"), thread, size)
