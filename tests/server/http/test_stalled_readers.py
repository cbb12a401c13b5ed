"""Readers that accept nothing are disconnected, and the bytes that are held for them are limited."""

from __future__ import annotations

import asyncio
import gc
import json
import random
import tracemalloc
from functools import partial
from pathlib import Path
from typing import Any

import msgspec
import pytest
from faults.kit import scaled
from in_process import Reader
from route_table import route_names
from serving import run_input
from waiting import let_tasks_run, wait_until_async

from aguila import App
from aguila.protocol import TextMessageContentEvent, TextMessageEndEvent, TextMessageStartEvent
from aguila.server import Limits, Principal
from aguila.server.frontends.page.files import PageFiles
from aguila.store import ThreadTarget
from aguila.store.encoding import MAX_TITLE
from aguila.stream.verification.checker import UPSTREAM_FINDINGS, Finding, UpstreamFindings
from aguila.testing.store_contract.support import new_run

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


@pytest.fixture
def short_writes(monkeypatch: pytest.MonkeyPatch) -> None:
    for module in ("app", "http.service"):
        monkeypatch.setattr(f"aguila.server.{module}.WRITE_SECONDS", 0.2)


def make(store: Any, **limits: Any) -> App:
    return App(talkative, store=store, allow_anonymous=True, limits=Limits(**limits))


@pytest.mark.usefixtures("short_writes")
@pytest.mark.parametrize("accepts", [1, 2, 3])
async def test_a_stream_whose_reader_accepts_nothing_is_ended(store: Any, accepts: int) -> None:
    async with make(store) as app:
        reader = await post_run(app, accepts=accepts)  # it returns, although the reader never continues
        assert reader.stalled.is_set()
        assert not reader.is_complete
        assert (await post_run(app, "r2")).is_complete


@pytest.mark.usefixtures("short_writes")
@pytest.mark.parametrize("path", ["/threads/t", "/files/{file}", "/threads/t/events?after=0"])
async def test_a_response_whose_reader_accepts_nothing_is_ended(store: Any, path: str) -> None:
    async with make(store) as app:
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
            return not (await app.store.thread("anonymous", "t")).summary.is_running

        while not await has_ended():
            await let_tasks_run()
        await app.store.delete("anonymous", ThreadTarget("t"))
        reader.goes_on.set()
        await reading
        assert b"RUN_STARTED" in reader.body
        assert b"RUN_ERROR" not in reader.body


