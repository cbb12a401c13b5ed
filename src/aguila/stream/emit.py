"""Layer: stream. One run, emitted so that no consumer can object to it: its boundaries, its state, ready-made events.

Above: ``write``, which adds a method for everything a run can say. Below: the verifier with the producer's duties.
There is no second state machine here: the emitter asks the verifier, which plays the tables in ``rules``. It does no
I/O, and ids and time come from the functions it is given.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NoReturn, cast

from aguila.errors import EncodeError, IllegalStep, PatchError, SequenceError
from aguila.protocol import (
    PROTOCOL_VERSION,
    Event,
    Interrupt,
    JsonPatchOperation,
    Metadata,
    ReasoningMessageContentEvent,
    RunAgentInput,
    RunErrorEvent,
    RunFinishedCancelledOutcome,
    RunFinishedEvent,
    RunFinishedInterruptOutcome,
    RunFinishedSuccessOutcome,
    RunStartedEvent,
    StateDeltaEvent,
    StateSnapshotEvent,
    SubagentErrorEvent,
    SubagentFinishedEvent,
    SubagentFinishedSuspendedOutcome,
    TextMessageContentEvent,
    TokenUsage,
    ToolCallArgsEvent,
    replace,
)
from aguila.stream.chunks import CHUNKED_ENDS, ChunkExpander
from aguila.stream.documents import own_json
from aguila.stream.duties import Duties
from aguila.stream.patch import apply_patch, make_patch
from aguila.stream.rules import SUBAGENT, Item, RunState
from aguila.stream.verify import OpenItem, Verifier

Events = list[Event]

_DELTAS: frozenset[type[Any]] = frozenset({TextMessageContentEvent, ReasoningMessageContentEvent, ToolCallArgsEvent})


class Emitter:
    """Emits the events of one run, each only when it may come.

    Every method returns the events to send, in order, or raises ``IllegalStep`` with the rule it would break, and then
    goes on as if it had not been asked. Chunks are sent in the long spelling, so that nothing sent depends on what an
    agent left out.

    ``new_id`` mints the ids that are not given; ``now`` gives the timestamp of each event, in milliseconds, if there is
    to be one. ``input`` is echoed on RUN_STARTED. ``state`` is what the consumer holds when the run begins: the
    input's state, or ``{}`` (IN-11).
    """

    def __init__(
        self,
        thread_id: str,
        run_id: str,
        *,
        new_id: Callable[[], str],
        parent_run_id: str | None = None,
        input: RunAgentInput | None = None,  # noqa: A002 - the protocol's word for it
        protocol_version: str = PROTOCOL_VERSION,
        state: Any = None,
        now: Callable[[], int] | None = None,
    ) -> None:
        self.thread_id = thread_id
        self.run_id = run_id
        self._new_id = new_id
        self._now = now
        self._parent_run_id = parent_run_id
        self._input = input
        self._protocol_version = protocol_version
        self._verifier = Verifier(producer=True)
        self._duties = cast("Duties", self._verifier.duties)
        self._expander = ChunkExpander()
        if state is None:
            state = {} if input is None or input.state is None else input.state
        self._state = own_json(state)

    # Questions

    @property
    def is_started(self) -> bool:
        """Whether the run's first event was written."""
        return self._verifier.run_state is not RunState.NEW

    @property
    def is_open(self) -> bool:
        """Whether the run was started and has not ended."""
        return self._verifier.run_state is RunState.OPEN

    @property
    def is_finished(self) -> bool:
        """Whether the run's one terminal event was written, RUN_FINISHED or RUN_ERROR."""
        return self._verifier.run_state in (RunState.FINISHED, RunState.FAILED)

    @property
    def open_items(self) -> list[OpenItem]:
        """What is open, in the order in which ``close_open`` would close it."""
        return self._verifier.open_items

    def has_open(self, item: Item, item_id: str, owner: str | None = None) -> bool:
        """Whether this item is open. ``owner`` matters for steps only, which are open once per owner."""
        return self._verifier.is_open(item, item_id, owner)

    def has_call(self, tool_call_id: str) -> bool:
        """Whether this call was started in the run."""
        return self._duties.has_call(tool_call_id)

    def has_activity(self, message_id: str) -> bool:
        """Whether this activity was shown, so that it can be changed by a patch (ACT-8)."""
        return message_id in self._duties.activity_types

    @property
    def pending_tool_call_ids(self) -> list[str]:
        """The calls started and not answered so far, in call order (FT-3)."""
        return self._duties.pending_tool_call_ids

    @property
    def state(self) -> Any:
        """The state as it was last sent: a value, not to be changed in place."""
        return self._state

    # The run

    def start(self, *, metadata: Metadata | None = None) -> Events:
        """RUN_STARTED, with our protocol version (VER-2)."""
        return self.write(
            RunStartedEvent(
                thread_id=self.thread_id,
                run_id=self.run_id,
                protocol_version=self._protocol_version,
                parent_run_id=self._parent_run_id,
                input=self._input,
                metadata=metadata,
            )
        )

    def finish(
        self, result: Any = None, *, usage: list[TokenUsage] | None = None, metadata: Metadata | None = None
    ) -> Events:
        """Close what is open, then RUN_FINISHED as a success that lists the calls left to the front end (FT-3)."""
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
        """Close what is open, then RUN_FINISHED with questions; open subagents are suspended (INT-1, SUB-7)."""
        outcome = RunFinishedInterruptOutcome(interrupts=list(interrupts))
        return self._finish(self._run_finished(outcome, usage, metadata))

    def cancel(self, *, usage: list[TokenUsage] | None = None, metadata: Metadata | None = None) -> Events:
        """Close what is open, then RUN_FINISHED as stopped on purpose; open subagents end in error (LIFE-8)."""
        return self._finish(self._run_finished(RunFinishedCancelledOutcome(), usage, metadata))

    def fail(
        self,
        message: str,
        code: str | None = None,
        *,
        usage: list[TokenUsage] | None = None,
        metadata: Metadata | None = None,
    ) -> Events:
        """RUN_ERROR, which ends all that is open without closing it (LIFE-13). Legal before ``start`` as well."""
        return self._fail(RunErrorEvent(message=message, code=code, usage=usage, metadata=metadata))

    def close_open(self) -> Events:
        """Close everything that is open, contents before what holds them, subagents innermost first."""
        return self._close_all(None)

    def emit(self, event: Event) -> Events:
        """Write an event that an agent made; chunks are expanded. Raises TypeError for what is no event.

        RUN_FINISHED and RUN_ERROR are as ``finish`` and ``fail``: what is open is closed, and calls left to the front
        end are listed if the event does not. RUN_STARTED is taken only as the first event and only with this run's
        ids; our own version replaces its (VER-2), and after ``start`` it adds nothing.
        """
        special = _SPECIAL.get(event.__class__)
        return self.write(event) if special is None else special(self, event)

    # State

    def set_state(self, state: Any, *, subagent: str | None = None, metadata: Metadata | None = None) -> Events:
        """The shortest event that turns the state last sent into this one; none if nothing changed.

        Raises ``EncodeError`` if the new state is not JSON.
        """
        patch: list[Any] = [*make_patch(self._state, state)]
        try:
            for operation in patch:
                if "value" in operation:
                    operation["value"] = own_json(operation["value"])
        except EncodeError:
            own_json(state)  # raises with the place in the state, not in the value
            raise
        if not patch:
            return []
        if patch[0]["path"] == "":
            snapshot = patch[0]["value"]
            event = StateSnapshotEvent(snapshot=snapshot, subagent_run_id=subagent, metadata=metadata)
            return self._send_state(event, snapshot)
        return self._send_state(
            StateDeltaEvent(delta=patch, subagent_run_id=subagent, metadata=metadata), apply_patch(self._state, patch)
        )

    def patch_state(
        self,
        patch: Sequence[JsonPatchOperation],
        *,
        subagent: str | None = None,
        metadata: Metadata | None = None,
    ) -> Events:
        """Change the state by a JSON Patch of the caller's making.

        Refused if it is malformed (SNAP-8) or does not apply (SNAP-9); raises ``EncodeError`` if it is not JSON.
        """
        operations = own_json(list(patch))
        return self._send_state(
            StateDeltaEvent(delta=operations, subagent_run_id=subagent, metadata=metadata), self._patched(operations)
        )

    # How it is done

    def _id(self, given: str | None) -> str:
        return self._new_id() if given is None else given

    def _stamped(self, event: Any) -> Any:
        if self._now is None or event.timestamp is not None:
            return event
        return replace(event, timestamp=self._now())

    def _judge(self, event: Event) -> None:
        try:
            self._verifier.feed(event)
        except SequenceError as error:
            _refuse(error)

    def write(self, event: Event) -> Events:
        """Write one event and the ends of chunked items that it brings with it: all of it or nothing.

        As ``emit``, for who knows that it neither begins nor ends anything but an item.
        """
        verifier = self._verifier
        if event.__class__ in _DELTAS and self._now is None and not self._expander._lanes:
            # As nearly all events of a run: nothing to expand, to stamp or to take back. 0.4 instead of 1.1 us.
            try:
                verifier.feed(event)
            except SequenceError as error:
                _refuse(error)
            return [event]
        try:
            parts = self._expander.feed(event)
        except SequenceError as error:
            _refuse(error)
        # The ends come first. Only the event that brought them can be refused, as the items were open.
        ended = [verifier.opening_of(part) for part in parts if part.__class__ in CHUNKED_ENDS and part is not event]
        written: Events = []
        try:
            for part in parts:
                stamped = self._stamped(part)
                verifier.feed(stamped)
                written.append(stamped)
        except SequenceError as error:
            verifier.reopen(ended[: len(written)])
            self._expander.take_back()
            _refuse(error)
        return written

    def _close(self, items: Sequence[OpenItem], ending: RunFinishedEvent | None) -> Events:
        closed: Events = []
        for item, item_id, owner in items:
            event = self._stamped(_closing_event(item, item_id, owner, ending))
            self._judge(event)
            closed.append(event)
        return closed

    def _close_all(self, ending: RunFinishedEvent | None) -> Events:
        closed = self._close(self.open_items, ending)
        self._expander.close()  # what chunks had opened is among them
        return closed

    def _run_finished(
        self, outcome: Any, usage: list[TokenUsage] | None, metadata: Metadata | None, result: Any = None
    ) -> RunFinishedEvent:
        return RunFinishedEvent(
            thread_id=self.thread_id,
            run_id=self.run_id,
            result=own_json(result),
            outcome=outcome,
            usage=usage,
            metadata=metadata,
        )

    def _finish(self, event: RunFinishedEvent) -> Events:
        if self.is_open:
            for rule, message in self._duties.check(event):  # before anything is closed for it
                raise IllegalStep(message, rule=rule)
            closed = self._close_all(event)
        else:
            closed = []  # and the verifier says what is wrong
        return [*closed, *self.write(event)]

    def _fail(self, event: RunErrorEvent) -> Events:
        if self._verifier.run_state is RunState.FINISHED:
            # The protocol would allow a late failure; whoever writes a run through this ends it once.
            raise IllegalStep("the run has finished already; a writer writes one terminal event", rule="LIFE-15")
        self._expander.close()
        self._judge(event := self._stamped(event))
        return [event]

    def _adopt_start(self, event: RunStartedEvent) -> Events:
        if (event.thread_id, event.run_id) != (self.thread_id, self.run_id):
            raise IllegalStep(
                f"RUN_STARTED names run {event.run_id!r} on thread {event.thread_id!r}, but this is run"
                f" {self.run_id!r} on {self.thread_id!r}; take the ids from the input",
                rule="IN-3",
            )
        if self.is_open and self._verifier.index == 1:
            return []  # start() was called for it
        return self.write(
            replace(
                event,
                protocol_version=self._protocol_version,
                parent_run_id=self._parent_run_id if event.parent_run_id is None else event.parent_run_id,
                input=self._input if event.input is None else event.input,
            )
        )

    def _adopt_finish(self, event: RunFinishedEvent) -> Events:
        outcome, pending = event.outcome, self.pending_tool_call_ids
        if outcome is None:
            outcome = RunFinishedSuccessOutcome()
        if pending and isinstance(outcome, RunFinishedSuccessOutcome) and outcome.pending_tool_call_ids is None:
            event = replace(event, outcome=RunFinishedSuccessOutcome(pending_tool_call_ids=pending))
        return self._finish(event)

    def _end_subagent(self, event: SubagentFinishedEvent | SubagentErrorEvent) -> Events:
        ended = event.subagent_run_id
        left: Events = []
        if self._verifier.is_open(SUBAGENT, ended):
            # Its chunked item too: nothing outlives its owner (CHK-9). Subagents it started may (SUB-12).
            left = self._close([it for it in self.open_items if it.owner == ended and it.item is not SUBAGENT], None)
            self._expander.forget(ended)
        return [*left, *self.write(event)]

    def _patched(self, patch: Sequence[Any]) -> Any:
        try:
            return apply_patch(self._state, patch)
        except PatchError as error:
            if error.rule == "SNAP-8":
                raise IllegalStep(f"the patch is malformed: {error}", rule="SNAP-8") from error
            raise IllegalStep(
                f"the patch does not apply to the state as it was last sent ({error}); send a snapshot", rule="SNAP-9"
            ) from error

    def _adopt_snapshot(self, event: StateSnapshotEvent) -> Events:
        return self._adopt_state(event, own_json(event.snapshot))

    def _adopt_delta(self, event: StateDeltaEvent) -> Events:
        return self._adopt_state(event, self._patched(own_json(event.delta)))

    def _adopt_state(self, event: Event, state: Any) -> Events:
        written = self.write(event)
        self._state = state
        return written

    def _send_state(self, event: Event, state: Any) -> Events:
        """Send a change of state that the agent did not emit itself.

        It does not end a chunked item as an emitted one does (CHK-7): the state may be compared and sent at any moment,
        and the agent could not know that its next chunk has to repeat the id.
        """
        self._judge(event := self._stamped(event))
        self._state = state
        return [event]


