"""The messages and state before each run, for ``compact``: in the whole log, and on the run's branch."""

from __future__ import annotations

from collections.abc import Iterable
from typing import cast

from msgspec import UNSET

from aguila.codec.notices import Notice
from aguila.errors import PatchError
from aguila.protocol import (
    Event,
    Message,
    MessagesSnapshotEvent,
    ReasoningMessageStartEvent,
    State,
    StateDeltaEvent,
    StateSnapshotEvent,
    TextMessageStartEvent,
    ToolCallResultEvent,
    ToolCallStartEvent,
)
from aguila.stream.compact.branch_bounds import RunBranch
from aguila.stream.json_values import json_equal
from aguila.stream.patch import apply_patch
from aguila.stream.reducer import Reducer


class History:
    """Follow a log event by event. A state counts as known if every consumer has it.

    Without a ``state`` it is assumed to be ``{}`` until a snapshot or an input states it. A patch that applies to what
    the log made of ``{}`` has the same effect on any other state, unless ``_depends_on_root``.
    """

    def __init__(self, state: State, *, has_branches: bool) -> None:
        self._notices: list[Notice] = []
        self.reducer = Reducer(state=state, warn=self._notices.append)  # reads the whole log
        self.is_state_known = True  # whether the reducer's state is known, or assumed
        self._is_assumed = state is UNSET
        # ``branch_bounds`` has lower bounds of the messages on a branch. These are upper bounds: the ids of all tool
        # messages, and of all messages that are not activities.
        self._has_branches = has_branches
        self.tool_ids: set[str] = set()
        self.non_activity_ids: set[str] = set()
        # The state on the branch, whether it is known, whether it is assumed, and all three at the end of each run.
        self.branch_state: State = self.reducer.state
        self.is_branch_state_known = True
        self._is_branch_assumed = self._is_assumed
        self._root = (self.branch_state, True, self._is_assumed)
        self._ends: list[tuple[State, bool, bool]] = []

    def start_run(self, branch: RunBranch) -> None:
        """Continue from the end of the run's parent."""
        start = self._root if branch.parent is None else self._ends[branch.parent]
        self.branch_state, self.is_branch_state_known, self._is_branch_assumed = start

    def end_run(self) -> None:
        """Remember the state at the end of the run."""
        self._ends.append((self.branch_state, self.is_branch_state_known, self._is_branch_assumed))

    @property
    def knows_state(self) -> bool:
        """Whether the state is known in the whole log and on the branch."""
        return self.is_state_known and self.is_branch_state_known

    def set_start_state(self, state: State) -> None:
        """Set the state that the input of a run states."""
        if self.is_state_known and not self._is_assumed and not json_equal(state, self.reducer.state):
            self.is_state_known = False  # the application has changed it between the runs
        if not json_equal(state, self.branch_state):
            self.branch_state = state
        self.is_branch_state_known, self._is_branch_assumed = True, False

    def feed(self, event: Event) -> bool:
        """Apply an event. Returns whether its patch failed, in the whole log or on the branch."""
        cls = event.__class__
        is_one = self.branch_state is self.reducer.state
        self._notices.clear()
        self.reducer.feed(event)
        failed = bool(self._notices) and self._notices[-1].rule in ("SNAP-9", "ACT-8")
        if cls is StateSnapshotEvent:
            self.is_state_known = self.is_branch_state_known = True
            self._is_assumed = self._is_branch_assumed = False
            self.branch_state = self.reducer.state
        elif cls is StateDeltaEvent:
            if (self._is_assumed or self._is_branch_assumed) and _depends_on_root(cast("StateDeltaEvent", event)):
                self.is_state_known = self.is_state_known and not self._is_assumed
                self.is_branch_state_known = self.is_branch_state_known and not self._is_branch_assumed
                self._is_assumed = self._is_branch_assumed = False
            if is_one:
                self.branch_state = self.reducer.state
            else:
                try:
                    self.branch_state = apply_patch(self.branch_state, cast("StateDeltaEvent", event).delta)
                except PatchError:
                    failed = True
        elif self._has_branches:
            self._add_event_ids(event)
        return failed

    def _add_event_ids(self, event: Event) -> None:
        match event:
            case TextMessageStartEvent() | ReasoningMessageStartEvent():
                self.non_activity_ids.add(event.message_id)
            case ToolCallStartEvent():
                self.non_activity_ids.add(event.tool_call_id)
                if event.parent_message_id is not None:
                    self.non_activity_ids.add(event.parent_message_id)
            case ToolCallResultEvent():
                self.non_activity_ids.add(event.message_id)
                self.tool_ids.add(event.message_id)
            case MessagesSnapshotEvent():
                self.add_message_ids(event.messages)
            case _:
                pass

    def add_message_ids(self, messages: Iterable[Message]) -> None:
        """Record the ids of messages from a snapshot or an echoed input."""
        for message in messages:
            if message.role != "activity":
                self.non_activity_ids.add(message.id)
            if message.role == "tool":
                self.tool_ids.add(message.id)


def _depends_on_root(event: StateDeltaEvent) -> bool:
    """Return whether a patch uses the document as a whole, or might have a list as its document."""
    for operation in event.delta:
        for pointer in (operation["path"], operation.get("from", "/")):
            first = str(pointer).split("/")[1] if pointer else "-"
            if first == "-" or first.isdigit():
                return True
    return False
