"""Server-sent events: encode events as frames, and decode them.

Frames are written with LF only and one data line each (SSE-5, SSE-4). Everything that the SSE standard allows is read:
LF, CR, CRLF, a byte order mark, several data lines, comments, ids. ``event`` and ``retry`` are ignored (SSE-6). Lines
are split as bytes: in text, U+2028 and others would be line ends too (PY-2).
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from itertools import repeat
from typing import Final, Unpack

import msgspec

from aguila.codec.json.decoder import DecoderOptions, EventDecoder
from aguila.codec.json.encoder import SIMPLE_EVENTS, encode_event, encode_events, encode_simple
from aguila.codec.json.large_strings import LARGE
from aguila.codec.json.text import MAX_SIZE
from aguila.errors import DecodeError, EncodeError
from aguila.protocol import Event, RunStartedEvent

_BOM: Final = b"\xef\xbb\xbf"

# Room for field names, ids and comments. The limit for the data itself is exact.
_FRAME_OVERHEAD: Final = 4096


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
            try:  # inlined from encode_event, because this runs for every token
                data = encode_simple(event)
            except (ValueError, TypeError, RecursionError):
                data = encode_event(event)
            return b"data: %b\n\n" % data if id is None else b"id: %b\ndata: %b\n\n" % (_encode_id(id), data)
        data = encode_event(event)
        if id is None and 10 not in data and 13 not in data:  # without another call
            return b"data: %b\n\n" % data
        return self.encode_json(data, id)

    def encode_many(self, events: Iterable[Event], ids: Iterable[str | int] | None = None) -> bytes:
        """Encode many events, much cheaper than one by one. ``ids`` has one id for each event."""
        lines = encode_events(events)  # LF occurs only after each event, so one replacement makes the frames
        if not lines:
            return b""
        if ids is None:
            return b"data: " + lines[:-1].replace(b"\n", b"\n\ndata: ") + b"\n\n"
        pairs = zip(ids, lines[:-1].split(b"\n"), strict=True)
        return b"".join([b"id: %b\ndata: %b\n\n" % (_encode_id(id_), line) for id_, line in pairs])

    def encode_json(self, data: bytes, id: str | int | None = None) -> bytes:  # noqa: A002
        """Frame an event that is JSON already. Line ends are removed; nothing else is checked."""
        if 10 in data or 13 in data:
            data = _on_one_line(data)
        if id is None:
            return b"data: %b\n\n" % data
        return b"id: %b\ndata: %b\n\n" % (_encode_id(id), data)

    def frame_log(self, first: int, documents: Sequence[bytes], suffix: str = "") -> bytes:
        """Frame stored events, each JSON on one line.

        The ids are consecutive numbers from ``first`` on, each with ``suffix``, which must be ASCII without ``%``.
        """
        if len(documents) == 1:
            return b"id: %d%b\ndata: %b\n\n" % (first, suffix.encode(), documents[0])
        form = b"id: %%d%b\ndata: %%b\n\n" % suffix.encode()
        return b"".join([form % pair for pair in enumerate(documents, first)])

    def frame(self, documents: Sequence[bytes], id: str | int | None = None) -> bytes:  # noqa: A002
        """Frame the documents that one event became, each JSON on one line. The last frame has the id."""
        if not documents:
            return b""
        frames = [b"data: %b\n\n" % data for data in documents]
        if id is not None:
            frames[-1] = b"id: %b\n%b" % (_encode_id(id), frames[-1])
        return b"".join(frames)

    def frame_in_pieces(self, documents: Sequence[bytes], id: str | int) -> tuple[bytes, ...]:  # noqa: A002
        """Frame documents as ``frame`` does, in pieces, so that large documents are not copied."""
        if not documents:
            return ()
        pieces = [piece for data in documents[:-1] for piece in (b"data: ", data, b"\n\n")]
        return (*pieces, b"id: %b\ndata: " % _encode_id(id), documents[-1], b"\n\n")

    def comment(self, text: str = "") -> bytes:
        """Encode a comment: readers ignore it, and proxies see that the stream is alive (SSE-7, PY-12)."""
        if not text:
            return b":\n\n"
        lines = text.encode("utf-8", "replace").replace(b"\r\n", b"\n").replace(b"\r", b"\n").split(b"\n")
        return b"".join([b": %b\n" % line for line in lines]) + b"\n"


def _on_one_line(data: bytes) -> bytes:
    """Remove line ends, which are whitespace between tokens in JSON."""
    return data.replace(b"\n", b" ").replace(b"\r", b" ")


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


class _BlockReader:
    """Splits a stream into blocks between blank lines, and reads their data and ids."""

    def __init__(self, max_size: int) -> None:
        self.oversize = 0  # the size of the block at which reading stopped
        self.last_id: bytes | None = None
        self._max_size = max_size
        self._limit = max_size + _FRAME_OVERHEAD
        self._rest = bytearray()  # the incomplete block
        self._is_past_bom = False
        self._after_cr = False  # the last byte was a CR: an LF that follows belongs to it

    @property
    def last_event_id(self) -> str | None:
        return None if self.last_id is None else self.last_id.decode("utf-8", "replace")

    @property
    def buffered(self) -> int:
        return len(self._rest)

    def feed(self, data: bytes) -> list[bytes]:
        """Return the complete blocks between blank lines, with LF as the only line end."""
        if not self._is_past_bom:
            data = self._begin(data)
        if self._after_cr and data:
            self._after_cr = False
            if data[0] == 10:
                data = data[1:]
        if not data:
            return []
        if 13 in data:
            self._after_cr = data[-1] == 13
            data = data.replace(b"\r\n", b"\n").replace(b"\r", b"\n")
        rest = self._rest
        before = len(rest)
        if rest:
            # A long frame may arrive in many small pieces. They are collected and parsed when it ends.
            ends = data.find(b"\n\n") >= 0 or (data[0] == 10 and rest[-1] == 10)
            rest += data
            if not ends:
                if len(rest) - (rest[-1] == 10) > self._limit:  # a trailing LF is not part of the frame
                    self.oversize = len(rest)
                return []
            # The bytes before were searched already.
            end = rest.find(b"\n\n", before - 1)
            blocks = [bytes(memoryview(rest)[:end]), *bytes(memoryview(rest)[end + 2 :]).split(b"\n\n")]
        else:
            blocks = data.split(b"\n\n")
        if before + len(data) > self._limit:
            for i, block in enumerate(blocks):
                if len(block) - (block[-1:] == b"\n") > self._limit:
                    self.oversize = len(block)
                    return blocks[:i]
        self._rest = bytearray(blocks.pop())
        return blocks

    def _begin(self, data: bytes) -> bytes:
        data = bytes(self._rest) + data
        self._is_past_bom = len(data) >= len(_BOM) or not _BOM.startswith(data)
        self._rest = bytearray() if self._is_past_bom else bytearray(data)
        return data.removeprefix(_BOM) if self._is_past_bom else b""

    def close(self) -> list[bytes]:
        rest = bytes(self._rest)
        self._rest = bytearray()
        head, newline, line = rest.rpartition(b"\n")
        if not line.startswith(b"data"):
            # Truncated data is not JSON, so it is noticed. A truncated id looks complete, so it must not count.
            rest = head + newline
        return [rest] if rest else []

    def read_data(self, block: bytes) -> bytes | None:
        """Return the data of a block, or None if it has no data line. Store its id."""
        if block[:6] == b"data: " and 10 not in block:
            return block[6:]
        if block[:4] == b"id: ":  # one id and one data line, as SSEEncoder writes them
            end = block.find(b"\n")
            if end >= 0 and block[end + 1 : end + 7] == b"data: " and block.find(b"\n", end + 1) < 0:
                head = block[4:end]
                if 0 not in head:
                    self.last_id = head
                return block[end + 7 :]
        data: list[bytes] = []
        for line in block.split(b"\n"):
            name, _, value = line.partition(b":")
            if name == b"data":
                data.append(value[1:] if value.startswith(b" ") else value)
            elif name == b"id" and 0 not in value:
                self.last_id = value[1:] if value.startswith(b" ") else value
        return b"\n".join(data) if data else None

    def size_error(self, index: int) -> DecodeError:
        message = f"a frame of at least {self.oversize} bytes exceeds the limit of {self._max_size}"
        return DecodeError(message, rule="limit-size", index=index)


class SSEParser:
    """Parses a stream into frames, without decoding their data.

    Data beyond ``max_size`` is a ``DecodeError`` (``limit-size``), so an endless frame cannot fill the memory. An error
    ends the stream: every later call raises it again. If frames precede it in the same bytes, ``feed`` returns them and
    ``error`` is set.
    """

    def __init__(self, *, max_size: int = MAX_SIZE) -> None:
        self.error: DecodeError | None = None
        self._reader = _BlockReader(max_size)
        self._max_size = max_size
        self._count = 0

    @property
    def last_event_id(self) -> str | None:
        """The last id of the stream, which a client sends as ``Last-Event-ID``; None before the first."""
        return self._reader.last_event_id

    @property
    def buffered(self) -> int:
        """The number of bytes of an incomplete frame."""
        return self._reader.buffered

    def feed(self, data: bytes) -> list[Frame]:
        """Return the frames that these bytes complete."""
        if self.error is not None:
            raise self.error
        return self._frames(self._reader.feed(data))

    def close(self) -> list[Frame]:
        """Return the last frame, if the stream ended without its blank line."""
        if self.error is not None:
            raise self.error
        return self._frames(self._reader.close())

    def _frames(self, blocks: list[bytes]) -> list[Frame]:
        frames: list[Frame] = []
        reader = self._reader
        if b"" in blocks:
            blocks = [block for block in blocks if block]  # a flood of blank lines
        if not reader.oversize and not (blocks and len(blocks[0]) > LARGE):  # the general case copies it once less
            # Nearly all streams have one data line per frame. Parsing them together halves the cost of a frame.
            limit = self._max_size + 6
            plain = [
                block[6:] for block in blocks if block[:6] == b"data: " and 10 not in block and len(block) <= limit
            ]
            if len(plain) == len(blocks):
                id_ = reader.last_event_id
                self._count += len(plain)
                return list(map(Frame, plain, repeat(id_)))
            if blocks and not plain:
                numbered = self._numbered(blocks, limit)
                if numbered is not None:
                    return numbered
        for block in blocks:
            content = reader.read_data(block)
            if content is None:
                continue
            if len(content) > self._max_size:
                reader.oversize = len(content)
                break
            frames.append(Frame(content, reader.last_event_id))
        self._count += len(frames)
        if reader.oversize:
            self.error = reader.size_error(self._count)
            if not frames:
                raise self.error
        return frames

    def _numbered(self, blocks: list[bytes], limit: int) -> list[Frame] | None:
        """Return the frames if each is one id and one data line, as ``SSEEncoder`` writes them, else None."""
        lines = b"\n".join(blocks).split(b"\n")
        heads, bodies = lines[::2], lines[1::2]
        data = [line[6:] for line in bodies if line[:6] == b"data: " and len(line) <= limit]
        ids = [head[4:] for head in heads if 0 not in head]
        # Every block begins with an id and every second line is data, so each block has one of each.
        has_ids = len([1 for block in blocks if block[:4] == b"id: "]) == len(blocks)
        if not has_ids or not len(blocks) == len(data) == len(ids) == len(heads):
            return None
        self._reader.last_id = ids[-1]
        self._count += len(data)
        return list(map(Frame, data, b"\n".join(ids).decode("utf-8", "replace").split("\n")))


class SSEDecoder:
    """Decodes a stream of frames to events.

    The options are those of ``EventDecoder``. A frame that is not an event (bad JSON, not an object, ``[DONE]``, an
    empty ``data:``) is a ``DecodeError`` with rule, path and the index of the frame. An error ends the stream: every
    later call raises it again. If events precede it in the same bytes, ``feed`` returns them and ``error`` is set.
    """

    def __init__(self, **options: Unpack[DecoderOptions]) -> None:
        self.error: DecodeError | None = None
        self._reader = _BlockReader(options.get("max_size", MAX_SIZE))
        self._decoder = EventDecoder(**options)

    @property
    def last_event_id(self) -> str | None:
        """The last id of the stream, which a client sends as ``Last-Event-ID``; None before the first."""
        return self._reader.last_event_id

    def feed(self, data: bytes) -> list[Event]:
        """Return the events that these bytes complete. Unknown ones are dropped with a notice (PROC-3)."""
        if self.error is not None:
            raise self.error
        return self._decode(self._reader.feed(data))

    def close(self) -> list[Event]:
        """Return the last event, if the stream ended without its blank line. An incomplete one is a ``DecodeError``."""
        if self.error is not None:
            raise self.error
        return self._decode(self._reader.close())

    def _decode(self, blocks: list[bytes]) -> list[Event]:
        reader, decoder = self._reader, self._decoder
        id_before, index_before = reader.last_id, decoder.next_index
        events: list[Event] = []
        texts = [block[6:] for block in blocks if block[:6] == b"data: " and 10 not in block]
        if len(texts) != len(blocks):  # ids, comments or several data lines
            texts = [data for block in blocks if (data := reader.read_data(block)) is not None]
        try:
            decoder.feed_all(texts, events)
        except DecodeError as error:
            self.error = error
            # Go back to the id of the last good frame, so that a reader that resumes there misses nothing.
            reader.last_id = id_before
            good = decoder.next_index - index_before - 1
            for block in blocks:
                if good == 0:
                    break
                good -= reader.read_data(block) is not None
        else:
            if reader.oversize:
                self.error = reader.size_error(decoder.next_index)
        if self.error is not None and not events:
            raise self.error
        return events
