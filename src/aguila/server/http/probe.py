"""The probe: a short stream by which ``aguila doctor`` sees what lies between a client and the server.

No agent runs, and nothing is stored. Headers, heartbeats and the end of the stream are those of a run.
"""

from __future__ import annotations

import asyncio
import time
from typing import Final

import msgspec
from starlette.types import Receive, Scope, Send

from aguila.protocol import CustomEvent
from aguila.server.config.errors import Rejected, draining_error
from aguila.server.http.access import is_untrusted_proxy
from aguila.server.http.frames import CURRENT_SSE
from aguila.server.http.parameters import read_flag
from aguila.server.http.request import Request, root_url
from aguila.server.http.responses import Response
from aguila.server.http.service import Service
from aguila.server.http.stream import EventStream

PROBE: Final = "aguila.probe"
"""The name of the events."""
MAX_PROBES: Final = 16
"""Probes of a process at the same time."""


class Probe(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """How a request has arrived, and what the server needs of the way to it."""

    time: float
    """Seconds since the Unix epoch, on the clock of the server."""
    url: str
    """The URL at which the server was reached, as far as it knows: files get links that begin with it."""
    untrusted_proxy: str | None
    """The address that sent ``X-Forwarded-For`` and is not trusted; None if there is none."""
    allows_origin: bool
    """Whether ``cors_origins`` has the origin of the request."""
    heartbeat: float
    """Seconds for which a stream may be silent."""
    max_body: int
    """Bytes of the largest body that the server accepts."""


async def probe(service: Service, request: Request) -> Response:
    """``GET /probe``: two events. With ``?silence=true``, the second one comes after ``heartbeat`` seconds."""
    if service.streams.is_closed:
        raise draining_error()
    if service.probes >= MAX_PROBES:
        message = f"{MAX_PROBES} probes are in progress; try again later"
        raise Rejected(429, "too_many_probes", message, headers={"retry-after": "15"})
    silence = service.streams.heartbeat if read_flag(request, "silence", default=False) else 0.0

    async def wait(stream: EventStream) -> None:
        await asyncio.sleep(silence)
        await stream.write(_frame(service, request))

    stream = EventStream(service, CURRENT_SSE, request.caller.scope, "", opening=_frame(service, request), replay=wait)

    async def reply(scope: Scope, receive: Receive, send: Send) -> None:
        service.probes += 1
        try:
            await stream(scope, receive, send)
        finally:
            service.probes -= 1

    return reply


def _frame(service: Service, request: Request) -> bytes:
    headers, limits = request.headers, request.caller.limits
    address = request.scope.get("client")
    client: str = "" if address is None else address[0] or ""
    origin, forwarded = headers.get("origin"), headers.get("x-forwarded-for")
    seen = Probe(
        time=time.time(),
        url=root_url(request),
        untrusted_proxy=client if forwarded is not None and is_untrusted_proxy(client, forwarded) else None,
        allows_origin=origin is not None and service.access.origins.is_listed(origin),
        heartbeat=service.streams.heartbeat,
        max_body=max(limits.body, limits.upload),
    )
    return CURRENT_SSE.frame_event(CustomEvent(name=PROBE, value=msgspec.to_builtins(seen)))
