"""Layer: stream. Whether events come in an order the protocol allows (LIFE, STR, RSN, STEP, SUB).

Above: ``consume``, ``write`` and whoever tests a server. Below: the tables in ``rules``, which are to be read first:
this module only plays them. It never changes, reorders or repairs an event, and looks at no event's content.

Two strengths. By default what a consumer must reject, no more. With ``producer=True`` also what a producer owes
(``rules.DUTIES``, checked by ``duties``), for testing servers and for writing.

The verifier sees streams without chunks (PROC-11). A chunk that reaches it is let through unjudged: put a
``ChunkExpander`` in front, or call ``verify``, which has one.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from operator import attrgetter
from typing import Any, Literal, NamedTuple, get_args

from aguila.errors import SequenceError
from aguila.protocol import (
    ActivityDeltaEvent,
    ActivitySnapshotEvent,
    AssistantMessage,
    Event,
    Message,
    MessagesSnapshotEvent,
    ReasoningEncryptedValueEvent,
    RunErrorEvent,
    RunFinishedEvent,
    RunStartedEvent,
    SubagentStartedEvent,
    ToolCall,
    ToolCallResultEvent,
    ToolCallStartEvent,
)
from aguila.stream.chunks import ChunkExpander
from aguila.stream.duties import Duties
from aguila.stream.foreign import EVENT_CLASSES, not_an_event
from aguila.stream.rules import (
    ITEMS,
    REASONING_MESSAGE,
    RUN_TABLE,
    STEP,
    SUBAGENT,
    TEXT,
    TOOL_CALL,
    Bucket,
    Item,
    Other,
    Refused,
    RunState,
    wire_name,
)

End = Literal["finished", "truncated"]
"""How a stream ended: with its last run closed (by RUN_FINISHED or RUN_ERROR), or before that (AMB-5)."""

Owner = str | None
_Key = str | tuple[Owner, str]
_Opened = tuple[Owner, int]  # the opener's tag, and which event of the stream it was
_NOT_OPEN: _Opened = (None, -1)
_Handler = Callable[["Verifier", Any], None]


class OpenItem(NamedTuple):
    """Something that was opened and not closed yet. ``owner`` is the tag to continue or close it with."""

    item: Item
    id: str
    owner: Owner


class Opening(NamedTuple):
    """How something was opened, for ``Verifier.reopen``."""

    item: Item
    id: str
    opened: _Opened


class Verdict(NamedTuple):
    """What ``verify`` found."""

    end: End
    findings: list[SequenceError]


class Verifier:
    """Judges a stream event by event.

    ``feed`` raises ``SequenceError`` for an event that must not come now, and then has changed nothing. With
    ``collect=True`` violations gather in ``findings`` instead and the verifier goes on as well as it can: an item
    opened twice stays open, an event about an item that is not open is passed over, a wrong tag is passed over.

    ``index`` is the position that the next event's error will name; it counts by itself, and a pipeline in which one
    event becomes several may set it.
    """

    __slots__ = (
        "_collect",
        "_duties",
        "_ended",
        "_handlers",
        "_open",
        "_otherwise",
        "_owners",
        "_state",
        "findings",
        "index",
    )

    def __init__(self, *, producer: bool = False, collect: bool = False) -> None:
        self.findings: list[SequenceError] = []
        self.index = 0
        self._collect = collect
        self._duties = Duties() if producer else None
        self._open: dict[Item, dict[_Key, _Opened]] = {item: {} for item in ITEMS}
        self._ended: dict[str, None] = {}  # subagents announced and closed in this run
        self._owners: dict[Bucket, dict[str, Owner]] = {bucket: {} for bucket in get_args(Bucket)}
        self._enter(RunState.NEW)

    def feed(self, event: Event) -> None:
        """Judge the next event of the stream.

        Raises ``SequenceError`` unless violations are collected, and TypeError for what is no event of the protocol.
        """
        # One lookup decides what an event means and whether it may come at all: outside a run the table holds
        # only the boundary events. This is the whole cost of a delta besides its own check.
        self._handlers.get(event.__class__, self._otherwise)(self, event)
        self.index += 1

    @property
    def judges(self) -> tuple[Mapping[type[Any], _Handler], _Handler]:
        """What ``feed`` asks about an event, by its class, and what about all others; good until a run begins or ends.

        For who feeds many events at once: the calls in between cost as much as what they do. Errors name no index.
        """
        return self._handlers, self._otherwise

    def close(self) -> End:
        """The stream has ended: was its last run closed?

        With ``producer=True`` a missing end of the run is a violation (TRN-3).
        """
        if self._state in (RunState.FINISHED, RunState.FAILED):
            return "finished"
        if self._duties is not None:
            self._fail("TRN-3", "the stream ended before the run did; end it with RUN_FINISHED or RUN_ERROR", None)
        return "truncated"

    @property
    def run_state(self) -> RunState:
        """Where the stream stands between its runs."""
        return self._state

    @property
    def open_items(self) -> list[OpenItem]:
        """What is open, in the order in which to close it: contents before what holds them, newest first."""
        return [
            OpenItem(item, key, self.tag_of(item, key)) if isinstance(key, str) else OpenItem(item, key[1], owner)
            for item in ITEMS
            for key, (owner, _) in reversed(self._open[item].items())
        ]

    @property
    def duties(self) -> Duties | None:
        """What the producer's duties are judged by, with ``producer=True``."""
        return self._duties

    def is_open(self, item: Item, item_id: str, owner: Owner = None) -> bool:
        """Whether this item is open. ``owner`` matters for steps only, which are open once per owner."""
        return ((owner, item_id) if item.keyed_by_owner else item_id) in self._open[item]

    def tag_of(self, item: Item, item_id: str) -> Owner:
        """The tag to continue or close an open item with: its opener's, or none where a snapshot gave it away."""
        tag = self._open[item].get(item_id, _NOT_OPEN)[0]
        if tag is None or item.bucket is None or self._owners[item.bucket].get(item_id) == tag:
            return tag
        return None

    def opening_of(self, end: Event) -> Opening:
        """What this end will close, to be opened again by ``reopen``: for a writer that sends several events or none.

        Of a text message, tool call or reasoning message; raises KeyError for any other event.
        """
        item = _ITEM_OF_END[end.__class__]
        key: str = getattr(end, item.id_field)
        return Opening(item, key, self._open[item].get(key, _NOT_OPEN))

    def reopen(self, closed: Sequence[Opening]) -> None:
        """Take back the ends of these, which were the last events fed; what is open is in its old order again."""
        for item, key, opened in closed:
            self._open[item][key] = opened
        for item in {opening.item for opening in closed}:
            self._open[item] = dict(sorted(self._open[item].items(), key=lambda entry: entry[1][1]))
        self.index -= len(closed)

    def _enter(self, state: RunState) -> None:
        self._state = state
        is_open = state is RunState.OPEN
        self._handlers = _IN_RUN if is_open else _BETWEEN_RUNS
        self._otherwise: _Handler = _reject if is_open else _refuse

    def _fail(self, rule: str, message: str, event: Event | None) -> None:
        error = SequenceError(message, rule=rule, index=self.index, event=event)
        if not self._collect:
            raise error
        self.findings.append(error)

    def _owe(self, event: Event) -> None:
        """Judge the producer's duties; every handler calls this after its own checks, before it changes anything."""
        if self._duties is not None:
            for rule, message in self._duties.check(event):
                self._fail(rule, message, event)
            self._duties.note(event)

    def _check_owner(self, bucket: Bucket, item_id: str, event: Any) -> None:
        """An absent tag never disagrees; a present one must be the owner's, where one is known (SUB-8, SUB-9)."""
        tag: Owner = event.subagent_run_id
        if tag is None:
            return
        owners = self._owners[bucket]
        if item_id in owners and owners[item_id] != tag:
            self._fail(
                "SUB-8",
                f"{event.type} is tagged {tag!r}, but {bucket} {item_id!r} belongs to {_who(owners[item_id])};"
                f" send it {'without a tag' if owners[item_id] is None else 'with that tag or none'}",
                event,
            )

    def _remember_owners(self, messages: Iterable[Message], *, overwrite: bool) -> None:
        for message in messages:
            owner = message.subagent_run_id
            self._own(_BUCKET_OF_ROLE.get(message.role, "message"), message.id, owner, overwrite)
            if isinstance(message, AssistantMessage) and message.tool_calls is not None:
                for call in message.tool_calls:
                    if isinstance(call, ToolCall):  # it belongs to whom its message belongs to (SUB-10)
                        self._own("tool call", call.id, owner, overwrite)

    def _own(self, bucket: Bucket, item_id: str, owner: Owner, overwrite: bool) -> None:
        if overwrite or item_id not in self._owners[bucket]:
            self._owners[bucket][item_id] = owner

    def _end_items(self) -> None:
        """The end of a run is the end of all it had open (LIFE-13)."""
        for keys in self._open.values():
            keys.clear()

    def _forget_run(self) -> None:
        """Open items, owners and subagents are of one run (LIFE-20)."""
        self._end_items()
        for owners in self._owners.values():
            owners.clear()
        self._ended.clear()


