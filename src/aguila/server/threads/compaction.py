"""Compact the stored events of ended runs."""

from __future__ import annotations

from collections.abc import Sequence

from aguila.codec import decode_event, encode_event
from aguila.codec.notices import ignore_notice
from aguila.errors import AguilaError
from aguila.server.config.limits import UNLIMITED
from aguila.stream import compact


def compact_events(events: Sequence[bytes]) -> Sequence[bytes]:
    """Return the stored events of an ended run in compacted form; as they are if one of them cannot be read."""
    try:
        decoded = [decode_event(data, strict=True, max_size=UNLIMITED) for data in events]
        return [
            encode_event(event) for event in compact([one for one in decoded if one is not None], warn=ignore_notice)
        ]
    except AguilaError:
        return events
