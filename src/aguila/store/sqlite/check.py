"""Verify the invariants of the store contract in a SQLite file, count its content, and compact it.

All reads come from one snapshot; a server may use the file meanwhile.
"""

from __future__ import annotations

import sqlite3
import time
from collections.abc import Generator, Iterable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, Final

import msgspec

from aguila.errors import NotFound, StoreUnavailable
from aguila.store.checking import (
    Damage,
    FileRow,
    InputRow,
    InterruptRow,
    LogRow,
    RunRow,
    ThreadRows,
    check_content,
    check_positions,
    check_thread,
    check_usage,
    describe_hold,
)
from aguila.store.encoding import list_members, size_of_details
from aguila.store.run_inputs import StoredJSON, inline_id
from aguila.store.sqlite import queries
from aguila.store.sqlite.database.connection import connect, connect_reader, unavailable
from aguila.store.sqlite.database.migrations import SCHEMA
from aguila.store.sqlite.inputs import cut_whole_inputs, decode_files

_BUSY: Final = 5.0


@contextmanager
def _reading(path: Path) -> Generator[sqlite3.Connection]:
    """Open one read transaction. Raises ``StoreUnavailable``."""
    try:
        db = connect_reader(path, busy_seconds=_BUSY)
        try:
            db.execute("BEGIN")
            version = db.execute("PRAGMA user_version").fetchone()[0]
            if version > SCHEMA:
                raise StoreUnavailable(
                    f"{path} has schema {version}, and this Aguila knows schema {SCHEMA}: use a newer Aguila"
                )
            if version != SCHEMA:
                raise StoreUnavailable(
                    f"{path} has schema {version}, expected {SCHEMA}; run: aguila store migrate {path}"
                )
            yield db
        finally:
            db.close()
    except sqlite3.Error as error:
        raise unavailable(error) from error


def check_file(path: Path) -> Iterator[Damage]:
    """Iterate over everything in a file that breaks the contract. Raises ``StoreUnavailable``."""
    with _reading(path) as db:
        for (line,) in db.execute("PRAGMA integrity_check(20)"):
            if line != "ok":
                yield Damage("", "", f"SQLite: {line}")
        for key, scope, thread_id in db.execute("SELECT key, scope, thread_id FROM threads").fetchall():
            try:
                for message in check_thread(_read_thread(db, key, scope, thread_id)):
                    yield Damage(scope, thread_id, message)
            except msgspec.DecodeError as error:
                yield Damage(scope, thread_id, f"the list of inline files of a message cannot be decoded: {error}")
        yield from _check_files(db)
        yield from _check_usage(db)
        for message in _check_orphans(db):
            yield Damage("", "", message)


def _read_thread(db: sqlite3.Connection, key: int, scope: str, thread_id: str) -> ThreadRows:
    first, last, running, size = db.execute(
        "SELECT first, last, running, bytes FROM threads WHERE key = ?", (key,)
    ).fetchone()
    log = db.execute(
        "SELECT first, place - (? << 32), events, compacted FROM log WHERE place > ? AND place < ? ORDER BY place",
        (key, queries.log_place(key, 0), queries.log_place(key + 1, 0)),
    )
    runs = db.execute(
        "SELECT key, run_id, first, last, outcome, ended_at, compacted FROM runs WHERE thread = ? ORDER BY key", (key,)
    ).fetchall()
    interrupts = db.execute(
        "SELECT interrupt_id, run_id, status, claimed_by, body, scope FROM interrupts WHERE thread = ?", (key,)
    )
    values = _read_texts(db, "projected_values", key)
    held = db.execute(
        "SELECT b.blob_id FROM holds h JOIN blobs b ON b.key = h.blob WHERE h.scope = ? AND h.thread_id = ?",
        (scope, thread_id),
    )
    (other_bytes,) = db.execute(
        """
        SELECT (SELECT coalesce(sum(length(body)), 0) FROM sessions WHERE thread = ?1)
          + (SELECT coalesce(sum(length(value)), 0) FROM effects WHERE thread = ?1)
          + (SELECT coalesce(sum(length(body)), 0) FROM projections
             WHERE run IN (SELECT key FROM runs WHERE thread = ?1))
        """,
        (key,),
    ).fetchone()
    for title, metadata in db.execute("SELECT title, metadata FROM details WHERE thread = ?", (key,)):
        other_bytes += size_of_details(title, metadata)
    return ThreadRows(
        scope=scope,
        first=first,
        last=last,
        running=running,
        bytes=size,
        log=[LogRow(*row[:3], is_compacted=bool(row[3])) for row in log],
        runs=[RunRow(*row[:6], is_compacted=bool(row[6])) for row in runs],
        interrupts=[InterruptRow(*row) for row in interrupts],
        inputs={row[0]: found for row in runs if (found := _read_input(db, row[0])) is not None},
        messages=_read_texts(db, "messages", key),
        values=values,
        held=frozenset(row[0] for row in held),
        inline_files=_read_inline_files(db, scope, values.values()),
        other_bytes=other_bytes,
    )


