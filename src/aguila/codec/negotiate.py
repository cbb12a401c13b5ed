"""Layer: codec. Which media type a response has, and which one a reader was given. Strings in, strings out.

Above: the server asks ``negotiate``, the client ``is_protobuf``.
"""

from __future__ import annotations

import re

SSE_MEDIA_TYPE = "text/event-stream"
"""Server-sent events: what every HTTP implementation of AG-UI speaks (TRN-6)."""

PROTOBUF_MEDIA_TYPE = "application/vnd.ag-ui.event+proto"
"""Length-prefixed protobuf frames. Sent without parameters, as peers compare the whole value (PB-3)."""

_WEIGHT = re.compile(r"[0-9]+(?:\.[0-9]*)?|\.[0-9]+")


def negotiate(accept: str | None) -> str:
    """The media type to answer with: protobuf if the Accept header names it with q > 0, else SSE. Never none.

    Narrower than PB-2, which would have us answer protobuf whenever it is admitted: a wildcard does not ask for it
    here. ``*/*`` is what curl and Python's clients send by default, and a person who typed it should see text. That
    is safe, because every consumer must take SSE (PB-2). Relative weights are ignored (PB-1): who names protobuf
    gets it. Where it is named more than once the highest weight counts.
    """
    if accept is None:
        return SSE_MEDIA_TYPE
    named = any(_names_protobuf(element) for element in _split(accept, ","))
    return PROTOBUF_MEDIA_TYPE if named else SSE_MEDIA_TYPE


def _names_protobuf(element: str) -> bool:
    """Whether one element of Accept (RFC 9110, 12.5.1) is our type with a weight above zero. Garbage is not."""
    media_type, *parameters = _split(element, ";")
    if media_type.strip().lower() != PROTOBUF_MEDIA_TYPE:
        return False
    for parameter in parameters:
        name, equals, value = parameter.partition("=")
        if not equals and not name.strip():
            continue  # a semicolon too many is allowed (RFC 9110, 5.6.6)
        # Our type has no parameters, so a range with one is another type. What follows q is no parameter of the range.
        weight = value.strip()
        return name.strip().lower() == "q" and _WEIGHT.fullmatch(weight) is not None and float(weight) > 0
    return True


def _split(text: str, separator: str) -> list[str]:
    """The pieces between separators that are not inside a quoted string."""
    pieces: list[str] = []
    start = 0
    is_quoted = is_escaped = False
    for at, character in enumerate(text):
        if is_escaped:
            is_escaped = False
        elif is_quoted and character == "\\":
            is_escaped = True
        elif character == '"':
            is_quoted = not is_quoted
        elif character == separator and not is_quoted:
            pieces.append(text[start:at])
            start = at + 1
    pieces.append(text[start:])
    return pieces


def is_protobuf(content_type: str | None) -> bool:
    """Whether a response is protobuf frames; everything else is read as SSE. Case and parameters do not matter."""
    return content_type is not None and content_type.partition(";")[0].strip().lower() == PROTOBUF_MEDIA_TYPE
