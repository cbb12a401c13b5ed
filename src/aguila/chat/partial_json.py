"""Layer: chat. What can be read of a JSON text that is not all there yet.

Below: msgspec. Above: previews of a call's arguments while they are streamed. Sans-IO, no state.
"""

from __future__ import annotations

import re
from typing import Any

import msgspec

_PIECE = re.compile(r'"(?:[^"\\]|\\.)*(?:(?P<close>")|\\?\Z)|[{}\[\],:]|[^\s{}\[\],:"]+', re.DOTALL)
# The beginning of an escape: a backslash, some of a \uXXXX, or the first half of a pair without all of the second.
_HEX = "[0-9A-Fa-f]"
_BEGUN_ESCAPE = re.compile(
    rf"(?<!\\)(?:\\\\)*(\\(?:u{_HEX}{{0,3}}|u[dD][89abAB]{_HEX}{{2}}(?:\\(?:u{_HEX}{{0,3}})?)?)?)\Z"
)
_CLOSERS = {"{": "}", "[": "]"}


def read_partial(text: str) -> Any:
    """The value that a JSON text begins with: strings as far as they go, without members that have no value yet.

    None if nothing can be read, or if what is there is not JSON.
    """
    closers: list[str] = []
    end, suffix = 0, ""  # the longest beginning that is whole but for what is open, and what closes it
    follows = ""  # what the last piece allows: a key's value, or nothing in particular
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
        # else a number or a word that may still grow
    try:
        return msgspec.json.decode(text[:end] + suffix) if end else None
    except (msgspec.DecodeError, UnicodeError, RecursionError):
        return None


def _closing(closers: list[str]) -> str:
    return "".join(reversed(closers))


def _begun_escape(string: str) -> int:
    """How much of the end of an unfinished string is the beginning of an escape."""
    begun = _BEGUN_ESCAPE.search(string, max(len(string) - 64, 0))
    return 0 if begun is None else len(begun[1])