def _read_texts(db: sqlite3.Connection, table: str, key: int) -> dict[bytes, StoredJSON]:
    rows = db.execute(f"SELECT digest, CAST(body AS BLOB), files FROM {table} WHERE thread = ?", (key,))  # noqa: S608
    return {digest: StoredJSON(body, decode_files(files)) for digest, body, files in rows}


def _read_input(db: sqlite3.Connection, run: int) -> InputRow | None:
    row = db.execute("SELECT base, messages, CAST(body AS BLOB), files FROM inputs WHERE run = ?", (run,)).fetchone()
    return None if row is None else InputRow(row[0], row[1], StoredJSON(row[2], decode_files(row[3])))


def _read_inline_files(db: sqlite3.Connection, scope: str, texts: Iterable[StoredJSON]) -> dict[bytes, bytes]:
    """Return the inline files of these texts that exist."""
    found: dict[bytes, bytes] = {}
    for digest in {digest for text in texts for _, digest in text.files}:
        with suppress(NotFound):
            found[digest] = queries.read_blob(db, scope, inline_id(digest))[1]
    return found


def _check_files(db: sqlite3.Connection) -> Iterator[Damage]:
    rows = db.execute(
        """
        SELECT key, scope, blob_id, media_type, filename, size, kept,
          EXISTS (SELECT 1 FROM holds h WHERE h.blob = blobs.key) FROM blobs
        """
    ).fetchall()
    for key, *row in rows:
        (data,) = db.execute("SELECT CAST(data AS BLOB) FROM blobs WHERE key = ?", (key,)).fetchone()
        for message in check_content(FileRow(*row), data):
            yield Damage(row[0], "", message)
    for scope, thread_id, blob in db.execute(
        "SELECT scope, thread_id, blob FROM holds WHERE blob NOT IN (SELECT key FROM blobs)"
    ):
        yield Damage(scope, thread_id, describe_hold(blob))


_COUNT_USAGE: Final = """
SELECT scope, sum(threads), sum(files), sum(bytes) FROM (
  SELECT scope, 1 AS threads, 0 AS files, bytes FROM threads WHERE running IS NULL
  UNION ALL SELECT scope, 1, 0, counted FROM threads WHERE running IS NOT NULL AND counted IS NOT NULL
  UNION ALL SELECT scope, 0, blob_id NOT LIKE 'inline-%', size FROM blobs
) GROUP BY scope
"""
"""The expected ``usage``: idle threads, running ones without their open run, and files."""


def _check_usage(db: sqlite3.Connection) -> Iterator[Damage]:
    """Check the counts for quotas."""
    found = {row[0]: row[1:] for row in db.execute("SELECT scope, threads, files, bytes FROM usage")}
    total = found.pop(b"", (0, 0, 0))
    yield from check_usage(found, total, {row[0]: row[1:] for row in db.execute(_COUNT_USAGE)})


def rebuild_usage(path: Path) -> None:
    """Count the usage of each scope again, for quotas. Raises ``StoreUnavailable``."""
    try:
        db = connect(path, busy_seconds=_BUSY, durability="process", max_bytes=None)
        try:
            db.execute(f"PRAGMA busy_timeout = {_BUSY * 1000:.0f}")
            db.execute("BEGIN IMMEDIATE")
            db.execute("UPDATE threads SET counted = bytes WHERE running IS NULL AND counted IS NOT bytes")
            db.execute("DELETE FROM usage")
            db.execute(f"INSERT INTO usage (scope, threads, files, bytes) {_COUNT_USAGE}")
            db.execute(
                """
                INSERT INTO usage (scope, threads, files, bytes)
                SELECT x'', coalesce(sum(threads), 0), coalesce(sum(files), 0), coalesce(sum(bytes), 0) FROM usage
                """
            )
            db.execute("COMMIT")
        finally:
            db.close()
    except sqlite3.Error as error:
        raise unavailable(error) from error


