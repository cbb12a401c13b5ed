"""What a front end may add to the protocol: routes, requests in its own form, and frames that its client understands.

The front ends that Aguila knows are in ``server.frontends``. Besides, only the options of ``App`` name a product.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from starlette.routing import BaseRoute

from aguila.protocol import Event
from aguila.server.config.errors import Rejected
from aguila.server.http.openapi.operation import Operation, Operations
from aguila.server.http.request import Request
from aguila.server.runs.start_request import StartRequest
from aguila.store import RunRecord

if TYPE_CHECKING:
    from aguila.server.http.frames import Framing
    from aguila.server.http.routes import Endpoint
    from aguila.server.runs.runs import Runs


class FrontEnd:
    """One front end. Each hook does nothing by default."""

    path: str = ""
    """The path below which its routes are, such as ``/my-pages``; empty for the root of the app."""

    # Something that only its client sends. ``translate`` and ``frame`` are called for requests that have it.
    header: str = ""
    """The name of a header, in lower case."""
    parameter: str = ""
    """The name of a query parameter; for ``frame`` only."""
    member: str = ""
    """The name of a member of ``forwardedProps``; for ``translate`` only."""

    closing: Callable[[Event], Sequence[Event]] | None = None
    """Returns what is sent before the last event of a run."""

    @property
    def routes(self) -> Sequence[BaseRoute]:
        """Its routes, with paths below ``path``. ``http.routes.route`` makes them."""
        return ()

    @property
    def operations(self) -> Operations:
        """What the OpenAPI document says about the handlers of its routes."""
        return {}

    root_operation: Operation | None = None
    """What the OpenAPI document says about the requests that ``root`` answers."""

    def root(self, request: Request) -> Endpoint | None:
        """Return the endpoint that answers a request to the root of the app or of an agent; None to leave it alone."""
        return None

    async def translate(self, start: StartRequest, request: Request, runs: Runs) -> StartRequest | RunRecord:
        """Return a request to start a run in the form of the protocol, or the run that it has started before.

        May raise ``Rejected``.
        """
        return start

    def frame(self, request: Request, declared: str | None) -> Framing | None:
        """Return the framing for a reader that declares this protocol version, or none; None to leave it alone.

        A reader of SSE that declares the current version gets it as it is.
        """
        return None

    def describe_error(self, refusal: Rejected) -> tuple[int, bytes] | None:
        """Return status and body of a refusal on its routes; None for the usual ones."""
        return None
