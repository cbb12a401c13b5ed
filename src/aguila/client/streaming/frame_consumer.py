"""Consume the frames of a run's stream, over any number of connections, and deliver their events to the caller.

The caller may leave after any event. So each event is consumed when the caller asks for it, by a generator that the
drivers iterate. These generators raise nothing: an error is kept in ``failure``.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Iterator, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any

from aguila.chat.own_metadata import read_notices
from aguila.client.drivers.actions import Compute, Program, Sleep
from aguila.client.middleware import Chain
from aguila.client.streaming.cursor import Cursor
from aguila.codec import EventDecoder
from aguila.codec.dialects import predates_subagents, strip_subagents
from aguila.codec.notices import Notice
from aguila.codec.sse import Frame
from aguila.errors import LimitExceeded
from aguila.offload import LARGE
from aguila.protocol import Event, RunErrorEvent, RunFinishedEvent, RunStartedEvent
from aguila.stream import Consumer
from aguila.stream.consumer import Prepared, Raw

if TYPE_CHECKING:
    from aguila.client.settings import Settings

_MAX_FRAMES = 256
"""How many events are consumed in one turn of the event loop: up to 20 ms, if each is a patch that fails."""

_BOUNDARIES: frozenset[Any] = frozenset({RunStartedEvent, RunFinishedEvent, RunErrorEvent})


class FrameConsumer:
    """Consumes frames, and notes how far the stream and the requested run came."""

    def __init__(self, settings: Settings, consumer: Consumer, chain: Chain, run_id: str | None) -> None:
        self.consumer = consumer
        self.cursor = Cursor()
        self.consumed = 0
        """How many frames were consumed."""
        self.is_resumed = False
        """Whether the frames come from the log, which may continue with other runs."""
        self.has_run_ended = False
        """Whether the requested run ended with the last frames. The stream may still be open."""
        self.is_done = False
        """Whether the rest of the stream is not needed."""
        self.failure: Exception | None = None
        """Why the last frames could not be consumed."""
        self._settings = settings
        self._chain = chain
        self._run_id = run_id
        self._last_run_id: str | None = None
        self._bytes = self._events = 0  # of all connections
        self._old_peer_decoder = (
            EventDecoder(compat=settings.compat, warn=settings.warn, max_size=settings.max_size)
            if predates_subagents(settings.peer_version)
            else None
        )
        self._changes_events = bool(chain) or self._old_peer_decoder is not None
        consumer.on_run_started = self._refuse_later_run

    @property
    def is_complete(self) -> bool:
        """Whether the requested run has ended. A replayed run before it does not count (TRN-7)."""
        return self.consumer.is_ended and self._is_requested_run()

    def count(self, size: int, events: int) -> None:
        """Count the bytes and events of one read. Raises ``LimitExceeded`` beyond the limits of the run."""
        self._bytes += size
        self._events += events
        if self._events > self._settings.max_events:
            raise LimitExceeded("max_events", self._settings.max_events, "events")
        if self._bytes > self._settings.max_bytes:
            raise LimitExceeded("max_bytes", self._settings.max_bytes, "bytes")

    def deliver(self, frames: list[Frame]) -> Program[None]:
        """Yield generators of the events in these frames. Other tasks may run in between."""
        self.has_run_ended = False
        waiting = deque(frames)
        while waiting and self.failure is None and not self.is_done:
            first: Iterable[Raw | Prepared] | None = None
            if len(waiting[0].data) > LARGE:
                first = yield Compute(partial(self._prepare, waiting[0].data))
            yield self._consume(waiting, first)
            if waiting:
                yield Sleep(0)

    def _prepare(self, data: bytes) -> Sequence[Raw | Prepared]:
        """Prepare a large event: the first one, if middleware makes several of it."""
        events = list(self._changed(data))
        return [*map(self.consumer.prepare, events[:1]), *events[1:]]

    def _consume(self, waiting: deque[Frame], first: Iterable[Raw | Prepared] | None) -> Iterator[Event]:
        """Yield the events of some frames, up to the next large one. ``first`` are those of a large frame.

        A frame counts when its events were taken: if the connection breaks before, it is requested again.
        """
        try:
            for _ in range(_MAX_FRAMES):
                frame = waiting[0]
                if len(frame.data) > LARGE and first is None:
                    return
                if first is None:
                    first = self._changed(frame.data) if self._changes_events else (frame.data,)
                for raw in first:
                    for event in self.consumer.feed(raw):
                        yield event
                        if event.__class__ in _BOUNDARIES:
                            self._pass_boundary(event)
                waiting.popleft()
                first = None
                self.consumed += 1
                self.cursor.can_resume = frame.id is not None and frame.id != self.cursor.id
                if frame.id is not None and self.cursor.can_resume:
                    self.cursor.advance(frame.id)
                    self._settings.server_sends_ids = True
                if not waiting or self.is_done:
                    return
        except _LaterRun:
            self.is_done = True
        except Exception as error:  # noqa: BLE001 - raised again by the reader of the stream
            self.failure = error

    def _changed(self, data: bytes) -> Iterable[Raw]:
        """Return the events that middleware, and the conversion for an older peer, make of one (PROC-7, ERA-4)."""
        events: Sequence[Raw] = self._chain.event(data) if self._chain else (data,)
        return events if self._old_peer_decoder is None else self._without_subagents(events, self._old_peer_decoder)

    def _without_subagents(self, events: Iterable[Any], decoder: EventDecoder) -> Iterator[Event]:
        for raw in events:
            for event in decoder.feed(raw):
                stripped = strip_subagents(event, self._settings.warn)
                if stripped is not None:
                    yield stripped

    def _pass_boundary(self, event: Any) -> None:
        """Note the start or the end of a run, and whether the stream need not be read after it.

        A replayed run before the requested one ends nothing (IN-1). A late RUN_ERROR may follow the requested run on
        its own stream (LIFE-15). The log, from which a stream is resumed, may continue with other runs.
        """
        if event.__class__ is RunStartedEvent:
            self._last_run_id = event.run_id
            self.has_run_ended = False
            if event.metadata is not None and self._is_requested_run():
                for notice in read_notices(event.metadata):
                    self._settings.warn(notice)
        else:
            self.has_run_ended = self._is_requested_run()
            self.is_done = self.is_resumed and self.has_run_ended

    def _is_requested_run(self) -> bool:
        return self._run_id is None or self._last_run_id is None or self._last_run_id == self._run_id

    def _refuse_later_run(self, event: RunStartedEvent) -> None:
        """Raise ``_LaterRun`` for a run that starts after the requested one (IN-1)."""
        if self.consumer.is_ended and self._last_run_id == self._run_id and event.run_id != self._run_id:
            message = f"the run {event.run_id!r} started after the requested run, which has to be last: it is skipped"
            self._settings.warn(Notice(rule="IN-1", message=message, event_type="RUN_STARTED"))
            raise _LaterRun


class _LaterRun(Exception):
    """A run started after the requested one: it is not consumed, and the stream is left."""
