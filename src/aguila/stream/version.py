"""Interpret the protocol version that a peer declares (VER-3 to VER-5, VER-7, VER-11)."""

from __future__ import annotations

import re
from typing import Final

from aguila.codec.dialects.table import parse_peer
from aguila.codec.notices import Notice
from aguila.protocol import PROTOCOL_VERSION

# Bounded, because a peer chooses the digits, and int() refuses thousands of them.
_GRAMMAR: Final = re.compile("([0-9]{1,18})\\.([0-9]{1,18})")


def parse_version(text: str) -> tuple[int, int] | None:
    """Parse ``"1.10"`` to ``(1, 10)``. None for text that is not MAJOR.MINOR (``"1"``, ``"1.0.0"``, ``"draft"``)."""
    match = _GRAMMAR.fullmatch(text)
    return None if match is None else (int(match[1]), int(match[2]))


_MAX_SHOWN = 64
"""Number of characters of an unreadable version that a notice shows."""

_OURS: Final = parse_version(PROTOCOL_VERSION) or (0, 0)


def producer_version_notice(declared: str | None) -> Notice | None:
    """Return a notice if a producer declares a newer or unreadable version, else None (VER-7).

    No stream is refused because of its version.
    """
    if declared is None:
        return None
    version = parse_version(declared)
    if version is None:
        message = f"cannot parse the producer's protocol version {declared!r}; treating it as a newer version"
        return Notice(rule="VER-4", message=message, path="/protocolVersion", event_type="RUN_STARTED")
    if version > _OURS:
        message = f"the producer uses {declared}, newer than our {PROTOCOL_VERSION}: unknown members are stripped"
        return Notice(rule="VER-7", message=message, path="/protocolVersion", event_type="RUN_STARTED")
    return None


def consumer_version_notice(declared: str | None) -> Notice | None:
    """Return a notice if a consumer declares a newer or unreadable version, else None.

    The request is served anyway: in our version if the declared one is newer (VER-5), whatever its major version
    (VER-6).
    """
    if declared is None or declared == PROTOCOL_VERSION:
        return None
    version = parse_version(declared)
    if version is None and parse_peer(declared) is not None:
        return None  # the library version of a 0.x client
    if version is None:
        message = (
            f"cannot parse the consumer's protocol version {declared[:_MAX_SHOWN]!r}; treating it as a newer version"
        )
        return Notice(rule="VER-4", message=message, path="/protocolVersion")
    if version > _OURS:
        message = f"the consumer uses {declared}, newer than our {PROTOCOL_VERSION}; it is served {PROTOCOL_VERSION}"
        return Notice(rule="VER-5", message=message, path="/protocolVersion")
    return None
