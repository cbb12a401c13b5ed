"""Layer: server. Answers as raw ASGI: JSON documents, and event streams as SSE or protobuf.

Below: ``aguila.codec`` (framing, dialects) and ``aguila.store`` (where streams come from). Above: ``exchange``
and the handlers.

A stream reads the log at its reader's pace: ``send`` waits for a slow one, and nothing is kept for it meanwhile. One
write holds a whole batch of the log; the pump has gathered it. Besides the request's own task a stream has one more,
which hears the client hang up. An answer is an object that is called after everything else about the request is
forgotten, so that an open stream holds on to little.
"""

from __future__ import annotations

import asyncio
import re
from abc import ABC, abstractmethod
from collections.abc import Awaitable, Callable, Mapping, MutableMapping, Sequence
from contextlib import nullcontext, suppress
from functools import cache
from math import inf
from typing import Any, Protocol

import msgspec
from msgspec.structs import replace

from aguila.codec import decode_event, encode, encode_event
from aguila.codec.dialects import CURRENT, Dialect, Link, Translator
from aguila.codec.dialects.translator import translated_types
from aguila.codec.json.encoder import encode_large
from aguila.codec.logs import RunLogContext
from aguila.codec.negotiate import PROTOBUF_MEDIA_TYPE, SSE_MEDIA_TYPE
from aguila.codec.notices import Notice, Warn, log_notice
from aguila.codec.protobuf import ProtobufEncoder, has_protobuf
from aguila.errors import CursorExpired, EncodeError, NotFound, StoreUnavailable
from aguila.offload import LARGE, offload
from aguila.protocol import Event, RunErrorEvent
from aguila.server.history.baseline import state_before
from aguila.server.limits import STORED
from aguila.server.runs.event_encoding import is_large_event
from aguila.server.runs.viewers import DISCONNECT_DELAY
from aguila.store import Batch, Store
from aguila.stream.patch import apply_patch

Message = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[Message]]
Send = Callable[[Message], Awaitable[None]]
Headers = Sequence[tuple[bytes, bytes]]
Reply = Callable[[Receive, Send], Awaitable[None]]
"""An answer that is ready to be sent."""

SLICE = 1 << 18
"""In pieces of so many bytes large answers are sent: a server copies what it is given at least twice."""
_ENDINGS = (b'{"type":"RUN_FINISHED"', b'{"type":"RUN_ERROR"')

# What 1.1 has and 1.0 has not; an event without these bytes is the same in both.
_VERSION = b'"protocolVersion":'
_ENCRYPTED = b'"encryptedValueType":'

_STARTED = b'{"type":"RUN_STARTED"'
_STATE_DELTA = b'{"type":"STATE_DELTA"'
_ATTRIBUTION = b'"subagentRunId":'


def _is_rich(started: bytes) -> bool:
    """Whether a RUN_STARTED has members that may hold anything."""
    return b'"input":' in started or b'"metadata":' in started or b'"rawEvent":' in started


def is_terminal(event: bytes) -> bool:
    """Whether a stored event ends its run. The type is always written first."""
    return event.startswith(_ENDINGS)


# Documents


class Document(msgspec.Struct, frozen=True, kw_only=True):
    """A whole answer."""

    status: int = 200
    body: bytes = b""
    headers: Headers = ()
    media_type: bytes = b"application/json"

    async def __call__(self, receive: Receive, send: Send) -> None:
        """Send it."""
        head = [(b"content-length", b"%d" % len(self.body)), (b"x-content-type-options", b"nosniff"), *self.headers]
        if self.body:
            head.append((b"content-type", self.media_type))
        await send({"type": "http.response.start", "status": self.status, "headers": head})
        at = 0
        while at + LARGE < len(self.body):
            await send({"type": "http.response.body", "body": self.body[at : at + SLICE], "more_body": True})
            at += SLICE
        await send({"type": "http.response.body", "body": self.body[at:]})


