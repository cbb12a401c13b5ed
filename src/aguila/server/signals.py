"""Drain the apps of a process when it receives SIGTERM or SIGINT, then pass the signal to the previous handler.

An HTTP server notifies an application of the shutdown only after its last response, and a mounted application without a
lifespan not at all. But a stream ends with its run, and a run may have no response at all. So the app handles the
signals itself, in front of the handler of the server:

============  =========================================================================================================
SIGTERM       all apps drain at the same time, then the previous handler gets the signal
SIGINT        all apps drain, and the previous handler gets the signal at once, because a user is waiting
a second one  all apps cancel their runs and end their streams; the previous handler gets the signal at once
============  =========================================================================================================

uvicorn waits for open connections without limit, unless it is configured otherwise. A stream whose client does not read
would keep the process alive. So if such a stream is left after the drain, or after a second SIGTERM, uvicorn's limit is
lowered.

Of several workers that share a socket, one that drains stops accepting first: the others take the new connections. It
answers what came on the connections that it had accepted, and begins the drain ``_LAST_REQUESTS`` seconds later.

Handlers are installed in the main thread only, and not for a signal that the process ignores. Python's own handler of
SIGINT is kept.
"""

from __future__ import annotations

import asyncio
import logging
import signal
import threading
from types import FrameType
from typing import Any, Protocol

_log = logging.getLogger("aguila.server")

_STUCK_TIMEOUT = 1
"""Seconds that a server may wait for its connections if a stream is stuck after the drain."""

_SECOND_SIGNAL_TIMEOUT = 5
"""Seconds that it may wait after a second SIGTERM, including the end of our own streams."""


_LAST_REQUESTS = 2
"""Seconds between the last accepted connection and the drain: the request may arrive later than its connection."""


class Drainable(Protocol):
    """An application that has to finish work before the process ends."""

    def begin_drain(self) -> asyncio.Task[None] | None:
        """Begin the drain, unless it has begun. Returns a task that is done when it is complete, or None."""
        ...

    def stop_now(self) -> None:
        """Shorten a drain in progress."""
        ...

    @property
    def is_stuck(self) -> bool:
        """Whether a connection is still open after the drain."""
        ...

    @property
    def has_siblings(self) -> bool:
        """Whether other processes accept connections from the same socket."""
        ...


class _ChainedHandler:
    """The handler of one signal for all apps of the process, in front of the previous handler."""

    def __init__(self, number: signal.Signals, previous: Any) -> None:
        self._number = number
        self._previous = previous
        self._apps: dict[Drainable, asyncio.AbstractEventLoop] = {}
        self._is_received = False
        self._is_passed_on = False

    def __call__(self, number: int, frame: FrameType | None) -> None:
        loops = {loop for loop in self._apps.values() if not loop.is_closed()}
        is_first = not self._is_received and bool(loops)
        if is_first:
            self._is_received, self._is_passed_on = True, False
        # A signal handler runs between any two instructions of the main thread, so the work is left to the event loop.
        for loop in loops:
            loop.call_soon_threadsafe(self._begin_drain if is_first else self._stop_now, loop)
        if not is_first and self._number == signal.SIGTERM:
            self._limit_server_wait(_SECOND_SIGNAL_TIMEOUT)
        if not is_first or self._number == signal.SIGINT:
            self._pass_on(frame)

    def add(self, app: Drainable) -> None:
        self._apps = {one: loop for one, loop in self._apps.items() if not loop.is_closed()}
        self._apps[app] = asyncio.get_running_loop()

    def remove(self, app: Drainable) -> None:
        self._apps.pop(app, None)
        if self._apps:
            return
        self._is_received = False
        if _is_main_thread() and signal.getsignal(self._number) is self:
            signal.signal(self._number, self._previous)

    def _begin_drain(self, loop: asyncio.AbstractEventLoop) -> None:
        apps = [app for app, its_loop in self._apps.items() if its_loop is loop]
        if any(app.has_siblings for app in apps):
            self._stop_accepting()
            loop.call_later(_LAST_REQUESTS, self._drain, apps)
        else:
            self._drain(apps)

    def _drain(self, apps: list[Drainable]) -> None:
        if any(app.has_siblings for app in apps):
            self._close_idle_connections()
        tasks = [app.begin_drain() for app in apps]
        draining = asyncio.gather(*(task for task in tasks if task is not None), return_exceptions=True)
        # A callback, not a task: an exception of the previous handler, such as SystemExit, has to leave the event loop.
        draining.add_done_callback(self._on_drained)

    def _stop_now(self, loop: asyncio.AbstractEventLoop) -> None:
        for app, its_loop in self._apps.items():
            if its_loop is loop:
                app.begin_drain()  # it may be waiting for the last requests
                app.stop_now()

    def _on_drained(self, draining: asyncio.Future[list[Any]]) -> None:
        for failure in draining.result():
            if isinstance(failure, BaseException):
                _log.error("the drain failed", exc_info=failure)
        if not self._is_passed_on:
            if any(app.is_stuck for app in self._apps):
                self._limit_server_wait(_STUCK_TIMEOUT)
            self._pass_on(None)

    def _stop_accepting(self) -> None:
        """Leave new connections to the other workers, if the previous handler is uvicorn's."""
        for one in getattr(getattr(self._previous, "__self__", None), "servers", ()):
            one.close()

    def _close_idle_connections(self) -> None:
        server = getattr(self._previous, "__self__", None)
        for connection in list(getattr(getattr(server, "server_state", None), "connections", ())):
            connection.shutdown()  # one with a response in progress stays until its end

    def _limit_server_wait(self, seconds: int) -> None:
        """Lower uvicorn's limit for open connections, if the previous handler is uvicorn's."""
        config = getattr(getattr(self._previous, "__self__", None), "config", None)
        configured = getattr(config, "timeout_graceful_shutdown", 0)
        if configured is None or configured > seconds:
            setattr(config, "timeout_graceful_shutdown", seconds)  # noqa: B010 - the type is not known here

    def _pass_on(self, frame: FrameType | None) -> None:
        self._is_passed_on = True
        if callable(self._previous):
            self._previous(self._number, frame)
        else:
            signal.signal(self._number, signal.SIG_DFL)
            signal.raise_signal(self._number)


class SignalListener:
    """Drains an app on SIGTERM and SIGINT, from ``install`` to ``uninstall``."""

    def __init__(self, app: Drainable) -> None:
        self._app = app
        self._handlers: list[_ChainedHandler] = []

    def install(self) -> None:
        """Install the handlers in front of the current ones. Call it again if others were installed since."""
        if not _is_main_thread():
            return
        self.uninstall()
        for number in (signal.SIGTERM, signal.SIGINT):
            handler = _get_or_install(number)
            if handler is not None:
                handler.add(self._app)
                self._handlers.append(handler)

    def uninstall(self) -> None:
        """Stop handling signals for this app. After the last app the previous handlers are restored."""
        handlers, self._handlers = self._handlers, []
        for handler in handlers:
            handler.remove(self._app)


def _get_or_install(number: signal.Signals) -> _ChainedHandler | None:
    """Return our handler of a signal, installed if necessary; None if the signal is left alone."""
    current = signal.getsignal(number)
    if isinstance(current, _ChainedHandler):
        return current
    is_default = current in (signal.SIG_DFL, signal.default_int_handler)
    if (is_default and number == signal.SIGINT) or not (is_default or callable(current)):
        return None
    handler = _ChainedHandler(number, current)
    signal.signal(number, handler)
    return handler


def _is_main_thread() -> bool:
    return threading.current_thread() is threading.main_thread()
