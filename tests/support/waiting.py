"""Wait for conditions. A test reaches the deadline only if something hangs, also on a loaded machine."""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Callable
from typing import Any

DEADLINE = 120.0


def wait_until(condition: Callable[[], Any], seconds: float = DEADLINE) -> Any:
    """Return the first true result of ``condition``; fail after the deadline."""
    deadline = time.monotonic() + seconds
    pause = threading.Event()
    while not (result := condition()):
        assert time.monotonic() < deadline, "the condition did not come true in time"
        pause.wait(0.002)
    return result


async def wait_until_async(condition: Callable[[], Any], seconds: float = DEADLINE) -> Any:
    """Wait as ``wait_until`` does, and let the event loop run in between."""
    deadline = time.monotonic() + seconds
    rounds = 0
    while not (result := condition()):
        assert time.monotonic() < deadline, "the condition did not come true in time"
        rounds += 1
        await asyncio.sleep(0 if rounds < 100 else 0.002)  # threads and other processes take longer
    return result


async def let_tasks_run(rounds: int = 20) -> None:
    """Let all tasks run that can, before a test looks at what must not have happened."""
    for _ in range(rounds):
        await asyncio.sleep(0)
