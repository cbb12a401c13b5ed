"""Files in rows of 1 MiB, which are written and read one after the other: memory holds one copy of a file."""

from __future__ import annotations

from collections.abc import Sequence
from io import BytesIO
from typing import Any, Final

from aguila.store import refusals
from aguila.store.postgres import queries
from aguila.store.postgres.database.connections import Database
from aguila.store.records import Blob, Quotas, Usage

PART: Final = 1024 * 1024
"""The bytes of a row."""

_AT_ONCE = 4
"""How many rows one statement reads."""

_LOCK = "SELECT pg_advisory_xact_lock(hashtext('aguila.blobs'), hashtext($1))"
_INSERT = """
INSERT INTO aguila.blobs (scope, blob_id, media_type, filename, size, created_at, kept)
VALUES ($1, $2, $3, $4, $5, coalesce($6::float8, aguila.time_of(NULL)), $7)
ON CONFLICT (scope, blob_id) DO NOTHING RETURNING key
"""
_INSERT_PART = "INSERT INTO aguila.blob_parts (blob, part, data) VALUES ($1, $2, $3)"
_KEEP = "UPDATE aguila.blobs SET kept = true WHERE scope = $1 AND blob_id = $2 AND NOT kept"
_HOLD = """
INSERT INTO aguila.holds (scope, thread_id, blob)
SELECT $1, $2, key FROM aguila.blobs WHERE scope = $1 AND blob_id = $3 FOR UPDATE ON CONFLICT DO NOTHING
"""
BLOB = "SELECT blob_id, media_type, filename, size, created_at, key, kept FROM aguila.blobs"
_BY_ID = f"{BLOB} WHERE scope = $1 AND blob_id = $2"
PARTS = "SELECT data FROM aguila.blob_parts WHERE blob = $1 AND part >= $2 AND part < $3 ORDER BY part"
_RANGE = "SELECT substring(data FROM $3 FOR $4) FROM aguila.blob_parts WHERE blob = $1 AND part = $2"
_DELETE = """
WITH gone AS (DELETE FROM aguila.blobs WHERE scope = $1 AND blob_id = $2 RETURNING key),
  holds AS (DELETE FROM aguila.holds WHERE blob IN (SELECT key FROM gone)),
  parts AS (DELETE FROM aguila.blob_parts WHERE blob IN (SELECT key FROM gone))
SELECT key FROM gone
"""

_DELETE_LOOSE = _DELETE.replace(
    "RETURNING key",
    """AND NOT EXISTS (SELECT 1 FROM aguila.holds h
       JOIN aguila.threads t ON t.scope = h.scope AND t.thread_id = h.thread_id WHERE h.blob = blobs.key)
     RETURNING key""",
)


def blob_of(row: Sequence[Any]) -> Blob:
    """Convert a row of ``BLOB``."""
    return Blob(blob_id=row[0], media_type=row[1], filename=row[2], size=row[3], created_at=row[4])


async def put(
    database: Database,
    db: Any,
    now: float | None,
    scope: str,
    blob: Blob,
    data: bytes | memoryview,
    thread_id: str | None,
    quotas: Quotas | None = None,
) -> Blob:
    """Store a file unless it is stored; return it. The caller holds a transaction open on ``db``.

    Raises ``QuotaExceeded``.
    """
    sql = database.sql
    if quotas is not None and await db.fetchrow(sql(_BY_ID), scope, blob.blob_id) is None:
        # Until the end of the transaction: files that are uploaded at once would all see the usage without the others.
        await db.execute(sql(_LOCK), f"scope {scope}")
        if quotas.is_total:
            await db.execute(sql(_LOCK), "total")
        used = queries.usage(await db.fetchrow(sql(queries.USAGE), scope))
        total = queries.usage(await db.fetchrow(sql(queries.USAGE), None)) if quotas.is_total else Usage()
        exceeded = quotas.find_exceeded(used, total, new=Usage(files=1, bytes=blob.size))
        if exceeded is not None:
            raise refusals.quota_exceeded(exceeded)
    values = (scope, blob.blob_id, blob.media_type, blob.filename, blob.size, now, thread_id is None)
    key = await db.fetchval(sql(_INSERT), *values)
    if key is not None:
        view = memoryview(data)
        for part, start in enumerate(range(0, len(view), PART)):
            await db.execute(sql(_INSERT_PART), key, part, bytes(view[start : start + PART]))
    elif thread_id is None:
        await db.execute(sql(_KEEP), scope, blob.blob_id)
    if thread_id is not None:
        await db.execute(sql(_HOLD), scope, thread_id, blob.blob_id)
    return blob_of(await db.fetchrow(sql(_BY_ID), scope, blob.blob_id))


async def read(database: Database, scope: str, blob_id: str) -> tuple[Blob, bytes]:
    """Return a file with its content. Raises ``NotFound``."""

    async def read_once(db: Any) -> tuple[Blob, bytes] | None:
        row = await db.fetchrow(database.sql(_BY_ID), scope, blob_id)
        return None if row is None else (blob_of(row), await read_parts(database, db, row["key"], row["size"]))

    found = await database.run(read_once, "repeatable_read", size=64 * PART)
    if found is None:
        raise refusals.no_blob(blob_id)
    return found


async def read_range(database: Database, scope: str, blob_id: str, start: int, size: int) -> tuple[Blob, bytes]:
    """Return a file with ``size`` bytes of its content from ``start`` on. Raises ``NotFound``."""

    async def read_once(db: Any) -> tuple[Blob, bytes] | None:
        row = await db.fetchrow(database.sql(_BY_ID), scope, blob_id)
        if row is None:
            return None
        pieces: list[bytes] = []
        at, end = start, min(start + size, row["size"])
        while at < end:
            part, offset = divmod(at, PART)
            count = min(PART - offset, end - at)
            pieces.append(await db.fetchval(database.sql(_RANGE), row["key"], part, offset + 1, count))
            at += count
        return blob_of(row), b"".join(pieces)

    found = await database.run(read_once, "repeatable_read", size=size)
    if found is None:
        raise refusals.no_blob(blob_id)
    return found


async def read_parts(database: Database, db: Any, key: int, size: int) -> bytes:
    """Return the content of a file, within a transaction that sees one snapshot."""
    content = BytesIO()
    for start in range(0, -(-size // PART), _AT_ONCE):
        for row in await db.fetch(database.sql(PARTS), key, start, start + _AT_ONCE):
            content.write(row[0])
    return content.getvalue()


async def delete(database: Database, scope: str, blob_id: str) -> None:
    """Remove a file. Raises ``NotFound``."""
    row, is_repeated = await database.remove(_DELETE, scope, blob_id)
    if row is None and not is_repeated:
        raise refusals.no_blob(blob_id)


async def delete_loose(database: Database, scope: str, blob_id: str) -> None:
    """Remove a file unless a thread holds it by now."""
    await database.fetch(_DELETE_LOOSE, scope, blob_id)