def _refuse(error: SequenceError) -> NoReturn:
    raise IllegalStep(error.message, rule=error.rule) from error


def _closing_event(item: Item, item_id: str, owner: str | None, ending: RunFinishedEvent | None) -> Event:
    if item is not SUBAGENT:
        return item.closers[0](**{item.id_field: item_id}, subagent_run_id=owner)
    match ending.outcome if ending is not None else None:
        case RunFinishedInterruptOutcome(interrupts=interrupts):
            raised = [interrupt.id for interrupt in interrupts if interrupt.subagent_run_id == item_id]
            suspended = SubagentFinishedSuspendedOutcome(interrupt_ids=raised if raised else None)
            return SubagentFinishedEvent(subagent_run_id=item_id, outcome=suspended)
        case RunFinishedCancelledOutcome():
            # A subagent's outcomes are success and suspended (SUB-7); one that was stopped is neither.
            return SubagentErrorEvent(subagent_run_id=item_id, message="The run was cancelled.", code="cancelled")
        case _:
            return SubagentFinishedEvent(subagent_run_id=item_id)


_SPECIAL: dict[type[Any], Callable[[Emitter, Any], Events]] = {
    RunStartedEvent: Emitter._adopt_start,
    RunFinishedEvent: Emitter._adopt_finish,
    RunErrorEvent: Emitter._fail,
    StateSnapshotEvent: Emitter._adopt_snapshot,
    StateDeltaEvent: Emitter._adopt_delta,
}
