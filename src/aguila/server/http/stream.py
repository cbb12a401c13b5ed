"""Stream a part of a thread's log as one response, and keep all of these alive until they end.

A stream reads the log at the pace of its reader: ``send`` waits for a slow reader, and nothing is buffered meanwhile.
One write contains a whole batch of the log. A stream has one task besides the task of its request: it listens for the
disconnect.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from contextlib import suppress
from dataclasses import dataclass, field
from math import inf
from typing import TYPE_CHECKING, Any, Final

from starlette.types import Receive, Scope, Send

from aguila.codec import decode_event
from aguila.errors import CursorExpired, EncodeError, NotFound, StoreUnavailable
from aguila.offload import LARGE
from aguila.protocol import RunErrorEvent
from aguila.server.http.frames import Framing
from aguila.server.http.responses import MAX_WRITE, Headers, Pieces
from aguila.server.runs.viewers import DISCONNECT_DELAY
from aguila.server.threads.log import TERMINAL, read_log
from aguila.server.threads.state_before import find_state_before
from aguila.store import Batch, Store
from aguila.telemetry.instruments import BYTES, EVENTS, VIEWERS

if TYPE_CHECKING:
    from aguila.server.http.service import Service
    from aguila.server.runs.runs import WatchedRun

_NO_EVENTS = Batch(0, ())

_EVENTS_PER_TURN: Final = 512
"""Stored events that a stream frames before other tasks get a turn."""

_STREAM_HEADERS: Final[Headers] = (
    # A proxy that compresses a stream holds events back until it has enough of them.
    (b"cache-control", b"no-cache, no-transform"),
    (b"content-encoding", b"identity"),  # the only header that Starlette's GZipMiddleware respects
    (b"x-accel-buffering", b"no"),  # nginx would buffer the stream
)


async def wait_for_disconnect(receive: Receive) -> None:
    """Return when the client disconnects. The rest of the body of its request is discarded."""
    while (await receive())["type"] != "http.disconnect":
        pass


@dataclass(slots=True, eq=False)
class EventStream:
    """One response that streams a part of a thread's log.

    The order is: ``opening``; what ``replay`` writes; the stored events after ``after`` up to ``until``; with
    ``is_live``, further events up to the end of the run in progress.
    """

    service: Service
    framing: Framing
    scope: str
    thread_id: str
    after: int = 0
    """The last event that was sent."""
    until: int = 0
    """The last event that is known to be stored."""
    is_live: bool = False
    opening: bytes | Pieces = b""
    """Frames that are sent first."""
    opening_events: int = 0
    """How many events these are."""
    replay: Callable[[EventStream], Awaitable[None]] | None = None
    """Writes stored events in another form, such as compacted ones."""
    fails_in_band: bool = True
    """Whether the stream ends with RUN_ERROR if the log cannot be read. Otherwise it is cut, and the reader resumes."""
    watched: WatchedRun | None = None
    """The run that this stream is a viewer of."""
    sends_times: bool = False
    """Whether a comment before the events of each batch has the time of its append."""
    unstored: Store | None = None
    """The store of a run that is not stored. The run is cancelled when the stream ends."""

    _send: Send = field(init=False)
    _limit: asyncio.Timeout | None = field(default=None, init=False)  # end() lets it expire
    _last: bytes | None = field(default=b"", init=False)  # what ends the body; None: write nothing more
    _is_sending: bool = field(default=False, init=False)
    _is_inside_frame: bool = field(default=False, init=False)  # a frame was sent in part: no other may follow it
    _sent_at: float = field(default=inf, init=False)  # no heartbeat is due before the headers

    # Sending the response

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Send the headers, the events and the end. Return early if the client disconnects."""
        self._send = send
        store, streams, watched = self.unstored or self.service.store, self.service.streams, self.watched
        streams.open.add(self)
        counts = self.service.counts
        if counts is not None:
            counts.add(VIEWERS, 1)
        if watched is not None:
            watched.join(self)
        listening: asyncio.Task[None] | None = None
        limit = self._limit = asyncio.timeout(None)
        try:
            try:
                async with limit:
                    if watched is not None and watched.update_task is not None:
                        # Wait for a moment only: the stream can be read even if the store cannot be written.
                        await asyncio.wait([watched.update_task], timeout=DISCONNECT_DELAY)
                    await self._start()
                    await asyncio.sleep(0)  # some event loops send written data only in their next iteration
                    listening = streams.loop.create_task(wait_for_disconnect(receive))
                    listening.add_done_callback(lambda done: None if done.cancelled() else self._disconnect(done))
                    if self.replay is not None:
                        await self.replay(self)
                        self.replay = None
                    if self.after < self.until:
                        await self.write_stored(self.until)
                    if self.is_live:
                        # Inline: streams wait here, and with thousands of them each coroutine frame counts.
                        tail: Any = store.tail(self.scope, self.thread_id, self.after)
                        try:
                            batch: Batch
                            async for batch in tail:
                                is_last = batch.events[-1].startswith(TERMINAL)
                                body = self._frame(batch)
                                size = len(batch.events)
                                await (self._write_singly(batch) if body is None else self.write(body, events=size))
                                batch, body = _NO_EVENTS, None  # frees them while the stream waits for the next
                                if is_last:
                                    break
                        finally:
                            await tail.aclose()
            except TimeoutError:
                if not limit.expired():
                    raise
            except (StoreUnavailable, NotFound, CursorExpired, EncodeError) as error:
                self._last = self._frame_failure(error)
            if self._last is not None and not self._is_inside_frame:
                self._limit = asyncio.timeout(streams.write_seconds)
                with suppress(TimeoutError):  # the client does not read
                    async with self._limit:
                        if self._sent_at == inf:
                            await self._start()
                        await self.write(self._last, last=True, events=1 if self._last else 0)
        finally:
            self._limit = None
            if listening is not None:
                listening.cancel()
            streams.open.discard(self)
            if counts is not None:
                counts.add(VIEWERS, -1)
            if not streams.open:
                streams.emptied.set()
            if watched is not None:
                watched.leave(self, self.service.cancel_after if self.unstored is None else 0.0)

    async def _start(self) -> None:
        """Send the headers and the opening."""
        headers = [(b"content-type", self.framing.media_type.encode()), *_STREAM_HEADERS]
        await self._send({"type": "http.response.start", "status": 200, "headers": headers})
        opening, self.opening = self.opening, b""
        self._sent_at = self.service.loop.time()
        if isinstance(opening, Pieces):
            async for piece in opening:
                is_last = opening.is_complete
                await self.write(piece, ends_frame=is_last, events=self.opening_events if is_last else 0)
        elif opening:
            await self.write(opening, events=self.opening_events)

    async def write_stored(self, until: int) -> None:
        """Write the stored events up to ``until``, several batches in one write."""
        events_of_turn = 0
        async for batches in read_log(self.service.store, self.scope, self.thread_id, self.after, until):
            self.after = batches[-1].last
            framed: list[bytes] = []
            events = 0
            for batch in batches:
                if events_of_turn >= _EVENTS_PER_TURN:
                    await asyncio.sleep(0)
                    events_of_turn = 0
                events_of_turn += len(batch.events)
                body = self._frame(batch)
                if body is not None:
                    framed.append(body)
                    events += len(batch.events)
                    continue
                if framed:
                    await self.write(b"".join(framed), events=events)
                    framed.clear()
                    events = 0
                await self._write_singly(batch)
            if framed:
                await self.write(b"".join(framed), events=events)

    def _frame(self, batch: Batch) -> bytes | None:
        """Frame a batch of the log as a whole; return None if its events have to be written singly."""
        framing = self.framing
        if sum(map(len, batch.events)) > LARGE:
            return None
        if framing.translator is not None and framing.may_need_state(batch.events):
            return None
        body = framing.frame_batch(batch.first, batch.events, batch.token)
        return b": time=%d\n\n%b" % (batch.at, body) if self.sends_times else body

    async def _write_singly(self, batch: Batch) -> None:
        """Write a batch event by event: a delta may need its state, and no reader may hold a copy of a large batch."""
        framing, translator = self.framing, self.framing.translator
        if self.sends_times:
            await self.write(b": time=%d\n\n" % batch.at)
        for number, event in enumerate(batch.events, batch.first):
            if translator is not None and framing.needs_state(event):
                shown = translator.run_id
                stored = None if shown is None else framing.stored_run_id(shown)
                store = self.unstored or self.service.store
                run_id, state = await find_state_before(store, self.scope, self.thread_id, stored, number)
                translator.supply_state(run_id if shown is None else shown, state)
            await self.write(*framing.frame_large(number, event, batch.token), events=1)

    def _frame_failure(self, error: Exception) -> bytes:
        if isinstance(error, EncodeError):
            ending = RunErrorEvent(message="This transport cannot carry an event of the run.", code="not_encodable")
        elif self.fails_in_band and isinstance(error, StoreUnavailable):
            ending = RunErrorEvent(message="The run can no longer be followed.", code="store_unavailable")
        else:  # the thread was deleted, and perhaps its id used again: its runs had ended before
            return b""
        return self.framing.frame_event(ending)

    async def write(self, *pieces: bytes, events: int = 0, ends_frame: bool = True, last: bool = False) -> None:
        """Send complete frames, given in one or more pieces, or a part of one. Wait while the client reads slowly.

        ``events`` is how many events end with them.
        """
        self._is_sending = True
        for place, piece in enumerate(pieces, 1):
            for at in range(0, len(piece) or 1, MAX_WRITE):
                is_end = place == len(pieces) and at + MAX_WRITE >= len(piece)
                self._is_inside_frame = self._is_inside_frame or not is_end
                self._sent_at = self.service.loop.time()
                body = piece[at : at + MAX_WRITE]
                await self._send({"type": "http.response.body", "body": body, "more_body": not (last and is_end)})
        if (counts := self.service.counts) is not None:
            counts.add(EVENTS, events)
            counts.add(BYTES, sum(map(len, pieces)))
        self._is_inside_frame = not ends_frame
        self._is_sending = False

    # Called from other tasks

    def is_idle(self, since: float) -> bool:
        """Return whether nothing was sent since this time, and a frame may be sent now."""
        return self._limit is not None and not (self._is_sending or self._is_inside_frame) and self._sent_at <= since

    def is_stalled(self, since: float) -> bool:
        """Return whether a write is in progress since this time: the reader accepts nothing."""
        return self._is_sending and self._sent_at <= since

    async def send_heartbeat(self) -> None:
        """Send a comment, if the media type has comments."""
        if self.framing.heartbeat is not None and self._limit is not None and not self._is_sending:
            try:
                await self.write(self.framing.heartbeat)
            except (OSError, RuntimeError):  # uvloop raises RuntimeError if the connection is closed
                self.end(None)

    def end_early(self, event: bytes | None) -> None:
        """End the stream before the end of its run, with this event if it is given."""
        decoded = None if event is None else decode_event(event, strict=True)
        self.end(b"" if decoded is None else self.framing.frame_event(decoded))

    def end(self, last: bytes | None) -> None:
        """End the stream early, with these frames. None: without another write, also in the middle of one."""
        limit, self._limit = self._limit, None
        if limit is not None:
            self._last = last
            limit.reschedule(self.service.loop.time())  # cancels what the stream awaits

    def _disconnect(self, listening: asyncio.Task[None]) -> None:
        listening.result()  # an error of receive() is logged by the event loop
        self.end(None)


