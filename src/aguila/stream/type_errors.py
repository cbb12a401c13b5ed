"""Explain why an object is not an event, as a ``TypeError``.

A wrong object is a mistake in the program. A fault of a peer is a ``ProtocolError``.
"""

from __future__ import annotations

from typing import Any, get_args

from aguila.codec.official import is_official
from aguila.protocol import Event
from aguila.protocol.legacy import LegacyEvent

EVENT_CLASSES: frozenset[type[Any]] = frozenset(get_args(Event))
"""The event classes of the protocol, without subclasses: events are looked up by their exact class."""

_LEGACY = frozenset(get_args(LegacyEvent))


def event_type_error(value: object) -> TypeError:
    """Make the error for an object that is not an event: what it is, and what to do."""
    cls = type(value)
    if is_official(value):
        advice = "an object of ag_ui; convert it with aguila.codec.official.from_official"
    elif cls in _LEGACY:
        advice = "an event of an older protocol; pass its JSON to aguila.stream.consume or EventDecoder"
    elif isinstance(value, (dict, str, bytes)):
        advice = "not decoded; pass it to aguila.stream.consume, or decode it with aguila.codec.EventDecoder first"
    elif isinstance(value, tuple(EVENT_CLASSES)):
        advice = "a subclass of an event; use the protocol's own class"
    else:
        advice = "not an event of the protocol"
    return TypeError(f"expected an event, got {cls.__name__}: {advice}")
