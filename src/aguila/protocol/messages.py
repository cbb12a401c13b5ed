"""Layer: protocol. The seven kinds of message, and tool calls (MSG)."""

from __future__ import annotations

from typing import Any, ClassVar, Literal

from aguila.protocol._base import Maybe, Metadata, Phantom, Tagged, Wire
from aguila.protocol.parts import ContentPart

Role = Literal["developer", "system", "assistant", "user", "tool", "activity", "reasoning"]
"""Every role a message can have."""

TextMessageRole = Literal["developer", "system", "assistant", "user"]
"""The roles a streamed text message can have (TXT-2)."""


class FunctionCall(Wire, frozen=True, kw_only=True):
    """What a tool call calls: a name, and arguments as the exact text the model wrote."""

    name: str
    arguments: str


class ToolCall(Tagged, tag_field="type", tag="function", frozen=True, kw_only=True):
    """A call that an assistant message makes."""

    type: ClassVar[Literal["function"]] = "function"
    id: str
    function: FunctionCall
    encrypted_value: Maybe[str] = None
    encrypted_value_type: Maybe[str] = None
    metadata: Maybe[Metadata] = None


class BaseMessage(Tagged, frozen=True, kw_only=True):
    """What every message has: an id that is unique within its thread (ENV-12), an owner, metadata."""

    id: str
    subagent_run_id: Maybe[str] = None
    metadata: Maybe[Metadata] = None


class _Sealable(BaseMessage, frozen=True, kw_only=True):
    """A message that can carry an opaque artefact of its producer, returned unchanged (ENC-1)."""

    encrypted_value: Maybe[str] = None
    encrypted_value_type: Maybe[str] = None


class DeveloperMessage(_Sealable, tag_field="role", tag="developer", frozen=True, kw_only=True):
    """Instructions by the application's developer."""

    role: ClassVar[Literal["developer"]] = "developer"
    content: str
    name: Maybe[str] = None


class SystemMessage(_Sealable, tag_field="role", tag="system", frozen=True, kw_only=True):
    """Instructions by the system that hosts the agent."""

    role: ClassVar[Literal["system"]] = "system"
    content: str
    name: Maybe[str] = None


class AssistantMessage(_Sealable, tag_field="role", tag="assistant", frozen=True, kw_only=True):
    """What the agent said, called, or both. Content is absent when it only called tools (MSG-3)."""

    role: ClassVar[Literal["assistant"]] = "assistant"
    content: Maybe[str] = None
    # A union, so that msgspec demands each call's `type`; the phantom has no name on the wire.
    tool_calls: Maybe[list[ToolCall | Phantom]] = None
    name: Maybe[str] = None


class UserMessage(_Sealable, tag_field="role", tag="user", frozen=True, kw_only=True):
    """What the user said: a string or parts."""

    role: ClassVar[Literal["user"]] = "user"
    content: str | list[ContentPart]
    name: Maybe[str] = None


class ToolMessage(_Sealable, tag_field="role", tag="tool", frozen=True, kw_only=True):
    """The answer to a tool call. ``error`` sits beside the content, which stays required (MSG-1)."""

    role: ClassVar[Literal["tool"]] = "tool"
    content: str | list[ContentPart]
    tool_call_id: str
    error: Maybe[str] = None


class ActivityMessage(BaseMessage, tag_field="role", tag="activity", frozen=True, kw_only=True):
    """Structured progress for the user interface. Never sent back to the agent (IN-7)."""

    role: ClassVar[Literal["activity"]] = "activity"
    activity_type: str
    content: dict[str, Any]


class ReasoningMessage(_Sealable, tag_field="role", tag="reasoning", frozen=True, kw_only=True):
    """What the model thought aloud."""

    role: ClassVar[Literal["reasoning"]] = "reasoning"
    content: str


Message = (
    DeveloperMessage | SystemMessage | AssistantMessage | UserMessage | ToolMessage | ActivityMessage | ReasoningMessage
)
"""Any message, told apart by its role."""
