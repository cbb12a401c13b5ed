"""Layer: codec. JSON values as the bytes of ``google.protobuf.Value`` and ``Struct``, and back.

Used by ``_pb_write`` and ``_pb_read``; knows no event. By hand and not through the protobuf runtime, which
refuses messages nested deeper than 100 (33 JSON objects) and is slower at it (140 us to write and 215 to read a
state of 1.7 KB, against 100 and 130 here).

Numbers on this wire are doubles:

==============================  ==========================================================
written                         read back
==============================  ==========================================================
``3`` and ``3.0``               ``3``, as from any JSON that JavaScript wrote
``-0.0``                        ``0``
an integer beyond 2^53          the nearest double, as a float; a notice if that is not it
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

Inexact = Callable[[int], None]
"""Told of an integer that a double cannot hold."""


class NotJSON(ValueError):
    """Bytes that are no value; the reader of the frame says where they were."""


def varint(n: int) -> bytes:
    """A length or a tag as protobuf writes it."""
    if n < 128:
        return bytes((n,))
    out = bytearray()
    while n > 127:
        out.append(n & 127 | 128)
        n >>= 7
    out.append(n)
    return bytes(out)


# Nearly every length is below this; a list lookup is a third of the cost of the loop.
_LENGTHS = [varint(n) for n in range(4096)]


def _sized(tag: bytes, body: bytes) -> bytes:
    n = len(body)
    return tag + (_LENGTHS[n] if n < 4096 else varint(n)) + body


# The tags of Value's arms: field number and wire type.
_NULL, _NUMBER, _STRING, _BOOL, _STRUCT, _LIST = 0x08, 0x11, 0x1A, 0x20, 0x2A, 0x32
# An element of a list or a map, the key of a map's entry: field 1 of its message; the entry's value: field 2.
_FIRST, _SECOND = 0x0A, 0x12


def write_value(value: Any, inexact: Inexact) -> bytes:
    """The bytes of a Value. Raises ``Unwritable``, or what the failing operation raises; ``explain`` says where."""
    return _write(value, inexact, MAX_DEPTH)


def write_struct(value: Any, inexact: Inexact) -> bytes:
    """The bytes of a Struct; raises as ``write_value`` does, and for what is no object."""
    if not isinstance(value, dict):
        raise Unwritable(f"expected an object, got {type(value).__name__}")
    written = write_value(value, inexact)
    return written[_body(written) :]  # a Value that holds a Struct is the Struct with a tag and a length before it


class Unwritable(ValueError):
    """A value without a form on this wire."""


def _write(value: Any, inexact: Inexact, depth: int) -> bytes:
    kind = value.__class__
    if kind is str:
        return _sized(b"\x1a", value.encode())
    if kind is int:
        if not -MAX_SAFE_INTEGER <= value <= MAX_SAFE_INTEGER and int(float(value)) != value:
            inexact(value)
        return b"\x11" + _pack(value)
    if kind is float:
        if not isfinite(value):
            raise Unwritable(f"{value} is no JSON number")
        return b"\x11" + _pack(value)
    if value is None:
        return b"\x08\x00"
    if kind is bool:
        return b"\x20\x01" if value else b"\x20\x00"
    if depth == 0:
        raise Unwritable(f"nested deeper than {MAX_DEPTH}")
    # Loops and not comprehensions or helpers below: one frame of the interpreter's stack per level.
    parts: list[bytes] = []
    if kind is dict:
        for key, member in value.items():
            if key.__class__ is not str:
                return _write(_plain(value), inexact, depth)
            # An empty key is left out, as implicit presence has it and as every other encoder does.
            head = _sized(b"\x0a", key.encode()) if key != "" else b""
            parts.append(_sized(b"\x0a", head + _sized(b"\x12", _write(member, inexact, depth - 1))))
        return _sized(b"\x2a", b"".join(parts))
    if kind is list or kind is tuple:
        for item in value:
            parts.append(_sized(b"\x0a", _write(item, inexact, depth - 1)))
        return _sized(b"\x32", b"".join(parts))
    return _write(_plain(value), inexact, depth - 1)


def _body(written: bytes) -> int:
    """Where the payload of a sized field begins: after the tag and a varint."""
    at = 1
    while written[at] > 127:
        at += 1
    return at + 1


def _plain(value: Any) -> Any:
    """What JSON would make of an object that is no plain JSON value: dates, enums, structs."""
    try:
        plain = msgspec.to_builtins(value, str_keys=True)
    except (TypeError, ValueError) as error:
        raise Unwritable(str(error)) from error
    if plain.__class__ not in _JSON_CLASSES:
        raise Unwritable(f"{type(value).__name__} is no JSON value")
    return plain


_JSON_CLASSES = frozenset({dict, list, str, int, float, bool, type(None)})


def find_unwritable(value: Any) -> tuple[str, str]:
    """Where a value cannot be written and why: a JSON Pointer and a reason; both empty if nothing is wrong.

    Slow and only asked after a failure, so that writing need not carry paths.
    """
    todo: list[tuple[Any, str, int]] = [(value, "", 0)]
    while todo:
        item, path, depth = todo.pop()
        if depth > MAX_DEPTH:
            return path, f"nested deeper than {MAX_DEPTH}"
        if isinstance(item, str):
            if not _is_unicode(item):
                return path, "a lone surrogate is no text that protobuf can carry"
        elif isinstance(item, float):
            if not isfinite(item):
                return path, f"{item} is no JSON number"
        elif isinstance(item, int):
            if not _fits_double(item):
                return path, "the integer is beyond what a double can hold"
        elif isinstance(item, dict):
            for key, inner in cast("dict[Any, Any]", item).items():
                if isinstance(key, str) and not _is_unicode(key):
                    return path, "a key with a lone surrogate is no text that protobuf can carry"
                todo.append((inner, f"{path}/{escape_token(str(key))}", depth + 1))
        elif isinstance(item, list | tuple):
            items = cast("list[Any]", item)
            todo.extend((inner, f"{path}/{i}", depth + 1) for i, inner in enumerate(items))
        elif item is not None:
            try:
                todo.append((_plain(item), path, depth))
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
    """The JSON value that occurrences of a Value hold, or ``UNSET`` where they hold none. Raises ``NotJSON``."""
    with _malformed_is_no_json():
        data = merge_occurrences(occurrences)
        if not data:
            return msgspec.UNSET
        try:
            return _read(data, 0, len(data), MAX_DEPTH)
        except (_Unusual, IndexError):
            return _merge(data, 0, len(data), MAX_DEPTH)


def read_struct(occurrences: Sequence[bytes]) -> dict[str, Any]:
    """The JSON object that occurrences of a Struct hold. Raises ``NotJSON``."""
    with _malformed_is_no_json():
        data = merge_occurrences(occurrences)
        try:
            return _read_fields(data, 0, len(data), MAX_DEPTH)
        except (_Unusual, IndexError):
            return _merge_fields(data, 0, len(data), MAX_DEPTH, {})


class _Unusual(Exception):
    """The bytes are not in the one form that encoders write."""


@contextmanager
def _malformed_is_no_json() -> Generator[None]:
    try:
        yield
    except Malformed as error:
        raise NotJSON(str(error)) from None
    except UnicodeDecodeError:
        raise NotJSON("a string is not UTF-8") from None


def _length(data: bytes, at: int, end: int) -> tuple[int, int]:
    """A length prefix at ``at`` as the bounds of what it announces."""
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
        return None  # an item of no kind holds a place in its list; JavaScript peers print null there
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
        raise NotJSON(f"{number} is no JSON number")
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
        if start != at:  # a member whose value is of no kind is left out, as the whole value would be
            members[key] = _read(data, start, at, depth - 1)
    return members


# The general way, for what is valid but no encoder writes: fields of a later version, one value in several
# occurrences, which merge, keys after values, lengths longer than need be.


def _merge(data: bytes, at: int, end: int, depth: int) -> Any:
    value: Any = msgspec.UNSET
    for slot, wire, start, stop in fields(data, at, end):
        match slot, wire:
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
                pass  # a field of a later version, which this wire lets go by (PB-12)
    return value


def _merge_items(data: bytes, at: int, end: int, depth: int, items: list[Any]) -> list[Any]:
    _check_depth(depth)
    for slot, wire, start, stop in fields(data, at, end):
        if slot == 1 and wire == scan.BYTES:
            item = _merge(data, start, stop, depth - 1)
            items.append(None if item is msgspec.UNSET else item)
    return items


def _merge_fields(data: bytes, at: int, end: int, depth: int, members: dict[str, Any]) -> dict[str, Any]:
    _check_depth(depth)
    for slot, wire, start, stop in fields(data, at, end):
        if slot != 1 or wire != scan.BYTES:
            continue
        key = ""
        values: list[bytes] = []
        for inner, inner_wire, begin, finish in fields(data, start, stop):
            if inner == 1 and inner_wire == scan.BYTES:
                key = data[begin:finish].decode()
            elif inner == 2 and inner_wire == scan.BYTES:
                values.append(data[begin:finish])
        whole = merge_occurrences(values)
        value = _merge(whole, 0, len(whole), depth - 1)
        if value is not msgspec.UNSET:
            members[key] = value
    return members


def _check_depth(depth: int) -> None:
    if depth == 0:
        raise NotJSON(f"nested deeper than {MAX_DEPTH}")
