"""A pydantic-ai agent with its own FunctionModel, which needs no network."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Any

import script
from ag_ui.core import StateSnapshotEvent
from pydantic import BaseModel
from pydantic_ai import Agent, DeferredToolRequests, RunContext, ToolReturn
from pydantic_ai.messages import ModelMessage, ModelRequest, ToolReturnPart, UserPromptPart
from pydantic_ai.models.function import AgentInfo, DeltaThinkingPart, DeltaToolCall, FunctionModel
from pydantic_ai.ui import StateDeps

SENDS_STATE = False
"""Whether the tool sends the state itself, as pydantic-ai's adapter needs it."""


class Shared(BaseModel):
    count: int = 0


async def model(messages: list[ModelMessage], info: AgentInfo) -> AsyncIterator[Any]:
    prompts: list[str] = []
    returned: list[ToolReturnPart] = []
    for message in messages:
        if isinstance(message, ModelRequest):
            for part in message.parts:
                if isinstance(part, UserPromptPart):
                    prompts.append(str(part.content))
                    returned = []
                elif isinstance(part, ToolReturnPart):
                    returned.append(part)
    if len(returned) == 2:
        yield f"The sums are {returned[0].content} and {returned[1].content}."
        return
    if returned:
        yield after_the_tool(returned[0])
        return
    match script.feature_of(prompts[-1]):
        case "text":
            for word in script.TEXT:
                yield word
        case "backend":
            yield {0: DeltaToolCall(name=script.BACKEND_TOOL, json_args='{"a": ', tool_call_id="call-add")}
            yield {0: DeltaToolCall(json_args='2, "b": 3}')}
        case "two":
            yield {0: DeltaToolCall(name=script.BACKEND_TOOL, json_args='{"a": 1, "b": 2}', tool_call_id="call-add-1")}
            yield {1: DeltaToolCall(name=script.BACKEND_TOOL, json_args='{"a": 3, "b": 4}', tool_call_id="call-add-2")}
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
        case "fault":
            yield {0: DeltaToolCall(name=script.BACKEND_TOOL, json_args='{"a": 0, "b": 0}', tool_call_id="call-fault")}
        case "cut":
            yield script.BEFORE_THE_ERROR
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
    return script.add(a, b)


@agent.tool
def count(context: RunContext[StateDeps[Shared]]) -> ToolReturn:
    """Count one further."""
    context.deps.state.count += 1
    snapshot = StateSnapshotEvent(snapshot=context.deps.state.model_dump())
    return ToolReturn(return_value="counted", metadata=[snapshot] if SENDS_STATE else None)


@agent.tool_plain(requires_approval=True)
def send_mail(to: str) -> str:
    """Send a mail, once somebody has agreed to it."""
    return script.send_mail()
