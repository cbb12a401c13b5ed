"""Pack opaque values that a model wants back, together with the provider that they belong to (ENC).

Such a value travels as one string through stores and clients, and peers of protocol 1.0 lose its type (ENC-7). So the
string is a JSON object with the provider's kind in it. If a thread changes its model, no provider gets the signature of
another, which it would refuse.
"""

from __future__ import annotations

from typing import Any

import msgspec

from aguila.codec.json.bounded_floats import decode_json
from aguila.codec.json.values import is_object

_KIND = "kind"


def pack(kind: str, **members: str) -> str:
    """Pack the members of an opaque value into one string."""
    return msgspec.json.encode({_KIND: kind, **members}).decode()


class Place(msgspec.Struct, frozen=True, omit_defaults=True):
    """The piece of a text that a value came with. Without text it may come after the message's calls."""

    start: int
    length: int
    is_after_calls: bool = False

    def moved(self, offset: int) -> Place:
        """Shift the place by the characters before it."""
        return Place(self.start + offset, self.length, self.is_after_calls)

    @staticmethod
    def of(members: dict[str, str]) -> Place | None:
        """Return the place in an unpacked value; None if it belongs to the whole text."""
        try:
            start, length = int(members["start"]), int(members["length"])
        except (KeyError, ValueError):
            return None
        return Place(start, length, "after" in members) if start >= 0 and length >= 0 else None


def pack_place(value: str | None, place: Place | None) -> str | None:
    """Pack a value with its place, instead of any place it had before."""
    if value is None or place is None:
        return value
    found: dict[str, str] = decode_json(value)
    found.pop("after", None)
    after = {"after": "calls"} if place.is_after_calls else {}
    members = {"start": str(place.start), "length": str(place.length), **after}
    return msgspec.json.encode({**found, **members}).decode()


def unpack(value: object, kind: str) -> dict[str, str] | None:
    """Return the members of a value of this kind; None if it has another kind, or was not made by ``pack``."""
    found = read_json(value)
    if not is_object(found) or found.get(_KIND) != kind:
        return None
    return {name: text for name, text in found.items() if isinstance(text, str) and name != _KIND}


def read_json(value: object) -> Any:
    """Parse JSON text; None if it is not JSON text."""
    if not isinstance(value, str):
        return None
    try:
        return decode_json(value)
    except (msgspec.DecodeError, UnicodeError, RecursionError):
        return None
