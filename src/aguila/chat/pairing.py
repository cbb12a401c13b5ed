"""Layer: chat. A conversation as a model's provider accepts it: calls answered, answers adjacent, nothing orphaned.

Below: ``message``. Above: the providers. Histories arrive in every order (a front end answers late, a user interrupts,
a replay splits parallel calls), and providers refuse all but one. So the provider gets a view, and what was changed for
it is listed. The view is never written back: stored history keeps a call that is still waiting for its answer.

1. A result belongs to the last unanswered call of its id before it, else to the first after it.
2. A call without a result is left out, or closed with a result that says so (``unanswered="close"``).
3. A result without a call is left out. A call id that is used again gets a new name, and its result with it.
4. Assistant messages that make calls and follow each other directly are one message: its calls were parallel (#2699).
5. Results come directly after the message that called, in the order of the calls, one message each.
6. Contents that are no matter of a model, and messages that are empty then, are left out.
7. So is what a subagent said and called, as the model of the agent did neither: of a subagent it knows what the call
   that asked for it was answered with, in the run that asked and in every later one.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable
from typing import Literal

import msgspec

from aguila.chat import event_content
from aguila.chat.content import (
    ApprovalRequestContent,
    ApprovalResponseContent,
    Content,
    ErrorContent,
    FunctionCallContent,
    FunctionResultContent,
    InterruptRequestContent,
    InterruptResponseContent,
    TextContent,
    UsageContent,
)
from aguila.chat.keys import SUBAGENT_RUN_ID
from aguila.chat.message import ChatMessage
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
"""What was done to a history for a provider."""

NOT_EXECUTED = "The call was not executed."
"""The result of a call that nobody answered, with ``unanswered="close"``."""

_NOT_FOR_MODELS = (
    ApprovalRequestContent,
    ApprovalResponseContent,
    InterruptRequestContent,
    InterruptResponseContent,
    ErrorContent,
    UsageContent,
)


class Repair(msgspec.Struct, frozen=True, kw_only=True):
    """One thing that was changed: in which message (its place in the history, and its id), and to which call."""

    kind: RepairKind
    index: int
    message_id: str | None = None
    call_id: str | None = None


class ProviderHistory(msgspec.Struct, frozen=True, kw_only=True):
    """The view, and what it took to make it."""

    messages: list[ChatMessage]
    repairs: list[Repair]


class _Call:
    """A call and, once found, its result."""

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
    """A history of any order and completeness as a provider accepts it. Never raises; leaves its input alone."""
    return _View(list(messages), unanswered == "close").build()


class _View:
    def __init__(self, messages: list[ChatMessage], closes: bool) -> None:
        self._history = messages
        self._closes = closes
        self._repairs: list[Repair] = []
        self._calls: dict[int, list[_Call]] = {}  # by the message that makes them
        self._end_of_results = [*range(len(messages) + 1)]  # per place, where the tool messages from there on end
        for index in range(len(messages) - 1, -1, -1):
            if messages[index].role == "tool" or self._is_of_a_subagent(index):
                self._end_of_results[index] = self._end_of_results[index + 1]

    def build(self) -> ProviderHistory:
        self._pair()
        self._name()
        out: list[ChatMessage] = []
        index = 0
        while index < len(self._history):
            if self._is_of_a_subagent(index):
                self._report("dropped_subagent", index)
                index += 1
                continue
            end = self._end_of_group(index)
            self._place(index, end, out)
            index = end
        return ProviderHistory(messages=out, repairs=self._repairs)

    def _report(self, kind: RepairKind, index: int, call_id: str | None = None) -> None:
        message_id = self._history[index].message_id
        self._repairs.append(Repair(kind=kind, index=index, message_id=message_id, call_id=call_id))

    # 1 to 3: which result belongs to which call

    def _pair(self) -> None:
        unanswered: dict[str, list[_Call]] = {}  # seen so far, newest last
        early: dict[str, deque[tuple[FunctionResultContent, int]]] = {}  # before any call they could answer
        for index, message in enumerate(self._history):
            for content in message.contents:
                if isinstance(content, FunctionCallContent) and message.role == "assistant":
                    call = _Call(content, index)
                    self._calls.setdefault(index, []).append(call)
                    unanswered.setdefault(content.call_id, []).append(call)
                elif isinstance(content, FunctionResultContent):
                    if waiting := unanswered.get(content.call_id):
                        _answer(waiting.pop(), content, index)
                    else:
                        early.setdefault(content.call_id, deque()).append((content, index))
        for call_id, results in early.items():
            for call in unanswered.get(call_id, ()):
                # Only a later call: one that was made before and stands unanswered had its chance.
                if results and call.result is None and call.index >= results[0][1]:
                    _answer(call, *results.popleft())
            for _, index in results:
                self._report("dropped_result", index, call_id)

    def _name(self) -> None:
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
        return (call.result is not None or self._closes) and not self._is_of_a_subagent(call.index)

    def _is_of_a_subagent(self, index: int) -> bool:
        """Whether a subagent spoke. Results go with their calls: it may have answered one of the agent's own."""
        message = self._history[index]
        return message.role != "tool" and message.additional_properties.get(SUBAGENT_RUN_ID) is not None

    # 4 to 6: who comes after whom

    def _makes_calls(self, index: int) -> bool:
        return any(self._is_shown(call) for call in self._calls.get(index, ()))

    def _end_of_group(self, index: int) -> int:
        """The end of the messages from here on that are one: parallel calls, or a single message."""
        end = index + 1
        if self._makes_calls(index):
            after = end
            while after < len(self._history) and (self._makes_calls(after) or self._is_of_a_subagent(after)):
                after += 1
                if self._makes_calls(after - 1):
                    self._report("merged_calls", after - 1)
                    end = after
        return end

    def _place(self, start: int, end: int, out: list[ChatMessage]) -> None:
        texts: list[Content] = []
        called: list[Content] = []
        shown: list[_Call] = []
        for index in range(start, end):
            if self._is_of_a_subagent(index):
                self._report("dropped_subagent", index)
                continue
            calls = deque(self._calls.get(index, ()))
            for content in self._history[index].contents:
                if isinstance(content, FunctionResultContent):
                    continue  # comes with its call
                if isinstance(content, FunctionCallContent) and calls and calls[0].content is content:
                    call = calls.popleft()
                    if not self._is_shown(call):
                        self._report("dropped_call", index, content.call_id)
                        continue
                    shown.append(call)
                    # One message keeps its contents in their order; in a merged one texts come before calls.
                    kept = content if call.name == content.call_id else replace(content, call_id=call.name)
                    (texts if end == start + 1 else called).append(kept)
                elif self._history[index].role == "tool" or _is_no_matter_of_a_model(content):
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
        if not self._follows(call.result_index, end):
            self._report("moved_result", call.result_index, call.content.call_id)
        result = call.result if call.name == call.result.call_id else replace(call.result, call_id=call.name)
        if message.role == "tool" and len(message.contents) == 1:
            return message if result is call.result else replace(message, contents=[result])
        is_first = next((c for c in message.contents if isinstance(c, FunctionResultContent)), None) is call.result
        own = message.message_id if message.role == "tool" and is_first else None  # results share no id (#3962)
        return ChatMessage("tool", [result], message_id=own, raw_representation=message.raw_representation)

    def _follows(self, index: int, end: int) -> bool:
        """Whether a result came after its call with nothing but results between."""
        return end <= index < self._end_of_results[end]


def _answer(call: _Call, result: FunctionResultContent, index: int) -> None:
    call.result, call.result_index = result, index


def _is_no_matter_of_a_model(content: Content) -> bool:
    # A call among them is one that no assistant made.
    return isinstance(content, (FunctionCallContent, *_NOT_FOR_MODELS)) or event_content.is_event(content)


def _is_empty(contents: list[Content]) -> bool:
    return all(isinstance(content, TextContent) and content.text == "" for content in contents)
