"""Layer: stream. What is handed in as an event and is none: a mistake of the program, told as ``TypeError``.

Below: the protocol types. Above: ``chunks``, ``verify`` and ``reduce``, which look events up by their class and end up
here when there is no such class. It only explains; a peer's faults are a ``ProtocolError`` and found elsewhere.
"""

from __future__ import annotations

from typing import Any, get_args

from aguila.codec.official import is_official
from aguila.protocol import Event
from aguila.protocol.legacy import LegacyEvent

EVENT_CLASSES: frozenset[type[Any]] = frozenset(get_args(Event))
"""The classes of the protocol's events. Classes derived from them are not: who looked for them by class would fail."""

_LEGACY = frozenset(get_args(LegacyEvent))


def not_an_event(value: object) -> TypeError:
    """The error for a value that is not one of the protocol's events: what it is, and what to do."""
    cls = type(value)
    if is_official(value):
        advice = "an object of ag_ui; make it an event with aguila.codec.official.from_official"
    elif cls in _LEGACY:
        advice = "an event of an older protocol; aguila.stream.consume and aguila.codec.json.EventDecoder read its JSON"
    elif isinstance(value, (dict, str, bytes)):
        advice = "not decoded; aguila.stream.consume takes it, or decode it with aguila.codec.json.EventDecoder first"
    elif isinstance(value, tuple(EVENT_CLASSES)):
        advice = "derived from an event; events are of the protocol's own classes"
    else:
        advice = "no event of the protocol"
    return TypeError(f"expected an event, got {cls.__name__}: {advice}")
