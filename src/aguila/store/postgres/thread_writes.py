"""The SQL that changes threads, and the small writes of runs."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from heapq import merge
from operator import itemgetter
from typing import Any

from aguila.store import refusals
from aguila.store.columns import CANCEL
from aguila.store.encoding import SMALL_RUN, hash_thread
from aguila.store.feed import ThreadKey
from aguila.store.postgres import files, queries
from aguila.store.postgres.appends import update_values
from aguila.store.postgres.database.connections import Database
from aguila.store.records import CancelRequest, Retention, RunRecord, ThreadSummary, ThreadUpdate

TRASH_ROWS = 500
"""How many rows of removed threads are deleted in one transaction."""

_UPDATE = """
SELECT aguila.update_details(t.key, $3, $4, $5, $6, $7, $8)
FROM (SELECT key FROM aguila.threads WHERE scope = $1 AND thread_id = $2 FOR UPDATE) t
"""
_REMOVE = "SELECT is_found, running FROM aguila.remove_thread($1, $2, $3)"
_CANCEL = """
UPDATE aguila.runs r SET cancel_requested = $4 FROM aguila.threads t
WHERE r.key = t.running AND t.scope = $1 AND t.thread_id = $2 AND r.run_id = $3
  AND ($5::integer IS NULL OR r.cancel_requested = $5)
"""
_WATCH = """
INSERT INTO aguila.viewers (run, viewer, until, seconds)
SELECT r.key, $4, aguila.time_of($5) + $6, $6 FROM aguila.threads t JOIN aguila.runs r ON r.key = t.running
WHERE t.scope = $1 AND t.thread_id = $2 AND r.run_id = $3
ON CONFLICT (run, viewer) DO UPDATE SET until = excluded.until, seconds = excluded.seconds
"""
_UNWATCH = """
UPDATE aguila.viewers v SET until = least(v.until, aguila.time_of($5))
FROM aguila.threads t JOIN aguila.runs r ON r.key = t.running
WHERE v.run = r.key AND t.scope = $1 AND t.thread_id = $2 AND r.run_id = $3 AND v.viewer = $4
"""
_CHECK = """
INSERT INTO aguila.checks (key, at, body) VALUES (1, aguila.time_of(NULL), $1)
ON CONFLICT (key) DO UPDATE SET at = excluded.at, body = excluded.body
"""
_MOST = """
SELECT coalesce((SELECT max(n) FROM (SELECT count(*) AS n FROM aguila.threads GROUP BY scope) x), 0),
  coalesce((SELECT max(n) FROM (
    SELECT sum(size) AS n FROM (
      SELECT scope, bytes AS size FROM aguila.threads UNION ALL SELECT scope, size FROM aguila.blobs
    ) y GROUP BY scope) x), 0),
  (SELECT min(updated_at) FROM aguila.threads WHERE running IS NULL), (SELECT min(created_at) FROM aguila.blobs),
  aguila.time_of($1)
"""
# A file counts once for each thread that holds it, as its removal with one of them may free nothing.
_OLD_THREADS = """
SELECT t.updated_at, t.scope, t.thread_id, t.bytes + coalesce(
  (SELECT sum(b.size) FROM aguila.holds h JOIN aguila.blobs b ON b.key = h.blob
   WHERE h.scope = t.scope AND h.thread_id = t.thread_id), 0), t.running IS NOT NULL, NULL
FROM aguila.threads t ORDER BY t.updated_at, t.touched
"""
_OLD_FILES = """
SELECT b.created_at, b.scope, NULL, b.size, false, b.blob_id FROM aguila.blobs b
WHERE NOT EXISTS (SELECT 1 FROM aguila.holds h
                  JOIN aguila.threads t ON t.scope = h.scope AND t.thread_id = h.thread_id WHERE h.blob = b.key)
