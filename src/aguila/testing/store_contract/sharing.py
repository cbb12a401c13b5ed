"""The store contract: two stores on one database, as two processes have them. They need ``make_second``."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Sequence
from pathlib import Path

import pytest

from aguila.errors import (
    InterruptTaken,
    NotFound,
    RunExists,
    StaleLease,
    ThreadBusy,
    TooManyRuns,
)
from aguila.store import Cancel, RunChange, RunEnd, RunKey, Store
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
    events_of,
    finish,
    last_of,
    lines,
    list_threads,
    lost_runs,
    new_run,
    read,
    start,
    statuses,
    summary_of,
)

THREADS = [f"t{number}" for number in range(8)]


class SharingContract(StoreTest):
    @pytest.fixture
    async def pair(self, store: Store, clock: Clock, tmp_path: Path) -> AsyncIterator[Sequence[Store]]:
        """Two open stores on one database."""
        second = self.make_second(clock, tmp_path)
        if second is None:
            pytest.skip("this test class has no make_second")
        await second.open()
        yield store, second
        await second.close()

    async def test_a_store_sees_at_once_what_the_other_wrote(self, pair: Sequence[Store]):
        one, other = pair
        lease = await start(one)
        assert await last_of(other) == 1
        await append(other, lease, lines(2))
        assert events_of(await read(one)) == lines("started", 2)
        await finish(one, lease)
        await delete(other)
        with pytest.raises(NotFound):
            await summary_of(one)
        await start(one, run_id="next")
        assert (await read(other))[0].first > 3

    async def test_a_begin_is_repeated_on_the_other_store(self, pair: Sequence[Store]):
        new = new_run()
        first, second = [await store.begin(new) for store in pair]
        assert (first.lease, first.batch) == (second.lease, second.batch)
        await append(pair[1], second.lease, lines(2))

    async def test_a_tail_and_a_cancel_request_reach_the_other_store(self, pair: Sequence[Store]):
        one, other = pair
        lease = await start(one)
        tail = asyncio.create_task(collect(other.tail("a", "t"), 3))
        await append(one, lease, lines(2))
        waiter = asyncio.create_task(one.wait_for_cancel(lease))
        await other.tell(RunKey("a", "t", "r"), Cancel())
        async with asyncio.timeout(DEADLINE):
            assert await waiter == "always"
            await finish(one, lease)
            assert await tail == lines("started", 2, "finished")

    # Races

    async def test_of_begins_in_two_stores_one_wins(self, pair: Sequence[Store]):
        for kind, ids in ((RunExists, ["r"] * 8), (ThreadBusy, [f"r{number}" for number in range(8)])):
            thread = kind.__name__
            begins = [start(pair[number % 2], thread, run_id) for number, run_id in enumerate(ids)]
            assert await count_refused(begins, kind) == 7
            assert await last_of(pair[0], thread) == await last_of(pair[1], thread) == 1

    async def test_of_answers_in_two_stores_one_is_used(self, pair: Sequence[Store]):
        for thread in THREADS:
            await complete(pair[0], thread, "asks", "i")

        async def answer(store: Store, thread: str, run_id: str) -> bool:
            try:
                lease = await start(store, thread, run_id, claims=["i"])
            except (ThreadBusy, InterruptTaken):
                return False
            end = RunEnd(outcome="success")
            await store.write(lease, RunChange(events=lines("finished"), settles=["i"], end=end))
            return True

        answers = [answer(store, thread, f"r{number}") for thread in THREADS for number, store in enumerate(pair)]
        assert sum(await asyncio.gather(*answers)) == len(THREADS)
        for thread in THREADS:
            assert await statuses(pair[0], thread) == await statuses(pair[1], thread) == {"i": "settled"}
            assert await last_of(pair[0], thread) == 4

    async def test_of_begins_in_a_scope_max_running_win_in_two_stores(self, pair: Sequence[Store]):
        begins = [start(pair[number % 2], thread, max_running=3) for number, thread in enumerate(THREADS)]
        assert await count_refused(begins, TooManyRuns) == len(THREADS) - 3
        assert len(await list_threads(pair[0])) == len(await pair[1].open_runs("a")) == 3

    async def test_a_lost_run_is_taken_by_one_of_two_stores(self, pair: Sequence[Store], clock: Clock):
        for number, thread in enumerate(THREADS):
            await start(pair[number % 2], thread)
        clock.now += LEASE
        found = await asyncio.gather(
            *(pair[number % 2].take_over(f"o{number}", LEASE, limit=3) for number in range(12))
        )
        taken = [one for part in found for one in part]
        assert sorted(one.run.thread_id for one in taken) == THREADS
        for one in taken:
            await finish(pair[0], one.lease)

    async def test_a_late_write_and_a_take_over_in_two_stores_exclude_each_other(
        self, pair: Sequence[Store], clock: Clock
    ):
        leases = [await start(pair[0], thread) for thread in THREADS]
        clock.now += LEASE

        async def write(thread: int) -> bool:
            try:
                await append(pair[0], leases[thread], lines("late"))
            except StaleLease:
                return False
            return True

        async def take(thread: str) -> bool:
            return await lost_runs(pair[1], only=RunKey("a", thread, "r")) == ["r"]

        wrote, taken = await asyncio.gather(
            asyncio.gather(*(write(number) for number in range(len(THREADS)))),
            asyncio.gather(*(take(thread) for thread in reversed(THREADS))),
        )
        assert wrote == [not one for one in reversed(taken)]
        assert [await last_of(pair[1], thread) for thread in THREADS] == [1 + one for one in wrote]

    async def test_events_of_two_stores_have_one_order(self, pair: Sequence[Store]):
        lease = await start(pair[0])
        batches = await asyncio.gather(*(append(pair[number % 2], lease, lines(number)) for number in range(24)))
        assert sorted(batch.first for batch in batches) == list(range(2, 26))
        events = [batch.events[0] for batch in sorted(batches, key=lambda batch: batch.first)]
        assert events_of(await read(pair[0], "t", 1)) == events_of(await read(pair[1], "t", 1)) == events

    async def test_a_run_that_begins_in_one_store_is_not_deleted_by_the_other(self, pair: Sequence[Store]):
        for thread in THREADS:
            await complete(pair[0], thread, "r")
        deletions = [delete(pair[0], thread) for thread in THREADS]
        begins = [start(pair[1], thread, "next") for thread in reversed(THREADS)]
        await asyncio.gather(count_refused(deletions, ThreadBusy), *begins)
        for thread in THREADS:
            assert (await summary_of(pair[0], thread)).running == "next"
