"""A Strands agent behind ``App``, with the model of scripted_chat.py."""

from __future__ import annotations

import sys
from typing import Any

import script
from ag_ui_strands import StrandsAgentConfig, ToolBehavior
from strands import Agent, ToolContext, tool
from strands.models.openai import OpenAIModel

from aguila import App
from aguila.frameworks import strands


@tool
def add(a: int, b: int) -> int:
    """Add two numbers."""
    return script.add(a, b)


@tool
def count() -> str:
    """Count one further."""
    return "counted"


@tool(context=True)
def send_mail(to: str, tool_context: ToolContext) -> str:
    """Send a mail, once somebody has agreed to it."""
    answer = tool_context.interrupt("approval", reason={"message": "Send it?", "to": to})
    return script.send_mail() if answer["response"] == {"approved": True} else "not sent"


async def counted(context: Any) -> dict[str, Any]:
    return {"count": context.input_data.state["count"] + 1}


model = OpenAIModel(client_args={"api_key": "key", "base_url": script.MODEL_URL, "max_retries": 0}, model_id="scripted")
agent = Agent(model=model, tools=[add, count, send_mail], callback_handler=None)
config = StrandsAgentConfig(tool_behaviors={"count": ToolBehavior(state_from_result=counted)})
app = App(strands.agent(agent, config=config), **script.app_options())

if __name__ == "__main__":
    script.serve_app(app, int(sys.argv[1]))