class OpenStreams:
    """The open streams of an app. One timer sends heartbeats to all of them.

    A heartbeat comes after at most ``heartbeat`` seconds without a write. One timer per stream would take more memory
    than the rest of the stream. A stream whose reader accepts nothing for ``write_seconds`` is ended.
    """

    def __init__(self, heartbeat: float, write_seconds: float = 60.0) -> None:
        self.loop = asyncio.get_running_loop()
        self.is_closed = False
        """Whether ``close`` was called: no stream may be added."""
        self.write_seconds = write_seconds
        self.heartbeat = heartbeat
        """Seconds after which a silent stream gets a comment."""
        self._interval = min(heartbeat, write_seconds) / 4
        self.open: set[EventStream] = set()
        self.emptied = asyncio.Event()
        """Set when the last stream has ended, or when ``close`` is to wait no longer."""
        self._heartbeats: set[asyncio.Task[None]] = set()
        self._timer = self.loop.call_later(self._interval, self._send_heartbeats)

    async def close(self, seconds: float, end_seconds: float) -> bool:
        """Give the streams ``seconds`` to end, then end them early; return whether all have ended and were read.

        ``end_seconds`` is the time for the early end. A stream whose client does not read takes longer.
        """
        self.is_closed = True
        await self._wait_until_empty(seconds)
        # A connection whose client does not read stays open after its stream.
        is_stuck = any(stream.is_stalled(self.loop.time()) for stream in self.open)
        for stream in list(self.open):
            stream.end(b"")
        await self._wait_until_empty(end_seconds)
        self._timer.cancel()
        return not self.open and not is_stuck

    async def _wait_until_empty(self, seconds: float) -> None:
        if self.open:
            self.emptied.clear()
            with suppress(TimeoutError):
                async with asyncio.timeout(seconds):
                    await self.emptied.wait()

    def _send_heartbeats(self) -> None:
        idle_since = self.loop.time() - self.heartbeat * 0.75
        stalled_since = self.loop.time() - self.write_seconds
        for stream in self.open:
            if stream.is_stalled(stalled_since):
                stream.end(None)
            elif stream.is_idle(idle_since):
                task = self.loop.create_task(stream.send_heartbeat())  # a blocked stream must not delay the others
                self._heartbeats.add(task)
                task.add_done_callback(self._heartbeats.discard)
        self._timer = self.loop.call_later(self._interval, self._send_heartbeats)
