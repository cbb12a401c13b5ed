"""``/healthz`` and ``/readyz``: whether the process answers, and whether it can take runs and store their events."""

from __future__ import annotations

import asyncio
import logging
import sqlite3
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from serving import Held, Server, run_input, serving
from stores.postgres_admin import connect
from waiting import wait_until

from aguila import App
from aguila.errors import StoreUnavailable
from aguila.server import Timing
from aguila.store import MemoryStore, PostgresStore, SQLiteStore


async def says_word(run: Any) -> Any:
    yield "word"


def status(server: Server, path: str) -> int:
    return server.get(path).status_code


def code(server: Server, path: str) -> str:
    return server.get(path).json()["error"]["code"]


def test_a_draining_server_is_healthy_and_not_ready() -> None:
    held = Held()
    app = App(held, drain=10.0)
    with serving(app) as server, server.run() as stream:
        stream.read_until("TEXT_MESSAGE_CONTENT")
        assert (status(server, "/healthz"), status(server, "/readyz")) == (200, 200)
        server.call(app.begin_drain)
        wait_until(lambda: status(server, "/readyz") == 503)
        assert code(server, "/readyz") == "draining"
        assert server.get("/healthz").json() == {"status": "ok"}
        held.gate("run").open()
        stream.rest()


@contextmanager
def locked_postgres(dsn: str, schema: str) -> Iterator[None]:
    """Another session holds a lock on the log."""
    with connect(dsn) as session, session.transaction():
        session.execute(f"LOCK TABLE {schema}.log IN SHARE MODE")
        yield


@contextmanager
def locked_sqlite(path: Path) -> Iterator[None]:
    lock = sqlite3.connect(path, isolation_level=None)
    lock.execute("BEGIN IMMEDIATE")
    try:
        yield
    finally:
        lock.close()


@contextmanager
def locked_memory(store: MemoryStore) -> Iterator[None]:
    async def refuse(*_: Any, **__: Any) -> Any:
        raise StoreUnavailable("locked")

    names = ("append", "begin", "check")
    for name in names:
        setattr(store, name, refuse)
    try:
        yield
    finally:
        for name in names:
            delattr(store, name)


@pytest.mark.postgres
@pytest.mark.parametrize("kind", ["memory", "sqlite", "postgres"])
def test_a_server_whose_log_is_locked_is_healthy_and_not_ready(
    kind: str, tmp_path: Path, request: pytest.FixtureRequest, caplog: pytest.LogCaptureFixture
) -> None:
    store: Any
    lock: Callable[[], Any]
    if kind == "memory":
        store = MemoryStore()
        lock = lambda: locked_memory(store)  # noqa: E731
    elif kind == "sqlite":
        store = SQLiteStore(tmp_path / "x.db", busy_seconds=0.3)
        lock = lambda: locked_sqlite(tmp_path / "x.db")  # noqa: E731
    else:
        dsn, schema = request.getfixturevalue("postgres"), request.getfixturevalue("postgres_schema")
        store = PostgresStore(dsn, schema=schema, patience=1.0)
        lock = lambda: locked_postgres(dsn, schema)  # noqa: E731
    with serving(App(says_word, store=store, timing=Timing(store_patience=1.0))) as server:
        server.events(run_id="before")
        assert status(server, "/readyz") == 200
        with lock(), caplog.at_level(logging.WARNING, "aguila.server"):
            wait_until(lambda: status(server, "/readyz") == 503)  # a success counts for a second
            for number in range(3):
                assert server.post("/", json=run_input("other", f"r{number}")).status_code == 503
                assert (status(server, "/readyz"), status(server, "/healthz")) == (503, 200)
            assert code(server, "/readyz") == "store_unavailable"
            assert [one for one in caplog.records if "available again" in one.getMessage()] == []
        wait_until(lambda: status(server, "/readyz") == 200)
        assert server.events(run_id="after")[-1]["type"] == "RUN_FINISHED"


class Stuck(MemoryStore):
    """A store whose appends hang, while everything else works."""

    def __init__(self) -> None:
        super().__init__()
        self.hangs = threading.Event()

    async def write(self, *args: Any, **options: Any) -> Any:
        while self.hangs.is_set():  # noqa: ASYNC110 - it is freed from another thread
            await asyncio.sleep(0.001)
        return await super().write(*args, **options)


def test_a_check_does_not_end_an_outage_while_appends_wait(caplog: pytest.LogCaptureFixture) -> None:
    async def talks(run: Any) -> Any:
        while True:
            yield "word "
            await asyncio.sleep(0.001)

    store = Stuck()
    with serving(App(talks, store=store, timing=Timing(store_patience=0.3))) as server, server.run() as stream:
        stream.read_until("TEXT_MESSAGE_CONTENT")
        with caplog.at_level(logging.WARNING, "aguila.server"):
            store.hangs.set()
            assert stream.rest()[-1]["code"] == "store_unavailable"
            for _ in range(3):
                assert status(server, "/readyz") == 503
            assert [one for one in caplog.records if "available again" in one.getMessage()] == []
            store.hangs.clear()
            wait_until(lambda: status(server, "/readyz") == 200)
            assert "available again" in caplog.records[-1].getMessage()


def test_a_process_that_cannot_open_its_store_is_healthy_and_not_ready(tmp_path: Path) -> None:
    app = App(says_word, store=tmp_path / "none" / "x.db", timing=Timing(store_patience=0.1))
    with serving(app, lifespan="off") as server:
        assert (status(server, "/healthz"), status(server, "/readyz")) == (200, 503)


def test_both_need_no_credentials_and_no_known_host() -> None:
    app = App(says_word, authenticate=lambda request: None, allowed_hosts=["site.example"])
    with serving(app) as server:
        for path in ("/healthz", "/readyz"):
            assert server.get(path, headers={"host": "10.1.2.3:8000"}).status_code == 200
