"""Layer: client. The seam between the client and whatever carries bytes: requests, answers, and how they fail.

Below: nothing. Above: ``asyncio`` and ``sync`` ask a transport for everything. ``httpx2`` (the default), ``aiohttp``,
``asgi`` (in process) and ``recorded`` (a file) are transports; another is any class with these methods. A transport
moves bytes and judges nothing: no status is an error to it.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Protocol

import msgspec


class Request(msgspec.Struct, frozen=True, kw_only=True):
    """One HTTP request. ``body`` is complete; ``url`` is absolute."""

    method: str
    url: str
    headers: Mapping[str, str]
    body: bytes | None = None


def unreadable(headers: Mapping[str, str], known: Collection[str]) -> str | None:
    """Why a body cannot be read, if it is compressed in a way that is not among those; nobody had asked for that."""
    told = (each.strip().lower() for each in headers.get("content-encoding", "").split(","))
    unknown = [each for each in told if each and each != "identity" and each not in known]
    return f"the answer has the content encoding {unknown[0]!r}, which cannot be decoded here" if unknown else None


class Timeouts(msgspec.Struct, frozen=True, kw_only=True):
    """How long to wait, in seconds; None is for ever.

    ``connect`` is for the connection, ``first_event`` for the first event after the request was sent, ``idle`` for the
    next bytes of a stream, be they a keep-alive comment. ``answer`` is for requests that are not streams. ``linger`` is
    for a server that leaves its stream open when the run has finished: it may still say that it failed after all.
    """

    connect: float | None = 10.0
    first_event: float | None = 120.0
    idle: float | None = 300.0
    answer: float | None = 60.0
    linger: float | None = 1.0


class AsyncResponse(Protocol):
    """An answer whose body has not been read. Header names are in lower case."""

    status: int
    headers: Mapping[str, str]

    async def read(self) -> bytes:
        """The next bytes as they come, nothing at the end. Raises ``TransportFailed``. May be cancelled."""
        ...

    async def close(self) -> None:
        """Let go of the connection, at once and whatever is left of the body."""
        ...


class AsyncTransport(Protocol):
    """Carries requests for an ``AsyncClient``. Waiting is bounded by cancelling."""

    async def send(self, request: Request) -> AsyncResponse:
        """Send a request and wait for the head of its answer. Raises ``TransportFailed``."""
        ...

    async def close(self) -> None:
        """Close every connection."""
        ...


class Response(Protocol):
    """An answer whose body has not been read. Header names are in lower case."""

    status: int
    headers: Mapping[str, str]

    def read(self, timeout: float | None) -> bytes:
        """The next bytes as they come, nothing at the end. Raises ``TransportFailed``, also after ``timeout``."""
        ...

    def close(self) -> None:
        """Let go of the connection, at once and whatever is left of the body."""
        ...


class Transport(Protocol):
    """Carries requests for a ``Client``. Waiting is bounded by the timeouts it is given."""

    def send(self, request: Request, timeout: float | None) -> Response:
        """Send a request and wait for the head of its answer. Raises ``TransportFailed``."""
        ...

    def close(self) -> None:
        """Close every connection."""
        ...
