"""The SQL that reads. The caller holds a transaction open around each function, which sees one snapshot."""

from __future__ import annotations

import sqlite3
from collections.abc import Callable, Sequence
from itertools import islice
from typing import Any, Final

from aguila.store import refusals
from aguila.store.columns import CANCEL, CANCEL_REQUESTS, READ_BYTES
from aguila.store.encoding import check_cursor, decode_row, encodable, index_value, inside_compacted
from aguila.store.feed import ThreadKey, cut
from aguila.store.records import (
    DEFAULT_AGENT,
    RECENT_THREADS,
    Batch,
    Blob,
    CancelRequest,
    InterruptRecord,
    Lease,
    MetadataFilter,
    Quotas,
    RunRecord,
    ThreadSummary,
    Usage,
)
from aguila.store.sqlite.database.large_values import read_value, select_value

# The columns of _RUN and _SUMMARY are in the order of the fields of RunRecord and ThreadSummary.
_RUN = """
SELECT t.scope, t.thread_id, r.run_id, r.parent_run_id, r.fingerprint, r.first,
  coalesce(r.last, t.last), r.outcome, r.owner, r.epoch, r.lease_until, r.cancel_requested, r.started_at, r.ended_at,
  t.agent, r.sent_run_id,
  coalesce((SELECT l.token FROM log l WHERE l.place = (t.key << 32) + coalesce(r.last, t.last)), '')
FROM runs r JOIN threads t ON t.key = r.thread
"""

_OPEN = "r.key IN (SELECT running FROM threads INDEXED BY threads_running WHERE running IS NOT NULL)"

_SUMMARY = """
SELECT t.thread_id, t.created_at, t.updated_at, t.last, (SELECT count(*) FROM runs r WHERE r.thread = t.key),
  (SELECT r.run_id FROM runs r WHERE r.key = t.running), t.touched, t.agent, d.title, t.archived, d.metadata,
  coalesce((SELECT l.token FROM log l WHERE l.place = (t.key << 32) + t.last), '')
FROM threads t LEFT JOIN details d ON d.thread = t.key
"""

MAX_INDEXED: Final = 256
"""If more threads match a metadata filter, threads are read in the order of their last update until a page is full."""

_LOG = f"""
SELECT first, {select_value("events")}, place, at, token, compacted FROM log
WHERE place > ? AND place < ? ORDER BY place
"""  # noqa: S608 - our own names


def log_place(thread: int, last: int) -> int:
    """Return the key of the row of the log whose last event has this number."""
    return (thread << 32) + last


def _run_record(row: Sequence[Any]) -> RunRecord:
    fields = dict(zip(RunRecord.__struct_fields__, row, strict=True))
    fields["cancel_requested"] = fields["cancel_requested"] == CANCEL["always"]
    return RunRecord(**fields)


def _summary(row: Sequence[Any]) -> ThreadSummary:
    fields = dict(zip(ThreadSummary.__struct_fields__, row, strict=True))
    fields["archived"] = bool(fields["archived"])
    return ThreadSummary(**fields)


def find_thread(db: sqlite3.Connection, scope: str, thread_id: str) -> tuple[int, int]:
    """Return the key and the newest sequence number of a thread. Raises ``NotFound``."""
    row = db.execute("SELECT key, last FROM threads WHERE scope = ? AND thread_id = ?", (scope, thread_id)).fetchone()
    if row is None:
        raise refusals.no_thread(thread_id)
    return row


def read_run_by_key(db: sqlite3.Connection, key: int) -> RunRecord:
    """Return an existing run."""
    return _run_record(db.execute(f"{_RUN} WHERE r.key = ?", (key,)).fetchone())


def read_run(db: sqlite3.Connection, scope: str, thread_id: str, run_id: str) -> RunRecord:
    """Return a run. Raises ``NotFound``."""
    row = db.execute(
        f"{_RUN} WHERE t.scope = ? AND t.thread_id = ? AND r.run_id = ?", (scope, thread_id, run_id)
    ).fetchone()
    if row is None:
        raise refusals.no_run(thread_id, run_id)
    return _run_record(row)


