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
from aguila.errors import RunFailed


@tool(needs_approval=True)
def transfer(amount: float, to: str) -> str:
    """Transfer an amount to somebody."""
    return f"Transferred {amount:g} to {to}."


client = AsyncOpenAI()
TOOLS: dict[str, FunctionTool] = {one.name: one for one in [transfer]}
DECLARED = [
    {"type": "function", "function": {"name": one.name, "description": one.description, "parameters": one.parameters}}
    for one in (found.declaration for found in TOOLS.values())
]


async def agent(run: Run) -> None:
    """Ask the model, call its tools, ask again. What is recorded with `once` is not asked again after an approval."""
    messages: list[Any] = as_openai_messages(await run.chat_messages())

    async def ask() -> dict:
        text, ended, calls = "", False, dict[int, dict]()
        options: dict[str, Any] = {
            "model": os.environ.get("OPENAI_MODEL", "gpt-5.4-mini"),
            "tools": DECLARED,
            "stream": True,
        }
        async for chunk in await client.chat.completions.create(messages=messages, **options):
            for choice in chunk.choices:
                ended = ended or choice.finish_reason is not None
                if choice.delta.content:
                    text += choice.delta.content
                    await run.emit(choice.delta.content)
                for piece in choice.delta.tool_calls or ():
                    begun = {"id": piece.id, "type": "function", "function": {"name": "", "arguments": ""}}
                    function = calls.setdefault(piece.index, begun)["function"]
                    function["name"] += piece.function.name or ""
                    function["arguments"] += piece.function.arguments or ""
        if not ended:
            raise RunFailed("The model's answer broke off.")
        return {"role": "assistant", "content": text, "tool_calls": list(calls.values())}

    for number in range(8):
        answer = await run.once(f"answer {number}", ask, uses_run=True, idempotent=True)
        if not answer["tool_calls"]:
            return
        messages.append(answer)
        for call in answer["tool_calls"]:
            name, arguments = call["function"]["name"], json.loads(call["function"]["arguments"] or "{}")
            known = TOOLS.get(name)
            content = (
                f"There is no tool {name!r}." if known is None else (await run.call_tool(known, arguments)).content
            )
            messages.append({"role": "tool", "tool_call_id": call["id"], "content": content})


app = App(agent)

if __name__ == "__main__":
    uvicorn.run(app, port=int(os.environ.get("PORT", "8000")))
