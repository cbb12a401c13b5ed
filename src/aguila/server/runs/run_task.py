"""One run that this process owns: the task of its agent, and the pump that appends its events to the log.

The pump commits in groups. An event after a pause is appended at once. Events that arrive during an append, or within a
few milliseconds of the last one, share the next append. A run may be ``MAX_UNSTORED`` events ahead of the log; then its
agent waits. The terminal event is appended in the transaction that closes the run. Viewers read the store, not this
object, so they see only durable events.
"""

from __future__ import annotations

import asyncio
import logging
import sys
from collections.abc import Awaitable, Callable, Sequence
from math import inf
from time import monotonic
from typing import Any

from aguila.agent.context import Ending, RunContext
from aguila.agent.executor import execute
from aguila.codec import encode, encode_event
from aguila.codec.json.text import MAX_SIZE, SHORT_JSON
from aguila.codec.logs import RunLogContext, log_event
from aguila.errors import DecodeError, EncodeError, StaleLease, StoreError, StoreUnavailable
from aguila.offload import offload
from aguila.protocol import Event, RunErrorEvent, RunFinishedEvent
from aguila.server.errors import Rejected
from aguila.server.files import resolve_file
from aguila.server.interrupts.langgraph_pages import on_interrupt_events
from aguila.server.interrupts.records import interrupt_body
from aguila.server.runs.event_encoding import (
    DELTAS,
    encode_checked,
    encode_checked_large,
    encode_deltas_checked,
    is_large_event,
)
from aguila.server.runs.viewers import DISCONNECT_DELAY, Viewer, Viewers
from aguila.server.store_health import StoreHealth
from aguila.store import Lease, RunEnd, Store
from aguila.stream.one_text import TextSequencer

_log = logging.getLogger("aguila.server")

MAX_UNSTORED = 64
"""How many events a run may be ahead of what is durable."""

_FLUSH_AT = MAX_UNSTORED * 3 // 4
"""How many gathered events are appended without waiting for the window to end: the agent can go on meanwhile."""

_MAX_COALESCE_FACTOR = 4
"""How many times longer than usual events may gather while the event loop is busy."""

_REPORT_AFTER = 1.0
"""Seconds of failing to store the end of a run after which its viewers are told."""

_RECHECK_INTERVAL = 0.25
"""Seconds, at least, after which an owner looks again whether somebody watches from another process."""

_TERMINAL = frozenset({RunFinishedEvent, RunErrorEvent})


