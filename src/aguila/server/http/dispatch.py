"""Dispatch a request: find its route, check host, origin and credentials, call the handler.

Errors that are raised before the response begins become HTTP responses here.
"""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable, Mapping, Sequence
from contextlib import suppress
from typing import Any

from aguila.codec.logs import log_event
from aguila.errors import CursorExpired, NotFound, StoreUnavailable
from aguila.server.access.authentication import ANONYMOUS, identify
from aguila.server.access.control import AccessControl
from aguila.server.copilotkit.mount import CopilotKit, to_error_response
from aguila.server.copilotkit.routes import ROUTES as COPILOTKIT_ROUTES
from aguila.server.errors import Disconnected, Rejected
from aguila.server.http.head_limits import check_head
from aguila.server.http.responses import BufferedResponse, Receive, Response, header_list, json_response
from aguila.server.http.routes import find_route, path_segments, split_agent
from aguila.server.page.files import PageFiles
from aguila.server.request import Request
from aguila.server.runs.starting.run_context import new_id
from aguila.server.service import Exchange, Service

_log = logging.getLogger("aguila.server")


class Dispatcher:
    """Turns the requests of an app into responses.

    ``start`` returns the service of the app, and starts the app if necessary.
    """

    def __init__(
        self,
        access: AccessControl,
        copilotkit: CopilotKit | None,
        start: Callable[[], Awaitable[Service]],
    ) -> None:
        self._access = access
        self._copilotkit = copilotkit
        self.page: PageFiles | None = None
        """The files of the page; None if it is not served."""
        self._start = start

    async def respond(self, scope: Mapping[str, Any], receive: Receive) -> Response | None:
        """Return the response to a request; None if the client has disconnected."""
        try:
            check_head(scope)
        except Rejected as rejected:
            return BufferedResponse(status=rejected.status, body=rejected.body())
        headers: list[tuple[bytes, bytes]] = []  # CORS headers, which error responses carry too
        service: Service | None = None
        try:
            service = await self._start()
            return await self._call_handler(service, scope, receive, headers)
        except Disconnected:
            return None
        except Rejected as error:
            rejected = error
        except NotFound as error:
            rejected = Rejected(404, "not_found", str(error))
        except CursorExpired as error:
            rejected = Rejected(410, "cursor_expired", str(error))
        except StoreUnavailable as error:
            if service is not None:
                service.runs.store_health.record_failure(error)
            elif path_segments(scope) == ["healthz"]:  # it says only that the process answers
                return json_response({"status": "ok"})
            else:
                _log.warning("the app cannot start: %s", error)
            message = "the store is unavailable; try again in a second"
            rejected = Rejected(503, "store_unavailable", message, headers={"retry-after": "1"})
        except Exception as error:  # noqa: BLE001 - its text is for the log, not for the client
            reference = new_id()
            message = f"{scope['method']} {scope['path']} failed"
            log_event(_log, logging.ERROR, message, error=error, reference=reference)
            rejected = Rejected(500, "internal", f"The request failed. Reference: {reference}")
        rejected.__traceback__ = None  # its frames hold what was refused, and this frame would hold them
        return self._respond_rejected(scope, rejected, headers)

    def _respond_rejected(
        self, scope: Mapping[str, Any], rejected: Rejected, headers: Sequence[tuple[bytes, bytes]]
    ) -> BufferedResponse:
        status, body = rejected.status, rejected.body()
        if self._copilotkit is not None:
            with suppress(NotFound):  # the path is not UTF-8
                if self._copilotkit.relative_path(path_segments(scope)) is not None:
                    status, body = to_error_response(rejected)
        return BufferedResponse(status=status, body=body, headers=[*header_list(rejected.headers), *headers])

    async def _call_handler(
        self, service: Service, scope: Mapping[str, Any], receive: Receive, headers: list[tuple[bytes, bytes]]
    ) -> Response:
        access = self._access
        segments = path_segments(scope)
        request = Request(scope, "/" + "/".join(segments))
        if b"x-forwarded-for" in request.raw_headers:
            service.note_forwarded(request)
        is_from_page = b"origin" in request.raw_headers
        if is_from_page:
            headers += access.origins.headers(request)
        copilotkit = None if self._copilotkit is None else self._copilotkit.relative_path(segments)
        if copilotkit is not None:
            agent = None
            route, params = find_route(copilotkit, COPILOTKIT_ROUTES)
        else:
            agent, below = split_agent(segments, service.agents)
            if self.page is not None:
                response = self.page.respond(request, below, agent)
                if response is not None:
                    access.hosts.check(request)
                    return _count_unsent(service, response)
            route, params = find_route(below)
        if not route.is_public:
            access.hosts.check(request)
        method = "GET" if request.method == "HEAD" and not route.is_stream else request.method
        handler = route.handlers.get(method)
        if handler is None:
            preflight = access.origins.preflight(request, route.methods)
            if preflight is not None:
                return BufferedResponse(status=204, headers=preflight)
            raise route.method_not_allowed(request.method)
        if is_from_page:
            access.origins.check(request)
        if route.is_public or access.authenticate is None:
            principal, tenant = None, ANONYMOUS
        else:
            principal, tenant = await identify(access.authenticate, request)
        route.check_owner(method, is_owner=access.grants_ownership)
        exchange = Exchange(
            request=request,
            receive=receive,
            scope=tenant,
            principal=principal,
            headers=headers,
            params=params,
            agent=agent,
            is_owner=access.grants_ownership,
        )
        return _count_unsent(service, await handler(service, exchange))


def _count_unsent(service: Service, response: Response) -> Response:
    """Count a buffered body until it is sent. Responses that are made in pieces count themselves."""
    return service.unsent.hold(response, len(response.body)) if isinstance(response, BufferedResponse) else response
