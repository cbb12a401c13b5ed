"""Hostile requests and streams: CPU time, memory and turns of the event loop are bounded, and others are served.

The server runs in a process of its own and measures itself. While it works on a hostile request or stream, another
client runs an agent on it. ``make test`` sends a sample of small ones, ``make faults`` all of them, about 1 MB each.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from typing import Any

import pytest
from faults.attacks import MEMORY_AT_END, Attacks, Request, measured_worker
from faults.kit import report, scaled
from route_table import route_names
from serving import run_input

from faults import hostile, hostile_routes

pytestmark = pytest.mark.anyio

SIZE = scaled(50_000, 1_000_000)
EVERY = scaled(4, 1)
"""Of how many hostile requests or streams one is sent."""


@pytest.fixture(params=["memory", "sqlite"])
def store(request: pytest.FixtureRequest) -> Any:
    return request.param


def finish(what: str, attacks: Attacks, store: str) -> None:
    """Report what was measured, and fail if anything took too much. A store in memory keeps what was sent."""
    for figures in attacks.figures:
        print(figures)
    report(what, **attacks.summary())
    assert attacks.excesses == []
    assert attacks.served >= attacks.count  # another client was served during each
    assert attacks.grown() < MEMORY_AT_END + (attacks.sent if store == "memory" else 0)


async def test_hostile_requests_are_answered_within_bounds(tmp_path: Path, store: str) -> None:
    bodies = hostile.requests(SIZE)
    assert len(bodies) >= 60
    async with measured_worker(tmp_path, store) as worker:
        attacks = Attacks(worker)
        await attacks.prepare()
        for number, (name, body) in list(enumerate(bodies.items()))[::EVERY]:

            async def make(attempt: int, body: bytes = body, number: int = number) -> Request:
                thread = b'"threadId": "hostile-%d-%d"' % (number, attempt)
                return Request(worker.port, "POST", "/", body.replace(b'"threadId": "hostile"', thread))

            request = await attacks.attack(name, len(body), make)
            assert request.status in (200, 409, 413, 415, 422), name
            path = f"/threads/hostile-{number}-0"
            read = await attacks.attack(f"{name}, read", len(body), lambda _, path=path: get(worker.port, path))
            assert read.status in (200, 404), name
        finish(f"hostile requests, {store}", attacks, store)


@pytest.mark.parametrize("http", ["httptools", "h11", None], ids=["uvicorn", "uvicorn with h11", "aguila serve"])
async def test_floods_of_headers_are_refused_within_bounds(tmp_path: Path, http: str | None) -> None:
    """Next to a flood, a request of normal size is measured. No other client waits for more than a turn of the loop."""
    size = scaled(2_000_000, 50_000_000)
    floods = {
        "a normal request": b"X-Request: 1\r\n",
        "one name, repeated": b"X: y\r\n" * (2_000_000 // 6),
        "a long value, repeated": (b"Cookie: " + b"y" * 10_000 + b"\r\n") * 200,
        "other names": b"".join(b"X%d: y\r\n" % i for i in range(150_000)),
        "one long value": b"X: " + b"y" * size + b"\r\n",
    }
    settings = {} if http is None else {"http": http}
    async with measured_worker(tmp_path, "memory", **settings) as worker:
        attacks = Attacks(worker)
        await attacks.prepare()
        for name, headers in floods.items():
            for path in ("/healthz", "/threads"):

                async def make(_: int, path: str = path, headers: bytes = headers) -> Request:
                    return Request(worker.port, "GET", path, headers=headers)

                request = await attacks.attack(f"{name}, {path}", 0 if http is None else len(headers), make)
                # The answer is lost if the server disconnects while the flood is on its way.
                assert (
                    request.status == 200 if headers is floods["a normal request"] else request.status in (0, 431, 400)
                )
        finish(f"floods of headers, {http or 'aguila serve'}", attacks, "memory")


@pytest.mark.postgres
@pytest.mark.parametrize("kind", ["memory", "sqlite", "postgres"])
async def test_requests_that_once_held_the_server_cost_little(
    tmp_path: Path, kind: str, request: pytest.FixtureRequest
) -> None:
    """The findings of an hour of attacks, each next to a request of normal size."""
    settings: dict[str, Any] = {}
    if kind == "postgres":
        kind, settings["schema"] = request.getfixturevalue("postgres"), request.getfixturevalue("postgres_schema")
    threads, metadata = scaled(40, 500), {"text": "x" * 16_000}

    def envelope(path: str) -> bytes:
        params = {"path": path, "httpMethod": "GET"}
        return json.dumps({"method": "resource/request", "params": params, "body": None}).encode()

    async with measured_worker(tmp_path, kind, **settings) as worker:

        async def send(method: str, path: str, body: bytes = b"", headers: bytes = b"") -> Request:
            return Request(worker.port, method, path, body, headers)

        async def call(*args: Any) -> int:
            made = await send(*args)
            await made.begin()
            await made.finish()
            return made.status

        for number in range(threads):
            assert await call("POST", "/", json.dumps(run_input(f"t{number}", "r")).encode()) == 200
            change = json.dumps({"metadata": metadata}).encode()
            assert await call("PATCH", f"/threads/t{number}", change) == 200
        attacks = Attacks(worker)
        await attacks.prepare()
        found: list[tuple[str, tuple[Any, ...], set[int]]] = [
            ("1: a header", ("GET", "/threads/t0", b"", b"X: y\r\n"), {200}),
            ("1: repeated headers", ("GET", "/threads/t0", b"", b"X: y\r\n" * 300_000), {0, 400, 431}),
            ("5: an envelope", ("POST", "/copilotkit", envelope("/threads?limit=1")), {200}),
            (
                "5: an envelope with a path of 1 MB",
                ("POST", "/copilotkit", envelope("/threads?" + "a&" * 500_000)),
                {400},
            ),
            ("7: one thread", ("GET", "/threads?limit=1"), {200}),
            ("7: threads with 16 KB of metadata each", ("GET", "/threads?limit=500"), {200}),
            ("8: a small change", ("PATCH", "/threads/t0", b'{"metadata": {"a": 1}}'), {200}),
            ("8: 64 members", ("PATCH", "/threads/t0", _members(64)), {200}),
            ("8: a flood of members", ("PATCH", "/threads/t0", _members(8_000)), {422}),
            ("9: an upload", ("POST", "/files", b"x"), {201, 415}),
            (
                "9: a content type of 60 KB",
                ("POST", "/files", b"x", b"Content-Type: a/" + b";b=c" * 15_000 + b"\r\n"),
                {422},
            ),
            ("9: a content disposition of 1 MB", ("POST", "/files", b"x", _disposition(1_000_000)), {0, 400, 431}),
        ]
        for name, args, statuses in found:
            size = sum(len(one) for one in args[2:])
            made = await attacks.attack(name, size, lambda _, args=args: send(*args))
            assert made.status in statuses, (name, made.status, made.body[:200])
        finish(f"requests that once held the server, {kind.partition(':')[0]}", attacks, kind)


def _members(count: int) -> bytes:
    return json.dumps({"metadata": {f"m{number}": number for number in range(count)}}).encode()


def _disposition(size: int) -> bytes:
    return b'Content-Disposition: attachment; filename="' + b"\\" * size + b'"\r\n'


def test_every_route_has_hostile_cases() -> None:
    assert set(hostile_routes.ROUTES) == route_names()
    assert hostile_routes.QUERIES.keys() <= route_names()
    for route in hostile_routes.ROUTES:
        assert len(list(hostile_routes.cases(route, 1000))) >= 10, route


SMALL_BODY = 1 << 17
"""Bytes that routes read whose bodies are small objects."""


async def test_hostile_requests_to_every_route_are_answered_within_bounds(tmp_path: Path, store: str) -> None:
    every = scaled(8, 1)
    async with measured_worker(tmp_path, store) as worker:
        attacks = Attacks(worker)
        await attacks.prepare()
        found = [(route, case) for route in hostile_routes.ROUTES for case in hostile_routes.cases(route, SIZE)]
        for route, case in found[::every]:

            async def make(_: int, case: hostile_routes.Hostile = case) -> Request:
                return Request(worker.port, case.method, case.path, case.body, case.headers)

            request = await attacks.attack(
                f"{route}: {case.name}",
                case.size,
                make,
                is_relayed=route == "GET /data",  # it sends all that the requests before have stored
                deletes_threads=route.endswith("/threads/clear"),
            )
            # uvicorn resets the connection after a refusal by the declared length if the client asked to close it.
            may_be_reset = case.size > SMALL_BODY
            assert request.status not in ((500,) if may_be_reset else (0, 500)), (route, case.name)
        finish(f"hostile requests to every route, {store}", attacks, store)


async def get(port: int, path: str) -> Request:
    return Request(port, "GET", path)


class HostileServer:
    """Answers every request with ``body`` as a stream."""

    def __init__(self) -> None:
        self.body = b""

    async def answer(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with suppress(OSError, asyncio.IncompleteReadError):
            head = await reader.readuntil(b"\r\n\r\n")
            lengths = [line for line in head.lower().split(b"\r\n") if line.startswith(b"content-length:")]
            await reader.readexactly(int(lengths[0].split(b":")[1]))
            writer.write(b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nConnection: close\r\n\r\n")
            writer.write(self.body)
            await writer.drain()
        writer.close()

    @asynccontextmanager
    async def serve(self) -> AsyncIterator[str]:
        """Listen on a port of its own; give the URL."""
        server = await asyncio.start_server(self.answer, "127.0.0.1", 0)
        async with server:
            yield f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}/"


async def attack_with_streams(folder: Path, store: str, agent: str) -> None:
    """Let an agent of the server read each of the hostile streams."""
    bodies = hostile.streams(SIZE)
    assert len(bodies) >= 30
    server = HostileServer()
    async with server.serve() as url, measured_worker(folder, store, upstream=url) as worker:
        attacks = Attacks(worker)
        await attacks.prepare()
        for number, (name, body) in list(enumerate(bodies.items()))[::EVERY]:
            server.body = body

            async def make(attempt: int, number: int = number) -> Request:
                given = run_input(f"t{number}-{attempt}", "r")
                return Request(worker.port, "POST", f"/agents/{agent}", json.dumps(given).encode())

            request = await attacks.attack(name, len(body), make, is_relayed=agent == "relay")
            assert b"RUN_FINISHED" in request.body or (agent == "relay" and b"RUN_ERROR" in request.body), name
        finish(f"hostile streams, {agent}, {store}", attacks, store)


async def test_hostile_streams_are_read_within_bounds(tmp_path: Path) -> None:
    await attack_with_streams(tmp_path, "memory", "read")


async def test_hostile_streams_of_an_upstream_are_relayed_within_bounds(tmp_path: Path, store: str) -> None:
    await attack_with_streams(tmp_path, store, "relay")
