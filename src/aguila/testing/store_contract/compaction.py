"""The store contract: a compacted run keeps its range of numbers and has fewer events."""

from __future__ import annotations

from collections.abc import Sequence

import pytest
from msgspec.structs import replace

from aguila.errors import CursorExpired, NotFound
from aguila.store import Compaction, Retention, RunChange, RunEnd, RunRecord, Store
from aguila.store.archives.archive import read_archive
from aguila.testing.store_contract.support import (
    Clock,
    StoreTest,
    append,
    collect,
    complete,
    delete,
    events_of,
    finish,
    last_of,
    lines,
    read,
    run_of,
    settle,
    start,
    usage_of,
)


async def compactable(store: Store, seconds: float, limit: int = 100) -> Sequence[RunRecord]:
    """Return the runs that can be compacted."""
    return (await store.sweep(Retention(compact_after=seconds), limit=limit)).compactable


async def compact(store: Store, run: RunRecord, events: Sequence[bytes]) -> None:
    """Replace the events of a run."""
    change = Compaction(run_id=run.run_id, first=run.first, last=run.last, events=events)
    await store.amend(run.scope, run.thread_id, change)


class CompactionContract(StoreTest):
    @pytest.mark.usefixtures("compacts")
    async def test_a_compacted_run_keeps_its_range_of_numbers(self, store: Store, clock: Clock):
        await complete(store, "t", "r1")
        lease = await start(store, "t", "r2")
        for number in range(6):
            await append(store, lease, lines(number))
        await finish(store, lease)
        await complete(store, "t", "r3")
        clock.now += 100
        runs = await compactable(store, 50)
        assert [run.run_id for run in runs] == ["r1", "r2", "r3"]
        assert [run.run_id for run in await compactable(store, 50, limit=1)] == ["r1"]
        await compact(store, runs[1], lines("started", "short", "finished"))
        assert [run.run_id for run in await compactable(store, 50)] == ["r1", "r3"]
        assert await run_of(store, "t", "r2") == replace(runs[1], compacted=True)
        assert (runs[1].first, runs[1].last, await last_of(store)) == (3, 10, 12)
        batches = await read(store)
        assert [event for batch in batches for event in batch.events] == lines(
            "started", "finished", "started", "short", "finished", "started", "finished"
        )
        assert next((batch.first, batch.last) for batch in batches if batch.first > 2) == (8, 10)
        for after in (2, 10, 11, 12):
            found = [event for batch in await read(store, "t", after) for event in batch.events]
            assert len(found) == {2: 5, 10: 2, 11: 1, 12: 0}[after]
            await read(store, "t", after, until=after)
        for after in range(3, 10):
            for until in (None, after):
                with pytest.raises(CursorExpired):
                    await read(store, "t", after, until=until)
            with pytest.raises(CursorExpired):
                await collect(store.tail("a", "t", after), 1)
        assert len(events_of(await read(store, "t", 2, until=10))) == 3
        assert list(await read(store, "t", 2, until=5)) == []

    @pytest.mark.usefixtures("compacts")
    async def test_runs_that_ended_first_are_compacted_first(self, store: Store, clock: Clock):
        leases = {thread: await start(store, thread) for thread in ("c", "a", "e", "b", "d")}
        for thread in ("d", "c", "e", "b"):  # at one time: the run that began first
            await finish(store, leases[thread])
        clock.now += 10
        await finish(store, leases["a"])
        clock.now += 50
        assert [run.thread_id for run in await compactable(store, 50)] == ["c", "e", "b", "d", "a"]
        assert [run.thread_id for run in await compactable(store, 50, limit=3)] == ["c", "e", "b"]
        assert [run.thread_id for run in await compactable(store, 50.5)] == ["c", "e", "b", "d"]

    @pytest.mark.usefixtures("compacts")
    async def test_runs_with_questions_that_may_be_answered_are_left_alone(self, store: Store, clock: Clock):
        lease = await start(store, "t", "asks")
        await finish(store, lease, "i1", "i2")
        lease = await start(store, "t", "fails", claims=["i1"])
        await settle(store, lease, "i1")
        await append(store, lease, lines("failed"), end=RunEnd(outcome="error"))
        await complete(store, "t", "other")
        clock.now += 100
        assert [run.run_id for run in await compactable(store, 50)] == ["other"]
        lease = await start(store, "u", "asks")
        await finish(store, lease, "i3")
        lease = await start(store, "u", "answers", claims=["i3"])
        await store.write(lease, RunChange(events=lines("done"), settles=["i3"], end=RunEnd(outcome="success")))
        clock.now += 100
        assert {run.run_id for run in await compactable(store, 50)} == {"other", "asks", "answers"}

    @pytest.mark.usefixtures("compacts")
    async def test_open_recent_and_removed_runs_are_left_alone(self, store: Store, clock: Clock):
        await complete(store, "t", "r1")
        (run,) = await compactable(store, 0)
        clock.now += 10
        await complete(store, "t", "r2")
        await start(store, "t", "r3")
        assert [one.run_id for one in await compactable(store, 5)] == ["r1"]
        await compact(store, run, lines("started", "finished"))  # not fewer: nothing changes
        assert events_of(await read(store, "t", 1)) == lines("finished", "started", "finished", "started")
        assert list(await compactable(store, 5)) == []
        await complete(store, "gone", "r1")
        (*_, run) = await compactable(store, 0)
        await delete(store, "gone")
        with pytest.raises(NotFound):
            await compact(store, run, lines("finished"))
        await complete(store, "gone", "r1")  # has other numbers
        await compact(store, run, lines("finished"))
        assert events_of(await read(store, "gone")) == lines("started", "finished")

    @pytest.mark.usefixtures("compacts")
    async def test_compaction_frees_bytes_and_is_archived(self, store: Store, clock: Clock):
        lease = await start(store, "t", "r")
        for _ in range(100):
            await append(store, lease, lines("x" * 1000))
        await finish(store, lease)
        clock.now += 100
        (run,) = await compactable(store, 50)
        await compact(store, run, lines("started", "finished"))
        assert (await usage_of(store)).bytes < 8_000
        async with store.snapshot() as snapshot:
            archive = await read_archive(snapshot, "a", "t")
        await store.restore(archive, replace=True)
        assert list(await compactable(store, 50)) == []
        for after in range(1, run.last):
            with pytest.raises(CursorExpired):
                await read(store, "t", after)
        assert [batch.first for batch in await read(store)] == [run.last - 1]
