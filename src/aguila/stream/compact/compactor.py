"""``compact``: the shortest stream without chunks that has the same meaning.

Compaction never changes the conversation that a stream reduces to. It never makes up a snapshot or reorders starts and
ends. Unfinished items and failed runs stay as they are: a developer may need every event, and the stream may continue.

A log of several runs has two readings: the whole log (``reduce``) and the branch of one run (``Lineage``). Both keep
their meaning. Events are dropped or joined only if both readings allow it. After a run that starts a branch, less is
joined, and echoed messages stay.

For a run that finished, per item:

==================================  ==========================================================================
text or reasoning message           start, one content event, end, also if it was opened several times
tool call                           start, one arguments event, end; each result unchanged
activity first shown in the run     one snapshot, at the position of the first
state                               one event for consecutive events of one owner: a snapshot if any, else a delta
messages echoed in the run's input  only those that the stream has not sent before, up to the first branch
everything else, also META          unchanged, at its position
==================================  ==========================================================================

A MESSAGES_SNAPSHOT inside an item separates the content before it from the content after it. Each such snapshot may
cost one more content event per open item. So may two items that are open at once with the same message id.

A joined content event has the position of the first one, a joined state event that of the last one.

Losses. The meaning of events is kept; some envelope fields are not:

===================================  =========================================================================
``raw_event`` of joined events       dropped; a delta that was not joined keeps it
``timestamp`` of joined events       content: the first; state: the last; starts and ends keep theirs
``metadata`` of content and ends     moved to the start, where the reducer puts it
``metadata`` of joined state events  merged on the remaining event
tag of a joined content event        that of the first; the start event has the owner
tag of a superseded state event      dropped with the event
echo of a known message              dropped, also if it differs: the reducer ignores it
a delta that certainly fails         dropped with a notice, if a snapshot in the same run makes it certain
chunks                               expanded, except those of an item that is still open at the end
===================================  =========================================================================
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any, cast

from msgspec import UNSET

from aguila.codec.notices import Notice, Warn, log_notice
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
from aguila.stream.chunks import CHUNK_KINDS, ChunkExpander
from aguila.stream.compact.history import History
from aguila.stream.reducer.message_builder import join_deltas

_STARTS = {TextMessageStartEvent, ReasoningMessageStartEvent, ToolCallStartEvent}
_CONTENTS = {TextMessageContentEvent, ReasoningMessageContentEvent, ToolCallArgsEvent}
_ENDS = {TextMessageEndEvent, ReasoningMessageEndEvent, ToolCallEndEvent}
_CHUNKS = {kind.chunk for kind in CHUNK_KINDS}
_KIND = {cls: i for i, kind in enumerate(CHUNK_KINDS) for cls in (kind.start, kind.content, kind.end)}
_OPENER_FIELDS = tuple((*kind.opener_fields, "subagent_run_id") for kind in CHUNK_KINDS)

_ItemKey = tuple[int, str]
"""The kind of an item (its index in CHUNK_KINDS) and its id."""


def compact(events: Iterable[Event], *, state: State = UNSET, warn: Warn = log_notice) -> list[Event]:
    """Return the shortest stream without chunks that has the same meaning, in linear time.

    The result is never longer than the stream with expanded chunks. It can be longer than the stream itself: an item of
    one or two chunks becomes a start, a content event and an end.

    ``state`` is the state before the first event; if it is not known, deltas are taken to start from an object. They
    are joined only if each of them certainly applies, because a joined patch applies or fails as a whole. Compacting
    twice changes nothing, and a valid stream stays valid.

    Raises SequenceError for a chunk that cannot be expanded.
    """
    history = History(state)
    compacted: list[Event] = []
    for run in _split(events):
        history.start_run(run.expanded)
        compacted.extend(_RunCompactor(run, history, warn).events())
    return compacted


class _RunEvents:
    """The events of one run: as received, and expanded, with the index of the received event for each."""

    def __init__(self) -> None:
        self.original: list[Event] = []
        self.expanded: list[Event] = []
        self.origins: list[int] = []
        self.has_failed = False


def _split(events: Iterable[Event]) -> Iterable[_RunEvents]:
    expander = ChunkExpander()
    run = _RunEvents()
    for event in events:
        long_form = expander.feed(event)
        if event.__class__ is RunStartedEvent:
            if run.original:
                yield run
            run = _RunEvents()
            # The ends before it belong to items that the last run left open. On a branch they come later or never.
            long_form = long_form[-1:]
        elif event.__class__ is RunErrorEvent:
            run.has_failed = True
        run.expanded.extend(long_form)
        run.origins.extend([len(run.original)] * len(long_form))
        run.original.append(event)
    if run.original:
        yield run


class _Item:
    """A part of one message or call that can be joined, because nothing else changes it: what to keep, and where."""

    __slots__ = ("contents", "deltas", "end", "first", "metadata", "start")

    def __init__(self) -> None:
        self.start: int | None = None
        self.first: int | None = None  # index of the first content event
        self.end: int | None = None
        self.contents = 0
        self.deltas: list[str] = []
        self.metadata: Metadata | None = None


class _StateFold:
    """Consecutive state events of one owner that become one event, at the position of the last."""

    __slots__ = ("at", "can_grow", "event", "operations")

    def __init__(self, event: Any, at: int, *, can_grow: bool) -> None:
        self.event = event
        self.at = at
        self.can_grow = can_grow
        self.operations: list[Any] | None = list(event.delta) if event.__class__ is StateDeltaEvent else None


class _RunCompactor:
    """Compact one run. ``out`` has one entry per expanded event; a dropped event becomes None."""

    def __init__(self, run: _RunEvents, history: History, warn: Warn) -> None:
        self.run = run
        self.history = history
        self.warn = warn
        self.out: list[Event | None] = list(run.expanded)
        self.items: dict[_ItemKey, _Item] = {}
        self.activities: dict[str, int] = {}
        self.folds: list[_StateFold] = []
        self.has_snapshot = False
        self.unfinished: dict[_ItemKey, int] = {}
        self.started: set[str] = set()  # messages started in this run, which therefore exist on every branch
        self.writer: dict[str, int] = {}  # the kind of item that last wrote to a message

    def events(self) -> Sequence[Event]:
        run = self.run
        if run.expanded and run.expanded[0].__class__ is RunStartedEvent:
            self._begin(cast("RunStartedEvent", run.expanded[0]))
        if run.has_failed:
            for event in run.expanded:
                self.history.feed(event)
            return run.original
        self._find_unfinished()
        for at, event in enumerate(run.expanded):
            cls = event.__class__
            if cls in _KIND:
                if cls is ToolCallStartEvent:
                    self._check_call_start(cast("ToolCallStartEvent", event))
                self._item_event(at, event)
                self.history.feed(event)
            elif cls is StateSnapshotEvent or cls is StateDeltaEvent:
                self._state_event(at, event)
            elif cls is ActivitySnapshotEvent or cls is ActivityDeltaEvent:
                self._activity_event(at, event)
            else:
                if cls is MessagesSnapshotEvent:
                    self._settle_all()
                    self.started.clear()
                elif cls is ToolCallResultEvent:
                    self._settle_message(cast("ToolCallResultEvent", event).message_id)
                self.history.feed(event)
        self._settle_all()
        for fold in self.folds:
            self.out[fold.at] = fold.event
        return [event for event in self.out if event is not None]

    def _begin(self, event: RunStartedEvent) -> None:
        echo = event.input
        if echo is None:
            return
        history = self.history
        if echo.state is not None:
            history.set_start_state(echo.state)
        history.add_message_ids(echo.messages)
        if self.run.has_failed:
            return
        needed = _mentioned_ids(self.run.expanded)
        seen: set[str] = set()
        messages: list[Message] = []
        for message in echo.messages:
            # The verifier takes the owner of later items from a message with an owner, so it stays if there are any.
            is_owner = message.subagent_run_id is not None and (
                message.id in needed or any(call.id in needed for call in getattr(message, "tool_calls", None) or ())
            )
            is_known = message.id in seen or (history.is_linear and history.reducer.get_role(message.id) is not None)
            if is_owner or not is_known:
                messages.append(message)
            seen.add(message.id)
        if len(messages) != len(echo.messages):
            self.out[0] = replace(event, input=replace(echo, messages=messages))

    # Items

    def _find_unfinished(self) -> None:
        """Find the start of each item that is open at the end of the run, or that a later chunk could continue."""
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
        # An end event from another lane ends the item but not its lane: the next chunk continues it (CHK-8).
        for key, at in chunked.items():
            unfinished[key] = at

    def _item_event(self, at: int, event: Any) -> None:
        key = _key(event)
        kind, item_id = key
        if kind != _TOOL_CALL and self.writer.get(item_id, kind) != kind:
            # A text and a reasoning message with the same id are one message: their contents must stay in order.
            self._settle_message(item_id)
        if kind != _TOOL_CALL:
            self.writer[item_id] = kind
            if event.__class__ in _STARTS:
                self.started.add(item_id)
        if key in self.unfinished and at >= self.unfinished[key]:
            self._settle(key)
            self._keep_original(at, event)
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

    def _check_call_start(self, event: ToolCallStartEvent) -> None:
        """Settle messages that this call may create: content that had no message before would now get one."""
        item = self.items.get(_key(event))
        if item is not None and self._reopens(item, event):
            return  # the call has its message, and this start may be dropped
        for message_id in (event.tool_call_id, event.parent_message_id):
            if message_id is not None and (
                self.history.reducer.get_role(message_id) in (None, "tool") or not self._is_message_known(message_id)
            ):
                self._settle_message(message_id)

    def _is_message_known(self, message_id: str) -> bool:
        """Return whether the message exists on the branch too, and is not a tool message."""
        history = self.history
        return history.is_linear or (message_id in self.started and message_id not in history.tool_ids)

    def _reopens(self, item: _Item, event: Any) -> bool:
        """Return whether a start continues the item: the item has ended, and was started with the same fields."""
        if item.start is None or item.end is None:
            return False
        start = self.run.expanded[item.start]
        return all(getattr(start, field) == getattr(event, field) for field in _OPENER_FIELDS[_KIND[event.__class__]])

    def _keep_original(self, at: int, event: Event) -> None:
        """Keep an event of an unfinished item as received: later chunks may continue it."""
        origins = self.run.origins
        chunk = self.run.original[origins[at]]
        if chunk.__class__ in _CHUNKS:
            # The first chunk of an item expands to a start and a content event. It takes the place of the start.
            is_second = event.__class__ in _CONTENTS and origins[at - 1] == origins[at]
            self.out[at] = None if is_second else chunk

    def _settle_message(self, message_id: str) -> None:
        """Stop joining the items of this message, because something else writes to it."""
        self._settle((_TEXT, message_id))
        self._settle((_REASONING, message_id))

    def _settle_all(self) -> None:
        """Stop joining all items, because an event may change any message."""
        for key in list(self.items):
            self._settle(key)
        self.activities.clear()
        self.writer.clear()

    def _settle(self, key: _ItemKey) -> None:
        """Write the rest of an item: the metadata on its first event, the text in its first content event."""
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
        role = self.history.reducer.get_role(message_id)
        replaces = event.__class__ is ActivitySnapshotEvent and event.replace is not False
        may_be_another = not self.history.is_linear and message_id in self.history.non_activity_ids
        if replaces and (role not in (None, "activity") or may_be_another):
            # It replaces a message, and the calls that the message may have.
            self._settle_all()
        first = self.activities.get(message_id)
        failed = self.history.feed(event)
        if first is not None:
            shown = cast("ActivitySnapshotEvent", self.out[first])
            now = cast("ActivityMessage", self.history.reducer.get_message(message_id))
            if not replaces or event.subagent_run_id == shown.subagent_run_id:
                if failed:
                    self._report(event, "the patch does not apply to the activity; it is dropped")
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
        history = self.history
        failed = history.feed(event)
        last = self.folds[-1] if self.folds else None
        if event.__class__ is StateSnapshotEvent:
            self.has_snapshot = True
            metadata = event.metadata
            for fold in reversed(self.folds):  # a snapshot supersedes all of them (SNAP-1)
                self.out[fold.at] = None
                metadata = _merge_metadata(fold.event.metadata, metadata)
            if metadata is not event.metadata:
                event = replace(event, metadata=metadata)
            self.folds = [_StateFold(event, at, can_grow=True)]
        elif failed and self.has_snapshot:
            self._report(event, "the patch does not apply to the state; it is dropped")
            self.out[at] = None
        elif (
            failed or not history.knows_state or last is None or not last.can_grow or not _same_owner(last.event, event)
        ):
            self.folds.append(_StateFold(event, at, can_grow=history.knows_state and not failed))
        else:
            self.out[last.at] = self.out[at] = None
            metadata = _merge_metadata(last.event.metadata, event.metadata)
            if last.operations is None:
                last.event = replace(
                    last.event,
                    snapshot=history.reducer.state,
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


def _merge_metadata(first: Metadata | None, then: Metadata | None) -> Metadata | None:
    if first is None:
        return then
    return first if then is None else {**first, **then}


def _mentioned_ids(events: Iterable[Event]) -> set[str]:
    """Collect every message id and call id that an event refers to."""
    names = ("message_id", "parent_message_id", "tool_call_id", "entity_id")
    return {value for event in events for name in names if isinstance(value := getattr(event, name, None), str)}
