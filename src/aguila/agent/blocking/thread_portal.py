"""Carry the calls of an agent in a thread to its task on the event loop.

Everything that the thread sends goes through one queue, in order, and is handled by the agent's task. So nothing is
sent from two threads at once. Other threads of the agent may call as well.

The queue is bounded: a generator that is faster than the run waits. Closing the portal (the run was cancelled, or a
yielded value was refused) ends the thread at its next call with ``CancelledError``, because a thread cannot be
interrupted from outside.
"""

from __future__ import annotations

import asyncio
import concurrent.futures
import sys
import threading
from collections import defaultdict, deque
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from functools import partial
from typing import Any, ParamSpec, TypeVar, cast

from aguila.agent.interrupts import RunInterrupt
from aguila.agent.questions import Questions, nested_effect_error
from aguila.telemetry import current_context

P = ParamSpec("P")
T = TypeVar("T")

AHEAD = 64
"""How many values a generator in a thread may be ahead of the run."""


@dataclass(slots=True, eq=False)
class Yielded:
    """A value that a generator yielded."""

    value: Any


@dataclass(slots=True, eq=False)
class Called:
    """A call to make on the event loop while a thread waits for it.

    ``thread`` is None for the agent's own thread. ``error`` is the exception that the thread is handling.
    ``trace_context`` is that of the thread.
    """

    call: Callable[[], Awaitable[Any]]
    thread: threading.Thread | None
    error: BaseException | None
    trace_context: Any
    future: concurrent.futures.Future[Any] = field(default_factory=concurrent.futures.Future[Any])


@dataclass(slots=True, eq=False)
class Ended:
    """The agent returned, or raised."""

    value: Any
    error: BaseException | None


Item = Yielded | Called | Ended


class ThreadPortal:
    """The queue from the threads of an agent to its task."""

    def __init__(self, questions: Questions) -> None:
        self._questions = questions
        self._loop = asyncio.get_running_loop()
        self._ready = asyncio.Event()
        self._items: deque[Item] = deque()
        self._changed = threading.Condition()
        self.is_closed = False
        """Whether calls are no longer accepted."""
        self._own = 0
        self._effect_locks: defaultdict[str, threading.Lock] = defaultdict(threading.Lock)
        self._active_effects: set[tuple[int, str]] = set()  # the ids of threads that run an effect, with its key
        self.ended = asyncio.Event()
        """Set when the agent's thread has ended."""

    # In the thread

    def begin(self) -> None:
        """Note that the current thread is the agent's own."""
        self._own = threading.get_ident()

    def put(self, item: Item) -> None:
        """Queue an item for the task. Raises ``CancelledError`` once the portal is closed."""
        with self._changed:
            while len(self._items) >= AHEAD and not self.is_closed:
                self._changed.wait()
            if self.is_closed:
                raise asyncio.CancelledError("the run is over")
            self._items.append(item)
            is_first = len(self._items) == 1
        if is_first:  # otherwise the task is awake
            self._loop.call_soon_threadsafe(self._ready.set)

    def call(self, call: Callable[[], Awaitable[T]]) -> T:
        """Let the task make a call and wait for it. Raises what the call raises."""
        thread = None if threading.get_ident() == self._own else threading.current_thread()
        called = Called(call, thread, sys.exception(), current_context())
        self.put(called)
        return cast("T", called.future.result())

    def call_function(self, function: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
        """Let the task call a plain function and wait for it."""

        async def call() -> T:
            return function(*args, **kwargs)

        return self.call(call)

    def new_key(self, kind: str) -> str:
        """Make a key for ``once`` that is unique in the run and that a replay makes again."""
        return self.call_function(self._questions.new_key, kind)

    def once(self, key: str, effect: Callable[[], Any], *, is_idempotent: bool = False) -> Any:
        """Call an effect once, as ``Questions.once`` does. The effect is called in this thread."""
        active = (threading.get_ident(), key)
        if active in self._active_effects:
            raise nested_effect_error(key)
        with self._effect_locks[key]:
            begin = partial(self._questions.begin_effect, key, is_idempotent=is_idempotent)
            is_known, value, end = self.call(begin)
            if is_known:
                return value
            self._active_effects.add(active)
            try:
                value = effect()
            except (Exception, RunInterrupt):
                if end is not None:
                    self.call(partial(self._questions.end_effect, end))
                raise
            finally:
                self._active_effects.discard(active)
            return self.call(partial(self._questions.record_effect, key, value))

    def end(self, value: Any, error: BaseException | None) -> None:
        """Queue the end of the agent's thread."""
        with self._changed:
            self._items.append(Ended(value, error))
        try:
            self._loop.call_soon_threadsafe(self._note_end)
        except RuntimeError:
            return  # the loop was closed while the abandoned thread ran

    def _note_end(self) -> None:
        self._ready.set()
        self.ended.set()

    # In the task

    async def get(self) -> Item:
        """Wait for the next item."""
        while True:
            with self._changed:
                if self._items:
                    self._changed.notify()
                    return self._items.popleft()
                self._ready.clear()
            await self._ready.wait()

    def close(self) -> None:
        """Accept no more calls: the threads end at their next one."""
        with self._changed:
            self.is_closed = True
            left = [item for item in self._items if isinstance(item, Called)]
            self._items = deque(item for item in self._items if isinstance(item, Ended))
            self._changed.notify_all()
        for item in left:
            item.future.set_exception(asyncio.CancelledError("the run is over"))
