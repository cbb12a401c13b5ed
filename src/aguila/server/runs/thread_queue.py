"""Layer: server. Whose turn it is on a thread, where requests wait for theirs (``busy="queue"``), and who gave it up.

Below: ``asked``. Above: ``runs``. Only what waits in this process is known here.

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
from aguila.server.runs.start_request import Asked, Started
from aguila.server.runs.viewers import Key

_log = logging.getLogger("aguila.server")

Start = Callable[[Asked], Awaitable[Started]]


class _Turn:
    """Whose it is on one thread, and how many have it or wait for it."""

    def __init__(self) -> None:
        self.lock = asyncio.Lock()
        self.users = 0


class Turns:
    """The requests that wait, each for the one before it on its thread."""

    def __init__(self) -> None:
        self._turns: dict[tuple[str, str], _Turn] = {}
        self._waiting: dict[Key, set[asyncio.Future[None]]] = {}
        self._withdrawn: set[asyncio.Task[Started]] = set()

    async def take(
        self, asked: Asked, starting: Callable[[Awaitable[Started]], Awaitable[Started]], start: Start
    ) -> Started:
        """Start a run when its turn has come, ``starting`` being around all of that; or say that it was withdrawn."""
        key = (asked.scope, asked.input.thread_id, asked.input.run_id)
        withdrawn: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        waiting = self._waiting.setdefault(key, set())
        waiting.add(withdrawn)
        is_gone = asked.is_gone
        asked = replace(asked, is_gone=lambda: withdrawn.done() or is_gone())
        task = asyncio.ensure_future(starting(self._in_turn(asked, start)))
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
        return Started(is_withdrawn=True)

    def is_taken(self, scope: str, thread_id: str) -> bool:
        """Whether somebody has the turn on a thread, or waits for it."""
        return (scope, thread_id) in self._turns

    def withdraw(self, scope: str, thread_id: str, run_id: str) -> bool:
        """Have the requests for a run wait no longer; gives whether there was one."""
        waiting = self._waiting.get((scope, thread_id, run_id), ())
        for withdrawn in waiting:
            if not withdrawn.done():
                withdrawn.set_result(None)
        return len(waiting) > 0

    async def _in_turn(self, asked: Asked, start: Start) -> Started:
        key = (asked.scope, asked.input.thread_id)
        turn = self._turns.setdefault(key, _Turn())
        turn.users += 1
        try:
            async with turn.lock:
                if asked.is_gone():
                    raise Disconnected
                return await start(asked)
        finally:
            turn.users -= 1
            if not turn.users:  # and not if it is free: one may have been woken that has not taken it yet
                del self._turns[key]

    def _end(self, task: asyncio.Task[Started]) -> None:
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
