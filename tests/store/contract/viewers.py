"""The store contract: viewers in other processes, and cancel requests that depend on them."""

from __future__ import annotations

import asyncio

import pytest

from aguila.errors import NotFound, StoreUnavailable
from aguila.store import RunEnd, Store
from contract.support import DEADLINE, LEASE, Clock, StoreTest, complete, finish, lines, start


async def watch(store: Store, viewer: str = "p", *, run_id: str = "r", scope: str = "a") -> None:
    await store.watch(scope, "t", run_id, viewer=viewer, seconds=LEASE)


class ViewersContract(StoreTest):
    # Viewers

    async def test_a_run_is_watched_for_as_long_as_it_was_registered(self, store: Store, clock: Clock):
        lease = await start(store)
        assert await store.watched(lease) is False
        await watch(store)
        clock.now += LEASE - 1
        assert await store.watched(lease) is True
        await watch(store)
        clock.now += LEASE - 1
        assert await store.watched(lease) is True
        clock.now += 1  # the registration has expired
        assert await store.watched(lease) is False

    async def test_a_run_is_watched_until_the_last_viewer_leaves(self, store: Store):
        lease = await start(store)
        await watch(store, "p")
        await watch(store, "q")
        await watch(store, "q")
        await store.unwatch("a", "t", "r", viewer="q")
        await store.unwatch("a", "t", "r", viewer="never came")
        assert await store.watched(lease) is True
        await store.unwatch("a", "t", "r", viewer="p")
        assert await store.watched(lease) is False
        await watch(store, "p")
        assert await store.watched(lease) is True

    async def test_within_finds_viewers_that_have_left(self, store: Store, clock: Clock):
        lease = await start(store)
        await watch(store)
        clock.now += 1
        await store.unwatch("a", "t", "r", viewer="p")
        clock.now += 4
        await store.unwatch("a", "t", "r", viewer="p")  # has no effect a second time
        assert await store.watched(lease, within=5) is True
        assert await store.watched(lease, within=4) is False
        await watch(store)
        clock.now += LEASE + 4
        assert await store.watched(lease, within=5) is True
        assert await store.watched(lease, within=4) is False

    @pytest.mark.parametrize("step", [1_000_000.0, -1_000_000.0])
    async def test_setting_the_clock_neither_removes_nor_extends_viewers(self, store: Store, clock: Clock, step: float):
        lease = await start(store)
        await watch(store)
        clock.step(step)
        assert list(await store.expired()) == []
        assert await store.watched(lease) is True
        clock.now += LEASE
        assert await store.watched(lease) is False

    async def test_viewers_of_a_missing_run_are_ignored(self, store: Store):
        lease = await start(store)
        await watch(store, run_id="other")
        await watch(store, scope="b")
        assert await store.watched(lease) is False
        await watch(store)
        await store.unwatch("a", "t", "other", viewer="p")
        await store.unwatch("b", "t", "r", viewer="p")
        assert await store.watched(lease) is True

    async def test_the_viewers_of_a_run_are_removed_with_its_end(self, store: Store):
        first = await start(store)
        await watch(store)
        await finish(store, first)
        await watch(store)
        assert await store.watched(first) is False
        second = await start(store, run_id="second")
        assert await store.watched(second) is False
        await finish(store, second)
        await store.delete_thread("a", "t")
        again = await start(store)
        assert await store.watched(again) is False

    # Unwatched cancel requests

    async def test_an_owner_sees_the_kind_of_a_cancel_request(self, store: Store):
        lease = await start(store)
        waiter = asyncio.create_task(store.cancel_requested(lease))
        run = await store.request_cancel("a", "t", "r", unwatched=True)
        assert run == await store.run("a", "t", "r")
        assert not run.cancel_requested
        async with asyncio.timeout(DEADLINE):
            assert await waiter == "unwatched"
            assert await store.cancel_requested(lease) == "unwatched"
            assert await store.renew(lease, LEASE) is False
            await store.request_cancel("a", "t", "r")
            assert await store.cancel_requested(lease) == "always"

    async def test_cancel_settled_waits_for_the_answer(self, store: Store):
        lease = await start(store)
        await store.request_cancel("a", "t", "r", unwatched=True)
        waiters = [asyncio.create_task(store.cancel_settled("a", "t", "r")) for _ in range(2)]
        await store.append(lease, lines(1))
        assert not any(waiter.done() for waiter in waiters)
        await store.settle_cancel("a", "t", "r", granted=False)
        async with asyncio.timeout(DEADLINE):
            for waiter in waiters:
                run = await waiter
                assert (run.is_running, run.cancel_requested) == (True, False)
            await store.request_cancel("a", "t", "r", unwatched=True)
            assert await store.cancel_requested(lease) == "unwatched"
            waiter = asyncio.create_task(store.cancel_settled("a", "t", "r"))
            await store.append(lease, lines(2))
            assert not waiter.done()
            await store.settle_cancel("a", "t", "r", granted=True)
            run = await waiter
            assert (run.is_running, run.cancel_requested) == (True, True)
            assert await store.cancel_requested(lease) == "always"

    @pytest.mark.parametrize("ends", [True, False], ids=["ends", "is lost"])
    async def test_cancel_settled_returns_when_the_run_ends(self, store: Store, clock: Clock, ends: bool):
        lease = await start(store)
        await store.request_cancel("a", "t", "r", unwatched=True)
        waiter = asyncio.create_task(store.cancel_settled("a", "t", "r"))
        await store.append(lease, lines(1))
        assert not waiter.done()
        if not ends:
            clock.now += LEASE
            taken = await store.take_over((await store.expired())[0], owner="x", lease_seconds=LEASE)
            assert taken is not None
            lease = taken
        await store.append(lease, lines(2), end=RunEnd(outcome="error"))
        async with asyncio.timeout(DEADLINE):
            run = await waiter
        assert (run.outcome, run.cancel_requested) == ("error", False)
        await start(store, run_id="next")
        assert await store.cancel_settled("a", "t", "r") == run

    async def test_a_request_without_unwatched_wins_whichever_came_first(self, store: Store):
        lease = await start(store)
        await store.request_cancel("a", "t", "r")
        await store.request_cancel("a", "t", "r", unwatched=True)
        await store.settle_cancel("a", "t", "r", granted=False)
        assert (await store.cancel_settled("a", "t", "r")).cancel_requested
        other = await start(store, "u")
        await store.request_cancel("a", "u", "r", unwatched=True)
        await store.request_cancel("a", "u", "r")
        await store.settle_cancel("a", "u", "r", granted=False)
        assert (await store.cancel_settled("a", "u", "r")).cancel_requested
        for each in (lease, other):
            assert await store.cancel_requested(each) == "always"
            assert await store.renew(each, LEASE) is True

    async def test_a_dropped_request_cannot_be_granted(self, store: Store):
        lease = await start(store)
        await store.settle_cancel("a", "t", "r", granted=True)  # there is no request
        await store.request_cancel("a", "t", "r", unwatched=True)
        await store.settle_cancel("a", "t", "r", granted=False)
        await store.settle_cancel("a", "t", "r", granted=True)
        assert not (await store.run("a", "t", "r")).cancel_requested
        assert await store.renew(lease, LEASE) is False

    async def test_a_request_is_removed_with_the_end_of_its_run(self, store: Store):
        lease = await start(store)
        await store.request_cancel("a", "t", "r", unwatched=True)
        await finish(store, lease)
        await store.settle_cancel("a", "t", "r", granted=False)
        second = await start(store, run_id="second")
        assert await store.renew(second, LEASE) is False
        waiter = asyncio.create_task(store.cancel_requested(second))
        await store.append(second, lines(1))
        assert not waiter.done()
        await store.settle_cancel("a", "t", "r", granted=False)
        await store.settle_cancel("a", "no such thread", "r", granted=False)
        await store.request_cancel("a", "t", "second", unwatched=True)
        await store.settle_cancel("a", "t", "r", granted=False)
        await store.settle_cancel("b", "t", "second", granted=False)
        async with asyncio.timeout(DEADLINE):
            assert await waiter == "unwatched"

    async def test_a_request_for_a_closed_run_does_nothing(self, store: Store):
        await complete(store, "t", "r")
        before = await store.run("a", "t", "r")
        assert await store.request_cancel("a", "t", "r", unwatched=True) == before
        assert await store.cancel_settled("a", "t", "r") == before == await store.run("a", "t", "r")
        for thread_id, run_id in (("t", "x"), ("x", "r")):
            with pytest.raises(NotFound):
                await store.request_cancel("a", thread_id, run_id, unwatched=True)
            with pytest.raises(NotFound):
                await store.cancel_settled("a", thread_id, run_id)

    async def test_closing_fails_waiters_for_an_answer(self, store: Store):
        lease = await start(store)
        await store.request_cancel("a", "t", "r", unwatched=True)
        waiter = asyncio.create_task(store.cancel_settled("a", "t", "r"))
        await store.append(lease, lines(1))
        await store.close()
        async with asyncio.timeout(DEADLINE):
            with pytest.raises(StoreUnavailable):
                await waiter
