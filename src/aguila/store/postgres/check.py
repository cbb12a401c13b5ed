"""Verify the invariants of the store contract in a PostgreSQL schema, and count its content.

All reads come from one snapshot; servers may use the store meanwhile. Nothing is created or upgraded.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator, AsyncIterator, Iterable
from contextlib import asynccontextmanager
from typing import Any

import msgspec

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
from aguila.store.encoding import hash_members, size_of_details
from aguila.store.postgres.archives import begin_snapshot
from aguila.store.postgres.database.connections import Database, outages_as_unavailable
from aguila.store.postgres.database.migrations import check_known, newest, read_version
from aguila.store.postgres.inputs import decode_files, stored_messages
from aguila.store.run_inputs import StoredJSON, inline_id

_THREADS = "SELECT key, scope, thread_id, first, last, running, bytes, touched FROM aguila.threads ORDER BY key"
_LOG = """
SELECT first, last, events, compacted IS NOT NULL FROM aguila.log WHERE thread = $1 ORDER BY last
"""
_RUNS = """
SELECT key, run_id, first, last, outcome, ended_at, compacted FROM aguila.runs WHERE thread = $1 ORDER BY key
"""
_INTERRUPTS = """
SELECT interrupt_id, run_id, status, claimed_by, body, scope FROM aguila.interrupts WHERE thread = $1
"""
_INPUTS = """
SELECT run, base, messages, body, files FROM aguila.inputs
WHERE run IN (SELECT key FROM aguila.runs WHERE thread = $1)
"""
_MESSAGES = "SELECT digest, body, files FROM aguila.messages WHERE thread = $1"
_VALUES = "SELECT digest, body, files FROM aguila.projected_values WHERE thread = $1"
_HELD = """
SELECT b.blob_id FROM aguila.holds h JOIN aguila.blobs b ON b.key = h.blob WHERE h.scope = $1 AND h.thread_id = $2
"""
_INLINE = "SELECT key, blob_id FROM aguila.blobs WHERE scope = $1 AND blob_id = ANY ($2::text[])"
_PARTS = "SELECT data FROM aguila.blob_parts WHERE blob = $1 ORDER BY part"
_OTHER_BYTES = """
SELECT (SELECT coalesce(sum(octet_length(body)), 0) FROM aguila.sessions WHERE thread = $1)
  + (SELECT coalesce(sum(octet_length(value)), 0) FROM aguila.effects WHERE thread = $1)
  + (SELECT coalesce(sum(octet_length(body)), 0) FROM aguila.projections
     WHERE run IN (SELECT key FROM aguila.runs WHERE thread = $1))
"""
_DETAILS = "SELECT title, metadata, members FROM aguila.details WHERE thread = $1"
_BLOBS = """
SELECT key, scope, blob_id, media_type, filename, size, kept,
  EXISTS (SELECT 1 FROM aguila.holds h WHERE h.blob = b.key) FROM aguila.blobs b ORDER BY key
