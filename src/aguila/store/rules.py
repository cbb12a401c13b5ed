"""What may be written to a thread: the states of a run, its lease and an interrupt, as tables and pure functions.

Two rules hold for this file. Everything that decides whether a write is allowed lives here. Nothing here reads a
database: a store loads a *head* (what the thread is like now), calls a function, and writes the *plan* that it returns,
in one transaction or by compare-and-set. A refusal is raised before anything is written.

    begin(head, new, now)                          -> BeginPlan
    write(head, lease, change, now, lease_now)     -> WritePlan
    take_over(run, owner=..., seconds=..., ...)    -> TakePlan | None
    answer_cancel(run, message)                    -> CancelRequest | None
    check_delete(running)

``scripts/state_tables.py`` writes the tables into ARCHITECTURE.md.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from collections.abc import Set as AbstractSet
from enum import StrEnum
from typing import Final

import msgspec

from aguila.errors import StoreError
from aguila.store import refusals
from aguila.store.cursors import new_token
from aguila.store.encoding import check_ids, to_milliseconds
from aguila.store.records import (
    UNOWNED,
    AnswerCancel,
    Batch,
    Cancel,
    CancelRequest,
    Effect,
    InterruptRecord,
    InterruptStatus,
    Lease,
    Message,
    NewRun,
    Outcome,
    RunChange,
    RunEnd,
    RunRecord,
    ThreadUpdate,
    Usage,
)

# States


class RunState(StrEnum):
    """Whether a run exists, and who may write to it."""

    ABSENT = "absent"
    WAITING = "waiting"  # open, without an owner
    OWNED = "owned"  # open; its owner holds the lease
    LOST = "lost"  # open; the lease has expired, or the owner is dead
    CLOSED = "closed"


class RunAction(StrEnum):
    """What changes the state of a run."""

    BEGIN = "begin"
    BEGIN_UNOWNED = "begin without an owner"
    WRITE = "write"
    END = "write with end"
    TAKE_OVER = "take_over"
    TAKE_OVER_ONLY = "take_over(only=run)"
    TIME_OR_DEATH = "the lease expires, or the owner dies"


RUN_TABLE: Final[Mapping[RunState, Mapping[RunAction, RunState]]] = {
    RunState.ABSENT: {
        RunAction.BEGIN: RunState.OWNED,
        RunAction.BEGIN_UNOWNED: RunState.WAITING,
    },
    RunState.WAITING: {
        RunAction.TAKE_OVER_ONLY: RunState.OWNED,
        RunAction.TIME_OR_DEATH: RunState.LOST,
    },
    RunState.OWNED: {
        RunAction.WRITE: RunState.OWNED,
        RunAction.END: RunState.CLOSED,
        RunAction.TIME_OR_DEATH: RunState.LOST,
    },
    RunState.LOST: {
        RunAction.WRITE: RunState.OWNED,  # the owner was only slow: nobody has taken the run over
        RunAction.END: RunState.CLOSED,
        RunAction.TAKE_OVER: RunState.OWNED,
        RunAction.TAKE_OVER_ONLY: RunState.OWNED,
    },
    RunState.CLOSED: {},
}
"""An action that is not in the row of a state is refused, or has no effect."""


class LeaseState(StrEnum):
    """Whether the holder of a lease may write."""

    VALID = "valid"
    EXPIRED = "expired"  # may be taken over, and may still be used
    STALE = "stale"  # never valid again


class LeaseEvent(StrEnum):
    """What changes the state of a lease."""

    TIME = "its length has passed"
    RENEWED = "write with events or lease_seconds"
    TAKEN = "take_over"
    ENDED = "the run ends"


LEASE_TABLE: Final[Mapping[LeaseState, Mapping[LeaseEvent, LeaseState]]] = {
    LeaseState.VALID: {
        LeaseEvent.TIME: LeaseState.EXPIRED,
        LeaseEvent.RENEWED: LeaseState.VALID,
        LeaseEvent.TAKEN: LeaseState.STALE,  # only if the owner is known to be dead
        LeaseEvent.ENDED: LeaseState.STALE,
    },
    LeaseState.EXPIRED: {
        LeaseEvent.RENEWED: LeaseState.VALID,
        LeaseEvent.TAKEN: LeaseState.STALE,
        LeaseEvent.ENDED: LeaseState.STALE,
    },
    LeaseState.STALE: {},
}


class InterruptAction(StrEnum):
    """What changes the status of an interrupt."""

    CLAIM = "begin(claims)"
    SETTLE = "write(settles)"
    REOPEN = "the claiming run ends"
    RAISE = "write(end) raises the id"


INTERRUPT_TABLE: Final[Mapping[InterruptStatus, Mapping[InterruptAction, InterruptStatus]]] = {
    "open": {InterruptAction.CLAIM: "claimed", InterruptAction.RAISE: "open"},
    "claimed": {
        InterruptAction.SETTLE: "settled",
        InterruptAction.REOPEN: "open",
        InterruptAction.RAISE: "open",
    },
    "settled": {InterruptAction.SETTLE: "settled", InterruptAction.RAISE: "open"},  # settling may be repeated
}
"""Only the run that claimed an interrupt may settle it; a raised id is a new interrupt, the newest of its thread."""

# Begin


class Head(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """A thread before a run begins, with what its scope and the store hold.

    Of a thread that does not exist, set only ``first``, and what its scope and the store hold.
    """

    agent: str | None = None
    """The agent of the thread; None if there is no thread."""
    first: int = 1
    """The number of its first event; of a thread that does not exist, ``next_first``."""
    last: int = 0
    """The number of its newest event; 0 if there is no thread."""
    runs: int = 0
    """The number of its newest run."""
    running: RunRecord | None = None
    """Its open run."""
    same: RunRecord | None = None
    """The run with the id of the new one."""
    open_interrupts: AbstractSet[str] = frozenset()
    """The ids of its open interrupts. Needed only if the new run has ``claims`` or ``waiting``."""
    running_in_scope: int = 0
    """How many runs of the scope are open. Needed only with ``max_running``."""
    usage: Usage = Usage()
    """What the scope holds, with the writes of open runs. Needed only with ``quotas``."""
    total: Usage = Usage()
    """What the store holds. Needed only if ``quotas.is_total``."""


class BeginPlan(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """What ``begin`` writes: the thread's new last number, its open run, the log and the claims."""

    new: NewRun
    lease: Lease
    batch: Batch
    number: int
    """The number of the run."""
    first: int
    """The number of the first event of the thread."""
    creates_thread: bool
    now: float

    def record(self, lease_until: float) -> RunRecord:
        """Return the run as it is stored. ``lease_until`` is ``new.lease_seconds`` from now, on the clock of leases."""
        new = self.new
        return RunRecord(
            scope=new.scope,
            thread_id=new.thread_id,
            run_id=new.run_id,
            number=self.number,
            parent_run_id=new.parent_run_id,
            sent_run_id=new.sent_run_id,
            agent=new.agent,
            fingerprint=new.fingerprint,
            first=self.batch.first,
            last=self.batch.last,
            outcome=None,
            owner=new.owner,
            epoch=1,
            lease_until=lease_until,
            cancel=None,
            started_at=self.now,
            ended_at=None,
            token=new.token,
        )