def find_run(db: sqlite3.Connection, scope: str, thread_id: str, run_id: str) -> tuple[int, int]:
    """Return the keys of a thread and of its run. Raises ``NotFound``."""
    row = db.execute(
        """
        SELECT t.key, r.key FROM threads t JOIN runs r ON r.thread = t.key
        WHERE t.scope = ? AND t.thread_id = ? AND r.run_id = ?
        """,
        (scope, thread_id, run_id),
    ).fetchone()
    if row is None:
        raise refusals.no_run(thread_id, run_id)
    return row


def list_runs(db: sqlite3.Connection, scope: str, thread_id: str) -> Sequence[RunRecord]:
    """Return the runs of a thread in the order they began."""
    rows = db.execute(f"{_RUN} WHERE t.scope = ? AND t.thread_id = ? ORDER BY r.key", (scope, thread_id))
    return [_run_record(row) for row in rows]


IsDead = Callable[[str, int | None], bool]
"""Return whether a process is known to be dead, by its name and the stored inode of its lock file."""


def find_expired(db: sqlite3.Connection, monotonic: float, is_dead: IsDead) -> tuple[Sequence[RunRecord], bool]:
    """Return the open runs whose lease has expired or whose owner is dead.

    Also return whether a lease or a viewer has more time left than its full length, because the machine was restarted.
    """
    rows = db.execute(f"{_RUN} WHERE {_OPEN} AND r.lease_until <= ? ORDER BY r.lease_until", (monotonic,))
    found = [_run_record(row) for row in rows]
    owners = db.execute(
        f"SELECT DISTINCT r.owner, r.lock FROM runs r WHERE {_OPEN} AND r.lease_until > ? AND r.lock IS NOT NULL",  # noqa: S608
        (monotonic,),
    )
    for owner, lock in owners.fetchall():
        if is_dead(owner, lock):
            rows = db.execute(
                f"{_RUN} WHERE {_OPEN} AND r.lease_until > ? AND r.owner = ? AND r.lock = ?", (monotonic, owner, lock)
            )
            found += [_run_record(row) for row in rows]
    too_long = db.execute(
        f"""
        SELECT 1 FROM runs r WHERE {_OPEN} AND r.lease_until > ? + r.lease_seconds
        UNION ALL SELECT 1 FROM viewers WHERE until > ? + seconds LIMIT 1
        """,  # noqa: S608
        (monotonic, monotonic),
    ).fetchone()
    return found, too_long is not None


def read_cancel_request(db: sqlite3.Connection, lease: Lease) -> CancelRequest | None:
    """Return the cancel request of a run; "always" if the lease is stale."""
    row = db.execute(
        """
        SELECT r.cancel_requested FROM threads t JOIN runs r ON r.key = t.running
        WHERE t.scope = ? AND t.thread_id = ? AND r.run_id = ? AND r.epoch = ? AND r.owner = ?
        """,
        (lease.scope, lease.thread_id, lease.run_id, lease.epoch, lease.owner),
    ).fetchone()
    return "always" if row is None else CANCEL_REQUESTS[row[0]]


def read_settled_run(db: sqlite3.Connection, scope: str, thread_id: str, run_id: str) -> RunRecord | None:
    """Return the run, or None if it has an unanswered ``unwatched`` request. Raises ``NotFound``."""
    found = read_run(db, scope, thread_id, run_id)
    unanswered = db.execute(
        """
        SELECT 1 FROM threads t JOIN runs r ON r.key = t.running
        WHERE t.scope = ? AND t.thread_id = ? AND r.run_id = ? AND r.cancel_requested = ?
        """,
        (scope, thread_id, run_id, CANCEL["unwatched"]),
    ).fetchone()
    return found if unanswered is None else None


def has_viewers(
    db: sqlite3.Connection, monotonic: float, within: float, lease: Lease, is_dead: IsDead
) -> tuple[bool, Sequence[str]]:
    """Return whether another process has viewers, or had some in the last ``within`` seconds; and the dead processes.

    The time of a death is not known: a dead process had viewers until now. The caller records that with ``unwatch``.
    """
    rows = db.execute(
        """
        SELECT v.viewer, v.lock, v.until > ? FROM threads t JOIN runs r ON r.key = t.running
        JOIN viewers v ON v.run = r.key
        WHERE t.scope = ? AND t.thread_id = ? AND r.run_id = ? AND v.until > ?
        """,
        (monotonic, lease.scope, lease.thread_id, lease.run_id, monotonic - within),
    ).fetchall()
    dead = [viewer for viewer, lock, is_current in rows if is_current and is_dead(viewer, lock)]
    return len(rows) > (0 if within > 0 else len(dead)), dead


