"""Encode documents piece by piece, as they are sent: a reader that stalls holds one piece, not the document.

The pieces refer to the messages of the cached projection, which all readers of a thread share.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Iterator, Mapping
from itertools import islice
from typing import Any

from aguila.codec.json.encoder import encode, encode_event, encode_pieces
from aguila.offload import is_large, offload
from aguila.protocol import Event, MessagesSnapshotEvent, replace
from aguila.server.http.responses import PIECE, BufferedResponse, Headers, Message, Receive, Response, Send, UnsentBytes

_LIST: Any = (list, tuple, Iterator)

_BATCH = 64
"""Elements of an array that are encoded at once."""


class Pieces:
    """The pieces of a document, gathered to about ``PIECE`` bytes each.

    ``is_large`` is whether encoding a piece takes long: then it is offloaded.
    """

    def __init__(self, pieces: Iterator[bytes], *, is_large: bool) -> None:
        self._pieces = pieces
        self._is_large = is_large
        self.is_complete = False
        """Whether the last piece was returned."""

    async def take(self) -> bytes:
        """Encode and return the next piece."""
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


async def document_response(members: Mapping[str, Any], headers: Headers, unsent: UnsentBytes) -> Response:
    """Return a JSON object as a response that must not be cached. An iterator in it is encoded as an array.

    A document of more than ``PIECE`` bytes has no content length. Raises ``Rejected`` (503).
    """
    pieces = Pieces(_object_pieces(members), is_large=any(map(is_large, members.values())))
    headers = [(b"cache-control", b"no-store"), *headers]
    first = await pieces.take()
    if pieces.is_complete:
        return BufferedResponse(body=first, headers=headers)

    async def reply(receive: Receive, send: Send) -> None:
        nonlocal first
        media_type = (b"content-type", b"application/json")
        head = [media_type, (b"x-content-type-options", b"nosniff"), *headers]
        await send({"type": "http.response.start", "status": 200, "headers": head})
        piece, first = first, b""
        while True:
            for at in range(0, len(piece), PIECE):
                await send(_body(piece[at : at + PIECE]))
            if pieces.is_complete:
                break
            piece = await pieces.take()
        await send({"type": "http.response.body", "body": b"", "more_body": False})

    return unsent.hold(reply, 4 * PIECE)


def _body(data: bytes) -> Message:
    return {"type": "http.response.body", "body": data, "more_body": True}


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
