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
import sys
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from itertools import islice
from typing import Any, ParamSpec, TypeVar, cast

import msgspec

from aguila.codec.json.large_strings import LARGE

__all__ = ["LARGE", "is_large", "offload"]

P = ParamSpec("P")
T = TypeVar("T")

_MAX_VISITED = 256
"""How many members of a JSON value ``is_large`` looks at."""

_MANY = 1_000
"""How many messages are worked on without offloading: some milliseconds."""

_SWITCH_INTERVAL = 0.0005
"""Seconds after which other threads get the interpreter while the worker is busy: about one slice."""

_ROUNDING = 5e-7
"""The interpreter keeps the interval in whole microseconds and cuts it off: 5000 may come back as 4999."""

_FIELDS = frozenset({"arguments", "content", "contents", "data", "result", "source", "text", "uri", "value"})
"""Fields of messages, parts and contents that may hold something large."""

_worker = ThreadPoolExecutor(1, thread_name_prefix="aguila-offload")
_fields_of: dict[type[Any], tuple[str, ...]] = {}


async def offload(function: Callable[P, T], /, *args: P.args, **kwargs: P.kwargs) -> T:
    """Call a function in the worker thread. Return what it returns, and raise what it raises."""
    call = partial(contextvars.copy_context().run, partial(function, *args, **kwargs))
    return await asyncio.get_running_loop().run_in_executor(_worker, _with_short_switches, call)


def _with_short_switches(call: Callable[[], T]) -> T:
    usual = sys.getswitchinterval()
    sys.setswitchinterval(min(usual, _SWITCH_INTERVAL))
    try:
        return call()
    finally:
        sys.setswitchinterval(usual + _ROUNDING)


def is_large(value: Any) -> bool:
    """Whether work on a value should be offloaded: it is, or holds, a text or bytes of more than ``LARGE``.

    So is a list of very many messages.

    Looks into messages, parts, chat contents and lists of them, and into a bounded number of members of a JSON value:
    one that is large because of very many small members is not found.
    """
    if isinstance(value, (str, bytes, bytearray)):
        return len(value) > LARGE
    if isinstance(value, msgspec.Struct):
        return _is_large_struct(value)
    if not isinstance(value, _CONTAINER):
        return False
    if isinstance(value, _ARRAY) and any(isinstance(one, msgspec.Struct) for one in islice(value, _MAX_VISITED)):
        return len(value) > _MANY or any(map(is_large, cast("Sequence[Any]", value)))
    found: list[Any] = [value]
    for one in islice(found, _MAX_VISITED):  # the loop also visits what is added
        if isinstance(one, str):
            if len(one) > LARGE:
                return True
        elif isinstance(one, _CONTAINER):
            members: Any = one.values() if isinstance(one, _OBJECT) else one
            found += islice(members, _MAX_VISITED)
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
