"""Frame events as the bytes of one response: SSE or protobuf, in the dialect of the reader.

Stored events are JSON already. They are decoded only if the dialect changes them.
"""

from __future__ import annotations

import re
from abc import ABC, abstractmethod
from collections.abc import Iterable, Iterator, Sequence
from contextlib import nullcontext
from functools import cache
from typing import TYPE_CHECKING, Any
from urllib.parse import quote

import msgspec
from msgspec.structs import replace

from aguila.agent.chat_values import FILE_PROVIDER
from aguila.codec import decode_event, encode_event
from aguila.codec.dialects import CURRENT, Dialect, Link, Translator, dialect_of
from aguila.codec.dialects.translator import translated_types
from aguila.codec.logs import use_log_context
from aguila.codec.negotiate import PROTOBUF_MEDIA_TYPE, SSE_MEDIA_TYPE, negotiate
from aguila.codec.notices import Notice, Warn, log_notice
from aguila.codec.protobuf import ProtobufEncoder, has_protobuf
from aguila.codec.sse import SSEEncoder
from aguila.protocol import PROTOCOL_VERSION, Event, FileSource, RunFinishedEvent, RunStartedEvent
from aguila.server.config.errors import draining_error
from aguila.server.config.limits import UNLIMITED, is_encodable
from aguila.server.http.request import Request, root_url
from aguila.server.http.responses import event_pieces
from aguila.server.http.sequencer import Payload, Sequencer
from aguila.store import Batch
from aguila.store.cursors import format_cursor
from aguila.stream.patch import apply_patch
from aguila.stream.version import consumer_version_notice

if TYPE_CHECKING:
    from aguila.server.http.service import Service

_STARTED = b'{"type":"RUN_STARTED"'
_STATE_DELTA = b'{"type":"STATE_DELTA"'
_ATTRIBUTION = b'"subagentRunId":'

# The members that 1.1 has and 1.0 does not have. An event without these bytes is the same in both versions.
_VERSION = b'"protocolVersion":'
_ENCRYPTED = b'"encryptedValueType":'

_SSE = SSEEncoder()
_MAX_HELD = 256 * 1024
"""Bytes that are held back from a reader that gets one text and one tool call at a time."""
_BOUNDARIES = (_STARTED, b'{"type":"RUN_FINISHED"')


