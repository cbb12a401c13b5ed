"""An AG2 agent behind ``App``, with the model of scripted_chat.py."""

from __future__ import annotations

import sys

import script
from ag2 import Agent, Context, tool
from ag2.config import OpenAIConfig

from aguila import App
from aguila.frameworks import ag2


@tool
def add(a: int, b: int) -> int:
    """Add two numbers."""
    return script.add(a, b)


@tool
def count(context: Context) -> str:
    """Count one further."""
    context.variables["count"] += 1
    return "counted"


@tool
async def send_mail(to: str, context: Context) -> str:
    """Send a mail, once somebody has agreed to it."""
    answer = await context.input(f"Send it to {to}?")
    return script.send_mail() if answer else "not sent"


config = OpenAIConfig(model="scripted", api_key="key", base_url=script.MODEL_URL, streaming=True, max_retries=0)
agent = Agent("assistant", config=config, tools=[add, count, send_mail])
app = App(ag2.agent(agent), **script.app_options())

if __name__ == "__main__":
    script.serve_app(app, int(sys.argv[1]))
