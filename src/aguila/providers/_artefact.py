"""Layer: providers. What a model wants back unchanged, packed so that it says whose it is (ENC).

Below: msgspec. Above: every provider. A value travels as one opaque string through stores and clients, and those that
speak 1.0 lose its type (ENC-7). So the string itself is a JSON object with the provider's kind in it: a thread that
changes its model never sends one provider's signature to another, which would refuse the request.
"""

from __future__ import annotations

from typing import Any

import msgspec

from aguila.codec.values import is_object

_KIND = "kind"


def pack(kind: str, **members: str) -> str:
    """An artefact as the string that travels."""
    return msgspec.json.encode({_KIND: kind, **members}).decode()


class Place(msgspec.Struct, frozen=True, omit_defaults=True):
    """Which piece of a text an artefact came with. One that came with none may stand after the message's calls."""

    start: int
    length: int
    is_after_calls: bool = False

    def moved(self, offset: int) -> Place:
        """The place in a text that has this many characters before it."""
        return Place(self.start + offset, self.length, self.is_after_calls)

    @staticmethod
    def of(members: dict[str, str]) -> Place | None:
        """The place that an artefact names; None if it is that of the whole text."""
        try:
            start, length = int(members["start"]), int(members["length"])
        except (KeyError, ValueError):
            return None
        return Place(start, length, "after" in members) if start >= 0 and length >= 0 else None


def placed(value: str | None, place: Place | None) -> str | None:
    """An artefact that names its place, and no other that it had before."""
    if value is None or place is None:
        return value
    found: dict[str, str] = msgspec.json.decode(value)
    found.pop("after", None)
    after = {"after": "calls"} if place.is_after_calls else {}
    members = {"start": str(place.start), "length": str(place.length), **after}
    return msgspec.json.encode({**found, **members}).decode()


def unpack(value: object, kind: str) -> dict[str, str] | None:
    """The members of an artefact of this kind; None if it is another's, or nothing that ``pack`` has made."""
    found = read_json(value)
    if not is_object(found) or found.get(_KIND) != kind:
        return None
    return {name: text for name, text in found.items() if isinstance(text, str) and name != _KIND}


def read_json(value: object) -> Any:
    """The JSON value that a text is; None if it is none."""
    if not isinstance(value, str):
        return None
    try:
        return msgspec.json.decode(value)
    except (msgspec.DecodeError, UnicodeError, RecursionError):
        return None