ORDER BY b.created_at, b.key
"""


async def check(db: Database) -> None:
    """Write as many bytes as a small run."""
    await db.fetch(_CHECK, bytes(SMALL_RUN))


async def update_thread(db: Database, scope: str, thread_id: str, update: ThreadUpdate) -> ThreadSummary:
    """Change the title, the archived flag or the metadata of a thread. Raises ``NotFound``."""
    if not await db.fetch(_UPDATE, scope, thread_id, *update_values(scope, update)):
        raise refusals.no_thread(thread_id)
    return await queries.read_thread(db, scope, thread_id)


async def replace_cancel_request(
    db: Database, scope: str, thread_id: str, run_id: str, new: CancelRequest | None, old: Any
) -> None:
    """Set the cancel request of an open run; if ``old`` is not None, only if its request has that number."""
    await db.fetch(_CANCEL, scope, thread_id, run_id, CANCEL[new], old)


async def request_cancel(db: Database, scope: str, thread_id: str, run_id: str, unwatched: bool) -> RunRecord:
    """Store a cancel request for an open run; return the run. Raises ``NotFound``."""
    if unwatched:
        await replace_cancel_request(db, scope, thread_id, run_id, "unwatched", CANCEL[None])
    else:
        await replace_cancel_request(db, scope, thread_id, run_id, "always", None)
    return await queries.read_run(db, scope, thread_id, run_id)


async def watch(
    db: Database, now: float | None, scope: str, thread_id: str, run_id: str, viewer: str, seconds: float
) -> None:
    """Register that a process has viewers of an open run."""
    await db.fetch(_WATCH, scope, thread_id, run_id, viewer, now, seconds)


async def unwatch(db: Database, now: float | None, scope: str, thread_id: str, run_id: str, viewer: str) -> None:
    """Record that a process has no viewers any more.

    The row stays until the run closes, because it holds the time of this call.
    """
    await db.fetch(_UNWATCH, scope, thread_id, run_id, viewer, now)


async def delete_thread(db: Database, scope: str, thread_id: str) -> None:
    """Remove a thread, or the files of a thread that never ran. Raises ``NotFound``, ``ThreadBusy``."""
    while True:
        row, is_repeated = await db.remove(_REMOVE, scope, thread_id, hash_thread(scope, thread_id))
        if row["running"] is None:
            if not row["is_found"] and not is_repeated:
                raise refusals.no_thread(thread_id)
            return
        found = (await queries.read_runs_by_keys(db, [row["running"]])).get(row["running"])
        if found is not None:
            raise refusals.thread_busy(found)


async def empty_trash(db: Database) -> None:
    """Delete the rows of removed threads, in small transactions that block no other session."""
    while (await db.fetchrow("SELECT aguila.empty_trash($1)", TRASH_ROWS))[0]:
        pass


async def prune(db: Database, now: float | None, retention: Retention) -> Sequence[ThreadKey]:
    """Remove threads without an open run and files without a thread, oldest first; return the removed threads.

    Each is removed in a transaction of its own, which blocks no other session.
    """
    count, size, oldest, oldest_file, at_time = await db.fetchrow(_MOST, now)
    ages = [at_time - one for one in (oldest, oldest_file) if one is not None]
    if not ages or not retention.is_exceeded(age=max(ages), size=size, threads=count):
        return []
    threads = await db.fetch(_OLD_THREADS)
    loose = await db.fetch(_OLD_FILES)
    stored: Counter[str] = Counter()
    counts = Counter(row[1] for row in threads)
    for row in (*threads, *loose):
        stored[row[1]] += row[3]
    removed: list[ThreadKey] = []
    for updated_at, scope, thread_id, size, is_running, blob_id in merge(threads, loose, key=itemgetter(0)):
        left = 0 if thread_id is None else counts[scope]
        if is_running or not retention.is_exceeded(age=at_time - updated_at, size=stored[scope], threads=left):
            continue
        if thread_id is None:
            await files.delete_loose(db, scope, blob_id)
        else:
            row, is_repeated = await db.remove(_REMOVE, scope, thread_id, hash_thread(scope, thread_id))
            if row["running"] is not None or not (row["is_found"] or is_repeated):
                continue  # a run has begun, or another process removed it
            removed.append((scope, thread_id))
            counts[scope] -= 1
        stored[scope] -= size
    return removed
