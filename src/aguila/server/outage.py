"""Layer: server. What the log says of a store that cannot work: once that it cannot, and once that it can again.

Below: nothing. Above: ``runs``, ``live`` and ``app``, which meet it in every request and every run at the same time.
"""

from __future__ import annotations

import logging
from time import monotonic

_log = logging.getLogger("aguila.server")


class Outage:
    """Whether the store was last seen not to work."""

    def __init__(self) -> None:
        self._since: float | None = None

    def began(self, error: Exception) -> None:
        """Somebody could not use the store."""
        if self._since is None:
            self._since = monotonic()
            _log.warning("the store is unavailable: %s", error)

    def over(self) -> None:
        """Somebody could."""
        if self._since is not None:
            _log.warning("the store works again, after %d seconds", monotonic() - self._since)
            self._since = None
