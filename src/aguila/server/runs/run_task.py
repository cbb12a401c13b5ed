"""One run that this process owns: the task of its agent, its event pump, its lease and its viewers.

Viewers read the store, not this object, so they see only durable events.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Awaitable, Callable, Sequence
from math import inf
from typing import Any

from msgspec import UNSET, Struct

from aguila.agent.context import Ending, RunContext
from aguila.agent.executor import execute
from aguila.codec import encode, encode_event
from aguila.codec.logs import RunLogContext, log_event
from aguila.errors import RunFailed, StaleLease, StoreError, StoreUnavailable
from aguila.protocol import RunAgentInput, RunErrorEvent, replace
from aguila.server.errors import Rejected
from aguila.server.files import resolve_file
from aguila.server.history.client_history.cut_history import ThreadEnd, find_end
from aguila.server.history.projection import EndingRun
from aguila.server.interrupts.records import interrupt_body
from aguila.server.runs.environment import Environment
from aguila.server.runs.event_pump import EventPump
from aguila.server.runs.viewers import DISCONNECT_DELAY, Viewer, Viewers
from aguila.store import Batch, Lease, RunEnd, RunProjection, ThreadUpdate

_log = logging.getLogger("aguila.server")

_REPORT_AFTER = 1.0
"""Seconds of failing to store the end of a run after which its viewers receive RUN_ERROR."""

_RECHECK_INTERVAL = 0.25
"""Minimum seconds between two checks for viewers in other processes."""


class RunStart(Struct, frozen=True):
    """How a run began. The projection that is stored with its end is computed from this and its events."""

    first: Batch
    """The events that it began with."""
    sent: RunAgentInput | None
    """Its input; None if that is large."""
    parent_run_id: str | None
    """Its stored parent."""


class LiveRun:
    """A run with its lease. It is the ``Services`` of its agent; its ``pump`` is the ``Sink``.

    ``claims`` are interrupts that are settled when the run succeeds or asks again. Without ``start`` no projection is
    stored with the end of the run.
    """

    __slots__ = (
        "_claims", "_closing_at", "_end_ids", "_environment", "_failure_event", "_grace_timer", "_has_ended",
        "_is_cancelling", "_is_driving", "_loop", "_pump", "_start", "_stop_error", "_store", "cancel_listener",
        "default_title", "ended", "lease", "root_run_id", "session", "task", "viewers",
    )  # fmt: skip

    update_task = None
    """See ``event_stream.WatchedRun``: a viewer in this process counts at once."""

    def __init__(
        self,
        environment: Environment,
        lease: Lease,
        *,
        root_run_id: str,
        claims: Sequence[str] = (),
        start: RunStart | None = None,
    ) -> None:
        self._environment = environment
        self._loop = environment.loop
        self._store = environment.store
        self._claims = claims
        self._start = start
        self._end_ids: frozenset[str] | None = None
        self._grace_timer: asyncio.TimerHandle | asyncio.Task[None] | None = None
        self._failure_event = _FAILED
        self._is_cancelling = False
        self._is_driving = False
        self._has_ended = False
        self._stop_error: RunFailed | None = None
        self._closing_at = inf  # when the current append of the end began
        self._pump: EventPump | None = None
        self.lease = lease
        self.root_run_id = root_run_id
        self.viewers = Viewers()
        self.task: asyncio.Task[None] | None = None
        self.cancel_listener: asyncio.Task[None] | None = None
        """Receives cancel requests of other processes. It is started when the store reports that there may be one."""
        self.session: bytes | None = None
        """The thread's session before this run."""
        self.default_title: str | None = None
        """The title that a new thread gets if neither the agent nor a client has named it when the run ends."""
        self.ended: asyncio.Future[None] = self._loop.create_future()
        """Done when this process writes nothing more for the run."""

    @property
    def pump(self) -> EventPump:
        """Appends the events of the run. It is made when it is first used, which is after the first event was sent."""
        if self._pump is None:
            self._pump = EventPump(
                self._store,
                self.lease,
                self._environment.settings,
                store_health=self._environment.store_health,
                loop=self._loop,
                on_failure=self._handle_store_error,
            )
        return self._pump

    # Services

    async def record(self, key: str, value: bytes) -> None:
        """See ``aguila.agent.Services``."""
        await self._store.record(self.lease, self.root_run_id, key, value)

    async def settle(self, interrupt_ids: Sequence[str]) -> None:
        """See ``aguila.agent.Services``."""
        await self._store.settle(self.lease, interrupt_ids)

    async def file(self, file_id: str) -> tuple[bytes, str, str | None] | None:
        """See ``aguila.agent.Services``."""
        return await resolve_file(self._store, self.lease.scope, file_id)

    # Running the agent

    async def drive(self, agent: Any, load: Callable[[], Awaitable[RunContext]], cancel_grace: float) -> None:
        """Run the agent to its end and close the run. ``load`` returns the context of the run."""
        with RunLogContext(self.lease.thread_id, self.lease.run_id):
            driving = self._drive(agent, load, cancel_grace)
            del load  # ``load`` holds the request, which must not live as long as the run
            await driving

    async def _drive(self, agent: Any, load: Callable[[], Awaitable[RunContext]], cancel_grace: float) -> None:
        ending: Ending | None = None
        pump = self.pump
        began = self._loop.time()
        limit = self._environment.settings.limits.run_seconds
        timer = None if limit is None else self._loop.call_later(limit, self._stop_overdue, limit)
        self._log_event("run started")
        try:
            try:
                context = await load()
                del load
                self._is_driving = True
                if self._stop_error is not None:  # before it began: the agent is not called
                    self._failure_event = _encode_error(self._stop_error.message, self._stop_error.code)
                elif self._is_cancelling and pump.store_error is None:
                    pump.put(context.writer.cancel())
                    ending = Ending(outcome="cancelled", session=context.session)
                elif not self._is_cancelling:
                    ending = await execute(
                        agent, context, pump, self, cancel_grace=cancel_grace, stop_error=lambda: self._stop_error
                    )
                self._end_ids = _find_end_ids(context)
            except StoreUnavailable as error:
                pump.stop(error)
            except Rejected as error:  # too late for an HTTP error: RUN_STARTED is stored
                self._failure_event = _encode_error(error.message, error.code)
            except Exception as error:  # noqa: BLE001 - the run must be closed, whatever failed
                self._log_event("the executor failed", logging.ERROR, error=error)
            self._has_ended = True
            await pump.end()
            outcome = "lost" if isinstance(pump.store_error, StaleLease) else await self._close(ending)
            self._log_event("run ended", outcome=outcome, ms=round((self._loop.time() - began) * 1000))
        except asyncio.CancelledError:
            message = "the end of the run is not stored; the next process that opens the store ends the run"
            self._log_event(message, logging.WARNING)
            raise
        finally:
            self._has_ended = True
            if timer is not None:
                timer.cancel()
            if self._grace_timer is not None:
                self._grace_timer.cancel()
            if self.cancel_listener is not None:
                self.cancel_listener.cancel()
            if not self.ended.done():
                self.ended.set_result(None)

    async def _close(self, ending: Ending | None) -> str:
        """Store the end of the run and return its outcome. Tries until the store accepts it."""
        pump = self.pump
        report: asyncio.TimerHandle | None = None
        if pump.store_error is not None:
            events, end = [_UNSTORED], RunEnd(outcome="error")
            report = self._loop.call_later(_REPORT_AFTER, self._end_viewers)
        else:
            events = await pump.take_rest()
            is_complete = pump.encoding_error is None or (ending is not None and ending.outcome == "error")
            if ending is None or pump.terminal is None or not is_complete:
                events, end = [*events, self._failure_event], RunEnd(outcome="error")
            else:
                events, end = [*events, pump.terminal], self._build_end(ending)
            end = replace(end, projection=await self._project(events))
        began = self._loop.time()
        delay = 0.05
        while True:
            is_stored = False
            self._closing_at = time.monotonic()
            try:
                batch = await self._store.append(self.lease, events, end=end)
                is_stored = True
                if self._start is not None:
                    thread_end = ThreadEnd(batch.last, self._end_ids, self.lease.run_id, time.monotonic())
                    self._environment.thread_ends.record(self.lease.scope, self.lease.thread_id, thread_end)
                return end.outcome
            except StaleLease as error:
                self.lose_lease(error)
                return "lost"
            except StoreUnavailable as error:
                self._environment.store_health.record_failure(error)
                end = replace(end, projection=None)  # readers compute it from the log
            finally:
                self._closing_at = inf
                if self._start is not None and not is_stored:
                    self._environment.projections.forget(self.lease.scope, self.lease.thread_id)
                if report is not None:
                    report.cancel()
            if self._loop.time() - began >= _REPORT_AFTER and self.viewers:
                # The log must end with the event that the viewers receive.
                events, end = [_UNSTORED], RunEnd(outcome="error")
                self._end_viewers()
            await asyncio.sleep(delay)
            delay = min(delay * 2, 0.5)

    async def _project(self, events: Sequence[bytes]) -> RunProjection | None:
        """Return the projection after the run, which ends with these events."""
        start = self._start
        if start is None:
            return None
        try:
            stored = self.pump.appended
            run = EndingRun(
                lease=self.lease,
                first=start.first.first,
                sent=None if self.pump.is_large else start.sent,
                parent_run_id=start.parent_run_id,
                stored=None if stored is None else [*start.first.events, *stored],
            )
            return await self._environment.projections.close_run(run, events)
        except StoreError:
            return None  # the append that follows reports it
        except Exception as error:  # noqa: BLE001 - the run must be closed, and readers can compute the projection
            self._log_event("the projection of the run could not be computed", logging.ERROR, error=error)
            return None

    def _build_end(self, ending: Ending) -> RunEnd:
        interrupts = [(one.id, interrupt_body(one, is_asked=one.id in ending.asked)) for one in ending.interrupts]
        session = encode(ending.session)
        is_changed = session != (b"null" if self.session is None else self.session)
        return RunEnd(
            outcome=ending.outcome,
            interrupts=interrupts,
            session=session if is_changed else None,
            settles=self._claims if ending.outcome in ("success", "interrupt") else (),
            update=self._build_update(ending),
        )

    def _build_update(self, ending: Ending) -> ThreadUpdate | None:
        if ending.title is not UNSET:
            return ThreadUpdate(title=ending.title)
        return None if self.default_title is None else ThreadUpdate(default_title=self.default_title)

    def _log_event(self, message: str, level: int = logging.INFO, **fields: Any) -> None:
        log_event(_log, level, message, thread=self.lease.thread_id, run=self.lease.run_id, **fields)

    # Stopping

    @property
    def is_ending(self) -> bool:
        """Whether the agent has returned."""
        return self._has_ended

    def cancel(self) -> None:
        """Stop the agent; the run ends as cancelled. Does nothing if the run is being cancelled or has ended."""
        if self._is_cancelling or self._has_ended:
            return
        self._is_cancelling = True
        if self.task is not None and self._is_driving:
            self.task.cancel()

    def fail(self, message: str, code: str) -> None:
        """Stop the agent; the run ends with RUN_ERROR. Does nothing if the run is being cancelled or has ended."""
        if not self._is_cancelling and not self._has_ended:
            self._stop_error = RunFailed(message, code=code)
            self.cancel()

    def _stop_overdue(self, seconds: float) -> None:
        self.fail(f"The run took longer than the {seconds:g} seconds that this server allows.", "run_timeout")

    def is_waiting_for_store(self, since: float) -> bool:
        """Return whether an append of this run that began before a time has not ended."""
        return self._closing_at < since or (self._pump is not None and self._pump.is_waiting(since))

    def lose_lease(self, error: StaleLease) -> None:
        """Stop the agent and write nothing more: another process ends the run."""
        if self.pump.store_error is None:
            self._log_event(f"the run lost its lease: {error}", logging.WARNING)
        self._stop_agent(error)

    def check_store_timeout(self, since: float) -> None:
        """Fail the run if its events have been waiting for the store since this time.

        If the store has written anything since, it is slow or busy, and the run waits.
        """
        if self.pump.is_late(since) and self.pump.store_error is None and not self._has_ended:
            error = StoreUnavailable("the store has written nothing within store_patience seconds")
            self._environment.store_health.record_failure(error)
            self._stop_agent(error)
            self._end_viewers()

    def _handle_store_error(self, error: StoreError) -> None:
        if isinstance(error, StaleLease):
            self.lose_lease(error)
        else:
            self._stop_agent(error)

    def _stop_agent(self, error: StoreError) -> None:
        self.pump.stop(error)
        self.cancel()

    def _end_viewers(self) -> None:
        """Send the viewers the event that the log will end with as soon as the store works again."""
        for viewer in self.viewers:
            viewer.end_early(_UNSTORED)

    # Viewers

    def join(self, viewer: Viewer) -> None:
        """Add a viewer."""
        self.viewers.add(viewer)
        if self._grace_timer is not None:
            self._grace_timer.cancel()
            self._grace_timer = None

    def leave(self, viewer: Viewer, grace: float | None) -> None:
        """Remove a viewer. With ``grace``, cancel the run that many seconds after the last viewer left.

        If the last viewer was in another process, this can take twice as long.
        """
        self.viewers.discard(viewer)
        if grace is not None and not self.viewers and not self._has_ended:
            self._schedule_grace_check(grace, grace)

    def _schedule_grace_check(self, delay: float, grace: float) -> None:
        def check() -> None:
            self._grace_timer = self._loop.create_task(self._cancel_if_unwatched(grace))

        self._grace_timer = self._loop.call_later(delay, check)

    async def _cancel_if_unwatched(self, grace: float) -> None:
        """Cancel the run unless it has viewers in another process. A viewer that joins here cancels this task."""
        try:
            is_watched = await self._store.watched(self.lease, within=grace)
        except StoreError:
            is_watched = True  # unknown
        if is_watched:
            self._schedule_grace_check(max(grace, _RECHECK_INTERVAL), grace)
        else:
            self.cancel()

    async def is_unwatched(self) -> bool:
        """Return whether the run has no viewers in any process. Waits for disconnects that are on their way.

        Raises ``StoreUnavailable``.
        """
        until = self._loop.time() + DISCONNECT_DELAY
        if not await self.viewers.wait_until_empty(DISCONNECT_DELAY):
            return False
        while await self._store.watched(self.lease):
            if self._loop.time() >= until:
                return False
            await asyncio.sleep(DISCONNECT_DELAY / 5)
        return not self.viewers


def _find_end_ids(context: RunContext) -> frozenset[str] | None:
    """Return the ids of messages that a client has sent or received last; None if they are not known."""
    ids = frozenset(context.writer.last_messages)
    if ids or context.resume_input is not None:
        return ids or None
    end = find_end(context.input.messages)
    return None if end is None else frozenset([end])


def _encode_error(message: str, code: str | None) -> bytes:
    return encode_event(RunErrorEvent(message=message, code=code))


_FAILED = _encode_error("The run failed.", "internal")
_UNSTORED = _encode_error("The run could not be stored.", "store_unavailable")
