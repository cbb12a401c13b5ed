"""The 31 events (ENV, and the rule family above each group).

Every event has ``type``, and may have ``timestamp`` (milliseconds by convention; the order of arrival counts, ENV-2),
``raw_event`` (the provider's event, without protocol meaning) and ``metadata``. ``subagent_run_id`` is the subagent
invocation that produced an event; absent means the agent itself (SUB-1).
"""

from __future__ import annotations

from enum import StrEnum
from typing import Any, ClassVar, Literal

import msgspec

from aguila.protocol._base import AnyJSON, Maybe, Metadata, SafeInt, Wire
from aguila.protocol.messages import Message, TextMessageRole
from aguila.protocol.parts import ContentPart
from aguila.protocol.patch import JsonPatchOperation
from aguila.protocol.run import (
    RunAgentInput,
    RunFinishedOutcome,
    SubagentFinishedOutcome,
    TokenUsage,
)

ReasoningEncryptedValueSubtype = Literal["message", "tool-call"]
"""The kind of entity that an encrypted value belongs to."""

ReasoningMessageRole = Literal["reasoning"]
"""The only role of a reasoning message."""

# REASONING_MESSAGE_START.role has one value. It is required on the wire (RSN-3) and optional in the constructor. The
# default is a separate string object (joined, so not interned): by its identity the decoder finds that a peer omitted
# the role. msgspec has no "required when decoding, optional when constructing".
IMPLIED_REASONING_ROLE: ReasoningMessageRole = "".join(("reason", "ing"))  # type: ignore[assignment]


class EventType(StrEnum):
    """The event types of the protocol."""

    RUN_STARTED = "RUN_STARTED"
    RUN_FINISHED = "RUN_FINISHED"
    RUN_ERROR = "RUN_ERROR"
    STEP_STARTED = "STEP_STARTED"
    STEP_FINISHED = "STEP_FINISHED"

    TEXT_MESSAGE_START = "TEXT_MESSAGE_START"
    TEXT_MESSAGE_CONTENT = "TEXT_MESSAGE_CONTENT"
    TEXT_MESSAGE_END = "TEXT_MESSAGE_END"
    TEXT_MESSAGE_CHUNK = "TEXT_MESSAGE_CHUNK"

    TOOL_CALL_START = "TOOL_CALL_START"
    TOOL_CALL_ARGS = "TOOL_CALL_ARGS"
    TOOL_CALL_END = "TOOL_CALL_END"
    TOOL_CALL_CHUNK = "TOOL_CALL_CHUNK"
    TOOL_CALL_RESULT = "TOOL_CALL_RESULT"

    REASONING_START = "REASONING_START"
    REASONING_MESSAGE_START = "REASONING_MESSAGE_START"
    REASONING_MESSAGE_CONTENT = "REASONING_MESSAGE_CONTENT"
    REASONING_MESSAGE_END = "REASONING_MESSAGE_END"
    REASONING_MESSAGE_CHUNK = "REASONING_MESSAGE_CHUNK"
    REASONING_END = "REASONING_END"
    REASONING_ENCRYPTED_VALUE = "REASONING_ENCRYPTED_VALUE"

    STATE_SNAPSHOT = "STATE_SNAPSHOT"
    STATE_DELTA = "STATE_DELTA"
    MESSAGES_SNAPSHOT = "MESSAGES_SNAPSHOT"

    ACTIVITY_SNAPSHOT = "ACTIVITY_SNAPSHOT"
    ACTIVITY_DELTA = "ACTIVITY_DELTA"

    SUBAGENT_STARTED = "SUBAGENT_STARTED"
    SUBAGENT_FINISHED = "SUBAGENT_FINISHED"
    SUBAGENT_ERROR = "SUBAGENT_ERROR"

    RAW = "RAW"
    CUSTOM = "CUSTOM"


def _tag(class_name: str) -> str:
    """Convert ``TextMessageStartEvent`` to ``TEXT_MESSAGE_START``."""
    name = class_name.removesuffix("Event")
    return "".join("_" + c if c.isupper() and i else c for i, c in enumerate(name)).upper()


class BaseEvent(Wire, tag_field="type", tag=_tag, frozen=True, kw_only=True, gc=False):
    """The optional fields of every event."""

    timestamp: Maybe[SafeInt] = None
    raw_event: Maybe[AnyJSON] = None
    metadata: Maybe[Metadata] = None


