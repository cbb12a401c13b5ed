"""Layer: stream. ``compact``: the shortest stream with the same meaning that needs no chunks.

Below: the reducer, which defines the meaning and is asked about it while compacting, and ``branches``. Above: stores
that keep less and servers that replay faster. Never changes what a stream reduces to, never fabricates a snapshot,
never reorders starts and ends, and never touches an unfinished item or a failed run: somebody may want to know what
exactly happened, and the stream may go on.

A log of several runs has two readings, in a row as ``reduce`` and along the branch of a run as ``Lineage``. Both keep
their meaning: what is dropped or joined is so by the right of both, and where they part, more is kept.

For a run that finished, per item:

==================================  ==========================================================================
text or reasoning message           start, one content, end, however often it was opened again
tool call                           start, one arguments event, end; each result as it was
activity shown in the run           one snapshot, where it was first shown
state                               one event for each owner in a row: a snapshot if there was one, else a delta
messages echoed in the run's input  only those the stream has not brought already
everything else                     as it was, where it was
==================================  ==========================================================================

A MESSAGES_SNAPSHOT in the middle of an item separates what came before it from what came after: each such snapshot may
cost one content event more per item open at the time. So may two items that are open at once under one message id.

A joined content event stands where the first one stood, a folded state event where the last one stood.

Losses. What an event means is kept; what only its envelope said may go:

===================================  =========================================================================
``raw_event`` of joined events       gone, as it described one delta; a delta that stood alone keeps its own
``timestamp`` of joined events       of content the first, of state the last; starts and ends keep theirs
``metadata`` of content and ends     on the start, where the reducer would have put it
``metadata`` of folded state events  merged on the event that is left
tag of a joined content event        that of the first; the start says whose the item is
tag of a superseded state event      gone with the event
the echo of a known message          gone, also where it differed: the reducer kept the known one
a delta that certainly fails         gone, with a notice, where a snapshot in the same run makes it certain
chunks                               written as start, content and end, except an item still open at the end
===================================  =========================================================================
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any, cast

from msgspec import UNSET

from aguila.codec.notice import Notice, Warn, log_notice
from aguila.protocol import (
    ActivityDeltaEvent,
    ActivityMessage,
    ActivitySnapshotEvent,
    Event,
    Message,
    MessagesSnapshotEvent,
    Metadata,
    ReasoningMessageContentEvent,
    ReasoningMessageEndEvent,
    ReasoningMessageStartEvent,
    RunErrorEvent,
    RunStartedEvent,
    State,
    StateDeltaEvent,
    StateSnapshotEvent,
    TextMessageContentEvent,
    TextMessageEndEvent,
    TextMessageStartEvent,
    ToolCallArgsEvent,
    ToolCallEndEvent,
    ToolCallResultEvent,
    ToolCallStartEvent,
    replace,
)
from aguila.stream.branches import Branch, branches_of
from aguila.stream.chunks import SHORTHANDS, ChunkExpander
from aguila.stream.growing import join_deltas
from aguila.stream.past import Past

_STARTS = {TextMessageStartEvent, ReasoningMessageStartEvent, ToolCallStartEvent}
_CONTENTS = {TextMessageContentEvent, ReasoningMessageContentEvent, ToolCallArgsEvent}
_ENDS = {TextMessageEndEvent, ReasoningMessageEndEvent, ToolCallEndEvent}
_CHUNKS = {kind.chunk for kind in SHORTHANDS}
_KIND = {cls: i for i, kind in enumerate(SHORTHANDS) for cls in (kind.start, kind.content, kind.end)}
_OPENER_FIELDS = tuple((*kind.opener_fields, "subagent_run_id") for kind in SHORTHANDS)

_ItemKey = tuple[int, str]
"""The kind of an item (its place in SHORTHANDS) and its id."""


def compact(events: Iterable[Event], *, state: State = UNSET, warn: Warn = log_notice) -> list[Event]:
    """The shortest stream with the same meaning that needs no chunks, in time linear in its length.

    It is never longer than the stream with its chunks expanded. It can be longer than the stream: an item that came in
    one or two chunks is a start, a content event and an end, by up to two events more for each.

    ``state`` is the state before the first event, if it is known: deltas are joined only where it is certain that each
    of them applies, since a joined patch applies or fails as one. Compacting again changes nothing, and a valid stream
    stays valid.

    Raises SequenceError for a chunk that cannot be expanded.
    """
    runs = list(_split(events))
    branches = branches_of([run.expanded for run in runs])
    past = Past(state, is_branched=not all(branch.is_straight for branch in branches))
    compacted: list[Event] = []
    for run, branch in zip(runs, branches, strict=True):
        past.enter(branch)
        compacted.extend(_CompactRun(run, past, branch, warn).events())
        past.leave()
    return compacted


class _Run:
    """The events of one run: as they came, and in their long spelling with the place each came from."""

    def __init__(self) -> None:
        self.original: list[Event] = []
        self.expanded: list[Event] = []
        self.origins: list[int] = []
        self.has_failed = False


def _split(events: Iterable[Event]) -> Iterable[_Run]:
    expander = ChunkExpander()
    run = _Run()
    for event in events:
        long_form = expander.feed(event)
        if event.__class__ is RunStartedEvent:
            if run.original:
                yield run
            run = _Run()
            # Before it, ends of what the last run left open in chunks. Along a branch they come later or never.
            long_form = long_form[-1:]
        elif event.__class__ is RunErrorEvent:
            run.has_failed = True
        run.expanded.extend(long_form)
        run.origins.extend([len(run.original)] * len(long_form))
        run.original.append(event)
    if run.original:
        yield run


class _Item:
    """A stretch of one message or call in which nothing else touches it: what is left of it, and where."""

    __slots__ = ("contents", "deltas", "end", "first", "metadata", "start")

    def __init__(self) -> None:
        self.start: int | None = None
        self.first: int | None = None  # where the first content event was
        self.end: int | None = None
        self.contents = 0
        self.deltas: list[str] = []
        self.metadata: Metadata | None = None


class _Fold:
    """Consecutive state events of one owner that become one event, where the last of them was."""

    __slots__ = ("at", "can_grow", "event", "operations")

    def __init__(self, event: Any, at: int, *, can_grow: bool) -> None:
        self.event = event
        self.at = at
        self.can_grow = can_grow
        self.operations: list[Any] | None = list(event.delta) if event.__class__ is StateDeltaEvent else None


class _CompactRun:
    """Compacts one run. ``out`` has a place for each expanded event; what is not needed any more becomes None there."""

    def __init__(self, run: _Run, past: Past, branch: Branch, warn: Warn) -> None:
        self.run = run
        self.past = past
        self.branch = branch
        self.warn = warn
        self.out: list[Event | None] = list(run.expanded)
        self.items: dict[_ItemKey, _Item] = {}
        self.activities: dict[str, int] = {}
        self.folds: list[_Fold] = []
        self.has_snapshot = False
        self.unfinished: dict[_ItemKey, int] = {}
        self.writer: dict[str, int] = {}  # which kind of item last wrote to a message
        self.started: set[str] = set()  # messages that surely are there, on any branch, since they were started

    def events(self) -> Sequence[Event]:
        run = self.run
        if run.expanded and run.expanded[0].__class__ is RunStartedEvent:
            self._begin(cast("RunStartedEvent", run.expanded[0]))
        if run.has_failed:
            for event in run.expanded:
                self.past.feed(event)
            return run.original
        self._find_unfinished()
        for at, event in enumerate(run.expanded):
            cls = event.__class__
            if cls in _KIND:
                if cls is ToolCallStartEvent:
                    self._call_starts(cast("ToolCallStartEvent", event))
                self._item_event(at, event)
                self.past.feed(event)
            elif cls is StateSnapshotEvent or cls is StateDeltaEvent:
                self._state_event(at, event)
            elif cls is ActivitySnapshotEvent or cls is ActivityDeltaEvent:
                self._activity_event(at, event)
            else:
                if cls is MessagesSnapshotEvent:
                    self._separate()
                    self.started.clear()
                elif cls is ToolCallResultEvent:
                    self._leave_message(cast("ToolCallResultEvent", event).message_id)
                self.past.feed(event)
        self._separate()
        for fold in self.folds:
            self.out[fold.at] = fold.event
        return [event for event in self.out if event is not None]

    def _begin(self, event: RunStartedEvent) -> None:
        echo = event.input
        if echo is None:
            return
        past = self.past
        if echo.state is not None:
            past.start_from(echo.state)
        if self.run.has_failed:
            past.note_messages(echo.messages)
            return
        needed = _mentioned_ids(self.run.expanded)
        seen: set[str] = set()
        messages: list[Message] = []
        for message in echo.messages:
            # An attributed message tells the verifier whose items under its id are, so it stays if there are any.
            is_owner = message.subagent_run_id is not None and (
                message.id in needed or any(call.id in needed for call in getattr(message, "tool_calls", None) or ())
            )
            is_known = message.id in seen or (
                past.reducer.role_of(message.id) is not None
                and (self.branch.is_straight or message.id in self.branch.known)
            )
            if is_owner or not is_known:
                messages.append(message)
            seen.add(message.id)
        past.note_messages(messages)
        if len(messages) != len(echo.messages):
            self.out[0] = replace(event, input=replace(echo, messages=messages))

    # Items

    def _find_unfinished(self) -> None:
        """Where the items start that are open when the run's events end, or that chunks could still continue."""
        unfinished = self.unfinished
        original, origins = self.run.original, self.run.origins
        chunked: dict[_ItemKey, int] = {}
        for at, event in enumerate(self.run.expanded):
            cls = event.__class__
            if cls in _STARTS:
                key = _key(event)
                unfinished[key] = at
                if original[origins[at]].__class__ in _CHUNKS:
                    chunked[key] = at
            elif cls in _ENDS:
                key = _key(event)
                unfinished.pop(key, None)
                if event is not original[origins[at]]:
                    chunked.pop(key, None)
        # An end from outside its lane ends an item and not its chunks: the next one goes on with it unasked (CHK-8).
        for key, at in chunked.items():
            unfinished[key] = at

    def _item_event(self, at: int, event: Any) -> None:
        key = _key(event)
        kind, item_id = key
        if kind != _TOOL_CALL and self.writer.get(item_id, kind) != kind:
            # A text and a reasoning message of one id are one message: their contents must stay in order.
            self._leave_message(item_id)
        if kind != _TOOL_CALL:
            self.writer[item_id] = kind
            if event.__class__ in _STARTS:
                self.started.add(item_id)
        if key in self.unfinished and at >= self.unfinished[key]:
            self._settle(key)
            self._keep_spelling(at, event)
            return
        item = self.items.get(key)
        cls = event.__class__
        if cls in _STARTS and item is not None and not self._reopens(item, event):
            self._settle(key)
            item = None
        if item is None:
            item = self.items[key] = _Item()
        if event.metadata is not None:
            item.metadata = event.metadata if item.metadata is None else {**item.metadata, **event.metadata}
        if cls in _STARTS:
            if item.start is None:
                item.start = at
            else:
                self.out[at] = None
                self.out[cast("int", item.end)] = None
                item.end = None
        elif cls in _CONTENTS:
            item.contents += 1
            item.deltas.append(event.delta)
            if item.first is None:
                item.first = at
            else:
                self.out[at] = None
        else:
            item.end = at

    def _call_starts(self, event: ToolCallStartEvent) -> None:
        """The call may bring a message of its own, and what was in vain under that id before would now be heard."""
        item = self.items.get(_key(event))
        if item is not None and self._reopens(item, event):
            return  # it has its message, and this start may be left out
        for message_id in (event.tool_call_id, event.parent_message_id):
            if message_id is not None and (
                self.past.reducer.role_of(message_id) in (None, "tool") or not self._is_there(message_id)
            ):
                self._leave_message(message_id)

    def _is_there(self, message_id: str) -> bool:
        """Whether the branch, too, surely has this message, and that it is no tool message."""
        return self.branch.is_straight or (message_id in self.started and message_id not in self.past.tool_ids)

    def _reopens(self, item: _Item, event: Any) -> bool:
        """Whether a start continues the item: it ended in this stretch, and was started in the same words."""
        if item.start is None or item.end is None:
            return False
        start = self.run.expanded[item.start]
        return all(getattr(start, field) == getattr(event, field) for field in _OPENER_FIELDS[_KIND[event.__class__]])

    def _keep_spelling(self, at: int, event: Event) -> None:
        """Leave an event of an unfinished item as it came: chunks may follow that continue a chunk."""
        origins = self.run.origins
        chunk = self.run.original[origins[at]]
        if chunk.__class__ in _CHUNKS:
            # The chunk that opens an item is a start and a content event: it takes the place of the first.
            is_second = event.__class__ in _CONTENTS and origins[at - 1] == origins[at]
            self.out[at] = None if is_second else chunk

    def _leave_message(self, message_id: str) -> None:
        """Something else writes to a message: its items are joined no further."""
        self._settle((_TEXT, message_id))
        self._settle((_REASONING, message_id))

    def _separate(self) -> None:
        """Something writes to messages in general."""
        for key in list(self.items):
            self._settle(key)
        self.activities.clear()
        self.writer.clear()

    def _settle(self, key: _ItemKey) -> None:
        """Write what is left of an item: metadata on its first event, all text in its first content event."""
        item = self.items.pop(key, None)
        if item is None:
            return
        metadata = item.metadata
        for at in (item.start, item.first, item.end):
            if at is None:
                continue
            event: Any = self.run.expanded[at]
            changes: dict[str, Any] = {}
            if event.metadata is not metadata:
                changes["metadata"] = metadata
            metadata = None
            if at == item.first and item.contents > 1:
                changes["delta"] = join_deltas("", item.deltas)
                changes["raw_event"] = None
            if changes:
                self.out[at] = replace(event, **changes)

    # Activities

    def _activity_event(self, at: int, event: Any) -> None:
        message_id: str = event.message_id
        role = self.past.reducer.role_of(message_id)
        replaces = event.__class__ is ActivitySnapshotEvent and event.replace is not False
        may_be_another = not self.branch.is_straight and message_id in self.past.plain_ids
        if replaces and (role not in (None, "activity") or may_be_another):
            # It takes the place of a message, and of the calls that it may have made.
            self._separate()
        first = self.activities.get(message_id)
        failed = self.past.feed(event)
        if first is not None:
            shown = cast("ActivitySnapshotEvent", self.out[first])
            now = cast("ActivityMessage", self.past.reducer.message(message_id))
            if not replaces or event.subagent_run_id == shown.subagent_run_id:
                if failed:
                    self._report(event, "the patch does not apply to the activity, and is left out")
                metadata = shown.metadata
                if event.metadata is not None:
                    metadata = event.metadata if metadata is None else {**metadata, **event.metadata}
                self.out[at] = None
                self.out[first] = replace(
                    shown, content=now.content, activity_type=now.activity_type, metadata=metadata, raw_event=None
                )
                return
        if replaces:
            self.activities[message_id] = at

    # State

    def _state_event(self, at: int, event: Any) -> None:
        past = self.past
        failed = past.feed(event)
        last = self.folds[-1] if self.folds else None
        if event.__class__ is StateSnapshotEvent:
            self.has_snapshot = True
            metadata = event.metadata
            for fold in reversed(self.folds):  # all of them are spent (SNAP-1)
                self.out[fold.at] = None
                metadata = _merged(fold.event.metadata, metadata)
            if metadata is not event.metadata:
                event = replace(event, metadata=metadata)
            self.folds = [_Fold(event, at, can_grow=True)]
        elif failed and self.has_snapshot:
            self._report(event, "the patch does not apply to the state, and is left out")
            self.out[at] = None
        elif failed or not past.knows_state or last is None or not last.can_grow or not _same_owner(last.event, event):
            self.folds.append(_Fold(event, at, can_grow=past.knows_state and not failed))
        else:
            self.out[last.at] = self.out[at] = None
            metadata = _merged(last.event.metadata, event.metadata)
            if last.operations is None:
                last.event = replace(
                    last.event,
                    snapshot=past.reducer.state,
                    timestamp=event.timestamp,
                    raw_event=None,
                    metadata=metadata,
                )
            else:
                last.operations.extend(event.delta)
                last.event = replace(event, delta=last.operations, raw_event=None, metadata=metadata)
            last.at = at

    def _report(self, event: Event, message: str) -> None:
        self.warn(Notice(rule="SNAP-9", message=message, event_type=str(event.type)))


_TEXT, _TOOL_CALL, _REASONING = range(3)


def _key(event: Any) -> _ItemKey:
    kind = _KIND[event.__class__]
    return kind, (event.tool_call_id if kind == _TOOL_CALL else event.message_id)


def _same_owner(one: Any, other: Any) -> bool:
    return one.subagent_run_id == other.subagent_run_id


def _merged(first: Metadata | None, then: Metadata | None) -> Metadata | None:
    if first is None:
        return then
    return first if then is None else {**first, **then}


def _mentioned_ids(events: Iterable[Event]) -> set[str]:
    """Every id of a message or call that some event names."""
    names = ("message_id", "parent_message_id", "tool_call_id", "entity_id")
    return {value for event in events for name in names if isinstance(value := getattr(event, name, None), str)}
