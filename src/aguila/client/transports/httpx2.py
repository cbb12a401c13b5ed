"""The default transport: httpx2, for both clients, with HTTP/2 and proxies. Needs the ``client`` extra."""

from __future__ import annotations

import asyncio
import socket
import threading
import time
from collections.abc import AsyncIterator, Callable, Iterator, Mapping
from contextlib import suppress
from http.cookiejar import Cookie, DefaultCookiePolicy
from importlib.util import find_spec
from typing import Any
from weakref import WeakSet

from aguila.client.transports.base import Request, Timeouts, unreadable
from aguila.errors import MissingExtra, TransportFailed

try:
    import httpcore2
    import httpx2
except ModuleNotFoundError as error:
    raise MissingExtra("client", error.name or "httpx2") from None


class AsyncHTTPX2Transport:
    """Send requests over an ``httpx2.AsyncClient``: yours, or one made from ``options``.

    ``options`` are those of ``httpx2.AsyncClient``, such as ``proxy``, ``http2`` and ``verify``. Cookies of responses
    are not stored. A client of yours keeps its cookies, and is not closed with the transport.
    """

    def __init__(
        self, client: httpx2.AsyncClient | None = None, *, timeouts: Timeouts | None = None, **options: Any
    ) -> None:
        timeouts = timeouts or Timeouts()
        self._owns_client = client is None
        self._connect = timeouts.connect if client is None and "timeout" not in options else None
        # The caller bounds the wait for the response; only the transport can distinguish connecting from it.
        timeout = httpx2.Timeout(None, connect=timeouts.connect, pool=timeouts.connect)
        options = {"timeout": timeout, "limits": _LIMITS, **options}
        self._client = client or httpx2.AsyncClient(**_check_http2(options))
        if client is None:
            self._client.cookies.jar.set_policy(_NoNewCookies())

    async def send(self, request: Request) -> _AsyncResponse:
        """Send a request. See ``AsyncTransport``."""
        try:
            built = self._client.build_request(
                request.method, request.url, headers=dict(request.headers), content=request.body
            )
            response = await self._client.send(built, stream=True, follow_redirects=False)
        except (httpx2.RequestError, httpx2.InvalidURL) as error:
            raise _send_failure(error, self._connect) from error
        return _AsyncResponse(response)

    async def close(self) -> None:
        """Close the connections. See ``AsyncTransport``."""
        if self._owns_client:
            await self._client.aclose()


class _AsyncResponse:
    """A response that is read ahead by a task.

    httpx2 gives one HTTP chunk at a time, and most servers send each event as a chunk. Waking the caller for each would
    cost as much as to decode it: httpx2 with one event per chunk, 1.2x. So a task reads whatever has arrived, and the
    caller takes it in one piece.
    """

    def __init__(self, response: httpx2.Response) -> None:
        self.status = response.status_code
        self.headers: Mapping[str, str] = response.headers
        self._response = response
        self._pieces: list[bytes] = []
        self._size = 0
        self._has_pieces = asyncio.Event()
        self._has_room = asyncio.Event()
        self._is_over = False
        self._failure: Exception | None = None
        self._reader: asyncio.Task[None] | None = None

    async def read(self) -> bytes:
        if self._reader is None:
            self._reader = asyncio.create_task(self._read_ahead(), name="aguila response reader")
        while not self._pieces:
            if self._failure is not None:
                raise self._failure
            if self._is_over:
                return b""
            self._has_pieces.clear()
            await self._has_pieces.wait()
        data = self._pieces[0] if len(self._pieces) == 1 else b"".join(self._pieces)
        self._pieces, self._size = [], 0
        self._has_room.set()
        return data

    async def close(self) -> None:
        if self._reader is not None:
            self._reader.cancel()
            await asyncio.wait({self._reader})
        await self._response.aclose()

    async def _read_ahead(self) -> None:
        try:
            async for piece in self._body():
                if piece:
                    self._pieces.append(piece)
                    self._size += len(piece)
                    self._has_pieces.set()
                if self._size > _READ_AHEAD:
                    self._has_room.clear()
                    await self._has_room.wait()
        except (httpx2.RequestError, httpx2.StreamError) as error:
            self._failure = _failure(error)
            self._failure.__cause__ = error
        except Exception as error:  # noqa: BLE001 - such as MemoryError; ``read`` raises it
            self._failure = error
        finally:
            self._is_over = True
            self._has_pieces.set()

    def _body(self) -> AsyncIterator[bytes]:
        problem = unreadable(self.headers, ENCODINGS)
        if problem is not None:
            return _undecodable_async(problem, self.status)
        # Without the decoders, where there is nothing to decode: they cost as much as the rest per piece.
        return self._response.aiter_bytes() if "content-encoding" in self.headers else self._response.aiter_raw()


