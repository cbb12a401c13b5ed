"""Append the events of one run to the log, in groups.

An event after a pause is appended at once, and so is the first delta of an item. Events that arrive during an append,
or within a few milliseconds of the last one, share the next append, and deltas of the same item become one delta. At
most ``MAX_UNSTORED`` events of a run may wait for the log; each delta of its agent counts. At this limit the agent
waits.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Sequence
from math import inf
from time import monotonic
from typing import Any

from aguila.codec.logs import log_event
from aguila.errors import DecodeError, EncodeError, StoreError, StoreUnavailable
from aguila.offload import offload
from aguila.protocol import Event, RunErrorEvent, RunFinishedEvent
from aguila.server.interrupts.langgraph_pages import on_interrupt_events
from aguila.server.runs.event_encoding import (
    encode_checked,
    encode_checked_large,
    encode_deltas_checked,
    is_large_event,
)
from aguila.server.settings import Settings
from aguila.server.store_health import StoreHealth
from aguila.store import Lease, Store
from aguila.stream.delta_merger import ITEM_IDS, MAX_DELTA, DeltaMerger
from aguila.stream.verification.rules import REASONING_MESSAGE, TEXT, TOOL_CALL

_log = logging.getLogger("aguila.server")

MAX_UNSTORED = 64
"""How many events a run may be ahead of the log."""

_FLUSH_AT = MAX_UNSTORED * 3 // 4
"""How many pending events are appended before the coalescing window ends, so that the agent need not wait."""

_MAX_COALESCE_FACTOR = 4
"""The coalescing window is at most this many times the configured one while the event loop is busy."""

_MAX_PROJECTED = 1 << 20
"""A run of more bytes is not reduced at its end, which would take time and several times that memory."""

_MAX_KEPT = 1 << 18
"""Appended events of up to this many bytes are kept until the run ends, so that they need not be read again."""

_TERMINAL = frozenset({RunFinishedEvent, RunErrorEvent})

_OPENERS: dict[type[Any], str] = {item.opener: item.id_field for item in (TEXT, REASONING_MESSAGE, TOOL_CALL)}
_CLOSERS: dict[type[Any], str] = {item.closers[0]: item.id_field for item in (TEXT, REASONING_MESSAGE, TOOL_CALL)}


class EventPump:
    """The ``Sink`` of an agent: encodes its events and appends them with the run's lease.

    ``on_failure`` is called when the log accepts no more events. The caller then calls ``stop``.
    """

    __slots__ = (
        "_coalesce", "_count", "_deltas", "_flush_at", "_flushed_at", "_flushing", "_has_ended", "_has_large",
        "_in_flight", "_is_urgent", "_last_flush", "_lease", "_loop", "_max_event", "_merger", "_on_failure",
        "_pending", "_room_waiters", "_sends_on_interrupt", "_silent", "_size", "_store",
        "_store_health", "_texts", "_timer", "_window", "appended", "encoding_error", "is_full", "is_large",
        "last_delta", "store_error", "terminal",
    )  # fmt: skip

    def __init__(
        self,
        store: Store,
        lease: Lease,
        settings: Settings,
        *,
        store_health: StoreHealth,
        loop: asyncio.AbstractEventLoop,
        on_failure: Callable[[StoreError], None],
    ) -> None:
        self._store = store
        self._lease = lease
        self._store_health = store_health
        self._loop = loop
        self._on_failure = on_failure
        self._max_event = settings.limits.event
        self._sends_on_interrupt = settings.langgraph_interrupts
        self._window = self._coalesce = settings.coalesce
        self._pending: list[bytes | Event] = []
        self._has_large = False  # whether events in _pending are still to be encoded, in a thread
        # Deltas that follow _pending. They are encoded together when they are appended.
        self._deltas: list[Event] = []
        self._merger = DeltaMerger() if settings.merge_deltas else None
        self._texts: list[str] = []  # the texts of last_delta
        self._silent: dict[str, None] = {}  # open items that have no delta yet
        self._is_urgent = False  # whether to append as soon as the current append has ended
        self._count = 0  # events of the agent in _pending and _deltas
        self._in_flight = 0
        self._flush_at = _FLUSH_AT
        self._room_waiters: list[asyncio.Future[None]] = []
        self._timer: asyncio.TimerHandle | None = None
        self._flushing: asyncio.Task[None] | None = None
        self._flushed_at = inf  # when the current append began
        self._last_flush = loop.time()
        self._has_ended = False
        self._size = 0  # bytes of the events that were appended
        self.appended: list[bytes] | None = []
        """The events that were appended; None if they are more than ``_MAX_KEPT`` bytes."""
        self.is_full = False
        """See ``aguila.agent.Sink``."""
        self.last_delta: Event | None = None
        """See ``aguila.agent.Sink``."""
        self.is_large = False
        """Whether the run has sent a large event, or many bytes."""
        self.store_error: StoreError | None = None
        """Why the log accepts no more events."""
        self.encoding_error: EncodeError | DecodeError | None = None
        """Why a large event could not be encoded."""
        self.terminal: bytes | None = None
        """The terminal event. It is appended with the end of the run."""

    def put(self, events: Sequence[Event]) -> None:
        """See ``aguila.agent.Sink``."""
        if self.store_error is not None:
            raise self.store_error
        event: Any = events[0]
        id_field = ITEM_IDS.get(event.__class__)
        if (
            id_field is not None
            and len(events) == 1  # the common case
            and event.delta.__class__ is str
            and len(event.delta) <= MAX_DELTA
            and (item_id := getattr(event, id_field)).__class__ is str
            and (event.subagent_run_id is None or event.subagent_run_id.__class__ is str)
            and event.metadata is event.raw_event is event.timestamp is None
        ):
            # Its members have the declared types, so it can be encoded and checked later, together with others.
            if self._merger is None:
                self._deltas.append(event)
            else:
                self._texts = self._merger.add(event, item_id)
                self.last_delta = event
                if item_id in self._silent:
                    del self._silent[item_id]
                    self._is_urgent = True
        elif any(map(is_large_event, events)) and events[-1].__class__ not in _TERMINAL:
            # Encoded when it is appended. The agent waits for that in ``room``, which raises if it is malformed.
            self._encode_deltas()
            self._pending += events
            self._has_large = self.is_large = self.is_full = True
            self._count += len(events)
            self._flush_now()
            return
        else:
            lines = [encode_checked(event, self._max_event) for event in events]
            self._encode_deltas()
            if events[-1].__class__ in _TERMINAL:
                self.terminal = lines.pop()
                if self._sends_on_interrupt:
                    lines += [encode_checked(event, self._max_event) for event in on_interrupt_events(events[-1])]
            elif self._merger is not None:
                self._find_first_deltas(events)
            self._pending += lines
        self._count += len(events)
        if self._count >= self._flush_at:
            self.is_full = self._count + self._in_flight >= MAX_UNSTORED
            self._flush_now()
        elif self._is_urgent:
            self._flush_now()
        elif self._timer is None and self._flushing is None:
            self._schedule()

    def extend(self, text: str) -> None:
        """See ``aguila.agent.Sink``."""
        # The delta is waiting, so an append is scheduled.
        self._texts.append(text)
        self._count += 1
        if self._count >= self._flush_at:
            self.is_full = self._count + self._in_flight >= MAX_UNSTORED
            self._flush_now()

    async def room(self) -> None:
        """See ``aguila.agent.Sink``."""
        while self.is_full:
            if self.store_error is not None:
                raise self.store_error
            waiter = self._loop.create_future()
            self._room_waiters.append(waiter)
            await waiter
        if self.encoding_error is not None:
            raise self.encoding_error

    def stop(self, error: StoreError) -> None:
        """Drop pending events and refuse further ones with this error."""
        self.store_error = error
        self._drop_pending()

    def is_late(self, since: float) -> bool:
        """Return whether an append has been waiting since this time, and the store has written nothing meanwhile."""
        return self._flushing is not None and max(self._flushed_at, self._store.wrote_at) <= since

    def is_waiting(self, since: float) -> bool:
        """Return whether an append that began before this time has not ended."""
        return self._flushing is not None and self._flushed_at < since

    async def end(self) -> None:
        """Start no further append, and wait for the current one. An append that was only scheduled is not made."""
        self._has_ended = True
        if self._timer is not None:
            self._timer.cancel()
        if self._flushing is not None:
            await self._flushing

    async def take_rest(self) -> list[bytes]:
        """Return the events that are not appended yet, without the terminal one."""
        events = await self._take_pending()
        self._drop_pending()
        return events

    def _find_first_deltas(self, events: Sequence[Any]) -> None:
        """Note which items have no delta yet, and whether one of these events is the first delta of its item."""
        for event in events:
            cls = event.__class__
            if cls in _OPENERS:
                self._silent[getattr(event, _OPENERS[cls])] = None
            elif cls in _CLOSERS:
                self._silent.pop(getattr(event, _CLOSERS[cls]), None)
            elif cls in ITEM_IDS and getattr(event, ITEM_IDS[cls]) in self._silent:
                del self._silent[getattr(event, ITEM_IDS[cls])]
                self._is_urgent = True

    def _encode_deltas(self) -> None:
        deltas = self._take_deltas()
        if deltas:
            self._pending += encode_deltas_checked(deltas)

    def _take_deltas(self) -> Sequence[Event]:
        if self._merger is None:
            deltas, self._deltas = self._deltas, []
            return deltas
        self.last_delta = None
        return self._merger.take()

    def _schedule(self) -> None:
        due = self._last_flush + self._coalesce
        if self._loop.time() >= due:
            self._flush_now()
        else:
            self._timer = self._loop.call_at(due, self._flush_now)

    def _flush_now(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        if self._flushing is None and self._count:
            # monotonic() instead of loop.time(), which may be as old as the loop's last wait.
            self._flushed_at = inf
            self._flushing = self._loop.create_task(self._flush(monotonic()))

    async def _flush(self, scheduled_at: float) -> None:
        # While the event loop is busy, coalesce longer: about the time in which a run reaches MAX_UNSTORED.
        lag = monotonic() - scheduled_at
        self._coalesce = max(self._window, min(_MAX_COALESCE_FACTOR * self._window, MAX_UNSTORED * lag))
        # Other runs then use the time in which the agent waits, so append as much as possible at once.
        flush_at = MAX_UNSTORED if self._coalesce > self._window else _FLUSH_AT
        try:
            if self._is_urgent:
                await asyncio.sleep(0)  # if the agent has returned meanwhile, the end of the run needs no second append
            if self._has_ended:
                return
            self._in_flight = self._count
            self._flush_at = min(flush_at, MAX_UNSTORED - self._in_flight)
            events = await self._take_pending()
            self._flushed_at = monotonic()
            self._size += sum(map(len, events))
            if self._size > _MAX_PROJECTED:
                self.is_large = True
            await self._store.append(self._lease, events)
            if self.appended is not None:
                self.appended += events
                if self._size > _MAX_KEPT:
                    self.appended = None
        except Exception as error:  # noqa: BLE001 - a run cannot continue without its log, whatever failed
            self._on_failure(self._explain(error))
        finally:
            self._in_flight = 0
            self._flush_at = flush_at
            self._flushing = None
            self._last_flush = self._loop.time()
            self.is_full = self._count >= MAX_UNSTORED
            waiters, self._room_waiters = self._room_waiters, []
            for waiter in waiters:
                if not waiter.done():  # not cancelled
                    waiter.set_result(None)
        if not self._has_ended:
            if self._count >= flush_at or self._is_urgent:
                self._flush_now()
            elif self._count and self._timer is None:
                self._schedule()

    def _explain(self, error: Exception) -> StoreError:
        if isinstance(error, StoreUnavailable):
            self._store_health.record_failure(error)
        if isinstance(error, StoreError):
            return error
        lease, what = self._lease, "the events of the run could not be stored"
        log_event(_log, logging.ERROR, what, thread=lease.thread_id, run=lease.run_id, error=error)
        return StoreUnavailable(what)

    async def _take_pending(self) -> list[bytes]:
        """Return the pending events, encoded. From the first that cannot be encoded on, they are dropped."""
        self._encode_deltas()
        pending: list[Any] = self._pending
        self._pending = []
        self._count = 0
        self._is_urgent = False
        if self._has_large:
            self._has_large = False
            try:
                for at, event in enumerate(pending):
                    if event.__class__ is not bytes:
                        pending[at] = None  # so that the event is freed as soon as it is encoded
                        pending[at] = await offload(encode_checked_large, event, self._max_event)
                    event = None
            except (EncodeError, DecodeError) as error:
                self.encoding_error = error
                self._drop_pending()
                return pending[: pending.index(None)]
        return pending

    def _drop_pending(self) -> None:
        self._pending = []
        self._has_large = False
        self._take_deltas()
        self._count = 0