class Framing(ABC):
    """Frames events for one response, in the dialect of its reader, and in the order that the reader needs.

    ``link`` returns the URL of a file that the reader may download.
    """

    media_type: str
    heartbeat: bytes | None = None
    """A comment that keeps an idle stream alive; None if the media type has no comments."""

    def __init__(self, dialect: Dialect = CURRENT, link: Link | None = None) -> None:
        self.dialect = dialect
        self.sequencer = None if dialect.parallel_items else Sequencer(_MAX_HELD)
        self.translator = (
            None if dialect.is_current else Translator(dialect, link=link, apply_patch=apply_patch, warn=self._warn)
        )
        self.needs_past = self.sequencer is not None
        """Whether ``observe`` has to be called for a reader that resumes within a run."""
        self.warn: Warn = log_notice
        self.log_ids: tuple[str, str | None] | None = None
        """The thread and the run that are logged with notices about this stream."""
        self.run_ids: tuple[str, str] | None = None
        """The stored id of the run and the id that was sent, if the reader sees that one instead (IN-3)."""
        self.has_ids = True
        """Whether frames have ids. A run that is not stored has no cursors."""
        self._changed_types = None if dialect.is_current else _match_changed_types(dialect)
        self._warned: set[str] = set()

    # Stored events

    def frame_batch(self, first: int, events: Sequence[bytes], token: str = "") -> bytes:
        """Frame stored events; ``first`` is the sequence number of the first one, ``token`` that of the batch."""
        frames = [
            self._frame(documents, cursor)
            for number, event in enumerate(events, first)
            for documents, cursor in self._documents_of_stored(number, event, token)
        ]
        return b"".join(frames)

    def frame_large(self, number: int, event: bytes, token: str) -> Sequence[bytes]:
        """Frame one stored event as ``frame_batch`` does, but return pieces: an event is not copied into its frame.

        Many readers that stall hold the same event then, not a copy each.
        """
        return [self.frame_batch(number, [event], token)]

    def observe(self, batch: Batch) -> None:
        """Apply stored events that the reader has already received, from the first one of the run on."""
        if self.sequencer is not None:
            self.sequencer.observe(batch.first, batch.events, batch.token)

    def needs_state(self, event: bytes) -> bool:
        """Return whether ``translator.supply_state`` has to be called before this event is framed."""
        return event.startswith(_STATE_DELTA) and self.translator is not None and self.translator.needs_state

    def may_need_state(self, events: Sequence[bytes]) -> bool:
        """Return whether ``needs_state`` may become true for one of these events."""
        if self.translator is None or not self.dialect.state_baseline:
            return False
        if not self.translator.needs_state and not any(event.startswith(_STARTED) for event in events):
            return False
        return any(event.startswith(_STATE_DELTA) for event in events)

    # Events that are not in the log

    def frame_event(self, event: Event) -> bytes:
        """Frame one event that is not in the log."""
        return self.frame_events([self.rename(event)])

    def frame_events(self, events: Sequence[Event], cursor: str | None = None) -> bytes:
        """Frame events that are not in the log. The last frame gets the cursor."""
        payloads, cursor = self._arrange(events, cursor)
        return self._frame([document for payload in payloads for document in self._documents(payload)], cursor)

    def frame_pieces(self, events: Sequence[Event], cursor: str | None = None) -> Iterator[bytes]:
        """Frame events as ``frame_events`` does, and yield pieces of the frames. An event is encoded when it is due."""
        yield self.frame_events(events, cursor)

    # The run id that was sent

    def stored_run_id(self, run_id: str) -> str:
        """Return the run id in the log for a run id that the reader sees."""
        return self.run_ids[0] if self.run_ids is not None and run_id == self.run_ids[1] else run_id

    def rename(self, event: Event) -> Event:
        """Return an event with the run id that was sent in place of the stored one."""
        if self.run_ids is None or not isinstance(event, RunStartedEvent | RunFinishedEvent):
            return event
        stored, sent = self.run_ids
        if event.run_id != stored:
            return event
        if isinstance(event, RunStartedEvent) and event.input is not None:
            return replace(event, run_id=sent, input=replace(event.input, run_id=sent))
        return replace(event, run_id=sent)

    def rename_stored(self, data: bytes) -> bytes:
        """Return a stored event as ``rename`` does."""
        if self.run_ids is None or not data.startswith(_BOUNDARIES):
            return data
        stored, sent = (b'"runId":' + msgspec.json.encode(one) for one in self.run_ids)
        if data.count(stored) == 1:  # no string can hold these bytes: its quotes would be escaped
            return data.replace(stored, sent)
        event = decode_event(data, strict=True, max_size=UNLIMITED)  # an echoed input and metadata can hold them
        return data if event is None else encode_event(self.rename(event))

    # The media type

    @abstractmethod
    def _frame(self, documents: Sequence[bytes], cursor: str | None) -> bytes:
        """Frame documents. The last frame gets the cursor."""

    @abstractmethod
    def _translate_stored(self, data: bytes) -> list[bytes]:
        """Translate a stored event into the documents that the reader receives: none, one or several."""

    @abstractmethod
    def _encode(self, event: Any) -> bytes:
        """Encode a translated event."""

    def _translate(self, events: Sequence[Event]) -> list[Any]:
        translator = self.translator
        return list(events) if translator is None else [one for event in events for one in translator.feed(event)]

    def _documents_of_stored(
        self, number: int, event: bytes, token: str
    ) -> Iterable[tuple[Sequence[bytes], str | None]]:
        """Return the documents to send now that a stored event has come, each group with its cursor."""
        # In the order of the log, because a translation may depend on the events before.
        documents, cursor = self._translate_stored(self.rename_stored(event)), format_cursor(number, token)
        if self.sequencer is None:
            return [(documents, cursor)]
        return [
            ([document for payload in sent.payloads for document in self._documents(payload)], sent.id)
            for sent in self.sequencer.feed(event, documents, cursor)
        ]

    def _documents(self, payload: Payload) -> Sequence[bytes]:
        if isinstance(payload, Sequence):
            return payload
        return [self._encode(event) for event in self._translate([payload])]

    def _arrange(self, events: Sequence[Event], cursor: str | None) -> tuple[Sequence[Payload], str | None]:
        """Return what may be sent for events that are not in the log, and the cursor if nothing is held back."""
        if self.sequencer is None:
            return events, cursor
        sent = [one for event in events for one in self.sequencer.feed(event, event)]
        if not self.sequencer.is_in_order:
            cursor = None
        self.sequencer.finish(cursor)
        return [payload for one in sent for payload in one.payloads], cursor

    def _is_unchanged(self, event: bytes) -> bool:
        """Return whether the dialect changes nothing in a stored event."""
        if self._changed_types is None:
            return True
        if self.dialect.protocol_version == "1.0":
            return _VERSION not in event and _ENCRYPTED not in event
        return (self.dialect.subagents or _ATTRIBUTION not in event) and self._changed_types.search(event) is None

    def _warn(self, notice: Notice) -> None:
        if notice.rule + notice.message not in self._warned:  # once per stream, not once per token
            self._warned.add(notice.rule + notice.message)
            with nullcontext() if self.log_ids is None else use_log_context(*self.log_ids):
                self.warn(notice)


