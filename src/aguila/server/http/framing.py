"""Frame events as the bytes of one response: SSE or protobuf, in the dialect of the reader.

Stored events are JSON already. They are decoded only if the dialect changes them.
"""

from __future__ import annotations

import re
from abc import ABC, abstractmethod
from collections.abc import Iterator, Sequence
from contextlib import nullcontext
from functools import cache
from typing import Any

import msgspec
from msgspec.structs import replace

from aguila.codec import decode_event, encode_event
from aguila.codec.dialects import CURRENT, Dialect, Link, Translator
from aguila.codec.dialects.translator import translated_types
from aguila.codec.json.bounded_floats import json_decoder
from aguila.codec.json.encoder import encode_large
from aguila.codec.logs import RunLogContext
from aguila.codec.negotiate import PROTOBUF_MEDIA_TYPE, SSE_MEDIA_TYPE
from aguila.codec.notices import Notice, Warn, log_notice
from aguila.codec.protobuf import ProtobufEncoder, has_protobuf
from aguila.codec.sse import SSEEncoder
from aguila.offload import LARGE
from aguila.protocol import Event
from aguila.server.http.documents import event_pieces
from aguila.server.http.sequencer import Payload, Sequencer
from aguila.server.limits import UNLIMITED, Limits
from aguila.server.runs.event_encoding import is_large_event
from aguila.store import Batch
from aguila.store.cursors import format_cursor
from aguila.stream.patch import apply_patch

_STARTED = b'{"type":"RUN_STARTED"'
_STATE_DELTA = b'{"type":"STATE_DELTA"'
_ATTRIBUTION = b'"subagentRunId":'

# The members that 1.1 has and 1.0 does not have. An event without these bytes is the same in both versions.
_VERSION = b'"protocolVersion":'
_ENCRYPTED = b'"encryptedValueType":'

_SSE = SSEEncoder()
_MAX_HELD = Limits().held
_ID_LINE = re.compile(rb"^id: [^\n]*\n", re.MULTILINE)


class Framing(ABC):
    """Frames events for one response, in the dialect of its reader.

    ``link`` returns the URL of a file that the reader may download. ``max_held`` bounds the bytes that are held back
    from a reader that gets one text and one tool call at a time.
    """

    media_type: str
    heartbeat: bytes | None = None
    """A comment that keeps an idle stream alive; None if the media type has no comments."""

    def __init__(self, dialect: Dialect = CURRENT, link: Link | None = None, *, max_held: int = _MAX_HELD) -> None:
        self.dialect = dialect
        self.sequencer = None if dialect.parallel_items else Sequencer(max_held)
        self.translator = (
            None if dialect.is_current else Translator(dialect, link=link, apply_patch=apply_patch, warn=self._warn)
        )
        self.warn: Warn = log_notice
        self.log_context: RunLogContext | None = None
        """The thread and the run that are logged with notices about this stream."""
        self._changed_types = None if dialect.is_current else _match_changed_types(dialect)
        self._warned: set[str] = set()

    @abstractmethod
    def frame_batch(self, first: int, events: Sequence[bytes], token: str = "") -> bytes:
        """Frame stored events; ``first`` is the sequence number of the first one, ``token`` that of the batch."""

    def frame_large(self, number: int, event: bytes, token: str = "") -> tuple[bytes, ...]:
        """Frame one large stored event. It is returned in pieces, so that it is not copied into a frame."""
        return (self.frame_batch(number, [event], token),)

    @abstractmethod
    def frame_events(self, events: Sequence[Event], cursor: str | None = None) -> bytes:
        """Frame events that are not in the log. The last frame gets the cursor."""

    def frame_pieces(self, events: Sequence[Event], cursor: str | None = None) -> Iterator[bytes]:
        """Frame events as ``frame_events`` does, and yield pieces of the frames. An event is encoded when it is due."""
        yield self.frame_events(events, cursor)

    @property
    def needs_past(self) -> bool:
        """Whether ``observe`` has to be called for a reader that resumes within a run."""
        return self.sequencer is not None

    def observe(self, batch: Batch) -> None:
        """Apply stored events that the reader has already received, from the first one of the run on."""
        if self.sequencer is not None:
            self.sequencer.observe(batch.first, batch.events, batch.token)

    def frame_event(self, event: Event) -> bytes:
        """Frame one event that is not in the log."""
        return self.frame_events([event])

    def stored_run_id(self, run_id: str) -> str:
        """Return the run id in the log for a run id that the reader sees."""
        return run_id

    def needs_state(self, event: bytes) -> bool:
        """Return whether ``translator.supply_state`` has to be called before this event is framed."""
        return event.startswith(_STATE_DELTA) and self.translator is not None and self.translator.needs_state

    def try_frame_batch(self, batch: Batch) -> bytes | None:
        """Frame stored events; return None if ``needs_state`` may become true for one of them."""
        if self._may_need_state(batch.events):
            return None
        return self.frame_batch(batch.first, batch.events, batch.token)

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

    def _is_unchanged(self, body: bytes) -> bool:
        """Return whether the dialect changes nothing in stored events. ``body`` is their JSON, or their SSE frames."""
        if self._changed_types is None:
            return True
        if self.dialect.protocol_version == "1.0":
            return _VERSION not in body and _ENCRYPTED not in body
        return (self.dialect.subagents or _ATTRIBUTION not in body) and self._changed_types.search(body) is None

    def _warn(self, notice: Notice) -> None:
        if notice.rule + notice.message not in self._warned:  # once per stream, not once per token
            self._warned.add(notice.rule + notice.message)
            with nullcontext() if self.log_context is None else self.log_context:
                self.warn(notice)


