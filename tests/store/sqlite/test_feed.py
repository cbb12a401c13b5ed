"""Group commit and live readers."""

from __future__ import annotations

import asyncio

import pytest
from sqlite_support import BlockedWriter, database_of

from aguila.store import SQLiteStore
from aguila.store.sql import reads
from aguila.testing.store_contract.support import append, collect, finish, lines, start

pytestmark = pytest.mark.anyio


async def test_jobs_queued_during_a_commit_share_the_next_transaction(store: SQLiteStore):
    leases = [await start(store, f"t{i}") for i in range(20)]
    statements: list[str] = []
    connection = database_of(store).connection
    assert connection is not None
    connection.set_trace_callback(statements.append)
    async with BlockedWriter(store):
        calls = [asyncio.create_task(append(store, lease, lines(i))) for i, lease in enumerate(leases)]
        await asyncio.sleep(0)
    await asyncio.gather(*calls)
    assert [statement for statement in statements if statement.startswith("BEGIN")] == ["BEGIN IMMEDIATE"] * 2


async def test_following_a_run_of_this_process_does_not_read_the_file(
    store: SQLiteStore, monkeypatch: pytest.MonkeyPatch
):
    def fail(*_: object) -> None:
        raise AssertionError("the file was read")

    lease = await start(store)
    monkeypatch.setattr(reads, "read_log", fail)
    tails = [asyncio.create_task(collect(store.tail("a", "t"), 102)) for _ in range(5)]
    for i in range(100):
        await append(store, lease, lines(i))
    await finish(store, lease)
    assert await asyncio.gather(*tails) == [lines("started", *range(100), "finished")] * 5


async def test_the_ring_is_bounded_and_released(store: SQLiteStore):
    live = store.live
    lease = await start(store)
    slow = store.tail("a", "t")
    await anext(slow)
    for _ in range(100):
        await append(store, lease, [b"1" * 10_000])
    assert live.channels["a", "t"].ring_bytes <= 256 * 1024
    assert len(await collect(slow, 100)) == 100
    await slow.aclose()  # type: ignore[attr-defined]
    await finish(store, lease)
    assert live.channels == {}
