"""Find out whether a provider's call is new, continues a streaming call, or is in the thread already."""

from __future__ import annotations

from typing import Any

from aguila.chat.types import FunctionCallContent
from aguila.protocol import (
    AssistantMessage,
    Message,
    ToolCall,
    ToolCallArgsEvent,
    ToolCallEndEvent,
    ToolCallResultEvent,
    ToolCallStartEvent,
    ToolMessage,
)


class SentCall:
    """A call of this thread: its id in AG-UI, and the part that was sent."""

    __slots__ = ("call_id", "is_answered", "is_ended", "is_old", "length", "name", "previewed", "texts")

    def __init__(self, call_id: str, name: str, *, is_old: bool = False) -> None:
        self.call_id = call_id
        self.name = name
        self.texts: list[str] = []
        self.length = 0
        self.previewed = 0
        """Length of the arguments at the last preview."""
        self.is_old = is_old
        """Whether it is from the history, not from this run."""
        self.is_ended = is_old
        self.is_answered = False

    @property
    def arguments(self) -> str:
        """The arguments so far."""
        return "".join(self.texts)

    def append(self, text: str) -> None:
        """Append to the arguments."""
        self.texts.append(text)
        self.length += len(text)


class SentCalls:
    """The calls of a thread, by their ids at the provider and in AG-UI."""

    def __init__(self) -> None:
        self._calls: dict[str, SentCall] = {}

    def get(self, call_id: str) -> SentCall | None:
        """Return the call that this id means now."""
        return self._calls.get(call_id)

    def is_new(self, content: FunctionCallContent) -> bool:
        """Return whether the call is new: its id is unknown, was answered before, or belongs to another tool."""
        call = self._calls.get(content.call_id)
        return call is None or call.is_answered or content.name not in ("", call.name)

    def add(self, call: SentCall, provider_id: str) -> None:
        """Add a new call, which may have another id at the provider."""
        self._calls[provider_id] = self._calls[call.call_id] = call

    def record(self, event: Any) -> None:
        """Record an event that was not made from a content."""
        match event:
            case ToolCallStartEvent():
                self._calls.setdefault(event.tool_call_id, SentCall(event.tool_call_id, event.tool_call_name))
            case ToolCallArgsEvent():
                self._calls[event.tool_call_id].append(event.delta)
            case ToolCallEndEvent():
                self._calls[event.tool_call_id].is_ended = True
            case ToolCallResultEvent():
                self._mark_answered(event.tool_call_id)
            case _:
                pass

    def add_message(self, message: Message) -> None:
        """Record a message of the history."""
        if isinstance(message, AssistantMessage):
            for call in message.tool_calls or ():
                if isinstance(call, ToolCall):
                    self._calls[call.id] = SentCall(call.id, call.function.name, is_old=True)
        elif isinstance(message, ToolMessage):
            self._mark_answered(message.tool_call_id)

    def _mark_answered(self, call_id: str) -> None:
        call = self._calls.get(call_id)
        if call is not None:
            call.is_answered = True
