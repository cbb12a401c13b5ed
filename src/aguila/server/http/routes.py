"""The table of routes.

Starlette's router finds the ``Endpoint`` of a path. It gets the path still encoded, because an id may contain a slash,
and the response is put into its scope: ``App`` sends it when the router has returned, so that an open stream keeps no
frames of the router alive.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Collection, Iterable, Mapping, Sequence
from typing import Any, Final
from urllib.parse import quote, unquote

from starlette.routing import BaseRoute, Mount, Route, Router
from starlette.types import Receive, Scope, Send

from aguila.errors import NotFound
from aguila.offload import offload
from aguila.server.config.errors import Rejected, draining_error
from aguila.server.http import admin_routes, data_routes, file_routes, run_routes, thread_routes
from aguila.server.http.access import Right
from aguila.server.http.budget import Reservation
from aguila.server.http.front_end import FrontEnd
from aguila.server.http.head_limits import HEAD_TOO_LARGE, MAX_HEAD_BYTES, MAX_HEADERS
from aguila.server.http.inspect_routes import check_run, get_run_input
from aguila.server.http.probe import probe
from aguila.server.http.request import Request
from aguila.server.http.responses import BufferedResponse, Response, json_response
from aguila.server.http.service import Service

Handler = Callable[[Service, Request], Awaitable[Response]]


class Endpoint:
    """Answers the requests to a path, with a handler for each method. ``is_public``: without credentials.

    ``is_stream``: GET is answered with a stream, so there is no HEAD. ``needs_owner`` are methods that anonymous
    callers may not use, because they show or delete data of other callers. ``right``: only callers with this right.
    ``is_root``: a front end may answer instead.
    """

    def __init__(
        self,
        handlers: Mapping[str, Handler],
        *,
        is_public: bool = False,
        allows_any_host: bool = False,
        is_stream: bool = False,
        needs_owner: Collection[str] = (),
        right: Right | None = None,
        is_root: bool = False,
    ) -> None:
        self.handlers = {**handlers}
        if "GET" in handlers and not is_stream:
            self.handlers["HEAD"] = handlers["GET"]
        self.needs_owner = {*needs_owner, *(["HEAD"] if "GET" in needs_owner else [])}
        self.right: Right | None = right
        self.is_public = is_public
        self.allows_any_host = allows_any_host
        self._is_root = is_root

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer a request that Starlette has routed: put the response into its scope."""
        service: Service = scope["aguila.service"]
        request = Request(scope["aguila.scope"])
        request.receive, request.method = receive, scope["method"]
        params = {name: unquote(value) for name, value in scope["path_params"].items()}
        request.agent, request.ids = params.pop("agent", None), list(params.values())
        endpoint = self
        if self._is_root:
            endpoint = next(filter(None, (one.root(request) for one in service.front_ends)), self)
        request.caller = await service.access.admit(request, endpoint)
        if request.agent is not None and request.agent not in service.agents and not endpoint.is_public:
            # After the credentials: without them, all names of agents get the same answers.
            raise NotFound(f"there is no agent {request.agent!r}; GET /agents lists the agents")
        request.reservation = Reservation(service.body_budget, request.caller)
        try:
            response = await endpoint.handlers[request.method](service, request)
        finally:
            if request.reservation.size:
                request.reservation.end()
        if isinstance(response, BufferedResponse):
            response = service.unsent.hold(response, len(response.body))
        scope["aguila.response"] = response

    def refuse_method(self, method: str) -> Rejected:
        """Make the error for a method that the path does not have."""
        allowed = ", ".join(self.handlers)
        message = f"{method} is not allowed here; use {allowed}"
        return Rejected(405, "method_not_allowed", message, headers={"allow": allowed})


def route(path: str, handlers: Mapping[str, Handler], **options: Any) -> Route:
    """Return the route of a path, such as ``/threads/{thread}``. The options are those of ``Endpoint``."""
    return Route(path.rstrip("/") + "/", Endpoint(handlers, **options))


async def get_root(service: Service, request: Request) -> Response:
    """``GET /``, if no front end answers it."""
    message = "GET needs ?threadId= to read a thread, or ?offset=-1&runId= to join a run; POST starts a run"
    raise Rejected(405, "method_not_allowed", message, headers={"allow": "POST"})


async def get_capabilities(service: Service, request: Request) -> Response:
    """``GET /capabilities``: what the agent declares."""
    return BufferedResponse(body=service.capabilities[request.agent])


async def list_agents(service: Service, request: Request) -> Response:
    """``GET /agents``: the names of the agents. ``POST /`` runs the first."""
    return json_response({"agents": [{"name": name} for name in service.agents]})


async def get_openapi(service: Service, request: Request) -> Response:
    """``GET /openapi.json``: the routes of this app as an OpenAPI document."""
    root: str = request.scope.get("root_path", "").rstrip("/")
    return BufferedResponse(body=await offload(service.openapi, quote(root) or "/"))


async def check_health(service: Service, request: Request) -> Response:
    """``GET /healthz``: 200 if this process answers. A store outage must not restart it: its runs may survive."""
    return json_response({"status": "ok"})


async def check_readiness(service: Service, request: Request) -> Response:
    """``GET /readyz``: 200 if the server takes new runs and its store can append; 503 otherwise."""
    if service.runs.is_draining:
        raise draining_error()
    await service.check_store()
    return json_response({"status": "ok"})


_RUN: Final = "/threads/{thread}/runs/{run}"

