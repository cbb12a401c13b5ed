"""Tables of the sequence rules: which event may follow which (LIFE, STR, RSN, STEP, SUB).

``Verifier`` checks streams against these tables, ``EventWriter`` writes by them, and ``scripts/state_tables.py`` writes
them into docs/sequences.md. To change a sequence rule, change it here.

A stream is a sequence of **runs**. For each state of the run and each boundary event, ``RUN_TABLE`` gives the next
state or the rule that refuses the event. All other events need an open run.

Inside a run, **items** are opened, continued and closed. ``ITEMS`` has one row per kind of item. Items of all kinds may
overlap (STR-5). Each is tracked by its own id, and all are closed before RUN_FINISHED. RUN_ERROR ends them without
closing events (LIFE-13). The rows are in the order in which a writer closes open items: inner items first.

Each item has an **owner**: the agent itself, or the subagent that the item is tagged with. Owners are remembered per
``Bucket`` until the run ends, because later events may refer to a closed item (SUB-8). An event without a tag matches
every owner (SUB-9).
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from typing import Any, Literal, NamedTuple

from aguila.protocol import (
    ReasoningEndEvent,
    ReasoningMessageContentEvent,
    ReasoningMessageEndEvent,
    ReasoningMessageStartEvent,
    ReasoningStartEvent,
    RunErrorEvent,
    RunFinishedEvent,
    RunStartedEvent,
    StepFinishedEvent,
    StepStartedEvent,
    SubagentErrorEvent,
    SubagentFinishedEvent,
    SubagentStartedEvent,
    TextMessageContentEvent,
    TextMessageEndEvent,
    TextMessageStartEvent,
    ToolCallArgsEvent,
    ToolCallEndEvent,
    ToolCallStartEvent,
)

EventClass = type[Any]


class RunState(StrEnum):
    """State of a stream's current run."""

    NEW = "new"  # no event yet
    OPEN = "open"
    FINISHED = "finished"  # by RUN_FINISHED; a late RUN_ERROR may still follow
    FAILED = "failed"  # by RUN_ERROR


class Refusal(NamedTuple):
    """A refused event: the rule it breaks, the reason, and the state in which a collecting verifier continues."""

    rule: str
    reason: str
    next_state: RunState


class OtherEvent:
    """Column of ``RUN_TABLE`` for every event that is not a run boundary."""


_NOT_FIRST = Refusal("LIFE-1", "is the first event, but a stream begins with RUN_STARTED (or RUN_ERROR)", RunState.OPEN)
_NESTED = Refusal("LIFE-17", "while a run is open; close that one with RUN_FINISHED or RUN_ERROR first", RunState.OPEN)
_FINISHED = Refusal("LIFE-15", "after RUN_FINISHED; only RUN_STARTED or a late RUN_ERROR may follow", RunState.FINISHED)
_FAILED = Refusal("LIFE-16", "after RUN_ERROR; only RUN_STARTED may follow", RunState.FAILED)

RUN_TABLE: dict[RunState, dict[EventClass, RunState | Refusal]] = {
    RunState.NEW: {
        RunStartedEvent: RunState.OPEN,
        RunFinishedEvent: _NOT_FIRST,
        RunErrorEvent: RunState.FAILED,
        OtherEvent: _NOT_FIRST,
    },
    RunState.OPEN: {
        RunStartedEvent: _NESTED,
        RunFinishedEvent: RunState.FINISHED,
        RunErrorEvent: RunState.FAILED,
        OtherEvent: RunState.OPEN,
    },
    RunState.FINISHED: {
        RunStartedEvent: RunState.OPEN,
        RunFinishedEvent: _FINISHED,
        RunErrorEvent: RunState.FAILED,
        OtherEvent: _FINISHED,
    },
    RunState.FAILED: {
        RunStartedEvent: RunState.OPEN,
        RunFinishedEvent: _FAILED,
        RunErrorEvent: _FAILED,
        OtherEvent: _FAILED,
    },
}


Owner = str | None
"""The subagent run id that an item is tagged with. None: the agent itself."""

Bucket = Literal["message", "tool call", "reasoning", "activity"]
"""Namespace of item ids. A message and a tool call may have the same id; reasoning spans and reasoning messages share
one namespace. Strings, because hashing an enum is slow on the hot path."""


