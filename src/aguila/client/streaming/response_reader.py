"""Layer: client. The body of an answer as raw events, by its content type, with the ids that a stream can go on from.

Below: the framings of ``aguila.codec``. Above: ``exchange``. It judges framing and nothing else (TRN-9).
"""

from __future__ import annotations

from typing import Protocol

import msgspec

from aguila.codec.json.text import MAX_SIZE
from aguila.codec.negotiate import SSE_MEDIA_TYPE, is_protobuf
from aguila.codec.notices import Warn
from aguila.codec.protobuf import OversizedFrame, ProtobufFrames, decode_frame
from aguila.codec.sse import Frame, SSEParser
from aguila.errors import DecodeError, StreamTruncated

_to_json = msgspec.json.Encoder().encode


class Reader(Protocol):
    """Bytes to raw events. Events that came before an error are given first; ``error`` holds it then.

    An error ends the stream: every later call raises it.
    """

    @property
    def error(self) -> DecodeError | None:
        """What is wrong with the bytes after those that were given as events."""
        ...

    @property
    def held(self) -> int:
        """How many bytes there are of an event that has not ended yet."""
        ...

    def feed(self, data: bytes) -> list[Frame]:
        """The events that these bytes complete. Raises ``DecodeError`` if there are none before it."""
        ...

    def close(self) -> list[Frame]:
        """What is left at the end. Raises ``StreamTruncated`` if that is a piece of an event."""
        ...


def reader_for(content_type: str | None, *, warn: Warn, max_size: int = MAX_SIZE) -> Reader | None:
    """The reader for an answer, None if it is no stream of events."""
    if is_protobuf(content_type):
        return _ProtobufReader(warn, max_size)
    if _media_type(content_type) == SSE_MEDIA_TYPE:
        return _SSEReader(max_size=max_size)
    return None


def is_vague(content_type: str | None) -> bool:
    """Whether an answer does not say what it is, or only that it is text: it may be a stream of SSE (SSE-3)."""
    return _media_type(content_type) in ("", "text/plain", "application/octet-stream")


def _media_type(content_type: str | None) -> str:
    return "" if content_type is None else content_type.partition(";")[0].strip().lower()


class _SSEReader(SSEParser):
    def close(self) -> list[Frame]:
        frames = super().close()
        for frame in frames:
            # An event without its blank line counts if it is whole; a piece of one is a stream that was cut, as it
            # would be on the other wire (PB-6).
            try:
                msgspec.json.decode(frame.data)
            except (msgspec.DecodeError, UnicodeError, RecursionError):
                size = len(frame.data)
                raise StreamTruncated(f"the stream ended in the middle of an event, {size} bytes into it") from None
        return frames


class _ProtobufReader:
    def __init__(self, warn: Warn, max_size: int) -> None:
        self.error: DecodeError | None = None
        self._frames = ProtobufFrames(max_size=max_size)
        self._warn = warn
        self._index = 0

    @property
    def held(self) -> int:
        return self._frames.waiting

    def feed(self, data: bytes) -> list[Frame]:
        if self.error is not None:
            raise self.error
        try:
            bodies = self._frames.feed(data)
        except OversizedFrame as error:
            bodies, self.error = error.frames, error
        frames: list[Frame] = []
        for body in bodies:
            try:
                raw = decode_frame(body, warn=self._warn)
            except DecodeError as error:
                error.index = self._index
                self.error = error
                break
            self._index += 1
            if raw is not None:
                frames.append(Frame(_to_json(raw)))
        if self.error is not None and not frames:
            raise self.error
        return frames

    def close(self) -> list[Frame]:
        if self.error is not None:
            raise self.error
        self._frames.close()
        return []
