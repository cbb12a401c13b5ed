"""Check that the events of a stream come in an order the protocol allows (LIFE, STR, RSN, STEP, SUB).

The rules are tables in ``rules``; read that module first. The verifier does not change, reorder or repair events and
does not look at their content.

By default it checks the rules that a consumer must enforce. With ``producer=True`` it also checks the rules for
producers (``producer_rules``), to test a server or to write a stream.

The verifier expects streams without chunks (PROC-11) and accepts every chunk unchecked. Put a ``ChunkExpander`` in
front of it, or call ``verify``, which does.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping
from operator import attrgetter
from typing import Any, ClassVar, Final, Literal, NamedTuple

from aguila.errors import SequenceError
from aguila.protocol import (
    ActivityDeltaEvent,
    ActivitySnapshotEvent,
    Event,
    MessagesSnapshotEvent,
    ReasoningEncryptedValueEvent,
    RunErrorEvent,
    RunFinishedEvent,
    RunStartedEvent,
    SubagentStartedEvent,
    ToolCallResultEvent,
    ToolCallStartEvent,
)
from aguila.protocol.legacy import MetaEvent
from aguila.stream.chunks import ChunkExpander
from aguila.stream.type_errors import EVENT_CLASSES, event_type_error
from aguila.stream.verification.owners import ItemOwners
from aguila.stream.verification.producer_rules import ProducerRules
from aguila.stream.verification.rules import (
    ITEMS,
    RUN_TABLE,
    STEP,
    SUBAGENT,
    TOOL_CALL,
    Bucket,
    Item,
    OtherEvent,
    Owner,
    Refusal,
    RunState,
    describe_owner,
    wire_name,
)

End = Literal["finished", "truncated"]
"""How a stream ended: after the end of its last run (RUN_FINISHED or RUN_ERROR), or before it (AMB-5)."""

MAX_OPEN_ITEMS: Final = 1_000
"""How many items of one kind may be open at once in a run."""

_ItemId = str | tuple[Owner, str]
_Opened = tuple[Owner, int]  # the tag of the opening event, and its index in the stream
_NOT_OPEN: _Opened = (None, -1)
_Handler = Callable[["Verifier", Any], None]


class OpenItem(NamedTuple):
    """An item that is open. ``owner`` is the tag for events that continue or close it."""

    item: Item
    id: str
    owner: Owner


class Verifier:
    """Check a stream event by event.

    ``feed`` raises ``SequenceError`` for an event that is not allowed now, and leaves the verifier unchanged. With
    ``collect=True`` it appends the error to ``findings`` instead and continues: an item opened twice stays open, an
    event for an item that is not open is ignored, a wrong tag is ignored.

    ``index`` is the position that the next error names. It counts the events. A caller that turns one event into
    several may set it.
    """

    __slots__ = (
        "_collect",
        "_default_handler",
        "_ended_subagents",
        "_handlers",
        "_open",
        "_owners",
        "_producer_rules",
        "_state",
        "findings",
        "index",
    )

    def __init__(self, *, producer: bool = False, collect: bool = False) -> None:
        self.findings: list[SequenceError] = []
        self.index = 0
        self._collect = collect
        self._producer_rules = ProducerRules() if producer else None
        # An item gets its dict when it is first used: most runs use few of them, and idle runs none.
        self._open: defaultdict[Item, dict[_ItemId, _Opened]] = defaultdict(dict)
        self._ended_subagents: dict[str, None] = {}  # subagents of this run
        self._owners = ItemOwners()
        self._enter(RunState.NEW)

    def feed(self, event: Event) -> None:
        """Check the next event of the stream.

        Raises ``SequenceError`` unless violations are collected, and TypeError for an object that is not an event.
        """
        # One lookup finds the check and whether the event is allowed at all: outside a run the table has only the
        # boundary events. A delta costs this lookup and its own check.
        self._handlers.get(event.__class__, self._default_handler)(self, event)
        self.index += 1

    def close(self) -> End:
        """End the stream, and return whether its last run had ended.

        With ``producer=True`` a run without an end is a violation (TRN-3).
        """
        if self._state in (RunState.FINISHED, RunState.FAILED):
            return "finished"
        if self._producer_rules is not None:
            self._report("TRN-3", "the stream ended before the run did; end it with RUN_FINISHED or RUN_ERROR", None)
        return "truncated"

    @property
    def run_state(self) -> RunState:
        """The state of the current run."""
        return self._state

    @property
    def open_items(self) -> list[OpenItem]:
        """The open items in the order in which to close them: inner items first, then the newest first."""
        return [
            OpenItem(item, key, self.tag_of(item, key)) if isinstance(key, str) else OpenItem(item, key[1], owner)
            for item in ITEMS
            for key, (owner, _) in reversed(self._open[item].items())
        ]

    @property
    def producer_rules(self) -> ProducerRules | None:
        """The checks for producers, with ``producer=True``."""
        return self._producer_rules

    def is_open(self, item: Item, item_id: str, owner: Owner = None) -> bool:
        """Return whether this item is open. ``owner`` is used for steps, which each owner can have open."""
        return ((owner, item_id) if item.keyed_by_owner else item_id) in self._open[item]

    def tag_of(self, item: Item, item_id: str) -> Owner:
        """Return the tag for events that continue or close an open item.

        It is the tag of the opening event, or None if a snapshot has changed the owner.
        """
        tag = self._open[item].get(item_id, _NOT_OPEN)[0]
        if tag is None or item.bucket is None or self._owners.buckets[item.bucket].get(item_id) == tag:
            return tag
        return None

    def save(self) -> tuple[int, dict[Item, dict[_ItemId, _Opened]]]:
        """Return what ``restore`` needs to undo the ends of items, because the event that ended them was refused."""
        return self.index, {item: dict(opened) for item, opened in self._open.items()}

    def restore(self, saved: tuple[int, dict[Item, dict[_ItemId, _Opened]]]) -> None:
        """Undo the ends of items since ``save``."""
        self.index, opened = saved
        self._open.update(opened)

    def _enter(self, state: RunState) -> None:
        self._state = state
        is_open = state is RunState.OPEN
        self._handlers = _IN_RUN if is_open else self._between_runs
        self._default_handler: _Handler = _raise_type_error if is_open else Verifier._check_outside_run

    def _report(self, rule: str, message: str, event: Event | None) -> None:
        error = SequenceError(message, rule=rule, index=self.index, event=event)
        if not self._collect:
            raise error
        self.findings.append(error)

    def _check_producer(self, event: Event) -> None:
        """Check the rules for producers. Every handler calls this after its own checks and before it changes state."""
        if self._producer_rules is not None:
            for rule, message in self._producer_rules.check(event):
                self._report(rule, message, event)
            self._producer_rules.record(event)

    def _check_owner(self, bucket: Bucket, item_id: str, event: Any) -> None:
        if event.subagent_run_id is not None:
            mismatch = self._owners.describe_mismatch(bucket, item_id, event)
            if mismatch is not None:
                self._report("SUB-8", mismatch, event)

    def _clear_open_items(self) -> None:
        """Forget all open items: the end of a run ends them (LIFE-13)."""
        self._open.clear()

    # Runs: RUN_TABLE

    def _check_outside_run(self, event: Any) -> None:
        if event.__class__ not in EVENT_CLASSES:
            _raise_type_error(self, event)
        if self._next_state(event, OtherEvent) is RunState.OPEN:  # collecting: continue as if the run had started
            self._enter(RunState.OPEN)
            self._handlers.get(event.__class__, self._default_handler)(self, event)

    def _next_state(self, event: Any, column: type[Any]) -> RunState | None:
        """Look up the next state. None: the event was refused and is ignored."""
        cell = RUN_TABLE[self._state][column]
        if not isinstance(cell, Refusal):
            return cell
        self._report(cell.rule, f"{wire_name(event.__class__)} {cell.reason}", event)
        return None if cell.next_state is self._state and cell.next_state is not RunState.OPEN else cell.next_state

    def _start_run(self, event: RunStartedEvent) -> None:
        state = self._next_state(event, event.__class__)
        if state is None:
            return
        self._check_producer(event)
        # Open items, owners and subagents belong to one run (LIFE-20).
        self._clear_open_items()
        self._owners.clear()
        self._ended_subagents.clear()
        if event.input is not None:
            self._owners.add_messages(event.input.messages, overwrite=False)
        self._enter(state)

    def _finish_run(self, event: RunFinishedEvent) -> None:
        state = self._next_state(event, event.__class__)
        if state is None:
            return
        for item in ITEMS:
            keys = self._open.get(item)
            if keys:
                self._report(
                    item.open_at_finish,
                    f"RUN_FINISHED while {item.noun} {', '.join(map(_describe_key, keys))} is open;"
                    f" send {_join_names(item.closers)} first",
                    event,
                )
        self._check_producer(event)
        self._clear_open_items()
        # Also when it was refused as the first event: a collecting verifier continues after the run.
        self._enter(RunState.FINISHED)

    def _fail_run(self, event: RunErrorEvent) -> None:
        state = self._next_state(event, event.__class__)
        if state is None:
            return
        self._check_producer(event)
        self._clear_open_items()
        self._enter(state)

    # Items: ITEMS

    @staticmethod
    def _make_opener(item: Item) -> _Handler:
        id_of = attrgetter(item.id_field)

        def open_item(v: Verifier, event: Any) -> None:
            item_id: str = id_of(event)
            tag: Owner = event.subagent_run_id
            key = (tag, item_id) if item.keyed_by_owner else item_id
            if key in v._open[item]:
                v._report_double_open(item, key, event)
                return
            v._check_open_count(v._open[item], event)
            if item.bucket is not None:
                v._check_owner(item.bucket, item_id, event)
            v._check_producer(event)
            if item.bucket is not None:
                v._owners.buckets[item.bucket].setdefault(item_id, tag)
            v._open[item][key] = (tag, v.index)

        return open_item

    def _open_tool_call(self, event: ToolCallStartEvent) -> None:
        item_id, tag, parent = event.tool_call_id, event.subagent_run_id, event.parent_message_id
        if item_id in self._open[TOOL_CALL]:
            self._report_double_open(TOOL_CALL, item_id, event)
            return
        self._check_open_count(self._open[TOOL_CALL], event)
        owner = tag
        messages = self._owners.buckets["message"]
        if parent is not None and parent in messages:
            conflict = self._owners.find_parent_conflict(event, parent)
            if conflict is not None:
                self._report(*conflict, event)
            if tag is None:
                owner = messages[parent]
        self._check_owner("tool call", item_id, event)
        self._check_producer(event)
        self._owners.buckets["tool call"].setdefault(item_id, owner)
        self._open[TOOL_CALL][item_id] = (tag, self.index)

    def _open_subagent(self, event: SubagentStartedEvent) -> None:
        item_id, parent = event.subagent_run_id, event.parent_subagent_run_id
        active = self._open[SUBAGENT]
        if item_id in active:
            self._report_double_open(SUBAGENT, item_id, event)
            return
        self._check_open_count(active, event)
        if SUBAGENT.reopen is not None and item_id in self._ended_subagents:
            self._report(
                SUBAGENT.reopen,
                f"subagent {item_id!r} has already ended in this run; use a new subagentRunId for each invocation",
                event,
            )
        if parent is not None and parent not in active and parent not in self._ended_subagents:
            self._report(
                "SUB-11",
                f"subagent {item_id!r} names parent {parent!r}, which was not announced in this run;"
                " send the parent's SUBAGENT_STARTED first",
                event,
            )
        self._check_producer(event)
        active[item_id] = (None, self.index)

    def _check_open_count(self, opened: Mapping[_ItemId, _Opened], event: Event) -> None:
        """Refuse an item if very many of its kind are open: their end takes one event each, all at once."""
        if len(opened) >= MAX_OPEN_ITEMS:
            text = f"{MAX_OPEN_ITEMS} items of this kind are open; close some of them first"
            self._report(rule="limit-open", message=text, event=event)

    @staticmethod
    def _make_continuer(item: Item) -> _Handler:
        id_of = attrgetter(item.id_field)

        def continue_item(v: Verifier, event: Any) -> None:
            item_id = id_of(event)
            if item_id not in v._open[item]:
                v._report_not_open(item, item_id, event)
            elif event.subagent_run_id is not None and item.bucket is not None:
                v._check_owner(item.bucket, item_id, event)

        return continue_item

    @staticmethod
    def _make_closer(item: Item) -> _Handler:
        id_of = attrgetter(item.id_field)

        def close_item(v: Verifier, event: Any) -> None:
            item_id = id_of(event)
            key = (event.subagent_run_id, item_id) if item.keyed_by_owner else item_id
            if key not in v._open[item]:
                v._report_not_open(item, key, event)
                return
            if item.bucket is not None:
                v._check_owner(item.bucket, item_id, event)
            del v._open[item][key]
            if item is SUBAGENT:
                v._ended_subagents[item_id] = None

        return close_item

    def _report_double_open(self, item: Item, key: _ItemId, event: Event) -> None:
        self._report(
            item.double_open,
            f"{event.type} for {item.noun} {_describe_key(key)}, which is already open;"
            f" close it with {_join_names(item.closers)} first, or use another id",
            event,
        )

    def _report_not_open(self, item: Item, key: _ItemId, event: Event) -> None:
        if item is STEP and isinstance(key, tuple):
            others = [describe_owner(owner) for owner, name in self._open[STEP] if name == key[1]]  # type: ignore[misc]
            if others:
                self._report(
                    "STEP-4",
                    f"{event.type} for step {_describe_key(key)}, but that step was started by {', '.join(others)};"
                    " finish a step with the tag it was started with",
                    event,
                )
                return
        self._report(
            item.not_open,
            f"{event.type} for {item.noun} {_describe_key(key)}, which is not open;"
            f" send {wire_name(item.opener)} first",
            event,
        )

    # All other events need an open run, and some a matching owner

    def _check_tool_result(self, event: ToolCallResultEvent) -> None:
        self._check_producer(event)
        # The result creates a message of its own, whatever had that id before.
        self._owners.buckets["message"][event.message_id] = event.subagent_run_id

    def _check_encrypted_value(self, event: ReasoningEncryptedValueEvent) -> None:
        bucket = "tool call"
        if event.subtype == "message":
            bucket = "message" if event.entity_id in self._owners.buckets["message"] else "reasoning"
        self._check_owner(bucket, event.entity_id, event)
        self._check_producer(event)

    def _check_activity_snapshot(self, event: ActivitySnapshotEvent) -> None:
        self._check_producer(event)
        owners = self._owners.buckets["activity"]
        if event.replace is not False or event.message_id not in owners:  # a replacement may have a new owner (ACT-5)
            owners[event.message_id] = event.subagent_run_id

    def _check_activity_delta(self, event: ActivityDeltaEvent) -> None:
        self._check_owner("activity", event.message_id, event)
        self._check_producer(event)

    def _check_messages_snapshot(self, event: MessagesSnapshotEvent) -> None:
        self._check_producer(event)
        self._owners.add_messages(event.messages, overwrite=True)

    _between_runs: ClassVar[dict[type[Any], _Handler]] = {
        RunStartedEvent: _start_run,
        RunFinishedEvent: _finish_run,
        RunErrorEvent: _fail_run,
        MetaEvent: lambda self, event: None,  # retired; it may occur anywhere
    }

    @staticmethod
    def make_run_handlers() -> dict[type[Any], _Handler]:
        """Make the table of checks inside a run, by event class."""
        return {
            **dict.fromkeys(EVENT_CLASSES, Verifier._check_producer),
            **{item.opener: Verifier._make_opener(item) for item in ITEMS},
            **{event: Verifier._make_continuer(item) for item in ITEMS for event in item.content},
            **{event: Verifier._make_closer(item) for item in ITEMS for event in item.closers},
            **Verifier._between_runs,
            ToolCallStartEvent: Verifier._open_tool_call,
            ToolCallResultEvent: Verifier._check_tool_result,
            SubagentStartedEvent: Verifier._open_subagent,
            ReasoningEncryptedValueEvent: Verifier._check_encrypted_value,
            ActivitySnapshotEvent: Verifier._check_activity_snapshot,
            ActivityDeltaEvent: Verifier._check_activity_delta,
            MessagesSnapshotEvent: Verifier._check_messages_snapshot,
        }


_IN_RUN = Verifier.make_run_handlers()


def _raise_type_error(v: Verifier, event: Any) -> None:
    raise event_type_error(event)


def _describe_key(key: _ItemId) -> str:
    return repr(key) if isinstance(key, str) else f"{key[1]!r} of {describe_owner(key[0])}"


def _join_names(classes: Iterable[type[Any]]) -> str:
    return " or ".join(map(wire_name, classes))


class Verdict(NamedTuple):
    """The result of ``verify``."""

    end: End
    findings: list[SequenceError]


def verify(events: Iterable[Event | MetaEvent], *, producer: bool = False, collect: bool = False) -> Verdict:
    """Check a whole stream, chunks included, as ``Verifier`` does. Errors name the index of the event passed in.

    META, a retired event, may occur anywhere. Raises ``SequenceError`` for the first violation, unless
    ``collect=True``, and TypeError for an object that is not an event.
    """
    expander = ChunkExpander()
    verifier = Verifier(producer=producer, collect=collect)
    index = -1
    for index, event in enumerate(events):
        try:
            expanded = expander.feed(event)  # type: ignore[arg-type]
        except SequenceError as error:
            error.index = index
            if not collect:
                raise
            verifier.findings.append(error)
            continue
        for part in expanded:
            verifier.index = index
            verifier.feed(part)
    verifier.index = index + 1
    return Verdict(verifier.close(), verifier.findings)