def verify(events: Iterable[Event], *, producer: bool = False, collect: bool = False) -> Verdict:
    """Judge a whole stream, chunks included, as ``Verifier`` does; positions are those of the events handed in.

    Raises ``SequenceError`` for the first violation, unless ``collect=True``, and TypeError for what is no event of the
    protocol.
    """
    expander = ChunkExpander()
    verifier = Verifier(producer=producer, collect=collect)
    index = -1
    for index, event in enumerate(events):
        try:
            expanded = expander.feed(event)
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


def _who(owner: Owner) -> str:
    return "the agent itself" if owner is None else f"subagent {owner!r}"


def _reject(v: Verifier, event: Any) -> None:
    raise not_an_event(event)


# The run table


def _refuse(v: Verifier, event: Any) -> None:
    """An event inside no run."""
    if event.__class__ not in EVENT_CLASSES:
        _reject(v, event)
    if _next_state(v, event, Other) is RunState.OPEN:  # a collector goes on as if the run had been started
        v._enter(RunState.OPEN)
        v._handlers.get(event.__class__, v._otherwise)(v, event)


def _next_state(v: Verifier, event: Any, column: type[Any]) -> RunState | None:
    """The state that the table says comes next; ``None`` if the event was refused and is to be passed over."""
    cell = RUN_TABLE[v._state][column]
    if not isinstance(cell, Refused):
        return cell
    v._fail(cell.rule, f"{wire_name(event.__class__)} {cell.why}", event)
    return None if cell.then is v._state and cell.then is not RunState.OPEN else cell.then


