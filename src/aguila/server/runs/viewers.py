"""Track the viewers of a run, in this process and in others.

The owner of a run knows its viewers in its own process. A process with viewers of a run that it does not own registers
itself in the store, once for all of them, and renews the registration. The registration of a dead process expires. Such
a process cannot know whether the run has other viewers, so it asks the owner to cancel the run only if it has none.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from functools import partial
from typing import Protocol

from aguila.codec.logs import log_event
from aguila.errors import NotFound, StoreError
from aguila.store import AnswerCancel, Cancel, RunKey, RunRecord, Store, Watch

_log = logging.getLogger("aguila.server")

DISCONNECT_DELAY = 0.25
"""Seconds that a disconnect may take to arrive. A client that stops and continues at once uses two connections."""

_OWNER_TIMEOUT = 2.0
"""Seconds in which the owner of a run must report whether the run has viewers."""


class Viewer(Protocol):
    """A connection that reads a run's events."""

    def end_early(self, event: bytes | None) -> None:
        """End the stream now, with this event if there is one, instead of waiting for the end of the run."""
        ...


class Viewers(set[Viewer]):
    """The viewers of a run in this process."""

    left: asyncio.Future[None] | None = None
    """Done when the last viewer has left, if a task waits for that."""

    async def wait_until_empty(self, seconds: float) -> bool:
        """Wait until no viewer is left; return False if that takes longer than ``seconds``.

        The disconnect of a browser may arrive after its next request.
        """
        if self:
            await asyncio.wait([self.empty()], timeout=seconds)
        return not self

    def empty(self) -> asyncio.Future[None]:
        """Return a future that is done when the last viewer has left."""
        self.left = self.left or asyncio.get_running_loop().create_future()
        return self.left

    def wake(self) -> None:
        """Wake the tasks that wait for the last viewer to leave."""
        if self.left is not None and not self:
            self.left.set_result(None)
            self.left = None


class RemoteRun:
    """A run of another process that has viewers in this one."""

    __slots__ = ("_forget", "_is_registered", "_key", "_name", "_seconds", "_store", "update_task", "viewers")

    def __init__(self, store: Store, key: RunKey, name: str, seconds: float, forget: Callable[[], object]) -> None:
        self.viewers = Viewers()
        self.update_task: asyncio.Task[None] | None = None
        """The task that reports the viewers to other processes; None if there is nothing to report."""
        self._store = store
        self._key = key
        self._name = name
        self._seconds = seconds
        self._forget = forget
        self._is_registered = False

    def join(self, viewer: Viewer) -> None:
        """Add a viewer and register this process in the store."""
        self.viewers.add(viewer)
        self._schedule_update()

    def leave(self, viewer: Viewer, grace: float | None) -> None:
        """Remove a viewer. The owner of the run decides whether to cancel it, and when."""
        self.viewers.discard(viewer)
        self.viewers.wake()
        self._schedule_update()

    async def renew(self) -> None:
        """Renew the registration."""
        self._is_registered = False
        self._schedule_update()
        await self.wait_for_update()

    async def wait_for_update(self) -> None:
        """Wait until the registration in the store is up to date, or updating it has failed."""
        if self.update_task is not None:
            await asyncio.wait([self.update_task])

    def _schedule_update(self) -> None:
        if self.update_task is None:
            self.update_task = asyncio.create_task(self._update_store())

    async def _update_store(self) -> None:
        try:
            # One write at a time, so that the last write stores the current viewers.
            while self._is_registered != (len(self.viewers) > 0):
                self._is_registered = not self._is_registered
                seconds = self._seconds if self._is_registered else 0.0
                await self._store.tell(self._key, Watch(self._name, seconds))
        except NotFound:
            pass  # the thread was deleted
        except StoreError as error:  # ``renew`` repeats it, and a registration expires by itself
            what = f"the viewers of the run could not be registered: {error}"
            log_event(_log, logging.INFO, what, thread=self._key.thread_id, run=self._key.run_id)
        finally:
            self.update_task = None
        if not self.viewers:
            self._forget()

    async def cancel_if_unwatched(self) -> bool:
        """Ask the owner to cancel the run if it has no viewers in any process.

        Returns whether the owner cancels it, or the run has ended. Raises ``NotFound``, ``StoreUnavailable``.
        """
        if not await self.viewers.wait_until_empty(DISCONNECT_DELAY):
            return False
        await self.wait_for_update()
        await self._store.tell(self._key, Cancel(unwatched=True))
        try:
            async with asyncio.timeout(_OWNER_TIMEOUT):
                run = await self._store.wait_for_answer(self._key)
        except TimeoutError:
            await self._store.tell(self._key, AnswerCancel(granted=False))
            return False
        return run.cancel_requested or not run.is_running


class RemoteRuns:
    """The runs of other processes that have viewers in this one. ``name`` identifies this process in the store."""

    def __init__(self, store: Store, name: str, seconds: float) -> None:
        self._store = store
        self._name = name
        self._seconds = seconds
        self._all: dict[RunKey, RemoteRun] = {}

    def get(self, record: RunRecord) -> RemoteRun:
        """Return the run for a viewer that is about to join."""
        found = self._all.get(record.key)
        if found is None:
            found = self._all[record.key] = self._create(record.key)
        return found

    async def cancel_if_unwatched(self, record: RunRecord) -> bool:
        """See ``RemoteRun``."""
        return await (self._all.get(record.key) or self._create(record.key)).cancel_if_unwatched()

    async def renew(self) -> None:
        """Renew all registrations."""
        await asyncio.gather(*(remote.renew() for remote in list(self._all.values())))

    async def close(self) -> None:
        """Wait for the streams that are ending, and remove their registrations."""
        remotes = list(self._all.values())
        await asyncio.gather(*(remote.viewers.wait_until_empty(DISCONNECT_DELAY) for remote in remotes))
        await asyncio.gather(*(remote.wait_for_update() for remote in remotes))

    def _create(self, key: RunKey) -> RemoteRun:
        return RemoteRun(self._store, key, self._name, self._seconds, partial(self._all.pop, key, None))
