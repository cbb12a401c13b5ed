"""``aguila record``: run an agent once and record the response in the format that the file name says.

Invalid events are recorded, too. ``.sse`` and ``.pb`` keep the bytes of a response of that format. ``.json`` is an
array of the events. Any other name gives a recording with input and timing (``aguila.testing.recordings``).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from itertools import chain
from pathlib import Path
from typing import BinaryIO, Literal

import msgspec

from aguila.cli.http_caller import CannotRun, HTTPCaller, StreamResponse, headers_of, make_input
from aguila.client.streaming.response_reader import ResponseReader, is_unspecific, reader_for
from aguila.codec import EventDecoder
from aguila.codec.formats import Format, format_from_name
from aguila.codec.json.bounded_floats import decode_json
from aguila.codec.negotiate import PROTOBUF_MEDIA_TYPE, SSE_MEDIA_TYPE, is_protobuf
from aguila.codec.notices import log_notice
from aguila.codec.protobuf import ProtobufEncoder
from aguila.codec.sse import SSEEncoder
from aguila.errors import EncodeError, ProtocolError, StreamTruncated


class Recorded(msgspec.Struct, frozen=True, kw_only=True):
    """The result of a recording. ``problem`` says why it may be incomplete."""

    thread_id: str
    run_id: str
    count: int
    unit: Literal["event", "piece"]
    problem: str | None


def record(
    url: str,
    path: Path,
    *,
    message: str | None,
    input_file: Path | None,
    thread_id: str | None,
    headers: Sequence[str],
    protobuf: bool,
    timeout: float,
    append: bool,
    force: bool,
) -> Recorded:
    """Run an agent and record its response. Raise ``CannotRun``."""
    wanted = make_input(message if message is not None or input_file is not None else "Hello", input_file, thread_id)
    form = format_from_name(path) or "jsonl"
    refuse_existing(path, form, append=append, force=force)
    with HTTPCaller(url, headers=headers_of(headers), protobuf=protobuf, timeout=timeout) as caller:
        answer = caller.post(wanted)
        try:
            wire, pieces = _wire_format(answer)
            is_raw = wire == form
            with path.open("ab" if append else "wb") as file:
                kept = _copy(pieces, file) if is_raw else _write(_events(wire, pieces), file, form, wanted)
        except OSError as error:
            raise CannotRun(f"cannot write {path}: {error.strerror}") from None
        finally:
            answer.close()
    count, problem = kept
    return Recorded(
        thread_id=str(wanted["threadId"]),
        run_id=str(wanted["runId"]),
        count=count,
        unit="piece" if is_raw else "event",
        problem=problem or answer.broke,
    )


def refuse_existing(path: Path, form: Format, *, append: bool, force: bool) -> None:
    """Raise ``CannotRun`` if the file exists, or cannot be appended to."""
    if append and force:
        raise CannotRun("--append adds to the file and --force replaces it; give one of them")
    if append and form != "jsonl":
        raise CannotRun(f"--append works with JSON lines only; name {path} .jsonl, and use aguila convert")
    if path.is_file() and not append and not force:
        raise CannotRun(f"{path} exists; --append adds to it, --force replaces it")


def _wire_format(answer: StreamResponse) -> tuple[Literal["sse", "protobuf"], Iterator[tuple[float, bytes]]]:
    """Return the format of the response and its pieces. Raise ``CannotRun`` if it is not a stream of events.

    A response without a specific content type (``text/plain``) is detected by its content, as in ``aguila check``.
    """
    pieces = answer.pieces()
    if is_protobuf(answer.content_type):
        return "protobuf", pieces
    if reader_for(answer.content_type, warn=log_notice) is not None:
        return "sse", pieces
    if is_unspecific(answer.content_type):
        # A comment or half a field name may come first: read until the first event is complete.
        reader = _reader("sse")
        start: list[tuple[float, bytes]] = []
        with suppress(ProtocolError, StreamTruncated):
            for piece in pieces:
                start.append(piece)
                if start[0][1][:1] == b"\0":  # the length of a protobuf frame
                    return "protobuf", chain(start, pieces)
                if any(on_one_line(frame.data) for frame in reader.feed(piece[1])):
                    return "sse", chain(start, pieces)
    raise CannotRun(f"expected a stream of events, got {answer.content_type or 'a response without a content type'}")


def _copy(pieces: Iterator[tuple[float, bytes]], file: BinaryIO) -> tuple[int, str | None]:
    """Write the bytes as they arrive. Return how many pieces there were."""
    count = 0
    for _, data in pieces:
        file.write(data)
        count += 1
    return count, None


def _write(
    events: Iterator[tuple[float, bytes]], file: BinaryIO, form: Format, wanted: dict[str, object]
) -> tuple[int, str | None]:
    """Write event by event. Return how many, and why the stream broke off; None if it ended in order."""
    count, problem, before = 0, None, b"[\n"
    encoded = _encoder(form)
    if form == "jsonl":
        file.write(b'{"ms":0,"input":%b}\n' % msgspec.json.encode(wanted))
    try:
        for ms, data in events:
            if form == "jsonl":
                file.write(b'{"ms":%d,"event":%b}\n' % (int(ms), data))
            elif form == "json":
                file.write(before + data)
                before = b",\n"
            else:
                file.write(encoded(data))
            count += 1
    except (ProtocolError, StreamTruncated, EncodeError) as error:
        problem = str(error)
    if form == "json":
        file.write(b"\n]\n" if count else b"[]\n")
    return count, problem


def _encoder(form: Format) -> Callable[[bytes], bytes]:
    """Return a function that encodes an event as SSE or protobuf."""
    if form != "protobuf":
        return SSEEncoder().encode_json
    decoder, encoder = EventDecoder(warn=log_notice), ProtobufEncoder(warn=log_notice)
    return lambda data: b"".join([encoder.encode(event) for event in decoder.feed(data)])


def _reader(wire: Literal["sse", "protobuf"]) -> ResponseReader:
    reader = reader_for(PROTOBUF_MEDIA_TYPE if wire == "protobuf" else SSE_MEDIA_TYPE, warn=log_notice)
    assert reader is not None  # noqa: S101 - both media types have one
    return reader


def _events(wire: Literal["sse", "protobuf"], pieces: Iterator[tuple[float, bytes]]) -> Iterator[tuple[float, bytes]]:
    """Yield the raw events, each on one line. Raise ``StreamTruncated`` for an event that is not JSON."""
    reader = _reader(wire)
    ms = 0.0
    for ms, data in pieces:
        for frame in reader.feed(data):
            yield ms, on_one_line(frame.data)
    for frame in reader.close():
        yield ms, on_one_line(frame.data)


def on_one_line(event: bytes) -> bytes:
    """Return JSON without line ends, otherwise unchanged. Raise ``StreamTruncated`` if it is not JSON."""
    try:
        decode_json(event, msgspec.Raw)
    except (msgspec.DecodeError, UnicodeError, RecursionError) as error:
        shown = event[:60].decode("utf-8", "replace")
        raise StreamTruncated(f"an event that is not JSON ({error}) ends the recording: {shown!r}") from None
    return event.replace(b"\n", b" ").replace(b"\r", b" ")
