"""The documented FastAPI quickstart: the official encoder in a StreamingResponse, events written by hand."""

from __future__ import annotations

import sys
from collections.abc import AsyncIterator
from typing import Any
from uuid import uuid4

import script
from ag_ui.core import (
    BaseEvent,
    Interrupt,
    ReasoningEndEvent,
    ReasoningMessageContentEvent,
    ReasoningMessageEndEvent,
    ReasoningMessageStartEvent,
    ReasoningStartEvent,
    RunAgentInput,
    RunErrorEvent,
    RunFinishedEvent,
    RunFinishedInterruptOutcome,
    RunStartedEvent,
    StateDeltaEvent,
    StateSnapshotEvent,
    TextMessageContentEvent,
    TextMessageEndEvent,
    TextMessageStartEvent,
    ToolCallArgsEvent,
    ToolCallEndEvent,
    ToolCallResultEvent,
    ToolCallStartEvent,
)
from ag_ui.encoder import EventEncoder
from fastapi import FastAPI, Request
from fastapi.responses import StreamingResponse

app = FastAPI()
Events = AsyncIterator[BaseEvent]


@app.post("/")
async def endpoint(input_data: RunAgentInput, request: Request) -> StreamingResponse:
    encoder = EventEncoder(accept=request.headers.get("accept") or "")

    async def stream() -> AsyncIterator[str]:
        ids = {"thread_id": input_data.thread_id, "run_id": input_data.run_id}
        yield encoder.encode(RunStartedEvent(**ids))
        try:
            outcome = None
            async for event in agent(input_data):
                if isinstance(event, Asked):
                    outcome = RunFinishedInterruptOutcome(interrupts=[event.interrupt])
                else:
                    yield encoder.encode(event)
            yield encoder.encode(RunFinishedEvent(**ids, outcome=outcome))
        except RuntimeError:
            yield encoder.encode(RunErrorEvent(message="the run failed"))

    return StreamingResponse(stream(), media_type=encoder.get_content_type())


@app.get("/probe")
async def counts() -> dict[str, int]:
    return script.probe.counts


class Asked:
    def __init__(self, interrupt: Interrupt) -> None:
        self.interrupt = interrupt


async def agent(input_data: RunAgentInput) -> AsyncIterator[Any]:
    last = input_data.messages[-1]
    if last.role == "tool":
        async for event in text([script.COLOUR]):
            yield event
        return
    users = [message for message in input_data.messages if message.role == "user"]
    match script.feature_of(str(users[-1].content)):
        case "text":
            async for event in text(script.TEXT):
                yield event
        case "backend":
            call_id = str(uuid4())
            async for event in tool_call(call_id, script.BACKEND_TOOL, '{"a": 2, "b": 3}'):
                yield event
            yield ToolCallResultEvent(message_id=str(uuid4()), tool_call_id=call_id, content="5")
            async for event in text([script.SUM]):
                yield event
        case "two":
            calls = [str(uuid4()), str(uuid4())]
            for call_id, arguments in zip(calls, ('{"a": 1, "b": 2}', '{"a": 3, "b": 4}'), strict=True):
                async for event in tool_call(call_id, script.BACKEND_TOOL, arguments):
                    yield event
            for call_id, result in zip(calls, ("3", "7"), strict=True):
                yield ToolCallResultEvent(message_id=str(uuid4()), tool_call_id=call_id, content=result)
            async for event in text([script.TWO_SUMS]):
                yield event
        case "frontend":
            async for event in tool_call(str(uuid4()), script.FRONTEND_TOOL, '{"of": "Ada"}'):
                yield event
        case "state":
            yield StateSnapshotEvent(snapshot=input_data.state)
            count = input_data.state["count"]
            yield StateDeltaEvent(delta=[{"op": "replace", "path": "/count", "value": count + 1}])
            async for event in text([script.COUNTED]):
                yield event
        case "reasoning":
            async for event in reasoning():
                yield event
            async for event in text([script.THOUGHT_OF]):
                yield event
        case "interrupt" if not input_data.resume:
            yield Asked(Interrupt(id=str(uuid4()), reason="confirmation", message="Send it?"))
        case "interrupt":
            approved = all(entry.payload == {"approved": True} for entry in input_data.resume or [])
            async for event in text([script.SENT if approved else script.NOT_SENT]):
                yield event
        case "error":
            async for event in text([script.BEFORE_THE_ERROR]):
                yield event
            raise RuntimeError(script.ERROR)
        case "cancel":
            async for event in text(script.probe.ticks()):
                yield event
        case _:
            async for event in text(script.many_words()):
                yield event


async def text(words: Any) -> Events:
    message_id = str(uuid4())
    yield TextMessageStartEvent(message_id=message_id, role="assistant")
    if isinstance(words, list):
        for word in words:
            yield TextMessageContentEvent(message_id=message_id, delta=word)
    else:
        async for word in words:
            yield TextMessageContentEvent(message_id=message_id, delta=word)
    yield TextMessageEndEvent(message_id=message_id)


async def tool_call(call_id: str, name: str, arguments: str) -> Events:
    yield ToolCallStartEvent(tool_call_id=call_id, tool_call_name=name)
    yield ToolCallArgsEvent(tool_call_id=call_id, delta=arguments[:6])
    yield ToolCallArgsEvent(tool_call_id=call_id, delta=arguments[6:])
    yield ToolCallEndEvent(tool_call_id=call_id)


async def reasoning() -> Events:
    message_id = str(uuid4())
    yield ReasoningStartEvent(message_id=message_id)
    yield ReasoningMessageStartEvent(message_id=message_id, role="reasoning")
    for thought in script.THOUGHT:
        yield ReasoningMessageContentEvent(message_id=message_id, delta=thought)
    yield ReasoningMessageEndEvent(message_id=message_id)
    yield ReasoningEndEvent(message_id=message_id)


if __name__ == "__main__":
    script.serve(app, int(sys.argv[1]))