def next_first(removed_last: int | None) -> int:
    """Return the number of the first event of a new thread. ``removed_last`` is of a removed thread with its id.

    It is above the next number of that thread, too: a cursor of an event that was being written is not valid either.
    """
    return 1 if removed_last is None else removed_last + 2


def _other_agent(head: Head, new: NewRun) -> StoreError | None:
    if head.agent is not None and head.agent != new.agent:
        return refusals.agent_mismatch(new.thread_id, head.agent)
    return None


def _run_exists(head: Head, new: NewRun) -> StoreError | None:
    return None if head.same is None else refusals.run_exists(head.same)


def _thread_busy(head: Head, new: NewRun) -> StoreError | None:
    return None if head.running is None else refusals.thread_busy(head.running)


def _too_many_runs(head: Head, new: NewRun) -> StoreError | None:
    if new.max_running is not None and head.running_in_scope >= new.max_running:
        return refusals.too_many_runs(head.running_in_scope)
    return None


def _quota_exceeded(head: Head, new: NewRun) -> StoreError | None:
    if new.quotas is None:
        return None
    exceeded = new.quotas.find_exceeded(head.usage, head.total, new=Usage(threads=head.agent is None, bytes=1))
    return None if exceeded is None else refusals.quota_exceeded(exceeded)


def _thread_continued(head: Head, new: NewRun) -> StoreError | None:
    if new.after is not None and new.after != head.last:
        return refusals.thread_continued(new.thread_id)
    return None


def _interrupt_raised(head: Head, new: NewRun) -> StoreError | None:
    if new.waiting is not None and (raised := head.open_interrupts - new.waiting):
        return refusals.thread_moved(min(raised))
    return None


