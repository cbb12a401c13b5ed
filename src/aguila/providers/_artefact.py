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


def unpack(value: object, kind: str) -> dict[str, str] | None:
    """The members of an artefact of this kind; None if it is another's, or nothing that ``pack`` has made."""
    if not isinstance(value, str):
        return None
    try:
        found: Any = msgspec.json.decode(value)
    except (msgspec.DecodeError, UnicodeError, RecursionError):
        return None
    if not is_object(found) or found.get(_KIND) != kind:
        return None
    return {name: text for name, text in found.items() if isinstance(text, str) and name != _KIND}