@cache
def _match_changed_types(dialect: Dialect) -> re.Pattern[bytes]:
    """Compile a pattern for the event types that a dialect may change. It starts with fixed text, which is fast."""
    return re.compile(b'\\{"type":"(?:' + "|".join(translated_types(dialect)).encode() + b')"')


class SSEFraming(Framing):
    """Server-sent events; the id is the cursor. LF only (SSE-5).

    If the dialect turns one event into several frames, the last frame has the id. If it drops an event, no frame has
    the id of that event. If a reader resumes from an earlier id, the event is translated again, and dropped again.
    """

    media_type = SSE_MEDIA_TYPE
    heartbeat = _SSE.comment()

    def frame_batch(self, first: int, events: Sequence[bytes], token: str = "") -> bytes:
        if self.translator is not None or self.sequencer is not None or self.run_ids is not None or not self.has_ids:
            return super().frame_batch(first, events, token)
        form = b"id: %%d-%b\ndata: %%b\n\n" % token.encode() if token else b"id: %d\ndata: %b\n\n"
        return b"".join([form % pair for pair in enumerate(events, first)])  # as the log has them

    def frame_large(self, number: int, event: bytes, token: str) -> Sequence[bytes]:
        return [
            piece
            for documents, cursor in self._documents_of_stored(number, event, token)
            for piece in self._pieces(documents, cursor)
        ]

    def frame_pieces(self, events: Sequence[Event], cursor: str | None = None) -> Iterator[bytes]:
        payloads, cursor = self._arrange(events, cursor)
        translated: list[Any] = [
            one
            for payload in payloads
            for one in (payload if isinstance(payload, Sequence) else self._translate([payload]))
        ]
        yield from self._pieces(translated, cursor)

    def _pieces(self, documents: Sequence[bytes | Event], cursor: str | None) -> Iterator[bytes]:
        for at, one in enumerate(documents, 1):
            start, _, end = self._frame([b"@"], cursor if at == len(documents) else None).rpartition(b"@")
            yield start
            yield from [one] if isinstance(one, bytes) else event_pieces(one)
            yield end

    def _frame(self, documents: Sequence[bytes], cursor: str | None) -> bytes:
        return _SSE.frame(documents, cursor if self.has_ids else None)

    def _encode(self, event: Any) -> bytes:
        return encode_event(event)

    def _translate_stored(self, data: bytes) -> list[bytes]:
        """Translate a stored event into the JSON documents that the reader receives: none, one or several."""
        if self._is_unchanged(data):
            return [data]
        event = decode_event(data, strict=True, max_size=UNLIMITED)
        if event is None:
            return []
        return [data if one is event else encode_event(one) for one in self._translate([event])]


