"""When to reconnect, and after which pauses."""

from __future__ import annotations

import msgspec

from aguila.errors import HTTPRejected


class Reconnect(msgspec.Struct, frozen=True, kw_only=True):
    """The policy for reconnecting a broken stream.

    ``attempts`` without progress are made; every event that arrives resets the count. The pauses grow from ``initial``
    by ``factor`` up to ``longest`` seconds, each shortened at random by up to one half. A ``Retry-After`` of at most
    ``patience`` seconds is obeyed: the pause is at least that long, and a run that is refused with 429, 502, 503 or 504
    is sent again. A 502 or 504 without ``Retry-After`` counts as a broken stream. Otherwise the
    refusal is raised as ``HTTPRejected``.
    """

    attempts: int = 8
    initial: float = 0.25
    factor: float = 2.0
    longest: float = 15.0
    patience: float = 30.0

    def delay(self, attempt: int, random: float) -> float:
        """Return the pause before an attempt, counted from 0."""
        return min(self.longest, self.initial * self.factor**attempt) * (1.0 - random / 2)

    def asked_pause(self, error: Exception | None) -> float | None:
        """Return the pause that the server asked for; None if it asked for none, or for more than ``patience``."""
        asked = error.retry_after if isinstance(error, HTTPRejected) else None
        return None if asked is None or asked > self.patience else asked
