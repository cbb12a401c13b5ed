"""Store and read the projections of runs, each value and each inline file once; see ``store/run_inputs.py``."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from aguila.store.postgres import files
from aguila.store.postgres.database.connections import Database
from aguila.store.postgres.inputs import encode_files, stored_messages
from aguila.store.records import StoredProjection
from aguila.store.run_inputs import CutProjection, inline_file, inline_id, join_value

_SAVE = "SELECT aguila.save_projection($1, $2, $3, $4, $5, $6, $7, $8, $9)"
LIST = """
SELECT r.run_id, r.first, r.last, p.format, p.body FROM aguila.threads t JOIN aguila.runs r ON r.thread = t.key
JOIN aguila.projections p ON p.run = r.key WHERE t.scope = $1 AND t.thread_id = $2 AND r.first > $3 ORDER BY r.key
"""
VALUES = """
SELECT v.digest, v.body, v.files FROM aguila.threads t JOIN aguila.projected_values v ON v.thread = t.key
WHERE t.scope = $1 AND t.thread_id = $2 AND v.digest = ANY ($3::bytea[])
"""


def value_columns(new: CutProjection) -> tuple[list[bytes], list[int], list[bytes | None], list[bytes]]:
    """Return digests, sizes, places of inline files, and texts of the values."""
    values = list(new.values.values())
    return (
        list(new.values),
        [one.size for one in values],
        [encode_files(one) for one in values],
        [one.text for one in values],
    )


async def put_inline_files(
    database: Database, db: Any, now: float | None, scope: str, thread_id: str, new: Mapping[bytes, bytes | memoryview]
) -> None:
    """Store inline files for a thread. The caller holds a transaction open on ``db``."""
    for digest, data in new.items():
        await files.put(database, db, now, scope, inline_file(digest, data, 0.0), data, thread_id)


async def save_projections(
    database: Database,
    now: float | None,
    scope: str,
    thread_id: str,
    projections: Mapping[str, CutProjection],
    size: int,
) -> None:
    """Store the projections of closed runs in one transaction; ignore any other run."""

    async def save(db: Any) -> None:
        for run_id, new in projections.items():
            columns = value_columns(new)
            await db.execute(database.sql(_SAVE), scope, thread_id, run_id, new.format, new.body, *columns)
            await put_inline_files(database, db, now, scope, thread_id, new.files)

    await database.transact(save, size)


async def list_projections(database: Database, scope: str, thread_id: str, after: int) -> Sequence[StoredProjection]:
    """Return the projections of the runs that began after an event."""
    rows = await database.fetch(LIST, scope, thread_id, after)
    return [StoredProjection(run_id=row[0], first=row[1], last=row[2], format=row[3], body=row[4]) for row in rows]


async def read_values(database: Database, scope: str, thread_id: str, digests: Sequence[bytes]) -> dict[bytes, bytes]:
    """Return the JSON of values of a thread, by their digests."""
    found = stored_messages(await database.fetch(VALUES, scope, thread_id, list(digests)))
    wanted = {digest for value in found.values() for _, digest in value.files}
    inline = {digest: (await files.read(database, scope, inline_id(digest)))[1] for digest in wanted}
    return {digest: join_value(found[digest], inline.__getitem__) for digest in digests if digest in found}
