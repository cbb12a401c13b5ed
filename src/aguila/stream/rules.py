"""Layer: stream. What may follow what, as tables (LIFE, STR, RSN, STEP, SUB). Data only; no state, no code that runs.

Above: ``verify`` plays these tables against a stream, ``write`` plays them for a producer, and
``scripts/diagrams.py`` draws them into ARCHITECTURE.md. Below: the protocol types. A sequence rule is changed here
or nowhere.

A stream is a row of **runs**, one after another. ``RUN_TABLE`` says for each state of the run and each boundary
event which state comes next, or by which rule the event is refused. Every other event needs an open run.

Inside a run, **items** are opened, continued and closed. ``ITEMS`` has one row per kind of item. Items of all kinds
overlap freely (STR-5); each is followed by its own id, and all are closed before RUN_FINISHED. RUN_ERROR ends
them as they are (LIFE-13). The rows stand in the order in which a producer closes what it left open: what is
inside before what is around it.

Each item has an **owner**: the agent itself, or the subagent it is tagged with. Owners are remembered per
``Bucket`` for the whole run, also after the item is closed, because a later event may still speak of it (SUB-8).
An event without a tag never disagrees with an owner (SUB-9).
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
    """Where a stream stands between its runs."""

    NEW = "new"  # no event yet
    OPEN = "open"
    FINISHED = "finished"  # by RUN_FINISHED; only a late RUN_ERROR can still change the verdict
    FAILED = "failed"  # by RUN_ERROR


class Refused(NamedTuple):
    """An event that must not come now: the rule, what is wrong and what to do, and where a collector goes on from."""

    rule: str
    why: str
    then: RunState


class Other:
    """Stands in ``RUN_TABLE`` for every event that is not a run's boundary."""


_NOT_FIRST = Refused("LIFE-1", "is the first event, but a stream begins with RUN_STARTED (or RUN_ERROR)", RunState.OPEN)
_NESTED = Refused("LIFE-17", "while a run is open; close that one with RUN_FINISHED or RUN_ERROR first", RunState.OPEN)
_FINISHED = Refused("LIFE-15", "after RUN_FINISHED; only RUN_STARTED or a late RUN_ERROR may follow", RunState.FINISHED)
_FAILED = Refused("LIFE-16", "after RUN_ERROR; only RUN_STARTED may follow", RunState.FAILED)

RUN_TABLE: dict[RunState, dict[EventClass, RunState | Refused]] = {
    RunState.NEW: {
        RunStartedEvent: RunState.OPEN,
        RunFinishedEvent: _NOT_FIRST,
        RunErrorEvent: RunState.FAILED,
        Other: _NOT_FIRST,
    },
    RunState.OPEN: {
        RunStartedEvent: _NESTED,
        RunFinishedEvent: RunState.FINISHED,
        RunErrorEvent: RunState.FAILED,
        Other: RunState.OPEN,
    },
    RunState.FINISHED: {
        RunStartedEvent: RunState.OPEN,
        RunFinishedEvent: _FINISHED,
        RunErrorEvent: RunState.FAILED,
        Other: _FINISHED,
    },
    RunState.FAILED: {
        RunStartedEvent: RunState.OPEN,
        RunFinishedEvent: _FAILED,
        RunErrorEvent: _FAILED,
        Other: _FAILED,
    },
}


Bucket = Literal["message", "tool call", "reasoning", "activity"]
"""Which memory of owners an id belongs to: a message and a tool call may have the same id, while reasoning spans
and reasoning messages share one bucket. Strings, because an enum's hash is slow on the hot path."""


@dataclass(frozen=True, kw_only=True, slots=True, eq=False)  # eq=False: rows are dict keys on the hot path
class Item:
    """One kind of thing that is opened, continued and closed."""

    noun: str
    opener: EventClass
    content: tuple[EventClass, ...]
    closers: tuple[EventClass, ...]  # the first one is how a writer closes what was left open
    id_field: str
    bucket: Bucket | None  # None: nothing else ever speaks of it, or it is itself an owner
    keyed_by_owner: bool  # the same name may be open once per owner (STEP-4)
    double_open: str  # the rule against opening it while it is open
    not_open: str  # the rule against continuing or closing it while it is not
    open_at_finish: str  # the rule against leaving it open at RUN_FINISHED
    reopen: str | None  # the rule against opening it again once closed; None: legal, and content appends (TXT-3)


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

DUTIES: dict[str, str] = {
    "ACT-6": "a snapshot that does not replace has the owner that the activity already has",
    "ACT-8": "an activity is patched only after a snapshot of it",
    "ENC-6": "a message names the type of an encrypted value only beside the value",
    "ENV-11": "a run id is used once",
    "ENV-12": "a message id names one message, of one kind",
    "FT-3": "pendingToolCallIds, if sent, is exactly the calls started in this run and not answered in it",
    "IN-3": "every run is on the same thread, and a run's boundaries agree on thread and run",
    "INT-1": "an interrupt outcome has at least one interrupt",
    "INT-3": "an interrupt's id is unique within its run",
    "SUB-3": "an announced subagent is announced before anything is tagged with it",
    "TOOL-2": "a call has the owner of the message that carries it, also when that is from an earlier run",
    "TOOL-4": "a call opened again has the same name, parent and owner",
    "TRN-3": "a run ends with RUN_FINISHED or RUN_ERROR before the stream ends",
    "TXT-3": "a message opened again has the same owner, role and name",
    "VER-2": "RUN_STARTED declares the producer's protocol version",
    "VER-3": "a protocol version is MAJOR.MINOR",
}
"""What a producer owes and a consumer does not check: judged only with ``producer=True`` (AMB-4)."""


def wire_name(event_class: EventClass) -> str:
    """``TextMessageStartEvent`` -> ``TEXT_MESSAGE_START``; anything else by its class name."""
    return str(getattr(event_class, "type", event_class.__name__))
