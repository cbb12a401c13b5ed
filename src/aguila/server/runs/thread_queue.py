"""Layer: server. Whose turn it is on a thread, where requests wait for theirs (``busy="queue"``), and who gave it up.

Below: ``request``. Above: ``runs``. Only what waits in this process is known here.

A request that waits is no run yet: nothing of it is stored. It can be withdrawn by the id of its run. Then it is
answered at once, and what was to start it does so no more: that finds out when its turn comes, since to stop it between
two steps could leave a run that has begun and that nobody drives.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable

from msgspec.structs import replace

from aguila.errors import StoreError
from aguila.server.errors import Disconnected, Rejected
from aguila.server.runs.start_request import StartRequest, StartResult
from aguila.server.runs.viewers import Key

_log = logging.getLogger("aguila.server")

Start = Callable[[StartRequest], Awaitable[StartResult]]


class _ThreadQueue:
    """Whose it is on one thread, and how many have it or wait for it."""

    def __init__(self) -> None:
        self.lock = asyncio.Lock()
        self.users = 0


class ThreadQueues:
    """The requests that wait, each for the one before it on its thread."""

    def __init__(self) -> None:
        self._queues: dict[tuple[str, str], _ThreadQueue] = {}
        self._waiting: dict[Key, set[asyncio.Future[None]]] = {}
        self._withdrawn: set[asyncio.Task[StartResult]] = set()

    async def start_in_turn(
        self, request: StartRequest, starting: Callable[[Awaitable[StartResult]], Awaitable[StartResult]], start: Start
    ) -> StartResult:
        """Start a run when its turn has come, ``starting`` being around all of that; or say that it was withdrawn."""
        key = (request.scope, request.input.thread_id, request.input.run_id)
        withdrawn: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        waiting = self._waiting.setdefault(key, set())
        waiting.add(withdrawn)
        is_disconnected = request.is_disconnected
        request = replace(request, is_disconnected=lambda: withdrawn.done() or is_disconnected())
        task = asyncio.ensure_future(starting(self._in_turn(request, start)))
        try:
            await asyncio.wait([task, withdrawn], return_when=asyncio.FIRST_COMPLETED)
        except asyncio.CancelledError:
            task.cancel()
            raise
        finally:
            waiting.discard(withdrawn)
            if not waiting:
                del self._waiting[key]
        if not withdrawn.done():
            return task.result()
        self._withdrawn.add(task)
        task.add_done_callback(self._end)
        return StartResult(is_withdrawn=True)

    def is_busy(self, scope: str, thread_id: str) -> bool:
        """Whether somebody has the turn on a thread, or waits for it."""
        return (scope, thread_id) in self._queues

    def withdraw(self, scope: str, thread_id: str, run_id: str) -> bool:
        """Have the requests for a run wait no longer; gives whether there was one."""
        waiting = self._waiting.get((scope, thread_id, run_id), ())
        for withdrawn in waiting:
            if not withdrawn.done():
                withdrawn.set_result(None)
        return len(waiting) > 0

    async def _in_turn(self, request: StartRequest, start: Start) -> StartResult:
        key = (request.scope, request.input.thread_id)
        queue = self._queues.setdefault(key, _ThreadQueue())
        queue.users += 1
        try:
            async with queue.lock:
                if request.is_disconnected():
                    raise Disconnected
                return await start(request)
        finally:
            queue.users -= 1
            if not queue.users:  # and not if it is free: one may have been woken that has not taken it yet
                del self._queues[key]

    def _end(self, task: asyncio.Task[StartResult]) -> None:
        self._withdrawn.discard(task)
        if task.cancelled():
            return
        error = task.exception()
        if error is None:
            live = task.result().live
            if live is not None:  # it was just beginning
                live.cancel()
        elif not isinstance(error, Disconnected | Rejected | StoreError):
            _log.error("a request that was withdrawn failed", exc_info=error)
