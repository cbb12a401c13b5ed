"""The interface of a transport, and its requests, responses and timeouts.

A transport is any class with these methods. It carries bytes without interpreting them: an error status is a response.
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
    """Return why a body cannot be decoded; None if it has no content encoding, or one of the known ones.

    Several are refused: 64 KiB that are compressed twice may be gigabytes.
    """
    encodings = [each.strip().lower() for each in headers.get("content-encoding", "").split(",")]
    encodings = [each for each in encodings if each not in ("", "identity")]
    unknown = [each for each in encodings if each not in known]
    if unknown:
        return f"the response has the content encoding {unknown[0]!r}, which cannot be decoded here"
    return f"the response has {len(encodings)} content encodings; at most one is decoded" if encodings[1:] else None


class Timeouts(msgspec.Struct, frozen=True, kw_only=True):
    """Time limits in seconds; None is no limit.

    ``connect`` bounds connecting, ``first_event`` the wait for the first event after the request was sent, ``idle`` the
    wait for the next bytes of a stream, comments included, and ``answer`` requests that are not streams. ``linger``
    bounds the wait on a stream that stays open after the run has finished: a late RUN_ERROR may follow.
    """

    connect: float | None = 10.0
    first_event: float | None = 120.0
    idle: float | None = 300.0
    answer: float | None = 60.0
    linger: float | None = 1.0


class AsyncResponse(Protocol):
    """A response whose body has not been read. Header names are in lower case."""

    status: int
    headers: Mapping[str, str]

    async def read(self) -> bytes:
        """Return the next bytes, empty at the end. Raise ``TransportFailed``. May be cancelled."""
        ...

    async def close(self) -> None:
        """Release the connection at once, whatever is left of the body."""
        ...


class AsyncTransport(Protocol):
    """Carries requests for an ``AsyncClient``, which bounds a wait by cancelling it."""

    async def send(self, request: Request) -> AsyncResponse:
        """Send a request and wait for the head of the response. Raise ``TransportFailed``."""
        ...

    async def close(self) -> None:
        """Close every connection."""
        ...


class Response(Protocol):
    """A response whose body has not been read. Header names are in lower case."""

    status: int
    headers: Mapping[str, str]

    def read(self, timeout: float | None) -> bytes:
        """Return the next bytes, empty at the end. Raise ``TransportFailed``, also after ``timeout``."""
        ...

    def close(self) -> None:
        """Release the connection at once, whatever is left of the body."""
        ...


class Transport(Protocol):
    """Carries requests for a ``Client``. Each call has its own timeout."""

    def send(self, request: Request, timeout: float | None) -> Response:
        """Send a request and wait for the head of the response. Raise ``TransportFailed``."""
        ...

    def close(self) -> None:
        """Close every connection."""
        ...
