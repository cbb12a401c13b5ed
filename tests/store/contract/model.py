"""A minimal model of a store, and random operations that compare a real store with it."""

from __future__ import annotations

import random
from typing import Any

from msgspec.structs import replace

from aguila.errors import StoreError
from aguila.store import Lease, NewRun, Retention, RunEnd, RunRecord, Store

LEASE = 30.0


class _Run:
    def __init__(self, lease: Lease, first: int, until: float) -> None:
        self.lease = lease
        self.first = first
        self.until = until
        self.last = first
        self.outcome: str | None = None
        self.cancel = False


class _Thread:
    def __init__(self, before: int) -> None:
        self.before = before  # the number before the first event
        self.log: list[bytes] = []
        self.tokens: list[str] = []  # of each event
        self.runs: dict[str, _Run] = {}
        self.interrupts: dict[str, list[Any]] = {}  # id -> [status, claimed by]
        self.session: bytes | None = None
        self.effects: dict[str, bytes] = {}
        self.touched = 0

    @property
    def last(self) -> int:
        return self.before + len(self.log)

    @property
    def open(self) -> _Run | None:
        return next((run for run in self.runs.values() if run.outcome is None), None)


class Model:
    """The operations of a store. A refusal is the name of the error."""

    def __init__(self, clock: Any) -> None:
        self.clock = clock
        self.threads: dict[tuple[str, str], _Thread] = {}
        self.removed: dict[tuple[str, str], int] = {}
        self.ticks = 0

    def touch(self, thread: _Thread) -> None:
        self.ticks += 1
        thread.touched = self.ticks

    def begin(self, scope: str, thread_id: str, run_id: str, owner: str, event: bytes, claims: list[str]) -> Any:
        thread = self.threads.get((scope, thread_id)) or _Thread(self.removed.get((scope, thread_id), -1) + 1)
        if run_id in thread.runs:
            return "RunExists"
        if thread.open is not None:
            return "ThreadBusy"
        if any(thread.interrupts.get(name, [""])[0] != "open" for name in claims):
            return "InterruptTaken"
        self.threads[scope, thread_id] = thread
        for name in claims:
            thread.interrupts[name] = ["claimed", run_id]
        lease = Lease(scope=scope, thread_id=thread_id, run_id=run_id, epoch=1, owner=owner)
        thread.log.append(event)
        thread.runs[run_id] = _Run(lease, thread.last, self.clock.now + LEASE)
        self.touch(thread)
        return lease

    def held(self, lease: Lease) -> tuple[_Thread, _Run] | None:
        thread = self.threads.get((lease.scope, lease.thread_id))
        run = None if thread is None else thread.runs.get(lease.run_id)
        if thread is None or run is None or run.outcome is not None or run.lease != lease:
            return None
        return thread, run

    def append(self, lease: Lease, events: list[bytes], end: RunEnd | None) -> Any:
        held = self.held(lease)
        if held is None:
            return "StaleLease"
        thread, run = held
        if end is not None and self.settle(lease, list(end.settles)) is not None:
            return "InterruptTaken"
        thread.log += events
        thread.tokens += [lease.token] * len(events)
        run.last = thread.last
        if end is not None:
            self.touch(thread)
        if end is None:
            if run.until <= self.clock.now:
                run.until = self.clock.now + LEASE
        else:
            run.outcome = end.outcome
            self.reopen(thread, lease.run_id)
            for name, _ in end.interrupts:
                thread.interrupts.pop(name, None)
                thread.interrupts[name] = ["open", None]
            if end.session is not None:
                thread.session = end.session
        return thread.last

    def reopen(self, thread: _Thread, run_id: str) -> None:
        for name, (status, claimed_by) in thread.interrupts.items():
            if status == "claimed" and claimed_by == run_id:
                thread.interrupts[name] = ["open", None]

    def settle(self, lease: Lease, names: list[str]) -> Any:
        held = self.held(lease)
        if held is None:
            return "StaleLease"
        if any(held[0].interrupts.get(name, ["", None])[1] != lease.run_id for name in names):
            return "InterruptTaken"
        for name in names:
            held[0].interrupts[name][0] = "settled"
        return None

    def take_over(self, lease: Lease, owner: str) -> Lease | None:
        held = self.held(lease)
        if held is None or held[1].until > self.clock.now:
            return None
        thread, run = held
        run.lease = Lease(
            scope=lease.scope, thread_id=lease.thread_id, run_id=lease.run_id, epoch=lease.epoch + 1, owner=owner
        )
        run.until = self.clock.now + LEASE
        self.reopen(thread, lease.run_id)
        return run.lease

    def delete(self, key: tuple[str, str]) -> Any:
        if key not in self.threads:
            return "NotFound"
        if self.threads[key].open is not None:
            return "ThreadBusy"
        self.removed[key] = self.threads.pop(key).last
        return None


async def _outcome(call: Any) -> Any:
    try:
        return await call
    except StoreError as error:
        return type(error).__name__


