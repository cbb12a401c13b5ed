"""Layer: client. How often, and after which pauses, a dropped stream is taken up again.

Below: nothing. Above: ``exchange``, which does it; what can be taken up, and from where, is its matter.
"""

from __future__ import annotations

import msgspec

from aguila.errors import HTTPRejected


class Reconnect(msgspec.Struct, frozen=True, kw_only=True):
    """How often a dropped stream is taken up again. The budget is whole again with every event that arrives.

    The pauses grow from ``initial`` by ``factor`` up to ``longest`` seconds, each shortened at random by up to half. A
    server that says ``Retry-After`` is obeyed if that is no more than ``patience`` seconds: then the pause is at least
    as long, and a run that it refuses to begin with 429 or 503 is asked for again. It is an ``HTTPRejected`` otherwise.
    """

    attempts: int = 8
    initial: float = 0.25
    factor: float = 2.0
    longest: float = 15.0
    patience: float = 30.0

    def delay(self, attempt: int, random: float) -> float:
        """The pause before an attempt, from 0."""
        return min(self.longest, self.initial * self.factor**attempt) * (1.0 - random / 2)

    def asked_pause(self, error: Exception | None) -> float | None:
        """The pause that the server asked for when it refused, None if none that we are willing to make."""
        asked = error.retry_after if isinstance(error, HTTPRejected) else None
        return None if asked is None or asked > self.patience else asked
