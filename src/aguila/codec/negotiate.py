"""Choose the media type of a response (server), and recognise it (client)."""

from __future__ import annotations

import re

SSE_MEDIA_TYPE = "text/event-stream"
"""Server-sent events, which every HTTP implementation of AG-UI supports (TRN-6)."""

PROTOBUF_MEDIA_TYPE = "application/vnd.ag-ui.event+proto"
"""Length-prefixed protobuf frames. Sent without parameters, because peers compare the whole value (PB-3)."""

_WEIGHT = re.compile(r"[0-9]+(?:\.[0-9]*)?|\.[0-9]+")


def negotiate(accept: str | None, *, prefers_sse: bool = False) -> str:
    """Return the media type to respond with: protobuf if the Accept header names it with q > 0, else SSE.

    With ``prefers_sse`` a reader that accepts both gets SSE.

    A wildcard does not select protobuf, although PB-2 allows it: curl and Python clients send ``*/*`` by default, and
    their users should see text. Every consumer must accept SSE (PB-2). Relative weights are ignored (PB-1). If
    protobuf is named more than once, the highest weight counts.
    """
    if accept is None or PROTOBUF_MEDIA_TYPE not in accept.lower():
        return SSE_MEDIA_TYPE
    elements = _split(accept, ",")
    if not any(_accepts(element, PROTOBUF_MEDIA_TYPE) for element in elements):
        return SSE_MEDIA_TYPE
    accepts_sse = prefers_sse and any(_accepts(element, SSE_MEDIA_TYPE, "text/*", "*/*") for element in elements)
    return SSE_MEDIA_TYPE if accepts_sse else PROTOBUF_MEDIA_TYPE


def _accepts(element: str, *ranges: str) -> bool:
    """Return whether an element of Accept (RFC 9110, 12.5.1) is one of these ranges with a weight above zero."""
    media_type, *parameters = _split(element, ";")
    if media_type.strip().lower() not in ranges:
        return False
    for parameter in parameters:
        name, equals, value = parameter.partition("=")
        if not equals and not name.strip():
            continue  # empty parameters are allowed (RFC 9110, 5.6.6)
        # Neither type has parameters here, so a range with one is another type. What follows q is not a parameter.
        weight = value.strip()
        return name.strip().lower() == "q" and _WEIGHT.fullmatch(weight) is not None and float(weight) > 0
    return True


def _split(text: str, separator: str) -> list[str]:
    """Split at separators that are not inside a quoted string."""
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
    """Return whether a content type is the protobuf one. Case and parameters are ignored."""
    return content_type is not None and content_type.partition(";")[0].strip().lower() == PROTOBUF_MEDIA_TYPE