def read_log(
    db: sqlite3.Connection, scope: str, thread_id: str, after: int, until: int | None, limit: int
) -> tuple[Sequence[Batch], int]:
    """Return batches after a cursor, and the newest sequence number. Raises ``NotFound``, ``CursorExpired``."""
    key, last = find_thread(db, scope, thread_id)
    (first,) = db.execute("SELECT first FROM threads WHERE key = ?", (key,)).fetchone()
    after = check_cursor(after, first, last)
    stop = last if until is None else min(until, last)
    found: list[Batch] = []
    count = size = 0
    if after < last:
        rows = db.execute(_LOG, (log_place(key, after), log_place(key + 1, 0)))
        for first, value, place, at, token, compacted in rows:
            if compacted and not found and _run_start(db, key, place) <= after:
                raise inside_compacted(after)
            if first > stop or after >= stop or count >= limit or size >= READ_BYTES:
                break
            body = read_value(db, value, "log", "events", place)
            batch = cut(Batch(first, decode_row(body), at, token), after, stop)
            found.append(batch)
            count += len(batch.events)
            size += len(body)
    return found, last


def read_token(db: sqlite3.Connection, scope: str, thread_id: str, number: int) -> str:
    """Return the token of an event. Raises ``NotFound``, ``CursorExpired``."""
    key, last = find_thread(db, scope, thread_id)
    (first,) = db.execute("SELECT first FROM threads WHERE key = ?", (key,)).fetchone()
    number = check_cursor(number, first, last)
    if number < first:
        return ""
    place, token, compacted = db.execute(
        "SELECT place, token, compacted FROM log WHERE place >= ? ORDER BY place LIMIT 1", (log_place(key, number),)
    ).fetchone()
    if compacted and place != log_place(key, number):
        raise inside_compacted(number)
    return token


def _run_start(db: sqlite3.Connection, thread: int, place: int) -> int:
    """Return the number of the first event of the run whose last event has this place in the log."""
    row = db.execute("SELECT first FROM runs WHERE thread = ? AND last = ?", (thread, place - log_place(thread, 0)))
    return row.fetchone()[0]


def list_compactable(db: sqlite3.Connection, before: float, limit: int) -> Sequence[RunRecord]:
    """Return runs that ended before a time and were not compacted, oldest first."""
    rows = db.execute(
        f"""
        {_RUN} WHERE r.outcome IS NOT NULL AND NOT r.compacted AND r.ended_at <= ? AND NOT EXISTS (
          SELECT 1 FROM interrupts i LEFT JOIN runs s ON s.thread = i.thread AND s.run_id = i.claimed_by
          WHERE i.thread = r.thread AND (i.run_id = r.run_id OR i.claimed_by = r.run_id)
            AND (i.status <> 'settled' OR s.outcome IS NULL OR s.outcome NOT IN ('success', 'interrupt'))
        ) ORDER BY r.ended_at, r.key LIMIT ?
        """,  # noqa: S608 - our own names
        (before, limit),
    )
    return [_run_record(row) for row in rows]


def read_thread(db: sqlite3.Connection, scope: str, thread_id: str) -> ThreadSummary:
    """Return the summary of a thread. Raises ``NotFound``."""
    row = db.execute(f"{_SUMMARY} WHERE t.scope = ? AND t.thread_id = ?", (scope, thread_id)).fetchone()
    if row is None:
        raise refusals.no_thread(thread_id)
    return _summary(row)


