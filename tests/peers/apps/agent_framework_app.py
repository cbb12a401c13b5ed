"""The agent of agent_framework_agent.py behind ``App``."""

from __future__ import annotations

import sys

import script
from agent_framework_agent import STATE, agent

from aguila import App
from aguila.frameworks import agent_framework

app = App(agent_framework.agent(agent, state_schema=STATE), **script.app_options())

if __name__ == "__main__":
    script.serve_app(app, int(sys.argv[1]))
