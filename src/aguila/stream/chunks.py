"""Layer: stream. Chunks to start, content and end, before anything is verified (CHK, PROC-11).

Above: the verifier and the reducer, which only know the long spelling. Below: the protocol types. This module
judges a chunk only by the shorthand's own rules; whether the events it makes are in order is for the verifier.

A chunk may leave out what an earlier chunk said, so what is open is remembered per **lane**: one lane for the
agent itself (``None``), one for each subagent's id (the empty string is an id like any other). A lane holds at
most one open item of any kind (CHK-6). ``SHORTHANDS`` says what each kind of chunk stands for, and
``ENDS_OWN_LANE``, ``ENDS_EVERY_LANE`` and ``ENDS_NAMED_LANE`` which other events end an item (CHK-7); an event in
none of them, such as RAW or an activity, leaves every lane alone.

An event costs the same however many lanes are open, except one that ends them all.
"""

from __future__ import annotations

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
from aguila.stream.foreign import EVENT_CLASSES, not_an_event


class Shorthand(NamedTuple):
    """One kind of chunk: what it stands for, and which of its fields belong to the item and not to the chunk."""

    noun: str
    chunk: type[Any]
    start: type[Any]
    content: type[Any]
    end: type[Any]
    id_field: str
    required: tuple[str, ...]  # on the chunk that opens, besides the id (CHK-3)
    opener_fields: dict[str, str | None]  # with what their absence means; a repeat must agree (CHK-5)
    constant: dict[str, str]  # members of the start event that no chunk carries


