"""Layer: cli. ``aguila check``: runs an agent, or reads a stream that was kept, and reports every violation.

Above: ``stream_commands``. Below: ``calling`` brings the bytes, ``aguila.testing.recordings`` takes them apart,
``aguila.testing.checker`` judges, ``report`` says it.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from pathlib import Path
from typing import Any

import msgspec

from aguila.cli.http_caller import Caller, CannotRun, headers_of, is_url, make_input, read_stream
from aguila.cli.report import Checked
from aguila.codec import decode
from aguila.codec.formats import Format, detect
from aguila.codec.negotiate import PROTOBUF_MEDIA_TYPE, SSE_MEDIA_TYPE, is_protobuf
from aguila.codec.notices import Notice
from aguila.errors import DecodeError
from aguila.protocol import RunAgentInput
from aguila.testing.checker import Finding, StreamChecker
from aguila.testing.recordings import RecordedStream, read_streams


def check_url(
    url: str,
    *,
    message: str | None,
    input_file: Path | None,
    headers: Sequence[str],
    protobuf: bool,
    patience: float,
) -> Checked:
    """Run an agent and judge what it answers. Raises ``CannotRun`` if it answers no stream."""
    wanted = make_input(message if message is not None or input_file is not None else "Hello", input_file)
    with Caller(url, headers=headers_of(headers), protobuf=protobuf, patience=patience) as caller:
        answer = caller.post(wanted)
        try:
            body = answer.body()
        finally:
            answer.close()
    findings = _about_type(answer.status, answer.content_type)
    format_: Format = "protobuf" if is_protobuf(answer.content_type) else "sse"
    if findings:
        format_ = detect(body)
    (stream, *_) = read_streams(body, format_)
    stream.input = wanted
    if answer.broke is not None:
        stream.is_cut = True
        message_ = f"the connection did not end in order: {answer.broke}"
        findings.append(Finding(level="error", rule="SSE-12", message=message_))
    return _checked(url, format_, [stream], findings)


def _about_type(status: int, content_type: str) -> list[Finding]:
    media_type = content_type.partition(";")[0].strip().lower()
    findings: list[Finding] = []
    if status != 200:
        findings.append(Finding(level="warning", rule="SSE-3", message=f"a started run answers 200, not {status}"))
    if media_type not in (SSE_MEDIA_TYPE, PROTOBUF_MEDIA_TYPE):
        shown = content_type or "no content type"
        findings.append(Finding(level="error", rule="SSE-3", message=f"the answer is {shown}, not {SSE_MEDIA_TYPE}"))
    elif media_type == PROTOBUF_MEDIA_TYPE and content_type != PROTOBUF_MEDIA_TYPE:
        message = f"the content type is {content_type!r}; it has to be exactly {PROTOBUF_MEDIA_TYPE}"
        findings.append(Finding(level="warning", rule="PB-3", message=message))
    return findings


def check_file(path: str, *, format_: Format | None, input_file: Path | None) -> Checked:
    """StreamChecker a stream that was kept; ``-`` is the standard input. Raises ``CannotRun``."""
    data = read_stream(path)
    found = format_ or detect(data, path)
    streams = read_streams(data, found)
    if input_file is not None:
        streams[0].input = make_input(None, input_file)
    return _checked("the standard input" if path == "-" else path, found, streams, [])


def _checked(target: str, format_: Format, streams: list[RecordedStream], findings: list[Finding]) -> Checked:
    for number, stream in enumerate(streams):
        found = judged(stream)
        findings += [msgspec.structs.replace(finding, stream=number) for finding in found] if number else found
    return Checked(
        target=target,
        format=format_,
        streams=len(streams),
        events=sum(len(stream.events) for stream in streams),
        findings=findings,
    )


def judged(stream: RecordedStream) -> list[Finding]:
    """All that is wrong with one stream, its framing first."""
    findings = list(stream.findings)
    start = _started_from(stream.input, findings)
    judge = StreamChecker(messages=start.messages, state=start.state) if start is not None else StreamChecker()
    for event in stream.events:
        judge.feed(event.data, event.index)
    return findings + judge.close(is_cut=stream.is_cut)


def _started_from(given: Any, findings: list[Finding]) -> RunAgentInput | None:
    """What the run started from. An input that is none is not the producer's fault: a note."""
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
    """The same without what was found by some rules."""
    kept = [finding for finding in checked.findings if finding.rule not in rules]
    return msgspec.structs.replace(checked, findings=kept)


__all__ = ["CannotRun", "check_file", "check_url", "is_url", "judged", "without"]
