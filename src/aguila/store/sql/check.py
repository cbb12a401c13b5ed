"""Verify the invariants of the store contract in a SQL database, count its content, and count its usage again."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator
from typing import Any, Final

from aguila.store.check import (
    Counts,
    Damage,
    InterruptRow,
    LogRow,
    RunRow,
    ThreadRows,
    check_positions,
    check_thread,
    check_usage,
)
from aguila.store.encoding import hash_blob, hash_members, size_of_details
from aguila.store.sql import reads
from aguila.store.sql.runs import COUNT
from aguila.store.sql.schema import VERSION
from aguila.store.sql.tx import Tx

_LOG: Final = """
SELECT place, first, starts, content, events FROM aguila.log WHERE place > $1 AND place < $2 ORDER BY place
"""
_RUNS: Final = """
SELECT key, number, run_id, first, last, outcome, ended_at, request, list FROM aguila.runs WHERE thread = $1
ORDER BY number
"""
_INTERRUPTS: Final = """
SELECT interrupt_id, run_id, status, claimed_by, body, scope FROM aguila.interrupts WHERE thread = $1
"""
_BYTES: Final = """
SELECT CAST(
  (SELECT coalesce(sum(length(events)), 0) FROM aguila.log WHERE place > $2 AND place < $3)
  + (SELECT coalesce(sum(length(body)), 0) FROM aguila.contents WHERE thread = $1)
  + (SELECT coalesce(sum(length(request) + coalesce(length(list), 0) + coalesce(length(turn), 0)), 0)
     FROM aguila.runs WHERE thread = $1)
  + (SELECT coalesce(sum(length(body)), 0) FROM aguila.interrupts WHERE thread = $1)
  + (SELECT coalesce(sum(length(value)), 0) FROM aguila.effects WHERE thread = $1)
  + (SELECT coalesce(sum(length(session)), 0) FROM aguila.details WHERE thread = $1) AS bigint)
