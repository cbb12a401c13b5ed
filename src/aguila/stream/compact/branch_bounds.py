"""Lower bounds of the messages known on each run's branch: ``find_branches``, for ``compact``.

``compact`` may drop a message from a log only if every reader has it from elsewhere: a reader of the whole log and a
reader of one branch. A message counts as known only if every reading of the branch has it.

A run continues with the messages of its parent. They are copied only for a run after which others continue the same
parent.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

from aguila.codec.notices import ignore_notice
from aguila.protocol import (
    ActivitySnapshotEvent,
    AssistantMessage,
    Event,
    Message,
    MessagesSnapshotEvent,
    ReasoningMessageStartEvent,
    RunAgentInput,
    RunErrorEvent,
    RunStartedEvent,
    TextMessageStartEvent,
    ToolCallResultEvent,
    ToolCallStartEvent,
)
from aguila.stream.lineage import RunTree


class RunBranch:
    """The position of a run in the tree.

    ``parent`` is the index of the run that it continues. ``is_linear``: the branch up to this run has the same runs as
    the log up to this run. ``known`` are the echoed messages that the branch had before the run.
    """

    __slots__ = ("children", "is_linear", "known", "parent")

    def __init__(self, parent: int | None, *, is_linear: bool) -> None:
        self.parent = parent
        self.is_linear = is_linear
        self.known: set[str] = set()
        self.children: list[int] = []


def find_branches(runs: Sequence[Sequence[Event]]) -> list[RunBranch]:
    """Find the branch of each run, given by its expanded events. The first entry may be events before any run."""
    branches = _find_positions(runs)
    if all(branch.is_linear for branch in branches):
        return branches
    ends: dict[int | None, _KnownMessages] = {}  # after each run that others continue
    for index, (branch, events) in enumerate(zip(branches, runs, strict=True)):
        known = ends.get(branch.parent, _KnownMessages())
        if branch.parent is not None and index != branches[branch.parent].children[-1]:
            known = known.copy()
        branch.known = known.add_run(events)
        if branch.children:
            ends[index] = known
    return branches


def _find_positions(runs: Sequence[Sequence[Event]]) -> list[RunBranch]:
    branches: list[RunBranch] = []
    tree = RunTree(warn=ignore_notice)
    first = 0
    for index, events in enumerate(runs):
        start = events[0]
        if not isinstance(start, RunStartedEvent):  # events before any run are in no branch
            branches.append(RunBranch(None, is_linear=True))
            if all(isinstance(event, RunErrorEvent) for event in events):
                first = index + 1  # a RUN_ERROR without a run changes no branch
            continue
        node = tree.add(start, tree.find_parent(start))
        before = index - node.index  # 1 if there are events before any run
        parent = None if node.parent is None else node.parent.index + before
        is_linear = index == first if parent is None else parent == index - 1 and branches[parent].is_linear
        branches.append(RunBranch(parent, is_linear=is_linear))
        if parent is not None:
            branches[parent].children.append(index)
    return branches


class _KnownMessages:
    """The ids of messages that a branch certainly has, and of calls that it may have."""

    def __init__(self) -> None:
        self.messages: set[str] = set()
        self.calls: set[str] = set()

    def copy(self) -> _KnownMessages:
        found = _KnownMessages()
        found.messages, found.calls = self.messages.copy(), self.calls.copy()
        return found

    def add_run(self, events: Sequence[Event]) -> set[str]:
        """Apply a run. Returns which of its echoed messages were known before it."""
        known: set[str] = set()
        for event in events:
            match event:
                case RunStartedEvent(input=RunAgentInput(messages=messages)):
                    known = {message.id for message in messages if message.id in self.messages}
                    self._add_calls(message for message in messages if message.id not in known)
                    self.messages.update(message.id for message in messages)
                case MessagesSnapshotEvent(messages=messages):
                    self.messages = {message.id for message in messages}  # others may stay, too (MSGS-2)
                    self._add_calls(messages)
                case ToolCallStartEvent(tool_call_id=call_id, parent_message_id=parent):
                    if call_id not in self.calls:  # otherwise it has a message, whatever parent this event names
                        self.messages.add(call_id if parent is None or parent == "" else parent)
                        self.calls.add(call_id)
                case (
                    TextMessageStartEvent(message_id=message_id)
                    | ReasoningMessageStartEvent(message_id=message_id)
                    | ToolCallResultEvent(message_id=message_id)
                    | ActivitySnapshotEvent(message_id=message_id)
                ):
                    self.messages.add(message_id)
                case _:
                    pass
        return known

    def _add_calls(self, messages: Iterable[Message]) -> None:
        for message in messages:
            calls: list[Any] | None = message.tool_calls if isinstance(message, AssistantMessage) else None
            self.calls.update(call.id for call in calls or ())