def list_threads(
    db: sqlite3.Connection,
    scope: str,
    limit: int,
    before: int | None,
    agent: str | None,
    archived: bool | None,
    metadata: MetadataFilter | None,
) -> Sequence[ThreadSummary]:
    """Return threads of a scope, last updated first. None selects every agent, or archived threads and others."""
    # The conditions of the partial indexes are written out: SQLite uses an index only if a query implies its condition.
    where = "t.scope = :scope AND t.touched < :below"
    if agent is not None:
        where += " AND t.agent = :agent" + ("" if agent == DEFAULT_AGENT else " AND t.agent <> 'default'")
    if archived is not None:
        where += f" AND t.archived = {int(archived)}"
    values: dict[str, Any] = {"scope": scope, "below": 2**62 if before is None else before, "agent": agent}
    if metadata is None:
        rows = db.execute(f"{_SUMMARY} WHERE {where} ORDER BY t.touched DESC LIMIT :limit", {**values, "limit": limit})
        return [_summary(row) for row in rows]
    members = "m.scope = :scope AND m.name = :name" + ("" if metadata.value is None else " AND m.value = :value")
    values |= {"name": encodable(metadata.key), "value": index_value(metadata.value), "most": MAX_INDEXED}
    count = f"SELECT count(*) FROM (SELECT 1 FROM metadata_members m WHERE {members} LIMIT :most)"  # noqa: S608
    if db.execute(count, values).fetchone()[0] == MAX_INDEXED:
        if metadata.value is not None:
            where += f" AND EXISTS (SELECT 1 FROM metadata_members m WHERE {members} AND m.thread = t.key)"  # noqa: S608
        query = f"{_SUMMARY} WHERE {where} ORDER BY t.touched DESC"
    else:  # "cross": SQLite reads the tables in this order
        source = "metadata_members m CROSS JOIN threads t ON t.key = m.thread"
        query = f"{_SUMMARY.replace('threads t', source)} WHERE {members} AND {where} ORDER BY t.touched DESC"
    found = map(_summary, db.execute(query, values))
    return list(islice((one for one in found if metadata.matches(one.metadata)), limit))


def list_interrupts(db: sqlite3.Connection, scope: str, thread_id: str) -> Sequence[InterruptRecord]:
    """Return the interrupts of a thread in the order they were raised."""
    rows = db.execute(
        """
        SELECT i.interrupt_id, i.run_id, i.status, i.body, i.claimed_by
        FROM interrupts i JOIN threads t ON t.key = i.thread WHERE t.scope = ? AND t.thread_id = ? ORDER BY i.key
        """,
        (scope, thread_id),
    )
    return [
        InterruptRecord(interrupt_id=row[0], run_id=row[1], status=row[2], body=row[3], claimed_by=row[4])
        for row in rows
    ]


def find_run_thread(db: sqlite3.Connection, scope: str, run_id: str) -> str | None:
    """Return the id of the thread with this run, among those updated last."""
    row = db.execute(
        """
        SELECT t.thread_id
        FROM (SELECT key, thread_id, touched FROM threads WHERE scope = ? ORDER BY touched DESC LIMIT ?) t
        JOIN runs r ON r.thread = t.key AND r.run_id = ? ORDER BY t.touched DESC LIMIT 1
        """,
        (scope, RECENT_THREADS, run_id),
    ).fetchone()
    return None if row is None else row[0]


def find_interrupt_thread(db: sqlite3.Connection, scope: str, interrupt_id: str) -> str | None:
    """Return the id of the thread that raised an interrupt last."""
    row = db.execute(
        """
        SELECT t.thread_id FROM interrupts i JOIN threads t ON t.key = i.thread
        WHERE i.scope = ? AND i.interrupt_id = ? ORDER BY i.key DESC LIMIT 1
        """,
        (scope, interrupt_id),
    ).fetchone()
    return None if row is None else row[0]


def read_session(db: sqlite3.Connection, scope: str, thread_id: str) -> bytes | None:
    """Return the session of a thread."""
    row = db.execute(
        "SELECT s.body FROM sessions s JOIN threads t ON t.key = s.thread WHERE t.scope = ? AND t.thread_id = ?",
        (scope, thread_id),
    ).fetchone()
    return None if row is None else row[0]


def read_effects(db: sqlite3.Connection, scope: str, thread_id: str, root_run_id: str) -> dict[str, bytes]:
    """Return the results recorded under a root run."""
    rows = db.execute(
        """
        SELECT e.name, e.value FROM effects e JOIN threads t ON t.key = e.thread
        WHERE t.scope = ? AND t.thread_id = ? AND e.root_run_id = ?
        """,
        (scope, thread_id, root_run_id),
    )
    return dict(rows.fetchall())


