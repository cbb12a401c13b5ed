"""Layer: client. The default transport: httpx2, with HTTP/2 and proxies, for both twins.

Below: the httpx2 package (extra ``client``), h2 for HTTP/2 (extra
``http2``). Above: ``asyncio`` and ``sync`` make one unless they are given another.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator, Mapping
from importlib.util import find_spec
from typing import Any
from weakref import WeakSet

from aguila.client.transport import Request, Timeouts, unreadable
from aguila.errors import MissingExtra, TransportFailed

try:
    import httpx2

    from aguila.client.http11 import AsyncBody, Body, busy_connections_of, connection_of, failed, hang_up
except ModuleNotFoundError as error:
    raise MissingExtra("client", error.name or "httpx2") from error


class AsyncHTTPX2Transport:
    """Connections of an ``httpx2.AsyncClient``: yours, or one made from ``options`` (``proxy``, ``http2``, ``verify``).

    One that was given is not closed with the transport.
    """

    def __init__(
        self, client: httpx2.AsyncClient | None = None, *, timeouts: Timeouts | None = None, **options: Any
    ) -> None:
        timeouts = timeouts or Timeouts()
        self._is_ours = client is None
        self._connect = timeouts.connect if client is None and "timeout" not in options else None
        # Waiting for the answer is bounded by who waits; here only what nobody else can tell apart.
        patience = httpx2.Timeout(None, connect=timeouts.connect, pool=timeouts.connect)
        options = {"timeout": patience, "limits": _LIMITS, **options}
        self._client = client or httpx2.AsyncClient(**_available(options))

    async def send(self, request: Request) -> _AsyncResponse:
        """See ``AsyncTransport``."""
        try:
            built = self._client.build_request(
                request.method, request.url, headers=dict(request.headers), content=request.body
            )
            response = await self._client.send(built, stream=True, follow_redirects=False)
        except (httpx2.RequestError, httpx2.InvalidURL) as error:
            raise _not_answered(error, self._connect) from error
        return _AsyncResponse(response)

    async def close(self) -> None:
        """See ``AsyncTransport``."""
        if self._is_ours:
            await self._client.aclose()


class _AsyncResponse:
    def __init__(self, response: httpx2.Response) -> None:
        self.status = response.status_code
        self.headers: Mapping[str, str] = response.headers
        self._response = response
        # Decoders cost as much as the rest per piece, and a stream that is not compressed needs none.
        is_plain = "content-encoding" not in response.headers
        connection = connection_of(response) if is_plain else None
        if connection is not None:
            self.read = AsyncBody(connection, response.headers).read
            return
        problem = unreadable(response.headers, _DECODED)
        if problem is not None:  # httpx2 would hand the bytes on as they are
            self._next = _instead_async(problem, response.status_code).__anext__
            return
        pieces: AsyncIterator[bytes] = response.aiter_raw() if is_plain else response.aiter_bytes()
        self._next = pieces.__anext__

    async def read(self) -> bytes:
        try:
            while True:
                piece = await self._next()
                if piece:
                    return piece
        except StopAsyncIteration:
            return b""
        except (httpx2.RequestError, httpx2.StreamError) as error:
            raise failed(error) from error

    async def close(self) -> None:
        await self._response.aclose()


class HTTPX2Transport:
    """Connections of an ``httpx2.Client``: yours, or one made from ``options`` (``proxy``, ``http2``, ``verify``).

    One that was given is not closed with the transport. Over HTTP/2, and where an answer is compressed, httpx2 has one
    limit for all reads of a body: once it has begun, its first event is waited for as long as a stream may be idle.
    """

    def __init__(
        self, client: httpx2.Client | None = None, *, timeouts: Timeouts | None = None, **options: Any
    ) -> None:
        self._timeouts = timeouts or Timeouts()
        self._is_ours = client is None
        options = {"limits": _LIMITS, **options}
        self._client = client or httpx2.Client(**_available(options))
        self._streaming: WeakSet[Any] = WeakSet()  # connections that nobody shares

    def send(self, request: Request, timeout: float | None) -> _Response:
        """See ``Transport``."""
        connect = self._timeouts.connect
        patience = httpx2.Timeout(None, connect=connect, pool=connect, read=timeout, write=timeout)
        try:
            built = self._client.build_request(
                request.method, request.url, headers=dict(request.headers), content=request.body, timeout=patience
            )
            response = self._client.send(built, stream=True, follow_redirects=False)
        except (httpx2.RequestError, httpx2.InvalidURL) as error:
            raise _not_answered(error, connect) from error
        answer = _Response(response, built, self._timeouts.idle)
        if answer.connection is not None:
            self._streaming.add(answer.connection)
        return answer

    def close(self) -> None:
        """See ``Transport``."""
        # To close a socket does not wake who waits for it.
        for connection in busy_connections_of(self._client) if self._is_ours else list(self._streaming):
            hang_up(connection)
        if self._is_ours:
            self._client.close()


class _Response:
    def __init__(self, response: httpx2.Response, request: httpx2.Request, idle: float | None) -> None:
        self.status = response.status_code
        self.headers: Mapping[str, str] = response.headers
        self._response = response
        self._request = request
        self._idle = idle
        self._is_plain = "content-encoding" not in response.headers
        problem = unreadable(response.headers, _DECODED)
        self._pieces: Iterator[bytes] | None = None if problem is None else _instead(problem, response.status_code)
        self.connection = connection_of(response)
        if self.connection is not None and self._is_plain:
            self.read = Body(self.connection, response.headers).read

    def read(self, timeout: float | None) -> bytes:
        if self._pieces is None:
            # The connection looks here when its body begins to be read, and not again: so every read waits for as
            # long as a stream may be idle, also the one for the first event.
            self._request.extensions["timeout"]["read"] = self._idle
            self._pieces = self._response.iter_raw() if self._is_plain else self._response.iter_bytes()
        try:
            for piece in self._pieces:
                if piece:
                    return piece
        except (httpx2.RequestError, httpx2.StreamError) as error:
            raise failed(error) from error
        return b""

    def close(self) -> None:
        self._response.close()


def _instead(problem: str, status: int) -> Iterator[bytes]:
    """In place of a body that cannot be read: a failure, or, where the status says enough, the reason."""
    if 200 <= status < 300:
        raise TransportFailed(problem, is_lasting=True)
    yield problem.encode()


async def _instead_async(problem: str, status: int) -> AsyncIterator[bytes]:
    for piece in _instead(problem, status):
        yield piece


def _available(options: dict[str, Any]) -> dict[str, Any]:
    """The options. Raises ``MissingExtra`` if HTTP/2 is asked for and is not here."""
    if options.get("http2") and find_spec("h2") is None:
        raise MissingExtra("http2", "h2")
    return options


def _not_answered(error: Exception, seconds: float | None) -> TransportFailed:
    """``seconds`` is the limit for connecting that we set, None if it is not ours."""
    failure = failed(error)
    if seconds is not None and isinstance(error, (httpx2.ConnectTimeout, httpx2.PoolTimeout)):
        failure = TransportFailed(f"no connection within {seconds:g} seconds (Timeouts.connect)")
    failure.is_lasting = isinstance(error, _LASTING)
    failure.was_sent = not isinstance(error, _UNSENT)
    return failure


def _decoded() -> frozenset[str]:
    """What httpx2 decodes, with the packages that are here: it asks servers for nothing else."""
    nowhere = httpx2.MockTransport(lambda _: httpx2.Response(204))  # one that connects would read certificates first
    with httpx2.Client(transport=nowhere, trust_env=False) as client:
        return frozenset(each.strip().lower() for each in client.headers["accept-encoding"].split(","))


_DECODED = _decoded()
_LASTING = (httpx2.InvalidURL, httpx2.UnsupportedProtocol)
_UNSENT = (
    *_LASTING,
    *(httpx2.ConnectError, httpx2.ConnectTimeout, httpx2.PoolTimeout, httpx2.ProxyError),
    *(httpx2.WriteError, httpx2.WriteTimeout),  # nobody begins a run with half of its input
)

_LIMITS = httpx2.Limits(max_connections=None, max_keepalive_connections=100)
"""A stream holds its connection for as long as its run lasts: a cap would be a deadlock, not a limit."""
