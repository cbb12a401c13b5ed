"""What happens to a request on a thread that has a running run, in this process or in another.

=========  ================================================================================
auto       The request is refused while the run has viewers. Otherwise the run is cancelled.
reject     The request is refused.
queue      The request waits for its turn.
replace    The run is cancelled.
=========  ================================================================================

The owner of the run is asked whether the run has viewers. If it does not answer, the run continues. A queue has an
order within a process; between processes there is none.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Any

from aguila.errors import CursorExpired, NotFound, StoreUnavailable
from aguila.server.errors import Rejected
from aguila.server.http.event_stream import is_terminal
from aguila.server.runs.environment import Environment
from aguila.server.runs.maintenance import Maintenance
from aguila.server.runs.run_task import LiveRun
from aguila.server.runs.viewers import Key, RemoteRuns
from aguila.store import RunRecord


class BusyThreads:
    """Waits for running runs, or cancels them, so that another run of their thread can begin."""

    def __init__(
        self,
        environment: Environment,
        live: Mapping[Key, LiveRun],
        remote: RemoteRuns,
        maintenance: Maintenance,
        *,
        cancel: Callable[[str, str, str], Awaitable[RunRecord]],
        draining: asyncio.Event,
    ) -> None:
        self._store = environment.store
        self._settings = environment.settings
        self._live = live
        self._remote = remote
        self._maintenance = maintenance
        self._cancel = cancel
        self._draining = draining

    async def wait_or_preempt(self, run: RunRecord, reasons_to_leave: Sequence[asyncio.Future[None]] = ()) -> None:
        """Return when the thread may be free, or a queued request has a reason to leave.

        Raises ``Rejected`` if the run keeps the thread, ``StoreUnavailable``.
        """
        live = self._live.get((run.scope, run.thread_id, run.run_id))
        if live is None and (await self._maintenance.end_if_lost(run) or await self._wait_for_recovery(run)):
            return
        busy = self._settings.busy
        if live is not None and live.is_ending:
            await asyncio.wait([live.ended], timeout=self._settings.store_patience)
            if not live.ended.done():
                raise StoreUnavailable(f"the end of run {run.run_id!r} is not stored yet")
        elif busy == "queue":
            await self._wait_in_queue(run, live, reasons_to_leave)
        elif busy == "replace" or (busy == "auto" and await self._is_unwatched(run, live)):
            try:
                await self._cancel(run.scope, run.thread_id, run.run_id)
                async with asyncio.timeout(self._settings.cancel_grace + 2.0):
                    await self._wait_for_end(run, live)
            except NotFound:
                return  # the run has ended, and its thread was deleted
            except TimeoutError:
                message = f"run {run.run_id} was cancelled and does not stop; try again later"
                raise Rejected(409, "thread_busy", message, "/threadId") from None
        else:
            message = f"run {run.run_id} is running on this thread; cancel it or wait for its end"
            raise Rejected(409, "thread_busy", message, "/threadId")

    async def _is_unwatched(self, run: RunRecord, live: LiveRun | None) -> bool:
        return await (self._remote.cancel_if_unwatched(run) if live is None else live.is_unwatched())

    async def _wait_for_recovery(self, run: RunRecord) -> bool:
        """Return whether the run has ended, or another process ends it because its owner is dead. Waits for that."""
        try:
            run = await self._store.run(run.scope, run.thread_id, run.run_id)
        except NotFound:
            return True
        if run.is_running and run.epoch > 1:
            try:
                async with asyncio.timeout(self._settings.cancel_grace):
                    await self._wait_for_end(run, None)
            except TimeoutError:
                return False  # the other process has died too, or cannot write
        return not run.is_running or run.epoch > 1

    async def _wait_for_end(self, run: RunRecord, live: LiveRun | None) -> None:
        if live is not None:
            await asyncio.shield(live.ended)
            return
        tail: Any = self._store.tail(run.scope, run.thread_id, run.last)
        try:
            async for batch in tail:
                if is_terminal(batch.events[-1]):
                    return
        except (NotFound, CursorExpired):
            return  # the thread was deleted, so the run had ended
        finally:
            await tail.aclose()

    async def _wait_in_queue(
        self, run: RunRecord, live: LiveRun | None, reasons_to_leave: Sequence[asyncio.Future[None]]
    ) -> None:
        """Wait for the end of a run, but not longer than this process lives: a run may take hours elsewhere."""
        waiting = [
            asyncio.ensure_future(self._wait_for_end(run, live)),
            asyncio.ensure_future(self._draining.wait()),
        ]
        try:
            await asyncio.wait([*waiting, *reasons_to_leave], return_when=asyncio.FIRST_COMPLETED)
        finally:
            for waiter in waiting:
                waiter.cancel()
        for waiter in waiting:
            if waiter.done():
                waiter.result()
