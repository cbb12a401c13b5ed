"""Readers that accept nothing are disconnected, and what is held for them is limited."""

from __future__ import annotations

import asyncio
import json
from typing import Any

import pytest
from in_process import Reader
from serving import run_input
from waiting import let_tasks_run

from aguila import App
from aguila.server import Limits
from aguila.store import MemoryStore, SQLiteStore

pytestmark = pytest.mark.anyio

MIB = 1024 * 1024


@pytest.fixture(params=["memory", "sqlite"])
def store(request: pytest.FixtureRequest, tmp_path: Any) -> Any:
    return MemoryStore() if request.param == "memory" else SQLiteStore(tmp_path / "threads.db")


async def talkative(run: Any) -> Any:
    yield "x" * (3 * MIB)


async def post_run(app: App, run_id: str = "r1", accepts: int = 1_000_000) -> Reader:
    reader = Reader(app, accepts)
    body = json.dumps(run_input("t", run_id)).encode()
    await reader.request("POST", "/", body, content_type="application/json")
    return reader


def make(store: Any, **limits: Any) -> App:
    return App(talkative, store=store, allow_anonymous=True, limits=Limits(**limits))


@pytest.mark.parametrize("accepts", [1, 2, 3])
async def test_a_stream_whose_reader_accepts_nothing_is_ended(store: Any, accepts: int) -> None:
    async with make(store, write_seconds=0.2) as app:
        reader = await post_run(app, accepts=accepts)  # it returns, although the reader never goes on
        assert reader.stalled.is_set()
        assert not reader.is_complete
        assert (await post_run(app, "r2")).is_complete


@pytest.mark.parametrize("path", ["/threads/t", "/files/{file}", "/threads/t/events?after=0"])
async def test_a_response_whose_reader_accepts_nothing_is_ended(store: Any, path: str) -> None:
    async with make(store, write_seconds=0.2) as app:
        await post_run(app)
        upload = Reader(app)
        assert await upload.request("POST", "/files", b"x" * 3 * MIB, content_type="application/octet-stream") == 201
        path = path.format(file=json.loads(upload.body)["id"])
        stalled = Reader(app, accepts=2)
        assert await stalled.request("GET", path) == 200
        assert stalled.stalled.is_set()
        assert not stalled.is_complete
        reader = Reader(app)
        assert await reader.request("GET", path) == 200
        assert reader.is_complete


async def test_a_thread_that_is_deleted_after_its_run_is_not_reported_as_failed(store: Any) -> None:
    async with make(store) as app:
        reader = Reader(app, accepts=2)
        body = json.dumps(run_input("t", "r1")).encode()
        reading = asyncio.create_task(reader.request("POST", "/", body, content_type="application/json"))
        await reader.stalled.wait()

        async def has_ended() -> bool:
            return not (await app.store.thread("anonymous", "t")).is_running

        while not await has_ended():
            await let_tasks_run()
        await app.store.delete_thread("anonymous", "t")
        reader.goes_on.set()
        await reading
        assert b"RUN_STARTED" in reader.body
        assert b"RUN_ERROR" not in reader.body


async def test_what_is_held_for_readers_is_limited(store: Any) -> None:
    async with make(store, unsent=4 * MIB) as app:
        await post_run(app)
        first, second, third = Reader(app, accepts=2), Reader(app), Reader(app)
        sending = asyncio.create_task(first.request("GET", "/threads/t"))
        await first.stalled.wait()
        assert await second.request("GET", "/threads/t") == 503
        error = json.loads(second.body)["error"]
        assert (error["code"], "4194304 bytes" in error["message"]) == ("too_many_unsent", True)
        first.goes_on.set()
        assert await sending == 200
        assert await third.request("GET", "/threads/t") == 200
