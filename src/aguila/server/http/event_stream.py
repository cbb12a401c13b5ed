"""Stream a part of a thread's log as one response, and keep the open streams of an app alive.

A stream reads the log at the pace of its reader: ``send`` waits for a slow reader, and nothing is buffered meanwhile.
One write contains a whole batch of the log. A stream has one task besides the task of its request: it listens for the
disconnect.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from contextlib import suppress
from functools import cache
from math import inf
from typing import Any, Protocol

import msgspec

from aguila.codec import decode_event
from aguila.errors import CursorExpired, EncodeError, NotFound, StoreUnavailable
from aguila.offload import LARGE, offload
from aguila.protocol import RunErrorEvent
from aguila.server.history.baseline import find_state_before
from aguila.server.http.disconnect import listen_for_disconnect
from aguila.server.http.documents import Pieces
from aguila.server.http.framing import Framing
from aguila.server.http.responses import MAX_WRITE, PIECE, Headers, Receive, Send
from aguila.server.runs.viewers import DISCONNECT_DELAY
from aguila.store import Batch, Store

_TERMINAL = (b'{"type":"RUN_FINISHED"', b'{"type":"RUN_ERROR"')

_NO_EVENTS = Batch(0, ())

_STREAM_HEADERS: Headers = (
    # A proxy that compresses a stream holds events back until it has enough of them.
    (b"cache-control", b"no-cache, no-transform"),
    (b"content-encoding", b"identity"),  # the only header that Starlette's GZipMiddleware respects
    (b"x-accel-buffering", b"no"),  # nginx would buffer the stream
)


@cache
def _headers_of(media_type: str) -> list[tuple[bytes, bytes]]:
    return [(b"content-type", media_type.encode()), *_STREAM_HEADERS]


def is_terminal(event: bytes) -> bool:
    """Return whether a stored event ends its run. The type is always its first member."""
    return event.startswith(_TERMINAL)


class WatchedRun(Protocol):
    """A run that counts its viewers."""

    @property
    def update_task(self) -> asyncio.Task[None] | None:
        """The task that reports the viewers to other processes; None if there is nothing to report."""
        ...

    def join(self, viewer: EventStream) -> None:
        """Add a viewer."""
        ...

    def leave(self, viewer: EventStream, grace: float | None) -> None:
        """Remove a viewer. If it was the last one, cancel the run after ``grace`` seconds, unless ``grace`` is None."""
        ...


class OpenStreams:
    """The open streams of an app. One timer sends heartbeats to all of them.

    A heartbeat comes after at most ``heartbeat`` seconds without a write. One timer per stream would take more memory
    than the rest of the stream. A stream whose reader accepts nothing for ``write_seconds`` is ended.
    """

    def __init__(self, heartbeat: float, write_seconds: float = inf) -> None:
        self.loop = asyncio.get_running_loop()
        self.is_closed = False
        """Whether ``close`` was called: no stream may be added."""
        self._heartbeat = heartbeat
        self._write_seconds = write_seconds
        self._interval = min(heartbeat, write_seconds) / 4
        self._open: set[EventStream] = set()
        self._emptied: asyncio.Future[None] | None = None
        self._timer: asyncio.TimerHandle | None = None
        self._heartbeats: set[asyncio.Task[None]] = set()

    def add(self, stream: EventStream) -> None:
        """Add a stream that begins."""
        self._open.add(stream)
        if self._timer is None:
            self._timer = self.loop.call_later(self._interval, self._send_heartbeats)

    def discard(self, stream: EventStream) -> None:
        """Remove a stream that has ended."""
        self._open.discard(stream)
        if not self._open and self._emptied is not None and not self._emptied.done():
            self._emptied.set_result(None)

    async def close(self, seconds: float, end_seconds: float) -> bool:
        """Give the streams ``seconds`` to end, then end them early; return whether all have ended.

        ``end_seconds`` is the time for the early end. A stream whose client does not read takes longer.
        """
        self.is_closed = True
        await self._wait_until_empty(seconds)
        for stream in list(self._open):
            stream.end_early(None)
        await self._wait_until_empty(end_seconds)
        return not self._open

    async def _wait_until_empty(self, seconds: float) -> None:
        if self._open:
            self._emptied = self.loop.create_future()
            await asyncio.wait([self._emptied], timeout=seconds)

    def stop_now(self) -> None:
        """End the current wait of ``close``."""
        if self._emptied is not None and not self._emptied.done():
            self._emptied.set_result(None)

    def _send_heartbeats(self) -> None:
        idle_since = self.loop.time() - self._heartbeat * 0.75
        stalled_since = self.loop.time() - self._write_seconds
        for stream in self._open:
            if stream.is_stalled(stalled_since):
                stream.abandon()
            elif stream.is_idle(idle_since):
                task = self.loop.create_task(stream.send_heartbeat())  # a blocked stream must not delay the others
                self._heartbeats.add(task)
                task.add_done_callback(self._heartbeats.discard)
        self._timer = self.loop.call_later(self._interval, self._send_heartbeats) if self._open else None


class StreamPlan(msgspec.Struct, kw_only=True):
    """Which part of a thread's log a stream sends. The stream updates it as it sends.

    The order is: ``opening``; what ``replay`` writes; the stored events after ``after`` up to ``until``; with
    ``is_live``, further events up to the end of the run in progress.
    """

    thread_id: str
    after: int = 0
    until: int | None = None
    is_live: bool = False
    opening: bytes = b""
    """Frames that are sent first."""
    opening_rest: Pieces | None = None
    """Further pieces of these frames, which are made as they are sent."""
    replay: Callable[[EventStream], Awaitable[None]] | None = None
    """Writes stored events in another form, such as compacted ones."""
    fails_in_band: bool = True
    """Whether the stream ends with RUN_ERROR if the log cannot be read. Otherwise it is cut, and the reader resumes."""
    watched: WatchedRun | None = None
    """The run that this stream is a viewer of."""
    sends_times: bool = False
    """Whether a comment before the events of each batch has the time of its append."""


class EventStream:
    """One response that streams a part of the log, see ``StreamPlan``.

    ``grace`` is passed to ``WatchedRun.leave`` when the stream ends.
    """

    __slots__ = (
        "_early_end", "_grace", "_headers", "_is_complete", "_is_ended_early", "_is_inside_frame", "_is_sending",
        "_loop", "_send", "_sent_at", "_store", "_streams", "_task", "framing", "plan", "scope",
    )  # fmt: skip

    def __init__(
        self,
        plan: StreamPlan,
        framing: Framing,
        store: Store,
        scope: str,
        *,
        streams: OpenStreams,
        headers: Headers = (),
        grace: float | None = None,
    ) -> None:
        self.plan = plan
        self.framing = framing
        self.scope = scope
        self._store = store
        self._streams = streams
        self._headers = headers
        self._grace = grace
        self._loop = streams.loop
        self._is_complete = False
        self._is_ended_early = False
        self._early_end: bytes | None = None  # the frames of an early end
        self._is_sending = False
        self._is_inside_frame = False  # a frame was sent in part: no other frame may follow it
        self._sent_at = inf  # no heartbeat is due before the headers
        self._send: Send | None = None
        self._task: asyncio.Task[Any] | None = None
        if plan.watched is not None:
            plan.watched.join(self)

    # Sending the response

    async def __call__(self, receive: Receive, send: Send) -> None:
        """Send the headers, the events and the end. Return early if the client disconnects."""
        plan = self.plan
        self._send = send
        self._task = asyncio.current_task(self._loop)
        self._streams.add(self)
        listening: asyncio.Task[None] | None = None
        try:
            if plan.watched is not None and plan.watched.update_task is not None:
                # Wait for a moment only: the stream can be read even if the store cannot be written.
                await asyncio.wait([plan.watched.update_task], timeout=DISCONNECT_DELAY)
            await self._send_headers(send)
            await asyncio.sleep(0)  # some event loops send written data only in their next iteration
            listening = listen_for_disconnect(receive)
            listening.add_done_callback(self._on_disconnect)
            await self._send_stored()
            if plan.is_live and not self._is_complete:
                # Inline: streams wait here, and with thousands of them each coroutine frame counts.
                tail: Any = self._store.tail(self.scope, plan.thread_id, plan.after)
                try:
                    batch: Batch
                    async for batch in tail:
                        is_last = is_terminal(batch.events[-1])
                        body = self._try_frame(batch)
                        if body is None:
                            await self._write_singly(batch, last=is_last)
                        else:
                            await self.write(body, last=is_last)
                        batch = _NO_EVENTS  # frees a large batch while the stream waits for the next one
                        if is_last:
                            break
                finally:
                    await tail.aclose()
            if not self._is_complete:
                await self.write(b"", last=True)
        except asyncio.CancelledError:
            if not self._is_ended_early or self._task is None:
                raise
            self._task.uncancel()  # cancelled by _end, not by a caller
            if self._early_end is not None and not self._is_inside_frame:
                with suppress(asyncio.CancelledError):  # the client does not read, and the server stops waiting
                    if self._sent_at == inf:
                        await self._send_headers(send)
                    if not self._is_complete:
                        await self.write(self._early_end, last=True)
        except (StoreUnavailable, NotFound, CursorExpired, EncodeError) as error:
            await self.write(self._frame_failure(error), last=True)
        finally:
            self._task = None
            if listening is not None:
                listening.cancel()
            self._streams.discard(self)
            if plan.watched is not None:
                plan.watched.leave(self, self._grace)

    async def _send_headers(self, send: Send) -> None:
        plan = self.plan
        headers = _headers_of(self.framing.media_type) + list(self._headers)
        await send({"type": "http.response.start", "status": 200, "headers": headers})
        self._headers = ()
        self._sent_at = self._loop.time()
        if plan.opening != b"":
            is_last = not plan.is_live and plan.until is None and plan.replay is None
            if plan.opening_rest is None:
                await self.write(plan.opening, last=is_last)
            else:
                await self._write_pieces(plan.opening, plan.opening_rest, last=is_last)
            plan.opening, plan.opening_rest = b"", None

    async def _send_stored(self) -> None:
        plan = self.plan
        if plan.replay is not None:
            await plan.replay(self)
            plan.replay = None
        if plan.until is not None:
            await self.write_stored(plan.until)

    async def write_stored(self, until: int) -> None:
        """Write the stored events up to ``until``, several batches in one write."""
        plan = self.plan
        while plan.after < until:
            batches = await self._store.read(self.scope, plan.thread_id, plan.after, until=until)
            if not batches:
                return
            plan.after = batches[-1].last
            is_last = not plan.is_live and plan.until is not None and plan.after >= plan.until
            framed: list[bytes] = []
            for batch in batches:
                body = self._try_frame(batch)
                if body is None:
                    if framed:
                        await self.write(b"".join(framed))
                        framed.clear()
                    await self._write_singly(batch, last=is_last and batch is batches[-1])
                else:
                    framed.append(body)
            if framed:
                await self.write(b"".join(framed), last=is_last)

    def _try_frame(self, batch: Batch) -> bytes | None:
        """Frame a batch as a whole; return None if its events have to be written singly."""
        if max(map(len, batch.events)) > LARGE:
            return None
        body = self.framing.try_frame_batch(batch)
        return b": time=%d\n\n%b" % (batch.at, body) if self.plan.sends_times and body is not None else body

    def _frame_failure(self, error: Exception) -> bytes:
        if isinstance(error, EncodeError):
            ending = RunErrorEvent(message="This transport cannot carry an event of the run.", code="not_encodable")
        elif self.plan.fails_in_band and isinstance(error, StoreUnavailable):
            ending = RunErrorEvent(message="The run can no longer be followed.", code="store_unavailable")
        else:  # the thread was deleted, and perhaps its id used again: its runs had ended before
            return b""
        return self.framing.frame_event(ending)

    async def _write_singly(self, batch: Batch, *, last: bool) -> None:
        """Write a batch event by event, because large events are framed in a thread or a delta needs its state."""
        framing = self.framing
        if self.plan.sends_times:
            await self.write(b": time=%d\n\n" % batch.at)
        for number, event in enumerate(batch.events, batch.first):
            if framing.translator is not None and framing.needs_state(event):
                shown = framing.translator.run_id
                stored = None if shown is None else framing.stored_run_id(shown)
                run_id, state = await find_state_before(self._store, self.scope, self.plan.thread_id, stored, number)
                framing.translator.supply_state(run_id if shown is None else shown, state)
            if len(event) > LARGE:
                pieces = await offload(framing.frame_large, number, event, batch.token)
            else:
                pieces = (framing.frame_batch(number, [event], batch.token),)
            await self.write(*pieces, last=last and number == batch.last)

    async def _write_pieces(self, piece: bytes, rest: Pieces, *, last: bool) -> None:
        """Send frames in pieces. Each further piece is encoded when the one before was sent."""
        assert self._send is not None  # noqa: S101
        self.plan.opening = b""
        self._is_complete = self._is_complete or last
        self._is_sending = self._is_inside_frame = True
        while True:
            for at in range(0, len(piece), PIECE):
                self._sent_at = self._loop.time()
                body = piece[at : at + PIECE]
                await self._send({"type": "http.response.body", "body": body, "more_body": True})
            if rest.is_complete:
                break
            piece = await rest.take()
        self._is_sending = self._is_inside_frame = False
        if last:
            await self._send({"type": "http.response.body", "body": b"", "more_body": False})

    async def write(self, *pieces: bytes, last: bool = False) -> None:
        """Send complete frames, given in one or more pieces. Wait while the client reads slowly."""
        assert self._send is not None  # noqa: S101
        self._is_complete = self._is_complete or last
        self._sent_at = self._loop.time()
        self._is_sending = True
        if len(pieces) == 1 and len(pieces[0]) <= LARGE:
            await self._send({"type": "http.response.body", "body": pieces[0], "more_body": not last})
        else:
            self._is_inside_frame = True
            for piece in pieces:
                for at in range(0, len(piece), MAX_WRITE):
                    body = piece[at : at + MAX_WRITE] if len(piece) > MAX_WRITE else piece
                    await self._send({"type": "http.response.body", "body": body, "more_body": True})
                    self._sent_at = self._loop.time()
            self._is_inside_frame = False
            if last:
                await self._send({"type": "http.response.body", "body": b"", "more_body": False})
        self._is_sending = False

    # Called from other tasks

    def is_idle(self, since: float) -> bool:
        """Return whether nothing was sent since this time, and no write is in progress."""
        return not self._is_sending and not self._is_complete and self._sent_at <= since

    def is_stalled(self, since: float) -> bool:
        """Return whether a write is in progress since this time: the reader accepts nothing."""
        return self._is_sending and self._sent_at <= since

    def abandon(self) -> None:
        """End the stream without another write, also in the middle of its last one."""
        if self._task is not None and not self._is_ended_early:
            self._is_ended_early = True
            self._task.cancel()

    async def send_heartbeat(self) -> None:
        """Send a comment, if the media type has comments."""
        if self.framing.heartbeat is not None and not self._is_complete:
            try:
                await self.write(self.framing.heartbeat)
            except (OSError, RuntimeError):  # uvloop raises RuntimeError if the connection is closed
                self._end(None)

    def end_early(self, event: bytes | None) -> None:
        """End the stream before the end of its run, with this event if it is given."""
        frames = b""
        if event is not None:
            decoded = decode_event(event, strict=True)
            frames = b"" if decoded is None else self.framing.frame_event(decoded)
        self._end(frames)

    def _end(self, frames: bytes | None) -> None:
        # A client that does not read may block the last write, too.
        if self._task is not None and not self._is_ended_early and (self._is_sending or not self._is_complete):
            self._is_ended_early = True
            self._early_end = frames
            self._task.cancel()

    def _on_disconnect(self, listening: asyncio.Task[None]) -> None:
        if not listening.cancelled():
            listening.result()  # an error of receive() is logged by the event loop
            self._end(None)
