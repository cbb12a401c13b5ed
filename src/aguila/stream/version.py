"""Layer: stream. What a peer's declared protocol version means to us (VER-3, VER-4, VER-7)."""

from __future__ import annotations

import re
from typing import Final

from aguila.codec.notice import Notice
from aguila.protocol import PROTOCOL_VERSION

# Bounded, because a peer chooses the digits and int() refuses thousands of them.
_GRAMMAR: Final = re.compile("([0-9]{1,18})\\.([0-9]{1,18})")


def parse_version(text: str) -> tuple[int, int] | None:
    """``"1.10"`` as ``(1, 10)``; None for what the grammar does not admit (``"1"``, ``"1.0.0"``, ``"draft"``)."""
    match = _GRAMMAR.fullmatch(text)
    return None if match is None else (int(match[1]), int(match[2]))


_OURS: Final = parse_version(PROTOCOL_VERSION) or (0, 0)


def version_notice(declared: str | None) -> Notice | None:
    """What a developer should know about a producer's declaration; None if there is nothing to say.

    Absent, equal and older versions are quiet (VER-7). Nothing is ever refused for its version.
    """
    if declared is None:
        return None
    version = parse_version(declared)
    if version is None:
        message = f"cannot interpret the producer's protocol version {declared!r}; reading it as a newer one"
        return Notice(rule="VER-4", message=message, path="/protocolVersion", event_type="RUN_STARTED")
    if version > _OURS:
        message = f"the producer speaks {declared}, newer than our {PROTOCOL_VERSION}: what we do not know is stripped"
        return Notice(rule="VER-7", message=message, path="/protocolVersion", event_type="RUN_STARTED")
    return None
