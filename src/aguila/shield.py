"""Protect work that must not be left half done from the cancellation of the call that started it."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any, TypeVar

T = TypeVar("T")


async def run_shielded(work: Coroutine[Any, Any, T], on_abandoned: Callable[[asyncio.Task[T]], None]) -> T:
    """Run a coroutine to completion even if its caller is cancelled.

    If the caller is cancelled, the work continues in its task, which is passed to ``on_abandoned``.
    """
    outcome: asyncio.Future[None] = asyncio.get_running_loop().create_future()

    async def run() -> T:
        try:
            return await work
        finally:
            # Wakes the caller one turn of the event loop earlier than the end of the task, which asyncio.shield awaits.
            if not outcome.done():
                outcome.set_result(None)

    task = asyncio.create_task(run())
    try:
        await outcome
    except asyncio.CancelledError:
        on_abandoned(task)
        raise
    return await task