class AttributableEvent(BaseEvent, frozen=True, kw_only=True):
    """An event that may come from a subagent (ENV-5)."""

    subagent_run_id: Maybe[str] = None


# Run lifecycle (LIFE)


class RunStartedEvent(BaseEvent, frozen=True, kw_only=True):
    """Starts a run and declares the producer's protocol version. Only RUN_ERROR may come before it (LIFE-1)."""

    type: ClassVar[Literal[EventType.RUN_STARTED]] = EventType.RUN_STARTED
    thread_id: str
    run_id: str
    protocol_version: Maybe[str] = None
    parent_run_id: Maybe[str] = None
    input: Maybe[RunAgentInput] = None


class RunFinishedEvent(BaseEvent, frozen=True, kw_only=True):
    """Ends a run that did not fail. All its items are closed before (LIFE-6)."""

    type: ClassVar[Literal[EventType.RUN_FINISHED]] = EventType.RUN_FINISHED
    thread_id: str
    run_id: str
    result: Maybe[AnyJSON] = None
    outcome: Maybe[RunFinishedOutcome] = None
    usage: Maybe[list[TokenUsage]] = None


class RunErrorEvent(BaseEvent, frozen=True, kw_only=True):
    """Ends a failed run and its open items (LIFE-13). ``message`` is meant for users."""

    type: ClassVar[Literal[EventType.RUN_ERROR]] = EventType.RUN_ERROR
    message: str
    code: Maybe[str] = None
    usage: Maybe[list[TokenUsage]] = None


class StepStartedEvent(AttributableEvent, frozen=True, kw_only=True):
    """Starts a named step. Each owner may have one open step of a name (STEP-1)."""

    type: ClassVar[Literal[EventType.STEP_STARTED]] = EventType.STEP_STARTED
    step_name: str


class StepFinishedEvent(AttributableEvent, frozen=True, kw_only=True):
    """Ends a step of the same owner (STEP-4)."""

    type: ClassVar[Literal[EventType.STEP_FINISHED]] = EventType.STEP_FINISHED
    step_name: str


# Text messages (TXT)


class TextMessageStartEvent(AttributableEvent, frozen=True, kw_only=True):
    """Starts a text message. Without a role it is an assistant message (TXT-2)."""

    type: ClassVar[Literal[EventType.TEXT_MESSAGE_START]] = EventType.TEXT_MESSAGE_START
    message_id: str
    role: Maybe[TextMessageRole] = None
    name: Maybe[str] = None


class TextMessageContentEvent(AttributableEvent, frozen=True, kw_only=True):
    """Appends text to an open message. An empty delta is allowed."""

    type: ClassVar[Literal[EventType.TEXT_MESSAGE_CONTENT]] = EventType.TEXT_MESSAGE_CONTENT
    message_id: str
    delta: str


class TextMessageEndEvent(AttributableEvent, frozen=True, kw_only=True):
    """Ends a text message."""

    type: ClassVar[Literal[EventType.TEXT_MESSAGE_END]] = EventType.TEXT_MESSAGE_END
    message_id: str


class TextMessageChunkEvent(AttributableEvent, frozen=True, kw_only=True):
    """Start, content and end in one event, which the receiver expands (CHK-1). The first chunk has the message id."""

    type: ClassVar[Literal[EventType.TEXT_MESSAGE_CHUNK]] = EventType.TEXT_MESSAGE_CHUNK
    message_id: Maybe[str] = None
    role: Maybe[TextMessageRole] = None
    delta: Maybe[str] = None
    name: Maybe[str] = None


# Tool calls (TOOL)


class ToolCallStartEvent(AttributableEvent, frozen=True, kw_only=True):
    """Starts a tool call on its parent message."""

    type: ClassVar[Literal[EventType.TOOL_CALL_START]] = EventType.TOOL_CALL_START
    tool_call_id: str
    tool_call_name: str
    parent_message_id: Maybe[str] = None


class ToolCallArgsEvent(AttributableEvent, frozen=True, kw_only=True):
    """Appends text to the arguments of a call."""

    type: ClassVar[Literal[EventType.TOOL_CALL_ARGS]] = EventType.TOOL_CALL_ARGS
    tool_call_id: str
    delta: str


