from __future__ import annotations

from pathlib import Path

import pytest
from contract import StoreContract
from contract.support import Clock, complete, finish, lines, start

from aguila.errors import NotFound, StoreUnavailable
from aguila.store import MemoryStore, RunEnd, Store
from aguila.store.memory import threads

pytestmark = pytest.mark.anyio


class TestMemoryStore(StoreContract):
    def make(self, clock: Clock, tmp_path: Path) -> Store:
        return MemoryStore(clock=clock, monotonic=clock.monotonic)


class TestBounds:
    async def test_the_thread_idle_for_longest_is_removed_for_a_new_one(self):
        store = MemoryStore(max_threads=3)
        await store.open()
        running = await start(store, "running")
        for name in ("t1", "t2", "t3"):
            await complete(store, name, "r")
        assert [summary.thread_id for summary in await store.threads("a")] == ["t3", "t2", "running"]
        await finish(store, running)
        await store.close()

    async def test_idle_threads_and_their_files_are_removed_for_new_events(self):
        store = MemoryStore(max_bytes=10_000)
        await store.open()
        blob = await store.put_blob("a", b"x" * 4000, media_type="text/plain", thread_id="t1")
        await complete(store, "t1", "r")
        await complete(store, "t2", "r")
        lease = await start(store, "t3")
        await store.append(lease, [b"x" * 7000])
        assert [summary.thread_id for summary in await store.threads("a")] == ["t3", "t2"]
        with pytest.raises(NotFound):
            await store.blob("a", blob.blob_id)
        await store.close()

    async def test_a_store_without_idle_threads_is_full_but_runs_can_end(self):
        store = MemoryStore(max_bytes=1000, max_threads=1)
        await store.open()
        lease = await start(store)
        with pytest.raises(StoreUnavailable, match="full"):
            await store.append(lease, [b"x" * 2000])
        with pytest.raises(StoreUnavailable, match="full"):
            await start(store, "second")
        with pytest.raises(StoreUnavailable, match="full"):
            await store.put_blob("a", b"x" * 2000, media_type="text/plain")
        assert await store.last("a", "t") == 1
        await store.append(lease, lines("x" * 2000), end=RunEnd(outcome="error"))
        await complete(store, "second", "r")  # the store is usable again
        assert [summary.thread_id for summary in await store.threads("a")] == ["second"]
        await store.close()

    async def test_a_check_fails_while_the_store_is_full_and_no_thread_is_idle(self):
        store = MemoryStore(max_bytes=10_000, max_threads=2)
        await store.open()
        lease = await start(store)
        await store.put_blob("a", b"x" * 4000, media_type="text/plain", thread_id="t")
        await store.check()
        await store.append(lease, [b"x" * 5500])
        with pytest.raises(StoreUnavailable, match="full"):
            await store.check()
        await finish(store, lease)
        await store.check()
        await start(store, "t1")
        await start(store, "t2")
        with pytest.raises(StoreUnavailable, match="full"):
            await store.check()
        await store.close()

    async def test_files_without_a_thread_are_removed_oldest_first(self):
        store = MemoryStore(max_bytes=10_000)
        await store.open()
        await complete(store, "t", "r")
        blobs = [await store.put_blob("a", bytes([i]) * 4000, media_type="text/plain") for i in range(4)]
        with pytest.raises(NotFound):
            await store.blob("a", blobs[0].blob_id)
        await store.blob("a", blobs[3].blob_id)
        await store.close()

    async def test_the_numbers_of_the_last_removed_threads_are_remembered(self, monkeypatch: pytest.MonkeyPatch):
        monkeypatch.setattr(threads, "MAX_REMOVED", 2)
        store = MemoryStore(max_threads=1)
        await store.open()
        for name in ("t1", "t2", "t3", "t4"):  # each is removed for the next one
            await complete(store, name, "r")
        await complete(store, "t3", "r")
        assert await store.last("a", "t3") == 5
        await complete(store, "t1", "r")
        assert await store.last("a", "t1") == 2
        await store.close()

    async def test_a_tail_of_a_thread_that_was_removed_for_room_raises_not_found(self):
        store = MemoryStore(max_threads=1)
        await store.open()
        await complete(store, "t", "r")
        tail = store.tail("a", "t")
        assert [list((await anext(tail)).events) for _ in range(2)] == [lines("started"), lines("finished")]
        await complete(store, "second", "r")
        with pytest.raises(NotFound):
            await anext(tail)
        await store.close()
