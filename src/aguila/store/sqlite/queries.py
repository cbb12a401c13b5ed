"""Layer: store. The SQL that queries. Each function sees one snapshot: the caller holds a transaction open around it.

``writes`` uses some of these within its own transaction. Nothing here writes.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Callable, Sequence
from typing import Any

from aguila.errors import NotFound
from aguila.store.base import (
    RECENT_THREADS,
    Batch,
    Blob,
    CancelRequest,
    InterruptRecord,
    Lease,
    RunRecord,
    ThreadSummary,
)
from aguila.store.encoding import check_cursor, split_events
from aguila.store.feed import Key, cut
from aguila.store.sqlite.large_values import column, whole

READ_BYTES = 512 * 1024
"""A read stops after about this many bytes, however many events it was asked for: a stopped reader holds on to it."""

CANCEL: dict[CancelRequest | None, int] = {None: 0, "always": 1, "unwatched": 2}
"""What ``runs.cancel_requested`` says."""

_CANCEL: dict[int, CancelRequest | None] = {number: request for request, number in CANCEL.items()}

_RUN = f"""
SELECT t.scope, t.thread_id, r.run_id, r.parent_run_id, {column("i.body")}, r.fingerprint, r.first,
  coalesce(r.last, t.last), r.outcome, r.owner, r.epoch, r.lease_until, r.cancel_requested, r.started_at, r.ended_at,
  i.run, t.agent
FROM runs r JOIN threads t ON t.key = r.thread JOIN inputs i ON i.run = r.key
"""  # noqa: S608 - our own names

_OPEN = "r.key IN (SELECT running FROM threads INDEXED BY threads_running WHERE running IS NOT NULL)"

_SUMMARY = """
SELECT t.thread_id, t.created_at, t.updated_at, t.last, (SELECT count(*) FROM runs r WHERE r.thread = t.key),
  (SELECT r.run_id FROM runs r WHERE r.key = t.running), t.touched, t.agent, d.title, t.archived, d.metadata
