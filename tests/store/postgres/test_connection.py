"""URLs, several hosts, silent servers, and what the errors say."""

from __future__ import annotations

import re
import shutil
import socket
from collections.abc import Callable, Iterator
from typing import Any
from urllib.parse import urlsplit

import pytest
from stores.postgres_admin import connect, query
from stores.postgres_cluster import Cluster, find_programs, make_folder

from aguila.errors import StoreUnavailable
from aguila.store import PostgresStore, RunKey, Watch
from aguila.store.postgres.connection import parse_url
from aguila.store.postgres.hosts import split_hosts
from aguila.testing.store_contract.support import DEADLINE, complete, start

pytestmark = pytest.mark.anyio


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"schema": "Robert'); DROP"}, "schema is"),
        ({"schema": "pg_catalog"}, "schema is"),
        ({"wakeups": "hope"}, "wakeups is"),
        ({"pool": 0}, "pool is"),
    ],
)
def test_settings_are_checked_at_once(options: dict[str, Any], message: str):
    with pytest.raises(ValueError, match=message):
        PostgresStore("postgresql://x/y", **options)
    with pytest.raises(ValueError, match="postgresql://"):
        PostgresStore("threads.db")


@pytest.mark.parametrize(
    ("url", "message"),
    [
        ("postgresql:app", "postgresql://user@host/database"),
        ("postgresql://db:abc/app", "a port of the PostgreSQL URL is not a number"),
        ("postgresql://me:p@ss/w@db/app", "cannot be split .* %2F for /"),
        ("postgresql://me:p#ss@db/app", "cannot be split .* %23 for #"),
        ("postgresql://me:p%ss@db/app", "^the PostgreSQL URL cannot be split into its parts; .* %40 for @"),
        ("postgresql://db/app?colour=red", 'invalid URI query parameter: "colour"; use those of libpq'),
        ("postgresql://db/app?wakeups=poll", "pass wakeups= to PostgresStore, or write aguila_wakeups= "),
        ("postgresql://db/app?aguila_pool=3", "pass pool= to PostgresStore"),
    ],
)
def test_a_url_that_cannot_work_is_refused_with_what_to_change(url: str, message: str):
    with pytest.raises(ValueError, match=message):
        PostgresStore(url)


@pytest.mark.parametrize(
    ("url", "location"),
    [
        ("postgresql://me:secret@db/x", "postgresql://me:***@db/x"),
        ("postgresql://me@db/x?password=secret&port=1", "postgresql://me@db/x?password=***&port=1"),
        ("postgresql:///x?host=/run&sslpassword=secret", "postgresql:///x?host=/run&sslpassword=***"),
    ],
)
def test_a_password_is_not_part_of_the_location(url: str, location: str):
    assert PostgresStore(url).location == location


@pytest.mark.parametrize(
    ("dsn", "hosts"),
    [
        ("postgresql://me:a%40b@db1,db2:5433/app", [("db1", ""), ("db2", "5433")]),
        ("postgresql://[::1]:5433,[fe80::1]/app", [("::1", "5433"), ("fe80::1", "")]),
        ("postgresql:///app?host=db1,db2&port=1,2", [("db1", "1"), ("db2", "2")]),
        ("postgresql:///app?host=/run/a,/run/b&port=7", [("/run/a", "7"), ("/run/b", "7")]),
        ("postgresql://%2Frun%2Fa/app", [("/run/a", None)]),
        ("postgresql:///app", [(None, None)]),
        ("postgresql://db1,db2/app?port=1,2,3", [("db1,db2", "1,2,3")]),
    ],
)
def test_each_host_of_a_url_is_tried_by_itself(dsn: str, hosts: list[tuple[str | None, str | None]]):
    assert [(one.get("host"), one.get("port")) for one in split_hosts(parse_url(dsn))] == hosts


async def test_options_of_libpq_may_be_given(postgres: str, postgres_schema: str):
    options = "connect_timeout=20&keepalives_idle=3&application_name=mine&channel_binding=disable&sslmode=prefer"
    store = PostgresStore(f"{postgres}?{options}", schema=postgres_schema)
    async with store:
        await complete(store, "t", "r")
        names = {row["application_name"] for row in query(postgres, "SELECT application_name FROM pg_stat_activity")}
    assert "mine" in names


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
    async with PostgresStore(dsn, schema=postgres_schema, patience=DEADLINE) as store:
        await complete(store, "t", "r")


async def test_an_error_that_no_other_host_mends_is_reported(postgres: str, silent_port: int):
    dsn = with_hosts(postgres, urlsplit(postgres).port, silent_port)
    missing = urlsplit(dsn)._replace(path="/missing").geturl()
    with pytest.raises(StoreUnavailable, match='database "missing" does not exist'):
        await PostgresStore(missing, patience=2.0).open()


