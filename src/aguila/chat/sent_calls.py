"""Layer: chat. The tool calls of a thread, as far as a producer has to know them to go on.

Below: the protocol types. Above: ``updates_out``. Answers one question about a call that a provider makes: is it
new, is it more of one that is being sent, or does the thread have it already?
"""

from __future__ import annotations

from typing import Any

from aguila.chat.content import FunctionCallContent
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
    """A call of this thread: what was sent of it, and under which id."""

    __slots__ = ("call_id", "is_answered", "is_ended", "is_old", "length", "name", "previewed", "texts")

    def __init__(self, call_id: str, name: str, *, is_old: bool = False) -> None:
        self.call_id = call_id
        self.name = name
        self.texts: list[str] = []
        self.length = 0
        self.previewed = 0
        """How long the arguments were when they were last shown."""
        self.is_old = is_old
        """Whether it is of the history, not of this run."""
        self.is_ended = is_old
        self.is_answered = False

    @property
    def arguments(self) -> str:
        """The argument text so far."""
        return "".join(self.texts)

    def grow(self, text: str) -> None:
        """Note more of the argument text."""
        self.texts.append(text)
        self.length += len(text)


class SentCalls:
    """The calls of a thread, by the ids that the provider and the wire have for them."""

    def __init__(self) -> None:
        self._calls: dict[str, SentCall] = {}

    def get(self, call_id: str) -> SentCall | None:
        """The call that an id means now."""
        return self._calls.get(call_id)

    def is_new(self, content: FunctionCallContent) -> bool:
        """Whether this is no call that we know: its id is new, or was answered before, or named another tool."""
        call = self._calls.get(content.call_id)
        return call is None or call.is_answered or content.name not in ("", call.name)

    def add(self, call: SentCall, provider_id: str) -> None:
        """Note a new call, which the provider may call by another id."""
        self._calls[provider_id] = self._calls[call.call_id] = call

    def note(self, event: Any) -> None:
        """Note an event that was not made from a content."""
        match event:
            case ToolCallStartEvent():
                self._calls.setdefault(event.tool_call_id, SentCall(event.tool_call_id, event.tool_call_name))
            case ToolCallArgsEvent():
                self._calls[event.tool_call_id].grow(event.delta)
            case ToolCallEndEvent():
                self._calls[event.tool_call_id].is_ended = True
            case ToolCallResultEvent():
                self._answer(event.tool_call_id)
            case _:
                pass

    def remember(self, message: Message) -> None:
        """Note a message of the history."""
        if isinstance(message, AssistantMessage):
            for call in message.tool_calls or ():
                if isinstance(call, ToolCall):
                    self._calls[call.id] = SentCall(call.id, call.function.name, is_old=True)
        elif isinstance(message, ToolMessage):
            self._answer(message.tool_call_id)

    def _answer(self, call_id: str) -> None:
        call = self._calls.get(call_id)
        if call is not None:
            call.is_answered = True
