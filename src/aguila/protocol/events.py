"""Layer: protocol. The 31 events (ENV, and the family named above each group).

Every event has ``type``, and may have ``timestamp`` (integer milliseconds by convention; arrival order
is the order, ENV-2), ``raw_event`` (provenance, without protocol meaning) and ``metadata``.
``subagent_run_id`` says which invocation produced an event; absent means the agent itself (SUB-1).
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
"""What kind of thing an encrypted value belongs to."""

ReasoningMessageRole = Literal["reasoning"]
"""The one role of a reasoning message."""

# REASONING_MESSAGE_START.role has one value, is required on the wire (RSN-3) and implied in a constructor.
# The implied value is an object of its own (joined, so not interned): the decoder tells by identity that a
# peer left the role out. msgspec has no "required when decoding, defaulted when constructing".
IMPLIED_REASONING_ROLE: ReasoningMessageRole = "".join(("reason", "ing"))  # type: ignore[assignment]


class EventType(StrEnum):
    """The type of every event of the protocol."""

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
    """``TextMessageStartEvent`` -> ``TEXT_MESSAGE_START``."""
    name = class_name.removesuffix("Event")
    return "".join("_" + c if c.isupper() and i else c for i, c in enumerate(name)).upper()


class BaseEvent(Wire, tag_field="type", tag=_tag, frozen=True, kw_only=True, gc=False):
    """What every event may carry."""

    timestamp: Maybe[SafeInt] = None
    raw_event: Maybe[AnyJSON] = None
    metadata: Maybe[Metadata] = None


class AttributableEvent(BaseEvent, frozen=True, kw_only=True):
    """An event that a subagent may have produced (ENV-5)."""

    subagent_run_id: Maybe[str] = None


# run lifecycle (LIFE)


class RunStartedEvent(BaseEvent, frozen=True, kw_only=True):
    """Opens a run and declares the producer's version. Only RUN_ERROR may come before it (LIFE-1)."""

    type: ClassVar[Literal[EventType.RUN_STARTED]] = EventType.RUN_STARTED
    thread_id: str
    run_id: str
    protocol_version: Maybe[str] = None
    parent_run_id: Maybe[str] = None
    input: Maybe[RunAgentInput] = None


class RunFinishedEvent(BaseEvent, frozen=True, kw_only=True):
    """Closes a run that did not fail; everything it opened is closed before (LIFE-6)."""

    type: ClassVar[Literal[EventType.RUN_FINISHED]] = EventType.RUN_FINISHED
    thread_id: str
    run_id: str
    result: Maybe[AnyJSON] = None
    outcome: Maybe[RunFinishedOutcome] = None
    usage: Maybe[list[TokenUsage]] = None


class RunErrorEvent(BaseEvent, frozen=True, kw_only=True):
    """Ends a failed run, with whatever it had open (LIFE-13). ``message`` is for people."""

    type: ClassVar[Literal[EventType.RUN_ERROR]] = EventType.RUN_ERROR
    message: str
    code: Maybe[str] = None
    usage: Maybe[list[TokenUsage]] = None


class StepStartedEvent(AttributableEvent, frozen=True, kw_only=True):
    """Opens a named stretch of the run. Names are open once per owner (STEP-1)."""

    type: ClassVar[Literal[EventType.STEP_STARTED]] = EventType.STEP_STARTED
    step_name: str


class StepFinishedEvent(AttributableEvent, frozen=True, kw_only=True):
    """Closes a step of the same owner (STEP-4)."""

    type: ClassVar[Literal[EventType.STEP_FINISHED]] = EventType.STEP_FINISHED
    step_name: str


# text messages (TXT)


class TextMessageStartEvent(AttributableEvent, frozen=True, kw_only=True):
    """Opens a text message. An absent role means assistant (TXT-2)."""

    type: ClassVar[Literal[EventType.TEXT_MESSAGE_START]] = EventType.TEXT_MESSAGE_START
    message_id: str
    role: Maybe[TextMessageRole] = None
    name: Maybe[str] = None


class TextMessageContentEvent(AttributableEvent, frozen=True, kw_only=True):
    """More text of an open message. An empty delta is legal."""

    type: ClassVar[Literal[EventType.TEXT_MESSAGE_CONTENT]] = EventType.TEXT_MESSAGE_CONTENT
    message_id: str
    delta: str