class HTTPX2Transport:
    """Send requests over an ``httpx2.Client``: yours, or one made from ``options``.

    ``options`` are those of ``httpx2.Client``, such as ``proxy``, ``http2`` and ``verify``. Cookies of responses are
    not stored. A client of yours keeps its cookies, and is not closed with the transport.

    httpx2 has one read timeout for a whole body: that is ``Timeouts.idle``. Over HTTP/1.1, a shorter limit for a single
    read closes the connection when it runs out. Over HTTP/2, where runs share a connection, ``idle`` bounds every read.
    """

    def __init__(
        self, client: httpx2.Client | None = None, *, timeouts: Timeouts | None = None, **options: Any
    ) -> None:
        self._timeouts = timeouts or Timeouts()
        self._owns_client = client is None
        options = {"limits": _LIMITS, **options}
        self._client = client or httpx2.Client(**_check_http2(options))
        if client is None:
            self._client.cookies.jar.set_policy(_NoNewCookies())
        self._streams: WeakSet[httpcore2.NetworkStream] = WeakSet()  # every connection made by our own client
        self._responses: WeakSet[_Response] = WeakSet()

    def send(self, request: Request, timeout: float | None) -> _Response:
        """Send a request. See ``Transport``."""
        connect = self._timeouts.connect
        is_short = timeout is not None and (connect is None or timeout < connect)
        waits = timeout if is_short else connect
        limits = httpx2.Timeout(None, connect=waits, pool=waits, read=timeout, write=timeout)
        try:
            built = self._client.build_request(
                request.method,
                request.url,
                headers=dict(request.headers),
                content=request.body,
                timeout=limits,
                extensions={"trace": self._note_connection},
            )
            sent = self._client.send(built, stream=True, follow_redirects=False)
        except (httpx2.RequestError, httpx2.InvalidURL) as error:
            failure = _send_failure(error, None if is_short else connect)
            failure.is_timeout = failure.is_timeout or (is_short and isinstance(error, httpx2.ConnectTimeout))
            raise failure from error
        response = _Response(sent, built, self._timeouts.idle)
        self._responses.add(response)
        return response

    def close(self) -> None:
        """Close the connections, and end reads in other threads. See ``Transport``."""
        # Closing a socket does not wake a thread that reads from it; shutting it down does.
        if self._owns_client:
            for stream in list(self._streams):
                _shut_down(stream)
            self._client.close()
        else:
            for response in list(self._responses):
                response.shut_down()

    def _note_connection(self, name: str, info: Mapping[str, Any]) -> None:
        """Remember a connection that httpx2 makes, to end it with the transport."""
        stream = info.get("return_value")
        if name.endswith(".complete") and isinstance(stream, httpcore2.NetworkStream):
            self._streams.add(stream)


class _Response:
    def __init__(self, response: httpx2.Response, request: httpx2.Request, idle: float | None) -> None:
        self.status = response.status_code
        self.headers: Mapping[str, str] = response.headers
        self._response = response
        self._request = request
        self._idle = idle
        self._has_expired = False
        self._watchdog = _Watchdog(self._expire)
        # Over HTTP/2 other runs use the same connection.
        is_shared = response.http_version == "HTTP/2"
        self._stream = None if is_shared else response.extensions.get("network_stream")
        problem = unreadable(response.headers, ENCODINGS)
        self._pieces: Iterator[bytes] | None = None if problem is None else _undecodable(problem, response.status_code)

    def read(self, timeout: float | None) -> bytes:
        if self._pieces is None:
            # httpx2 reads the timeout when the body begins, and not again.
            self._request.extensions["timeout"]["read"] = self._idle
            is_plain = "content-encoding" not in self.headers
            self._pieces = self._response.iter_raw() if is_plain else self._response.iter_bytes()
        is_shorter = timeout is not None and (self._idle is None or timeout < self._idle)
        if is_shorter and self._stream is not None:
            self._watchdog.start(timeout or 0)
        try:
            for piece in self._pieces:
                if piece:
                    return piece
        except (httpx2.RequestError, httpx2.StreamError) as error:
            if not self._has_expired:
                raise _failure(error) from error
        finally:
            self._watchdog.stop()
        if self._has_expired:
            raise TransportFailed(f"no data for {timeout or 0:g} seconds", is_timeout=True)
        return b""

    def _expire(self) -> None:
        self._has_expired = True
        self.shut_down()

    def shut_down(self) -> None:
        """End a read in another thread, where the connection is this response's alone."""
        if self._stream is not None:
            _shut_down(self._stream)

    def close(self) -> None:
        self._stream = None  # from now on the connection may serve another request
        self._watchdog.close()
        self._response.close()


