"""Parse the beginning of a JSON text, to preview the arguments of a call while they stream."""

from __future__ import annotations

import re
from typing import Any

import msgspec

from aguila.codec.json.bounded_floats import decode_json

_PIECE = re.compile(r'"(?:[^"\\]|\\.)*(?:(?P<close>")|\\?\Z)|[{}\[\],:]|[^\s{}\[\],:"]+', re.DOTALL)
# An incomplete escape: a backslash, part of \uXXXX, or the first half of a surrogate pair without the complete second.
_HEX = "[0-9A-Fa-f]"
_BEGUN_ESCAPE = re.compile(
    rf"(?<!\\)(?:\\\\)*(\\(?:u{_HEX}{{0,3}}|u[dD][89abAB]{_HEX}{{2}}(?:\\(?:u{_HEX}{{0,3}})?)?)?)\Z"
)
_CLOSERS = {"{": "}", "[": "]"}


def read_partial(text: str) -> Any:
    """Parse an incomplete JSON text: strings as far as they go, without members that have no value yet.

    Returns None if there is no value yet, or if the text is not JSON.
    """
    closers: list[str] = []
    end, suffix = 0, ""  # the longest usable beginning, and the brackets and quotes that close it
    follows = ""  # the last separator: decides whether a string is a key or a value
    for match in _PIECE.finditer(text):
        piece = match[0]
        is_last = match.end() == len(text)
        if piece in "{[":
            closers.append(_CLOSERS[piece])
            end, suffix, follows = match.end(), _closing(closers), ""
        elif piece in "}]":
            if not closers or closers.pop() != piece:
                return None
            end, suffix, follows = match.end(), _closing(closers), ""
        elif piece in ",:":
            follows = piece
        elif closers and closers[-1] == "}" and follows != ":":
            follows = "key"
        elif piece[0] == '"':
            if match["close"] is not None:
                end, suffix, follows = match.end(), _closing(closers), ""
            else:
                end, suffix = match.end() - _begun_escape(piece), '"' + _closing(closers)
        elif not is_last or piece in ("true", "false", "null"):
            end, suffix, follows = match.end(), _closing(closers), ""
        # otherwise a number or word that may continue
    try:
        return decode_json(text[:end] + suffix) if end else None
    except (msgspec.DecodeError, UnicodeError, RecursionError):
        return None


def _closing(closers: list[str]) -> str:
    return "".join(reversed(closers))


def _begun_escape(string: str) -> int:
    """Return the length of the incomplete escape at the end of a string."""
    begun = _BEGUN_ESCAPE.search(string, max(len(string) - 64, 0))
    return 0 if begun is None else len(begun[1])
