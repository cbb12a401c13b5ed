"""Layer: stream. Messages while they grow.

Below: the protocol types, which are immutable values. Above: the reducer, which keeps one ``GrowingMessage`` per
message and asks for the value when somebody looks. Growing costs the same however long the message already is; making
the value costs what has changed since it was last made, plus one copy of a text that grew. Knows no event.
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
    """The text with deltas appended, where surrogate halves that meet become the character they are halves of.

    A JavaScript peer may cut a string between the halves of an emoji; neither delta is Unicode text by itself, but
    their concatenation is. A half that meets no other stays as it is.
    """
    tail = "".join(deltas)
    if tail.isascii():
        return text + tail
    try:
        tail.encode()  # the cheapest way to learn that no surrogate is in it
    except UnicodeEncodeError:
        tail = text[-1:] + tail
        return text[:-1] + tail.encode("utf-16-le", "surrogatepass").decode("utf-16-le", "surrogatepass")
    return text + tail


class _Growing:
    """What messages and tool calls have in common while they grow: all that was not yet made part of the value."""

    __slots__ = ("deltas", "is_dirty", "metadata", "sealed")

    def __init__(self) -> None:
        self.deltas: list[str] = []
        self.metadata: Metadata | None = None
        self.sealed: tuple[str, str | None] | None = None
        self.is_dirty = False

    def merge(self, metadata: Metadata) -> None:
        """Merge metadata key by key, the last write wins, nothing recursive (META-4)."""
        if self.metadata is None:
            self.metadata = dict(metadata)
        else:
            self.metadata.update(metadata)

    def _changes(self, value: Any) -> dict[str, Any]:
        changes: dict[str, Any] = {}
        if self.metadata is not None:
            changes["metadata"] = self.metadata if value.metadata is None else {**value.metadata, **self.metadata}
            self.metadata = None
        if self.sealed is not None:
            # The type goes with its value: a value without one removes it (ENC-5).
            changes["encrypted_value"], changes["encrypted_value_type"] = self.sealed
            self.sealed = None
        return changes


class GrowingCall(_Growing):
    """A tool call whose arguments may still arrive. ``host`` is the message that makes it, ``place`` where in it."""

    __slots__ = ("call", "host", "place")

    def __init__(self, call: ToolCall, host: GrowingMessage, place: int) -> None:
        super().__init__()
        self.call = call
        self.host = host
        self.place = place

    def rename(self, name: str) -> None:
        """Give the called function another name."""
        self.call = replace(self.call, function=replace(self.call.function, name=name))

    def value(self) -> ToolCall:
        """The call as it is now."""
        changes = self._changes(self.call)
        if self.deltas:
            function = self.call.function
            arguments = join_deltas(function.arguments, self.deltas)
            changes["function"] = FunctionCall(name=function.name, arguments=arguments)
            self.deltas.clear()
        if changes:
            self.call = replace(self.call, **changes)
        self.is_dirty = False
        return self.call


class GrowingMessage(_Growing):
    """A message that may still grow, and its place: ``following`` is the next message.

    ``place`` is its index in the list of messages, once it has one; ``calls`` are an assistant's tool calls in order.
    """

    __slots__ = ("calls", "dirty_calls", "following", "id", "message", "place", "role")

    def __init__(self, message: Message) -> None:
        super().__init__()
        self.id = message.id
        self.following: GrowingMessage | None = None
        self.place: int | None = None
        self._hold(message)

    def _hold(self, message: Message) -> None:
        self.message = message
        self.role: str = message.role
        self.calls: list[GrowingCall] = []
        self.dirty_calls: list[GrowingCall] = []
        if isinstance(message, AssistantMessage) and message.tool_calls is not None:
            self.calls = [GrowingCall(cast("ToolCall", c), self, i) for i, c in enumerate(message.tool_calls)]

    def add_call(self, call: ToolCall) -> GrowingCall:
        """Append a tool call."""
        growing = GrowingCall(call, self, len(self.calls))
        self.calls.append(growing)
        return growing

    def become(self, message: Message) -> None:
        """Be another message from now on; nothing of the old one stays but its place."""
        self.deltas.clear()
        self.metadata = None
        self.sealed = None
        self._hold(message)

    def value(self) -> Message:
        """The message as it is now."""
        message = self.message
        changes = self._changes(message)
        if self.deltas:
            changes["content"] = _grown(message.content, self.deltas)
            self.deltas.clear()
        if self.dirty_calls:
            held = cast("AssistantMessage", message).tool_calls
            calls: list[Any] = [] if held is None else held.copy()
            for growing in self.dirty_calls:
                if growing.place < len(calls):
                    calls[growing.place] = growing.value()
                else:
                    calls.append(growing.value())
            changes["tool_calls"] = calls
            self.dirty_calls = []
        if changes:
            self.message = message = replace(message, **changes)
        return message


def _grown(content: Any, deltas: Sequence[str]) -> Any:
    """Content with text appended; a list of parts grows in its last text part, or gets one (TXT-3)."""
    if isinstance(content, str):
        return join_deltas(content, deltas)
    if not isinstance(content, list):
        return join_deltas("", deltas)  # an assistant that had only called tools so far (MSG-3)
    parts = cast("list[Any]", content)
    last = parts[-1] if parts else None
    if isinstance(last, TextPart):
        return [*parts[:-1], replace(last, text=join_deltas(last.text, deltas))]
    text = join_deltas("", deltas)
    return parts if text == "" else [*parts, TextPart(text=text)]
