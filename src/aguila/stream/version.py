"""Layer: stream. What a peer's declared protocol version means to us (VER-3 to VER-5, VER-7, VER-11)."""

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


_SHOWN = 64
"""Characters of a strange version that a notice has."""

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


def consumer_notice(declared: str | None) -> Notice | None:
    """What a developer should know about a consumer's declaration; None if there is nothing to say.

    It is served in any case, in our version if its own is newer (VER-5); we refuse no other major line either (VER-6).
    """
    if declared is None:
        return None
    version = parse_version(declared)
    if version is None:
        message = f"cannot interpret the consumer's protocol version {declared[:_SHOWN]!r}; it is served as a newer one"
        return Notice(rule="VER-4", message=message, path="/protocolVersion")
    if version > _OURS:
        message = f"the consumer speaks {declared}, newer than our {PROTOCOL_VERSION}, which it is served"
        return Notice(rule="VER-5", message=message, path="/protocolVersion")
    return None


def older_peer(declared: str | None) -> str | None:
    """The version to downgrade to for who declared this; None for a peer to be treated as current.

    That is also one that declared nothing, or what cannot be interpreted: nobody guesses downward (VER-4, VER-11).
    """
    version = None if declared is None else parse_version(declared)
    return declared if version is not None and version < _OURS else None
