"""Compare what a replayed agent sends with what earlier runs sent.

Its output is suppressed until it reaches the answered question. If it is not the same as before (random values, the
time, the order of a set), the agent continues from something that the user has not seen. Texts, reasoning, arguments of
calls and results are compared, by the ids of their items. An item that the thread does not have any more is skipped:
a client may have removed it.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from aguila.protocol import (
    AssistantMessage,
    Message,
    ReasoningMessage,
    ReasoningMessageContentEvent,
    ReasoningMessageEndEvent,
    TextMessageContentEvent,
    TextMessageEndEvent,
    ToolCall,
    ToolCallArgsEvent,
    ToolCallEndEvent,
    ToolCallResultEvent,
    ToolMessage,
)

_SHOWN = 40
"""Characters of each text that the description of a difference has."""

_DELTAS = (TextMessageContentEvent, ReasoningMessageContentEvent, ToolCallArgsEvent)
_ENDS = (TextMessageEndEvent, ReasoningMessageEndEvent, ToolCallEndEvent)


class ReplayComparison:
    """Finds the first difference between a replay and the messages that the thread had before it."""

    def __init__(self, messages: Sequence[Message]) -> None:
        self._texts: dict[str, str] = {}
        self._positions: dict[str, int] = {}
        for message in messages:
            if isinstance(message, AssistantMessage):
                self._texts[message.id] = message.content or ""
                for call in message.tool_calls or ():
                    if isinstance(call, ToolCall):
                        self._texts[call.id] = call.function.arguments
            elif isinstance(message, ReasoningMessage | ToolMessage) and isinstance(message.content, str):
                self._texts[message.id] = message.content

    def find_difference(self, event: Any) -> str | None:
        """Compare the next event of the agent. Return a description of the difference, or None."""
        if isinstance(event, ToolCallResultEvent):
            before = self._texts.get(event.message_id)
            if before is None or not isinstance(event.content, str) or event.content == before:
                return None
            return _describe(f"the result {event.message_id!r}", before, event.content)
        if not isinstance(event, (*_DELTAS, *_ENDS)):
            return None
        is_call = isinstance(event, ToolCallArgsEvent | ToolCallEndEvent)
        item_id = event.tool_call_id if is_call else event.message_id
        before = self._texts.get(item_id)
        if before is None:
            return None
        name = f"the arguments of call {item_id!r}" if is_call else f"the message {item_id!r}"
        start = self._positions.get(item_id, 0)
        if isinstance(event, _DELTAS):
            self._positions[item_id] = start + len(event.delta)
            expected = before[start : start + len(event.delta)]
            if event.delta.startswith(expected):
                return None
            same = next(i for i, (a, b) in enumerate(zip(expected, event.delta, strict=False)) if a != b)
            return _describe(name, before[start + same :], event.delta[same:], start + same)
        return None if start >= len(before) else _describe(name, before[start:], "", start)


def _describe(name: str, before: str, now: str, at: int = 0) -> str:
    where = f" from character {at}" if at else ""
    return f"{name} was {before[:_SHOWN]!r}{where} and is {now[:_SHOWN]!r} now"
