"""Check the rules for producers that no consumer enforces (``rules.PRODUCER_RULES``).

The verifier calls this with ``producer=True``, after its own checks and before it changes its state. No rule is checked
both here and there.

Most of these rules concern ids that outlive a run. So this state lasts for the whole stream: the thread, its run ids,
and every message, tool call and activity that was streamed, sent in a snapshot, or echoed with the input.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any, ClassVar, NamedTuple

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
from aguila.stream.verification.rules import Owner
from aguila.stream.version import parse_version

Violation = tuple[str, str]
"""A rule id, and a sentence that says how it was broken."""


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


class ProducerRules:
    """Check events against the rules for producers. ``check`` changes nothing; ``record`` remembers an event."""

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
        """The type of every activity that a patch can be applied to, by message id."""
        # Dicts instead of sets: an empty dict takes no memory, and every run has one of each.
        self._run_ids: dict[str, None] = {}
        self._messages: dict[str, _Message] = {}
        self._calls: dict[str, _Call] = {}
        # Of the current run:
        self._started: dict[str, None] = {}  # in call order (FT-3)
        self._answered: dict[str, None] = {}
        self._tags: dict[str, None] = {}

    @property
    def pending_tool_call_ids(self) -> list[str]:
        """The calls of this run that have no result, in call order (FT-3)."""
        return [call_id for call_id in self._started if call_id not in self._answered]

    @property
    def last_messages(self) -> set[str]:
        """The ids of the last text message and of the message of the last tool call, if they exist."""
        texts = (name for name, one in reversed(self._messages.items()) if one.kind == "text message")
        calls = (name if not one.parent else one.parent for name, one in reversed(self._calls.items()))
        return {name for name in (next(texts, None), next(calls, None)) if name is not None}

    def has_call(self, call_id: str) -> bool:
        """Return whether this call was started, or was part of a message sent before."""
        return call_id in self._calls

    def check(self, event: Event) -> Iterable[Violation]:
        """Return the rules that this event breaks. Changes nothing."""
        check = self._checks.get(event.__class__)
        return () if check is None else check(self, event)

    def record(self, event: Event) -> None:
        """Remember an event, also if it broke a rule."""
        tag: Owner = getattr(event, "subagent_run_id", None)
        if tag is not None:
            self._tags[tag] = None
        record = self._recorders.get(event.__class__)
        if record is not None:
            record(self, event)

    # Runs

    def _check_run_started(self, event: RunStartedEvent) -> Iterable[Violation]:
        if event.protocol_version is None:
            yield "VER-2", "RUN_STARTED has no protocolVersion; declare the version that the producer implements"
        elif parse_version(event.protocol_version) is None:
            yield "VER-3", f"protocolVersion {event.protocol_version!r} is not MAJOR.MINOR, such as '1.1'"
        if self.thread_id is not None and event.thread_id != self.thread_id:
            yield "IN-3", f"the run is on thread {event.thread_id!r}, but the stream is of thread {self.thread_id!r}"
        if event.input is not None and event.input.thread_id != event.thread_id:
            yield "IN-3", f"RUN_STARTED names thread {event.thread_id!r}, its input {event.input.thread_id!r}"
        if event.input is not None and event.input.run_id != event.run_id:
            yield "IN-3", f"RUN_STARTED names run {event.run_id!r}, its input {event.input.run_id!r}"
        if event.run_id in self._run_ids:
            yield "ENV-11", f"run id {event.run_id!r} was used before on this thread; give every run a new id"

    def _record_run_started(self, event: RunStartedEvent) -> None:
        if self.thread_id is None:
            self.thread_id = event.thread_id
        self.run_id = event.run_id
        self._run_ids[event.run_id] = None
        self._started.clear()
        self._answered.clear()
        self._tags.clear()
        if event.input is not None:
            self._remember(event.input.messages, overwrite=False)

    def _check_run_finished(self, event: RunFinishedEvent) -> Iterable[Violation]:
        if self.thread_id is not None and event.thread_id != self.thread_id:
            yield "IN-3", f"RUN_FINISHED names thread {event.thread_id!r}, RUN_STARTED named {self.thread_id!r}"
        if self.run_id is not None and event.run_id != self.run_id:
            yield "IN-3", f"RUN_FINISHED names run {event.run_id!r}, RUN_STARTED named {self.run_id!r}"
        outcome = event.outcome
        if isinstance(outcome, RunFinishedInterruptOutcome):
            ids = [interrupt.id for interrupt in outcome.interrupts]
            if not ids:
                yield "INT-1", "the interrupt outcome has no interrupts; add one, or finish with another outcome"
            for interrupt_id in _repeated(ids):
                yield "INT-3", f"interrupt id {interrupt_id!r} is used twice in this run; give each interrupt its own"
        if isinstance(outcome, RunFinishedSuccessOutcome) and outcome.pending_tool_call_ids is not None:
            named, pending = outcome.pending_tool_call_ids, self.pending_tool_call_ids
            if sorted(named) != sorted(pending):
                yield "FT-3", f"pendingToolCallIds is {named!r}, but the calls without a result are {pending!r}"

    # Messages

    def _check_text(self, event: TextMessageStartEvent) -> Iterable[Violation]:
        known = self._messages.get(event.message_id)
        if known is None:
            return
        if known.kind != "text message":
            yield self._reused(event.message_id, known)
            return
        role = "assistant" if event.role is None else event.role
        if role != known.role:
            yield "TXT-3", f"message {event.message_id!r} is opened again as {role!r}, but it is {known.role!r}"
        # A start without a name does not contradict the name. A missing owner or role has a meaning.
        if event.name is not None and event.name != known.name:
            yield "TXT-3", f"message {event.message_id!r} is opened again with name {event.name!r}, not {known.name!r}"
        if event.subagent_run_id != known.owner:
            yield "TXT-3", f"message {event.message_id!r} is opened again by another owner; repeat its tag"

    def _record_text(self, event: TextMessageStartEvent) -> None:
        role = "assistant" if event.role is None else event.role
        self._messages.setdefault(event.message_id, _Message("text message", event.subagent_run_id, role, event.name))

    def _check_reasoning(self, event: ReasoningMessageStartEvent) -> Iterable[Violation]:
        known = self._messages.get(event.message_id)
        if known is not None and known.kind != "reasoning message":
            yield self._reused(event.message_id, known)

    def _record_reasoning(self, event: ReasoningMessageStartEvent) -> None:
        self._messages.setdefault(event.message_id, _Message("reasoning message", event.subagent_run_id, "reasoning"))

    def _check_snapshot(self, event: MessagesSnapshotEvent) -> Iterable[Violation]:
        for message_id in _repeated([message.id for message in event.messages]):
            yield "ENV-12", f"the snapshot has two messages with id {message_id!r}; give each its own"
        for message in event.messages:
            sealed: list[Any] = [message]
            if isinstance(message, AssistantMessage) and message.tool_calls is not None:
                sealed += message.tool_calls
            for thing in sealed:
                if getattr(thing, "encrypted_value_type", None) is not None and thing.encrypted_value is None:
                    yield "ENC-6", f"{thing.id!r} in the snapshot has encryptedValueType but no encryptedValue"

    def _record_snapshot(self, event: MessagesSnapshotEvent) -> None:
        if any(isinstance(message, ActivityMessage) for message in event.messages):
            self.activity_types.clear()  # a snapshot with any activity lists all of them (MSGS-3)
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

    def _reused(self, message_id: str, known: _Message) -> Violation:
        return "ENV-12", f"message id {message_id!r} already identifies a {known.kind}; use a new id"

    # Tool calls

    def _owner_of_call(self, event: ToolCallStartEvent) -> Owner:
        """Return the owner of a call. Without a tag it is the owner of the parent message (SUB-10)."""
        if event.subagent_run_id is not None or event.parent_message_id is None:
            return event.subagent_run_id
        parent = self._messages.get(event.parent_message_id)
        return None if parent is None else parent.owner

    def _check_call(self, event: ToolCallStartEvent) -> Iterable[Violation]:
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

    def _record_call(self, event: ToolCallStartEvent) -> None:
        self._started.setdefault(event.tool_call_id)
        self._calls.setdefault(
            event.tool_call_id, _Call(event.tool_call_name, event.parent_message_id, self._owner_of_call(event))
        )

    def _check_result(self, event: ToolCallResultEvent) -> Iterable[Violation]:
        known = self._messages.get(event.message_id)
        if known is not None:
            yield self._reused(event.message_id, known)

    def _record_result(self, event: ToolCallResultEvent) -> None:
        self._answered[event.tool_call_id] = None
        self._messages[event.message_id] = _Message("tool message", event.subagent_run_id, "tool")

    # Activities and subagents

    def _check_activity(self, event: ActivitySnapshotEvent) -> Iterable[Violation]:
        known = self._messages.get(event.message_id)
        if known is None:
            return
        if known.kind != "activity":
            yield self._reused(event.message_id, known)
        elif event.replace is False and event.subagent_run_id != known.owner:
            yield "ACT-6", f"activity {event.message_id!r} has another owner; repeat its tag, or replace it"

    def _record_activity(self, event: ActivitySnapshotEvent) -> None:
        if event.replace is False and event.message_id in self.activity_types:
            return  # neither content nor type changes (ACT-4)
        self.activity_types[event.message_id] = event.activity_type
        self._messages[event.message_id] = _Message("activity", event.subagent_run_id, "activity")

    def _check_activity_delta(self, event: ActivityDeltaEvent) -> Iterable[Violation]:
        if event.message_id not in self.activity_types:
            yield (
                "ACT-8",
                f"activity {event.message_id!r} is patched before its first snapshot; send that first",
            )

    def _record_activity_delta(self, event: ActivityDeltaEvent) -> None:
        if event.message_id in self.activity_types:
            self.activity_types[event.message_id] = event.activity_type  # ACT-7

    def _check_subagent(self, event: SubagentStartedEvent) -> Iterable[Violation]:
        if event.subagent_run_id in self._tags:
            yield (
                "SUB-3",
                f"subagent {event.subagent_run_id!r} is announced after events tagged with it; announce it first",
            )

    _checks: ClassVar[dict[type[Any], Callable[[ProducerRules, Any], Iterable[Violation]]]] = {
        RunStartedEvent: _check_run_started,
        RunFinishedEvent: _check_run_finished,
        TextMessageStartEvent: _check_text,
        ReasoningMessageStartEvent: _check_reasoning,
        MessagesSnapshotEvent: _check_snapshot,
        ToolCallStartEvent: _check_call,
        ToolCallResultEvent: _check_result,
        ActivitySnapshotEvent: _check_activity,
        ActivityDeltaEvent: _check_activity_delta,
        SubagentStartedEvent: _check_subagent,
    }

    _recorders: ClassVar[dict[type[Any], Callable[[ProducerRules, Any], None]]] = {
        RunStartedEvent: _record_run_started,
        TextMessageStartEvent: _record_text,
        ReasoningMessageStartEvent: _record_reasoning,
        MessagesSnapshotEvent: _record_snapshot,
        ToolCallStartEvent: _record_call,
        ToolCallResultEvent: _record_result,
        ActivitySnapshotEvent: _record_activity,
        ActivityDeltaEvent: _record_activity_delta,
    }


def _repeated(ids: Iterable[str]) -> list[str]:
    seen: set[str] = set()
    return [name for name in ids if name in seen or seen.add(name)]