ROUTES: Final = (
    # A POST is a run, whatever its front end. For other methods, a front end may have a page or a document at the root.
    Route("/", Endpoint({"POST": run_routes.start_run}), methods=["POST"]),
    route("/", {"POST": run_routes.start_run, "GET": get_root}, is_stream=True, is_root=True),
    route("/connect", {"POST": run_routes.connect}),
    route("/capabilities", {"GET": get_capabilities}),
    route("/threads", {"GET": thread_routes.list_threads}, needs_owner={"GET"}),
    route(
        "/threads/{thread}",
        {
            "GET": thread_routes.get_thread,
            "PATCH": thread_routes.update_thread,
            "DELETE": thread_routes.delete_thread,
        },
        needs_owner={"PATCH", "DELETE"},
    ),
    route("/threads/{thread}/cancel", {"POST": run_routes.cancel_thread}),
    route("/threads/{thread}/events", {"GET": thread_routes.stream_thread_events}, is_stream=True),
    route(_RUN, {"GET": run_routes.get_run}),
    route(f"{_RUN}/events", {"GET": run_routes.stream_run_events}, is_stream=True),
    route(f"{_RUN}/input", {"GET": get_run_input}),
    route(f"{_RUN}/check", {"GET": check_run}),
    route(f"{_RUN}/cancel", {"POST": run_routes.cancel_run}),
    route("/files", {"POST": file_routes.upload_file}, needs_owner={"POST"}),
    route(
        "/files/{file}",
        {"GET": file_routes.download_file, "DELETE": file_routes.delete_file},
        needs_owner={"GET", "DELETE"},
    ),
    route(
        "/data",
        {"GET": data_routes.export_data, "DELETE": data_routes.delete_data},
        is_stream=True,
        needs_owner={"GET", "DELETE"},
    ),
    route("/healthz", {"GET": check_health}, is_public=True, allows_any_host=True),
    route("/readyz", {"GET": check_readiness}, is_public=True, allows_any_host=True),
    route("/probe", {"GET": probe}, is_stream=True),
    route("/agents", {"GET": list_agents}),
    route("/openapi.json", {"GET": get_openapi}),
)

ADMIN_ROUTES: Final = (
    route("/runs", {"GET": admin_routes.list_open_runs}, right="admin"),
    route("/scopes", {"GET": admin_routes.list_usage}, right="admin"),
    route(
        "/scopes/{scope}/threads/{thread}/runs/{run}/cancel",
        {"POST": admin_routes.cancel_run_of_scope},
        right="admin",
    ),
)
"""The routes below ``/admin``, which see all scopes."""


def build_router(front_ends: Sequence[FrontEnd]) -> Router:
    """Return the router of an app: its routes, those of operators, of each agent, and of each front end."""
    mounts = [Mount(quote(one.path), app=_router(one.routes)) for one in front_ends if one.path]
    own = [found for one in front_ends if not one.path for found in one.routes]
    mounts.append(Mount("/admin", app=_router(ADMIN_ROUTES)))
    return _router([*mounts, *ROUTES, Mount("/agents/{agent}", app=_router(ROUTES)), *own])


def _router(routes: Sequence[BaseRoute]) -> Router:
    return Router(routes, redirect_slashes=False, default=_not_found)


async def _not_found(scope: Scope, receive: Receive, send: Send) -> None:
    raise NotFound("there is no route at this path")


def keep_encoded(scope: Scope, service: Service) -> Scope:
    """Return a scope for the router: with the path below the mount, its segments encoded, and a slash at its end.

    Repeated headers are joined with commas, cookies with semicolons. Raises ``Rejected`` (431) if the head of the
    request is too large.
    """
    given = scope["headers"]
    size = len(scope.get("raw_path") or scope["path"]) + len(scope.get("query_string", b""))
    size += sum(len(name) + len(value) for name, value in given[:MAX_HEADERS])
    if size > MAX_HEAD_BYTES or len(given) > MAX_HEADERS:
        raise Rejected(431, "head_too_large", HEAD_TOO_LARGE)
    headers: dict[bytes, bytes] = {}
    for name, value in given:
        if name in headers:
            value = (b"; " if name == b"cookie" else b", ").join((headers[name], value))
        headers[name] = value
    path = "/" if scope.get("raw_path", scope["path"]) in (b"/", "/") else encode_segments(path_segments(scope))
    return {
        "type": "http",
        "method": scope["method"],
        "path": path,
        "path_params": {},
        "aguila.scope": {**scope, "headers": list(headers.items())},
        "aguila.service": service,
    }


def encode_segments(segments: Iterable[str]) -> str:
    """Return the path of these segments for the router."""
    return f"/{''.join([quote(one, safe='') + '/' for one in segments])}"


def path_segments(scope: Scope) -> list[str]:
    """Split the path below the mount, then decode its segments: an id may contain a slash.

    Trailing slashes are ignored. Raises ``NotFound`` for a path that is not UTF-8, or has NUL: no stored id has.
    """
    raw: bytes | None = scope.get("raw_path")
    path: str = scope["path"]
    root: str = scope.get("root_path", "").rstrip("/")
    is_below = root != "" and (path == root or path.startswith(root + "/"))
    text = path if raw is None else raw.partition(b"?")[0].decode("latin-1")
    pieces = text.split("/")[1:]
    if is_below:
        pieces = pieces[root.count("/") :]
    while pieces and pieces[-1] == "":
        pieces.pop()
    if raw is not None:
        try:
            pieces = [unquote(piece, errors="strict") for piece in pieces]
        except UnicodeDecodeError:
            raise NotFound("the path is not UTF-8") from None
    if any("\0" in piece for piece in pieces):
        raise NotFound("the path has NUL, which no id has")
    return pieces