"""
_LOST_HOLDS = """
SELECT scope, thread_id, blob FROM aguila.holds h WHERE NOT EXISTS (SELECT 1 FROM aguila.blobs b WHERE b.key = h.blob)
"""
_USAGE = "SELECT scope, sum(threads), sum(files), sum(bytes) FROM aguila.usage GROUP BY scope"
_TOTAL_USAGE = "SELECT sum(threads), sum(files), sum(bytes) FROM aguila.total_usage"
_HOLDINGS = """
SELECT scope, sum(threads), sum(files), sum(bytes) FROM (
  SELECT scope, 1 AS threads, 0 AS files, bytes FROM aguila.threads WHERE running IS NULL
  UNION ALL SELECT scope, 1, 0, counted FROM aguila.threads WHERE running IS NOT NULL AND counted IS NOT NULL
  UNION ALL SELECT scope, 0, (blob_id NOT LIKE 'inline-%')::integer, size FROM aguila.blobs
) held GROUP BY scope
"""
"""The expected ``usage``: idle threads, running ones without their open run, and files."""

_OF_THREADS = (
    "runs", "log", "messages", "projected_values", "interrupts", "effects", "sessions", "details", "take_overs"
)  # fmt: skip
_OF_RUNS = ("inputs", "projections", "viewers")

_COUNTS = {
    "table_bytes": """
        SELECT sum(pg_total_relation_size(c.oid)) FROM pg_class c
        WHERE c.relnamespace = (SELECT oid FROM pg_namespace WHERE nspname = $1) AND c.relkind = 'r'
    """,
    "scopes": "SELECT count(DISTINCT scope) FROM aguila.threads",
    "threads": "SELECT count(*) FROM aguila.threads",
    "largest_scope_threads": "SELECT max(s) FROM (SELECT sum(threads) AS s FROM aguila.usage GROUP BY scope) u",
    "largest_scope_files": "SELECT max(s) FROM (SELECT sum(files) AS s FROM aguila.usage GROUP BY scope) u",
    "largest_scope_bytes": "SELECT max(s) FROM (SELECT sum(bytes) AS s FROM aguila.usage GROUP BY scope) u",
    "counted_bytes": "SELECT sum(bytes) FROM aguila.total_usage",
    "archived_threads": "SELECT count(*) FROM aguila.threads WHERE archived",
    "thread_bytes": "SELECT sum(bytes) FROM aguila.threads",
    "largest_thread_bytes": "SELECT max(bytes) FROM aguila.threads",
    "runs": "SELECT count(*) FROM aguila.runs r JOIN aguila.threads t ON t.key = r.thread",
    "open_runs": "SELECT count(*) FROM aguila.threads WHERE running IS NOT NULL",
    "events": "SELECT sum(last - first + 1) FROM aguila.threads",
    "log_rows": "SELECT count(*) FROM aguila.log g JOIN aguila.threads t ON t.key = g.thread",
    "log_bytes": "SELECT sum(octet_length(g.events)) FROM aguila.log g JOIN aguila.threads t ON t.key = g.thread",
    "messages": "SELECT count(*) FROM aguila.messages m JOIN aguila.threads t ON t.key = m.thread",
    "open_interrupts": "SELECT count(*) FROM aguila.interrupts WHERE status = 'open'",
    "settled_interrupts": "SELECT count(*) FROM aguila.interrupts WHERE status = 'settled'",
    "files": "SELECT count(*) FROM aguila.blobs WHERE blob_id NOT LIKE 'inline-%'",
    "inline_files": "SELECT count(*) FROM aguila.blobs WHERE blob_id LIKE 'inline-%'",
    "file_content_bytes": "SELECT sum(size) FROM aguila.blobs",
}


@asynccontextmanager
async def _reading(database: Database) -> AsyncGenerator[Any]:
    """Hold one read transaction open. Raises ``StoreUnavailable``."""
    async with begin_snapshot(database) as db:
        with outages_as_unavailable():
            version, oldest = await read_version(db, database.schema)
            check_known(version, oldest, database.schema, database.location)
            yield db


async def check_database(database: Database) -> AsyncIterator[Damage]:
    """Iterate over everything in a schema that breaks the contract. Raises ``StoreUnavailable``."""
    async with _reading(database) as db:
        threads = await db.fetch(database.sql(_THREADS))
        for thread in threads:
            scope, thread_id = thread["scope"], thread["thread_id"]
            try:
                found = [*check_thread(await _read_thread(database, db, thread))]
            except msgspec.DecodeError as error:
                found = [f"the list of inline files of a message cannot be decoded: {error}"]
            found += await _check_members(database, db, thread["key"], scope)
            for message in found:
                yield Damage(scope, thread_id, message)
        async for damage in _check_files(database, db):
            yield damage
        usage = {row[0]: _counts(row[1:]) for row in await db.fetch(database.sql(_USAGE))}
        total = _counts(await db.fetchrow(database.sql(_TOTAL_USAGE)))
        holdings = {row[0]: _counts(row[1:]) for row in await db.fetch(database.sql(_HOLDINGS))}
        for damage in check_usage(usage, total, holdings):
            yield damage
        orphans = [message async for message in _check_orphans(database, db)]
        for message in (*orphans, *check_positions([(thread["scope"], thread["touched"]) for thread in threads])):
            yield Damage("", "", message)


async def _read_thread(database: Database, db: Any, thread: Any) -> ThreadRows:
    sql, key, scope = database.sql, thread["key"], thread["scope"]
    values = stored_messages(await db.fetch(sql(_VALUES), key))
    other_bytes = int(await db.fetchval(sql(_OTHER_BYTES), key))
    for title, metadata, _ in await db.fetch(sql(_DETAILS), key):
        other_bytes += size_of_details(title, metadata)
    return ThreadRows(
        scope=scope,
        first=thread["first"],
        last=thread["last"],
        running=thread["running"],
        bytes=thread["bytes"],
        log=[LogRow(*row) for row in await db.fetch(sql(_LOG), key)],
        runs=[RunRow(*row) for row in await db.fetch(sql(_RUNS), key)],
        interrupts=[InterruptRow(*row) for row in await db.fetch(sql(_INTERRUPTS), key)],
        inputs={
            run: InputRow(base, change, StoredJSON(body, decode_files(places)))
            for run, base, change, body, places in await db.fetch(sql(_INPUTS), key)
        },
        messages=stored_messages(await db.fetch(sql(_MESSAGES), key)),
        values=values,
        held=frozenset(row[0] for row in await db.fetch(sql(_HELD), scope, thread["thread_id"])),
        inline_files=await _read_inline_files(database, db, scope, values.values()),
        other_bytes=other_bytes,
    )


async def _read_inline_files(
    database: Database, db: Any, scope: str, texts: Iterable[StoredJSON]
) -> dict[bytes, bytes]:
    """Return the inline files of these texts that exist."""
    ids = {inline_id(digest): digest for text in texts for _, digest in text.files}
    rows: list[Any] = await db.fetch(database.sql(_INLINE), scope, list(ids)) if ids else []
    return {ids[row["blob_id"]]: await _read_file(database, db, row["key"]) for row in rows}


async def _read_file(database: Database, db: Any, key: int) -> bytes:
    """Return the content of a file, whatever size its row says."""
    return b"".join([row[0] for row in await db.fetch(database.sql(_PARTS), key)])


async def _check_members(database: Database, db: Any, key: int, scope: str) -> list[str]:
    """Check the hashes by which a thread is found from its metadata."""
    rows = await db.fetch(database.sql(_DETAILS), key)
    wrong = [row for row in rows if sorted(row["members"]) != hash_members(scope, row["metadata"])]
    return ["the hashes of its metadata do not match the metadata"] if wrong else []


async def _check_files(database: Database, db: Any) -> AsyncIterator[Damage]:
    for row in await db.fetch(database.sql(_BLOBS)):
        file = FileRow(*row[1:])
        for message in check_content(file, await _read_file(database, db, row["key"])):
            yield Damage(file.scope, "", message)
    for scope, thread_id, blob in await db.fetch(database.sql(_LOST_HOLDS)):
        yield Damage(scope, thread_id, describe_hold(blob))


async def _check_orphans(database: Database, db: Any) -> AsyncIterator[str]:
    """Find rows that belong to nothing. The rows of removed threads are deleted a while later ("trash")."""
    for table in _OF_THREADS:
        where = "thread NOT IN (SELECT key FROM aguila.threads UNION ALL SELECT thread FROM aguila.trash)"
        count = await db.fetchval(database.sql(f"SELECT count(*) FROM aguila.{table} WHERE {where}"))  # noqa: S608
        if count:
            yield f"{table}: {count} rows belong to no thread"
    for table in _OF_RUNS:
        where = "run NOT IN (SELECT key FROM aguila.runs)"
        count = await db.fetchval(database.sql(f"SELECT count(*) FROM aguila.{table} WHERE {where}"))  # noqa: S608
        if count:
            yield f"{table}: {count} rows belong to no run"
    where = "blob NOT IN (SELECT key FROM aguila.blobs)"
    count = await db.fetchval(database.sql(f"SELECT count(*) FROM aguila.blob_parts WHERE {where}"))  # noqa: S608
    if count:
        yield f"blob_parts: {count} rows belong to no file"


def _counts(row: Iterable[Any]) -> tuple[int, int, int]:
    threads, files, size = (int(value or 0) for value in row)
    return threads, files, size


async def count_database(database: Database) -> dict[str, int]:
    """Return the sizes and counts of a schema. Raises ``StoreUnavailable``."""
    async with _reading(database) as db:
        found = {"schema": newest()}
        for name, query in _COUNTS.items():
            arguments = (database.schema,) if "$1" in query else ()
            found[name] = int(await db.fetchval(database.sql(query), *arguments) or 0)
        return found


async def rebuild_usage(database: Database) -> None:
    """Count the usage of each scope again, for quotas. Raises ``StoreUnavailable``."""
    async with _reading(database):
        pass  # there is a store of this version
    db = await database.connect_first()
    try:
        with outages_as_unavailable():
            await db.execute(database.sql("SELECT aguila.rebuild_usage()"))
    finally:
        await database.drop(db)
