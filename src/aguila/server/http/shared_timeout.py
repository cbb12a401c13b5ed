"""A timeout for many short waits, with one timer for all of them.

``asyncio.timeout`` has a timer for each wait. The body of a request has nearly always arrived already; a timer for it
would be a tenth of the time until the first event of its run.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any, TypeVar

T = TypeVar("T")


class SharedTimeout:
    """Ends waits after a number of seconds, on one event loop, with the error that ``make_error`` makes."""

    def __init__(self, seconds: float, make_error: Callable[[], Exception] = TimeoutError) -> None:
        self._seconds = seconds
        self._make_error = make_error
        self._loop = asyncio.get_running_loop()  # once: before Python 3.12 this is a system call
        self._waits: dict[asyncio.Task[Any], float] = {}  # task -> when its wait ends, the next one first
        self._timer: asyncio.TimerHandle | None = None

    async def wait(self, awaited: Awaitable[T]) -> T:
        """Wait for a result. Raises the error of this timeout if it does not come in time."""
        task = asyncio.current_task(self._loop)
        assert task is not None  # noqa: S101 - a coroutine runs in a task
        before = task.cancelling()
        until = self._waits[task] = self._loop.time() + self._seconds
        if self._timer is None:
            self._timer = self._loop.call_at(until, self._end_late)
        try:
            return await awaited
        except asyncio.CancelledError:
            if task not in self._waits and task.uncancel() <= before:  # only the timer has cancelled the task
                raise self._make_error() from None
            raise
        finally:
            self._waits.pop(task, None)

    def _end_late(self) -> None:
        """Cancel the tasks that have waited too long, and schedule the next check."""
        now, self._timer = self._loop.time(), None
        for task, until in list(self._waits.items()):
            if until > now:
                self._timer = self._loop.call_at(until, self._end_late)
                return
            del self._waits[task]
            task.cancel()
