"""Cursors: the number of an event and the token of the run and epoch that wrote it."""

from __future__ import annotations

import asyncio
import re
import shutil
import sqlite3
import time
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
from serving import Held, Peer, number_of, serving
from stores.postgres_admin import connect

from aguila import App, AsyncClient
from aguila.agent import Run
from aguila.client import Reconnect
from aguila.client.transports.base import Request
from aguila.client.transports.httpx2 import AsyncHTTPX2Transport
from aguila.codec import encode
from aguila.errors import TransportFailed
from aguila.protocol import (
    RunFinishedEvent,
    RunFinishedSuccessOutcome,
    TextMessageContentEvent,
    TextMessageEndEvent,
)
from aguila.store import PostgresStore, RunChange, RunEnd, SQLiteStore, Store

Backup = tuple[Callable[[], Store], Callable[[], None], Callable[[], None]]


async def talker(run: Run):
    yield "Hello "
    yield run.run_id


def cursors_of(server: Peer, run_id: str) -> list[str]:
    """Run the agent; return the cursor of each event."""
    with server.run(run_id=run_id) as stream:
        found: list[str] = []
        while (frame := stream.next()) is not None:
            assert frame.id is not None
            found.append(frame.id)
        return found


@pytest.fixture(params=["sqlite", pytest.param("postgres", marks=pytest.mark.postgres)])
def backup(request: pytest.FixtureRequest, tmp_path: Path) -> Backup:
    """Return functions that make a store, copy what it holds, and put the copy back, as an operator does."""
    if request.param == "sqlite":
        folder, copy = tmp_path / "store", tmp_path / "copy"
        folder.mkdir()

        def put_back() -> None:
            shutil.rmtree(folder)
            shutil.copytree(copy, folder)

        return lambda: SQLiteStore(folder / "a.db"), lambda: shutil.copytree(folder, copy) and None, put_back
    dsn, schema = request.getfixturevalue("postgres"), request.getfixturevalue("postgres_schema")

    def copy_tables(source: str, target: str) -> None:
        with connect(dsn) as db:
            db.execute("SET session_replication_role = replica")  # without triggers
            names = db.execute("SELECT tablename FROM pg_tables WHERE schemaname = $1 ORDER BY 1", [source]).fetchall()
            if target != schema:
                db.execute(f"CREATE SCHEMA {target}")
            for name in [row["tablename"] for row in names]:
                if target == schema:
                    db.execute(f"TRUNCATE {target}.{name}")
                    select = f"SELECT * FROM {source}.{name}"
                    db.execute(f"INSERT INTO {target}.{name} OVERRIDING SYSTEM VALUE {select}")
                else:
                    db.execute(f"CREATE TABLE {target}.{name} AS TABLE {source}.{name}")

    return (
        lambda: PostgresStore(dsn, schema=schema, patience=30.0),
        lambda: copy_tables(schema, f"{schema}_copy"),
        lambda: copy_tables(f"{schema}_copy", schema),
    )


def test_after_an_older_copy_was_put_back_a_cursor_of_a_lost_run_is_410(backup: Backup) -> None:
    make, copy, put_back = backup
    with serving(App(talker, store=make())) as server:
        kept = cursors_of(server, "kept")
    copy()
    with serving(App(talker, store=make())) as server:
        lost = cursors_of(server, "lost")
        documents = server.get("/threads/thread").json(), server.get("/threads/thread/runs/lost").json()
        assert [one["cursor"] for one in documents] == [lost[-1]] * 2
    put_back()
    with serving(App(talker, store=make())) as server:
        other = cursors_of(server, "other")
        assert [number_of(one) for one in other] == [number_of(one) for one in lost]
        routes = ("/threads/thread/events", "/threads/thread/runs/other/events", "/threads/thread/events?compact=true")
        for cursor in lost:
            for route in routes:
                by_header = server.client.get(route, headers={"last-event-id": cursor})
                by_parameter = server.client.get(route, params={"after": cursor, "compact": "true"})
                for answer in (by_header, by_parameter):
                    assert (answer.status_code, answer.json()["error"]["code"]) == (410, "cursor_expired")
            with server.run(run_id="other", headers={"last-event-id": cursor}) as again:
                assert again.status == 410
            with server.stream(
                "GET", "/threads/thread/events", headers={"last-event-id": str(number_of(cursor))}
            ) as log:
                assert log.status == 200  # a bare number has no protection
        for cursor in kept + other:
            with server.stream("GET", "/threads/thread/events", headers={"last-event-id": cursor}) as log:
                expected = [number_of(one) for one in kept + other if number_of(one) > number_of(cursor)]
                assert [number for number, _ in log.frames()] == expected
        assert server.get("/threads/thread").json()["cursor"] == other[-1]


