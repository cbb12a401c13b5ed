"""``EventWriter``: write the events of one run so that every event is legal.

The sequence rules are not repeated here: the verifier checks every event before it is returned. Ids and time come from
the functions passed in.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import Any, ClassVar, NoReturn, cast

from aguila.errors import EncodeError, IllegalStep, PatchError, SequenceError
from aguila.protocol import (
    PROTOCOL_VERSION,
    ActivityDeltaEvent,
    ActivitySnapshotEvent,
    ContentPart,
    CustomEvent,
    Event,
    Interrupt,
    JsonPatchOperation,
    Message,
    MessagesSnapshotEvent,
    Metadata,
    RawEvent,
    ReasoningEncryptedValueEvent,
    ReasoningEncryptedValueSubtype,
    ReasoningEndEvent,
    ReasoningMessageContentEvent,
    ReasoningMessageEndEvent,
    ReasoningMessageStartEvent,
    ReasoningStartEvent,
    RunAgentInput,
    RunErrorEvent,
    RunFinishedCancelledOutcome,
    RunFinishedEvent,
    RunFinishedInterruptOutcome,
    RunFinishedSuccessOutcome,
    RunStartedEvent,
    StateDeltaEvent,
    StateSnapshotEvent,
    StepFinishedEvent,
    StepStartedEvent,
    SubagentErrorEvent,
    SubagentFinishedEvent,
    SubagentFinishedOutcome,
    SubagentFinishedSuspendedOutcome,
    SubagentStartedEvent,
    TextMessageContentEvent,
    TextMessageEndEvent,
    TextMessageRole,
    TextMessageStartEvent,
    TokenUsage,
    ToolCallArgsEvent,
    ToolCallEndEvent,
    ToolCallResultEvent,
    ToolCallStartEvent,
    replace,
)
from aguila.stream.chunks import ChunkExpander
from aguila.stream.json_values import copy_json
from aguila.stream.patch import PatchLimit, apply_patch, make_patch
from aguila.stream.verification.producer_rules import ProducerRules
from aguila.stream.verification.rules import (
    REASONING_MESSAGE,
    REASONING_SPAN,
    SUBAGENT,
    TEXT,
    TOOL_CALL,
    Item,
    RunState,
)
from aguila.stream.verification.verifier import OpenItem, Verifier

Events = list[Event]

_DELTAS: frozenset[type[Any]] = frozenset({TextMessageContentEvent, ReasoningMessageContentEvent, ToolCallArgsEvent})


class EventWriter:
    """Write the events of one run, and never an illegal one.

    Every method returns the events to send, in order. If a rule would be broken, it raises ``IllegalStep`` and the
    writer is unchanged. If a method makes a new id, the event with that id is the last one returned. To write for a
    subagent, pass its id as ``subagent`` when you open an item; later events of the item get the same tag. Chunks are
    expanded, so that no event depends on a field that the agent omitted.

    Only the order of events is checked, not their values. An event passed to ``emit`` is sent as it is, and a NaN in it
    is found when the event is encoded. Methods that take JSON values copy and check them at once.

    ``new_id`` makes the ids that are not given. ``now`` returns the timestamp of an event in milliseconds; without it
    events have none. ``input`` is echoed on RUN_STARTED. ``state`` is the consumer's state when the run starts; the
    default is the input's state, or ``{}`` (IN-11).
    """

    def __init__(
        self,
        thread_id: str,
        run_id: str,
        *,
        new_id: Callable[[], str],
        parent_run_id: str | None = None,
        input: RunAgentInput | None = None,  # noqa: A002 - the protocol's word for it
        state: Any = None,
        now: Callable[[], int] | None = None,
        max_size: int | None = None,
    ) -> None:
        self.thread_id = thread_id
        self.run_id = run_id
        self._new_id = new_id
        self._now = now
        self._parent_run_id = parent_run_id
        self._input = input
        self._verifier = Verifier(producer=True)
        self._producer_rules = cast("ProducerRules", self._verifier.producer_rules)
        self._expander = ChunkExpander()
        if state is None:
            state = {} if input is None or input.state is None else input.state
        self.state: Any = copy_json(state)
        """The state that was last sent. Do not change it in place."""
        self._patches = PatchLimit(max_size)
        self._prepared: tuple[Event, Any] | None = None  # a state event, and a copy of its state or patch

    # Queries

    @property
    def is_open(self) -> bool:
        """Whether the run has started and not ended."""
        return self._verifier.run_state is RunState.OPEN

    @property
    def is_finished(self) -> bool:
        """Whether RUN_FINISHED or RUN_ERROR was written."""
        return self._verifier.run_state in (RunState.FINISHED, RunState.FAILED)

    @property
    def open_items(self) -> list[OpenItem]:
        """The open items, in the order in which ``close_open_items`` closes them."""
        return self._verifier.open_items

    def has_open(self, item: Item, item_id: str, owner: str | None = None) -> bool:
        """Return whether this item is open. ``owner`` is used for steps, which each owner can have open."""
        return self._verifier.is_open(item, item_id, owner)

    def has_call(self, tool_call_id: str) -> bool:
        """Return whether this call was started in the run."""
        return self._producer_rules.has_call(tool_call_id)

    def has_activity(self, message_id: str) -> bool:
        """Return whether this activity has a snapshot, so that it can be patched (ACT-8)."""
        return message_id in self._producer_rules.activity_types

    @property
    def pending_tool_call_ids(self) -> list[str]:
        """The calls that have no result so far, in call order (FT-3)."""
        return self._producer_rules.pending_tool_call_ids

    @property
    def last_messages(self) -> set[str]:
        """The ids of the last text message and of the message of the last tool call, if they exist."""
        return self._producer_rules.last_messages

    def assume_state(self, state: Any) -> None:
        """Set the state that the client has, without sending it: later changes are compared with it."""
        self.state = copy_json(state)

    # Run boundaries

    def start(self, *, metadata: Metadata | None = None) -> Events:
        """Write RUN_STARTED with our protocol version (VER-2)."""
        return self.write(
            RunStartedEvent(
                thread_id=self.thread_id,
                run_id=self.run_id,
                protocol_version=PROTOCOL_VERSION,
                parent_run_id=self._parent_run_id,
                input=self._input,
                metadata=metadata,
            )
        )

    def finish(
        self, result: Any = None, *, usage: list[TokenUsage] | None = None, metadata: Metadata | None = None
    ) -> Events:
        """Close all items and write RUN_FINISHED as a success, with the calls left to the front end (FT-3)."""
        pending = self.pending_tool_call_ids
        outcome = RunFinishedSuccessOutcome(pending_tool_call_ids=pending if pending else None)
        return self._finish(self._run_finished(outcome, usage, metadata, result))

    def interrupt(
        self,
        interrupts: Sequence[Interrupt],
        *,
        usage: list[TokenUsage] | None = None,
        metadata: Metadata | None = None,
    ) -> Events:
        """Close all items and write RUN_FINISHED with interrupts. Open subagents are suspended (INT-1, SUB-7)."""
        outcome = RunFinishedInterruptOutcome(interrupts=list(interrupts))
        return self._finish(self._run_finished(outcome, usage, metadata))

    def cancel(self, *, usage: list[TokenUsage] | None = None, metadata: Metadata | None = None) -> Events:
        """Close all items and write RUN_FINISHED as cancelled. Open subagents end with an error (LIFE-8)."""
        return self._finish(self._run_finished(RunFinishedCancelledOutcome(), usage, metadata))

    def fail(
        self,
        message: str,
        code: str | None = None,
        *,
        usage: list[TokenUsage] | None = None,
        metadata: Metadata | None = None,
    ) -> Events:
        """Write RUN_ERROR, which ends all items without closing them (LIFE-13). Also allowed before ``start``."""
        return self._fail(RunErrorEvent(message=message, code=code, usage=usage, metadata=metadata))

    def close_open_items(self) -> Events:
        """Close all open items: inner items first, inner subagents first."""
        return self._close_all(None)

    def emit(self, event: Event) -> Events:
        """Write an event made by an agent, with its chunks expanded.

        Raises TypeError for an object that is not an event.

        RUN_FINISHED and RUN_ERROR work as ``finish`` and ``fail``: open items are closed, and the calls left to the
        front end are added if the event does not list them. RUN_STARTED is accepted only as the first event and with
        this run's ids. It gets our protocol version (VER-2); after ``start`` it is ignored.
        """
        special = self._emitters.get(event.__class__)
        return self.write(event) if special is None else special(self, event)

    def prepare(self, event: StateSnapshotEvent | StateDeltaEvent) -> None:
        """Prepare a large state event for ``emit``. May be called in another thread; changes nothing.

        If the state changes before the event is emitted, or if the event is not JSON, ``emit`` does the work again.
        """
        with suppress(EncodeError):
            if isinstance(event, StateSnapshotEvent):
                self._prepared = (event, copy_json(event.snapshot))
                return
            delta = copy_json(event.delta)
            self._patches.prepare(self.state, delta)
            self._prepared = (event, delta)

    # State

    def set_state(self, state: Any, *, subagent: str | None = None, metadata: Metadata | None = None) -> Events:
        """Write the shortest event that changes the state to this value; no event if nothing changed.

        Raises ``EncodeError`` if the new state is not JSON.
        """
        patch: list[Any] = [*make_patch(self.state, state)]
        try:
            for operation in patch:
                if "value" in operation:
                    operation["value"] = copy_json(operation["value"])
        except EncodeError:
            copy_json(state)  # raises with the place in the state, not in the value
            raise
        if not patch:
            return []
        if patch[0]["path"] == "":
            snapshot = patch[0]["value"]
            event = StateSnapshotEvent(snapshot=snapshot, subagent_run_id=subagent, metadata=metadata)
            return self._send_state(event, snapshot)
        return self._send_state(
            StateDeltaEvent(delta=patch, subagent_run_id=subagent, metadata=metadata), apply_patch(self.state, patch)
        )

    def patch_state(
        self,
        patch: Sequence[JsonPatchOperation],
        *,
        subagent: str | None = None,
        metadata: Metadata | None = None,
    ) -> Events:
        """Change the state by a JSON Patch.

        Raises ``IllegalStep`` if the patch is malformed (SNAP-8) or does not apply (SNAP-9), and ``EncodeError`` if it
        is not JSON.
        """
        operations = copy_json(list(patch))
        return self._send_state(
            StateDeltaEvent(delta=operations, subagent_run_id=subagent, metadata=metadata),
            self._apply_to_state(operations),
        )

    # Text

    def start_text(
        self,
        message_id: str | None = None,
        *,
        role: TextMessageRole | None = None,
        name: str | None = None,
        subagent: str | None = None,
        metadata: Metadata | None = None,
    ) -> Events:
        """Open a text message. The id of a closed message opens it again, and text is appended (TXT-3).

        The role, ``assistant`` by default, is always written: the .NET SDK 0.0.5 fails without one.
        """
        return self.write(
            TextMessageStartEvent(
                message_id=self._id(message_id),
                role="assistant" if role is None else role,
                name=name,
                subagent_run_id=subagent,
                metadata=metadata,
            )
        )

    def write_text(self, message_id: str, delta: str, *, metadata: Metadata | None = None) -> Events:
        """Append text to an open message."""
        tag = self._verifier.tag_of(TEXT, message_id)
        return self.write(
            TextMessageContentEvent(message_id=message_id, delta=delta, subagent_run_id=tag, metadata=metadata)
        )

    def end_text(self, message_id: str, *, metadata: Metadata | None = None) -> Events:
        """Close a text message."""
        tag = self._verifier.tag_of(TEXT, message_id)
        return self.write(TextMessageEndEvent(message_id=message_id, subagent_run_id=tag, metadata=metadata))

    # Tool calls

    def start_tool_call(
        self,
        name: str,
        tool_call_id: str | None = None,
        *,
        parent_message_id: str | None = None,
        subagent: str | None = None,
        metadata: Metadata | None = None,
    ) -> Events:
        """Open a tool call on its parent message."""
        return self.write(
            ToolCallStartEvent(
                tool_call_id=self._id(tool_call_id),
                tool_call_name=name,
                parent_message_id=parent_message_id,
                subagent_run_id=subagent,
                metadata=metadata,
            )
        )

    def write_tool_args(self, tool_call_id: str, delta: str, *, metadata: Metadata | None = None) -> Events:
        """Append text to the arguments of an open call."""
        tag = self._verifier.tag_of(TOOL_CALL, tool_call_id)
        return self.write(
            ToolCallArgsEvent(tool_call_id=tool_call_id, delta=delta, subagent_run_id=tag, metadata=metadata)
        )

    def end_tool_call(self, tool_call_id: str, *, metadata: Metadata | None = None) -> Events:
        """Close a tool call, whose arguments are then complete (TOOL-3)."""
        tag = self._verifier.tag_of(TOOL_CALL, tool_call_id)
        return self.write(ToolCallEndEvent(tool_call_id=tool_call_id, subagent_run_id=tag, metadata=metadata))

    def tool_result(
        self,
        tool_call_id: str,
        content: str | list[ContentPart],
        *,
        message_id: str | None = None,
        subagent: str | None = None,
        metadata: Metadata | None = None,
    ) -> Events:
        """Write the result of a call, as a tool message with its own id (TOOL-5)."""
        return self.write(
            ToolCallResultEvent(
                message_id=self._id(message_id),
                tool_call_id=tool_call_id,
                content=content,
                role="tool",
                subagent_run_id=subagent,
                metadata=metadata,
            )
        )

    # Reasoning

    def start_reasoning(
        self, span_id: str | None = None, *, subagent: str | None = None, metadata: Metadata | None = None
    ) -> Events:
        """Open a reasoning span, which may contain several reasoning messages and is not a message itself (RSN-2)."""
        return self.write(
            ReasoningStartEvent(message_id=self._id(span_id), subagent_run_id=subagent, metadata=metadata)
        )

    def end_reasoning(self, span_id: str, *, metadata: Metadata | None = None) -> Events:
        """Close a reasoning span."""
        tag = self._verifier.tag_of(REASONING_SPAN, span_id)
        return self.write(ReasoningEndEvent(message_id=span_id, subagent_run_id=tag, metadata=metadata))

    def start_reasoning_message(
        self, message_id: str | None = None, *, subagent: str | None = None, metadata: Metadata | None = None
    ) -> Events:
        """Open a reasoning message."""
        return self.write(
            ReasoningMessageStartEvent(
                message_id=self._id(message_id), role="reasoning", subagent_run_id=subagent, metadata=metadata
            )
        )

    def write_reasoning(self, message_id: str, delta: str, *, metadata: Metadata | None = None) -> Events:
        """Append text to an open reasoning message."""
        tag = self._verifier.tag_of(REASONING_MESSAGE, message_id)
        return self.write(
            ReasoningMessageContentEvent(message_id=message_id, delta=delta, subagent_run_id=tag, metadata=metadata)
        )

    def end_reasoning_message(self, message_id: str, *, metadata: Metadata | None = None) -> Events:
        """Close a reasoning message."""
        tag = self._verifier.tag_of(REASONING_MESSAGE, message_id)
        return self.write(ReasoningMessageEndEvent(message_id=message_id, subagent_run_id=tag, metadata=metadata))

    def encrypted_value(
        self,
        subtype: ReasoningEncryptedValueSubtype,
        entity_id: str,
        value: str,
        *,
        value_type: str | None = None,
        subagent: str | None = None,
        metadata: Metadata | None = None,
    ) -> Events:
        """Write an opaque value that the consumer stores with a message or call and sends back (ENC-1)."""
        return self.write(
            ReasoningEncryptedValueEvent(
                subtype=subtype,
                entity_id=entity_id,
                encrypted_value=value,
                encrypted_value_type=value_type,
                subagent_run_id=subagent,
                metadata=metadata,
            )
        )

    # Steps and subagents

    def start_step(self, name: str, *, subagent: str | None = None, metadata: Metadata | None = None) -> Events:
        """Open a step. Each owner may have one open step of a name (STEP-1)."""
        return self.write(StepStartedEvent(step_name=name, subagent_run_id=subagent, metadata=metadata))

    def finish_step(self, name: str, *, subagent: str | None = None, metadata: Metadata | None = None) -> Events:
        """Close a step of this owner (STEP-4)."""
        return self.write(StepFinishedEvent(step_name=name, subagent_run_id=subagent, metadata=metadata))

    def start_subagent(
        self,
        name: str,
        subagent_run_id: str | None = None,
        *,
        description: str | None = None,
        parent_subagent_run_id: str | None = None,
        parent_tool_call_id: str | None = None,
        parent_message_id: str | None = None,
        metadata: Metadata | None = None,
    ) -> Events:
        """Announce an invocation of a subagent."""
        return self.write(
            SubagentStartedEvent(
                subagent_run_id=self._id(subagent_run_id),
                name=name,
                description=description,
                parent_subagent_run_id=parent_subagent_run_id,
                parent_tool_call_id=parent_tool_call_id,
                parent_message_id=parent_message_id,
                metadata=metadata,
            )
        )

    def finish_subagent(
        self,
        subagent_run_id: str,
        result: Any = None,
        *,
        outcome: SubagentFinishedOutcome | None = None,
        metadata: Metadata | None = None,
    ) -> Events:
        """Close the open items of an invocation, then the invocation."""
        return self.end_subagent(
            SubagentFinishedEvent(subagent_run_id=subagent_run_id, result=result, outcome=outcome, metadata=metadata)
        )

    def fail_subagent(
        self, subagent_run_id: str, message: str, code: str | None = None, *, metadata: Metadata | None = None
    ) -> Events:
        """Close the open items of an invocation, then report its failure. The run continues (SUB-6)."""
        return self.end_subagent(
            SubagentErrorEvent(subagent_run_id=subagent_run_id, message=message, code=code, metadata=metadata)
        )

    # Messages, activities and other events

    def messages_snapshot(self, messages: Sequence[Message], *, metadata: Metadata | None = None) -> Events:
        """Write a snapshot of the messages (MSGS-1)."""
        return self.write(MessagesSnapshotEvent(messages=list(messages), metadata=metadata))

    def activity_snapshot(
        self,
        activity_type: str,
        content: dict[str, Any],
        message_id: str | None = None,
        *,
        replace: bool | None = None,
        subagent: str | None = None,
        metadata: Metadata | None = None,
    ) -> Events:
        """Create an activity message, or replace its content."""
        return self.write(
            ActivitySnapshotEvent(
                message_id=self._id(message_id),
                activity_type=activity_type,
                content=copy_json(content),
                replace=replace,
                subagent_run_id=subagent,
                metadata=metadata,
            )
        )

    def activity_delta(
        self,
        message_id: str,
        patch: Sequence[JsonPatchOperation],
        *,
        activity_type: str | None = None,
        subagent: str | None = None,
        metadata: Metadata | None = None,
    ) -> Events:
        """Change the content of an activity by a JSON Patch, and its type if one is given (ACT-7)."""
        if activity_type is None:
            activity_type = self._producer_rules.activity_types.get(message_id, "")
        return self.write(
            ActivityDeltaEvent(
                message_id=message_id,
                activity_type=activity_type,
                patch=copy_json(list(patch)),
                subagent_run_id=subagent,
                metadata=metadata,
            )
        )

    def custom(self, name: str, value: Any, *, subagent: str | None = None, metadata: Metadata | None = None) -> Events:
        """Write an event that the application defines."""
        return self.write(CustomEvent(name=name, value=copy_json(value), subagent_run_id=subagent, metadata=metadata))

    def raw(
        self,
        event: Any,
        *,
        source: str | None = None,
        subagent: str | None = None,
        metadata: Metadata | None = None,
    ) -> Events:
        """Write an event of another system, in addition to the standard events with the same meaning (PASS-3)."""
        return self.write(RawEvent(event=copy_json(event), source=source, subagent_run_id=subagent, metadata=metadata))

    # Internals

    def _id(self, given: str | None) -> str:
        return self._new_id() if given is None else given

    def _add_timestamp(self, event: Any) -> Any:
        if self._now is None or event.timestamp is not None:
            return event
        return replace(event, timestamp=self._now())

    def _verify(self, event: Event) -> None:
        try:
            self._verifier.feed(event)
        except SequenceError as error:
            _raise_illegal(error)

    def write(self, event: Event) -> Events:
        """Write one event that neither starts or ends a run nor changes the state.

        The ends of the chunked items that it ends come first. If the event is refused, none of them is written.
        """
        verifier = self._verifier
        if event.__class__ in _DELTAS and self._now is None and not self._expander.lanes:
            # Almost every event: nothing to expand, no timestamp, nothing to undo. For "serve, memory, hot source", 6x.
            try:
                verifier.feed(event)
            except SequenceError as error:
                _raise_illegal(error)
            return [event]
        saved = self._expander.save()
        written: Events = []
        opened = None
        try:
            parts = self._expander.feed(event)
            if len(parts) > 1:
                opened = verifier.save()
            for part in parts:
                stamped = self._add_timestamp(part)
                verifier.feed(stamped)
                written.append(stamped)
        except SequenceError as error:
            # The ends come first. Their items are open, so only the event itself can be refused.
            self._expander.restore(saved)
            if opened is not None:
                verifier.restore(opened)
            _raise_illegal(error)
        return written

    def _close(self, items: Sequence[OpenItem], ending: RunFinishedEvent | None) -> Events:
        closed: Events = []
        for item, item_id, owner in items:
            event = self._add_timestamp(_make_closing_event(item, item_id, owner, ending))
            self._verify(event)
            closed.append(event)
        return closed

    def _close_all(self, ending: RunFinishedEvent | None) -> Events:
        closed = self._close(self.open_items, ending)
        self._expander.close()  # the items opened by chunks are among the closed ones
        return closed

    def _run_finished(
        self, outcome: Any, usage: list[TokenUsage] | None, metadata: Metadata | None, result: Any = None
    ) -> RunFinishedEvent:
        return RunFinishedEvent(
            thread_id=self.thread_id,
            run_id=self.run_id,
            result=copy_json(result),
            outcome=outcome,
            usage=usage,
            metadata=metadata,
        )

    def _finish(self, event: RunFinishedEvent) -> Events:
        if self.is_open:
            for rule, message in self._producer_rules.check(event):  # before any item is closed
                raise IllegalStep(message, rule=rule)
            closed = self._close_all(event)
        else:
            closed = []  # write() raises the error
        return [*closed, *self.write(event)]

    def _fail(self, event: RunErrorEvent) -> Events:
        if self._verifier.run_state is RunState.FINISHED:
            # The protocol allows a RUN_ERROR after RUN_FINISHED (LIFE-15), but a writer ends its run once.
            raise IllegalStep("the run has already finished; write only one of RUN_FINISHED, RUN_ERROR", rule="LIFE-15")
        self._expander.close()
        self._verify(event := self._add_timestamp(event))
        return [event]

    def _emit_start(self, event: RunStartedEvent) -> Events:
        if (event.thread_id, event.run_id) != (self.thread_id, self.run_id):
            raise IllegalStep(
                f"RUN_STARTED names run {event.run_id!r} on thread {event.thread_id!r}, but this is run"
                f" {self.run_id!r} on thread {self.thread_id!r}; use the ids of the input",
                rule="IN-3",
            )
        if self.is_open and self._verifier.index == 1:
            return []  # start() has written it
        return self.write(
            replace(
                event,
                protocol_version=PROTOCOL_VERSION,
                parent_run_id=self._parent_run_id if event.parent_run_id is None else event.parent_run_id,
                input=self._input if event.input is None else event.input,
            )
        )

    def _emit_finish(self, event: RunFinishedEvent) -> Events:
        outcome, pending = event.outcome, self.pending_tool_call_ids
        if outcome is None:
            outcome = RunFinishedSuccessOutcome()
        if pending and isinstance(outcome, RunFinishedSuccessOutcome) and outcome.pending_tool_call_ids is None:
            event = replace(event, outcome=RunFinishedSuccessOutcome(pending_tool_call_ids=pending))
        return self._finish(event)

    def end_subagent(self, event: SubagentFinishedEvent | SubagentErrorEvent) -> Events:
        """Close the open items of a subagent and write its end."""
        ended = event.subagent_run_id
        left: Events = []
        if self._verifier.is_open(SUBAGENT, ended):
            # Its chunked item too: no item outlives its owner (CHK-9). Subagents that it started may (SUB-12).
            left = self._close([it for it in self.open_items if it.owner == ended and it.item is not SUBAGENT], None)
            self._expander.drop_lane(ended)
        return [*left, *self.write(event)]

    def _apply_to_state(self, patch: Sequence[Any]) -> Any:
        try:
            return self._patches.apply_patch(self.state, patch)
        except PatchError as error:
            if error.rule == "SNAP-8":
                raise IllegalStep(f"the patch is malformed: {error}", rule="SNAP-8") from error
            if error.rule == "limit-size":
                raise IllegalStep(f"the patch makes the state too large: {error}", rule="limit-size") from error
            raise IllegalStep(
                f"the patch does not apply to the state that was last sent ({error}); send a snapshot", rule="SNAP-9"
            ) from error

    def _emit_snapshot(self, event: StateSnapshotEvent) -> Events:
        return self._emit_state(event, self._take_copy(event, event.snapshot))

    def _emit_delta(self, event: StateDeltaEvent) -> Events:
        return self._emit_state(event, self._apply_to_state(self._take_copy(event, event.delta)))

    def _take_copy(self, event: Event, value: Any) -> Any:
        prepared, self._prepared = self._prepared, None
        return copy_json(value) if prepared is None or prepared[0] is not event else prepared[1]

    def _emit_state(self, event: Event, state: Any) -> Events:
        written = self.write(event)
        self.state = state
        return written

    def _send_state(self, event: Event, state: Any) -> Events:
        """Send a state change that the agent did not emit as an event.

        Unlike an emitted one it does not end a chunked item (CHK-7). The state may be compared and sent at any moment,
        and the agent cannot know that its next chunk would have to repeat the id.
        """
        self._verify(event := self._add_timestamp(event))
        self.state = state
        return [event]

    _emitters: ClassVar[dict[type[Any], Callable[[EventWriter, Any], Events]]] = {
        RunStartedEvent: _emit_start,
        RunFinishedEvent: _emit_finish,
        RunErrorEvent: _fail,
        StateSnapshotEvent: _emit_snapshot,
        StateDeltaEvent: _emit_delta,
    }


def _raise_illegal(error: SequenceError) -> NoReturn:
    raise IllegalStep(error.message, rule=error.rule) from error


def _make_closing_event(item: Item, item_id: str, owner: str | None, ending: RunFinishedEvent | None) -> Event:
    if item is not SUBAGENT:
        return item.closers[0](**{item.id_field: item_id}, subagent_run_id=owner)
    match ending.outcome if ending is not None else None:
        case RunFinishedInterruptOutcome(interrupts=interrupts):
            raised = [interrupt.id for interrupt in interrupts if interrupt.subagent_run_id == item_id]
            suspended = SubagentFinishedSuspendedOutcome(interrupt_ids=raised if raised else None)
            return SubagentFinishedEvent(subagent_run_id=item_id, outcome=suspended)
        case RunFinishedCancelledOutcome():
            # The outcomes of a subagent are success and suspended (SUB-7). Cancelled is neither.
            return SubagentErrorEvent(subagent_run_id=item_id, message="The run was cancelled.", code="cancelled")
        case _:
            return SubagentFinishedEvent(subagent_run_id=item_id)
