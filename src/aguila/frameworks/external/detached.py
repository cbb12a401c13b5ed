"""Read an async iterator in a separate task, so that cancelling the run does not cancel the iterator."""

from __future__ import annotations

import asyncio
from typing import Any, Final, Self

_END: Final[Any] = object()


class DetachedIterator:
    """The values of an async iterator that runs in another task. ``aclose`` cancels the task.

    When the run is cancelled, the caller can first stop work that the iterator has started in other tasks, then close
    the iterator.
    """

    def __init__(self, values: Any) -> None:
        self._queue: asyncio.Queue[Any] = asyncio.Queue()
        self._task = asyncio.create_task(self._read(values))

    async def _read(self, values: Any) -> None:
        try:
            async for value in values:
                self._queue.put_nowait(value)
        finally:
            self._queue.put_nowait(_END)

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> Any:
        value = await self._queue.get()
        if value is not _END:
            return value
        await self._task
        raise StopAsyncIteration

    async def aclose(self) -> None:
        """Cancel the task and wait for its end."""
        self._task.cancel()
        await asyncio.wait([self._task])
