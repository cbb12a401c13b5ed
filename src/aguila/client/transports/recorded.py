"""A transport that answers from a recording: what ``Record`` wrote, or a stream in any format."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

import msgspec

from aguila.client.transports.base import Request
from aguila.codec.formats import detect_format
from aguila.codec.negotiate import PROTOBUF_MEDIA_TYPE, SSE_MEDIA_TYPE
from aguila.codec.sse import SSEEncoder
from aguila.errors import TransportFailed

_PIECE = 1 << 16


class RecordedRun(msgspec.Struct, frozen=True, kw_only=True):
    """One run of a recording: its raw events as JSON, with milliseconds since its start if they are known."""

    input: Any = None
    events: list[tuple[float | None, bytes]] = []


_ABSENT = msgspec.Raw(b"")


class _Line(msgspec.Struct):
    ms: float | None = None
    input: msgspec.Raw = _ABSENT
    event: msgspec.Raw = _ABSENT
    type: Any = None  # of a plain event, which may have members of these names, too


def read_recording(lines: Iterable[bytes]) -> Iterator[RecordedRun]:
    """Yield the runs of a recording: lines of ``Record``, or plain events. Raise ValueError for any other line.

    A run begins with its input; without inputs, with RUN_STARTED.
    """
    run: RecordedRun | None = None
    has_inputs = False
    for number, line in enumerate(lines, 1):
        if not line.strip():
            continue
        try:
            found = msgspec.json.decode(line, type=_Line)
        except msgspec.DecodeError as error:
            raise ValueError(f"line {number} is not a line of a recording: {error}") from error
        is_plain = isinstance(found.type, str)
        if not is_plain and bytes(found.input):
            has_inputs = True
            if run is not None:
                yield run
            run = RecordedRun(input=msgspec.json.decode(bytes(found.input)), events=[])
            continue
        event = line.strip() if is_plain else bytes(found.event)
        if not event:
            raise ValueError(f"line {number} is not a line of a recording: it has neither an event nor an input")
        kind = found.type if is_plain else msgspec.json.decode(event, type=_Line).type
        if run is None or (not has_inputs and kind == "RUN_STARTED" and run.events):
            if run is not None:
                yield run
            run = RecordedRun(events=[])
        run.events.append((None if is_plain else found.ms, event))
    if run is not None:
        yield run


class RecordedTransport:
    """Answer every POST with the next run of a recording, whatever its input. ``AsyncRecordedTransport`` is its twin.

    The format is detected from the content. An SSE or protobuf file is one response. Raise OSError or ValueError for a
    file that cannot be read, and ``TransportFailed`` after the last run.
    """

    def __init__(self, path: str | Path) -> None:
        self._answers = iter(_answers(Path(path)))

    def send(self, request: Request, timeout: float | None) -> _Response:
        """Return the next run. See ``Transport``."""
        return _Response(*_next(self._answers))

    def close(self) -> None:
        """Do nothing. See ``Transport``."""


class AsyncRecordedTransport:
    """``RecordedTransport`` for an ``AsyncClient``."""

    def __init__(self, path: str | Path) -> None:
        self._answers = iter(_answers(Path(path)))

    async def send(self, request: Request) -> _AsyncResponse:
        """Return the next run. See ``AsyncTransport``."""
        return _AsyncResponse(*_next(self._answers))

    async def close(self) -> None:
        """Do nothing. See ``AsyncTransport``."""


def _answers(path: Path) -> list[tuple[str, bytes]]:
    data = path.read_bytes()
    form = detect_format(data, path)
    if form == "sse":
        return [(SSE_MEDIA_TYPE, data)]
    if form == "protobuf":
        return [(PROTOBUF_MEDIA_TYPE, data)]
    data = data.removeprefix(b"\xef\xbb\xbf")
    encoder = SSEEncoder()
    return [
        (SSE_MEDIA_TYPE, b"".join([encoder.encode_json(event) for _, event in run.events]))
        for run in read_recording(data.split(b"\n") if form == "jsonl" else _elements(data))
    ]


def _elements(data: bytes) -> list[bytes]:
    try:
        elements = msgspec.json.decode(data, type=list[msgspec.Raw])
    except (msgspec.DecodeError, UnicodeError, RecursionError) as error:
        raise ValueError(f"not a JSON array of events: {error}") from error
    # A file written by hand may have line ends within an event, which SSE cannot have.
    return [bytes(element).replace(b"\n", b" ").replace(b"\r", b" ") for element in elements]


def _next(answers: Iterator[tuple[str, bytes]]) -> tuple[str, bytes]:
    found = next(answers, None)
    if found is None:
        raise TransportFailed("the recording has no more runs", was_sent=False, is_lasting=True)
    return found


class _Body:
    status = 200

    def __init__(self, media_type: str, data: bytes) -> None:
        self.headers: Mapping[str, str] = {"content-type": media_type}
        self._data = data
        self._at = 0

    def _piece(self) -> bytes:
        piece = self._data[self._at : self._at + _PIECE]
        self._at += len(piece)
        return piece


class _Response(_Body):
    def read(self, timeout: float | None) -> bytes:
        return self._piece()

    def close(self) -> None:
        pass


class _AsyncResponse(_Body):
    async def read(self) -> bytes:
        return self._piece()

    async def close(self) -> None:
        pass