class TextMessageEndEvent(AttributableEvent, frozen=True, kw_only=True):
    """Closes a text message."""

    type: ClassVar[Literal[EventType.TEXT_MESSAGE_END]] = EventType.TEXT_MESSAGE_END
    message_id: str


class TextMessageChunkEvent(AttributableEvent, frozen=True, kw_only=True):
    """Start, content and end in one: the receiver expands it (CHK-1). The first chunk names the message."""

    type: ClassVar[Literal[EventType.TEXT_MESSAGE_CHUNK]] = EventType.TEXT_MESSAGE_CHUNK
    message_id: Maybe[str] = None
    role: Maybe[TextMessageRole] = None
    delta: Maybe[str] = None
    name: Maybe[str] = None


# tool calls (TOOL)


class ToolCallStartEvent(AttributableEvent, frozen=True, kw_only=True):
    """Opens a tool call, on the message named as its parent."""

    type: ClassVar[Literal[EventType.TOOL_CALL_START]] = EventType.TOOL_CALL_START
    tool_call_id: str
    tool_call_name: str
    parent_message_id: Maybe[str] = None


class ToolCallArgsEvent(AttributableEvent, frozen=True, kw_only=True):
    """More of a call's argument text."""

    type: ClassVar[Literal[EventType.TOOL_CALL_ARGS]] = EventType.TOOL_CALL_ARGS
    tool_call_id: str
    delta: str


class ToolCallEndEvent(AttributableEvent, frozen=True, kw_only=True):
    """Closes a tool call: its arguments are complete, not necessarily valid (TOOL-3)."""

    type: ClassVar[Literal[EventType.TOOL_CALL_END]] = EventType.TOOL_CALL_END
    tool_call_id: str


class ToolCallChunkEvent(AttributableEvent, frozen=True, kw_only=True):
    """Start, arguments and end in one (CHK-1). The first chunk names the call and the tool."""

    type: ClassVar[Literal[EventType.TOOL_CALL_CHUNK]] = EventType.TOOL_CALL_CHUNK
    tool_call_id: Maybe[str] = None
    tool_call_name: Maybe[str] = None
    parent_message_id: Maybe[str] = None
    delta: Maybe[str] = None


class ToolCallResultEvent(AttributableEvent, frozen=True, kw_only=True):
    """The answer to a call: a tool message with an id of its own (TOOL-5)."""

    type: ClassVar[Literal[EventType.TOOL_CALL_RESULT]] = EventType.TOOL_CALL_RESULT
    message_id: str
    tool_call_id: str
    content: str | list[ContentPart]
    role: Maybe[Literal["tool"]] = None


# reasoning (RSN, ENC)


class ReasoningStartEvent(AttributableEvent, frozen=True, kw_only=True):
    """Opens a span of reasoning. The span is no message and its id lives in a namespace of its own (RSN-2)."""

    type: ClassVar[Literal[EventType.REASONING_START]] = EventType.REASONING_START
    message_id: str


class ReasoningMessageStartEvent(AttributableEvent, frozen=True, kw_only=True):
    """Opens a reasoning message. Its role is fixed, and required on the wire (RSN-3)."""

    type: ClassVar[Literal[EventType.REASONING_MESSAGE_START]] = EventType.REASONING_MESSAGE_START
    message_id: str
    role: ReasoningMessageRole = msgspec.field(default_factory=lambda: IMPLIED_REASONING_ROLE)


class ReasoningMessageContentEvent(AttributableEvent, frozen=True, kw_only=True):
    """More text of an open reasoning message."""

    type: ClassVar[Literal[EventType.REASONING_MESSAGE_CONTENT]] = EventType.REASONING_MESSAGE_CONTENT
    message_id: str
    delta: str


class ReasoningMessageEndEvent(AttributableEvent, frozen=True, kw_only=True):
    """Closes a reasoning message."""

    type: ClassVar[Literal[EventType.REASONING_MESSAGE_END]] = EventType.REASONING_MESSAGE_END
    message_id: str


class ReasoningMessageChunkEvent(AttributableEvent, frozen=True, kw_only=True):
    """Start, content and end in one (CHK-1)."""

    type: ClassVar[Literal[EventType.REASONING_MESSAGE_CHUNK]] = EventType.REASONING_MESSAGE_CHUNK
    message_id: Maybe[str] = None
    delta: Maybe[str] = None


