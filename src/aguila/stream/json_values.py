"""Validate, copy and compare JSON values made by Python programs.

An agent may pass any object, also one that contains itself. The functions here terminate, do not overflow the stack and
raise ``EncodeError`` only.
"""

from __future__ import annotations

from typing import Any

import msgspec

from aguila.codec.json.text import MAX_DEPTH
from aguila.codec.pointer import escape_token
from aguila.errors import EncodeError

# Typed Any, so that values stay Any after isinstance. Narrowed to dict[Unknown, Unknown] they would need casts, which
# are calls, in loops over every value. Python programs put tuples into JSON values, so they count as arrays.
OBJECT: Any = dict
ARRAY: Any = (list, tuple)
CONTAINER: Any = (dict, list, tuple)

MAX_JSON_DEPTH = MAX_DEPTH - 6
"""Deepest nesting of a value that is sent: an event that contains it stays within the receivers' limit."""

MAX_DIGITS = 1_000
"""Digits of an integer: the time to write or read one grows with their square, and most peers round it anyway."""

_MAX_INTEGER_BITS = (10**MAX_DIGITS - 1).bit_length()

_ABSENT: Any = object()
_pack = msgspec.msgpack.Encoder().encode

_Place = tuple[Any, object] | None
"""A position in a document: the position of the container, and the key in it. Made into a pointer only for errors."""


def copy_json(value: Any) -> Any:
    """Copy a value so that it shares no container with the original: later changes do not affect what was sent.

    Raises ``EncodeError``, with a pointer, for a value that cannot be sent as JSON: another type, NaN, an integer of
    more than ``MAX_DIGITS``, nesting deeper than ``MAX_JSON_DEPTH``, or a document that contains itself.
    """
    try:
        return _copy(value, None, 0)
    except EncodeError as error:
        # The pointer is enough. The frames of the recursion would fill hundreds of kilobytes of a log.
        raise error.with_traceback(None)  # noqa: B904 - it is the same error


def _copy(value: Any, at: _Place, depth: int) -> Any:
    cls = value.__class__
    if cls is not dict and cls is not list:
        if value is None or isinstance(value, str):
            return value
        if isinstance(value, int):
            if value.bit_length() > _MAX_INTEGER_BITS:
                raise _integer_error(at)
            return value
        if isinstance(value, float):
            if value - value != 0:  # NaN and the infinities
                raise EncodeError(f"{value!r} is not a JSON number", path=_pointer(at))
            return value
        if not isinstance(value, CONTAINER):
            raise _type_error(value, at)
    elif not value and depth < MAX_JSON_DEPTH:
        return {} if cls is dict else []
    if depth >= MAX_JSON_DEPTH:
        raise EncodeError(f"the document contains itself, or is nested deeper than {MAX_JSON_DEPTH} levels")
    # Most members are texts or nothing. They are copied without a call.
    if isinstance(value, OBJECT):
        for key in value:
            if not isinstance(key, str):
                raise _name_error(key, at)
        return {
            key: member if member.__class__ is str or member is None else _copy(member, (at, key), depth + 1)
            for key, member in value.items()
        }
    return [
        element if element.__class__ is str or element is None else _copy(element, (at, index), depth + 1)
        for index, element in enumerate(value)
    ]


def check_json(document: Any, path: str = "") -> None:
    """Raise ``EncodeError`` for a document that contains itself or a value that is not JSON.

    ``path`` is the pointer to the document, for the error. Every depth and NaN are accepted: they can be compared.
    """
    parents: set[int] = set()  # the containers around the current one
    pending: list[tuple[Any, _Place, bool]] = [(document, None, False)]
    while pending:
        value, at, is_left = pending.pop()
        if is_left:
            parents.remove(id(value))
        elif isinstance(value, CONTAINER):
            if id(value) in parents:
                raise EncodeError("the document contains itself", path=path + _pointer(at))
            parents.add(id(value))
            pending.append((value, at, True))
            if isinstance(value, OBJECT):
                for key, member in value.items():
                    if not isinstance(key, str):
                        raise _name_error(key, at, path)
                    pending.append((member, (at, key), False))
            else:
                pending.extend((element, (at, index), False) for index, element in enumerate(value))
        elif isinstance(value, int):
            if value.bit_length() > _MAX_INTEGER_BITS:
                raise _integer_error(at, path)
        elif value is not None and not isinstance(value, (str, float)):
            raise _type_error(value, at, path)


def check_integers(document: Any, path: str = "") -> None:
    """Raise ``EncodeError`` for an integer of more than ``MAX_DIGITS`` in decoded JSON."""
    try:
        _pack(document)  # in C; refuses integers of more than 64 bits
    except (OverflowError, UnicodeEncodeError):
        check_json(document, path)


def json_equal(a: Any, b: Any) -> bool:
    """Return whether two values are equal JSON. Members may be in any order; 1 equals 1.0, but not True."""
    pending: list[tuple[Any, Any]] = [(a, b)]  # not recursive: documents may be deeper than Python's stack
    while pending:
        a, b = pending.pop()
        if a is b:
            continue
        if isinstance(a, OBJECT):
            if not isinstance(b, OBJECT) or len(a) != len(b):
                return False
            for key, value in a.items():
                other = b.get(key, _ABSENT)
                if other is not value:
                    if other is _ABSENT:
                        return False
                    pending.append((value, other))
        elif isinstance(a, ARRAY):
            if not isinstance(b, ARRAY) or len(a) != len(b):
                return False
            pending.extend(zip(a, b, strict=True))
        # JSON has one number type and a separate boolean type, but in Python True == 1 (PY-13).
        elif a != b or (type(a) is bool) is not (type(b) is bool):
            return False
    return True


def _type_error(value: Any, at: _Place, path: str = "") -> EncodeError:
    return EncodeError(f"a value of type {type(value).__name__} is not JSON", path=path + _pointer(at))


def _name_error(key: Any, at: _Place, path: str = "") -> EncodeError:
    name = repr(key)
    shown = name if len(name) <= 80 else f"{name[:80]}..."
    return EncodeError(f"a member name must be a string, not {shown}", path=path + _pointer(at))


def _integer_error(at: _Place, path: str = "") -> EncodeError:
    return EncodeError(f"an integer of more than {MAX_DIGITS} digits cannot be sent", path=path + _pointer(at))


def _pointer(at: _Place) -> str:
    tokens: list[str] = []
    while at is not None:
        at, token = at
        tokens.append(f"/{escape_token(str(token))}")
    return "".join(reversed(tokens))
