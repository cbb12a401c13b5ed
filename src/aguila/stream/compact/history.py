"""The messages and state before each event, for ``compact``: in the whole log, and on the run's branch."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any, Final, cast

from msgspec import UNSET

from aguila.codec.notices import Notice, ignore_notice
from aguila.errors import PatchError
from aguila.protocol import (
    Event,
    Message,
    MessagesSnapshotEvent,
    ReasoningMessageStartEvent,
    RunErrorEvent,
    RunStartedEvent,
    State,
    StateDeltaEvent,
    StateSnapshotEvent,
    TextMessageStartEvent,
    ToolCallResultEvent,
    ToolCallStartEvent,
)
from aguila.stream.json_values import json_equal
from aguila.stream.lineage import RunTree
from aguila.stream.patch import apply_patch
from aguila.stream.reducer import Reducer


class History:
    """Follow a log event by event. A state counts as known if every consumer has it.

    As long as each run continues the run before it, a branch has the messages of the log. After a run that starts a
    branch, nothing is known of the messages and the state before a run.

    Without a ``state`` it is assumed to be ``{}`` until a snapshot or an input states it. A patch that applies to what
    the log made of ``{}`` has the same effect on any other state, unless ``_depends_on_root``.
    """

    def __init__(self, state: State) -> None:
        self._notices: list[Notice] = []
        self.reducer = Reducer(state=state, warn=self._notices.append)  # reads the whole log
        self.is_linear = True
        """Whether the branch of the current run has the same runs as the log up to this run."""
        # A branch may have any message of the log: the ids of all tool messages, and of all that are not activities.
        self.tool_ids: set[str] = set()
        self.non_activity_ids: set[str] = set()
        self._tree = RunTree(warn=ignore_notice)
        self._has_stray_events = False
        self._is_state_known = True  # whether the reducer's state is known, or assumed
        self._is_assumed = state is UNSET
        # The same for the branch.
        self._branch_state: State = self.reducer.state
        self._is_branch_state_known = True
        self._is_branch_assumed = self._is_assumed

    def start_run(self, events: Sequence[Event]) -> None:
        """Begin a run, given by its expanded events, or the events before any run."""
        start = events[0]
        if not isinstance(start, RunStartedEvent):  # in no branch; a RUN_ERROR without a run changes none
            self._has_stray_events = not all(isinstance(event, RunErrorEvent) for event in events)
            return
        latest = self._tree.latest
        node = self._tree.add(start, self._tree.find_parent(start))
        self.is_linear = self.is_linear and not self._has_stray_events and node.parent is latest
        if not self.is_linear:
            self._is_state_known = False

    @property
    def knows_state(self) -> bool:
        """Whether the state is known in the whole log and on the branch."""
        return self._is_state_known and self._is_branch_state_known

    def set_start_state(self, state: State) -> None:
        """Set the state that the input of a run states."""
        if self._is_state_known and not self._is_assumed and not json_equal(state, self.reducer.state):
            self._is_state_known = False  # the application has changed it between the runs
        if not json_equal(state, self._branch_state):
            self._branch_state = state
        self._is_branch_state_known, self._is_branch_assumed = True, False

    def feed(self, event: Event) -> bool:
        """Apply an event. Returns whether its patch failed, in the whole log or on the branch."""
        cls = event.__class__
        is_one = self._branch_state is self.reducer.state
        self._notices.clear()
        self.reducer.feed(event)
        failed = bool(self._notices) and self._notices[-1].rule in ("SNAP-9", "ACT-8")
        if cls is StateSnapshotEvent:
            self._is_state_known = self._is_branch_state_known = True
            self._is_assumed = self._is_branch_assumed = False
            self._branch_state = self.reducer.state
        elif cls is StateDeltaEvent:
            if (self._is_assumed or self._is_branch_assumed) and _depends_on_root(cast("StateDeltaEvent", event)):
                self._is_state_known = self._is_state_known and not self._is_assumed
                self._is_branch_state_known = self._is_branch_state_known and not self._is_branch_assumed
                self._is_assumed = self._is_branch_assumed = False
            if is_one:
                self._branch_state = self.reducer.state
            else:
                try:
                    self._branch_state = apply_patch(self._branch_state, cast("StateDeltaEvent", event).delta)
                except PatchError:
                    failed = True
        elif cls is MessagesSnapshotEvent:
            self.add_message_ids(cast("MessagesSnapshotEvent", event).messages)
        elif cls in _CREATES:
            ids: set[Any] = {
                getattr(event, name, None) for name in ("message_id", "tool_call_id", "parent_message_id")
            } - {None}
            self.non_activity_ids.update(ids)
            if cls is ToolCallResultEvent:
                self.tool_ids.add(cast("ToolCallResultEvent", event).message_id)
        return failed

    def add_message_ids(self, messages: Iterable[Message]) -> None:
        """Record the ids of messages from a snapshot or an echoed input."""
        self.non_activity_ids.update(message.id for message in messages if message.role != "activity")
        self.tool_ids.update(message.id for message in messages if message.role == "tool")


_CREATES: Final = {TextMessageStartEvent, ReasoningMessageStartEvent, ToolCallStartEvent, ToolCallResultEvent}
"""The events that create a message that is no activity."""


def _depends_on_root(event: StateDeltaEvent) -> bool:
    """Return whether a patch uses the document as a whole, or might have a list as its document."""
    for operation in event.delta:
        for pointer in (operation["path"], operation.get("from", "/")):
            first = str(pointer).split("/")[1] if pointer else "-"
            if first == "-" or first.isdigit():
                return True
    return False