@cache
def _match_changed_types(dialect: Dialect) -> re.Pattern[bytes]:
    """Compile a pattern for the event types that a dialect may change. It starts with fixed text, which is fast."""
    return re.compile(b'\\{"type":"(?:' + "|".join(translated_types(dialect)).encode() + b')"')


class EncodedFraming(Framing):
    """Base of the framings of a media type: translates events, and sends them in the order that the reader needs."""

    def frame_batch(self, first: int, events: Sequence[bytes], token: str = "") -> bytes:
        """See ``Framing``."""
        if self.sequencer is None or self.sequencer.pass_on(first, events, token):
            return self._frame_in_order(first, events, token)
        return b"".join(
            [frame for number, event in enumerate(events, first) for frame in self._frame_next(number, event, token)]
        )

    def frame_large(self, number: int, event: bytes, token: str = "") -> tuple[bytes, ...]:
        """See ``Framing``."""
        if self.sequencer is None or self.sequencer.pass_on(number, [event], token):
            return self._frame_large_in_order(number, event, token)
        return tuple(self._frame_next(number, event, token))

    def frame_events(self, events: Sequence[Event], cursor: str | None = None) -> bytes:
        """See ``Framing``."""
        payloads, cursor = self._arrange(events, cursor)
        return self._frame([document for payload in payloads for document in self._documents(payload)], cursor)

    @abstractmethod
    def _frame_in_order(self, first: int, events: Sequence[bytes], token: str) -> bytes:
        """Frame stored events in the order of the log."""

    def _frame_large_in_order(self, number: int, event: bytes, token: str) -> tuple[bytes, ...]:
        return (self._frame_in_order(number, [event], token),)

    @abstractmethod
    def _frame(self, documents: Sequence[bytes], cursor: str | None) -> bytes:
        """Frame documents. The last frame gets the cursor."""

    @abstractmethod
    def _translate_stored(self, data: bytes) -> list[bytes]:
        """Translate a stored event into the documents that the reader receives: none, one or several."""

    @abstractmethod
    def _encode(self, event: Any) -> bytes:
        """Encode a translated event."""

    def _documents(self, payload: Payload) -> Sequence[bytes]:
        if isinstance(payload, Sequence):
            return payload
        return [self._encode(event) for event in self._translate([payload])]

    def _frame_next(self, number: int, event: bytes, token: str) -> Iterator[bytes]:
        """Frame what may be sent after the next stored event, which may be held back."""
        assert self.sequencer is not None  # noqa: S101
        # Translated in the order of the log, because a translation may depend on the events before.
        for sent in self.sequencer.feed(event, self._translate_stored(event), format_cursor(number, token)):
            yield self._frame([document for one in sent.payloads for document in self._documents(one)], sent.id)

    def _arrange(self, events: Sequence[Event], cursor: str | None) -> tuple[Sequence[Payload], str | None]:
        """Return what may be sent for events that are not in the log, and the cursor if nothing is held back."""
        if self.sequencer is None:
            return events, cursor
        sent = [one for event in events for one in self.sequencer.feed(event, event)]
        if not self.sequencer.is_in_order:
            cursor = None
        self.sequencer.finish(cursor)
        return [payload for one in sent for payload in one.payloads], cursor


