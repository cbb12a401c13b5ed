"""Layer: stream. JSON documents as Python programs make them: what counts as one, and a copy of one's own.

Below: pointers and limits from ``aguila.codec``. Above: ``diff`` and ``patch`` walk documents, ``emit`` takes them from
agents. What an agent hands in may be anything at all, also something that contains itself; nothing here hangs on it,
overflows the stack or fails otherwise than by ``EncodeError``.
"""

from __future__ import annotations

from typing import Any

from aguila.codec.pointer import escape_token
from aguila.codec.text import MAX_DEPTH
from aguila.errors import EncodeError

# Typed Any so that isinstance leaves documents Any: narrowed to dict[Unknown, Unknown] they would need casts,
# which are calls, in loops that run for every value. Tuples occur in documents made by Python programs.
OBJECT: Any = dict
ARRAY: Any = (list, tuple)
CONTAINER: Any = (dict, list, tuple)

DEEPEST = MAX_DEPTH - 6
"""How deep a document may nest that is sent: an event that holds it stays within what receivers take."""

_LONGEST_INTEGER = 14_000
"""In bits. Python refuses to write, and most peers to read, integers of more than some 4,300 digits."""

_Place = tuple[Any, object] | None
"""Where in a document: the place of the container, and the name or index in it. Spelled out only for an error."""


def own_json(value: Any) -> Any:
    """A copy that shares no container with the value: what was sent must not change when the agent goes on.

    Raises ``EncodeError`` for anything that is not JSON or could not be sent as such (NaN, an integer of thousands of
    digits, a document deeper than ``DEEPEST`` or without end because it contains itself), with a pointer to it.
    """
    if value is None or value.__class__ is str:  # what most optional members are
        return value
    try:
        return _own(value, None, 0)
    except EncodeError as error:
        # The pointer says where. All the calls down to there would be hundreds of kilobytes in a log.
        raise error.with_traceback(None)  # noqa: B904 - it is the same error


def _own(value: Any, at: _Place, depth: int) -> Any:
    if value is None or isinstance(value, str):
        return value
    if isinstance(value, int):
        if value.bit_length() > _LONGEST_INTEGER:
            raise _too_long(at)
        return value
    if isinstance(value, float):
        if value - value != 0:  # NaN and the infinities
            raise EncodeError(f"{value!r} is not a JSON number", path=_pointer(at))
        return value
    if depth >= DEEPEST and isinstance(value, CONTAINER):
        raise EncodeError(f"the document contains itself, or is nested deeper than {DEEPEST} levels")
    if isinstance(value, OBJECT):
        for key in value:
            if not isinstance(key, str):
                raise _not_a_name(key, at)
        return {key: _own(member, (at, key), depth + 1) for key, member in value.items()}
    if isinstance(value, ARRAY):
        return [_own(element, (at, index), depth + 1) for index, element in enumerate(value)]
    raise _not_json(value, at)


def check_json(document: Any, path: str = "") -> None:
    """Raises ``EncodeError`` for a document that has no end or is not made of JSON values. ``path`` leads to it.

    Any depth will do, and NaN, which cannot be sent, can be compared.
    """
    parents: set[int] = set()  # the containers around the one looked at: one that meets itself there has no end
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
                        raise _not_a_name(key, at, path)
                    pending.append((member, (at, key), False))
            else:
                pending.extend((element, (at, index), False) for index, element in enumerate(value))
        elif isinstance(value, int):
            if value.bit_length() > _LONGEST_INTEGER:
                raise _too_long(at, path)
        elif value is not None and not isinstance(value, (str, float)):
            raise _not_json(value, at, path)


def _not_json(value: Any, at: _Place, path: str = "") -> EncodeError:
    return EncodeError(f"a value of type {type(value).__name__} is not JSON", path=path + _pointer(at))


def _not_a_name(key: Any, at: _Place, path: str = "") -> EncodeError:
    name = repr(key)
    shown = name if len(name) <= 80 else f"{name[:80]}..."
    return EncodeError(f"the name of a member must be a string, not {shown}", path=path + _pointer(at))


def _too_long(at: _Place, path: str = "") -> EncodeError:
    return EncodeError("an integer of thousands of digits cannot be written", path=path + _pointer(at))


def _pointer(at: _Place) -> str:
    tokens: list[str] = []
    while at is not None:
        at, token = at
        tokens.append(f"/{escape_token(str(token))}")
    return "".join(reversed(tokens))
