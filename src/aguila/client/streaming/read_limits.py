"""How long the next read of a stream may wait."""

from __future__ import annotations

from collections.abc import Callable

from aguila.client.requests.http_requests import Limit
from aguila.client.transports.base import Timeouts


class ReadLimits:
    """The time limits of one connection: the first event, an idle stream, and the wait after the end of the run."""

    def __init__(self, timeouts: Timeouts, clock: Callable[[], float], *, has_events: bool) -> None:
        self.name: Limit = "idle"
        """The limit that bounds the current read."""
        self._timeouts = timeouts
        self._clock = clock
        self._has_deadline = timeouts.first_event is not None and not has_events
        self._first_event = clock() + (timeouts.first_event or 0) if self._has_deadline else None
        self._linger: float | None = None

    def next_wait(self) -> float | None:
        """Return the seconds that the next read may wait; None for no limit, 0 or less if the time is up."""
        idle = self._timeouts.idle
        if not self._has_deadline:
            return idle
        if self._linger is not None:
            left = self._linger - self._clock()
        else:
            left = (self._first_event or 0) - self._clock()
            self.name = "first_event"
        if idle is not None and idle < left:
            self.name = "idle"
            return idle
        return left

    @property
    def is_up(self) -> bool:
        """Whether a deadline has passed: that of the first event, or that of lingering."""
        deadline = self._linger if self._linger is not None else self._first_event
        return self._has_deadline and deadline is not None and deadline <= self._clock()

    @property
    def is_lingering(self) -> bool:
        """Whether the run has ended and only a late RUN_ERROR is waited for (LIFE-15)."""
        return self._linger is not None

    def events_arrived(self, *, has_ended: bool) -> None:
        """Note that events were consumed. ``has_ended`` says that the run has ended with them."""
        linger = self._timeouts.linger
        self._first_event = None
        self._linger = None if linger is None or not has_ended else self._clock() + linger
        self._has_deadline = self._linger is not None
        self.name = "idle"
