"""pydantic-ai's AG-UI adapter over the agent of pydantic_ai_agent.py."""

from __future__ import annotations

import sys

import pydantic_ai_agent
import script
from pydantic_ai.ui import StateDeps
from pydantic_ai.ui.ag_ui import AGUIAdapter
from pydantic_ai_agent import Shared, agent
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route

pydantic_ai_agent.SENDS_STATE = True


async def run(request: Request) -> Response:
    return await AGUIAdapter.dispatch_request(request, agent=agent, deps=StateDeps(Shared()))


async def counts(request: Request) -> Response:
    return JSONResponse(script.probe.counts)


app = Starlette(routes=[Route("/", run, methods=["POST"]), Route("/probe", counts)])

if __name__ == "__main__":
    script.serve(app, int(sys.argv[1]))
