"""Read and write JSON with large strings so that no single call takes long.

A call into C holds the GIL: msgspec takes a millisecond per megabyte, and several times that on fresh memory. So large
strings are excised and the rest is decoded or encoded without them. A string that is read is checked in slices and
copied with one call (0.3 ms per megabyte). A string that is written is encoded in slices. This serves files in base64:
a string that is not ASCII, or that contains escapes, is read with the rest.
"""

from __future__ import annotations

from collections.abc import Iterator
from hashlib import sha256
from typing import Any, Final, cast

import msgspec

from aguila.codec.json.bounded_floats import json_decoder
from aguila.codec.json.buffer import PresizedBuffer
from aguila.codec.json.values import is_array, is_object

LARGE: Final = 1 << 20
"""Bytes from which on work is offloaded or sliced: it would block the event loop for milliseconds."""

_SLICE: Final = 1 << 18
_WINDOW: Final = 1 << 17
"""A string of twice this size contains at least one whole window, counted from the start of the text."""

_DIGITS: Final = 32
_MARK_SIZE: Final = _DIGITS + 8

_decode_string = json_decoder(str).decode
_encode = msgspec.json.Encoder().encode


# Reading


class ExcisedJSON:
    """A JSON text, ``data``, and the same text with a mark in place of each large string, ``text``."""

    __slots__ = ("_mark", "_spans", "data", "text")

    def __init__(self, data: bytes, spans: list[tuple[int, int]]) -> None:
        self.data = data
        self._spans = spans
        edges = [0, *(edge for span in spans for edge in span), len(data)]
        between = [data[edges[i] : edges[i + 1]] for i in range(0, len(edges), 2)]
        digest = sha256()
        for piece in between:
            digest.update(piece)
        self._mark = digest.hexdigest()[:_DIGITS]  # a text cannot contain its own digest
        pieces = [between[0]]
        for number, piece in enumerate(between[1:]):
            pieces += (self._mark.encode(), b"%08x" % number, piece)
        self.text = b"".join(pieces)

    def full_size(self, text: bytes) -> int:
        """Return the size of a part of ``text`` with its large strings."""
        size = len(text)
        mark = self._mark.encode()
        at = text.find(mark)
        while at >= 0:
            start, end = self._spans[int(text[at + _DIGITS : at + _MARK_SIZE], 16)]
            size += end - start - _MARK_SIZE
            at = text.find(mark, at + _MARK_SIZE)
        return size

    def take_out(self, text: bytes, min_size: int = 0) -> tuple[bytes, list[tuple[int, memoryview]]]:
        """Remove the marks from a part of ``text``; return the rest, and the place and content of each large string.

        Strings of fewer than ``min_size`` bytes are put back instead.
        """
        pieces: list[bytes] = []
        found: list[tuple[int, memoryview]] = []
        mark = self._mark.encode()
        place = start = 0
        at = text.find(mark)
        while at >= 0:
            first, end = self._spans[int(text[at + _DIGITS : at + _MARK_SIZE], 16)]
            data = memoryview(self.data)[first:end]
            pieces.append(text[start:at])
            place += at - start
            if len(data) < min_size:
                pieces.append(bytes(data))
                place += len(data)
            else:
                found.append((place, data))
            start = at + _MARK_SIZE
            at = text.find(mark, start)
        pieces.append(text[start:])
        return b"".join(pieces), found

    def restore(self, value: Any) -> Any:
        """Put the strings back into the objects that were decoded from ``text``. Changes them in place."""
        if isinstance(value, str):
            if len(value) != _MARK_SIZE or not value.startswith(self._mark):
                return value
            start, end = self._spans[int(value[_DIGITS:], 16)]
            return str(memoryview(self.data)[start:end], "ascii")
        if is_object(value):
            for name, member in value.items():
                if (restored := self.restore(member)) is not member:
                    value[name] = restored
        elif is_array(value):
            for index, item in enumerate(value):
                if (restored := self.restore(item)) is not item:
                    value[index] = restored
        elif isinstance(value, msgspec.Struct):
            for name in value.__struct_fields__:
                member = getattr(value, name)
                if (restored := self.restore(member)) is not member:
                    msgspec.structs.force_setattr(value, name, restored)
        return value


