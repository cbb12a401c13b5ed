"""The store contract: a call wakes the readers of its own store, which need not poll for it."""

from __future__ import annotations

import asyncio

import pytest

from aguila.errors import NotFound
from aguila.store import Cancel, Lease, RunKey, Store
from aguila.testing.store_contract.support import (
    DEADLINE,
    LEASE,
    Clock,
    StoreTest,
    append,
    collect,
    complete,
    delete,
    lines,
    new_run,
    start,
    take,
)

RUN = RunKey("a", "t", "r")


async def until_waiting(store: Store) -> None:
    """Wait until a reader of the store sleeps."""
    async with asyncio.timeout(DEADLINE):
        while not store.live.waiting:  # noqa: ASYNC110 - a store has no event for it
            await asyncio.sleep(0.001)


async def assert_called(store: Store, lease: Lease) -> None:
    """Assert that a cancel request calls the callback of a lease."""
    called = asyncio.Event()
    store.on_change(lease, called.set)
    called.clear()  # it may be called at once
    await store.tell(RUN, Cancel())
    async with asyncio.timeout(DEADLINE):
        await called.wait()


class WakeupsContract(StoreTest):
    @pytest.fixture
    def unpolled(self, store: Store) -> Store:
        """The store, which does not poll: only a call of ``live`` wakes its readers."""
        store.live.poll_seconds = 10 * DEADLINE
        return store

    async def test_a_write_wakes_tails(self, unpolled: Store):
        lease = await start(unpolled)
        for number in range(2, 5):
            tail = asyncio.create_task(collect(unpolled.tail("a", "t", number - 1), 1))
            await until_waiting(unpolled)
            await append(unpolled, lease, lines(number))
            assert await tail == lines(number)

    async def test_a_removal_wakes_tails(self, unpolled: Store):
        await complete(unpolled, "t", "r")
        tail = asyncio.create_task(collect(unpolled.tail("a", "t", 2), 1))
        await until_waiting(unpolled)
        await delete(unpolled)
        with pytest.raises(NotFound):
            await tail

    async def test_a_message_wakes_the_owner(self, unpolled: Store):
        waiter = asyncio.create_task(unpolled.wait_for_cancel(await start(unpolled)))
        await until_waiting(unpolled)
        await unpolled.tell(RUN, Cancel())
        async with asyncio.timeout(DEADLINE):
            assert await waiter == "always"

    async def test_a_take_over_wakes_the_former_owner(self, unpolled: Store, clock: Clock):
        waiter = asyncio.create_task(unpolled.wait_for_cancel(await start(unpolled)))
        await until_waiting(unpolled)
        clock.now += LEASE
        taken = await take(unpolled)
        async with asyncio.timeout(DEADLINE):
            assert await waiter == "always"
        await assert_called(unpolled, taken.lease)

    async def test_a_repeated_begin_gets_the_messages_to_its_run(self, unpolled: Store):
        new = new_run()
        await unpolled.begin(new)
        await assert_called(unpolled, (await unpolled.begin(new)).lease)
