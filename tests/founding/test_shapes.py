"""The JSON shapes of the project's founding documents, and the shape that each is read as today.

The documents are plans for a .NET library and describe several vintages of the protocol; the values here are ours, the
shapes theirs. Each comment names the document and its section. ``level`` is the lowest level that reads the shape: the
level below it gives an error, or something else.
"""

from __future__ import annotations

import json
from typing import Any

import pytest

from aguila.codec import EventDecoder, Notice, decode, encode
from aguila.codec.compat import Level
from aguila.errors import DecodeError
from aguila.protocol import AgentCapabilities, Context, Event, Message, RunAgentInput, Tool, ToolCall


def write(value: Any) -> Any:
    return json.loads(encode(value))


def read_event(raw: dict[str, Any], level: Level) -> list[dict[str, Any]]:
    """Return the event as it is read within a run, where some events are legal only."""
    decoder = EventDecoder(compat=level, warn=[].append)
    if raw["type"] != "RUN_STARTED":
        decoder.feed({"type": "RUN_STARTED", "threadId": "th", "runId": "ru"})
    return [write(event) for event in decoder.feed(json.dumps(raw))]


def read_document(raw: Any, type_: Any, level: Level) -> Any:
    return write(decode(json.dumps(raw), type=type_, compat=level, warn=[].append))


def source(kind: str, value: str, mime: str) -> dict[str, str]:
    return {"type": kind, "value": value, "mimeType": mime}


def question(text: str) -> dict[str, str]:
    return {"type": "text", "text": text}


# Document 000, section 6: the five payloads of multimodal messages.
DOCUMENT_000: dict[str, tuple[Level, Any, Any]] = {
    "simple text": (
        "off",
        {"id": "u-1", "role": "user", "content": "Which bird is this?"},
        {"id": "u-1", "role": "user", "content": "Which bird is this?"},
    ),
    "image with text": (
        "standard",
        {
            "id": "u-2",
            "role": "user",
            "content": [
                question("Which bird is this?"),
                {"type": "binary", "mimeType": "image/jpeg", "data": "/9j/4AAQ"},
            ],
        },
        {
            "id": "u-2",
            "role": "user",
            "content": [
                question("Which bird is this?"),
                {"type": "image", "source": source("data", "/9j/4AAQ", "image/jpeg")},
            ],
        },
    ),
    "images by url": (
        "standard",
        {
            "id": "u-3",
            "role": "user",
            "content": [
                question("Same bird?"),
                {"type": "binary", "mimeType": "image/png", "url": "https://birds.test/1.png"},
                {"type": "binary", "mimeType": "image/png", "url": "https://birds.test/2.png"},
            ],
        },
        {
            "id": "u-3",
            "role": "user",
            "content": [
                question("Same bird?"),
                {"type": "image", "source": source("url", "https://birds.test/1.png", "image/png")},
                {"type": "image", "source": source("url", "https://birds.test/2.png", "image/png")},
            ],
        },
    ),
    "audio by reference": (
        "standard",
        {
            "id": "u-4",
            "role": "user",
            "content": [
                question("Write down its song"),
                {"type": "binary", "mimeType": "audio/wav", "id": "upload-7", "filename": "song.wav"},
            ],
        },
        {
            "id": "u-4",
            "role": "user",
            "content": [
                question("Write down its song"),
                {
                    "type": "audio",
                    "source": source("file", "upload-7", "audio/wav"),
                    "metadata": {"filename": "song.wav"},
                },
            ],
        },
    ),
    "document": (
        "standard",
        {
            "id": "u-5",
            "role": "user",
            "content": [
                question("Sum up the census"),
                {
                    "type": "binary",
                    "mimeType": "application/pdf",
                    "filename": "census.pdf",
                    "url": "https://birds.test/census.pdf",
                },
            ],
        },
        {
            "id": "u-5",
            "role": "user",
            "content": [
                question("Sum up the census"),
                {
                    "type": "document",
                    "source": source("url", "https://birds.test/census.pdf", "application/pdf"),
                    "metadata": {"filename": "census.pdf"},
                },
            ],
        },
    ),
    # Section 3.1: data before url before id; what is not used is kept.
    "all three references": (
        "standard",
        {
            "id": "u-6",
            "role": "user",
            "content": [
                {"type": "binary", "mimeType": "image/gif", "data": "R0lG", "url": "https://x.test", "id": "r"}
            ],
        },
        {
            "id": "u-6",
            "role": "user",
            "content": [
                {
                    "type": "image",
                    "source": source("data", "R0lG", "image/gif"),
                    "id": "r",
                    "metadata": {"aguila": {"url": "https://x.test"}},
                }
            ],
        },
    ),
    # Section 2.3: a user message without content is written with an empty string.
    "no content": ("off", {"id": "u-7", "role": "user", "content": ""}, {"id": "u-7", "role": "user", "content": ""}),
}

