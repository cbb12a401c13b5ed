"""POST a run to an agent and return the bytes of its response, unchecked. For ``check`` and ``record``."""

from __future__ import annotations

import sys
import time
from codecs import BOM_UTF16_BE, BOM_UTF16_LE
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, Final
from uuid import uuid4

import msgspec

from aguila.client.requests.urls import display_url
from aguila.client.transports.base import Request, Response, Timeouts
from aguila.client.transports.httpx2 import HTTPX2Transport
from aguila.codec.json.bounded_floats import decode_json
from aguila.codec.negotiate import PROTOBUF_MEDIA_TYPE, SSE_MEDIA_TYPE
from aguila.codec.protobuf import ProtobufDecoder
from aguila.errors import AguilaError, TransportFailed
from aguila.protocol import PROTOCOL_VERSION

_MAX_ERROR: Final = 64 * 1024


class CannotRun(AguilaError):
    """The agent could not be run, or the file could not be read; the message has the reason."""


def is_url(target: str) -> bool:
    """Return whether a target is a URL rather than a file."""
    return target.startswith(("http://", "https://"))


def headers_of(lines: Sequence[str]) -> dict[str, str]:
    """Parse ``Name: value`` lines as headers. Raise ``CannotRun``."""
    headers: dict[str, str] = {}
    for line in lines:
        name, colon, value = line.partition(":")
        if not colon or not name.strip():
            raise CannotRun(f"{line!r} is not a header; write it as 'Name: value'")
        headers[name.strip()] = value.strip()
    return headers


def read_bytes(path: str | Path) -> bytes:
    """Return the content of a file. Raise ``CannotRun``."""
    try:
        return Path(path).read_bytes()
    except OSError as error:
        raise CannotRun(f"cannot read {path}: {error.strerror}") from None


def read_stream(path: str | Path) -> bytes:
    """Return the bytes of a recorded stream; ``-`` is standard input. Raise ``CannotRun``."""
    data = sys.stdin.buffer.read() if str(path) == "-" else read_bytes(path)
    # Some shells redirect output as UTF-16. Without a byte order mark, ASCII shows as every second byte being zero. No
    # format has that: a protobuf frame begins with a zero.
    if data[:2] in (BOM_UTF16_LE, BOM_UTF16_BE) or (data[:1] != b"\0" and data[1:4:2] == b"\0\0"):
        raise CannotRun(f"{path} is UTF-16; streams have to be UTF-8, so convert the file first")
    return data


def make_input(message: str | None, input_file: Path | None, thread_id: str | None = None) -> dict[str, Any]:
    """Return the input of a run: a message, a file, or both. Missing ids are generated. Raise ``CannotRun``."""
    given: dict[str, Any] = {}
    if input_file is not None:
        try:
            given = decode_json(read_bytes(input_file), dict[str, Any])
        except (msgspec.DecodeError, UnicodeError, RecursionError) as error:
            raise CannotRun(f"{input_file} is not the input of a run: {error}") from None
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


class StreamResponse:
    """A response whose body is read piece by piece."""

    def __init__(self, response: Response, began: float, timeout: float | None) -> None:
        self.status = response.status
        self.content_type = response.headers.get("content-type", "")
        self.broke: str | None = None
        """Why the response broke off; None if it ended in order."""
        self._response = response
        self._began = began
        self._timeout = timeout

    def pieces(self) -> Iterator[tuple[float, bytes]]:
        """Yield the bytes up to the end or the break, with milliseconds since the request."""
        while True:
            try:
                data = self._response.read(self._timeout)
            except TransportFailed as error:
                self.broke = _reason(error, self._timeout)
                return
            if not data:
                return
            yield (time.monotonic() - self._began) * 1000, data

    def body(self, most: int) -> bytes:
        """Return the body, at most about this many bytes: a longer one counts as broken off."""
        found: list[bytes] = []
        size = 0
        for _, data in self.pieces():
            found.append(data)
            size += len(data)
            if size > most:
                self.broke = f"it has more than {most} bytes, which is as much as is read"
                break
        return b"".join(found)

    def close(self) -> None:
        """Release the connection."""
        self._response.close()


def _reason(error: TransportFailed, timeout: float | None) -> str:
    is_known = error.is_timeout and timeout is not None
    return f"no data for {timeout:g} seconds (--timeout)" if is_known else error.message


class HTTPCaller:
    """POSTs runs to an agent. A context manager."""

    def __init__(self, url: str, *, headers: dict[str, str], protobuf: bool, timeout: float) -> None:
        if protobuf:
            ProtobufDecoder()  # raises MissingExtra before anything is sent
        self._url = url
        accept = f"{PROTOBUF_MEDIA_TYPE}, {SSE_MEDIA_TYPE}" if protobuf else SSE_MEDIA_TYPE
        self._headers = {"Accept": accept, "Content-Type": "application/json", **headers}
        self._timeout = timeout
        self._transport = HTTPX2Transport(timeouts=Timeouts(idle=timeout, first_event=timeout))

    def post(self, wanted: Any) -> StreamResponse:
        """Start a run. Raise ``CannotRun`` if the server is not reached, or refuses."""
        request = Request(method="POST", url=self._url, headers=self._headers, body=msgspec.json.encode(wanted))
        began = time.monotonic()
        try:
            response = self._transport.send(request, self._timeout)
        except TransportFailed as error:
            raise CannotRun(f"cannot reach {display_url(self._url)}: {_reason(error, self._timeout)}") from None
        answer = StreamResponse(response, began, self._timeout)
        if not 200 <= answer.status < 300:
            text = answer.body(_MAX_ERROR).decode("utf-8", "replace").strip()[:500]
            answer.close()
            raise CannotRun(f"{display_url(self._url)} answered HTTP {answer.status}{f': {text}' if text else ''}")
        return answer

    def __enter__(self) -> HTTPCaller:
        return self

    def __exit__(self, *_: object) -> None:
        self._transport.close()
