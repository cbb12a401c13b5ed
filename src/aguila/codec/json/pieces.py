"""Encode a value in pieces: a reader that stalls holds one piece in memory, not the document."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Final

import msgspec

from aguila.codec.json.encoder import encode, with_text_content
from aguila.codec.json.values import is_array, is_object

_PIECE: Final = 1 << 16
_GAP: Final = msgspec.Raw(b"\x01")  # cannot occur in JSON text: strings escape it


def encode_pieces(obj: Any) -> Iterator[bytes]:
    """Encode as ``encode`` does, and yield the JSON in pieces. A slice of a large string is encoded when it is due.

    Everything else is encoded at once.
    """
    strings: list[str] = []
    try:
        text = encode(_excise(msgspec.to_builtins(with_text_content(obj)), strings))
    except (TypeError, ValueError, RecursionError):
        yield encode(obj)  # a msgspec.Raw, a lone surrogate, or what encode raises
        return
    first, *rest = text.split(bytes(_GAP))
    yield first
    for string, after in zip(strings, rest, strict=True):
        yield b'"'
        for at in range(0, len(string), _PIECE):
            yield encode(string[at : at + _PIECE])[1:-1]
        yield b'"' + after


def _excise(value: Any, strings: list[str]) -> Any:
    """Return a plain value with a gap for each large string, which is added to ``strings``."""
    if isinstance(value, str):
        if len(value) <= _PIECE:
            return value
        if not value.isascii():
            value.encode()  # raises UnicodeEncodeError for a lone surrogate
        strings.append(value)
        return _GAP
    if is_object(value):
        return {name: _excise(member, strings) for name, member in value.items()}
    if is_array(value) or isinstance(value, tuple):
        return [_excise(item, strings) for item in value]  # type: ignore[reportUnknownVariableType]
    return value
