"""Layer: codec. Streams of events at rest: JSON lines, or one JSON array. Written and read piece by piece.

Below: ``json`` judges each event. Above: stores, the command line and tests keep histories with it. This layer opens
nothing: bytes or an open file are passed in. However the bytes are cut, the result is the same, and no more than one
event is held at a time.
"""

from __future__ import annotations

import re
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator
from typing import Final, Literal, Protocol

from aguila.codec.compat import Level
from aguila.codec.json.decoder import EventDecoder
from aguila.codec.json.encoder import encode_event
from aguila.codec.json.text import MAX_SIZE
from aguila.codec.notices import Warn
from aguila.errors import DecodeError
from aguila.protocol import Event

_BOM: Final = b"\xef\xbb\xbf"
_SPACE: Final = b" \t\r\n"
_PIECE: Final = 1 << 16


# Writing


def encode_lines(events: Iterable[Event]) -> Iterator[bytes]:
    """The lines of a JSONL file, one event each. Raises ``EncodeError`` for an event with no JSON form."""
    for event in events:
        yield encode_event(event) + b"\n"


class JSONArrayEncoder:
    """Events as one JSON array, an event at a time: ``encode`` for each, then ``close`` for the end of the array."""

    def __init__(self) -> None:
        self._before = b"[\n"

    def encode(self, event: Event) -> bytes:
        """The next element, with what comes before it. Raises ``EncodeError`` for an event with no JSON form."""
        data = self._before + encode_event(event)
        self._before = b",\n"
        return data

    def close(self) -> bytes:
        """The end of the array; all of it, if there was no event."""
        return b"[]\n" if self._before == b"[\n" else b"\n]\n"


# Reading


class _Decoder(ABC):
    """What both readers share: the parameters, and the order of events before an error before silence."""

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
        self._decoder = EventDecoder(compat=compat, warn=warn, new_id=new_id, strict=strict, max_size=max_size)
        self._max_size = max_size
        self._buffer = bytearray()  # what has not been consumed: the beginning of the next event

    def feed(self, data: bytes) -> list[Event]:
        """The events that these bytes complete. Unknown ones are dropped with a notice (PROC-3)."""
        return self._decode(self._take(data))

    def close(self) -> list[Event]:
        """What is left at the end of the bytes; ``DecodeError`` if they end too early."""
        return self._decode(self._finish())

    def _decode(self, found: Iterator[bytes]) -> list[Event]:
        if self.error is not None:
            raise self.error
        events: list[Event] = []
        try:
            for data in found:
                events += self._decoder.feed(data)
        except DecodeError as error:
            error.message = f"line {self._line()}: {error.message}"
            self.error = error
            if not events:
                raise
        return events

    @abstractmethod
    def _take(self, data: bytes) -> Iterator[bytes]:
        """The JSON of each event that these bytes complete."""

    @abstractmethod
    def _finish(self) -> Iterator[bytes]:
        """The JSON of what is left at the end."""

    @abstractmethod
    def _line(self) -> int:
        """The line that is being read, from 1."""

    def _refuse(self, message: str, rule: str = "json") -> DecodeError:
        return DecodeError(message, rule=rule, index=self._decoder.next_index)

    def _check_size(self, size: int) -> None:
        if size > self._max_size:
            raise self._refuse(f"an event of {size} bytes or more, {self._max_size} are allowed", "limit-size")


class JSONLDecoder(_Decoder):
    """Bytes of a JSONL file to events. Blank lines are skipped, a byte order mark is too; CRLF is a line end as well.

    The parameters are those of ``EventDecoder``. A line that is no event is a ``DecodeError`` with rule, path, the
    index of the event and, in its message, the number of the line. An error ends the stream: every later call raises
    it again. Events before it in the same bytes are returned, and ``error`` holds what the next call will raise.
    """

    _lines = 0

    def _take(self, data: bytes) -> Iterator[bytes]:
        buffer = self._buffer
        if 10 not in data:  # a long line may come in many pieces: look at it again only when it ends
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


# Up to the next bracket that is not in a string, or to a string whose end has not come yet. Possessive: one pass.
_TO_BRACKET: Final = re.compile(rb'[^"{}\[\]]*+(?:"[^"\\]*+(?:\\.[^"\\]*+)*+"[^"{}\[\]]*+)*+', re.DOTALL)
_TO_QUOTE: Final = re.compile(rb'[^"\\]*+(?:\\.[^"\\]*+)*+', re.DOTALL)
_OVER_SPACE: Final = re.compile(rb"[ \t\r\n]*+")