def _start_run(v: Verifier, event: RunStartedEvent) -> None:
    state = _next_state(v, event, event.__class__)
    if state is None:
        return
    v._owe(event)
    v._forget_run()
    if event.input is not None:
        v._remember_owners(event.input.messages, overwrite=False)
    v._enter(state)


def _finish_run(v: Verifier, event: RunFinishedEvent) -> None:
    state = _next_state(v, event, event.__class__)
    if state is None:
        return
    for item, keys in v._open.items():
        if keys:
            v._fail(
                item.open_at_finish,
                f"RUN_FINISHED while {item.noun} {', '.join(map(_label, keys))} is open;"
                f" send {_or(item.closers)} first",
                event,
            )
    v._owe(event)
    v._end_items()
    # A finish that was refused as the first event still finishes, for a collector.
    v._enter(RunState.FINISHED)


def _fail_run(v: Verifier, event: RunErrorEvent) -> None:
    state = _next_state(v, event, event.__class__)
    if state is None:
        return
    v._owe(event)
    v._end_items()
    v._enter(state)


def _label(key: _Key) -> str:
    return repr(key) if isinstance(key, str) else f"{key[1]!r} of {_who(key[0])}"


def _or(classes: Iterable[type[Any]]) -> str:
    return " or ".join(map(wire_name, classes))


# The item table


def _opens(item: Item) -> _Handler:
    id_of = attrgetter(item.id_field)

    def open_item(v: Verifier, event: Any) -> None:
        item_id: str = id_of(event)
        tag: Owner = event.subagent_run_id
        key = (tag, item_id) if item.keyed_by_owner else item_id
        if key in v._open[item]:
            _fail_double_open(v, item, key, event)
            return
        if item.bucket is not None:
            v._check_owner(item.bucket, item_id, event)
        v._owe(event)
        if item.bucket is not None:
            v._owners[item.bucket].setdefault(item_id, tag)
        v._open[item][key] = (tag, v.index)

    return open_item


def _fail_double_open(v: Verifier, item: Item, key: _Key, event: Event) -> None:
    v._fail(
        item.double_open,
        f"{event.type} for {item.noun} {_label(key)}, which is already open;"
        f" close it with {_or(item.closers)} first, or use another id",
        event,
    )


def _open_tool_call(v: Verifier, event: ToolCallStartEvent) -> None:
    item_id, tag, parent = event.tool_call_id, event.subagent_run_id, event.parent_message_id
    if item_id in v._open[TOOL_CALL]:
        _fail_double_open(v, TOOL_CALL, item_id, event)
        return
    messages, calls = v._owners["message"], v._owners["tool call"]
    owner = tag
    if parent is not None and parent in messages:
        if tag is None:
            owner = messages[parent]
            if item_id in calls and calls[item_id] != owner:
                v._fail(
                    "SUB-10",
                    f"tool call {item_id!r} belongs to {_who(calls[item_id])}, but message {parent!r} that now"
                    f" carries it to {_who(owner)}; keep a call on messages of its owner",
                    event,
                )
        elif tag != messages[parent]:
            v._fail(
                "TOOL-2",
                f"tool call {item_id!r} is tagged {tag!r}, but message {parent!r} that carries it belongs to"
                f" {_who(messages[parent])}; give the call the message's tag",
                event,
            )
    v._check_owner("tool call", item_id, event)
    v._owe(event)
    calls.setdefault(item_id, owner)
    v._open[TOOL_CALL][item_id] = (tag, v.index)


