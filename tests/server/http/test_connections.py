"""What the protocol of ``aguila serve`` allows on one connection, before the app sees a request."""

from __future__ import annotations

import asyncio
import socket
import threading
from contextlib import suppress
from typing import Any

import pytest
from serving import Server, serving
from waiting import DEADLINE, wait_until

from aguila.server.http.bounded_protocol import BoundedHTTPProtocol

GET = b"GET / HTTP/1.1\r\nHost: localhost\r\n\r\n"
LAST = b"GET / HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n"


class Impatient(BoundedHTTPProtocol):
    head_seconds = 0.2
    linger_seconds = 0.2


class Streaming:
    """Sends one piece, and ends the response when the test says so or the client has disconnected."""

    def __init__(self) -> None:
        self.requests = 0
        self.is_released = threading.Event()
        self.has_seen_disconnect = threading.Event()

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        if scope["type"] != "http":
            return
        self.requests += 1
        await send({"type": "http.response.start", "status": 200, "headers": []})
        await send({"type": "http.response.body", "body": b"piece", "more_body": True})
        listening = asyncio.ensure_future(self._listen(receive))
        while not self.is_released.is_set() and not listening.done():  # noqa: ASYNC110 - set in another thread
            await asyncio.sleep(0.001)
        listening.cancel()
        await send({"type": "http.response.body", "body": b""})

    async def _listen(self, receive: Any) -> None:
        while (await receive())["type"] != "http.disconnect":
            pass
        self.has_seen_disconnect.set()


async def answer_early(scope: Any, receive: Any, send: Any) -> None:
    """Answers without a look at the body."""
    if scope["type"] == "http":
        await send({"type": "http.response.start", "status": 200, "headers": [(b"content-length", b"5")]})
        await send({"type": "http.response.body", "body": b"early"})


async def show_headers(scope: Any, receive: Any, send: Any) -> None:
    """Answers with the headers as they are when the body has been read."""
    if scope["type"] == "http":
        while (await receive()).get("more_body"):
            pass
        await send({"type": "http.response.start", "status": 200, "headers": []})
        await send({"type": "http.response.body", "body": repr(scope["headers"]).encode()})


def connect(server: Server) -> socket.socket:
    port = int(server.url.rpartition(":")[2])
    return socket.create_connection(("127.0.0.1", port), timeout=DEADLINE)


def read_until(connection: socket.socket, end: bytes) -> bytes:
    read = b""
    while end not in read and (piece := connection.recv(65_536)):
        read += piece
    return read


def read_all(connection: socket.socket) -> bytes:
    read = b""
    with suppress(ConnectionResetError):  # by a server that closes before it has read everything
        while piece := connection.recv(65_536):
            read += piece
    return read


def test_one_request_may_wait_for_the_response_to_another() -> None:
    with serving(answer_early, http=BoundedHTTPProtocol) as server, connect(server) as connection:
        connection.sendall(GET + LAST)
        assert read_all(connection).count(b"early") == 2


def test_further_waiting_requests_are_refused() -> None:
    with serving(answer_early, http=BoundedHTTPProtocol) as server, connect(server) as connection:
        connection.sendall(GET + GET + LAST)
        answer = read_all(connection)
    assert answer.startswith(b"HTTP/1.1 400 Bad Request\r\n")
    assert b"wait for the response before the next request" in answer
    assert answer.count(b"HTTP/1.1") == 1


def test_a_flood_of_waiting_requests_ends_the_connection_and_never_reaches_the_app() -> None:
    app = Streaming()
    with serving(app, http=BoundedHTTPProtocol) as server, connect(server) as connection:
        connection.sendall(GET)
        read_until(connection, b"piece")
        with suppress(BrokenPipeError, ConnectionResetError):
            connection.sendall(GET * 100_000)
        assert b"HTTP/1.1" not in read_all(connection)  # nothing is written into the response in progress
        wait_until(app.has_seen_disconnect.is_set)
        assert app.requests == 1


def test_a_disconnect_is_noticed_although_a_request_waits() -> None:
    app = Streaming()
    with serving(app, http=BoundedHTTPProtocol) as server:
        with connect(server) as connection:
            connection.sendall(GET)
            read_until(connection, b"piece")
            connection.sendall(GET)
        wait_until(app.has_seen_disconnect.is_set)
        assert app.requests == 1


def test_a_trailer_does_not_become_a_header() -> None:
    head = b"POST / HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\nTransfer-Encoding: chunked\r\n\r\n"
    with serving(show_headers, http=BoundedHTTPProtocol) as server, connect(server) as connection:
        connection.sendall(head + b"1\r\nx\r\n0\r\nX-User: alice\r\n\r\n")
        answer = read_all(connection)
    assert b"localhost" in answer
    assert b"alice" not in answer


@pytest.mark.parametrize("rest", [b"x", b"x" * 1000], ids=["a byte", "all"])
def test_the_rest_of_a_body_after_the_response_does_not_keep_the_connection_open(rest: bytes) -> None:
    with serving(answer_early, http=Impatient) as server, connect(server) as connection:
        connection.sendall(b"POST / HTTP/1.1\r\nHost: localhost\r\nContent-Length: 1000\r\n\r\n")
        read_until(connection, b"early")
        connection.sendall(rest)
        assert read_all(connection) == b""


def test_a_connection_is_used_again_after_the_rest_of_a_body() -> None:
    with serving(answer_early, http=BoundedHTTPProtocol) as server, connect(server) as connection:
        connection.sendall(b"POST / HTTP/1.1\r\nHost: localhost\r\nContent-Length: 1000\r\n\r\n")
        read_until(connection, b"early")
        connection.sendall(b"x" * 1000 + LAST)
        assert read_all(connection).endswith(b"early")


def test_a_line_break_after_a_request_does_not_end_its_response() -> None:
    app = Streaming()
    with serving(app, http=Impatient) as server, connect(server) as connection:
        connection.sendall(b"POST / HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\nContent-Length: 1\r\n\r\nx")
        read_until(connection, b"piece")
        connection.sendall(b"\r\n")
        for _ in range(2):  # a connection without a request is closed when its time is over
            with connect(server) as other:
                assert other.recv(1) == b""
        app.is_released.set()
        assert read_all(connection).endswith(b"0\r\n\r\n")


def test_line_breaks_do_not_keep_a_connection_open() -> None:
    with serving(answer_early, http=Impatient) as server, connect(server) as connection:
        connection.sendall(GET)
        read_until(connection, b"early")
        connection.sendall(b"\r\n")
        assert read_all(connection) == b""
