"""The store contract: read the log and the rows of a thread."""

from __future__ import annotations

import asyncio
import random

import pytest

from aguila.errors import CursorExpired, NotFound
from aguila.store import Batch, RunEnd, Store, ThreadUpdate, Want
from aguila.testing.store_contract.support import (
    DEADLINE,
    Clock,
    StoreTest,
    append,
    collect,
    complete,
    delete,
    delete_file,
    effects_of,
    events_of,
    finish,
    interrupts_of,
    last_of,
    lines,
    read,
    record,
    run_of,
    runs_of,
    session_of,
    start,
    summary_of,
    token_of,
)


class LogContract(StoreTest):
    async def test_read_returns_the_events_after_the_cursor(self, store: Store):
        lease = await start(store, events=lines(1, 2, 3))
        await append(store, lease, lines(4))
        await append(store, lease, lines(5, 6, 7))
        for after in range(8):
            for until in (None, *range(9)):
                batches = await read(store, "t", after, until=until)
                stop = 7 if until is None else min(until, 7)
                assert events_of(batches) == lines(*range(after + 1, stop + 1))
                assert not batches or batches[0].first == after + 1

    async def test_a_batch_keeps_the_time_of_its_append(self, store: Store, clock: Clock):
        clock.now = 1_000.25
        lease = await start(store, events=lines(1, 2))
        clock.now = 2_000.0
        assert (await append(store, lease, lines(3, 4))).at == 2_000_000
        await append(store, lease, lines(5), end=RunEnd(outcome="success"))
        assert [(batch.first, batch.at) for batch in await read(store, "t", 1)] == [
            (2, 1_000_250),
            (3, 2_000_000),
            (5, 2_000_000),
        ]
        assert (await anext(aiter(store.tail("a", "t", 4)))).at == 2_000_000

    async def test_read_stops_at_about_the_limit(self, store: Store):
        lease = await start(store, events=lines(1))
        for i in range(20):
            await append(store, lease, lines(*range(2 + 3 * i, 5 + 3 * i)))
        found: list[Batch] = []
        while batches := await read(store, "t", found[-1].last if found else 0, limit=10):
            assert 1 <= sum(len(batch.events) for batch in batches) <= 12
            found += batches
        assert events_of(found) == lines(*range(1, 62))

    async def test_a_cursor_outside_the_log_is_refused(self, store: Store):
        await complete(store, "t", "r")
        assert list(await read(store, "t", 2)) == []
        for after in (3, -1, 2**70):
            with pytest.raises(CursorExpired):
                await read(store, "t", after)
            with pytest.raises(CursorExpired):
                await collect(store.tail("a", "t", after), 1)

    async def test_a_missing_thread_is_not_found(self, store: Store):
        await complete(store, "t", "r")
        for call in (
            lambda: run_of(store, "t", "x"),
            lambda: run_of(store, "x", "r"),
            lambda: last_of(store, "x"),
            lambda: read(store, "x"),
            lambda: collect(store.tail("a", "x"), 1),
            lambda: summary_of(store, "x"),
            lambda: delete(store, "x"),
            lambda: runs_of(store, "x"),
            lambda: interrupts_of(store, "x"),
            lambda: session_of(store, "x"),
            lambda: effects_of(store, "r", "x"),
            lambda: token_of(store, 0, "x"),
            lambda: store.amend("a", "x", ThreadUpdate(title="new")),
            lambda: store.file("a", "x"),
            lambda: delete_file(store, "x"),
        ):
            with pytest.raises(NotFound):
                await call()

    async def test_large_events_among_small_ones_are_read_from_any_cursor(self, store: Store):
        random_bytes = random.Random(1).randbytes
        large = [b'"%s"' % random_bytes(1_100_000).hex().encode() for _ in range(2)]
        events = [*lines(1, 2), large[0], *lines(4), large[1], *lines(6)]
        lease = await start(store, events=events[:3])
        batch = await append(store, lease, events[3:])
        assert (batch.first, list(batch.events)) == (4, events[3:])
        for after in range(6):
            found: list[Batch] = []
            while batches := await read(store, "t", found[-1].last if found else after):
                found += batches
            assert events_of(found) == events[after:]

    async def test_a_large_event_reaches_a_tail_without_a_copy(self, store: Store):
        lease = await start(store)
        tail = store.tail("a", "t", 1)
        waiting = asyncio.ensure_future(anext(tail))
        await asyncio.sleep(0)
        large = b'"%s"' % (b"x" * 2_000_000)
        await append(store, lease, [large])
        assert (await asyncio.wait_for(waiting, DEADLINE)).events[0] is large
        await tail.aclose()  # type: ignore[attr-defined]

    async def test_a_part_of_the_log_tells_where_the_thread_is(self, store: Store):
        lease = await start(store, events=lines(1, 2))
        await append(store, lease, lines(3))
        for after, limit in ((0, 1024), (2, 1024), (3, 1024), (1, 0)):
            part = await store.read("a", "t", after, limit=limit)
            assert (part.first, part.last, part.token) == (1, 3, lease.token if after else "")
            assert bool(part.batches) is (after < 3 and limit > 0)

    async def test_a_record_has_the_rows_that_were_wanted_and_no_others(self, store: Store):
        await complete(store, "t", "r1", "i1")
        lease = await start(store, run_id="r2", claims=["i1"])
        await record(store, lease, "r1", "k", b"1")
        await record(store, lease, "r2", "k", b"2")
        await finish(store, lease, session=b"mine")
        await store.put_file("a", b"x", media_type="text/plain", thread_id="t")
        found = await store.thread("a", "t")
        assert (found.scope, found.first, found.summary.runs) == ("a", 1, 2)
        assert [len(rows) for rows in (found.runs, found.interrupts, found.effects, found.viewers, found.files)] == [
            0
        ] * 5
        assert found.session is None
        found = await store.thread("a", "t", Want(runs=True, interrupts=True, session=True, effects=True, files=True))
        assert [(run.run_id, run.number, run.request, run.turn) for run in found.runs] == [
            ("r1", 1, None, None),
            ("r2", 2, None, None),
        ]
        assert [one.interrupt_id for one in found.interrupts] == ["i1"]
        assert (found.session, [one.size for one in found.files]) == (b"mine", [1])
        assert (found.results("r1"), found.results("r2"), found.results("r3")) == ({"k": b"1"}, {"k": b"2"}, {})
        found = await store.thread("a", "t", Want(runs=True, runs_after=1, root_run_id="r1"))
        assert [run.run_id for run in found.runs] == ["r2"]
        assert [one.root_run_id for one in found.effects] == ["r1"]
        found = await store.thread("a", "t", Want(run_id="r1", requests=True))
        assert [(run.run_id, run.request is None) for run in found.runs] == [("r1", False)]
        with pytest.raises(NotFound):
            found.run("r2")

    async def test_events_are_returned_as_the_same_bytes(self, store: Store):
        events = [b"", b" ", '"\u2028é𝄞"'.encode(), b'"\\n\\u0000\\ud800"', b"\x00\xff\r", b'"' + b"x" * 300_000 + b'"']
        await start(store, events=events)
        assert events_of(await read(store)) == events
        for after in range(len(events)):
            assert await collect(store.tail("a", "t", after), len(events) - after) == events[after:]

    async def test_a_long_log_is_read_in_parts(self, store: Store):
        lease = await start(store, events=lines(0))
        for i in range(40):
            await append(store, lease, lines(*range(1 + 100 * i, 101 + 100 * i)))
        await finish(store, lease)
        assert await collect(store.tail("a", "t"), 4002) == lines(*range(4001), "finished")
