"""Lower bounds of the messages known on each run's branch: ``find_branches``, for ``compact``.

``compact`` may drop a message from a log only if every reader has it from elsewhere: a reader of the whole log and a
reader of one branch. A message counts as known only if every reading of the branch has it.

The tree is walked once with one set of messages, and the changes of a run are undone when its branch is left. So the
cost is the length of the log, whatever the number of branches.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from aguila.codec.notices import ignore_notice
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
    known_messages = _KnownMessages()
    # Not recursive: every run continues another, so deep trees are common.
    pending: list[tuple[int, _Change | None]] = [
        (i, None) for i, branch in enumerate(branches) if branch.parent is None
    ]
    while pending:
        index, change = pending.pop()
        if change is not None:
            known_messages.undo(change)
            continue
        branch = branches[index]
        branch.known, change = known_messages.add_run(runs[index])
        pending.append((index, change))
        pending.extend((child, None) for child in branch.children)
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


class _Change:
    """The changes of a run to the known messages, for ``undo``."""

    __slots__ = ("calls", "ids", "messages")

    def __init__(self, messages: set[str]) -> None:
        self.messages = messages  # the set before a snapshot replaced it
        self.ids: list[str] = []  # the ids added to that set
        self.calls: list[str] = []


class _KnownMessages:
    """The ids of messages that a branch certainly has, and of calls that it may have."""

    def __init__(self) -> None:
        self.messages: set[str] = set()
        self.calls: set[str] = set()

    def add_run(self, events: Sequence[Event]) -> tuple[set[str], _Change]:
        """Apply a run. Returns which of its echoed messages were known before it, and the change to undo."""
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
                    self.messages = {message.id for message in messages}  # others may stay, too (MSGS-2)
                    for message in messages:
                        self._add_calls(message, change)
                case ToolCallStartEvent(tool_call_id=call_id, parent_message_id=parent):
                    if call_id not in self.calls:  # otherwise it has a message, whatever parent this event names
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

    def undo(self, change: _Change) -> None:
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