_QUOTE, _BACKSLASH, _COMMA, _OPEN_ARRAY, _CLOSE_ARRAY, _OPEN_OBJECT = b'"\\,[]{'


class JSONArrayDecoder(_Decoder):
    """Bytes of one JSON array to events, each as soon as it is complete. Errors are as in ``JSONLDecoder``.

    Only the edges of elements are found here, by counting brackets outside strings; ``json`` judges what is between.
    """

    _awaits: Literal["array", "first", "comma", "element", "nothing"] = "array"
    _depth = 0  # of open brackets within the element
    _in_string = False
    _scanned = 0  # bytes of the buffer that need no second look
    _start = 0  # of the element in the buffer
    _lines_gone = 0  # line ends that left the buffer

    def _take(self, data: bytes) -> Iterator[bytes]:
        buffer = self._buffer
        buffer += data
        if self._awaits == "array" and _BOM.startswith(buffer[: len(_BOM)]):
            if len(buffer) < len(_BOM):
                return
            del buffer[: len(_BOM)]
        while (self._depth or self._between()) and self._within():
            yield bytes(buffer[self._start : self._scanned])
        gone = self._start if self._depth else self._scanned
        self._check_size(len(buffer) - gone)
        self._lines_gone += buffer.count(b"\n", 0, gone)
        del buffer[:gone]
        self._start, self._scanned = 0, self._scanned - gone

    def _between(self) -> bool:
        """Goes on to the next element; False if its beginning has not come yet."""
        buffer = self._buffer
        while True:
            self._start = self._scanned = _end(_OVER_SPACE, buffer, self._scanned)
            if self._scanned == len(buffer):
                return False
            char, awaits = buffer[self._scanned], self._awaits
            self._scanned += 1
            if char == _OPEN_OBJECT and awaits in ("first", "element"):
                self._depth = 1
                self._awaits = "comma"
                return True
            if char == _OPEN_ARRAY and awaits == "array":
                self._awaits = "first"
            elif char == _COMMA and awaits == "comma":
                self._awaits = "element"
            elif char == _CLOSE_ARRAY and awaits in ("first", "comma"):
                self._awaits = "nothing"
            elif awaits == "array":
                raise self._refuse("expected a JSON array of events", "ENV-1")
            elif awaits in ("first", "element") and char not in b",]}":
                raise self._refuse("an event must be a JSON object", "ENV-1")
            else:
                raise self._refuse(f"not JSON: unexpected {chr(char)!r} in the array")

    def _within(self) -> bool:
        """Goes on to the end of the element; False if it has not come yet."""
        buffer = self._buffer
        while self._depth:
            pattern = _TO_QUOTE if self._in_string else _TO_BRACKET
            self._scanned = _end(pattern, buffer, self._scanned)
            if self._scanned == len(buffer) or buffer[self._scanned] == _BACKSLASH:
                return False  # a backslash stops the search only as the last byte: what it escapes is to come
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
        if self._awaits != "nothing":
            raise self._refuse("not JSON: the array has no end")
        yield from ()

    def _line(self) -> int:
        return self._lines_gone + self._buffer.count(b"\n", 0, self._start) + 1


def _end(pattern: re.Pattern[bytes], buffer: bytearray, start: int) -> int:
    found = pattern.match(buffer, start)
    assert found is not None  # noqa: S101  # every pattern here matches nothing, too
    return found.end()


# Either


class Readable(Protocol):
    """An open binary file, or what reads like one."""

    def read(self, size: int, /) -> bytes:
        """Up to ``size`` bytes; none at the end."""
        ...


def read_events(
    file: Readable,
    *,
    compat: Level = "standard",
    warn: Warn | None = None,
    new_id: Callable[[], str] | None = None,
    strict: bool = False,
    max_size: int = MAX_SIZE,
) -> Iterator[Event]:
    """The events of an open binary file, JSONL or one JSON array: the first byte that is not blank tells which.

    Reads as it goes. Raises ``DecodeError`` after the events that stand before what is wrong; the message names the
    line. A file without content holds no events.
    """
    head = b""
    while not head.removeprefix(_BOM).strip(_SPACE):
        piece = file.read(_PIECE)
        if not piece:
            return
        head += piece
    kind = JSONArrayDecoder if head.removeprefix(_BOM).lstrip(_SPACE).startswith(b"[") else JSONLDecoder
    decoder = kind(compat=compat, warn=warn, new_id=new_id, strict=strict, max_size=max_size)
    piece = head
    while piece:
        yield from decoder.feed(piece)
        if decoder.error is not None:
            raise decoder.error
        piece = file.read(_PIECE)
    yield from decoder.close()
