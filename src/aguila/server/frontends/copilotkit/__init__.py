"""CopilotKit's runtime contract (1.75, mode "sse") as a front end, so that a CopilotKit page needs no Node process.

``routes`` has the routes and their handlers, ``operations`` their part of the OpenAPI document, ``envelope`` the single
endpoint, ``documents`` the JSON that the page reads.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from starlette.routing import BaseRoute

from aguila.server.config.errors import Rejected
from aguila.server.frontends.copilotkit.errors import describe_error
from aguila.server.frontends.copilotkit.operations import OPERATIONS
from aguila.server.frontends.copilotkit.routes import ROUTES
from aguila.server.http.front_end import FrontEnd
from aguila.server.http.openapi.operation import Operations
from aguila.server.http.routes import ROUTES as APP_ROUTES

DEFAULT_PATH: Final = "/copilotkit"

_APP_ROUTES: Final = frozenset({"admin", *(one.path.split("/")[1] for one in APP_ROUTES)})


class CopilotKit(FrontEnd):
    """CopilotKit's routes below a path: ``True`` is ``/copilotkit``.

    Raises ``ValueError`` for a path that collides with the routes of the app.
    """

    def __init__(self, path: str | bool) -> None:
        text = DEFAULT_PATH if path is True else path
        parts = text.strip("/").split("/") if isinstance(text, str) else []
        if not isinstance(text, str) or not text.startswith("/") or any(part in ("", ".", "..") for part in parts):
            raise ValueError(f'copilotkit must be True or a path such as "/api/copilotkit", not {path!r}')
        if parts[0] in _APP_ROUTES:
            raise ValueError(f"copilotkit={text!r} is below a route of the app; choose another path")
        self.path = "/" + "/".join(parts)

    @property
    def routes(self) -> Sequence[BaseRoute]:
        return ROUTES

    @property
    def operations(self) -> Operations:
        return OPERATIONS

    def describe_error(self, refusal: Rejected) -> tuple[int, bytes] | None:
        return describe_error(refusal)
