"""Parse the body of a response into raw events, by its content type. Only the framing is checked here (TRN-9)."""

from __future__ import annotations

import msgspec

from aguila.codec.json.bounded_floats import decode_json
from aguila.codec.json.text import MAX_SIZE
from aguila.codec.negotiate import SSE_MEDIA_TYPE, is_protobuf
from aguila.codec.notices import Warn
from aguila.codec.protobuf import OversizedFrame, ProtobufFrames, decode_frame
from aguila.codec.sse import Frame, SSEParser
from aguila.errors import DecodeError, StreamTruncated

_to_json = msgspec.json.Encoder().encode


def reader_for(content_type: str | None, *, warn: Warn, max_size: int = MAX_SIZE) -> ResponseReader | None:
    """Return the reader for a content type; None if that is not a stream of events."""
    if is_protobuf(content_type):
        return _ProtobufReader(warn, max_size)
    if _media_type(content_type) == SSE_MEDIA_TYPE:
        return _SSEReader(max_size=max_size)
    return None


def is_unspecific(content_type: str | None) -> bool:
    """Return whether a content type says nothing about the content: it may still be SSE (SSE-3)."""
    return _media_type(content_type) in ("", "text/plain", "application/octet-stream")


def _media_type(content_type: str | None) -> str:
    return "" if content_type is None else content_type.partition(";")[0].strip().lower()


class _SSEReader(SSEParser):
    """Parses SSE."""

    is_slow = False

    def close(self) -> list[Frame]:
        frames = super().close()
        for frame in frames:
            # An event without its blank line counts if it is complete. Otherwise the stream was cut, as in protobuf
            # (PB-6).
            try:
                decode_json(frame.data)
            except (msgspec.DecodeError, UnicodeError, RecursionError):
                size = len(frame.data)
                raise StreamTruncated(f"the stream ended in the middle of an event, {size} bytes into it") from None
        return frames


class _ProtobufReader:
    """Parses protobuf frames to JSON. Errors are as in ``SSEParser``."""

    is_slow = True

    def __init__(self, warn: Warn, max_size: int) -> None:
        self.error: DecodeError | None = None
        self._frames = ProtobufFrames(max_size=max_size)
        self._warn = warn
        self._index = 0

    @property
    def buffered(self) -> int:
        return self._frames.buffered

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


ResponseReader = _SSEReader | _ProtobufReader
"""Parses bytes into raw events.

If events precede an error, ``feed`` returns them and ``error`` is set. Every later call raises the error. ``close``
returns the events that are left at the end, and raises ``StreamTruncated`` if one is incomplete. A reader that
``is_slow`` parses in Python, so that large events are parsed off the event loop.
"""
