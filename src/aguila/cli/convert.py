"""``aguila convert`` and ``aguila compact``: convert streams between file formats, and shorten them.

Between SSE, JSON lines and a JSON array, events are passed on unchanged, with unknown members and in any order.
Otherwise this is lost:

==============================  ====================================================================================
from or to                      lost
==============================  ====================================================================================
from SSE                        ids, comments, other fields
from a recording                inputs and timing, and the boundaries between streams
to protobuf                     what that format cannot carry (``aguila.codec.protobuf``), with a notice
compacted                       the pieces of the stream, chunks, timing; never the meaning
==============================  ====================================================================================
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any

import msgspec

from aguila.cli.http_caller import CannotRun
from aguila.codec import EventDecoder, decode, encode, encode_event
from aguila.codec.formats import Format
from aguila.codec.json.bounded_floats import decode_json
from aguila.codec.notices import Notice, Warn
from aguila.codec.protobuf import ProtobufEncoder
from aguila.codec.sse import SSEEncoder
from aguila.errors import AguilaError, DecodeError, EncodeError, ProtocolError
from aguila.protocol import Event, RunAgentInput
from aguila.stream import compact
from aguila.testing.recordings import RecordedStream, read_streams


class CannotConvert(AguilaError):
    """The file has an event that cannot be converted; the message says where."""


def convert(data: bytes, source: Format, target: Format, *, warn: Warn) -> bytes:
    """Convert a stream from one format to another. Raise ``CannotConvert``."""
    streams = _read(data, source)
    if target == "protobuf":
        return written(_typed(streams, warn), target, warn)
    texts = (_valid(event.data, event.index) for stream in streams for event in stream.events)
    if target == "sse":
        encoder = SSEEncoder()
        return b"".join([encoder.encode_json(text) for text in texts])
    lines = [text.replace(b"\n", b" ").replace(b"\r", b" ") for text in texts]
    return _as_lines(lines) if target == "jsonl" else _as_array(lines)


def compacted(data: bytes, source: Format, target: Format, *, warn: Warn) -> tuple[bytes, int, int]:
    """Return the shortest stream with the same meaning, and the number of events before and after."""
    streams = _read(data, source)
    events = list(_typed(streams, warn))
    given = _state_of(streams[0].input)
    try:
        shorter = compact(events, warn=warn) if given is None else compact(events, state=given, warn=warn)
    except ProtocolError as error:
        raise CannotConvert(f"{error}; aguila check reports all violations") from None
    return written(shorter, target, warn), len(events), len(shorter)


def written(events: Iterable[Event], target: Format, warn: Warn) -> bytes:
    """Encode events in a format. Raise ``CannotConvert`` for one that the format cannot carry."""
    try:
        if target == "sse":
            return SSEEncoder().encode_many(events)
        if target == "protobuf":
            encoder = ProtobufEncoder(warn=warn)
            return b"".join([encoder.encode(event) for event in events])
        lines = [encode_event(event) for event in events]
    except EncodeError as error:
        raise CannotConvert(f"an event cannot be written as {target}: {error}") from None
    return _as_lines(lines) if target == "jsonl" else _as_array(lines)


def _read(data: bytes, source: Format) -> list[RecordedStream]:
    streams = read_streams(data, source)
    for stream in streams:
        for finding in stream.findings:
            if finding.level == "error":
                raise CannotConvert(f"{finding}; aguila check reports all violations")
    # An SSE reader skips lines that it does not know, so that any text reads as a stream without events.
    if not any(stream.events for stream in streams) and any(stream.findings for stream in streams):
        raise CannotConvert(f"not a stream of events: read as {source}, it has no event; name its format with --from")
    return streams


def _typed(streams: list[RecordedStream], warn: Warn) -> Iterator[Event]:
    for stream in streams:
        decoder = EventDecoder(warn=warn)
        for event in stream.events:
            try:
                yield from decoder.feed(event.data)
            except DecodeError as error:
                error.index = event.index
                raise CannotConvert(f"{error}; aguila check reports all violations") from None


def _valid(text: bytes, index: int) -> bytes:
    try:
        decode_json(text, _AnyEvent)
    except (msgspec.DecodeError, UnicodeError, RecursionError) as error:
        raise CannotConvert(f"event {index}: not an event (a JSON object with a type): {error}") from None
    return text


class _AnyEvent(msgspec.Struct):
    """An event of a type that may be unknown to us."""

    type: str


def _state_of(given: Any) -> Any:
    """Return the state in a recorded input; None if there is none."""
    if given is None:
        return None
    try:
        return decode(encode(given), RunAgentInput, warn=_quiet).state
    except DecodeError:
        return None


def _quiet(notice: Notice) -> None:
    """Ignore a notice: the input is not converted."""


def _as_lines(texts: list[bytes]) -> bytes:
    return b"".join([text + b"\n" for text in texts])


def _as_array(texts: list[bytes]) -> bytes:
    return b"[\n" + b",\n".join(texts) + b"\n]\n" if texts else b"[]\n"


__all__ = ["CannotConvert", "CannotRun", "compacted", "convert", "written"]
