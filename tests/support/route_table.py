"""The routes of an app with every front end, by name, for tests that have to try each of them."""

from __future__ import annotations

import re

from aguila.server.frontends.copilotkit.routes import ROUTES as COPILOTKIT_ROUTES
from aguila.server.http.routes import ROUTES

PAGE = ("GET / (page)", "GET /_page/{id}")
"""The files of the page, which have no table."""


def route_names() -> set[str]:
    """Return every method and path, such as ``GET /threads/{id}``. CopilotKit's routes are below ``/copilotkit``."""
    found = set(PAGE)
    for prefix, table in (("", ROUTES), ("/copilotkit", COPILOTKIT_ROUTES)):
        for route in table:
            path = prefix + re.sub(r"\{\w+\}", "{id}", route.path.rstrip("/"))
            found |= {f"{method} {path or '/'}" for method in route.endpoint.handlers if method != "HEAD"}
    return found
