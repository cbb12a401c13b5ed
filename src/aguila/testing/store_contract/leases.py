"""The store contract: leases, lost runs and runs that wait for an owner."""

from __future__ import annotations

import asyncio

import pytest

from aguila.errors import StaleLease, ThreadBusy
from aguila.store import UNOWNED, RunChange, RunKey, Store, Want
from aguila.testing.store_contract.support import (
    LEASE,
    Clock,
    StoreTest,
    append,
    complete,
    delete,
    finish,
    lines,
    lost_runs,
    new_run,
    record,
    renew,
    run_of,
    session_of,
    start,
    take,
)


class LeaseContract(StoreTest):
    async def test_renew_keeps_a_lease_alive(self, store: Store, clock: Clock):
        lease = await start(store)
        clock.now += LEASE - 1
        await renew(store, lease, 100)
        assert (await run_of(store)).lease_until == clock.now + 100
        clock.now += 99
        assert await lost_runs(store) == []
        clock.now += 1
        assert await lost_runs(store) == ["r"]

    async def test_lost_runs_are_found_in_every_scope(self, store: Store, clock: Clock):
        await start(store, scope="a")
        await start(store, scope="b")
        await complete(store, "closed", "r")
        clock.now += LEASE / 2
        await start(store, "younger")
        clock.now += LEASE / 2
        found = await store.take_over("x", LEASE)
        assert {taken.run.key for taken in found} == {RunKey("a", "t", "r"), RunKey("b", "t", "r")}
        for taken in found:
            run = await store.run(taken.run.key)
            assert (taken.run.number, taken.run.first, taken.run.last) == (run.number, run.first, run.last)

    async def test_at_most_as_many_runs_are_taken_as_asked_for(self, store: Store, clock: Clock):
        for number in range(5):
            await start(store, f"t{number}")
        clock.now += LEASE
        sizes = [len(await store.take_over(owner, LEASE, limit=2)) for owner in "wxyz"]
        assert sizes == [2, 2, 1, 0]

    async def test_take_over_needs_an_expired_lease(self, store: Store, clock: Clock):
        lease = await start(store)
        key = RunKey("a", "t", "r")
        assert await lost_runs(store) == await lost_runs(store, only=key) == []
        clock.now += LEASE
        await renew(store, lease)
        assert await lost_runs(store) == await lost_runs(store, only=key) == []
        clock.now += LEASE
        assert await lost_runs(store, only=RunKey("a", "t", "other")) == []
        taken = await take(store, "x", only=key)
        run = await run_of(store)
        assert (run.owner, run.epoch, run.lease_until) == ("x", taken.lease.epoch, clock.now + LEASE)
        assert (taken.lease.owner, taken.run.key) == ("x", key)
        await finish(store, taken.lease)
        clock.now += LEASE
        assert await lost_runs(store) == await lost_runs(store, only=key) == []
        await delete(store)
        assert await lost_runs(store, only=key) == []

    async def test_of_racing_take_overs_one_wins(self, store: Store, clock: Clock):
        await start(store)
        clock.now += LEASE
        taken = await asyncio.gather(*(lost_runs(store, f"o{number}") for number in range(8)))
        assert sorted(taken) == [[]] * 7 + [["r"]]

    async def test_an_owner_does_not_take_over_its_own_run(self, store: Store, clock: Clock):
        lease = await start(store, owner="x")
        clock.now += LEASE
        assert await lost_runs(store, "x") == []
        await append(store, lease, lines("late"))
        clock.now += LEASE
        assert await lost_runs(store, "y") == ["r"]

    async def test_an_owner_with_an_expired_lease_continues_unless_it_was_taken_over(self, store: Store, clock: Clock):
        lease = await start(store)
        clock.now += LEASE + 1
        await append(store, lease, lines("late"))
        assert await lost_runs(store) == []
        assert (await run_of(store)).lease_until == clock.now + LEASE

    @pytest.mark.parametrize("step", [60.0, 1_000_000.0, -60.0, -1_000_000.0])
    async def test_setting_the_clock_neither_ends_a_lease_nor_extends_it(self, store: Store, clock: Clock, step: float):
        lease = await start(store)
        clock.now += LEASE - 1
        clock.step(step)
        assert await lost_runs(store) == await lost_runs(store, only=RunKey("a", "t", "r")) == []
        await append(store, lease, lines("goes on"))
        await renew(store, lease)
        clock.step(-step)
        clock.now += LEASE - 1
        assert await lost_runs(store) == []
        clock.step(step)
        clock.now += 1
        assert await lost_runs(store) == ["r"]

    async def test_a_lease_that_was_never_renewed_is_not_extended_by_a_clock_set_back(self, store: Store, clock: Clock):
        await start(store)
        clock.step(-1_000_000)
        assert await lost_runs(store) == []
        clock.now += LEASE
        assert await lost_runs(store) == ["r"]

    # Runs that outlive their process

    async def test_a_run_without_an_owner_waits_until_one_takes_it(self, store: Store):
        await store.begin(new_run(owner=UNOWNED, lease_seconds=0, launch=b"how to begin"))
        run = await run_of(store)
        assert (run.owner, run.is_running) == (UNOWNED, True)
        with pytest.raises(ThreadBusy):
            await start(store, run_id="second")
        taken = await asyncio.gather(*(lost_runs(store, f"o{number}", only=run.key) for number in range(4)))
        assert sorted(taken) == [[]] * 3 + [["r"]]
        run = await run_of(store)
        assert run.owner in {"o0", "o1", "o2", "o3"}

    async def test_a_new_owner_gets_what_the_run_was_launched_with(self, store: Store, clock: Clock):
        launch = b"\x00\xff" * 100_000
        await start(store, launch=launch)
        await start(store, "other")
        clock.now += LEASE
        taken = await store.take_over("x", LEASE)
        assert {one.run.thread_id: one.launch for one in taken} == {"t": launch, "other": None}
        clock.now += LEASE
        again = await take(store, "y", only=RunKey("a", "t", "r"))
        assert (again.launch, again.lease.epoch) == (launch, 3)

    async def test_an_owner_stores_a_session_before_the_run_ends(self, store: Store, clock: Clock):
        lease = await start(store)
        await store.write(lease, RunChange(session=b"checkpoint"))
        assert await session_of(store) == b"checkpoint"
        clock.now += LEASE
        taken = await take(store)
        with pytest.raises(StaleLease):
            await store.write(lease, RunChange(session=b"late"))
        assert await session_of(store) == b"checkpoint"
        await finish(store, taken.lease, session=b"end")
        assert await session_of(store) == b"end"

    async def test_effects_tell_which_owner_began_them(self, store: Store, clock: Clock):
        lease = await start(store)
        await record(store, lease, "r", "done", b"1")
        await record(store, lease, "r", "begun", None)
        clock.now += LEASE
        taken = await take(store)
        found = (await store.thread("a", "t", Want(effects=True))).effects
        assert [(one.name, one.value, one.epoch) for one in found] == [("done", b"1", 1), ("begun", None, 1)]
        await record(store, taken.lease, "r", "done", b"2")
        await record(store, taken.lease, "r", "begun", b"3")
        found = (await store.thread("a", "t", Want(effects=True))).effects
        assert [(one.name, one.value, one.epoch) for one in found] == [("done", b"1", 1), ("begun", b"3", 2)]
