"""Layer: cli. One run of an agent, as bytes, before anybody judges them.

Above: ``check`` and ``record``. Below: the client's transport. The input is sent as it is given, and nothing is read
into the answer.
"""

from __future__ import annotations

import sys
import time
from codecs import BOM_UTF16_BE, BOM_UTF16_LE
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any
from uuid import uuid4

import msgspec

from aguila.client.requests.urls import display_url
from aguila.client.transports.base import Request, Response, Timeouts
from aguila.client.transports.httpx2 import HTTPX2Transport
from aguila.codec.negotiate import PROTOBUF_MEDIA_TYPE, SSE_MEDIA_TYPE
from aguila.codec.protobuf import ProtobufDecoder
from aguila.errors import AguilaError, TransportFailed
from aguila.protocol import PROTOCOL_VERSION


class CannotRun(AguilaError):
    """There is nothing to look at; the message says why."""


def is_url(target: str) -> bool:
    """Whether a target is an address rather than a file."""
    return target.startswith(("http://", "https://"))


def headers_of(lines: Sequence[str]) -> dict[str, str]:
    """``Name: value`` lines as headers. Raises ``CannotRun``."""
    headers: dict[str, str] = {}
    for line in lines:
        name, colon, value = line.partition(":")
        if not colon or not name.strip():
            raise CannotRun(f"{line!r} is no header; write it as 'Name: value'")
        headers[name.strip()] = value.strip()
    return headers


def read_bytes(path: str | Path) -> bytes:
    """The content of a file. Raises ``CannotRun``."""
    try:
        return Path(path).read_bytes()
    except OSError as error:
        raise CannotRun(f"cannot read {path}: {error.strerror}") from None


def read_stream(path: str | Path) -> bytes:
    """A stream that was kept; ``-`` is the standard input. Raises ``CannotRun``."""
    data = sys.stdin.buffer.read() if str(path) == "-" else read_bytes(path)
    # Some shells write what is redirected as UTF-16. Without a mark it is told by the zeros of ASCII, which no form has
    # there: a frame of protobuf begins with one.
    if data[:2] in (BOM_UTF16_LE, BOM_UTF16_BE) or (data[:1] != b"\0" and data[1:4:2] == b"\0\0"):
        raise CannotRun(f"{path} is UTF-16, and streams are UTF-8: write it again as that")
    return data


def make_input(message: str | None, input_file: Path | None, thread_id: str | None = None) -> dict[str, Any]:
    """The input of a run: a file's, with ids where it has none, or one message. Raises ``CannotRun``."""
    given: dict[str, Any] = {}
    if input_file is not None:
        try:
            given = msgspec.json.decode(read_bytes(input_file), type=dict[str, Any])
        except (msgspec.DecodeError, UnicodeError, RecursionError) as error:
            raise CannotRun(f"{input_file} is no input of a run: {error}") from None
    wanted: dict[str, Any] = {
        "threadId": str(uuid4()),
        "runId": str(uuid4()),
        "protocolVersion": PROTOCOL_VERSION,
        "messages": [],
        "state": {},
        "tools": [],
        "context": [],
        "forwardedProps": {},
        **given,
    }
    if thread_id is not None:
        wanted["threadId"] = thread_id
    if message is not None:
        wanted["messages"] = [*wanted["messages"], {"id": str(uuid4()), "role": "user", "content": message}]
    return wanted


class Answer:
    """An answer that has begun. ``pieces`` gives its bytes as they come, with milliseconds since the request."""

    def __init__(self, response: Response, began: float, patience: float | None) -> None:
        self.status = response.status
        self.content_type = response.headers.get("content-type", "")
        self.broke: str | None = None
        """Why the answer ended, if it was not in order."""
        self._response = response
        self._began = began
        self._patience = patience

    def pieces(self) -> Iterator[tuple[float, bytes]]:
        """Everything up to the end, or to where the connection broke."""
        while True:
            try:
                data = self._response.read(self._patience)
            except TransportFailed as error:
                self.broke = _why(error, self._patience)
                return
            if not data:
                return
            yield (time.monotonic() - self._began) * 1000, data

    def body(self) -> bytes:
        """All of it."""
        return b"".join([data for _, data in self.pieces()])

    def close(self) -> None:
        """Let go of the connection."""
        self._response.close()


def _why(error: TransportFailed, patience: float | None) -> str:
    is_known = error.is_timeout and patience is not None
    return f"nothing came for {patience:g} seconds (--timeout)" if is_known else error.message


class Caller:
    """Posts runs to an agent. A context manager."""

    def __init__(self, url: str, *, headers: dict[str, str], protobuf: bool, patience: float) -> None:
        if protobuf:
            ProtobufDecoder()  # raises MissingExtra before anything is sent
        self._url = url
        accept = f"{PROTOBUF_MEDIA_TYPE}, {SSE_MEDIA_TYPE}" if protobuf else SSE_MEDIA_TYPE
        self._headers = {"Accept": accept, "Content-Type": "application/json", **headers}
        self._patience = patience
        self._transport = HTTPX2Transport(timeouts=Timeouts(idle=patience, first_event=patience))

    def post(self, wanted: Any) -> Answer:
        """Ask for a run. Raises ``CannotRun`` if there is no stream: the server is not there, or refuses."""
        request = Request(method="POST", url=self._url, headers=self._headers, body=msgspec.json.encode(wanted))
        began = time.monotonic()
        try:
            response = self._transport.send(request, self._patience)
        except TransportFailed as error:
            raise CannotRun(f"cannot reach {display_url(self._url)}: {_why(error, self._patience)}") from None
        answer = Answer(response, began, self._patience)
        if not 200 <= answer.status < 300:
            text = answer.body().decode("utf-8", "replace").strip()[:500]
            answer.close()
            raise CannotRun(f"{display_url(self._url)} answered HTTP {answer.status}{f': {text}' if text else ''}")
        return answer

    def __enter__(self) -> Caller:
        return self

    def __exit__(self, *_: object) -> None:
        self._transport.close()
