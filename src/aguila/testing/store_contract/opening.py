"""The store contract: open, close and check a store."""

from __future__ import annotations

import asyncio
import gc
import warnings
from pathlib import Path

import pytest

from aguila.errors import StoreUnavailable
from aguila.store import Batch, Store, Usage
from aguila.testing.store_contract.support import (
    DEADLINE,
    Clock,
    StoreTest,
    complete,
    last_of,
    lines,
    list_threads,
    lost_runs,
    start,
    total_usage,
)


class OpeningContract(StoreTest):
    async def test_a_store_opened_several_times_closes_with_the_last_close(self, store: Store):
        await complete(store, "t", "r")
        await store.open()
        assert await last_of(store) == 2
        await store.close()
        assert await last_of(store) == 2
        await store.check()
        await store.close()
        with pytest.raises(StoreUnavailable):
            await store.check()
        await store.close()

    def test_a_store_can_be_opened_again_after_its_event_loop_closed(self, clock: Clock, tmp_path: Path):
        store = self.make(clock, tmp_path)

        async def use(number: int) -> int:
            await store.open()
            await complete(store, "t", f"r{number}")
            return await last_of(store)

        # A transport of a closed loop warns when it is collected.
        with warnings.catch_warnings(action="ignore", category=ResourceWarning):
            assert [asyncio.run(use(number)) for number in range(3)] == [2, 4, 6]
            asyncio.run(_close(store))
            gc.collect()

    async def test_concurrent_opens_open_once(self, clock: Clock, tmp_path: Path):
        store = self.make(clock, tmp_path)
        await asyncio.gather(*(store.open() for _ in range(5)))
        await store.check()
        for _ in range(5):
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
            lambda: last_of(store),
            lambda: list_threads(store),
            lambda: lost_runs(store),
            lambda: store.put_file("a", b"", media_type="text/plain"),
        ):
            with pytest.raises(StoreUnavailable):
                await call()

    async def test_closing_ends_tails_and_fails_cancel_waiters(self, store: Store):
        lease = await start(store)
        arrived: asyncio.Queue[Batch] = asyncio.Queue()

        async def follow() -> None:
            async for batch in store.tail("a", "t"):
                arrived.put_nowait(batch)

        tails = [asyncio.create_task(follow()) for _ in range(3)]
        waiter = asyncio.create_task(store.wait_for_cancel(lease))
        async with asyncio.timeout(DEADLINE):
            for _ in tails:
                assert list((await arrived.get()).events) == lines("started")
            await store.close()
            await asyncio.gather(*tails)
            with pytest.raises(StoreUnavailable):
                await waiter
        assert arrived.empty()

    async def test_check_leaves_nothing(self, store: Store):
        for _ in range(2):
            await store.check()
        assert (await list_threads(store), await total_usage(store)) == ([], Usage())


async def _close(store: Store) -> None:
    await store.open()
    await store.close()
