"""Layer: server. To await something that must not be left half done, whatever becomes of whoever waits for it.

Above: ``runs``, which begins a run for a request that may be cancelled meanwhile.
"""

from __future__ import annotations

import asyncio
import types
from collections.abc import Callable, Coroutine, Generator
from typing import Any, TypeVar

T = TypeVar("T")


async def unharmed(work: Coroutine[Any, Any, T], left: Callable[[asyncio.Task[T]], None]) -> T:
    """What ``work`` returns. If whoever awaits this is cancelled, it goes on in a task, which is given to ``left``.

    It is no task until it waits for something: most of what runs here does not, and somebody waits for it.
    """
    try:
        waits_for = work.send(None)
    except StopIteration as done:
        return done.value
    task = asyncio.create_task(_rest(work, waits_for))
    try:
        return await asyncio.shield(task)
    except asyncio.CancelledError:
        if not task.cancelled():
            left(task)
        raise


async def _rest(work: Coroutine[Any, Any, T], waits_for: Any) -> T:
    return await _going_on(work, waits_for)


@types.coroutine
def _going_on(work: Coroutine[Any, Any, T], waits_for: Any) -> Generator[Any, Any, T]:
    try:
        while True:
            try:
                sent = yield waits_for
            except BaseException as error:  # noqa: BLE001 - whatever it is, it is meant for what waits
                waits_for = work.throw(error)
            else:
                waits_for = work.send(sent)
    except StopIteration as done:
        return done.value
