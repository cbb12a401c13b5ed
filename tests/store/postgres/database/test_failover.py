"""Several hosts in the DSN, and commits that a synchronous standby does not have yet."""

from __future__ import annotations

import asyncio
import shutil
import socket
from collections.abc import Iterator
from typing import Any
from urllib.parse import urlsplit

import asyncpg
import pytest
from contract.support import DEADLINE, complete, events_of, lines, start
from postgres_support import engine_of
from stores.postgres_cluster import Cluster, find_programs, make_folder

from aguila.errors import StoreUnavailable
from aguila.store import PostgresStore
from aguila.store.postgres.database.hosts import Host, list_hosts

pytestmark = pytest.mark.anyio


@pytest.mark.parametrize(
    ("dsn", "hosts"),
    [
        ("postgresql://me:a%40b@db1,db2:5433/app", [("db1", None), ("db2", 5433)]),
        ("postgresql://[::1]:5433,[fe80::1]/app", [("::1", 5433), ("fe80::1", None)]),
        ("postgresql:///app?host=db1,db2&port=1,2", [("db1", 1), ("db2", 2)]),
        ("postgresql:///app?host=/run/a,/run/b&port=7", [("/run/a", 7), ("/run/b", 7)]),
        ("postgresql://%2Frun%2Fa/app", [("/run/a", None)]),
        ("postgresql:///app", []),
        ("postgresql://db1,db2/app?port=1,2,3", []),
    ],
)
def test_the_hosts_of_a_dsn(dsn: str, hosts: list[tuple[str, int | None]]):
    assert list_hosts(dsn) == [Host(*host) for host in hosts]


@pytest.fixture
def silent_port() -> Iterator[int]:
    """A port that accepts connections and never answers, as a host that has lost its power."""
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        listener.listen(100)
        yield listener.getsockname()[1]


def with_hosts(dsn: str, *ports: int | None) -> str:
    """Return a DSN with these ports of the loopback address."""
    parts = urlsplit(dsn)
    user = parts.netloc.rpartition("@")[0]
    hosts = ",".join(f"127.0.0.1:{port}" for port in ports)
    return parts._replace(netloc=f"{user}@{hosts}", query="target_session_attrs=read-write").geturl()


async def test_a_host_that_does_not_answer_is_passed_over(postgres: str, postgres_schema: str, silent_port: int):
    dsn = with_hosts(postgres, silent_port, urlsplit(postgres).port)
    store = PostgresStore(dsn, schema=postgres_schema, patience=DEADLINE)
    await store.open()
    await complete(store, "t", "r")
    await store.close()


async def test_an_error_that_no_other_host_mends_is_reported(postgres: str, silent_port: int):
    dsn = with_hosts(postgres, urlsplit(postgres).port, silent_port)
    missing = urlsplit(dsn)._replace(path="/missing").geturl()
    with pytest.raises(StoreUnavailable, match='database "missing" does not exist'):
        await PostgresStore(missing, patience=2.0).open()


class Standby:
    """Whether the commits of a server wait for a synchronous standby, which never comes."""

    def __init__(self, cluster: Cluster) -> None:
        self.cluster = cluster

    async def require(self, is_required: bool) -> None:
        """Make commits wait from now on, or stop that."""
        name = "missing" if is_required else ""
        await self.run(f"ALTER SYSTEM SET synchronous_standby_names = '{name}'")
        await self.run("SELECT pg_reload_conf()")
        async with asyncio.timeout(DEADLINE):
            while (await self.run("SHOW synchronous_standby_names"))[0][0] != name:
                pass

    async def run(self, sql: str) -> list[Any]:
        """Run a statement that waits for no standby."""
        db = await asyncpg.connect(self.cluster.dsn, server_settings={"synchronous_commit": "local"})
        try:
            return await db.fetch(sql)
        finally:
            await db.close()

    async def wait_for_commit(self) -> None:
        """Wait until a commit waits."""

        async def is_waiting() -> bool:
            return bool(await self.run("SELECT 1 FROM pg_stat_activity WHERE wait_event = 'SyncRep'"))

        async with asyncio.timeout(DEADLINE):
            while not await is_waiting():  # noqa: ASYNC110 - the database does it
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
    await hasty.append(lease, lines(0))
    assert events_of(await patient.read("a", "t")) == lines("started", 0)
    await standby.require(True)
    with pytest.raises(StoreUnavailable):
        await hasty.append(lease, lines(1))
    assert events_of(await patient.read("a", "t")) == lines("started", 0)
    standby.cluster.stop()
    standby.cluster.start()
    assert [row[0] for row in await standby.run("SELECT last FROM aguila.threads")] == [3]  # as PostgreSQL shows it
    with pytest.raises(StoreUnavailable):
        await hasty.read("a", "t")
    reading = asyncio.create_task(patient.read("a", "t"))
    await standby.wait_for_commit()
    assert not reading.done()
    await standby.require(False)
    assert events_of(await reading) == lines("started", 0, 1)
    await hasty.append(lease, lines(1))  # the caller tries again, and the batch is not doubled
    assert events_of(await patient.read("a", "t")) == lines("started", 0, 1)
    await patient.close()
    await hasty.close()


async def test_a_connection_that_accepts_no_writes_any_more_is_replaced(store: PostgresStore):
    """A pooler or a proxy may keep a session on a server that is a standby by now."""
    lease = await start(store)
    await store.append(lease, lines(0))
    db = engine_of(store).appends._session._db
    await db.execute("SET default_transaction_read_only = on")
    await store.append(lease, lines(1))
    assert db.is_closed()
    assert events_of(await store.read("a", "t")) == lines("started", 0, 1)


async def test_a_connection_that_is_lost_when_its_time_is_over_is_lost_once(store: PostgresStore):
    """As after a suspended process: the lost connection and the timeout are noticed together."""
    failures: list[dict[str, Any]] = []
    asyncio.get_running_loop().set_exception_handler(lambda _, context: failures.append(context))
    database = engine_of(store).database

    async def lose(db: Any) -> None:
        async def call() -> None:
            db.terminate()
            await asyncio.sleep(0.05)

        await database.guard(db, call(), size=-1024 * 1024 * 1024)  # the time is up at once

    await database.attempt(lose)
    assert failures == []
