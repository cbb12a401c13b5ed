"""Layer: codec. JSON Pointer (RFC 6901): text to tokens and back.

The decoder checks the pointers of patch operations with it, the stream layer walks documents by the tokens.
It knows nothing of documents: whether a token is a member name or an array index only the document can tell.
"""

from __future__ import annotations

import re
from collections.abc import Iterable

# SNAP-7 gives the grammar as ^(/([^/~]|~[01])*)*$. That is two conditions: text that is not empty begins with
# a slash, and every tilde is followed by 0 or 1. Most pointers hold no tilde, so the search is seldom needed.
_BAD_ESCAPE = re.compile("~(?![01])")


def is_pointer(text: str) -> bool:
    """Whether the text follows the pointer grammar (SNAP-7); the empty text does, and names the whole document."""
    return text == "" or (text[0] == "/" and ("~" not in text or _BAD_ESCAPE.search(text) is None))


def parse_pointer(text: str) -> tuple[str, ...]:
    """The unescaped tokens of a pointer; none for the whole document.

    Raises ValueError, with a message for people, when the text is not a pointer (SNAP-7).
    """
    if text == "":
        return ()
    if text[0] != "/":
        raise ValueError(f"a JSON Pointer begins with a slash: {text!r}")
    if "~" not in text:
        return tuple(text[1:].split("/"))
    if _BAD_ESCAPE.search(text):
        raise ValueError(f"a tilde in a JSON Pointer is written ~0: {text!r}")
    # ~1 first: the other way round, "~01" would turn into a slash.
    return tuple([token.replace("~1", "/").replace("~0", "~") for token in text[1:].split("/")])


def escape_token(token: str) -> str:
    """One token as it is written within a pointer."""
    if "~" in token or "/" in token:
        return token.replace("~", "~0").replace("/", "~1")
    return token


def format_pointer(tokens: Iterable[str | int]) -> str:
    """The pointer made of these tokens, escaped; array indexes may be given as integers."""
    return "".join(["/" + escape_token(str(token)) for token in tokens])
