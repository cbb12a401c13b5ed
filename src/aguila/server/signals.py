"""Layer: server. Signals that tell the process to stop: its apps drain, and whoever had the signal before gets it.

Below: nothing. Above: ``app``. A server tells an application that it stops only after its last response has ended, and
tells one that is mounted without a lifespan nothing at all; a stream ends when its run does, and a run that nobody
watches is no response. So the signals themselves are heard, in front of the handler that was there:

=======  ==============================================================================================================
SIGTERM  all apps begin to drain, together. When that is over, the handler before gets it
SIGINT   all apps begin to drain, and the handler before gets it at once: somebody sits there and waits
either,  all apps cancel their runs and end their streams, which the server would wait for, and the handler before gets
again    it at once
=======  ==============================================================================================================

A server may wait for its connections without bound, as uvicorn does unless it is told: then a stream that nobody reads,
which ends only with its connection, would keep the process. So the server is told to wait for a moment only, if there
is such a stream when all is drained; and for a few seconds at most after a second SIGTERM.

Only the main thread can do this, and only for what runs in it; elsewhere nothing is installed, nor for a process that
ignores the signal. A SIGINT without a handler but Python's own stays as it is.
"""

from __future__ import annotations

import asyncio
import logging
import signal
import threading
from types import FrameType
from typing import Any, Protocol

_log = logging.getLogger("aguila.server")

_STUCK = 1
"""Seconds that a server may wait for its connections when streams have had their time, and one is stuck."""

_HURRIED = 5
"""Seconds that it may wait for them when it was told twice: this includes what our own streams need to end."""


class Drains(Protocol):
    """What has something to end before the process does."""

    def begin_drain(self) -> asyncio.Task[None] | None:
        """Begin, if it has not begun; done when nothing is left. None if there is nothing."""
        ...

    def stop_now(self) -> None:
        """Wait no longer, if it has begun."""
        ...

    @property
    def is_stuck(self) -> bool:
        """Whether it is over, and left a connection that does not end by itself."""
        ...


class _Before:
    """The handler of a signal, in front of the one that was there before. One for all apps of the process."""

    def __init__(self, number: signal.Signals, before: Any) -> None:
        self._number = number
        self._before = before
        self._apps: dict[Drains, asyncio.AbstractEventLoop] = {}
        self._is_told = False
        self._is_passed_on = False

    def __call__(self, number: int, frame: FrameType | None) -> None:
        loops = {loop for loop in self._apps.values() if not loop.is_closed()}
        is_first = not self._is_told and bool(loops)
        if is_first:
            self._is_told, self._is_passed_on = True, False
        for loop in loops:  # this is between any two instructions of the main thread: nothing else may happen here
            loop.call_soon_threadsafe(self._drain if is_first else self._hurry, loop)
        if not is_first and self._number == signal.SIGTERM:
            self._bound(_HURRIED)
        if not is_first or self._number == signal.SIGINT:
            self._pass_on(frame)

    def add(self, app: Drains) -> None:
        self._apps = {one: loop for one, loop in self._apps.items() if not loop.is_closed()}
        self._apps[app] = asyncio.get_running_loop()

    def remove(self, app: Drains) -> None:
        self._apps.pop(app, None)
        if self._apps:
            return
        self._is_told = False
        if _is_main_thread() and signal.getsignal(self._number) is self:
            signal.signal(self._number, self._before)

    def _drain(self, loop: asyncio.AbstractEventLoop) -> None:
        tasks = [app.begin_drain() for app, its_loop in self._apps.items() if its_loop is loop]
        draining = asyncio.gather(*(task for task in tasks if task is not None), return_exceptions=True)
        # A callback and not a task: what a handler raises, such as SystemExit, has to leave the event loop.
        draining.add_done_callback(self._drained)

    def _hurry(self, loop: asyncio.AbstractEventLoop) -> None:
        for app, its_loop in self._apps.items():
            if its_loop is loop:
                app.stop_now()

    def _drained(self, draining: asyncio.Future[list[Any]]) -> None:
        for failure in draining.result():
            if isinstance(failure, BaseException):
                _log.error("the runs could not be drained", exc_info=failure)
        if not self._is_passed_on:
            if any(app.is_stuck for app in self._apps):
                self._bound(_STUCK)
            self._pass_on(None)

    def _bound(self, seconds: int) -> None:
        """Have the server whose handler was there before wait no longer than this; only uvicorn is known to need it."""
        config = getattr(getattr(self._before, "__self__", None), "config", None)
        told = getattr(config, "timeout_graceful_shutdown", 0)
        if told is None or told > seconds:
            setattr(config, "timeout_graceful_shutdown", seconds)  # noqa: B010 - of a type that is not known here

    def _pass_on(self, frame: FrameType | None) -> None:
        self._is_passed_on = True
        if callable(self._before):
            self._before(self._number, frame)
        else:
            signal.signal(self._number, signal.SIG_DFL)
            signal.raise_signal(self._number)


class Signals:
    """What an app hears of the signals of its process, from ``hear`` to ``leave``."""

    def __init__(self, app: Drains) -> None:
        self._app = app
        self._handlers: list[_Before] = []

    def hear(self) -> None:
        """Hear the signals, in front of whoever hears them now; called again, in front of whoever came since."""
        if not _is_main_thread():
            return
        self.leave()
        for number in (signal.SIGTERM, signal.SIGINT):
            handler = _handler_of(number)
            if handler is not None:
                handler.add(self._app)
                self._handlers.append(handler)

    def leave(self) -> None:
        """Hear nothing more. The handler that was there before is back when no app is left."""
        handlers, self._handlers = self._handlers, []
        for handler in handlers:
            handler.remove(self._app)


def _handler_of(number: signal.Signals) -> _Before | None:
    """Ours, installed now if need be; None if the signal is not to be heard."""
    current = signal.getsignal(number)
    if isinstance(current, _Before):
        return current
    is_default = current in (signal.SIG_DFL, signal.default_int_handler)
    if (is_default and number == signal.SIGINT) or not (is_default or callable(current)):
        return None
    handler = _Before(number, current)
    signal.signal(number, handler)
    return handler


def _is_main_thread() -> bool:
    return threading.current_thread() is threading.main_thread()
