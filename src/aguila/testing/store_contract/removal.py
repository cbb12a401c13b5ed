"""The store contract: delete threads, sweep the oldest, and refuse cursors of removed threads."""

from __future__ import annotations

import asyncio

import pytest

from aguila.errors import CursorExpired, NotFound, ThreadBusy
from aguila.store import Store
from aguila.testing.store_contract.support import (
    Clock,
    StoreTest,
    append,
    collect,
    complete,
    delete,
    effects_of,
    events_of,
    finish,
    interrupts_of,
    is_stored,
    last_of,
    lines,
    list_threads,
    new_run,
    read,
    record,
    run_of,
    runs_of,
    session_of,
    start,
    statuses,
    summary_of,
    sweep,
    usage_of,
)


class RemovalContract(StoreTest):
    async def test_deleting_a_thread_removes_all_of_it(self, store: Store):
        lease = await start(store)
        await record(store, lease, "r", "k", b"1")
        with pytest.raises(ThreadBusy) as error:
            await delete(store)
        assert error.value.run.run_id == "r"
        await finish(store, lease, "i1", session=b"{}")
        await complete(store, "other", "r", "i1")
        await delete(store)
        assert [summary.thread_id for summary in await list_threads(store)] == ["other"]
        with pytest.raises(NotFound):
            await summary_of(store)
        await complete(store, "t", "r")
        assert (await session_of(store), await effects_of(store), await interrupts_of(store)) == (None, {}, [])
        assert [(run.run_id, run.first, run.last) for run in await runs_of(store)] == [("r", 4, 5)]
        assert await statuses(store, "other") == {"i1": "open"}

    @pytest.mark.parametrize("is_pruned", [False, True])
    async def test_a_cursor_of_a_removed_thread_is_not_valid_for_its_successor(self, store: Store, is_pruned: bool):
        async def remove() -> None:
            if is_pruned:
                assert await sweep(store, max_threads=0) == 1
            else:
                await delete(store)

        last = 0
        for life in range(3):
            begun = await store.begin(new_run(events=lines(1, 2, 3)))
            lease = begun.lease
            first = 1 if life == 0 else last + 2
            assert (begun.batch.first, (await run_of(store)).first) == (first, first)
            await append(store, lease, lines(*range(4, 20)))  # longer than the removed thread
            for after in (0, first - 1):
                assert events_of(await read(store, "t", after)) == lines(*range(1, 20))
                assert await collect(store.tail("a", "t", after), 19) == lines(*range(1, 20))
            for after in range(1, first - 1):
                with pytest.raises(CursorExpired):
                    await read(store, "t", after)
                with pytest.raises(CursorExpired):
                    await collect(store.tail("a", "t", after), 1)
            assert events_of(await read(store, "t", first)) == lines(*range(2, 20))
            await finish(store, lease)
            last = await last_of(store)
            assert last == first + 19
            await remove()
        await complete(store, "u", "r")
        await complete(store, "t", "r", scope="b")  # other threads and scopes are not affected
        assert await last_of(store, "u") == await last_of(store, "t", "b") == 2

    async def test_a_tail_of_a_removed_thread_does_not_continue_with_its_successor(self, store: Store):
        await complete(store, "t", "r")
        tail = store.tail("a", "t")
        assert await collect(tail, 2) == lines("started", "finished")
        waiting = asyncio.create_task(collect(store.tail("a", "t", 2), 1))
        await summary_of(store)
        await delete(store)
        await finish(store, await start(store, events=lines(*range(10))))
        with pytest.raises((NotFound, CursorExpired)):
            await waiting

    async def test_prune_keeps_everything_by_default(self, store: Store, clock: Clock):
        await complete(store, "t", "r")
        clock.now += 1e9
        assert await sweep(store) == 0
        assert await last_of(store) == 2

    async def test_prune_by_age(self, store: Store, clock: Clock):
        await complete(store, "old", "r")
        await start(store, "running")
        clock.now += 100
        await complete(store, "young", "r", scope="b")
        assert await sweep(store, max_age=100) == 0
        clock.now += 1
        assert await sweep(store, max_age=100) == 1
        assert [summary.thread_id for summary in await list_threads(store)] == ["running"]
        assert await last_of(store, "young", "b") == 2

    async def test_prune_by_count_removes_the_oldest_of_each_scope_but_no_running_one(self, store: Store, clock: Clock):
        await start(store, "running")
        for i in range(6):
            clock.now += 1
            await complete(store, f"t{i}", "r", scope="ab"[i % 2])
        assert await sweep(store, max_threads=2) == 3
        assert [summary.thread_id for summary in await list_threads(store)] == ["t4", "running"]
        assert [summary.thread_id for summary in await list_threads(store, scope="b")] == ["t5", "t3"]
        assert await sweep(store, max_threads=0) == 3
        assert [summary.thread_id for summary in await list_threads(store)] == ["running"]

    async def test_prune_by_bytes_counts_events_and_files(self, store: Store, clock: Clock):
        for name in ("t1", "t2", "t3"):
            clock.now += 1
            lease = await start(store, name)
            await append(store, lease, [b"1" * 1000])
            await finish(store, lease)
        file = await store.put_file("a", b"x" * 5000, media_type="text/plain", thread_id="t1")
        assert await sweep(store, max_bytes=20_000) == 0
        assert await sweep(store, max_bytes=6_000) == 1
        assert not await is_stored(store, file.file_id)
        assert await sweep(store, max_bytes=1500) == 1
        assert [summary.thread_id for summary in await list_threads(store)] == ["t3"]

    async def test_prune_removes_files_without_a_thread(self, store: Store, clock: Clock):
        async def put(data: bytes, thread_id: str | None) -> str:
            clock.now += 1
            return (await store.put_file("a", data, media_type="text/plain", thread_id=thread_id)).file_id

        old = await put(b"1" * 3000, None)
        never_ran = await put(b"2" * 3000, "none")
        held = await put(b"3" * 3000, "t")
        await complete(store, "t", "r")
        new = await put(b"4" * 3000, None)
        assert await sweep(store, max_bytes=20_000, max_threads=1) == 0
        assert await is_stored(store, old)
        assert await sweep(store, max_bytes=10_000) == 0
        assert not await is_stored(store, old)
        clock.now += 100
        await complete(store, "t", "r2")
        assert await sweep(store, max_age=50) == 0
        for gone in (never_ran, new):
            assert not await is_stored(store, gone)
        assert await is_stored(store, held)

    async def test_retention_counts_each_scope_for_itself(self, store: Store, clock: Clock):
        for i in range(6):
            clock.now += 1
            await complete(store, f"old{i}", "r", scope="b")
        for i in range(3):
            clock.now += 1
            await complete(store, f"new{i}", "r", scope="a")
        assert await sweep(store, max_threads=3) == 3
        assert len(await list_threads(store)) == len(await list_threads(store, scope="b")) == 3
        size = (await usage_of(store, "b")).bytes
        clock.now += 1
        file = await store.put_file("a", b"x" * 10 * size, media_type="text/plain")
        assert await sweep(store, max_bytes=size) == 3
        assert await list_threads(store) == []
        assert len(await list_threads(store, scope="b")) == 3  # the file of the other scope displaces nothing here
        assert not await is_stored(store, file.file_id)
