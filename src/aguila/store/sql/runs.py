"""The SQL that changes runs: begin, write, take over, tell. Each function writes what a plan of ``rules`` says.

A function receives all jobs of its kind that wait, so that they share round trips and one commit. It locks the threads,
checks, and writes only after that: a refused job has queued nothing and harms no other. An outcome is a result or the
error to raise.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from operator import itemgetter
from typing import Any, Final

import msgspec

from aguila.errors import StoreError
from aguila.store import refusals, rules
from aguila.store.contents import (
    CutRequest,
    ListDelta,
    base_number,
    base_numbers,
    compare_lists,
    content_rows,
    file_digests,
    hash_content,
    split_digests,
)
from aguila.store.encoding import (
    Row as LogRow,
)
from aguila.store.encoding import (
    hash_members,
    hash_thread,
    size_of_details,
    to_milliseconds,
)
from aguila.store.large_strings import HUGE
from aguila.store.records import (
    Batch,
    Begun,
    Lease,
    Message,
    NewRun,
    RunChange,
    RunEnd,
    RunKey,
    RunRecord,
    Taken,
    ThreadKey,
    ThreadUpdate,
    Usage,
    Watch,
    Written,
)
from aguila.store.sql import reads
from aguila.store.sql.tx import Tx

Contents = dict[bytes, bytes | memoryview]
"""Stored bodies of contents, by their digests."""

# Begin

_HEAD: Final = """
SELECT t.key, t.agent, t.first, t.last, t.running,
  (SELECT max(r.number) FROM aguila.runs r WHERE r.thread = t.key),
  (SELECT r.key FROM aguila.runs r WHERE r.thread = t.key AND r.run_id = $3),
  (SELECT count(*) FROM aguila.threads o WHERE o.scope = $1 AND o.running IS NOT NULL),
  CASE WHEN t.key IS NULL THEN EXISTS (SELECT 1 FROM aguila.removed) END, NEXT_RUN, NEXT_THREAD
FROM (SELECT 1 AS one) x LEFT JOIN aguila.threads t ON t.scope = $1 AND t.thread_id = $2
"""
"""One statement that always returns a row: each further one delays the first event by 3 us or more."""
_NEW_THREAD: Final = """
INSERT INTO aguila.threads (position, scope, key, thread_id, agent, created_at, updated_at, first, last, bytes, running,
  epoch) VALUES (NEXT_POSITION, $1, $2, $3, $4, $5, $5, $6, $7, $8, $9, 1)
"""
_NEXT_RUN: Final = """
UPDATE aguila.threads SET position = NEXT_POSITION, updated_at = $3, last = $4, bytes = bytes + $5, running = $6,
  epoch = 1 WHERE scope = $1 AND key = $2
"""
_NEW_RUN: Final = """
INSERT INTO aguila.runs (key, thread, number, run_id, parent_run_id, sent_run_id, fingerprint, first, owner, lock,
  token, epoch, lease_seconds, lease_until, started_at, launch, request, list)
VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, 1, $12, $13, $14, $15, $16, $17)
"""
_CLAIM: Final = """
UPDATE aguila.interrupts SET status = 'claimed', claimed_by = $3 WHERE thread = $1 AND interrupt_id = $2
"""
PUT_LOG: Final = """
INSERT INTO aguila.log (place, first, at, token, starts, content, events) VALUES ($1, $2, $3, $4, $2, $5, $6)
"""
PUT_CONTENT: Final = """
INSERT INTO aguila.contents (thread, digest, part, body) VALUES ($1, $2, $3, $4)
ON CONFLICT (thread, digest, part) DO NOTHING RETURNING length(body)
"""


@dataclass(slots=True, eq=False)
class BeginItem:
    """A run to begin, prepared on the event loop."""

    new: NewRun
    request: CutRequest
    rows: Sequence[LogRow]
    lock: str | None

    @property
    def key(self) -> ThreadKey:
        """The thread."""
        return self.new.key


def begin(tx: Tx, items: Sequence[BeginItem]) -> list[Begun | StoreError]:
    """Begin runs, sorted by scope and thread."""
    return [_begin(tx, item) for item in items]


def _begin(tx: Tx, item: BeginItem) -> Begun | StoreError:
    new = item.new
    if new.max_running is not None:
        tx.lock_scope(new.scope)
    tx.lock_thread(new.scope, new.thread_id)
    row = tx.row(_HEAD, new.scope, new.thread_id, new.run_id)
    assert row is not None  # noqa: S101
    thread, agent, first, last, running, number, same, running_in_scope, has_removed, run, next_thread = row
    if same is not None and (begun := _find_begun(tx, new, thread, same)) is not None:
        return begun
    removed: int | None = None
    if thread is None:
        thread, number, last = next_thread, 0, 0
        if has_removed:
            removed = _find_removed(tx, new)
        first = rules.next_first(removed)
    head = rules.Head(
        agent=agent,
        first=first,
        last=last,
        runs=number,
        running=None if running is None else reads.read_run(tx, running),
        same=None if same is None else reads.read_run(tx, same),
        open_interrupts=_open_interrupts(tx, thread) if agent is not None and _asks_interrupts(new) else frozenset(),
        running_in_scope=running_in_scope,
        usage=Usage() if new.quotas is None else reads.read_usage(tx, new.scope),
        total=Usage() if new.quotas is None or not new.quotas.is_total else reads.read_total(tx),
    )
    try:
        plan = rules.begin(head, new, tx.now)
    except StoreError as refusal:
        return refusal
    number, batch, request = plan.number, plan.batch, item.request
    delta = None
    size = len(request.head)
    if request.messages is not None:
        base = base_number(number)
        before = reads.read_base(tx, thread, base_numbers(base), {}) if base else b""
        changes = compare_lists(before, request.messages)
        delta = changes.encode()
        size += len(delta) + put_contents(tx, thread, _select_contents(request, changes))
    log, large, logged = log_rows(thread, batch, item.rows)
    size += logged + put_contents(tx, thread, large)
    if plan.creates_thread:
        if removed is not None:
            tx.do("DELETE FROM aguila.removed WHERE thread_hash = $1", hash_thread(new.scope, new.thread_id))
        tx.do(
            _NEW_THREAD,
            new.scope, thread, new.thread_id, new.agent, plan.now, batch.first, batch.last, size, run,
        )  # fmt: skip
    else:
        tx.do(_NEXT_RUN, new.scope, thread, plan.now, batch.last, size, run)
    tx.do(
        _NEW_RUN, run, thread, number, new.run_id, new.parent_run_id, new.sent_run_id, new.fingerprint, batch.first,
        new.owner, item.lock, new.token, new.lease_seconds, tx.lease_now + new.lease_seconds, plan.now, new.launch,
        request.head, delta,
    )  # fmt: skip
    if new.claims:
        tx.many(_CLAIM, [(thread, interrupt_id, new.run_id) for interrupt_id in new.claims])
    for values in log:
        tx.do(PUT_LOG, *values)
    return Begun(plan.lease, batch)


def _find_begun(tx: Tx, new: NewRun, thread: int, run: int) -> Begun | None:
    """Return what an earlier call with the token of this run stored, or None."""
    row = tx.row("SELECT first, started_at FROM aguila.runs WHERE key = $1 AND token = $2", run, new.token)
    if row is None:
        return None
    first, started_at = row
    return Begun(new.lease, Batch(first, tuple(new.events), to_milliseconds(started_at), new.token))


def _find_removed(tx: Tx, new: NewRun) -> int | None:
    row = tx.row("SELECT last FROM aguila.removed WHERE thread_hash = $1", hash_thread(new.scope, new.thread_id))
    return None if row is None else row[0]


def _asks_interrupts(new: NewRun) -> bool:
    return new.waiting is not None or len(new.claims) > 0


def _open_interrupts(tx: Tx, thread: int) -> frozenset[str]:
    rows = tx.rows("SELECT interrupt_id FROM aguila.interrupts WHERE thread = $1 AND status = 'open'", thread)
    return frozenset([row[0] for row in rows])


def _select_contents(request: CutRequest, changes: ListDelta) -> Contents:
    """Return the contents of a request that its thread may not have: the new messages and the large members."""
    known = set(split_digests(request.messages or b"")).difference(changes.new)
    if not known:
        return dict(request.contents)
    contents = request.contents
    large = [digest for digest in request.large if digest not in known]
    found: Contents = {}
    for digest in (*changes.new, *large):
        body = found[digest] = contents[digest]
        for file in file_digests(bytes(body)):
            found[file] = contents[file]
    return found


def put_contents(tx: Tx, thread: int, contents: Contents) -> int:
    """Store contents that the thread does not have; return their bytes."""
    if not contents:
        return 0
    rows = tx.each(PUT_CONTENT, [(thread, *row) for row in content_rows(contents)])
    return sum([row[0][0] for row in rows if row])


def log_rows(thread: int, batch: Batch, rows: Sequence[LogRow]) -> tuple[list[tuple[Any, ...]], Contents, int]:
    """Return the rows of the log for a batch, the events that are contents, and the bytes of the rows."""
    found: list[tuple[Any, ...]] = []
    contents: Contents = {}
    last = batch.first - 1
    for count, lines in rows:
        digest = None
        if count == 1 and len(lines) > HUGE:
            digest = hash_content(lines)
            contents[digest] = lines
            lines = b""
        found.append((reads.log_place(thread, last + count), last + 1, batch.at, batch.token, digest, lines))
        last += count
    return found, contents, sum([len(row[-1]) for row in found])


# Write

_FENCE: Final = """
SELECT t.key, t.running, t.last, t.bytes, t.counted, r.run_id, t.epoch, r.token, r.lease_until, r.lease_seconds,
  r.cancel
