"""Layer: codec. The envelope of a frame, read field by field before the protobuf runtime sees it.

Above: ``_pb_read``. The runtime would take the last of two arms and forget what it does not know; both are told
apart here, on the bytes, and the payload of the one known arm goes to the runtime as it is.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

VARINT, FIXED64, BYTES, _GROUP, _END_GROUP, _FIXED32 = range(6)
_UINT32 = 0xFFFFFFFF
_MAX_GROUPS = 100


class Malformed(ValueError):
    """Bytes that are no protobuf message."""


def read_envelope(data: bytes, arms: frozenset[int]) -> tuple[int, bytes, int]:
    """The known arm of an ``ag_ui.Event``, its payload, and 0; or 0, nothing, and the number of an unknown arm.

    Occurrences of the same arm merge. Fields beside the arm that this build does not know are skipped. Raises
    ``Malformed`` for two different arms and for bytes that are no such message.
    """
    # Nearly every frame is one field, one arm: a quarter of the cost of the general way.
    end = len(data)
    tag, at = _varint(data, 0, end)
    if tag & 7 == BYTES and tag >> 3 in arms:
        length, at = _varint(data, at, end)
        if at + length == end:
            return tag >> 3, data[at:], 0
    found = unknown = 0
    payloads: list[bytes] = []
    for slot, wire, start, stop in fields(data, 0, end):
        if slot not in arms:
            # A number alone, or bytes that hold no message, are no arm of a later version but garbage.
            if not unknown and wire == BYTES and _is_message(data, start, stop):
                unknown = slot
            continue
        if found and slot != found:
            raise Malformed(f"two events in one frame (arms {found} and {slot})")
        found = slot
        if wire == BYTES:
            payloads.append(data[start:stop])
    if payloads:
        return found, merge_occurrences(payloads), 0
    if found or not unknown:
        raise Malformed("no event in the frame")
    return 0, b"", unknown


def merge_occurrences(occurrences: Sequence[bytes]) -> bytes:
    """The occurrences of one message as one. They merge, and for protobuf to merge is to join the bytes.

    Raises ``Malformed`` if one of several is no message by itself: joined, its end would be sought in the next.
    """
    if len(occurrences) == 1:
        return occurrences[0]
    if not all(_is_message(occurrence, 0, len(occurrence)) for occurrence in occurrences):
        raise Malformed("one of several occurrences is no message")
    return b"".join(occurrences)


def _is_message(data: bytes, start: int, stop: int) -> bool:
    try:
        for _ in fields(data, start, stop):
            pass
    except Malformed:
        return False
    return True


def fields(data: bytes, at: int, end: int) -> Iterator[tuple[int, int, int, int]]:
    """The fields of a message: slot, wire type, and the bounds of the payload. Raises ``Malformed``."""
    while at < end:
        slot, wire, at = _tag(data, at, end)
        if wire == BYTES:
            length, at = _varint(data, at, end)
            start, at = at, at + length
        else:
            start, at = at, _skip(data, at, end, slot, wire)
        if at > end:
            raise Malformed("a field reaches beyond the end")
        yield slot, wire, start, at


def _skip(data: bytes, at: int, end: int, slot: int, wire: int) -> int:
    """Where a field that is not length-delimited ends."""
    if wire == VARINT:
        return _varint(data, at, end)[1]
    if wire == FIXED64:
        return at + 8
    if wire == _FIXED32:
        return at + 4
    if wire != _GROUP:
        raise Malformed("a group ends that never began" if wire == _END_GROUP else f"wire type {wire}")
    open_groups = [slot]
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
    """A field's number and wire type, and where its content begins."""
    tag, at = _varint(data, at, end)
    # A tag has 32 bits. Some readers cut off what is beyond, so that a longer one could hide a second arm.
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