async def test_what_is_held_for_readers_is_limited(store: Any) -> None:
    async with make(store, buffered=MIB // 2) as app:
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


async def test_readers_of_a_run_in_progress_hold_a_piece_of_it(store: Any) -> None:
    """The events of one batch are 3 MB: the agent sends them at once."""
    begins = asyncio.Event()

    async def burst(run: Any) -> Any:
        await begins.wait()
        for number in range(20):
            yield TextMessageStartEvent(message_id=f"m{number}", role="assistant")
            yield TextMessageContentEvent(message_id=f"m{number}", delta="y" * 60_000)
            yield TextMessageEndEvent(message_id=f"m{number}")

    async with App(burst, store=store) as app:
        whole = Reader(app)
        body = json.dumps(run_input("t", "r1")).encode()
        running = asyncio.create_task(whole.request("POST", "/", body, content_type="application/json"))
        readers = [Reader(app, accepts=3) for _ in range(READERS * 2)]
        await wait_until_async(lambda: whole.messages)
        tasks = [asyncio.create_task(reader.request("GET", "/threads/t/events")) for reader in readers]
        await wait_until_async(lambda: all(reader.messages for reader in readers))
        gc.collect()
        tracemalloc.start()
        try:
            begins.set()
            assert await running == 200
            for reader in readers:
                await reader.stalled.wait()
            held = tracemalloc.get_traced_memory()[0]
        finally:
            tracemalloc.stop()
        assert held < 4 * len(whole.body) + len(readers) * HELD // 2
        for reader in readers:
            reader.goes_on.set()
        assert await asyncio.gather(*tasks) == [200] * len(readers)
        assert all(b"RUN_FINISHED" in reader.body for reader in readers)


async def test_runs_that_are_compacted_for_readers_are_limited(store: Any) -> None:
    """A compacted run is held as a whole. Readers for whom there is no room get it as it is stored."""
    path = "/threads/t/events?compact=true"
    async with App(many_texts, store=store, limits=Limits(buffered=40 * MIB)) as app:
        await post_run(app)
        whole, stored = Reader(app), Reader(app)
        assert await whole.request("GET", path) == await stored.request("GET", "/threads/t/events") == 200
        assert whole.body != stored.body
        gc.collect()
        tracemalloc.start()
        try:
            readers = [Reader(app, accepts=2) for _ in range(READERS * 2)]
            tasks = [asyncio.create_task(reader.request("GET", path)) for reader in readers]
            for reader in readers:
                await reader.stalled.wait()
            held = tracemalloc.get_traced_memory()[0]
        finally:
            tracemalloc.stop()
        assert held < 40 * MIB + len(readers) * HELD
        for reader in readers:
            reader.goes_on.set()
        assert await asyncio.gather(*tasks) == [200] * len(readers)
        assert {reader.body for reader in readers} == {whole.body, stored.body}
        again = Reader(app)
        assert await again.request("GET", path) == 200
        assert again.body == whole.body  # there is room again


# Every route


async def talk_and_remember(run: Any) -> Any:
    run.state["large"] = "x" * 100_000
    for number in range(60):
        yield TextMessageStartEvent(message_id=f"m{number}", role="assistant")
        yield TextMessageContentEvent(message_id=f"m{number}", delta="y" * 50_000)
        yield TextMessageEndEvent(message_id=f"m{number}")


async def checked(run: Any) -> Any:
    """Record what a gateway finds about the events of another server."""
    findings = [Finding(level="warning", rule="PROC-3", message="z" * 500, index=number) for number in range(300)]
    found = UpstreamFindings(count=300, findings=findings, events={})
    await run.once(UPSTREAM_FINDINGS, lambda: msgspec.to_builtins(found))
    yield "done"


RUN = json.dumps(run_input("t", "r1")).encode()
LARGE: dict[str, tuple[str, bytes]] = {
    "POST /": ("/", RUN),  # the same request attaches
    "GET /": ("/?threadId=t", b""),
    "POST /connect": ("/connect", CONNECT),
    "GET /threads": ("/threads?limit=500", b""),
    "GET /threads/{id}": ("/threads/t", b""),
    "GET /threads/{id}/events": ("/threads/t/events", b""),
    "GET /threads/{id}/runs/{id}/events": ("/threads/t/runs/r1/events", b""),
    "GET /threads/{id}/runs/{id}/input": ("/threads/t/runs/r2/input", b""),
    "GET /files/{id}": ("/files/{file}", b""),
    "GET /data": ("/data", b""),
    "GET /admin/runs": ("/admin/runs", b""),
    "GET /admin/scopes": ("/admin/scopes", b""),
    "GET /openapi.json": ("/openapi.json", b""),
    "GET /_page/{id}": ("/_page/large.js", b""),
    "POST /copilotkit": (
        "/copilotkit",
        json.dumps({"method": "agent/run", "params": {"agentId": "agent"}, "body": json.loads(RUN)}).encode(),
    ),
    "POST /copilotkit/agent/{id}/run": ("/copilotkit/agent/agent/run", RUN),
    "GET /threads/{id}/runs/{id}/check": ("/threads/c/runs/r3/check", b""),
    "POST /copilotkit/agent/{id}/suggest": (
        "/copilotkit/agent/agent/suggest",
        json.dumps(run_input("s", "s1")).encode(),
    ),
    "POST /copilotkit/agent/{id}/stop/{id}": (
        "/copilotkit/agent/agent/stop/t",
        json.dumps({"runId": "x" * 100_000}).encode(),
    ),
    "POST /copilotkit/agent/{id}/connect": ("/copilotkit/agent/agent/connect", CONNECT),
    "GET /copilotkit/threads": ("/copilotkit/threads?limit=500", b""),
    "GET /copilotkit/threads/{id}/messages": ("/copilotkit/threads/t/messages", b""),
    "GET /copilotkit/threads/{id}/events": ("/copilotkit/threads/t/events", b""),
    "GET /copilotkit/threads/{id}/state": ("/copilotkit/threads/t/state", b""),
}
"""The routes whose responses can exceed 64 KiB, each with a request for a large one."""

SMALL = {
    "GET / (page)": "the shell of the page",
    "GET /capabilities": "what the developer declares",
    "GET /agents": "the names that the developer gives",
    "GET /healthz": "a status",
    "GET /readyz": "a status",
    "GET /probe": "two small events",
    "GET /threads/{id}/runs/{id}": "a record",
    "PATCH /threads/{id}": "a summary, with at most 16 KiB of metadata",
    "DELETE /threads/{id}": "nothing",
    "POST /threads/{id}/cancel": "a record",
    "POST /threads/{id}/runs/{id}/cancel": "a record",
    "POST /files": "a reference",
    "DELETE /files/{id}": "nothing",
    "DELETE /data": "nothing",
    "POST /admin/scopes/{id}/threads/{id}/runs/{id}/cancel": "a record",
    "GET /copilotkit/info": "what the developer declares",
    "POST /copilotkit/threads/clear": "nothing",
    "PATCH /copilotkit/threads/{id}": "a summary",
    "DELETE /copilotkit/threads/{id}": "nothing",
    "POST /copilotkit/threads/{id}/archive": "a summary",
    "POST /copilotkit/transcribe": "an error",
    "GET /metrics": "numbers",
}
"""The other routes, and what they answer."""


def test_every_route_is_known_to_answer_with_much_or_little() -> None:
    assert set(LARGE) | set(SMALL) == route_names()
    assert set(LARGE).isdisjoint(SMALL)


@pytest.mark.parametrize("route", LARGE)
async def test_readers_that_do_not_read_hold_little(
    route: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """They hold a piece each, or are counted and refused. Before that, one reader has received the whole response.

    A run that is not stored is held until it is read, and counted as a run until then.
    """
    (tmp_path / "_page").mkdir()
    (tmp_path / "_page" / "large.js").write_bytes(random.Random(1).randbytes(3 * MIB))
    monkeypatch.setattr("aguila.server.app.PageFiles", partial(PageFiles, tmp_path))
    agents = {"agent": talk_and_remember, "echo": echo, "checked": checked}
    limits = Limits(buffered=MIB, event=20 * MIB, runs_per_scope=2)
    method, (path, body) = route.partition(" ")[0], LARGE[route]
    hook = (lambda _: Principal(scope="ops", rights={"admin"})) if path.startswith("/admin/") else None
    app = App(agents, authenticate=hook, allow_anonymous=True, limits=limits, copilotkit=True, page=True)
    async with app:
        await post_run(app)
        if path.endswith("/r2/input"):
            members = {"messages": [{"id": "m", "role": "user", "content": "x" * (3 * MIB)}]}
            data = json.dumps(run_input("t", "r2", **members)).encode()
            assert await Reader(app).request("POST", "/", data, content_type="application/json") == 200
        if path.endswith("/r3/check"):
            data = json.dumps(run_input("c", "r3")).encode()
            assert await Reader(app).request("POST", "/agents/checked", data, content_type="application/json") == 200
        if "/threads?" in path:
            await make_threads(app)
        if path.startswith("/admin/"):
            for number in range(300):
                await app.store.begin(new_run(scope=f"{number}{'x' * 300}"))
        if "{file}" in path:
            upload, data = Reader(app), random.Random(1).randbytes(3 * MIB)
            assert await upload.request("POST", "/files", data, content_type="application/octet-stream") == 201
            path = path.format(file=json.loads(upload.body)["id"])

        def ask(accepts: int) -> tuple[Reader, asyncio.Task[int]]:
            reader = Reader(app, accepts)
            return reader, asyncio.create_task(reader.request(method, path, body, content_type="application/json"))

        whole, done = ask(1_000_000)
        assert await done == 200
        assert len(whole.body) > 1 << 16
        size = len(whole.body)
        del whole, done
        gc.collect()
        tracemalloc.start()
        try:
            readers = [ask(2) for _ in range(READERS * 3)]
            for reader, task in readers:
                stalled = asyncio.create_task(reader.stalled.wait())
                await asyncio.wait([stalled, task], return_when=asyncio.FIRST_COMPLETED)
                stalled.cancel()
            held = tracemalloc.get_traced_memory()[0]
        finally:
            tracemalloc.stop()
        for reader, _ in readers:
            reader.goes_on.set()
        assert {await task for _, task in readers} <= {200, 429, 503}
        assert held < 2 * size + len(readers) * HELD // 2


async def make_threads(app: App) -> None:
    for number in range(100):
        data = json.dumps(run_input(f"t{number}", "r")).encode()
        assert await Reader(app).request("POST", "/agents/echo", data, content_type="application/json") == 200
        update = {"title": "é" * MAX_TITLE, "metadata": {"text": "x" * 16_000}}
        data = json.dumps(update).encode()
        assert await Reader(app).request("PATCH", f"/threads/t{number}", data, content_type="application/json") == 200
