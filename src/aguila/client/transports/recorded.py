"""A transport that answers from a recording: a file that ``Record`` wrote, or a stream in any format."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path

from aguila.client.recordings import read_array, read_lines, split_runs
from aguila.client.transports.base import Request
from aguila.codec.formats import detect_format
from aguila.codec.negotiate import PROTOBUF_MEDIA_TYPE, SSE_MEDIA_TYPE
from aguila.codec.sse import SSEEncoder
from aguila.errors import TransportFailed

_PIECE = 1 << 16


class RecordedTransport:
    """Answer every POST with the next run of a recording, whatever its input.

    ``AsyncRecordedTransport`` is the same for an ``AsyncClient``. The format is detected from the content. An SSE or
    protobuf file is one response. Raise OSError or ValueError for a file that cannot be read, and ``TransportFailed``
    after the last run.
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
    encoder = SSEEncoder()
    if form == "json":
        data = b"\n".join([_one_line(event.data) for event in read_array(data).events])
    return [
        (SSE_MEDIA_TYPE, b"".join([encoder.encode_json(event.data) for event in run.events]))
        for run in split_runs(read_lines(data, strict=True))
    ]


def _one_line(event: bytes) -> bytes:
    # An element of an array that was written by hand may have line ends.
    return event.replace(b"\n", b" ").replace(b"\r", b" ")


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