@pytest.fixture(scope="module")
def strict() -> Iterator[Cluster]:
    """A server that asks the role ``locked`` for a password, and refuses the role ``banned``."""
    if find_programs() is None:
        pytest.skip("needs a server of its own, and PostgreSQL is not installed")
    place = make_folder()
    cluster = Cluster(place / "node", max_connections="12")
    cluster.create()
    rules = cluster.data / "pg_hba.conf"
    trust = rules.read_text()
    rules.write_text(f"host all locked all scram-sha-256\nhost all banned all reject\n{trust}")
    cluster.start()
    for statement in (
        "CREATE ROLE locked LOGIN PASSWORD 'right'",
        "CREATE ROLE banned LOGIN",
        "CREATE ROLE poor LOGIN",
    ):
        query(cluster.dsn, statement)
    yield cluster
    cluster.stop()
    shutil.rmtree(place, ignore_errors=True)


def change(dsn: str, *, user: str = "aguila", database: str = "postgres", port: int | None = None) -> str:
    """Return a DSN with another user, database or port."""
    parts = urlsplit(dsn)
    return f"postgresql://{user}@{parts.hostname}:{port or parts.port}/{database}"


WRONG: dict[str, tuple[Callable[[str], str], dict[str, Any], str]] = {
    "no server": (lambda dsn: change(dsn, port=1), {}, "Connection refused; check the host and the port of the URL"),
    "no such host": (lambda _: "postgresql://nowhere.invalid/x", {}, "nowhere.invalid.*; check the host of the URL"),
    "no database": (lambda dsn: change(dsn, database="x"), {}, 'database "x" does not exist; create the database'),
    "no role": (lambda dsn: change(dsn, user="nobody"), {}, 'role "nobody" does not exist'),
    "no password": (lambda dsn: change(dsn, user="locked"), {}, "no password supplied; give the password in the URL"),
    "a wrong password": (
        lambda dsn: change(dsn, user="locked:wrong"),
        {},
        'password authentication failed for user "locked"; check the user and the password',
    ),
    "an address that may not connect": (
        lambda dsn: change(dsn, user="banned"),
        {},
        "pg_hba.conf .*; allow this address, user and database in pg_hba.conf",
    ),
    "no right to create the schema": (
        lambda dsn: change(dsn, user="poor"),
        {},
        r"permission denied for database postgres \(42501\); grant the role of the store .* CREATE on the database",
    ),
    "no schema": (lambda dsn: dsn, {"migrate": False}, "there is no store in schema 'none' .* aguila store migrate "),
}


@pytest.mark.parametrize("name", WRONG)
async def test_what_is_wrong_is_said_in_one_line_with_what_to_do(strict: Cluster, name: str):
    make, options, message = WRONG[name]
    store = PostgresStore(make(strict.dsn), schema="none", patience=0.5, **options)
    with pytest.raises(StoreUnavailable) as caught:
        await store.open()
    assert re.search(message, str(caught.value)), str(caught.value)
    assert "\n" not in str(caught.value)


async def test_too_many_connections_are_reported_with_the_setting(strict: Cluster):
    taken = [connect(strict.dsn) for _ in range(12 - 3)]
    try:
        with pytest.raises(StoreUnavailable, match="raise max_connections, or lower aguila_pool"):
            await PostgresStore(change(strict.dsn, user="poor"), schema="none", patience=0.5).open()
    finally:
        for session in taken:
            session.close()


async def test_a_standby_is_named_with_what_to_put_in_the_url(strict: Cluster):
    """As a read-only session: a standby refuses the same statements with the same code."""
    async with PostgresStore(strict.dsn, schema="read_only"):
        pass
    url = f"{strict.dsn}?options=-c%20default_transaction_read_only%3Don"
    store = PostgresStore(url, schema="read_only", patience=0.5)
    await store.open()
    with pytest.raises(StoreUnavailable, match=r"\(25006\); this server is a standby; name all hosts in the URL"):
        await store.check()
    await store.close()


async def test_one_connection_is_enough_for_every_read(postgres: str, postgres_schema: str) -> None:
    """Also for those that ask which processes live, and what was committed."""
    async with (
        PostgresStore(postgres, schema=postgres_schema, pool=1, patience=2.0) as store,
        PostgresStore(postgres, schema=postgres_schema, pool=1, patience=2.0) as other,
    ):
        await start(store, "t", "r")
        await other.tell(RunKey("a", "t", "r"), Watch("other", 30.0))
        assert await store.is_watched(RunKey("a", "t", "r"))
        page = await store.threads("a")
        assert [one.thread_id for one in page.threads] == ["t"]
        assert page.stamp is not None
