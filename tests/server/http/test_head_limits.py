"""The head of a request is limited by the app and by the protocol of ``aguila serve``, before anything else is read."""

from __future__ import annotations

import asyncio
import json
import socket
import tracemalloc
from collections.abc import Iterator
from typing import Any

import pytest
from serving import Server, serving
from waiting import DEADLINE

from aguila import App
from aguila.server.http.bounded_protocol import BoundedHTTPProtocol
from aguila.server.http.head_limits import MAX_HEAD_BYTES, MAX_HEADERS
from aguila.server.http.request import Request

HEAD = b"POST /threads/x/cancel HTTP/1.1\r\nHost: localhost\r\n"
Headers = list[tuple[bytes, bytes]]


async def hello(run: Any) -> Any:
    yield "hello"


async def call(path: str, headers: Headers, query: bytes = b"", **options: Any) -> tuple[int, dict[str, Any]]:
    sent: list[Any] = []

    async def receive() -> Any:
        return {"type": "http.request", "body": b"", "more_body": False}

    async def send(message: Any) -> None:
        sent.append(message)

    scope = {"type": "http", "method": "GET", "path": path, "query_string": query, "headers": headers}
    async with App(hello, **options) as app:
        await app(scope, receive, send)
    return sent[0]["status"], json.loads(b"".join(message.get("body", b"") for message in sent))


HOST = [(b"host", b"localhost")]
OTHERS = MAX_HEADERS - 1


@pytest.mark.parametrize("path", ["/healthz", "/threads", "/nowhere"])
@pytest.mark.parametrize(
    ("headers", "length"),
    [(HOST + [(b"x", b"y")] * (OTHERS + 1), 0), ([*HOST, (b"x", b"y" * MAX_HEAD_BYTES)], 0), (HOST, MAX_HEAD_BYTES)],
    ids=["many headers", "a long header", "a long query"],
)
def test_a_head_that_is_too_large_is_refused_on_every_route(path: str, headers: Headers, length: int) -> None:
    status, body = asyncio.run(call(path, headers, b"q" * length))
    assert (status, body["error"]["code"]) == (431, "head_too_large")
    assert "100 headers and 65536 bytes" in body["error"]["message"]


def test_headers_that_are_too_large_are_refused_before_they_are_joined() -> None:
    value = b"y" * 1_000_000
    tracemalloc.start()
    try:
        status, _ = asyncio.run(call("/healthz", HOST + [(b"x", value)] * OTHERS))
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert status == 431
    assert peak < 20 * len(value)


@pytest.mark.parametrize(
    "headers", [HOST + [(b"x%d" % i, b"y") for i in range(OTHERS)], [*HOST, (b"cookie", b"y" * 60_000)]]
)
def test_a_head_within_the_limits_is_read(headers: Headers) -> None:
    assert asyncio.run(call("/healthz", headers))[0] == 200


def test_repeated_headers_are_joined() -> None:
    seen: list[dict[str, str]] = []

    def authenticate(request: Request) -> None:
        seen.append(dict(request.headers))

    cookies = [(b"cookie", b"a=1"), (b"cookie", b"b=2")]  # HTTP/2 sends each on its own
    given = [*HOST, (b"x", b"1"), *cookies, (b"y", b"2"), (b"x", b"3")]
    asyncio.run(call("/threads", given, authenticate=authenticate))
    assert seen == [{"host": "localhost", "x": "1, 3", "cookie": "a=1; b=2", "y": "2"}]


class Impatient(BoundedHTTPProtocol):
    head_seconds = 0.2


@pytest.fixture(params=[BoundedHTTPProtocol, Impatient], ids=["bounded", "impatient"])
def server(request: pytest.FixtureRequest) -> Iterator[Server]:
    with serving(App(hello), http=request.param) as server:
        yield server


def connect(server: Server) -> socket.socket:
    port = int(server.url.rpartition(":")[2])
    return socket.create_connection(("127.0.0.1", port), timeout=DEADLINE)


def flood(connection: socket.socket, piece: bytes, most: int) -> int:
    """Send a piece until the server disconnects; return the bytes that it accepted."""
    sent = 0
    try:
        while sent < most:
            sent += connection.send(piece)
    except (BrokenPipeError, ConnectionResetError):
        pass
    return sent


@pytest.mark.parametrize("server", [BoundedHTTPProtocol], indirect=True)
@pytest.mark.parametrize(
    "start",
    [
        b"GET /",
        HEAD + b"X: ",
        HEAD + b"Transfer-Encoding: chunked\r\n\r\n1;",
        HEAD + b"Transfer-Encoding: chunked\r\n\r\n0\r\nX: ",
    ],
    ids=["path", "header", "chunk extension", "trailer"],
)
def test_a_head_that_does_not_end_is_cut_early(server: Server, start: bytes) -> None:
    """The bytes that are on the way are those of the buffers of both sockets."""
    most = 200 * 1024 * 1024
    with connect(server) as connection:
        connection.sendall(start)
        assert flood(connection, b"x" * 65_536, most) < most // 10


@pytest.mark.parametrize("server", [BoundedHTTPProtocol], indirect=True)
def test_a_head_that_is_too_large_is_answered_by_the_protocol(server: Server) -> None:
    with connect(server) as connection:
        connection.sendall((HEAD + b"X: ").ljust(MAX_HEAD_BYTES + 1, b"x"))
        answer = connection.recv(65_536)
    assert answer.startswith(b"HTTP/1.1 431 Request Header Fields Too Large\r\n")
    assert b"100 headers and 65536 bytes" in answer


@pytest.mark.parametrize("server", [Impatient], indirect=True)
@pytest.mark.parametrize(
    ("start", "status"), [(b"", b""), (b"GET / HT", b"408"), (HEAD, b"408")], ids=["nothing", "line", "headers"]
)
@pytest.mark.parametrize("before", [0, 2])
def test_a_head_that_does_not_arrive_in_time_ends_the_connection(
    server: Server, start: bytes, status: bytes, before: int
) -> None:
    with connect(server) as connection:
        for _ in range(before):
            connection.sendall(b"HEAD /healthz HTTP/1.1\r\nHost: localhost\r\n\r\n")
            assert connection.recv(65_536).startswith(b"HTTP/1.1 200 ")
        connection.sendall(start)
        answer = connection.recv(65_536)
        assert answer[9:12] == status
        if answer:
            assert connection.recv(1) == b""


@pytest.mark.parametrize("server", [Impatient], indirect=True)
def test_a_body_and_a_response_are_not_bound_to_the_time_of_a_head(server: Server) -> None:
    body = json.dumps({"threadId": "t", "runId": "r", "messages": []}).encode()
    with connect(server) as connection:
        connection.sendall(b"POST / HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n")
        connection.sendall(b"Connection: close\r\nContent-Length: %d\r\n\r\n" % len(body))
        with connect(server) as other:  # an idle connection is closed when its time is over
            assert other.recv(1) == b""
        connection.sendall(body)
        answer = b""
        while piece := connection.recv(65_536):
            answer += piece
    assert answer.startswith(b"HTTP/1.1 200 ")
    assert b"RUN_FINISHED" in answer
