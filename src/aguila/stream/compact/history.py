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
    """Follow a log event by event. A state counts as known if every consumer has it."""

    def __init__(self, state: State, *, has_branches: bool) -> None:
        self._notices: list[Notice] = []
        self.reducer = Reducer(state=state, warn=self._notices.append)  # reads the whole log
        self.is_state_known = state is not UNSET  # whether the reducer's state is known
        # ``branch_bounds`` has lower bounds of the messages on a branch. These are upper bounds: the ids of all tool
        # messages, and of all messages that are not activities.
        self._has_branches = has_branches
        self.tool_ids: set[str] = set()
        self.non_activity_ids: set[str] = set()
        # The state on the branch, whether it is known, and both at the end of each run.
        self.branch_state: State = self.reducer.state
        self.is_branch_state_known = self.is_state_known
        self._root = (self.branch_state, self.is_branch_state_known)
        self._ends: list[tuple[State, bool]] = []

    def start_run(self, branch: RunBranch) -> None:
        """Continue from the end of the run's parent."""
        start = self._root if branch.parent is None else self._ends[branch.parent]
        self.branch_state, self.is_branch_state_known = start

    def end_run(self) -> None:
        """Remember the state at the end of the run."""
        self._ends.append((self.branch_state, self.is_branch_state_known))

    @property
    def knows_state(self) -> bool:
        """Whether the state is known in the whole log and on the branch."""
        return self.is_state_known and self.is_branch_state_known

    def set_start_state(self, state: State) -> None:
        """Set the state that the input of a run states."""
        if self.is_state_known and not json_equal(state, self.reducer.state):
            self.is_state_known = False  # the application has changed it between the runs
        if not json_equal(state, self.branch_state):
            self.branch_state = state
        self.is_branch_state_known = True

    def feed(self, event: Event) -> bool:
        """Apply an event. Returns whether its patch failed, in the whole log or on the branch."""
        cls = event.__class__
        is_one = self.branch_state is self.reducer.state
        self._notices.clear()
        self.reducer.feed(event)
        failed = bool(self._notices) and self._notices[-1].rule in ("SNAP-9", "ACT-8")
        if cls is StateSnapshotEvent:
            self.is_state_known = self.is_branch_state_known = True
            self.branch_state = self.reducer.state
        elif cls is StateDeltaEvent:
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
