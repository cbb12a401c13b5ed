"""Commits that a synchronous standby does not have yet, and servers that change their role."""

from __future__ import annotations

import asyncio
import shutil
from collections.abc import Iterator
from typing import Any

import pytest
from postgres_support import database_of
from stores.postgres_admin import connect
from stores.postgres_cluster import Cluster, find_programs, make_folder

from aguila.errors import StoreUnavailable
from aguila.store import PostgresStore, RunChange
from aguila.testing.store_contract.support import DEADLINE, append, events_of, lines, read, start

pytestmark = pytest.mark.anyio


class Standby:
    """Whether the commits of a server wait for a synchronous standby, which never comes."""

    def __init__(self, cluster: Cluster) -> None:
        self.cluster = cluster

    async def require(self, is_required: bool) -> None:
        """Make commits wait from now on, or stop that."""
        name = "missing" if is_required else ""
        self.run(f"ALTER SYSTEM SET synchronous_standby_names = '{name}'")
        self.run("SELECT pg_reload_conf()")
        async with asyncio.timeout(DEADLINE):
            while self.run("SHOW synchronous_standby_names") != [(name,)]:  # noqa: ASYNC110 - the database does it
                await asyncio.sleep(0.01)

    def run(self, sql: str) -> list[Any]:
        """Run a statement that waits for no standby."""
        with connect(self.cluster.dsn, options="-c synchronous_commit=local") as db:
            cursor = db.execute(sql)  # type: ignore[arg-type]
            return [] if cursor.description is None else [tuple(row.values()) for row in cursor.fetchall()]

    async def wait_for_commit(self) -> None:
        """Wait until a commit waits."""
        async with asyncio.timeout(DEADLINE):
            while not self.run("SELECT 1 FROM pg_stat_activity WHERE wait_event = 'SyncRep'"):  # noqa: ASYNC110
                await asyncio.sleep(0.01)


@pytest.fixture
def standby() -> Iterator[Standby]:
    if find_programs() is None:
        pytest.skip("needs a server of its own, and PostgreSQL is not installed")
    place = make_folder()
    cluster = Cluster(place / "node")
    cluster.create()
    cluster.start()
    yield Standby(cluster)
    cluster.stop()
    shutil.rmtree(place, ignore_errors=True)


async def test_what_the_standby_does_not_have_is_shown_to_nobody(standby: Standby):
    """Neither a timeout of ours nor a restart of the primary makes a commit visible that waits for the standby."""
    patient, hasty = (PostgresStore(standby.cluster.dsn, patience=seconds) for seconds in (DEADLINE, 1.0))
    await patient.open()
    await hasty.open()
    lease = await start(hasty)
    await append(hasty, lease, lines(0))
    assert events_of(await read(patient)) == lines("started", 0)
    await standby.require(True)
    change = RunChange(events=lines(1), after=2)
    with pytest.raises(StoreUnavailable):
        await hasty.write(lease, change)
    assert events_of(await read(patient)) == lines("started", 0)
    standby.cluster.stop()
    standby.cluster.start()
    assert standby.run("SELECT last FROM aguila.threads") == [(3,)]  # as PostgreSQL shows it
    with pytest.raises(StoreUnavailable):
        await read(hasty)
    reading = asyncio.create_task(read(patient))
    await standby.wait_for_commit()
    assert not reading.done()
    await standby.require(False)
    assert events_of(await reading) == lines("started", 0, 1)
    await hasty.write(lease, change)  # the caller tries again, and the batch is not doubled
    assert events_of(await read(patient)) == lines("started", 0, 1)
    await patient.close()
    await hasty.close()


async def test_a_store_continues_on_the_standby_that_was_promoted():
    """The URL names both hosts; the store finds the one that accepts writes."""
    if find_programs() is None:
        pytest.skip("needs servers of its own, and PostgreSQL is not installed")
    place = make_folder()
    primary = Cluster(place / "primary", synchronous_standby_names="standby")
    standby = Cluster(place / "standby")
    try:
        primary.create()
        primary.start()
        await asyncio.to_thread(standby.create_standby, primary)
        standby.start()
        url = f"postgresql://aguila@127.0.0.1:{primary.port},127.0.0.1:{standby.port}/postgres"
        async with PostgresStore(url, patience=DEADLINE) as store:
            lease = await start(store)
            await append(store, lease, lines(1))
            primary.stop()
            writing = asyncio.create_task(append(store, lease, lines(2)))
            await asyncio.to_thread(standby.promote)
            await writing
            assert events_of(await read(store)) == lines("started", 1, 2)
    finally:
        for cluster in (standby, primary):
            cluster.stop()
        shutil.rmtree(place, ignore_errors=True)


async def test_a_connection_that_accepts_no_writes_any_more_is_replaced(store: PostgresStore):
    """A pooler or a proxy may keep a session on a server that is a standby by now."""
    lease = await start(store)
    database = database_of(store)

    def demote() -> object:
        with database.transaction() as tx:
            tx.do("SET default_transaction_read_only = on")
        return database.writer

    old = await asyncio.to_thread(demote)
    await append(store, lease, lines(1))
    assert database.writer is not old
    assert events_of(await read(store)) == lines("started", 1)
