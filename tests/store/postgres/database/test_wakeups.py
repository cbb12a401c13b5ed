"""Wake-ups of other processes, dead processes, and the clock."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Sequence

import pytest
from contract.support import DEADLINE, collect, finish, lines, start
from postgres_support import engine_of, fetch
from waiting import wait_until_async

from aguila.store import PostgresStore
from aguila.store.feed import ThreadKey
from aguila.store.postgres import engine, queries
from aguila.store.records import Lease

pytestmark = pytest.mark.anyio


async def listening(*stores: PostgresStore) -> None:
    for store in stores:
        wakeups = engine_of(store).wakeups
        assert wakeups is not None
        await wakeups.is_listening.wait()


async def terminate_sessions(*stores: PostgresStore, where: str = "true") -> None:
    """End the sessions of these stores, and no others: the workers of pytest-xdist share one server."""
    locks = ", ".join(str(engine_of(store).database.lock) for store in stores)
    ended = await fetch(
        stores[0],
        f"""
        SELECT pg_terminate_backend(pid) FROM pg_stat_activity
        JOIN (SELECT pid, (classid::bigint << 32) | objid::bigint AS key FROM pg_locks WHERE locktype = 'advisory') held
          USING (pid)
        WHERE key IN ({locks}) AND pid <> pg_backend_pid() AND {where}
        """,
    )
    assert ended


async def test_a_tail_in_another_process_is_woken_by_a_notification(store: PostgresStore, other: PostgresStore):
    await listening(other)
    engine_of(other)._poller._seconds = DEADLINE  # nothing but the notification can wake it
    lease = await start(store)
    async with asyncio.timeout(DEADLINE / 2):
        tail = other.tail("a", "t")
        assert list((await anext(tail)).events) == lines("started")
        for number in range(5):
            next_batch = asyncio.create_task(anext(tail))
            await wait_until_async(lambda: engine_of(other).feed.waiting)
            await store.append(lease, lines(number))
            assert list((await next_batch).events) == lines(number)


async def test_a_cancel_request_reaches_the_owner_in_another_process(store: PostgresStore, other: PostgresStore):
    await listening(store)
    engine_of(store)._poller._seconds = DEADLINE
    lease = await start(store)
    waiter = asyncio.create_task(store.cancel_requested(lease))
    await wait_until_async(lambda: engine_of(store).feed.waiting)
    await other.request_cancel("a", "t", "r")
    async with asyncio.timeout(DEADLINE / 2):
        assert await waiter == "always"


async def test_a_run_hears_of_a_cancel_request_without_a_task_that_waits(store: PostgresStore, other: PostgresStore):
    await listening(store)
    engine_of(store)._poller._seconds = DEADLINE
    lease = await start(store)
    heard: list[None] = []
    store.listen_for_cancel(lease, lambda: heard.append(None))
    await other.request_cancel("a", "t", "r")
    await wait_until_async(lambda: heard)
    async with asyncio.timeout(DEADLINE):
        assert await store.cancel_requested(lease) == "always"


@pytest.mark.parametrize("wakeups", ["listen", "poll"])
async def test_a_tail_that_gets_no_notification_catches_up_by_polling(
    store: PostgresStore, postgres: str, postgres_schema: str, wakeups: str, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(engine.Wakeups, "notify", lambda *_, **__: None)
    poller = PostgresStore(postgres, schema=postgres_schema, wakeups=wakeups)  # type: ignore[arg-type]
    await poller.open()
    assert engine_of(poller)._poller._seconds < 1.0
    lease = await start(store)
    reading = asyncio.create_task(collect(poller.tail("a", "t"), 3))
    await wait_until_async(lambda: engine_of(poller).feed.waiting)
    await store.append(lease, lines(1))
    await finish(store, lease)
    assert await reading == lines("started", 1, "finished")
    await poller.close()


async def test_one_flush_sends_at_most_one_notification(store: PostgresStore, other: PostgresStore):
    await listening(store, other)
    received: list[Sequence[ThreadKey]] = []
    wakeups = engine_of(other).wakeups
    assert wakeups is not None
    wakeups._on_change = received.append
    keys = {("a", f"t{i}") for i in range(20)}
    leases = [await start(store, thread_id) for _, thread_id in keys]
    await wait_until_async(lambda: sum(map(len, received)) == 20)
    received.clear()
    await asyncio.gather(*(store.append(lease, lines(1)) for lease in leases))
    await wait_until_async(lambda: received)
    assert [set(each) for each in received] == [keys]


async def test_a_run_that_ends_does_not_ask_for_cancel_requests(store: PostgresStore, monkeypatch: pytest.MonkeyPatch):
    asked: list[Lease] = []

    async def read(_: object, lease: Lease) -> None:
        asked.append(lease)

    monkeypatch.setattr(queries, "read_cancel_request", read)
    lease = await start(store)
    waiter = asyncio.create_task(store.cancel_requested(lease))
    await wait_until_async(lambda: engine_of(store).feed.waiting)
    await finish(store, lease)
    async with asyncio.timeout(DEADLINE):
        assert await waiter == "always"
    assert asked == []


async def test_a_tail_continues_after_its_notifications_were_cut_off(store: PostgresStore, other: PostgresStore):
    await listening(other)
    lease = await start(store)
    reading = asyncio.create_task(collect(other.tail("a", "t"), 3))
    await wait_until_async(lambda: engine_of(other).feed.waiting)
    await terminate_sessions(store, other, where="(query LIKE 'LISTEN%' OR query LIKE '%pg_notify%')")
    await store.append(lease, lines(1))
    await finish(store, lease)
    assert await reading == lines("started", 1, "finished")


async def test_the_runs_of_a_dead_process_are_found_long_before_their_leases_end(
    store: PostgresStore, other: PostgresStore
):
    await start(store)
    assert list(await other.expired()) == []
    await store.close()
    found = await _wait_expired(other)
    lease = await other.take_over(found, owner="x", lease_seconds=30)
    assert lease is not None
    await finish(other, lease)
    await store.open()


async def test_a_process_that_only_lost_connections_is_alive(store: PostgresStore, other: PostgresStore):
    lease = await start(store)
    for _ in range(3):
        await terminate_sessions(other, store)
        await store.append(lease, lines(1))
        assert list(await other.expired()) == []


async def test_after_a_restart_of_the_server_only_the_lease_counts(store: PostgresStore, other: PostgresStore):
    await start(store)
    await fetch(store, "UPDATE aguila.runs SET incarnation = incarnation - interval '1 minute'")
    await store.close()
    began = time.monotonic()
    while time.monotonic() - began < engine.GONE_SECONDS + 0.3:
        assert list(await other.expired()) == []
        await asyncio.sleep(0.1)
    await store.open()


async def test_behind_a_pooler_only_the_lease_counts(store: PostgresStore, postgres: str, postgres_schema: str):
    pooled = PostgresStore(postgres, schema=postgres_schema, wakeups="poll")
    await pooled.open()
    await start(pooled)
    await pooled.close()
    rows = await fetch(store, "SELECT lock, incarnation FROM aguila.runs")
    assert [tuple(row) for row in rows] == [(None, None)]


async def test_the_clock_of_the_database_judges_leases(store: PostgresStore, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(time, "time", lambda: 1_000_000.0)  # this machine's clock is years off
    lease = await start(store)
    run = await store.run("a", "t", "r")
    ((now,),) = await fetch(store, "SELECT extract(epoch FROM clock_timestamp())::float8")
    assert abs(run.lease_until - 30 - now) < 20
    assert list(await store.expired()) == []
    await store.renew(lease, -1.0)
    assert [one.run_id for one in await store.expired()] == ["r"]


async def _wait_expired(store: PostgresStore):
    async with asyncio.timeout(DEADLINE):
        while True:
            found = await store.expired()
            if found:
                return found[0]
            await asyncio.sleep(0.05)
