"""The table of routes, and how a path is matched against it.

The handlers are in ``runs``, ``threads`` and ``files``. Host, origin and credentials are checked before a handler is
called.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Container, Mapping, Sequence
from typing import Any, Final
from urllib.parse import unquote

import msgspec

from aguila.errors import NotFound
from aguila.server.errors import Rejected, draining_error
from aguila.server.http.handlers import files as file_routes
from aguila.server.http.handlers import runs as run_routes
from aguila.server.http.handlers import threads as thread_routes
from aguila.server.http.handlers.inspection import check_run, get_run_input
from aguila.server.http.responses import BufferedResponse, Response, json_response
from aguila.server.service import Exchange, Service
from aguila.server.tanstack import routes as tanstack_routes


async def get_capabilities(service: Service, exchange: Exchange) -> Response:
    """``GET /capabilities``: what the agent declares."""
    return BufferedResponse(body=service.capabilities[exchange.agent], headers=exchange.headers)


async def list_agents(service: Service, exchange: Exchange) -> Response:
    """``GET /agents``: the names of the agents. ``POST /`` runs the first."""
    return json_response({"agents": [{"name": name} for name in service.agents]}, exchange.headers)


async def check_health(service: Service, exchange: Exchange) -> Response:
    """``GET /healthz``: 200 if this process answers. A store outage must not restart it: its runs may survive."""
    return json_response({"status": "ok"}, exchange.headers)


async def check_readiness(service: Service, exchange: Exchange) -> Response:
    """``GET /readyz``: 200 if the server takes new runs and its store can append; 503 otherwise."""
    if service.runs.is_draining:
        raise draining_error()
    await service.check_store()
    return json_response({"status": "ok"}, exchange.headers)


Handler = Callable[[Service, Exchange], Awaitable[Response]]


class Route(msgspec.Struct, frozen=True):
    """A path and its handlers by method. None in a path matches an id."""

    path: tuple[str | None, ...]
    handlers: Mapping[str, Handler]
    is_public: bool = False
    """Whether requests need no credentials and may use any host name."""
    is_stream: bool = False
    """Whether GET is answered with a stream. Such a route has no HEAD."""
    needs_owner: frozenset[str] = frozenset()
    """Methods that anonymous callers may not use, because they show or delete data of other callers."""

    def check_owner(self, method: str, *, is_owner: bool) -> None:
        """Raise ``Rejected`` (403) if an anonymous caller may not use this method."""
        if method in self.needs_owner and not is_owner:
            message = f"anonymous callers may not {method} here; set App(authenticate=...) or App(allow_anonymous=True)"
            raise Rejected(403, "anonymous_not_allowed", message)

    def method_not_allowed(self, method: str) -> Rejected:
        """Make the error for a method that the route does not have."""
        allowed = ", ".join(self.methods)
        message = f"{method} is not allowed here; use {allowed}"
        return Rejected(405, "method_not_allowed", message, headers={"allow": allowed})

    @property
    def methods(self) -> list[str]:
        """The methods that the route answers."""
        return [*self.handlers, *(["HEAD"] if "GET" in self.handlers and not self.is_stream else [])]


ROUTES: Final = (
    Route((), {"POST": run_routes.start_run, "GET": tanstack_routes.root}, is_stream=True),
    Route(("connect",), {"POST": run_routes.connect}),
    Route(("capabilities",), {"GET": get_capabilities}),
    Route(("threads",), {"GET": thread_routes.list_threads}, needs_owner=frozenset({"GET"})),
    Route(
        ("threads", None),
        {
            "GET": thread_routes.get_thread,
            "PATCH": thread_routes.update_thread,
            "DELETE": thread_routes.delete_thread,
        },
        needs_owner=frozenset({"PATCH", "DELETE"}),
    ),
    Route(("threads", None, "cancel"), {"POST": run_routes.cancel_thread}),
    Route(("threads", None, "events"), {"GET": thread_routes.stream_thread_events}, is_stream=True),
    Route(("threads", None, "runs", None), {"GET": run_routes.get_run}),
    Route(("threads", None, "runs", None, "events"), {"GET": run_routes.stream_run_events}, is_stream=True),
    Route(("threads", None, "runs", None, "input"), {"GET": get_run_input}),
    Route(("threads", None, "runs", None, "check"), {"GET": check_run}),
    Route(("threads", None, "runs", None, "cancel"), {"POST": run_routes.cancel_run}),
    Route(("files",), {"POST": file_routes.upload_file}, needs_owner=frozenset({"POST"})),
    Route(
        ("files", None),
        {"GET": file_routes.download_file, "DELETE": file_routes.delete_file},
        needs_owner=frozenset({"GET", "DELETE"}),
    ),
    Route(("healthz",), {"GET": check_health}, is_public=True),
    Route(("readyz",), {"GET": check_readiness}, is_public=True),
    Route(("agents",), {"GET": list_agents}),
)


def split_agent(segments: Sequence[str], agents: Container[str]) -> tuple[str | None, Sequence[str]]:
    """Split the path of an agent, ``/agents/{name}``, from the path below it. Raises ``NotFound``."""
    if len(segments) < 2 or segments[0] != "agents":
        return None, segments
    if segments[1] not in agents:
        raise NotFound(f"there is no agent {segments[1]!r}; GET /agents lists the agents")
    return segments[1], segments[2:]


def find_route(segments: Sequence[str], table: Sequence[Route] = ROUTES) -> tuple[Route, list[str]]:
    """Find the route of a path, and the ids in the path. Raises ``NotFound``."""
    if not segments:
        return table[0], []
    for route in table:
        if len(route.path) == len(segments) and all(
            (wanted is None and given != "") or wanted == given
            for wanted, given in zip(route.path, segments, strict=True)
        ):
            return route, [given for wanted, given in zip(route.path, segments, strict=True) if wanted is None]
    raise NotFound("there is no route at this path")


def path_segments(asgi: Mapping[str, Any]) -> list[str]:
    """Split the path below the mount, then decode its segments: an id may contain a slash.

    Trailing slashes are ignored. Raises ``NotFound`` for a path that is not UTF-8.
    """
    raw: bytes | None = asgi.get("raw_path")
    if raw == b"/":
        return []
    path: str = asgi["path"]
    root: str = asgi.get("root_path", "").rstrip("/")
    is_below = root != "" and (path == root or path.startswith(root + "/"))
    text = path if raw is None else raw.partition(b"?")[0].decode("latin-1")
    pieces = text.split("/")[1:]
    if is_below:
        pieces = pieces[root.count("/") :]
    while pieces and pieces[-1] == "":
        pieces.pop()
    if raw is None:
        return pieces
    try:
        return [unquote(piece, errors="strict") for piece in pieces]
    except UnicodeDecodeError:
        raise NotFound("the path is not UTF-8") from None