def _interrupt_taken(head: Head, new: NewRun) -> StoreError | None:
    for interrupt_id in new.claims:
        if interrupt_id not in head.open_interrupts:
            return refusals.interrupt_not_open(interrupt_id)
    return None


BEGIN_REFUSALS: Final[Mapping[str, Callable[[Head, NewRun], StoreError | None]]] = {
    "AgentMismatch: the thread belongs to another agent": _other_agent,
    "RunExists: the run id was used on this thread": _run_exists,
    "ThreadBusy: the thread has an open run": _thread_busy,
    "TooManyRuns: max_running runs of the scope are open": _too_many_runs,
    "QuotaExceeded: the scope or the store holds as much as quotas allows": _quota_exceeded,
    "ThreadMoved: the last event is not after": _thread_continued,
    "ThreadMoved: an interrupt is open that is not in waiting": _interrupt_raised,
    "InterruptTaken: a claimed interrupt is not open": _interrupt_taken,
}
"""The reasons to refuse a run, in order. The first that applies is raised."""
_BEGIN_CHECKS: Final = tuple(BEGIN_REFUSALS.values())


def check_new(new: NewRun) -> None:
    """Raise ``ValueError`` for a run that no store can keep."""
    check_ids(new.scope, new.thread_id, new.run_id)
    if not new.events:
        raise ValueError("a run begins with at least one event")


def begin(head: Head, new: NewRun, now: float) -> BeginPlan:
    """Plan the begin of a run. Raises the first of ``BEGIN_REFUSALS`` that applies.

    If ``Head.same`` began with the token of the new run, the call is repeated: the store returns what it stored, and
    does not call this.
    """
    for check in _BEGIN_CHECKS:
        refusal = check(head, new)
        if refusal is not None:
            raise refusal
    first = head.first if head.agent is None else head.last + 1
    return BeginPlan(
        new=new,
        lease=new.lease,
        batch=Batch(first, tuple(new.events), to_milliseconds(now), new.token),
        number=head.runs + 1,
        first=head.first,
        creates_thread=head.agent is None,
        now=now,
    )


# Write


