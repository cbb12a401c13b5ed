"""Protobuf written by hand, for tests of what no encoder would write."""

from __future__ import annotations

from aguila.codec.notices import Notice
from aguila.codec.protobuf import ProtobufDecoder
from aguila.protocol import Event


def varint(number: int) -> bytes:
    number &= (1 << 64) - 1
    out = bytearray()
    while number > 127:
        out.append(number & 127 | 128)
        number >>= 7
    out.append(number)
    return bytes(out)


def field(slot: int, *payload: bytes | str) -> bytes:
    """Return a length-delimited field."""
    body = b"".join(part.encode() if isinstance(part, str) else part for part in payload)
    return varint(slot << 3 | 2) + varint(len(body)) + body


def number(slot: int, value: int) -> bytes:
    """Return a varint field."""
    return varint(slot << 3) + varint(value)


def base(type_number: int, *more: bytes) -> bytes:
    """Return the base of an event, without its type's bytes where the number is 0."""
    return field(1, number(1, type_number) if type_number else b"", *more)


def framed(body: bytes) -> bytes:
    return len(body).to_bytes(4, "big") + body


def read(body: bytes, *, compat: str = "off") -> tuple[list[Event], list[Notice]]:
    """Return the events and the notices of one frame."""
    notices: list[Notice] = []
    events = ProtobufDecoder(warn=notices.append, compat=compat).feed(framed(body))  # type: ignore[arg-type]
    return events, notices
