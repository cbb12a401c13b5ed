"""``GET /metrics`` for Prometheus, and who may read it. The counts are those of all scopes, so no user may."""

from __future__ import annotations

import os
from collections.abc import Sequence
from typing import Final

import msgspec
from starlette.routing import BaseRoute

from aguila.offload import offload
from aguila.server.config.errors import Rejected
from aguila.server.http.access import Authenticate, Hosts, identify
from aguila.server.http.front_end import FrontEnd
from aguila.server.http.openapi.operation import Answer, Operation, Operations
from aguila.server.http.request import Request
from aguila.server.http.responses import BufferedResponse, Response
from aguila.server.http.routes import route
from aguila.server.http.service import Service
from aguila.telemetry.prometheus import MEDIA_TYPE, write_text

_FORWARDED: Final = ("forwarded", "via", "x-forwarded-for", "x-forwarded-host", "x-forwarded-proto", "x-real-ip")
"""The headers that a proxy adds. A request with one may come from anywhere."""

_LOCAL: Final = Hosts(None, is_anonymous=True)


class Metrics(msgspec.Struct, frozen=True, kw_only=True):
    """How an app serves ``GET /metrics``: ``App(agent, metrics=Metrics(authenticate=...))``.

    ``authenticate``: who may read the metrics, from any address: takes a ``Request`` and returns a ``Principal`` or a
    name, or None to refuse. The one of the app is not asked. Without it only this machine may.
    ``folder``: where the processes of this server share their counts, so that each answers with the sums.
    ``aguila serve --workers`` needs none.
    """

    authenticate: Authenticate | None = None
    folder: str | os.PathLike[str] | None = None


class MetricsRoute(FrontEnd):
    """The route."""

    def __init__(self, options: Metrics) -> None:
        self._authenticate = options.authenticate

    @property
    def routes(self) -> Sequence[BaseRoute]:
        # A scraper reaches a process by its address. Without credentials the name protects against DNS rebinding.
        any_host = self._authenticate is not None
        return (route("/metrics", {"GET": self._send}, is_public=True, allows_any_host=any_host),)

    @property
    def operations(self) -> Operations:
        text = Answer(description="The metrics of this server", content={MEDIA_TYPE.decode().partition(";")[0]: None})
        return {self._send: Operation(summary="Get the metrics for Prometheus", answers={200: text})}

    async def _send(self, service: Service, request: Request) -> Response:
        if self._authenticate is not None:
            await identify(self._authenticate, request)
        elif not _is_local(request):
            message = "only this machine may read the metrics; to allow others: App(metrics=Metrics(authenticate=...))"
            raise Rejected(403, "metrics_not_allowed", message)
        assert service.counts is not None  # noqa: S101 - the app counts if it has this route
        body = await offload(write_text, service.counts)
        return BufferedResponse(body=body, media_type=MEDIA_TYPE, headers=[(b"cache-control", b"no-store")])


def _is_local(request: Request) -> bool:
    """Return whether a request comes from this machine, and not through a proxy on it."""
    caller, headers = request.caller, request.headers
    return (
        caller.client != ""
        and caller.address is None
        and _LOCAL.allows(headers.get("host", ""))
        and not any(name in headers for name in _FORWARDED)
    )