class ToolCallEndEvent(AttributableEvent, frozen=True, kw_only=True):
    """Ends a tool call. Its arguments are complete, but may be invalid (TOOL-3)."""

    type: ClassVar[Literal[EventType.TOOL_CALL_END]] = EventType.TOOL_CALL_END
    tool_call_id: str


class ToolCallChunkEvent(AttributableEvent, frozen=True, kw_only=True):
    """Start, arguments and end in one event (CHK-1). The first chunk has the call id and the tool name."""

    type: ClassVar[Literal[EventType.TOOL_CALL_CHUNK]] = EventType.TOOL_CALL_CHUNK
    tool_call_id: Maybe[str] = None
    tool_call_name: Maybe[str] = None
    parent_message_id: Maybe[str] = None
    delta: Maybe[str] = None


class ToolCallResultEvent(AttributableEvent, frozen=True, kw_only=True):
    """The result of a call, as a tool message with its own id (TOOL-5)."""

    type: ClassVar[Literal[EventType.TOOL_CALL_RESULT]] = EventType.TOOL_CALL_RESULT
    message_id: str
    tool_call_id: str
    content: str | list[ContentPart]
    role: Maybe[Literal["tool"]] = None


# Reasoning (RSN, ENC)


class ReasoningStartEvent(AttributableEvent, frozen=True, kw_only=True):
    """Starts a reasoning span. The span is not a message, and its id has its own namespace (RSN-2)."""

    type: ClassVar[Literal[EventType.REASONING_START]] = EventType.REASONING_START
    message_id: str


class ReasoningMessageStartEvent(AttributableEvent, frozen=True, kw_only=True):
    """Starts a reasoning message. Its role is constant, and required on the wire (RSN-3)."""

    type: ClassVar[Literal[EventType.REASONING_MESSAGE_START]] = EventType.REASONING_MESSAGE_START
    message_id: str
    role: ReasoningMessageRole = msgspec.field(default_factory=lambda: IMPLIED_REASONING_ROLE)


class ReasoningMessageContentEvent(AttributableEvent, frozen=True, kw_only=True):
    """Appends text to an open reasoning message."""

    type: ClassVar[Literal[EventType.REASONING_MESSAGE_CONTENT]] = EventType.REASONING_MESSAGE_CONTENT
    message_id: str
    delta: str


class ReasoningMessageEndEvent(AttributableEvent, frozen=True, kw_only=True):
    """Ends a reasoning message."""

    type: ClassVar[Literal[EventType.REASONING_MESSAGE_END]] = EventType.REASONING_MESSAGE_END
    message_id: str


class ReasoningMessageChunkEvent(AttributableEvent, frozen=True, kw_only=True):
    """Start, content and end in one event (CHK-1)."""

    type: ClassVar[Literal[EventType.REASONING_MESSAGE_CHUNK]] = EventType.REASONING_MESSAGE_CHUNK
    message_id: Maybe[str] = None
    delta: Maybe[str] = None


class ReasoningEndEvent(AttributableEvent, frozen=True, kw_only=True):
    """Ends a reasoning span."""

    type: ClassVar[Literal[EventType.REASONING_END]] = EventType.REASONING_END
    message_id: str


class ReasoningEncryptedValueEvent(AttributableEvent, frozen=True, kw_only=True):
    """An opaque value that is stored with a message or tool call, and sent back unchanged (ENC-1)."""

    type: ClassVar[Literal[EventType.REASONING_ENCRYPTED_VALUE]] = EventType.REASONING_ENCRYPTED_VALUE
    subtype: ReasoningEncryptedValueSubtype
    entity_id: str
    encrypted_value: str
    encrypted_value_type: Maybe[str] = None


# State and messages (STATE, MSGS)


class StateSnapshotEvent(AttributableEvent, frozen=True, kw_only=True):
    """Replaces the state. Null is a valid state (STATE-1)."""

    type: ClassVar[Literal[EventType.STATE_SNAPSHOT]] = EventType.STATE_SNAPSHOT
    snapshot: Any


