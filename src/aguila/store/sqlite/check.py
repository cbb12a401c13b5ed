"""Verify the invariants of the store contract in a SQLite file, count its content, and compact it.

All reads come from one snapshot; a server may go on meanwhile.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Generator, Iterator, Sequence
from contextlib import contextmanager
from hashlib import blake2b
from itertools import pairwise
from pathlib import Path
from typing import Any, Final

import msgspec

from aguila.codec.json.bounded_floats import json_decoder
from aguila.errors import NotFound, StoreUnavailable
from aguila.store.encoding import decode_row, hash_blob, list_members, size_of_details
from aguila.store.run_inputs import (
    DIGEST,
    StoredJSON,
    hash_json,
    hash_message,
    inline_id,
    is_inline,
    join_input,
    join_value,
    split_digests,
)
from aguila.store.sqlite import queries
from aguila.store.sqlite.connection import connect, connect_reader, unavailable
from aguila.store.sqlite.inputs import decode_files, read_stored
from aguila.store.sqlite.migrations import SCHEMA

_BUSY: Final = 5.0
_OUTCOMES: Final = ("success", "interrupt", "cancelled", "error")
_TERMINAL: Final = ("RUN_FINISHED", "RUN_ERROR")


class Damage(msgspec.Struct, frozen=True):
    """A broken invariant. ``thread_id`` is empty if it belongs to no thread."""

    scope: str
    thread_id: str
    message: str


class _Event(msgspec.Struct):
    type: str | None = None


_decode_event = json_decoder(_Event).decode
_decode_json = json_decoder().decode


@contextmanager
def _reading(path: Path) -> Generator[sqlite3.Connection]:
    """Open one read transaction. Raises ``StoreUnavailable``."""
    try:
        db = connect_reader(path, busy_seconds=_BUSY)
        try:
            db.execute("BEGIN")
            version = db.execute("PRAGMA user_version").fetchone()[0]
            if version != SCHEMA:
                raise StoreUnavailable(f"{path} has schema {version}, expected {SCHEMA}; serve it once to upgrade it")
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
            for message in _check_thread(db, key, scope, thread_id):
                yield Damage(scope, thread_id, message)
        yield from _check_files(db)
        yield from _check_usage(db)
        for message in _check_orphans(db):
            yield Damage("", "", message)


def _check_thread(db: sqlite3.Connection, key: int, scope: str, thread_id: str) -> Iterator[str]:
    types: dict[int, str | None] = {}
    yield from _check_log(db, key, types)
    yield from _check_runs(db, key, types)
    yield from _check_interrupts(db, key, scope)
    try:
        yield from _check_inputs(db, key, scope, thread_id)
        yield from _check_values(db, key, scope)
        yield from _check_bytes(db, key)
    except msgspec.DecodeError as error:
        yield f"a list of messages or of inline files cannot be decoded: {error}"


def _check_log(db: sqlite3.Connection, key: int, types: dict[int, str | None]) -> Iterator[str]:
    """Check the numbers and the JSON of the log; collect the types of the events by their numbers."""
    number, last = db.execute("SELECT first, last FROM threads WHERE key = ?", (key,)).fetchone()
    rows = db.execute(
        "SELECT place, first, events, compacted FROM log WHERE place > ? AND place < ? ORDER BY place",
        (queries.log_place(key, 0), queries.log_place(key + 1, 0)),
    ).fetchall()
    for place, first, body, compacted in rows:
        if not isinstance(body, bytes):
            yield f"the batch from event {first} is not bytes"
            continue
        events = decode_row(body)
        if compacted:
            run = db.execute(
                "SELECT first FROM runs WHERE thread = ? AND last = ? AND compacted", (key, place - (key << 32))
            ).fetchone()
            number = first if run is not None and run[0] == number <= first else number
        if first != number:
            yield f"the log continues with event {first}, expected {number}"
        if place != queries.log_place(key, first + len(events) - 1):
            yield f"the batch from event {first} has {len(events)} events, and its key says otherwise"
        for at, event in enumerate(events, first):
            try:
                types[at] = _decode_event(event).type
            except (msgspec.DecodeError, UnicodeError):
                yield f"event {at} is not a JSON object"
        number = first + len(events)
    if number != last + 1:
        yield f"the log ends with event {number - 1}, and the thread with {last}"


def _check_runs(db: sqlite3.Connection, key: int, types: dict[int, str | None]) -> Iterator[str]:
    first, last, running = db.execute("SELECT first, last, running FROM threads WHERE key = ?", (key,)).fetchone()
    next_first = first
    rows = db.execute(
        "SELECT key, run_id, first, last, outcome, ended_at FROM runs WHERE thread = ? ORDER BY key", (key,)
    )
    found: set[int] = set()
    for run, run_id, run_first, run_last, outcome, ended_at in rows:
        found.add(run)
        if run_first != next_first:
            yield f"run {run_id!r} begins with event {run_first}, expected {next_first}"
        if run == running:
            if (run_last, outcome, ended_at) != (None, None, None):
                yield f"run {run_id!r} is the open run of the thread, but has ended"
            next_first = last + 1
            continue
        if outcome is None or run_last is None:
            yield f"run {run_id!r} has no outcome, but is not the open run of the thread"
            continue
        if outcome not in _OUTCOMES:
            yield f"run {run_id!r} has the outcome {outcome!r}"
        if run_last < run_first:
            yield f"run {run_id!r} has no events: {run_first} to {run_last}"
        elif types.get(run_last) not in _TERMINAL:
            found_type = types.get(run_last)
            yield f"run {run_id!r} ends with event {run_last}, which is {found_type}, expected a terminal event"
        next_first = run_last + 1
    if next_first != last + 1:
        yield f"the last run ends with event {next_first - 1}, and the thread with {last}"
    if running is not None and running not in found:
        yield "the open run of the thread does not exist"


def _check_interrupts(db: sqlite3.Connection, key: int, scope: str) -> Iterator[str]:
    running = db.execute(
        "SELECT r.run_id FROM threads t JOIN runs r ON r.key = t.running WHERE t.key = ?", (key,)
    ).fetchone()
    open_run = None if running is None else running[0]
    runs = {run_id for (run_id,) in db.execute("SELECT run_id FROM runs WHERE thread = ?", (key,))}
    rows = db.execute(
        "SELECT interrupt_id, run_id, status, claimed_by, body, scope FROM interrupts WHERE thread = ?", (key,)
    )
    for interrupt_id, run_id, status, claimed_by, body, found_scope in rows:
        name = f"interrupt {interrupt_id!r}"
        if run_id not in runs:
            yield f"{name} was raised by run {run_id!r}, which does not exist"
        if found_scope != scope:
            yield f"{name} has the scope {found_scope!r}, and its thread {scope!r}"
        if status == "open" and claimed_by is not None:
            yield f"{name} is open, but claimed by run {claimed_by!r}"
        elif status == "claimed" and (claimed_by is None or claimed_by != open_run):
            yield f"{name} is claimed by run {claimed_by!r}, which is not the open run"
        elif status == "settled" and claimed_by not in runs:
            yield f"{name} was settled by run {claimed_by!r}, which does not exist"
        elif status not in ("open", "claimed", "settled"):
            yield f"{name} has the status {status!r}"
        if not _is_json(body):
            yield f"{name} is not JSON"


def _check_inputs(db: sqlite3.Connection, key: int, scope: str, thread_id: str) -> Iterator[str]:
    messages: dict[bytes, StoredJSON] = {}
    for digest, body, files in db.execute(
        "SELECT digest, CAST(body AS BLOB), files FROM messages WHERE thread = ?", (key,)
    ):
        message = messages[digest] = StoredJSON(body, decode_files(files))
        old = blake2b(message.text, digest_size=DIGEST)  # of files of schema 11
        if message.files:
            old.update(repr(message.files).encode())
        if digest not in (hash_message(message), old.digest()):
            yield f"message {digest.hex()} does not match its digest"
    held = {
        blob_id
        for (blob_id,) in db.execute(
            "SELECT b.blob_id FROM holds h JOIN blobs b ON b.key = h.blob WHERE h.scope = ? AND h.thread_id = ?",
            (scope, thread_id),
        )
    }
    for run, run_id in db.execute("SELECT key, run_id FROM runs WHERE thread = ? ORDER BY key", (key,)).fetchall():
        problem = _check_chain(db, run)
        if problem is not None:
            yield f"the request of run {run_id!r}: {problem}"
            continue
        body, digests = read_stored(db, run)
        parts = [body]
        missing = [digest for digest in split_digests(digests or b"") if digest not in messages]
        if missing:
            yield f"the request of run {run_id!r}: message {missing[0].hex()} is missing"
            continue
        parts += [messages[digest] for digest in split_digests(digests or b"")]
        files = {digest for part in parts for _, digest in part.files}
        lost = [digest for digest in files if inline_id(digest) not in held]
        if lost:
            yield f"the request of run {run_id!r}: inline file {lost[0].hex()} is missing or not held by the thread"
        elif not _is_json(join_input(body, digests, messages.__getitem__, lambda _: b"")):
            yield f"the request of run {run_id!r} is not JSON"


def _check_values(db: sqlite3.Connection, key: int, scope: str) -> Iterator[str]:
    for digest, body, files in db.execute(
        "SELECT digest, CAST(body AS BLOB), files FROM projected_values WHERE thread = ?", (key,)
    ):
        value = StoredJSON(body, decode_files(files))
        try:
            found = join_value(value, lambda file: queries.read_blob(db, scope, inline_id(file))[1])
        except NotFound:
            yield f"value {digest.hex()} of a projection: an inline file is missing"
        else:
            if hash_json(found) != digest:
                yield f"value {digest.hex()} of a projection does not match its digest"


def _check_chain(db: sqlite3.Connection, run: int) -> str | None:
    """Return what is wrong with the list of messages of a request."""
    seen: set[int] = set()
    key: int | None = run
    while key is not None:
        if key in seen:
            return "its list of messages refers to itself"
        seen.add(key)
        row = db.execute("SELECT base, messages FROM inputs WHERE run = ?", (key,)).fetchone()
        if row is None:
            return "it is missing" if key == run else "the list of messages that it changes is missing"
        if row[1] is None and key != run:
            return "the list of messages that it changes is missing"
        key = row[0]
    return None


def _check_bytes(db: sqlite3.Connection, key: int) -> Iterator[str]:
    (stored,) = db.execute("SELECT bytes FROM threads WHERE key = ?", (key,)).fetchone()
    (counted,) = db.execute(
        """
        SELECT (SELECT coalesce(sum(length(body)), 0) FROM interrupts WHERE thread = ?1)
          + (SELECT coalesce(sum(length(body)), 0) FROM sessions WHERE thread = ?1)
          + (SELECT coalesce(sum(length(value)), 0) FROM effects WHERE thread = ?1)
          + (SELECT coalesce(sum(length(body)), 0) FROM projections
             WHERE run IN (SELECT key FROM runs WHERE thread = ?1))
        """,
        (key,),
    ).fetchone()
    counted += db.execute(
        "SELECT coalesce(sum(length(events)), 0) FROM log WHERE place > ? AND place < ?",
        (queries.log_place(key, 0), queries.log_place(key + 1, 0)),
    ).fetchone()[0]
    texts = db.execute(
        """
        SELECT length(body), files FROM messages WHERE thread = ?1
        UNION ALL SELECT length(body), files FROM projected_values WHERE thread = ?1
        """,
        (key,),
    ).fetchall()
    for size, files, messages in db.execute(
        "SELECT length(body), files, length(messages) FROM inputs WHERE run IN (SELECT key FROM runs WHERE thread = ?)",
        (key,),
    ):
        texts.append((size, files))
        counted += messages or 0
    counted += sum(size + len(decode_files(files)) * (DIGEST + 8) for size, files in texts)
    for title, metadata in db.execute("SELECT title, metadata FROM details WHERE thread = ?", (key,)):
        counted += size_of_details(title, metadata)
    if counted != stored:
        yield f"the thread has {counted} bytes, and its row says {stored}"


def _check_files(db: sqlite3.Connection) -> Iterator[Damage]:
    keys = db.execute("SELECT key, scope, blob_id, media_type, filename, size, kept FROM blobs").fetchall()
    for key, scope, blob_id, media_type, filename, size, kept in keys:
        (data,) = db.execute("SELECT CAST(data AS BLOB) FROM blobs WHERE key = ?", (key,)).fetchone()
        if len(data) != size:
            yield Damage(scope, "", f"file {blob_id} has {len(data)} bytes, and its row says {size}")
        is_same = (
            inline_id(blake2b(data, digest_size=DIGEST).digest()) == blob_id
            if is_inline(blob_id)
            else hash_blob(scope, data, media_type, filename) == blob_id
        )
        if not is_same:
            yield Damage(scope, "", f"file {blob_id} does not match its id")
        if not kept and db.execute("SELECT 1 FROM holds WHERE blob = ? LIMIT 1", (key,)).fetchone() is None:
            yield Damage(scope, "", f"file {blob_id} belongs to no thread and was not stored without one")
    for scope, thread_id, blob in db.execute(
        "SELECT scope, thread_id, blob FROM holds WHERE blob NOT IN (SELECT key FROM blobs)"
    ):
        yield Damage(scope, thread_id, f"the thread holds file {blob}, which does not exist")


_COUNT_USAGE: Final = """
SELECT scope, sum(threads), sum(files), sum(bytes) FROM (
  SELECT scope, 1 AS threads, 0 AS files, bytes FROM threads WHERE running IS NULL
  UNION ALL SELECT scope, 1, 0, counted FROM threads WHERE running IS NOT NULL AND counted IS NOT NULL
  UNION ALL SELECT scope, 0, blob_id NOT LIKE 'inline-%', size FROM blobs
) GROUP BY scope
"""
"""What ``usage`` must have: idle threads, what running ones had before their open run, and files."""


def _check_usage(db: sqlite3.Connection) -> Iterator[Damage]:
    """Check what is counted for quotas."""
    found = {row[0]: row[1:] for row in db.execute("SELECT scope, threads, files, bytes FROM usage")}
    total = found.pop(b"", (0, 0, 0))
    counted = {row[0]: row[1:] for row in db.execute(_COUNT_USAGE)}
    for scope in sorted(found.keys() | counted.keys()):
        one, other = found.get(scope, (0, 0, 0)), counted.get(scope, (0, 0, 0))
        if one != other:
            yield Damage(scope, "", f"scope {scope!r} has {_usage_text(other)}; its quotas count {_usage_text(one)}")
    sums = tuple(sum(row[at] for row in counted.values()) for at in range(3))
    if total != sums:
        yield Damage("", "", f"the store has {_usage_text(sums)}; its quotas count {_usage_text(total)}")


def _usage_text(usage: Sequence[int]) -> str:
    return f"{usage[0]} threads, {usage[1]} files, {usage[2]} bytes"


def rebuild_usage(path: Path) -> None:
    """Count again what each scope holds, for quotas. Raises ``StoreUnavailable``."""
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
    positions = db.execute("SELECT scope, touched FROM threads ORDER BY scope, touched").fetchall()
    for one, other in pairwise(positions):
        if one == other:
            yield f"scope {one[0]!r} has two threads at position {one[1]}"


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


def _is_json(data: bytes) -> bool:
    try:
        _decode_json(data)
    except (msgspec.DecodeError, UnicodeError, RecursionError):
        return False
    return True


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

    The file is locked meanwhile: a server can read it, and its writes wait.
    """
    try:
        db = connect(path, busy_seconds=_BUSY, durability="process", max_bytes=None)
        try:
            db.execute(f"PRAGMA busy_timeout = {_BUSY * 1000:.0f}")
            db.execute("VACUUM")
            db.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchall()
        finally:
            db.close()
    except sqlite3.Error as error:
        raise unavailable(error) from error
