"""The graph of langgraph_graph.py behind ``App``."""

from __future__ import annotations

import sys

import script
from langgraph.checkpoint.memory import InMemorySaver
from langgraph_graph import graph

from aguila import App
from aguila.frameworks import langgraph

app = App(langgraph.agent(graph.compile(checkpointer=InMemorySaver())), **script.app_options())

if __name__ == "__main__":
    script.serve_app(app, int(sys.argv[1]))
