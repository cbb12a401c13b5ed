"""Layer: server. Who watches a run, here and in other processes.

Below: ``aguila.store``. Above: ``live`` (a run of this process) and ``runs``. Nothing here knows HTTP.

Who watches a run in the process that owns it is known there and costs nothing. A process that has viewers of a run it
does not own says so in the store, once for all of them, and again from time to time: a process that dies is forgotten.
It alone can not tell whether somebody watches, so it asks the owner to cancel the run only if nobody does.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Iterator
from functools import partial
from typing import Protocol

from aguila.codec.logs import log_event
from aguila.errors import StoreError
from aguila.store import RunRecord, Store

_log = logging.getLogger("aguila.server")

Key = tuple[str, str, str]
"""Scope, thread id, run id."""

DISCONNECT_DELAY = 0.25
"""Seconds that a hang-up may take to arrive: a client that stops and goes on at once does so on two connections."""

_OWNER_TIMEOUT = 2.0
"""Seconds that an owner has to say whether its run is watched."""


class Viewer(Protocol):
    """Somebody who watches a run."""

    def end_early(self, event: bytes | None) -> None:
        """End the stream, with this event if there is one: the log will not bring the end."""
        ...


class Viewers:
    """Those who watch a run in this process."""

    __slots__ = ("_all", "_waiting")

    def __init__(self) -> None:
        self._all: dict[Viewer, None] = {}
        self._waiting: list[asyncio.Future[None]] = []

    def __len__(self) -> int:
        return len(self._all)

    def __iter__(self) -> Iterator[Viewer]:
        return iter(list(self._all))

    def add(self, viewer: Viewer) -> None:
        """Somebody watches."""
        self._all[viewer] = None

    def discard(self, viewer: Viewer) -> None:
        """Somebody went away."""
        self._all.pop(viewer, None)
        if self._all:
            return
        waiting, self._waiting = self._waiting, []
        for waiter in waiting:
            if not waiter.done():
                waiter.set_result(None)

    async def wait_until_empty(self, seconds: float) -> bool:
        """Whether nobody watches, within some time: a browser's hanging up may arrive after its next request."""
        if not self._all:
            return True
        waiter: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._waiting.append(waiter)
        await asyncio.wait([waiter], timeout=seconds)
        waiter.cancel()
        return not self._all


class RemoteRun:
    """A run of another process as it is seen from this one."""

    __slots__ = ("_forget", "_is_registered", "_key", "_name", "_seconds", "_store", "update_task", "viewers")

    def __init__(self, store: Store, key: Key, name: str, seconds: float, forget: Callable[[], None]) -> None:
        self.viewers = Viewers()
        self.update_task: asyncio.Task[None] | None = None
        """See ``event_stream.WatchedRun``."""
        self._store = store
        self._key = key
        self._name = name
        self._seconds = seconds
        self._forget = forget
        self._is_registered = False

    def join(self, viewer: Viewer) -> None:
        """Somebody watches."""
        self.viewers.add(viewer)
        self._schedule_update()

    def leave(self, viewer: Viewer, grace: float | None) -> None:
        """Somebody went away. What follows from that is up to the owner."""
        self.viewers.discard(viewer)
        self._schedule_update()

    async def renew(self) -> None:
        """Say once more that somebody watches."""
        self._is_registered = False
        self._schedule_update()
        await self.wait_for_update()

    async def wait_for_update(self) -> None:
        """Return when the store knows what we know, or cannot be told."""
        if self.update_task is not None:
            await asyncio.wait([self.update_task])

    def _schedule_update(self) -> None:
        if self.update_task is None:
            self.update_task = asyncio.create_task(self._update_store())

    async def _update_store(self) -> None:
        scope, thread_id, run_id = self._key
        try:
            # One after the other: what was said last must be what is true.
            while self._is_registered != (len(self.viewers) > 0):
                self._is_registered = not self._is_registered
                if self._is_registered:
                    await self._store.watch(scope, thread_id, run_id, viewer=self._name, seconds=self._seconds)
                else:
                    await self._store.unwatch(scope, thread_id, run_id, viewer=self._name)
        except StoreError as error:  # it will be said again, and a note runs out by itself
            what = f"who watches the run could not be noted: {error}"
            log_event(_log, logging.INFO, what, thread=thread_id, run=run_id)
        finally:
            self.update_task = None
        if not self.viewers:
            self._forget()

    async def cancel_if_unwatched(self) -> bool:
        """Have the owner cancel the run if nobody watches it anywhere; gives whether it does, or the run has ended.

        Raises ``NotFound``, ``StoreUnavailable``.
        """
        if not await self.viewers.wait_until_empty(DISCONNECT_DELAY):
            return False
        await self.wait_for_update()
        await self._store.request_cancel(*self._key, unwatched=True)
        try:
            async with asyncio.timeout(_OWNER_TIMEOUT):
                run = await self._store.cancel_settled(*self._key)
        except TimeoutError:
            await self._store.settle_cancel(*self._key, granted=False)
            return False
        return run.cancel_requested or not run.is_running


class RemoteRuns:
    """The runs of other processes that are watched from this one. ``name`` is what they know us by."""

    def __init__(self, store: Store, name: str, seconds: float) -> None:
        self._store = store
        self._name = name
        self._seconds = seconds
        self._all: dict[Key, RemoteRun] = {}

    def get(self, record: RunRecord) -> RemoteRun:
        """A run for somebody who is about to watch it."""
        key = (record.scope, record.thread_id, record.run_id)
        found = self._all.get(key)
        if found is None:
            found = self._all[key] = self._create(key)
        return found

    async def cancel_if_unwatched(self, record: RunRecord) -> bool:
        """See ``RemoteRun``."""
        key = (record.scope, record.thread_id, record.run_id)
        return await (self._all.get(key) or self._create(key)).cancel_if_unwatched()

    async def renew(self) -> None:
        """Say of each once more that somebody watches it."""
        await asyncio.gather(*(remote.renew() for remote in list(self._all.values())))

    async def close(self) -> None:
        """Say that nobody does, for those whose streams are ending."""
        remotes = list(self._all.values())
        await asyncio.gather(*(remote.viewers.wait_until_empty(DISCONNECT_DELAY) for remote in remotes))
        await asyncio.gather(*(remote.wait_for_update() for remote in remotes))

    def _create(self, key: Key) -> RemoteRun:
        return RemoteRun(self._store, key, self._name, self._seconds, partial(self._forget, key))

    def _forget(self, key: Key) -> None:
        self._all.pop(key, None)
