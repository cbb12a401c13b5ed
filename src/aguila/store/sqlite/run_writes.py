"""Layer: store. The SQL that writes. Each function is one job of the writer, inside its transaction.

Many jobs share a transaction. So a job first checks and raises ``StoreError``, and writes only when nothing can be
refused any more: a refusal leaves nothing to undo.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Sequence

from aguila.errors import (
    AgentMismatch,
    InterruptTaken,
    RunExists,
    StaleLease,
    ThreadBusy,
    ThreadMoved,
    TooManyRuns,
)
from aguila.store.base import (
    Batch,
    CancelRequest,
    Lease,
    RunEnd,
    RunRecord,
)
from aguila.store.encoding import size_of, thread_hash
from aguila.store.sqlite import queries
from aguila.store.sqlite.large_values import insert, known


def begin(
    db: sqlite3.Connection,
    now: float,
    lease: Lease,
    lease_seconds: float,
    body: bytes,
    fingerprint: str,
    events: Sequence[bytes],
    rows: Sequence[tuple[int, bytes]],
    parent_run_id: str | None,
    claims: Sequence[str],
    waiting: frozenset[str] | None,
    max_running: int | None,
    lock: int | None,
    agent: str,
) -> Batch:
    """Start a run. Raises as ``Store.begin`` does."""
    # One statement, which gives a row in any case: each takes a client that waits for its first event 3 us and more.
    thread, last, running, count, has_removed, run, owned_by = db.execute(
        """
        SELECT t.key, coalesce(t.last, 0), t.running,
          (SELECT count(*) FROM threads WHERE scope = ?1 AND running IS NOT NULL), EXISTS (SELECT 1 FROM removed),
          (SELECT coalesce(max(key), 0) + 1 FROM runs), t.agent
        FROM (SELECT 1) LEFT JOIN threads t ON t.scope = ?1 AND t.thread_id = ?2
        """,
        (lease.scope, lease.thread_id),
    ).fetchone()
    if thread is not None:
        if owned_by != agent:
            raise AgentMismatch(f"thread {lease.thread_id!r} belongs to agent {owned_by!r}", agent=owned_by)
        same = db.execute("SELECT key FROM runs WHERE thread = ? AND run_id = ?", (thread, lease.run_id)).fetchone()
        if same is not None:
            raise RunExists(f"run {lease.run_id!r} exists", run=queries.run_by_key(db, same[0]))
    if running is not None:
        raise ThreadBusy(f"thread {lease.thread_id!r} is busy", run=queries.run_by_key(db, running))
    if max_running is not None and count >= max_running:
        raise TooManyRuns(f"{count} runs of this scope are on")
    if waiting is not None and thread is not None:
        for (interrupt_id,) in db.execute(
            "SELECT interrupt_id FROM interrupts WHERE thread = ? AND status = 'open'", (thread,)
        ):
            if interrupt_id not in waiting:
                raise ThreadMoved(f"interrupt {interrupt_id!r} was raised meanwhile")
    for interrupt_id in claims:
        if _interrupt(db, thread, interrupt_id) != ("open", None):
            raise InterruptTaken(f"interrupt {interrupt_id!r} is not open", interrupt_id=interrupt_id)
    if thread is None and has_removed:
        last = _unremove(db, lease.scope, lease.thread_id)
    batch = Batch(last + 1, events)
    # The key of the run is known, so the thread's row is written once, whether it is new or not.
    row = db.execute(
        """
        INSERT INTO threads (scope, thread_id, created_at, updated_at, touched, first, last, bytes, running, agent)
        VALUES (?1, ?2, ?3, ?3, (SELECT coalesce(max(touched), 0) + 1 FROM threads WHERE scope = ?1), ?4, ?5, ?6, ?7,
          ?8)
        ON CONFLICT (scope, thread_id) DO UPDATE SET updated_at = excluded.updated_at, touched = excluded.touched,
          last = excluded.last, bytes = bytes + excluded.bytes, running = excluded.running
        """,
        (lease.scope, lease.thread_id, now, batch.first, batch.last, size_of(rows) + len(body), run, agent),
    ).lastrowid
    thread = known(row) if thread is None else thread
    db.execute(
        """
        INSERT INTO runs (key, thread, run_id, parent_run_id, fingerprint, first, owner, epoch, lease_seconds,
          lease_until, started_at, lock) VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)
        """,
        (
            run, thread, lease.run_id, parent_run_id, fingerprint, batch.first, lease.owner, lease.epoch,
            lease_seconds, now + lease_seconds, now, lock,
        ),
    )  # fmt: skip
    insert(db, "INSERT INTO inputs (run, body) VALUES (?, ?)", (run,), body)
    for interrupt_id in claims:
        db.execute(
            "UPDATE interrupts SET status = 'claimed', claimed_by = ? WHERE thread = ? AND interrupt_id = ?",
            (lease.run_id, thread, interrupt_id),
        )
    _log(db, thread, last, rows)
    return batch


def append(
    db: sqlite3.Connection,
    now: float,
    lease: Lease,
    events: Sequence[bytes],
    rows: Sequence[tuple[int, bytes]],
    end: RunEnd | None,
) -> Batch:
    """Append events, and close the run with ``end``. Raises ``StaleLease``, ``InterruptTaken``."""
    thread, run, last, lease_until, lease_seconds, _ = _hold(db, lease)
    if end is not None:
        _settle(db, thread, lease.run_id, end.settles)
    if end is None:
        if lease_until <= now:  # nobody has taken over: the owner is alive after all
            db.execute("UPDATE runs SET lease_until = ? WHERE key = ?", (now + lease_seconds, run))
        return _extend(db, now, lease.scope, thread, last, events, rows, running=run)
    db.execute(
        "UPDATE runs SET outcome = ?, last = ?, ended_at = ? WHERE key = ?",
        (end.outcome, last + len(events), now, run),
    )
    db.execute("DELETE FROM viewers WHERE run = ?", (run,))
    _reopen_claims(db, thread, lease.run_id)
    size = 0
    for interrupt_id, body in end.interrupts:
        # Raised again, it is the newest one, and open.
        db.execute("DELETE FROM interrupts WHERE thread = ? AND interrupt_id = ?", (thread, interrupt_id))
        db.execute(
            "INSERT INTO interrupts (scope, thread, interrupt_id, run_id, status, body) VALUES (?, ?, ?, ?, 'open', ?)",
            (lease.scope, thread, interrupt_id, lease.run_id, body),
        )
        size += len(body)
    if end.session is not None:
        old = db.execute("SELECT length(body) FROM sessions WHERE thread = ?", (thread,)).fetchone()
        db.execute("INSERT OR REPLACE INTO sessions (thread, body) VALUES (?, ?)", (thread, end.session))
        size += len(end.session) - (0 if old is None else old[0])
    return _extend(db, now, lease.scope, thread, last, events, rows, running=None, size=size)


def renew(db: sqlite3.Connection, now: float, lease: Lease, lease_seconds: float) -> bool:
    """Keep a lease alive; gives whether cancelling was asked for. Raises ``StaleLease``."""
    _, run, _, _, _, cancel = _hold(db, lease)
    db.execute(
        "UPDATE runs SET lease_until = ?, lease_seconds = ? WHERE key = ?", (now + lease_seconds, lease_seconds, run)
    )
    return cancel == queries.CANCEL["always"]


def settle(db: sqlite3.Connection, lease: Lease, interrupt_ids: Sequence[str]) -> None:
    """Mark interrupts that this run claimed as settled. Raises ``StaleLease``, ``InterruptTaken``."""
    _settle(db, _hold(db, lease)[0], lease.run_id, interrupt_ids)


def _settle(db: sqlite3.Connection, thread: int, run_id: str, interrupt_ids: Sequence[str]) -> None:
    for interrupt_id in interrupt_ids:
        interrupt = _interrupt(db, thread, interrupt_id)
        if interrupt is None or interrupt[1] != run_id:
            raise InterruptTaken(f"interrupt {interrupt_id!r} is not claimed", interrupt_id=interrupt_id)
    for interrupt_id in interrupt_ids:
        db.execute(
            "UPDATE interrupts SET status = 'settled' WHERE thread = ? AND interrupt_id = ?", (thread, interrupt_id)
        )


def shorten_leases(db: sqlite3.Connection, now: float) -> None:
    """After the clock was set back: one whole lease from now for each, or a dead process would hold on to it."""
    db.execute(
        """
        UPDATE runs SET lease_until = ? + lease_seconds
        WHERE key IN (SELECT running FROM threads INDEXED BY threads_running WHERE running IS NOT NULL)
          AND lease_until > ? + lease_seconds
        """,
        (now, now),
    )
    db.execute("UPDATE viewers SET until = ? + seconds WHERE until > ? + seconds", (now, now))


def take_over(
    db: sqlite3.Connection,
    now: float,
    run: RunRecord,
    owner: str,
    lease_seconds: float,
    lock: int | None,
    is_gone: queries.IsGone,
) -> Lease | None:
    """Move a lease to a new owner; None if the old one still has it, or someone else was faster."""
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
    if lease_until > now and not is_gone(run.owner, old_lock):
        return None
    epoch = run.epoch + 1
    db.execute(
        "UPDATE runs SET owner = ?, epoch = ?, lease_seconds = ?, lease_until = ?, lock = ? WHERE key = ?",
        (owner, epoch, lease_seconds, now + lease_seconds, lock, key),
    )
    _reopen_claims(db, thread, run.run_id)
    return Lease(scope=run.scope, thread_id=run.thread_id, run_id=run.run_id, epoch=epoch, owner=owner)


def request_cancel(db: sqlite3.Connection, scope: str, thread_id: str, run_id: str, unwatched: bool) -> RunRecord:
    """Mark an open run as to be cancelled, perhaps only if nobody watches it. Raises ``NotFound``."""
    queries.run(db, scope, thread_id, run_id)
    run = _open_run(db, scope, thread_id, run_id)
    if unwatched:
        _change_cancel(db, run, None, "unwatched")
    else:
        db.execute("UPDATE runs SET cancel_requested = ? WHERE key = ?", (queries.CANCEL["always"], run))
    return queries.run(db, scope, thread_id, run_id)


def settle_cancel(db: sqlite3.Connection, scope: str, thread_id: str, run_id: str, granted: bool) -> None:
    """Decide on an open run that is to be cancelled only if nobody watches it."""
    _change_cancel(db, _open_run(db, scope, thread_id, run_id), "unwatched", "always" if granted else None)


def watch(
    db: sqlite3.Connection,
    now: float,
    scope: str,
    thread_id: str,
    run_id: str,
    viewer: str,
    seconds: float,
    lock: int | None,
) -> None:
    """Note that another process has viewers of an open run."""
    run = _open_run(db, scope, thread_id, run_id)
    if run is not None:
        db.execute(
            "INSERT OR REPLACE INTO viewers (run, viewer, until, seconds, lock) VALUES (?, ?, ?, ?, ?)",
            (run, viewer, now + seconds, seconds, lock),
        )


def unwatch(db: sqlite3.Connection, now: float, scope: str, thread_id: str, run_id: str, viewer: str) -> None:
    """Note that it has none any more. The row stays for as long as the run: it says when that was."""
    db.execute(
        "UPDATE viewers SET until = ? WHERE run = ? AND viewer = ? AND until > ?",
        (now, _open_run(db, scope, thread_id, run_id), viewer, now),
    )


def record(db: sqlite3.Connection, lease: Lease, root_run_id: str, name: str, value: bytes) -> None:
    """Remember a result; the first one stays. Raises ``StaleLease``."""
    thread = _hold(db, lease)[0]
    cursor = db.execute(
        "INSERT OR IGNORE INTO effects (thread, root_run_id, name, value) VALUES (?, ?, ?, ?)",
        (thread, root_run_id, name, value),
    )
    if cursor.rowcount:
        db.execute("UPDATE threads SET bytes = bytes + ? WHERE key = ?", (len(value), thread))


def _open_run(db: sqlite3.Connection, scope: str, thread_id: str, run_id: str) -> int | None:
    """The key of a run, if it is on."""
    row = db.execute(
        """
        SELECT r.key FROM threads t JOIN runs r ON r.key = t.running
        WHERE t.scope = ? AND t.thread_id = ? AND r.run_id = ?
        """,
        (scope, thread_id, run_id),
    ).fetchone()
    return None if row is None else row[0]


def _change_cancel(
    db: sqlite3.Connection, run: int | None, old: CancelRequest | None, new: CancelRequest | None
) -> None:
    db.execute(
        "UPDATE runs SET cancel_requested = ? WHERE key = ? AND cancel_requested = ?",
        (queries.CANCEL[new], run, queries.CANCEL[old]),
    )


def _hold(db: sqlite3.Connection, lease: Lease) -> tuple[int, int, int, float, float, int]:
    """Thread, run, last, lease_until, lease_seconds and cancel_requested of a good lease. Raises ``StaleLease``."""
    row = db.execute(
        """
        SELECT t.key, r.key, t.last, r.lease_until, r.lease_seconds, r.cancel_requested
        FROM threads t JOIN runs r ON r.key = t.running
        WHERE t.scope = ? AND t.thread_id = ? AND r.run_id = ? AND r.epoch = ? AND r.owner = ?
        """,
        (lease.scope, lease.thread_id, lease.run_id, lease.epoch, lease.owner),
    ).fetchone()
    if row is None:
        raise StaleLease(f"run {lease.run_id!r} is closed or has another owner")
    return row


def _extend(
    db: sqlite3.Connection,
    now: float,
    scope: str,
    thread: int,
    last: int,
    events: Sequence[bytes],
    rows: Sequence[tuple[int, bytes]],
    *,
    running: int | None,
    size: int = 0,
) -> Batch:
    """Append events to a thread. Its row changes once: also its open run, and what else was stored, in bytes."""
    batch = Batch(last + 1, events)
    db.execute(
        """
        UPDATE threads SET running = ?, last = ?, updated_at = ?, bytes = bytes + ?,
          touched = (SELECT max(touched) + 1 FROM threads WHERE scope = ?) WHERE key = ?
        """,
        (running, batch.last, now, size_of(rows) + size, scope, thread),
    )
    _log(db, thread, last, rows)
    return batch


def _log(db: sqlite3.Connection, thread: int, last: int, rows: Sequence[tuple[int, bytes]]) -> None:
    for count, lines in rows:
        if count:
            values = (queries.place_of(thread, last + count), last + 1)
            insert(db, "INSERT INTO log (place, first, events) VALUES (?, ?, ?)", values, lines)
            last += count


def _interrupt(db: sqlite3.Connection, thread: int | None, interrupt_id: str) -> tuple[str, str | None] | None:
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


def _unremove(db: sqlite3.Connection, scope: str, thread_id: str) -> int:
    """The number before the first one of a new thread: not the last of its predecessor, which may be a cursor."""
    mark = thread_hash(scope, thread_id)
    row = db.execute("SELECT last FROM removed WHERE thread = ?", (mark,)).fetchone()
    if row is None:
        return 0
    db.execute("DELETE FROM removed WHERE thread = ?", (mark,))
    return row[0] + 1
