"""What may be written: the tables of states, the order of refusals, and the plans."""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager, suppress
from itertools import product

import msgspec
import pytest

from aguila.errors import InterruptTaken, NotFound, StaleLease, StoreError
from aguila.store import (
    UNOWNED,
    Effect,
    Lease,
    MemoryStore,
    NewRun,
    Quotas,
    RunChange,
    RunEnd,
    RunKey,
    RunRecord,
    Store,
    Usage,
    rules,
)
from aguila.store.rules import Head, InterruptAction, RunAction, RunHead, RunState
from aguila.testing.store_contract.support import (
    LEASE as SECONDS,
)
from aguila.testing.store_contract.support import (
    Clock,
    append,
    complete,
    finish,
    lines,
    run_of,
    settle,
    start,
    statuses,
)

replace = msgspec.structs.replace

NEW = NewRun(
    scope="s",
    thread_id="t",
    run_id="r2",
    owner="o",
    lease_seconds=30,
    request=b"{}",
    events=[b"1", b"2"],
    claims=["asked"],
    waiting=frozenset({"asked"}),
    after=7,
    max_running=1,
    quotas=Quotas(bytes_per_scope=10),
)
EARLIER = rules.begin(Head(), replace(NEW, run_id="r1", claims=(), waiting=None, after=None), 0.0).record(30.0)
REFUSED = Head(
    agent="another",
    first=1,
    last=8,
    runs=1,
    running=EARLIER,
    same=EARLIER,
    open_interrupts=frozenset({"raised"}),
    running_in_scope=1,
    usage=Usage(bytes=10),
)
"""A thread for which every reason to refuse a run applies."""

MENDED: list[tuple[str, Mapping[str, object]]] = [
    ("AgentMismatch", {"agent": "default"}),
    ("RunExists", {"same": None}),
    ("ThreadBusy", {"running": None}),
    ("TooManyRuns", {"running_in_scope": 0}),
    ("QuotaExceeded", {"usage": Usage(bytes=9)}),
    ("ThreadMoved", {"last": 7}),
    ("ThreadMoved", {"open_interrupts": frozenset()}),
    ("InterruptTaken", {"open_interrupts": frozenset({"asked"})}),
]

RUN = RunHead(run_id="r1", epoch=1, token=EARLIER.token, last=2, lease_until=30.0, lease_seconds=30.0)
LEASE = replace(NEW, run_id="r1", token=EARLIER.token).lease


@asynccontextmanager
async def open_store(clock: Clock) -> AsyncIterator[Store]:
    async with MemoryStore(clock=clock, monotonic=clock.monotonic) as store:
        yield store


async def bring_to(state: RunState, store: Store, clock: Clock) -> Lease:
    """Bring the run ``r`` to a state; return its lease, or one of an absent run."""
    if state is RunState.ABSENT:
        return Lease(scope="a", thread_id="t", run_id="r", epoch=1, owner="o", token="none")
    lease = await start(store, owner=UNOWNED if state is RunState.WAITING else "o")
    if state is RunState.LOST:
        clock.now += SECONDS + 1
    if state is RunState.CLOSED:
        await finish(store, lease)
    return lease


async def state_of_run(store: Store, clock: Clock) -> RunState:
    try:
        run = await run_of(store)
    except NotFound:
        return RunState.ABSENT
    if not run.is_running:
        return RunState.CLOSED
    if run.lease_until <= clock.monotonic():
        return RunState.LOST
    return RunState.WAITING if run.owner == UNOWNED else RunState.OWNED


async def act_on_run(action: RunAction, store: Store, clock: Clock, lease: Lease) -> None:
    match action:
        case RunAction.BEGIN:
            await start(store, owner="p")
        case RunAction.BEGIN_UNOWNED:
            await start(store, owner=UNOWNED)
        case RunAction.WRITE:
            await append(store, lease, lines(1))
        case RunAction.END:
            await finish(store, lease)
        case RunAction.TAKE_OVER:
            await store.take_over("q", SECONDS)
        case RunAction.TAKE_OVER_ONLY:
            await store.take_over("q", SECONDS, only=RunKey("a", "t", "r"))
        case RunAction.TIME_OR_DEATH:
            clock.now += SECONDS + 1


