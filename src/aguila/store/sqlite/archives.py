"""Read threads as archives from one snapshot of the file, and restore them. See ``store/archives``."""

from __future__ import annotations

import asyncio
import sqlite3
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from typing import TypeVar

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
from aguila.store.encoding import decode_row, encode_rows, join_events, size_of_rows
from aguila.store.feed import ThreadKey
from aguila.store.records import Batch, ThreadSummary
from aguila.store.run_inputs import StoredJSON
from aguila.store.sqlite import queries, run_writes, thread_writes
from aguila.store.sqlite.database.connection import is_outage, unavailable
from aguila.store.sqlite.database.large_values import insert, read_value, row_id, select_value
from aguila.store.sqlite.engine import Engine
from aguila.store.sqlite.inputs import decode_files, read_stored, write_input

T = TypeVar("T")


@asynccontextmanager
async def open_snapshot(engine: Engine) -> AsyncGenerator[Snapshot]:
    """Hold one read transaction open. While it lasts, the write-ahead log cannot be shortened."""
    db = await engine.compute(engine.connect_reader)
    snapshot = _FileSnapshot(engine, db)
    try:
        await snapshot.read(_begin)
        yield snapshot
    finally:
        await engine.compute(db.close)


def _begin(db: sqlite3.Connection) -> None:
    db.execute("BEGIN")
    db.execute("SELECT 1 FROM threads LIMIT 1").fetchone()  # the first read fixes the snapshot


class _FileSnapshot(Snapshot):
    """A read transaction on a connection of its own."""

    def __init__(self, engine: Engine, db: sqlite3.Connection) -> None:
        self._engine = engine
        self._db = db
        self._turn = asyncio.Lock()

    async def read(self, query: Callable[[sqlite3.Connection], T]) -> T:
        """Run a query. Raises ``StoreUnavailable``."""
        async with self._turn:
            try:
                return await self._engine.compute(query, self._db)
            except sqlite3.Error as error:
                if not is_outage(error):
                    raise
                raise unavailable(error) from error

    async def threads(self) -> Sequence[ThreadKey]:
        return await self.read(_list_threads)

    async def summaries(self, scope: str, *, before: int | None = None, limit: int = 500) -> Sequence[ThreadSummary]:
        return await self.read(lambda db: queries.list_threads(db, scope, limit, before, None, None, None))

    async def thread(self, scope: str, thread_id: str, *, ends_run: bool = True) -> ThreadArchive:
        found = await self.read(lambda db: read_thread(db, scope, thread_id))
        return end_open_run(found) if ends_run else found

    async def rest(self) -> AsyncIterator[FileArchive | RemovedThreads]:
        for key, scope, thread_id in await self.read(_list_rest):
            file = await self.read(lambda db, key=key: _read_file(db, key))
            yield FileArchive(scope=scope, thread_id=thread_id, file=file)
        yield RemovedThreads(
            dict(await self.read(lambda db: db.execute("SELECT thread, last FROM removed").fetchall()))
        )


def _list_threads(db: sqlite3.Connection) -> Sequence[ThreadKey]:
    return db.execute("SELECT scope, thread_id FROM threads ORDER BY scope, touched").fetchall()


def _list_rest(db: sqlite3.Connection) -> Sequence[tuple[int, str, str | None]]:
    """Return key, scope and thread of each file that is held by a thread that never ran, or by none."""
    return db.execute(
        """
        SELECT b.key, b.scope, h.thread_id FROM blobs b LEFT JOIN holds h ON h.blob = b.key
        LEFT JOIN threads t ON t.scope = h.scope AND t.thread_id = h.thread_id
        WHERE t.key IS NULL ORDER BY b.created_at, b.key
        """
    ).fetchall()


def read_thread(db: sqlite3.Connection, scope: str, thread_id: str) -> ThreadArchive:
    """Return a thread, which may have an open run. Raises ``NotFound``."""
    key, _ = queries.find_thread(db, scope, thread_id)
    summary = queries.read_thread(db, scope, thread_id)
    (first,) = db.execute("SELECT first FROM threads WHERE key = ?", (key,)).fetchone()
    runs: list[ArchivedRun] = []
    for (run,) in db.execute("SELECT key FROM runs WHERE thread = ? ORDER BY key", (key,)).fetchall():
        body, digests = read_stored(db, run)
        runs.append(ArchivedRun(record=queries.read_run_by_key(db, run), body=body, digests=digests))
    messages = {
        digest: StoredJSON(body, decode_files(files))
        for digest, body, files in db.execute("SELECT digest, body, files FROM messages WHERE thread = ?", (key,))
    }
    log = db.execute(
        f"SELECT first, {select_value('events')}, place, at, token FROM log "  # noqa: S608
        "WHERE place > ? AND place < ? ORDER BY place",
        (queries.log_place(key, 0), queries.log_place(key + 1, 0)),
    ).fetchall()
    batches = [
        Batch(number, tuple(decode_row(read_value(db, value, "log", "events", place))), at, token)
        for number, value, place, at, token in log
    ]
    effects = db.execute("SELECT root_run_id, name, value FROM effects WHERE thread = ? ORDER BY rowid", (key,))
    held = db.execute(
        """
        SELECT b.key FROM holds h JOIN blobs b ON b.key = h.blob WHERE h.scope = ? AND h.thread_id = ?
        ORDER BY b.blob_id
        """,
        (scope, thread_id),
    ).fetchall()
    return assemble_archive(
        summary,
        scope=scope,
        first=first,
        runs=runs,
        messages=messages,
        batches=batches,
        interrupts=queries.list_interrupts(db, scope, thread_id),
        session=queries.read_session(db, scope, thread_id),
        effects=effects,
        files=[_read_file(db, file) for (file,) in held],
    )


