"""``aguila doctor`` and servers that answer with anything: each is a finding, and none keeps it."""

from __future__ import annotations

import json
import socket
import threading
import time
from collections.abc import Generator
from contextlib import contextmanager, suppress
from typing import Any

import pytest

from aguila.cli.doctor.checks import Check
from aguila.cli.doctor.connection import Connection
from aguila.cli.doctor.way import check_way
from aguila.cli.output.checkup import as_text

SEEN = {
    "time": 0.0,
    "url": "http://localhost",
    "untrustedProxy": None,
    "allowsOrigin": False,
    "heartbeat": 0.1,
    "maxBody": 1000,
}
HEAD = b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nConnection: close\r\n\r\n"
REFUSAL = b"HTTP/1.1 413 Too Large\r\nContent-Length: 0\r\n\r\n"


def probe(**changed: Any) -> bytes:
    """Return the response to a probe, with other values."""
    return HEAD + 2 * (b"data: " + json.dumps({"value": {**SEEN, **changed}}).encode() + b"\n\n")


@contextmanager
def answering(get: bytes, post: bytes = REFUSAL, *, goes_on: bool = False) -> Generator[str]:
    """Serve these answers. With ``goes_on``, comments follow that to GET without an end."""

    def answer(connection: socket.socket) -> None:
        with connection, suppress(OSError):
            request = b""
            while b"\r\n\r\n" not in request and (piece := connection.recv(65536)):
                request += piece
            connection.sendall(get if request.startswith(b"GET") else post)
            while goes_on:
                connection.sendall(b":\n")
                time.sleep(0.02)

    def accept() -> None:
        with suppress(OSError):
            while True:
                threading.Thread(target=answer, args=listener.accept()[:1], daemon=True).start()

    with socket.create_server(("127.0.0.1", 0)) as listener:
        thread = threading.Thread(target=accept, daemon=True)
        thread.start()
        yield f"http://127.0.0.1:{listener.getsockname()[1]}"
        listener.shutdown(socket.SHUT_RDWR)
        thread.join()


def check(url: str) -> list[Check]:
    return list(check_way(Connection(url, {}), None))


@pytest.mark.parametrize(
    ("get", "post"),
    [
        (probe(heartbeat=1e308), REFUSAL),
        (probe(heartbeat=-1e9), REFUSAL),
        (probe(url="http://[::1"), REFUSAL),
        (probe(maxBody=-1), REFUSAL),
        (probe(), b"\r\n"),
        (probe(), b"HTTP/1.1 xyz\r\n\r\n"),
        (probe(), b"HTTP/1.1 413 Too Large\r\nContent-Length: abc\r\n\r\n"),
        (probe(), b""),
    ],
)
def test_nonsense_is_a_finding(get: bytes, post: bytes) -> None:
    with answering(get, post) as url:
        assert any(found.fix is not None for found in check(url))


def test_a_stream_that_never_sends_an_event_is_given_up(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("aguila.cli.doctor.way.PATIENCE", 0.2)
    with answering(HEAD, goes_on=True) as url:
        (found,) = check(url)
    assert "cut before its first event" in found.text


def test_a_server_cannot_forge_a_line() -> None:
    error = {"error": {"code": "x", "message": "no\nok: all well\x1b[2J"}}
    body = json.dumps(error).encode()
    with answering(b"HTTP/1.1 500 No\r\nConnection: close\r\nContent-Length: %d\r\n\r\n%b" % (len(body), body)) as url:
        (found,) = check(url)
    assert "no\\nok: all well\\x1b[2J" in as_text(found).splitlines()[0]
