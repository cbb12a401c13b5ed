"""Agents of the OpenAI Agents SDK behind ``App``, with a model that follows the script."""

from __future__ import annotations

import asyncio
import json
import sys
from collections.abc import AsyncIterator
from typing import Any

import script
from agents import Agent, Model, RunContextWrapper, function_tool, set_tracing_disabled
from openai.types.responses import (
    Response,
    ResponseCompletedEvent,
    ResponseFunctionCallArgumentsDeltaEvent,
    ResponseFunctionToolCall,
    ResponseOutputItemAddedEvent,
    ResponseOutputItemDoneEvent,
    ResponseOutputMessage,
    ResponseOutputText,
    ResponseReasoningItem,
    ResponseReasoningSummaryTextDeltaEvent,
    ResponseTextDeltaEvent,
    ResponseUsage,
)
from openai.types.responses.response_reasoning_item import Summary
from openai.types.responses.response_usage import InputTokensDetails, OutputTokensDetails

from aguila import App
from aguila.frameworks import openai_agents

set_tracing_disabled(True)


class Answer:
    """The events of one response of the Responses API."""

    def __init__(self) -> None:
        self._items: list[Any] = []
        self._number = 0

    def _next(self) -> int:
        self._number += 1
        return self._number

    async def text(self, pieces: AsyncIterator[str] | list[str]) -> AsyncIterator[Any]:
        index = len(self._items)
        blank = ResponseOutputMessage(id="msg", type="message", role="assistant", status="in_progress", content=[])
        yield ResponseOutputItemAddedEvent(
            type="response.output_item.added", item=blank, output_index=index, sequence_number=self._next()
        )
        whole = ""
        async for piece in _each(pieces):
            whole += piece
            yield ResponseTextDeltaEvent(
                type="response.output_text.delta",
                item_id="msg",
                output_index=index,
                content_index=0,
                delta=piece,
                logprobs=[],
                sequence_number=self._next(),
            )
        part = ResponseOutputText(type="output_text", text=whole, annotations=[])
        item = blank.model_copy(update={"status": "completed", "content": [part]})
        yield self._done(item, index)

    def call(self, name: str, call_id: str, *pieces: str) -> list[Any]:
        index = len(self._items)
        call = ResponseFunctionToolCall(type="function_call", id="fc", call_id=call_id, name=name, arguments="")
        events: list[Any] = [
            ResponseOutputItemAddedEvent(
                type="response.output_item.added", item=call, output_index=index, sequence_number=self._next()
            )
        ]
        for piece in pieces:
            events.append(
                ResponseFunctionCallArgumentsDeltaEvent(
                    type="response.function_call_arguments.delta",
                    item_id="fc",
                    output_index=index,
                    delta=piece,
                    sequence_number=self._next(),
                )
            )
        return [*events, self._done(call.model_copy(update={"arguments": "".join(pieces)}), index)]

    def thought(self, pieces: list[str]) -> list[Any]:
        index = len(self._items)
        item = ResponseReasoningItem(type="reasoning", id="rs", summary=[])
        events: list[Any] = [
            ResponseOutputItemAddedEvent(
                type="response.output_item.added", item=item, output_index=index, sequence_number=self._next()
            )
        ]
        for piece in pieces:
            events.append(
                ResponseReasoningSummaryTextDeltaEvent(
                    type="response.reasoning_summary_text.delta",
                    item_id="rs",
                    output_index=index,
                    summary_index=0,
                    delta=piece,
                    sequence_number=self._next(),
                )
            )
        summary = [Summary(type="summary_text", text="".join(pieces))]
        whole = ResponseReasoningItem(type="reasoning", id="rs", summary=summary, encrypted_content="secret")
        return [*events, self._done(whole, index)]

    def _done(self, item: Any, index: int) -> Any:
        self._items.append(item)
        return ResponseOutputItemDoneEvent(
            type="response.output_item.done", item=item, output_index=index, sequence_number=self._next()
        )

    def end(self) -> Any:
        usage = ResponseUsage(
            input_tokens=7,
            output_tokens=3,
            total_tokens=10,
            input_tokens_details=InputTokensDetails(cached_tokens=2, cache_write_tokens=0),
            output_tokens_details=OutputTokensDetails(reasoning_tokens=1),
        )
        response = Response(
            id="resp",
            created_at=0,
            model="scripted",
            object="response",
            output=self._items,
            parallel_tool_calls=True,
            tool_choice="auto",
            tools=[],
            usage=usage,
        )
        return ResponseCompletedEvent(type="response.completed", response=response, sequence_number=self._next())


