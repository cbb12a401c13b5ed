"""The objects that the handlers of an app share: the runs, the store and the open streams."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping, Sequence
from math import inf

from aguila.codec import encode
from aguila.codec.notices import Warn
from aguila.errors import NotFound, StoreUnavailable
from aguila.protocol import AgentCapabilities
from aguila.server.config.limits import WRITE_SECONDS
from aguila.server.config.options import Settings
from aguila.server.http.access import Access
from aguila.server.http.budget import BodyBudget, UnsentBytes
from aguila.server.http.front_end import FrontEnd
from aguila.server.http.request import Request
from aguila.server.http.stream import OpenStreams
from aguila.server.runs.runs import STOP_NOW_TIMEOUT, Runs
from aguila.server.threads.files import FileTypes
from aguila.store import Store
from aguila.telemetry import load_spans
from aguila.telemetry.counts import Counts

_LAST_READS = 2.0
"""Seconds that viewers have to read the end of drained runs."""


class Service:
    """The running app, as its handlers see it. It belongs to one event loop."""

    def __init__(
        self,
        runs: Runs,
        *,
        agents: Sequence[str],
        settings: Settings,
        capabilities: Mapping[str | None, AgentCapabilities],
        front_ends: Sequence[FrontEnd],
        access: Access,
        openapi: Callable[[str], bytes],
        warn: Warn,
        counts: Counts | None,
    ) -> None:
        self.loop = asyncio.get_running_loop()
        """If it is closed, none of the runs can end any more."""
        self.runs = runs
        self.access = access
        self.store: Store = runs.store
        self.file_types = FileTypes(runs.store)
        self.body_budget = BodyBudget(settings.limits.buffered)
        self.agents = list(agents)
        self.capabilities = {name: encode(declared) for name, declared in capabilities.items()}
        """The encoded capabilities of each agent; those of the app are at None."""
        self.headers_allowed = [name.lower() for name in settings.headers_allowed]
        self.front_ends = front_ends
        self.openapi = openapi
        """Returns the OpenAPI document of the app, which is reached at this address."""
        self.warn = warn
        self.spans = load_spans()
        """Makes the spans of runs; None if the process has set no tracer provider when the app starts."""
        self.counts = counts
        """What the instruments measure; None if nobody reads it."""
        self.is_stuck = False
        """Whether a stream is still open after the drain, because its client does not read."""
        self.unsent = UnsentBytes(settings.limits.buffered)
        self.compacting = UnsentBytes(settings.limits.buffered)
        """What runs hold that are compacted for readers."""
        self.probes = 0
        """The probes in progress."""
        self.streams = OpenStreams(settings.heartbeat, WRITE_SECONDS)
        self.cancel_after = settings.cancel_unwatched_after
        self.undeclared = settings.sends.undeclared_dialect
        """The dialect of readers that declare no protocol version."""
        self._checking = asyncio.Lock()
        self._checked_at = -inf
        self._check_error: StoreUnavailable | None = None

    async def drain(self) -> None:
        """Drain the runs, let their viewers read the end, then end the streams that are left.

        Those have slow clients, or follow a run of another process: their clients may reconnect elsewhere.
        """
        await self.runs.drain()
        self.is_stuck = not await self.streams.close(
            STOP_NOW_TIMEOUT if self.runs.is_stopping_now else _LAST_READS, STOP_NOW_TIMEOUT
        )

    async def check_store(self) -> None:
        """Check that the store can write: one check at a time, and none for a second after the last.

        Raises ``StoreUnavailable``.
        """
        async with self._checking:
            # The result counts for a second, unless a run has seen the opposite since.
            if self.loop.time() - self._checked_at < 1.0 and self.runs.store_health.is_failing == (
                self._check_error is not None
            ):
                if self._check_error is None:
                    return
                raise StoreUnavailable(str(self._check_error)) from self._check_error
            try:
                await self.runs.maintenance.check_store()
            except StoreUnavailable as error:
                self._check_error = error
                raise
            else:
                self._check_error = None
            finally:
                self._checked_at = self.loop.time()

    def stop_now(self) -> None:
        """Shorten a drain in progress: cancel the runs and end the streams."""
        self.runs.stop_now()
        self.streams.emptied.set()  # ends the current wait of ``close``

    async def check_agent(self, request: Request, thread_id: str) -> None:
        """Raise ``NotFound`` if the path names an agent and the thread belongs to another one."""
        if request.agent is None:
            return
        try:
            summary = (await self.store.thread(request.caller.scope, thread_id)).summary
        except NotFound:
            return
        if summary.agent != request.agent:
            raise NotFound(f"agent {request.agent!r} has no thread {thread_id!r}; it belongs to {summary.agent!r}")
