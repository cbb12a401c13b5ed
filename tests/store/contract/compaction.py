"""Compaction: a run keeps its range of numbers and has fewer events."""

from __future__ import annotations

import pytest

from aguila.errors import CursorExpired
from aguila.store import Retention, RunEnd, RunRecord, Store
from contract.support import Clock, StoreTest, collect, complete, events_of, finish, lines, start


async def run_of(store: Store, run_id: str) -> RunRecord:
    return await store.run("a", "t", run_id)


class CompactionContract(StoreTest):
    """The treatment of runs that ended long ago."""

    COMPACTS = True
    """Whether the store compacts."""

    @pytest.fixture(autouse=True)
    def _compacts(self) -> None:
        if not self.COMPACTS:
            pytest.skip("this store does not compact")

    async def test_a_compacted_run_keeps_its_range_of_numbers(self, store: Store, clock: Clock):
        await complete(store, "t", "r1")
        lease = await start(store, "t", "r2")
        for number in range(6):
            await store.append(lease, lines(number))
        await finish(store, lease)
        await complete(store, "t", "r3")
        clock.now += 100
        runs = await store.compactable(50)
        assert [run.run_id for run in runs] == ["r1", "r2", "r3"]
        assert [run.run_id for run in await store.compactable(50, limit=1)] == ["r1"]
        await store.compact_run(runs[1], lines("started", "short", "finished"))
        assert [run.run_id for run in await store.compactable(50)] == ["r1", "r3"]
        assert await run_of(store, "r2") == runs[1]
        assert (runs[1].first, runs[1].last, await store.last("a", "t")) == (3, 10, 12)
        batches = await store.read("a", "t")
        assert [event for batch in batches for event in batch.events] == lines(
            "started", "finished", "started", "short", "finished", "started", "finished"
        )
        assert next((batch.first, batch.last) for batch in batches if batch.first > 2) == (8, 10)
        for after in (2, 10, 11, 12):
            found = [event for batch in await store.read("a", "t", after) for event in batch.events]
            assert len(found) == {2: 5, 10: 2, 11: 1, 12: 0}[after]
            await store.read("a", "t", after, until=after)
        for after in range(3, 10):
            for until in (None, after):
                with pytest.raises(CursorExpired):
                    await store.read("a", "t", after, until=until)
            with pytest.raises(CursorExpired):
                await collect(store.tail("a", "t", after), 1)
        assert len(events_of(await store.read("a", "t", 2, until=10))) == 3
        assert list(await store.read("a", "t", 2, until=5)) == []

    async def test_runs_with_questions_that_may_be_answered_are_left_alone(self, store: Store, clock: Clock):
        lease = await start(store, "t", "asks")
        await finish(store, lease, "i1", "i2")
        lease = await start(store, "t", "fails", claims=["i1"])
        await store.settle(lease, ["i1"])
        await store.append(lease, lines("failed"), end=RunEnd(outcome="error"))
        await complete(store, "t", "other")
        clock.now += 100
        assert [run.run_id for run in await store.compactable(50)] == ["other"]
        lease = await start(store, "u", "asks")
        await finish(store, lease, "i3")
        lease = await start(store, "u", "answers", claims=["i3"])
        await store.append(lease, lines("done"), end=RunEnd(outcome="success", settles=["i3"]))
        clock.now += 100
        assert {run.run_id for run in await store.compactable(50)} == {"other", "asks", "answers"}

    async def test_open_recent_and_removed_runs_are_left_alone(self, store: Store, clock: Clock):
        await complete(store, "t", "r1")
        (run,) = await store.compactable(0)
        clock.now += 10
        await complete(store, "t", "r2")
        await start(store, "t", "r3")
        assert [one.run_id for one in await store.compactable(5)] == ["r1"]
        await store.compact_run(run, lines("started", "finished"))  # not fewer: nothing changes
        assert events_of(await store.read("a", "t", 1)) == lines("finished", "started", "finished", "started")
        assert await store.compactable(5) == []
        await complete(store, "gone", "r1")
        (*_, run) = await store.compactable(0)
        await store.delete_thread("a", "gone")
        await store.compact_run(run, lines("finished"))

    async def test_compaction_frees_bytes_and_is_archived(self, store: Store, clock: Clock):
        lease = await start(store, "t", "r")
        for _ in range(100):
            await store.append(lease, lines("x" * 1000))
        await finish(store, lease)
        clock.now += 100
        (run,) = await store.compactable(50)
        await store.compact_run(run, lines("started", "finished"))
        assert await store.prune(Retention(max_bytes=8_000)) == 0
        async with store.snapshot() as snapshot:
            archive = await snapshot.thread("a", "t")
        await store.restore(archive, replace=True)
        assert await store.compactable(50) == []
        for after in range(1, run.last):
            with pytest.raises(CursorExpired):
                await store.read("a", "t", after)
        assert [batch.first for batch in await store.read("a", "t")] == [run.last - 1]
