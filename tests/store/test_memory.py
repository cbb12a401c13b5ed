"""``MemoryStore`` bounds what it keeps: the oldest threads are removed for new ones."""

from __future__ import annotations

import pytest

from aguila.errors import NotFound, StoreUnavailable
from aguila.store import MemoryStore, RunEnd
from aguila.testing.store_contract.support import (
    append,
    complete,
    finish,
    is_stored,
    last_of,
    lines,
    list_threads,
    start,
)

pytestmark = pytest.mark.anyio


async def test_the_thread_idle_for_longest_is_removed_for_a_new_one():
    store = MemoryStore(max_threads=3)
    await store.open()
    running = await start(store, "running")
    for name in ("t1", "t2", "t3"):
        await complete(store, name, "r")
    assert [summary.thread_id for summary in await list_threads(store)] == ["t3", "t2", "running"]
    await finish(store, running)
    await store.close()


async def test_idle_threads_and_their_files_are_removed_for_new_events():
    store = MemoryStore(max_bytes=10_000)
    await store.open()
    file = await store.put_file("a", b"x" * 4000, media_type="text/plain", thread_id="t1")
    await complete(store, "t1", "r")
    await complete(store, "t2", "r")
    lease = await start(store, "t3")
    await append(store, lease, [b"x" * 7000])
    assert [summary.thread_id for summary in await list_threads(store)] == ["t3", "t2"]
    assert not await is_stored(store, file.file_id)
    await store.close()


async def test_a_store_without_idle_threads_is_full_but_runs_can_end():
    store = MemoryStore(max_bytes=1000, max_threads=1)
    await store.open()
    lease = await start(store)
    with pytest.raises(StoreUnavailable, match="full"):
        await append(store, lease, [b"x" * 2000])
    with pytest.raises(StoreUnavailable, match="full"):
        await start(store, "second")
    with pytest.raises(StoreUnavailable, match="full"):
        await store.put_file("a", b"x" * 2000, media_type="text/plain")
    assert await last_of(store) == 1
    await append(store, lease, lines("x" * 2000), end=RunEnd(outcome="error"))
    await complete(store, "second", "r")  # the store is usable again
    assert [summary.thread_id for summary in await list_threads(store)] == ["second"]
    await store.close()


async def test_a_check_fails_while_the_store_is_full_and_no_thread_is_idle():
    store = MemoryStore(max_bytes=10_000, max_threads=2)
    await store.open()
    lease = await start(store)
    await store.put_file("a", b"x" * 4000, media_type="text/plain", thread_id="t")
    await store.check()
    await append(store, lease, [b"x" * 5500])
    with pytest.raises(StoreUnavailable, match="full"):
        await store.check()
    await finish(store, lease)
    await store.check()
    await start(store, "t1")
    await start(store, "t2")
    with pytest.raises(StoreUnavailable, match="full"):
        await store.check()
    await store.close()


async def test_files_without_a_thread_are_removed_oldest_first():
    store = MemoryStore(max_bytes=10_000)
    await store.open()
    await complete(store, "t", "r")
    files = [await store.put_file("a", bytes([i]) * 4000, media_type="text/plain") for i in range(4)]
    assert not await is_stored(store, files[0].file_id)
    assert await is_stored(store, files[3].file_id)
    await store.close()


async def test_a_tail_of_a_thread_that_was_removed_for_room_raises_not_found():
    store = MemoryStore(max_threads=1)
    await store.open()
    await complete(store, "t", "r")
    tail = store.tail("a", "t")
    assert [list((await anext(tail)).events) for _ in range(2)] == [lines("started"), lines("finished")]
    await complete(store, "second", "r")
    with pytest.raises(NotFound):
        await anext(tail)
    await store.close()