_BLOB = "SELECT blob_id, media_type, filename, size, created_at"


def find_blob(db: sqlite3.Connection, scope: str, blob_id: str) -> Blob | None:
    """Return a file without its content, or None."""
    row = db.execute(f"{_BLOB} FROM blobs WHERE scope = ? AND blob_id = ?", (scope, blob_id)).fetchone()
    return None if row is None else _blob(row)


def read_blob(db: sqlite3.Connection, scope: str, blob_id: str) -> tuple[Blob, bytes]:
    """Return a file with its content. Raises ``NotFound``."""
    row = db.execute(
        f"{_BLOB}, {select_value('data')}, key FROM blobs WHERE scope = ? AND blob_id = ?", (scope, blob_id)
    ).fetchone()
    if row is None:
        raise refusals.no_blob(blob_id)
    return _blob(row), read_value(db, row[5], "blobs", "data", row[6])


def read_blob_part(db: sqlite3.Connection, scope: str, blob_id: str, start: int, size: int) -> tuple[Blob, bytes]:
    """Return a file with a part of its content. Raises ``NotFound``."""
    row = db.execute(f"{_BLOB}, key FROM blobs WHERE scope = ? AND blob_id = ?", (scope, blob_id)).fetchone()
    if row is None:
        raise refusals.no_blob(blob_id)
    with db.blobopen("blobs", "data", row[5], readonly=True) as blob:
        blob.seek(min(start, len(blob)))
        return _blob(row), blob.read(size)


def _blob(row: Sequence[Any]) -> Blob:
    return Blob(blob_id=row[0], media_type=row[1], filename=row[2], size=row[3], created_at=row[4])


def read_stamps(db: sqlite3.Connection, keys: Sequence[ThreadKey]) -> dict[ThreadKey, tuple[Any, ...]]:
    """Return the state of each thread that a poll compares: last, first, and run id, epoch, owner, cancel request.

    ``first`` differs between a removed thread and a new one with the same id.
    """
    found: dict[ThreadKey, tuple[Any, ...]] = {}
    for key in keys:
        row = db.execute(
            """
            SELECT t.last, t.first, r.run_id, r.epoch, r.owner, r.cancel_requested
            FROM threads t LEFT JOIN runs r ON r.key = t.running WHERE t.scope = ? AND t.thread_id = ?
            """,
            key,
        ).fetchone()
        if row is not None:
            found[key] = row
    return found


USAGE_COLUMNS = "coalesce(u.threads, 0) + o.threads, coalesce(u.files, 0), coalesce(u.bytes, 0) + o.bytes"
USAGE_TABLES = """
(SELECT count(*) AS runs, count(*) - count(counted) AS threads, coalesce(sum(bytes - coalesce(counted, 0)), 0) AS bytes
 FROM threads WHERE scope = ?1 AND running IS NOT NULL) o LEFT JOIN usage u ON u.scope = ?1
"""
"""SQL for the usage of the scope ?1: the counted threads, and the open runs ``o``, which are not counted yet."""
_SCOPE_USAGE = f"SELECT {USAGE_COLUMNS} FROM {USAGE_TABLES}"  # noqa: S608 - our own names


def read_usage(db: sqlite3.Connection, scope: str | None) -> Usage:
    """Return the usage of a scope; without a scope, that of all scopes, without the writes of open runs."""
    if scope is None:
        row = db.execute("SELECT threads, files, bytes FROM usage WHERE scope = x''").fetchone() or (0, 0, 0)
    else:
        row = db.execute(_SCOPE_USAGE, (scope,)).fetchone()
    return Usage(threads=row[0], files=row[1], bytes=row[2])


def check_quotas(db: sqlite3.Connection, quotas: Quotas, used: Usage, new: Usage) -> None:
    """Raise ``QuotaExceeded`` if a scope that uses ``used`` may not store ``new``."""
    total = read_usage(db, None) if quotas.is_total else Usage()
    exceeded = quotas.find_exceeded(used, total, new=new)
    if exceeded is not None:
        raise refusals.quota_exceeded(exceeded)
