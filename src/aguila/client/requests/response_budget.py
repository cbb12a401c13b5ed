"""Limit the events, bytes and seconds of a run or a document that a client reads."""

from __future__ import annotations

from typing import TYPE_CHECKING

from aguila.errors import LimitExceeded

if TYPE_CHECKING:
    from aguila.client.settings import Settings


class ResponseBudget:
    """The remaining budget of one run, over all of its connections, or of one document.

    Raises ``LimitExceeded`` beyond it.
    """

    def __init__(self, settings: Settings) -> None:
        self._settings = settings
        self._bytes = 0
        self._events = 0
        self._ends_at = settings.clock() + settings.max_seconds

    def spend(self, size: int, events: int = 0) -> None:
        """Count the bytes and events of one read."""
        settings = self._settings
        self._bytes += size
        self._events += events
        if self._events > settings.max_events:
            raise LimitExceeded("max_events", settings.max_events, "events")
        if self._bytes > settings.max_bytes:
            raise LimitExceeded("max_bytes", settings.max_bytes, "bytes")
        self.check_time()

    def check_time(self) -> None:
        """Raise ``LimitExceeded`` if the response has taken too long."""
        if self._settings.clock() >= self._ends_at:
            raise LimitExceeded("max_seconds", self._settings.max_seconds, "seconds")

    def shorten(self, wait: float | None) -> float:
        """Return the seconds that the next wait may take."""
        left = max(0.0, self._ends_at - self._settings.clock())
        return left if wait is None else min(wait, left)
