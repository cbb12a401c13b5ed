"""Send one text message and one tool call at a time to readers that would mix parallel ones.

Some front ends append every text delta to the text on the screen, and every piece of arguments to the last call. A
``Sequencer`` reorders the frames of one response for them. The log and all other readers keep the order of the agent.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from typing import Any, Final, Literal

import msgspec

from aguila.codec import decode_event
from aguila.protocol import (
    Event,
    TextMessageEndEvent,
    TextMessageStartEvent,
    ToolCallEndEvent,
    ToolCallStartEvent,
    replace,
)
from aguila.server.config.limits import UNLIMITED
from aguila.store.cursors import format_cursor

Payload = Sequence[bytes] | Event
"""The documents that an event became for the reader, or an event that is still to be translated and encoded."""

_Step = Literal["start", "delta", "end", "barrier", "reset", "other"]
_Item = tuple[str, str]
"""The lane of an item (``text`` or ``call``) and its id."""

_STEPS: Final[dict[bytes, tuple[str, _Step]]] = {
    b"TEXT_MESSAGE_START": ("text", "start"),
    b"TEXT_MESSAGE_CONTENT": ("text", "delta"),
    b"TEXT_MESSAGE_END": ("text", "end"),
    b"TOOL_CALL_START": ("call", "start"),
    b"TOOL_CALL_ARGS": ("call", "delta"),
    b"TOOL_CALL_END": ("call", "end"),
    b"MESSAGES_SNAPSHOT": ("", "barrier"),  # it contains the messages as they are when it is made
    b"RUN_STARTED": ("", "reset"),
    b"RUN_FINISHED": ("", "reset"),
    b"RUN_ERROR": ("", "reset"),
}
_OTHER: Final[tuple[str, _Step]] = ("", "other")


class _Unit(msgspec.Struct, gc=False):
    """One event on its way to the reader. ``cursor`` is None for an event that is not in the log."""

    step: _Step
    item: _Item | None
    source: bytes | Event
    payload: Payload
    size: int
    cursor: str | None


class Sent(msgspec.Struct, gc=False):
    """Payloads to send now, and the id of the last frame."""

    payloads: list[Payload]
    id: str | None


class Sequencer:
    """Holds back the events of a response while another text, or another call, is open.

    While a text is open, the start of a second one is held, and so is every later event that does not continue an open
    item; tool calls likewise. The end of the open item releases the held events, up to the next start that has to wait.
    So the deltas of some items move to the front: the stream stays legal, and leads to the same messages and state.

    ``max_held`` bounds the bytes that are held. When more would be held, the open item is closed and the held events
    are released. A closed item is opened again by its next delta. A MESSAGES_SNAPSHOT and the end of the run release
    everything too.

    The id of a frame is the cursor of its event if everything up to it was sent. Otherwise it is the last such cursor
    and a suffix, ``12-x7Qd_0aZ.3``: after event 12, three events were sent. A reader that resumes there gets exactly
    the rest from ``resume``; any other reader of this cursor gets all events after event 12, so none is lost.
    """

    def __init__(self, max_held: int) -> None:
        self._max_held = max_held
        # The items that are open for the reader, by lane, with their starts.
        self._open: dict[str, dict[_Item, bytes | Event]] = {"text": {}, "call": {}}
        self._closed: dict[_Item, bytes | Event] = {}  # items that were closed to make room
        self._held: dict[int, _Unit] = {}  # by their places in the order of the log
        self._first = 0  # no held event has a place before this one
        self._next = 0  # the place of the next event that is held
        self._waiting: dict[_Item, deque[int]] = {}  # the places of the held events that continue an item
        self._size = 0
        self._added: list[Payload] = []  # events of our own that precede the next event
        self._base: str | None = None  # the last cursor up to which everything was sent
        self._count = 0  # events of the log that were sent after it
        self._skip = 0  # how many of them the reader has already

    @property
    def is_in_order(self) -> bool:
        """Whether everything was sent that was fed."""
        return not self._held and not self._closed

    def observe(self, first: int, events: Sequence[bytes], token: str) -> None:
        """Apply events that the reader received from an earlier response."""
        for data in events:
            lane, step = _step_of(data)
            if step == "start":
                self._open[lane][_item_of(data, lane)] = data
            elif step == "end":
                self._open[lane].pop(_item_of(data, lane), None)
            elif step == "reset":
                self._clear_open()
        self._base = format_cursor(first + len(events) - 1, token)

    def resume(self, skip: int) -> None:
        """Skip the next events that would be sent, because the reader has them: the suffix of its cursor."""
        self._skip = skip

    def feed(self, source: bytes | Event, payload: Payload, cursor: str | None = None) -> list[Sent]:
        """Apply one event and return what to send now. ``cursor`` is None for an event that is not in the log."""
        lane, step = _step_of(source)
        item = _item_of(source, lane) if lane else None
        size = len(source) if isinstance(source, bytes) else 0
        sent: list[Sent] = []
        self._take(_Unit(step, item, source, payload, size, cursor), sent)
        while self._size > self._max_held:
            self._spill(sent)
        if cursor is None:
            for one in sent:
                one.id = None  # a response that resumed there would not repeat this event
        elif self.is_in_order:
            self.finish(cursor)
            if sent:
                sent[-1].id = cursor
        return sent

    def finish(self, cursor: str | None) -> None:
        """Set the cursor up to which everything was sent; None if there is none."""
        self._base, self._count, self._skip = cursor, 0, 0

    def _clear_open(self) -> None:
        for items in self._open.values():
            items.clear()

    def _take(self, unit: _Unit, sent: list[Sent]) -> None:
        """Send an event or hold it."""
        if unit.step in ("barrier", "reset"):
            while self._held:
                self._spill(sent)
            if unit.step == "reset":
                self._clear_open()
                self._closed.clear()
            self._send(unit, sent)
        elif self._continues(unit) or not (self._held or self._has_to_wait(unit)):
            self._apply(unit, sent)
            if unit.step == "end":
                self._release(sent)
        else:
            self._hold(unit)

    def _continues(self, unit: _Unit) -> bool:
        """Return whether an event continues an open item."""
        return unit.item is not None and unit.step != "start" and unit.item in self._open[unit.item[0]]

    def _has_to_wait(self, unit: _Unit) -> bool:
        """Return whether an event would open an item beside another one."""
        item = unit.item
        return item is not None and (unit.step == "start" or item in self._closed) and bool(self._open[item[0]])

    def _apply(self, unit: _Unit, sent: list[Sent]) -> None:
        """Send an event that need not wait."""
        item = unit.item
        if item is not None and not self._continues(unit):
            self._begin(unit, item)
        elif item is not None and unit.step == "end":
            del self._open[item[0]][item]
        self._send(unit, sent)

    def _begin(self, unit: _Unit, item: _Item) -> None:
        """Prepare to send an event of an item that is not open, while no other one of its lane is."""
        if unit.step == "start":
            self._open[item[0]][item] = unit.source
        elif item in self._closed:
            start = self._closed.pop(item)
            if unit.step == "end" and not _says_more(unit.source):
                unit.payload = []  # the reader got an end when the item was closed
                return
            self._added.append(replace(_decode(start), metadata=None, raw_event=None))
            if unit.step == "delta":
                self._open[item[0]][item] = start

    def _send(self, unit: _Unit, sent: list[Sent]) -> None:
        payloads, self._added = [*self._added, unit.payload], []
        if unit.cursor is not None:
            self._count += 1
            if self._count <= self._skip:
                return
        sent.append(Sent(payloads, None if self._base is None else f"{self._base}.{self._count}"))

    def _spill(self, sent: list[Sent]) -> None:
        """Close the item that the first held event waits for, and release the held events."""
        waiting = self._first_held().item
        items = {} if waiting is None else self._open[waiting[0]]
        self._added += [_end_of(_decode(start)) for start in items.values()]
        self._closed.update(items)
        items.clear()
        self._release(sent)

    def _hold(self, unit: _Unit) -> None:
        self._held[self._next] = unit
        self._size += unit.size
        if unit.item is not None and unit.step != "start":
            self._waiting.setdefault(unit.item, deque()).append(self._next)
        self._next += 1

    def _first_held(self) -> _Unit:
        while self._first not in self._held:
            self._first += 1
        return self._held[self._first]

    def _release(self, sent: list[Sent]) -> None:
        """Send the held events that need not wait any longer, each at the cost of one event."""
        while self._held:
            first = self._first_held()
            if self._continues(first) or not self._has_to_wait(first):
                place = self._first
            else:
                # Held events continue an open item only if it was opened here, while its lane was free: it is alone.
                alone = [next(iter(items)) for items in self._open.values() if items]
                found = [self._waiting[item][0] for item in alone if item in self._waiting]
                if not found:
                    return
                place = min(found)
            unit = self._held.pop(place)
            self._size -= unit.size
            if unit.item is not None and unit.step != "start":
                places = self._waiting[unit.item]
                places.popleft()  # an earlier event of the item would have been sent before
                if not places:
                    del self._waiting[unit.item]
            self._apply(unit, sent)


def _step_of(source: bytes | Event) -> tuple[str, _Step]:
    # The type is always the first member of a stored event.
    name = source[9 : source.find(b'"', 9)] if isinstance(source, bytes) else source.type.encode()
    return _STEPS.get(name, _OTHER)


def _item_of(source: bytes | Event, lane: str) -> _Item:
    event = _decode(source)
    return lane, event.message_id if lane == "text" else event.tool_call_id


def _decode(source: bytes | Event) -> Any:
    return decode_event(source, strict=True, max_size=UNLIMITED) if isinstance(source, bytes) else source


def _says_more(source: bytes | Event) -> bool:
    """Return whether the end of an item has more than its ids."""
    event = _decode(source)
    return event.metadata is not None or event.raw_event is not None


def _end_of(start: TextMessageStartEvent | ToolCallStartEvent) -> Event:
    if isinstance(start, TextMessageStartEvent):
        return TextMessageEndEvent(message_id=start.message_id, subagent_run_id=start.subagent_run_id)
    return ToolCallEndEvent(tool_call_id=start.tool_call_id, subagent_run_id=start.subagent_run_id)
