"""Send changes of the state while an agent on the event loop awaits something else than the run."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from aguila.agent.state import MAX_PAUSE, MIN_PAUSE
from aguila.errors import EncodeError

if TYPE_CHECKING:
    from aguila.agent.output import OutputMapper

_TIMER_SLACK = 0.001
"""Seconds that a timer of the event loop may be early."""


class StateSampler:
    """Compares the state on a timer.

    The pause between two comparisons doubles while nothing changes, and grows with the cost of a comparison.
    """

    __slots__ = ("_loop", "_output", "_pause", "_timer")

    def __init__(self, output: OutputMapper) -> None:
        self._output = output
        self._pause = MIN_PAUSE
        self._loop = asyncio.get_running_loop()
        self._timer: asyncio.TimerHandle | None = None
        self._schedule()

    def stop(self) -> None:
        """Stop comparing."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _schedule(self) -> None:
        self._timer = self._loop.call_later(self._pause, self._sample)

    def _sample(self) -> None:
        output = self._output
        self._timer = None
        if output.is_over or output.failure is not None:
            return
        wait = output.state.due_in()
        if wait > _TIMER_SLACK:  # the state was compared since, before another event
            self._timer = self._loop.call_later(wait, self._sample)
            return
        has_changed = False
        try:
            has_changed = output.sample_state()
        except EncodeError as error:
            if error is output.failure:
                return
            # A state that is not JSON fails the agent at its next event, or the run at its end.
        except Exception:  # noqa: BLE001 - the sink refused; the agent gets the failure with its next event
            return
        least = output.state.pause
        self._pause = least if has_changed else min(2 * self._pause, max(MAX_PAUSE, least))
        self._schedule()
