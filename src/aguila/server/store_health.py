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
        self._last = 0.0

    @property
    def is_on(self) -> bool:
        """Whether it was."""
        return self._since is not None

    def began(self, error: Exception) -> None:
        """Somebody could not use the store."""
        self._last = monotonic()
        if self._since is None:
            self._since = self._last
            _log.warning("the store is unavailable: %s", error)

    def over(self, since: float) -> None:
        """Somebody has written to it who began then. It works again only if nobody has failed since."""
        if self._since is not None and since >= self._last:
            _log.warning("the store works again, after %d seconds", monotonic() - self._since)
            self._since = None
