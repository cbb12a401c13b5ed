"""Bounds on CPU time that hold on a slow or busy machine.

A bound is given for an idle machine of 2024. ``allowed`` multiplies it by a slack, and by how much longer a fixed
piece of work takes here and now. This still finds work that grows with the square of its input, or that blocks the
event loop. ``make faults`` applies the bound without the slack.
"""

from __future__ import annotations

import gc
import json
import os
import time
from collections.abc import Callable, Generator
from contextlib import contextmanager
from typing import Any

SLACK = 4
_IDLE_SECONDS = 0.0025
"""CPU time of the fixed work on the machine that the bounds were measured on."""

_WORK: Any = {"messages": [{"id": str(i), "content": f"text {i}", "parts": [i, None, i]} for i in range(1600)]}


def _fixed_work() -> float:
    started = time.thread_time()
    for message in json.loads(json.dumps(_WORK))["messages"]:
        for name, value in message.items():
            assert name != value
    return time.thread_time() - started


def allowed(seconds: float) -> float:
    """Return the CPU time that a bound of ``seconds`` allows on this machine at this moment."""
    slack = 1 if os.environ.get("AGUILA_FAULTS") == "long" else SLACK
    return seconds * slack * max(1.0, min(_fixed_work() for _ in range(5)) / _IDLE_SECONDS)


@contextmanager
def frozen_heap() -> Generator[None]:
    """Keep the collector from visiting the objects of other tests: its time grows with them."""
    gc.collect()
    gc.freeze()
    try:
        yield
    finally:
        gc.unfreeze()


def check_cpu_time(work: Callable[[], Any], seconds: float) -> None:
    """Call a function. Fail if it takes more CPU time than the bound allows, three times in a row."""
    taken: list[float] = []
    with frozen_heap():
        for _ in range(3):
            started = time.thread_time()
            work()
            taken.append(time.thread_time() - started)
            if taken[-1] <= allowed(seconds):
                return
    raise AssertionError(f"took {min(taken):.3f} s of CPU time, the bound is {seconds} s on an idle machine")