@dataclass(frozen=True, kw_only=True, slots=True, eq=False)  # eq=False: rows are dict keys on the hot path
class Item:
    """One kind of item: the events that open, continue and close it, and the rules against wrong order."""

    noun: str
    opener: EventClass
    content: tuple[EventClass, ...]
    closers: tuple[EventClass, ...]  # a writer closes an open item with the first one
    id_field: str
    bucket: Bucket | None  # None: no later event refers to the item, or the item is itself an owner
    keyed_by_owner: bool  # True: each owner may have one open item of the same name (STEP-4)
    double_open: str  # rule broken by opening an item that is open
    not_open: str  # rule broken by continuing or closing an item that is not open
    open_at_finish: str  # rule broken by an item that is open at RUN_FINISHED
    reopen: str | None  # rule broken by opening a closed item again; None: allowed, content is appended (TXT-3)


TEXT = Item(
    noun="text message",
    opener=TextMessageStartEvent,
    content=(TextMessageContentEvent,),
    closers=(TextMessageEndEvent,),
    id_field="message_id",
    bucket="message",
    keyed_by_owner=False,
    double_open="STR-1",
    not_open="STR-2",
    open_at_finish="STR-3",
    reopen=None,
)

TOOL_CALL = Item(
    noun="tool call",
    opener=ToolCallStartEvent,
    content=(ToolCallArgsEvent,),
    closers=(ToolCallEndEvent,),
    id_field="tool_call_id",
    bucket="tool call",
    keyed_by_owner=False,
    double_open="STR-1",
    not_open="STR-2",
    open_at_finish="STR-3",
    reopen=None,
)

REASONING_MESSAGE = Item(
    noun="reasoning message",
    opener=ReasoningMessageStartEvent,
    content=(ReasoningMessageContentEvent,),
    closers=(ReasoningMessageEndEvent,),
    id_field="message_id",
    bucket="reasoning",
    keyed_by_owner=False,
    double_open="RSN-4",
    not_open="RSN-4",
    open_at_finish="RSN-4",
    reopen=None,
)

REASONING_SPAN = Item(
    noun="reasoning span",
    opener=ReasoningStartEvent,
    content=(),
    closers=(ReasoningEndEvent,),
    id_field="message_id",
    bucket="reasoning",
    keyed_by_owner=False,
    double_open="RSN-1",
    not_open="RSN-1",
    open_at_finish="RSN-1",
    reopen=None,
)

STEP = Item(
    noun="step",
    opener=StepStartedEvent,
    content=(),
    closers=(StepFinishedEvent,),
    id_field="step_name",
    bucket=None,
    keyed_by_owner=True,
    double_open="STEP-1",
    not_open="STEP-1",
    open_at_finish="STEP-2",
    reopen=None,
)

SUBAGENT = Item(
    noun="subagent",
    opener=SubagentStartedEvent,
    content=(),
    closers=(SubagentFinishedEvent, SubagentErrorEvent),
    id_field="subagent_run_id",
    bucket=None,
    keyed_by_owner=False,
    double_open="SUB-3",
    not_open="SUB-4",
    open_at_finish="SUB-14",
    reopen="SUB-2",
)

ITEMS = (TEXT, TOOL_CALL, REASONING_MESSAGE, REASONING_SPAN, STEP, SUBAGENT)

PRODUCER_RULES: dict[str, str] = {
    "ACT-6": "a snapshot with replace=false keeps the owner of the existing activity",
    "ACT-8": "an activity is patched only after its first snapshot",
    "ENC-6": "encryptedValueType is sent only together with encryptedValue",
    "ENV-11": "a run id is used once",
    "ENV-12": "a message id identifies one message of one kind",
    "FT-3": "pendingToolCallIds, if sent, lists exactly the calls of this run that have no result",
    "IN-3": "all runs of a stream have the same thread id, and RUN_FINISHED repeats the ids of RUN_STARTED",
    "INT-1": "an interrupt outcome has at least one interrupt",
    "INT-3": "an interrupt's id is unique within its run",
    "SUB-3": "SUBAGENT_STARTED comes before any event tagged with that subagent",
    "TOOL-2": "a tool call has the same owner as its parent message, also when the message is from an earlier run",
    "TOOL-4": "a call opened again has the same name, parent and owner",
    "TRN-3": "a run ends with RUN_FINISHED or RUN_ERROR before the stream ends",
    "TXT-3": "a message opened again has the same owner, role and name",
    "VER-2": "RUN_STARTED declares the producer's protocol version",
    "VER-3": "a protocol version is MAJOR.MINOR",
}
"""Rules for producers that consumers do not enforce. They are checked with ``producer=True`` only (AMB-4)."""


def describe_owner(owner: Owner) -> str:
    """Name an owner in an error message."""
    return "the agent itself" if owner is None else f"subagent {owner!r}"


def wire_name(event_class: EventClass) -> str:
    """Return the event type of a class (``TEXT_MESSAGE_START``), or the class name if it has none."""
    return str(getattr(event_class, "type", event_class.__name__))
