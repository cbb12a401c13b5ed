"""Layer: client. The bodies of httpx2's HTTP/1.1 answers, as many chunks at a time as have arrived.

Below: the connection that httpx2 made, and the h11 parser in it. Above: ``httpx2``. Connecting, TLS, proxies, the head,
reusing and closing stay httpx2's: only the reads in between happen here.

Why: httpx2 hands every HTTP chunk up through a stack of generators, which costs four times what parsing it does, and
servers send each event as a chunk of its own. And it fixes the time limit of all reads of a body when the first one
begins; here each read of the sync twin has its own. There are no public names for this: ``connection_of`` looks whether
everything is where we know it, and where it is not (HTTP/2, another transport, a later httpx2) the body is read through
the public ones.
"""

from __future__ import annotations

from typing import Any

import h11
import httpcore2

from aguila.errors import TransportFailed

_WAY_DOWN = ("_stream", "_httpcore_stream", "_stream", "_connection")
_READ = 65536


def connection_of(response: Any) -> Any:
    """The connection that a streamed answer comes from, None if it cannot be read here."""
    found = response.stream
    for name in _WAY_DOWN:
        found = getattr(found, name, None)
    is_http11 = isinstance(found, httpcore2.AsyncHTTP11Connection | httpcore2.HTTP11Connection)
    is_known = is_http11 and isinstance(getattr(found, "_h11_state", None), h11.Connection)
    return found if is_known and hasattr(found, "_network_stream") else None


class _Body:
    """The pieces of a body that h11 holds."""

    def __init__(self, connection: Any) -> None:
        self._parser: h11.Connection = connection._h11_state
        self._network = connection._network_stream
        self._is_over = False
        self._failure: TransportFailed | None = None

    def _held(self) -> bytes:
        """All that has arrived. Raises ``TransportFailed`` for what is wrong after it, when all was given."""
        if self._failure is not None:
            raise self._failure
        if self._is_over:  # the parser would wait for another answer
            return b""
        pieces: list[bytes] = []
        next_event = self._parser.next_event
        try:
            while True:
                event = next_event()
                if event.__class__ is not h11.Data:
                    break
                pieces.append(event.data)  # type: ignore[union-attr]
        except h11.RemoteProtocolError as error:
            self._failure = failed(error)
            if not pieces:
                raise self._failure from error
        else:
            self._is_over = event is not h11.NEED_DATA
        return b"".join(pieces)


class AsyncBody(_Body):
    """For ``AsyncHTTPX2Transport``."""

    async def read(self) -> bytes:
        """See ``AsyncResponse``."""
        while not (data := self._held()) and not self._is_over:
            try:
                received = await self._network.read(_READ, timeout=None)
            except _ERRORS as error:
                raise failed(error) from error
            self._parser.receive_data(received)
        return data


class Body(_Body):
    """For ``HTTPX2Transport``."""

    def read(self, timeout: float | None) -> bytes:
        """See ``Response``."""
        while not (data := self._held()) and not self._is_over:
            try:
                received = self._network.read(_READ, timeout=timeout)
            except _ERRORS as error:
                raise failed(error) from error
            self._parser.receive_data(received)
        return data


_ERRORS = (httpcore2.NetworkError, httpcore2.TimeoutException, httpcore2.ProtocolError)


def failed(error: Exception) -> TransportFailed:
    """A transport's error as ours, with its kind, since some have no words."""
    text = str(error)
    return TransportFailed(f"{type(error).__name__}: {text}" if text else type(error).__name__)
