"""Encode event streams as JSON lines or as one JSON array, and decode them, incrementally.

Decoders accept pieces of any size and buffer at most one event.
"""

from __future__ import annotations

import re
from abc import ABC, abstractmethod
from collections.abc import Iterable, Iterator
from typing import Final, Literal, Protocol, Unpack

from aguila.codec.json.decoder import DecoderOptions, EventDecoder
from aguila.codec.json.encoder import encode_event
from aguila.codec.json.text import MAX_SIZE
from aguila.errors import DecodeError
from aguila.protocol import Event

_BOM: Final = b"\xef\xbb\xbf"
_SPACE: Final = b" \t\r\n"
_READ_SIZE: Final = 1 << 16


# Writing


def encode_lines(events: Iterable[Event]) -> Iterator[bytes]:
    """Encode events as lines of a JSONL file. Raises ``EncodeError`` for an event without a JSON form."""
    for event in events:
        yield encode_event(event) + b"\n"


class JSONArrayEncoder:
    """Encodes events as one JSON array: ``encode`` for each event, then ``close`` for the end of the array."""

    def __init__(self) -> None:
        self._separator = b"[\n"

    def encode(self, event: Event) -> bytes:
        """Encode the next element with its separator. Raises ``EncodeError`` for an event without a JSON form."""
        data = self._separator + encode_event(event)
        self._separator = b",\n"
        return data

    def close(self) -> bytes:
        """Return the end of the array; the whole array if there was no event."""
        return b"[]\n" if self._separator == b"[\n" else b"\n]\n"


# Reading


class _Decoder(ABC):
    """Decodes the documents that a subclass finds: events first, then the error that ended the stream."""

    def __init__(self, **options: Unpack[DecoderOptions]) -> None:
        self.error: DecodeError | None = None
        self._decoder = EventDecoder(**options)
        self._max_size = options.get("max_size", MAX_SIZE)
        self._buffer = bytearray()  # the beginning of the next event

    def feed(self, data: bytes) -> list[Event]:
        """Return the events that these bytes complete. Unknown ones are dropped with a notice (PROC-3)."""
        return self._decode(self._split(data))

    def close(self) -> list[Event]:
        """Return the events left at the end of the stream. Raises ``DecodeError`` if it ends too early."""
        return self._decode(self._finish())

    def _decode(self, documents: Iterator[bytes]) -> list[Event]:
        if self.error is not None:
            raise self.error
        events: list[Event] = []
        try:
            for data in documents:
                events += self._decoder.feed(data)
        except DecodeError as error:
            error.message = f"line {self._line()}: {error.message}"
            self.error = error
            if not events:
                raise
        return events

    @abstractmethod
    def _split(self, data: bytes) -> Iterator[bytes]:
        """Yield the JSON of each event that these bytes complete."""

    @abstractmethod
    def _finish(self) -> Iterator[bytes]:
        """Yield the JSON that is left at the end."""

    @abstractmethod
    def _line(self) -> int:
        """Return the current line, from 1."""

    def _new_error(self, message: str, rule: str = "json") -> DecodeError:
        return DecodeError(message, rule=rule, index=self._decoder.next_index)

    def _check_size(self, size: int) -> None:
        if size > self._max_size:
            raise self._new_error(
                f"an event of at least {size} bytes exceeds the limit of {self._max_size}", "limit-size"
            )


class JSONLDecoder(_Decoder):
    """Decodes a JSONL file. Blank lines and a byte order mark are skipped; CRLF is a line end too.

    The options are those of ``EventDecoder``. A line that is not an event is a ``DecodeError`` with rule, path, the
    index of the event and the number of the line in its message. An error ends the stream: every later call raises it
    again. If events precede it in the same bytes, ``feed`` returns them and ``error`` is set.
    """

    _lines = 0

    def _split(self, data: bytes) -> Iterator[bytes]:
        buffer = self._buffer
        if 10 not in data:  # a long line may arrive in many pieces: it is split when it ends
            buffer += data
            self._check_size(len(buffer) - len(_BOM) - 1)  # a byte order mark and a CR are not part of the event
            return
        if buffer:
            data = bytes(buffer + data)
        *lines, rest = data.split(b"\n")
        self._buffer = bytearray(rest)
        yield from self._events(lines)
        self._lines += 1
        self._check_size(len(rest) - len(_BOM) - 1)
        self._lines -= 1

    def _finish(self) -> Iterator[bytes]:
        rest = bytes(self._buffer)
        self._buffer = bytearray()
        yield from self._events([rest])

    def _events(self, lines: list[bytes]) -> Iterator[bytes]:
        for line in lines:
            self._lines += 1
            if self._lines == 1:
                line = line.removeprefix(_BOM)
            event = line.strip(_SPACE)
            if event:
                yield event

    def _line(self) -> int:
        return max(self._lines, 1)


