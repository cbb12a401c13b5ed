"""A minimal model of a store, and random operations that compare a real store with it."""

from __future__ import annotations

import random
from collections.abc import Awaitable, Sequence
from typing import Any

from msgspec.structs import replace

from aguila.errors import StoreError
from aguila.store import Cancel, Effect, Lease, NewRun, RunChange, RunEnd, RunKey, Store, ThreadKey, Want, Written
from aguila.testing.store_contract.support import (
    LEASE,
    Clock,
    delete,
    events_of,
    list_threads,
    new_run,
    read,
    sweep,
    token_of,
    usage_of,
)

_NAMES = ("i1", "i2", "i3")
"""Ids of interrupts."""


class _Run:
    def __init__(self, lease: Lease, first: int, until: float) -> None:
        self.lease = lease
        self.first = first
        self.until = until
        self.last = first
        self.outcome: str | None = None
        self.cancel: str | None = None


class _Thread:
    def __init__(self, before: int) -> None:
        self.before = before  # the number before the first event
        self.log: list[bytes] = []
        self.tokens: list[str] = []  # of each event
        self.runs: dict[str, _Run] = {}
        self.interrupts: dict[str, tuple[str, str | None]] = {}  # id -> status, claimed by
        self.session: bytes | None = None
        self.effects: dict[str, bytes] = {}
        self.touched = 0

    @property
    def last(self) -> int:
        return self.before + len(self.log)

    @property
    def open(self) -> _Run | None:
        return next((run for run in self.runs.values() if run.outcome is None), None)

    def append(self, run: _Run, events: Sequence[bytes]) -> None:
        self.log += events
        self.tokens += [run.lease.token] * len(events)
        run.last = self.last


class Model:
    """The operations of a store. A refusal is the name of the error."""

    def __init__(self, clock: Clock) -> None:
        self.clock = clock
        self.threads: dict[ThreadKey, _Thread] = {}
        self.removed: dict[ThreadKey, int] = {}
        self.ticks = 0

    def touch(self, thread: _Thread) -> None:
        """Make a thread the one updated last."""
        self.ticks += 1
        thread.touched = self.ticks

    def begin(self, new: NewRun) -> Lease | str:
        """Begin a run."""
        thread = self.threads.get(new.key) or _Thread(self.removed.get(new.key, -1) + 1)
        if new.run_id in thread.runs:
            return "RunExists"
        if thread.open is not None:
            return "ThreadBusy"
        if any(thread.interrupts.get(name, ("", None))[0] != "open" for name in new.claims):
            return "InterruptTaken"
        self.threads[new.key] = thread
        for name in new.claims:
            thread.interrupts[name] = ("claimed", new.run_id)
        run = thread.runs[new.run_id] = _Run(new.lease, thread.last + 1, self.clock.now + LEASE)
        thread.append(run, new.events)
        self.touch(thread)
        return run.lease

    def held(self, lease: Lease) -> tuple[_Thread, _Run] | None:
        """Return the open run of a lease that is valid."""
        thread = self.threads.get((lease.scope, lease.thread_id))
        run = None if thread is None else thread.runs.get(lease.run_id)
        if thread is None or run is None or run.outcome is not None or run.lease != lease:
            return None
        return thread, run

    def write(self, lease: Lease, change: RunChange) -> int | str:
        """Change a run; return the last number of its thread."""
        held = self.held(lease)
        if held is None:
            return "StaleLease"
        thread, run = held
        if any(thread.interrupts.get(name, ("", None))[1] != lease.run_id for name in change.settles):
            return "InterruptTaken"
        for name in change.settles:
            thread.interrupts[name] = ("settled", lease.run_id)
        for effect in change.effects:
            thread.effects.setdefault(effect.name, effect.value or b"")
        if change.session is not None:
            thread.session = change.session
        thread.append(run, change.events)
        if change.events and change.end is None and run.until <= self.clock.now:
            run.until = self.clock.now + LEASE
        if change.end is not None:
            self.close(thread, run, change.end)
        return thread.last

    def close(self, thread: _Thread, run: _Run, end: RunEnd) -> None:
        """End a run: reopen its claims and raise its interrupts."""
        run.outcome = end.outcome
        self.touch(thread)
        for name, (status, claimed_by) in thread.interrupts.items():
            if status == "claimed" and claimed_by == run.lease.run_id:
                thread.interrupts[name] = ("open", None)
        for name, _ in end.interrupts:
            thread.interrupts.pop(name, None)
            thread.interrupts[name] = ("open", None)

    def lost(self, owner: str) -> dict[RunKey, _Run]:
        """Return the runs that this owner may take over."""
        return {
            RunKey(*key, name): run
            for key, thread in self.threads.items()
            for name, run in thread.runs.items()
            if run.outcome is None and run.until <= self.clock.now and run.lease.owner != owner
        }

    def delete(self, key: ThreadKey) -> str | None:
        """Remove a thread."""
        if key not in self.threads:
            return "NotFound"
        if self.threads[key].open is not None:
            return "ThreadBusy"
        self.removed[key] = self.threads.pop(key).last
        return None


