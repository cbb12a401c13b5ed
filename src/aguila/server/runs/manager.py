"""Layer: server. All runs of this process: admitted, started once, cancelled, drained.

Below: ``asked`` (a request for a run), ``history`` and ``interrupts`` (what it means), ``live`` (one run), ``keeper``
(keeps them alive, and ends what others left), ``viewers``, ``aguila.store``. Above: ``exchange``. A run belongs to the
server: nothing here knows a connection.

What becomes of a request on a thread where a run is on:

=========  ==========================================================================================
auto       refused while somebody watches that run; one that nobody watches is cancelled and replaced
reject     refused
queue      waits for its turn
replace    that run is cancelled, wherever it is
=========  ==========================================================================================

It makes no difference which process owns that run. Its owner is asked whether somebody watches it, wherever; one that
does not answer keeps its run. A queue has an order within a process; of those who wait in several, whoever is first.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections import Counter
from collections.abc import Awaitable, Callable, Mapping
from functools import partial
from typing import Any

from aguila.agent.context import RunContext
from aguila.codec import encode_event
from aguila.codec.logs import log_event
from aguila.codec.notices import Warn
from aguila.errors import (
    AgentMismatch,
    CursorExpired,
    DecodeError,
    InterruptTaken,
    NotFound,
    RunExists,
    StoreError,
    StoreUnavailable,
    ThreadBusy,
    ThreadMoved,
    TooManyRuns,
)
from aguila.protocol import PROTOCOL_VERSION, Event, RunAgentInput, RunStartedEvent, replace
from aguila.server.errors import Disconnected, Rejected, draining_error
from aguila.server.history.agent_input import PreparedInput, prepare_input
from aguila.server.history.projection import Projections
from aguila.server.http.event_stream import WatchedRun, is_terminal
from aguila.server.interrupts.langgraph_pages import has_command_answer, translate_command
from aguila.server.interrupts.plan import ResumePlan, plan_resume, plan_without_answers
from aguila.server.runs.derived_runs import latest_derived, resolve_run
from aguila.server.runs.event_encoding import encode_all_checked
from aguila.server.runs.maintenance import Maintenance
from aguila.server.runs.run_context import RunContextLoader, new_id
from aguila.server.runs.run_task import LiveRun
from aguila.server.runs.shield import run_shielded
from aguila.server.runs.start_request import StartRequest, StartResult
from aguila.server.runs.thread_queue import ThreadQueues
from aguila.server.runs.unstored import UnstoredStart, begin_unstored
from aguila.server.runs.viewers import Key, RemoteRuns
from aguila.server.settings import Settings
from aguila.server.store_health import StoreHealth
from aguila.store import MemoryStore, RunRecord, Store

_log = logging.getLogger("aguila.server")

STOP_NOW_TIMEOUT = 0.5
"""Seconds that each wait of a drain takes at most when it was told to hurry."""

_CANCEL_ATTEMPTS = 3
"""How often a run is told to let go: the first time it may stop waiting for its agent, and try to store its end."""

_LISTEN_RETRY = 1.0
"""Seconds after which a run listens again for cancel requests if the store could not be read."""


class Runs:
    """The runs of one app in one process."""

    def __init__(self, agents: Mapping[str, Any], store: Store, settings: Settings, warn: Warn) -> None:
        self.store = store
        self.projections = Projections(store, history=settings.history, warn=warn)
        self.store_health = StoreHealth()
        self.owner = new_id()
        self.is_draining = False
        self.has_queue = settings.busy == "queue"
        """Whether a request may have to wait for its turn."""
        self.sends_on_interrupt = settings.langgraph_interrupts
        """Whether an interrupt is also sent as CUSTOM ``on_interrupt``."""
        self.live: dict[Key, LiveRun] = {}
        self._unstored: set[LiveRun] = set()
        self._loop = asyncio.get_running_loop()  # once: before Python 3.12 each of these is a system call
        self._remote = RemoteRuns(store, self.owner, settings.lease)
        self._agents = agents
        self._settings = settings
        self._warn = warn
        self._admitted: Counter[str] = Counter()
        self._admitted_total = 0
        self.is_stopping_now = False
        self._stopping = asyncio.Event()  # set with ``is_draining``
        self._empty: asyncio.Future[None] | None = None  # who waits for the last run to end
        self._queues = ThreadQueues()
        self._maintenance_tasks: list[asyncio.Task[None]] = []
        self.maintenance = Maintenance(
            store, self.live, self._remote, owner=self.owner, store_health=self.store_health, settings=settings
        )

    @property
    def is_orphaned(self) -> bool:
        """Whether the event loop that this belongs to is closed: nothing here will ever end."""
        return self._loop.is_closed()

    async def open(self) -> None:
        """End what a dead process left, and begin to look after what is on."""
        await self.maintenance.recover()
        self._maintenance_tasks = self.maintenance.start_tasks()

    def stop_admission(self) -> None:
        """Take nothing new."""
        self.is_draining = True
        self._stopping.set()

    async def drain(self) -> None:
        """Take nothing new; give the runs their time to finish, then cancel them, and let go of what does not end.

        A run whose end cannot be stored in the time that the store may take gets its end from whoever opens it next.
        """
        settings = self._settings
        self.stop_admission()
        await self._wait_until_empty(settings.drain)
        for live in [*self.live.values(), *self._unstored]:
            live.cancel()
        await self._wait_until_empty(settings.cancel_grace + settings.store_patience)
        await self._release_tasks()

    async def _wait_until_empty(self, seconds: float) -> None:
        """Wait until no run is left, and none that was let in and is about to begin; but no longer than this."""
        if self._admitted_total:
            self._empty = self._loop.create_future()
            await asyncio.wait(
                [self._empty], timeout=min(seconds, STOP_NOW_TIMEOUT) if self.is_stopping_now else seconds
            )

    def stop_now(self) -> None:
        """Let the drain wait for nothing more but a moment, in which agents that stop when they are told to do."""
        self.is_stopping_now = True
        if self._empty is not None and not self._empty.done():
            self._empty.set_result(None)

    async def _release_tasks(self) -> None:
        """End the tasks of the runs that are left, whatever they wait for."""
        left = {live.task for live in [*self.live.values(), *self._unstored] if live.task is not None}
        for _ in range(_CANCEL_ATTEMPTS):
            if not left:
                return
            for task in left:
                task.cancel()
            left = (await asyncio.wait(left, timeout=STOP_NOW_TIMEOUT))[1]

    async def close(self) -> None:
        """Drain, if that was not done, then let go of everything; in bounded time, whatever the store does."""
        if not self.is_draining:
            await self.drain()
        await self._release_tasks()  # also of what was just beginning when the drain was over
        for task in self._maintenance_tasks:
            task.cancel()
        leaving = [*self._maintenance_tasks, asyncio.create_task(self._remote.close())]
        _, left = await asyncio.wait(leaving, timeout=self._settings.store_patience)
        for task in left:
            task.cancel()

    # Starting

    async def start(self, asked: StartRequest) -> StartResult:
        """Start a run, or find the one that this request started before.

        Raises ``Rejected``, ``StoreUnavailable``, or ``Disconnected`` if nobody waits for it any more.
        """
        scope = asked.scope
        try:
            self._admit(scope)
        except Rejected:
            found = await self._find_started(asked)  # coming back is always possible
            if found is None:
                raise
            return found
        if self.has_queue:
            # Nobody has to wait for a turn to come back to a run that has had its own.
            found = await self._find_started(asked) if self._queues.is_busy(scope, asked.input.thread_id) else None
            if found is not None:
                self._release(scope)
                return found
            return await self._queues.start_in_turn(asked, partial(self._release_unless_live, scope), self._start)
        return await self._release_unless_live(scope, self._start(asked))

    async def _release_unless_live(self, scope: str, starting: Awaitable[StartResult]) -> StartResult:
        started: StartResult | None = None
        try:
            started = await starting
            return started
        finally:
            if started is None or started.live is None:
                self._release(scope)

    def refusal(self, scope: str) -> Rejected | None:
        """Why no new run of this scope can begin now, if so."""
        limits = self._settings.limits
        if self.is_draining:
            return draining_error()
        if self._admitted.get(scope, 0) >= limits.runs_per_scope or self._admitted_total >= limits.runs:
            return _too_many_runs()
        return None

    def _admit(self, scope: str) -> None:
        refusal = self.refusal(scope)
        if refusal is not None:
            raise refusal
        self._count(scope)

    def _count(self, scope: str) -> None:
        self._admitted[scope] += 1
        self._admitted_total += 1

    def _count_until_begun(self, scope: str, beginning: asyncio.Task[StartResult]) -> None:
        """Count a run that is still beginning, while the request for it is cancelled: it is driven all the same."""

        def release(task: asyncio.Task[StartResult]) -> None:
            error = None if task.cancelled() else task.exception()
            if task.cancelled() or error is not None:
                self._release(scope)
            if error is not None and not isinstance(error, StoreError | Rejected):
                _log.error("a run could not begin", exc_info=error)

        self._count(scope)
        beginning.add_done_callback(release)

    def _release(self, scope: str) -> None:
        self._admitted_total -= 1
        self._admitted[scope] -= 1
        if not self._admitted[scope]:
            del self._admitted[scope]
        if not self._admitted_total and self._empty is not None and not self._empty.done():
            self._empty.set_result(None)

    async def _start(self, asked: StartRequest) -> StartResult:
        # Without answers, on a thread where none are awaited, there is nothing to plan; and ``begin`` tells if some
        # are. So the first try is made without reading anything, and everything is looked at only if it fails.
        has_answers = bool(asked.input.resume) or has_command_answer(asked.input)
        is_optimistic = not has_answers
        while True:
            if self.is_draining:
                raise draining_error()
            request = asked
            if has_answers:
                await self._check_agent(asked)
                resolved = await self._resolve(asked)
                if isinstance(resolved, RunRecord):
                    return StartResult(record=resolved)
                request = resolved
            try:
                prepared, plan = await self._plan(request, is_optimistic)
            except Rejected:
                found = await self._find_started(asked)
                if found is None:
                    raise
                return found  # it was refused because this very request was accepted before
            if plan is None:
                return StartResult(is_hydration=True)
            try:
                beginning = self._begin(request, prepared, plan)
                started = await run_shielded(beginning, partial(self._count_until_begun, asked.scope))
                if is_optimistic:
                    for notice in prepared.notices:
                        self._warn(notice)
                return started
            except AgentMismatch as error:
                raise _wrong_agent(error.agent) from None
            except RunExists as error:
                record = error.run
                if await asked.matches(record, self.store):
                    return StartResult(record=record)
                is_derived = request.input.run_id != asked.input.run_id  # then look again: it has just begun
                if not is_optimistic and not is_derived:
                    message = "this run id was used on this thread for another request"
                    raise Rejected(409, "run_exists", message, "/runId") from None
            except ThreadBusy as error:
                if not is_optimistic:  # else see first whether this one could run at all
                    await self._wait_for_thread(error.run, plan)
            except TooManyRuns:
                if not await self.maintenance.recover():  # what a process that died has left counts until it is ended
                    raise _too_many_runs() from None
            except ThreadMoved:
                pass  # a run ended with a question between the two: ask again whether this one may begin (INT-15)
            except InterruptTaken as error:
                message = f"interrupt {error.interrupt_id} is answered by another run"
                raise Rejected(409, "interrupt_taken", message, "/resume") from None
            is_optimistic = False
            if asked.is_disconnected():
                raise Disconnected

    async def _check_agent(self, asked: StartRequest) -> None:
        """Raise ``Rejected`` if the thread belongs to another agent: its answers start, or find, no run of this one."""
        try:
            owner = (await self.store.thread(asked.scope, asked.input.thread_id)).agent
        except NotFound:
            return
        if owner != asked.agent:
            raise _wrong_agent(owner)

    async def _wait_for_thread(self, run: RunRecord, plan: ResumePlan) -> None:
        if plan.is_retry or plan.is_abandoned:  # of two that try again one does, also if nobody watches it yet
            raise _interrupt_taken(plan, run)
        try:
            await self._wait_or_preempt(run)
        except Rejected as refusal:
            if refusal.code != "thread_busy" or not plan.contested:
                raise
            raise _interrupt_taken(plan, run) from None

    async def _find_started(self, asked: StartRequest) -> StartResult | None:
        """Find the run that this request started before, if it did."""
        resolved = await self._resolve(asked)
        return StartResult(record=resolved) if isinstance(resolved, RunRecord) else None

    async def _resolve(self, asked: StartRequest) -> RunRecord | StartRequest:
        """Find the run that this request started before; else return the request with its answers and stored id."""
        if has_command_answer(asked.input):
            found = await translate_command(asked, self.store)
            if isinstance(found, RunRecord):
                return found
            asked = found
        return await resolve_run(asked, self.store)

    async def _plan(self, asked: StartRequest, is_optimistic: bool) -> tuple[PreparedInput, ResumePlan | None]:
        """What the agent will see, and what the run may begin with. A guess tells no notices: it may not come true."""
        settings = self._settings
        prepared = await prepare_input(
            asked.input,
            history=settings.history,
            projections=self.projections,
            scope=asked.scope,
            allow_system_messages=settings.allow_system_messages,
        )
        if prepared.is_hydration:
            return prepared, None
        if is_optimistic:
            return prepared, plan_without_answers(prepared.input)
        plan = await plan_resume(
            prepared.input,
            store=self.store,
            scope=asked.scope,
            projections=self.projections,
            now=time.time(),
            history=settings.history,
            allow_system_messages=settings.allow_system_messages,
        )
        for notice in [*prepared.notices, *plan.notices]:
            self._warn(notice)
        return prepared, plan

    async def _begin(self, asked: StartRequest, prepared: PreparedInput, plan: ResumePlan) -> StartResult:
        settings, store, scope = self._settings, self.store, asked.scope
        seen = prepared.input
        thread_id, run_id = seen.thread_id, seen.run_id
        started = RunStartedEvent(
            thread_id=thread_id,
            run_id=run_id,
            protocol_version=PROTOCOL_VERSION,
            parent_run_id=seen.parent_run_id,
            input=_echoed_input(prepared.sent) if settings.echo_input else None,
        )
        prelude: list[Event] = [started, *prepared.prelude]
        try:
            # By itself it has nothing but ids in it, which were checked when they came.
            is_plain = len(prelude) == 1 and started.input is None
            lines = [encode_event(started)] if is_plain else await encode_all_checked(prelude)
        except DecodeError as error:  # an input that is one level deeper in its echo
            raise Rejected(422, "malformed_input", error.message, "") from None
        began = time.monotonic()
        lease, first = await store.begin(
            scope,
            thread_id,
            run_id,
            owner=self.owner,
            lease_seconds=settings.lease,
            input=asked.body,
            fingerprint=asked.fingerprint,
            events=lines,
            parent_run_id=seen.parent_run_id,
            claims=plan.claims,
            waiting=plan.waiting,
            max_running=settings.limits.runs_per_scope,
            agent=asked.agent,
            sent_run_id=asked.sent_run_id,
        )
        self.store_health.record_success(began)
        # A replayed agent uses answers where it asks; one that reads run.resume has used them when it is done.
        claims = plan.claims if plan.replay is None else ()
        live = LiveRun(
            store,
            lease,
            root_run_id=plan.root_run_id,
            window=settings.coalesce,
            claims=claims,
            max_event=settings.limits.event,
            max_held=settings.max_held,
            sends_on_interrupt=self.sends_on_interrupt,
            store_health=self.store_health,
            loop=self._loop,
        )
        beginning = RunContextLoader(
            self.projections,
            live,
            seen,
            plan,
            prelude,
            first.first > 1,
            asked.principal,
            asked.headers,
            settings.limits.state,
            settings.debug,
            restates_messages=bool(seen.resume and prepared.ignored_results),
        )
        key = (scope, thread_id, run_id)
        self.live[key] = live
        # In the next round of the event loop: its first event can be sent in this one.
        self._loop.call_soon(self._start_task, key, live, self._agents[asked.agent], beginning.load)
        return StartResult(live=live, first=first)

    def _start_task(self, key: Key, live: LiveRun, agent: Any, load: Callable[[], Awaitable[RunContext]]) -> None:
        driving = live.drive(agent, load, self._settings.cancel_grace)
        live.task = task = self._loop.create_task(driving, name=f"run {key[2]}")
        task.add_done_callback(lambda task: self._remove(key, task))
        if not isinstance(self.store, MemoryStore):  # which no other process can write a cancel request to
            live.watch = self._loop.create_task(self._listen_for_cancel(live))

    def _remove(self, key: Key, task: asyncio.Task[None]) -> None:
        del self.live[key]
        self._release(key[0])
        if not task.cancelled() and task.exception() is not None:
            log_event(_log, logging.ERROR, "the run was left open", error=task.exception(), thread=key[1], run=key[2])

    async def start_unstored(self, asked: StartRequest) -> UnstoredStart:
        """Start a run that is not stored. Raises ``Rejected`` or ``StoreUnavailable``."""
        scope, settings = asked.scope, self._settings
        self._admit(scope)
        try:
            unstored = await begin_unstored(asked, self.projections, settings, self._warn)
        except BaseException:
            self._release(scope)
            raise
        live = unstored.live
        self._unstored.add(live)
        driving = live.drive(self._agents[asked.agent], unstored.load, settings.cancel_grace)
        live.task = self._loop.create_task(driving, name=f"run {asked.input.run_id} (not stored)")

        def forget(_: asyncio.Task[None]) -> None:
            self._unstored.discard(live)
            self._release(scope)

        live.task.add_done_callback(forget)
        return unstored

    # A busy thread

    async def _wait_or_preempt(self, run: RunRecord) -> None:
        """Return when it is worth trying again. Raises ``Rejected``."""
        live = self.live.get((run.scope, run.thread_id, run.run_id))
        if live is None and (await self.maintenance.end_if_lost(run) or await self._wait_for_recovery(run)):
            return
        busy = self._settings.busy
        if live is not None and live.is_ending:
            await asyncio.wait([live.ended], timeout=self._settings.store_patience)
            if not live.ended.done():
                raise StoreUnavailable(f"the end of run {run.run_id!r} is not stored yet")
        elif busy == "queue":
            await self._wait_for_end_or_drain(run, live)
        elif busy == "replace" or (busy == "auto" and await self._is_unwatched(run, live)):
            try:
                await self.cancel(run.scope, run.thread_id, run.run_id)
                async with asyncio.timeout(self._settings.cancel_grace + 2.0):
                    await self._wait_for_end(run, live)
            except NotFound:
                return  # it has ended, and its thread was deleted
            except TimeoutError:
                raise Rejected(409, "thread_busy", "the run that is on does not stop", "/threadId") from None
        else:
            raise Rejected(409, "thread_busy", f"run {run.run_id} is on; cancel it or wait", "/threadId")

    async def _is_unwatched(self, run: RunRecord, live: LiveRun | None) -> bool:
        """Whether nobody watches a run."""
        return await (self._remote.cancel_if_unwatched(run) if live is None else live.is_unwatched())

    def find_watched(self, run: RunRecord) -> WatchedRun | None:
        """What somebody who watches a run that is on has to join; None if the run has ended meanwhile."""
        live = self.live.get((run.scope, run.thread_id, run.run_id))
        if live is not None or run.owner == self.owner:
            return live
        return self._remote.get(run)

    async def find_watched_on(self, scope: str, thread_id: str) -> WatchedRun | None:
        """The same for the run that is on, on a thread."""
        for key, live in self.live.items():
            if key[:2] == (scope, thread_id):
                return live
        runs = await self.store.runs(scope, thread_id)
        return self.find_watched(runs[-1]) if runs and runs[-1].is_running else None

    async def _wait_for_recovery(self, run: RunRecord) -> bool:
        """Whether somebody else ends the run, because its owner is gone; returns when that is done."""
        try:
            run = await self.store.run(run.scope, run.thread_id, run.run_id)
        except NotFound:
            return True
        if run.is_running and run.epoch > 1:
            try:
                async with asyncio.timeout(self._settings.cancel_grace):
                    await self._wait_for_end(run, None)
            except TimeoutError:
                return False  # this one has died too, or it cannot write
        return not run.is_running or run.epoch > 1

    async def _wait_for_end(self, run: RunRecord, live: LiveRun | None) -> None:
        if live is not None:
            await asyncio.shield(live.ended)
            return
        tail: Any = self.store.tail(run.scope, run.thread_id, run.last)
        try:
            async for batch in tail:
                if is_terminal(batch.events[-1]):
                    return
        except (NotFound, CursorExpired):
            return  # the whole thread is gone, so its run had ended
        finally:
            await tail.aclose()

    async def _wait_for_end_or_drain(self, run: RunRecord, live: LiveRun | None) -> None:
        """The same, but no longer than this process goes on: a run of another one may take hours."""
        waiting = [asyncio.ensure_future(self._wait_for_end(run, live)), asyncio.ensure_future(self._stopping.wait())]
        try:
            done, _ = await asyncio.wait(waiting, return_when=asyncio.FIRST_COMPLETED)
        finally:
            for one in waiting:
                one.cancel()
        for one in done:
            one.result()

    async def cancel(self, scope: str, thread_id: str, run_id: str) -> RunRecord:
        """Cancel a run, in whatever process it is; a run that has ended stays as it is. Raises ``NotFound``.

        If runs were derived from this one, the latest of them is cancelled.
        """
        record = await self.store.request_cancel(scope, thread_id, run_id)
        if record.outcome is not None:
            derived = await latest_derived(self.store, scope, thread_id, run_id)
            if derived is not None:
                record = await self.store.request_cancel(scope, thread_id, derived.run_id)
        live = self.live.get((scope, thread_id, record.run_id))
        if live is not None:
            live.cancel()
        return record

    async def cancel_thread(self, scope: str, thread_id: str) -> RunRecord | None:
        """Cancel the open run of a thread, in whatever process; None if there is none. Raises ``NotFound``."""
        running = (await self.store.thread(scope, thread_id)).running
        return None if running is None else await self.cancel(scope, thread_id, running)

    def withdraw(self, scope: str, thread_id: str, run_id: str) -> bool:
        """Have a request that waits for its turn in this process not run; gives whether there was one."""
        return self._queues.withdraw(scope, thread_id, run_id)

    async def _listen_for_cancel(self, live: LiveRun) -> None:
        """Hear cancel requests from other processes, until one holds."""
        lease = live.lease
        key = (lease.scope, lease.thread_id, lease.run_id)
        while not live.is_ending:
            try:
                if await self.store.cancel_requested(lease) == "always":
                    live.cancel()
                    return
                granted = await live.is_unwatched()
                if not live.is_ending:  # its end is the best answer
                    await self.store.settle_cancel(*key, granted=granted)
            except StoreError:
                await asyncio.sleep(_LISTEN_RETRY)


def _echoed_input(input: RunAgentInput) -> RunAgentInput:  # noqa: A002 - the protocol's word for it
    """An input for a log that stands alone: a run without a state began with ``{}``, which means the same (IN-11)."""
    return input if input.state is not None else replace(input, state={})


def _interrupt_taken(plan: ResumePlan, run: RunRecord) -> Rejected:
    message = f"interrupt {plan.contested[0]} is being answered by run {run.run_id}"
    return Rejected(409, "interrupt_taken", message, "/resume")


def _wrong_agent(owner: str) -> Rejected:
    message = f"this thread belongs to agent {owner!r}; run that agent, or use another threadId"
    return Rejected(409, "wrong_agent", message, "/threadId")


def _too_many_runs() -> Rejected:
    message = "too many runs are on; wait for one to end"
    return Rejected(429, "too_many_runs", message, headers={"retry-after": "1"})