class StateDeltaEvent(AttributableEvent, frozen=True, kw_only=True):
    """Changes the state by a JSON Patch, which applies as a whole or not at all (SNAP-3)."""

    type: ClassVar[Literal[EventType.STATE_DELTA]] = EventType.STATE_DELTA
    delta: list[JsonPatchOperation]


class MessagesSnapshotEvent(BaseEvent, frozen=True, kw_only=True):
    """Replaces the messages: known ids in place, new ones are appended (MSGS-1)."""

    type: ClassVar[Literal[EventType.MESSAGES_SNAPSHOT]] = EventType.MESSAGES_SNAPSHOT
    messages: list[Message]


# Activities (ACT)


class ActivitySnapshotEvent(AttributableEvent, frozen=True, kw_only=True):
    """Creates or replaces an activity message. With ``replace=False`` it only creates (ACT-4)."""

    type: ClassVar[Literal[EventType.ACTIVITY_SNAPSHOT]] = EventType.ACTIVITY_SNAPSHOT
    message_id: str
    activity_type: str
    content: dict[str, Any]
    replace: Maybe[bool] = None


class ActivityDeltaEvent(AttributableEvent, frozen=True, kw_only=True):
    """Changes the content of an activity by a JSON Patch, and its type (ACT-7)."""

    type: ClassVar[Literal[EventType.ACTIVITY_DELTA]] = EventType.ACTIVITY_DELTA
    message_id: str
    activity_type: str
    patch: list[JsonPatchOperation]


# Subagents (SUB)


class SubagentStartedEvent(BaseEvent, frozen=True, kw_only=True):
    """Announces an invocation of a subagent. Its id is used once in a run (SUB-2)."""

    type: ClassVar[Literal[EventType.SUBAGENT_STARTED]] = EventType.SUBAGENT_STARTED
    subagent_run_id: str
    name: str
    description: Maybe[str] = None
    parent_subagent_run_id: Maybe[str] = None
    parent_tool_call_id: Maybe[str] = None
    parent_message_id: Maybe[str] = None


class SubagentFinishedEvent(BaseEvent, frozen=True, kw_only=True):
    """Ends an announced invocation."""

    type: ClassVar[Literal[EventType.SUBAGENT_FINISHED]] = EventType.SUBAGENT_FINISHED
    subagent_run_id: str
    result: Maybe[AnyJSON] = None
    outcome: Maybe[SubagentFinishedOutcome] = None


class SubagentErrorEvent(BaseEvent, frozen=True, kw_only=True):
    """Ends a failed invocation. The run continues (SUB-6)."""

    type: ClassVar[Literal[EventType.SUBAGENT_ERROR]] = EventType.SUBAGENT_ERROR
    subagent_run_id: str
    message: str
    code: Maybe[str] = None


# Passthrough (PASS)


class RawEvent(AttributableEvent, frozen=True, kw_only=True):
    """An event of another system, for information only (PASS-2)."""

    type: ClassVar[Literal[EventType.RAW]] = EventType.RAW
    event: Any
    source: Maybe[str] = None


class CustomEvent(AttributableEvent, frozen=True, kw_only=True):
    """An event that the application defines. Unknown names are ignored (PASS-4)."""

    type: ClassVar[Literal[EventType.CUSTOM]] = EventType.CUSTOM
    name: str
    value: Any


Event = (
    RunStartedEvent
    | RunFinishedEvent
    | RunErrorEvent
    | StepStartedEvent
    | StepFinishedEvent
    | TextMessageStartEvent
    | TextMessageContentEvent
    | TextMessageEndEvent
    | TextMessageChunkEvent
    | ToolCallStartEvent
    | ToolCallArgsEvent
    | ToolCallEndEvent
    | ToolCallChunkEvent
    | ToolCallResultEvent
    | ReasoningStartEvent
    | ReasoningMessageStartEvent
    | ReasoningMessageContentEvent
    | ReasoningMessageEndEvent
    | ReasoningMessageChunkEvent
    | ReasoningEndEvent
    | ReasoningEncryptedValueEvent
    | StateSnapshotEvent
    | StateDeltaEvent
    | MessagesSnapshotEvent
    | ActivitySnapshotEvent
    | ActivityDeltaEvent
    | SubagentStartedEvent
    | SubagentFinishedEvent
    | SubagentErrorEvent
    | RawEvent
    | CustomEvent
)
"""Any event, identified by its type."""
