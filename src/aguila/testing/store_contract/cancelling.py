"""The store contract: cancel runs, always or only if they have no viewers."""

from __future__ import annotations

import asyncio

import pytest

from aguila.errors import NotFound, StoreUnavailable
from aguila.store import AnswerCancel, Cancel, CancelRequest, Lease, RunChange, RunEnd, RunKey, Store
from aguila.testing.store_contract.support import (
    DEADLINE,
    LEASE,
    Clock,
    StoreTest,
    append,
    complete,
    finish,
    lines,
    run_of,
    start,
    take,
)

RUN = RunKey("a", "t", "r")


async def seen_by_owner(store: Store, lease: Lease) -> CancelRequest | None:
    """Return the cancel request that the owner sees when it renews its lease."""
    return (await store.write(lease, RunChange(lease_seconds=LEASE))).cancel


class CancelContract(StoreTest):
    async def test_a_cancel_request_reaches_the_owner(self, store: Store):
        lease = await start(store)
        waiter = asyncio.create_task(store.wait_for_cancel(lease))
        await append(store, lease, lines(1))
        assert not waiter.done()
        run = await store.tell(RUN, Cancel())
        assert run.cancel_requested
        assert run == await run_of(store)
        async with asyncio.timeout(DEADLINE):
            await waiter
            await store.wait_for_cancel(lease)
        assert await seen_by_owner(store, lease) == "always"
        assert await store.tell(RUN, Cancel()) == await run_of(store)

    async def test_a_cancel_request_to_a_closed_run_does_nothing(self, store: Store):
        await complete(store, "t", "r")
        before = await run_of(store)
        assert await store.tell(RUN, Cancel()) == before == await run_of(store)
        for thread_id, run_id in (("t", "x"), ("x", "r")):
            with pytest.raises(NotFound):
                await store.tell(RunKey("a", thread_id, run_id), Cancel())

    async def test_a_cancel_waiter_returns_when_the_lease_is_lost(self, store: Store, clock: Clock):
        lease = await start(store)
        waiter = asyncio.create_task(store.wait_for_cancel(lease))
        clock.now += LEASE
        taken = (await take(store)).lease
        other = asyncio.create_task(store.wait_for_cancel(taken))
        async with asyncio.timeout(DEADLINE):
            await waiter
            await finish(store, taken)
            await other

    async def test_a_cancel_waiter_can_be_cancelled(self, store: Store):
        lease = await start(store)
        waiters = [asyncio.create_task(store.wait_for_cancel(lease)) for _ in range(4)]
        await append(store, lease, lines(1))
        waiters[0].cancel()
        await asyncio.wait(waiters[:1])
        await store.tell(RUN, Cancel())
        async with asyncio.timeout(DEADLINE):
            await asyncio.gather(*waiters[1:])

    async def test_an_owner_sees_the_kind_of_a_cancel_request(self, store: Store):
        lease = await start(store)
        waiter = asyncio.create_task(store.wait_for_cancel(lease))
        run = await store.tell(RUN, Cancel(unwatched=True))
        assert run == await run_of(store)
        assert not run.cancel_requested
        async with asyncio.timeout(DEADLINE):
            assert await waiter == "unwatched"
            assert await store.wait_for_cancel(lease) == "unwatched"
            assert await seen_by_owner(store, lease) == "unwatched"
            await store.tell(RUN, Cancel())
            assert await store.wait_for_cancel(lease) == "always"

    async def test_a_process_that_asks_waits_for_the_answer(self, store: Store):
        lease = await start(store)
        await store.tell(RUN, Cancel(unwatched=True))
        waiters = [asyncio.create_task(store.wait_for_answer(RUN)) for _ in range(2)]
        await append(store, lease, lines(1))
        assert not any(waiter.done() for waiter in waiters)
        await store.tell(RUN, AnswerCancel(granted=False))
        async with asyncio.timeout(DEADLINE):
            for waiter in waiters:
                run = await waiter
                assert (run.is_running, run.cancel_requested) == (True, False)
            await store.tell(RUN, Cancel(unwatched=True))
            assert await store.wait_for_cancel(lease) == "unwatched"
            waiter = asyncio.create_task(store.wait_for_answer(RUN))
            await append(store, lease, lines(2))
            assert not waiter.done()
            await store.tell(RUN, AnswerCancel(granted=True))
            run = await waiter
            assert (run.is_running, run.cancel_requested) == (True, True)
            assert await store.wait_for_cancel(lease) == "always"

    @pytest.mark.parametrize("ends", [True, False], ids=["ends", "is lost"])
    async def test_the_wait_for_an_answer_ends_with_the_run(self, store: Store, clock: Clock, ends: bool):
        lease = await start(store)
        await store.tell(RUN, Cancel(unwatched=True))
        waiter = asyncio.create_task(store.wait_for_answer(RUN))
        await append(store, lease, lines(1))
        assert not waiter.done()
        if not ends:
            clock.now += LEASE
            lease = (await take(store)).lease
        await append(store, lease, lines(2), end=RunEnd(outcome="error"))
        async with asyncio.timeout(DEADLINE):
            run = await waiter
        assert (run.outcome, run.cancel_requested) == ("error", False)
        await start(store, run_id="next")
        assert await store.wait_for_answer(RUN) == run

    async def test_a_request_without_unwatched_wins_whichever_came_first(self, store: Store):
        lease = await start(store)
        await store.tell(RUN, Cancel())
        await store.tell(RUN, Cancel(unwatched=True))
        await store.tell(RUN, AnswerCancel(granted=False))
        assert (await store.wait_for_answer(RUN)).cancel_requested
        other = await start(store, "u")
        await store.tell(RunKey("a", "u", "r"), Cancel(unwatched=True))
        await store.tell(RunKey("a", "u", "r"), Cancel())
        await store.tell(RunKey("a", "u", "r"), AnswerCancel(granted=False))
        assert (await store.wait_for_answer(RunKey("a", "u", "r"))).cancel_requested
        for each in (lease, other):
            assert await store.wait_for_cancel(each) == "always"
            assert await seen_by_owner(store, each) == "always"

    async def test_a_dropped_request_cannot_be_granted(self, store: Store):
        lease = await start(store)
        await store.tell(RUN, AnswerCancel(granted=True))  # there is no request
        await store.tell(RUN, Cancel(unwatched=True))
        await store.tell(RUN, AnswerCancel(granted=False))
        await store.tell(RUN, AnswerCancel(granted=True))
        assert not (await run_of(store)).cancel_requested
        assert await seen_by_owner(store, lease) != "always"

    async def test_a_request_is_removed_with_the_end_of_its_run(self, store: Store):
        lease = await start(store)
        await store.tell(RUN, Cancel(unwatched=True))
        await finish(store, lease)
        await store.tell(RUN, AnswerCancel(granted=False))
        second = await start(store, run_id="second")
        assert await seen_by_owner(store, second) != "always"
        waiter = asyncio.create_task(store.wait_for_cancel(second))
        await append(store, second, lines(1))
        assert not waiter.done()
        await store.tell(RUN, AnswerCancel(granted=False))
        for key in (RunKey("a", "no such thread", "r"), RunKey("b", "t", "second")):
            with pytest.raises(NotFound):
                await store.tell(key, AnswerCancel(granted=False))
        await store.tell(RunKey("a", "t", "second"), Cancel(unwatched=True))
        await store.tell(RUN, AnswerCancel(granted=False))
        async with asyncio.timeout(DEADLINE):
            assert await waiter == "unwatched"

    async def test_a_request_for_a_closed_run_does_nothing(self, store: Store):
        await complete(store, "t", "r")
        before = await run_of(store)
        assert await store.tell(RUN, Cancel(unwatched=True)) == before
        assert await store.wait_for_answer(RUN) == before == await run_of(store)
        for thread_id, run_id in (("t", "x"), ("x", "r")):
            with pytest.raises(NotFound):
                await store.tell(RunKey("a", thread_id, run_id), Cancel(unwatched=True))
            with pytest.raises(NotFound):
                await store.wait_for_answer(RunKey("a", thread_id, run_id))

    async def test_closing_fails_waiters_for_an_answer(self, store: Store):
        lease = await start(store)
        await store.tell(RUN, Cancel(unwatched=True))
        waiter = asyncio.create_task(store.wait_for_answer(RUN))
        await append(store, lease, lines(1))
        await store.close()
        async with asyncio.timeout(DEADLINE):
            with pytest.raises(StoreUnavailable):
                await waiter

    async def test_a_callback_tells_of_a_cancel_request_without_a_task_that_waits(self, store: Store):
        lease, bystander = await start(store), await start(store, "bystander")
        called = asyncio.Event()
        store.on_change(lease, called.set)
        store.on_change(bystander, lambda: pytest.fail("no request is for this run"))
        await append(store, lease, lines(1))
        assert not called.is_set()
        await store.tell(RUN, Cancel())
        async with asyncio.timeout(DEADLINE):
            await called.wait()
            assert await store.wait_for_cancel(lease) == "always"
        await finish(store, bystander)

    async def test_a_run_that_lost_its_lease_is_called_at_once(self, store: Store):
        lease = await start(store)
        await finish(store, lease)
        called: list[None] = []
        store.on_change(lease, lambda: called.append(None))
        assert called == [None]
        assert await store.wait_for_cancel(lease) == "always"
