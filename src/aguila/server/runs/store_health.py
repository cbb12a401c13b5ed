"""Log a store outage once when it begins and once when it ends, however many requests and runs notice it."""

from __future__ import annotations

import logging
from collections.abc import Callable
from time import monotonic

from aguila.telemetry.counts import Counts
from aguila.telemetry.instruments import FAILING, OUTAGES

_log = logging.getLogger("aguila.server")


class StoreHealth:
    """Whether the last use of the store failed.

    ``are_appends_waiting`` returns whether appends of runs that began before a time still wait for the store.
    """

    def __init__(
        self, are_appends_waiting: Callable[[float], bool] = lambda _: False, counts: Counts | None = None
    ) -> None:
        self._are_appends_waiting = are_appends_waiting
        self._counts = counts
        self._failing_since = 0.0
        self._last_failure = 0.0
        self.is_failing = False
        """Whether the store has failed and has not worked since."""

    def record_failure(self, error: Exception) -> None:
        """Record that a call of the store failed."""
        self._last_failure = monotonic()
        if not self.is_failing:
            self.is_failing, self._failing_since = True, self._last_failure
            _log.warning("the store is unavailable: %s", error)
            if self._counts is not None:
                self._counts.add(OUTAGES, 1)
                self._counts.add(FAILING, 1)

    def record_success(self, started_at: float) -> None:
        """Record a write that began at ``started_at``. It ends the outage unless a call failed or an append waits."""
        if not self.is_failing or started_at < self._last_failure:
            return
        if not self._are_appends_waiting(started_at):
            _log.warning("the store is available again after %d seconds", monotonic() - self._failing_since)
            self.is_failing = False
            if self._counts is not None:
                self._counts.add(FAILING, -1)
