"""Reorder the events of a run so that one text message is open at a time.

Some front ends append every text delta to the message that is open on the screen. They mix the texts of subagents that
write at the same time. Behind a ``TextSequencer`` such texts come one after the other.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from aguila.protocol import (
    Event,
    MessagesSnapshotEvent,
    RunErrorEvent,
    RunFinishedEvent,
    TextMessageContentEvent,
    TextMessageEndEvent,
    TextMessageStartEvent,
    replace,
)

_TEXTS = frozenset({TextMessageStartEvent, TextMessageContentEvent, TextMessageEndEvent})
_BARRIERS = frozenset({MessagesSnapshotEvent, RunFinishedEvent, RunErrorEvent})


class TextSequencer:
    """Holds back the events of a run while another text message is open.

    While a text is open, the start of a second one is held, and so is every event after it that does not belong to the
    open text. The end of the open text releases the held events, up to the next text that is not complete. So the
    output is the input with the deltas of some texts moved to the front: it is legal if the input is, and leads to the
    same messages and state.

    ``max_held`` bounds the bytes that are held; ``measure`` returns the size of an event and may raise for one that
    cannot be sent. When more would be held, the open text is closed and the held events are released, text by text. A
    text that is not complete by then is opened again by its next delta. So events wait at most until the bound is
    reached, none is lost, and the deltas of a message stay in order. A MESSAGES_SNAPSHOT and the end of the run release
    everything too: a snapshot contains the texts as they are when it is made.

    Chunk events have to be expanded before.
    """

    def __init__(self, max_held: int, measure: Callable[[Event], int]) -> None:
        self._max_held = max_held
        self._measure = measure
        self._open: str | None = None
        self._starts: dict[str, TextMessageStartEvent] = {}  # sent starts of texts that have not ended
        self._held: list[tuple[Event, int]] = []
        self._size = 0

    @property
    def held_bytes(self) -> int:
        """The size of the held events."""
        return self._size

    def feed(self, events: Sequence[Event]) -> Sequence[Event]:
        """Apply events and return those to send now. If ``measure`` raises, none is applied."""
        if not self._held:
            event: Any = events[0]
            if len(events) == 1 and (event.__class__ not in _TEXTS or event.message_id == self._open):
                if event.__class__ is TextMessageEndEvent:
                    self._close()
                elif event.__class__ in _BARRIERS:
                    self._forget(event)
                return events
        measured = [(event, self._measure(event)) for event in events]
        sent: list[Event] = []
        for event, size in measured:
            self._take(event, size, sent)
            while self._size > self._max_held:
                self._spill(sent)
        return sent

    def flush(self) -> list[Event]:
        """Release everything that is held."""
        sent: list[Event] = []
        while self._held:
            self._spill(sent)
        return sent

    def _take(self, event: Any, size: int, sent: list[Event]) -> None:
        """Send an event or hold it."""
        kind = event.__class__
        if kind in _BARRIERS:
            while self._held:
                self._spill(sent)
            self._forget(event)
            sent.append(event)
        elif kind in _TEXTS and event.message_id == self._open and kind is not TextMessageStartEvent:
            sent.append(event)
            if kind is TextMessageEndEvent:
                self._close()
                self._release(sent)
        elif self._held or (self._open is not None and kind in _TEXTS):
            self._held.append((event, size))
            self._size += size
        elif kind in _TEXTS:
            self._begin(event, sent)
        else:
            sent.append(event)

    def _begin(self, event: Any, sent: list[Event]) -> None:
        """Send an event of a text while none is open."""
        if event.__class__ is TextMessageStartEvent:
            self._open = event.message_id
            self._starts[event.message_id] = event
        elif event.message_id in self._starts:  # the text was closed to make room
            if event.__class__ is TextMessageEndEvent and event.metadata is None and event.raw_event is None:
                del self._starts[event.message_id]
                return
            self._open = event.message_id
            sent.append(replace(self._starts[event.message_id], metadata=None, raw_event=None))
            if event.__class__ is TextMessageEndEvent:
                self._close()
        sent.append(event)

    def _close(self) -> None:
        if self._open is not None:
            self._starts.pop(self._open, None)
            self._open = None

    def _spill(self, sent: list[Event]) -> None:
        """Close the open text and release the held events."""
        if self._open is not None:
            start = self._starts[self._open]
            sent.append(TextMessageEndEvent(message_id=self._open, subagent_run_id=start.subagent_run_id))
            self._open = None
        self._release(sent)

    def _release(self, sent: list[Event]) -> None:
        held, self._held, self._size = self._held, [], 0
        for event, size in held:
            self._take(event, size, sent)

    def _forget(self, event: Event) -> None:
        if not isinstance(event, MessagesSnapshotEvent):
            self._open = None
            self._starts.clear()
