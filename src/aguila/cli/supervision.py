"""What ``aguila serve`` adds to uvicorn's processes: a log line for each lost worker and for a blocked event loop.

A worker also ends when its supervisor is gone: otherwise it would keep the port.
"""

from __future__ import annotations

import asyncio
import faulthandler
import logging
import multiprocessing
import os
import signal
import threading
import time
from collections.abc import Awaitable, Callable, MutableMapping
from contextlib import suppress
from typing import Any

from uvicorn.supervisors import Multiprocess

_log = logging.getLogger("aguila.server")

BLOCKED_SECONDS = 5.0
"""How long the event loop may do nothing else before its stack is printed."""

ASGIApp = Callable[[MutableMapping[str, Any], Any, Any], Awaitable[None]]


class Supervisor(Multiprocess):
    """uvicorn's supervisor of ``--workers``. It logs which workers it replaces, and closes its socket first."""

    def keep_subprocess_alive(self) -> None:
        """Replace the workers that have died."""
        before = list(self.processes)
        super().keep_subprocess_alive()
        for old, new in zip(before, self.processes, strict=True):
            if new is not old:
                _log.error("worker %s %s; worker %s replaces it", old.pid, _describe_end(old.exitcode), new.pid)

    def terminate_all(self) -> None:
        """Stop all workers. Each closes the socket when it drains; with the last, new connections are refused."""
        for listener in self.sockets:
            listener.close()
        super().terminate_all()


def _describe_end(exit_code: int | None) -> str:
    if exit_code is not None and exit_code < 0:
        with suppress(ValueError):
            return f"was killed by {signal.Signals(-exit_code).name}"
    return f"ended with status {exit_code}"


def end_with_supervisor() -> None:
    """Send SIGTERM to this worker when the process that started it is gone."""
    supervisor = multiprocessing.parent_process()
    if supervisor is None:
        return

    def wait() -> None:
        supervisor.join()
        _log.error("the supervisor of this worker is gone; the worker stops")
        os.kill(os.getpid(), signal.SIGTERM)

    threading.Thread(target=wait, name="aguila-supervisor", daemon=True).start()


class LoopWatch:
    """An ASGI app that watches its event loop for as long as the app lives.

    If the loop is blocked for ``BLOCKED_SECONDS``, the stacks of all threads go to standard error. When the loop
    continues, the time is logged.
    """

    def __init__(self, app: ASGIApp) -> None:
        self.app = app

    async def __call__(self, scope: MutableMapping[str, Any], receive: Any, send: Any) -> None:
        """Handle an ASGI connection."""
        if scope["type"] != "lifespan":
            await self.app(scope, receive, send)
            return
        watching = asyncio.create_task(_watch(), name="aguila-loop-watch")
        try:
            await self.app(scope, receive, send)
        finally:
            watching.cancel()
            faulthandler.cancel_dump_traceback_later()


async def _watch() -> None:
    interval = BLOCKED_SECONDS / 5
    while True:
        faulthandler.dump_traceback_later(BLOCKED_SECONDS)
        began = time.monotonic()
        await asyncio.sleep(interval)
        blocked = time.monotonic() - began - interval
        if blocked >= BLOCKED_SECONDS - interval:
            what = (
                "the event loop was blocked for %.1f seconds; the stacks above show where. Use async code or a thread"
            )
            _log.error(what, blocked)