class ReasoningEndEvent(AttributableEvent, frozen=True, kw_only=True):
    """Closes a span of reasoning."""

    type: ClassVar[Literal[EventType.REASONING_END]] = EventType.REASONING_END
    message_id: str


class ReasoningEncryptedValueEvent(AttributableEvent, frozen=True, kw_only=True):
    """An opaque artefact of the producer, kept with a message or tool call and returned unchanged (ENC-1)."""

    type: ClassVar[Literal[EventType.REASONING_ENCRYPTED_VALUE]] = EventType.REASONING_ENCRYPTED_VALUE
    subtype: ReasoningEncryptedValueSubtype
    entity_id: str
    encrypted_value: str
    encrypted_value_type: Maybe[str] = None


# state and messages (STATE, MSGS)


class StateSnapshotEvent(AttributableEvent, frozen=True, kw_only=True):
    """Replaces the state, whatever it was; null is a state (STATE-1)."""

    type: ClassVar[Literal[EventType.STATE_SNAPSHOT]] = EventType.STATE_SNAPSHOT
    snapshot: Any


class StateDeltaEvent(AttributableEvent, frozen=True, kw_only=True):
    """Changes the state by a JSON Patch, all or nothing (SNAP-3)."""

    type: ClassVar[Literal[EventType.STATE_DELTA]] = EventType.STATE_DELTA
    delta: list[JsonPatchOperation]


class MessagesSnapshotEvent(BaseEvent, frozen=True, kw_only=True):
    """Restates the messages: held ids are replaced in place, new ones appended (MSGS-1)."""

    type: ClassVar[Literal[EventType.MESSAGES_SNAPSHOT]] = EventType.MESSAGES_SNAPSHOT
    messages: list[Message]


# activity (ACT)


class ActivitySnapshotEvent(AttributableEvent, frozen=True, kw_only=True):
    """Creates or replaces an activity message; ``replace=False`` only creates (ACT-4)."""

    type: ClassVar[Literal[EventType.ACTIVITY_SNAPSHOT]] = EventType.ACTIVITY_SNAPSHOT
    message_id: str
    activity_type: str
    content: dict[str, Any]
    replace: Maybe[bool] = None


class ActivityDeltaEvent(AttributableEvent, frozen=True, kw_only=True):
    """Changes an activity's content by a JSON Patch, and its type (ACT-7)."""

    type: ClassVar[Literal[EventType.ACTIVITY_DELTA]] = EventType.ACTIVITY_DELTA
    message_id: str
    activity_type: str
    patch: list[JsonPatchOperation]


# subagents (SUB)


class SubagentStartedEvent(BaseEvent, frozen=True, kw_only=True):
    """Announces one invocation of a subagent. The id is never used twice in a run (SUB-2)."""

    type: ClassVar[Literal[EventType.SUBAGENT_STARTED]] = EventType.SUBAGENT_STARTED
    subagent_run_id: str
    name: str
    description: Maybe[str] = None
    parent_subagent_run_id: Maybe[str] = None
    parent_tool_call_id: Maybe[str] = None
    parent_message_id: Maybe[str] = None


class SubagentFinishedEvent(BaseEvent, frozen=True, kw_only=True):
    """Closes an announced invocation."""

    type: ClassVar[Literal[EventType.SUBAGENT_FINISHED]] = EventType.SUBAGENT_FINISHED
    subagent_run_id: str
    result: Maybe[AnyJSON] = None
    outcome: Maybe[SubagentFinishedOutcome] = None


class SubagentErrorEvent(BaseEvent, frozen=True, kw_only=True):
    """Ends an invocation that failed; the run goes on (SUB-6)."""

    type: ClassVar[Literal[EventType.SUBAGENT_ERROR]] = EventType.SUBAGENT_ERROR
    subagent_run_id: str
    message: str
    code: Maybe[str] = None


# passthrough (PASS)


class RawEvent(AttributableEvent, frozen=True, kw_only=True):
    """An event of another system, for information only (PASS-2)."""

    type: ClassVar[Literal[EventType.RAW]] = EventType.RAW
    event: Any
    source: Maybe[str] = None


class CustomEvent(AttributableEvent, frozen=True, kw_only=True):
    """An event whose meaning the application defines; unknown names are ignored (PASS-4)."""

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
"""Any event of the protocol, told apart by its type."""