WRITES_OF_NOBODY = [(RunState.WAITING, RunAction.WRITE), (RunState.WAITING, RunAction.END)]
"""Of a run without an owner: no process has its lease."""


@pytest.mark.anyio
@pytest.mark.parametrize(
    ("state", "action"), [pair for pair in product(RunState, RunAction) if pair not in WRITES_OF_NOBODY]
)
async def test_a_run_changes_its_state_as_its_table_says(state: RunState, action: RunAction) -> None:
    clock = Clock()
    async with open_store(clock) as store:
        lease = await bring_to(state, store, clock)
        assert await state_of_run(store, clock) is state
        with suppress(StoreError):
            await act_on_run(action, store, clock, lease)
        assert await state_of_run(store, clock) is rules.RUN_TABLE[state].get(action, state)


@pytest.mark.anyio
@pytest.mark.parametrize("action", InterruptAction)
@pytest.mark.parametrize("status", rules.INTERRUPT_TABLE)
async def test_an_interrupt_changes_its_status_as_its_table_says(status: str, action: InterruptAction) -> None:
    async with open_store(Clock()) as store:
        await complete(store, "t", "asking", "i")
        lease = await start(store, "t", "answering", claims=[] if status == "open" else ["i"])
        if status == "settled":
            await settle(store, lease, "i")
        assert await statuses(store) == {"i": status}
        with suppress(StoreError):
            match action:
                case InterruptAction.CLAIM:
                    if status == "open":
                        await finish(store, lease)
                    await start(store, "t", "another", claims=["i"])
                case InterruptAction.SETTLE:
                    await settle(store, lease, "i")
                case InterruptAction.REOPEN:
                    await finish(store, lease)
                case InterruptAction.RAISE:
                    await finish(store, lease, "i")
        assert await statuses(store) == {"i": rules.INTERRUPT_TABLE[status].get(action, status)}


@pytest.mark.parametrize("table", [rules.RUN_TABLE, rules.LEASE_TABLE, rules.INTERRUPT_TABLE])
def test_every_action_leads_to_a_state_of_its_table(table: Mapping[str, Mapping[str, str]]):
    assert all(target in table for row in table.values() for target in row.values())


def test_the_first_reason_that_applies_is_raised():
    head = REFUSED
    found: list[str] = []
    for _, mended in MENDED:
        with pytest.raises(StoreError) as refusal:
            rules.begin(head, NEW, 0.0)
        found.append(type(refusal.value).__name__)
        head = replace(head, **mended)
    assert found == [name for name, _ in MENDED] == [text.partition(":")[0] for text in rules.BEGIN_REFUSALS]
    plan = rules.begin(head, NEW, 5.0)
    assert (plan.batch.first, plan.batch.last, plan.number, plan.creates_thread) == (8, 9, 2, False)


def test_a_new_thread_starts_above_the_cursors_of_a_removed_one():
    new = replace(NEW, claims=(), waiting=None, after=0)
    assert rules.begin(Head(first=rules.next_first(None)), new, 0.0).batch.first == 1
    assert rules.begin(Head(first=rules.next_first(9)), new, 0.0).batch.first == 11


@pytest.mark.parametrize("changes", [{"epoch": 2}, {"token": "another"}, {"run_id": "r2"}])
def test_a_lease_of_another_run_owner_or_attempt_is_stale(changes: Mapping[str, object]):
    with pytest.raises(StaleLease):
        rules.write(RUN, replace(LEASE, **changes), RunChange(events=[b"1"]), 0.0, 0.0)
    with pytest.raises(StaleLease):
        rules.write(None, LEASE, RunChange(events=[b"1"]), 0.0, 0.0)


