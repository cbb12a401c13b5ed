"""Append the events of one run to the log, in groups.

An event after a pause is appended at once, and so is the first delta of an item. Events that arrive during an append,
or within a few milliseconds of the last one, share the next append, and deltas of the same item become one delta. At
most ``MAX_AHEAD`` events of a run may wait for the log; each delta of its agent counts, and a large event counts as
several. At this limit the agent waits. The terminal event is only kept: ``LiveRun`` appends it with the end of the run.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from math import inf
from time import monotonic

from aguila.codec.json.encoder import encode_strict
from aguila.codec.logs import log_event
from aguila.errors import StoreError, StoreUnavailable
from aguila.protocol import Event, RunErrorEvent, RunFinishedEvent
from aguila.server.runs.environment import Environment
from aguila.server.threads.thread import MAX_REDUCED
from aguila.store import Lease, RunChange
from aguila.stream.delta_merger import MAX_MERGED, DeltaMerger
from aguila.telemetry.counts import Counts
from aguila.telemetry.instruments import APPEND, FIRST_EVENT

_log = logging.getLogger("aguila.server")

MAX_AHEAD = 64
"""How many events a run may be ahead of the log. Every ``MAX_MERGED`` bytes of an event count as one more."""

COALESCE = 0.005
"""Seconds for which events are buffered, so that they are stored and sent together."""

_MAX_KEPT = 1 << 18
"""Appended events of up to this many bytes are kept until the run ends, so that they need not be read again."""

_TERMINAL = (RunFinishedEvent, RunErrorEvent)


@dataclass(slots=True, eq=False)
class EventPump:
    """The ``Sink`` of an agent: encodes its events and appends them with the run's lease.

    ``on_failure`` is called when the log accepts no more events. The caller then calls ``stop``.
    """

    environment: Environment
    lease: Lease
    on_failure: Callable[[StoreError], None]
    last: int
    """The number of the last event in the log."""
    requested_at: float | None = None
    """When the run was requested; None once an event of its agent is stored."""

    appended: list[bytes] | None = field(init=False, default_factory=list[bytes])
    """The events that were appended; None if they are more than ``_MAX_KEPT`` bytes."""
    is_full: bool = field(init=False, default=False)
    """See ``aguila.agent.Sink``."""
    is_large: bool = field(init=False, default=False)
    """Whether the run has sent too many bytes to reduce them at its end."""
    store_error: StoreError | None = field(init=False, default=None)
    """Why the log accepts no more events."""
    terminal: bytes | None = field(init=False, default=None)
    """The terminal event. It is appended with the end of the run."""
    end_event: RunFinishedEvent | RunErrorEvent | None = field(init=False, default=None)
    """The terminal event before it was encoded."""

    accepted_at: float = field(init=False, default=0.0)
    """When the first event was accepted of those that wait, or of the last append."""

    _merger: DeltaMerger = field(init=False, default_factory=DeltaMerger)
    _begun: set[str] = field(init=False, default_factory=set[str])  # items that have a delta
    _is_urgent: bool = field(init=False, default=False)  # whether to append without waiting for the window
    _lines: list[bytes] = field(init=False, default_factory=list[bytes])  # the deltas in the merger follow them
    _waiting: int = field(init=False, default=0)  # events of the agent in _lines and in the merger
    _in_flight: int = field(init=False, default=0)  # events that are being appended
    _size: int = field(init=False, default=0)  # bytes of all events so far, without those that wait
    _task: asyncio.Task[None] | None = field(init=False, default=None)  # appends, while events wait
    _wakeup: asyncio.Event | None = field(init=False, default=None)  # set to append before the window has passed
    _window: float = field(init=False, default_factory=lambda: COALESCE)
    _room_waiters: list[asyncio.Future[None]] = field(init=False, default_factory=list[asyncio.Future[None]])
    _appending_since: float = field(init=False, default=inf)
    _appended_at: float = field(init=False, default_factory=monotonic)
    _has_ended: bool = field(init=False, default=False)

    def put(self, events: Sequence[Event]) -> None:
        """See ``aguila.agent.Sink``."""
        if self.store_error is not None:
            raise self.store_error
        if not self._waiting:
            self.accepted_at = monotonic()
        settings = self.environment.settings
        for event in events:
            item_id = self._merger.add(event) if settings.sends.merge_deltas else None
            if item_id is not None:
                if item_id not in self._begun:
                    self._begun.add(item_id)
                    self._is_urgent = True
                continue
            line = encode_strict(event, settings.limits.event)
            self._lines += map(encode_strict, self._merger.take())
            if isinstance(event, _TERMINAL):
                self.terminal, self.end_event = line, event
                self._lines += [encode_strict(one, settings.limits.event) for one in self.environment.closing(event)]
            else:
                self._lines.append(line)
                self._waiting += len(line) // MAX_MERGED
        self._waiting += len(events)
        self.is_full = self._waiting + self._in_flight >= MAX_AHEAD
        if self._wakeup is None:
            if self.terminal is None:
                self._wakeup = asyncio.Event()
                self._task = self.environment.loop.create_task(self._append_groups(self._wakeup))
        elif self.is_full or self._is_urgent:
            self._wakeup.set()

    async def room(self) -> None:
        """See ``aguila.agent.Sink``."""
        while self.is_full:
            if self.store_error is not None:
                raise self.store_error
            waiter = self.environment.loop.create_future()
            self._room_waiters.append(waiter)
            await waiter

    def stop(self, error: StoreError) -> None:
        """Drop pending events and refuse further ones with this error."""
        self.store_error = error
        self.take_rest()

    def is_late(self, since: float) -> bool:
        """Return whether an append has been waiting since this time, and the store has written nothing meanwhile."""
        return max(self._appending_since, self.environment.store.wrote_at) <= since

    def is_waiting(self, since: float) -> bool:
        """Return whether an append that began before this time has not ended."""
        return self._appending_since < since

    async def end(self) -> None:
        """Start no further append, and wait for the current one."""
        self._has_ended = True
        if self._wakeup is not None:
            self._wakeup.set()
        if self._task is not None:
            await self._task

    def take_rest(self) -> list[bytes]:
        """Remove the events that are not appended yet, without the terminal one, and return them."""
        self._lines += map(encode_strict, self._merger.take())
        lines, self._lines = self._lines, []
        self._waiting, self._is_urgent = 0, False
        self._size += sum(map(len, lines))
        self.is_large = self._size > MAX_REDUCED
        return lines

    def count_append(self, counts: Counts, accepted_at: float) -> None:
        """Record an append whose first event was accepted at this time, now that the store has it."""
        now = monotonic()
        counts.record(APPEND, now - accepted_at)
        if self.requested_at is not None:
            counts.record(FIRST_EVENT, now - self.requested_at)
            self.requested_at = None

    async def _append_groups(self, wakeup: asyncio.Event) -> None:
        while self._waiting and not self._has_ended:
            if self.is_full or self._is_urgent:
                await asyncio.sleep(0)  # if the agent returns now, the end of the run needs no second append
            else:
                when = self._appended_at + self._window
                wakeup.clear()  # of what was put during the last append
                with suppress(TimeoutError):
                    async with asyncio.timeout(when - monotonic()):
                        await wakeup.wait()
                # While the event loop is busy, the window is about the time in which a run reaches MAX_AHEAD.
                self._window = max(COALESCE, min(4 * COALESCE, MAX_AHEAD * (monotonic() - when)))
            if self._has_ended:
                break
            self._in_flight = self._waiting
            lines, accepted_at = self.take_rest(), self.accepted_at
            self._appending_since = monotonic()
            try:
                await self.environment.store.write(self.lease, RunChange(events=lines))
                self.last += len(lines)
            except Exception as error:  # noqa: BLE001 - a run cannot continue without its log, whatever failed
                self.on_failure(self._explain(error))
            else:
                if self.environment.counts is not None:
                    self.count_append(self.environment.counts, accepted_at)
                if self.appended is not None:
                    self.appended = [*self.appended, *lines] if self._size <= _MAX_KEPT else None
            finally:
                self._appending_since, self._appended_at, self._in_flight = inf, monotonic(), 0
                self.is_full = self._waiting >= MAX_AHEAD
                waiters, self._room_waiters = self._room_waiters, []
                for waiter in waiters:
                    if not waiter.done():  # not cancelled
                        waiter.set_result(None)
        self._task = self._wakeup = None

    def _explain(self, error: Exception) -> StoreError:
        if isinstance(error, StoreUnavailable):
            self.environment.store_health.record_failure(error)
        if isinstance(error, StoreError):
            return error
        lease, what = self.lease, "the events of the run could not be stored"
        log_event(_log, logging.ERROR, what, thread=lease.thread_id, run=lease.run_id, error=error)
        return StoreUnavailable(what)