FROM aguila.threads t JOIN aguila.runs r ON r.key = t.running WHERE t.scope = $1 AND t.thread_id = $2 FOR UPDATE OF t
"""
_ADVANCE: Final = """
UPDATE aguila.threads SET last = $2, updated_at = coalesce($3, updated_at), bytes = bytes + $4 WHERE key = $1
"""
_RENEW: Final = "UPDATE aguila.runs SET lease_until = $2, lease_seconds = $3 WHERE key = $1"
_SETTLE: Final = "UPDATE aguila.interrupts SET status = 'settled' WHERE thread = $1 AND interrupt_id = $2"
_REOPEN: Final = """
UPDATE aguila.interrupts SET status = 'open', claimed_by = NULL WHERE thread = $1 AND interrupt_id = $2
"""
_CLAIMS: Final = """
SELECT interrupt_id, status FROM aguila.interrupts WHERE thread = $1 AND claimed_by = $2
UNION ALL SELECT NULL, viewer FROM aguila.viewers WHERE run = $3
"""
"""The interrupts that a run claimed, and its viewers in other processes: nearly always none."""
_UNRAISE: Final = """
DELETE FROM aguila.interrupts WHERE thread = $1 AND interrupt_id = $2 RETURNING length(body)
"""
_RAISE: Final = """
INSERT INTO aguila.interrupts (scope, thread, interrupt_id, run_id, status, body) VALUES ($1, $2, $3, $4, 'open', $5)
"""
_CLOSE_RUN: Final = """
UPDATE aguila.runs SET outcome = $2, last = $3, ended_at = $4, format = $5, turn = $6, launch = NULL
WHERE key = $1
"""
_CLOSE_THREAD: Final = """
UPDATE aguila.threads SET position = NEXT_POSITION, running = NULL, last = $3, updated_at = $4, bytes = $5, counted = $5
WHERE scope = $1 AND key = $2
"""
_PUT_EFFECT: Final = """
INSERT INTO aguila.effects (thread, root, name, epoch, value) VALUES ($1, $2, $3, $4, $5)
ON CONFLICT (thread, root, name) DO UPDATE SET epoch = excluded.epoch, value = excluded.value
WHERE effects.value IS NULL RETURNING coalesce(length(value), 0)
"""
_PUT_SESSION: Final = """
INSERT INTO aguila.details (thread, session) VALUES ($1, $2)
ON CONFLICT (thread) DO UPDATE SET session = excluded.session
"""
COUNT: Final = """
INSERT INTO aguila.usage (kind, scope, slot, threads, files, bytes) VALUES ($1, $2, $3, $4, $5, $6)
ON CONFLICT (kind, scope, slot) DO UPDATE SET threads = usage.threads + excluded.threads,
  files = usage.files + excluded.files, bytes = usage.bytes + excluded.bytes
