"""JSON Pointer (RFC 6901): parse text to tokens and format tokens as text.

Whether a token is a member name or an array index depends on the document; ``stream.patch`` resolves it.
"""

from __future__ import annotations

import re
from collections.abc import Iterable

# SNAP-7 gives the grammar as ^(/([^/~]|~[01])*)*$. So text that is not empty begins with a slash, and every
# tilde is followed by 0 or 1. Most pointers have no tilde, so the search is seldom needed.
_BAD_ESCAPE = re.compile("~(?![01])")


def is_pointer(text: str) -> bool:
    """Return whether text is a pointer (SNAP-7). The empty text is one: the whole document."""
    return text == "" or (text[0] == "/" and ("~" not in text or _BAD_ESCAPE.search(text) is None))


def parse_pointer(text: str) -> tuple[str, ...]:
    """Return the unescaped tokens of a pointer. Raises ``ValueError`` if the text is not a pointer (SNAP-7)."""
    if text == "":
        return ()
    if text[0] != "/":
        raise ValueError(f"a JSON Pointer begins with a slash: {text!r}")
    if "~" not in text:
        return tuple(text[1:].split("/"))
    if _BAD_ESCAPE.search(text):
        raise ValueError(f"a tilde in a JSON Pointer is written ~0: {text!r}")
    # ~1 before ~0: in the other order "~01" would become a slash.
    return tuple([token.replace("~1", "/").replace("~0", "~") for token in text[1:].split("/")])


def escape_token(token: str) -> str:
    """Escape a token for use in a pointer."""
    if "~" in token or "/" in token:
        return token.replace("~", "~0").replace("/", "~1")
    return token


def format_pointer(tokens: Iterable[str | int]) -> str:
    """Return the pointer of these tokens. Array indexes may be integers."""
    return "".join(["/" + escape_token(str(token)) for token in tokens])
