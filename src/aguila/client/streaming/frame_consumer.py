"""Consume the frames of a run's stream, over any number of connections, and deliver their events to the caller.

The caller may leave after any event. So each event is consumed when the caller asks for it, by a generator that the
drivers iterate. These generators raise nothing: an error is kept in ``failure``.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any

from aguila.chat.own_metadata import read_notices
from aguila.client.drivers.effects import GiveWay, Program, offloaded
from aguila.client.middleware import Chain
from aguila.client.streaming.cursor import Cursor
from aguila.codec import EventDecoder
from aguila.codec.dialects import predates_subagents, strip_subagents
from aguila.codec.notices import Notice
from aguila.codec.sse import Frame
from aguila.offload import LARGE_JSON
from aguila.protocol import Event, RunErrorEvent, RunFinishedEvent, RunStartedEvent
from aguila.stream import Consumer
from aguila.stream.consumer import Raw

if TYPE_CHECKING:
    from aguila.client.settings import Settings

_MAX_FRAMES = 512
"""How many events are consumed in one turn of the event loop: 11 ms, if each is unknown and reported. A turn costs as
much as 15 deltas."""

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
        self._old_peer_decoder = (
            EventDecoder(compat=settings.compat, warn=settings.warn, max_size=settings.max_size)
            if predates_subagents(settings.peer_version)
            else None
        )
        consumer.on_run_started = self._refuse_later_run

    @property
    def is_complete(self) -> bool:
        """Whether the requested run has ended. A replayed run before it does not count (TRN-7)."""
        return self.consumer.is_ended and self._is_requested_run()

    def deliver(self, frames: list[Frame], size: int) -> Program[None]:
        """Yield generators of the events in these frames, of at most ``size`` bytes. Other tasks may run in between."""
        self.has_run_ended = False
        is_changed = bool(self._chain) or self._old_peer_decoder is not None
        for slice_ in _slices(frames, size):
            if slice_[0] is not frames[0]:
                yield GiveWay()
            if is_changed:
                for frame in slice_:
                    yield self._consume([frame], self._watch(map(self.consumer.feed, self._changed(frame.data))))
                    if self.failure is not None or self.is_done:
                        return
            elif len(slice_[0].data) > LARGE_JSON:
                decoded = yield from offloaded(partial(self.consumer.decode, slice_[0].data))
                yield self._consume(slice_, self._watch(map(self.consumer.apply, [decoded])))
            else:
                texts = [frame.data for frame in slice_]
                yield self._consume(slice_, self.consumer.feed_all(texts, self._is_over))
            if self.failure is not None or self.is_done:
                return

    def _consume(self, frames: list[Frame], events: Iterator[Event]) -> Iterator[Event]:
        """Yield the events of these frames, and then count the frames.

        Not earlier: if the connection breaks before, they are requested again.
        """
        try:
            yield from events
        except _LaterRun:
            self.is_done = True
        except Exception as error:  # noqa: BLE001 - raised again by the reader of the stream
            self.failure = error
        else:
            self.consumed += len(frames)
            if self.cursor.advance(frames):
                self._settings.server.sends_ids = True

    def _watch(self, groups: Iterable[Sequence[Event]]) -> Iterator[Event]:
        """Yield the events of all groups, and note the start and the end of runs."""
        for events in groups:
            for event in events:
                yield event
                if event.__class__ in _BOUNDARIES:
                    self._is_over(event)

    def _changed(self, data: bytes) -> Iterator[Raw]:
        """Yield the events that middleware, and the conversion for an older peer, make of one (PROC-7, ERA-4)."""
        for raw in self._chain.event(data) if self._chain else (data,):
            if self._old_peer_decoder is None:
                yield raw
                continue
            for event in self._old_peer_decoder.feed(raw):
                stripped = strip_subagents(event, self._settings.warn)
                if stripped is not None:
                    yield stripped

    def _is_over(self, event: Any) -> bool:
        """Return whether the stream need not be read after this boundary event.

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
        return self.is_done

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


def _slices(frames: list[Frame], size: int) -> Iterator[list[Frame]]:
    """Split frames of at most ``size`` bytes into slices of few and small ones. A large frame is a slice of its own."""
    for first in range(0, len(frames), _MAX_FRAMES):
        few = frames[first : first + _MAX_FRAMES]
        if size <= LARGE_JSON or sum([len(frame.data) for frame in few]) <= LARGE_JSON:
            yield few
            continue
        start = total = 0
        for at, frame in enumerate(few):
            total += len(frame.data)
            if total > LARGE_JSON and at > start:
                yield few[start:at]
                start, total = at, len(frame.data)
        yield few[start:]