# Matches up to the next bracket outside strings, or to an incomplete string. Possessive, so it is one pass.
_TO_BRACKET: Final = re.compile(rb'[^"{}\[\]]*+(?:"[^"\\]*+(?:\\.[^"\\]*+)*+"[^"{}\[\]]*+)*+', re.DOTALL)
_TO_QUOTE: Final = re.compile(rb'[^"\\]*+(?:\\.[^"\\]*+)*+', re.DOTALL)
_OVER_SPACE: Final = re.compile(rb"[ \t\r\n]*+")

_QUOTE, _BACKSLASH, _COMMA, _OPEN_ARRAY, _CLOSE_ARRAY, _OPEN_OBJECT = b'"\\,[]{'


class JSONArrayDecoder(_Decoder):
    """Decodes one JSON array, each event as soon as it is complete. Errors are as in ``JSONLDecoder``.

    Elements are found by counting brackets outside strings.
    """

    _expected: Literal["array", "first", "comma", "element", "nothing"] = "array"
    _depth = 0  # open brackets of the element
    _in_string = False
    _scanned = 0  # bytes of the buffer that were searched
    _start = 0  # where the element begins in the buffer
    _consumed_lines = 0

    def _split(self, data: bytes) -> Iterator[bytes]:
        buffer = self._buffer
        buffer += data
        if self._expected == "array" and _BOM.startswith(buffer[: len(_BOM)]):
            if len(buffer) < len(_BOM):
                return
            del buffer[: len(_BOM)]
        while (self._depth or self._find_start()) and self._find_end():
            yield bytes(buffer[self._start : self._scanned])
        consumed = self._start if self._depth else self._scanned
        self._check_size(len(buffer) - consumed)
        self._consumed_lines += buffer.count(b"\n", 0, consumed)
        del buffer[:consumed]
        self._start, self._scanned = 0, self._scanned - consumed

    def _find_start(self) -> bool:
        """Move to the next element. Return False if its start has not arrived."""
        buffer = self._buffer
        while True:
            self._start = self._scanned = _match_end(_OVER_SPACE, buffer, self._scanned)
            if self._scanned == len(buffer):
                return False
            char, expected = buffer[self._scanned], self._expected
            self._scanned += 1
            if char == _OPEN_OBJECT and expected in ("first", "element"):
                self._depth = 1
                self._expected = "comma"
                return True
            if char == _OPEN_ARRAY and expected == "array":
                self._expected = "first"
            elif char == _COMMA and expected == "comma":
                self._expected = "element"
            elif char == _CLOSE_ARRAY and expected in ("first", "comma"):
                self._expected = "nothing"
            elif expected == "array":
                raise self._new_error("expected a JSON array of events", "ENV-1")
            elif expected in ("first", "element") and char not in b",]}":
                raise self._new_error("an event must be a JSON object", "ENV-1")
            else:
                raise self._new_error(f"not JSON: unexpected {chr(char)!r} in the array")

    def _find_end(self) -> bool:
        """Move to the end of the element. Return False if it has not arrived."""
        buffer = self._buffer
        while self._depth:
            pattern = _TO_QUOTE if self._in_string else _TO_BRACKET
            self._scanned = _match_end(pattern, buffer, self._scanned)
            if self._scanned == len(buffer) or buffer[self._scanned] == _BACKSLASH:
                return False  # a backslash stops the search only as the last byte: its escape is incomplete
            char = buffer[self._scanned]
            self._scanned += 1
            if char == _QUOTE:
                self._in_string = not self._in_string
            elif char in b"[{":
                self._depth += 1
            else:
                self._depth -= 1
        return True

    def _finish(self) -> Iterator[bytes]:
        if self._expected != "nothing":
            raise self._new_error("not JSON: the array has no end")
        yield from ()

    def _line(self) -> int:
        return self._consumed_lines + self._buffer.count(b"\n", 0, self._start) + 1


def _match_end(pattern: re.Pattern[bytes], buffer: bytearray, start: int) -> int:
    found = pattern.match(buffer, start)
    assert found is not None  # noqa: S101  # every pattern here matches the empty string
    return found.end()


# Files


class Readable(Protocol):
    """An open binary file."""

    def read(self, size: int, /) -> bytes:
        """Return up to ``size`` bytes; no bytes at the end."""
        ...


def read_events(file: Readable, **options: Unpack[DecoderOptions]) -> Iterator[Event]:
    """Yield the events of an open binary file, JSONL or one JSON array, while reading it.

    The options are those of ``EventDecoder``. Raises ``DecodeError`` after the events before the error; the message
    names the line. An empty file has no events.
    """
    head = b""
    while not head.removeprefix(_BOM).strip(_SPACE):
        piece = file.read(_READ_SIZE)
        if not piece:
            return
        head += piece
    decoder_class = JSONArrayDecoder if head.removeprefix(_BOM).lstrip(_SPACE).startswith(b"[") else JSONLDecoder
    decoder = decoder_class(**options)
    piece = head
    while piece:
        yield from decoder.feed(piece)
        if decoder.error is not None:
            raise decoder.error
        piece = file.read(_READ_SIZE)
    yield from decoder.close()
