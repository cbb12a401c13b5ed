"""Layer: codec. The envelope of a frame, read field by field before the protobuf runtime sees it.

Above: ``_pb_read``. The runtime would take the last of two arms and forget what it does not know; both are told
apart here, on the bytes, and the payload of the one known arm goes to the runtime as it is.
"""

from __future__ import annotations

from collections.abc import Iterator

_VARINT, _FIXED64, _BYTES, _GROUP, _END_GROUP, _FIXED32 = range(6)
_UINT32 = 0xFFFFFFFF
_MAX_GROUPS = 100


class Malformed(ValueError):
    """Bytes that are no protobuf message."""


def envelope(data: bytes, arms: frozenset[int]) -> tuple[int, bytes, int]:
    """The known arm of an ``ag_ui.Event``, its payload, and 0; or 0, nothing, and the number of an unknown arm.

    Occurrences of the same arm merge, which for protobuf is to join their bytes. Fields beside the arm that this build
    does not know are skipped. Raises ``Malformed`` for two different arms and for bytes that are no such message.
    """
    # Nearly every frame is one field, one arm: a quarter of the cost of the general way.
    end = len(data)
    tag, at = _varint(data, 0, end)
    if tag & 7 == _BYTES and tag >> 3 in arms:
        length, at = _varint(data, at, end)
        if at + length == end:
            return tag >> 3, data[at:], 0
    found = unknown = 0
    payloads: list[bytes] = []
    for slot, wire, start, stop in _fields(data, 0, len(data)):
        if slot not in arms:
            # A number alone, or bytes that hold no message, are no arm of a later version but garbage.
            if not unknown and wire == _BYTES and _is_message(data, start, stop):
                unknown = slot
        elif wire != _BYTES:
            raise Malformed(f"arm {slot} of the envelope is not a message")
        elif found and slot != found:
            raise Malformed(f"two events in one frame (arms {found} and {slot})")
        else:
            found = slot
            payloads.append(data[start:stop])
    if found:
        return found, payloads[0] if len(payloads) == 1 else b"".join(payloads), 0
    if not unknown:
        raise Malformed("no event in the frame")
    return 0, b"", unknown


def _is_message(data: bytes, start: int, stop: int) -> bool:
    try:
        for _ in _fields(data, start, stop):
            pass
    except Malformed:
        return False
    return True


def _fields(data: bytes, at: int, end: int) -> Iterator[tuple[int, int, int, int]]:
    """The fields of a message: slot, wire type, and the bounds of the payload."""
    while at < end:
        tag, at = _varint(data, at, end)
        # Truncated as the official reader does, so that an overlong tag cannot hide a second arm.
        slot, wire = (tag & _UINT32) >> 3, tag & 7
        if wire == _BYTES:
            length, at = _varint(data, at, end)
            start, at = at, at + length
        else:
            start, at = at, _skip(data, at, end, slot, wire)
        if at > end:
            raise Malformed("a field reaches beyond the end")
        if slot == 0:
            raise Malformed("field number 0")
        yield slot, wire, start, at


def _skip(data: bytes, at: int, end: int, slot: int, wire: int) -> int:
    """Where a field that is not length-delimited ends."""
    if wire == _VARINT:
        return _varint(data, at, end)[1]
    if wire == _FIXED64:
        return at + 8
    if wire == _FIXED32:
        return at + 4
    if wire != _GROUP:
        raise Malformed("a group ends that never began" if wire == _END_GROUP else f"wire type {wire}")
    open_groups = [slot]
    while open_groups:
        tag, at = _varint(data, at, end)
        inner, wire = (tag & _UINT32) >> 3, tag & 7
        if wire == _GROUP:
            open_groups.append(inner)
        elif wire == _END_GROUP:
            if open_groups.pop() != inner:
                raise Malformed("groups overlap")
        elif wire == _BYTES:
            length, at = _varint(data, at, end)
            at += length
        else:
            at = _skip(data, at, end, inner, wire)
        if inner == 0 or len(open_groups) > _MAX_GROUPS:
            raise Malformed("field number 0" if inner == 0 else "groups nest too deeply")
        if at > end:
            raise Malformed("a field reaches beyond the end")
    return at


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
