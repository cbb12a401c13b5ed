"""An agent of Google's ADK behind ``App``, with a model that follows the script of scripted_chat.py."""

from __future__ import annotations

import json
import sys
from collections.abc import AsyncGenerator, AsyncIterator
from typing import Any

import script
import scripted_chat
from ag_ui_adk import AGUIToolset
from google.adk.agents import LlmAgent
from google.adk.models import BaseLlm, LlmRequest, LlmResponse
from google.adk.tools import FunctionTool, ToolContext
from google.genai import types

from aguila import App
from aguila.frameworks import adk


class ScriptedModel(BaseLlm):
    """A model that needs no network."""

    async def generate_content_async(
        self, llm_request: LlmRequest, stream: bool = False
    ) -> AsyncGenerator[LlmResponse, None]:
        whole: list[types.Part] = []
        text = ""
        async for delta in _until_the_end(scripted_chat.reply(messages_of(llm_request))):
            if "reasoning_content" in delta:
                part = types.Part(text=delta["reasoning_content"], thought=True)
                yield LlmResponse(content=types.Content(role="model", parts=[part]), partial=True)
            elif "content" in delta:
                text += delta["content"]
                part = types.Part(text=delta["content"])
                yield LlmResponse(content=types.Content(role="model", parts=[part]), partial=True)
            for call in delta.get("tool_calls", ()):
                function, arguments = call["function"]["name"], json.loads(call["function"]["arguments"])
                whole.append(types.Part(function_call=types.FunctionCall(id=call["id"], name=function, args=arguments)))
        if text:
            whole.insert(0, types.Part(text=text))
        yield LlmResponse(content=types.Content(role="model", parts=whole), partial=False)


async def _until_the_end(deltas: AsyncIterator[dict[str, Any]]) -> AsyncIterator[dict[str, Any]]:
    try:
        async for delta in deltas:
            yield delta
    except EOFError:
        return


def messages_of(request: LlmRequest) -> list[dict[str, Any]]:
    """Return the history in the form of Chat Completions."""
    messages: list[dict[str, Any]] = []
    for content in request.contents:
        for part in content.parts or ():
            if part.function_call is not None:
                call = {"id": part.function_call.id, "function": {"name": part.function_call.name}}
                messages.append({"role": "assistant", "tool_calls": [call]})
            elif part.function_response is not None:
                found = part.function_response.response or {}
                result = found.get("result", found)
                text = result if isinstance(result, str) else json.dumps(result)
                messages.append({"role": "tool", "tool_call_id": part.function_response.id, "content": text})
            elif part.text:
                messages.append({"role": "user" if content.role == "user" else "assistant", "content": part.text})
    return messages


def add(a: int, b: int) -> int:
    """Add two numbers."""
    return script.add(a, b)


def count(tool_context: ToolContext) -> str:
    """Count one further."""
    tool_context.state["count"] = tool_context.state["count"] + 1
    return "counted"


def send_mail(to: str) -> str:
    """Send a mail, once somebody has agreed to it."""
    return script.send_mail()


agent = LlmAgent(
    name="scripted",
    model=ScriptedModel(model="scripted"),
    tools=[add, count, FunctionTool(send_mail, require_confirmation=True), AGUIToolset()],
)
app = App(adk.agent(agent), **script.app_options())

if __name__ == "__main__":
    script.serve_app(app, int(sys.argv[1]))
