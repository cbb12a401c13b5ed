"""The contract of ``aguila.store.base`` as a test suite. A store's test module subclasses ``StoreContract``::

    class TestMyStore(StoreContract):
        def make(self, clock, tmp_path):
            return MyStore(clock=clock)

and every sentence of the contract is a test of that store.
"""

from __future__ import annotations

import asyncio
import random
from abc import abstractmethod
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable
from pathlib import Path
from typing import ClassVar

import pytest
from contract_model import play

from aguila.errors import (
    CursorExpired,
    InterruptTaken,
    NotFound,
    RunExists,
    StaleLease,
    StoreError,
    StoreUnavailable,
    ThreadBusy,
)
from aguila.store import Batch, Lease, Retention, RunEnd, Store

LEASE = 30.0
DEADLINE = 10.0
"""How long a test waits for what must happen."""


class Clock:
    """A clock that stands still until it is set."""

    def __init__(self, now: float = 1_000_000.0) -> None:
        self.now = now

    def __call__(self) -> float:
        return self.now


def lines(*names: object) -> list[bytes]:
    return [f'{{"n":"{name}"}}'.encode() for name in names]


def events_of(batches: Iterable[Batch]) -> list[bytes]:
    """The events of batches that must follow one another."""
    found: list[bytes] = []
    position = None
    for batch in batches:
        assert position is None or batch.first == position + 1
        assert batch.last - batch.first + 1 == len(batch.events) > 0
        position = batch.last
        found.extend(batch.events)
    return found


async def start(
    store: Store,
    thread_id: str = "t",
    run_id: str = "r",
    *,
    scope: str = "a",
    owner: str = "o",
    events: list[bytes] | None = None,
    claims: Iterable[str] = (),
) -> Lease:
    lease, _ = await store.begin(
        scope,
        thread_id,
        run_id,
        owner=owner,
        lease_seconds=LEASE,
        input=b'{"in":1}',
        fingerprint="f",
        events=lines("started") if events is None else events,
        claims=list(claims),
    )
    return lease


async def finish(store: Store, lease: Lease, *interrupts: str, session: bytes | None = None) -> None:
    end = RunEnd(
        outcome="interrupt" if interrupts else "success",
        interrupts=[(name, b'{"id":"%s"}' % name.encode()) for name in interrupts],
        session=session,
    )
    await store.append(lease, lines("finished"), end=end)


async def whole(store: Store, thread_id: str, run_id: str, *interrupts: str, scope: str = "a") -> None:
    await finish(store, await start(store, thread_id, run_id, scope=scope), *interrupts)


async def statuses(store: Store, thread_id: str = "t") -> dict[str, str]:
    return {record.interrupt_id: record.status for record in await store.interrupts("a", thread_id)}


async def collect(tail: AsyncIterator[Batch], count: int) -> list[bytes]:
    """The first ``count`` events of a tail."""
    found: list[Batch] = []
    async with asyncio.timeout(DEADLINE):
        async for batch in tail:
            found.append(batch)
            if sum(len(batch.events) for batch in found) >= count:
                break
    return events_of(found)


async def refused(outcomes: Iterable[Awaitable[object]], kind: type[StoreError]) -> int:
    """How many of these were refused with that error; any other error is raised."""
    results = await asyncio.gather(*outcomes, return_exceptions=True)
    for result in results:
        if isinstance(result, BaseException) and not isinstance(result, kind):
            raise result
    return sum(isinstance(result, kind) for result in results)


