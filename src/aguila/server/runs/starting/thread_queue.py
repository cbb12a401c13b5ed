"""The queues of busy threads (``busy="queue"``). Each process has its own.

A queued request is not a run yet: nothing of it is stored. It leaves the queue at once if its client disconnects, or if
it is withdrawn by its run id. If it has its turn, its task ends at the next point at which it waits for another run:
stopping it anywhere else could leave a run that has begun without a task. A request whose run is just being stored
cannot be withdrawn any more: its run begins, and can be cancelled.
"""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from collections.abc import Awaitable, Callable
from typing import Any

from msgspec.structs import replace

from aguila.errors import NotFound, StoreError
from aguila.server.errors import Disconnected, Rejected
from aguila.server.runs.starting.start_request import QueueTicket, StartRequest, StartResult
from aguila.server.runs.viewers import Key
from aguila.store import Store

_log = logging.getLogger("aguila.server")

Start = Callable[[StartRequest], Awaitable[StartResult]]


class ThreadQueues:
    """The queued requests of this process. On each thread they start one after the other."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self._queues: dict[tuple[str, str], deque[asyncio.Future[None]]] = {}
        """The turns of the requests for each thread. The first one has come, so it is done; the others are not."""
        self._waiting: dict[Key, set[QueueTicket]] = {}
        self._withdrawn: set[asyncio.Task[StartResult]] = set()

    async def start_in_turn(self, request: StartRequest, start: Start, release: Callable[[], None]) -> StartResult:
        """Call ``start`` when the request's turn has come; return early if the request is withdrawn.

        ``release`` is called when the request has left the queue and has begun no run.
        """
        ticket = QueueTicket(request.disconnected)
        waiting = self._waiting.setdefault(request.key, set())
        waiting.add(ticket)
        withdrawn = ticket.withdrawn
        request = replace(request, ticket=ticket)
        task = ticket.task = asyncio.ensure_future(self._start_in_turn(request, ticket, start))
        task.add_done_callback(lambda task: None if _has_begun(task) else release())
        try:
            await asyncio.wait([task, withdrawn], return_when=asyncio.FIRST_COMPLETED)
            if ticket.is_beginning:
                await asyncio.wait([task])
        except asyncio.CancelledError:
            task.cancel()
            await asyncio.wait([task])  # so that a run that is beginning is adopted before its request ends
            raise
        finally:
            waiting.discard(ticket)
            if not waiting:
                del self._waiting[request.key]
            ticket.task = None
        if not withdrawn.done() or (task.done() and _has_begun(task)):
            try:
                return task.result()
            finally:
                del task  # an error and its frames would hold each other, and with them the body
        self._withdrawn.add(task)
        task.add_done_callback(self._end_withdrawn)
        return StartResult(is_withdrawn=True)

    def is_busy(self, scope: str, thread_id: str) -> bool:
        """Return whether a request of this thread is starting or queued."""
        return (scope, thread_id) in self._queues

    async def withdraw(self, scope: str, thread_id: str, run_id: str) -> bool:
        """Withdraw the queued requests for a run. Return whether there were any, and none of them has begun the run."""
        tickets = list(self._waiting.get((scope, thread_id, run_id), ()))
        for ticket in tickets:
            if not ticket.withdrawn.done():
                ticket.withdrawn.set_result(None)
        beginning = [ticket.task for ticket in tickets if ticket.is_beginning and ticket.task is not None]
        if beginning:  # wait until the run is stored or refused
            await asyncio.wait(beginning)
        return len(tickets) > 0 and not any(map(_has_begun, beginning))

    async def _start_in_turn(self, request: StartRequest, ticket: QueueTicket, start: Start) -> StartResult:
        key = (request.scope, request.input.thread_id)
        queue = self._queues.setdefault(key, deque())
        # Read while the request waits: to read first would let a later request overtake it.
        reading = asyncio.ensure_future(self._read_last(*key)) if queue else None
        turn: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        queue.append(turn)
        try:
            if queue[0] is turn:
                turn.set_result(None)
            else:
                await asyncio.wait([turn, *ticket.reasons_to_leave], return_when=asyncio.FIRST_COMPLETED)
            if request.is_abandoned:
                raise Disconnected
            if reading is not None:
                request = replace(request, queued_after=await reading)
            return await start(request)
        finally:
            if reading is not None:
                _discard(reading)
            queue.remove(turn)
            if not queue:
                del self._queues[key]
            elif not queue[0].done():
                queue[0].set_result(None)

    async def _read_last(self, scope: str, thread_id: str) -> int:
        """Return the number of the last event of a thread."""
        try:
            return (await self._store.thread(scope, thread_id)).last
        except NotFound:
            return 0

    def _end_withdrawn(self, task: asyncio.Task[StartResult]) -> None:
        self._withdrawn.discard(task)
        if task.cancelled():
            return
        error = task.exception()
        if error is not None and not isinstance(error, Disconnected | Rejected | StoreError):
            _log.error("a withdrawn request failed", exc_info=error)


def _has_begun(task: asyncio.Future[StartResult]) -> bool:
    return not task.cancelled() and task.exception() is None and task.result().live is not None


def _discard(task: asyncio.Future[Any]) -> None:
    """Cancel a task whose result is not needed."""
    if not task.cancel() and not task.cancelled():
        task.exception()  # otherwise asyncio logs it
