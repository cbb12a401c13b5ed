"""A LlamaIndex agent behind ``App``, with the model of scripted_chat.py."""

# No postponed annotations: LlamaIndex reads those of tools.

import sys

import script
from llama_index.core.agent.workflow import FunctionAgent
from llama_index.core.workflow import Context, HumanResponseEvent, InputRequiredEvent
from llama_index.llms.openai import OpenAI
from llama_index.protocols.ag_ui.agent import AGUIChatWorkflow

from aguila import App
from aguila.frameworks import llama_index


def add(a: int, b: int) -> int:
    """Add two numbers."""
    return script.add(a, b)


async def count(ctx: Context) -> str:
    """Count one further."""
    state = await ctx.store.get("state")
    await ctx.store.set("state", {**state, "count": state["count"] + 1})
    return "counted"


async def send_mail(ctx: Context, to: str) -> str:
    """Send a mail, once somebody has agreed to it."""
    question = InputRequiredEvent(prefix=f"Send it to {to}?", to=to)
    answer = await ctx.wait_for_event(HumanResponseEvent, question, waiter_id=f"mail-{to}", requirements={"to": to})
    return script.send_mail() if answer.response == {"approved": True} else "not sent"


llm = OpenAI(model="gpt-4o-mini", api_key="key", api_base=script.MODEL_URL, max_retries=0)
workflow = AGUIChatWorkflow(llm=llm, backend_tools=[add, count], timeout=None)
agent = FunctionAgent(llm=llm, tools=[add, count, send_mail])
app = App(llama_index.agent(agent), **script.app_options())

if __name__ == "__main__":
    script.serve_app(app, int(sys.argv[1]))