class LiveRun:
    """A run with its lease. ``Sink`` and ``Services`` of its agent."""

    __slots__ = (
        "_claims",
        "_coalesce",
        "_deltas",
        "_encoding_error",
        "_failure_event",
        "_flush_at",
        "_flushed_at",
        "_flushing",
        "_grace_timer",
        "_has_ended",
        "_has_large",
        "_in_flight",
        "_is_cancelling",
        "_is_driving",
        "_last_flush",
        "_loop",
        "_max_event",
        "_pending",
        "_room_waiter",
        "_sends_on_interrupt",
        "_sequencer",
        "_store",
        "_store_error",
        "_store_health",
        "_terminal",
        "_timer",
        "_window",
        "ended",
        "is_full",
        "lease",
        "root_run_id",
        "session",
        "task",
        "viewers",
        "watch",
    )  # fmt: skip

    update_task = None
    """See ``event_stream.WatchedRun``: who watches a run of this process is known at once."""

    def __init__(
        self,
        store: Store,
        lease: Lease,
        *,
        root_run_id: str,
        window: float,
        claims: Sequence[str] = (),
        max_event: int = MAX_SIZE,
        max_held: int | None = None,
        sends_on_interrupt: bool = False,
        store_health: StoreHealth | None = None,
        loop: asyncio.AbstractEventLoop | None = None,
    ) -> None:
        self.lease = lease
        self._store_health = StoreHealth() if store_health is None else store_health
        self.root_run_id = root_run_id
        self.viewers = Viewers()
        self.task: asyncio.Task[None] | None = None
        self.watch: asyncio.Task[None] | None = None
        self._loop = asyncio.get_running_loop() if loop is None else loop
        self.ended: asyncio.Future[None] = self._loop.create_future()
        """Done when nothing more will be written by this process."""
        self._store = store
        self._max_event = max_event
        self._sequencer = None if max_held is None else TextSequencer(max_held, self._size_of)
        self._sends_on_interrupt = sends_on_interrupt
        self.session: bytes | None = None
        """The thread's session before this run."""
        self._window = self._coalesce = window
        self._claims = claims  # answers that count as used when the run ends in order: nothing but its end tells
        self._grace_timer: asyncio.TimerHandle | asyncio.Task[None] | None = None
        self._pending: list[bytes | Event] = []
        self._has_large = False  # in what is pending: events that are yet to be encoded, apart
        self._deltas: list[Event] = []  # what comes after those, and is encoded when it is appended
        self._in_flight = 0
        self._flush_at = _FLUSH_AT  # how many may gather before something has to be done about it
        self.is_full = False
        """See ``aguila.agent.Sink``."""
        self._room_waiter: asyncio.Future[None] | None = None
        self._timer: asyncio.TimerHandle | None = None
        self._flushing: asyncio.Task[None] | None = None
        self._flushed_at = inf  # when the store was asked to
        self._last_flush = self._loop.time()
        self._terminal: bytes | None = None
        self._store_error: StoreError | None = None
        self._encoding_error: EncodeError | DecodeError | None = None
        self._failure_event = _FAILED
        self._is_cancelling = False
        self._is_driving = False
        self._has_ended = False

    # Sink

    def put(self, events: Sequence[Event]) -> None:
        """See ``aguila.agent.Sink``."""
        if self._store_error is not None:
            raise self._store_error
        if self._sequencer is not None:
            events = self._sequencer.feed(events)
            if not events:
                return
        event: Any = events[0]
        if (
            len(events) == 1  # as nearly always
            and event.__class__ in DELTAS
            and event.delta.__class__ is str
            and len(event.delta) <= SHORT_JSON
            and event.message_id.__class__ is str
            and event.subagent_run_id is event.metadata is event.raw_event is event.timestamp is None
        ):
            # Its members are what its type says: it can wait for others, to be encoded and checked with them.
            self._deltas.append(event)
        elif any(map(is_large_event, events)) and events[-1].__class__ not in _TERMINAL:
            # Encoded when it is appended. The agent waits meanwhile, so it is told there what is wrong with it.
            self._encode_deltas()
            self._pending += events
            self._has_large = self.is_full = True
            self._flush_now()
            return
        else:
            lines = [encode_checked(event, self._max_event) for event in events]
            self._encode_deltas()
            if events[-1].__class__ in _TERMINAL:
                self._terminal = lines.pop()  # appended when the executor has returned what belongs to it
                if self._sends_on_interrupt:
                    lines += [encode_checked(event, self._max_event) for event in on_interrupt_events(events[-1])]
            self._pending += lines
        if len(self._pending) + len(self._deltas) >= self._flush_at:
            self.is_full = self._count_unstored() >= MAX_UNSTORED
            self._flush_now()
        elif self._timer is None and self._flushing is None:
            self._schedule()

    def _size_of(self, event: Event) -> int:
        """Return the size of an event that may be held back. Raises what ``encode_checked`` does."""
        # A large one is never held.
        return sys.maxsize if is_large_event(event) else len(encode_checked(event, self._max_event))

    async def room(self) -> None:
        """See ``aguila.agent.Sink``."""
        while self.is_full:
            if self._store_error is not None:
                raise self._store_error
            if self._room_waiter is None:
                self._room_waiter = self._loop.create_future()
            await asyncio.shield(self._room_waiter)
        if self._encoding_error is not None:
            raise self._encoding_error

    def _count_unstored(self) -> int:
        """How far the run is ahead of what is durable."""
        return len(self._pending) + len(self._deltas) + self._in_flight

    def _encode_deltas(self) -> None:
        if self._deltas:
            deltas, self._deltas = self._deltas, []
            self._pending += encode_deltas_checked(deltas)

    # Services

    async def record(self, key: str, value: bytes) -> None:
        """See ``aguila.agent.Services``."""
        await self._store.record(self.lease, self.root_run_id, key, value)

    async def settle(self, interrupt_ids: Sequence[str]) -> None:
        """See ``aguila.agent.Services``."""
        await self._store.settle(self.lease, interrupt_ids)

    async def file(self, file_id: str) -> tuple[bytes, str, str | None] | None:
        """See ``aguila.agent.Services``."""
        return await resolve_file(self._store, self.lease.scope, file_id)

    # The pump

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
        if self._flushing is None and (self._pending or self._deltas):
            # Not the loop's own time: that may be as old as the last time the loop waited.
            self._flushed_at = inf
            self._flushing = self._loop.create_task(self._flush(monotonic()))

    async def _flush(self, asked_at: float) -> None:
        # Wait longer for company while the event loop is busy: about as long as a full run takes to gather.
        lag = monotonic() - asked_at
        self._coalesce = max(self._window, min(_MAX_COALESCE_FACTOR * self._window, MAX_UNSTORED * lag))
        try:
            self._encode_deltas()
            self._in_flight = len(self._pending)
            self._flush_at = min(_FLUSH_AT, MAX_UNSTORED - self._in_flight)
            events = await self._take_pending()
            self._flushed_at = monotonic()
            await self._store.append(self.lease, events)
        except StaleLease as error:
            self.lose_lease(error)
        except Exception as error:  # noqa: BLE001 - whatever it is, the run cannot go on without its log
            if isinstance(error, StoreUnavailable):
                self._store_health.record_failure(error)
            else:
                self._log_event("the run could not be stored", logging.ERROR, error=error)
            self._fail(error if isinstance(error, StoreError) else StoreUnavailable("the log refused the events"))
        finally:
            self._in_flight = 0
            self._flush_at = _FLUSH_AT
            self._flushing = None
            self._last_flush = self._loop.time()
            self.is_full = self._count_unstored() >= MAX_UNSTORED
            if self._room_waiter is not None:
                self._room_waiter.set_result(None)
                self._room_waiter = None
        if not self._has_ended:
            count = self._count_unstored()
            if count >= _FLUSH_AT:
                self._flush_now()
            elif count and self._timer is None:
                self._schedule()

    async def _take_pending(self) -> list[bytes]:
        """Everything that has gathered, to be appended. What cannot be encoded is left out, with all that follows."""
        self._encode_deltas()
        pending: list[Any] = self._pending
        self._pending = []
        if self._has_large:
            self._has_large = False
            try:
                for at, event in enumerate(pending):
                    if event.__class__ is not bytes:
                        pending[at] = None  # so that the event is gone when it is encoded
                        pending[at] = await offload(encode_checked_large, event, self._max_event)
                    event = None
            except (EncodeError, DecodeError) as error:
                self._encoding_error = error
                self._drop_pending()
                return pending[: pending.index(None)]
        return pending

    def _drop_pending(self) -> None:
        self._pending = []
        self._has_large = False
        self._deltas = []

    def check_store_timeout(self, since: float) -> None:
        """Fail if what the agent said is not stored, and was to be since some time; the viewers are told at once.

        A store that has written something since is slow, or has much to do, and this run's turn will come.
        """
        is_late = self._flushing is not None and max(self._flushed_at, self._store.wrote_at) <= since
        if is_late and self._store_error is None and not self._has_ended:
            error = StoreUnavailable("what was to be stored is waiting for too long")
            self._store_health.record_failure(error)
            self._fail(error)
            self._end_viewers()

    def _fail(self, error: StoreError) -> None:
        """Nothing more of what the agent says can be kept: stop it."""
        self._store_error = error
        self._drop_pending()
        self._stop()

    # Ending

    def cancel(self) -> None:
        """Have the agent stop; the run ends as cancelled. Does nothing a second time, or when it is ending."""
        self._stop()

    def lose_lease(self, error: StaleLease) -> None:
        """Somebody else has ended the run, or will: stop the agent and write nothing more."""
        if self._store_error is None:
            self._log_event(f"the run was lost: {error}", logging.WARNING)
        self._fail(error)

    def _stop(self) -> None:
        if self._is_cancelling or self._has_ended:
            return
        self._is_cancelling = True
        if self.task is not None and self._is_driving:
            self.task.cancel()

    async def drive(self, agent: Any, load: Callable[[], Awaitable[RunContext]], cancel_grace: float) -> None:
        """Run the agent to its end and close the run. ``load`` gives what it needs to know."""
        with RunLogContext(self.lease.thread_id, self.lease.run_id):
            driving = self._drive(agent, load, cancel_grace)
            del load  # and the request with it: this lasts as long as the run
            await driving

    async def _drive(self, agent: Any, load: Callable[[], Awaitable[RunContext]], cancel_grace: float) -> None:
        ending: Ending | None = None
        began = self._loop.time()
        self._log_event("run started")
        try:
            try:
                context = await load()
                del load
                self._is_driving = True
                if self._is_cancelling and self._store_error is None:  # before it began: the agent is not called at all
                    self.put(context.writer.cancel())
                    ending = Ending(outcome="cancelled", session=context.session)
                elif not self._is_cancelling:
                    ending = await execute(agent, context, self, self, cancel_grace=cancel_grace)
            except StoreUnavailable as error:
                self._store_error = error
            except Rejected as error:  # by then the run had begun
                self._failure_event = _error(error.message, error.code)
            except Exception as error:  # noqa: BLE001 - the run must be closed, whatever it is
                self._log_event("the executor failed", logging.ERROR, error=error)
            self._has_ended = True
            if self._timer is not None:
                self._timer.cancel()
            if self._flushing is not None:
                await self._flushing
            outcome = "lost" if isinstance(self._store_error, StaleLease) else await self._close(ending)
            self._log_event("run ended", outcome=outcome, ms=round((self._loop.time() - began) * 1000))
        except asyncio.CancelledError:
            self._log_event(
                "the end of the run is not stored: whoever opens the store next will end it", logging.WARNING
            )
            raise
        finally:
            self._has_ended = True
            if self._grace_timer is not None:
                self._grace_timer.cancel()
            if self.watch is not None:
                self.watch.cancel()
            if not self.ended.done():
                self.ended.set_result(None)

    def _log_event(self, what: str, level: int = logging.INFO, **more: Any) -> None:
        log_event(_log, level, what, thread=self.lease.thread_id, run=self.lease.run_id, **more)

    async def _close(self, ending: Ending | None) -> str:
        """Store the end of the run; gives its outcome."""
        late: asyncio.TimerHandle | None = None
        if self._store_error is not None:
            events, end = [_UNSTORED], RunEnd(outcome="error")
            late = self._loop.call_later(_REPORT_AFTER, self._end_viewers)  # they have waited for long enough
        else:
            if self._sequencer is not None and self._terminal is None:
                self._pending += [encode_checked(event, self._max_event) for event in self._sequencer.flush()]
            events = await self._take_pending()
            is_whole = self._encoding_error is None or (ending is not None and ending.outcome == "error")
            if ending is None or self._terminal is None or not is_whole:
                events, end = [*events, self._failure_event], RunEnd(outcome="error")
            else:
                events, end = [*events, self._terminal], self._end(ending)
        self._drop_pending()
        began = self._loop.time()
        delay = 0.05
        while True:
            try:
                await self._store.append(self.lease, events, end=end)
                return end.outcome
            except StaleLease as error:
                self.lose_lease(error)
                return "lost"
            except StoreUnavailable as error:
                self._store_health.record_failure(error)
            finally:
                if late is not None:
                    late.cancel()
            if self._loop.time() - began >= _REPORT_AFTER and self.viewers:
                # What they were told must be what the log will say.
                events, end = [_UNSTORED], RunEnd(outcome="error")
                self._end_viewers()
            await asyncio.sleep(delay)
            delay = min(delay * 2, 0.5)

    def _end_viewers(self) -> None:
        """Tell the viewers what the log will say, when it can say anything again."""
        for viewer in self.viewers:
            viewer.end_early(_UNSTORED)

    def _end(self, ending: Ending) -> RunEnd:
        interrupts = [(one.id, interrupt_body(one, is_asked=one.id in ending.asked)) for one in ending.interrupts]
        session = encode(ending.session)
        is_changed = session != (b"null" if self.session is None else self.session)
        return RunEnd(
            outcome=ending.outcome,
            interrupts=interrupts,
            session=session if is_changed else None,
            settles=self._claims if ending.outcome in ("success", "interrupt") else (),
        )

    # Viewers

    @property
    def is_ending(self) -> bool:
        """Whether the agent has returned."""
        return self._has_ended

    def join(self, viewer: Viewer) -> None:
        """Somebody watches."""
        self.viewers.add(viewer)
        if self._grace_timer is not None:
            self._grace_timer.cancel()
            self._grace_timer = None

    def leave(self, viewer: Viewer, grace: float | None) -> None:
        """Somebody went away. With ``grace``, the run is cancelled that many seconds after the last one.

        If the last one watched from another process, it can be twice as many.
        """
        self.viewers.discard(viewer)
        if grace is not None and not self.viewers and not self._has_ended:
            self._schedule_grace_check(grace, grace)

    def _schedule_grace_check(self, delay: float, grace: float) -> None:
        def look() -> None:
            self._grace_timer = self._loop.create_task(self._cancel_if_unwatched(grace))

        self._grace_timer = self._loop.call_later(delay, look)

    async def _cancel_if_unwatched(self, grace: float) -> None:
        """Cancel the run if nobody watches from another process either. Whoever joins here cancels this task."""
        try:
            is_watched = await self._store.watched(self.lease, within=grace)
        except StoreError:
            is_watched = True  # not known
        if is_watched:
            self._schedule_grace_check(max(grace, _RECHECK_INTERVAL), grace)
        else:
            self.cancel()

    async def is_unwatched(self) -> bool:
        """Whether nobody watches, here or from another process, within the time that a hang-up may take.

        Raises ``StoreUnavailable``.
        """
        until = self._loop.time() + DISCONNECT_DELAY
        if not await self.viewers.wait_until_empty(DISCONNECT_DELAY):
            return False
        while await self._store.watched(self.lease):
            if self._loop.time() >= until:
                return False
            await asyncio.sleep(DISCONNECT_DELAY / 5)
        return not self.viewers


def _error(message: str, code: str) -> bytes:
    return encode_event(RunErrorEvent(message=message, code=code))


_FAILED = _error("The run failed.", "internal")
_UNSTORED = _error("The run could not be stored.", "store_unavailable")
