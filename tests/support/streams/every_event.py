"""One valid stream with every event type of the protocol in it."""

from __future__ import annotations

import random
from functools import cache

from aguila.protocol import Event, EventType
from streams.random_streams import random_stream


@cache
def every_event() -> tuple[Event, ...]:
    """Return a finished valid stream with all event types."""
    for seed in range(200):
        events = random_stream(random.Random(seed), 400, surrogates=False, collisions=False)
        if {event.type for event in events} == set(EventType) and events[-1].type in ("RUN_FINISHED", "RUN_ERROR"):
            return tuple(events)
    raise AssertionError("no seed gives a stream of every event type")
