"""An agent of the Agent Framework whose chat client follows the script."""

from __future__ import annotations

import re
from collections.abc import AsyncIterator, Awaitable, Mapping, Sequence
from typing import Any

import script
from agent_framework import (
    Agent,
    BaseChatClient,
    ChatResponse,
    ChatResponseUpdate,
    Content,
    FunctionInvocationLayer,
    Message,
    ResponseStream,
    tool,
)
from agent_framework_ag_ui import state_update


class ScriptedClient(FunctionInvocationLayer[Any], BaseChatClient[Any]):
    """A chat client that needs no model."""

    def _inner_get_response(
        self, *, messages: Sequence[Message], stream: bool, options: Mapping[str, Any], **kwargs: Any
    ) -> Awaitable[ChatResponse[Any]] | ResponseStream[ChatResponseUpdate, ChatResponse[Any]]:
        if not stream:
            raise NotImplementedError("the AG-UI endpoint streams")
        return self._build_response_stream(updates(messages))


async def updates(messages: Sequence[Message]) -> AsyncIterator[ChatResponseUpdate]:
    async for contents in reply(messages):
        yield ChatResponseUpdate(role="assistant", contents=[contents])


async def reply(messages: Sequence[Message]) -> AsyncIterator[Content]:
    feature, answered = "many", list[tuple[str, Any]]()
    names: dict[str, str] = {}
    for message in messages:
        for content in message.contents:
            if content.type == "function_call":
                names[content.call_id] = content.name
            elif content.type == "function_result":
                answered.append((names.get(content.call_id, ""), content.result))
            elif message.role == "user" and content.type == "text":
                feature, answered = script.feature_of(content.text), []
    if len(answered) == 2:
        yield Content.from_text(f"The sums are {answered[0][1]} and {answered[1][1]}.")
        return
    if answered:
        yield Content.from_text(after_the_tool(*answered[0]))
        return
    match feature:
        case "text":
            for word in script.TEXT:
                yield Content.from_text(word)
        case "backend":
            yield Content.from_function_call("call-add", script.BACKEND_TOOL, arguments='{"a": ')
            yield Content.from_function_call("call-add", "", arguments='2, "b": 3}')
        case "two":
            yield Content.from_function_call("call-add-1", script.BACKEND_TOOL, arguments='{"a": 1, "b": 2}')
            yield Content.from_function_call("call-add-2", script.BACKEND_TOOL, arguments='{"a": 3, "b": 4}')
        case "frontend":
            yield Content.from_function_call("call-colour", script.FRONTEND_TOOL, arguments='{"of": "Ada"}')
        case "state":
            # The endpoint tells a model the state in words.
            found = [re.search(r'"count"\s*:\s*(\d+)', message.text) for message in messages]
            counts = [match[1] for match in found if match is not None]
            yield Content.from_function_call("call-count", script.STATE_TOOL, arguments=f'{{"now": {counts[-1]}}}')
        case "reasoning":
            for thought in script.THOUGHT:
                yield Content.from_text_reasoning(id="thought-1", text=thought)
            yield Content.from_text(script.THOUGHT_OF)
        case "interrupt":
            yield Content.from_function_call("call-mail", script.APPROVED_TOOL, arguments='{"to": "Ada"}')
        case "fault":
            yield Content.from_function_call("call-fault", script.BACKEND_TOOL, arguments='{"a": 0, "b": 0}')
        case "cut":
            yield Content.from_text(script.BEFORE_THE_ERROR)
        case "error":
            yield Content.from_text(script.BEFORE_THE_ERROR)
            raise RuntimeError(script.ERROR)
        case "cancel":
            async for tick in script.probe.ticks():
                yield Content.from_text(tick)
        case _:
            async for word in script.many_words():
                yield Content.from_text(word)


def after_the_tool(name: str, result: Any) -> str:
    if name == script.BACKEND_TOOL:
        return f"The sum is {result}."
    if name == script.FRONTEND_TOOL:
        return f"The colour is {result}."
    if name == script.STATE_TOOL:
        return script.COUNTED
    return script.SENT if result == "sent" else script.NOT_SENT


@tool
def add(a: int, b: int) -> int:
    """Add two numbers."""
    return script.add(a, b)


@tool
def count(now: int) -> Content:
    """Count one further."""
    return state_update("counted", state={"count": now + 1})


@tool(approval_mode="always_require")
def send_mail(to: str) -> str:
    """Send a mail, once somebody has agreed to it."""
    return script.send_mail()


STATE = {"count": {"type": "integer"}}
agent = Agent(ScriptedClient(), name="scripted", tools=[add, count, send_mail])