"""


@dataclass(slots=True, eq=False)
class WriteItem:
    """A change of a run, prepared on the event loop. ``contents`` are the values of its turn, cut."""

    lease: Lease
    change: RunChange
    rows: Sequence[LogRow]
    contents: Contents
    after: int | None
    """``RunChange.after``, or the last event when this was first tried: by it, an earlier commit is recognised."""

    @property
    def key(self) -> ThreadKey:
        """The thread."""
        return (self.lease.scope, self.lease.thread_id)


@dataclass(slots=True)
class _OpenThread:
    """The thread of an open run, as the writes before in this transaction leave it."""

    key: int
    run: int
    bytes: int
    counted: int | None
    head: rules.RunHead
    has_viewers: bool = False


class _Pending:
    """Rows that are written together, after the last check of a group."""

    __slots__ = ("log", "threads")

    def __init__(self) -> None:
        self.log: list[tuple[Any, ...]] = []
        self.threads: list[tuple[Any, ...]] = []

    def flush(self, tx: Tx) -> None:
        """Write the rows."""
        if self.threads:
            tx.many(_ADVANCE, self.threads)
        if self.log:
            tx.many(PUT_LOG, self.log)
        self.log, self.threads = [], []


def write(tx: Tx, items: Sequence[WriteItem], slot: int) -> list[Written | StoreError]:
    """Write changes of open runs, sorted by scope and thread."""
    rows = tx.each(_FENCE, [item.key for item in items])
    outcomes: list[Written | StoreError] = []
    threads: dict[ThreadKey, _OpenThread | None] = {}
    pending = _Pending()
    usage: dict[str, Usage] = {}
    for item, found in zip(items, rows, strict=True):
        key, lease, change = item.key, item.lease, item.change
        thread = threads[key] if key in threads else _open_thread(found)
        head = None if thread is None or not thread.head.holds(lease) else thread.head
        if head is not None and item.after is None:
            item.after = head.last
        if item.after is not None and (head is None or item.after != head.last):
            pending.flush(tx)  # the earlier one may be in this group
            repeated = _find_repeated(tx, item, head)
            if repeated is not None:
                outcomes.append(repeated)
                continue
        if head is not None and thread is not None and (change.settles or change.end is not None):
            claims = {row[0]: row[1] for row in tx.rows(_CLAIMS, thread.key, lease.run_id, thread.run)}
            if change.end is not None and claims.pop(None, None) is not None:
                thread.has_viewers = True
            if claims:
                head = msgspec.structs.replace(head, claims=claims)
        try:
            plan = rules.write(head, lease, change, tx.now, tx.lease_now)
        except StoreError as refusal:
            outcomes.append(refusal)
            continue
        assert thread is not None and head is not None  # noqa: S101, PT018 - otherwise refused
        size = _write(tx, thread, item, plan, pending)
        thread.bytes += size
        if plan.close is not None:
            _close_thread(tx, thread, lease.scope, plan, usage)
            threads[key] = None
        else:
            if plan.updated_at is not None or size:
                pending.threads.append((thread.key, plan.batch.last, plan.updated_at, size))
            assert plan.head is not None  # noqa: S101
            thread.head = plan.head
            threads[key] = thread
        outcomes.append(Written(plan.batch, head.cancel))
    pending.flush(tx)
    count_usage(tx, slot, usage)
    return outcomes


def _open_thread(found: Sequence[tuple[Any, ...]]) -> _OpenThread | None:
    if not found:
        return None
    key, run, last, size, counted, run_id, epoch, token, lease_until, lease_seconds, cancel = found[0]
    head = rules.RunHead(
        run_id=run_id,
        epoch=epoch,
        token=token,
        last=last,
        lease_until=lease_until,
        lease_seconds=lease_seconds,
        cancel=reads.CANCEL_REQUESTS[cancel],
    )
    return _OpenThread(key, run, size, counted, head)


def _find_repeated(tx: Tx, item: WriteItem, head: rules.RunHead | None) -> Written | None:
    """Return the outcome of a write that was stored before, or None."""
    lease, change = item.lease, item.change
    row = tx.row(
        """
        SELECT t.key, t.last, r.outcome, r.last FROM aguila.threads t JOIN aguila.runs r ON r.thread = t.key
        WHERE t.scope = $1 AND t.thread_id = $2 AND r.run_id = $3 AND r.token = $4
        """,
        lease.scope,
        lease.thread_id,
        lease.run_id,
        lease.token,
    )
    if row is None or item.after is None:
        return None
    thread, last, outcome, run_last = row
    count = len(change.events)
    if item.after + count > last or (not count and run_last != item.after):
        return None
    stored = list(reads.iterate_log(tx, thread, item.after, item.after + count, count)) if count else []
    if not rules.is_repeated(msgspec.structs.replace(change, after=item.after), lease, stored, outcome):
        return None
    at = stored[0].at if stored else 0
    batch = Batch(item.after + 1, tuple(change.events), at, lease.token)
    return Written(batch, None if head is None else head.cancel)


def _write(tx: Tx, thread: _OpenThread, item: WriteItem, plan: rules.WritePlan, pending: _Pending) -> int:
    """Write what a plan says, but for the row of the thread; return by how many bytes the thread grows."""
    change, size = item.change, 0
    if plan.batch.events:
        log, large, size = log_rows(thread.key, plan.batch, item.rows)
        pending.log += log
        size += put_contents(tx, thread.key, large)
    if plan.lease_until is not None:
        tx.do(_RENEW, thread.run, plan.lease_until, plan.lease_seconds)
    if change.settles:
        tx.many(_SETTLE, [(thread.key, interrupt_id) for interrupt_id in change.settles])
    if plan.effects:
        rows = tx.each(_PUT_EFFECT, [(thread.key, e.root_run_id, e.name, e.epoch, e.value) for e in plan.effects])
        size += sum([row[0][0] for row in rows if row])
    if change.session is not None:
        row = tx.row("SELECT length(session) FROM aguila.details WHERE thread = $1", thread.key)
        size += len(change.session) - (0 if row is None else row[0] or 0)
        tx.do(_PUT_SESSION, thread.key, change.session)
    if plan.close is not None and change.end is not None:
        size += _close(tx, thread, item, plan.close, change.end)
    return size


def _close(tx: Tx, thread: _OpenThread, item: WriteItem, close: rules.ClosePlan, end: RunEnd) -> int:
    """Close a run; return by how many bytes the thread grows."""
    size = 0
    if close.reopens:
        tx.many(_REOPEN, [(thread.key, interrupt_id) for interrupt_id in close.reopens])
    if close.raises:
        old = tx.each(_UNRAISE, [(thread.key, one.interrupt_id) for one in close.raises])
        size -= sum([row[0][0] for row in old if row])
        scope = item.lease.scope
        tx.many(_RAISE, [(scope, thread.key, one.interrupt_id, one.run_id, one.body) for one in close.raises])
        size += sum([len(one.body) for one in close.raises])
    turn = end.turn
    if turn is not None:
        size += len(turn.body) + put_contents(tx, thread.key, item.contents)
    if end.update is not None:
        size += change_details(tx, item.lease.scope, thread.key, end.update)
    if thread.has_viewers:
        tx.do("DELETE FROM aguila.viewers WHERE run = $1", thread.run)
    tx.do(
        _CLOSE_RUN,
        thread.run,
        end.outcome,
        close.last,
        close.ended_at,
        None if turn is None else turn.format,
        None if turn is None else turn.body,
    )
    return size


def _close_thread(tx: Tx, thread: _OpenThread, scope: str, plan: rules.WritePlan, usage: dict[str, Usage]) -> None:
    assert plan.close is not None  # noqa: S101
    tx.do(
        _CLOSE_THREAD,
        scope,
        thread.key,
        plan.close.last,
        plan.close.ended_at,
        thread.bytes,
    )
    grown = Usage(threads=int(thread.counted is None), bytes=thread.bytes - (thread.counted or 0))
    usage[scope] = usage.get(scope, Usage()) + grown


FORGET_SCOPE: Final = """
DELETE FROM aguila.usage WHERE kind = 0 AND scope = $1 AND threads = 0 AND files = 0 AND bytes = 0
"""


def count_usage(tx: Tx, slot: int, usage: dict[str, Usage]) -> None:
    """Add to what scopes hold, and to what the store holds. The last statement of a group, and sorted: no deadlocks."""
    changed = sorted(usage.items())
    if changed:
        tx.many(COUNT, [(0, scope, slot, one.threads, one.files, one.bytes) for scope, one in changed])
        count_total(tx, slot, sum(usage.values(), Usage()))
        emptied = [(scope,) for scope, one in changed if one.threads < 0 or one.files < 0]
        if emptied:  # the name of a scope that holds nothing does not stay
            tx.many(FORGET_SCOPE, emptied)


def count_total(tx: Tx, slot: int, usage: Usage) -> None:
    """Add to what the store holds."""
    tx.do(COUNT, 1, "", slot, usage.threads, usage.files, usage.bytes)


def change_details(tx: Tx, scope: str, thread: int, update: ThreadUpdate) -> int:
    """Change title, metadata and archived flag; return by how many bytes the thread grows. The caller counts them."""
    size = 0
    row = tx.row("SELECT title, metadata FROM aguila.details WHERE thread = $1", thread)
    old: tuple[str | None, bytes | None] = (None, None) if row is None else (row[0], row[1])
    new = rules.change_details(*old, update)
    if new != old:
        tx.do(
            """
            INSERT INTO aguila.details (thread, title, metadata) VALUES ($1, $2, $3)
            ON CONFLICT (thread) DO UPDATE SET title = excluded.title, metadata = excluded.metadata
            """,
            thread,
            *new,
        )
        if new[1] != old[1]:
            tx.do("DELETE FROM aguila.members WHERE thread = $1", thread)
            put_members(tx, scope, thread, new[1])
        size = size_of_details(*new) - size_of_details(*old)
    if update.archived is not msgspec.UNSET:
        tx.do("UPDATE aguila.threads SET archived = $2 WHERE key = $1", thread, int(update.archived))
    return size


def put_members(tx: Tx, scope: str, thread: int, metadata: bytes | None) -> None:
    """Index the metadata of a thread."""
    members = hash_members(scope, metadata)
    if members:
        tx.many("INSERT INTO aguila.members (member, thread) VALUES ($1, $2)", [(member, thread) for member in members])


# Take over

_SET_OWNER: Final = """
UPDATE aguila.runs SET owner = $2, epoch = $3, token = $4, lock = $5, lease_seconds = $6, lease_until = $7
WHERE key = $1
"""


def take_over(
    tx: Tx, owner: str, seconds: float, only: RunKey | None, limit: int, lock: str | None, tokens: set[str]
) -> list[Taken]:
    """Give lost runs to a new owner, who holds ``lock``.

    ``tokens`` are of the leases that an earlier attempt of this call may have stored; those of this one are added.
    """

    def plan_for(run: RunRecord, *, is_dead: bool) -> rules.TakePlan | None:
        is_only = only is not None
        return rules.take_over(
            run, owner=owner, seconds=seconds, lease_now=tx.lease_now, is_dead=is_dead, is_only=is_only
        )

    if only is None:
        # Lasts longer than it was made for: the machine was started again, or the clock of the database was set back.
        tx.do("UPDATE aguila.viewers SET until = $1 + seconds WHERE until > $1 + seconds", tx.lease_now)
        # Sorted here: with an ORDER BY, SQLite would scan all threads in that order instead of the index of open runs.
        rows = sorted(tx.rows(reads.OPEN_RUNS + "WHERE t.running IS NOT NULL"), key=itemgetter(0, 1))
    else:
        rows = tx.rows(
            reads.OPEN_RUNS + "WHERE t.scope = $1 AND t.thread_id = $2 AND r.run_id = $3",
            only.scope,
            only.thread_id,
            only.run_id,
        )
    dead: dict[tuple[str, str | None], bool] = {}
    taken: list[Taken] = []
    for row in rows:
        *_, key, thread, old_lock, launch, old_seconds, token = row
        run = reads.run_record(row)
        if token in tokens:  # an earlier commit's answer was lost
            taken.append(Taken(lease=_lease_of(run, token), run=run, launch=launch))
            continue
        if len(taken) >= limit:
            break
        if run.lease_until > tx.lease_now + old_seconds:  # the machine was started again
            run = msgspec.structs.replace(run, lease_until=tx.lease_now + old_seconds)
            tx.do("UPDATE aguila.runs SET lease_until = $2 WHERE key = $1", key, run.lease_until)
        old_owner = (run.owner, old_lock)
        if old_owner not in dead:
            dead[old_owner] = tx.is_dead(*old_owner)
        if plan_for(run, is_dead=dead[old_owner]) is None:
            continue
        tx.lock_thread(run.scope, run.thread_id)
        again = tx.row(reads.OPEN_RUNS + "WHERE t.key = $1 AND r.key = $2", thread, key)
        if again is None or again[-1] != token:  # another process was faster
            continue
        plan = plan_for(reads.run_record(again), is_dead=dead[old_owner])
        if plan is None:
            continue
        lease = plan.lease
        tokens.add(lease.token)
        tx.do(_SET_OWNER, key, owner, lease.epoch, lease.token, lock, plan.lease_seconds, plan.lease_until)
        tx.do("UPDATE aguila.threads SET epoch = $2 WHERE key = $1", thread, lease.epoch)
        taken.append(Taken(lease=lease, run=reads.run_record(again), launch=launch))
    return taken


def _lease_of(run: RunRecord, token: str) -> Lease:
    return Lease(
        scope=run.scope, thread_id=run.thread_id, run_id=run.run_id, epoch=run.epoch, owner=run.owner, token=token
    )


# Tell


def tell(tx: Tx, key: RunKey, message: Message, lock: str | None) -> RunRecord:
    """Record a message for the owner of a run; return the run. Raises ``NotFound``."""
    tx.lock_thread(key.scope, key.thread_id)
    row = tx.row(
        """
        SELECT r.key FROM aguila.threads t JOIN aguila.runs r ON r.thread = t.key
        WHERE t.scope = $1 AND t.thread_id = $2 AND r.run_id = $3
        """,
        key.scope,
        key.thread_id,
        key.run_id,
    )
    if row is None:
        raise refusals.no_run(key.thread_id, key.run_id)
    run = reads.read_run(tx, row[0])
    if not run.is_running:
        return run
    if isinstance(message, Watch):
        _watch(tx, row[0], message, lock)
        return run
    cancel = rules.answer_cancel(run, message)
    if cancel != run.cancel:
        tx.do("UPDATE aguila.runs SET cancel = $2 WHERE key = $1", row[0], reads.CANCEL[cancel])
    return msgspec.structs.replace(run, cancel=cancel)


def _watch(tx: Tx, run: int, message: Watch, lock: str | None) -> None:
    if message.seconds > 0:
        tx.do(
            """
            INSERT INTO aguila.viewers (run, viewer, until, seconds, lock) VALUES ($1, $2, $3, $4, $5)
            ON CONFLICT (run, viewer) DO UPDATE SET until = excluded.until, seconds = excluded.seconds,
              lock = excluded.lock
            """,
            run,
            message.viewer,
            tx.lease_now + message.seconds,
            message.seconds,
            lock,
        )
    else:  # the row stays until the run closes, because it holds the time of this call
        tx.do(
            "UPDATE aguila.viewers SET until = $3 WHERE run = $1 AND viewer = $2 AND until > $3",
            run,
            message.viewer,
            tx.lease_now,
        )