def json_document(value: Any, headers: Headers = (), status: int = 200, *, is_large: bool = False) -> Document:
    """A JSON value, or protocol objects, as an answer that no cache keeps. If it is large, this is to be done apart."""
    body = encode_large(value) if is_large else encode(value)
    return Document(status=status, body=body, headers=[(b"cache-control", b"no-store"), *headers])


def head_only(send: Send) -> Send:
    """Sends answers without their bodies, as HEAD asks for."""

    async def send_head(message: Message) -> None:
        await send({**message, "body": b""} if message["type"] == "http.response.body" else message)

    return send_head


# Framing


@cache
def _touched(dialect: Dialect) -> re.Pattern[bytes]:
    """Return what finds the types of events that a dialect may change. It begins with fixed text, which is fast."""
    return re.compile(b'\\{"type":"(?:' + "|".join(translated_types(dialect)).encode() + b')"')


class Framing(ABC):
    """Writes events as bytes of one response, in the dialect of its reader.

    ``link`` gives the address of a file if the reader may download it.
    """

    media_type: str
    heartbeat: bytes | None = None

    def __init__(self, dialect: Dialect = CURRENT, link: Link | None = None) -> None:
        self.dialect = dialect
        self.translator = (
            None if dialect.is_current else Translator(dialect, link=link, apply_patch=apply_patch, warn=self._warn)
        )
        self._touched = None if dialect.is_current else _touched(dialect)
        self._warned: set[str] = set()
        self.warn: Warn = log_notice
        self.log_context: RunLogContext | None = None
        """The thread and run that notices about this stream name."""

    @abstractmethod
    def batch(self, first: int, events: Sequence[bytes]) -> bytes:
        """Write events of the log with their sequence numbers."""

    def large(self, number: int, event: bytes) -> tuple[bytes, ...]:
        """Write one event of the log in pieces, so that it is not copied to frame it."""
        return (self.batch(number, [event]),)

    @abstractmethod
    def events(self, events: Sequence[Event], number: int | None = None) -> bytes:
        """Write events that are not in the log. The last frame carries ``number``."""

    def event(self, event: Event, number: int | None = None) -> bytes:
        """Write one event that is not in the log."""
        return self.events([event], number)

    def stored_run_id(self, run_id: str) -> str:
        """Return the id under which the log has a run that the reader knows by this id."""
        return run_id

    def needs_state(self, event: bytes) -> bool:
        """Return whether this event can only be written after ``translator.supply_state``."""
        return event.startswith(_STATE_DELTA) and self.translator is not None and self.translator.needs_state

    def try_batch(self, first: int, events: Sequence[bytes]) -> bytes | None:
        """Write events of the log; None if ``needs_state`` may hold for one of them when its turn comes."""
        return None if self._may_need_state(events) else self.batch(first, events)

    def _may_need_state(self, events: Sequence[bytes]) -> bool:
        if self.translator is None or not self.dialect.state_baseline:
            return False
        # Lists, because a generator takes twice as long.
        if not self.translator.needs_state and not any([event.startswith(_STARTED) for event in events]):  # noqa: C419
            return False
        return any([event.startswith(_STATE_DELTA) for event in events])  # noqa: C419

    def _translate(self, events: Sequence[Event]) -> list[Any]:
        translator = self.translator
        return list(events) if translator is None else [one for event in events for one in translator.feed(event)]

    def _is_untouched(self, body: bytes) -> bool:
        """Return whether the reader gets stored events, framed or not, as they are."""
        if self._touched is None:
            return True
        if self.dialect.protocol_version == "1.0":
            return _VERSION not in body and _ENCRYPTED not in body
        return (self.dialect.subagents or _ATTRIBUTION not in body) and self._touched.search(body) is None

    def _warn(self, notice: Notice) -> None:
        if notice.rule + notice.message not in self._warned:  # once per stream, not once per token
            self._warned.add(notice.rule + notice.message)
            with nullcontext() if self.log_context is None else self.log_context:
                self.warn(notice)


