"""Limit the seconds of a run, the seconds and bytes of a document, and the wait for the next bytes of either."""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal

from aguila.errors import LimitExceeded

if TYPE_CHECKING:
    from aguila.client.settings import Settings

Limit = Literal["first_event", "idle", "answer", "linger"]
"""A limit of ``Timeouts``."""


class ReadLimits:
    """The remaining budget of one run, over all of its connections, or of one document.

    Raises ``LimitExceeded`` beyond it.
    """

    def __init__(self, settings: Settings) -> None:
        self.name: Limit = "idle"
        """The limit that bounds the current read of a stream."""
        self._settings = settings
        self._bytes = 0
        self._ends_at = settings.clock() + settings.max_seconds
        self._began_at = 0.0  # the current connection
        self._ended_at: float | None = None  # the run

    def spend(self, size: int) -> None:
        """Count the bytes of one read of a document."""
        self._bytes += size
        if self._bytes > self._settings.max_bytes:
            raise LimitExceeded("max_bytes", self._settings.max_bytes, "bytes")

    def check_time(self) -> None:
        """Raise ``LimitExceeded`` if the response has taken too long."""
        if self._settings.clock() >= self._ends_at:
            raise LimitExceeded("max_seconds", self._settings.max_seconds, "seconds")

    def shorten(self, wait: float | None) -> float:
        """Return the seconds that the next wait may take."""
        left = max(0.0, self._ends_at - self._settings.clock())
        return left if wait is None else min(wait, left)

    def connect(self) -> None:
        """Begin with the stream of another connection."""
        self._began_at = self._settings.clock()

    def next_wait(self, *, has_events: bool, has_ended: bool) -> float:
        """Return the seconds that the next read of a stream may wait; 0 or less if the time is up.

        The first event has a time limit, and so has a late RUN_ERROR after the end of the run (LIFE-15).
        """
        now, timeouts = self._settings.clock(), self._settings.timeouts
        wait, self.name = self._ends_at - now, "idle"
        if timeouts.idle is not None:
            wait = min(wait, timeouts.idle)
        if not has_ended:
            self._ended_at = None
        elif self._ended_at is None:
            self._ended_at = now
        deadline: float | None = None
        if self._ended_at is not None:
            deadline = None if timeouts.linger is None else self._ended_at + timeouts.linger
        elif not has_events and timeouts.first_event is not None:
            deadline = self._began_at + timeouts.first_event
        if deadline is not None and deadline - now < wait:
            wait, self.name = deadline - now, "linger" if has_ended else "first_event"
        return wait
