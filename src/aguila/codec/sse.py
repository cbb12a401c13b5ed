"""Layer: codec. Server-sent events: bytes of a stream to events and back, without I/O.

Below: ``json`` judges what a frame holds. Above: the server writes with ``SSEEncoder``, the client reads with
``SSEDecoder``; a proxy that must not judge reads frames with ``SSEParser``.

We write LF only and one data line per event (SSE-5, SSE-4). We read what the SSE standard allows: LF, CR, CRLF, a byte
order mark, data over several lines, comments, ids. ``event`` and ``retry`` mean nothing here (SSE-6). Lines are found
in bytes, never in text: U+2028 and its like are ordinary characters (PY-2). However the bytes are cut, the result is
the same.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from itertools import repeat
from typing import Final

import msgspec

from aguila.codec.compat import Level
from aguila.codec.json.decoder import EventDecoder
from aguila.codec.json.encoder import SIMPLE_EVENTS, encode_event, encode_events, encode_simple
from aguila.codec.json.large_strings import LARGE
from aguila.codec.json.text import MAX_SIZE
from aguila.codec.notices import Warn
from aguila.errors import DecodeError, EncodeError
from aguila.protocol import Event, RunStartedEvent

_BOM: Final = b"\xef\xbb\xbf"

# What a frame may hold besides its data: field names, ids, comments. The cap on the data itself is exact.
_FRAME_OVERHEAD: Final = 4096


# Writing


class SSEEncoder:
    """Events as frames of a ``text/event-stream`` body.

    An id is what a reader sends back as ``Last-Event-ID``; one that holds LF, CR or NUL could not be read again and
    raises ``EncodeError``, as does an event with no JSON form (see ``aguila.codec.encode``).
    """

    def encode(self, event: Event, id: str | int | None = None) -> bytes:  # noqa: A002  # the name of the SSE field
        """One event as one frame."""
        cls = event.__class__
        if (
            (cls in SIMPLE_EVENTS or (cls is RunStartedEvent and event.input is None))  # type: ignore[union-attr]
            and event.metadata is None
            and event.raw_event is None
            and event.timestamp is None  # the one number: NaN would be written as null
        ):
            try:  # what encode_event does, without the calls in between: this runs for every token
                data = encode_simple(event)
            except (ValueError, TypeError, RecursionError):
                data = encode_event(event)
            return b"data: %b\n\n" % data if id is None else b"id: %b\ndata: %b\n\n" % (_id(id), data)
        return self.encode_json(encode_event(event), id)

    def encode_many(self, events: Iterable[Event], ids: Iterable[str | int] | None = None) -> bytes:
        """Many events as one piece of the body; much cheaper than one by one. ``ids`` has one id for each event."""
        lines = encode_events(events)  # LF ends an event and is nowhere else, so the framing is one replacement
        if not lines:
            return b""
        if ids is None:
            return b"data: " + lines[:-1].replace(b"\n", b"\n\ndata: ") + b"\n\n"
        pairs = zip(ids, lines[:-1].split(b"\n"), strict=True)
        return b"".join([b"id: %b\ndata: %b\n\n" % (_id(id_), line) for id_, line in pairs])

    def encode_json(self, data: bytes, id: str | int | None = None) -> bytes:  # noqa: A002
        """An event that is JSON already as one frame. The JSON is not checked, but put on one line."""
        if 10 in data or 13 in data:
            data = _on_one_line(data)
        if id is None:
            return b"data: %b\n\n" % data
        return b"id: %b\ndata: %b\n\n" % (_id(id), data)

    def comment(self, text: str = "") -> bytes:
        """A comment: readers ignore it, proxies see that the stream is alive (SSE-7). Never an empty event (PY-12)."""
        if not text:
            return b":\n\n"
        lines = text.encode("utf-8", "replace").replace(b"\r\n", b"\n").replace(b"\r", b"\n").split(b"\n")
        return b"".join([b": %b\n" % line for line in lines]) + b"\n"


def _on_one_line(data: bytes) -> bytes:
    """The same JSON without line ends: in JSON they are only ever space between tokens."""
    return data.replace(b"\n", b" ").replace(b"\r", b" ")


def _id(id_: str | int) -> bytes:
    if id_.__class__ is int:
        return b"%d" % id_
    text = str(id_)
    if "\n" in text or "\r" in text or "\0" in text:
        raise EncodeError(f"the id {text!r} cannot be written: it holds LF, CR or NUL")
    try:
        return text.encode()
    except UnicodeEncodeError:
        raise EncodeError(f"the id {text!r} is not text") from None


# Reading


class Frame(msgspec.Struct, frozen=True, gc=False):
    """One frame that has data: the data lines joined by LF, and the last id that the stream gave up to here."""

    data: bytes
    id: str | None = None


class SSEParser:
    """Bytes of a stream to frames, judging nothing but their size.

    ``max_size`` caps the data of one frame, and so the memory that an endless one can take: what is larger is a
    ``DecodeError`` (``limit-size``). An error ends the stream: every later call raises it again. Frames that came
    before it in the same bytes are not lost: they are returned, ``error`` holds what the next call will raise.
    """

    def __init__(self, *, max_size: int = MAX_SIZE) -> None:
        self.error: DecodeError | None = None
        self._max_size = max_size
        self._limit = max_size + _FRAME_OVERHEAD
        self._oversize = 0  # of the frame at which reading stopped
        self._rest = bytearray()  # of the frame that has not ended yet
        self._began = False  # whether it is too late for a byte order mark
        self._after_cr = False  # the last byte was a CR: an LF after it belongs to it
        self._id: bytes | None = None
        self._count = 0

    @property
    def last_event_id(self) -> str | None:
        """The last id that the stream gave, what a client would send as ``Last-Event-ID``; None before the first."""
        return None if self._id is None else self._id.decode("utf-8", "replace")

    @property
    def buffered(self) -> int:
        """How many bytes there are of a frame that has not ended yet."""
        return len(self._rest)

    def feed(self, data: bytes) -> list[Frame]:
        """The frames that these bytes complete."""
        return self._frames(data, closing=False)

    def close(self) -> list[Frame]:
        """The last frame, if the stream ended without its blank line."""
        return self._frames(b"", closing=True)

    def _frames(self, data: bytes, closing: bool) -> list[Frame]:
        if self.error is not None:
            raise self.error
        frames: list[Frame] = []
        blocks = self._last_block() if closing else self._blocks(data)
        if not self._oversize and not (blocks and len(blocks[0]) > LARGE):  # which is copied once less by itself
            # Nearly all streams: one line of data per frame. In one go, a frame costs half.
            most = self._max_size + 6
            plain = [block[6:] for block in blocks if block[:6] == b"data: " and 10 not in block and len(block) <= most]
            if len(plain) == len(blocks):
                id_ = self.last_event_id
                self._count += len(plain)
                return list(map(Frame, plain, repeat(id_)))
            if blocks and not plain:
                numbered = self._numbered(blocks, most)
                if numbered is not None:
                    return numbered
        for block in blocks:
            content = self._data(block)
            if content is None:
                continue
            if len(content) > self._max_size:
                self._oversize = len(content)
                break
            frames.append(Frame(content, self.last_event_id))
        self._count += len(frames)
        if self._oversize:
            self.error = self._too_large(self._count)
            if not frames:
                raise self.error
        return frames

    def _numbered(self, blocks: list[bytes], most: int) -> list[Frame] | None:
        """The frames, if each is one id and one line of data, as our server writes them; None otherwise."""
        lines = b"\n".join(blocks).split(b"\n")
        heads, bodies = lines[::2], lines[1::2]
        data = [line[6:] for line in bodies if line[:6] == b"data: " and len(line) <= most]
        ids = [head[4:] for head in heads if 0 not in head]
        # Every other line is data and every block begins with an id: so that each has one of either.
        is_so = (
            len([1 for block in blocks if block[:4] == b"id: "]) == len(blocks) == len(data) == len(ids) == len(heads)
        )
        if not is_so:
            return None
        self._id = ids[-1]
        self._count += len(data)
        # All at once: a frame costs half of what it does one by one.
        return list(map(Frame, data, b"\n".join(ids).decode("utf-8", "replace").split("\n")))

    def _blocks(self, data: bytes) -> list[bytes]:
        """What stands between blank lines, as far as it is complete, with LF as the only line end."""
        if not self._began:
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
            # A long frame may come in many small pieces: gather them, and look at them again only when it ends.
            ends = data.find(b"\n\n") >= 0 or (data[0] == 10 and rest[-1] == 10)
            rest += data
            if not ends:
                if len(rest) - (rest[-1] == 10) > self._limit:  # a line end is not part of the frame
                    self._oversize = len(rest)
                return []
            # Up to here it was looked at before: what is large is copied, and not gone through again.
            end = rest.find(b"\n\n", before - 1)
            blocks = [bytes(memoryview(rest)[:end]), *bytes(memoryview(rest)[end + 2 :]).split(b"\n\n")]
        else:
            blocks = data.split(b"\n\n")
        if before + len(data) > self._limit:
            for i, block in enumerate(blocks):
                if len(block) - (block[-1:] == b"\n") > self._limit:
                    self._oversize = len(block)
                    return blocks[:i]
        self._rest = bytearray(blocks.pop())
        return blocks

    def _begin(self, data: bytes) -> bytes:
        data = bytes(self._rest) + data
        self._began = len(data) >= len(_BOM) or not _BOM.startswith(data)
        self._rest = bytearray() if self._began else bytearray(data)
        return data.removeprefix(_BOM) if self._began else b""

    def _last_block(self) -> list[bytes]:
        rest = bytes(self._rest)
        self._rest = bytearray()
        head, newline, line = rest.rpartition(b"\n")
        if not line.startswith(b"data"):
            # Data that was cut off shows by its JSON; a cut id looks like a whole one, so it must not count.
            rest = head + newline
        return [rest] if rest else []

    def _data(self, block: bytes) -> bytes | None:
        """The data of one block, None if it has no data line. Remembers the block's id."""
        if block[:6] == b"data: " and 10 not in block:
            return block[6:]
        if block[:4] == b"id: ":  # what our server writes: one id, one line of data
            end = block.find(b"\n")
            if end >= 0 and block[end + 1 : end + 7] == b"data: " and block.find(b"\n", end + 1) < 0:
                head = block[4:end]
                if 0 not in head:
                    self._id = head
                return block[end + 7 :]
        data: list[bytes] = []
        for line in block.split(b"\n"):
            name, _, value = line.partition(b":")
            if name == b"data":
                data.append(value[1:] if value.startswith(b" ") else value)
            elif name == b"id" and 0 not in value:
                self._id = value[1:] if value.startswith(b" ") else value
        return b"\n".join(data) if data else None

    def _too_large(self, index: int) -> DecodeError:
        message = f"a frame of {self._oversize} bytes or more, {self._max_size} are allowed"
        return DecodeError(message, rule="limit-size", index=index)