def test_a_write_renews_an_expired_lease_only_if_it_has_events():
    assert rules.write(RUN, LEASE, RunChange(events=[b"1"]), 0.0, 29.0).lease_until is None
    assert rules.write(RUN, LEASE, RunChange(events=[b"1"]), 0.0, 31.0).lease_until == 61.0
    assert rules.write(RUN, LEASE, RunChange(), 0.0, 31.0).lease_until is None
    assert rules.write(RUN, LEASE, RunChange(lease_seconds=5.0), 0.0, 10.0).lease_until == 15.0


def test_a_run_settles_only_what_it_has_claimed():
    with pytest.raises(InterruptTaken):
        rules.write(RUN, LEASE, RunChange(settles=["asked"]), 0.0, 0.0)
    head = replace(RUN, claims={"asked": "claimed"})
    plan = rules.write(head, LEASE, RunChange(settles=["asked"]), 0.0, 0.0)
    assert plan.head is not None
    assert plan.head.claims == {"asked": "settled"}
    rules.write(plan.head, LEASE, RunChange(settles=["asked"]), 0.0, 0.0)  # it may be repeated


def test_the_end_of_a_run_opens_the_claims_that_it_did_not_settle():
    head = replace(RUN, claims={"used": "claimed", "before": "settled", "left": "claimed"})
    end = RunEnd(outcome="interrupt", interrupts=[("new", b"1"), ("new", b"2")])
    plan = rules.write(head, LEASE, RunChange(events=[b"1"], settles=["used"], end=end), 9.0, 0.0)
    assert plan.head is None
    assert plan.close is not None
    assert (plan.close.reopens, plan.close.last, plan.close.ended_at) == (["left"], 3, 9.0)
    assert [(one.interrupt_id, one.status, one.body) for one in plan.close.raises] == [("new", "open", b"2")]


def test_a_write_is_repeated_only_with_the_same_numbers_token_bytes_and_outcome():
    change = RunChange(events=[b"1", b"2"], after=2, end=RunEnd(outcome="success"))
    stored = rules.write(RUN, LEASE, change, 0.0, 0.0).batch
    assert rules.is_repeated(change, LEASE, [stored], "success")
    assert not rules.is_repeated(change, LEASE, [stored], "error")
    assert not rules.is_repeated(change, LEASE, [replace(stored, token="another")], "success")
    assert not rules.is_repeated(replace(change, after=1), LEASE, [stored], "success")
    assert not rules.is_repeated(replace(change, events=[b"1", b"3"]), LEASE, [stored], "success")


def test_a_result_of_an_effect_is_never_replaced_and_a_beginning_is():
    begun = Effect(root_run_id="r", name="e", value=None, epoch=1)
    done = replace(begun, value=b"1", epoch=2)
    assert rules.merge_effect(None, begun) is begun
    assert rules.merge_effect(begun, done) is done
    assert rules.merge_effect(done, replace(begun, epoch=3)) is done


def taken(run: RunRecord, *, now: float, is_dead: bool = False, is_only: bool = False, owner: str = "new") -> bool:
    plan = rules.take_over(run, owner=owner, seconds=5, lease_now=now, is_dead=is_dead, is_only=is_only)
    assert plan is None or (plan.lease.epoch, plan.lease_until) == (run.epoch + 1, now + 5)
    return plan is not None


def test_a_run_is_taken_over_if_it_is_lost_and_one_without_an_owner_if_it_is_named():
    assert not taken(EARLIER, now=29)
    assert taken(EARLIER, now=30)
    assert taken(EARLIER, now=0, is_dead=True)
    assert not taken(EARLIER, now=30, owner="o")
    assert not taken(EARLIER, now=0, is_only=True)
    waiting = replace(EARLIER, owner=UNOWNED)
    assert not taken(waiting, now=0)
    assert taken(waiting, now=0, is_only=True)
    assert not taken(replace(EARLIER, outcome="success"), now=30)
