"""Cut large strings out of JSON, so that the store keeps each inline file once.

This serves files in base64: a string that is not ASCII, or that contains escapes, stays in the text. Strings are found
and checked in slices, because a call into C holds the GIL.
"""

from __future__ import annotations

from hashlib import sha256
from typing import Final

import msgspec

from aguila.codec.json.bounded_floats import json_decoder

HUGE: Final = 1 << 20
"""Bytes of a value from which on a store writes and reads it in slices, or in a thread."""

_SLICE: Final = 1 << 18

_DIGITS: Final = 32
_MARK_SIZE: Final = _DIGITS + 8

_decode_string = json_decoder(str).decode


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


def excise_strings(data: bytes, window: int) -> ExcisedJSON | None:
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