# Document 001, phase 2: event types to be implemented.
DOCUMENT_001: dict[str, tuple[Level, dict[str, Any], list[dict[str, Any]]]] = {
    # 2.1
    "step started": (
        "standard",
        {
            "type": "STEP_STARTED",
            "stepId": "s-2",
            "stepName": "count",
            "parentStepId": "s-1",
            "metadata": {"weight": 2},
        },
        [
            {
                "type": "STEP_STARTED",
                "stepName": "count",
                "metadata": {"weight": 2, "aguila": {"stepId": "s-2", "parentStepId": "s-1"}},
            }
        ],
    ),
    "step finished": (
        "standard",
        {"type": "STEP_FINISHED", "stepId": "s-2", "status": "completed", "result": {"birds": 3}},
        [
            {
                "type": "STEP_FINISHED",
                "stepName": "s-2",
                "metadata": {"aguila": {"stepId": "s-2", "status": "completed", "result": {"birds": 3}}},
            }
        ],
    ),
    # 2.2
    "activity snapshot": (
        "standard",
        {
            "type": "ACTIVITY_SNAPSHOT",
            "activityId": "a-1",
            "activityType": "WATCH",
            "state": {"seen": 0},
            "metadata": {"place": "pond"},
        },
        [
            {
                "type": "ACTIVITY_SNAPSHOT",
                "messageId": "a-1",
                "activityType": "WATCH",
                "content": {"seen": 0},
                "metadata": {"place": "pond"},
            }
        ],
    ),
    "activity delta": (
        "standard",
        {"type": "ACTIVITY_DELTA", "activityId": "a-1", "delta": [{"op": "replace", "path": "/seen", "value": 1}]},
        [
            {
                "type": "ACTIVITY_DELTA",
                "messageId": "a-1",
                "activityType": "unknown",
                "patch": [{"op": "replace", "path": "/seen", "value": 1}],
            }
        ],
    ),
    # 2.3
    "thinking start": (
        "standard",
        {"type": "THINKING_START"},
        [{"type": "REASONING_START", "messageId": "ru-reasoning-1"}],
    ),
    "thinking message start": (
        "standard",
        {"type": "THINKING_TEXT_MESSAGE_START", "messageId": "th-1"},
        [{"type": "REASONING_MESSAGE_START", "messageId": "th-1", "role": "reasoning"}],
    ),
    "thinking message content": (
        "standard",
        {"type": "THINKING_TEXT_MESSAGE_CONTENT", "messageId": "th-1", "delta": "A heron?"},
        [{"type": "REASONING_MESSAGE_CONTENT", "messageId": "th-1", "delta": "A heron?"}],
    ),
    "thinking message end": (
        "standard",
        {"type": "THINKING_TEXT_MESSAGE_END", "messageId": "th-1"},
        [{"type": "REASONING_MESSAGE_END", "messageId": "th-1"}],
    ),
    "thinking end": ("standard", {"type": "THINKING_END"}, [{"type": "REASONING_END", "messageId": "ru-reasoning-1"}]),
    # 2.4
    "messages snapshot": (
        "off",
        {"type": "MESSAGES_SNAPSHOT", "messages": [{"id": "d", "role": "developer", "content": "Be brief."}]},
        [{"type": "MESSAGES_SNAPSHOT", "messages": [{"id": "d", "role": "developer", "content": "Be brief."}]}],
    ),
    # 2.5
    "raw": (
        "off",
        {"type": "RAW", "source": "feeder", "event": {"seeds": 12}},
        [{"type": "RAW", "source": "feeder", "event": {"seeds": 12}}],
    ),
    "custom": (
        "off",
        {"type": "CUSTOM", "name": "landed", "value": ["heron"]},
        [{"type": "CUSTOM", "name": "landed", "value": ["heron"]}],
    ),
    # 4.4
    "tool call with a null parent": (
        "standard",
        {"type": "TOOL_CALL_START", "toolCallId": "c", "toolCallName": "count", "parentMessageId": None},
        [{"type": "TOOL_CALL_START", "toolCallId": "c", "toolCallName": "count"}],
    ),
}