def test_documents_have_the_cursor_of_their_last_event(store: Any) -> None:
    with serving(App(talker, store=store, allow_anonymous=True)) as server:
        first, second = cursors_of(server, "first"), cursors_of(server, "second")
        thread = server.get("/threads/thread").json()
        assert (thread["cursor"], thread["last"]) == (second[-1], number_of(second[-1]))
        assert [run["cursor"] for run in thread["runs"]] == [first[-1], second[-1]]
        assert server.get("/threads").json()["threads"][0]["cursor"] == second[-1]
        assert server.get("/threads/thread?run=first").json()["cursor"] == first[-1]
        with server.run(path="/connect", run_id="new") as joined:
            frames = list(iter(joined.next, None))
        assert frames[-1].id == second[-1]
        for bad in ("x", "-", f"-{second[-1]}", "1.5-abc"):
            assert server.client.get("/threads/thread/events", params={"after": bad}).status_code == 422
        for wrong in ("1-", "1-aaaaaaaa", f"{first[-1]}x", f"1-{second[-1]}"):
            assert server.client.get("/threads/thread/events", params={"after": wrong}).status_code == 410


def test_an_event_without_a_token_has_its_number_as_its_cursor(tmp_path: Path) -> None:
    """An earlier version wrote it."""
    path = tmp_path / "a.db"
    with serving(App(talker, store=path)) as server:
        cursors_of(server, "first")
    with closing(sqlite3.connect(path)) as db, db:
        db.execute("UPDATE log SET token = ''")
    with serving(App(talker, store=path)) as server:
        last = server.get("/threads/thread").json()["last"]
        assert server.get("/threads/thread").json()["cursor"] == str(last)
        with server.stream("GET", "/threads/thread/events") as log:
            assert re.findall(rb"^id: (.*)$", b"".join(log.response.iter_raw()), re.MULTILINE) == [
                str(number).encode() for number in range(1, last + 1)
            ]
        for cursor in ("2", "2-"):
            assert server.client.get("/threads/thread/events", params={"after": cursor}).status_code == 200
        assert server.client.get("/threads/thread/events", params={"after": "2-abcdefgh"}).status_code == 410


class CutOnce:
    """A transport whose first response breaks when ``cut`` is set; the next request waits for ``resume``."""

    def __init__(self) -> None:
        self.inner = AsyncHTTPX2Transport()
        self.cut, self.was_cut, self.resume = asyncio.Event(), asyncio.Event(), asyncio.Event()
        self.requests: list[Request] = []

    async def send(self, request: Request) -> Any:
        self.requests.append(request)
        if len(self.requests) == 1:
            return CutResponse(await self.inner.send(request), self)
        await self.resume.wait()
        return await self.inner.send(request)

    async def close(self) -> None:
        await self.inner.close()


class CutResponse:
    def __init__(self, inner: Any, transport: CutOnce) -> None:
        self.inner = inner
        self.status, self.headers = inner.status, inner.headers
        self._transport = transport

    async def read(self) -> bytes:
        reading = asyncio.ensure_future(self.inner.read())
        cutting = asyncio.ensure_future(self._transport.cut.wait())
        await asyncio.wait([reading, cutting], return_when=asyncio.FIRST_COMPLETED)
        cutting.cancel()
        if not self._transport.cut.is_set():
            return await reading
        reading.cancel()
        await asyncio.wait([reading])
        self._transport.was_cut.set()
        raise TransportFailed("cut by the test", was_sent=True)

    async def close(self) -> None:
        await self.inner.close()


@pytest.mark.anyio
@pytest.mark.parametrize("is_cut", [False, True])
async def test_a_client_reads_on_without_loss_when_another_process_takes_its_run_over(
    tmp_path: Path, is_cut: bool
) -> None:
    """The cursor names the epoch that wrote the event, which is not the epoch of the run any more."""
    thief = SQLiteStore(tmp_path / "a.db", monotonic=lambda: time.monotonic() + 1e6)  # to it, every lease has expired
    await thief.open()
    transport = CutOnce()
    with serving(App(Held(), store=tmp_path / "a.db")) as server:
        async with AsyncClient(server.url, transport=transport, reconnect=Reconnect(initial=0.0)) as client:
            events = aiter(client.thread("thread").run("Hi"))
            seen: list[Any] = []
            while not seen or seen[-1].type != "TEXT_MESSAGE_CONTENT":
                seen.append(await anext(events))
            reading = asyncio.ensure_future(anext(events))
            if is_cut:
                transport.cut.set()
                await transport.was_cut.wait()
            (taken,) = await thief.take_over("thief", 30)
            text = TextMessageContentEvent(message_id=seen[-1].message_id, delta="three")
            await thief.write(taken.lease, RunChange(events=[encode(text)]))
            ends = [
                TextMessageEndEvent(message_id=seen[-1].message_id),
                RunFinishedEvent(thread_id="thread", run_id=taken.run.run_id, outcome=RunFinishedSuccessOutcome()),
            ]
            change = RunChange(events=[encode(one) for one in ends], end=RunEnd(outcome="success"))
            await thief.write(taken.lease, change)
            transport.resume.set()
            seen += [await reading, *[event async for event in events]]
    assert [event.type for event in seen] == [
        "RUN_STARTED", "TEXT_MESSAGE_START", "TEXT_MESSAGE_CONTENT", "TEXT_MESSAGE_CONTENT", "TEXT_MESSAGE_END",
        "RUN_FINISHED",
    ]  # fmt: skip
    batches = (await thief.read(taken.run.scope, "thread")).batches
    assert {batch.token for batch in batches} == {taken.run.token, taken.lease.token}
    assert taken.run.token != taken.lease.token
    if is_cut:
        assert transport.requests[1].headers["Last-Event-ID"] == f"3-{taken.run.token}"
    await thief.close()
