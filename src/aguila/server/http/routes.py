"""Layer: server. The HTTP surface: the table of routes, and how a path is found in it.

Below: the handlers, in ``run_routes``, ``thread_routes`` and ``file_routes``. Above: ``app``, which has checked origin
and credentials before a handler is called.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Container, Mapping, Sequence
from typing import Any, Final
from urllib.parse import unquote

import msgspec

from aguila.errors import NotFound
from aguila.server.errors import Rejected, draining
from aguila.server.http import files as file_routes
from aguila.server.http import runs as run_routes
from aguila.server.http import threads as thread_routes
from aguila.server.http.responses import Document, Reply, json_document
from aguila.server.service import Exchange, Service
from aguila.server.tanstack import routes as tanstack_routes


async def capabilities(service: Service, exchange: Exchange) -> Reply:
    """``GET /capabilities``."""
    return Document(body=service.capabilities[exchange.agent], headers=exchange.headers)


async def agents(service: Service, exchange: Exchange) -> Reply:
    """``GET /agents``: the names of the agents, the one of ``POST /`` first."""
    return json_document({"agents": [{"name": name} for name in service.agents]}, exchange.headers)


async def healthz(service: Service, exchange: Exchange) -> Reply:
    """``GET /healthz``: 200 if the store can write, 503 if it cannot or the server is shutting down."""
    await service.runs.maintenance.check_store()
    if service.runs.is_draining:
        raise draining()
    return json_document({"status": "ok"}, exchange.headers)


Handler = Callable[[Service, Exchange], Awaitable[Reply]]


class Route(msgspec.Struct, frozen=True):
    """A path, where None stands for an id, and its handlers by method."""

    path: tuple[str | None, ...]
    handlers: Mapping[str, Handler]
    is_open: bool = False
    """Answers without credentials."""
    is_stream: bool = False
    """Answers GET with a stream, of which there is no head without a body."""
    needs_owner: frozenset[str] = frozenset()
    """Methods that are refused while everybody is anonymous: they show or remove what others left."""

    def check_owner(self, method: str, *, is_owner: bool) -> None:
        """Raise ``Rejected`` (403) if a method needs rights that an anonymous caller does not have."""
        if method in self.needs_owner and not is_owner:
            message = "this needs an authenticate hook, or allow_anonymous=True"
            raise Rejected(403, "anonymous_not_allowed", message)

    @property
    def methods(self) -> list[str]:
        """What may be asked; HEAD is GET without the body."""
        return [*self.handlers, *(["HEAD"] if "GET" in self.handlers and not self.is_stream else [])]


ROUTES: Final = (
    Route((), {"POST": run_routes.run, "GET": tanstack_routes.root}, is_stream=True),
    Route(("connect",), {"POST": run_routes.connect}),
    Route(("capabilities",), {"GET": capabilities}),
    Route(("threads",), {"GET": thread_routes.threads}, needs_owner=frozenset({"GET"})),
    Route(
        ("threads", None),
        {
            "GET": thread_routes.thread,
            "PATCH": thread_routes.update_thread,
            "DELETE": thread_routes.delete_thread,
        },
        needs_owner=frozenset({"PATCH", "DELETE"}),
    ),
    Route(("threads", None, "cancel"), {"POST": run_routes.cancel_thread}),
    Route(("threads", None, "events"), {"GET": thread_routes.thread_events}, is_stream=True),
    Route(("threads", None, "runs", None), {"GET": run_routes.run_status}),
    Route(("threads", None, "runs", None, "events"), {"GET": run_routes.run_events}, is_stream=True),
    Route(("threads", None, "runs", None, "cancel"), {"POST": run_routes.cancel}),
    Route(("files",), {"POST": file_routes.upload}, needs_owner=frozenset({"POST"})),
    Route(
        ("files", None),
        {"GET": file_routes.download, "DELETE": file_routes.delete},
        needs_owner=frozenset({"GET", "DELETE"}),
    ),
    Route(("healthz",), {"GET": healthz}, is_open=True),
    Route(("agents",), {"GET": agents}),
)


def split_agent(segments: Sequence[str], agents: Container[str]) -> tuple[str | None, Sequence[str]]:
    """Split the path of an agent, ``/agents/{name}``, from the path below it. Raises ``NotFound``."""
    if len(segments) < 2 or segments[0] != "agents":
        return None, segments
    if segments[1] not in agents:
        raise NotFound(f"there is no agent {segments[1]!r}; GET /agents lists them")
    return segments[1], segments[2:]


def find_route(segments: Sequence[str], table: Sequence[Route] = ROUTES) -> tuple[Route, list[str]]:
    """The route of a path and the ids in it. Raises ``NotFound``."""
    if not segments:
        return table[0], []
    for route in table:
        if len(route.path) == len(segments) and all(
            (wanted is None and given != "") or wanted == given
            for wanted, given in zip(route.path, segments, strict=True)
        ):
            return route, [given for wanted, given in zip(route.path, segments, strict=True) if wanted is None]
    raise NotFound("there is nothing at this path")


def path_segments(asgi: Mapping[str, Any]) -> list[str]:
    """The path below the mount, split and then decoded: an id may hold a slash. Trailing slashes do not count."""
    path: str = asgi["path"]
    root: str = asgi.get("root_path", "").rstrip("/")
    raw: bytes | None = asgi.get("raw_path")
    if raw == b"/":
        return []
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
