"""Layer: stream. What came before a run, in both readings of a log: ``Past``, for ``compact``.

Below: the reducer, which reads the log in a row, and ``branches``, which says what a run continues. Above: ``compact``
asks it what it may leave out. It takes in the events one by one and changes none.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import cast

from msgspec import UNSET

from aguila.codec.notice import Notice
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
from aguila.stream.branches import Branch
from aguila.stream.patch import apply_patch, same_json
from aguila.stream.reduce import Reducer


class Past:
    """What came before, in a row and on the branch of the present run, and whether its state is what a consumer has."""

    def __init__(self, state: State, *, is_branched: bool) -> None:
        self._notices: list[Notice] = []
        self.reducer = Reducer(state=state, warn=self._notices.append)  # in a row
        self.is_sure = state is not UNSET  # of the reducer's state
        # On the branch there are only lower bounds of messages (``branches``) and these upper ones: which ids were
        # ever of a tool message, and which of any message that is no activity.
        self._is_branched = is_branched
        self.tool_ids: set[str] = set()
        self.plain_ids: set[str] = set()
        # The state on the branch, whether that is sure, and what each run left of it.
        self.branch_state: State = self.reducer.state
        self.is_sure_of_branch = self.is_sure
        self._root = (self.branch_state, self.is_sure_of_branch)
        self._ends: list[tuple[State, bool]] = []

    def enter(self, branch: Branch) -> None:
        """A run begins."""
        start = self._root if branch.parent is None else self._ends[branch.parent]
        self.branch_state, self.is_sure_of_branch = start

    def leave(self) -> None:
        """The run has ended."""
        self._ends.append((self.branch_state, self.is_sure_of_branch))

    @property
    def knows_state(self) -> bool:
        """Whether the state is known in both readings."""
        return self.is_sure and self.is_sure_of_branch

    def start_from(self, state: State) -> None:
        """A run was started from this state, as its input says."""
        if self.is_sure and not same_json(state, self.reducer.state):
            self.is_sure = False  # the application changed it between the runs
        if not same_json(state, self.branch_state):
            self.branch_state = state
        self.is_sure_of_branch = True

    def feed(self, event: Event) -> bool:
        """Take in an event; says whether a patch in it did not apply, in either reading."""
        cls = event.__class__
        is_one = self.branch_state is self.reducer.state
        self._notices.clear()
        self.reducer.feed(event)
        failed = bool(self._notices) and self._notices[-1].rule in ("SNAP-9", "ACT-8")
        if cls is StateSnapshotEvent:
            self.is_sure = self.is_sure_of_branch = True
            self.branch_state = self.reducer.state
        elif cls is StateDeltaEvent:
            if is_one:
                self.branch_state = self.reducer.state
            else:
                try:
                    self.branch_state = apply_patch(self.branch_state, cast("StateDeltaEvent", event).delta)
                except PatchError:
                    failed = True
        elif self._is_branched:
            self._note(event)
        return failed

    def _note(self, event: Event) -> None:
        match event:
            case TextMessageStartEvent() | ReasoningMessageStartEvent():
                self.plain_ids.add(event.message_id)
            case ToolCallStartEvent():
                self.plain_ids.add(event.tool_call_id)
                if event.parent_message_id is not None:
                    self.plain_ids.add(event.parent_message_id)
            case ToolCallResultEvent():
                self.plain_ids.add(event.message_id)
                self.tool_ids.add(event.message_id)
            case MessagesSnapshotEvent():
                self.note_messages(event.messages)
            case _:
                pass

    def note_messages(self, messages: Iterable[Message]) -> None:
        """Take note of messages that a snapshot or an echo brings."""
        for message in messages:
            if message.role != "activity":
                self.plain_ids.add(message.id)
            if message.role == "tool":
                self.tool_ids.add(message.id)
