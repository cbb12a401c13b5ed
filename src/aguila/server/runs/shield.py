"""Protect work that must not be left half done from the cancellation of the request that started it."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any, TypeVar

T = TypeVar("T")


async def run_shielded(work: Coroutine[Any, Any, T], on_abandoned: Callable[[asyncio.Task[T]], None]) -> T:
    """Run a coroutine to completion even if its caller is cancelled.

    If the caller is cancelled, the work continues in its task, which is passed to ``on_abandoned``.
    """
    task = asyncio.create_task(work)
    try:
        return await asyncio.shield(task)
    except asyncio.CancelledError:
        if not task.cancelled():
            on_abandoned(task)
        raise
