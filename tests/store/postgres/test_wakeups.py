"""Wake-ups of other processes, dead processes, and the clock."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Sequence

import pytest
from postgres_support import SQL, database_of
from waiting import wait_until_async

from aguila.store import Cancel, PostgresStore, RunKey, Taken
from aguila.store.postgres import liveness, wakeups
from aguila.store.records import ThreadKey
from aguila.testing.store_contract.support import (
    DEADLINE,
    append,
    collect,
    finish,
    lines,
    lost_runs,
    renew,
    run_of,
    start,
)

pytestmark = pytest.mark.anyio


async def listening(*stores: PostgresStore) -> None:
    for store in stores:
        found = database_of(store).wakeups
        assert found is not None
        assert await asyncio.to_thread(found.is_listening.wait, DEADLINE)


def terminate_sessions(sql: SQL, *stores: PostgresStore, where: str = "true") -> None:
    """End the sessions of these stores, and no others: the workers of pytest-xdist share one server."""
    locks = ", ".join(str(database_of(store).connector.lock) for store in stores)
    assert sql(
        f"""
        SELECT pg_terminate_backend(pid) FROM pg_stat_activity
        JOIN (SELECT pid, (classid::bigint << 32) | objid::bigint AS key FROM pg_locks WHERE locktype = 'advisory') held
          USING (pid)
        WHERE key IN ({locks}) AND {where}
        """
    )


async def test_a_tail_in_another_process_is_woken_by_a_notification(store: PostgresStore, other: PostgresStore):
    other.live.poll_seconds = DEADLINE  # nothing but the notification can wake it
    await listening(other)
    lease = await start(store)
    async with asyncio.timeout(DEADLINE / 2):
        tail = other.tail("a", "t")
        assert list((await anext(tail)).events) == lines("started")
        for number in range(5):
            next_batch = asyncio.create_task(anext(tail))
            await wait_until_async(lambda: other.live.waiting)
            await append(store, lease, lines(number))
            assert list((await next_batch).events) == lines(number)


async def test_a_cancel_request_reaches_the_owner_in_another_process(store: PostgresStore, other: PostgresStore):
    store.live.poll_seconds = DEADLINE
    await listening(store)
    lease = await start(store)
    waiter = asyncio.create_task(store.wait_for_cancel(lease))
    await wait_until_async(lambda: store.live.waiting)
    await other.tell(RunKey("a", "t", "r"), Cancel())
    async with asyncio.timeout(DEADLINE / 2):
        assert await waiter == "always"


@pytest.mark.parametrize("mode", ["listen", "poll"])
async def test_a_tail_that_gets_no_notification_catches_up_by_polling(
    store: PostgresStore, postgres: str, postgres_schema: str, mode: str, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(wakeups.Wakeups, "send", lambda *_: None)
    async with PostgresStore(postgres, schema=postgres_schema, wakeups=mode) as poller:  # type: ignore[arg-type]
        lease = await start(store)
        reading = asyncio.create_task(collect(poller.tail("a", "t"), 3))
        await wait_until_async(lambda: poller.live.waiting)
        await append(store, lease, lines(1))
        await finish(store, lease)
        assert await reading == lines("started", 1, "finished")


async def test_one_flush_sends_at_most_one_notification(store: PostgresStore, other: PostgresStore):
    await listening(store, other)
    received: list[Sequence[ThreadKey]] = []
    found = database_of(other).wakeups
    assert found is not None
    found.on_change = received.append
    keys = {("a", f"t{i}") for i in range(20)}
    leases = [await start(store, thread_id) for _, thread_id in keys]
    await wait_until_async(lambda: {key for notice in received for key in notice} == keys)
    received.clear()
    await asyncio.gather(*(append(store, lease, lines(1)) for lease in leases))
    await wait_until_async(lambda: {key for notice in received for key in notice} == keys)
    assert len(received) <= 2  # the first write need not wait for the others


async def test_a_tail_continues_after_its_notifications_were_cut_off(
    store: PostgresStore, other: PostgresStore, sql: SQL
):
    await listening(other)
    lease = await start(store)
    reading = asyncio.create_task(collect(other.tail("a", "t"), 3))
    await wait_until_async(lambda: other.live.waiting)
    terminate_sessions(sql, store, other, where="(query LIKE 'LISTEN%' OR query LIKE '%pg_notify%')")
    await append(store, lease, lines(1))
    await finish(store, lease)
    assert await reading == lines("started", 1, "finished")


async def test_the_runs_of_a_dead_process_are_found_long_before_their_leases_end(
    store: PostgresStore, other: PostgresStore
):
    await start(store)
    assert await lost_runs(other) == []
    await store.close()
    taken = await _wait_taken(other)
    await finish(other, taken.lease)
    await store.open()


async def test_a_process_that_only_lost_connections_is_alive(store: PostgresStore, other: PostgresStore, sql: SQL):
    lease = await start(store)
    for _ in range(3):
        terminate_sessions(sql, store)
        await append(store, lease, lines(1))
        assert await lost_runs(other) == []


async def test_after_a_restart_of_the_server_only_the_lease_counts(
    store: PostgresStore, other: PostgresStore, sql: SQL
):
    await start(store)
    sql("UPDATE aguila.runs SET lock = split_part(lock, '@', 1) || '@1.0'")
    await store.close()
    began = time.monotonic()
    while time.monotonic() - began < liveness.GONE_SECONDS + 0.3:
        assert await lost_runs(other) == []
        await asyncio.sleep(0.1)
    await store.open()


async def test_behind_a_pooler_only_the_lease_counts(postgres: str, postgres_schema: str, sql: SQL):
    async with PostgresStore(postgres, schema=postgres_schema, wakeups="poll") as pooled:
        await start(pooled)
    assert sql("SELECT lock FROM aguila.runs") == [(None,)]


async def test_the_clock_of_the_database_judges_leases(store: PostgresStore, monkeypatch: pytest.MonkeyPatch, sql: SQL):
    monkeypatch.setattr(time, "time", lambda: 1_000_000.0)  # this machine's clock is years off
    lease = await start(store)
    run = await run_of(store)
    ((now,),) = sql("SELECT extract(epoch FROM clock_timestamp())::float8")
    assert abs(run.lease_until - 30 - now) < 20
    assert await lost_runs(store) == []
    await renew(store, lease, -1.0)
    assert await lost_runs(store) == ["r"]


async def _wait_taken(store: PostgresStore) -> Taken:
    async with asyncio.timeout(DEADLINE):
        while True:
            found = await store.take_over("x", 30)
            if found:
                return found[0]
            await asyncio.sleep(0.05)