"""
_HELD: Final = """
SELECT scope, CAST(sum(threads) AS bigint), CAST(sum(files) AS bigint), CAST(sum(bytes) AS bigint) FROM (
  SELECT scope, 1 AS threads, 0 AS files, bytes FROM aguila.threads WHERE running IS NULL
  UNION ALL SELECT scope, 1, 0, counted FROM aguila.threads WHERE running IS NOT NULL AND counted IS NOT NULL
  UNION ALL SELECT scope, 0, 1, size FROM aguila.files
) held GROUP BY scope
"""
"""The expected ``usage``: idle threads, open ones without their open run, and files."""

_OF_THREADS: Final = ("runs", "contents", "interrupts", "effects", "details", "members")
_LARGEST: Final = "SELECT max(s) FROM (SELECT sum({}) AS s FROM aguila.usage WHERE kind = 0 GROUP BY scope) u"
_COUNTS: Final = {
    "threads": "SELECT count(*) FROM aguila.threads",
    "largest_scope_threads": _LARGEST.format("threads"),
    "largest_scope_files": _LARGEST.format("files"),
    "largest_scope_bytes": _LARGEST.format("bytes"),
    "counted_bytes": "SELECT sum(bytes) FROM aguila.usage WHERE kind = 1",
    "archived_threads": "SELECT count(*) FROM aguila.threads WHERE archived = 1",
    "thread_bytes": "SELECT sum(bytes) FROM aguila.threads",
    "largest_thread_bytes": "SELECT max(bytes) FROM aguila.threads",
    "runs": "SELECT count(*) FROM aguila.runs r JOIN aguila.threads t ON t.key = r.thread",
    "open_runs": "SELECT count(*) FROM aguila.threads WHERE running IS NOT NULL",
    "events": "SELECT sum(last - first + 1) FROM aguila.threads",
    "log_rows": "SELECT count(*) FROM aguila.log",
    "log_bytes": "SELECT sum(length(events)) FROM aguila.log",
    "contents": "SELECT count(*) FROM aguila.contents WHERE part = 0",
    "content_bytes": "SELECT sum(length(body)) FROM aguila.contents",
    "open_interrupts": "SELECT count(*) FROM aguila.interrupts WHERE status = 'open'",
    "settled_interrupts": "SELECT count(*) FROM aguila.interrupts WHERE status = 'settled'",
    "files": "SELECT count(*) FROM aguila.files",
    "file_bytes": "SELECT sum(size) FROM aguila.files",
    "removed_threads": "SELECT count(*) FROM aguila.trash",
}


def find_damage(tx: Tx) -> Iterator[Damage]:
    """Iterate over everything that breaks the contract."""
    threads = tx.rows(
        "SELECT key, scope, thread_id, first, last, running, bytes, position FROM aguila.threads ORDER BY key"
    )
    for key, scope, thread_id, first, last, running, size, _ in threads:
        for message in (
            *check_thread(_read_thread(tx, key, scope, first, last, running)),
            *_check_row(tx, key, scope, size),
        ):
            yield Damage(scope, thread_id, message)
    yield from _check_files(tx)
    held: dict[str, Counts] = {row[0]: (row[1], row[2], row[3]) for row in tx.rows(_HELD)}
    found, total = _read_usage(tx)
    yield from check_usage(found, total, held)
    for message in (*_check_orphans(tx), *check_positions([(row[1], row[7]) for row in threads])):
        yield Damage("", "", message)


def _range(thread: int) -> tuple[int, int]:
    """Return between which keys the log of a thread is."""
    return reads.log_place(thread, 0), reads.log_place(thread + 1, 0)


def _read_thread(tx: Tx, key: int, scope: str, first: int, last: int, running: int | None) -> ThreadRows:
    parts: defaultdict[bytes, list[bytes]] = defaultdict(list)
    for digest, body in tx.rows(
        "SELECT digest, body FROM aguila.contents WHERE thread = $1 ORDER BY digest, part", key
    ):
        parts[digest].append(body)
    start, stop = _range(key)
    return ThreadRows(
        scope=scope,
        first=first,
        last=last,
        running=running,
        log=[LogRow(row[0] - start, *row[1:]) for row in tx.rows(_LOG, start, stop)],
        runs=[RunRow(*row) for row in tx.rows(_RUNS, key)],
        interrupts=[InterruptRow(*row) for row in tx.rows(_INTERRUPTS, key)],
        contents={digest: b"".join(bodies) for digest, bodies in parts.items()},
    )


def _check_row(tx: Tx, key: int, scope: str, size: int) -> Iterator[str]:
    """Check the bytes of a thread, and the hashes by which it is found from its metadata."""
    details = tx.row("SELECT title, metadata FROM aguila.details WHERE thread = $1", key)
    title, metadata = (None, None) if details is None else details
    found = tx.row(_BYTES, key, *_range(key))
    assert found is not None  # noqa: S101 - an aggregate
    counted = found[0] + size_of_details(title, metadata)
    if counted != size:
        yield f"the thread has {counted} bytes, and its row says {size}"
    members = [row[0] for row in tx.rows("SELECT member FROM aguila.members WHERE thread = $1", key)]
    if sorted(members) != hash_members(scope, metadata):
        yield "the hashes of its metadata do not match the metadata"


def _check_files(tx: Tx) -> Iterator[Damage]:
    rows = tx.rows(
        """
        SELECT key, scope, file_id, media_type, filename, size, kept,
          (SELECT count(*) FROM aguila.holds h WHERE h.file = f.key) FROM aguila.files f ORDER BY key
        """
    )
    for key, scope, file_id, media_type, filename, size, kept, holders in rows:
        parts = tx.rows("SELECT data FROM aguila.file_parts WHERE file = $1 ORDER BY part", key)
        data = b"".join([row[0] for row in parts])
        if len(data) != size:
            yield Damage(scope, "", f"file {file_id} has {len(data)} bytes, and its row says {size}")
        if hash_blob(scope, data, media_type, filename) != file_id:
            yield Damage(scope, "", f"file {file_id} does not match its id")
        if not kept and not holders:
            yield Damage(scope, "", f"file {file_id} belongs to no thread and was not stored without one")
    lost = "SELECT scope, thread_id, file FROM aguila.holds WHERE file NOT IN (SELECT key FROM aguila.files)"
    for scope, thread_id, file in tx.rows(lost):
        yield Damage(scope, thread_id, f"the thread holds file {file}, which does not exist")


def _read_usage(tx: Tx) -> tuple[dict[str, Counts], Counts]:
    """Return the counts for quotas, of each scope and in total."""
    rows = tx.rows(
        """
        SELECT kind, scope, CAST(sum(threads) AS bigint), CAST(sum(files) AS bigint), CAST(sum(bytes) AS bigint)
        FROM aguila.usage GROUP BY kind, scope
        """
    )
    total = next(((row[2], row[3], row[4]) for row in rows if row[0] == 1), (0, 0, 0))
    return {row[1]: (row[2], row[3], row[4]) for row in rows if row[0] == 0}, total


def _check_orphans(tx: Tx) -> Iterator[str]:
    """Find rows that belong to nothing. The rows of removed threads are deleted a while later ("trash")."""
    known = "(SELECT key FROM aguila.threads UNION ALL SELECT thread FROM aguila.trash)"
    orphans = [(table, f"thread NOT IN {known}", "thread") for table in _OF_THREADS]
    orphans += [
        ("log", f"place / 4294967296 NOT IN {known}", "thread"),
        ("viewers", "run NOT IN (SELECT key FROM aguila.runs)", "run"),
        ("file_parts", "file NOT IN (SELECT key FROM aguila.files)", "file"),
    ]
    for table, condition, owner in orphans:
        row = tx.row(f"SELECT count(*) FROM aguila.{table} WHERE {condition}")  # noqa: S608 - our own names
        if row is not None and row[0]:
            yield f"{table}: {row[0]} rows belong to no {owner}"


def count_content(tx: Tx) -> dict[str, int]:
    """Return the sizes and counts of a store."""
    found = {"schema": VERSION, "scopes": len(reads.list_scopes(tx, None))}
    for name, query in _COUNTS.items():
        row = tx.row(query)
        found[name] = 0 if row is None else int(row[0] or 0)
    return found


def recount(tx: Tx, slot: int) -> None:
    """Count the usage of each scope again, for quotas."""
    tx.do("UPDATE aguila.threads SET counted = bytes WHERE running IS NULL AND (counted IS NULL OR counted <> bytes)")
    tx.do("DELETE FROM aguila.usage")
    held: list[Any] = list(tx.rows(_HELD))
    tx.many(COUNT, [(0, row[0], slot, *row[1:]) for row in held])
    tx.do(COUNT, 1, "", slot, *[sum(row[at] for row in held) for at in (1, 2, 3)])