INPUT = {"threadId": "th", "runId": "ru", "messages": [{"id": "u", "role": "user", "content": "Go on"}]}
FINISHED = {"type": "RUN_FINISHED", "threadId": "th", "runId": "ru"}
PATCH = [
    {"op": "add", "path": "/nest/eggs", "value": {"count": 2}},
    {"op": "replace", "path": "/mood", "value": "calm"},
    {"op": "remove", "path": "/old"},
    {"op": "move", "path": "/done", "from": "/todo/0"},
    {"op": "copy", "path": "/spare", "from": "/nest"},
    {"op": "test", "path": "/version", "value": 2},
]

# Document 003, event categories. Shapes that have not changed come first; each is read unchanged.
UNCHANGED_003: list[dict[str, Any]] = [
    {"type": "RUN_STARTED", "threadId": "th", "runId": "ru", "parentRunId": "ru-0", "input": INPUT},
    {**FINISHED, "result": {"birds": 3}},
    {"type": "RUN_ERROR", "message": "It flew off", "code": "gone"},
    {"type": "STEP_STARTED", "stepName": "count"},
    {"type": "STEP_FINISHED", "stepName": "count"},
    {"type": "TEXT_MESSAGE_START", "messageId": "m", "role": "assistant"},
    {"type": "TEXT_MESSAGE_CONTENT", "messageId": "m", "delta": "Two herons"},
    {"type": "TEXT_MESSAGE_END", "messageId": "m"},
    {"type": "TEXT_MESSAGE_CHUNK", "messageId": "m", "role": "developer", "delta": "."},
    {"type": "TOOL_CALL_START", "toolCallId": "c", "toolCallName": "count", "parentMessageId": "m"},
    {"type": "TOOL_CALL_ARGS", "toolCallId": "c", "delta": '{"kind":'},
    {"type": "TOOL_CALL_END", "toolCallId": "c"},
    {"type": "TOOL_CALL_RESULT", "messageId": "t", "toolCallId": "c", "content": "2", "role": "tool"},
    {"type": "TOOL_CALL_CHUNK", "toolCallId": "c", "toolCallName": "count", "parentMessageId": "m", "delta": "{}"},
    {"type": "STATE_SNAPSHOT", "snapshot": {"birds": 2}},
    {"type": "STATE_DELTA", "delta": PATCH},
    {"type": "MESSAGES_SNAPSHOT", "messages": INPUT["messages"]},  # type: ignore[dict-item]
    {"type": "ACTIVITY_SNAPSHOT", "messageId": "a", "activityType": "WATCH", "content": {"seen": 0}, "replace": False},
    {"type": "ACTIVITY_DELTA", "messageId": "a", "activityType": "WATCH", "patch": PATCH[:1]},
    {"type": "REASONING_START", "messageId": "s"},
    {"type": "REASONING_MESSAGE_CONTENT", "messageId": "r", "delta": "Grey wings"},
    {"type": "REASONING_MESSAGE_END", "messageId": "r"},
    {"type": "REASONING_MESSAGE_CHUNK", "messageId": "r", "delta": "Grey"},
    {"type": "REASONING_END", "messageId": "s"},
    {"type": "RAW", "event": 5},
    {"type": "CUSTOM", "name": "landed", "value": {}, "timestamp": 1700000000000, "rawEvent": {"id": 1}},
]

APPROVAL = {"functionName": "open_cage", "functionArguments": {"cage": "b"}}
PROMPT = {"prompt": "Name the bird", "inputType": "text"}

CHANGED_003: dict[str, tuple[Level, dict[str, Any], list[dict[str, Any]]]] = {
    # Reasoning events (draft)
    "reasoning message of the assistant": (
        "standard",
        {"type": "REASONING_MESSAGE_START", "messageId": "r", "role": "assistant"},
        [{"type": "REASONING_MESSAGE_START", "messageId": "r", "role": "reasoning"}],
    ),
    # Interrupt and resume: function approval, user input, and the string outcome
    "approval": (
        "standard",
        {**FINISHED, "outcome": "interrupt", "interrupt": {"id": "call_9", "payload": APPROVAL}},
        [
            {
                **FINISHED,
                "outcome": {
                    "type": "interrupt",
                    "interrupts": [
                        {
                            "id": "call_9",
                            "reason": "tool_call",
                            "toolCallId": "call_9",
                            "metadata": {"aguila": {"payload": APPROVAL}},
                        }
                    ],
                },
            }
        ],
    ),
    "user input": (
        "standard",
        {**FINISHED, "outcome": "interrupt", "interrupt": {"id": "ask_4", "payload": PROMPT}},
        [
            {
                **FINISHED,
                "outcome": {
                    "type": "interrupt",
                    "interrupts": [
                        {
                            "id": "ask_4",
                            "reason": "input_required",
                            "message": "Name the bird",
                            "metadata": {"aguila": {"payload": PROMPT}},
                        }
                    ],
                },
            }
        ],
    ),
    "success": (
        "standard",
        {**FINISHED, "outcome": "success", "result": 3},
        [{**FINISHED, "outcome": {"type": "success"}, "result": 3}],
    ),
    # Special events
    "meta": (
        "standard",
        {"type": "META", "metaType": "tag", "payload": {"tag": "rare"}},
        [{"type": "RAW", "event": {"type": "META", "metaType": "tag", "payload": {"tag": "rare"}}, "source": "meta"}],
    ),
}

