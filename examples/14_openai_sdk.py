r"""A model with tools and approval through OpenAI's SDK alone, on OpenAI or on any compatible server.

    OPENAI_API_KEY=... python examples/14_openai_sdk.py
    curl -N http://127.0.0.1:8000 -H 'content-type: application/json' \
        -d '{"threadId": "t1", "runId": "r1", "messages": [{"id": "m1", "role": "user", "content": "Pay the rent"}]}'

Example 15 does the same for any vendor, with reasoning, front-end tools and files.
"""

import json
import os
from typing import Any

import uvicorn
from openai import AsyncOpenAI

from aguila import App, Run, tool
from aguila.chat import FunctionTool, as_openai_messages


@tool(needs_approval=True)
def transfer(amount: float, to: str) -> str:
    """Transfer an amount to somebody."""
    return f"Transferred {amount:g} to {to}."


client = AsyncOpenAI()
TOOLS: dict[str, FunctionTool] = {one.name: one for one in [transfer]}
DECLARED = [
    {"type": "function", "function": {"name": one.name, "parameters": one.declaration.parameters}}
    for one in TOOLS.values()
]


async def agent(run: Run) -> None:
    """Ask the model, call its tools, ask again. What is recorded with `once` is not asked again after an approval."""
    messages: list[Any] = as_openai_messages(await run.chat_messages())

    async def ask() -> dict:
        calls: dict[int, dict] = {}
        options: dict[str, Any] = {
            "model": os.environ.get("OPENAI_MODEL", "gpt-5.4-mini"),
            "tools": DECLARED,
            "stream": True,
        }
        async with run.text() as text:
            async for chunk in await client.chat.completions.create(messages=messages, **options):
                for choice in chunk.choices:
                    await text.write(choice.delta.content or "")
                    for piece in choice.delta.tool_calls or ():
                        begun = {"id": piece.id, "type": "function", "function": {"name": "", "arguments": ""}}
                        function = calls.setdefault(piece.index, begun)["function"]
                        function["name"] += piece.function.name or ""
                        function["arguments"] += piece.function.arguments or ""
        return {"calls": list(calls.values())}

    for number in range(8):
        calls = (await run.once(f"answer {number}", ask, uses_run=True, idempotent=True))["calls"]
        if not calls:
            return
        messages.append({"role": "assistant", "tool_calls": calls})
        for call in calls:
            function = call["function"]
            result = await run.call_tool(TOOLS[function["name"]], json.loads(function["arguments"]))
            messages.append({"role": "tool", "tool_call_id": call["id"], "content": result.content})


app = App(agent)

if __name__ == "__main__":
    uvicorn.run(app, port=int(os.environ.get("PORT", "8000")))
