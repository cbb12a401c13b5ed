"""Read streams from files: SSE, JSON lines, a JSON array, protobuf frames, or a recording.

Events are returned as the JSON that was sent, unchecked. Errors of the framing are findings.
"""

from __future__ import annotations

import msgspec

from aguila.client.recordings import RecordedEvent, RecordedRun, read_array, read_lines
from aguila.codec.formats import Format
from aguila.codec.notices import Notice
from aguila.codec.protobuf import OversizedFrame, ProtobufFrames, decode_frame
from aguila.codec.sse import SSEParser
from aguila.errors import DecodeError, StreamTruncated
from aguila.stream.verification.checker import Finding
from aguila.testing.plurals import counted

_BOM = b"\xef\xbb\xbf"
_FIELDS = frozenset({b"data", b"id", b"event", b"retry"})


class RecordedStream(RecordedRun, kw_only=True):
    """One stream: its input, if that is known, its events, and the findings about its framing."""

    findings: list[Finding] = []  # noqa: RUF012 - msgspec gives each instance its own
    is_cut: bool = False


def read_streams(data: bytes, format: Format) -> list[RecordedStream]:  # noqa: A002
    """Return the streams in these bytes: one; in a recording one for each input."""
    if format == "sse":
        return [_read_sse(data)]
    if format == "protobuf":
        return [_read_protobuf(data)]
    if format == "json":
        return [_read_array(data)]
    return [RecordedStream(input=run.input, events=run.events) for run in read_lines(data)] or [RecordedStream()]


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
        return RecordedStream(events=read_array(data).events)
    except ValueError as error:
        return RecordedStream(findings=[Finding(level="error", rule="json", message=str(error))], is_cut=True)


def _of(error: DecodeError) -> Finding:
    return Finding(level="error", rule=error.rule, message=error.message, index=error.index, path=error.path)
