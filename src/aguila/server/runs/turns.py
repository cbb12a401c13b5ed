"""Turns: the requests of a thread start their runs one after the other. Each process has its own queues.

A request that waits is not a run yet: nothing of it is stored. It leaves at once if its client disconnects, or if it is
withdrawn by its run id. A request whose run is just being stored cannot be withdrawn any more: its run begins, and can
be cancelled.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager

from aguila.errors import NotFound
from aguila.server.runs.start_request import Started, StartRequest, StartResult
from aguila.store import Store


class Turns:
    """The requests of this process that are starting a run, or wait for their turn to start one."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self.queues: dict[tuple[str, str], deque[StartRequest]] = {}
        """The requests of each thread. The first one has its turn."""

    @asynccontextmanager
    async def turn(self, request: StartRequest) -> AsyncGenerator[None]:
        """Wait until the requests before this one have started their runs, and let the next ones wait."""
        scope, thread_id = request.scope, request.input.thread_id
        queue = self.queues.setdefault((scope, thread_id), deque())
        queue.append(request)
        try:
            if queue[0] is not request:
                request.turn = asyncio.get_running_loop().create_future()
                if request.seen_until is None:  # read while it waits, or a later request would overtake it
                    request.seen_until = await self._read_last(scope, thread_id)
                await request.turn
            yield
        finally:
            queue.remove(request)
            if not queue:
                del self.queues[scope, thread_id]
            elif queue[0].turn is not None and not queue[0].turn.done():
                queue[0].turn.set_result(None)

    async def withdraw(self, scope: str, thread_id: str, run_id: str) -> bool:
        """Withdraw the requests for a run. Return whether there were any, and none of them has begun the run."""
        requests = [one for one in self.queues.get((scope, thread_id), ()) if one.input.run_id == run_id]
        beginning = [one.task for one in requests if one.is_beginning and one.task is not None]
        for request in requests:
            request.is_withdrawn = True
            request.abandon()
        if beginning:  # wait until the run is stored or refused
            await asyncio.wait(beginning)
        return len(requests) > 0 and not any(map(_has_begun, beginning))

    async def _read_last(self, scope: str, thread_id: str) -> int:
        """Return the number of the last event of a thread."""
        try:
            return (await self._store.thread(scope, thread_id)).summary.last
        except NotFound:
            return 0


async def wait_for_start(other: StartRequest, request: StartRequest) -> None:
    """Wait until an equal request has started its run, or could not. Raises ``Disconnected`` or ``Withdrawn``."""
    task = other.task
    if task is None:
        return
    leaving = [] if request.disconnected is None else [request.disconnected]
    await asyncio.wait([task, *leaving], return_when=asyncio.FIRST_COMPLETED)
    request.is_withdrawn = other.is_withdrawn and task.done() and not _has_begun(task)
    request.check_waiting()


def _has_begun(task: asyncio.Task[StartResult]) -> bool:
    return not task.cancelled() and task.exception() is None and isinstance(task.result(), Started)