class SSEDecoder:
    """Bytes of a stream to events: ``SSEParser`` for the frames, ``EventDecoder`` for what they hold.

    The parameters are those of ``EventDecoder``. A frame that is no event (bad JSON, not an object, ``[DONE]``, an
    empty ``data:``) is a ``DecodeError`` with rule, path, and the index of the frame. An error ends the stream: every
    later call raises it again. Events that came before it in the same bytes are not lost: they are returned, and
    ``error`` holds what the next call will raise.
    """

    def __init__(
        self,
        *,
        compat: Level = "standard",
        warn: Warn | None = None,
        new_id: Callable[[], str] | None = None,
        strict: bool = False,
        max_size: int = MAX_SIZE,
    ) -> None:
        self.error: DecodeError | None = None
        self._parser = SSEParser(max_size=max_size)
        self._decoder = EventDecoder(compat=compat, warn=warn, new_id=new_id, strict=strict, max_size=max_size)

    @property
    def last_event_id(self) -> str | None:
        """The last id that the stream gave, what a client would send as ``Last-Event-ID``; None before the first."""
        return self._parser.last_event_id

    def feed(self, data: bytes) -> list[Event]:
        """The events that these bytes complete. Unknown ones are dropped with a notice (PROC-3)."""
        if self.error is not None:
            raise self.error
        return self._decode(self._parser._blocks(data))

    def close(self) -> list[Event]:
        """The last event, if the stream ended without its blank line; an incomplete one is a ``DecodeError``."""
        if self.error is not None:
            raise self.error
        return self._decode(self._parser._last_block())

    def _decode(self, blocks: list[bytes]) -> list[Event]:
        parser, decoder = self._parser, self._decoder
        id_before, fed_before = parser._id, decoder.next_index
        events: list[Event] = []
        texts = [block[6:] for block in blocks if block[:6] == b"data: " and 10 not in block]
        if len(texts) != len(blocks):  # there is more than plain data
            texts = [data for block in blocks if (data := parser._data(block)) is not None]
        try:
            decoder.feed_all(texts, events)
        except DecodeError as error:
            self.error = error
            # The last id is that of the last good frame, so that a reader who resumes there misses nothing.
            parser._id = id_before
            good = decoder.next_index - fed_before - 1
            for block in blocks:
                if good == 0:
                    break
                good -= parser._data(block) is not None
        else:
            if parser._oversize:
                self.error = parser._too_large(decoder.next_index)
        if self.error is not None and not events:
            raise self.error
        return events
