"""Responses as raw ASGI: a response is called with ``receive`` and ``send`` when it is sent.

The request is released before that, so an open stream keeps little in memory.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping, MutableMapping, Sequence
from typing import Any

import msgspec

from aguila.codec import encode
from aguila.codec.json.encoder import encode_large
from aguila.offload import LARGE
from aguila.server.errors import Disconnected, Rejected

Message = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[Message]]
Send = Callable[[Message], Awaitable[None]]
Headers = Sequence[tuple[bytes, bytes]]
Response = Callable[[Receive, Send], Awaitable[None]]
"""Sends the response when it is called."""

MAX_WRITE = 1 << 18
"""Bytes of a large body that are passed to ``send`` at a time: the HTTP server copies each piece at least twice."""


PIECE = 1 << 16
"""Bytes of a document that are encoded at a time while it is sent."""

_SMALL = 1 << 15
"""A body of at most this many bytes is not counted as unsent."""


class UnsentBytes:
    """Limits the bytes that are buffered for readers."""

    def __init__(self, most: int) -> None:
        self._most = most
        self._held = 0

    def hold(self, response: Response, size: int) -> Response:
        """Return the response, counted until it is sent. Raises ``Rejected`` (503) if there are too many bytes."""
        if size <= _SMALL:
            return response
        if self._held and self._held + size > self._most:
            message = f"{self._most} bytes are held for readers that have not accepted them; try again later"
            raise Rejected(503, "too_many_unsent", message, headers={"retry-after": "5"})

        async def send_counted(receive: Receive, send: Send) -> None:
            self._held += size
            try:
                await response(receive, send)
            finally:
                self._held -= size

        return send_counted


def limit_writes(send: Send, seconds: float) -> Send:
    """Wrap ``send`` so that it raises ``Disconnected`` if the reader accepts nothing for ``seconds``."""

    async def send_in_time(message: Message) -> None:
        try:
            async with asyncio.timeout(seconds):
                await send(message)
        except TimeoutError:
            raise Disconnected from None

    return send_in_time


class BufferedResponse(msgspec.Struct, frozen=True, kw_only=True):
    """A response whose body is complete before it is sent."""

    status: int = 200
    body: bytes = b""
    headers: Headers = ()
    media_type: bytes = b"application/json"

    async def __call__(self, receive: Receive, send: Send) -> None:
        """Send the response."""
        head = [(b"content-length", b"%d" % len(self.body)), (b"x-content-type-options", b"nosniff"), *self.headers]
        if self.body:
            head.append((b"content-type", self.media_type))
        await send({"type": "http.response.start", "status": self.status, "headers": head})
        at = 0
        while at + LARGE < len(self.body):
            await send({"type": "http.response.body", "body": self.body[at : at + MAX_WRITE], "more_body": True})
            at += MAX_WRITE
        await send({"type": "http.response.body", "body": self.body[at:]})


def json_response(value: Any, headers: Headers = (), status: int = 200, *, is_large: bool = False) -> BufferedResponse:
    """Encode a JSON value or protocol objects as a response that must not be cached.

    Pass ``is_large=True`` for a large value, and offload the call.
    """
    body = encode_large(value) if is_large else encode(value)
    return BufferedResponse(status=status, body=body, headers=[(b"cache-control", b"no-store"), *headers])


def drop_body(send: Send) -> Send:
    """Wrap ``send`` so that it sends empty bodies, as the response to HEAD requires."""

    async def send_head(message: Message) -> None:
        await send({**message, "body": b""} if message["type"] == "http.response.body" else message)

    return send_head


def header_list(headers: Mapping[str, str]) -> list[tuple[bytes, bytes]]:
    """Convert headers to the form that ASGI requires."""
    return [(name.encode("latin-1"), value.encode("latin-1")) for name, value in headers.items()]
