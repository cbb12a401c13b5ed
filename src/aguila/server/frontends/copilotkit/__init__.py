"""CopilotKit's runtime contract (1.75, mode "sse") as a front end, so that a CopilotKit page needs no Node process.

``routes`` has the routes and their handlers, ``operations`` their part of the OpenAPI document, ``envelope`` the single
endpoint, ``documents`` the JSON that the page reads.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

from msgspec.structs import replace
from starlette.routing import BaseRoute

from aguila.codec.json.values import is_object
from aguila.protocol import RunAgentInput
from aguila.server.config.errors import Rejected
from aguila.server.frontends.copilotkit.errors import describe_error
from aguila.server.frontends.copilotkit.operations import OPERATIONS
from aguila.server.frontends.copilotkit.routes import ROUTES
from aguila.server.http.front_end import FrontEnd
from aguila.server.http.openapi.operation import Operations
from aguila.server.http.request import Request
from aguila.server.http.routes import ROUTES as APP_ROUTES
from aguila.server.runs.runs import Runs
from aguila.server.runs.start_request import StartRequest

DEFAULT_PATH: Final = "/copilotkit"

_SUGGEST_TOOL: Final = "copilotkitSuggest"

_APP_ROUTES: Final = frozenset({"admin", *(one.path.split("/")[1] for one in APP_ROUTES)})


def _chooses(input: RunAgentInput, tool: str) -> bool:  # noqa: A002 - the protocol's word for it
    props: Any = input.forwarded_props
    choice: Any = props["toolChoice"]
    function: Any = choice.get("function") if is_object(choice) else None
    return is_object(function) and function.get("name") == tool


class CopilotKit(FrontEnd):
    """CopilotKit's routes below a path: ``True`` is ``/copilotkit``.

    Raises ``ValueError`` for a path that collides with the routes of the app.
    """

    member = "toolChoice"

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

    async def translate(self, start: StartRequest, request: Request, runs: Runs) -> StartRequest:
        """Do not store the runs of suggestions, to which no client returns.

        A client before 1.75, or at the single endpoint, asks for them at ``/run`` instead of ``/suggest``, each on a
        new thread, and forces the choice of its own tool.
        """
        is_own = f"{request.path}/".startswith(f"{self.path}/")
        return replace(start, is_stored=False) if is_own and _chooses(start.input, _SUGGEST_TOOL) else start

    def describe_error(self, refusal: Rejected) -> tuple[int, bytes] | None:
        return describe_error(refusal)
