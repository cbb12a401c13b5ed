"""The routes of an app with every front end, by name, for tests that have to try each of them."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any, get_args

from starlette.routing import Mount, Route, Router

from aguila import App
from aguila.server import front_end_options
from aguila.server.frontends.options import FrontEnd

PAGE = "GET / (page)"
"""The page itself, which answers browsers at the path of another route."""


async def _agent(run: Any) -> Any:
    yield "hello"


def route_names() -> set[str]:
    """Return every method and path, such as ``GET /threads/{id}``. CopilotKit's routes are below ``/copilotkit``.

    The routes below ``/agents/{name}`` are the same objects as those at the root.
    """
    options: dict[str, Any] = {"page": True, "metrics": True}
    for name in get_args(FrontEnd):
        options |= front_end_options(name)
    found = dict(endpoints(App(_agent, store=":memory:", **options)._router, ""))
    own = {id(endpoint) for name, endpoint in found.items() if " /agents/{id}/" not in f"{name}/"}
    assert all(id(endpoint) in own for endpoint in found.values())
    return {PAGE, *(name for name in found if " /agents/{id}/" not in f"{name}/")}


def endpoints(router: Router, prefix: str) -> Iterator[tuple[str, Any]]:
    for route in router.routes:
        assert isinstance(route, Mount | Route)
        path = prefix + re.sub(r"\{\w+\}", "{id}", route.path.rstrip("/"))
        if isinstance(route, Mount):
            assert isinstance(route.app, Router)
            yield from endpoints(route.app, path)
            continue
        for method in route.endpoint.handlers:
            if method != "HEAD":
                yield f"{method} {path or '/'}", route.endpoint
