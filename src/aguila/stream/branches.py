"""Layer: stream. What each run of a log surely has behind it on its own branch: ``branches_of``, for ``compact``.

Below: ``lineage``, whose rule says which run continues which. Above: ``compact``, which may drop from a log only what
is told elsewhere both for who reads it in a row and for who travels along a branch. It reads events and judges none.

Everything here is a lower bound: a message counts as held only where no reading of the branch can be without it. The
tree is walked once, with one set of messages, and what a run brought is taken back when its branch is left: a log costs
its length, however many branches it has.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from aguila.protocol import (
    ActivitySnapshotEvent,
    AssistantMessage,
    Event,
    Message,
    MessagesSnapshotEvent,
    ReasoningMessageStartEvent,
    RunErrorEvent,
    RunStartedEvent,
    TextMessageStartEvent,
    ToolCallResultEvent,
    ToolCallStartEvent,
)
from aguila.stream.lineage import parent_of


class Branch:
    """A run's place in the tree of its log.

    ``parent`` is the run it continues, by its place in the log. ``is_straight`` says that the branch up to this run is
    the log up to this run, so that both mean the same. ``known`` are the echoed messages that the branch surely held
    before the run.
    """

    __slots__ = ("children", "is_straight", "known", "parent")

    def __init__(self, parent: int | None, *, is_straight: bool) -> None:
        self.parent = parent
        self.is_straight = is_straight
        self.known: set[str] = set()
        self.children: list[int] = []


def branches_of(runs: Sequence[Sequence[Event]]) -> list[Branch]:
    """The branch of each run, given by its events without chunks. The first may be what came before any run."""
    branches = _tree(runs)
    if all(branch.is_straight for branch in branches):
        return branches
    held = _Held()
    # Deep trees are common, as every run continues another: a stack of our own.
    pending: list[tuple[int, _Change | None]] = [
        (i, None) for i, branch in enumerate(branches) if branch.parent is None
    ]
    while pending:
        index, change = pending.pop()
        if change is not None:
            held.take_back(change)
            continue
        branch = branches[index]
        branch.known, change = held.take_in(runs[index])
        pending.append((index, change))
        pending.extend((child, None) for child in branch.children)
    return branches


def _tree(runs: Sequence[Sequence[Event]]) -> list[Branch]:
    branches: list[Branch] = []
    positions: dict[str, int] = {}
    first = 0
    for index, events in enumerate(runs):
        start = events[0]
        if not isinstance(start, RunStartedEvent):  # before any run: in no branch, and no parent
            branches.append(Branch(None, is_straight=True))
            if all(isinstance(event, RunErrorEvent) for event in events):
                first = index + 1  # a refusal says nothing that a branch could miss
            continue
        parent, _ = parent_of(start, positions, index - 1 if positions else None)
        is_straight = index == first if parent is None else parent == index - 1 and branches[parent].is_straight
        branches.append(Branch(parent, is_straight=is_straight))
        if parent is not None:
            branches[parent].children.append(index)
        positions[start.run_id] = index
    return branches


class _Change:
    """What a run did to the held messages, to be taken back."""

    __slots__ = ("calls", "ids", "messages")

    def __init__(self, messages: set[str]) -> None:
        self.messages = messages  # the set as it was before a snapshot replaced it
        self.ids: list[str] = []  # what was added to that set
        self.calls: list[str] = []


class _Held:
    """The ids of messages that a branch surely holds, and of calls that it may hold."""

    def __init__(self) -> None:
        self.messages: set[str] = set()
        self.calls: set[str] = set()

    def take_in(self, events: Sequence[Event]) -> tuple[set[str], _Change]:
        """Read a run; gives which of its echoed messages were held before it, and how to take it back."""
        change = _Change(self.messages)
        known: set[str] = set()
        for event in events:
            match event:
                case RunStartedEvent(input=None):
                    pass
                case RunStartedEvent(input=echo):
                    messages: list[Message] = [] if echo is None else echo.messages
                    known = {message.id for message in messages if message.id in self.messages}
                    for message in messages:
                        if message.id not in self.messages:
                            self._add(message.id, change)
                            self._add_calls(message, change)
                case MessagesSnapshotEvent(messages=messages):
                    self.messages = {message.id for message in messages}  # some others may stay, too (MSGS-2)
                    for message in messages:
                        self._add_calls(message, change)
                case ToolCallStartEvent(tool_call_id=call_id, parent_message_id=parent):
                    if call_id not in self.calls:  # else it has a message already, whatever parent it names now
                        self._add(call_id if parent is None or parent == "" else parent, change)
                        self._add_call(call_id, change)
                case (
                    TextMessageStartEvent(message_id=message_id)
                    | ReasoningMessageStartEvent(message_id=message_id)
                    | ToolCallResultEvent(message_id=message_id)
                    | ActivitySnapshotEvent(message_id=message_id)
                ):
                    self._add(message_id, change)
                case _:
                    pass
        return known, change

    def take_back(self, change: _Change) -> None:
        self.messages = change.messages
        self.messages.difference_update(change.ids)
        self.calls.difference_update(change.calls)

    def _add(self, message_id: str, change: _Change) -> None:
        if message_id not in self.messages:
            self.messages.add(message_id)
            if self.messages is change.messages:
                change.ids.append(message_id)

    def _add_calls(self, message: Message, change: _Change) -> None:
        calls: list[Any] | None = message.tool_calls if isinstance(message, AssistantMessage) else None
        for call in calls or ():
            self._add_call(call.id, change)

    def _add_call(self, call_id: str, change: _Change) -> None:
        if call_id not in self.calls:
            self.calls.add(call_id)
            change.calls.append(call_id)
