"""Layer: stream. Chunks to start, content and end, before anything is verified (CHK, PROC-11).

Above: the verifier and the reducer, which only know the long spelling. Below: the protocol types. This module
judges a chunk only by the shorthand's own rules; whether the events it makes are in order is for the verifier.

A chunk may leave out what an earlier chunk said, so what is open is remembered per **lane**: one lane for the
agent itself (``None``), one for each subagent's id (the empty string is an id like any other). A lane holds at
most one open item of any kind (CHK-6). ``SHORTHANDS`` says what each kind of chunk stands for, and
``ENDS_OWN_LANE``, ``ENDS_EVERY_LANE`` and ``ENDS_NAMED_LANE`` which other events end an item (CHK-7); an event in
none of them, such as RAW or an activity, leaves every lane alone.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Any, NamedTuple

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

_BY_CHUNK: dict[type[Any], Shorthand] = {kind.chunk: kind for kind in SHORTHANDS}
_OF_ONE_LANE = ENDS_OWN_LANE | ENDS_NAMED_LANE

Lane = str | None


class _OpenItem(NamedTuple):
    """An item that chunks opened and nothing has ended yet."""

    kind: Shorthand
    id: str
    owner: Lane
    fields: dict[str, str | None]

    def end(self) -> Event:
        # Nothing of the event that ends the item belongs to the item (CHK-10): no metadata, no timestamp.
        return self.kind.end(**{self.kind.id_field: self.id}, subagent_run_id=self.owner)


class ChunkExpander:
    """Turns a stream that may use chunks into one that does not.

    A refused chunk raises ``SequenceError`` and leaves the expander as it was.
    """

    __slots__ = ("_fed", "_lanes")

    def __init__(self) -> None:
        self._fed = 0
        self._lanes: dict[Lane, _OpenItem] = {}

    def feed(self, event: Event) -> Sequence[Event]:
        """The events that ``event`` stands for, in order: itself, unless it is a chunk or ends a chunked item.

        A chunk's metadata goes on both the start and the content made from it, its ``raw_event`` on the content
        only (CHK-10). Its timestamp is kept on both. A continuation that says nothing at all becomes no event.

        Raises ``SequenceError``: CHK-3 for an opening chunk without its id or name, CHK-5 for a repeated field
        that contradicts the opener, CHK-8 for a chunk whose lane is contradicted or cannot be told.
        """
        kind = _BY_CHUNK.get(event.__class__)
        if kind is not None:
            expanded = self._expand(kind, event)
        elif self._lanes:
            expanded = self._end_lanes(event)
        else:
            expanded = (event,)
        self._fed += 1
        return expanded

    def close(self) -> list[Event]:
        """The stream has ended. Always empty: an item still open then was cut off, and its end is not invented."""
        self._lanes.clear()
        return []

    def forget(self, lane: Lane) -> None:
        """Drop the item of this lane: whoever calls this has ended it."""
        self._lanes.pop(lane, None)

    def save(self) -> dict[Lane, _OpenItem]:
        """What is open, to go back to with ``restore`` if the expanded events turn out to be refused."""
        return dict(self._lanes)

    def restore(self, saved: dict[Lane, _OpenItem]) -> None:
        """Be as when ``save`` was called."""
        self._lanes = saved

    def _end_lanes(self, event: Any) -> Sequence[Event]:
        cls = event.__class__
        if cls in _OF_ONE_LANE:
            item = self._lanes.pop(event.subagent_run_id, None)
            return (event,) if item is None else (item.end(), event)
        if cls in ENDS_EVERY_LANE:
            ends = [item.end() for item in self._lanes.values()]
            self._lanes.clear()
            return (*ends, event)
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
        if item is not None:
            del self._lanes[lane]  # so that the lane counts as opened last
            expanded.append(item.end())
        self._lanes[lane] = opened
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
        if chunk_id is not None:
            for lane, item in self._lanes.items():
                if item.kind is kind and item.id == chunk_id:
                    if tag is not None and tag != lane:
                        raise self._error(
                            f"a chunk tagged {tag!r} continues {kind.noun} {chunk_id!r}, which belongs to"
                            f" {_owner(lane)}; tag it the same or not at all",
                            "CHK-8",
                            chunk,
                        )
                    return lane
            return tag
        if tag is not None:
            return tag
        lanes = [lane for lane, item in self._lanes.items() if item.kind is kind]
        if not lanes or None in lanes:
            return None
        if len(lanes) > 1:
            raise self._error(
                f"a chunk with neither id nor tag could continue the {kind.noun} of any of"
                f" {', '.join(map(repr, lanes))}; name the {kind.noun} or tag the chunk",
                "CHK-8",
                chunk,
            )
        return lanes[0]

    def _check_repeats(self, item: _OpenItem, chunk: Any) -> None:
        for field, established in item.fields.items():
            repeated = getattr(chunk, field)
            if repeated is not None and repeated != established:
                was = "without one" if established is None else f"as {established!r}"
                raise self._error(
                    f"a chunk says {field} {repeated!r}, but {item.kind.noun} {item.id!r} was opened {was};"
                    " repeat the opener's value or leave it out",
                    "CHK-5",
                    chunk,
                )

    def _opened_by(self, kind: Shorthand, chunk: Any, chunk_id: str | None) -> _OpenItem:
        missing = [name for name in (kind.id_field, *kind.required) if getattr(chunk, name) is None]
        if chunk_id is None or missing:
            raise self._error(
                f"no {kind.noun} is open here to continue, and the first chunk of one must carry"
                f" {' and '.join(missing)}",
                "CHK-3",
                chunk,
            )
        fields: dict[str, str | None] = {}
        for field, absent in kind.opener_fields.items():
            value = getattr(chunk, field)
            fields[field] = absent if value is None else value
        return _OpenItem(kind, chunk_id, chunk.subagent_run_id, fields)

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
