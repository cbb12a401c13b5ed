"""Periodic work of a process: renew leases, end lost runs, check store timeouts, apply retention."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Awaitable, Callable, Mapping
from typing import Any

from aguila.codec.logs import log_event
from aguila.errors import CursorExpired, NotFound, StaleLease, StoreUnavailable
from aguila.offload import offload
from aguila.server.runs.environment import Environment
from aguila.server.runs.live_run import LiveRun, derive_title
from aguila.server.runs.viewers import RemoteRuns
from aguila.server.threads.compaction import compact_events
from aguila.server.threads.log import read_log
from aguila.server.threads.requests import load_request
from aguila.store import (
    Compaction,
    MemoryStore,
    RunChange,
    RunEnd,
    RunKey,
    RunRecord,
    Taken,
    ThreadUpdate,
)
from aguila.store.archives.archive import RUN_LOST
from aguila.telemetry.instruments import LOST, RUNS

_log = logging.getLogger("aguila.server")

PRUNE_INTERVAL = 60.0

LOST_INTERVAL = 1.0
"""Seconds after which the runs of dead processes are looked for again."""

_PROBE_TIMEOUT = 2.0
"""Maximum seconds in which the store must answer a health check."""


class Maintenance:
    """Maintains ``live``, the runs of this process, and ends the runs of dead processes."""

    def __init__(self, environment: Environment, live: Mapping[RunKey, LiveRun], remote: RemoteRuns) -> None:
        self._store = environment.store
        self._owner = environment.owner
        self._store_health = environment.store_health
        self._settings = environment.settings
        self._counts = environment.counts
        self._live = live
        self._remote = remote
        self._pruned_at = 0.0

    def start_tasks(self) -> list[asyncio.Task[None]]:
        """Start the background tasks. They end when they are cancelled."""
        maintenance = lost_runs = self._settings.timing.lease / 3
        if not isinstance(self._store, MemoryStore):  # only this process has runs in a memory store
            lost_runs = min(lost_runs, LOST_INTERVAL)  # viewers wait for the end of a lost run
        work = {
            "aguila-maintenance": self._repeat(
                maintenance, self._maintain, "maintenance of the runs failed; trying again"
            ),
            "aguila-lost-runs": self._repeat(
                lost_runs, self.recover, "the runs of dead processes could not be ended; trying again"
            ),
            "aguila-store-timeout": self._check_store_timeouts(),
        }
        return [asyncio.create_task(one, name=name) for name, one in work.items()]

    async def check_store(self) -> None:
        """Raise ``StoreUnavailable`` unless the store can append within a short time, and no append waits for it."""
        began = time.monotonic()
        seconds = min(_PROBE_TIMEOUT, self._settings.timing.store_patience)
        try:
            async with asyncio.timeout(seconds):
                await self._store.check()
        except TimeoutError:
            if self._store.wrote_at <= began:  # otherwise it is only busy
                raise StoreUnavailable(f"the store wrote nothing for {seconds:g} seconds") from None
        self._store_health.record_success(began)
        if self._store_health.is_failing:
            raise StoreUnavailable("the store has failed, and events of runs still wait for it")

    async def _repeat(self, seconds: float, work: Callable[[], Awaitable[Any]], failure: str) -> None:
        """Do work every so many seconds. ``failure`` is logged when it raises an unexpected error."""
        while True:
            await asyncio.sleep(seconds)
            try:
                await work()
            except StoreUnavailable as error:
                self._store_health.record_failure(error)
            except Exception:  # noqa: BLE001 - maintenance must go on
                _log.exception(failure)

    async def _maintain(self) -> None:
        await asyncio.gather(*(self._renew(live) for live in list(self._live.values())))
        await self._remote.renew()
        await self._prune()
        if self._store_health.is_failing:  # the calls above may only have read
            await self.check_store()

    async def _check_store_timeouts(self) -> None:
        """Fail the runs whose events wait for the store for too long."""
        patience = self._settings.timing.store_patience
        while True:
            before = time.monotonic()
            await asyncio.sleep(patience / 5)
            now = time.monotonic()
            if now - before < patience / 2:  # otherwise this process was suspended, and the store with it
                for live in list(self._live.values()):
                    live.check_store_timeout(now - patience)

    async def _renew(self, live: LiveRun) -> None:
        try:
            renewal = RunChange(lease_seconds=self._settings.timing.lease)
            if (await self._store.write(live.lease, renewal)).cancel == "always":
                live.cancel()
        except StaleLease as error:
            if not live.is_ending:
                live.stop_writing(error)

    async def recover(self, only: RunKey | None = None) -> int:
        """End every run, or only this one, whose lease has expired or whose owner is dead; return how many."""
        lost = await self._store.take_over(self._owner, self._settings.timing.lease, only=only)
        for taken in lost:
            await self._end(taken)
        return len(lost)

    async def _end(self, taken: Taken) -> None:
        run, update = taken.run, None
        try:
            if run.first == 1:  # the first run names the thread
                title = derive_title((await load_request(self._store, run)).messages)
                update = None if title is None else ThreadUpdate(default_title=title)
            end = RunEnd(outcome="error", update=update)
            await self._store.write(taken.lease, RunChange(events=[RUN_LOST], end=end))
        except StaleLease:
            return
        if self._counts is not None:
            self._counts.add(RUNS, 1, LOST)
        what = "the owner of the run is dead; the run was ended with run_lost"
        log_event(_log, logging.WARNING, what, thread=run.thread_id, run=run.run_id)

    async def _prune(self) -> None:
        retention = self._settings.retention
        if retention is None or time.monotonic() - self._pruned_at < PRUNE_INTERVAL:
            return
        self._pruned_at = time.monotonic()
        swept = await self._store.sweep(retention)
        if swept.removed:
            _log.info("removed %d threads by retention", swept.removed)
        for run in swept.compactable:  # a round is bounded; the next one continues
            await self._compact(run)

    async def _compact(self, run: RunRecord) -> None:
        events: list[bytes] = []
        try:
            async for batches in read_log(self._store, run.scope, run.thread_id, run.first - 1, run.last):
                events += [event for batch in batches for event in batch.events]
            events = [*await offload(compact_events, events)]
            change = Compaction(run_id=run.run_id, first=run.first, last=run.last, events=events)
            await self._store.amend(run.scope, run.thread_id, change)
        except (NotFound, CursorExpired):
            return  # the thread was removed, or another process was faster
