"""Builders for messages and tool calls that are still streaming.

Protocol messages are immutable. The reducer keeps one builder per message and asks for the message when a view is
taken. Appending costs the same for a message of any length. Building costs what changed since the last build, plus one
copy of a text that grew.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, cast

from aguila.protocol import (
    AssistantMessage,
    FunctionCall,
    Message,
    Metadata,
    TextPart,
    ToolCall,
    replace,
)


def join_deltas(text: str, deltas: Sequence[str]) -> str:
    """Append deltas to a text, and join surrogate halves that meet to one character.

    A JavaScript peer may cut a string between the halves of an emoji. Neither delta is Unicode text then, but their
    concatenation is. A half without its counterpart stays as it is.
    """
    tail = "".join(deltas)
    if tail.isascii():
        return text + tail
    try:
        tail.encode()  # the cheapest test for surrogates
    except UnicodeEncodeError:
        tail = text[-1:] + tail
        return text[:-1] + tail.encode("utf-16-le", "surrogatepass").decode("utf-16-le", "surrogatepass")
    return text + tail


class _Builder:
    """Changes of a message or tool call that are not yet part of the built value."""

    __slots__ = ("deltas", "encrypted", "is_dirty", "metadata")

    def __init__(self) -> None:
        self.deltas: list[str] = []
        self.metadata: Metadata | None = None
        self.encrypted: tuple[str, str | None] | None = None
        self.is_dirty = False

    def merge(self, metadata: Metadata) -> None:
        """Merge metadata by key: the last write wins, and nested objects are not merged (META-4)."""
        if self.metadata is None:
            self.metadata = dict(metadata)
        else:
            self.metadata.update(metadata)

    def _take_changes(self, value: Any) -> dict[str, Any]:
        changes: dict[str, Any] = {}
        if self.metadata is not None:
            changes["metadata"] = self.metadata if value.metadata is None else {**value.metadata, **self.metadata}
            self.metadata = None
        if self.encrypted is not None:
            # A value without a type removes the old type (ENC-5).
            changes["encrypted_value"], changes["encrypted_value_type"] = self.encrypted
            self.encrypted = None
        return changes


class ToolCallBuilder(_Builder):
    """A tool call that may get more arguments. ``parent`` is its message, ``index`` its position there."""

    __slots__ = ("call", "index", "parent")

    def __init__(self, call: ToolCall, parent: MessageBuilder, index: int) -> None:
        super().__init__()
        self.call = call
        self.parent = parent
        self.index = index

    def rename(self, name: str) -> None:
        self.call = replace(self.call, function=replace(self.call.function, name=name))

    def build(self) -> ToolCall:
        changes = self._take_changes(self.call)
        if self.deltas:
            function = self.call.function
            arguments = join_deltas(function.arguments, self.deltas)
            changes["function"] = FunctionCall(name=function.name, arguments=arguments)
            self.deltas.clear()
        if changes:
            self.call = replace(self.call, **changes)
        self.is_dirty = False
        return self.call


class MessageBuilder(_Builder):
    """A message that may still change, as a node of a linked list: ``next`` is the message after it.

    ``index`` is its position in the list of messages, once it has one. ``calls`` are its tool calls in order.
    """

    __slots__ = ("calls", "dirty_calls", "id", "index", "message", "next", "role")

    def __init__(self, message: Message) -> None:
        self.id = message.id
        self.next: MessageBuilder | None = None
        self.index: int | None = None
        self.is_dirty = False
        self.reset(message)

    def reset(self, message: Message) -> None:
        """Continue with another message. Only the position in the list stays."""
        self.deltas = []
        self.metadata = None
        self.encrypted = None
        self.message = message
        self.role: str = message.role
        self.calls: list[ToolCallBuilder] = []
        self.dirty_calls: list[ToolCallBuilder] = []
        if isinstance(message, AssistantMessage) and message.tool_calls is not None:
            self.calls = [ToolCallBuilder(cast("ToolCall", c), self, i) for i, c in enumerate(message.tool_calls)]

    def add_call(self, call: ToolCall) -> ToolCallBuilder:
        builder = ToolCallBuilder(call, self, len(self.calls))
        self.calls.append(builder)
        return builder

    def build(self) -> Message:
        message = self.message
        changes = {} if self.metadata is self.encrypted is None else self._take_changes(message)
        if self.deltas:
            changes["content"] = _append_text(message.content, self.deltas)
            self.deltas.clear()
        if self.dirty_calls:
            built = cast("AssistantMessage", message).tool_calls
            calls: list[Any] = [] if built is None else built.copy()
            for builder in self.dirty_calls:
                if builder.index < len(calls):
                    calls[builder.index] = builder.build()
                else:
                    calls.append(builder.build())
            changes["tool_calls"] = calls
            self.dirty_calls = []
        if changes:
            self.message = message = replace(message, **changes)
        return message


def _append_text(content: Any, deltas: Sequence[str]) -> Any:
    """Append text to content. In a list of parts it goes to a last text part, or else to a new part (TXT-3)."""
    if isinstance(content, str):
        return join_deltas(content, deltas)
    if not isinstance(content, list):
        return join_deltas("", deltas)  # an assistant message that had only tool calls so far (MSG-3)
    parts = cast("list[Any]", content)
    last = parts[-1] if parts else None
    if isinstance(last, TextPart):
        return [*parts[:-1], replace(last, text=join_deltas(last.text, deltas))]
    text = join_deltas("", deltas)
    return parts if text == "" else [*parts, TextPart(text=text)]
