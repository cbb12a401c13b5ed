"""Write docs/reference/ from the wire types and the source; ``--check`` fails if a page is out of date.

Members, types and optionality come from ``aguila.protocol``, examples from the real encoder. The meaning of each member
and the rule ids of each type are written here. A member without a meaning, and a type without rules, is an error.
``reference_python`` writes the pages about functions and classes.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from types import ModuleType, UnionType
from typing import Annotated, Any, Final, Literal, Union, get_args, get_origin, get_type_hints

import msgspec
import reference_python

from aguila.codec import encode
from aguila.protocol import _base, capabilities, events, legacy, messages, parts, patch, run

FOLDER: Final = Path(__file__).parents[1] / "docs" / "reference"
RULES: Final = Path(__file__).parents[1] / "docs" / "rules.md"

PAGES: Final[dict[str, tuple[str, str, list[ModuleType]]]] = {
    "events": ("Event types", "What an agent's stream is made of. An event is identified by its `type`.", [events]),
    "messages": ("Messages", "The history of a thread. A message is identified by its `role`.", [messages]),
    "parts": (
        "Content parts",
        "The content of a message that is more than a string, and where its bytes are.",
        [parts],
    ),
    "run": ("Run input and outcomes", "What starts a run, how it ends, and what it used.", [run]),
    "capabilities": (
        "Capabilities",
        "What an agent declares about itself. Every member is optional: absent means undeclared, not unsupported.",
        [capabilities],
    ),
    "patch": ("JSON Patch operations", "The operations of STATE_DELTA and ACTIVITY_DELTA, as in RFC 6902.", [patch]),
    "legacy": ("Retired shapes", "Older shapes that are read, and written for peers that know no others.", [legacy]),
}
"""Page name -> title, introduction and the modules whose types it has."""

COMMON: Final[dict[str, str]] = {
    "activityType": "Which renderer shows the activity",
    "arguments": "The arguments as JSON text; it may be invalid JSON",
    "code": "A code that programs can compare",
    "delta": "The text to append",
    "description": "What it is for",
    "encryptedValue": "An opaque value of the producer, sent back unchanged",
    "encryptedValueType": "The opaque type of the encrypted value",
    "id": "The id",
    "input": "The input of the run",
    "messageId": "The id of the message",
    "metadata": "Open data of the application or producer",
    "mimeType": "The media type of the bytes",
    "model": "The name of the model",
    "name": "The name",
    "outcome": "How it ended; absent means success",
    "parentMessageId": "The assistant message that the call belongs to",
    "parentRunId": "The run that this one continues from, for branches",
    "protocolVersion": "The protocol version that the sender declares",
    "provider": "The provider",
    "rawEvent": "The provider's event that this one was made from",
    "result": "What it returned",
    "role": "The author of the message",
    "runId": "The id of the run",
    "source": "Where the bytes are",
    "state": "The shared state",
    "subagentRunId": "The subagent that it comes from; absent means the agent itself",
    "subagentName": "The name of the subagent",
    "supported": "Whether it is supported at all",
    "threadId": "The id of the conversation",
    "timestamp": "Milliseconds since the Unix epoch",
    "toolCallId": "The id of the tool call",
    "toolCallName": "The name of the tool",
    "type": "The type",
    "usage": "Tokens per provider and model",
    "op": "The operation",
    "path": "A JSON Pointer to the place",
    "from": "A JSON Pointer to the source",
}
"""The meaning of a member, unless ``MEANINGS`` has one for the type."""

SHARED: Final = ("timestamp", "rawEvent", "metadata", "subagentRunId", "encryptedValue", "encryptedValueType")
"""Members that most types have. They come last."""

MEANINGS: Final[dict[str, str]] = {
    "StepStartedEvent.stepName": "The name of the step",
    "StepFinishedEvent.stepName": "The name of the open step",
    "StateDeltaEvent.delta": "The changes, applied all or none",
    "StateSnapshotEvent.snapshot": "The whole state; null is a value",
    "MessagesSnapshotEvent.messages": "All messages of the thread",
    "ActivitySnapshotEvent.content": "The content of the activity",
    "ActivitySnapshotEvent.replace": "Whether an existing activity is replaced; absent means true",
    "ActivityDeltaEvent.patch": "The changes of the content, applied all or none",
    "ToolCallArgsEvent.delta": "The piece of JSON text to append to the arguments",
    "ToolCallChunkEvent.delta": "The piece of JSON text to append to the arguments",
    "ToolCallResultEvent.content": "The result: text or parts",
    "ToolCallResultEvent.role": "Always `tool`",
    "ReasoningMessageStartEvent.role": "Always `reasoning`; required on the wire",
    "ReasoningEncryptedValueEvent.subtype": "Whether the value belongs to a message or to a tool call",
    "ReasoningEncryptedValueEvent.entityId": "The id of that message or call",
    "RunErrorEvent.message": "What went wrong, for users",
    "SubagentErrorEvent.message": "What went wrong, for users",
    "SubagentStartedEvent.subagentRunId": "The id of the invocation, used once in a run",
    "SubagentFinishedEvent.subagentRunId": "The id of the invocation",
    "SubagentErrorEvent.subagentRunId": "The id of the invocation",
    "SubagentStartedEvent.parentSubagentRunId": "The subagent that invoked it",
    "SubagentStartedEvent.parentToolCallId": "The tool call that invoked it",
    "SubagentStartedEvent.parentMessageId": "The message that invoked it",
    "RawEvent.event": "The event of the other system",
    "RawEvent.source": "The name of that system",
    "CustomEvent.name": "The name of the application's event",
    "CustomEvent.value": "Its value",
    **dict.fromkeys(
        (f"{kind.__name__}.id" for kind in (messages.BaseMessage, *get_args(messages.Message))),
        "The id; assigned if a constructor or a run input omits it",
    ),
    "FunctionCall.name": "The name of the tool",
    "ToolCall.function": "The tool and its arguments",
    "ToolCall.type": "Always `function`",
    "DeveloperMessage.name": "The sender",
    "SystemMessage.name": "The sender",
    "AssistantMessage.name": "The sender",
    "UserMessage.name": "The sender",
    "TextMessageStartEvent.name": "The sender",
    "TextMessageChunkEvent.name": "The sender",
    "DeveloperMessage.content": "The instructions",
    "SystemMessage.content": "The instructions",
    "AssistantMessage.content": "The text; absent if the message only has calls",
    "AssistantMessage.toolCalls": "The calls that the agent made",
    "UserMessage.content": "Text, or parts in order",
    "ToolMessage.content": "The result: text or parts",
    "ToolMessage.error": "Why the call failed, in addition to the content",
    "ActivityMessage.content": "The data to show",
    "ReasoningMessage.content": "The reasoning text",
    "DataSource.value": "The bytes in base64",
    "UrlSource.value": "The URL",
    "FileSource.value": "The id of the file at its provider",
    "FileSource.provider": "The provider that knows the id",
    "TextPart.text": "The text",
    "Tool.description": "What it is for; empty if a constructor or a run input omits it",
    "Tool.parameters": "A JSON Schema of the arguments",
    "Context.description": "What the value is",
    "Context.value": "The value, as text",
    "ResumeEntry.interruptId": "The interrupt that is answered",
    "ResumeEntry.status": "Whether the interrupt is answered or declined",
    "ResumeEntry.payload": "The answer",
    "RunAgentInput.messages": "The whole history for the agent",
    "RunAgentInput.tools": "The tools that the front end offers",
    "RunAgentInput.context": "What else the model should know",
    "RunAgentInput.forwardedProps": "Data of the application for the agent",
    "RunAgentInput.resume": "Answers to interrupts",
    "RunAgentInput.state": "The state that the run starts with",
    "Interrupt.reason": "Why the run stopped, such as `tool_call`",
    "Interrupt.message": "The question, for users",
    "Interrupt.toolCallId": "The call that needs approval",
    "Interrupt.responseSchema": "A JSON Schema of the answer",
    "Interrupt.expiresAt": "When it can no longer be answered (ISO 8601)",
    "RunFinishedSuccessOutcome.pendingToolCallIds": "The calls that the front end has to answer",
    "RunFinishedInterruptOutcome.interrupts": "The questions, at least one",
    "SubagentFinishedSuspendedOutcome.interruptIds": "The interrupts that it waits for",
    "TokenUsage.inputTokens": "All input tokens, cached ones included",
    "TokenUsage.outputTokens": "All output tokens, reasoning included",
    "TokenUsage.totalTokens": "Input and output together",
    "TokenUsage.reasoningTokens": "Output tokens that were reasoning",
    "TokenUsage.cachedInputTokens": "Input tokens that were read from a cache",
    "TokenUsage.cacheWriteInputTokens": "Input tokens that were written to a cache",
    "IdentityCapabilities.type": "The kind of agent, such as `langgraph`",
    "IdentityCapabilities.version": "The version of the agent",
    "IdentityCapabilities.documentationUrl": "Where it is documented",
    "TransportCapabilities.streaming": "Events are streamed as they happen",
    "TransportCapabilities.websocket": "WebSocket connections",
    "TransportCapabilities.httpBinary": "Protobuf over HTTP",
    "TransportCapabilities.pushNotifications": "Notifications of finished runs",
    "TransportCapabilities.resumable": "A broken stream can be continued",
    "ToolsCapabilities.items": "The agent's own tools",
    "ToolsCapabilities.parallelCalls": "Several calls at once",
    "ToolsCapabilities.clientProvided": "Tools of the front end",
    "OutputCapabilities.structuredOutput": "JSON by a schema",
    "OutputCapabilities.supportedMimeTypes": "The media types that it produces",
    "StateCapabilities.snapshots": "STATE_SNAPSHOT events",
    "StateCapabilities.deltas": "STATE_DELTA events",
    "StateCapabilities.memory": "It remembers things between threads",
    "StateCapabilities.persistentState": "The state is kept between runs",
    "MultiAgentCapabilities.delegation": "It delegates work to other agents",
    "MultiAgentCapabilities.handoffs": "It hands the conversation to other agents",
    "MultiAgentCapabilities.subagents": "The subagents that it can invoke",
    "ReasoningCapabilities.streaming": "Reasoning is streamed",
    "ReasoningCapabilities.encrypted": "Reasoning is sent encrypted",
    "MultimodalInputCapabilities.image": "Images",
    "MultimodalInputCapabilities.audio": "Audio",
    "MultimodalInputCapabilities.video": "Video",
    "MultimodalInputCapabilities.pdf": "PDF documents",
    "MultimodalInputCapabilities.file": "Other files",
    "MultimodalOutputCapabilities.image": "Images",
    "MultimodalOutputCapabilities.audio": "Audio",
    "MultimodalCapabilities.input": "What it can read",
    "MultimodalCapabilities.output": "What it can produce",
    "ExecutionCapabilities.codeExecution": "It runs code",
    "ExecutionCapabilities.sandboxed": "The code runs in a sandbox",
    "ExecutionCapabilities.maxIterations": "The most rounds of model and tools in a run",
    "ExecutionCapabilities.maxExecutionTime": "The longest run, in milliseconds",
    "HumanInTheLoopCapabilities.approvals": "It asks before it acts",
    "HumanInTheLoopCapabilities.interventions": "A person can step in during a run",
    "HumanInTheLoopCapabilities.feedback": "It takes feedback",
    "HumanInTheLoopCapabilities.interrupts": "Runs may end with interrupts",
    "HumanInTheLoopCapabilities.approveWithEdits": "An approval may change the arguments",
    "AgentCapabilities.identity": "Name and version",
    "AgentCapabilities.transport": "Transports",
    "AgentCapabilities.tools": "Tools",
    "AgentCapabilities.output": "Output besides text",
    "AgentCapabilities.state": "State",
    "AgentCapabilities.multiAgent": "Work with other agents",
    "AgentCapabilities.reasoning": "Reasoning",
    "AgentCapabilities.multimodal": "Media",
    "AgentCapabilities.execution": "Code, and limits",
    "AgentCapabilities.humanInTheLoop": "People in the loop",
    "AgentCapabilities.custom": "Anything else",
    "AddOperation.value": "The value to add",
    "ReplaceOperation.value": "The new value",
    "TestOperation.value": "The value that the path must have",
    "BinaryInputContent.url": "The URL of the bytes",
    "BinaryInputContent.data": "The bytes in base64",
    "BinaryInputContent.filename": "The name of the file",
    "BinaryInputContent.id": "The id of the file",
    "ThinkingStartEvent.title": "The title of the span",
    "MetaEvent.metaType": "The kind of note",
    "MetaEvent.payload": "The note",
}

_EVERY_EVENT: Final = "ENV-1 ENV-2 ENV-6 META-1"
_TAGGED: Final = "ENV-5 SUB-1 SUB-8"

GOVERNED_BY: Final[dict[str, str]] = {
    "BaseEvent": _EVERY_EVENT,
    "AttributableEvent": f"{_EVERY_EVENT} {_TAGGED}",
    "RunStartedEvent": "LIFE-1 LIFE-2 LIFE-17 VER-2 IN-3 ENV-11",
    "RunFinishedEvent": "LIFE-3 LIFE-6 LIFE-8 LIFE-15 IN-3 INT-1 FT-2 USE-7",
    "RunErrorEvent": "LIFE-13 LIFE-14 LIFE-15 LIFE-16 LIFE-21",
    "StepStartedEvent": "STEP-1 STEP-2",
    "StepFinishedEvent": "STEP-2 STEP-4",
    "TextMessageStartEvent": "STR-1 TXT-2 TXT-3 META-5",
    "TextMessageContentEvent": "STR-2 META-5",
    "TextMessageEndEvent": "STR-2 STR-3",
    "TextMessageChunkEvent": "CHK-1 CHK-3 CHK-5 CHK-6 CHK-7 CHK-8 CHK-10",
    "ToolCallStartEvent": "STR-1 TOOL-2 TOOL-4 FT-6",
    "ToolCallArgsEvent": "STR-2 TOOL-3",
    "ToolCallEndEvent": "STR-2 STR-3 TOOL-3",
    "ToolCallChunkEvent": "CHK-1 CHK-3 CHK-5 CHK-6 CHK-7 CHK-8 CHK-10",
    "ToolCallResultEvent": "TOOL-5 TOOL-6 TOOL-7 FT-1",
    "ReasoningStartEvent": "RSN-1 RSN-2",
    "ReasoningMessageStartEvent": "RSN-2 RSN-3 RSN-4",
    "ReasoningMessageContentEvent": "RSN-4",
    "ReasoningMessageEndEvent": "RSN-4",
    "ReasoningMessageChunkEvent": "CHK-1 CHK-3 CHK-5 CHK-6 CHK-7 CHK-8 CHK-10",
    "ReasoningEndEvent": "RSN-1 RSN-2",
    "ReasoningEncryptedValueEvent": "ENC-1 ENC-2 ENC-4 ENC-5 ENC-6 ENC-7 ENC-9",
    "StateSnapshotEvent": "STATE-1 SNAP-1 SNAP-2 ENV-7",
    "StateDeltaEvent": "STATE-2 SNAP-3 SNAP-4 SNAP-7 SNAP-8 SNAP-9 SNAP-11",
    "MessagesSnapshotEvent": "MSGS-1 MSGS-2 MSGS-3 SNAP-2 LIFE-19",
    "ActivitySnapshotEvent": "ACT-4 ACT-5 ACT-6",
    "ActivityDeltaEvent": "ACT-7 ACT-8 ACT-9 ACT-10 SNAP-3",
    "SubagentStartedEvent": "SUB-2 SUB-3 SUB-11 SUB-12",
    "SubagentFinishedEvent": "SUB-4 SUB-7 SUB-14",
    "SubagentErrorEvent": "SUB-4 SUB-6",
    "RawEvent": "PASS-2 PASS-3",
    "CustomEvent": "PASS-4",
    "FunctionCall": "TOOL-3",
    "ToolCall": "TOOL-2 TOOL-3 TOOL-4 ENC-1",
    "BaseMessage": "ENV-12 META-1",
    "DeveloperMessage": "ENV-12 ENC-1",
    "SystemMessage": "ENV-12 ENC-1",
    "AssistantMessage": "ENV-12 MSG-3 ENC-1",
    "UserMessage": "ENV-12 IN-6 ENC-1",
    "ToolMessage": "ENV-12 MSG-1 TOOL-5 TOOL-6 FT-5",
    "ActivityMessage": "ENV-12 IN-7 ACT-8",
    "ReasoningMessage": "ENV-12 RSN-4 ENC-1",
    "DataSource": "MSG-2",
    "UrlSource": "IN-6",
    "FileSource": "IN-8",
    "TextPart": "IN-6",
    "ImagePart": "IN-6 IN-8",
    "AudioPart": "IN-6 IN-8",
    "VideoPart": "IN-6 IN-8",
    "DocumentPart": "IN-6 IN-8",
    "Tool": "FT-1 FT-6 IN-9",
    "Context": "IN-9 IN-10",
    "ResumeEntry": "INT-7 INT-8 INT-9 INT-10 INT-14 AMB-9",
    "RunAgentInput": "IN-1 IN-3 IN-5 IN-9 IN-11 IN-15 VER-1 INT-8 INT-11 ENV-10 ENV-11",
    "Interrupt": "INT-3 INT-4 INT-9 INT-15",
    "RunFinishedSuccessOutcome": "LIFE-3 FT-2 FT-3 FT-4",
    "RunFinishedInterruptOutcome": "INT-1 INT-3",
    "RunFinishedCancelledOutcome": "LIFE-8 LIFE-10 LIFE-11",
    "SubagentFinishedSuccessOutcome": "SUB-7",
    "SubagentFinishedSuspendedOutcome": "SUB-7",
    "TokenUsage": "USE-1 USE-2 USE-3 USE-5 USE-6 USE-7 USE-9",
    "AddOperation": "SNAP-3 SNAP-7 SNAP-8",
    "RemoveOperation": "SNAP-3 SNAP-7 SNAP-8",
    "ReplaceOperation": "SNAP-3 SNAP-7 SNAP-8",
    "MoveOperation": "SNAP-3 SNAP-7 SNAP-8 SNAP-11",
    "CopyOperation": "SNAP-3 SNAP-7 SNAP-8",
    "TestOperation": "SNAP-3 SNAP-7 SNAP-8",
    "BinaryInputContent": "ERA-1 ERA-3",
    "MetaEvent": "ERA-1",
}
"""Type -> the ids of its rules. Capabilities and THINKING events have one rule each."""


def rules_of(name: str) -> str:
    """Return the rule ids of a type."""
    if name.startswith("Thinking"):
        return "ERA-1 ERA-2"
    if name.endswith("Capabilities") or name == "SubagentInfo":
        return "CAP-2"
    return GOVERNED_BY[name]


# Types in words


def types_of(module: ModuleType) -> list[type[Any]]:
    """Return the public types that a module defines, in order."""
    return [
        value
        for name, value in vars(module).items()
        if isinstance(value, type)
        and value.__module__ == module.__name__
        and not name.startswith("_")
        and (issubclass(value, msgspec.Struct) or "Operation" in name)
    ]


PAGE_OF: Final = {
    kind.__name__: page for page, (_, _, modules) in PAGES.items() for module in modules for kind in types_of(module)
}


def describe(kind: Any, page: str) -> str:
    """Return a type in words, with links to the types of these pages."""
    origin = get_origin(kind)
    if kind in (Any, _base.AnyJSON):
        return "any JSON" if kind is Any else "any JSON but null"
    if origin is Annotated:
        return describe(get_args(kind)[0], page)
    if origin is Literal:
        return " or ".join(f"`{value}`" for value in get_args(kind))
    if origin in (Union, UnionType):
        members = [member for member in get_args(kind) if member is not _base.Phantom and member is not type(None)]
        if set(members) == set(get_args(messages.Message)):
            return "[message](messages.md)"
        if set(members) == set(get_args(parts.ContentPart)):
            return "[part](parts.md)"
        if set(members) == set(get_args(_base.AnyJSON)):
            return "any JSON but null"
        return " or ".join(describe(member, page) for member in members)
    if origin is list:
        items = get_args(kind)[0]
        return "list of " + ("operations" if items == dict[str, Any] and page == "events" else describe(items, page))
    if origin is dict or kind is dict:
        return "object"
    if isinstance(kind, type) and kind.__name__ in PAGE_OF:
        target = PAGE_OF[kind.__name__]
        return f"[{kind.__name__}]({'' if target == page else target + '.md'}#{kind.__name__.lower()})"
    return {str: "string", int: "integer", bool: "boolean", float: "number"}[kind]


class Member(msgspec.Struct, frozen=True):
    """A member of a type: its names in JSON and Python, its type in words, and whether it may be absent."""

    json_name: str
    python_name: str
    kind: str
    is_optional: bool
    meaning: str


def members_of(kind: type[Any], page: str) -> list[Member]:
    """Return the members of a type, the discriminator first."""
    hints = get_type_hints(kind, include_extras=True)
    if not issubclass(kind, msgspec.Struct):
        return [
            Member(name, name, describe(hint, page), False, meaning_of(kind.__name__, name))
            for name, hint in hints.items()
        ]
    found: list[Member] = []
    config = kind.__struct_config__
    if config.tag is not None and kind not in (events.BaseEvent, events.AttributableEvent):
        field = config.tag_field or "type"
        found.append(Member(field, field, f"`{config.tag}`", False, "What it is"))
    for field in msgspec.structs.fields(kind):
        # The constructor may omit this role; the wire may not (RSN-3).
        is_optional = not field.required and (kind, field.name) != (events.ReasoningMessageStartEvent, "role")
        meaning = meaning_of(kind.__name__, field.encode_name)
        found.append(Member(field.encode_name, field.name, describe(hints[field.name], page), is_optional, meaning))
    if kind in (events.BaseEvent, events.AttributableEvent, messages.BaseMessage):
        return found
    return sorted(found, key=lambda member: member.json_name in SHARED)


def meaning_of(kind: str, member: str) -> str:
    """Return what a member means. Raises ``KeyError`` if no table has it."""
    return MEANINGS.get(f"{kind}.{member}") or COMMON[member]


# Examples

SAMPLES: Final[dict[str, Any]] = {
    "threadId": "thread-1", "runId": "run-2", "parentRunId": "run-1", "protocolVersion": "1.1", "messageId": "msg-1",
    "toolCallId": "call-1", "toolCallName": "get_weather", "parentMessageId": "msg-1", "stepName": "search",
    "activityType": "PLAN", "subagentRunId": "sub-1", "interruptId": "int-1", "entityId": "msg-1", "id": "msg-1",
    "mimeType": "image/png", "op": "add", "path": "/city", "from": "/town", "timestamp": 1767225600000,
    "expiresAt": "2026-12-31T23:59:59Z", "arguments": '{"city":"Lisbon"}', "encryptedValue": "b3BhcXVl",
    "subtype": "message", "status": "resolved", "reason": "confirmation", "model": "gpt-5", "provider": "openai",
    "name": "get_weather", "description": "The weather of a city", "text": "What is shown here?", "version": "1.0.0",
    "documentationUrl": "https://example.com/docs", "code": "quota", "metaType": "thumbs_up", "title": "Thinking",
    "filename": "photo.png", "url": "https://example.com/photo.png", "data": "iVBORw0KGgo=",
}  # fmt: skip
"""Values for examples, by JSON name."""

SPECIAL: Final[dict[str, Any]] = {
    "DataSource.value": "iVBORw0KGgo=",
    "UrlSource.value": "https://example.com/photo.png",
    "FileSource.value": "file-1",
    "StateDeltaEvent.delta": [{"op": "add", "path": "/city", "value": "Lisbon"}],
    "ActivityDeltaEvent.patch": [{"op": "replace", "path": "/done", "value": True}],
    "ToolCallArgsEvent.delta": '{"city":',
    "ToolCallChunkEvent.delta": '{"city":',
    "StateSnapshotEvent.snapshot": {"city": "Lisbon"},
    "ActivitySnapshotEvent.content": {"done": False},
    "ActivityMessage.content": {"done": False},
    "CustomEvent.name": "progress",
    "CustomEvent.value": {"percent": 40},
    "RawEvent.event": {"id": "chatcmpl-1"},
    "RunErrorEvent.message": "The model is not available.",
    "SubagentErrorEvent.message": "The search failed.",
    "SubagentStartedEvent.name": "researcher",
    "SubagentStartedEvent.subagentRunId": "sub-1",
    "ToolMessage.content": '{"temperature":21}',
    "ToolCallResultEvent.content": '{"temperature":21}',
    "UserMessage.content": "What is the weather in Lisbon?",
    "AssistantMessage.content": "It is sunny.",
    "DeveloperMessage.name": "The sender",
    "SystemMessage.name": "The sender",
    "AssistantMessage.name": "The sender",
    "UserMessage.name": "The sender",
    "TextMessageStartEvent.name": "The sender",
    "TextMessageChunkEvent.name": "The sender",
    "DeveloperMessage.content": "Answer in one sentence.",
    "SystemMessage.content": "You are a helpful assistant.",
    "ReasoningMessage.content": "The user asks about the weather.",
    "Context.description": "The city of the user",
    "Context.value": "Lisbon",
    "Interrupt.message": "Book this flight?",
    "Interrupt.id": "int-1",
    "BinaryInputContent.id": "file-1",
    "SubagentInfo.name": "researcher",
    "RunFinishedSuccessOutcome.pendingToolCallIds": ["call-1"],
    "SubagentFinishedSuspendedOutcome.interruptIds": ["int-1"],
    "ToolCall.id": "call-1",
    "IdentityCapabilities.name": "Travel agent",
    "Tool.parameters": {"type": "object", "properties": {"city": {"type": "string"}}},
    "TokenUsage.inputTokens": 120,
    "TokenUsage.outputTokens": 30,
}
"""Values for examples that differ by type. An optional member is in an example if it is here or in ``SHOWN``."""

SHOWN: Final = frozenset({
    "RunStartedEvent.protocolVersion", "RunFinishedEvent.outcome", "RunErrorEvent.code", "AssistantMessage.toolCalls",
    "TextMessageChunkEvent.messageId", "TextMessageChunkEvent.delta", "ToolCallChunkEvent.toolCallId",
    "ToolCallChunkEvent.toolCallName", "ReasoningMessageChunkEvent.messageId", "ReasoningMessageChunkEvent.delta",
    "ToolCallStartEvent.parentMessageId", "ReasoningMessageStartEvent.role", "RunAgentInput.tools",
    "ResumeEntry.payload",
    "TokenUsage.provider", "TokenUsage.model", "UrlSource.mimeType", "FileSource.provider", "Tool.description",
    "BinaryInputContent.mimeType", "ThinkingStartEvent.title", "MetaEvent.payload",
    "SubagentFinishedEvent.result", "DeveloperMessage.id", "SystemMessage.id", "AssistantMessage.id", "UserMessage.id",
    "ToolMessage.id", "ActivityMessage.id", "ReasoningMessage.id",
})  # fmt: skip
"""Optional members that an example has."""


def sample(kind: Any, owner: str, name: str) -> Any:
    """Return a value for a member in an example."""
    if f"{owner}.{name}" in SPECIAL:
        return SPECIAL[f"{owner}.{name}"]
    origin, arguments = get_origin(kind), get_args(kind)
    if origin is Annotated:
        return sample(arguments[0], owner, name)
    if origin is Literal:
        return arguments[0]
    if isinstance(kind, type) and issubclass(kind, msgspec.Struct):
        return example(kind)
    if origin is list:
        return [sample(arguments[0], owner, name)]
    if origin in (Union, UnionType):
        if set(arguments) == set(get_args(_base.AnyJSON)):
            return {"approved": True}
        if set(arguments) == set(get_args(messages.Message)):
            return example(messages.UserMessage)
        return sample(arguments[0], owner, name)
    if kind is str:
        return SAMPLES.get(name, "Hello")
    if kind is bool:
        return True
    return 1 if kind is int else {"key": "value"}


def example(kind: type[Any]) -> Any:
    """Return a small valid value of a type."""
    hints = get_type_hints(kind, include_extras=True)
    if not issubclass(kind, msgspec.Struct):
        return {name: sample(hint, kind.__name__, name) for name, hint in hints.items()}
    values: dict[str, Any] = {}
    is_capability = kind.__module__ == capabilities.__name__
    for field in msgspec.structs.fields(kind):
        key = f"{kind.__name__}.{field.encode_name}"
        if field.required or key in SPECIAL or key in SHOWN or (is_capability and not values):
            values[field.name] = sample(hints[field.name], kind.__name__, field.encode_name)
    return kind(**values)


# Pages


def write_type(kind: type[Any], page: str) -> list[str]:
    """Return the section of a type."""
    known = RULES.read_text()
    links: list[str] = []
    for rule in rules_of(kind.__name__).split():
        if f"`{rule}`" in known:
            links.append(f"[{rule}](../rules.md#{rule.lower()})")
        else:
            links.append(rule)
    text = " ".join((kind.__doc__ or "").replace("``", "`").split())
    lines = [f"## {kind.__name__}", "", text, ""]
    rows = members_of(kind, page)
    if rows:
        lines += ["| member | in Python | type | optional | meaning |", "|---|---|---|---|---|"]
        for row in rows:
            optional = "yes" if row.is_optional else "no"
            lines.append(f"| `{row.json_name}` | `{row.python_name}` | {row.kind} | {optional} | {row.meaning} |")
        lines.append("")
    if kind not in (events.BaseEvent, events.AttributableEvent, messages.BaseMessage):
        value = example(kind)
        text = json.dumps(
            json.loads(encode(value) if isinstance(value, msgspec.Struct) else json.dumps(value)), indent=2
        )
        lines += ["```json", text, "```", ""]
    return [*lines, f"Rules: {', '.join(links)}", ""]


def write_page(page: str) -> str:
    """Return a page."""
    title, introduction, modules = PAGES[page]
    lines = [f"# {title}", "", introduction, "", "<!-- Written by scripts/reference.py. -->", ""]
    kinds = [kind for module in modules for kind in types_of(module)]
    lines += [", ".join(f"[{kind.__name__}](#{kind.__name__.lower()})" for kind in kinds), ""]
    for kind in kinds:
        lines += write_type(kind, page)
    return "\n".join(lines).rstrip() + "\n"


def write_index() -> str:
    """Return the page that lists the others."""
    lines = [
        "# Protocol types",
        "",
        "Every type of `aguila.protocol`, with its JSON, and the Python of `aguila.chat` and `aguila.codec`.",
        "",
        "<!-- Written by scripts/reference.py. -->",
        "",
    ]
    pages = PAGES | reference_python.PAGES
    lines += [f"- [{title}]({page}.md): {introduction}" for page, (title, introduction, _) in pages.items()]
    lines += [
        "",
        "The state of a thread is any JSON value: the agent defines its schema, and the protocol only carries it.",
        "",
    ]
    return "\n".join(lines)


def main() -> None:
    """Write the pages, or check them."""
    pages = {f"{page}.md": write_page(page) for page in PAGES}
    pages |= {f"{name}.md": reference_python.write_page(*page) for name, page in reference_python.PAGES.items()}
    pages["README.md"] = write_index()
    stale = [
        name for name, text in pages.items() if not (FOLDER / name).exists() or (FOLDER / name).read_text() != text
    ]
    if "--check" in sys.argv:
        if stale:
            sys.exit(f"docs/reference is out of date ({', '.join(stale)}): run python scripts/reference.py")
        return
    FOLDER.mkdir(exist_ok=True)
    for name in stale:
        (FOLDER / name).write_text(pages[name])


if __name__ == "__main__":
    main()
