"""The store contract: follow a thread from any cursor, without a gap and without a repeat."""

from __future__ import annotations

import asyncio
import random

import pytest

from aguila.errors import NotFound
from aguila.store import Store
from aguila.testing.store_contract.support import (
    StoreTest,
    append,
    collect,
    complete,
    delete,
    finish,
    last_of,
    lines,
    start,
    summary_of,
)


class TailsContract(StoreTest):
    async def test_a_tail_continues_from_stored_to_live_events(self, store: Store):
        lease = await start(store)
        await append(store, lease, lines(2))
        tails = [asyncio.create_task(collect(store.tail("a", "t", after), 6 - after)) for after in range(4 - 1)]
        for i in range(3, 6):
            await append(store, lease, lines(i))
            await asyncio.sleep(0)
        await finish(store, lease)
        expected = lines("started", 2, 3, 4, 5, "finished")
        assert await asyncio.gather(*tails) == [expected[after:] for after in range(3)]

    async def test_a_tail_continues_with_the_next_run(self, store: Store):
        await complete(store, "t", "r1")
        tail = asyncio.create_task(collect(store.tail("a", "t"), 6))
        await complete(store, "t", "r2")
        await complete(store, "t", "r3")
        assert await tail == lines("started", "finished") * 3

    async def test_a_tail_ends_with_not_found_when_its_thread_is_deleted(self, store: Store):
        await complete(store, "t", "r")
        tail = store.tail("a", "t")
        assert await collect(tail, 1)
        tail = store.tail("a", "t", 2)
        waiting = asyncio.create_task(collect(tail, 1))
        await summary_of(store)
        await delete(store)
        with pytest.raises(NotFound):
            await waiting

    async def test_tails_have_no_gap_and_no_repeat_while_others_come_and_go(self, store: Store):
        rng = random.Random(7)
        total = 1500
        lease = await start(store, events=lines(1))

        async def follow(after: int) -> None:
            want = total - after
            assert await collect(store.tail("a", "t", after), want) == lines(*range(after + 1, total + 1))

        async def write() -> None:
            position = 1
            while position < total:
                count = min(rng.randint(1, 30), total - position)
                await append(store, lease, lines(*range(position + 1, position + count + 1)))
                position += count
                if rng.random() < 0.5:
                    await asyncio.sleep(0)

        writing = asyncio.create_task(write())
        tails: list[asyncio.Task[None]] = []
        cancelled: list[asyncio.Task[None]] = []
        while not writing.done():
            last = await last_of(store)
            tails.append(asyncio.create_task(follow(rng.randint(0, last))))
            if rng.random() < 0.5:
                cancelled.append(tails.pop(rng.randrange(len(tails))))
                await asyncio.sleep(0)
                cancelled[-1].cancel()
        await writing
        assert tails
        await asyncio.gather(*tails)
        for result in await asyncio.gather(*cancelled, return_exceptions=True):
            assert result is None or isinstance(result, asyncio.CancelledError)

    async def test_a_slow_reader_delays_nothing_and_misses_nothing(self, store: Store):
        lease = await start(store, events=lines(1))
        big = b'"' + b"x" * 2000 + b'"'
        slow = store.tail("a", "t")
        first = await anext(slow)
        for _ in range(50):
            await append(store, lease, [big] * 20)
        assert list(first.events) + await collect(slow, 1000) == lines(1) + [big] * 1000

    async def test_many_tails_wait_at_once(self, store: Store):
        leases = [await start(store, f"t{i}") for i in range(10)]
        tails = [asyncio.create_task(collect(store.tail("a", f"t{i % 10}"), 3)) for i in range(500)]
        for lease in leases:
            await append(store, lease, lines(2))
        await asyncio.sleep(0)
        for lease in leases:
            await finish(store, lease)
        for found in await asyncio.gather(*tails):
            assert found == lines("started", 2, "finished")