SHORTHANDS = (
    Shorthand(
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
    Shorthand(
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
    Shorthand(
        noun="reasoning message",
        chunk=ReasoningMessageChunkEvent,
        start=ReasoningMessageStartEvent,
        content=ReasoningMessageContentEvent,
        end=ReasoningMessageEndEvent,
        id_field="message_id",
        required=(),
        opener_fields={},
        constant={"role": "reasoning"},
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
"""Events that end the chunked item of the lane they are tagged with (CHK-7 b)."""

ENDS_EVERY_LANE: frozenset[type[Any]] = frozenset(
    {RunStartedEvent, RunFinishedEvent, RunErrorEvent, MessagesSnapshotEvent}
)
"""Events that end every chunked item, in the order in which they were opened (CHK-7 c)."""

ENDS_NAMED_LANE: frozenset[type[Any]] = frozenset({SubagentFinishedEvent, SubagentErrorEvent})
"""Events that end the lane of the subagent they are about: nothing outlives its owner (CHK-7 d, CHK-9)."""

_SHORTHAND_OF: dict[type[Any], Shorthand | None] = {
    **dict.fromkeys(EVENT_CLASSES),
    **{kind.chunk: kind for kind in SHORTHANDS},
}
CHUNKED_ENDS: frozenset[type[Any]] = frozenset(kind.end for kind in SHORTHANDS)
"""The events that end what chunks can open."""

_OF_ONE_LANE = ENDS_OWN_LANE | ENDS_NAMED_LANE

_NAMED = 5
"""How many lanes an error names."""

Lane = str | None


class _OpenItem(NamedTuple):
    """An item that chunks opened and nothing has ended yet. ``since`` is when: which event of the stream it was."""

    kind: Shorthand
    id: str
    owner: Lane
    fields: dict[str, str | None]
    since: int

    def end(self) -> Event:
        # Nothing of the event that ends the item belongs to the item (CHK-10): no metadata, no timestamp.
        return self.kind.end(**{self.kind.id_field: self.id}, subagent_run_id=self.owner)


class ChunkExpander:
    """Turns a stream that may use chunks into one that does not.

    A refused chunk raises ``SequenceError`` and leaves the expander as it was.
    """

    __slots__ = ("_by_id", "_fed", "_lanes", "_undo")

    def __init__(self) -> None:
        self._fed = 0
        self._lanes: dict[Lane, _OpenItem] = {}  # in the order in which they were opened
        # The lanes by kind of chunk and id of the item: an item is in one lane only.
        self._by_id: dict[type[Any], dict[str, Lane]] = {kind.chunk: {} for kind in SHORTHANDS}
        # The last change, to be taken back: which event of the stream made it, what it ended and what it opened.
        self._undo: tuple[int, list[tuple[Lane, _OpenItem]], list[Lane]] = (-1, [], [])

    @property
    def is_holding(self) -> bool:
        """Whether an item is open that chunks opened; if none is, an event that is no chunk stands for itself."""
        return bool(self._lanes)

    def feed(self, event: Event) -> Sequence[Event]:
        """The events that ``event`` stands for, in order: itself, unless it is a chunk or ends a chunked item.

        A chunk's metadata goes on both the start and the content made from it, its ``raw_event`` on the content
        only (CHK-10). Its timestamp is kept on both. A continuation that says nothing at all becomes no event.

        Raises ``SequenceError``: CHK-3 for an opening chunk without its id or name, CHK-5 for a repeated field
        that contradicts the opener, CHK-8 for a chunk whose lane is contradicted or cannot be told. Raises
        TypeError for what is no event of the protocol.
        """
        try:
            kind = _SHORTHAND_OF[event.__class__]
        except KeyError:
            raise not_an_event(event) from None
        if kind is not None:
            expanded = self._expand(kind, event)
        elif self._lanes:
            expanded = self._end_lanes(event)
        else:
            expanded = (event,)
        self._fed += 1
        return expanded

    def take_back(self) -> None:
        """Be as before the last event: what it was expanded to was refused."""
        self._fed -= 1
        when, ended, opened = self._undo
        if when != self._fed:
            return
        self._undo = (-1, [], [])
        for lane in opened:
            self._drop(lane)
        if ended:
            self._lanes.update(ended)
            self._lanes = dict(sorted(self._lanes.items(), key=lambda entry: entry[1].since))
            for lane, item in ended:
                self._by_id[item.kind.chunk][item.id] = lane

    def close(self) -> list[Event]:
        """The stream has ended. Always empty: an item still open then was cut off, and its end is not invented."""
        self._clear()
        return []

    def forget(self, lane: Lane) -> None:
        """Drop the item of this lane: whoever calls this has ended it."""
        if lane in self._lanes:
            self._drop(lane)

    def _drop(self, lane: Lane) -> _OpenItem:
        item = self._lanes.pop(lane)
        del self._by_id[item.kind.chunk][item.id]
        return item

    def _clear(self) -> None:
        self._lanes.clear()
        for lanes in self._by_id.values():
            lanes.clear()

    def _end_lanes(self, event: Any) -> Sequence[Event]:
        cls = event.__class__
        if cls in _OF_ONE_LANE:
            lane: Lane = event.subagent_run_id
            if lane not in self._lanes:
                return (event,)
            item = self._drop(lane)
            self._undo = (self._fed, [(lane, item)], [])
            return (item.end(), event)
        if cls in ENDS_EVERY_LANE:
            ended = list(self._lanes.items())
            self._clear()
            self._undo = (self._fed, ended, [])
            return (*[item.end() for _, item in ended], event)
        return (event,)

    def _expand(self, kind: Shorthand, chunk: Any) -> Sequence[Event]:
        chunk_id: str | None = getattr(chunk, kind.id_field)
        lane: Lane = chunk.subagent_run_id
        item = self._lanes.get(lane)
        # Mostly a chunk continues its own lane. Only when it does not is it worth looking where it belongs.
        if item is None or item.kind is not kind or (chunk_id is not None and chunk_id != item.id):
            lane = self._lane_of(kind, chunk, chunk_id)
            item = self._lanes.get(lane)
        if item is not None and item.kind is kind and (chunk_id is None or chunk_id == item.id):
            self._check_repeats(item, chunk)
            # Metadata without a delta must still reach the item (CHK-10): it rides on an empty delta.
            if chunk.delta is None and chunk.raw_event is None and chunk.metadata is None:
                return ()
            return (self._content(item, chunk),)

        opened = self._opened_by(kind, chunk, chunk_id)
        expanded: list[Event] = []
        ended: list[tuple[Lane, _OpenItem]] = []
        if item is not None:
            ended.append((lane, self._drop(lane)))  # so that the lane counts as opened last
            expanded.append(item.end())
        self._undo = (self._fed, ended, [lane])
        self._lanes[lane] = opened
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
            expanded.append(self._content(opened, chunk))
        return expanded

    def _lane_of(self, kind: Shorthand, chunk: Any, chunk_id: str | None) -> Lane:
        """Where the chunk belongs (CHK-8): by its id, else by its tag, else where only one item can be meant."""
        tag: Lane = chunk.subagent_run_id
        lanes = self._by_id[kind.chunk]
        if chunk_id is not None:
            if chunk_id not in lanes:
                return tag
            lane = lanes[chunk_id]
            if tag is not None and tag != lane:
                raise self._error(
                    f"a chunk tagged {tag!r} continues {kind.noun} {chunk_id!r}, which belongs to"
                    f" {_owner(lane)}; {_right_tag(lane)}",
                    "CHK-8",
                    chunk,
                )
            return lane
        if tag is not None or not lanes:
            return tag
        # The agent's own lane, the chunk's own as it has no tag, holds no such item: that was looked at first.
        if len(lanes) > 1:
            named = [repr(lane) for lane in islice(lanes.values(), _NAMED)]
            more = "" if len(lanes) <= _NAMED else f" and {len(lanes) - _NAMED} more"
            raise self._error(
                f"a chunk with neither id nor tag could continue the {kind.noun} of any of"
                f" {', '.join(named)}{more}; name the {kind.noun} or tag the chunk",
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
                    f"a chunk says {_wire_name(chunk, field)} {repeated!r}, but {item.kind.noun} {item.id!r}"
                    f" was opened {was}; repeat the opener's value or leave it out",
                    "CHK-5",
                    chunk,
                )

    def _opened_by(self, kind: Shorthand, chunk: Any, chunk_id: str | None) -> _OpenItem:
        missing = [name for name in (kind.id_field, *kind.required) if getattr(chunk, name) is None]
        if chunk_id is None or missing:
            raise self._error(
                f"no {kind.noun} is open here to continue, and the first chunk of one must carry"
                f" {' and '.join(_wire_name(chunk, name) for name in missing)}",
                "CHK-3",
                chunk,
            )
        fields: dict[str, str | None] = {}
        for field, absent in kind.opener_fields.items():
            value = getattr(chunk, field)
            fields[field] = absent if value is None else value
        return _OpenItem(kind, chunk_id, chunk.subagent_run_id, fields, self._fed)

    def _content(self, item: _OpenItem, chunk: Any) -> Event:
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
        return SequenceError(message, rule=rule, index=self._fed, event=event)


def expand_chunks(events: Iterable[Event]) -> Iterator[Event]:
    """The same stream without chunks (CHK-1). Raises ``SequenceError`` as ``ChunkExpander.feed`` does."""
    expander = ChunkExpander()
    for event in events:
        yield from expander.feed(event)
    yield from expander.close()


def _owner(tag: Lane) -> str:
    return "the agent itself" if tag is None else f"subagent {tag!r}"


def _right_tag(tag: Lane) -> str:
    return "leave its tag out" if tag is None else "tag it the same or not at all"


def _wire_name(chunk: Any, field: str) -> str:
    """What the wire calls a field."""
    return next(known.encode_name for known in msgspec.structs.fields(chunk) if known.name == field)
