"""Admit, start, find, cancel and drain the runs of this process."""

from __future__ import annotations

import asyncio
import logging
import time
from collections import OrderedDict
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any

from aguila.codec.logs import log_event, use_log_context
from aguila.codec.notices import Warn
from aguila.errors import NotFound, StoreError, StoreRefusal
from aguila.protocol import Event
from aguila.server.config.errors import Disconnected, Rejected, Withdrawn, draining_error
from aguila.server.config.options import Settings
from aguila.server.runs.admission import Admission, Place
from aguila.server.runs.context import load_context, new_id
from aguila.server.runs.environment import Environment
from aguila.server.runs.event_pump import EventPump
from aguila.server.runs.live_run import LiveRun
from aguila.server.runs.maintenance import Maintenance
from aguila.server.runs.refusals import Refusals
from aguila.server.runs.repeated import find_repeated, latest_derived
from aguila.server.runs.start import Plan, Starter
from aguila.server.runs.start_request import Started, StartRequest, StartResult
from aguila.server.runs.store_health import StoreHealth
from aguila.server.runs.turns import Turns, wait_for_start
from aguila.server.runs.viewers import RemoteRun, RemoteRuns
from aguila.server.threads.cache import Threads
from aguila.server.threads.client.cut_history import ThreadEnd
from aguila.server.threads.thread import MAX_REDUCED, OwnRun
from aguila.store import Begun, Cancel, RunKey, RunRecord, Store
from aguila.telemetry.counts import Counts
from aguila.telemetry.instruments import QUEUED, RUNNING

_log = logging.getLogger("aguila.server")

WatchedRun = LiveRun | RemoteRun
"""A run that counts its viewers: one of this process, or of another."""

STOP_NOW_TIMEOUT = 0.5
"""Maximum seconds of each step of a drain after ``stop_now``."""

_CANCEL_ATTEMPTS = 3
"""How many times a run's task is cancelled: to end the agent's grace period, then the attempts to store its end."""