class StoreContract:
    pytestmark = pytest.mark.anyio

    @abstractmethod
    def make(self, clock: Clock, tmp_path: Path) -> Store: ...

    @pytest.fixture
    def clock(self) -> Clock:
        return Clock()

    @pytest.fixture
    async def store(self, clock: Clock, tmp_path: Path) -> AsyncIterator[Store]:
        store = self.make(clock, tmp_path)
        await store.open()
        yield store
        await store.close()

    # Open and closed

    async def test_opening_and_closing_again_does_nothing(self, store: Store):
        await whole(store, "t", "r")
        await store.open()
        assert await store.last("a", "t") == 2
        await store.check()
        await store.close()
        await store.close()

    async def test_opening_at_once_from_many_tasks_opens_once(self, clock: Clock, tmp_path: Path):
        store = self.make(clock, tmp_path)
        await asyncio.gather(*(store.open() for _ in range(5)))
        await store.check()
        await store.close()

    @pytest.mark.parametrize("is_closed", [False, True])
    async def test_a_store_that_is_not_open_is_unavailable(self, clock: Clock, tmp_path: Path, is_closed: bool):
        store = self.make(clock, tmp_path)
        if is_closed:
            await store.open()
            await store.close()
        for call in (
            lambda: store.check(),
            lambda: start(store),
            lambda: store.last("a", "t"),
            lambda: store.threads("a"),
            lambda: store.expired(),
            lambda: store.put_blob("a", b"", media_type="text/plain"),
        ):
            with pytest.raises(StoreUnavailable):
                await call()

    async def test_closing_ends_tails_and_fails_who_waits_for_a_cancel(self, store: Store):
        lease = await start(store)
        arrived: asyncio.Queue[Batch] = asyncio.Queue()

        async def follow() -> None:
            async for batch in store.tail("a", "t"):
                arrived.put_nowait(batch)

        tails = [asyncio.create_task(follow()) for _ in range(3)]
        waiter = asyncio.create_task(store.cancel_requested(lease))
        async with asyncio.timeout(DEADLINE):
            for _ in tails:
                assert list((await arrived.get()).events) == lines("started")
            await store.close()
            await asyncio.gather(*tails)
            with pytest.raises(StoreUnavailable):
                await waiter
        assert arrived.empty()

    # begin

    async def test_begin_claims_the_run_and_appends_its_first_events(self, store: Store, clock: Clock):
        lease, batch = await store.begin(
            "a",
            "t",
            "r",
            owner="o",
            lease_seconds=LEASE,
            input=b'{ "as": "sent" }',
            fingerprint="f",
            events=lines(1, 2),
            parent_run_id="p",
        )
        assert (lease.scope, lease.thread_id, lease.run_id, lease.owner) == ("a", "t", "r", "o")
        assert (batch.first, batch.last, list(batch.events)) == (1, 2, lines(1, 2))
        run = await store.run("a", "t", "r")
        assert (run.scope, run.thread_id, run.run_id, run.parent_run_id) == ("a", "t", "r", "p")
        assert (run.input, run.fingerprint, run.first, run.last) == (b'{ "as": "sent" }', "f", 1, 2)
        assert (run.outcome, run.is_running, run.cancel_requested, run.ended_at) == (None, True, False, None)
        assert (run.owner, run.epoch, run.lease_until) == ("o", lease.epoch, clock.now + LEASE)
        assert run.started_at == clock.now
        assert await store.runs("a", "t") == [run]

    async def test_a_run_id_is_claimed_once_per_thread(self, store: Store):
        lease = await start(store)
        with pytest.raises(RunExists) as running:
            await start(store)
        assert running.value.run == await store.run("a", "t", "r")
        await finish(store, lease)
        with pytest.raises(RunExists) as closed:
            await start(store)
        assert closed.value.run.outcome == "success"
        assert await store.last("a", "t") == 2
        await start(store, "other")

    async def test_a_thread_has_one_run_at_a_time(self, store: Store, clock: Clock):
        lease = await start(store)
        clock.now += LEASE * 2  # even one whose lease has run out
        with pytest.raises(ThreadBusy) as error:
            await start(store, run_id="second")
        assert error.value.run == await store.run("a", "t", "r")
        await finish(store, lease)
        await start(store, run_id="second")
        assert [(run.run_id, run.first, run.last) for run in await store.runs("a", "t")] == [
            ("r", 1, 2),
            ("second", 3, 3),
        ]

    async def test_of_racing_begins_one_wins(self, store: Store):
        for kind, ids in ((RunExists, ["r"] * 8), (ThreadBusy, [f"r{i}" for i in range(8)])):
            thread = kind.__name__
            assert await refused([start(store, thread, run_id) for run_id in ids], kind) == 7
            assert await store.last("a", thread) == 1

    async def test_a_refused_begin_leaves_nothing(self, store: Store):
        with pytest.raises(InterruptTaken) as error:
            await start(store, claims=["never raised"])
        assert error.value.interrupt_id == "never raised"
        with pytest.raises(NotFound):
            await store.thread("a", "t")
        assert list(await store.runs("a", "t")) == []
        await whole(store, "t", "r", "i1")
        with pytest.raises(InterruptTaken):
            await start(store, run_id="r2", claims=["i1", "never raised"])
        assert await statuses(store) == {"i1": "open"}
        await start(store, run_id="r2", claims=["i1"])

    async def test_an_event_is_a_single_line(self, store: Store):
        with pytest.raises(ValueError, match="line"):
            await start(store, events=[b"{\n}"])
        lease = await start(store)
        with pytest.raises(ValueError, match="line"):
            await store.append(lease, [b"{}", b"\n"])
        assert await store.last("a", "t") == 1

    # append

    async def test_append_numbers_events_without_gaps(self, store: Store):
        lease = await start(store)
        second = await store.append(lease, lines(2, 3))
        third = await store.append(lease, lines(4))
        assert [(b.first, b.last) for b in (second, third)] == [(2, 3), (4, 4)]
        assert (await store.run("a", "t", "r")).last == await store.last("a", "t") == 4
        assert events_of(await store.read("a", "t")) == lines("started", 2, 3, 4)

    async def test_appends_are_ordered_as_they_were_called(self, store: Store):
        lease = await start(store)
        batches = await asyncio.gather(*(store.append(lease, lines(i)) for i in range(50)))
        assert [batch.first for batch in batches] == list(range(2, 52))
        assert events_of(await store.read("a", "t", 1)) == lines(*range(50))

    async def test_the_caller_may_reuse_its_list(self, store: Store):
        lease = await start(store)
        tail = store.tail("a", "t", 1)
        events = lines(1)
        appending = asyncio.create_task(store.append(lease, events))
        await asyncio.sleep(0)
        events.append(b"not appended")
        await appending
        events.clear()
        assert await collect(tail, 1) == lines(1)
        assert events_of(await store.read("a", "t", 1)) == lines(1)

    async def test_appending_nothing_adds_nothing_and_can_close(self, store: Store):
        lease = await start(store)
        batch = await store.append(lease, [])
        assert (batch.first, batch.last, list(batch.events)) == (2, 1, [])
        await store.append(lease, [], end=RunEnd(outcome="cancelled"))
        run = await store.run("a", "t", "r")
        assert (run.outcome, run.last) == ("cancelled", 1)
        assert events_of(await store.read("a", "t")) == lines("started")

    @pytest.mark.parametrize("outcome", ["success", "interrupt", "cancelled", "error"])
    async def test_end_closes_the_run_with_its_last_event(self, store: Store, clock: Clock, outcome: str):
        lease = await start(store)
        clock.now += 5
        await store.append(lease, lines("end"), end=RunEnd(outcome=outcome))  # type: ignore[arg-type]
        run = await store.run("a", "t", "r")
        assert (run.outcome, run.is_running, run.last, run.ended_at) == (outcome, False, 2, clock.now)

    async def test_a_closed_run_refuses_everything(self, store: Store):
        lease = await start(store)
        await finish(store, lease)
        await self.assert_stale(store, lease)

    async def test_a_lease_that_was_taken_over_is_refused_everywhere(self, store: Store, clock: Clock):
        lease = await start(store)
        clock.now += LEASE
        taken = await store.take_over((await store.expired())[0], owner="other", lease_seconds=LEASE)
        assert taken is not None
        assert taken.epoch > lease.epoch
        await self.assert_stale(store, lease)
        await store.append(taken, lines("end"), end=RunEnd(outcome="error"))
        await self.assert_stale(store, taken)

    async def test_a_lease_of_a_deleted_thread_is_stale_even_if_the_ids_are_used_again(self, store: Store):
        lease = await start(store)
        await finish(store, lease)
        await store.delete_thread("a", "t")
        await self.assert_stale(store, lease, last=None)
        await start(store, owner="someone else")
        await self.assert_stale(store, lease)

    async def assert_stale(self, store: Store, lease: Lease, last: int | None = -1):
        before = await store.last("a", "t") if last == -1 else last
        for call in (
            lambda: store.append(lease, lines("late")),
            lambda: store.append(lease, lines("late"), end=RunEnd(outcome="success")),
            lambda: store.renew(lease, LEASE),
            lambda: store.settle(lease, []),
            lambda: store.record(lease, "r", "k", b"late"),
        ):
            with pytest.raises(StaleLease):
                await call()
        async with asyncio.timeout(DEADLINE):
            await store.cancel_requested(lease)
        if before is not None:
            assert await store.last("a", "t") == before
        assert await store.recorded("a", "t", "r") == {}

    async def test_a_refused_append_does_not_harm_the_others_made_with_it(self, store: Store):
        stale = await start(store, "old")
        await finish(store, stale)
        leases = [await start(store, f"t{i}") for i in range(10)]
        calls: list[Awaitable[object]] = []
        for lease in leases:
            calls += [store.append(stale, lines("late")), store.append(lease, lines("good"))]
        assert await refused(calls, StaleLease) == 10
        assert [await store.last("a", f"t{i}") for i in range(10)] == [2] * 10

    async def test_what_a_cancelled_caller_appended_is_there_once_or_not_at_all(self, store: Store):
        lease = await start(store)
        task = asyncio.create_task(store.append(lease, lines(1, 2)))
        await asyncio.sleep(0)
        task.cancel()
        await asyncio.wait([task])
        batch = await store.append(lease, lines(3))
        assert batch.first in (2, 4)
        found = events_of(await store.read("a", "t", 1))
        assert found == (lines(3) if batch.first == 2 else lines(1, 2, 3))
        assert await collect(store.tail("a", "t", 1), len(found)) == found

    # Leases

    async def test_renew_keeps_a_lease_alive(self, store: Store, clock: Clock):
        lease = await start(store)
        clock.now += LEASE - 1
        assert await store.renew(lease, 100) is False
        assert (await store.run("a", "t", "r")).lease_until == clock.now + 100
        clock.now += 99
        assert list(await store.expired()) == []
        clock.now += 1
        assert [run.run_id for run in await store.expired()] == ["r"]

    async def test_expired_finds_open_runs_in_every_scope(self, store: Store, clock: Clock):
        await start(store, scope="a")
        await start(store, scope="b")
        await whole(store, "closed", "r")
        clock.now += LEASE / 2
        await start(store, "younger")
        clock.now += LEASE / 2
        found = await store.expired()
        assert {(run.scope, run.thread_id) for run in found} == {("a", "t"), ("b", "t")}
        assert await store.run("b", "t", "r") in found

    async def test_take_over_needs_a_lease_that_has_run_out(self, store: Store, clock: Clock):
        lease = await start(store)
        run = await store.run("a", "t", "r")
        assert await store.take_over(run, owner="x", lease_seconds=LEASE) is None
        clock.now += LEASE
        expired = (await store.expired())[0]
        await store.renew(lease, LEASE)
        assert await store.take_over(expired, owner="x", lease_seconds=LEASE) is None
        clock.now += LEASE
        taken = await store.take_over(expired, owner="x", lease_seconds=LEASE)
        assert taken is not None
        run = await store.run("a", "t", "r")
        assert (run.owner, run.epoch, run.lease_until) == ("x", taken.epoch, clock.now + LEASE)
        clock.now += LEASE
        assert await store.take_over(expired, owner="y", lease_seconds=LEASE) is None  # that was another owner's lease
        await finish(store, taken)
        assert await store.take_over(run, owner="y", lease_seconds=LEASE) is None
        await store.delete_thread("a", "t")
        assert await store.take_over(run, owner="y", lease_seconds=LEASE) is None

    async def test_of_racing_take_overs_one_wins(self, store: Store, clock: Clock):
        await start(store)
        clock.now += LEASE
        run = (await store.expired())[0]
        taken = await asyncio.gather(*(store.take_over(run, owner=f"o{i}", lease_seconds=LEASE) for i in range(8)))
        assert sum(lease is not None for lease in taken) == 1

    async def test_an_owner_that_was_late_may_go_on_if_nobody_took_over(self, store: Store, clock: Clock):
        lease = await start(store)
        clock.now += LEASE + 1
        run = (await store.expired())[0]
        await store.append(lease, lines("late"))
        assert list(await store.expired()) == []
        assert await store.take_over(run, owner="x", lease_seconds=LEASE) is None
        assert (await store.run("a", "t", "r")).lease_until == clock.now + LEASE

    async def test_a_clock_that_steps_back_neither_ends_a_lease_nor_makes_it_endless(self, store: Store, clock: Clock):
        await start(store)
        clock.now -= 1_000_000
        assert list(await store.expired()) == []
        clock.now += LEASE
        assert [run.run_id for run in await store.expired()] == ["r"]

    # Cancelling

    async def test_a_cancel_request_reaches_the_owner(self, store: Store):
        lease = await start(store)
        waiter = asyncio.create_task(store.cancel_requested(lease))
        await store.append(lease, lines(1))
        assert not waiter.done()
        run = await store.request_cancel("a", "t", "r")
        assert run.cancel_requested
        assert run == await store.run("a", "t", "r")
        async with asyncio.timeout(DEADLINE):
            await waiter
            await store.cancel_requested(lease)
        assert await store.renew(lease, LEASE) is True
        assert await store.request_cancel("a", "t", "r") == await store.run("a", "t", "r")

    async def test_a_cancel_request_to_a_closed_run_does_nothing(self, store: Store):
        await whole(store, "t", "r")
        before = await store.run("a", "t", "r")
        assert await store.request_cancel("a", "t", "r") == before == await store.run("a", "t", "r")
        for thread_id, run_id in (("t", "x"), ("x", "r")):
            with pytest.raises(NotFound):
                await store.request_cancel("a", thread_id, run_id)

    async def test_who_waits_for_a_cancel_is_told_when_the_lease_is_lost(self, store: Store, clock: Clock):
        lease = await start(store)
        waiter = asyncio.create_task(store.cancel_requested(lease))
        clock.now += LEASE
        taken = await store.take_over((await store.expired())[0], owner="x", lease_seconds=LEASE)
        assert taken is not None
        other = asyncio.create_task(store.cancel_requested(taken))
        async with asyncio.timeout(DEADLINE):
            await waiter
            await finish(store, taken)
            await other

    async def test_not_waiting_for_a_cancel_any_more_is_harmless(self, store: Store):
        lease = await start(store)
        waiters = [asyncio.create_task(store.cancel_requested(lease)) for _ in range(4)]
        await store.append(lease, lines(1))
        waiters[0].cancel()
        await asyncio.wait(waiters[:1])
        await store.request_cancel("a", "t", "r")
        async with asyncio.timeout(DEADLINE):
            await asyncio.gather(*waiters[1:])

    # Reading

    async def test_read_gives_what_comes_after_the_cursor(self, store: Store):
        lease = await start(store, events=lines(1, 2, 3))
        await store.append(lease, lines(4))
        await store.append(lease, lines(5, 6, 7))
        for after in range(8):
            for until in (None, *range(9)):
                batches = await store.read("a", "t", after, until=until)
                stop = 7 if until is None else min(until, 7)
                assert events_of(batches) == lines(*range(after + 1, stop + 1))
                assert not batches or batches[0].first == after + 1

    async def test_read_stops_at_about_the_limit(self, store: Store):
        lease = await start(store, events=lines(1))
        for i in range(20):
            await store.append(lease, lines(*range(2 + 3 * i, 5 + 3 * i)))
        found: list[Batch] = []
        while batches := await store.read("a", "t", found[-1].last if found else 0, limit=10):
            assert 1 <= sum(len(batch.events) for batch in batches) <= 12
            found += batches
        assert events_of(found) == lines(*range(1, 62))

    async def test_a_cursor_that_is_not_of_this_log_is_refused(self, store: Store):
        await whole(store, "t", "r")
        assert list(await store.read("a", "t", 2)) == []
        for after in (3, -1, 2**70):
            with pytest.raises(CursorExpired):
                await store.read("a", "t", after)
            with pytest.raises(CursorExpired):
                await collect(store.tail("a", "t", after), 1)

    async def test_what_does_not_exist_is_not_found(self, store: Store):
        await whole(store, "t", "r")
        for call in (
            lambda: store.run("a", "t", "x"),
            lambda: store.run("a", "x", "r"),
            lambda: store.last("a", "x"),
            lambda: store.read("a", "x"),
            lambda: collect(store.tail("a", "x"), 1),
            lambda: store.thread("a", "x"),
            lambda: store.threads("a", before="x"),
            lambda: store.delete_thread("a", "x"),
            lambda: store.blob("a", "x"),
            lambda: store.delete_blob("a", "x"),
        ):
            with pytest.raises(NotFound):
                await call()
        assert list(await store.runs("a", "x")) == list(await store.interrupts("a", "x")) == []
        assert await store.session("a", "x") is None
        assert await store.recorded("a", "x", "r") == {}

    async def test_events_come_back_as_the_bytes_they_were(self, store: Store):
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

    # Following

    async def test_a_tail_hands_over_from_stored_to_live(self, store: Store):
        lease = await start(store)
        await store.append(lease, lines(2))
        tails = [asyncio.create_task(collect(store.tail("a", "t", after), 6 - after)) for after in range(4 - 1)]
        for i in range(3, 6):
            await store.append(lease, lines(i))
            await asyncio.sleep(0)
        await finish(store, lease)
        expected = lines("started", 2, 3, 4, 5, "finished")
        assert await asyncio.gather(*tails) == [expected[after:] for after in range(3)]

    async def test_a_tail_goes_on_with_the_next_run(self, store: Store):
        await whole(store, "t", "r1")
        tail = asyncio.create_task(collect(store.tail("a", "t"), 6))
        await whole(store, "t", "r2")
        await whole(store, "t", "r3")
        assert await tail == lines("started", "finished") * 3

    async def test_a_tail_ends_with_not_found_when_its_thread_is_deleted(self, store: Store):
        await whole(store, "t", "r")
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

    async def test_a_slow_reader_holds_nobody_up_and_misses_nothing(self, store: Store):
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

    # Threads

    async def test_a_thread_has_a_summary(self, store: Store, clock: Clock):
        created = clock.now
        await whole(store, "t", "r1")
        clock.now += 10
        lease = await start(store, "t", "r2")
        summary = await store.thread("a", "t")
        assert (summary.thread_id, summary.created_at, summary.updated_at) == ("t", created, clock.now)
        assert (summary.last, summary.runs, summary.is_running) == (3, 2, True)
        clock.now += 10
        await finish(store, lease)
        assert await store.threads("a") == [await store.thread("a", "t")]
        summary = await store.thread("a", "t")
        assert (summary.updated_at, summary.last, summary.is_running) == (clock.now, 4, False)

    async def test_threads_come_last_updated_first_in_pages(self, store: Store, clock: Clock):
        leases = {name: await start(store, name) for name in "abcdefg"}
        clock.now -= 100  # a clock that steps back does not change what came last
        await store.append(leases["c"], lines(1))
        await finish(store, leases["a"])
        order = list("acgfedb")
        assert [summary.thread_id for summary in await store.threads("a")] == order
        pages: list[str] = []
        while page := await store.threads("a", limit=3, before=pages[-1] if pages else None):
            assert len(page) <= 3
            pages += [summary.thread_id for summary in page]
        assert pages == order

    async def test_deleting_a_thread_removes_all_of_it(self, store: Store):
        lease = await start(store)
        await store.record(lease, "r", "k", b"1")
        with pytest.raises(ThreadBusy) as error:
            await store.delete_thread("a", "t")
        assert error.value.run.run_id == "r"
        await finish(store, lease, "i1", session=b"{}")
        await whole(store, "other", "r", "i1")
        await store.delete_thread("a", "t")
        assert [summary.thread_id for summary in await store.threads("a")] == ["other"]
        assert await store.session("a", "t") is None
        assert await store.recorded("a", "t", "r") == {}
        assert list(await store.interrupts("a", "t")) == list(await store.runs("a", "t")) == []
        await whole(store, "t", "r")
        assert await store.last("a", "t") == 2
        assert await statuses(store, "other") == {"i1": "open"}

    async def test_prune_keeps_everything_by_default(self, store: Store, clock: Clock):
        await whole(store, "t", "r")
        clock.now += 1e9
        assert await store.prune(Retention()) == 0
        assert await store.last("a", "t") == 2

    async def test_prune_by_age(self, store: Store, clock: Clock):
        await whole(store, "old", "r")
        await start(store, "running")
        clock.now += 100
        await whole(store, "young", "r", scope="b")
        assert await store.prune(Retention(max_age=100)) == 0
        clock.now += 1
        assert await store.prune(Retention(max_age=100)) == 1
        assert [summary.thread_id for summary in await store.threads("a")] == ["running"]
        assert await store.last("b", "young") == 2

    async def test_prune_by_count_removes_the_oldest_of_all_scopes_but_no_running_one(self, store: Store, clock: Clock):
        await start(store, "running")
        for i in range(6):
            clock.now += 1
            await whole(store, f"t{i}", "r", scope="ab"[i % 2])
        assert await store.prune(Retention(max_threads=3)) == 4
        assert [summary.thread_id for summary in await store.threads("a")] == ["t4", "running"]
        assert [summary.thread_id for summary in await store.threads("b")] == ["t5"]
        assert await store.prune(Retention(max_threads=0)) == 2
        assert [summary.thread_id for summary in await store.threads("a")] == ["running"]

    async def test_prune_by_bytes_counts_events_and_files(self, store: Store, clock: Clock):
        for name in ("t1", "t2", "t3"):
            clock.now += 1
            lease = await start(store, name)
            await store.append(lease, [b"1" * 1000])
            await finish(store, lease)
        blob = await store.put_blob("a", b"x" * 5000, media_type="text/plain", thread_id="t1")
        assert await store.prune(Retention(max_bytes=20_000)) == 0
        assert await store.prune(Retention(max_bytes=6_000)) == 1
        with pytest.raises(NotFound):
            await store.blob("a", blob.blob_id)
        assert await store.prune(Retention(max_bytes=1500)) == 1
        assert [summary.thread_id for summary in await store.threads("a")] == ["t3"]

    # Interrupts

    async def test_an_interrupt_goes_from_open_to_claimed_to_settled(self, store: Store):
        await whole(store, "t", "r1", "i1", "i2")
        records = await store.interrupts("a", "t")
        assert [(r.interrupt_id, r.run_id, r.status, r.body, r.claimed_by) for r in records] == [
            ("i1", "r1", "open", b'{"id":"i1"}', None),
            ("i2", "r1", "open", b'{"id":"i2"}', None),
        ]
        lease = await start(store, run_id="r2", claims=["i1", "i2"])
        assert await statuses(store) == {"i1": "claimed", "i2": "claimed"}
        assert {record.claimed_by for record in await store.interrupts("a", "t")} == {"r2"}
        await store.settle(lease, ["i1"])
        await store.settle(lease, ["i1"])
        assert await statuses(store) == {"i1": "settled", "i2": "claimed"}
        await finish(store, lease)
        assert await statuses(store) == {"i1": "settled", "i2": "open"}
        with pytest.raises(InterruptTaken) as error:
            await start(store, run_id="r3", claims=["i1"])
        assert error.value.interrupt_id == "i1"
        await start(store, run_id="r4", claims=["i2"])

    async def test_a_take_over_opens_what_was_claimed_and_not_settled(self, store: Store, clock: Clock):
        await whole(store, "t", "r1", "i1", "i2")
        lease = await start(store, run_id="r2", claims=["i1", "i2"])
        await store.settle(lease, ["i2"])
        clock.now += LEASE
        taken = await store.take_over((await store.expired())[0], owner="x", lease_seconds=LEASE)
        assert taken is not None
        assert await statuses(store) == {"i1": "open", "i2": "settled"}

    async def test_only_what_the_run_has_claimed_can_be_settled(self, store: Store):
        await whole(store, "t", "r1", "i1", "i2")
        lease = await start(store, run_id="r2", claims=["i1"])
        for ids in (["i1", "i2"], ["i1", "never raised"]):
            with pytest.raises(InterruptTaken) as error:
                await store.settle(lease, ids)
            assert error.value.interrupt_id == ids[1]
            assert await statuses(store) == {"i1": "claimed", "i2": "open"}

    async def test_of_racing_answers_one_wins(self, store: Store):
        await whole(store, "t", "r", "i1")
        assert await refused([start(store, run_id=f"a{i}", claims=["i1"]) for i in range(6)], ThreadBusy) == 5
        assert await statuses(store) == {"i1": "claimed"}

    async def test_an_interrupt_that_is_raised_again_is_open_and_the_newest(self, store: Store):
        await whole(store, "t", "r1", "i1", "i2")
        lease = await start(store, run_id="r2", claims=["i1"])
        await store.settle(lease, ["i1"])
        await finish(store, lease, "i1")
        records = await store.interrupts("a", "t")
        assert [(r.interrupt_id, r.run_id, r.status, r.claimed_by) for r in records] == [
            ("i2", "r1", "open", None),
            ("i1", "r2", "open", None),
        ]

    # Session and results

    async def test_the_session_is_what_the_last_closed_run_left(self, store: Store):
        lease = await start(store)
        assert await store.session("a", "t") is None
        await finish(store, lease, session=b"one")
        assert await store.session("a", "t") == b"one"
        await whole(store, "t", "r2")
        assert await store.session("a", "t") == b"one"
        await finish(store, await start(store, run_id="r3"), session=b"")
        assert await store.session("a", "t") == b""

    async def test_the_first_result_recorded_stays(self, store: Store):
        lease = await start(store)
        await store.record(lease, "root", "k", b"first")
        await store.record(lease, "root", "k", b"second")
        await store.record(lease, "root", "", b"")
        await store.record(lease, "other root", "k", b"third")
        await finish(store, lease)
        assert await store.recorded("a", "t", "root") == {"k": b"first", "": b""}
        assert await store.recorded("a", "t", "other root") == {"k": b"third"}

    # Files

    async def test_a_file_is_stored_once_under_an_id_made_from_its_content(self, store: Store, clock: Clock):
        blob = await store.put_blob("a", b"\x00data", media_type="image/png", filename="p.png")
        assert (blob.media_type, blob.filename, blob.size, blob.created_at) == ("image/png", "p.png", 5, clock.now)
        clock.now += 1
        assert await store.put_blob("a", b"\x00data", media_type="image/png", filename="p.png") == blob
        assert await store.blob("a", blob.blob_id) == (blob, b"\x00data")
        other = await store.put_blob("a", b"\x00data", media_type="text/html", filename="p.png")
        assert other.blob_id != blob.blob_id
        assert other.media_type == "text/html"
        await store.delete_blob("a", blob.blob_id)
        with pytest.raises(NotFound):
            await store.blob("a", blob.blob_id)
        assert (await store.blob("a", other.blob_id))[1] == b"\x00data"

    async def test_a_file_goes_away_with_the_last_thread_that_holds_it(self, store: Store):
        ids: dict[str, str] = {}
        for name, threads in {"one": ["t1"], "both": ["t1", "t2"], "kept": ["t1", None], "free": [None]}.items():
            for thread_id in threads:
                blob = await store.put_blob("a", name.encode(), media_type="text/plain", thread_id=thread_id)
                ids[name] = blob.blob_id

        async def stored() -> set[str]:
            found: set[str] = set()
            for name, blob_id in ids.items():
                try:
                    await store.blob("a", blob_id)
                except NotFound:
                    continue
                found.add(name)
            return found

        await whole(store, "t1", "r")  # a file may be stored before its thread has a run
        await whole(store, "t2", "r")
        await store.delete_thread("a", "t1")
        assert await stored() == {"both", "kept", "free"}
        await store.delete_thread("a", "t2")
        assert await stored() == {"kept", "free"}

    async def test_deleting_a_file_leaves_its_thread(self, store: Store):
        blob = await store.put_blob("a", b"1", media_type="text/plain", thread_id="t")
        await whole(store, "t", "r")
        await store.delete_blob("a", blob.blob_id)
        assert await store.last("a", "t") == 2
        await store.delete_thread("a", "t")

    # Scopes

    SCOPED: ClassVar[dict[str, Callable[[Store, str], Awaitable[object]]]] = {
        "run": lambda store, scope: store.run(scope, "t", "r"),
        "last": lambda store, scope: store.last(scope, "t"),
        "read": lambda store, scope: store.read(scope, "t"),
        "tail": lambda store, scope: collect(store.tail(scope, "t"), 1),
        "thread": lambda store, scope: store.thread(scope, "t"),
        "threads before": lambda store, scope: store.threads(scope, before="t"),
        "delete_thread": lambda store, scope: store.delete_thread(scope, "t"),
        "request_cancel": lambda store, scope: store.request_cancel(scope, "t", "r"),
    }

    @pytest.mark.parametrize("name", SCOPED)
    async def test_another_scope_does_not_exist(self, store: Store, name: str):
        await start(store)
        with pytest.raises(NotFound):
            await self.SCOPED[name](store, "b")
        assert not (await store.run("a", "t", "r")).cancel_requested

    async def test_another_scope_lists_nothing_and_keeps_its_own(self, store: Store, clock: Clock):
        lease = await start(store)
        await store.record(lease, "r", "k", b"1")
        await finish(store, lease, "i1", session=b"mine")
        blob = await store.put_blob("a", b"1", media_type="text/plain", thread_id="t")
        assert list(await store.runs("b", "t")) == list(await store.threads("b")) == []
        assert list(await store.interrupts("b", "t")) == []
        assert await store.session("b", "t") is None
        assert await store.recorded("b", "t", "r") == {}
        with pytest.raises(NotFound):
            await store.blob("b", blob.blob_id)
        with pytest.raises(NotFound):
            await store.delete_blob("b", blob.blob_id)
        with pytest.raises(InterruptTaken):
            await start(store, run_id="r2", scope="b", claims=["i1"])
        other = await store.put_blob("b", b"1", media_type="text/plain", thread_id="t")
        assert other.blob_id != blob.blob_id
        taken = await start(store, scope="b")  # the same thread and run id: another run on another thread
        assert await store.last("b", "t") == 1
        with pytest.raises(StaleLease):
            await store.append(lease, lines("late"))
        await finish(store, taken, session=b"theirs")
        await store.delete_thread("b", "t")
        assert await store.session("a", "t") == b"mine"
        assert await store.blob("a", blob.blob_id) == (blob, b"1")
        assert await statuses(store) == {"i1": "open"}
        assert events_of(await store.read("a", "t")) == lines("started", "finished")

    # All together

    @pytest.mark.parametrize("seed", range(6))
    async def test_random_operations_agree_with_a_simple_model(self, store: Store, clock: Clock, seed: int):
        await play(store, clock, random.Random(seed), steps=400)
