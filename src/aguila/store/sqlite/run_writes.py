"""The SQL that changes runs. Each function is one job of the writer, inside its transaction.

Jobs share a transaction. So a function checks first, raises ``StoreError`` if it must, and writes only after that: a
refused job leaves nothing to undo.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Sequence

from aguila.store import refusals
from aguila.store.columns import CANCEL
from aguila.store.cursors import new_token
from aguila.store.encoding import Row, hash_thread, size_of_rows, to_milliseconds
from aguila.store.records import Batch, CancelRequest, Lease, NewRun, RunEnd, RunRecord, Usage
from aguila.store.run_inputs import CutInput, CutProjection
from aguila.store.sqlite import queries
from aguila.store.sqlite.database.large_values import insert, row_id
from aguila.store.sqlite.inputs import write_input
from aguila.store.sqlite.projections import write_projection
from aguila.store.sqlite.thread_writes import change_details

_BEGINNING = f"""
SELECT t.key, coalesce(t.last, 0), t.running, o.runs, EXISTS (SELECT 1 FROM removed),
  (SELECT coalesce(max(key), 0) + 1 FROM runs), t.agent, {queries.USAGE_COLUMNS}
FROM {queries.USAGE_TABLES} LEFT JOIN threads t ON t.scope = ?1 AND t.thread_id = ?2
"""  # noqa: S608 - our own names


def begin(
    db: sqlite3.Connection,
    now: float,
    monotonic: float,
    new: NewRun,
    lease: Lease,
    rows: Sequence[Row],
    input: CutInput,  # noqa: A002
    lock: int | None,
) -> Batch:
    """Start a run. ``rows`` are its events as rows of the log; ``lock`` is of ``locks``. Raises as ``Store.begin``."""
    # One statement that always returns a row: each further one delays the first event by 3 us or more.
    thread, last, running, count, has_removed, run, agent, threads, files, size = db.execute(
        _BEGINNING, (lease.scope, lease.thread_id)
    ).fetchone()
    if thread is not None:
        if agent != new.agent:
            raise refusals.agent_mismatch(lease.thread_id, agent)
        same = db.execute("SELECT key FROM runs WHERE thread = ? AND run_id = ?", (thread, lease.run_id)).fetchone()
        if same is not None:
            raise refusals.run_exists(queries.read_run_by_key(db, same[0]))
    if running is not None:
        raise refusals.thread_busy(queries.read_run_by_key(db, running))
    if new.max_running is not None and count >= new.max_running:
        raise refusals.too_many_runs(count)
    if new.quotas is not None:
        used = Usage(threads=threads, files=files, bytes=size)
        queries.check_quotas(db, new.quotas, used, Usage(threads=thread is None, bytes=1))
    if new.after is not None and new.after != last:
        raise refusals.thread_continued(lease.thread_id)
    if new.waiting is not None and thread is not None:
        for (interrupt_id,) in db.execute(
            "SELECT interrupt_id FROM interrupts WHERE thread = ? AND status = 'open'", (thread,)
        ):
            if interrupt_id not in new.waiting:
                raise refusals.thread_moved(interrupt_id)
    for interrupt_id in new.claims:
        if _find_interrupt(db, thread, interrupt_id) != ("open", None):
            raise refusals.interrupt_not_open(interrupt_id)
    if thread is None and has_removed:
        last = _take_removed(db, lease.scope, lease.thread_id)
    batch = Batch(last + 1, tuple(new.events), to_milliseconds(now), lease.token)
    # The key of the run is known before it is inserted, so that the row of the thread is written once.
    row = db.execute(
        """
        INSERT INTO threads (scope, thread_id, created_at, updated_at, touched, first, last, bytes, running, agent)
        VALUES (?1, ?2, ?3, ?3, (SELECT coalesce(max(touched), 0) + 1 FROM threads WHERE scope = ?1), ?4, ?5, ?6, ?7,
          ?8)
        ON CONFLICT (scope, thread_id) DO UPDATE SET updated_at = excluded.updated_at, touched = excluded.touched,
          last = excluded.last, bytes = bytes + excluded.bytes, running = excluded.running
        """,
        (
            lease.scope,
            lease.thread_id,
            now,
            batch.first,
            batch.last,
            size_of_rows(rows) + input.body.size,
            run,
            new.agent,
        ),
    ).lastrowid
    thread = row_id(row) if thread is None else thread
    db.execute(
        """
        INSERT INTO runs (key, thread, run_id, parent_run_id, fingerprint, first, owner, epoch, lease_seconds,
          lease_until, started_at, lock, sent_run_id) VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)
        """,
        (
            run, thread, lease.run_id, new.parent_run_id, new.fingerprint, batch.first, lease.owner, lease.epoch,
            new.lease_seconds, monotonic + new.lease_seconds, now, lock, new.sent_run_id,
        ),
    )  # fmt: skip
    write_input(db, now, thread, lease.scope, lease.thread_id, run, input)
    for interrupt_id in new.claims:
        db.execute(
            "UPDATE interrupts SET status = 'claimed', claimed_by = ? WHERE thread = ? AND interrupt_id = ?",
            (lease.run_id, thread, interrupt_id),
        )
    write_log(db, thread, last, rows, batch.at, lease.token)
    return batch


def append(
    db: sqlite3.Connection,
    now: float,
    monotonic: float,
    lease: Lease,
    events: Sequence[bytes],
    rows: Sequence[Row],
    end: RunEnd | None,
    projection: CutProjection | None,
) -> Batch:
    """Append events, and close the run if ``end`` is given. Raises ``StaleLease``, ``InterruptTaken``."""
    thread, run, last, lease_until, lease_seconds, _ = _check_lease(db, lease)
    if end is not None:
        _settle_claims(db, thread, lease.run_id, end.settles)
    if end is None:
        if lease_until <= monotonic:  # expired, but not taken over
            db.execute("UPDATE runs SET lease_until = ? WHERE key = ?", (monotonic + lease_seconds, run))
        batch = Batch(last + 1, events, to_milliseconds(now), lease.token)
        # No column of an index: only the begin and the end of a run move its thread in lists.
        db.execute(
            "UPDATE threads SET last = ?, updated_at = ?, bytes = bytes + ? WHERE key = ?",
            (batch.last, now, size_of_rows(rows), thread),
        )
        write_log(db, thread, last, rows, batch.at, lease.token)
        return batch
    db.execute(
        "UPDATE runs SET outcome = ?, last = ?, ended_at = ? WHERE key = ?", (end.outcome, last + len(events), now, run)
    )
    db.execute("DELETE FROM viewers WHERE run = ?", (run,))
    _reopen_claims(db, thread, lease.run_id)
    size = 0
    for interrupt_id, body in end.interrupts:
        # An interrupt that is raised again is the newest one.
        for (old_size,) in db.execute(
            "DELETE FROM interrupts WHERE thread = ? AND interrupt_id = ? RETURNING length(body)",
            (thread, interrupt_id),
        ).fetchall():
            size -= old_size
        db.execute(
            "INSERT INTO interrupts (scope, thread, interrupt_id, run_id, status, body) VALUES (?, ?, ?, ?, 'open', ?)",
            (lease.scope, thread, interrupt_id, lease.run_id, body),
        )
        size += len(body)
    if end.session is not None:
        old = db.execute("SELECT length(body) FROM sessions WHERE thread = ?", (thread,)).fetchone()
        db.execute("INSERT OR REPLACE INTO sessions (thread, body) VALUES (?, ?)", (thread, end.session))
        size += len(end.session) - (0 if old is None else old[0])
    if end.update is not None:
        change_details(db, thread, end.update)
    if projection is not None:
        size += write_projection(db, now, lease.scope, lease.thread_id, thread, run, projection)
    return _append_last(db, now, lease, thread, last, events, rows, size)


def renew(db: sqlite3.Connection, monotonic: float, lease: Lease, lease_seconds: float) -> bool:
    """Extend a lease; return whether the run is to be cancelled always. Raises ``StaleLease``."""
    _, run, _, _, _, cancel = _check_lease(db, lease)
    db.execute(
        "UPDATE runs SET lease_until = ?, lease_seconds = ? WHERE key = ?",
        (monotonic + lease_seconds, lease_seconds, run),
    )
    return cancel == CANCEL["always"]


def settle(db: sqlite3.Connection, lease: Lease, interrupt_ids: Sequence[str]) -> None:
    """Settle interrupts that the run has claimed. Raises ``StaleLease``, ``InterruptTaken``."""
    _settle_claims(db, _check_lease(db, lease)[0], lease.run_id, interrupt_ids)


def _settle_claims(db: sqlite3.Connection, thread: int, run_id: str, interrupt_ids: Sequence[str]) -> None:
    for interrupt_id in interrupt_ids:
        interrupt = _find_interrupt(db, thread, interrupt_id)
        if interrupt is None or interrupt[1] != run_id:
            raise refusals.interrupt_not_claimed(interrupt_id, run_id)
    for interrupt_id in interrupt_ids:
        db.execute(
            "UPDATE interrupts SET status = 'settled' WHERE thread = ? AND interrupt_id = ?", (thread, interrupt_id)
        )


def shorten_leases(db: sqlite3.Connection, monotonic: float) -> None:
    """Cut leases and viewers to their length from now, after the machine was started again."""
    db.execute(
        """
        UPDATE runs SET lease_until = ? + lease_seconds
        WHERE key IN (SELECT running FROM threads INDEXED BY threads_running WHERE running IS NOT NULL)
          AND lease_until > ? + lease_seconds
        """,
        (monotonic, monotonic),
    )
    db.execute("UPDATE viewers SET until = ? + seconds WHERE until > ? + seconds", (monotonic, monotonic))


def take_over(
    db: sqlite3.Connection,
    monotonic: float,
    run: RunRecord,
    owner: str,
    lease_seconds: float,
    lock: int | None,
    is_dead: queries.IsDead,
) -> Lease | None:
    """Give a run to a new owner; return None if the old one holds the lease or another process was faster."""
    row = db.execute(
        """
        SELECT t.key, r.key, r.lease_until, r.lock FROM threads t JOIN runs r ON r.key = t.running
        WHERE t.scope = ? AND t.thread_id = ? AND r.run_id = ? AND r.epoch = ? AND r.owner = ?
        """,
        (run.scope, run.thread_id, run.run_id, run.epoch, run.owner),
    ).fetchone()
    if row is None:
        return None
    thread, key, lease_until, old_lock = row
    if lease_until > monotonic and not is_dead(run.owner, old_lock):
        return None
    epoch = run.epoch + 1
    db.execute(
        "UPDATE runs SET owner = ?, epoch = ?, lease_seconds = ?, lease_until = ?, lock = ? WHERE key = ?",
        (owner, epoch, lease_seconds, monotonic + lease_seconds, lock, key),
    )
    _reopen_claims(db, thread, run.run_id)
    return Lease(
        scope=run.scope,
        thread_id=run.thread_id,
        run_id=run.run_id,
        epoch=epoch,
        owner=owner,
        token=new_token(),
    )


def request_cancel(db: sqlite3.Connection, scope: str, thread_id: str, run_id: str, unwatched: bool) -> RunRecord:
    """Store a cancel request for an open run; return the run. Raises ``NotFound``."""
    queries.read_run(db, scope, thread_id, run_id)
    run = _open_run(db, scope, thread_id, run_id)
    if unwatched:
        _replace_cancel_request(db, run, None, "unwatched")
    else:
        db.execute("UPDATE runs SET cancel_requested = ? WHERE key = ?", (CANCEL["always"], run))
    return queries.read_run(db, scope, thread_id, run_id)


def settle_cancel(db: sqlite3.Connection, scope: str, thread_id: str, run_id: str, granted: bool) -> None:
    """Answer an ``unwatched`` cancel request of an open run."""
    _replace_cancel_request(db, _open_run(db, scope, thread_id, run_id), "unwatched", "always" if granted else None)


def watch(
    db: sqlite3.Connection,
    monotonic: float,
    scope: str,
    thread_id: str,
    run_id: str,
    viewer: str,
    seconds: float,
    lock: int | None,
) -> None:
    """Register that a process has viewers of an open run."""
    run = _open_run(db, scope, thread_id, run_id)
    if run is not None:
        db.execute(
            "INSERT OR REPLACE INTO viewers (run, viewer, until, seconds, lock) VALUES (?, ?, ?, ?, ?)",
            (run, viewer, monotonic + seconds, seconds, lock),
        )


def unwatch(db: sqlite3.Connection, monotonic: float, scope: str, thread_id: str, run_id: str, viewer: str) -> None:
    """Record that a process has no viewers any more.

    The row stays until the run closes, because it holds the time of this call.
    """
    db.execute(
        "UPDATE viewers SET until = ? WHERE run = ? AND viewer = ? AND until > ?",
        (monotonic, _open_run(db, scope, thread_id, run_id), viewer, monotonic),
    )


def record(db: sqlite3.Connection, lease: Lease, root_run_id: str, name: str, value: bytes) -> None:
    """Record the result of an effect unless it has one. Raises ``StaleLease``."""
    thread = _check_lease(db, lease)[0]
    cursor = db.execute(
        "INSERT OR IGNORE INTO effects (thread, root_run_id, name, value) VALUES (?, ?, ?, ?)",
        (thread, root_run_id, name, value),
    )
    if cursor.rowcount:
        db.execute("UPDATE threads SET bytes = bytes + ? WHERE key = ?", (len(value), thread))


def _open_run(db: sqlite3.Connection, scope: str, thread_id: str, run_id: str) -> int | None:
    """Return the key of a run if it is open."""
    row = db.execute(
        """
        SELECT r.key FROM threads t JOIN runs r ON r.key = t.running
        WHERE t.scope = ? AND t.thread_id = ? AND r.run_id = ?
        """,
        (scope, thread_id, run_id),
    ).fetchone()
    return None if row is None else row[0]


def _replace_cancel_request(
    db: sqlite3.Connection, run: int | None, old: CancelRequest | None, new: CancelRequest | None
) -> None:
    db.execute(
        "UPDATE runs SET cancel_requested = ? WHERE key = ? AND cancel_requested = ?",
        (CANCEL[new], run, CANCEL[old]),
    )


def _check_lease(db: sqlite3.Connection, lease: Lease) -> tuple[int, int, int, float, float, int]:
    """Return thread, run, last, lease_until, lease_seconds and cancel_requested. Raises ``StaleLease``."""
    row = db.execute(
        """
        SELECT t.key, r.key, t.last, r.lease_until, r.lease_seconds, r.cancel_requested
        FROM threads t JOIN runs r ON r.key = t.running
        WHERE t.scope = ? AND t.thread_id = ? AND r.run_id = ? AND r.epoch = ? AND r.owner = ?
        """,
        (lease.scope, lease.thread_id, lease.run_id, lease.epoch, lease.owner),
    ).fetchone()
    if row is None:
        raise refusals.stale_lease(lease)
    return row


def _append_last(
    db: sqlite3.Connection,
    now: float,
    lease: Lease,
    thread: int,
    last: int,
    events: Sequence[bytes],
    rows: Sequence[Row],
    size: int,
) -> Batch:
    """Append the last events of a run. ``size`` is the bytes that the caller stored besides the events."""
    batch = Batch(last + 1, events, to_milliseconds(now), lease.token)
    db.execute(
        """
        UPDATE threads SET running = NULL, last = ?, updated_at = ?, bytes = bytes + ?,
          touched = (SELECT max(touched) + 1 FROM threads WHERE scope = ?) WHERE key = ?
        """,
        (batch.last, now, size_of_rows(rows) + size, lease.scope, thread),
    )
    write_log(db, thread, last, rows, batch.at, lease.token)
    return batch


def write_log(db: sqlite3.Connection, thread: int, last: int, rows: Sequence[Row], at: int, token: str) -> None:
    """Write rows to the log of a thread whose newest event is ``last``; ``at`` is the time in milliseconds."""
    for count, lines in rows:
        if count:
            values = (queries.log_place(thread, last + count), last + 1, at, token)
            insert(db, "INSERT INTO log (place, first, at, token, events) VALUES (?, ?, ?, ?, ?)", values, lines)
            last += count


def _find_interrupt(db: sqlite3.Connection, thread: int | None, interrupt_id: str) -> tuple[str, str | None] | None:
    return db.execute(
        "SELECT status, claimed_by FROM interrupts WHERE thread = ? AND interrupt_id = ?", (thread, interrupt_id)
    ).fetchone()


def _reopen_claims(db: sqlite3.Connection, thread: int, run_id: str) -> None:
    db.execute(
        """
        UPDATE interrupts SET status = 'open', claimed_by = NULL
        WHERE thread = ? AND claimed_by = ? AND status = 'claimed'
        """,
        (thread, run_id),
    )


def _take_removed(db: sqlite3.Connection, scope: str, thread_id: str) -> int:
    """Return the number before the first event of a new thread, and forget its removed predecessor.

    It is above the predecessor's last number, which may be a cursor.
    """
    removed = hash_thread(scope, thread_id)
    row = db.execute("SELECT last FROM removed WHERE thread = ?", (removed,)).fetchone()
    if row is None:
        return 0
    db.execute("DELETE FROM removed WHERE thread = ?", (removed,))
    return row[0] + 1