class Runs:
    """The runs of one app in one process."""

    def __init__(
        self,
        agents: Mapping[str, Any],
        store: Store,
        settings: Settings,
        warn: Warn,
        *,
        closing: Callable[[Event], Sequence[Event]],
        counts: Counts | None,
    ) -> None:
        self.store = store
        self.threads = Threads(
            store, history=settings.history, unknown_history=settings.trust.unknown_history, warn=warn
        )
        self.store_health = StoreHealth(self._are_appends_waiting, counts)
        self.admission = Admission(settings.limits)
        self.owner = new_id()
        self.has_queue = settings.busy == "queue"
        """Whether a request may have to wait for its turn."""
        self.closing = closing
        """What is sent before the last event of a run."""
        self._loop = asyncio.get_running_loop()  # once: before Python 3.12 this is a system call
        self.live: dict[RunKey, LiveRun] = {}
        self.is_stopping_now = False
        self._unstored: set[LiveRun] = set()
        self._thread_ends: OrderedDict[tuple[str, str], ThreadEnd] = OrderedDict()
        self._starting: dict[RunKey, StartRequest] = {}
        self._agents = agents
        self._settings = settings
        self.turns = Turns(store)
        self._remote = RemoteRuns(store, self.owner, settings.timing.lease)
        self._maintenance_tasks: list[asyncio.Task[None]] = []
        environment = self._environment = Environment(
            thread_ends=self._thread_ends,
            store=store,
            threads=self.threads,
            settings=settings,
            owner=self.owner,
            store_health=self.store_health,
            closing=closing,
            warn=warn,
            loop=self._loop,
            counts=counts,
        )
        self.maintenance = Maintenance(environment, self.live, self._remote)
        self._starter = Starter(environment)
        self._refusals = Refusals(
            environment, self.live, self._remote, self.maintenance, self.admission, cancel=self.cancel
        )

    @property
    def is_draining(self) -> bool:
        """Whether no new runs are admitted."""
        return self.admission.draining.done()

    def _are_appends_waiting(self, since: float) -> bool:
        return any(live.is_waiting_for_store(since) for live in self.live.values())

    # Opening and draining

    async def open(self) -> None:
        """End the runs of dead processes and start the maintenance."""
        await self.maintenance.recover()
        self._maintenance_tasks = self.maintenance.start_tasks()

    def stop_admission(self) -> None:
        """Refuse new runs."""
        if not self.is_draining:
            self.admission.draining.set_result(None)

    async def drain(self) -> None:
        """Refuse new runs, let the running ones finish for a while, then end them with RUN_ERROR ``server_stopped``.

        A run whose end cannot be stored within ``store_patience`` is abandoned. The next process that opens the store
        ends it.
        """
        settings = self._settings
        self.stop_admission()
        await self._wait_until_empty(settings.drain)
        for live in [*self.live.values(), *self._unstored]:
            live.fail("The server stopped before the run had ended.", "server_stopped")
        await self._wait_until_empty(settings.timing.cancel_grace + settings.timing.store_patience)
        await self._cancel_tasks()

    def stop_now(self) -> None:
        """Shorten each remaining step of the drain to ``STOP_NOW_TIMEOUT``."""
        self.is_stopping_now = True
        self.admission.stop_waiting()

    async def close(self) -> None:
        """Drain, if that was not done, and end all tasks, within a bounded time."""
        if not self.is_draining:
            await self.drain()
        await self._cancel_tasks()  # also those of runs that began after the drain
        for task in self._maintenance_tasks:
            task.cancel()
        closing = [*self._maintenance_tasks, asyncio.create_task(self._remote.close())]
        _, pending = await asyncio.wait(closing, timeout=self._settings.timing.store_patience)
        for task in pending:
            task.cancel()

    async def _wait_until_empty(self, seconds: float) -> None:
        await self.admission.wait_until_empty(min(seconds, STOP_NOW_TIMEOUT) if self.is_stopping_now else seconds)

    async def _cancel_tasks(self) -> None:
        """End the tasks of the runs that are left."""
        tasks = {live.task for live in [*self.live.values(), *self._unstored]}
        for _ in range(_CANCEL_ATTEMPTS):
            if not tasks:
                return
            for task in tasks:
                task.cancel()
            tasks = (await asyncio.wait(tasks, timeout=STOP_NOW_TIMEOUT))[1]

    # Starting

    async def start(self, request: StartRequest) -> StartResult:
        """Start a run, or find the run that this request has started before.

        Of several requests for the same run, one begins it. The others wait for it, and need no place. Raises
        ``Rejected``, ``StoreUnavailable``, ``Withdrawn``, or ``Disconnected`` if the client has disconnected.
        """
        key = RunKey(request.scope, request.input.thread_id, request.input.run_id)
        while (other := self._starting.get(key)) is not None and not self.has_queue:
            await wait_for_start(other, request)
            if (found := await find_repeated(request, self.store)) is not None:
                return found
        if (key.scope, key.thread_id) in self.turns.queues:
            request.seen_until = self._find_seen(request, key)
            # Attaching to a run needs neither a turn nor a place.
            if (found := await find_repeated(request, self.store)) is not None:
                return found
        try:
            place = self.admission.admit(request)
        except Rejected:
            if other is not None:
                await wait_for_start(other, request)
            if (found := await find_repeated(request, self.store)) is None:
                raise
            return found
        self._starting[key] = request
        if self._environment.counts is not None:
            self._environment.counts.add(QUEUED, 1)
        if request.disconnected is not None:  # before the task is made: it does not begin if this is done already
            request.disconnected.add_done_callback(request.abandon)
        request.task = self._loop.create_task(self._start(request, place))
        request.task.add_done_callback(partial(self._end_start, request, place))
        try:
            return await asyncio.shield(request.task)  # a run that the store begins is never without its task
        except asyncio.CancelledError:
            request.check_waiting()
            if request.task is not None:  # it goes on without this request
                request.task.add_done_callback(_log_failure)
            raise

    async def _start(self, request: StartRequest, place: Place) -> StartResult:
        async with self.turns.turn(request):
            plan = self._starter.plan_quickly(request)
            while True:
                if self.admission.draining.done():
                    raise draining_error()
                try:
                    planned = plan or await self._starter.plan(request)
                    if not isinstance(planned, Plan):
                        return planned
                    plan = planned
                    new, began = self._starter.new_run(plan), time.monotonic()
                    request.is_beginning = True
                    begun = await self.store.begin(new)
                except (Rejected, StoreRefusal) as refusal:
                    request.is_beginning = False
                    request.check_waiting()
                    if (found := await find_repeated(request, self.store)) is not None:
                        return found
                    await self._refusals.resolve(refusal, request, plan)
                    plan = None
                else:
                    if self.store_health.is_failing:
                        self.store_health.record_success(began)
                    return self._own(self._environment, plan, begun, place)

    def _find_seen(self, request: StartRequest, key: RunKey) -> int | None:
        """Return the last event before the run that had not ended when a request came; None if none is known here."""
        thread = key.scope, key.thread_id
        for other, live in self.live.items():
            if (other.scope, other.thread_id) == thread and live.own is not None:
                return live.own.first - 1
        end = self._thread_ends.get(thread)
        return None if end is None or end.ended_at <= request.received_at else end.last - 1

    async def start_unstored(self, request: StartRequest) -> Started:
        """Start a run that is not stored. Raises ``Rejected`` or ``StoreUnavailable``."""
        place = self.admission.admit(request)
        try:
            return self._own(*await self._starter.begin_unstored(request), place)
        finally:
            self.admission.settle(place)

    def _own(self, environment: Environment, plan: Plan, begun: Begun, place: Place) -> Started:
        """Start the task of a run that has begun."""
        lease, first = begun.lease, begun.batch
        request, resume = plan.request, plan.resume
        loading = self._environment  # not that of an unstored run: sessions and history are in the store of the app
        if request.limits is not self._settings.limits:
            environment, loading = environment.limited_by(request.limits), loading.limited_by(request.limits)
        place.is_kept, place.is_new_thread = True, first.first == 1
        if not plan.is_quick:
            with use_log_context(lease.thread_id, lease.run_id):
                for notice in [*plan.prepared.notices, *plan.resume.notices]:
                    self._environment.warn(notice)
        own = OwnRun(
            lease=lease,
            first=first.first,
            sent=None if len(request.body) > MAX_REDUCED else request.input,
            parent_run_id=request.input.parent_run_id if plan.parent is None else plan.parent,
            stored=first.events,
        )
        live = LiveRun(
            environment=environment,
            store=environment.store,
            key=RunKey(lease.scope, lease.thread_id, lease.run_id),
            lease=lease,
            agent_name=request.agent,
            root_run_id=resume.root_run_id,
            files=self.store,
            # A replayed agent settles each answer where it asks. One that reads run.resume does not: its end does.
            claims=resume.claims if resume.replay is None else (),
            own=own if request.is_stored else None,
            span=request.span,
            ended=self._loop.create_future(),
        )
        last = first.first + len(first.events) - 1
        live.pump = EventPump(environment, lease, live.stop_writing, last, requested_at=request.received_at)
        if self._environment.counts is not None:
            self._environment.counts.add(RUNNING, 1)
        if request.is_stored:
            self.live[live.key] = live
        else:
            self._unstored.add(live)
        load = partial(load_context, loading, live, plan, first)
        run = live.run(self._agents[request.agent], load)
        live.task = self._loop.create_task(run, name=f"run {lease.run_id}")
        live.task.add_done_callback(partial(self._remove, live, place))
        return Started(live, first)

    def _end_start(self, request: StartRequest, place: Place, task: asyncio.Task[StartResult]) -> None:
        if self._environment.counts is not None:
            self._environment.counts.add(QUEUED, -1)
        request.task = None  # an error and its frames would hold each other, and with them the body
        if request.disconnected is not None:
            request.disconnected.remove_done_callback(request.abandon)
        key = RunKey(request.scope, request.input.thread_id, request.input.run_id)
        if self._starting.get(key) is request:
            del self._starting[key]
        if place.address is not None or not place.is_kept:
            self.admission.settle(place)

    def _remove(self, live: LiveRun, place: Place, task: asyncio.Task[None]) -> None:
        key = live.key
        if self._environment.counts is not None:
            self._environment.counts.add(RUNNING, -1)
        if self.live.get(key) is live:
            del self.live[key]
        self._unstored.discard(live)
        is_read = live.own is not None or not live.viewers  # unstored events are in memory until they are read
        self.admission.release(place, is_read=is_read)
        if not is_read:
            live.viewers.empty().add_done_callback(lambda _: self.admission.release(place))
        if not task.cancelled() and task.exception() is not None:
            log_event(
                _log,
                logging.ERROR,
                "the run was left open",
                error=task.exception(),
                thread=key.thread_id,
                run=key.run_id,
            )

    # Viewing

    def find_watched(self, run: RunRecord) -> WatchedRun | None:
        """Return the object that viewers of a running run register with; None if the run has ended meanwhile."""
        live = self.live.get(run.key)
        if live is not None or run.owner == self.owner:
            return live
        return self._remote.get(run)

    async def find_running(self, scope: str, thread_id: str) -> RunRecord | None:
        """Return the running run of a thread; None if there is no such run or thread."""
        try:
            running = (await self.store.thread(scope, thread_id)).summary.running
            return None if running is None else await self.store.run(RunKey(scope, thread_id, running))
        except NotFound:
            return None

    # Cancelling

    async def cancel(self, scope: str, thread_id: str, run_id: str) -> RunRecord:
        """Cancel a run of any process; do nothing if it has ended. Raises ``NotFound``.

        If runs were derived from this one, the latest of them is cancelled.
        """
        record = await self.store.tell(RunKey(scope, thread_id, run_id), Cancel())
        if record.outcome is not None:
            derived = await latest_derived(self.store, scope, thread_id, run_id)
            if derived is not None:
                record = await self.store.tell(derived.key, Cancel())
        live = self.live.get(record.key)
        if live is not None:
            live.cancel()
        return record

    async def cancel_thread(self, scope: str, thread_id: str) -> RunRecord | None:
        """Cancel the running run of a thread, in any process; None if there is none. Raises ``NotFound``."""
        running = (await self.store.thread(scope, thread_id)).summary.running
        return None if running is None else await self.cancel(scope, thread_id, running)


def _log_failure(task: asyncio.Task[StartResult]) -> None:
    """Log why a run could not begin after its request was cancelled."""
    error = None if task.cancelled() else task.exception()
    if error is not None and not isinstance(error, StoreError | Rejected | Disconnected | Withdrawn):
        _log.error("a run could not begin", exc_info=error)
