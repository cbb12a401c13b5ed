"""Layer: codec. JSON with large strings in it, read and written so that no single call takes long.

Below: ``whole``. Above: ``json`` and ``writing``, and whoever reads documents that can be large.

A call into C keeps all other Python code waiting, in whichever thread it is made: msgspec takes a millisecond for a
megabyte, several times that on fresh memory, and a photo has twenty. So a large string is taken out, and the rest is
read or written without it. Going in, it is checked slice by slice, and the one long call left copies it (0.3 ms for a
megabyte). Going out, it is written slice by slice. This is for strings that a file makes, as base64: one that is not
ASCII, or that has escapes in it, is read with everything else.
"""

from __future__ import annotations

from hashlib import sha256
from typing import Any, Final, cast

import msgspec

from aguila.codec.json.buffer import PresizedBuffer
from aguila.codec.json.values import is_array, is_object

LARGE: Final = 1 << 20
"""Bytes from which on work is done apart from the event loop, or in slices: it would be held for milliseconds."""

_SLICE: Final = 1 << 18
_WINDOW: Final = 1 << 17
"""A string of twice as many bytes has one such stretch in it, counted from the beginning of the text."""

_DIGITS: Final = 32
_MARKED: Final = _DIGITS + 8

_decode_string = msgspec.json.Decoder(str).decode
_encode = msgspec.json.Encoder().encode


# Reading


class ExcisedJSON:
    """A JSON text, ``data``, without its large strings: ``text`` has a mark in place of each."""

    __slots__ = ("_mark", "_spans", "data", "text")

    def __init__(self, data: bytes, spans: list[tuple[int, int]]) -> None:
        self.data = data
        self._spans = spans
        edges = [0, *(edge for span in spans for edge in span), len(data)]
        between = [data[edges[i] : edges[i + 1]] for i in range(0, len(edges), 2)]
        digest = sha256()
        for piece in between:
            digest.update(piece)
        self._mark = digest.hexdigest()[:_DIGITS]  # which no text can contain that it is the digest of
        pieces = [between[0]]
        for number, piece in enumerate(between[1:]):
            pieces += (self._mark.encode(), b"%08x" % number, piece)
        self.text = b"".join(pieces)

    def full_size(self, text: bytes) -> int:
        """How many bytes a part of ``text`` has with its large strings."""
        size = len(text)
        mark = self._mark.encode()
        at = text.find(mark)
        while at >= 0:
            start, end = self._spans[int(text[at + _DIGITS : at + _MARKED], 16)]
            size += end - start - _MARKED
            at = text.find(mark, at + _MARKED)
        return size

    def restore(self, value: Any) -> Any:
        """What was read from ``text``, with the strings in their places again. Changes the objects it is given."""
        if isinstance(value, str):
            if len(value) != _MARKED or not value.startswith(self._mark):
                return value
            start, end = self._spans[int(value[_DIGITS:], 16)]
            return str(memoryview(self.data)[start:end], "ascii")
        if is_object(value):
            for name, member in value.items():
                if (found := self.restore(member)) is not member:
                    value[name] = found
        elif is_array(value):
            for index, item in enumerate(value):
                if (found := self.restore(item)) is not item:
                    value[index] = found
        elif isinstance(value, msgspec.Struct):
            for name in value.__struct_fields__:
                member = getattr(value, name)
                if (found := self.restore(member)) is not member:
                    msgspec.structs.force_setattr(value, name, found)
        return value


def excise_strings(data: bytes) -> ExcisedJSON | None:
    """The text without its large strings; None if it has none that can be cut out.

    It may take something else for a string, such as very many numbers. Then what is left is no JSON, so whoever cannot
    read it has to try again with all of it.
    """
    spans: list[tuple[int, int]] = []
    at = 0
    while at + _WINDOW <= len(data):
        if data.find(b'"', at, at + _WINDOW) >= 0:
            at += _WINDOW
            continue
        start = data.rfind(b'"', max(0, at - _WINDOW), at) + 1
        end = _next_quote(data, at + _WINDOW)
        if end < 0:
            break
        if start > 0 and _is_plain(data, start, end):
            spans.append((start, end))
        at = end + 1
    return ExcisedJSON(data, spans) if spans else None


def _next_quote(data: bytes, at: int) -> int:
    while at < len(data):
        found = data.find(b'"', at, at + _SLICE)
        if found >= 0:
            return found
        at += _SLICE
    return -1


def _is_plain(data: bytes, start: int, end: int) -> bool:
    """Whether this is, as it is, what a string holds: ASCII, no escapes, and not the name of a member."""
    if data[start - 2 : start - 1] == b"\\" or data[end + 1 : end + 20].lstrip(b" \t\r\n")[:1] not in _AFTER:
        return False
    for at in range(start, end, _SLICE):
        piece = data[at : min(at + _SLICE, end)]
        try:
            if not piece.isascii() or len(_decode_string(b'"%b"' % piece)) != len(piece):
                return False
        except (msgspec.DecodeError, UnicodeError):
            return False
    return True


_AFTER: Final = (b",", b"}", b"]")


# Writing


class ExcisedValue:
    """A value without its large strings: ``rest`` is to be written, and ``splice`` puts them in. Plain values only."""

    def __init__(self, value: Any) -> None:
        self._strings: list[str] = []
        self.rest: Any = self._take(value)

    def __bool__(self) -> bool:
        """Whether it had any."""
        return bool(self._strings)

    def _take(self, value: Any) -> Any:
        if isinstance(value, str):
            if len(value) <= _SLICE:
                return value
            self._strings.append(value)
            return _GAP
        if is_object(value):
            return {name: self._take(member) for name, member in value.items()}
        if is_array(value):
            return [self._take(item) for item in value]
        return tuple(map(self._take, cast("Any", value))) if isinstance(value, tuple) else value

    def splice(self, text: bytes) -> bytes:
        """What ``rest`` was written as, with the strings. Raises ``UnicodeEncodeError`` for half a surrogate pair."""
        between = text.split(bytes(_GAP))
        whole = PresizedBuffer(len(text) + sum([len(string) + 1 for string in self._strings]))
        whole.write(between[0])
        for string, piece in zip(self._strings, between[1:], strict=True):
            whole.write(b'"')
            for at in range(0, len(string), _SLICE):
                whole.write(memoryview(_encode(string[at : at + _SLICE]))[1:-1])
            whole.write(b'"')
            whole.write(piece)
        return whole.getvalue()


_GAP: Final = msgspec.Raw(b"\x01")  # nowhere in JSON: a string would have it escaped
