"""Server-sent events: encode events as frames, and decode them.

Frames are written with LF only and one data line each (SSE-5, SSE-4). Everything that the SSE standard allows is read:
LF, CR, CRLF, a byte order mark, several data lines, comments, ids. ``event`` and ``retry`` are ignored (SSE-6). Lines
are split as bytes: in text, U+2028 and others would be line ends too (PY-2).
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Sequence
from functools import partial
from typing import Final, Unpack

import msgspec

from aguila.codec.json.decoder import DecoderOptions, EventDecoder
from aguila.codec.json.encoder import SIMPLE_EVENTS, encode_event, encode_simple
from aguila.codec.json.text import MAX_SIZE
from aguila.errors import DecodeError, EncodeError
from aguila.protocol import Event, RunStartedEvent

_BOM: Final = b"\xef\xbb\xbf"

# Room for field names, ids and comments. The limit for the data itself is exact.
_FRAME_OVERHEAD: Final = 4096

# Expressions, because a megabyte may have half a million lines. An id with NUL is ignored.
_DATA_LINE: Final = re.compile(rb"\ndata(?:: ?|$)(.*)", re.MULTILINE)
_LAST_ID: Final = re.compile(rb".*\nid(?:: ?|$)([^\0\n]*)$", re.MULTILINE | re.DOTALL)


# Writing


class SSEEncoder:
    """Encodes events as frames of a ``text/event-stream`` body, without state between calls.

    A reader sends the last id back as ``Last-Event-ID``. An id with LF, CR or NUL could not be read again: it raises
    ``EncodeError``, as does an event without a JSON form (see ``aguila.codec.encode``).
    """

    def encode(self, event: Event, id: str | int | None = None) -> bytes:  # noqa: A002  # the name of the SSE field
        """Encode one event as one frame."""
        cls = event.__class__
        if (
            (cls in SIMPLE_EVENTS or (cls is RunStartedEvent and event.input is None))  # type: ignore[union-attr]
            and event.metadata is None
            and event.raw_event is None
            and event.timestamp is None  # the only number: NaN would be written as null
        ):
            try:  # without another call: encode, 12x
                data = encode_simple(event)
            except (ValueError, TypeError, RecursionError):
                data = encode_event(event)
            return b"data: %b\n\n" % data if id is None else b"id: %b\ndata: %b\n\n" % (_encode_id(id), data)
        return self.encode_json(encode_event(event), id)

    def encode_many(self, events: Iterable[Event], ids: Iterable[str | int] | None = None) -> bytes:
        """Encode many events. ``ids`` has one id for each event."""
        if ids is None:
            return b"".join(map(self.encode, events))
        return b"".join([self.encode(event, id_) for event, id_ in zip(events, ids, strict=True)])

    def encode_json(self, data: bytes, id: str | int | None = None) -> bytes:  # noqa: A002
        """Frame an event that is JSON already. Line ends are removed; nothing else is checked."""
        if 10 in data or 13 in data:
            data = data.replace(b"\n", b" ").replace(b"\r", b" ")  # whitespace between tokens
        if id is None:
            return b"data: %b\n\n" % data
        return b"id: %b\ndata: %b\n\n" % (_encode_id(id), data)

    def frame(self, documents: Sequence[bytes], id: str | int | None = None) -> bytes:  # noqa: A002
        """Frame the documents that one event became, each JSON on one line. The last frame has the id."""
        if not documents:
            return b""
        frames = [b"data: %b\n\n" % data for data in documents]
        if id is not None:
            frames[-1] = b"id: %b\n%b" % (_encode_id(id), frames[-1])
        return b"".join(frames)

    def comment(self, text: str = "") -> bytes:
        """Encode a comment: readers ignore it, and proxies see that the stream is alive (SSE-7, PY-12)."""
        if not text:
            return b":\n\n"
        lines = text.encode("utf-8", "replace").replace(b"\r\n", b"\n").replace(b"\r", b"\n").split(b"\n")
        return b"".join([b": %b\n" % line for line in lines]) + b"\n"


def _encode_id(id_: str | int) -> bytes:
    if id_.__class__ is int:
        return b"%d" % id_
    text = str(id_)
    if "\n" in text or "\r" in text or "\0" in text:
        raise EncodeError(f"the id {text!r} cannot be written: it contains LF, CR or NUL")
    try:
        return text.encode()
    except UnicodeEncodeError:
        raise EncodeError(f"the id {text!r} cannot be written: it contains a lone surrogate") from None


# Reading


class Frame(msgspec.Struct, frozen=True, gc=False):
    """A frame with data: its data lines joined by LF, and the last id of the stream so far."""

    data: bytes
    id: str | None = None


class SSEParser:
    """Parses a stream into frames, without decoding their data.

    Data beyond ``max_size`` is a ``DecodeError`` (``limit-size``), so an endless frame cannot fill the memory. An error
    ends the stream: every later call raises it again. If frames precede it in the same bytes, ``feed`` returns them and
    ``error`` is set.
    """

    def __init__(self, *, max_size: int = MAX_SIZE) -> None:
        self.error: DecodeError | None = None
        self.last_event_id: str | None = None
        """The last id of the stream, which a client sends as ``Last-Event-ID``; None before the first."""
        self.buffered = 0
        """The number of bytes of an incomplete frame."""
        self._max_size = max_size
        self._count = 0
        self._rest = bytearray()  # the incomplete frame
        self._start: bytes = b""  # what may be the beginning of a byte order mark
        self._is_past_bom = False
        self._after_cr = False  # the last byte was a CR: an LF that follows belongs to it

    def feed(self, data: bytes) -> list[Frame]:
        """Return the frames that these bytes complete."""
        if self.error is not None:
            raise self.error
        if not self._is_past_bom:
            data = self._begin(data)
        if self._after_cr and data:
            self._after_cr = False
            data = data.removeprefix(b"\n")
        if 13 in data:
            self._after_cr = data[-1] == 13
            data = data.replace(b"\r\n", b"\n").replace(b"\r", b"\n")
        rest = self._rest
        searched = max(0, len(rest) - 1)
        rest += data
        end = rest.rfind(b"\n\n", searched)
        blocks: list[bytes] = []
        if end >= 0:
            blocks = bytes(memoryview(rest)[:end]).split(b"\n\n")
            del rest[: end + 2]
        frames = self._frames(blocks)
        self.buffered = len(rest)
        if self.error is None and self.buffered > self._max_size:
            self._check_block(rest)
        if self.error is not None and not frames:
            raise self.error
        return frames

    def close(self) -> list[Frame]:
        """Return the last frame, if the stream ended without its blank line."""
        if self.error is not None:
            raise self.error
        head, newline, line = bytes(self._rest).rpartition(b"\n")
        self._rest, self.buffered = bytearray(), 0
        # Truncated data is not JSON, so it is noticed. A truncated id looks complete, so it must not count.
        frames = self._frames([head + newline + line if line.startswith(b"data") else head])
        if self.error is not None:
            raise self.error
        return frames

    def _begin(self, data: bytes) -> bytes:
        """Remove a byte order mark, which may arrive in pieces."""
        data = self._start + data
        self._is_past_bom = len(data) >= len(_BOM) or not _BOM.startswith(data)
        self._start = b"" if self._is_past_bom else data
        return data.removeprefix(_BOM) if self._is_past_bom else b""

    def _frames(self, blocks: list[bytes]) -> list[Frame]:
        """Return the frames of these blocks, up to the first that is too large."""
        frames: list[Frame] = []
        for block in filter(None, blocks):
            if len(block) > self._max_size:
                self._check_block(block)
            if self.error is not None:
                break
            # Nearly every block is one data line: client bytes to messages, 1.5x.
            is_plain = block.startswith(b"data: ") and 10 not in block
            data = block[6:] if is_plain else self._read_data(block)
            if data is None:
                continue
            if len(data) > self._max_size:
                self._refuse(len(data))
                break
            frames.append(Frame(data, self.last_event_id))
            self._count += 1
        return frames

    def _read_data(self, block: bytes) -> bytes | None:
        """Return the data of a block, or None if it has no data line. Keep its id."""
        lines = b"\n" + block
        if (found := _LAST_ID.match(lines)) is not None:
            self.last_event_id = found[1].decode("utf-8", "replace")
        data: list[bytes] = _DATA_LINE.findall(lines)
        return b"\n".join(data) if data else None

    def _check_block(self, block: bytes | bytearray) -> None:
        """Refuse a block that is too large. Line ends around it depend on how the stream was cut, and do not count."""
        most = self._max_size + _FRAME_OVERHEAD
        if len(block) > most and len(block.strip(b"\n")) > most:
            self._refuse(len(block))

    def _refuse(self, size: int) -> None:
        message = f"a frame of at least {size} bytes exceeds the limit of {self._max_size}"
        self.error = DecodeError(message, rule="limit-size", index=self._count)


class SSEDecoder:
    """Decodes a stream of frames to events.

    The options are those of ``EventDecoder``. A frame that is not an event (bad JSON, not an object, ``[DONE]``, an
    empty ``data:``) is a ``DecodeError`` with rule, path and the index of the frame. An error ends the stream: every
    later call raises it again. If events precede it in the same bytes, ``feed`` returns them and ``error`` is set.
    """

    def __init__(self, **options: Unpack[DecoderOptions]) -> None:
        self.error: DecodeError | None = None
        self.last_event_id: str | None = None
        """The last id of the stream, which a client sends as ``Last-Event-ID``; None before the first.

        After an error it is that of the last good frame, so that a reader that resumes there misses nothing.
        """
        self._parser = SSEParser(max_size=options.get("max_size", MAX_SIZE))
        self._decoder = EventDecoder(**options)

    def feed(self, data: bytes) -> list[Event]:
        """Return the events that these bytes complete. Unknown ones are dropped with a notice (PROC-3)."""
        return self._decode(partial(self._parser.feed, data))

    def close(self) -> list[Event]:
        """Return the last event, if the stream ended without its blank line. An incomplete one is a ``DecodeError``."""
        return self._decode(self._parser.close)

    def _decode(self, parse: Callable[[], list[Frame]]) -> list[Event]:
        if self.error is not None:
            raise self.error
        events: list[Event] = []
        try:
            for frame in parse():
                events += self._decoder.feed(frame.data)
                self.last_event_id = frame.id
            if self._parser.error is None:
                self.last_event_id = self._parser.last_event_id  # a frame without data may have one, too
            self.error = self._parser.error
        except DecodeError as error:
            self.error = error
        if self.error is not None and not events:
            raise self.error
        return events