class SSEFraming(Framing):
    """Server-sent events; the id is the sequence number. LF only (SSE-5).

    Of several frames for one event the last has the id. An event without a frame has none: the id of the next frame
    covers it, and a reader that comes back before that has it translated again.
    """

    media_type = SSE_MEDIA_TYPE
    heartbeat = b":\n\n"

    def batch(self, first: int, events: Sequence[bytes]) -> bytes:
        """See ``Framing``."""
        body = b"".join([b"id: %d\ndata: %b\n\n" % pair for pair in enumerate(events, first)])
        if self._is_untouched(body):
            return body
        return b"".join([_joined(self._written(event), number) for number, event in enumerate(events, first)])

    def large(self, number: int, event: bytes) -> tuple[bytes, ...]:
        """See ``Framing``."""
        written = self._written(event)
        if not written:
            return ()
        pieces = [piece for data in written[:-1] for piece in (b"data: ", data, b"\n\n")]
        return (*pieces, b"id: %d\ndata: " % number, written[-1], b"\n\n")

    def events(self, events: Sequence[Event], number: int | None = None) -> bytes:
        """See ``Framing``."""
        written = [
            encode_large(event) if is_large_event(event) else encode_event(event) for event in self._translate(events)
        ]
        return _joined(written, number)

    def _written(self, data: bytes) -> list[bytes]:
        """Return a stored event as the reader gets it: one document, several, or none."""
        if self._is_untouched(data):
            return [data]
        if self.dialect.protocol_version == "1.0" and data.startswith(_STARTED) and not _is_rich(data):
            # Almost always all there is to say in 1.0, so it need not be taken apart. No string can hold these bytes:
            # its quotes would be escaped.
            return [data.replace(b'"protocolVersion":"1.1"', b'"protocolVersion":"1.0"', 1)]
        event = decode_event(data, strict=True, max_size=STORED)
        if event is None:
            return []
        encode_one = encode_large if len(data) > LARGE else encode_event
        return [data if one is event else encode_one(one) for one in self._translate([event])]


def _joined(written: Sequence[bytes], number: int | None) -> bytes:
    """Frame several documents of which the last has the id."""
    if not written:
        return b""
    frames = [b"data: %b\n\n" % data for data in written]
    if number is not None:
        frames[-1] = b"id: %d\n%b" % (number, frames[-1])
    return b"".join(frames)


class ProtobufFraming(Framing):
    """Length-prefixed frames. This wire has neither ids nor comments."""

    media_type = PROTOBUF_MEDIA_TYPE

    def __init__(self, dialect: Dialect = CURRENT, link: Link | None = None) -> None:
        super().__init__(replace(dialect, reasoning="none") if dialect.reasoning == "thinking" else dialect, link)
        self._encoder = ProtobufEncoder(warn=self._warn)

    def batch(self, first: int, events: Sequence[bytes]) -> bytes:
        """See ``Framing``. Raises ``EncodeError`` for what this wire cannot carry."""
        decoded = (decode_event(data, strict=True, max_size=STORED) for data in events)
        return self.events([event for event in decoded if event is not None])

    def events(self, events: Sequence[Event], number: int | None = None) -> bytes:
        """See ``Framing``."""
        return b"".join([self._encoder.encode(event) for event in self._translate(events)])


class WrappedFraming(Framing):
    """Frames events as another framing does, after or before a change of its own."""

    def __init__(self, framing: Framing) -> None:
        super().__init__()
        self.media_type = framing.media_type
        self.heartbeat = framing.heartbeat
        self.dialect = framing.dialect
        self.translator = framing.translator
        self._framing = framing


class WithoutIds(WrappedFraming):
    """Another framing without the ``id:`` lines: what is not stored has no cursor to come back with."""

    def batch(self, first: int, events: Sequence[bytes]) -> bytes:
        """See ``Framing``."""
        body = self._framing.batch(first, events)
        # Every line of SSE data begins with "data: ", so no such line is a part of an event.
        return body if self.media_type != SSE_MEDIA_TYPE else _ID_LINE.sub(b"", body)

    def events(self, events: Sequence[Event], number: int | None = None) -> bytes:
        """See ``Framing``."""
        return self._framing.events(events)


_ID_LINE = re.compile(rb"^id: \d+\n", re.MULTILINE)


