"""Store and read the projections of runs, each value and each inline file once; see ``store/run_inputs.py``."""

from __future__ import annotations

import sqlite3
from collections.abc import Mapping, Sequence

from aguila.store.records import StoredProjection
from aguila.store.run_inputs import CutProjection, StoredJSON, inline_file, inline_id, join_value
from aguila.store.sqlite import queries, thread_writes
from aguila.store.sqlite.inputs import decode_files, encode_files


def write_projection(
    db: sqlite3.Connection, now: float, scope: str, thread_id: str, thread: int, run: int, new: CutProjection
) -> int:
    """Store the projection of a run that has none; return by how many bytes the thread grew.

    ``thread`` and ``run`` are keys.
    """
    db.execute("INSERT INTO projections (run, format, body) VALUES (?, ?, ?)", (run, new.format, new.body))
    size = len(new.body)
    for digest, value in new.values.items():
        row = (thread, digest, encode_files(value), value.text)
        if db.execute("INSERT OR IGNORE INTO projected_values VALUES (?, ?, ?, ?)", row).rowcount:
            size += value.size
    for digest, data in new.files.items():
        thread_writes.put_blob(db, scope, inline_file(digest, data, now), data, thread_id)
    return size


def save_projections(
    db: sqlite3.Connection, now: float, scope: str, thread_id: str, projections: Mapping[str, CutProjection]
) -> None:
    """Store the projections of closed runs; ignore any other run."""
    for run_id, new in projections.items():
        row = db.execute(
            """
            SELECT t.key, r.key FROM threads t JOIN runs r ON r.thread = t.key
            WHERE t.scope = ? AND t.thread_id = ? AND r.run_id = ? AND r.outcome IS NOT NULL
            """,
            (scope, thread_id, run_id),
        ).fetchone()
        if row is not None:
            thread, run = row
            old = db.execute("DELETE FROM projections WHERE run = ? RETURNING length(body)", (run,)).fetchall()
            size = -sum(size for (size,) in old)
            size += write_projection(db, now, scope, thread_id, thread, run, new)
            db.execute("UPDATE threads SET bytes = bytes + ? WHERE key = ?", (size, thread))


def list_projections(db: sqlite3.Connection, scope: str, thread_id: str, after: int) -> Sequence[StoredProjection]:
    """Return the projections of the runs that began after an event."""
    rows = db.execute(
        """
        SELECT r.run_id, r.first, r.last, p.format, p.body FROM threads t JOIN runs r ON r.thread = t.key
        JOIN projections p ON p.run = r.key WHERE t.scope = ? AND t.thread_id = ? AND r.first > ? ORDER BY r.key
        """,
        (scope, thread_id, after),
    )
    return [StoredProjection(run_id=row[0], first=row[1], last=row[2], format=row[3], body=row[4]) for row in rows]


def read_values(db: sqlite3.Connection, scope: str, thread_id: str, digests: Sequence[bytes]) -> dict[bytes, bytes]:
    """Return the JSON of values of a thread, by their digests."""

    def file(digest: bytes) -> bytes:
        return queries.read_blob(db, scope, inline_id(digest))[1]

    found: dict[bytes, bytes] = {}
    thread = db.execute("SELECT key FROM threads WHERE scope = ? AND thread_id = ?", (scope, thread_id)).fetchone()
    if thread is not None:
        for digest in digests:
            row = db.execute(
                "SELECT body, files FROM projected_values WHERE thread = ? AND digest = ?", (thread[0], digest)
            ).fetchone()
            if row is not None:
                found[digest] = join_value(StoredJSON(row[0], decode_files(row[1])), file)
    return found
