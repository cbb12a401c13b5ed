"""Responses are ASGI applications: a response is called when it is sent.

The request is released before that, so an open stream keeps little in memory. A document is encoded piece by piece as
it is sent: a reader that stalls holds one piece. The pieces refer to the messages of the cached view, which all
readers of a thread share.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterable, AsyncIterator, Iterable, Iterator, Mapping, Sequence
from itertools import islice
from typing import TYPE_CHECKING, Any

import msgspec
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from aguila.codec import encode
from aguila.codec.json.encoder import encode_event
from aguila.codec.json.pieces import encode_pieces
from aguila.errors import CursorExpired, NotFound, StoreUnavailable
from aguila.offload import LARGE, is_large, offload
from aguila.protocol import Event, MessagesSnapshotEvent, replace
from aguila.server.config.errors import Disconnected

if TYPE_CHECKING:
    from aguila.server.http.budget import UnsentBytes

Headers = Sequence[tuple[bytes, bytes]]
Response = ASGIApp
"""Sends the response when it is called. A response of Starlette is one, too."""

MAX_WRITE = 1 << 18
"""Bytes of a large body that are passed to ``send`` at a time: the HTTP server copies each piece at least twice."""


PIECE = 1 << 16
"""Bytes of a document that are encoded at a time while it is sent."""

DOCUMENT_HEADERS: Headers = (
    (b"content-type", b"application/json"),
    (b"x-content-type-options", b"nosniff"),
    (b"cache-control", b"no-store"),
)
"""The headers of a JSON document that is sent in pieces."""


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

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        head = [(b"content-length", b"%d" % len(self.body)), (b"x-content-type-options", b"nosniff"), *self.headers]
        if self.body:
            head.append((b"content-type", self.media_type))
        await send({"type": "http.response.start", "status": self.status, "headers": head})
        at = 0
        while at + LARGE < len(self.body):
            await send({"type": "http.response.body", "body": self.body[at : at + MAX_WRITE], "more_body": True})
            at += MAX_WRITE
        await send({"type": "http.response.body", "body": self.body[at:]})


def json_response(value: Any, headers: Headers = (), status: int = 200) -> BufferedResponse:
    """Encode a JSON value or protocol objects as a response that must not be cached."""
    return BufferedResponse(status=status, body=encode(value), headers=[(b"cache-control", b"no-store"), *headers])


def stream_response(pieces: AsyncIterable[bytes], headers: Headers, status: int = 200) -> Response:
    """Return a response that is made while it is sent.

    It is cut off if what it is made of is removed meanwhile: the client sees that bytes are missing.
    """

    async def reply(scope: Scope, receive: Receive, send: Send) -> None:
        await send({"type": "http.response.start", "status": status, "headers": headers})
        try:
            async for piece in pieces:
                for at in range(0, len(piece), PIECE):
                    await send({"type": "http.response.body", "body": piece[at : at + PIECE], "more_body": True})
        except (NotFound, CursorExpired, StoreUnavailable):
            raise Disconnected from None
        await send({"type": "http.response.body", "body": b"", "more_body": False})

    return reply


def drop_body(send: Send) -> Send:
    """Wrap ``send`` so that it sends empty bodies, as the response to HEAD requires."""

    async def send_head(message: Message) -> None:
        await send({**message, "body": b""} if message["type"] == "http.response.body" else message)

    return send_head


def add_headers(send: Send, headers: Headers) -> Send:
    """Wrap ``send`` so that the response gets more headers."""

    async def send_with_headers(message: Message) -> None:
        if message["type"] == "http.response.start":
            message = {**message, "headers": [*message.get("headers", ()), *headers]}
        await send(message)

    return send_with_headers


def header_list(headers: Mapping[str, str]) -> list[tuple[bytes, bytes]]:
    """Convert headers to the form that ASGI requires."""
    return [(name.encode("latin-1"), value.encode("latin-1")) for name, value in headers.items()]


# Documents in pieces

_LIST: Any = (list, tuple, Iterator)

_BATCH = 64
"""Elements of an array that are encoded at once."""


class Pieces:
    """The pieces of a document, gathered to about ``PIECE`` bytes each. ``first`` is made before the response begins.

    ``is_large`` is whether encoding a piece takes long: then it is offloaded.
    """

    def __init__(self, pieces: Iterator[bytes], *, is_large: bool) -> None:
        self._pieces = pieces
        self._is_large = is_large
        self.first = b""
        self.is_complete = False
        """Whether the last piece was made."""

    @classmethod
    async def begin(cls, pieces: Iterator[bytes], *, is_large: bool) -> Pieces:
        """Return a document whose first piece is made."""
        begun = cls(pieces, is_large=is_large)
        begun.first = await begun._take()
        return begun

    async def __aiter__(self) -> AsyncIterator[bytes]:
        """Yield the first piece, then make the others."""
        yield self.first
        self.first = b""
        while not self.is_complete:
            yield await self._take()

    async def _take(self) -> bytes:
        if self._is_large:
            return await offload(self._gather)
        await asyncio.sleep(0)  # a long document does not block the event loop
        return self._gather()

    def _gather(self) -> bytes:
        found: list[bytes] = []
        size = 0
        for piece in self._pieces:
            found.append(piece)
            size += len(piece)
            if size >= PIECE:
                return b"".join(found)
        self.is_complete = True
        return b"".join(found)


async def document_response(members: Mapping[str, Any], unsent: UnsentBytes) -> Response:
    """Return a JSON object as a response that must not be cached. An iterator in it is encoded as an array.

    A document of more than ``PIECE`` bytes has no content length. Raises ``Rejected`` (503).
    """
    pieces = await Pieces.begin(_object_pieces(members), is_large=any(map(is_large, members.values())))
    if pieces.is_complete:
        return BufferedResponse(body=pieces.first, headers=[(b"cache-control", b"no-store")])
    return unsent.hold(stream_response(pieces, DOCUMENT_HEADERS), 4 * PIECE)


def event_pieces(event: Event) -> Iterator[bytes]:
    """Encode an event piece by piece, a snapshot message by message."""
    if not isinstance(event, MessagesSnapshotEvent):
        return _value_pieces(event)
    return _snapshot_pieces(event)


def _snapshot_pieces(event: MessagesSnapshotEvent) -> Iterator[bytes]:
    head, mark, tail = encode_event(replace(event, messages=[])).partition(b'"messages":[')
    yield head + mark
    yield from _element_pieces(event.messages)
    yield tail


def _object_pieces(members: Mapping[str, Any]) -> Iterator[bytes]:
    mark = b"{"
    for name, value in members.items():
        yield b"%b%b:" % (mark, encode(name))
        mark = b","
        if isinstance(value, _LIST):
            yield b"["
            yield from _element_pieces(value)
            yield b"]"
        else:
            yield from _value_pieces(value)
    yield b"}"


def _element_pieces(elements: Iterable[Any]) -> Iterator[bytes]:
    """Encode the elements of an array: many at once if they are small."""
    mark = b""
    remaining = iter(elements)
    while batch := list(islice(remaining, _BATCH)):
        data = b"" if is_large(batch) else encode(batch)
        if 0 < len(data) <= PIECE:
            yield mark + data[1:-1]
            mark = b","
            continue
        del data
        for element in batch:
            yield mark
            mark = b","
            yield from _value_pieces(element)


def _value_pieces(value: Any) -> Iterator[bytes]:
    if not is_large(value):
        data = encode(value)
        if len(data) <= PIECE:
            yield data
            return
        del data
    yield from encode_pieces(value)