def excise_strings(data: bytes, window: int = _WINDOW) -> ExcisedJSON | None:
    """Excise the large strings of a JSON text. Return None if it has none.

    A string of ``2 * window`` bytes is always found, one of fewer than ``window`` bytes never.

    Something else may be mistaken for a string, such as very many numbers. Then the result is not JSON, so a caller
    that cannot decode it must decode the original.
    """
    spans: list[tuple[int, int]] = []
    at = 0
    while at + window <= len(data):
        if data.find(b'"', at, at + window) >= 0:
            at += window
            continue
        start = data.rfind(b'"', max(0, at - window), at) + 1
        end = _next_quote(data, at + window)
        if end < 0:
            break
        if start > 0 and _is_plain(data, start, end):
            spans.append((start, end))
        at = end + 1
    return ExcisedJSON(data, spans) if spans else None


def _next_quote(data: bytes, at: int) -> int:
    while at < len(data):
        quote = data.find(b'"', at, at + _SLICE)
        if quote >= 0:
            return quote
        at += _SLICE
    return -1


def _is_plain(data: bytes, start: int, end: int) -> bool:
    """Return whether these bytes are the value of a string: ASCII, no escapes, not a member name."""
    if data[start - 2 : start - 1] == b"\\" or data[end + 1 : end + 20].lstrip(b" \t\r\n")[:1] not in _AFTER_VALUE:
        return False
    for at in range(start, end, _SLICE):
        piece = data[at : min(at + _SLICE, end)]
        try:
            if not piece.isascii() or len(_decode_string(b'"%b"' % piece)) != len(piece):
                return False
        except (msgspec.DecodeError, UnicodeError):
            return False
    return True


_AFTER_VALUE: Final = (b",", b"}", b"]")


# Writing


class ExcisedValue:
    """A plain value without its large strings. Encode ``rest``, then ``splice`` the strings into the result."""

    def __init__(self, value: Any, slice_size: int = _SLICE) -> None:
        self._slice = slice_size
        self._strings: list[str] = []
        self.rest: Any = self._excise(value)

    def __bool__(self) -> bool:
        """Return whether the value had large strings."""
        return bool(self._strings)

    def _excise(self, value: Any) -> Any:
        if isinstance(value, str):
            if len(value) <= self._slice:
                return value
            self._strings.append(value)
            return _GAP
        if is_object(value):
            return {name: self._excise(member) for name, member in value.items()}
        if is_array(value):
            return [self._excise(item) for item in value]
        return tuple(map(self._excise, cast("Any", value))) if isinstance(value, tuple) else value

    def splice(self, text: bytes) -> bytes:
        """Put the strings into the encoded ``rest``. Raises ``UnicodeEncodeError`` for a lone surrogate."""
        # Exact if no string needs escapes.
        buffer = PresizedBuffer(len(text) + sum([len(string) + 1 for string in self._strings]))
        for piece in self.pieces(text):
            buffer.write(piece)
        return buffer.getvalue()

    def pieces(self, text: bytes) -> Iterator[bytes]:
        """Yield the encoded ``rest`` with the strings in slices. Raises ``UnicodeEncodeError`` for a lone surrogate."""
        between = text.split(bytes(_GAP))
        yield between[0]
        for string, piece in zip(self._strings, between[1:], strict=True):
            yield b'"'
            for at in range(0, len(string), self._slice):
                yield _encode(string[at : at + self._slice])[1:-1]
            yield b'"'
            yield piece

    def check(self) -> None:
        """Raise ``UnicodeEncodeError`` for a lone surrogate in the strings."""
        for string in self._strings:
            if not string.isascii():
                for at in range(0, len(string), self._slice):
                    string[at : at + self._slice].encode()


_GAP: Final = msgspec.Raw(b"\x01")  # cannot occur in JSON text: strings escape it