class SSEFraming(EncodedFraming):
    """Server-sent events; the id is the cursor. LF only (SSE-5).

    If the dialect turns one event into several frames, the last frame has the id. If it drops an event, no frame has
    the id of that event. If a reader resumes from an earlier id, the event is translated again, and dropped again.
    """

    media_type = SSE_MEDIA_TYPE
    heartbeat = _SSE.comment()

    def _frame_in_order(self, first: int, events: Sequence[bytes], token: str) -> bytes:
        body = _SSE.frame_log(first, events, f"-{token}" if token else "")
        if self.translator is None or self._is_unchanged(body):
            return body
        return b"".join(
            [
                _SSE.frame(self._translate_stored(event), format_cursor(number, token))
                for number, event in enumerate(events, first)
            ]
        )

    def _frame_large_in_order(self, number: int, event: bytes, token: str) -> tuple[bytes, ...]:
        return _SSE.frame_in_pieces(self._translate_stored(event), format_cursor(number, token))

    def frame_pieces(self, events: Sequence[Event], cursor: str | None = None) -> Iterator[bytes]:
        """See ``Framing``."""
        payloads, cursor = self._arrange(events, cursor)
        translated: list[Any] = [
            one
            for payload in payloads
            for one in (payload if isinstance(payload, Sequence) else self._translate([payload]))
        ]
        for at, event in enumerate(translated, 1):
            start, _, end = _SSE.frame([b"@"], cursor if at == len(translated) else None).rpartition(b"@")
            yield start
            yield from [event] if isinstance(event, bytes) else event_pieces(event)
            yield end

    def _frame(self, documents: Sequence[bytes], cursor: str | None) -> bytes:
        return _SSE.frame(documents, cursor)

    def _encode(self, event: Any) -> bytes:
        return encode_large(event) if is_large_event(event) else encode_event(event)

    def _translate_stored(self, data: bytes) -> list[bytes]:
        """Translate a stored event into the JSON documents that the reader receives: none, one or several."""
        if self._is_unchanged(data):
            return [data]
        if self.dialect.protocol_version == "1.0" and data.startswith(_STARTED) and not _has_free_members(data):
            # Nearly always the only change for 1.0, so the event need not be decoded. No string can contain these
            # bytes, because its quotes would be escaped.
            return [data.replace(b'"protocolVersion":"1.1"', b'"protocolVersion":"1.0"', 1)]
        if self.dialect.protocol_version == "own" and data.startswith(_STARTED) and not _has_free_members(data):
            if self.translator is not None:  # the event itself stays as it is
                self.translator.start_run(_decode_started(data).run_id)
            return [data]
        event = decode_event(data, strict=True, max_size=UNLIMITED)
        if event is None:
            return []
        encode_one = encode_large if len(data) > LARGE else encode_event
        return [data if one is event else encode_one(one) for one in self._translate([event])]


class _Started(msgspec.Struct, rename="camel"):
    run_id: str


_decode_started = json_decoder(_Started).decode


def _has_free_members(started: bytes) -> bool:
    """Return whether a RUN_STARTED has members that may contain any JSON."""
    return b'"input":' in started or b'"metadata":' in started or b'"rawEvent":' in started


class ProtobufFraming(EncodedFraming):
    """Length-prefixed protobuf frames, which have neither ids nor comments."""

    media_type = PROTOBUF_MEDIA_TYPE

    def __init__(self, dialect: Dialect = CURRENT, link: Link | None = None, *, max_held: int = _MAX_HELD) -> None:
        without = replace(dialect, reasoning="none") if dialect.reasoning == "thinking" else dialect
        super().__init__(without, link, max_held=max_held)
        self._encoder = ProtobufEncoder(warn=self._warn)

    def _frame_in_order(self, first: int, events: Sequence[bytes], token: str) -> bytes:
        """See ``Framing``. Raises ``EncodeError`` for an event that protobuf cannot carry."""
        return b"".join([document for event in events for document in self._translate_stored(event)])

    def _frame(self, documents: Sequence[bytes], cursor: str | None) -> bytes:
        return b"".join(documents)

    def _translate_stored(self, data: bytes) -> list[bytes]:
        event = decode_event(data, strict=True, max_size=UNLIMITED)
        return [] if event is None else [self._encode(one) for one in self._translate([event])]

    def _encode(self, event: Any) -> bytes:
        return self._encoder.encode(event)


class WrappedFraming(Framing):
    """Base of framings that change events or frames, and leave the rest to an inner framing."""

    def __init__(self, framing: Framing) -> None:
        super().__init__()
        self.media_type = framing.media_type
        self.heartbeat = framing.heartbeat
        self.dialect = framing.dialect
        self.translator = framing.translator
        self.sequencer = framing.sequencer
        self.inner = framing


class FramingWithoutIds(WrappedFraming):
    """Omits the ``id:`` lines, for a run that is not stored and so has no cursor."""

    def frame_batch(self, first: int, events: Sequence[bytes], token: str = "") -> bytes:
        """See ``Framing``."""
        body = self.inner.frame_batch(first, events)
        # Every line of SSE data starts with "data: ", so an id line is never part of an event.
        return body if self.media_type != SSE_MEDIA_TYPE else _ID_LINE.sub(b"", body)

    def frame_events(self, events: Sequence[Event], cursor: str | None = None) -> bytes:
        """See ``Framing``."""
        return self.inner.frame_events(events)


def framing_for(
    media_type: str, dialect: Dialect = CURRENT, link: Link | None = None, *, max_held: int = _MAX_HELD
) -> Framing:
    """Return the framing for a reader that accepts ``media_type`` in this dialect.

    Without the protobuf extra it is always SSE, which every client reads (PB-2).
    """
    if media_type == PROTOBUF_MEDIA_TYPE and has_protobuf():
        return ProtobufFraming(dialect, link, max_held=max_held)
    return CURRENT_SSE if dialect.is_current else SSEFraming(dialect, link, max_held=max_held)


CURRENT_SSE = SSEFraming()
"""The framing of all readers of the current version. Without a translator it has no state."""
