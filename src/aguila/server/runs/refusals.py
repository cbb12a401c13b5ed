"""Resolve what a store refuses: wait for the thread, make way for the run, or refuse the request.

A request on a thread with a running run, of this process or of another:

=========  ================================================================================
auto       The request is refused while the run has viewers. Otherwise the run is cancelled.
reject     The request is refused.
queue      The request waits for the end of the run.
replace    The run is cancelled.
=========  ================================================================================

The owner of the run is asked whether the run has viewers. If it does not answer, the run continues. A queue has an
order within a process; between processes there is none.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from typing import Any

from aguila.errors import (
    AgentMismatch,
    CursorExpired,
    InterruptTaken,
    NotFound,
    QuotaExceeded,
    RunExists,
    StoreRefusal,
    StoreUnavailable,
    ThreadBusy,
    ThreadMoved,
    TooManyRuns,
)
from aguila.server.config.errors import Rejected
from aguila.server.runs.admission import Admission, refuse_storage, too_many_of_scope
from aguila.server.runs.environment import Environment
from aguila.server.runs.live_run import LiveRun
from aguila.server.runs.maintenance import Maintenance
from aguila.server.runs.start import Plan, wrong_agent
from aguila.server.runs.start_request import StartRequest
from aguila.server.runs.viewers import RemoteRuns
from aguila.server.threads.interrupts.plan import ResumePlan
from aguila.server.threads.log import TERMINAL
from aguila.store import RunKey, RunRecord


class Refusals:
    """Resolves the refusals of starts. ``live`` are the runs of this process, ``cancel`` cancels any run."""

    def __init__(
        self,
        environment: Environment,
        live: Mapping[RunKey, LiveRun],
        remote: RemoteRuns,
        maintenance: Maintenance,
        admission: Admission,
        *,
        cancel: Callable[[str, str, str], Awaitable[RunRecord]],
    ) -> None:
        self._store = environment.store
        self._settings = environment.settings
        self._live = live
        self._remote = remote
        self._maintenance = maintenance
        self._admission = admission
        self._cancel = cancel

    async def resolve(self, refusal: Rejected | StoreRefusal, request: StartRequest, plan: Plan | None) -> None:
        """Return when the run can be planned again; otherwise raise ``Rejected`` or ``StoreUnavailable``."""
        match refusal:
            case AgentMismatch():
                raise wrong_agent(refusal.agent) from None
            case QuotaExceeded():
                raise refuse_storage(refusal, request.quotas, request.principal, request.limits) from None
            case InterruptTaken():
                message = f"interrupt {refusal.interrupt_id} is answered by another run"
                raise Rejected(409, "interrupt_taken", message, "/resume") from None
            case TooManyRuns():
                if not await self._maintenance.recover():  # runs of dead processes count until they are ended
                    raise too_many_of_scope(request.limits) from None
            case RunExists() if plan is not None:
                # A quick plan is checked first; a derived run has just begun, so the next one gets another id.
                if not plan.is_quick and plan.request.sent_run_id is None:
                    message = "this run id was used on this thread for another request; use a new run id"
                    raise Rejected(409, "run_exists", message, "/runId") from None
            case ThreadBusy() if plan is not None:
                if request.seen_until is None:
                    request.seen_until = refusal.run.last
                if not plan.is_quick:  # otherwise check first whether this request is valid
                    await self._wait_for_thread(refusal.run, plan.resume)
            case ThreadMoved():
                pass  # the thread has changed since the plan was made, or has a question (INT-15)
            case _:
                raise refusal

    async def _wait_for_thread(self, run: RunRecord, resume: ResumePlan) -> None:
        """Return when the thread may be free. Raises ``Rejected`` if the run keeps it, ``StoreUnavailable``."""
        # The first of two answers wins, even if its run has no viewers: that run may have used its answer already.
        if resume.is_retry or resume.is_abandoned or resume.contested:
            message = f"interrupt {resume.contested[0]} is being answered by run {run.run_id}"
            raise Rejected(409, "interrupt_taken", message, "/resume")
        live = self._live.get(run.key)
        if live is None and (await self._maintenance.recover(only=run.key) or await self._wait_for_recovery(run)):
            return
        busy = self._settings.busy
        if live is not None and live.is_ending:
            await asyncio.wait([live.ended], timeout=self._settings.timing.store_patience)
            if not live.ended.done():
                raise StoreUnavailable(f"the end of run {run.run_id!r} is not stored yet")
        elif busy == "queue":
            await self._wait_in_queue(run, live)
        elif busy == "replace" or (busy == "auto" and await self._is_unwatched(run, live)):
            await self._replace(run, live)
        else:
            message = f"run {run.run_id} is running on this thread; cancel it or wait for its end"
            raise Rejected(409, "thread_busy", message, "/threadId")

    async def _is_unwatched(self, run: RunRecord, live: LiveRun | None) -> bool:
        return await (self._remote.cancel_if_unwatched(run) if live is None else live.is_unwatched())

    async def _replace(self, run: RunRecord, live: LiveRun | None) -> None:
        """Cancel a run and wait for its end."""
        try:
            await self._cancel(run.scope, run.thread_id, run.run_id)
            async with asyncio.timeout(self._settings.timing.cancel_grace + 2.0):
                await self._wait_for_end(run, live)
        except NotFound:
            return  # the run has ended, and its thread was deleted
        except TimeoutError:
            message = f"run {run.run_id} was cancelled and does not stop; try again later"
            raise Rejected(409, "thread_busy", message, "/threadId") from None

    async def _wait_for_recovery(self, run: RunRecord) -> bool:
        """Return whether the run has ended, or another process ends it because its owner is dead. Waits for that."""
        try:
            run = await self._store.run(run.key)
        except NotFound:
            return True
        if run.is_running and run.epoch > 1:
            try:
                async with asyncio.timeout(self._settings.timing.cancel_grace):
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
                if batch.events[-1].startswith(TERMINAL):
                    return
        except (NotFound, CursorExpired):
            return  # the thread was deleted, so the run had ended
        finally:
            await tail.aclose()

    async def _wait_in_queue(self, run: RunRecord, live: LiveRun | None) -> None:
        """Wait for the end of a run, but not longer than this process lives: a run may take hours elsewhere."""
        end = asyncio.ensure_future(self._wait_for_end(run, live))
        try:
            await asyncio.wait([end, self._admission.draining], return_when=asyncio.FIRST_COMPLETED)
        finally:
            end.cancel()
        if end.done():
            end.result()
