"""The protobuf decoder as a fuzz target: any bytes give events or an ``AguilaError``."""

from __future__ import annotations

from aguila.codec.protobuf import ProtobufDecoder
from aguila.errors import AguilaError

ARMS = 33  # the known ones are 1 to 31


def fuzz_protobuf(data: bytes) -> None:
    """Read bytes as a stream, as the body of a frame, and as the payload of an arm with a fitting base.

    Random bytes seldom form a length or a base, so without the last two little would be reached.
    """
    read(data)
    read(framed(data))
    if data:
        arm = data[0] % ARMS
        read(framed(field(arm, base_of(arm) + data[1:])))


def read(stream: bytes) -> None:
    decoder = ProtobufDecoder(warn=lambda notice: None, compat="wide", max_size=1 << 20)
    cut = len(stream) // 2
    try:
        decoder.feed(stream[:cut])
        decoder.feed(stream[cut:])
        decoder.close()
    except AguilaError:
        pass


def framed(body: bytes) -> bytes:
    return len(body).to_bytes(4, "big") + body


def field(slot: int, payload: bytes) -> bytes:
    return varint(slot << 3 | 2) + varint(len(payload)) + payload


def base_of(arm: int) -> bytes:
    # The number of a type is its arm's less one, except for these five.
    number = {17: 19, 18: 20, 19: 16, 20: 17, 21: 18}.get(arm, arm - 1)
    return field(1, b"\x08" + varint(number)) if 0 < number < 31 else field(1, b"")


def varint(number: int) -> bytes:
    out = bytearray()
    while number > 127:
        out.append(number & 127 | 128)
        number >>= 7
    out.append(number)
    return bytes(out)
