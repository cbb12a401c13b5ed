"""The queues of busy threads (``busy="queue"``). Each process has its own.

A queued request is not a run yet: nothing of it is stored. It can be withdrawn by its run id. It is then answered at
once. Its task ends later, when its turn comes: stopping it at any other point could leave a run that has begun without
a task.
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
    """The queue of one thread. ``users`` counts the request that has the lock and those that wait for it."""

    def __init__(self) -> None:
        self.lock = asyncio.Lock()
        self.users = 0


class ThreadQueues:
    """The queued requests of this process. On each thread they start one after the other."""

    def __init__(self) -> None:
        self._queues: dict[tuple[str, str], _ThreadQueue] = {}
        self._waiting: dict[Key, set[asyncio.Future[None]]] = {}
        self._withdrawn: set[asyncio.Task[StartResult]] = set()

    async def start_in_turn(
        self, request: StartRequest, wrap: Callable[[Awaitable[StartResult]], Awaitable[StartResult]], start: Start
    ) -> StartResult:
        """Call ``start`` when the request's turn has come; return early if the request is withdrawn.

        ``wrap`` is awaited around the wait and the start, also if the request is withdrawn.
        """
        withdrawn: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        waiting = self._waiting.setdefault(request.key, set())
        waiting.add(withdrawn)
        is_disconnected = request.is_disconnected
        request = replace(request, is_disconnected=lambda: withdrawn.done() or is_disconnected())
        task = asyncio.ensure_future(wrap(self._start_in_turn(request, start)))
        try:
            await asyncio.wait([task, withdrawn], return_when=asyncio.FIRST_COMPLETED)
        except asyncio.CancelledError:
            task.cancel()
            await asyncio.wait([task])  # so that a run that is beginning is adopted before its request ends
            raise
        finally:
            waiting.discard(withdrawn)
            if not waiting:
                del self._waiting[request.key]
        if not withdrawn.done():
            return task.result()
        self._withdrawn.add(task)
        task.add_done_callback(self._end_withdrawn)
        return StartResult(is_withdrawn=True)

    def is_busy(self, scope: str, thread_id: str) -> bool:
        """Return whether a request of this thread is starting or queued."""
        return (scope, thread_id) in self._queues

    def withdraw(self, scope: str, thread_id: str, run_id: str) -> bool:
        """Withdraw the queued requests for a run; return whether there were any."""
        waiting = self._waiting.get((scope, thread_id, run_id), ())
        for withdrawn in waiting:
            if not withdrawn.done():
                withdrawn.set_result(None)
        return len(waiting) > 0

    async def _start_in_turn(self, request: StartRequest, start: Start) -> StartResult:
        key = (request.scope, request.input.thread_id)
        queue = self._queues.setdefault(key, _ThreadQueue())
        queue.users += 1
        if queue.lock.locked():
            request = replace(request, has_queued=True)
        try:
            async with queue.lock:
                if request.is_disconnected():
                    raise Disconnected
                return await start(request)
        finally:
            queue.users -= 1
            if not queue.users:  # not "if the lock is free": a waiter that was woken has not taken it yet
                del self._queues[key]

    def _end_withdrawn(self, task: asyncio.Task[StartResult]) -> None:
        self._withdrawn.discard(task)
        if task.cancelled():
            return
        error = task.exception()
        if error is None:
            live = task.result().live
            if live is not None:  # it was withdrawn while it began
                live.cancel()
        elif not isinstance(error, Disconnected | Rejected | StoreError):
            _log.error("a withdrawn request failed", exc_info=error)
