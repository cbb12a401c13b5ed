"""Additions to the protocol for TanStack AI's client."""

from aguila.server.frontends.tanstack.events import TanStackFraming
from aguila.server.frontends.tanstack.history import restore_request
from aguila.server.frontends.tanstack.operations import ROOT
from aguila.server.frontends.tanstack.routes import find_root
from aguila.server.http.frames import Framing
from aguila.server.http.front_end import FrontEnd
from aguila.server.http.request import Request
from aguila.server.http.routes import Endpoint
from aguila.server.runs.runs import Runs
from aguila.server.runs.start_request import StartRequest
from aguila.store import RunRecord


class TanStack(FrontEnd):
    """TanStack AI's client: it declares no protocol version, and names its run in a header."""

    header = "x-run-id"
    parameter = "offset"
    root_operation = ROOT

    def root(self, request: Request) -> Endpoint | None:
        return find_root(request)

    async def translate(self, start: StartRequest, request: Request, runs: Runs) -> StartRequest | RunRecord:
        return start if start.input.protocol_version is not None else await restore_request(start, runs.threads)

    def frame(self, request: Request, declared: str | None) -> Framing | None:
        return TanStackFraming() if declared is None else None
