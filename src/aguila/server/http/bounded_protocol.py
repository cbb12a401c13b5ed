"""Uvicorn's protocol with limits on what it reads besides bodies: httptools has none.

``aguila serve`` uses it. With uvicorn itself: ``--http aguila.server.http.bounded_protocol:BoundedHTTPProtocol``.
"""

from __future__ import annotations

import asyncio
from http import HTTPStatus
from typing import Any

from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

from aguila.server.http.head_limits import HEAD_SECONDS, HEAD_TOO_LARGE, MAX_HEAD_BYTES


class BoundedHTTPProtocol(HttpToolsProtocol):
    """Answers 431 to a head that is too large, and 408 to one that does not end in time.

    The parser buffers a header until it is complete, so the bytes are counted as they arrive. Trailers and the
    extensions of chunks count too.
    """

    head_seconds = HEAD_SECONDS

    def __init__(self, *args: Any, **options: Any) -> None:
        super().__init__(*args, **options)
        self._pending = 0
        """Bytes since the last complete head, piece of a body or message."""
        self._deadline: asyncio.TimerHandle | None = None

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        """See ``asyncio.Protocol``."""
        super().connection_made(transport)
        self._set_deadline()

    def connection_lost(self, exc: Exception | None) -> None:
        """See ``asyncio.Protocol``."""
        self._clear_deadline()
        super().connection_lost(exc)

    def data_received(self, data: bytes) -> None:
        """See ``asyncio.Protocol``."""
        self._pending += len(data)
        super().data_received(data)
        if self._pending > MAX_HEAD_BYTES:
            self._refuse(HTTPStatus.REQUEST_HEADER_FIELDS_TOO_LARGE, HEAD_TOO_LARGE)
        elif self._pending == 0:
            self._clear_deadline()
        elif self._deadline is None:
            self._set_deadline()

    # Callbacks of the parser

    def on_message_begin(self) -> None:
        """Begin a head. If it is in the same piece as the end of a body, its length is not known: one byte counts."""
        super().on_message_begin()
        self._pending = max(1, self._pending)

    def on_headers_complete(self) -> None:
        """End a head."""
        self._pending = 0
        super().on_headers_complete()

    def on_body(self, body: bytes) -> None:
        """Pass on a piece of a body."""
        self._pending = 0
        super().on_body(body)

    def on_message_complete(self) -> None:
        """End a message."""
        self._pending = 0
        super().on_message_complete()

    # Limits

    def _set_deadline(self) -> None:
        message = f"the head of a request has {self.head_seconds:g} seconds to arrive"
        self._deadline = self.loop.call_later(self.head_seconds, self._refuse, HTTPStatus.REQUEST_TIMEOUT, message)

    def _clear_deadline(self) -> None:
        if self._deadline is not None:
            self._deadline.cancel()
            self._deadline = None

    def _refuse(self, status: HTTPStatus, message: str) -> None:
        """Answer and disconnect. A connection without a request, or with a response in progress, gets no answer."""
        self._clear_deadline()
        if self.transport.is_closing():
            return
        if self._pending and (self.cycle is None or self.cycle.response_complete):
            head = f"HTTP/1.1 {status} {status.phrase}\r\nconnection: close\r\ncontent-type: text/plain\r\n"
            self.transport.write(f"{head}content-length: {len(message)}\r\n\r\n{message}".encode())
        self.transport.close()
