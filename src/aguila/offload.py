"""Work on large values in a thread, so that the event loop is not blocked.

Reading, checking or encoding some megabytes takes milliseconds in which no other Python code runs, in whichever thread
it is done: a thread lets others run only between two calls. So offloaded functions work in slices where they can
(``codec.json.large_strings``), and one thread does all of it for the whole process. Several threads would each get a
turn before the event loop, and their memory would add up. Meanwhile the switch interval of the interpreter is shorter:
some event loops wait for the interpreter once per callback, so that the usual 5 ms became 50 ms for ten connections.
"""

from __future__ import annotations

import asyncio
import contextvars
import gc
import sys
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from itertools import islice
from typing import Any, ParamSpec, TypeVar, cast

import msgspec

from aguila.codec.json.large_strings import LARGE

__all__ = ["LARGE", "LARGE_JSON", "is_large", "is_large_patch", "offload"]

P = ParamSpec("P")
T = TypeVar("T")

LARGE_JSON = 1 << 16
"""Bytes of JSON from which on decoding is offloaded. Nearly always it takes microseconds, but the sender decides: a
number takes up to one, and so does each member of an older shape that is translated."""

_MAX_MEMBERS = 4_000
"""How many members of a JSON value are worked on without offloading: some milliseconds."""

_MAX_BITS = 1_000
"""Bits of a number that is written and read without offloading: the time grows with their square."""

_MANY = 1_000
"""How many messages are worked on without offloading: some milliseconds."""

_FEW = 16
"""How many operations of a patch are worked on without offloading, unless one has a large value."""

_SWITCH_INTERVAL = 0.0005
"""Seconds after which other threads get the interpreter while the worker is busy: about one slice."""

_ROUNDING = 5e-7
"""The interpreter keeps the interval in whole microseconds and cuts it off: 5000 may come back as 4999."""

_FIELDS = frozenset(
    {
        "arguments", "content", "contents", "data", "delta", "messages", "patch", "result", "snapshot", "source",
        "state", "text", "uri", "value",
    }
)  # fmt: skip
"""Fields of messages, parts, contents, inputs and events that may hold something large."""

_worker = ThreadPoolExecutor(1, thread_name_prefix="aguila-offload")
_fields_of: dict[type[Any], tuple[str, ...]] = {}


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
    """Return whether work on a value should be offloaded: it is, or holds, a text or bytes of more than ``LARGE``.

    So should work on a list of very many messages, and on a JSON value of very many members. Looks into messages,
    parts, chat contents and lists of them, and into inputs and events that change the state, messages or activities.
    """
    if value.__class__ in _fields_of:  # a message, mostly; the checks below are slow if the answer is no
        return _is_large_struct(value)
    if isinstance(value, (str, bytes, bytearray)):
        return len(value) > LARGE
    if isinstance(value, msgspec.Struct):
        return _is_large_struct(value)
    if not isinstance(value, _CONTAINER):
        return False
    if isinstance(value, _ARRAY):
        for one in islice(value, 256):
            if isinstance(one, msgspec.Struct):
                return len(value) > _MANY or any(map(is_large, cast("Sequence[Any]", value)))
    found: list[Any] = [value]
    for one in found:  # the loop also visits added values
        cls = one.__class__
        if cls is str:
            if len(one) > LARGE:
                return True
        elif cls is dict or cls is list or isinstance(one, _CONTAINER):
            if not one:
                continue
            if len(found) + len(one) > _MAX_MEMBERS:
                return True
            found += one.values() if isinstance(one, _OBJECT) else one
        elif isinstance(one, int):
            if one.bit_length() > _MAX_BITS:
                return True
        elif isinstance(one, str) and len(one) > LARGE:
            return True
    return False


def is_large_patch(patch: Any) -> bool:
    """Return whether work on a JSON Patch should be offloaded.

    For most patches it takes a tenth of the time of ``is_large``.
    """
    if not isinstance(patch, _ARRAY) or len(patch) > _FEW:
        return is_large(patch)
    for operation in patch:
        if not isinstance(operation, _OBJECT):
            return is_large(patch)
        value = operation.get("value")
        if (value.__class__ is str or isinstance(value, _CONTAINER)) and is_large(value):
            return True
    return False


def _is_large_struct(value: msgspec.Struct) -> bool:
    cls = type(value)
    names = _fields_of.get(cls)
    if names is None:
        names = _fields_of[cls] = tuple(name for name in cls.__struct_fields__ if name in _FIELDS)
    for name in names:
        member = getattr(value, name)
        # Short texts are most members of a long history, so they are checked without a call.
        if len(member) > LARGE if member.__class__ is str else member is not None and is_large(member):
            return True
    return False


_OBJECT: Any = dict
_ARRAY: Any = (list, tuple)
_CONTAINER: Any = (dict, list, tuple)
