"""The seven kinds of messages, and tool calls (MSG)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, ClassVar, Literal

from aguila.protocol._base import Identified, Maybe, Metadata, Phantom, Tagged, Wire
from aguila.protocol.parts import ContentPart, TextPart

Role = Literal["developer", "system", "assistant", "user", "tool", "activity", "reasoning"]
"""The roles of messages."""

TextMessageRole = Literal["developer", "system", "assistant", "user"]
"""The roles of streamed text messages (TXT-2)."""


class FunctionCall(Wire, frozen=True, kw_only=True):
    """The name of a called tool, and its arguments as the exact text that the model wrote."""

    name: str
    arguments: str


class ToolCall(Tagged, tag_field="type", tag="function", frozen=True, kw_only=True):
    """A tool call of an assistant message."""

    type: ClassVar[Literal["function"]] = "function"
    id: str
    function: FunctionCall
    encrypted_value: Maybe[str] = None
    encrypted_value_type: Maybe[str] = None
    metadata: Maybe[Metadata] = None


class BaseMessage(Identified, frozen=True, kw_only=True):
    """The fields of every message: an id that is unique in its thread (ENV-12), an owner, metadata.

    A constructor without ``id`` assigns one.
    """

    subagent_run_id: Maybe[str] = None
    metadata: Maybe[Metadata] = None


class _EncryptableMessage(BaseMessage, frozen=True, kw_only=True):
    """A message that can have an opaque value of its producer, which is sent back unchanged (ENC-1)."""

    encrypted_value: Maybe[str] = None
    encrypted_value_type: Maybe[str] = None


class DeveloperMessage(_EncryptableMessage, tag_field="role", tag="developer", frozen=True, kw_only=True):
    """Instructions of the application's developer."""

    role: ClassVar[Literal["developer"]] = "developer"
    content: str
    name: Maybe[str] = None


class SystemMessage(_EncryptableMessage, tag_field="role", tag="system", frozen=True, kw_only=True):
    """Instructions of the system that hosts the agent."""

    role: ClassVar[Literal["system"]] = "system"
    content: str
    name: Maybe[str] = None


class AssistantMessage(_EncryptableMessage, tag_field="role", tag="assistant", frozen=True, kw_only=True):
    """Text, tool calls, or both, by the agent. Without text, content is absent (MSG-3)."""

    role: ClassVar[Literal["assistant"]] = "assistant"
    content: Maybe[str] = None
    # A union, so that msgspec requires each call's `type`. The phantom has no name on the wire.
    tool_calls: Maybe[list[ToolCall | Phantom]] = None
    name: Maybe[str] = None


class UserMessage(_EncryptableMessage, tag_field="role", tag="user", frozen=True, kw_only=True):
    """A message of the user: a string or parts."""

    role: ClassVar[Literal["user"]] = "user"
    content: str | list[ContentPart]
    name: Maybe[str] = None


class ToolMessage(_EncryptableMessage, tag_field="role", tag="tool", frozen=True, kw_only=True):
    """The result of a tool call. ``error`` is additional; the content is required (MSG-1)."""

    role: ClassVar[Literal["tool"]] = "tool"
    content: str | list[ContentPart]
    tool_call_id: str
    error: Maybe[str] = None


class ActivityMessage(BaseMessage, tag_field="role", tag="activity", frozen=True, kw_only=True):
    """Structured progress for user interfaces. It is never sent back to the agent (IN-7)."""

    role: ClassVar[Literal["activity"]] = "activity"
    activity_type: str
    content: dict[str, Any]


class ReasoningMessage(_EncryptableMessage, tag_field="role", tag="reasoning", frozen=True, kw_only=True):
    """Reasoning of the model."""

    role: ClassVar[Literal["reasoning"]] = "reasoning"
    content: str


Message = (
    DeveloperMessage | SystemMessage | AssistantMessage | UserMessage | ToolMessage | ActivityMessage | ReasoningMessage
)
"""Any message, identified by its role."""


def parts_of(content: Message | str | Sequence[ContentPart] | None) -> list[ContentPart]:
    """Return a message, or the content of one, as a list of parts.

    A string is one text part, None is no part. An activity has data instead of parts: its list is empty.
    """
    if isinstance(content, BaseMessage):
        content = None if isinstance(content, ActivityMessage) else content.content
    if content is None:
        return []
    if isinstance(content, str):
        return [TextPart(text=content)]
    return list(content)