def _check_orphans(db: sqlite3.Connection) -> Iterator[str]:
    for table in ("runs", "messages", "projected_values", "interrupts", "effects", "sessions", "details"):
        (count,) = db.execute(f"SELECT count(*) FROM {table} WHERE thread NOT IN (SELECT key FROM threads)").fetchone()  # noqa: S608
        if count:
            yield f"{table}: {count} rows belong to no thread"
    for table in ("inputs", "projections", "viewers"):
        (count,) = db.execute(f"SELECT count(*) FROM {table} WHERE run NOT IN (SELECT key FROM runs)").fetchone()  # noqa: S608
        if count:
            yield f"{table}: {count} rows belong to no run"
    (count,) = db.execute("SELECT count(*) FROM log WHERE place >> 32 NOT IN (SELECT key FROM threads)").fetchone()
    if count:
        yield f"log: {count} rows belong to no thread"
    yield from _check_members(db)
    yield from check_positions(db.execute("SELECT scope, touched FROM threads").fetchall())


def _check_members(db: sqlite3.Connection) -> Iterator[str]:
    wanted = {
        (scope, name, value, key)
        for scope, key, metadata in db.execute(
            "SELECT t.scope, t.key, d.metadata FROM details d JOIN threads t ON t.key = d.thread"
        )
        for name, value in list_members(metadata)
    }
    found = set(db.execute("SELECT scope, name, value, thread FROM metadata_members"))
    if wanted != found:
        yield f"metadata_members: {len(wanted - found)} rows are missing, and {len(found - wanted)} match no metadata"


def count_content(path: Path) -> dict[str, Any]:
    """Return the sizes and counts of a file. Raises ``StoreUnavailable``."""
    with _reading(path) as db:

        def one(query: str) -> Any:
            return db.execute(query).fetchone()[0] or 0

        wal = path.with_name(path.name + "-wal")
        return {
            "schema": SCHEMA,
            "file_bytes": path.stat().st_size,
            "wal_bytes": wal.stat().st_size if wal.exists() else 0,
            "free_bytes": one("PRAGMA freelist_count") * one("PRAGMA page_size"),
            "scopes": one("SELECT count(DISTINCT scope) FROM threads"),
            "threads": one("SELECT count(*) FROM threads"),
            "largest_scope_threads": one("SELECT max(threads) FROM usage WHERE scope <> x''"),
            "largest_scope_files": one("SELECT max(files) FROM usage WHERE scope <> x''"),
            "largest_scope_bytes": one("SELECT max(bytes) FROM usage WHERE scope <> x''"),
            "counted_bytes": one("SELECT sum(bytes) FROM usage WHERE scope = x''"),
            "archived_threads": one("SELECT count(*) FROM threads WHERE archived"),
            "thread_bytes": one("SELECT sum(bytes) FROM threads"),
            "largest_thread_bytes": one("SELECT max(bytes) FROM threads"),
            "runs": one("SELECT count(*) FROM runs"),
            "open_runs": one("SELECT count(*) FROM threads WHERE running IS NOT NULL"),
            "events": one("SELECT sum(last - first + 1) FROM threads"),
            "log_rows": one("SELECT count(*) FROM log"),
            "log_bytes": one("SELECT sum(length(events)) FROM log"),
            "messages": one("SELECT count(*) FROM messages"),
            "open_interrupts": one("SELECT count(*) FROM interrupts WHERE status = 'open'"),
            "settled_interrupts": one("SELECT count(*) FROM interrupts WHERE status = 'settled'"),
            "files": one("SELECT count(*) FROM blobs WHERE blob_id NOT LIKE 'inline-%'"),
            "inline_files": one("SELECT count(*) FROM blobs WHERE blob_id LIKE 'inline-%'"),
            "file_content_bytes": one("SELECT sum(size) FROM blobs"),
        }


def compact_file(path: Path) -> None:
    """Rewrite a file without free pages, and empty its write-ahead log. Raises ``StoreUnavailable``.

    First store each message once in requests of earlier schemas. The file is locked meanwhile: a server can read it,
    and its writes wait.
    """
    try:
        db = connect(path, busy_seconds=_BUSY, durability="process", max_bytes=None)
        try:
            db.execute(f"PRAGMA busy_timeout = {_BUSY * 1000:.0f}")
            cut_whole_inputs(db, time.time())
            db.execute("VACUUM")
            db.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchall()
        finally:
            db.close()
    except sqlite3.Error as error:
        raise unavailable(error) from error