RESUME_003 = {
    # Resuming from an interrupt
    "approval": (
        {"interruptId": "call_9", "payload": {"approved": True}},
        [{"interruptId": "call_9", "payload": {"approved": True}, "status": "resolved"}],
    ),
    "user input": (
        {"interruptId": "ask_4", "payload": {"response": "Ada"}},
        [{"interruptId": "ask_4", "payload": {"response": "Ada"}, "status": "resolved"}],
    ),
}

CALL = {"id": "call_9", "type": "function", "function": {"name": "open_cage", "arguments": '{"cage":"b"}'}}

# Document 003, message types and roles; document 004, message types (which adds reasoning and encryptedValue).
MESSAGES: list[dict[str, Any]] = [
    {"id": "d", "role": "developer", "content": "Be brief.", "name": "house"},
    {"id": "s", "role": "system", "content": "You know birds.", "name": "base", "encryptedValue": "eA=="},
    {"id": "a", "role": "assistant", "toolCalls": [{**CALL, "encryptedValue": "eQ=="}]},
    {"id": "b", "role": "assistant", "content": "A heron.", "name": "guide"},
    {
        "id": "u",
        "role": "user",
        "content": [
            {"type": "text", "text": "And this?"},
            {"type": "image", "source": source("url", "https://birds.test/3.png", "image/png")},
        ],
        "name": "Ada",
    },
    {"id": "w", "role": "user", "content": "And this?", "encryptedValue": "dw=="},
    {"id": "t", "role": "tool", "content": '{"count":2}', "toolCallId": "call_9", "error": "late"},
    {"id": "v", "role": "activity", "activityType": "WATCH", "content": {"seen": 1}},
    {"id": "r", "role": "reasoning", "content": "Grey wings...", "encryptedValue": "eg=="},
]

SCHEMA = {"type": "object", "properties": {"kind": {"type": "string", "enum": ["heron"]}}, "required": ["kind"]}


def below(level: Level) -> Level:
    return "off" if level == "standard" else "standard"


def is_read_so(read: Any, after: Any) -> bool:
    try:
        return read() == after
    except DecodeError:
        return False


@pytest.mark.parametrize("name", DOCUMENT_000)
def test_a_user_message_of_document_000(name: str) -> None:
    level, before, after = DOCUMENT_000[name]
    assert read_document(before, Message, level) == after
    if level != "off":
        assert not is_read_so(lambda: read_document(before, Message, below(level)), after)


@pytest.mark.parametrize("name", DOCUMENT_001)
def test_an_event_of_document_001(name: str) -> None:
    level, before, after = DOCUMENT_001[name]
    assert read_event(before, level) == after
    if level != "off":
        assert not is_read_so(lambda: read_event(before, below(level)), after)


def test_a_step_and_an_activity_of_document_001_from_start_to_end() -> None:
    decoder = EventDecoder(warn=[].append)
    events = [
        write(event)
        for raw in (
            {"type": "RUN_STARTED", "threadId": "th", "runId": "ru"},
            DOCUMENT_001["step started"][1],
            DOCUMENT_001["activity snapshot"][1],
            DOCUMENT_001["activity delta"][1],
            DOCUMENT_001["step finished"][1],
        )
        for event in decoder.feed(json.dumps(raw))
    ]
    assert events[3]["activityType"] == "WATCH"
    assert events[4]["stepName"] == "count"


@pytest.mark.parametrize("raw", UNCHANGED_003, ids=[raw["type"] for raw in UNCHANGED_003])
def test_an_event_of_document_003_that_is_what_it_was(raw: dict[str, Any]) -> None:
    assert read_event(raw, "off") == [raw]


@pytest.mark.parametrize("name", CHANGED_003)
def test_an_event_of_document_003_that_is_another_today(name: str) -> None:
    level, before, after = CHANGED_003[name]
    assert read_event(before, level) == after
    assert not is_read_so(lambda: read_event(before, below(level)), after)