def framing_for(media_type: str, dialect: Dialect = CURRENT, link: Link | None = None) -> Framing:
    """Return the framing for a reader of this dialect.

    Where protobuf is not installed it is SSE, which every consumer takes (PB-2).
    """
    if media_type == PROTOBUF_MEDIA_TYPE and has_protobuf():
        return ProtobufFraming(dialect, link)
    return _SSE if dialect.is_current else SSEFraming(dialect, link)


_SSE = SSEFraming()  # for all who read our own version: it has nothing to remember about them


# Streams


class Watched(Protocol):
    """What is told that somebody looks."""

    @property
    def update_task(self) -> asyncio.Task[None] | None:
        """What has to be done before a viewer counts; None if it does already."""
        ...

    def join(self, viewer: EventStream) -> None:
        """Somebody watches."""
        ...

    def leave(self, viewer: EventStream, grace: float | None) -> None:
        """Somebody went away."""
        ...


class Streams:
    """The open streams of an app. One timer for all of them sends comments where nothing else was sent.

    A comment comes after ``heartbeat`` seconds of silence at the latest. A timer in each stream would cost more memory
    than the rest of it.
    """

    def __init__(self, heartbeat: float) -> None:
        self.loop = asyncio.get_running_loop()
        self.has_ended = False
        self._heartbeat = heartbeat
        self._open: set[EventStream] = set()
        self._emptied: asyncio.Future[None] | None = None
        self._timer: asyncio.TimerHandle | None = None
        self._beating: set[asyncio.Task[None]] = set()

    def add(self, stream: EventStream) -> None:
        """A stream begins."""
        self._open.add(stream)
        if self._timer is None:
            self._timer = self.loop.call_later(self._heartbeat / 4, self._beat)

    def discard(self, stream: EventStream) -> None:
        """A stream has ended."""
        self._open.discard(stream)
        if not self._open and self._emptied is not None and not self._emptied.done():
            self._emptied.set_result(None)

    async def end(self, seconds: float, moment: float) -> bool:
        """Let them end by themselves for this long, then break them off; no more are to be added.

        Gives whether all have ended a moment later: one that nobody reads does not.
        """
        self.has_ended = True
        await self._wait(seconds)
        for stream in list(self._open):
            stream.end_early(None)
        await self._wait(moment)
        return not self._open

    async def _wait(self, seconds: float) -> None:
        if self._open:
            self._emptied = self.loop.create_future()
            await asyncio.wait([self._emptied], timeout=seconds)

    def stop_now(self) -> None:
        """Those that ``end`` waits for have had their time."""
        if self._emptied is not None and not self._emptied.done():
            self._emptied.set_result(None)

    def _beat(self) -> None:
        silent_since = self.loop.time() - self._heartbeat * 0.75
        for stream in self._open:
            if stream.is_silent(silent_since):
                task = self.loop.create_task(stream.beat())  # not awaited: one may be stuck, the others must not wait
                self._beating.add(task)
                task.add_done_callback(self._beating.discard)
        self._timer = self.loop.call_later(self._heartbeat / 4, self._beat) if self._open else None


_NOTHING = Batch(0, ())

_HEAD: Headers = (
    # A stream that is compressed on its way is held back until there is enough of it.
    (b"cache-control", b"no-cache, no-transform"),
    (b"content-encoding", b"identity"),  # the only word that Starlette's GZipMiddleware heeds
    (b"x-accel-buffering", b"no"),  # nginx and its kin would hold the stream back
)


