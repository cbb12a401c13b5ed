"""Work on large values in a thread, so that the event loop is not blocked.

C speed on the loop, Python speed in the worker: one call of msgspec takes milliseconds for megabytes, and as a thread
lets others run only between two calls, the worker would gain nothing. Python code that visits each member of a value
takes far longer. One thread does all of it for the whole process: several would each get a turn before the event loop,
and their memory would add up. Meanwhile the switch interval of the interpreter is shorter: some event loops wait for
the interpreter once per callback, so that the usual 5 ms became 50 ms for ten connections.
"""

from __future__ import annotations

import asyncio
import contextvars
import gc
import sys
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import Any, ParamSpec, TypeVar

import msgspec

P = ParamSpec("P")
T = TypeVar("T")

LARGE = 1 << 16
"""Bytes from which on Python code works on a value in the worker. Outside the stores there is no other threshold.

For most values of this size that takes microseconds, but the sender decides: a number takes up to one, and so does
each member of an older shape that is translated.
"""

_SWITCH_INTERVAL = 0.0005
"""Seconds after which other threads get the interpreter while the worker is busy: about one slice."""

_ROUNDING = 5e-7
"""The interpreter keeps the interval in whole microseconds and cuts it off: 5000 may come back as 4999."""

_MEMBER = 8
"""Bytes that each member of a value counts for, at least."""

_worker = ThreadPoolExecutor(1, thread_name_prefix="aguila-offload")


async def offload(function: Callable[P, T], /, *args: P.args, **kwargs: P.kwargs) -> T:
    """Call a function in the worker thread. Return its result, or raise its exception."""
    call = partial(contextvars.copy_context().run, partial(function, *args, **kwargs))
    return await asyncio.get_running_loop().run_in_executor(_worker, _call_considerately, call)


def _call_considerately(call: Callable[[], T]) -> T:
    """Call a function with short switches, and without the collector of cycles.

    JSON has no cycles, but hundreds of thousands of new arrays would let the collector visit all objects of the process
    several times: more than half of the CPU time.
    """
    usual, collects = sys.getswitchinterval(), gc.isenabled()
    sys.setswitchinterval(min(usual, _SWITCH_INTERVAL))
    gc.disable()
    try:
        return call()
    finally:
        if collects:
            gc.enable()
        sys.setswitchinterval(usual + _ROUNDING)


def is_large(value: Any) -> bool:
    """Return whether a value has more than ``LARGE`` bytes, so that Python code works on it in the worker.

    Looks into protocol objects, chat types and JSON, without a copy, and no further than needed to know.
    """
    size = 0
    found: list[Any] = [value]
    for one in found:  # also visits what is added
        if isinstance(one, str | bytes | bytearray):
            size += len(one)
        elif isinstance(one, int):
            size += one.bit_length() >> 3
        elif isinstance(one, dict):
            found += one
            found += one.values()  # pyright: ignore[reportUnknownArgumentType]
        elif isinstance(one, list | tuple):
            found += one
        elif isinstance(one, msgspec.Struct):
            found += [getattr(one, name) for name in one.__struct_fields__]
        if size + _MEMBER * len(found) > LARGE:
            return True
    return False
