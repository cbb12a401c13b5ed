"""Layer: server. What looks after the runs of a process from time to time: leases, lost owners, patience, retention.

Below: ``live``, ``viewers``, the store. Above: ``runs``, which has one and asks it for what cannot wait.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Mapping

from aguila.codec.logs import log_event
from aguila.errors import StaleLease, StoreUnavailable
from aguila.protocol import RunErrorEvent
from aguila.server.runs.event_encoding import encode_checked
from aguila.server.runs.run_task import LiveRun
from aguila.server.runs.viewers import Key, RemoteRuns
from aguila.server.settings import Settings
from aguila.server.store_health import StoreHealth
from aguila.store import Lease, RunEnd, RunRecord, Store

_log = logging.getLogger("aguila.server")

PRUNE_INTERVAL = 60.0

_PROBE_TIMEOUT = 2.0
"""Seconds, at most, after which a probe is told that the store does not work."""

_LOST = encode_checked(
    RunErrorEvent(message="The server that ran this stopped before it was finished. Try again.", code="run_lost")
)


class Maintenance:
    """Looks after ``live``, the runs of this process, and ends those that another process has left."""

    def __init__(
        self,
        store: Store,
        live: Mapping[Key, LiveRun],
        remote: RemoteRuns,
        *,
        owner: str,
        store_health: StoreHealth,
        settings: Settings,
    ) -> None:
        self._store = store
        self._live = live
        self._remote = remote
        self._owner = owner
        self._store_health = store_health
        self._settings = settings
        self._pruned_at = 0.0

    def start_tasks(self) -> list[asyncio.Task[None]]:
        """The tasks that do it; they end when they are cancelled."""
        return [
            asyncio.create_task(self._run_periodically(), name="aguila-keeper"),
            asyncio.create_task(self._check_store_timeouts(), name="aguila-patience"),
        ]

    async def check_store(self) -> None:
        """Raise ``StoreUnavailable`` unless the store can write, in a time that whoever asks for it will wait."""
        began = time.monotonic()
        seconds = min(_PROBE_TIMEOUT, self._settings.store_patience)
        try:
            async with asyncio.timeout(seconds):
                await self._store.check()
        except TimeoutError:
            if self._store.wrote_at <= began:  # else it has much to do, and does it
                raise StoreUnavailable(f"it did not write anything for {seconds:g} seconds") from None
        self._store_health.record_success(began)

    async def _run_periodically(self) -> None:
        while True:
            await asyncio.sleep(self._settings.lease / 3)
            try:
                await asyncio.gather(*(self._renew(live) for live in list(self._live.values())))
                await self._remote.renew()
                await self.recover()
                await self._prune()
                if self._store_health.is_failing:  # all of this may have been no more than reading
                    await self.check_store()
            except StoreUnavailable as error:
                self._store_health.record_failure(error)
            except Exception:  # noqa: BLE001 - the keeper must not die
                _log.exception("looking after the runs failed; trying again")

    async def _check_store_timeouts(self) -> None:
        """Fail the runs that wait for the store for too long: their viewers wait with them."""
        patience = self._settings.store_patience
        while True:
            before = time.monotonic()
            await asyncio.sleep(patience / 5)
            now = time.monotonic()
            if now - before < patience / 2:  # else this process was paused, and the store has had no time either
                for live in list(self._live.values()):
                    live.check_store_timeout(now - patience)

    async def _renew(self, live: LiveRun) -> None:
        try:
            if await self._store.renew(live.lease, self._settings.lease):
                live.cancel()
        except StaleLease as error:
            if not live.is_ending:
                live.lose_lease(error)

    async def recover(self) -> int:
        """Give every run whose owner died its terminal event; gives how many."""
        count = 0
        for run in await self._store.expired():
            if (run.scope, run.thread_id, run.run_id) not in self._live:
                count += await self.end_if_lost(run)
        return count

    async def end_if_lost(self, run: RunRecord) -> bool:
        """End a run whose owner is gone; gives whether it is."""
        lease: Lease | None = await self._store.take_over(run, owner=self._owner, lease_seconds=self._settings.lease)
        if lease is None:
            return False
        try:
            await self._store.append(lease, [_LOST], end=RunEnd(outcome="error"))
        except StaleLease:
            return True
        what = "the run had lost its owner and was closed"
        log_event(_log, logging.WARNING, what, thread=run.thread_id, run=run.run_id)
        return True

    async def _prune(self) -> None:
        retention = self._settings.retention
        if retention is None or time.monotonic() - self._pruned_at < PRUNE_INTERVAL:
            return
        self._pruned_at = time.monotonic()
        removed = await self._store.prune(retention)
        if removed:
            _log.info("removed %d threads beyond what is to be kept", removed)
