"""The contract of ``aguila.store.base`` as a test suite. To test a store, subclass ``StoreContract``::

    class TestMyStore(StoreContract):
        def make(self, clock, tmp_path):
            return MyStore(clock=clock, monotonic=clock.monotonic)

Every sentence of the contract is a test.
"""

from __future__ import annotations

import asyncio
import gc
import random
import warnings
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import ClassVar

import pytest

from aguila.errors import (
    InterruptTaken,
    NotFound,
    StaleLease,
    StoreUnavailable,
)
from aguila.store import Batch, Store
from contract.archives import ArchivesContract
from contract.compaction import CompactionContract
from contract.cursors import CursorsContract
from contract.inputs import InputsContract
from contract.log import LogContract
from contract.model import play
from contract.projections import ProjectionsContract
from contract.quotas import QuotasContract
from contract.runs import RunsContract
from contract.support import (
    DEADLINE,
    Clock,
    collect,
    complete,
    events_of,
    finish,
    lines,
    start,
    statuses,
)
from contract.threads import ThreadsContract
from contract.viewers import ViewersContract


class StoreContract(
    RunsContract,
    InputsContract,
    ProjectionsContract,
    CompactionContract,
    LogContract,
    CursorsContract,
    ThreadsContract,
    ViewersContract,
    ArchivesContract,
    QuotasContract,
):
    """All parts of the contract. ``STEPS``: the length of a random history."""

    STEPS: ClassVar = 400

    # Open and closed

    async def test_a_store_opened_several_times_closes_with_the_last_close(self, store: Store):
        await complete(store, "t", "r")
        await store.open()
        assert await store.last("a", "t") == 2
        await store.close()
        assert await store.last("a", "t") == 2
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
            return await store.last("a", "t")

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
            lambda: store.last("a", "t"),
            lambda: store.threads("a"),
            lambda: store.expired(),
            lambda: store.put_blob("a", b"", media_type="text/plain"),
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
        waiter = asyncio.create_task(store.cancel_requested(lease))
        async with asyncio.timeout(DEADLINE):
            for _ in tails:
                assert list((await arrived.get()).events) == lines("started")
            await store.close()
            await asyncio.gather(*tails)
            with pytest.raises(StoreUnavailable):
                await waiter
        assert arrived.empty()

    # Scopes

    SCOPED: ClassVar[dict[str, Callable[[Store, str], Awaitable[object]]]] = {
        "run": lambda store, scope: store.run(scope, "t", "r"),
        "last": lambda store, scope: store.last(scope, "t"),
        "read": lambda store, scope: store.read(scope, "t"),
        "tail": lambda store, scope: collect(store.tail(scope, "t"), 1),
        "thread": lambda store, scope: store.thread(scope, "t"),
        "delete_thread": lambda store, scope: store.delete_thread(scope, "t"),
        "request_cancel": lambda store, scope: store.request_cancel(scope, "t", "r"),
        "cancel_settled": lambda store, scope: store.cancel_settled(scope, "t", "r"),
    }

    @pytest.mark.parametrize("name", SCOPED)
    async def test_another_scope_does_not_see_the_thread(self, store: Store, name: str):
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
        assert await store.interrupt_thread("b", "i1") is None
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
        taken = await start(store, scope="b")  # same ids in another scope: another thread and run
        assert await store.last("b", "t") == 1
        with pytest.raises(StaleLease):
            await store.append(lease, lines("late"))
        await finish(store, taken, session=b"theirs")
        await store.delete_thread("b", "t")
        assert await store.session("a", "t") == b"mine"
        assert await store.blob("a", blob.blob_id) == (blob, b"1")
        data = bytes(range(256)) * 8192
        large = await store.put_blob("a", data, media_type="text/plain")
        for at, size in ((0, 0), (0, 10), (2**20 - 5, 10), (2**20 - 1, 2**20), (len(data) - 3, 10), (len(data), 1)):
            assert await store.blob_part("a", large.blob_id, at, size) == (large, data[at : at + size])
        with pytest.raises(NotFound):
            await store.blob_part("b", large.blob_id, 0, 1)
        assert await statuses(store) == {"i1": "open"}
        assert events_of(await store.read("a", "t")) == lines("started", "finished")

    # All together

    @pytest.mark.parametrize("seed", range(6))
    async def test_random_operations_agree_with_a_simple_model(self, store: Store, clock: Clock, seed: int):
        await play(store, clock, random.Random(seed), steps=self.STEPS)


async def _close(store: Store) -> None:
    await store.open()
    await store.close()
