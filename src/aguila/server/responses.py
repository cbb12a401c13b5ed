"""Layer: server. Answers as raw ASGI: JSON documents, and event streams as SSE or protobuf.

Below: ``aguila.codec`` (framing, downgrade) and ``aguila.store`` (where streams come from). Above: ``routes``.

A stream reads the log at its reader's pace: ``send`` waits for a slow one, and nothing is kept for it meanwhile. One
write holds a whole batch of the log; the pump has gathered it. Besides the request's own task a stream has one more,
which hears the client hang up and sends comments while nothing else is sent.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping, MutableMapping, Sequence
from typing import Any

import msgspec

from aguila.codec import decode_event, encode_event
from aguila.codec.downgrade import downgrade_event
from aguila.codec.negotiate import PROTOBUF_MEDIA_TYPE, SSE_MEDIA_TYPE
from aguila.codec.notice import Notice, log_notice
from aguila.codec.protobuf import ProtobufEncoder
from aguila.errors import CursorExpired, EncodeError, NotFound, StoreUnavailable
from aguila.protocol import PROTOCOL_VERSION, Event, RunErrorEvent
from aguila.store import Batch, Store

Message = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[Message]]
Send = Callable[[Message], Awaitable[None]]
Headers = Sequence[tuple[bytes, bytes]]

_ENDINGS = (b'{"type":"RUN_FINISHED"', b'{"type":"RUN_ERROR"')

# What 1.1 has and 1.0 has not; an event without these bytes is the same in both.
_NEWER = (b'"protocolVersion":', b'"encryptedValueType":')


def is_terminal(event: bytes) -> bool:
    """Whether a stored event ends its run. The type is always written first."""
    return event.startswith(_ENDINGS)


# Documents


async def respond(
    send: Send, status: int, body: bytes = b"", headers: Headers = (), *, media_type: bytes = b"application/json"
) -> None:
    """A whole answer."""
    head = [(b"content-length", b"%d" % len(body)), (b"x-content-type-options", b"nosniff"), *headers]
    if body:
        head.append((b"content-type", media_type))
    await send({"type": "http.response.start", "status": status, "headers": head})
    await send({"type": "http.response.body", "body": body})


async def respond_json(send: Send, value: Any, headers: Headers = (), status: int = 200) -> None:
    """A JSON value, or protocol objects, as an answer that no cache keeps."""
    await respond(send, status, msgspec.json.encode(value), [(b"cache-control", b"no-store"), *headers])


# Framing


class Framing:
    """Stored events as bytes of a response. ``peer`` is the protocol version that the reader declared, if any."""

    media_type: str
    heartbeat: bytes | None = None

    def __init__(self, peer: str | None = None) -> None:
        self.peer = peer
        self._is_ancient = peer is not None and peer.startswith("0")
        self._warned: set[str] = set()

    def batch(self, first: int, events: Sequence[bytes]) -> bytes:
        """Events of the log with their sequence numbers."""
        raise NotImplementedError

    def event(self, event: Event, number: int | None = None) -> bytes:
        """An event that is not in the log."""
        raise NotImplementedError

    def older(self, event: Event) -> Event | None:
        """An event as the reader's version has it."""
        return downgrade_event(event, self.peer, self._warn)

    def has_newer(self, body: bytes) -> bool:
        """Whether some of these bytes may need ``older``."""
        return self._is_ancient or any(mark in body for mark in _NEWER)

    def _warn(self, notice: Notice) -> None:
        if notice.rule + notice.message not in self._warned:  # once per stream, not once per token
            self._warned.add(notice.rule + notice.message)
            log_notice(notice)


class SSEFraming(Framing):
    """Server-sent events; the id is the sequence number. LF only (SSE-5)."""

    media_type = SSE_MEDIA_TYPE
    heartbeat = b":\n\n"

    def batch(self, first: int, events: Sequence[bytes]) -> bytes:
        """See ``Framing``."""
        body = b"".join([b"id: %d\ndata: %b\n\n" % pair for pair in enumerate(events, first)])
        if self.peer is None or not self.has_newer(body):
            return body
        return b"".join([self._translated(number, event) for number, event in enumerate(events, first)])

    def _translated(self, number: int, data: bytes) -> bytes:
        if self.has_newer(data):
            event = decode_event(data, strict=True)
            event = None if event is None else self.older(event)
            if event is None:
                return b""
            data = encode_event(event)
        return b"id: %d\ndata: %b\n\n" % (number, data)

    def event(self, event: Event, number: int | None = None) -> bytes:
        """See ``Framing``."""
        told = event if self.peer is None else self.older(event)
        if told is None:
            return b""
        data = encode_event(told)
        return b"data: %b\n\n" % data if number is None else b"id: %d\ndata: %b\n\n" % (number, data)


class ProtobufFraming(Framing):
    """Length-prefixed frames. This wire has neither ids nor comments."""

    media_type = PROTOBUF_MEDIA_TYPE

    def __init__(self, peer: str | None = None) -> None:
        super().__init__(peer)
        self._encoder = ProtobufEncoder(warn=self._warn)

    def batch(self, first: int, events: Sequence[bytes]) -> bytes:
        """See ``Framing``. Raises ``EncodeError`` for what this wire cannot carry."""
        decoded = (decode_event(data, strict=True) for data in events)
        return b"".join([self.event(event) for event in decoded if event is not None])

    def event(self, event: Event, number: int | None = None) -> bytes:
        """See ``Framing``."""
        told = event if self.peer is None else self.older(event)
        return b"" if told is None else self._encoder.encode(told)


