"""Admit, start, find, cancel and drain the runs of this process."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Mapping
from functools import partial
from typing import Any

from aguila.codec.logs import log_event
from aguila.codec.notices import Warn
from aguila.errors import NotFound, StoreError
from aguila.server.errors import Disconnected, Rejected
from aguila.server.history.client_history.cut_history import ThreadEnds
from aguila.server.history.projection import Projections
from aguila.server.http.event_stream import WatchedRun
from aguila.server.interrupts.derived_runs import latest_derived
from aguila.server.quotas import StorageQuotas
from aguila.server.runs.environment import Environment
from aguila.server.runs.maintenance import Maintenance
from aguila.server.runs.run_task import LiveRun
from aguila.server.runs.starting.busy_thread import BusyThreads
from aguila.server.runs.starting.capacity import Capacity
from aguila.server.runs.starting.run_context import RunContextLoader, new_id
from aguila.server.runs.starting.start_request import StartRequest, StartResult
from aguila.server.runs.starting.starter import RunStarter
from aguila.server.runs.starting.thread_queue import ThreadQueues
from aguila.server.runs.unstored import UnstoredStart, begin_unstored
from aguila.server.runs.viewers import Key, RemoteRuns
from aguila.server.settings import Settings
from aguila.server.store_health import StoreHealth
from aguila.store import RunRecord, Store

_log = logging.getLogger("aguila.server")

STOP_NOW_TIMEOUT = 0.5
"""Maximum seconds of each step of a drain after ``stop_now``."""

_CANCEL_ATTEMPTS = 3
"""How many times a run's task is cancelled: to end the agent's grace period, then the attempts to store its end."""

_LISTEN_RETRY = 1.0
"""Seconds until a run listens again for cancel requests after the store has failed."""


class Runs:
    """The runs of one app in one process."""

    def __init__(self, agents: Mapping[str, Any], store: Store, settings: Settings, warn: Warn) -> None:
        self.store = store
        self.projections = Projections(
            store, history=settings.history, unknown_history=settings.unknown_history, warn=warn
        )
        self.store_health = StoreHealth(self._are_appends_waiting)
        self.capacity = Capacity(settings.limits)
        self.quotas = StorageQuotas(settings.limits)
        self.owner = new_id()
        self.has_queue = settings.busy == "queue"
        """Whether a request may have to wait for its turn."""
        self.sends_on_interrupt = settings.langgraph_interrupts
        """Whether an interrupt is also sent as CUSTOM ``on_interrupt``."""
        self.live: dict[Key, LiveRun] = {}
        self.is_stopping_now = False
        self._unstored: set[LiveRun] = set()
        self._beginning: dict[Key, list[asyncio.Future[StartResult | None]]] = {}
        """Runs that are being started, with the requests that wait until the run has begun or could not begin."""
        self._loop = asyncio.get_running_loop()  # once: before Python 3.12 this is a system call
        self._agents = agents
        self._settings = settings
        self._queues = ThreadQueues(store)
        self._remote = RemoteRuns(store, self.owner, settings.lease)
        self._maintenance_tasks: list[asyncio.Task[None]] = []
        environment = Environment(
            thread_ends=ThreadEnds(),
            store=store,
            projections=self.projections,
            settings=settings,
            owner=self.owner,
            store_health=self.store_health,
            quotas=self.quotas,
            warn=warn,
            loop=self._loop,
        )
        self._environment = environment
        self.maintenance = Maintenance(environment, self.live, self._remote)
        draining = self.capacity.draining
        busy_threads = BusyThreads(
            environment, self.live, self._remote, self.maintenance, cancel=self.cancel, draining=draining
        )
        self._starter = RunStarter(
            environment, busy_threads, self.maintenance, draining=draining, launch=self._launch, adopt=self._adopt
        )

    @property
    def is_orphaned(self) -> bool:
        """Whether the event loop of these runs is closed, so that none of them can end."""
        return self._loop.is_closed()

    @property
    def is_draining(self) -> bool:
        """Whether no new runs are admitted."""
        return self.capacity.draining.is_set()

    def _are_appends_waiting(self, since: float) -> bool:
        return any(live.is_waiting_for_store(since) for live in self.live.values())

    # Opening and draining

    async def open(self) -> None:
        """End the runs of dead processes and start the maintenance."""
        await self.maintenance.recover()
        self._maintenance_tasks = self.maintenance.start_tasks()

    def stop_admission(self) -> None:
        """Refuse new runs."""
        self.capacity.draining.set()

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
        await self._wait_until_empty(settings.cancel_grace + settings.store_patience)
        await self._cancel_tasks()

    def stop_now(self) -> None:
        """Shorten each remaining step of the drain to ``STOP_NOW_TIMEOUT``."""
        self.is_stopping_now = True
        self.capacity.stop_waiting()

    async def close(self) -> None:
        """Drain, if that was not done, and end all tasks, within a bounded time."""
        if not self.is_draining:
            await self.drain()
        await self._cancel_tasks()  # also those of runs that began after the drain
        for task in self._maintenance_tasks:
            task.cancel()
        closing = [*self._maintenance_tasks, asyncio.create_task(self._remote.close())]
        _, pending = await asyncio.wait(closing, timeout=self._settings.store_patience)
        for task in pending:
            task.cancel()

    async def _wait_until_empty(self, seconds: float) -> None:
        await self.capacity.wait_until_empty(min(seconds, STOP_NOW_TIMEOUT) if self.is_stopping_now else seconds)

    async def _cancel_tasks(self) -> None:
        """End the tasks of the runs that are left."""
        tasks = {live.task for live in [*self.live.values(), *self._unstored] if live.task is not None}
        for _ in range(_CANCEL_ATTEMPTS):
            if not tasks:
                return
            for task in tasks:
                task.cancel()
            tasks = (await asyncio.wait(tasks, timeout=STOP_NOW_TIMEOUT))[1]

    # Starting

    async def check_capacity(self, scope: str, thread_id: str, run_id: str) -> None:
        """Raise ``Rejected`` if a request for this run will be refused for capacity, whatever its body.

        A request can always attach to a run that is stored or beginning.
        """
        refusal = self.capacity.refusal(scope)
        if refusal is None or (scope, thread_id, run_id) in self._beginning:
            return
        try:
            await self.store.run(scope, thread_id, run_id)
        except NotFound:
            if (scope, thread_id, run_id) not in self._beginning:
                raise refusal from None

    async def start(self, request: StartRequest) -> StartResult:
        """Start a run, or find the run that this request has started before.

        If several requests name the same run, one of them begins it. The others wait for it, and need no capacity.
        Raises ``Rejected``, ``StoreUnavailable``, or ``Disconnected`` if the client has disconnected.
        """
        scope, capacity = request.scope, self.capacity
        key = (scope, request.input.thread_id, request.input.run_id)
        # With a queue, an equal request keeps a place of its own: the client of the first may have disconnected.
        while key in self._beginning and (not self.has_queue or capacity.refusal(scope) is not None):
            waiter: asyncio.Future[StartResult | None] = self._loop.create_future()
            self._beginning[key].append(waiter)
            leaving = [] if request.disconnected is None else [request.disconnected]
            await asyncio.wait([waiter, *leaving], return_when=asyncio.FIRST_COMPLETED)
            if not waiter.done():
                raise Disconnected
            result = waiter.result()
            if result is not None and result.is_withdrawn:
                return result
            found = await self._starter.find_started(request)
            if found is not None:
                return found
        refusal = capacity.refusal(scope)
        if refusal is not None or (self.has_queue and self._queues.is_busy(scope, request.input.thread_id)):
            found = await self._starter.find_started(request)  # attaching to a run needs neither capacity nor a turn
            if found is not None:
                return found
            refusal = capacity.refusal(scope)
            if refusal is not None:
                if key in self._beginning:
                    return await self.start(request)
                raise refusal
        return await self._begin(request, key)

    async def _begin(self, request: StartRequest, key: Key) -> StartResult:
        self.capacity.admit(request.scope)
        waiters = self._beginning[key] = []
        result: StartResult | None = None
        try:
            if self.has_queue:
                release = partial(self.capacity.release, request.scope)
                result = await self._queues.start_in_turn(request, self._starter.start, release)
            else:
                result = await self._starter.start(request)
            return result
        finally:
            if not self.has_queue and (result is None or result.live is None):
                self.capacity.release(request.scope)
            self._end_beginning(key, waiters, result)

    def _adopt(self, key: Key, beginning: asyncio.Task[StartResult]) -> None:
        """Count a run whose request was cancelled while the store was beginning it: the run is executed anyway."""

        def end(task: asyncio.Task[StartResult]) -> None:
            self._end_beginning(key, waiters, None)
            error = None if task.cancelled() else task.exception()
            if task.cancelled() or error is not None:
                self.capacity.release(key[0])
            if error is not None and not isinstance(error, StoreError | Rejected):
                _log.error("a run could not begin", exc_info=error)

        self.capacity.admit(key[0])
        waiters = self._beginning[key] = []
        beginning.add_done_callback(end)

    def _end_beginning(
        self, key: Key, waiters: list[asyncio.Future[StartResult | None]], result: StartResult | None
    ) -> None:
        if self._beginning.get(key) is waiters:
            del self._beginning[key]
        for waiter in waiters:
            if not waiter.done():
                waiter.set_result(result)

    def _launch(self, live: LiveRun, agent: str, loader: RunContextLoader) -> None:
        lease = live.lease
        key = (lease.scope, lease.thread_id, lease.run_id)
        self.live[key] = live
        # In the next turn of the event loop, so that the first event is sent in this one.
        self._loop.call_soon(self._start_task, key, live, self._agents[agent], loader)

    def _start_task(self, key: Key, live: LiveRun, agent: Any, loader: RunContextLoader) -> None:
        driving = live.drive(agent, loader.load, self._settings.cancel_grace)
        live.task = task = self._loop.create_task(driving, name=f"run {key[2]}")
        task.add_done_callback(partial(self._remove, key))
        self.store.listen_for_cancel(live.lease, partial(self._look_for_cancel, live))

    def _remove(self, key: Key, task: asyncio.Task[None]) -> None:
        del self.live[key]
        self.capacity.release(key[0])
        if not task.cancelled() and task.exception() is not None:
            log_event(_log, logging.ERROR, "the run was left open", error=task.exception(), thread=key[1], run=key[2])

    async def start_unstored(self, request: StartRequest) -> UnstoredStart:
        """Start a run that is not stored. Raises ``Rejected`` or ``StoreUnavailable``."""
        scope, settings = request.scope, self._settings
        refusal = self.capacity.refusal(scope)
        if refusal is not None:
            raise refusal
        self.capacity.admit(scope)
        try:
            unstored = await begin_unstored(request, self._environment)
        except BaseException:
            self.capacity.release(scope)
            raise
        live = unstored.live
        self._unstored.add(live)
        driving = live.drive(self._agents[request.agent], unstored.loader.load, settings.cancel_grace)
        live.task = self._loop.create_task(driving, name=f"run {request.input.run_id} (not stored)")

        def remove(_: asyncio.Task[None]) -> None:
            self._unstored.discard(live)
            self.capacity.release(scope)

        live.task.add_done_callback(remove)
        return unstored

    # Viewing

    def find_watched(self, run: RunRecord) -> WatchedRun | None:
        """Return the object that viewers of a running run register with; None if the run has ended meanwhile."""
        live = self.live.get((run.scope, run.thread_id, run.run_id))
        if live is not None or run.owner == self.owner:
            return live
        return self._remote.get(run)

    async def find_watched_on(self, scope: str, thread_id: str) -> WatchedRun | None:
        """Return the object that viewers of a thread's running run register with; None if there is no such run."""
        for key, live in self.live.items():
            if key[:2] == (scope, thread_id):
                return live
        runs = await self.store.runs(scope, thread_id)
        return self.find_watched(runs[-1]) if runs and runs[-1].is_running else None

    # Cancelling

    async def cancel(self, scope: str, thread_id: str, run_id: str) -> RunRecord:
        """Cancel a run of any process; do nothing if it has ended. Raises ``NotFound``.

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
        """Cancel the running run of a thread, in any process; None if there is none. Raises ``NotFound``."""
        running = (await self.store.thread(scope, thread_id)).running
        return None if running is None else await self.cancel(scope, thread_id, running)

    async def withdraw(self, scope: str, thread_id: str, run_id: str) -> bool:
        """Withdraw the requests for a run that are queued in this process; see ``ThreadQueues.withdraw``."""
        return await self._queues.withdraw(scope, thread_id, run_id)

    def _look_for_cancel(self, live: LiveRun) -> None:
        if live.cancel_listener is None and not live.is_ending:
            live.cancel_listener = self._loop.create_task(self._listen_for_cancel(live))

    async def _listen_for_cancel(self, live: LiveRun) -> None:
        """Receive cancel requests of other processes until one is granted."""
        lease = live.lease
        while not live.is_ending:
            try:
                if await self.store.cancel_requested(lease) == "always":
                    live.cancel()
                    return
                granted = await live.is_unwatched()
                if not live.is_ending:  # otherwise the end of the run is the answer
                    await self.store.settle_cancel(lease.scope, lease.thread_id, lease.run_id, granted=granted)
            except StoreError:
                await asyncio.sleep(_LISTEN_RETRY)
