"""Read the envelope of a frame field by field, before the protobuf runtime parses the event.

The runtime would accept two events in one frame (the last wins) and drop unknown ones silently. Both are detected here,
in the bytes.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

VARINT, FIXED64, BYTES, _GROUP, _END_GROUP, _FIXED32 = range(6)
_UINT32 = 0xFFFFFFFF
_MAX_GROUPS = 100


class Malformed(ValueError):
    """The bytes are not a protobuf message."""


def read_envelope(data: bytes, known: frozenset[int]) -> tuple[int, bytes, int]:
    """Read an ``ag_ui.Event``: return the field number of the event, its payload, and 0.

    If the event is of an unknown kind, return 0, no payload, and its field number. Occurrences of the same field merge.
    Unknown fields beside the event are skipped. Raises ``Malformed`` for two different events and for bytes that are
    not such a message.
    """
    event = unknown = 0
    payloads: list[bytes] = []
    for number, wire, start, stop in fields(data, 0, len(data)):
        if number not in known:
            # A number, or bytes that are not a message, cannot be an event of a later version.
            if not unknown and wire == BYTES and _is_message(data, start, stop):
                unknown = number
            continue
        if event and number != event:
            raise Malformed(f"two events in one frame (fields {event} and {number})")
        event = number
        if wire == BYTES:
            payloads.append(data[start:stop])
    if payloads:
        return event, merge_occurrences(payloads), 0
    if event or not unknown:
        raise Malformed("no event in the frame")
    return 0, b"", unknown


def merge_occurrences(occurrences: Sequence[bytes]) -> bytes:
    """Merge the occurrences of one message by joining their bytes, as protobuf defines it.

    Raises ``Malformed`` if one of several is not a complete message: it would continue in the next one.
    """
    if len(occurrences) == 1:
        return occurrences[0]
    if not all(_is_message(occurrence, 0, len(occurrence)) for occurrence in occurrences):
        raise Malformed("one of several occurrences is not a message")
    return b"".join(occurrences)


def _is_message(data: bytes, start: int, stop: int) -> bool:
    try:
        for _ in fields(data, start, stop):
            pass
    except Malformed:
        return False
    return True


def fields(data: bytes, at: int, end: int) -> Iterator[tuple[int, int, int, int]]:
    """Yield the fields of a message: number, wire type, and the bounds of the payload. Raises ``Malformed``."""
    while at < end:
        number, wire, at = _tag(data, at, end)
        if wire == BYTES:
            length, at = _varint(data, at, end)
            start, at = at, at + length
        else:
            start, at = at, _skip(data, at, end, number, wire)
        if at > end:
            raise Malformed("a field reaches beyond the end")
        yield number, wire, start, at


def _skip(data: bytes, at: int, end: int, number: int, wire: int) -> int:
    """Return where a field that is not length-delimited ends."""
    if wire == VARINT:
        return _varint(data, at, end)[1]
    if wire == FIXED64:
        return at + 8
    if wire == _FIXED32:
        return at + 4
    if wire != _GROUP:
        raise Malformed("the end of a group without its start" if wire == _END_GROUP else f"wire type {wire}")
    open_groups = [number]
    while open_groups:
        inner, wire, at = _tag(data, at, end)
        if wire == _GROUP:
            open_groups.append(inner)
        elif wire == _END_GROUP:
            if open_groups.pop() != inner:
                raise Malformed("groups overlap")
        elif wire == BYTES:
            length, at = _varint(data, at, end)
            at += length
        else:
            at = _skip(data, at, end, inner, wire)
        if len(open_groups) > _MAX_GROUPS:
            raise Malformed("groups nest too deeply")
        if at > end:
            raise Malformed("a field reaches beyond the end")
    return at


def _tag(data: bytes, at: int, end: int) -> tuple[int, int, int]:
    """Return a field's number and wire type, and where its content begins."""
    tag, at = _varint(data, at, end)
    # Some readers cut tags to 32 bits, so a longer one could hide a second event.
    if not 7 < tag <= _UINT32:
        raise Malformed("a tag beyond 32 bits" if tag > 7 else "field number 0")
    return tag >> 3, tag & 7, at


def _varint(data: bytes, at: int, end: int) -> tuple[int, int]:
    value = shift = 0
    while at < end:
        byte = data[at]
        at += 1
        value |= (byte & 127) << shift
        if byte < 128:
            return value, at
        shift += 7
        if shift > 63:
            raise Malformed("a number is too long")
    raise Malformed("a number is cut off")