def framing_for(media_type: str, declared: str | None = PROTOCOL_VERSION) -> Framing:
    """The framing for a reader that declared a protocol version; who declared none is from before 1.1."""
    peer = "1.0" if declared is None else declared
    framing = ProtobufFraming if media_type == PROTOBUF_MEDIA_TYPE else SSEFraming
    return framing(None if peer == PROTOCOL_VERSION else peer)


# Streams


class EventStream:
    """One response that streams events. ``produce`` writes it; ``break_off`` ends it from outside."""

    __slots__ = (
        "_broken", "_heartbeat", "_is_complete", "_is_sending", "_last_words", "_loop", "_send", "_sent_at", "_task",
        "framing",
    )  # fmt: skip

    def __init__(self, framing: Framing, heartbeat: float) -> None:
        self.framing = framing
        self._heartbeat = None if framing.heartbeat is None else heartbeat
        self._loop = asyncio.get_running_loop()
        self._broken = False
        self._is_complete = False
        self._is_sending = False
        self._last_words: bytes | None = None
        self._sent_at = self._loop.time()
        self._send: Send | None = None
        self._task: asyncio.Task[Any] | None = None

    async def serve(
        self,
        receive: Receive,
        send: Send,
        produce: Callable[[EventStream], Awaitable[None]],
        headers: Headers = (),
    ) -> None:
        """Send the head, what ``produce`` writes, and the end; returns early when the client hangs up."""
        self._send = send
        self._task = asyncio.current_task()
        await send(
            {
                "type": "http.response.start",
                "status": 200,
                "headers": [
                    (b"content-type", self.framing.media_type.encode()),
                    (b"cache-control", b"no-cache"),
                    (b"x-accel-buffering", b"no"),  # nginx and its kin would hold the stream back
                    *headers,
                ],
            }
        )
        listening = self._loop.create_task(self._listen(receive))
        try:
            await produce(self)
            if not self._is_complete:
                await self.write(b"", last=True)
        except asyncio.CancelledError:
            if not self._broken or self._task is None:
                raise
            self._task.uncancel()  # it was break_off, not somebody above us
            if self._last_words is not None:
                await self.write(self._last_words, last=True)
        finally:
            self._task = None
            listening.cancel()

    async def write(self, body: bytes, *, last: bool = False) -> None:
        """Send some whole frames; waits while the client is slow."""
        assert self._send is not None  # noqa: S101
        self._is_complete = last
        self._sent_at = self._loop.time()
        self._is_sending = True
        await self._send({"type": "http.response.body", "body": body, "more_body": not last})
        self._is_sending = False

    def break_off(self, event: bytes | None) -> None:
        """End the stream, with this event if there is one."""
        last_words = b""
        if event is not None:
            decoded = decode_event(event, strict=True)
            last_words = b"" if decoded is None else self.framing.event(decoded)
        self._break(last_words)

    def _break(self, last_words: bytes | None) -> None:
        if self._task is not None and not self._broken and not self._is_complete:
            self._broken = True
            self._last_words = last_words
            self._task.cancel()

    async def _listen(self, receive: Receive) -> None:
        """Hear the client hang up, and keep the connection alive."""
        while True:
            wait = None if self._heartbeat is None else self._sent_at + self._heartbeat - self._loop.time()
            try:
                async with asyncio.timeout(wait):
                    message = await receive()
            except TimeoutError:
                if not self._is_sending and self._loop.time() - self._sent_at >= (self._heartbeat or 0):
                    await self.write(self.framing.heartbeat or b"")
                continue
            if message["type"] == "http.disconnect":
                self._break(None)
                return


async def follow(
    stream: EventStream,
    store: Store,
    scope: str,
    thread_id: str,
    after: int,
    *,
    until: int | None = None,
    is_live: bool,
    fails_in_band: bool = True,
) -> None:
    """Write the log after a sequence number: up to ``until``, and then, if ``is_live``, up to the end of the run.

    When the log cannot be read any more, the stream ends with RUN_ERROR if ``fails_in_band``. Otherwise it is cut
    short, and the reader may come back with its last id.
    """
    framing = stream.framing
    try:
        while until is not None and after < until:
            batches = await store.read(scope, thread_id, after, until=until)
            if not batches:
                break
            after = batches[-1].last
            body = b"".join([framing.batch(batch.first, batch.events) for batch in batches])
            await stream.write(body, last=not is_live and after >= until)
        if is_live:
            await _tail(stream, store, scope, thread_id, after)
    except (StoreUnavailable, NotFound, CursorExpired, EncodeError) as error:
        if isinstance(error, EncodeError):
            ending = RunErrorEvent(message="This transport cannot carry an event of the run.", code="not_encodable")
        else:
            ending = RunErrorEvent(message="The run can no longer be followed.", code="store_unavailable")
        if fails_in_band or isinstance(error, EncodeError):
            await stream.write(framing.event(ending), last=True)


async def _tail(stream: EventStream, store: Store, scope: str, thread_id: str, after: int) -> None:
    tail: Any = store.tail(scope, thread_id, after)
    try:
        batch: Batch
        async for batch in tail:
            is_last = is_terminal(batch.events[-1])
            await stream.write(stream.framing.batch(batch.first, batch.events), last=is_last)
            if is_last:
                return
    finally:
        await tail.aclose()


def header_list(headers: Mapping[str, str]) -> list[tuple[bytes, bytes]]:
    """Headers as ASGI has them."""
    return [(name.encode("latin-1"), value.encode("latin-1")) for name, value in headers.items()]