class EventStream:
    """One response that streams a part of the log.

    First ``opening``, ready-made, and what ``replay`` writes; then the log after ``after`` up to ``until``; then, if
    ``is_live``, the log up to the end of the run that is on. When the log cannot be read any more the stream ends with
    RUN_ERROR if ``fails_in_band``; otherwise it is cut short, and the reader may come back with its last id.
    """

    __slots__ = (
        "_grace", "_headers", "_is_broken", "_is_complete", "_is_sending", "_is_torn", "_last_words", "_loop",
        "_send", "_sent_at", "_store", "_streams", "_task", "_watched", "after", "fails_in_band", "framing", "is_live",
        "opening", "replay", "scope", "thread_id", "until",
    )  # fmt: skip

    def __init__(
        self,
        framing: Framing,
        store: Store,
        scope: str,
        thread_id: str,
        *,
        streams: Streams,
        headers: Headers = (),
        after: int = 0,
        until: int | None = None,
        is_live: bool = False,
        opening: bytes = b"",
        replay: Callable[[EventStream], Awaitable[None]] | None = None,
        fails_in_band: bool = True,
        watched: Watched | None = None,
        grace: float | None = None,
    ) -> None:
        self.framing = framing
        self.scope = scope
        self.thread_id = thread_id
        self.after = after
        self.until = until
        self.is_live = is_live
        self.opening = opening
        self.replay = replay
        self.fails_in_band = fails_in_band
        self._store = store
        self._streams = streams
        self._headers = headers
        self._watched = watched
        self._grace = grace
        self._loop = streams.loop
        self._is_broken = False
        self._is_complete = False
        self._is_sending = False
        self._is_torn = False  # a frame was begun and not ended: nothing may follow it
        self._last_words: bytes | None = None
        self._sent_at = inf  # no comment is due before the head
        self._send: Send | None = None
        self._task: asyncio.Task[Any] | None = None
        if watched is not None:
            watched.join(self)

    # The answer

    async def __call__(self, receive: Receive, send: Send) -> None:
        """Send the head, the events, and the end; returns early when the client hangs up."""
        self._send = send
        self._task = asyncio.current_task(self._loop)
        self._streams.add(self)
        listening: asyncio.Task[None] | None = None
        try:
            if self._watched is not None and self._watched.update_task is not None:
                await asyncio.wait(
                    [self._watched.update_task], timeout=DISCONNECT_DELAY
                )  # not for long: reading needs no writing
            await self._begin(send)
            await asyncio.sleep(0)  # some event loops send what was written only when they have come round
            listening = self._loop.create_task(self._listen(receive))
            await self._stored()
            if self.is_live and not self._is_complete:
                # Not in a method of its own: a stream waits here, and every frame counts when there are thousands.
                tail: Any = self._store.tail(self.scope, self.thread_id, self.after)
                try:
                    batch: Batch
                    async for batch in tail:
                        is_last = is_terminal(batch.events[-1])
                        body = None
                        if not any(len(event) > LARGE for event in batch.events):
                            body = self.framing.try_batch(batch.first, batch.events)
                        if body is None:
                            await self._write_singly(batch, last=is_last)
                        else:
                            await self.write(body, last=is_last)
                        batch = _NOTHING  # which may be large, and the next one long in coming
                        if is_last:
                            break
                finally:
                    await tail.aclose()
            if not self._is_complete:
                await self.write(b"", last=True)
        except asyncio.CancelledError:
            if not self._is_broken or self._task is None:
                raise
            self._task.uncancel()  # it was end_early, not somebody above us
            if self._last_words is not None and not self._is_torn:
                with suppress(asyncio.CancelledError):  # nobody reads it, and the server waits no longer
                    if self._sent_at == inf:
                        await self._begin(send)
                    if not self._is_complete:
                        await self.write(self._last_words, last=True)
        except (StoreUnavailable, NotFound, CursorExpired, EncodeError) as error:
            await self.write(self._failure(error), last=True)
        finally:
            self._task = None
            if listening is not None:
                listening.cancel()
            self._streams.discard(self)
            if self._watched is not None:
                self._watched.leave(self, self._grace)

    async def _begin(self, send: Send) -> None:
        head = [(b"content-type", self.framing.media_type.encode()), *_HEAD, *self._headers]
        await send({"type": "http.response.start", "status": 200, "headers": head})
        self._headers = ()
        self._sent_at = self._loop.time()
        if self.opening != b"":
            await self.write(self.opening, last=not self.is_live and self.until is None and self.replay is None)
            self.opening = b""

    async def _stored(self) -> None:
        """Write what is in the log already; several batches make one write."""
        if self.replay is not None:
            await self.replay(self)
            self.replay = None
        if self.until is not None:
            await self.write_stored(self.until)

    async def write_stored(self, until: int) -> None:
        """Write the log up to this event."""
        while self.after < until:
            batches = await self._store.read(self.scope, self.thread_id, self.after, until=until)
            if not batches:
                return
            self.after = batches[-1].last
            is_last = not self.is_live and self.until is not None and self.after >= self.until
            written: list[bytes] = []
            for batch in batches:
                body = None
                if not any(len(event) > LARGE for event in batch.events):
                    body = self.framing.try_batch(batch.first, batch.events)
                if body is None:
                    if written:
                        await self.write(b"".join(written))
                        written.clear()
                    await self._write_singly(batch, last=is_last and batch is batches[-1])
                else:
                    written.append(body)
            if written:
                await self.write(b"".join(written), last=is_last)

    def _failure(self, error: Exception) -> bytes:
        if isinstance(error, EncodeError):
            ending = RunErrorEvent(message="This transport cannot carry an event of the run.", code="not_encodable")
        elif self.fails_in_band:
            ending = RunErrorEvent(message="The run can no longer be followed.", code="store_unavailable")
        else:
            return b""
        return self.framing.event(ending)

    async def _write_singly(self, batch: Batch, *, last: bool) -> None:
        """Send a batch event by event: large events are framed in a thread, and some need the state before them."""
        framing = self.framing
        for number, event in enumerate(batch.events, batch.first):
            if framing.translator is not None and framing.needs_state(event):
                shown = framing.translator.run_id
                stored = None if shown is None else framing.stored_run_id(shown)
                run_id, state = await state_before(self._store, self.scope, self.thread_id, stored, number)
                framing.translator.supply_state(run_id if shown is None else shown, state)
            if len(event) > LARGE:
                pieces = await offload(framing.large, number, event)
            else:
                pieces = (framing.batch(number, [event]),)
            await self.write(*pieces, last=last and number == batch.last)

    async def write(self, *pieces: bytes, last: bool = False) -> None:
        """Send some whole frames, in pieces; waits while the client is slow."""
        assert self._send is not None  # noqa: S101
        self._is_complete = self._is_complete or last
        self._sent_at = self._loop.time()
        self._is_sending = True
        if len(pieces) == 1 and len(pieces[0]) <= LARGE:
            await self._send({"type": "http.response.body", "body": pieces[0], "more_body": not last})
        else:
            # In slices: a server copies what it is given at least twice, and whole frames can be very large.
            self._is_torn = True
            for piece in pieces:
                for at in range(0, len(piece), SLICE):
                    body = piece[at : at + SLICE] if len(piece) > SLICE else piece
                    await self._send({"type": "http.response.body", "body": body, "more_body": True})
            self._is_torn = False
            if last:
                await self._send({"type": "http.response.body", "body": b"", "more_body": False})
        self._is_sending = False

    # From outside

    def is_silent(self, since: float) -> bool:
        """Whether nothing was sent since some time, and nothing is being sent."""
        return not self._is_sending and not self._is_complete and self._sent_at <= since

    async def beat(self) -> None:
        """Send a comment, if this transport has any."""
        if self.framing.heartbeat is not None and not self._is_complete:
            await self.write(self.framing.heartbeat)

    def end_early(self, event: bytes | None) -> None:
        """End the stream, with this event if there is one."""
        last_words = b""
        if event is not None:
            decoded = decode_event(event, strict=True)
            last_words = b"" if decoded is None else self.framing.event(decoded)
        self._break(last_words)

    def _break(self, last_words: bytes | None) -> None:
        if self._task is not None and not self._is_broken and not self._is_complete:
            self._is_broken = True
            self._last_words = last_words
            self._task.cancel()

    async def _listen(self, receive: Receive) -> None:
        """Hear the client hang up."""
        while (await receive())["type"] != "http.disconnect":
            pass
        self._break(None)


def header_list(headers: Mapping[str, str]) -> list[tuple[bytes, bytes]]:
    """Headers as ASGI has them."""
    return [(name.encode("latin-1"), value.encode("latin-1")) for name, value in headers.items()]
