"""JSON decoders whose time is bounded per byte, for all text that this process did not write itself.

msgspec takes about 20 us, with the GIL held, for a float near the limits of a double, such as ``9e307``: seconds for a
document of one megabyte. ``float`` takes under 1 us. The hook is called for floats without a declared type, such as
those in a state; text without floats is decoded as fast as without it.
"""

from __future__ import annotations

from functools import cache
from typing import Any, TypeVar, overload

import msgspec

T = TypeVar("T")


def parse_float(text: str) -> float:
    """Parse a float. Raises ``ValueError`` for a number beyond a double."""
    value = float(text)
    if value - value:  # infinity minus infinity is NaN, which is true
        raise ValueError("Number out of range")  # as msgspec words it
    return value


@overload
def json_decoder() -> msgspec.json.Decoder[Any]: ...
@overload
def json_decoder(kind: type[T]) -> msgspec.json.Decoder[T]: ...
@overload
def json_decoder(kind: Any) -> msgspec.json.Decoder[Any]: ...
@cache
def json_decoder(kind: Any = Any) -> msgspec.json.Decoder[Any]:
    """Return the decoder of a type."""
    return msgspec.json.Decoder(kind, float_hook=parse_float)


@overload
def decode_json(data: bytes | str) -> Any: ...
@overload
def decode_json(data: bytes | str, kind: type[T]) -> T: ...
@overload
def decode_json(data: bytes | str, kind: Any) -> Any: ...
def decode_json(data: bytes | str, kind: Any = Any) -> Any:
    """Decode JSON to a type. Raises ``msgspec.DecodeError`` or ``UnicodeError``."""
    return json_decoder(kind).decode(data)