class _Watchdog:
    """Bounds many waits in a row, with one thread for all of them. Calls ``expire`` if a wait takes too long."""

    def __init__(self, expire: Callable[[], None]) -> None:
        self._expire = expire
        self._changed = threading.Condition()
        self._thread: threading.Thread | None = None
        self._deadline = self._wakes_at = _NEVER
        self._is_closed = False

    def start(self, seconds: float) -> None:
        """Begin a wait of at most this many seconds."""
        with self._changed:
            self._deadline = time.monotonic() + seconds
            if self._deadline < self._wakes_at:
                self._changed.notify()
        if self._thread is None:
            self._thread = threading.Thread(target=self._watch, name="aguila-timeout", daemon=True)
            self._thread.start()

    def stop(self) -> None:
        """End a wait. The thread notices when the deadline has passed."""
        self._deadline = _NEVER

    def close(self) -> None:
        """End the thread."""
        with self._changed:
            self._is_closed = True
            self._changed.notify()

    def _watch(self) -> None:
        while True:
            with self._changed:
                self._wakes_at = self._deadline
                left = self._deadline - time.monotonic()
                if not self._is_closed and left > 0:
                    self._changed.wait(None if left == _NEVER else left)
                    continue
                if self._is_closed:
                    return
                self._deadline = _NEVER
            self._expire()


_NEVER = float("inf")


def _shut_down(stream: httpcore2.NetworkStream) -> None:
    found = stream.get_extra_info("socket")
    with suppress(OSError, ValueError):  # the stream is closed already
        if found is not None:
            found.shutdown(socket.SHUT_RDWR)


def _undecodable(problem: str, status: int) -> Iterator[bytes]:
    """Replace a body that cannot be decoded: raise, or, for an error status, return the reason as its text."""
    if 200 <= status < 300:
        raise TransportFailed(problem, is_lasting=True)
    yield problem.encode()


async def _undecodable_async(problem: str, status: int) -> AsyncIterator[bytes]:
    for piece in _undecodable(problem, status):
        yield piece


class _NoNewCookies(DefaultCookiePolicy):
    """Stores no cookie of a response: the users of a client must not get each other's."""

    def set_ok(self, cookie: Cookie, request: Any) -> bool:
        """See ``CookiePolicy``."""
        return False


def _check_http2(options: dict[str, Any]) -> dict[str, Any]:
    """Return the options. Raise ``MissingExtra`` if they ask for HTTP/2 and h2 is not installed."""
    if options.get("http2") and find_spec("h2") is None:
        raise MissingExtra("http2", "h2")
    return options


def _send_failure(error: Exception, connect: float | None) -> TransportFailed:
    """Convert an error of sending. ``connect`` is our own limit for connecting, None if there is none."""
    failure = _failure(error)
    if connect is not None and isinstance(error, (httpx2.ConnectTimeout, httpx2.PoolTimeout)):
        failure = TransportFailed(f"no connection within {connect:g} seconds (Timeouts.connect)")
    failure.is_lasting = isinstance(error, _LASTING)
    failure.was_sent = not isinstance(error, _UNSENT)
    return failure


def _failure(error: Exception) -> TransportFailed:
    """Convert an error of httpx2. The type is part of the message: some have no text."""
    text = str(error)
    message = f"{type(error).__name__}: {text}" if text else type(error).__name__
    return TransportFailed(message, is_timeout=isinstance(error, httpx2.ReadTimeout | httpx2.WriteTimeout))


def _supported_encodings() -> frozenset[str]:
    """Return the content encodings that httpx2 decodes with the packages that are installed."""
    nowhere = httpx2.MockTransport(lambda _: httpx2.Response(204))  # a real transport would load certificates
    with httpx2.Client(transport=nowhere, trust_env=False) as client:
        return frozenset(each.strip().lower() for each in client.headers["accept-encoding"].split(","))


ENCODINGS = _supported_encodings()
_LASTING = (httpx2.InvalidURL, httpx2.UnsupportedProtocol)
_UNSENT = (
    *_LASTING,
    *(httpx2.ConnectError, httpx2.ConnectTimeout, httpx2.PoolTimeout, httpx2.ProxyError),
    *(httpx2.WriteError, httpx2.WriteTimeout),  # no server starts a run with half of its input
)

_READ_AHEAD = 1 << 18
"""Bytes of a response that are read before the caller takes them. A slow caller holds the server back beyond that."""

_LIMITS = httpx2.Limits(max_connections=None, max_keepalive_connections=100)
"""A stream holds its connection while its run lasts, so that a limit on connections would be a deadlock."""
