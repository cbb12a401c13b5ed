"""agent-framework-ag-ui over the agent of agent_framework_agent.py."""

from __future__ import annotations

import sys

import script
from agent_framework_ag_ui import add_agent_framework_fastapi_endpoint
from agent_framework_agent import STATE, agent
from fastapi import FastAPI

app = FastAPI()


@app.get("/probe")
async def counts() -> dict[str, int]:
    return script.probe.counts


add_agent_framework_fastapi_endpoint(app, agent, "/", state_schema=STATE, single_user=True)

if __name__ == "__main__":
    script.serve(app, int(sys.argv[1]))