@pytest.mark.parametrize("name", RESUME_003)
def test_an_answer_of_document_003(name: str) -> None:
    before, after = RESUME_003[name]
    raw = {**INPUT, "resume": before}
    assert read_document(raw, RunAgentInput, "standard") == {**INPUT, "resume": after}
    with pytest.raises(DecodeError):
        read_document(raw, RunAgentInput, "off")


@pytest.mark.parametrize("raw", MESSAGES, ids=[raw["id"] + "-" + raw["role"] for raw in MESSAGES])
def test_a_message_of_documents_003_and_004(raw: dict[str, Any]) -> None:
    assert read_document(raw, Message, "off") == raw


def test_binary_content_of_document_003_in_a_whole_input() -> None:
    # Document 003, RunAgentInput, with every member and the content types of its user message.
    raw = {
        **INPUT,
        "parentRunId": "ru-0",
        "state": {"birds": 2},
        "messages": [DOCUMENT_000["image with text"][1]],
        "tools": [{"name": "count", "description": "Count the birds", "parameters": SCHEMA}],
        "context": [{"description": "The place", "value": "pond"}],
        "forwardedProps": {"a": None},
    }
    text, image = DOCUMENT_000["image with text"][2]["content"]
    marked = {**image, "metadata": {"aguila": {"spelling": "binary"}}}  # so that a chat can show the original
    message = {**DOCUMENT_000["image with text"][2], "content": [text, marked]}
    assert read_document(raw, RunAgentInput, "standard") == {**raw, "messages": [message]}


def test_an_input_of_document_004() -> None:
    # Document 004, RunAgentInput: tools, context, state and resume are optional; resume is a list.
    raw = {
        **INPUT,
        "parentRunId": "ru-0",
        "resume": [{"interruptId": "ask_4", "status": "resolved", "payload": {"response": "Ada"}}],
        "forwardedProps": {},
    }
    assert read_document(raw, RunAgentInput, "off") == raw
    # A .NET JsonElement that was never set is written as null.
    unset = {**raw, "forwardedProps": None, "state": None}
    assert read_document(unset, RunAgentInput, "standard") == {k: v for k, v in raw.items() if k != "forwardedProps"}


def test_a_message_of_document_004_may_lack_its_id() -> None:
    raw = {"role": "user", "content": "Go on"}
    assert read_document({**INPUT, "messages": [raw]}, RunAgentInput, "standard")["messages"] == [
        {**raw, "id": "legacy-message-1"}
    ]
    with pytest.raises(DecodeError):
        read_document({**INPUT, "messages": [raw]}, RunAgentInput, "off")


def test_a_tool_of_document_004_may_lack_its_description() -> None:
    raw = {"name": "count", "parameters": SCHEMA, "metadata": {"ui": "small"}}
    read = read_document({**INPUT, "tools": [raw]}, RunAgentInput, "standard")
    assert read["tools"] == [{**raw, "description": ""}]
    with pytest.raises(DecodeError):
        read_document({**INPUT, "tools": [raw]}, RunAgentInput, "off")


@pytest.mark.parametrize(
    ("type_", "raw"),
    [
        (ToolCall, CALL),
        (Context, {"description": "The place", "value": "pond"}),
        (Tool, {"name": "count", "description": "Count the birds", "parameters": SCHEMA}),
        (
            AgentCapabilities,
            {
                "identity": {"name": "Guide", "version": "2.1"},
                "transport": {"streaming": True, "resumable": False},
                "tools": {"supported": True, "clientProvided": True},
                "multimodal": {"input": {"image": True, "audio": False, "pdf": True}},
                "custom": {"nests": None},
            },
        ),
    ],
    ids=["tool call", "context", "tool", "capabilities"],
)
def test_the_other_types_of_documents_003_and_004(type_: Any, raw: dict[str, Any]) -> None:
    assert read_document(raw, type_, "off") == raw


def test_sub_agents_of_document_004() -> None:
    # Document 004, AgentCapabilities.MultiAgent ("sub-agent information"); the .NET member is SubAgents.
    raw = {
        "multiAgent": {
            "delegation": True,
            "handoffs": False,
            "subAgents": [{"name": "counter", "description": "Counts"}],
        }
    }
    assert read_document(raw, AgentCapabilities, "standard") == {
        "multiAgent": {
            "delegation": True,
            "handoffs": False,
            "subagents": [{"name": "counter", "description": "Counts"}],
        }
    }


def test_a_history_of_document_003_is_an_array_of_events() -> None:
    # Document 003, "Serialize Event Array for History Persistence".
    raw = [UNCHANGED_003[0], *UNCHANGED_003[5:8], UNCHANGED_003[1]]
    notices: list[Notice] = []
    assert write(decode(json.dumps(raw), type=list[Event], warn=notices.append)) == raw
    assert notices == []