def _open_subagent(v: Verifier, event: SubagentStartedEvent) -> None:
    item_id, parent = event.subagent_run_id, event.parent_subagent_run_id
    active = v._open[SUBAGENT]
    if item_id in active:
        _fail_double_open(v, SUBAGENT, item_id, event)
        return
    if SUBAGENT.reopen is not None and item_id in v._ended:
        v._fail(
            SUBAGENT.reopen,
            f"subagent {item_id!r} has already ended in this run; every invocation needs an id of its own",
            event,
        )
    if parent is not None and parent not in active and parent not in v._ended:
        v._fail(
            "SUB-11",
            f"subagent {item_id!r} names parent {parent!r}, which was not announced in this run;"
            " send the parent's SUBAGENT_STARTED first",
            event,
        )
    v._owe(event)
    active[item_id] = (None, v.index)


def _continues(item: Item) -> _Handler:
    id_of = attrgetter(item.id_field)

    def continue_item(v: Verifier, event: Any) -> None:
        item_id = id_of(event)
        if item_id not in v._open[item]:
            _fail_not_open(v, item, item_id, event)
        elif event.subagent_run_id is not None and item.bucket is not None:
            v._check_owner(item.bucket, item_id, event)

    return continue_item


def _closes(item: Item) -> _Handler:
    id_of = attrgetter(item.id_field)

    def close_item(v: Verifier, event: Any) -> None:
        item_id = id_of(event)
        key = (event.subagent_run_id, item_id) if item.keyed_by_owner else item_id
        if key not in v._open[item]:
            _fail_not_open(v, item, key, event)
            return
        if item.bucket is not None:
            v._check_owner(item.bucket, item_id, event)
        del v._open[item][key]
        if item is SUBAGENT:
            v._ended[item_id] = None

    return close_item


def _fail_not_open(v: Verifier, item: Item, key: _Key, event: Event) -> None:
    if item is STEP and isinstance(key, tuple):
        others = [_who(owner) for owner, name in v._open[STEP] if name == key[1]]  # type: ignore[misc]
        if others:
            v._fail(
                "STEP-4",
                f"{event.type} for step {_label(key)}, but that step was started by {', '.join(others)};"
                " finish a step with the tag it was started with",
                event,
            )
            return
    v._fail(
        item.not_open,
        f"{event.type} for {item.noun} {_label(key)}, which is not open; send {wire_name(item.opener)} first",
        event,
    )


# Everything else: needs an open run, and at most an owner that agrees


def _standalone(v: Verifier, event: Event) -> None:
    v._owe(event)


def _tool_result(v: Verifier, event: ToolCallResultEvent) -> None:
    v._owe(event)
    # The result mints a message of its own, whoever owned that id before.
    v._owners["message"][event.message_id] = event.subagent_run_id


def _encrypted_value(v: Verifier, event: ReasoningEncryptedValueEvent) -> None:
    bucket = "tool call"
    if event.subtype == "message":
        bucket = "message" if event.entity_id in v._owners["message"] else "reasoning"
    v._check_owner(bucket, event.entity_id, event)
    v._owe(event)


def _activity_snapshot(v: Verifier, event: ActivitySnapshotEvent) -> None:
    v._owe(event)
    owners = v._owners["activity"]
    if event.replace is not False or event.message_id not in owners:  # ACT-5: a replacement is owned anew
        owners[event.message_id] = event.subagent_run_id


def _activity_delta(v: Verifier, event: ActivityDeltaEvent) -> None:
    v._check_owner("activity", event.message_id, event)
    v._owe(event)


def _messages_snapshot(v: Verifier, event: MessagesSnapshotEvent) -> None:
    v._owe(event)
    v._remember_owners(event.messages, overwrite=True)


_BUCKET_OF_ROLE: dict[str, Bucket] = {"reasoning": "reasoning", "activity": "activity"}

_ITEM_OF_END = {item.closers[0]: item for item in (TEXT, TOOL_CALL, REASONING_MESSAGE)}

_BETWEEN_RUNS: dict[type[Any], _Handler] = {
    RunStartedEvent: _start_run,
    RunFinishedEvent: _finish_run,
    RunErrorEvent: _fail_run,
}

_IN_RUN: dict[type[Any], _Handler] = {
    **dict.fromkeys(EVENT_CLASSES, _standalone),
    **{item.opener: _opens(item) for item in ITEMS},
    **{cls: _continues(item) for item in ITEMS for cls in item.content},
    **{cls: _closes(item) for item in ITEMS for cls in item.closers},
    **_BETWEEN_RUNS,
    ToolCallStartEvent: _open_tool_call,
    ToolCallResultEvent: _tool_result,
    SubagentStartedEvent: _open_subagent,
    ReasoningEncryptedValueEvent: _encrypted_value,
    ActivitySnapshotEvent: _activity_snapshot,
    ActivityDeltaEvent: _activity_delta,
    MessagesSnapshotEvent: _messages_snapshot,
}