async def _each(pieces: AsyncIterator[str] | list[str]) -> AsyncIterator[str]:
    if isinstance(pieces, list):
        for piece in pieces:
            yield piece
    else:
        async for piece in pieces:
            yield piece


class ScriptedModel(Model):
    """A model that needs no network."""

    async def get_response(self, *args: Any, **options: Any) -> Any:
        raise NotImplementedError("the runner streams")

    async def stream_response(
        self, system_instructions: Any, input: Any, *args: Any, **options: Any
    ) -> AsyncIterator[Any]:
        answer = Answer()
        try:
            async for event in reply(input, answer):
                yield event
        except EOFError:
            return
        yield answer.end()


async def reply(items: list[Any], answer: Answer) -> AsyncIterator[Any]:
    asked = max(at for at, item in enumerate(items) if item.get("role") == "user")
    content = items[asked]["content"]
    feature = script.feature_of(content if isinstance(content, str) else content[0]["text"])
    calls = {item["call_id"]: item for item in items if item.get("type") == "function_call"}
    outputs = [item for item in items[asked:] if item.get("type") == "function_call_output"]
    text: AsyncIterator[str] | list[str] | None = None
    made: list[Any] = []
    if len(outputs) == 2:
        text = [f"The sums are {outputs[0]['output']} and {outputs[1]['output']}."]
    elif outputs:
        text = [after_the_tool(calls[outputs[0]["call_id"]]["name"], outputs[0]["output"])]
    elif feature == "text":
        text = script.TEXT
    elif feature == "backend":
        made = answer.call(script.BACKEND_TOOL, "call-add", '{"a": ', '2, "b": 3}')
    elif feature == "two":
        made = answer.call(script.BACKEND_TOOL, "call-add-1", '{"a": 1, "b": 2}')
        made += answer.call(script.BACKEND_TOOL, "call-add-2", '{"a": 3, "b": 4}')
    elif feature == "frontend":
        made = answer.call(script.FRONTEND_TOOL, "call-colour", '{"of": "Ada"}')
    elif feature == "state":
        made = answer.call(script.STATE_TOOL, "call-count", "{}")
    elif feature == "reasoning":
        made, text = answer.thought(script.THOUGHT), [script.THOUGHT_OF]
    elif feature == "interrupt":
        made = answer.call(script.APPROVED_TOOL, "call-mail", '{"to": "Ada"}')
    elif feature == "handoff":
        made = answer.call("transfer_to_billing", "call-handoff", "{}")
    elif feature == "fault":
        made = answer.call(script.BACKEND_TOOL, "call-fault", '{"a": 0, "b": 0}')
    elif feature == "cut":
        async for event in answer.text([script.BEFORE_THE_ERROR]):
            yield event
        await asyncio.sleep(0.05)  # as below
        raise EOFError
    elif feature == "error":
        async for event in answer.text([script.BEFORE_THE_ERROR]):
            yield event
        await asyncio.sleep(0.05)  # the SDK drops what waits in its queue when a model fails
        raise RuntimeError(script.ERROR)
    elif feature == "cancel":
        text = script.probe.ticks()
    else:
        text = script.many_words()
    for event in made:
        yield event
    if text is not None:
        async for event in answer.text(text):
            yield event


def after_the_tool(name: str, output: str) -> str:
    if name == script.BACKEND_TOOL:
        return f"The sum is {output}."
    if name == script.STATE_TOOL:
        return script.COUNTED
    if name == script.APPROVED_TOOL:
        return script.SENT if output == "sent" else script.NOT_SENT
    if name == script.FRONTEND_TOOL:
        return f"The colour is {output}."
    return f"Billing here: {json.loads(output)['assistant']}."


@function_tool
def add(a: int, b: int) -> int:
    """Add two numbers."""
    return script.add(a, b)


@function_tool
def count(context: RunContextWrapper[Any]) -> str:
    """Count one further."""
    context.context.state["count"] += 1
    return "counted"


@function_tool(needs_approval=True)
def send_mail(to: str) -> str:
    """Send a mail, once somebody has agreed to it."""
    return script.send_mail()


model = ScriptedModel()
billing = Agent(name="billing", model=model, handoff_description="Knows bills.")
agent = Agent(name="assistant", model=model, tools=[add, count, send_mail], handoffs=[billing])
app = App(openai_agents.agent(agent), **script.app_options())

if __name__ == "__main__":
    script.serve_app(app, int(sys.argv[1]))
