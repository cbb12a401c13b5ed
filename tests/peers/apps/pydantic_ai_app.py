"""The agent of pydantic_ai_agent.py behind ``App``."""

from __future__ import annotations

import sys

import script
from pydantic_ai.ui import StateDeps
from pydantic_ai_agent import Shared, agent

from aguila import App
from aguila.frameworks import pydantic_ai

app = App(pydantic_ai.agent(agent, deps=StateDeps(Shared())), **script.app_options())

if __name__ == "__main__":
    script.serve_app(app, int(sys.argv[1]))
