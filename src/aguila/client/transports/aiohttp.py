"""A transport over aiohttp, for applications that use it. Needs the ``aiohttp`` extra."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from typing import Any, cast

from aguila.client.transports.base import Request, Timeouts, unreadable
from aguila.errors import MissingExtra, TransportFailed

try:
    import aiohttp
except ModuleNotFoundError as error:
    raise MissingExtra("aiohttp", error.name or "aiohttp") from None


class AiohttpTransport:
    """Send requests over an ``aiohttp.ClientSession``: yours, or one made from ``options`` at the first request.

    Cookies of responses are not stored. A session of yours keeps its cookies, and is not closed with the transport.
    """

    def __init__(
        self, session: aiohttp.ClientSession | None = None, *, timeouts: Timeouts | None = None, **options: Any
    ) -> None:
        self._session = session
        self._owns_session = session is None
        self._timeouts = timeouts or Timeouts()
        self._cookies = options.pop("cookies", None)
        self._options = options

    async def send(self, request: Request) -> _Response:
        """Send a request. See ``AsyncTransport``."""
        if self._session is None:
            # Made in the event loop that uses it. No limit on connections: a stream holds one while its run lasts.
            # Users must not get each other's cookies.
            options: dict[str, Any] = {"cookie_jar": aiohttp.DummyCookieJar(), **self._options}
            self._session = aiohttp.ClientSession(
                connector=aiohttp.TCPConnector(limit=0),
                timeout=aiohttp.ClientTimeout(total=None, sock_connect=self._timeouts.connect),
                auto_decompress=True,
                **options,
            )
        try:
            response = await self._session.request(
                request.method,
                request.url,
                headers=dict(request.headers),
                data=request.body,
                cookies=self._cookies,
                allow_redirects=False,
                skip_auto_headers=() if request.body is not None else ("Content-Type",),
            )
        except (aiohttp.ClientError, OSError, ValueError) as error:
            failure = _failed(error)
            if self._owns_session and isinstance(error, aiohttp.ConnectionTimeoutError):
                failure = TransportFailed(f"no connection within {self._timeouts.connect} seconds (Timeouts.connect)")
            # ValueError is an invalid URL. A missing package for a content encoding shows only in the message.
            is_compressed = isinstance(error, aiohttp.ClientResponseError) and "content-encoding" in error.message
            failure.is_lasting = isinstance(error, ValueError) or is_compressed
            failure.was_sent = not isinstance(
                error, (ValueError, aiohttp.ClientConnectorError, aiohttp.ConnectionTimeoutError)
            )
            raise failure from error
        return _Response(response)

    async def close(self) -> None:
        """Close the connections. See ``AsyncTransport``."""
        if self._owns_session and self._session is not None:
            session, self._session = self._session, None
            await session.close()
            # Closing a TLS connection takes one more turn of the loop.
            await asyncio.sleep(0)


class _Response:
    def __init__(self, response: aiohttp.ClientResponse) -> None:
        self.status = response.status
        self.headers: Mapping[str, str] = {name.lower(): value for name, value in response.headers.items()}
        self._response = response
        self._failure: TransportFailed | None = None
        problem = unreadable(self.headers, _DECODED)
        if problem is not None:  # aiohttp would return the encoded bytes
            self._failure = TransportFailed(problem, is_lasting=True)

    async def read(self) -> bytes:
        if self._failure is not None:
            raise self._failure
        content = self._response.content
        try:
            return await content.readany()
        except (aiohttp.ClientError, OSError) as error:
            failure = _failed(error)
            failure.__cause__ = error
            rest = _read_rest(content, error)
            if not rest:
                raise failure from error
            self._failure = failure
            return rest

    async def close(self) -> None:
        if self._response.content.at_eof():
            self._response.release()
        else:
            self._response.close()


_DECODED = ("gzip", "x-gzip", "deflate", "br", "zstd")
"""Content encodings that aiohttp decodes. If it needs a package that is missing, it reports that."""


def _read_rest(content: aiohttp.StreamReader, error: Exception) -> bytes:
    """Return the bytes that arrived before the connection was lost. The stream hides them behind its exception."""
    content.set_exception(cast("Any", None))
    try:
        return content.read_nowait()
    finally:
        content.set_exception(error)


def _failed(error: Exception) -> TransportFailed:
    text = str(error)
    return TransportFailed(f"{type(error).__name__}: {text}" if text else type(error).__name__)
