"""The store contract: write to runs, and refuse writes of former owners (fencing)."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable

import pytest
from msgspec.structs import replace

from aguila.errors import InterruptTaken, StaleLease
from aguila.store import Effect, Lease, RunChange, RunEnd, Store
from aguila.testing.store_contract.support import (
    DEADLINE,
    LEASE,
    Clock,
    StoreTest,
    append,
    collect,
    complete,
    count_refused,
    delete,
    effects_of,
    events_of,
    finish,
    last_of,
    lines,
    read,
    record,
    renew,
    run_of,
    session_of,
    settle,
    start,
    statuses,
    take,
)


class WriteContract(StoreTest):
    async def test_append_numbers_events_without_gaps(self, store: Store):
        lease = await start(store)
        second = await append(store, lease, lines(2, 3))
        third = await append(store, lease, lines(4))
        assert [(b.first, b.last) for b in (second, third)] == [(2, 3), (4, 4)]
        assert (await run_of(store)).last == await last_of(store) == 4
        assert events_of(await read(store)) == lines("started", 2, 3, 4)

    async def test_appends_are_ordered_as_they_were_called(self, store: Store):
        lease = await start(store)
        batches = await asyncio.gather(*(append(store, lease, lines(i)) for i in range(50)))
        assert [batch.first for batch in batches] == list(range(2, 52))
        assert events_of(await read(store, "t", 1)) == lines(*range(50))

    async def test_the_caller_may_reuse_its_list(self, store: Store):
        lease = await start(store)
        tail = store.tail("a", "t", 1)
        events = lines(1)
        appending = asyncio.create_task(append(store, lease, events))
        await asyncio.sleep(0)
        events.append(b"not appended")
        await appending
        events.clear()
        assert await collect(tail, 1) == lines(1)
        assert events_of(await read(store, "t", 1)) == lines(1)

    async def test_appending_nothing_adds_nothing_and_can_close(self, store: Store):
        lease = await start(store)
        batch = await append(store, lease, [])
        assert (batch.first, batch.last, list(batch.events)) == (2, 1, [])
        await append(store, lease, [], end=RunEnd(outcome="cancelled"))
        run = await run_of(store)
        assert (run.outcome, run.last) == ("cancelled", 1)
        assert events_of(await read(store)) == lines("started")

    @pytest.mark.parametrize("outcome", ["success", "interrupt", "cancelled", "error"])
    async def test_end_closes_the_run_with_its_last_event(self, store: Store, clock: Clock, outcome: str):
        lease = await start(store)
        clock.now += 5
        await append(store, lease, lines("end"), end=RunEnd(outcome=outcome))  # type: ignore[arg-type]
        run = await run_of(store)
        assert (run.outcome, run.is_running, run.last, run.ended_at) == (outcome, False, 2, clock.now)

    async def test_a_closed_run_refuses_everything(self, store: Store):
        lease = await start(store)
        await finish(store, lease)
        await self.assert_stale(store, lease)

    async def test_a_lease_that_was_taken_over_is_refused_everywhere(self, store: Store, clock: Clock):
        lease = await start(store)
        clock.now += LEASE
        taken = (await take(store)).lease
        assert taken.epoch > lease.epoch
        await self.assert_stale(store, lease)
        await append(store, taken, lines("end"), end=RunEnd(outcome="error"))
        await self.assert_stale(store, taken)

    async def test_a_lease_of_a_deleted_thread_is_stale_even_if_the_ids_are_used_again(self, store: Store):
        lease = await start(store)
        await finish(store, lease)
        await delete(store)
        await self.assert_stale(store, lease, exists=False)
        await start(store, owner="someone else")
        await self.assert_stale(store, lease)

    async def assert_stale(self, store: Store, lease: Lease, *, exists: bool = True):
        before = await last_of(store) if exists else 0
        for call in (
            lambda: append(store, lease, lines("late")),
            lambda: append(store, lease, lines("late"), end=RunEnd(outcome="success")),
            lambda: renew(store, lease, LEASE),
            lambda: settle(store, lease),
            lambda: record(store, lease, "r", "k", b"late"),
        ):
            with pytest.raises(StaleLease):
                await call()
        async with asyncio.timeout(DEADLINE):
            assert await store.wait_for_cancel(lease) == "always"
        if exists:
            assert await last_of(store) == before
            assert await effects_of(store) == {}

    async def test_a_write_changes_all_that_it_names_or_nothing(self, store: Store):
        await complete(store, "t", "r1", "i1", "i2")
        lease = await start(store, run_id="r2", claims=["i1"])
        effect = Effect(root_run_id="r1", name="k", value=b"1")
        all_of_it = RunChange(
            events=lines(1), lease_seconds=100, settles=["i1"], effects=[effect], session=b"mine",
        )  # fmt: skip
        before = await run_of(store, "t", "r2")
        with pytest.raises(InterruptTaken):
            await store.write(lease, replace(all_of_it, settles=["i1", "i2"]))
        assert (await run_of(store, "t", "r2"), await session_of(store)) == (before, None)
        assert (await statuses(store), await effects_of(store, "r1")) == ({"i1": "claimed", "i2": "open"}, {})
        await store.write(lease, all_of_it)
        run = await run_of(store, "t", "r2")
        assert (run.last, run.lease_until - before.lease_until, run.is_running) == (before.last + 1, 100 - LEASE, True)
        assert (await statuses(store), await effects_of(store, "r1")) == ({"i1": "settled", "i2": "open"}, {"k": b"1"})
        assert await session_of(store) == b"mine"

    async def test_a_refused_append_does_not_affect_concurrent_ones(self, store: Store):
        stale = await start(store, "old")
        await finish(store, stale)
        leases = [await start(store, f"t{i}") for i in range(10)]
        calls: list[Awaitable[object]] = []
        for lease in leases:
            calls += [append(store, stale, lines("late")), append(store, lease, lines("good"))]
        assert await count_refused(calls, StaleLease) == 10
        assert [await last_of(store, f"t{i}") for i in range(10)] == [2] * 10

    async def test_an_append_of_a_cancelled_caller_happens_once_or_not_at_all(self, store: Store):
        lease = await start(store)
        task = asyncio.create_task(append(store, lease, lines(1, 2)))
        await asyncio.sleep(0)
        task.cancel()
        await asyncio.wait([task])
        batch = await append(store, lease, lines(3))
        assert batch.first in (2, 4)
        found = events_of(await read(store, "t", 1))
        assert found == (lines(3) if batch.first == 2 else lines(1, 2, 3))
        assert await collect(store.tail("a", "t", 1), len(found)) == found
