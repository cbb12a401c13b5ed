"""Layer: client. The bodies of httpx2's HTTP/1.1 answers, as many chunks at a time as have arrived.

Below: the connection that httpx2 made, and the h11 parser in it. Above: ``httpx2``. Connecting, TLS, proxies, the head,
reusing and closing stay httpx2's: only the reads in between happen here.

Why: servers send each event as an HTTP chunk of its own, and each chunk costs h11 more than its event costs us, and
httpx2, which hands it up through a stack of generators, as much again. So chunks that arrived together are made one
before h11 sees them. And httpx2 fixes the time limit of all reads of a body when the first one begins; here each read
of the sync twin has its own. There are no public names for this: ``connection_of`` looks whether everything is where we
know it, and where it is not (HTTP/2, another transport, a later httpx2) the body is read through the public ones.
"""

from __future__ import annotations

import socket
from collections.abc import Mapping
from contextlib import suppress
from typing import Any

import h11
import httpcore2
import httpx2

from aguila.errors import TransportFailed

_WAY_DOWN = ("_stream", "_httpcore_stream", "_stream", "_connection")
_READ = 1 << 18  # as much as an event loop reads at once: with less, the rest is copied for every read


def connection_of(response: Any) -> Any:
    """The connection that a streamed answer comes from, None if it cannot be read here."""
    found = response.stream
    for name in _WAY_DOWN:
        found = getattr(found, name, None)
    is_http11 = isinstance(found, httpcore2.AsyncHTTP11Connection | httpcore2.HTTP11Connection)
    is_known = is_http11 and isinstance(getattr(found, "_h11_state", None), h11.Connection)
    return found if is_known and hasattr(found, "_network_stream") else None


def busy_connections_of(client: httpx2.Client) -> list[Any]:
    """The connections of a client that somebody uses; none where they are not where we know them."""
    transports: list[Any] = [client._transport, *client._mounts.values()]
    pools = [getattr(transport, "_pool", None) for transport in transports]
    found = [connection for pool in pools for connection in getattr(pool, "connections", ())]
    return [connection for connection in found if not connection.is_idle() and not connection.is_closed()]


def hang_up(connection: Any) -> None:
    """End whatever waits for a connection in another thread."""
    while not hasattr(connection, "_network_stream"):  # within those that go through a proxy, and choose HTTP/2
        connection = getattr(connection, "_connection", None)
        if connection is None:
            return
    found = connection._network_stream.get_extra_info("socket")
    with suppress(OSError, ValueError, AttributeError):  # it is gone already
        found.shutdown(socket.SHUT_RDWR)


class ChunkMerger:
    """Chunked bytes with fewer, larger chunks: those that are complete in what was fed become one.

    Nothing is held back, nothing is judged: whatever it does not understand, the last chunk included, it leaves as it
    is, with all that follows. ``seen`` is where the body begins; it was fed already.
    """

    def __init__(self, seen: bytes = b"") -> None:
        self._left = 0  # bytes of the chunk that has begun, the line end after it included
        self._head = b""  # of a chunk whose size is not complete
        self._is_passing = False
        self.feed(seen)

    def feed(self, data: bytes) -> bytes:
        """The same bytes, or others with the same meaning."""
        if self._is_passing or not data:
            return data
        begun = at = self._finish_begun(data)
        size_of, pieces, end_of_data = _SIZES.get, list[bytes](), len(data)
        while at < end_of_data and not self._is_passing:
            mark = data.find(b"\r\n", at, at + _LONGEST_HEAD)
            if mark < 0:
                self._head = data[at:]
                self._is_passing = len(self._head) >= _LONGEST_HEAD
                break
            size = size_of(data[at:mark]) or self._size(data[at:mark])
            end = mark + 2 + size
            if size == 0 or data[end : end + 2] not in _MAY_END:
                self._is_passing = True
                break
            if end + 2 > end_of_data:
                self._left = end + 2 - end_of_data
                break
            pieces.append(data[mark + 2 : end])
            at = end + 2
        if len(pieces) < 2:
            return data
        merged = b"".join(pieces)
        return b"%b%x\r\n%b\r\n%b" % (data[:begun], len(merged), merged, data[at:])

    def _finish_begun(self, data: bytes) -> int:
        """Where the first chunk begins that begins in these bytes."""
        if self._head:
            head = self._head + data[:_LONGEST_HEAD]
            mark = head.find(b"\r\n")
            if mark < 0:
                self._is_passing = len(head) >= _LONGEST_HEAD
                self._head = head
                return len(data)
            size = self._size(head[:mark])
            self._left = 0 if size == 0 else mark + 2 + size + 2 - len(self._head)
            self._is_passing = size == 0
            self._head = b""
        at = min(self._left, len(data))
        self._left -= at
        return at

    def _size(self, text: bytes) -> int:
        """The size of a chunk; 0 for the last one, and for what may be anything, such as an extension."""
        if len(text) > 8 or not _HEX.issuperset(text):
            return 0
        size = int(text, 16) if text else 0
        if size < 4096:
            _SIZES[bytes(text)] = size
        return size


_LONGEST_HEAD = 18
_MAY_END = frozenset({b"\r\n", b"\r", b""})  # as far as it has come
_HEX = frozenset(b"0123456789abcdefABCDEF")
_SIZES: dict[bytes, int] = {}
"""Sizes that were seen, by how they are written: few, and looking one up is cheaper than reading it."""


class _Body:
    """The pieces of a body that h11 holds."""

    def __init__(self, connection: Any, headers: Mapping[str, str]) -> None:
        self._parser: h11.Connection = connection._h11_state
        self._network = connection._network_stream
        self._is_over = False
        self._failure: TransportFailed | None = None
        is_chunked = headers.get("transfer-encoding", "").lower() == "chunked"
        # What came with the head is h11's already, at the beginning of the body.
        self._merge = ChunkMerger(self._parser.trailing_data[0]).feed if is_chunked else bytes

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
            self._parser.receive_data(self._merge(received))
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
            self._parser.receive_data(self._merge(received))
        return data


_ERRORS = (httpcore2.NetworkError, httpcore2.TimeoutException, httpcore2.ProtocolError)


_RAN_OUT = (httpcore2.ReadTimeout, httpcore2.WriteTimeout, httpx2.ReadTimeout, httpx2.WriteTimeout)


def failed(error: Exception) -> TransportFailed:
    """A transport's error as ours, with its kind, since some have no words."""
    text = str(error)
    message = f"{type(error).__name__}: {text}" if text else type(error).__name__
    return TransportFailed(message, is_timeout=isinstance(error, _RAN_OUT))
