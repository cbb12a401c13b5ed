"""The store contract: read and tail the log."""

from __future__ import annotations

import asyncio
import random

import pytest

from aguila.errors import (
    CursorExpired,
    NotFound,
)
from aguila.store import Batch, NewRun, RunEnd, Store
from contract.support import (
    DEADLINE,
    Clock,
    StoreTest,
    collect,
    complete,
    events_of,
    finish,
    lines,
    start,
)


class LogContract(StoreTest):
    # Reading

    async def test_read_returns_the_events_after_the_cursor(self, store: Store):
        lease = await start(store, events=lines(1, 2, 3))
        await store.append(lease, lines(4))
        await store.append(lease, lines(5, 6, 7))
        for after in range(8):
            for until in (None, *range(9)):
                batches = await store.read("a", "t", after, until=until)
                stop = 7 if until is None else min(until, 7)
                assert events_of(batches) == lines(*range(after + 1, stop + 1))
                assert not batches or batches[0].first == after + 1

    async def test_a_batch_keeps_the_time_of_its_append(self, store: Store, clock: Clock):
        clock.now = 1_000.25
        lease = await start(store, events=lines(1, 2))
        clock.now = 2_000.0
        assert (await store.append(lease, lines(3, 4))).at == 2_000_000
        await store.append(lease, lines(5), end=RunEnd(outcome="success"))
        assert [(batch.first, batch.at) for batch in await store.read("a", "t", 1)] == [
            (2, 1_000_250),
            (3, 2_000_000),
            (5, 2_000_000),
        ]
        assert (await anext(aiter(store.tail("a", "t", 4)))).at == 2_000_000

    async def test_read_stops_at_about_the_limit(self, store: Store):
        lease = await start(store, events=lines(1))
        for i in range(20):
            await store.append(lease, lines(*range(2 + 3 * i, 5 + 3 * i)))
        found: list[Batch] = []
        while batches := await store.read("a", "t", found[-1].last if found else 0, limit=10):
            assert 1 <= sum(len(batch.events) for batch in batches) <= 12
            found += batches
        assert events_of(found) == lines(*range(1, 62))

    async def test_a_cursor_outside_the_log_is_refused(self, store: Store):
        await complete(store, "t", "r")
        assert list(await store.read("a", "t", 2)) == []
        for after in (3, -1, 2**70):
            with pytest.raises(CursorExpired):
                await store.read("a", "t", after)
            with pytest.raises(CursorExpired):
                await collect(store.tail("a", "t", after), 1)

    async def test_a_missing_thread_is_not_found(self, store: Store):
        await complete(store, "t", "r")
        for call in (
            lambda: store.run("a", "t", "x"),
            lambda: store.run("a", "x", "r"),
            lambda: store.last("a", "x"),
            lambda: store.read("a", "x"),
            lambda: collect(store.tail("a", "x"), 1),
            lambda: store.thread("a", "x"),
            lambda: store.delete_thread("a", "x"),
            lambda: store.blob("a", "x"),
            lambda: store.delete_blob("a", "x"),
        ):
            with pytest.raises(NotFound):
                await call()
        assert list(await store.runs("a", "x")) == list(await store.interrupts("a", "x")) == []
        assert await store.session("a", "x") is None
        assert await store.recorded("a", "x", "r") == {}

    async def test_large_events_among_small_ones_are_read_from_any_cursor(self, store: Store):
        random_bytes = random.Random(1).randbytes
        large = [b'"%s"' % random_bytes(1_100_000).hex().encode() for _ in range(2)]
        events = [*lines(1, 2), large[0], *lines(4), large[1], *lines(6)]
        lease = await start(store, events=events[:3])
        batch = await store.append(lease, events[3:])
        assert (batch.first, list(batch.events)) == (4, events[3:])
        for after in range(6):
            found: list[Batch] = []
            while batches := await store.read("a", "t", found[-1].last if found else after):
                found += batches
            assert events_of(found) == events[after:]

    async def test_a_large_event_reaches_a_tail_without_a_copy(self, store: Store):
        lease = await start(store)
        tail = store.tail("a", "t", 1)
        waiting = asyncio.ensure_future(anext(tail))
        await asyncio.sleep(0)
        large = b'"%s"' % (b"x" * 2_000_000)
        await store.append(lease, [large])
        assert (await asyncio.wait_for(waiting, DEADLINE)).events[0] is large
        await tail.aclose()  # type: ignore[attr-defined]

    async def test_large_inputs_and_files_are_returned_unchanged(self, store: Store):
        data = random.Random(1).randbytes(3_000_000)
        await store.begin(
            NewRun("a", "t", "r", owner="o", lease_seconds=30, input=data, fingerprint="f", events=lines("started"))
        )
        assert await store.input("a", "t", "r") == data
        blob = await store.put_blob("a", data, media_type="image/png")
        assert await store.blob("a", blob.blob_id) == (blob, data)

    async def test_events_are_returned_as_the_same_bytes(self, store: Store):
        events = [b"", b" ", '"\u2028é𝄞"'.encode(), b'"\\n\\u0000\\ud800"', b"\x00\xff\r", b'"' + b"x" * 300_000 + b'"']
        await start(store, events=events)
        assert events_of(await store.read("a", "t")) == events
        for after in range(len(events)):
            assert await collect(store.tail("a", "t", after), len(events) - after) == events[after:]

    async def test_a_long_log_is_read_in_parts(self, store: Store):
        lease = await start(store, events=lines(0))
        for i in range(40):
            await store.append(lease, lines(*range(1 + 100 * i, 101 + 100 * i)))
        await finish(store, lease)
        assert await collect(store.tail("a", "t"), 4002) == lines(*range(4001), "finished")

    # Tails

    async def test_a_tail_continues_from_stored_to_live_events(self, store: Store):
        lease = await start(store)
        await store.append(lease, lines(2))
        tails = [asyncio.create_task(collect(store.tail("a", "t", after), 6 - after)) for after in range(4 - 1)]
        for i in range(3, 6):
            await store.append(lease, lines(i))
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
        await store.thread("a", "t")
        await store.delete_thread("a", "t")
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
                await store.append(lease, lines(*range(position + 1, position + count + 1)))
                position += count
                if rng.random() < 0.5:
                    await asyncio.sleep(0)

        writing = asyncio.create_task(write())
        tails: list[asyncio.Task[None]] = []
        cancelled: list[asyncio.Task[None]] = []
        while not writing.done():
            last = await store.last("a", "t")
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
            await store.append(lease, [big] * 20)
        assert list(first.events) + await collect(slow, 1000) == lines(1) + [big] * 1000

    async def test_many_tails_wait_at_once(self, store: Store):
        leases = [await start(store, f"t{i}") for i in range(10)]
        tails = [asyncio.create_task(collect(store.tail("a", f"t{i % 10}"), 3)) for i in range(500)]
        for lease in leases:
            await store.append(lease, lines(2))
        await asyncio.sleep(0)
        for lease in leases:
            await finish(store, lease)
        for found in await asyncio.gather(*tails):
            assert found == lines("started", 2, "finished")
