"""The routes of an app with every front end, by name, for tests that have to try each of them."""

from __future__ import annotations

from aguila.server.copilotkit.routes import ROUTES as COPILOTKIT_ROUTES
from aguila.server.http.routes import ROUTES

PAGE = ("GET / (page)", "GET /_page/{id}")
"""The files of the page, which have no table."""


def route_names() -> set[str]:
    """Return every method and path, such as ``GET /threads/{id}``. CopilotKit's routes are below ``/copilotkit``."""
    found = set(PAGE)
    for prefix, table in (("", ROUTES), ("/copilotkit", COPILOTKIT_ROUTES)):
        for route in table:
            path = "".join(f"/{part or '{id}'}" for part in route.path)
            found |= {f"{method} {prefix}{path or '/' * (prefix == '')}" for method in route.handlers}
    return found
