"""``aguila check``: run an agent, or read a recorded stream, and report every violation."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from pathlib import Path
from typing import Any, Final

import msgspec

from aguila.cli.http_caller import CannotRun, HTTPCaller, headers_of, is_url, make_input, read_stream
from aguila.cli.output.report import Checked
from aguila.codec import decode
from aguila.codec.formats import Format, detect_format, format_from_name
from aguila.codec.json.bounded_floats import decode_json
from aguila.codec.negotiate import PROTOBUF_MEDIA_TYPE, SSE_MEDIA_TYPE, is_protobuf
from aguila.codec.notices import Notice
from aguila.errors import DecodeError
from aguila.protocol import RunAgentInput
from aguila.stream.verification.checker import Finding, StreamChecker
from aguila.testing.recordings import RecordedStream, read_streams

MAX_BODY: Final = 32 * 1024 * 1024
"""Bytes of a response that are read and checked."""


def check_url(
    url: str,
    *,
    message: str | None,
    input_file: Path | None,
    headers: Sequence[str],
    protobuf: bool,
    timeout: float,
) -> Checked:
    """Run an agent and check its response. Raise ``CannotRun`` if it cannot be run."""
    wanted = make_input(message if message is not None or input_file is not None else "Hello", input_file)
    with HTTPCaller(url, headers=headers_of(headers), protobuf=protobuf, timeout=timeout) as caller:
        answer = caller.post(wanted)
        try:
            body = answer.body(MAX_BODY)
        finally:
            answer.close()
    findings = _check_head(answer.status, answer.content_type)
    format_: Format = "protobuf" if is_protobuf(answer.content_type) else "sse"
    if findings:
        format_ = detect_format(body)
    (stream, *_) = read_streams(body, format_)
    stream.input = wanted
    if answer.broke is not None:
        stream.is_cut = True
        message_ = f"the connection broke: {answer.broke}"
        findings.append(Finding(level="error", rule="SSE-12", message=message_))
    return _report(url, format_, [stream], findings)


def _check_head(status: int, content_type: str) -> list[Finding]:
    media_type = content_type.partition(";")[0].strip().lower()
    findings: list[Finding] = []
    if status != 200:
        findings.append(
            Finding(
                level="warning", rule="SSE-3", message=f"the response to a run has the status {status}, expected 200"
            )
        )
    if media_type not in (SSE_MEDIA_TYPE, PROTOBUF_MEDIA_TYPE):
        shown = content_type or "missing"
        findings.append(
            Finding(level="error", rule="SSE-3", message=f"the content type is {shown}, expected {SSE_MEDIA_TYPE}")
        )
    elif media_type == PROTOBUF_MEDIA_TYPE and content_type != PROTOBUF_MEDIA_TYPE:
        message = f"the content type is {content_type!r}, expected exactly {PROTOBUF_MEDIA_TYPE}"
        findings.append(Finding(level="warning", rule="PB-3", message=message))
    return findings


def check_file(path: str, *, format_: Format | None, input_file: Path | None) -> Checked:
    """Check a recorded stream; ``-`` is standard input. Raise ``CannotRun``, also for a file that is not a stream."""
    data = read_stream(path)
    found = format_ or detect_format(data, path)
    streams = read_streams(data, found)
    if format_ is None and data.strip() and not _is_stream(data, path, found, streams):
        expected = "expected SSE, JSON lines, a JSON array or protobuf frames; --from reads it as one of them"
        raise CannotRun(f"{path} is not a stream of events: {expected}")
    if input_file is not None:
        streams[0].input = make_input(None, input_file)
    return _report("standard input" if path == "-" else path, found, streams, [])


def _is_stream(data: bytes, path: str, format_: Format, streams: list[RecordedStream]) -> bool:
    """Return whether a file is a stream, however broken, rather than a file of another kind."""
    events = [event.data for stream in streams for event in stream.events]
    if format_ == "sse":
        return bool(events)
    if format_ == "protobuf":
        return bool(events) or format_from_name(path) == "protobuf"
    if any(stream.input is not None for stream in streams):
        return True
    return any(map(_has_type, events)) if events else b'"type"' in data  # an array that cannot be read has no events


def _has_type(event: bytes) -> bool:
    try:
        return "type" in decode_json(event, dict[str, Any])
    except (msgspec.DecodeError, UnicodeError, RecursionError):
        return False


def _report(target: str, format_: Format, streams: list[RecordedStream], findings: list[Finding]) -> Checked:
    for number, stream in enumerate(streams):
        found = findings_of(stream)
        findings += [msgspec.structs.replace(finding, stream=number) for finding in found] if number else found
    return Checked(
        target=target,
        format=format_,
        streams=len(streams),
        events=sum(len(stream.events) for stream in streams),
        findings=findings,
    )


def findings_of(stream: RecordedStream) -> list[Finding]:
    """Return all findings of one stream, those of the framing first."""
    findings = list(stream.findings)
    start = _started_from(stream.input, findings)
    checker = StreamChecker(messages=start.messages, state=start.state) if start is not None else StreamChecker()
    for event in stream.events:
        checker.feed(event.data, event.index)
    return findings + checker.close(is_cut=stream.is_cut)


def _started_from(given: Any, findings: list[Finding]) -> RunAgentInput | None:
    """Return the input that the run started from. An invalid input is not the producer's fault: it is a note."""
    if given is None:
        return None

    def note(notice: Notice) -> None:
        findings.append(Finding(level="note", rule=notice.rule, message=f"in the input: {notice.message}"))

    try:
        return decode(msgspec.json.encode(given), RunAgentInput, warn=note)
    except DecodeError as error:
        findings.append(Finding(level="note", rule=error.rule, message=f"the input: {error.message}", path=error.path))
        return None


def without(checked: Checked, rules: Collection[str]) -> Checked:
    """Return the report without the findings of some rules."""
    kept = [finding for finding in checked.findings if finding.rule not in rules]
    return msgspec.structs.replace(checked, findings=kept)


__all__ = ["CannotRun", "check_file", "check_url", "findings_of", "is_url", "without"]