async def _outcome(call: Awaitable[Any]) -> Any:
    try:
        return await call
    except StoreError as error:
        return type(error).__name__


class Player:
    """Random operations on a store and on its model. Every result and all that is stored are compared."""

    def __init__(self, store: Store, clock: Clock, rng: random.Random) -> None:
        self.store = store
        self.clock = clock
        self.rng = rng
        self.model = Model(clock)
        self.leases: list[Lease] = []
        self.stored: tuple[Any, Any] | None = None
        """A write that may be repeated, and its outcome."""

    async def play(self, steps: int) -> None:
        """Do random operations."""
        for step in range(steps):
            scope, thread_id = self.rng.choice("ab"), self.rng.choice("tuv")
            event = b'{"step":%d}' % step
            lease = self.rng.choice(self.leases[-6:]) if self.leases else None
            match self.rng.randrange(12):
                case 0 | 1 | 2:
                    await self.begin(scope, thread_id, event)
                case 3 | 4 | 5 if lease is not None:
                    await self.write(lease, RunChange(events=[event] * self.rng.randrange(4)))
                case 6 | 7 if lease is not None:
                    await self.write(lease, self.ending(event))
                case 8 if lease is not None:
                    effect = Effect(root_run_id="root", name=self.rng.choice("kl"), value=event)
                    settles = self.rng.sample(_NAMES, self.rng.randrange(3))
                    await self.write(lease, RunChange(settles=settles, effects=[effect]))
                case 9:
                    self.clock.now += self.rng.choice([1.0, LEASE / 2, LEASE])
                    await self.take_over(self.rng.choice("xy"))
                case 10:
                    await self.cancel_or_delete(scope, thread_id)
                case _:
                    assert await sweep(self.store, max_threads=100) == 0
                    await self.repeat()
            await self.compare(scope, thread_id)
            if lease is not None:
                await self.compare(lease.scope, lease.thread_id)
            await self.compare_list(scope)

    def ending(self, event: bytes) -> RunChange:
        """Return the end of a run."""
        raised = self.rng.sample(_NAMES, self.rng.choice([0, 1, 2]))
        return RunChange(
            events=[event],
            session=self.rng.choice([None, event]),
            settles=self.rng.sample(_NAMES, self.rng.choice([0, 0, 1, 2])),
            end=RunEnd(
                outcome=self.rng.choice(["success", "interrupt", "error", "cancelled"]),
                interrupts=[(name, b"{}") for name in raised],
            ),
        )

    async def begin(self, scope: str, thread_id: str, event: bytes) -> None:
        new = new_run(
            thread_id,
            f"r{self.rng.randrange(30)}",
            scope=scope,
            owner=self.rng.choice("xy"),
            events=[event],
            claims=self.rng.sample(_NAMES, self.rng.choice([0, 0, 1, 2])),
        )
        found = await _outcome(self.store.begin(new))
        expected = self.model.begin(new)
        assert (found if isinstance(found, str) else found.lease) == expected
        if isinstance(expected, Lease):
            self.leases.append(expected)
            self.stored = (lambda: self.store.begin(new), found)

    async def write(self, lease: Lease, change: RunChange) -> None:
        held = self.model.held(lease)
        if held is not None:
            change = replace(change, after=held[0].last)
        found = await _outcome(self.store.write(lease, change))
        assert (found if isinstance(found, str) else found.batch.last) == self.model.write(lease, change)
        if held is not None and not isinstance(found, str) and change.events:
            assert found.cancel == held[1].cancel
            self.stored = (lambda: self.store.write(lease, change), found)

    async def repeat(self) -> None:
        """Repeat the last begin or write that succeeded. Nothing changes, and the first outcome is returned."""
        if self.stored is not None:
            call, outcome = self.stored
            lease = getattr(outcome, "lease", None)
            if lease is not None and self.model.held(lease) is None:
                return  # a begin is repeated while its run is open and has its first owner
            found = await _outcome(call())
            if isinstance(found, Written):
                assert found.batch == outcome.batch
            elif found != "StaleLease":  # the thread was removed meanwhile
                assert found == outcome

    async def take_over(self, owner: str) -> None:
        lost = self.model.lost(owner)
        taken = await self.store.take_over(owner, LEASE)
        assert {one.run.key for one in taken} == lost.keys()
        for one in taken:
            run = lost[one.run.key]
            assert replace(one.lease, token="") == replace(run.lease, owner=owner, epoch=run.lease.epoch + 1, token="")
            run.lease = one.lease
            run.until = self.clock.now + LEASE
            self.leases.append(one.lease)

    async def cancel_or_delete(self, scope: str, thread_id: str) -> None:
        thread = self.model.threads.get((scope, thread_id))
        run = None if thread is None else thread.open
        if run is not None:
            run.cancel = "always"
            await self.store.tell(RunKey(scope, thread_id, run.lease.run_id), Cancel())
        elif self.rng.random() < 0.3:
            self.stored = None
            assert await _outcome(delete(self.store, thread_id, scope)) == self.model.delete((scope, thread_id))

    async def compare(self, scope: str, thread_id: str) -> None:
        """Compare all that is stored of a thread."""
        store, thread = self.store, self.model.threads.get((scope, thread_id))
        if thread is None:
            assert await _outcome(store.thread(scope, thread_id)) == "NotFound"
            return
        found = await store.thread(
            scope, thread_id, Want(runs=True, interrupts=True, session=True, root_run_id="root", viewers=True)
        )
        batches = await read(store, thread_id, scope=scope, limit=1_000_000)
        assert events_of(batches) == thread.log
        tokens = [batch.token for batch in batches for _ in batch.events]
        assert tokens == thread.tokens
        for number in range(max(thread.before + 1, thread.last - 3), thread.last + 1):
            assert await token_of(store, number, thread_id, scope) == tokens[number - thread.before - 1]
        assert (found.first, found.summary.last, found.summary.token) == (thread.before + 1, thread.last, tokens[-1])
        assert found.summary.running == (None if thread.open is None else thread.open.lease.run_id)
        assert [
            (run.run_id, run.first, run.last, run.outcome, run.epoch, run.owner, run.lease_until, run.cancel_requested)
            for run in found.runs
        ] == [
            (
                name,
                run.first,
                run.last,
                run.outcome,
                run.lease.epoch,
                run.lease.owner,
                run.until,
                run.cancel == "always",
            )
            for name, run in thread.runs.items()
        ]
        assert [run.token for run in found.runs] == [tokens[run.last - found.first] for run in thread.runs.values()]
        assert [run.number for run in found.runs] == list(range(1, len(found.runs) + 1))
        assert [(one.interrupt_id, one.status, one.claimed_by) for one in found.interrupts] == [
            (name, status, claimed_by) for name, (status, claimed_by) in thread.interrupts.items()
        ]
        assert (found.session, found.results("root")) == (thread.session, thread.effects)

    async def compare_list(self, scope: str) -> None:
        """Compare the list of the threads of a scope."""
        listed = [summary.thread_id for summary in await list_threads(self.store, scope)]
        mine = {key[1]: thread for key, thread in self.model.threads.items() if key[0] == scope}
        assert set(listed) == set(mine)
        assert (await usage_of(self.store, scope)).threads == len(mine)
        closed = [name for name in listed if mine[name].open is None]  # a write may move a thread whose run is open
        assert closed == sorted(closed, key=lambda name: mine[name].touched, reverse=True)
