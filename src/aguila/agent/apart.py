"""Layer: agent. Work on large values, away from the event loop, one at a time.

Above: the server and the providers use it too. Below: ``aguila.codec.large``. To read, check, encode or decode some
megabytes takes milliseconds in which no other Python code runs, in whichever thread it is done: a thread only lets
others in between two calls. So what is called here works in slices where it can, and it is done by one thread for the
whole process. Of several, each would go before the event loop when it is that one's turn, and their memory would add
up. Meanwhile a thread that waits for the interpreter asks for it sooner than it usually does: some event loops have to
get it back for each of their callbacks, so that for ten connections the usual 5 ms were 50.
"""

from __future__ import annotations

import asyncio
import contextvars
import sys
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from itertools import islice
from typing import Any, ParamSpec, TypeVar, cast

from aguila.codec.large import LARGE

__all__ = ["LARGE", "apart", "has_large_content", "is_large"]

P = ParamSpec("P")
T = TypeVar("T")

_LOOKED_AT = 32

_CONSIDERATE = 0.0005
"""Seconds after which others get the interpreter while something large is worked on: about one slice of it."""

_ROUNDING = 5e-7
"""It is kept in whole microseconds, and cut off: 5000 of them may come back as 4999."""

_worker = ThreadPoolExecutor(1, thread_name_prefix="aguila-large")


async def apart(function: Callable[P, T], /, *args: P.args, **kwargs: P.kwargs) -> T:
    """Call something in the thread for large values; gives what it returns, raises what it raises."""
    call = partial(contextvars.copy_context().run, partial(function, *args, **kwargs))
    return await asyncio.get_running_loop().run_in_executor(_worker, _considerately, call)


def _considerately(call: Callable[[], T]) -> T:
    usual = sys.getswitchinterval()
    sys.setswitchinterval(min(usual, _CONSIDERATE))
    try:
        return call()
    finally:
        sys.setswitchinterval(usual + _ROUNDING)


def is_large(value: Any) -> bool:
    """Whether text, bytes, or a JSON value with such a text in it, should be worked on apart.

    Looks at a bounded number of members: what is large because it has very many small ones is not found.
    """
    if isinstance(value, (str, bytes)):
        return len(value) > LARGE
    if not isinstance(value, _CONTAINER):
        return False
    found: list[Any] = [value]
    for one in islice(found, _LOOKED_AT):  # which goes on to what is added
        if isinstance(one, str):
            if len(one) > LARGE:
                return True
        elif isinstance(one, _CONTAINER):
            members: Any = one.values() if isinstance(one, _OBJECT) else one
            found += islice(members, _LOOKED_AT)
    return False


def has_large_content(message: Any) -> bool:
    """Whether a message, or a result, holds a text or a file that should be worked on apart."""
    content = getattr(message, "content", None)
    if not isinstance(content, list):
        return isinstance(content, str) and len(content) > LARGE
    for part in cast("list[Any]", content):
        source = getattr(part, "source", None)
        if len(getattr(part, "text", "") if source is None else source.value) > LARGE:
            return True
    return False


_OBJECT: Any = dict
_CONTAINER: Any = (dict, list)