async def _compare(store: Store, model: Model, scope: str, thread_id: str) -> None:
    thread = model.threads.get((scope, thread_id))
    if thread is None:
        assert await _outcome(store.thread(scope, thread_id)) == "NotFound"
        return
    batches = await store.read(scope, thread_id, limit=1_000_000)
    assert [event for batch in batches for event in batch.events] == thread.log
    tokens = [batch.token for batch in batches for _ in batch.events]
    assert tokens == thread.tokens
    for number in range(max(thread.before + 1, thread.last - 3), thread.last + 1):
        assert await store.token(scope, thread_id, number) == tokens[number - thread.before - 1]
    assert [run.token for run in await store.runs(scope, thread_id)] == [
        tokens[run.last - thread.before - 1] for run in thread.runs.values()
    ]
    assert (await store.thread(scope, thread_id)).token == tokens[-1]
    assert not batches or batches[0].first == thread.before + 1
    assert await store.last(scope, thread_id) == thread.last
    assert [
        (run.run_id, run.first, run.last, run.outcome, run.epoch, run.owner, run.lease_until, run.cancel_requested)
        for run in await store.runs(scope, thread_id)
    ] == [
        (name, run.first, run.last, run.outcome, run.lease.epoch, run.lease.owner, run.until, run.cancel)
        for name, run in thread.runs.items()
    ]
    assert [(i.interrupt_id, i.status, i.claimed_by) for i in await store.interrupts(scope, thread_id)] == [
        (name, status, claimed_by) for name, (status, claimed_by) in thread.interrupts.items()
    ]
    assert await store.session(scope, thread_id) == thread.session
    assert await store.recorded(scope, thread_id, "root") == thread.effects


async def play(store: Store, clock: Any, rng: random.Random, steps: int) -> None:
    """Apply random operations to a store and to its model; compare every result and the stored data."""
    model = Model(clock)
    leases: list[Lease] = []
    names = ["i1", "i2", "i3"]
    for step in range(steps):
        scope, thread_id = rng.choice("ab"), rng.choice("tuv")
        owner = rng.choice("xy")
        event = b'{"step":%d}' % step
        lease = rng.choice(leases[-6:]) if leases else None
        match rng.randrange(12):
            case 0 | 1 | 2:
                run_id = f"r{rng.randrange(30)}"
                claims = rng.sample(names, rng.choice([0, 0, 1, 2]))
                found = await _outcome(
                    store.begin(NewRun(
                        scope, thread_id, run_id, owner=owner, lease_seconds=LEASE, input=b"{}", fingerprint="f",
                        events=[event], claims=claims,
                    ))
                )  # fmt: skip
                expected = model.begin(scope, thread_id, run_id, owner, event, claims)
                if not isinstance(found, str):
                    leases.append(found[0])
                    expected = replace(expected, token=found[0].token)
                    found = found[0]
                    model.threads[scope, thread_id].runs[run_id].lease = found
                    model.threads[scope, thread_id].tokens.append(found.token)
                assert found == expected
            case 3 | 4 | 5 if lease is not None:
                events = [event] * rng.randrange(4)
                found = await _outcome(store.append(lease, events))
                expected = model.append(lease, events, None)
                assert (found if isinstance(found, str) else found.last) == expected
            case 6 | 7 if lease is not None:
                raised = rng.sample(names, rng.choice([0, 1, 2]))
                end = RunEnd(
                    outcome=rng.choice(["success", "interrupt", "error", "cancelled"]),
                    interrupts=[(name, b"{}") for name in raised],
                    session=rng.choice([None, event]),
                    settles=rng.sample(names, rng.choice([0, 0, 1, 2])),
                )
                found = await _outcome(store.append(lease, [event], end=end))
                expected = model.append(lease, [event], end)
                assert (found if isinstance(found, str) else found.last) == expected
            case 8 if lease is not None:
                settled = rng.sample(names, rng.randrange(3))
                assert await _outcome(store.settle(lease, settled)) == model.settle(lease, settled)
                held = model.held(lease)
                found = await _outcome(store.record(lease, "root", rng.choice("kl"), event))
                assert found == ("StaleLease" if held is None else None)
                if held is not None:
                    held[0].effects = await store.recorded(lease.scope, lease.thread_id, "root")
            case 9:
                clock.now += rng.choice([1.0, LEASE / 2, LEASE])
                expired: list[RunRecord] = list(await store.expired())
                assert {(run.scope, run.thread_id, run.run_id) for run in expired} == {
                    (*key, name)
                    for key, thread in model.threads.items()
                    for name, run in thread.runs.items()
                    if run.outcome is None and run.until <= clock.now
                }
                if expired:
                    run = rng.choice(expired)
                    old = model.threads[run.scope, run.thread_id].runs[run.run_id].lease
                    taken = await store.take_over(run, owner=owner, lease_seconds=LEASE)
                    expected = model.take_over(old, owner)
                    if taken is not None and expected is not None:
                        expected = replace(expected, token=taken.token)
                        model.threads[run.scope, run.thread_id].runs[run.run_id].lease = taken
                        leases.append(taken)
                    assert taken == expected
            case 10:
                key = (scope, thread_id)
                open_run = model.threads[key].open if key in model.threads else None
                if open_run is not None:
                    open_run.cancel = True
                    await store.request_cancel(scope, thread_id, open_run.lease.run_id)
                elif rng.random() < 0.3:
                    assert await _outcome(store.delete_thread(*key)) == model.delete(key)
            case _:
                assert await store.prune(Retention(max_threads=100)) == 0
        await _compare(store, model, scope, thread_id)
        if lease is not None:
            await _compare(store, model, lease.scope, lease.thread_id)
        listed = [summary.thread_id for summary in await store.threads(scope)]
        mine = {key[1]: thread for key, thread in model.threads.items() if key[0] == scope}
        assert set(listed) == set(mine)
        assert (await store.usage(scope)).threads == len(mine)
        # An append may move a thread whose run is open.
        closed = [name for name in listed if mine[name].open is None]
        assert closed == sorted(closed, key=lambda name: mine[name].touched, reverse=True)
