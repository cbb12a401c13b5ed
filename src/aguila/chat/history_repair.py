"""Repair a history so that a model provider accepts it: every call has a result, directly after it, and vice versa.

Histories arrive in any order: a front end answers late, a user interrupts, a replay splits parallel calls. Providers
accept only one order. The provider gets a repaired copy and a list of the repairs. The stored history is not changed:
it keeps calls that still wait for their result.

1. A result belongs to the last unanswered call with its id before it, else to the first after it.
2. A call without a result is dropped, or closed with a result that says so (``unanswered="close"``).
3. A result without a call is dropped. A call id that is used again gets a new name, together with its result.
4. Consecutive assistant messages with calls become one message: the calls were parallel (#2699).
5. Results come directly after the message with the calls, in call order, one message each.
6. Contents that are not for models are dropped, and then messages without contents.
7. Messages and calls of subagents are dropped, because the agent's model did not make them. It sees the result of the
   call that started the subagent instead.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable
from typing import Literal

import msgspec

from aguila.chat import event_content
from aguila.chat.property_keys import SUBAGENT_RUN_ID
from aguila.chat.types import (
    NOT_IN_MESSAGES,
    ChatMessage,
    Content,
    FunctionCallContent,
    FunctionResultContent,
    TextContent,
)
from aguila.protocol import replace

RepairKind = Literal[
    "moved_result",
    "merged_calls",
    "dropped_call",
    "closed_call",
    "dropped_result",
    "renamed_call",
    "dropped_content",
    "dropped_message",
    "dropped_subagent",
]
"""The kind of a repair."""

NOT_EXECUTED = "The call was not executed."
"""The result of an unanswered call, with ``unanswered="close"``."""


class Repair(msgspec.Struct, frozen=True, kw_only=True):
    """One repair: the index and id of the changed message, and the call."""

    kind: RepairKind
    index: int
    message_id: str | None = None
    call_id: str | None = None


class ProviderHistory(msgspec.Struct, frozen=True, kw_only=True):
    """The repaired history, and the repairs."""

    messages: list[ChatMessage]
    repairs: list[Repair]


class _Call:
    """A call and its result, once found."""

    __slots__ = ("content", "index", "name", "result", "result_index")

    def __init__(self, content: FunctionCallContent, index: int) -> None:
        self.content = content
        self.index = index
        self.name = content.call_id
        self.result: FunctionResultContent | None = None
        self.result_index = -1


def provider_history(
    messages: Iterable[ChatMessage], *, unanswered: Literal["drop", "close"] = "drop"
) -> ProviderHistory:
    """Repair a history of any order and completeness for a provider. Never raises, and does not change its input."""
    return _HistoryRepair(list(messages), unanswered == "close").build()


class _HistoryRepair:
    def __init__(self, messages: list[ChatMessage], closes: bool) -> None:
        self._history = messages
        self._closes = closes
        self._repairs: list[Repair] = []
        self._calls: dict[int, list[_Call]] = {}  # by index of their message
        self._end_of_results = [*range(len(messages) + 1)]  # per index, the end of the tool messages that start there
        for index in range(len(messages) - 1, -1, -1):
            if messages[index].role == "tool" or self._is_from_subagent(index):
                self._end_of_results[index] = self._end_of_results[index + 1]

    def build(self) -> ProviderHistory:
        self._match_results()
        self._rename_duplicates()
        out: list[ChatMessage] = []
        index = 0
        while index < len(self._history):
            if self._is_from_subagent(index):
                self._report("dropped_subagent", index)
                index += 1
                continue
            end = self._end_of_group(index)
            self._add_group(index, end, out)
            index = end
        return ProviderHistory(messages=out, repairs=self._repairs)

    def _report(self, kind: RepairKind, index: int, call_id: str | None = None) -> None:
        message_id = self._history[index].message_id
        self._repairs.append(Repair(kind=kind, index=index, message_id=message_id, call_id=call_id))

    # Rules 1 to 3: match results with calls

    def _match_results(self) -> None:
        unanswered: dict[str, list[_Call]] = {}  # unanswered calls so far, the newest last
        early: dict[str, deque[tuple[FunctionResultContent, int]]] = {}  # results before any call with their id
        for index, message in enumerate(self._history):
            for content in message.contents:
                if isinstance(content, FunctionCallContent) and message.role == "assistant":
                    call = _Call(content, index)
                    self._calls.setdefault(index, []).append(call)
                    unanswered.setdefault(content.call_id, []).append(call)
                elif isinstance(content, FunctionResultContent):
                    if waiting := unanswered.get(content.call_id):
                        _set_result(waiting.pop(), content, index)
                    else:
                        early.setdefault(content.call_id, deque()).append((content, index))
        for call_id, results in early.items():
            for call in unanswered.get(call_id, ()):
                # Only a later call: results after an earlier one were matched above.
                if results and call.result is None and call.index >= results[0][1]:
                    _set_result(call, *results.popleft())
            for _, index in results:
                self._report("dropped_result", index, call_id)

    def _rename_duplicates(self) -> None:
        taken = {call.name for calls in self._calls.values() for call in calls if self._is_shown(call)}
        used: set[str] = set()
        for calls in self._calls.values():
            for call in calls:
                if not self._is_shown(call):
                    continue
                if call.name in used:
                    number = 2
                    while f"{call.content.call_id}-{number}" in taken:
                        number += 1
                    call.name = f"{call.content.call_id}-{number}"
                    taken.add(call.name)
                    self._report("renamed_call", call.index, call.content.call_id)
                used.add(call.name)

    def _is_shown(self, call: _Call) -> bool:
        return (call.result is not None or self._closes) and not self._is_from_subagent(call.index)

    def _is_from_subagent(self, index: int) -> bool:
        """Return whether a subagent wrote the message. A result counts as written by the author of its call."""
        message = self._history[index]
        return message.role != "tool" and message.additional_properties.get(SUBAGENT_RUN_ID) is not None

    # Rules 4 to 6: the order of messages

    def _has_calls(self, index: int) -> bool:
        return any(self._is_shown(call) for call in self._calls.get(index, ()))

    def _end_of_group(self, index: int) -> int:
        """Return the end of the messages that become one: several with parallel calls, or this one alone."""
        end = index + 1
        if self._has_calls(index):
            after = end
            while after < len(self._history) and (self._has_calls(after) or self._is_from_subagent(after)):
                after += 1
                if self._has_calls(after - 1):
                    self._report("merged_calls", after - 1)
                    end = after
        return end

    def _add_group(self, start: int, end: int, out: list[ChatMessage]) -> None:
        texts: list[Content] = []
        called: list[Content] = []
        shown: list[_Call] = []
        for index in range(start, end):
            if self._is_from_subagent(index):
                self._report("dropped_subagent", index)
                continue
            calls = deque(self._calls.get(index, ()))
            for content in self._history[index].contents:
                if isinstance(content, FunctionResultContent):
                    continue  # added with its call
                if isinstance(content, FunctionCallContent) and calls and calls[0].content is content:
                    call = calls.popleft()
                    if not self._is_shown(call):
                        self._report("dropped_call", index, content.call_id)
                        continue
                    shown.append(call)
                    # A single message keeps its order. In a merged message texts come before calls.
                    kept = content if call.name == content.call_id else replace(content, call_id=call.name)
                    (texts if end == start + 1 else called).append(kept)
                elif self._history[index].role == "tool" or _is_not_for_models(content):
                    self._report("dropped_content", index)
                else:
                    texts.append(content)
        first, contents = self._history[start], texts + called
        if not _is_empty(contents):
            out.append(first if contents == first.contents else replace(first, contents=contents))
        elif not any(isinstance(content, FunctionResultContent) for content in first.contents):
            self._report("dropped_message", start)
        for call in shown:
            out.append(self._result_message(call, end))

    def _result_message(self, call: _Call, end: int) -> ChatMessage:
        if call.result is None:
            self._report("closed_call", call.index, call.content.call_id)
            return ChatMessage("tool", [FunctionResultContent(call.name, NOT_EXECUTED)])
        message = self._history[call.result_index]
        if not self._is_adjacent(call.result_index, end):
            self._report("moved_result", call.result_index, call.content.call_id)
        result = call.result if call.name == call.result.call_id else replace(call.result, call_id=call.name)
        if message.role == "tool" and len(message.contents) == 1:
            return message if result is call.result else replace(message, contents=[result])
        is_first = next((c for c in message.contents if isinstance(c, FunctionResultContent)), None) is call.result
        own = message.message_id if message.role == "tool" and is_first else None  # results do not share an id (#3962)
        return ChatMessage("tool", [result], message_id=own, raw_representation=message.raw_representation)

    def _is_adjacent(self, index: int, end: int) -> bool:
        """Return whether a result follows its call with only results between them."""
        return end <= index < self._end_of_results[end]


def _set_result(call: _Call, result: FunctionResultContent, index: int) -> None:
    call.result, call.result_index = result, index


def _is_not_for_models(content: Content) -> bool:
    # A call here is not in an assistant message.
    return isinstance(content, (FunctionCallContent, *NOT_IN_MESSAGES)) or event_content.is_event(content)


def _is_empty(contents: list[Content]) -> bool:
    return all(isinstance(content, TextContent) and content.text == "" for content in contents)
