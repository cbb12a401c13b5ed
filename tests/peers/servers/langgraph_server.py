"""ag-ui-langgraph over the graph of langgraph_graph.py."""

from __future__ import annotations

import sys

import script
from ag_ui_langgraph import LangGraphAgent, add_langgraph_fastapi_endpoint
from fastapi import FastAPI
from langgraph.checkpoint.memory import InMemorySaver
from langgraph_graph import graph

app = FastAPI()


@app.get("/probe")
async def counts() -> dict[str, int]:
    return script.probe.counts


# The structured outcome is off by default there: its users' older clients do not know it.
agent = LangGraphAgent(name="scripted", graph=graph.compile(checkpointer=InMemorySaver()), emit_interrupt_outcome=True)
add_langgraph_fastapi_endpoint(app, agent, "/")

if __name__ == "__main__":
    script.serve(app, int(sys.argv[1]))
