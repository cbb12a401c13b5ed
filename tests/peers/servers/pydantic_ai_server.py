"""pydantic-ai's AG-UI adapter with its own FunctionModel, which needs no network."""

from __future__ import annotations

import sys
from collections.abc import AsyncIterator
from typing import Any

import script
from ag_ui.core import StateSnapshotEvent
from pydantic import BaseModel
from pydantic_ai import Agent, DeferredToolRequests, RunContext, ToolReturn
from pydantic_ai.messages import ModelMessage, ModelRequest, ToolReturnPart, UserPromptPart
from pydantic_ai.models.function import AgentInfo, DeltaThinkingPart, DeltaToolCall, FunctionModel
from pydantic_ai.ui import StateDeps
from pydantic_ai.ui.ag_ui import AGUIAdapter
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route


class Shared(BaseModel):
    count: int = 0


async def model(messages: list[ModelMessage], info: AgentInfo) -> AsyncIterator[Any]:
    prompts: list[str] = []
    returned: ToolReturnPart | None = None
    for message in messages:
        if isinstance(message, ModelRequest):
            for part in message.parts:
                if isinstance(part, UserPromptPart):
                    prompts.append(str(part.content))
                    returned = None
                elif isinstance(part, ToolReturnPart):
                    returned = part
    if returned is not None:
        yield after_the_tool(returned)
        return
    match script.feature_of(prompts[-1]):
        case "text":
            for word in script.TEXT:
                yield word
        case "backend":
            yield {0: DeltaToolCall(name=script.BACKEND_TOOL, json_args='{"a": ', tool_call_id="call-add")}
            yield {0: DeltaToolCall(json_args='2, "b": 3}')}
        case "frontend":
            yield {0: DeltaToolCall(name=script.FRONTEND_TOOL, json_args='{"of": "Ada"}', tool_call_id="call-colour")}
        case "state":
            yield {0: DeltaToolCall(name=script.STATE_TOOL, json_args="{}", tool_call_id="call-count")}
        case "reasoning":
            for thought in script.THOUGHT:
                yield {0: DeltaThinkingPart(content=thought)}
            yield script.THOUGHT_OF
        case "interrupt":
            yield {0: DeltaToolCall(name=script.APPROVED_TOOL, json_args='{"to": "Ada"}', tool_call_id="call-mail")}
        case "error":
            yield script.BEFORE_THE_ERROR
            raise RuntimeError(script.ERROR)
        case "cancel":
            async for tick in script.probe.ticks():
                yield tick
        case _:
            async for word in script.many_words():
                yield word


def after_the_tool(returned: ToolReturnPart) -> str:
    if returned.tool_name == script.BACKEND_TOOL:
        return f"The sum is {returned.content}."
    if returned.tool_name == script.FRONTEND_TOOL:
        return f"The colour is {returned.content}."
    if returned.tool_name == script.STATE_TOOL:
        return script.COUNTED
    return script.SENT if returned.content == "sent" else script.NOT_SENT


agent = Agent(
    FunctionModel(stream_function=model), deps_type=StateDeps[Shared], output_type=[str, DeferredToolRequests]
)


@agent.tool_plain
def add(a: int, b: int) -> int:
    """Add two numbers."""
    return a + b


@agent.tool
def count(context: RunContext[StateDeps[Shared]]) -> ToolReturn:
    """Count one further."""
    context.deps.state.count += 1
    return ToolReturn(return_value="counted", metadata=[StateSnapshotEvent(snapshot=context.deps.state.model_dump())])


@agent.tool_plain(requires_approval=True)
def send_mail(to: str) -> str:
    """Send a mail, once somebody has agreed to it."""
    return "sent"


async def run(request: Request) -> Response:
    return await AGUIAdapter.dispatch_request(request, agent=agent, deps=StateDeps(Shared()))


async def counts(request: Request) -> Response:
    return JSONResponse(script.probe.counts)


app = Starlette(routes=[Route("/", run, methods=["POST"]), Route("/probe", counts)])

if __name__ == "__main__":
    script.serve(app, int(sys.argv[1]))
