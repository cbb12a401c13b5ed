"""A timeout for many short waits, with one timer for all of them.

``asyncio.timeout`` has a timer for each wait. The body of a request has nearly always arrived already; a timer for it
would be a tenth of the time until the first event of its run.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable
from typing import Any, TypeVar

T = TypeVar("T")


class _Wait:
    """A task that waits until a time of its event loop."""

    __slots__ = ("is_over", "task", "until")

    def __init__(self, task: asyncio.Task[Any], until: float) -> None:
        self.task = task
        self.until = until
        self.is_over = False


class SharedTimeout:
    """Ends waits after a number of seconds, on one event loop."""

    def __init__(self, seconds: float) -> None:
        self._seconds = seconds
        self._waits: dict[_Wait, None] = {}  # the oldest first, which is the next to end
        self._timer: asyncio.TimerHandle | None = None

    async def wait(self, awaited: Awaitable[T]) -> T:
        """Wait for a result. Raises ``TimeoutError`` if it does not come in time."""
        task = asyncio.current_task()
        assert task is not None  # noqa: S101 - a coroutine runs in a task
        loop = asyncio.get_running_loop()
        before = task.cancelling()
        wait = _Wait(task, loop.time() + self._seconds)
        self._waits[wait] = None
        if self._timer is None:
            self._timer = loop.call_at(wait.until, self._end_late)
        try:
            return await awaited
        except asyncio.CancelledError:
            if wait.is_over and task.uncancel() <= before:  # only the timer has cancelled the task
                raise TimeoutError from None
            raise
        finally:
            del self._waits[wait]

    def _end_late(self) -> None:
        """Cancel the tasks that have waited too long, and schedule the next check."""
        loop = asyncio.get_running_loop()
        now, self._timer = loop.time(), None
        for wait in self._waits:
            if wait.until > now:
                self._timer = loop.call_at(wait.until, self._end_late)
                return
            if not wait.is_over:
                wait.is_over = True
                wait.task.cancel()