class RunHead(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """The open run of a thread before its owner writes. A thread without an open run has none."""

    run_id: str
    epoch: int
    token: str
    """The token of its lease; ``RunRecord.token`` is that of its last event."""
    last: int
    """The number of the newest event of the thread."""
    lease_until: float
    lease_seconds: float
    cancel: CancelRequest | None = None
    claims: Mapping[str, InterruptStatus] = {}
    """The interrupts that the run claimed, those that it settled too, by their ids.

    Needed only for a change that settles, or ends the run.
    """

    def holds(self, lease: Lease) -> bool:
        """Return whether this lease may write."""
        return self.token == lease.token and self.epoch == lease.epoch and self.run_id == lease.run_id


class ClosePlan(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """What the end of a run writes besides its events and ``RunEnd``. Its viewers and launch bytes are removed."""

    last: int
    ended_at: float
    reopens: Sequence[str]
    """Interrupts that the run claimed and did not settle."""
    raises: Sequence[InterruptRecord]
    """New interrupts. One that has the id of an older one replaces it, and is the newest of the thread."""


class WritePlan(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """What ``write`` writes besides ``RunChange.settles`` and ``RunChange.session``."""

    batch: Batch
    """The events to append; none if there are none."""
    updated_at: float | None
    """The new time of the last update of the thread; None if there are no events."""
    lease_seconds: float
    lease_until: float | None
    """The new expiry of the lease; None if it stays."""
    effects: Sequence[Effect]
    """With the epoch of the lease. See ``merge_effect`` for one that is stored already."""
    close: ClosePlan | None
    head: RunHead | None
    """The head after this write; None if it ends the run."""


def write(head: RunHead | None, lease: Lease, change: RunChange, now: float, lease_now: float) -> WritePlan:
    """Plan a write of an owner. Raises ``StaleLease``, ``InterruptTaken``.

    The store has looked for a repeated call before (``is_repeated``): this appends after the newest event.
    """
    if head is None or not head.holds(lease):
        raise refusals.stale_lease(lease)
    for interrupt_id in change.settles:
        if interrupt_id not in head.claims:
            raise refusals.interrupt_not_claimed(interrupt_id, lease.run_id)
    events = change.events
    batch = Batch(head.last + 1, tuple(events), to_milliseconds(now), lease.token)
    seconds, until = head.lease_seconds, None
    if change.lease_seconds is not None:
        seconds = change.lease_seconds
        until = lease_now + seconds
    elif events and head.lease_until <= lease_now:  # expired, but not taken over
        until = lease_now + seconds
    close = None if change.end is None else _close(head, lease, change, change.end, batch.last, now)
    return WritePlan(
        batch=batch,
        updated_at=now if events else None,
        lease_seconds=seconds,
        lease_until=None if close is not None else until,
        effects=[msgspec.structs.replace(effect, epoch=lease.epoch) for effect in change.effects],
        close=close,
        head=None
        if close is not None
        else RunHead(
            run_id=head.run_id,
            epoch=head.epoch,
            token=head.token,
            last=batch.last,
            lease_until=head.lease_until if until is None else until,
            lease_seconds=seconds,
            cancel=head.cancel,
            claims={**head.claims, **dict.fromkeys(change.settles, "settled")} if change.settles else head.claims,
        ),
    )


def _close(head: RunHead, lease: Lease, change: RunChange, end: RunEnd, last: int, now: float) -> ClosePlan:
    settled = set(change.settles)
    raised = dict(end.interrupts)  # an id that is raised twice counts once
    return ClosePlan(
        last=last,
        ended_at=now,
        reopens=[id_ for id_, status in head.claims.items() if status == "claimed" and id_ not in settled],
        raises=[
            InterruptRecord(interrupt_id=id_, run_id=lease.run_id, status="open", body=body)
            for id_, body in raised.items()
        ],
    )


def is_repeated(change: RunChange, lease: Lease, stored: Sequence[Batch], outcome: Outcome | None) -> bool:
    """Return whether a write was stored before. The store calls this before ``write``.

    It is needed if the run of the lease is closed, or ``change.after`` is not None and not the last event.
    ``stored`` are the batches after ``change.after``, as many events as ``change`` has; ``outcome`` is of the run whose
    last lease this is. An end without events was stored if the run has its outcome and ends with ``change.after``.
    """
    if not change.events:
        return change.end is not None and outcome == change.end.outcome
    events = [event for batch in stored for event in batch.events]
    return (
        change.after is not None
        and len(events) > 0
        and stored[0].first == change.after + 1
        and events == list(change.events)
        and all(batch.token == lease.token for batch in stored)
        and (change.end is None or outcome == change.end.outcome)
    )


def merge_effect(stored: Effect | None, new: Effect) -> Effect:
    """Return the effect to keep: a result is never replaced, a beginning is replaced by a later one or a result."""
    return new if stored is None or stored.value is None else stored


def change_details(title: str | None, metadata: bytes | None, update: ThreadUpdate) -> tuple[str | None, bytes | None]:
    """Return the title and the metadata of a thread after an update."""
    new_title = title if update.title is msgspec.UNSET else update.title
    if new_title is None and update.default_title is not msgspec.UNSET:
        new_title = update.default_title
    return new_title, metadata if update.metadata is msgspec.UNSET else update.metadata


# Take over, tell, delete


class TakePlan(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """What ``take_over`` writes to a run. Its claims stay: the new owner continues with the same answers."""

    lease: Lease
    lease_seconds: float
    lease_until: float


def take_over(
    run: RunRecord, *, owner: str, seconds: float, lease_now: float, is_dead: bool, is_only: bool = False
) -> TakePlan | None:
    """Plan to give an open run to a new owner; None if it is not lost, or belongs to this owner.

    ``is_dead``: its owner is known to be dead. ``is_only``: the caller named this run.
    """
    is_lost = run.lease_until <= lease_now or is_dead or (is_only and run.owner == UNOWNED)
    if not run.is_running or run.owner == owner or not is_lost:
        return None
    lease = Lease(
        scope=run.scope,
        thread_id=run.thread_id,
        run_id=run.run_id,
        epoch=run.epoch + 1,
        owner=owner,
        token=new_token(),
    )
    return TakePlan(lease=lease, lease_seconds=seconds, lease_until=lease_now + seconds)


def answer_cancel(run: RunRecord, message: Message) -> CancelRequest | None:
    """Return the cancel request of a run after a message."""
    if not run.is_running or run.cancel == "always":
        return run.cancel
    if isinstance(message, Cancel):
        return "unwatched" if message.unwatched else "always"
    if isinstance(message, AnswerCancel) and run.cancel == "unwatched":
        return "always" if message.granted else None
    return run.cancel


def check_delete(running: RunRecord | None) -> None:
    """Raise ``ThreadBusy`` for a thread that has an open run."""
    if running is not None:
        raise refusals.thread_busy(running)