FROM threads t LEFT JOIN details d ON d.thread = t.key
"""


_LOG = f"SELECT first, {column('events')}, place FROM log WHERE place > ? AND place < ? ORDER BY place"  # noqa: S608


def place_of(thread: int, last: int) -> int:
    """The key of the row of the log that has this number of a thread for its last one."""
    return (thread << 32) + last


def _run_record(db: sqlite3.Connection, row: Sequence[Any]) -> RunRecord:
    return RunRecord(
        scope=row[0],
        thread_id=row[1],
        run_id=row[2],
        parent_run_id=row[3],
        input=whole(db, row[4], "inputs", "body", row[15]),
        fingerprint=row[5],
        first=row[6],
        last=row[7],
        outcome=row[8],
        owner=row[9],
        epoch=row[10],
        lease_until=row[11],
        cancel_requested=row[12] == CANCEL["always"],
        started_at=row[13],
        ended_at=row[14],
        agent=row[16],
    )


def _summary(row: Sequence[Any]) -> ThreadSummary:
    return ThreadSummary(
        thread_id=row[0],
        created_at=row[1],
        updated_at=row[2],
        last=row[3],
        runs=row[4],
        running=row[5],
        position=row[6],
        agent=row[7],
        title=row[8],
        archived=bool(row[9]),
        metadata=row[10],
    )


def thread_key(db: sqlite3.Connection, scope: str, thread_id: str) -> tuple[int, int]:
    """The key and the last sequence number of a thread. Raises ``NotFound``."""
    row = db.execute("SELECT key, last FROM threads WHERE scope = ? AND thread_id = ?", (scope, thread_id)).fetchone()
    if row is None:
        raise NotFound(f"no thread {thread_id!r}")
    return row


def run_by_key(db: sqlite3.Connection, key: int) -> RunRecord:
    """A run that is known to exist."""
    return _run_record(db, db.execute(f"{_RUN} WHERE r.key = ?", (key,)).fetchone())


def run(db: sqlite3.Connection, scope: str, thread_id: str, run_id: str) -> RunRecord:
    """One run. Raises ``NotFound``."""
    row = db.execute(
        f"{_RUN} WHERE t.scope = ? AND t.thread_id = ? AND r.run_id = ?", (scope, thread_id, run_id)
    ).fetchone()
    if row is None:
        raise NotFound(f"no run {run_id!r} on thread {thread_id!r}")
    return _run_record(db, row)


def runs(db: sqlite3.Connection, scope: str, thread_id: str) -> Sequence[RunRecord]:
    """The runs of a thread in the order they began."""
    rows = db.execute(f"{_RUN} WHERE t.scope = ? AND t.thread_id = ? ORDER BY r.key", (scope, thread_id))
    return [_run_record(db, row) for row in rows]


IsGone = Callable[[str, int | None], bool]
"""Whether a process is known to be gone, by its name and the lock file that was noted for it."""


def expired(db: sqlite3.Connection, now: float, is_gone: IsGone) -> tuple[Sequence[RunRecord], bool]:
    """Open runs whose lease has run out or whose owner is gone, and whether a clock set back has made a lease or a note
    too long.
    """
    rows = db.execute(f"{_RUN} WHERE {_OPEN} AND r.lease_until <= ? ORDER BY r.lease_until", (now,))
    found = [_run_record(db, row) for row in rows]
    owners = db.execute(
        f"SELECT DISTINCT r.owner, r.lock FROM runs r WHERE {_OPEN} AND r.lease_until > ? AND r.lock IS NOT NULL",  # noqa: S608
        (now,),
    )
    for owner, lock in owners.fetchall():
        if is_gone(owner, lock):
            rows = db.execute(
                f"{_RUN} WHERE {_OPEN} AND r.lease_until > ? AND r.owner = ? AND r.lock = ?",
                (now, owner, lock),
            )
            found += [_run_record(db, row) for row in rows]
    longest = db.execute(
        f"""
        SELECT 1 FROM runs r WHERE {_OPEN} AND r.lease_until > ? + r.lease_seconds
        UNION ALL SELECT 1 FROM viewers WHERE until > ? + seconds LIMIT 1
        """,  # noqa: S608
        (now, now),
    ).fetchone()
    return found, longest is not None


def cancel_requested(db: sqlite3.Connection, lease: Lease) -> CancelRequest | None:
    """Whether cancelling was asked for; "always" if the lease is stale."""
    row = db.execute(
        """
        SELECT r.cancel_requested FROM threads t JOIN runs r ON r.key = t.running
        WHERE t.scope = ? AND t.thread_id = ? AND r.run_id = ? AND r.epoch = ? AND r.owner = ?
        """,
        (lease.scope, lease.thread_id, lease.run_id, lease.epoch, lease.owner),
    ).fetchone()
    return "always" if row is None else _CANCEL[row[0]]


def cancel_settled(db: sqlite3.Connection, scope: str, thread_id: str, run_id: str) -> RunRecord | None:
    """The run, unless its owner has yet to answer whether nobody watches it. Raises ``NotFound``."""
    found = run(db, scope, thread_id, run_id)
    is_open = db.execute(
        """
        SELECT 1 FROM threads t JOIN runs r ON r.key = t.running
        WHERE t.scope = ? AND t.thread_id = ? AND r.run_id = ? AND r.cancel_requested = ?
        """,
        (scope, thread_id, run_id, CANCEL["unwatched"]),
    ).fetchone()
    return found if is_open is None else None


def watched(
    db: sqlite3.Connection, now: float, within: float, lease: Lease, is_gone: IsGone
) -> tuple[bool, Sequence[str]]:
    """Whether some other process has viewers of this run, or had some in the last seconds; and which are gone.

    When one died nobody knows: it counts as one that had some until now, and is to be noted as that.
    """
    rows = db.execute(
        """
        SELECT v.viewer, v.lock, v.until > ? FROM threads t JOIN runs r ON r.key = t.running
        JOIN viewers v ON v.run = r.key
        WHERE t.scope = ? AND t.thread_id = ? AND r.run_id = ? AND v.until > ?
        """,
        (now, lease.scope, lease.thread_id, lease.run_id, now - within),
    ).fetchall()
    gone = [viewer for viewer, lock, is_there in rows if is_there and is_gone(viewer, lock)]
    return len(rows) > (0 if within > 0 else len(gone)), gone


def log(
    db: sqlite3.Connection, scope: str, thread_id: str, after: int, until: int | None, limit: int
) -> tuple[Sequence[Batch], int]:
    """Batches after a sequence number, and the last one of the log. Raises ``NotFound``, ``CursorExpired``."""
    key, last = thread_key(db, scope, thread_id)
    (first,) = db.execute("SELECT first FROM threads WHERE key = ?", (key,)).fetchone()
    after = check_cursor(after, first, last)
    stop = last if until is None else min(until, last)
    found: list[Batch] = []
    count = size = 0
    if after < stop:
        rows = db.execute(_LOG, (place_of(key, after), place_of(key + 1, 0)))
        for first, found_there, place in rows:
            if first > stop or count >= limit or size >= READ_BYTES:
                break
            body = whole(db, found_there, "log", "events", place)
            batch = cut(Batch(first, split_events(body)), after, stop)
            found.append(batch)
            count += len(batch.events)
            size += len(body)
    return found, last


def thread(db: sqlite3.Connection, scope: str, thread_id: str) -> ThreadSummary:
    """One thread. Raises ``NotFound``."""
    row = db.execute(f"{_SUMMARY} WHERE t.scope = ? AND t.thread_id = ?", (scope, thread_id)).fetchone()
    if row is None:
        raise NotFound(f"no thread {thread_id!r}")
    return _summary(row)


def threads(
    db: sqlite3.Connection, scope: str, limit: int, before: int | None, agent: str | None, archived: bool | None
) -> Sequence[ThreadSummary]:
    """Threads of a scope, last touched first; only those of an agent, or with this archived flag, if it is given."""
    below = 2**62 if before is None else before
    rows = db.execute(
        f"""
        {_SUMMARY} WHERE t.scope = ?1 AND t.touched < ?2 AND (?3 IS NULL OR t.agent = ?3)
          AND (?4 IS NULL OR t.archived = ?4) ORDER BY t.touched DESC LIMIT ?5
        """,
        (scope, below, agent, archived, limit),
    )
    return [_summary(row) for row in rows]


def interrupts(db: sqlite3.Connection, scope: str, thread_id: str) -> Sequence[InterruptRecord]:
    """The interrupts of a thread in the order they were raised."""
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


def run_thread(db: sqlite3.Connection, scope: str, run_id: str) -> str | None:
    """Find the thread with this run among those updated last."""
    row = db.execute(
        """
        SELECT t.thread_id
        FROM (SELECT key, thread_id, touched FROM threads WHERE scope = ? ORDER BY touched DESC LIMIT ?) t
        JOIN runs r ON r.thread = t.key AND r.run_id = ? ORDER BY t.touched DESC LIMIT 1
        """,
        (scope, RECENT_THREADS, run_id),
    ).fetchone()
    return None if row is None else row[0]


def interrupt_thread(db: sqlite3.Connection, scope: str, interrupt_id: str) -> str | None:
    """The thread that was the last to raise an interrupt."""
    row = db.execute(
        """
        SELECT t.thread_id FROM interrupts i JOIN threads t ON t.key = i.thread
        WHERE i.scope = ? AND i.interrupt_id = ? ORDER BY i.key DESC LIMIT 1
        """,
        (scope, interrupt_id),
    ).fetchone()
    return None if row is None else row[0]


def session(db: sqlite3.Connection, scope: str, thread_id: str) -> bytes | None:
    """The session value of a thread."""
    row = db.execute(
        "SELECT s.body FROM sessions s JOIN threads t ON t.key = s.thread WHERE t.scope = ? AND t.thread_id = ?",
        (scope, thread_id),
    ).fetchone()
    return None if row is None else row[0]


def recorded(db: sqlite3.Connection, scope: str, thread_id: str, root_run_id: str) -> dict[str, bytes]:
    """The results recorded under a root run."""
    rows = db.execute(
        """
        SELECT e.name, e.value FROM effects e JOIN threads t ON t.key = e.thread
        WHERE t.scope = ? AND t.thread_id = ? AND e.root_run_id = ?
        """,
        (scope, thread_id, root_run_id),
    )
    return dict(rows.fetchall())


_BLOB = "SELECT blob_id, media_type, filename, size, created_at"


def blob_record(db: sqlite3.Connection, scope: str, blob_id: str) -> Blob | None:
    """A file without its content."""
    row = db.execute(f"{_BLOB} FROM blobs WHERE scope = ? AND blob_id = ?", (scope, blob_id)).fetchone()
    return None if row is None else _blob(row)


def blob(db: sqlite3.Connection, scope: str, blob_id: str) -> tuple[Blob, bytes]:
    """A file. Raises ``NotFound``."""
    row = db.execute(
        f"{_BLOB}, {column('data')}, key FROM blobs WHERE scope = ? AND blob_id = ?", (scope, blob_id)
    ).fetchone()
    if row is None:
        raise NotFound(f"no file {blob_id!r}")
    return _blob(row), whole(db, row[5], "blobs", "data", row[6])


def _blob(row: Sequence[Any]) -> Blob:
    return Blob(blob_id=row[0], media_type=row[1], filename=row[2], size=row[3], created_at=row[4])


def stamps(db: sqlite3.Connection, keys: Sequence[Key]) -> dict[Key, tuple[Any, ...]]:
    """What a follower must notice of each thread: (last, first, open run, its epoch, owner, whether to cancel it).

    No thread has the first number of one that had its id before it.
    """
    found: dict[Key, tuple[Any, ...]] = {}
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
