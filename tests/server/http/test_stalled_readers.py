"""Readers that accept nothing are disconnected, and the bytes that are held for them are limited."""

from __future__ import annotations

import asyncio
import gc
import json
import random
import tracemalloc
from typing import Any

import pytest
from faults.kit import scaled
from in_process import Reader
from serving import run_input
from waiting import let_tasks_run

from aguila import App
from aguila.protocol import TextMessageContentEvent, TextMessageEndEvent, TextMessageStartEvent
from aguila.server import Limits

pytestmark = [pytest.mark.anyio, pytest.mark.postgres]

MIB = 1024 * 1024
READERS = scaled(10, 200)
HELD = 512 * 1024
"""Bytes that a stalled reader may hold: a piece that was sent, the next one, and its task."""


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
        reader = await post_run(app, accepts=accepts)  # it returns, although the reader never continues
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
    async with make(store, unsent=MIB // 2) as app:
        await post_run(app)
        stalled = [Reader(app, accepts=2) for _ in range(2)]
        second, third = Reader(app), Reader(app)
        sending = [asyncio.create_task(reader.request("GET", "/threads/t")) for reader in stalled]
        for reader in stalled:
            await reader.stalled.wait()
        assert await second.request("GET", "/threads/t") == 503
        error = json.loads(second.body)["error"]
        assert (error["code"], "524288 bytes" in error["message"]) == ("too_many_unsent", True)
        for reader in stalled:
            reader.goes_on.set()
        assert await asyncio.gather(*sending) == [200, 200]
        assert await third.request("GET", "/threads/t") == 200


async def many_texts(run: Any) -> Any:
    for number in range(90):
        yield TextMessageStartEvent(message_id=f"m{number}", role="assistant")
        yield TextMessageContentEvent(message_id=f"m{number}", delta="é" * 50_000)
        yield TextMessageEndEvent(message_id=f"m{number}")


async def one_text(run: Any) -> Any:
    yield "é" * (9 * MIB // 2)


async def echo(run: Any) -> Any:
    yield "hello"


CONNECT = json.dumps(run_input("t", "view")).encode()


@pytest.mark.parametrize(
    ("agent", "method", "path"),
    [(one_text, "GET", "/threads/t"), (many_texts, "POST", "/connect"), (echo, "GET", "/files/{file}")],
)
async def test_a_stalled_reader_holds_a_piece_of_what_it_reads(store: Any, agent: Any, method: str, path: str) -> None:
    async with App(agent, store=store, allow_anonymous=True, limits=Limits(event=20 * MIB)) as app:
        await post_run(app)
        if path.startswith("/files"):
            upload, data = Reader(app), random.Random(1).randbytes(20_000_000)
            assert await upload.request("POST", "/files", data, content_type="application/octet-stream") == 201
            path = path.format(file=json.loads(upload.body)["id"])
        body = CONNECT if method == "POST" else b""

        def ask(accepts: int) -> tuple[Reader, asyncio.Task[int]]:
            reader = Reader(app, accepts)
            return reader, asyncio.create_task(reader.request(method, path, body, content_type="application/json"))

        whole, done = ask(1_000_000)
        assert await done == 200
        assert len(whole.body) > 8 * MIB
        first, waiting = ask(2)  # what is loaded for the first one is shared
        await first.stalled.wait()
        gc.collect()
        tracemalloc.start()
        try:
            readers = [ask(2) for _ in range(READERS)]
            for reader, _ in readers:
                await reader.stalled.wait()
            held = tracemalloc.get_traced_memory()[0]
            del reader
        finally:
            tracemalloc.stop()
        assert held < 2 * len(whole.body) + READERS * HELD  # the document itself may be loaded again
        for reader, _ in [*readers, (first, waiting)]:
            reader.goes_on.set()
        assert await asyncio.gather(*[task for _, task in readers], waiting) == [200] * (READERS + 1)
        assert all(reader.body == whole.body for reader, _ in readers[:3])
