"""The AG-UI endpoints that frameworks publish, over the agents of the apps: ``framework_server.py PORT NAME``."""

from __future__ import annotations

import sys
from typing import Any

import script
from fastapi import FastAPI


def endpoint(name: str) -> FastAPI:
    """Return the framework's own server. Its endpoint is at ``/``, ``/agui`` or ``/run``."""
    app = FastAPI()
    match name:
        case "adk":
            from adk_app import agent
            from ag_ui_adk import ADKAgent, add_adk_fastapi_endpoint

            own = ADKAgent(adk_agent=agent, app_name="scripted", user_id="user", emit_interrupt_outcome=True)
            add_adk_fastapi_endpoint(app, own, path="/")
        case "agno":
            from agno.os.interfaces.agui import AGUI
            from agno_app import agent

            app.include_router(AGUI(agent=agent).get_router())
        case "ag2":
            from ag2.ag_ui import AGUIStream
            from ag2_app import agent

            app.mount("/", AGUIStream(agent).build_asgi())
        case "crewai":
            from ag_ui_crewai import add_crewai_flow_fastapi_endpoint
            from crewai_app import Scripted

            add_crewai_flow_fastapi_endpoint(app, Scripted(), "/", emit_interrupt_outcome=True)
        case "llama_index":
            from llama_index.protocols.ag_ui.router import get_ag_ui_workflow_router
            from llama_index_app import workflow

            async def factory() -> Any:
                return workflow

            app.include_router(get_ag_ui_workflow_router(workflow_factory=factory))
        case "strands":
            from ag_ui_strands import StrandsAgent, add_strands_fastapi_endpoint
            from strands_app import agent, config

            add_strands_fastapi_endpoint(app, StrandsAgent(agent, name="scripted", config=config), "/")
        case _:
            raise ValueError(f"no server of {name!r}")
    return app


if __name__ == "__main__":
    script.serve_app(endpoint(sys.argv[2]), int(sys.argv[1]))
