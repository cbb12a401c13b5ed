"""Write JSON values as ``google.protobuf.Value`` and ``Struct``, and read them.

The protobuf runtime is not used for these. It refuses messages nested deeper than 100 (33 JSON objects) and is slower:
a state of 1.7 KB takes 140 us to write and 215 us to read, against 100 and 130 here.

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
from collections.abc import Callable, Generator, Sequence
from contextlib import contextmanager
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


class NotJSON(ValueError):
    """The bytes are not a JSON value. The caller adds the path."""


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


# Nearly every length is below this. A list lookup takes a third of the time of the loop.
_LENGTHS = [varint(n) for n in range(4096)]


def _sized(tag: bytes, body: bytes) -> bytes:
    n = len(body)
    return tag + (_LENGTHS[n] if n < 4096 else varint(n)) + body


# The tags of Value's fields: field number and wire type.
_NULL, _NUMBER, _STRING, _BOOL, _STRUCT, _LIST = 0x08, 0x11, 0x1A, 0x20, 0x2A, 0x32
# Field 1 is an element of a list or map, or the key of a map entry. Field 2 is the value of a map entry.
_FIRST, _SECOND = 0x0A, 0x12


def write_value(value: Any, on_inexact: OnInexact) -> bytes:
    """Write a Value. Raises ``Unwritable`` or another ValueError; ``find_unwritable`` then finds the place."""
    return _write(value, on_inexact, MAX_DEPTH)


def write_struct(value: Any, on_inexact: OnInexact) -> bytes:
    """Write a Struct. Raises as ``write_value`` does, and if the value is not an object."""
    if not isinstance(value, dict):
        raise Unwritable(f"expected an object, got {type(value).__name__}")
    written = write_value(value, on_inexact)
    return written[_body(written) :]  # a Value of a Struct is a tag, a length and the Struct


class Unwritable(ValueError):
    """The value has no protobuf form."""


def _write(value: Any, on_inexact: OnInexact, depth: int) -> bytes:
    kind = value.__class__
    if kind is str:
        return _sized(b"\x1a", value.encode())
    if kind is int:
        if not -MAX_SAFE_INTEGER <= value <= MAX_SAFE_INTEGER and int(float(value)) != value:
            on_inexact(value)
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
    # Loops, not comprehensions or helpers: one Python stack frame per level.
    parts: list[bytes] = []
    if kind is dict:
        for key, member in value.items():
            if key.__class__ is not str:
                return _write(_plain(value), on_inexact, depth)
            # An empty key is omitted, as in every other encoder: the field has implicit presence.
            head = _sized(b"\x0a", key.encode()) if key != "" else b""
            parts.append(_sized(b"\x0a", head + _sized(b"\x12", _write(member, on_inexact, depth - 1))))
        return _sized(b"\x2a", b"".join(parts))
    if kind is list or kind is tuple:
        for item in value:
            parts.append(_sized(b"\x0a", _write(item, on_inexact, depth - 1)))
        return _sized(b"\x32", b"".join(parts))
    return _write(_plain(value), on_inexact, depth - 1)


def _body(written: bytes) -> int:
    """Return where the payload of a length-delimited field begins: after the tag and a varint."""
    at = 1
    while written[at] > 127:
        at += 1
    return at + 1


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


def find_unwritable(value: Any) -> tuple[str, str]:
    """Find the part of a value that cannot be written: its JSON Pointer and the reason. Both are empty if none.

    Slow. Called only after a failure, so that writing need not track paths.
    """
    pending: list[tuple[Any, str, int]] = [(value, "", 0)]
    while pending:
        item, path, depth = pending.pop()
        if depth > MAX_DEPTH:
            return path, f"nested deeper than {MAX_DEPTH}"
        if isinstance(item, str):
            if not _is_unicode(item):
                return path, "protobuf cannot carry a lone surrogate"
        elif isinstance(item, float):
            if not isfinite(item):
                return path, f"{item} is not a JSON number"
        elif isinstance(item, int):
            if not _fits_double(item):
                return path, "the integer is beyond the range of a double"
        elif isinstance(item, dict):
            for key, inner in cast("dict[Any, Any]", item).items():
                if isinstance(key, str) and not _is_unicode(key):
                    return path, "protobuf cannot carry a key with a lone surrogate"
                pending.append((inner, f"{path}/{escape_token(str(key))}", depth + 1))
        elif isinstance(item, list | tuple):
            items = cast("list[Any]", item)
            pending.extend((inner, f"{path}/{i}", depth + 1) for i, inner in enumerate(items))
        elif item is not None:
            try:
                pending.append((_plain(item), path, depth))
            except Unwritable as error:
                return path, str(error)
    return "", ""


def _is_unicode(text: str) -> bool:
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True


def _fits_double(number: int) -> bool:
    try:
        float(number)
    except OverflowError:
        return False
    return True


def read_value(occurrences: Sequence[bytes]) -> Any:
    """Read the JSON value of the occurrences of a Value; ``UNSET`` if it is empty. Raises ``NotJSON``."""
    with _malformed_as_not_json():
        data = merge_occurrences(occurrences)
        if not data:
            return msgspec.UNSET
        try:
            return _read(data, 0, len(data), MAX_DEPTH)
        except (_Unusual, IndexError):
            return _merge(data, 0, len(data), MAX_DEPTH)


def read_struct(occurrences: Sequence[bytes]) -> dict[str, Any]:
    """Read the JSON object of the occurrences of a Struct. Raises ``NotJSON``."""
    with _malformed_as_not_json():
        data = merge_occurrences(occurrences)
        try:
            return _read_fields(data, 0, len(data), MAX_DEPTH)
        except (_Unusual, IndexError):
            return _merge_fields(data, 0, len(data), MAX_DEPTH, {})


class _Unusual(Exception):
    """The bytes are not in the form that encoders write. They may still be valid."""


@contextmanager
def _malformed_as_not_json() -> Generator[None]:
    try:
        yield
    except Malformed as error:
        raise NotJSON(str(error)) from None
    except UnicodeDecodeError:
        raise NotJSON("a string is not UTF-8") from None


def _length(data: bytes, at: int, end: int) -> tuple[int, int]:
    """Read the length prefix at ``at``. Return the bounds of the payload."""
    n = data[at]
    at += 1
    if n > 127:
        n &= 127
        shift = 7
        while True:
            byte = data[at]
            at += 1
            n |= (byte & 127) << shift
            if byte < 128:
                break
            shift += 7
            if shift > 28:
                raise _Unusual
    if at + n > end:
        raise _Unusual
    return at, at + n


def _read(data: bytes, at: int, end: int, depth: int) -> Any:
    if at == end:
        return None  # an empty Value in a list; JavaScript peers read null
    tag = data[at]
    if tag == _STRING:
        start, stop = _length(data, at + 1, end)
        if stop != end:
            raise _Unusual
        return data[start:stop].decode()
    if tag == _NUMBER:
        if at + 9 != end:
            raise _Unusual
        return _number(data, at + 1)
    if tag == _STRUCT:
        start, stop = _length(data, at + 1, end)
        if stop != end:
            raise _Unusual
        return _read_fields(data, start, stop, depth)
    if tag == _LIST:
        at, stop = _length(data, at + 1, end)
        if stop != end:
            raise _Unusual
        _check_depth(depth)
        items: list[Any] = []
        while at < end:
            if data[at] != _FIRST:
                raise _Unusual
            start, at = _length(data, at + 1, end)
            items.append(_read(data, start, at, depth - 1))
        return items
    if at + 2 == end and data[at + 1] < 128:
        if tag == _BOOL:
            return data[at + 1] != 0
        if tag == _NULL:
            return None
    raise _Unusual


def _number(data: bytes, at: int) -> int | float:
    number: float = _unpack_from(data, at)[0]
    if -MAX_SAFE_INTEGER <= number <= MAX_SAFE_INTEGER and number.is_integer():
        return int(number)
    if not isfinite(number):
        raise NotJSON(f"{number} is not a JSON number")
    return number


def _read_fields(data: bytes, at: int, end: int, depth: int) -> dict[str, Any]:
    _check_depth(depth)
    members: dict[str, Any] = {}
    while at < end:
        if data[at] != _FIRST:
            raise _Unusual
        at, entry = _length(data, at + 1, end)
        key = ""
        if data[at] == _FIRST:
            start, at = _length(data, at + 1, entry)
            key = data[start:at].decode()
        if data[at] != _SECOND:
            raise _Unusual
        start, at = _length(data, at + 1, entry)
        if at != entry:
            raise _Unusual
        if start != at:  # a member with an empty Value is omitted, as an empty Value is
            members[key] = _read(data, start, at, depth - 1)
    return members


# The general case, for valid bytes that no encoder writes: fields of a later version, one value in several
# occurrences, keys after values, lengths longer than necessary.


def _merge(data: bytes, at: int, end: int, depth: int) -> Any:
    value: Any = msgspec.UNSET
    for number, wire, start, stop in fields(data, at, end):
        match number, wire:
            case 1, scan.VARINT:
                value = None
            case 2, scan.FIXED64:
                value = _number(data, start)
            case 3, scan.BYTES:
                value = data[start:stop].decode()
            case 4, scan.VARINT:
                value = any(byte & 127 for byte in data[start:stop])
            case 5, scan.BYTES:
                value = _merge_fields(data, start, stop, depth, value if is_object(value) else {})
            case 6, scan.BYTES:
                value = _merge_items(data, start, stop, depth, value if is_array(value) else [])
            case _:
                pass  # a field of a later version is ignored (PB-12)
    return value


def _merge_items(data: bytes, at: int, end: int, depth: int, items: list[Any]) -> list[Any]:
    _check_depth(depth)
    for number, wire, start, stop in fields(data, at, end):
        if number == 1 and wire == scan.BYTES:
            item = _merge(data, start, stop, depth - 1)
            items.append(None if item is msgspec.UNSET else item)
    return items


def _merge_fields(data: bytes, at: int, end: int, depth: int, members: dict[str, Any]) -> dict[str, Any]:
    _check_depth(depth)
    for number, wire, start, stop in fields(data, at, end):
        if number != 1 or wire != scan.BYTES:
            continue
        key = ""
        values: list[bytes] = []
        for inner, inner_wire, begin, finish in fields(data, start, stop):
            if inner == 1 and inner_wire == scan.BYTES:
                key = data[begin:finish].decode()
            elif inner == 2 and inner_wire == scan.BYTES:
                values.append(data[begin:finish])
        merged = merge_occurrences(values)
        value = _merge(merged, 0, len(merged), depth - 1)
        if value is not msgspec.UNSET:
            members[key] = value
    return members


def _check_depth(depth: int) -> None:
    if depth == 0:
        raise NotJSON(f"nested deeper than {MAX_DEPTH}")