class ProtobufFraming(Framing):
    """Length-prefixed protobuf frames, which have neither ids nor comments.

    Raises ``EncodeError`` for an event that protobuf cannot carry.
    """

    media_type = PROTOBUF_MEDIA_TYPE

    def __init__(self, dialect: Dialect = CURRENT, link: Link | None = None) -> None:
        # What its schema lacks: THINKING_* events and ``binary`` parts.
        if dialect.reasoning == "thinking":
            dialect = replace(dialect, reasoning="none")
        if dialect.user_parts == "binary":
            dialect = replace(dialect, user_parts="text")
        super().__init__(dialect, link)
        self._encoder = ProtobufEncoder(warn=self._warn)

    def _frame(self, documents: Sequence[bytes], cursor: str | None) -> bytes:
        return b"".join(documents)

    def _translate_stored(self, data: bytes) -> list[bytes]:
        event = decode_event(data, strict=True, max_size=UNLIMITED)
        return [] if event is None else [self._encode(one) for one in self._translate([event])]

    def _encode(self, event: Any) -> bytes:
        return self._encoder.encode(event)


def framing_for(media_type: str, dialect: Dialect = CURRENT, link: Link | None = None) -> Framing:
    """Return the framing for a reader that accepts ``media_type`` in this dialect.

    Without the protobuf extra it is always SSE, which every client reads (PB-2).
    """
    if media_type == PROTOBUF_MEDIA_TYPE and has_protobuf():
        return ProtobufFraming(dialect, link)
    return SSEFraming(dialect, link)


CURRENT_SSE = SSEFraming()
"""The framing of all readers of the current version. Without a translator it has no state."""


def select_framing(
    service: Service, request: Request, declared: str | None, thread_id: str, run_id: str | None = None
) -> Framing:
    """Return the framing for the accepted media type and the protocol version that the reader declared.

    Notices about the response name the thread and the run. Raises ``Rejected`` (503) if the streams were closed:
    another stream would keep the server from stopping.
    """
    if service.streams.is_closed:
        raise draining_error()
    accept = request.headers.get("accept")
    # A reader that declares no version gets protobuf only if it accepts nothing else: the protobuf decoders of
    # ``@ag-ui/client`` 0.0.40 to 0.0.59 cannot read all tools, reasoning and activities.
    media_type = SSE_MEDIA_TYPE if accept is None else negotiate(accept, prefers_sse=declared is None)
    if declared == PROTOCOL_VERSION and media_type == SSE_MEDIA_TYPE:
        return CURRENT_SSE
    notice = None if declared is None else consumer_version_notice(declared)
    if notice is not None:
        service.warn(notice)
    for front_end in service.front_ends:
        if front_end.header in request.headers or (front_end.parameter and front_end.parameter in request.query):
            framing = front_end.frame(request, declared)
            if framing is not None:
                return framing
    framing = framing_for(media_type, dialect_of(declared, service.undeclared), _link(service, request))
    framing.warn = service.warn
    framing.log_ids = (thread_id, run_id)
    return framing


def _link(service: Service, request: Request) -> Link | None:
    """Return a function that makes the URL of an upload; None if the caller may not download files."""
    if not service.access.grants_ownership:
        return None
    root = root_url(request)

    def link(source: FileSource) -> str | None:
        if source.provider not in (None, FILE_PROVIDER) or not is_encodable(source.value):
            return None  # no stored id has a lone surrogate
        return f"{root}/files/{quote(source.value)}"

    return link
