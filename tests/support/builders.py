"""Build the events and messages that many tests need: as objects, and as JSON in functions that end in ``_json``."""

from __future__ import annotations

import json
from typing import Any

from aguila.chat import ChatMessage, Content, TextContent
from aguila.protocol import (
    Event,
    Message,
    MessagesSnapshotEvent,
    RunFinishedEvent,
    RunStartedEvent,
    TextMessageContentEvent,
    TextMessageEndEvent,
    TextMessageStartEvent,
    ToolCallArgsEvent,
    ToolCallEndEvent,
    ToolCallResultEvent,
    ToolCallStartEvent,
    UserMessage,
)

Json = dict[str, Any]


def ignore(notice: Any) -> None:
    """Ignore a notice: random streams make many, and the test is about something else."""


# events


def run_started(run_id: str = "r", thread_id: str = "t", **fields: Any) -> RunStartedEvent:
    return RunStartedEvent(thread_id=thread_id, run_id=run_id, **{"protocol_version": "1.1", **fields})


def run_finished(run_id: str = "r", thread_id: str = "t", **fields: Any) -> RunFinishedEvent:
    return RunFinishedEvent(thread_id=thread_id, run_id=run_id, **fields)


RUN_STARTED = run_started()
RUN_FINISHED = run_finished()


def text_message(message_id: str = "m", *deltas: str, **start: Any) -> list[Event]:
    return [
        TextMessageStartEvent(message_id=message_id, **start),
        *(TextMessageContentEvent(message_id=message_id, delta=delta) for delta in deltas),
        TextMessageEndEvent(message_id=message_id),
    ]


def tool_call(call_id: str = "c", *deltas: str, name: str = "f", **start: Any) -> list[Event]:
    return [
        ToolCallStartEvent(tool_call_id=call_id, tool_call_name=name, **start),
        *(ToolCallArgsEvent(tool_call_id=call_id, delta=delta) for delta in deltas),
        ToolCallEndEvent(tool_call_id=call_id),
    ]


def tool_result(call_id: str = "c", message_id: str = "o", content: str = "", **fields: Any) -> ToolCallResultEvent:
    return ToolCallResultEvent(message_id=message_id, tool_call_id=call_id, content=content, **fields)


def messages_snapshot(*messages: Message, **fields: Any) -> MessagesSnapshotEvent:
    return MessagesSnapshotEvent(messages=list(messages), **fields)


# messages


def user(message_id: str, content: Any = "hello", **fields: Any) -> UserMessage:
    return UserMessage(id=message_id, content=content, **fields)


def chat_user(*contents: Content | str, message_id: str | None = None, name: str | None = None) -> ChatMessage:
    made = [TextContent(content) if isinstance(content, str) else content for content in contents]
    return ChatMessage("user", made, message_id, author_name=name)


# JSON


def run_started_json(run_id: str = "r", thread_id: str = "t") -> Json:
    return {"type": "RUN_STARTED", "threadId": thread_id, "runId": run_id, "protocolVersion": "1.1"}


def run_finished_json(run_id: str = "r", thread_id: str = "t", **members: Any) -> Json:
    return {"type": "RUN_FINISHED", "threadId": thread_id, "runId": run_id, **members}


UNVERSIONED_RUN_STARTED = {"type": "RUN_STARTED", "threadId": "t", "runId": "r"}
"""A producer of 1.0 or earlier may leave out protocolVersion."""


def text_message_json(message_id: str, *deltas: str) -> list[Json]:
    return [
        {"type": "TEXT_MESSAGE_START", "messageId": message_id, "role": "assistant"},
        *({"type": "TEXT_MESSAGE_CONTENT", "messageId": message_id, "delta": delta} for delta in deltas),
        {"type": "TEXT_MESSAGE_END", "messageId": message_id},
    ]


def tool_call_json(call_id: str, name: str = "f", arguments: Any = None, **members: Any) -> list[Json]:
    """Build a tool call; without arguments, there is no TOOL_CALL_ARGS."""
    written = arguments if isinstance(arguments, str) else json.dumps(arguments)
    args = [] if arguments is None else [{"type": "TOOL_CALL_ARGS", "toolCallId": call_id, "delta": written}]
    return [
        {"type": "TOOL_CALL_START", "toolCallId": call_id, "toolCallName": name, **members},
        *args,
        {"type": "TOOL_CALL_END", "toolCallId": call_id},
    ]


def user_json(message_id: str, content: Any, **members: Any) -> Json:
    return {"id": message_id, "role": "user", "content": content, **members}
