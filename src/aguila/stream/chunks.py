"""Expand chunks into start, content and end events, before verification (CHK, PROC-11).

Only the rules for chunks are checked here. The verifier checks whether the resulting events are in order.

A chunk may omit fields that an earlier chunk had, so the expander remembers the open item of each **lane**. There is
one lane for the agent itself (``None``) and one for each subagent id (the empty string is an id like any other). A lane
has at most one open item of any kind (CHK-6). ``CHUNK_KINDS`` maps each kind of chunk to its events. ``ENDS_OWN_LANE``,
``ENDS_EVERY_LANE`` and ``ENDS_NAMED_LANE`` list the other events that end an item (CHK-7). An event in none of them,
such as RAW or an activity, ends nothing.

The cost of an event does not depend on the number of open lanes, except for events that end all of them.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from itertools import islice
from typing import Any, NamedTuple

import msgspec

from aguila.errors import SequenceError
from aguila.protocol import (
    CustomEvent,
    Event,
    MessagesSnapshotEvent,
    ReasoningEndEvent,
    ReasoningMessageChunkEvent,
    ReasoningMessageContentEvent,
    ReasoningMessageEndEvent,
    ReasoningMessageStartEvent,
    ReasoningStartEvent,
    RunErrorEvent,
    RunFinishedEvent,
    RunStartedEvent,
    StateDeltaEvent,
    StateSnapshotEvent,
    StepFinishedEvent,
    StepStartedEvent,
    SubagentErrorEvent,
    SubagentFinishedEvent,
    TextMessageChunkEvent,
    TextMessageContentEvent,
    TextMessageEndEvent,
    TextMessageStartEvent,
    ToolCallArgsEvent,
    ToolCallChunkEvent,
    ToolCallEndEvent,
    ToolCallResultEvent,
    ToolCallStartEvent,
)
from aguila.protocol.legacy import MetaEvent
from aguila.stream.type_errors import EVENT_CLASSES, event_type_error
from aguila.stream.verification.rules import describe_owner


class ChunkKind(NamedTuple):
    """One kind of chunk: the events it expands to, and the fields that describe the item rather than the chunk."""

    noun: str
    chunk: type[Any]
    start: type[Any]
    content: type[Any]
    end: type[Any]
    id_field: str
    required: tuple[str, ...]  # fields that the first chunk must have besides the id (CHK-3)
    opener_fields: dict[str, str | None]  # fields of the start event and their defaults; repeats must agree (CHK-5)
    constant: dict[str, str]  # fields of the start event that no chunk has
    allows_empty_id: bool = True


CHUNK_KINDS = (
    ChunkKind(
        noun="text message",
        chunk=TextMessageChunkEvent,
        start=TextMessageStartEvent,
        content=TextMessageContentEvent,
        end=TextMessageEndEvent,
        id_field="message_id",
        required=(),
        opener_fields={"role": "assistant", "name": None},
        constant={},
    ),
    ChunkKind(
        noun="tool call",
        chunk=ToolCallChunkEvent,
        start=ToolCallStartEvent,
        content=ToolCallArgsEvent,
        end=ToolCallEndEvent,
        id_field="tool_call_id",
        required=("tool_call_name",),
        opener_fields={"tool_call_name": None, "parent_message_id": None},
        constant={},
    ),
    ChunkKind(
        noun="reasoning message",
        chunk=ReasoningMessageChunkEvent,
        start=ReasoningMessageStartEvent,
        content=ReasoningMessageContentEvent,
        end=ReasoningMessageEndEvent,
        id_field="message_id",
        required=(),
        opener_fields={},
        constant={"role": "reasoning"},
        allows_empty_id=False,  # document 003; the published clients accept it
    ),
)

ENDS_OWN_LANE: frozenset[type[Any]] = frozenset(
    {
        TextMessageStartEvent,
        TextMessageContentEvent,
        TextMessageEndEvent,
        ToolCallStartEvent,
        ToolCallArgsEvent,
        ToolCallEndEvent,
        ToolCallResultEvent,
        ReasoningStartEvent,
        ReasoningEndEvent,
        ReasoningMessageStartEvent,
        ReasoningMessageContentEvent,
        ReasoningMessageEndEvent,
        StepStartedEvent,
        StepFinishedEvent,
        StateSnapshotEvent,
        StateDeltaEvent,
        CustomEvent,
    }
)
"""Events that end the chunked item of the lane that they are tagged with (CHK-7 b)."""

ENDS_EVERY_LANE: frozenset[type[Any]] = frozenset(
    {RunStartedEvent, RunFinishedEvent, RunErrorEvent, MessagesSnapshotEvent}
)
"""Events that end all chunked items, in the order in which these were opened (CHK-7 c)."""

ENDS_NAMED_LANE: frozenset[type[Any]] = frozenset({SubagentFinishedEvent, SubagentErrorEvent})
"""Events that end the lane of the subagent that they name: no item outlives its owner (CHK-7 d, CHK-9)."""

_CHUNK_KIND_OF: dict[type[Any], ChunkKind | None] = {
    **dict.fromkeys(EVENT_CLASSES),
    MetaEvent: None,  # retired; it may occur anywhere and ends nothing
    **{kind.chunk: kind for kind in CHUNK_KINDS},
}
_ENDS_ONE_LANE = ENDS_OWN_LANE | ENDS_NAMED_LANE

_MAX_NAMED_LANES = 5
"""Number of lanes that an error message lists."""

Lane = str | None


class _OpenItem(NamedTuple):
    """An item that chunks have opened."""

    kind: ChunkKind
    id: str
    owner: Lane
    fields: dict[str, str | None]

    def end(self) -> Event:
        # The end has no metadata and no timestamp: the event that ends an item does not belong to it (CHK-10).
        return self.kind.end(**{self.kind.id_field: self.id}, subagent_run_id=self.owner)


class ChunkExpander:
    """Turn a stream with chunks into one without.

    A refused chunk raises ``SequenceError`` and leaves the expander unchanged.
    """

    __slots__ = ("_by_id", "_count", "lanes")

    def __init__(self) -> None:
        self._count = 0
        self.lanes: dict[Lane, _OpenItem] = {}  # the open item of each lane, in the order of opening
        # The lane of each item, by kind of chunk and item id: an item is in one lane only.
        self._by_id: defaultdict[type[Any], dict[str, Lane]] = defaultdict(dict)

    def feed(self, event: Event) -> Sequence[Event]:
        """Return the events that ``event`` expands to: itself, unless it is a chunk or ends a chunked item.

        A chunk's metadata and timestamp are copied to both the start and the content event, its ``raw_event`` to the
        content event only (CHK-10). A chunk that adds nothing to its item expands to no event.

        Raises ``SequenceError``: CHK-3 for a first chunk without its id or name, CHK-5 for a repeated field that
        contradicts the first chunk, CHK-8 for a chunk whose lane is contradictory or ambiguous. Raises TypeError for an
        object that is not an event.
        """
        try:
            kind = _CHUNK_KIND_OF[event.__class__]
        except KeyError:
            raise event_type_error(event) from None
        if kind is not None:
            expanded = self._expand(kind, event)
        elif self.lanes:
            expanded = self._end_lanes(event)
        else:
            expanded = (event,)
        self._count += 1
        return expanded

    def save(self) -> tuple[int, dict[Lane, _OpenItem]]:
        """Return what ``restore`` needs to undo later events, because one that they expanded to was refused."""
        return self._count, dict(self.lanes)

    def restore(self, saved: tuple[int, dict[Lane, _OpenItem]]) -> None:
        """Undo the events since ``save``."""
        self._count, self.lanes = saved
        self._by_id.clear()
        for lane, item in self.lanes.items():
            self._by_id[item.kind.chunk][item.id] = lane

    def close(self) -> list[Event]:
        """End the stream. Returns no events: an item that is still open was cut off, and its end is not made up."""
        self._clear()
        return []

    def drop_lane(self, lane: Lane) -> None:
        """Forget the item of this lane, after the caller has ended it."""
        if lane in self.lanes:
            self._drop(lane)

    def _drop(self, lane: Lane) -> _OpenItem:
        item = self.lanes.pop(lane)
        del self._by_id[item.kind.chunk][item.id]
        return item

    def _clear(self) -> None:
        self.lanes.clear()
        self._by_id.clear()

    def _end_lanes(self, event: Any) -> Sequence[Event]:
        cls = event.__class__
        if cls in _ENDS_ONE_LANE:
            lane: Lane = event.subagent_run_id
            if lane not in self.lanes:
                return (event,)
            item = self._drop(lane)
            return (item.end(), event)
        if cls in ENDS_EVERY_LANE:
            ended = list(self.lanes.values())
            self._clear()
            return (*[item.end() for item in ended], event)
        return (event,)

    def _expand(self, kind: ChunkKind, chunk: Any) -> Sequence[Event]:
        chunk_id: str | None = getattr(chunk, kind.id_field)
        lane: Lane = chunk.subagent_run_id
        item = self.lanes.get(lane)
        # Most chunks continue their own lane, so the search for the lane is only done when this one does not fit.
        if item is None or item.kind is not kind or (chunk_id is not None and chunk_id != item.id):
            lane = self._find_lane(kind, chunk, chunk_id)
            item = self.lanes.get(lane)
        if item is not None and item.kind is kind and (chunk_id is None or chunk_id == item.id):
            self._check_repeats(item, chunk)
            # Metadata without a delta must still reach the item (CHK-10): it is sent with an empty delta.
            if chunk.delta is None and chunk.raw_event is None and chunk.metadata is None:
                return ()
            return (self._content_event(item, chunk),)

        opened = self._open_item(kind, chunk, chunk_id)
        expanded: list[Event] = []
        if item is not None:
            self._drop(lane)  # removed first, so that the lane moves to the end of the order
            expanded.append(item.end())
        self.lanes[lane] = opened
        self._by_id[kind.chunk][opened.id] = lane
        expanded.append(
            kind.start(
                **{kind.id_field: opened.id},
                **opened.fields,
                **kind.constant,
                subagent_run_id=chunk.subagent_run_id,
                metadata=chunk.metadata,
                timestamp=chunk.timestamp,
            )
        )
        if chunk.delta is not None or chunk.raw_event is not None:
            expanded.append(self._content_event(opened, chunk))
        return expanded

    def _find_lane(self, kind: ChunkKind, chunk: Any, chunk_id: str | None) -> Lane:
        """Find the lane of a chunk (CHK-8): by its id, else by its tag, else the only lane with an item of the kind."""
        tag: Lane = chunk.subagent_run_id
        lanes = self._by_id[kind.chunk]
        if chunk_id is not None:
            if chunk_id not in lanes:
                return tag
            lane = lanes[chunk_id]
            if tag is not None and tag != lane:
                raise self._error(
                    f"a chunk tagged {tag!r} continues {kind.noun} {chunk_id!r}, which belongs to"
                    f" {describe_owner(lane)}; {_advise_tag(lane)}",
                    "CHK-8",
                    chunk,
                )
            return lane
        if tag is not None or not lanes:
            return tag
        # The chunk has no tag. The agent's own lane has no such item: the caller has looked there first.
        if len(lanes) > 1:
            named = [repr(lane) for lane in islice(lanes.values(), _MAX_NAMED_LANES)]
            more = "" if len(lanes) <= _MAX_NAMED_LANES else f" and {len(lanes) - _MAX_NAMED_LANES} more"
            raise self._error(
                f"a chunk without id and tag could continue the {kind.noun} of any of"
                f" {', '.join(named)}{more}; add the id of the {kind.noun} or a tag",
                "CHK-8",
                chunk,
            )
        return next(iter(lanes.values()))

    def _check_repeats(self, item: _OpenItem, chunk: Any) -> None:
        for field, established in item.fields.items():
            repeated = getattr(chunk, field)
            if repeated is not None and repeated != established:
                was = "without one" if established is None else f"as {established!r}"
                raise self._error(
                    f"a chunk has {_wire_field(chunk, field)} {repeated!r}, but {item.kind.noun} {item.id!r}"
                    f" was opened {was}; repeat the first chunk's value or omit it",
                    "CHK-5",
                    chunk,
                )

    def _open_item(self, kind: ChunkKind, chunk: Any, chunk_id: str | None) -> _OpenItem:
        missing = [name for name in (kind.id_field, *kind.required) if getattr(chunk, name) is None]
        if chunk_id is None or missing:
            raise self._error(
                f"no {kind.noun} is open here, and the first chunk of one must have"
                f" {' and '.join(_wire_field(chunk, name) for name in missing)}",
                "CHK-3",
                chunk,
            )
        if chunk_id == "" and not kind.allows_empty_id:
            name = _wire_field(chunk, kind.id_field)
            raise self._error(f"the {name} of the first chunk of a {kind.noun} must not be empty", "CHK-3", chunk)
        fields: dict[str, str | None] = {}
        for field, absent in kind.opener_fields.items():
            value = getattr(chunk, field)
            fields[field] = absent if value is None else value
        return _OpenItem(kind, chunk_id, chunk.subagent_run_id, fields)

    def _content_event(self, item: _OpenItem, chunk: Any) -> Event:
        tag = chunk.subagent_run_id
        return item.kind.content(
            **{item.kind.id_field: item.id},
            delta="" if chunk.delta is None else chunk.delta,
            subagent_run_id=item.owner if tag is None else tag,
            metadata=chunk.metadata,
            raw_event=chunk.raw_event,
            timestamp=chunk.timestamp,
        )

    def _error(self, message: str, rule: str, event: Event) -> SequenceError:
        return SequenceError(message, rule=rule, index=self._count, event=event)


def expand_chunks(events: Iterable[Event]) -> Iterator[Event]:
    """Expand the chunks of a whole stream (CHK-1). Raises ``SequenceError`` as ``ChunkExpander.feed`` does."""
    expander = ChunkExpander()
    for event in events:
        yield from expander.feed(event)
    yield from expander.close()


def _advise_tag(tag: Lane) -> str:
    return "omit its tag" if tag is None else "use that tag or none"


def _wire_field(chunk: Any, field: str) -> str:
    """Return the name of a field in JSON."""
    return next(known.encode_name for known in msgspec.structs.fields(chunk) if known.name == field)
