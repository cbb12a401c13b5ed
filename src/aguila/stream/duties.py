"""Layer: stream. What a producer owes and no consumer is asked to check (``rules.DUTIES``).

Above: the verifier calls this with ``producer=True``, after its own rules and before it changes anything. Below: the
protocol types. Nothing here ever judges what the verifier already does, and nothing is refused that a consumer
would notice.

Most duties are about ids that outlive a run, so unlike the verifier's own state this one lasts for the whole stream:
the thread, its run ids, and every message, tool call and activity that was streamed, stated in a snapshot, or echoed
with the input. ``check`` only looks; ``note`` remembers.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any, NamedTuple

from aguila.protocol import (
    ActivityDeltaEvent,
    ActivityMessage,
    ActivitySnapshotEvent,
    AssistantMessage,
    Event,
    Message,
    MessagesSnapshotEvent,
    ReasoningMessageStartEvent,
    RunFinishedEvent,
    RunFinishedInterruptOutcome,
    RunFinishedSuccessOutcome,
    RunStartedEvent,
    SubagentStartedEvent,
    TextMessageStartEvent,
    ToolCall,
    ToolCallResultEvent,
    ToolCallStartEvent,
)
from aguila.stream.version import parse_version

Owner = str | None
Fault = tuple[str, str]
"""A rule id, and a sentence about how it was broken."""


class _Message(NamedTuple):
    kind: str  # "text message", "reasoning message", "tool message", "activity"
    owner: Owner
    role: str
    name: str | None = None


class _Call(NamedTuple):
    name: str
    parent: str | None
    owner: Owner


_KIND_OF_ROLE = {"tool": "tool message", "activity": "activity", "reasoning": "reasoning message"}


class Duties:
    """The memory and the checks of ``producer=True``."""

    __slots__ = (
        "_answered",
        "_calls",
        "_messages",
        "_run_ids",
        "_started",
        "_tags",
        "activity_types",
        "run_id",
        "thread_id",
    )

    def __init__(self) -> None:
        self.thread_id: str | None = None
        self.run_id: str | None = None
        self.activity_types: dict[str, str] = {}
        """The type of every activity that has a baseline, by message id."""
        # Dicts as sets: these take no room while they are empty, and there is one of each for every run.
        self._run_ids: dict[str, None] = {}
        self._messages: dict[str, _Message] = {}
        self._calls: dict[str, _Call] = {}
        # of the current run
        self._started: dict[str, None] = {}  # a dict: call order matters (FT-3)
        self._answered: dict[str, None] = {}
        self._tags: dict[str, None] = {}

    @property
    def pending_tool_call_ids(self) -> list[str]:
        """The calls started in this run and not answered in it, in call order (FT-3)."""
        return [call_id for call_id in self._started if call_id not in self._answered]

    def has_call(self, call_id: str) -> bool:
        """Whether this call is known: it was started, or restated."""
        return call_id in self._calls

    def check(self, event: Event) -> Iterable[Fault]:
        """The duties this event would break. Changes nothing."""
        check = _CHECKS.get(event.__class__)
        return () if check is None else check(self, event)

    def note(self, event: Event) -> None:
        """Remember an event, whether or not a duty was broken."""
        tag: Owner = getattr(event, "subagent_run_id", None)
        if tag is not None:
            self._tags[tag] = None
        note = _NOTES.get(event.__class__)
        if note is not None:
            note(self, event)

    # runs

    def _check_run_started(self, event: RunStartedEvent) -> Iterable[Fault]:
        if event.protocol_version is None:
            yield "VER-2", "RUN_STARTED declares no protocolVersion; declare the version this producer speaks"
        elif parse_version(event.protocol_version) is None:
            yield "VER-3", f"protocolVersion {event.protocol_version!r} is not MAJOR.MINOR, such as '1.1'"
        if self.thread_id is not None and event.thread_id != self.thread_id:
            yield "IN-3", f"a run on thread {event.thread_id!r} in a stream of thread {self.thread_id!r}"
        if event.input is not None and event.input.thread_id != event.thread_id:
            yield "IN-3", f"RUN_STARTED on thread {event.thread_id!r} for an input of {event.input.thread_id!r}"
        if event.input is not None and event.input.run_id != event.run_id:
            yield "IN-3", f"RUN_STARTED of run {event.run_id!r} for an input of run {event.input.run_id!r}"
        if event.run_id in self._run_ids:
            yield "ENV-11", f"run id {event.run_id!r} was used before on this thread; every run needs its own"

    def _note_run_started(self, event: RunStartedEvent) -> None:
        if self.thread_id is None:
            self.thread_id = event.thread_id
        self.run_id = event.run_id
        self._run_ids[event.run_id] = None
        self._started.clear()
        self._answered.clear()
        self._tags.clear()
        if event.input is not None:
            self._remember(event.input.messages, overwrite=False)

    def _check_run_finished(self, event: RunFinishedEvent) -> Iterable[Fault]:
        if self.thread_id is not None and event.thread_id != self.thread_id:
            yield "IN-3", f"RUN_FINISHED names thread {event.thread_id!r}, RUN_STARTED named {self.thread_id!r}"
        if self.run_id is not None and event.run_id != self.run_id:
            yield "IN-3", f"RUN_FINISHED names run {event.run_id!r}, RUN_STARTED named {self.run_id!r}"
        outcome = event.outcome
        if isinstance(outcome, RunFinishedInterruptOutcome):
            ids = [interrupt.id for interrupt in outcome.interrupts]
            if not ids:
                yield "INT-1", "an interrupt outcome without interrupts; ask something or finish otherwise"
            for interrupt_id in _repeated(ids):
                yield "INT-3", f"interrupt id {interrupt_id!r} is used twice in this run; give each interrupt its own"
        if isinstance(outcome, RunFinishedSuccessOutcome) and outcome.pending_tool_call_ids is not None:
            named, pending = outcome.pending_tool_call_ids, self.pending_tool_call_ids
            if sorted(named) != sorted(pending):
                yield "FT-3", f"pendingToolCallIds is {named!r}, but the calls left unanswered are {pending!r}"

    # messages

    def _check_text(self, event: TextMessageStartEvent) -> Iterable[Fault]:
        known = self._messages.get(event.message_id)
        if known is None:
            return
        if known.kind != "text message":
            yield self._reused(event.message_id, known)
            return
        role = "assistant" if event.role is None else event.role
        if role != known.role:
            yield "TXT-3", f"message {event.message_id!r} is opened again as {role!r}, but it is {known.role!r}"
        # A start that leaves the name out does not contradict it; owner and role mean something when absent.
        if event.name is not None and event.name != known.name:
            yield "TXT-3", f"message {event.message_id!r} is opened again with name {event.name!r}, not {known.name!r}"
        if event.subagent_run_id != known.owner:
            yield "TXT-3", f"message {event.message_id!r} is opened again by another owner; repeat its tag"

    def _note_text(self, event: TextMessageStartEvent) -> None:
        role = "assistant" if event.role is None else event.role
        self._messages.setdefault(event.message_id, _Message("text message", event.subagent_run_id, role, event.name))

    def _check_reasoning(self, event: ReasoningMessageStartEvent) -> Iterable[Fault]:
        known = self._messages.get(event.message_id)
        if known is not None and known.kind != "reasoning message":
            yield self._reused(event.message_id, known)

    def _note_reasoning(self, event: ReasoningMessageStartEvent) -> None:
        self._messages.setdefault(event.message_id, _Message("reasoning message", event.subagent_run_id, "reasoning"))

    def _check_snapshot(self, event: MessagesSnapshotEvent) -> Iterable[Fault]:
        for message_id in _repeated([message.id for message in event.messages]):
            yield "ENV-12", f"the snapshot has two messages with id {message_id!r}"
        for message in event.messages:
            sealed: list[Any] = [message]
            if isinstance(message, AssistantMessage) and message.tool_calls is not None:
                sealed += message.tool_calls
            for thing in sealed:
                if getattr(thing, "encrypted_value_type", None) is not None and thing.encrypted_value is None:
                    yield "ENC-6", f"{thing.id!r} in the snapshot names the type of an encrypted value it has not"

    def _note_snapshot(self, event: MessagesSnapshotEvent) -> None:
        if any(isinstance(message, ActivityMessage) for message in event.messages):
            self.activity_types.clear()  # MSGS-3: a snapshot with any activity states them all
        self._remember(event.messages, overwrite=True)

    def _remember(self, messages: Iterable[Message], *, overwrite: bool) -> None:
        for message in messages:
            if not overwrite and message.id in self._messages:
                continue
            owner = message.subagent_run_id
            kind = _KIND_OF_ROLE.get(message.role, "text message")
            self._messages[message.id] = _Message(kind, owner, message.role, getattr(message, "name", None))
            if isinstance(message, ActivityMessage):
                self.activity_types[message.id] = message.activity_type
            elif isinstance(message, AssistantMessage) and message.tool_calls is not None:
                for call in message.tool_calls:
                    if isinstance(call, ToolCall):
                        self._calls[call.id] = _Call(call.function.name, message.id, owner)

    def _reused(self, message_id: str, known: _Message) -> Fault:
        return "ENV-12", f"message id {message_id!r} already names a {known.kind}; mint a new id"

    # tool calls

    def _owner_of_call(self, event: ToolCallStartEvent) -> Owner:
        """A call without a tag has the owner of the message that carries it (SUB-10)."""
        if event.subagent_run_id is not None or event.parent_message_id is None:
            return event.subagent_run_id
        parent = self._messages.get(event.parent_message_id)
        return None if parent is None else parent.owner

    def _check_call(self, event: ToolCallStartEvent) -> Iterable[Fault]:
        call_id, tag, parent_id = event.tool_call_id, event.subagent_run_id, event.parent_message_id
        parent = None if parent_id is None else self._messages.get(parent_id)
        if tag is not None and parent is not None and parent.owner != tag:
            yield "TOOL-2", f"tool call {call_id!r} is tagged {tag!r}, but its message {parent_id!r} has another owner"
        known = self._calls.get(call_id)
        if known is None:
            return
        if event.tool_call_name != known.name:
            yield (
                "TOOL-4",
                f"tool call {call_id!r} is opened again as {event.tool_call_name!r}, but it calls {known.name!r}",
            )
        if parent_id is not None and parent_id != known.parent:
            yield (
                "TOOL-4",
                f"tool call {call_id!r} is opened again on message {parent_id!r}, but it is on {known.parent!r}",
            )
        if self._owner_of_call(event) != known.owner:
            yield "TOOL-4", f"tool call {call_id!r} is opened again by another owner; repeat its tag"

    def _note_call(self, event: ToolCallStartEvent) -> None:
        self._started.setdefault(event.tool_call_id)
        self._calls.setdefault(
            event.tool_call_id, _Call(event.tool_call_name, event.parent_message_id, self._owner_of_call(event))
        )

    def _check_result(self, event: ToolCallResultEvent) -> Iterable[Fault]:
        known = self._messages.get(event.message_id)
        if known is not None:
            yield self._reused(event.message_id, known)

    def _note_result(self, event: ToolCallResultEvent) -> None:
        self._answered[event.tool_call_id] = None
        self._messages[event.message_id] = _Message("tool message", event.subagent_run_id, "tool")

    # activities and subagents

    def _check_activity(self, event: ActivitySnapshotEvent) -> Iterable[Fault]:
        known = self._messages.get(event.message_id)
        if known is None:
            return
        if known.kind != "activity":
            yield self._reused(event.message_id, known)
        elif event.replace is False and event.subagent_run_id != known.owner:
            yield "ACT-6", f"activity {event.message_id!r} has another owner; repeat its tag, or replace it"

    def _note_activity(self, event: ActivitySnapshotEvent) -> None:
        if event.replace is False and event.message_id in self.activity_types:
            return  # ACT-4: neither content nor type changes
        self.activity_types[event.message_id] = event.activity_type
        self._messages[event.message_id] = _Message("activity", event.subagent_run_id, "activity")

    def _check_activity_delta(self, event: ActivityDeltaEvent) -> Iterable[Fault]:
        if event.message_id not in self.activity_types:
            yield "ACT-8", f"activity {event.message_id!r} is patched before any snapshot of it; send that first"

    def _note_activity_delta(self, event: ActivityDeltaEvent) -> None:
        if event.message_id in self.activity_types:
            self.activity_types[event.message_id] = event.activity_type  # ACT-7

    def _check_subagent(self, event: SubagentStartedEvent) -> Iterable[Fault]:
        if event.subagent_run_id in self._tags:
            yield (
                "SUB-3",
                f"subagent {event.subagent_run_id!r} is announced after events tagged with it; announce first",
            )


def _repeated(ids: Iterable[str]) -> list[str]:
    seen: set[str] = set()
    return [name for name in ids if name in seen or seen.add(name)]


_CHECKS: dict[type[Any], Callable[[Duties, Any], Iterable[Fault]]] = {
    RunStartedEvent: Duties._check_run_started,
    RunFinishedEvent: Duties._check_run_finished,
    TextMessageStartEvent: Duties._check_text,
    ReasoningMessageStartEvent: Duties._check_reasoning,
    MessagesSnapshotEvent: Duties._check_snapshot,
    ToolCallStartEvent: Duties._check_call,
    ToolCallResultEvent: Duties._check_result,
    ActivitySnapshotEvent: Duties._check_activity,
    ActivityDeltaEvent: Duties._check_activity_delta,
    SubagentStartedEvent: Duties._check_subagent,
}

_NOTES: dict[type[Any], Callable[[Duties, Any], None]] = {
    RunStartedEvent: Duties._note_run_started,
    TextMessageStartEvent: Duties._note_text,
    ReasoningMessageStartEvent: Duties._note_reasoning,
    MessagesSnapshotEvent: Duties._note_snapshot,
    ToolCallStartEvent: Duties._note_call,
    ToolCallResultEvent: Duties._note_result,
    ActivitySnapshotEvent: Duties._note_activity,
    ActivityDeltaEvent: Duties._note_activity_delta,
}
