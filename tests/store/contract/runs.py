"""The store contract: begin, append to, lease and cancel runs."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable

import pytest

from aguila.errors import (
    InterruptTaken,
    NotFound,
    RunExists,
    StaleLease,
    ThreadBusy,
    ThreadMoved,
    TooManyRuns,
)
from aguila.store import Lease, NewRun, RunEnd, Store
from contract.support import (
    DEADLINE,
    LEASE,
    Clock,
    StoreTest,
    collect,
    complete,
    count_refused,
    events_of,
    finish,
    lines,
    start,
    statuses,
)


class RunsContract(StoreTest):
    # begin

    async def test_begin_claims_the_run_and_appends_its_first_events(self, store: Store, clock: Clock):
        lease, batch = await store.begin(
            NewRun(
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
        )
        assert (lease.scope, lease.thread_id, lease.run_id, lease.owner) == ("a", "t", "r", "o")
        assert (batch.first, batch.last, list(batch.events)) == (1, 2, lines(1, 2))
        run = await store.run("a", "t", "r")
        assert (run.scope, run.thread_id, run.run_id, run.parent_run_id) == ("a", "t", "r", "p")
        assert (run.fingerprint, run.first, run.last) == ("f", 1, 2)
        assert await store.input("a", "t", "r") == b'{ "as": "sent" }'
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
        clock.now += LEASE * 2  # also with an expired lease
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
            assert await count_refused([start(store, thread, run_id) for run_id in ids], kind) == 7
            assert await store.last("a", thread) == 1

    async def test_a_refused_begin_leaves_nothing(self, store: Store):
        with pytest.raises(InterruptTaken) as error:
            await start(store, claims=["never raised"])
        assert error.value.interrupt_id == "never raised"
        with pytest.raises(NotFound):
            await store.thread("a", "t")
        assert list(await store.runs("a", "t")) == []
        await complete(store, "t", "r", "i1")
        with pytest.raises(InterruptTaken):
            await start(store, run_id="r2", claims=["i1", "never raised"])
        assert await statuses(store) == {"i1": "open"}
        await start(store, run_id="r2", claims=["i1"])

    async def test_an_interrupt_raised_after_the_run_was_planned_refuses_it_int_15(self, store: Store):
        await complete(store, "t", "r", "i1")
        with pytest.raises(ThreadMoved):
            await start(store, run_id="r2", waiting=frozenset())
        assert [run.run_id for run in await store.runs("a", "t")] == ["r"]
        await start(store, run_id="r2", waiting=frozenset({"i1", "settled elsewhere"}))

    async def test_events_appended_after_the_run_was_planned_refuse_it(self, store: Store):
        with pytest.raises(ThreadMoved):
            await start(store, after=1)
        await start(store, after=0)
        with pytest.raises(ThreadBusy):  # comes first
            await start(store, run_id="r2", after=0)
        await complete(store, "t2", "r")
        last = await store.last("a", "t2")
        for after in (0, last - 1, last + 1):
            with pytest.raises(ThreadMoved):
                await start(store, "t2", "r2", after=after)
        await start(store, "t2", "r2", after=last)
        await complete(store, "t3", "r")
        await store.delete_thread("a", "t3")
        await start(store, "t3", after=0)  # the thread does not exist, whatever its numbers were

    async def test_a_scope_has_at_most_max_running_runs(self, store: Store, clock: Clock):
        leases = [await start(store, f"t{i}", max_running=3) for i in range(3)]
        await complete(store, "another scope's", "r", scope="b")
        with pytest.raises(TooManyRuns):
            await start(store, "t3", max_running=3)
        with pytest.raises(NotFound):
            await store.thread("a", "t3")
        await start(store, "t3", scope="b", max_running=1)
        # RunExists and ThreadBusy come first.
        with pytest.raises(RunExists):
            await start(store, "t0", max_running=3)
        with pytest.raises(ThreadBusy):
            await start(store, "t0", "second", max_running=3)
        with pytest.raises(TooManyRuns):  # checked before the claims
            await start(store, "t3", claims=["never raised"], max_running=3)
        await finish(store, leases[0])
        await start(store, "t3", max_running=3)
        with pytest.raises(TooManyRuns):
            await start(store, "t0", "second", max_running=3)
        clock.now += LEASE
        taken = await store.take_over(await store.run("a", "t1", "r"), owner="x", lease_seconds=LEASE)
        assert taken is not None
        with pytest.raises(TooManyRuns):  # a run that was taken over is still open
            await start(store, "t0", "second", max_running=3)
        await finish(store, taken)
        await start(store, "t0", "second", max_running=3)
        await start(store, "t9", max_running=5)  # the limit is that of the call
        await start(store, "t10")

    async def test_of_racing_begins_in_a_scope_max_running_win(self, store: Store):
        assert await count_refused([start(store, f"t{i}", max_running=3) for i in range(8)], TooManyRuns) == 5
        assert len(await store.threads("a")) == 3

    async def test_an_event_is_a_single_line(self, store: Store):
        with pytest.raises(ValueError, match="line"):
            await start(store, events=[b"{\n}"])
        lease = await start(store)
        with pytest.raises(ValueError, match="line"):
            await store.append(lease, [b"{}", b"\n"])
        assert await store.last("a", "t") == 1

    async def test_an_id_is_text_that_utf8_can_encode(self, store: Store):
        with pytest.raises(ValueError, match="surrogate"):
            await start(store, "half \ud800")
        with pytest.raises(NotFound):
            await store.read("a", "half \ud800")
        with pytest.raises(ValueError, match="NUL"):
            await start(store, "nul \0")
        with pytest.raises(NotFound):
            await store.read("a", "nul \0")
        await start(store, "clef \U0001d11e")
        assert await store.last("a", "clef \U0001d11e") == 1

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

    async def test_a_refused_append_does_not_affect_concurrent_ones(self, store: Store):
        stale = await start(store, "old")
        await finish(store, stale)
        leases = [await start(store, f"t{i}") for i in range(10)]
        calls: list[Awaitable[object]] = []
        for lease in leases:
            calls += [store.append(stale, lines("late")), store.append(lease, lines("good"))]
        assert await count_refused(calls, StaleLease) == 10
        assert [await store.last("a", f"t{i}") for i in range(10)] == [2] * 10

    async def test_an_append_of_a_cancelled_caller_happens_once_or_not_at_all(self, store: Store):
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
        await complete(store, "closed", "r")
        clock.now += LEASE / 2
        await start(store, "younger")
        clock.now += LEASE / 2
        found = await store.expired()
        assert {(run.scope, run.thread_id) for run in found} == {("a", "t"), ("b", "t")}
        assert await store.run("b", "t", "r") in found

    async def test_take_over_needs_an_expired_lease(self, store: Store, clock: Clock):
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
        assert (
            await store.take_over(expired, owner="y", lease_seconds=LEASE) is None
        )  # the record names the former owner
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

    async def test_an_owner_with_an_expired_lease_continues_unless_it_was_taken_over(self, store: Store, clock: Clock):
        lease = await start(store)
        clock.now += LEASE + 1
        run = (await store.expired())[0]
        await store.append(lease, lines("late"))
        assert list(await store.expired()) == []
        assert await store.take_over(run, owner="x", lease_seconds=LEASE) is None
        assert (await store.run("a", "t", "r")).lease_until == clock.now + LEASE

    @pytest.mark.parametrize("step", [60.0, 1_000_000.0, -60.0, -1_000_000.0])
    async def test_setting_the_clock_neither_ends_a_lease_nor_extends_it(self, store: Store, clock: Clock, step: float):
        lease = await start(store)
        clock.now += LEASE - 1
        clock.step(step)
        assert list(await store.expired()) == []
        assert await store.take_over(await store.run("a", "t", "r"), owner="x", lease_seconds=LEASE) is None
        await store.append(lease, lines("goes on"))
        await store.renew(lease, LEASE)
        clock.step(-step)
        clock.now += LEASE - 1
        assert list(await store.expired()) == []
        clock.step(step)
        clock.now += 1
        assert [run.run_id for run in await store.expired()] == ["r"]

    async def test_a_lease_that_was_never_renewed_is_not_extended_by_a_clock_set_back(self, store: Store, clock: Clock):
        await start(store)
        clock.step(-1_000_000)
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
        await complete(store, "t", "r")
        before = await store.run("a", "t", "r")
        assert await store.request_cancel("a", "t", "r") == before == await store.run("a", "t", "r")
        for thread_id, run_id in (("t", "x"), ("x", "r")):
            with pytest.raises(NotFound):
                await store.request_cancel("a", thread_id, run_id)

    async def test_a_cancel_waiter_returns_when_the_lease_is_lost(self, store: Store, clock: Clock):
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

    async def test_a_cancel_waiter_can_be_cancelled(self, store: Store):
        lease = await start(store)
        waiters = [asyncio.create_task(store.cancel_requested(lease)) for _ in range(4)]
        await store.append(lease, lines(1))
        waiters[0].cancel()
        await asyncio.wait(waiters[:1])
        await store.request_cancel("a", "t", "r")
        async with asyncio.timeout(DEADLINE):
            await asyncio.gather(*waiters[1:])
