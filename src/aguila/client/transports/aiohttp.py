"""Layer: client. A transport over aiohttp, for applications that have a session of it.

Below: the aiohttp package (extra ``aiohttp``). Above: ``AsyncClient(url, transport=AiohttpTransport())``. There is no
sync twin of it; ``threaded.ThreadedTransport`` makes one of any async transport.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from typing import Any

from aguila.client.transports.base import Request, Timeouts, unreadable
from aguila.errors import MissingExtra, TransportFailed

try:
    import aiohttp
except ModuleNotFoundError as error:
    raise MissingExtra("aiohttp", error.name or "aiohttp") from error


class AiohttpTransport:
    """Connections of an ``aiohttp.ClientSession``: yours, or one made when it is first needed, from ``options``.

    One that was given is not closed with the transport.
    """

    def __init__(
        self, session: aiohttp.ClientSession | None = None, *, timeouts: Timeouts | None = None, **options: Any
    ) -> None:
        self._session = session
        self._is_ours = session is None
        self._timeouts = timeouts or Timeouts()
        self._options = options

    async def send(self, request: Request) -> _Response:
        """See ``AsyncTransport``."""
        if self._session is None:
            # Within the loop that uses it; and without a cap, since a stream holds its connection while its run lasts.
            self._session = aiohttp.ClientSession(
                connector=aiohttp.TCPConnector(limit=0),
                timeout=aiohttp.ClientTimeout(total=None, sock_connect=self._timeouts.connect),
                auto_decompress=True,
                **self._options,
            )
        try:
            response = await self._session.request(
                request.method,
                request.url,
                headers=dict(request.headers),
                data=request.body,
                allow_redirects=False,
                skip_auto_headers=() if request.body is not None else ("Content-Type",),
            )
        except (aiohttp.ClientError, OSError, ValueError) as error:
            failure = _failed(error)
            if self._is_ours and isinstance(error, aiohttp.ConnectionTimeoutError):
                failure = TransportFailed(f"no connection within {self._timeouts.connect} seconds (Timeouts.connect)")
            # An address that is none; a compression that it lacks the package for, which only its words tell.
            is_compressed = isinstance(error, aiohttp.ClientResponseError) and "content-encoding" in error.message
            failure.is_lasting = isinstance(error, ValueError) or is_compressed
            failure.was_sent = not isinstance(
                error, (ValueError, aiohttp.ClientConnectorError, aiohttp.ConnectionTimeoutError)
            )
            raise failure from error
        return _Response(response)

    async def close(self) -> None:
        """See ``AsyncTransport``."""
        if self._is_ours and self._session is not None:
            session, self._session = self._session, None
            await session.close()
            # Closing a TLS connection takes a turn of the loop that nobody waits for.
            await asyncio.sleep(0)


class _Response:
    def __init__(self, response: aiohttp.ClientResponse) -> None:
        self.status = response.status
        self.headers: Mapping[str, str] = {name.lower(): value for name, value in response.headers.items()}
        self._response = response
        self._failure: TransportFailed | None = None
        problem = unreadable(self.headers, _DECODED)
        if problem is not None:  # aiohttp would hand the bytes on as they are
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
            # A lost connection hides what had arrived before it; that is not lost, and comes first.
            rest = content._read_nowait(-1)  # pyright: ignore[reportPrivateUsage] - no public name reads past the exception
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
"""What aiohttp decodes, or says which package it lacks for it."""


def _failed(error: Exception) -> TransportFailed:
    text = str(error)
    return TransportFailed(f"{type(error).__name__}: {text}" if text else type(error).__name__)
