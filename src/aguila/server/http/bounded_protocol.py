"""Uvicorn's protocol with limits on what it reads besides bodies: httptools has none.

``aguila serve`` uses it. With uvicorn itself: ``--http aguila.server.http.bounded_protocol:BoundedHTTPProtocol``.
"""

from __future__ import annotations

import asyncio
from http import HTTPStatus
from typing import Any

from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol, RequestResponseCycle

from aguila.server.http.head_limits import HEAD_SECONDS, HEAD_TOO_LARGE, LINGER_SECONDS, MAX_HEAD_BYTES

_PIPELINED = "a request began while another one waits for its response: wait for the response before the next request"


class BoundedHTTPProtocol(HttpToolsProtocol):
    """Answers 431 to a head that is too large, 408 to one that does not end in time, and 400 to pipelined requests.

    The parser buffers a header until it is complete, so the bytes are counted as they arrive. Trailers and the
    extensions of chunks count too. Trailers are not headers: they are ignored.

    One request may wait for the response to the one before it: a client may have read all of a response before the
    app says that it is complete.
    """

    head_seconds = HEAD_SECONDS
    linger_seconds = LINGER_SECONDS

    def __init__(self, *args: Any, **options: Any) -> None:
        super().__init__(*args, **options)
        self._pending = 0
        """Bytes since the last complete head, piece of a body or message."""
        self._is_in_head = False
        self._is_in_message = False
        self._earlier: RequestResponseCycle | None = None
        """The request before the newest one."""
        self._deadline: asyncio.TimerHandle | None = None

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        super().connection_made(transport)
        self._set_head_deadline()

    def connection_lost(self, exc: Exception | None) -> None:
        self._clear_deadline()
        self._disconnect_requests()
        super().connection_lost(exc)

    def data_received(self, data: bytes) -> None:
        self._pending += len(data)
        super().data_received(data)
        if self._pending > MAX_HEAD_BYTES:
            self._refuse(HTTPStatus.REQUEST_HEADER_FIELDS_TOO_LARGE, HEAD_TOO_LARGE)
        elif self._unanswered() and (self._pending == 0 or not self._is_in_message):
            self._clear_deadline()  # line breaks after a message do not end its response
        elif self._pending and self._deadline is None:
            self._set_head_deadline()

    def handle_websocket_upgrade(self) -> None:
        """Give the connection to another protocol."""
        self._clear_deadline()
        super().handle_websocket_upgrade()

    def send_400_response(self, msg: str) -> None:
        """Refuse what cannot be parsed."""
        self._refuse(HTTPStatus.BAD_REQUEST, msg)

    def on_response_complete(self) -> None:
        """End a response. If its request has not ended, the next one has to begin soon."""
        super().on_response_complete()
        if self._is_in_message and not self._is_in_head and not self._unanswered():
            self._clear_deadline()
            self._deadline = self.loop.call_later(self.linger_seconds, self.transport.close)

    # Callbacks of the parser

    def on_message_begin(self) -> None:
        """Begin a head. If it is in the same piece as the end of a body, its length is not known: one byte counts."""
        if self.pipeline:
            self._refuse(HTTPStatus.BAD_REQUEST, _PIPELINED)
            raise ValueError(_PIPELINED)  # ends the parser
        super().on_message_begin()
        self._clear_deadline()
        self._is_in_head = self._is_in_message = True
        self._pending = max(1, self._pending)

    def on_header(self, name: bytes, value: bytes) -> None:
        """Add a header. Ignore a trailer: it comes after the app has begun to read the headers."""
        if self._is_in_head:
            super().on_header(name, value)

    def on_headers_complete(self) -> None:
        self._pending = 0
        earlier = self.cycle
        super().on_headers_complete()
        self._earlier = earlier
        self._is_in_head = False
        if self.pipeline:
            self.flow.resume_reading()  # to notice that the client disconnects

    def on_body(self, body: bytes) -> None:
        self._pending = 0
        super().on_body(body)

    def on_message_complete(self) -> None:
        self._pending = 0
        self._is_in_message = False
        super().on_message_complete()

    # Limits

    def _unanswered(self) -> list[RequestResponseCycle]:
        cycles: tuple[RequestResponseCycle | None, ...] = (self._earlier, self.cycle)
        return [cycle for cycle in cycles if cycle is not None and not cycle.response_complete]

    def _disconnect_requests(self) -> None:
        for cycle in self._unanswered():
            cycle.disconnected = True
            cycle.message_event.set()

    def _set_head_deadline(self) -> None:
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
        unanswered = self._unanswered()
        if (self._is_in_head or unanswered) and not any(cycle.response_started for cycle in unanswered):
            head = f"HTTP/1.1 {status} {status.phrase}\r\nconnection: close\r\ncontent-type: text/plain\r\n"
            self.transport.write(f"{head}content-length: {len(message)}\r\n\r\n{message}".encode())
        self._disconnect_requests()
        self.transport.close()
