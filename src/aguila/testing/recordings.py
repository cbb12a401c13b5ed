"""Read streams from files: SSE, JSON lines, a JSON array, protobuf frames, or a recording.

Events are returned as the JSON that was sent, unchecked. Errors of the framing are findings.

A recording (``aguila record``, ``aguila.client.Record``) is JSON lines of ``{"ms": 0, "input": {...}}``, which start a
stream, and ``{"ms": 12, "event": {...}}``. JSON lines without inputs are one stream.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import msgspec

from aguila.codec.formats import Format
from aguila.codec.notices import Notice
from aguila.codec.protobuf import OversizedFrame, ProtobufFrames, decode_frame
from aguila.codec.sse import SSEParser
from aguila.errors import DecodeError, StreamTruncated
from aguila.testing.checker import Finding
from aguila.testing.plurals import counted

_BOM = b"\xef\xbb\xbf"
_FIELDS = frozenset({b"data", b"id", b"event", b"retry"})


class RecordedEvent(msgspec.Struct, frozen=True):
    """One event as JSON: its place in the stream, and milliseconds since the start if they are known."""

    index: int
    data: bytes
    ms: float | None = None


class RecordedStream(msgspec.Struct, kw_only=True):
    """One stream: its input, if that is known, its events, and the findings about its framing."""

    input: Any = None
    events: list[RecordedEvent] = []
    findings: list[Finding] = []
    is_cut: bool = False


def read_streams(data: bytes, format: Format) -> list[RecordedStream]:  # noqa: A002
    """Return the streams in these bytes: one; in a recording one for each input."""
    if format == "sse":
        return [_read_sse(data)]
    if format == "protobuf":
        return [_read_protobuf(data)]
    if format == "json":
        return [_read_array(data)]
    return list(_read_lines(data)) or [RecordedStream()]


# SSE


def _read_sse(data: bytes) -> RecordedStream:
    stream = RecordedStream(events=[], findings=_sse_findings(data))
    parser = SSEParser()
    try:
        frames = parser.feed(data)
        frames += parser.close()
    except DecodeError as error:
        frames = []
        stream.findings.append(_of(error))
    else:
        if parser.error is not None:
            stream.findings.append(_of(parser.error))
    stream.events = [RecordedEvent(index, frame.data) for index, frame in enumerate(frames)]
    return stream


def _sse_findings(data: bytes) -> list[Finding]:
    findings: list[Finding] = []
    body = data.removeprefix(_BOM)
    if 13 in body:
        count = body.count(b"\r")
        message = f"{counted(count, 'line')} with a CR or CRLF end; a producer writes LF, and some readers see nothing"
        findings.append(Finding(level="warning", rule="SSE-5", message=message))
        body = body.replace(b"\r\n", b"\n").replace(b"\r", b"\n")
    unknown: dict[bytes, int] = {}
    for line in body.split(b"\n"):
        name = line.partition(b":")[0]
        if line and name and name not in _FIELDS:
            unknown[name[:40]] = unknown.get(name[:40], 0) + 1
    for name, times in unknown.items():
        shown = name.decode("utf-8", "replace")
        message = f"{counted(times, 'line')} with the field {shown!r}, which SSE does not define; readers ignore it"
        findings.append(Finding(level="warning", rule="SSE-6", message=message))
    last = body.rsplit(b"\n\n", 1)[-1]
    if any(line.startswith(b"data") for line in last.split(b"\n")):
        message = "the last event has no blank line after it; standard readers drop it"
        findings.append(Finding(level="warning", rule="SSE-4", message=message))
    return findings


# Protobuf


def _read_protobuf(data: bytes) -> RecordedStream:
    stream = RecordedStream(events=[], findings=[])
    frames = ProtobufFrames()
    try:
        bodies = frames.feed(data)
    except OversizedFrame as error:
        bodies = error.frames
        stream.findings.append(_of(error))
    for index, body in enumerate(bodies):
        notices: list[Notice] = []
        try:
            event = decode_frame(body, warn=notices.append)
        except DecodeError as error:
            error.index = index
            stream.findings.append(_of(error))
            continue
        for notice in notices:
            stream.findings.append(
                Finding(
                    level="warning",
                    rule=notice.rule,
                    message=notice.message,
                    index=index,
                    event=notice.event_type,
                    path=notice.path,
                )
            )
        if event is not None:
            stream.events.append(RecordedEvent(index, msgspec.json.encode(event)))
    try:
        if not stream.findings or stream.findings[-1].rule != "limit-size":
            frames.close()
    except StreamTruncated as error:
        stream.is_cut = True
        stream.findings.append(Finding(level="error", rule="PB-6", message=error.message, index=len(bodies)))
    return stream


# JSON


def _read_array(data: bytes) -> RecordedStream:
    try:
        events = msgspec.json.decode(data.removeprefix(_BOM), type=list[msgspec.Raw])
    except (msgspec.DecodeError, UnicodeError, RecursionError) as error:
        return RecordedStream(
            findings=[Finding(level="error", rule="json", message=f"not a JSON array: {error}")], is_cut=True
        )
    return RecordedStream(events=[RecordedEvent(index, bytes(event)) for index, event in enumerate(events)])


_ABSENT = msgspec.Raw(b"")


class _Line(msgspec.Struct):
    """A line of a recording. A plain event may have members of these names, and always has a type."""

    ms: float | None = None
    input: msgspec.Raw = _ABSENT
    event: msgspec.Raw = _ABSENT
    type: msgspec.Raw = _ABSENT


def _read_lines(data: bytes) -> Iterator[RecordedStream]:
    stream: RecordedStream | None = None
    for line in data.removeprefix(_BOM).split(b"\n"):
        line = line.strip()
        if not line:
            continue
        try:
            found = msgspec.json.decode(line, type=_Line)
        except (msgspec.DecodeError, UnicodeError, RecursionError):
            found = _Line(type=msgspec.Raw(line))  # it is reported as an invalid event
        is_plain = bool(bytes(found.type))
        if not is_plain and bytes(found.input):
            if stream is not None:
                yield stream
            stream = RecordedStream(input=msgspec.json.decode(bytes(found.input)), events=[], findings=[])
            continue
        if stream is None:
            stream = RecordedStream(events=[], findings=[])
        if is_plain or not bytes(found.event):
            stream.events.append(RecordedEvent(len(stream.events), line))
        else:
            stream.events.append(RecordedEvent(len(stream.events), bytes(found.event), found.ms))
    if stream is not None:
        yield stream


def _of(error: DecodeError) -> Finding:
    return Finding(level="error", rule=error.rule, message=error.message, index=error.index, path=error.path)
