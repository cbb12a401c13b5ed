"""Write JSON values as ``google.protobuf.Value`` and ``Struct``, and read them.

The protobuf runtime is not used for these: it refuses messages nested deeper than 100 (33 JSON objects).

Numbers are doubles:

==============================  ==========================================================
written                         read back
==============================  ==========================================================
``3`` and ``3.0``               ``3``, as from any JSON that JavaScript wrote
``-0.0``                        ``0``
an integer beyond 2^53          the nearest double, as a float; a notice if it differs
NaN, Infinity, beyond a double  refused (PY-8)
a lone surrogate in a string    refused: a protobuf string is UTF-8
==============================  ==========================================================
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Sequence
from math import isfinite
from typing import Any, cast

import msgspec

from aguila.codec.json.text import MAX_DEPTH
from aguila.codec.json.values import is_array, is_object
from aguila.codec.pointer import escape_token
from aguila.codec.protobuf import scanner as scan
from aguila.codec.protobuf.scanner import Malformed, fields, merge_occurrences
from aguila.protocol import MAX_SAFE_INTEGER

_double = struct.Struct("<d")
_pack = _double.pack
_unpack_from = _double.unpack_from

OnInexact = Callable[[int], None]
"""Called with each integer that a double cannot represent."""


def varint(n: int) -> bytes:
    """Encode a length or a tag."""
    if n < 128:
        return bytes((n,))
    out = bytearray()
    while n > 127:
        out.append(n & 127 | 128)
        n >>= 7
    out.append(n)
    return bytes(out)


def _sized(tag: bytes, body: bytes) -> bytes:
    return tag + varint(len(body)) + body


def write_value(value: Any, on_inexact: OnInexact) -> bytes:
    """Write a Value. Raises ``Unwritable``."""
    return _write(value, on_inexact, MAX_DEPTH)


def write_struct(value: Any, on_inexact: OnInexact) -> bytes:
    """Write a Struct. Raises ``Unwritable``, also if the value is not an object."""
    if not isinstance(value, dict):
        raise Unwritable(f"expected an object, got {type(value).__name__}")
    return _write_members(cast("dict[Any, Any]", value), on_inexact, MAX_DEPTH)


class Unwritable(ValueError):
    """The value has no protobuf form. ``path`` is the JSON Pointer of the part that has none."""

    path = ""

    def add_step(self, step: str | int) -> None:
        """Prepend a step to the path, on the way out of a container."""
        self.path = f"/{escape_token(str(step))}{self.path}"


def _write(value: Any, on_inexact: OnInexact, depth: int) -> bytes:
    kind = value.__class__
    if kind is str:
        return _sized(b"\x1a", _encode(value, "a lone surrogate"))
    if kind is int:
        try:
            if not -MAX_SAFE_INTEGER <= value <= MAX_SAFE_INTEGER and int(float(value)) != value:
                on_inexact(value)
        except OverflowError:
            raise Unwritable("the integer is beyond the range of a double") from None
        return b"\x11" + _pack(value)
    if kind is float:
        if not isfinite(value):
            raise Unwritable(f"{value} is not a JSON number")
        return b"\x11" + _pack(value)
    if value is None:
        return b"\x08\x00"
    if kind is bool:
        return b"\x20\x01" if value else b"\x20\x00"
    if depth == 0:
        raise Unwritable(f"nested deeper than {MAX_DEPTH}")
    if kind is dict:
        return _sized(b"\x2a", _write_members(value, on_inexact, depth))
    if kind is list or kind is tuple:
        parts: list[bytes] = []
        for index, item in enumerate(value):
            try:
                parts.append(_sized(b"\x0a", _write(item, on_inexact, depth - 1)))
            except Unwritable as error:
                error.add_step(index)
                raise
        return _sized(b"\x32", b"".join(parts))
    return _write(_plain(value), on_inexact, depth - 1)


def _write_members(value: dict[Any, Any], on_inexact: OnInexact, depth: int) -> bytes:
    if not all(key.__class__ is str for key in value):
        value = _plain(value)
    parts: list[bytes] = []
    for key, member in value.items():
        # An empty key is omitted, as in every other encoder: the field has implicit presence.
        head = _sized(b"\x0a", _encode(key, "a key with a lone surrogate")) if key != "" else b""
        try:
            parts.append(_sized(b"\x0a", head + _sized(b"\x12", _write(member, on_inexact, depth - 1))))
        except Unwritable as error:
            error.add_step(key)
            raise
    return b"".join(parts)


def _encode(text: str, what: str) -> bytes:
    try:
        return text.encode()
    except UnicodeEncodeError:
        raise Unwritable(f"protobuf cannot carry {what}") from None


def _plain(value: Any) -> Any:
    """Convert dates, enums and structs to the values that JSON has for them."""
    try:
        plain = msgspec.to_builtins(value, str_keys=True)
    except (TypeError, ValueError) as error:
        raise Unwritable(str(error)) from error
    if plain.__class__ not in _JSON_CLASSES:
        raise Unwritable(f"{type(value).__name__} is not a JSON value")
    return plain


_JSON_CLASSES = frozenset({dict, list, str, int, float, bool, type(None)})


def read_value(occurrences: Sequence[bytes]) -> Any:
    """Read the JSON value of the occurrences of a Value; ``UNSET`` if it is empty. Raises ``Malformed``."""
    data = merge_occurrences(occurrences)
    return _read(data, 0, len(data), MAX_DEPTH)


def read_struct(occurrences: Sequence[bytes]) -> dict[str, Any]:
    """Read the JSON object of the occurrences of a Struct. Raises ``Malformed``."""
    data = merge_occurrences(occurrences)
    return _read_members(data, 0, len(data), MAX_DEPTH, {})


def _text(data: bytes) -> str:
    try:
        return data.decode()
    except UnicodeDecodeError:
        raise Malformed("a string is not UTF-8") from None


def _number(data: bytes, at: int) -> int | float:
    number: float = _unpack_from(data, at)[0]
    if -MAX_SAFE_INTEGER <= number <= MAX_SAFE_INTEGER and number.is_integer():
        return int(number)
    if not isfinite(number):
        raise Malformed(f"{number} is not a JSON number")
    return number


def _read(data: bytes, at: int, end: int, depth: int) -> Any:
    value: Any = msgspec.UNSET
    for number, wire, start, stop in fields(data, at, end):
        match number, wire:
            case 1, scan.VARINT:
                value = None
            case 2, scan.FIXED64:
                value = _number(data, start)
            case 3, scan.BYTES:
                value = _text(data[start:stop])
            case 4, scan.VARINT:
                value = any(byte & 127 for byte in data[start:stop])
            case 5, scan.BYTES:
                value = _read_members(data, start, stop, depth, value if is_object(value) else {})
            case 6, scan.BYTES:
                value = _read_items(data, start, stop, depth, value if is_array(value) else [])
            case _:
                pass  # a field of a later version is ignored (PB-12)
    return value


def _read_items(data: bytes, at: int, end: int, depth: int, items: list[Any]) -> list[Any]:
    _check_depth(depth)
    for number, wire, start, stop in fields(data, at, end):
        if number == 1 and wire == scan.BYTES:
            item = _read(data, start, stop, depth - 1)
            items.append(None if item is msgspec.UNSET else item)
    return items


def _read_members(data: bytes, at: int, end: int, depth: int, members: dict[str, Any]) -> dict[str, Any]:
    _check_depth(depth)
    for number, wire, start, stop in fields(data, at, end):
        if number != 1 or wire != scan.BYTES:
            continue
        key = ""
        values: list[bytes] = []
        for inner, inner_wire, begin, finish in fields(data, start, stop):
            if inner == 1 and inner_wire == scan.BYTES:
                key = _text(data[begin:finish])
            elif inner == 2 and inner_wire == scan.BYTES:
                values.append(data[begin:finish])
        merged = merge_occurrences(values)
        value = _read(merged, 0, len(merged), depth - 1)
        if value is not msgspec.UNSET:
            members[key] = value
    return members


def _check_depth(depth: int) -> None:
    if depth == 0:
        raise Malformed(f"nested deeper than {MAX_DEPTH}")
