"""An Agno agent behind ``App``, with the model of scripted_chat.py."""

from __future__ import annotations

import sys

import script
from agno.agent import Agent
from agno.db.in_memory import InMemoryDb
from agno.models.openai import OpenAIChat
from agno.run import RunContext
from agno.tools import tool

from aguila import App
from aguila.frameworks import agno


def add(a: int, b: int) -> int:
    """Add two numbers."""
    return script.add(a, b)


def count(run_context: RunContext) -> str:
    """Count one further."""
    assert run_context.session_state is not None
    run_context.session_state["count"] += 1
    return "counted"


@tool(requires_confirmation=True)
def send_mail(to: str) -> str:
    """Send a mail, once somebody has agreed to it."""
    return script.send_mail()


model = OpenAIChat(id="scripted", base_url=script.MODEL_URL, api_key="key", role_map=None, max_retries=0)
agent = Agent(model=model, tools=[add, count, send_mail], db=InMemoryDb(), add_history_to_context=True)
app = App(agno.agent(agent), **script.app_options())

if __name__ == "__main__":
    script.serve_app(app, int(sys.argv[1]))