def _read_file(db: sqlite3.Connection, key: int) -> ArchivedFile:
    scope, blob_id, kept = db.execute("SELECT scope, blob_id, kept FROM blobs WHERE key = ?", (key,)).fetchone()
    blob, data = queries.read_blob(db, scope, blob_id)
    return ArchivedFile(blob=blob, data=data, is_kept=bool(kept))


def restore_rest(db: sqlite3.Connection, archive: FileArchive | RemovedThreads) -> None:
    """Write a file without a thread, or the numbers of removed threads."""
    if isinstance(archive, FileArchive):
        _write_file(db, archive.scope, archive.file, archive.thread_id)
        return
    db.executemany(
        """
        INSERT INTO removed (thread, last) VALUES (?, ?)
        ON CONFLICT (thread) DO UPDATE SET last = max(last, excluded.last)
        """,
        list(archive.last.items()),
    )


def _write_file(db: sqlite3.Connection, scope: str, file: ArchivedFile, thread_id: str | None) -> None:
    thread_writes.put_blob(db, scope, file.blob, file.data, thread_id)
    if file.is_kept and thread_id is not None:
        thread_writes.put_blob(db, scope, file.blob, file.data, None)


def restore_thread(db: sqlite3.Connection, archive: ThreadArchive, replace: bool) -> None:
    """Write a thread. Raises ``ThreadExists``, ``ThreadBusy``."""
    scope, thread_id = archive.scope, archive.thread_id
    old = db.execute(
        "SELECT key, running FROM threads WHERE scope = ? AND thread_id = ?", (scope, thread_id)
    ).fetchone()
    if old is not None:
        if not replace:
            raise refusals.thread_exists(thread_id)
        if old[1] is not None:
            raise refusals.thread_busy(queries.read_run_by_key(db, old[1]))
        thread_writes.remove_thread(db, old[0], scope, thread_id)
    batches = [(batch, encode_rows(batch.events)) for batch in archive.batches]
    size = sum(size_of_rows(rows) for _, rows in batches) + sum(run.body.size for run in archive.runs)
    thread = row_id(
        db.execute(
            """
            INSERT INTO threads (scope, thread_id, created_at, updated_at, touched, first, last, bytes, agent, archived)
            VALUES (?1, ?2, ?3, ?4, (SELECT coalesce(max(touched), 0) + 1 FROM threads WHERE scope = ?1), ?5, ?6, ?7,
              ?8, ?9)
            """,
            (
                scope, thread_id, archive.created_at, archive.updated_at, archive.first, archive.last,
                size + archive.size_of_values, archive.agent, archive.archived,
            ),
        ).lastrowid
    )  # fmt: skip
    if archive.title is not None or archive.metadata is not None:
        values = (thread, archive.title, archive.metadata)
        db.execute("INSERT INTO details (thread, title, metadata) VALUES (?, ?, ?)", values)
        thread_writes.add_members(db, scope, thread, archive.metadata)
    compacted = set(archive.find_compacted().values())
    for batch, rows in batches:
        if batch.first in compacted:
            values = (queries.log_place(thread, batch.last), batch.first, batch.at, batch.token)
            insert_row = "INSERT INTO log (place, first, at, token, compacted, events) VALUES (?, ?, ?, ?, 1, ?)"
            insert(db, insert_row, values, join_events(batch.events))
        else:
            run_writes.write_log(db, thread, batch.first - 1, rows, batch.at, batch.token)
    for run in archive.runs:
        _write_run(db, thread, archive, run)
    db.execute(
        """
        UPDATE runs SET compacted = 1
        WHERE thread = ?1 AND (?1 << 32) + last IN (SELECT place FROM log WHERE compacted AND place >> 32 = ?1)
        """,
        (thread,),
    )
    for interrupt in archive.interrupts:
        db.execute(
            """
            INSERT INTO interrupts (scope, thread, interrupt_id, run_id, status, claimed_by, body)
            VALUES (?, ?, ?, ?, ?, ?, ?)
            """,
            (
                scope, thread, interrupt.interrupt_id, interrupt.run_id, interrupt.status, interrupt.claimed_by,
                interrupt.body,
            ),
        )  # fmt: skip
    if archive.session is not None:
        db.execute("INSERT INTO sessions (thread, body) VALUES (?, ?)", (thread, archive.session))
    for run_id, results in archive.effects.items():
        db.executemany(
            "INSERT INTO effects (thread, root_run_id, name, value) VALUES (?, ?, ?, ?)",
            [(thread, run_id, name, value) for name, value in results.items()],
        )
    for file in archive.files:
        _write_file(db, scope, file, thread_id)


def _write_run(db: sqlite3.Connection, thread: int, archive: ThreadArchive, run: ArchivedRun) -> None:
    record = run.record
    key = row_id(
        db.execute(
            """
            INSERT INTO runs (thread, run_id, parent_run_id, fingerprint, first, last, outcome, owner, epoch,
              lease_seconds, lease_until, cancel_requested, started_at, ended_at, sent_run_id)
            VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, 0, ?, ?, ?, ?, ?)
            """,
            (
                thread, record.run_id, record.parent_run_id, record.fingerprint, record.first, record.last,
                record.outcome, record.owner, record.epoch, record.lease_until, record.cancel_requested,
                record.started_at, record.ended_at, record.sent_run_id,
            ),
        ).lastrowid
    )  # fmt: skip
    write_input(db, archive.created_at, thread, archive.scope, archive.thread_id, key, archive.input_of(run))
