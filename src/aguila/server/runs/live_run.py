"""One run that this process owns: the task of its agent, its event pump, its lease and its viewers.

Viewers read the store, not this object, so they see only durable events.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Awaitable, Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from math import inf
from typing import TYPE_CHECKING, Any

from msgspec import UNSET

from aguila.agent.context import Ending, RunContext
from aguila.agent.execute import execute
from aguila.codec import encode, encode_event
from aguila.codec.logs import log_context, log_event
from aguila.errors import RunFailed, StaleLease, StoreError, StoreUnavailable
from aguila.protocol import Message, RunErrorEvent, TextPart, UserMessage, replace
from aguila.server.config.errors import Rejected
from aguila.server.runs.end_counts import count_end
from aguila.server.runs.environment import Environment
from aguila.server.runs.event_pump import EventPump
from aguila.server.runs.viewers import DISCONNECT_DELAY, Viewer, Viewers
from aguila.server.threads.client.cut_history import ThreadEnd, find_end
from aguila.server.threads.files import resolve_file
from aguila.server.threads.interrupts.records import interrupt_body
from aguila.server.threads.thread import OwnRun
from aguila.store import AnswerCancel, Effect, Lease, RunChange, RunEnd, RunKey, Store, ThreadUpdate
from aguila.store.encoding import UNSTORABLE
from aguila.telemetry import trace_fields

if TYPE_CHECKING:
    from aguila.telemetry.spans import RunSpan

_log = logging.getLogger("aguila.server")

_REPORT_AFTER = 1.0
"""Seconds of failing to store the end of a run after which its viewers receive RUN_ERROR."""

_RECHECK_INTERVAL = 0.25
"""Minimum seconds between two checks for viewers in other processes."""


_LISTEN_RETRY = 1.0
"""Seconds until a run listens again for cancel requests after the store has failed."""


_MAX_THREAD_ENDS = 4096
"""How many ends of threads are remembered."""

_TITLE_LENGTH = 60
_TITLE_SOURCE = 1_000
"""Characters of a derived title, and of a message that are looked at for it: a message may be large."""


def _encode_error(message: str, code: str | None) -> bytes:
    return encode_event(RunErrorEvent(message=message, code=code))


_FAILED = _encode_error("The run failed.", "internal")
_UNSTORED = _encode_error("The run could not be stored.", "store_unavailable")
_UNSTORABLE = _encode_error("The agent sent an invalid event.", "agent_output")
_UNSTORED_END = RunChange(events=[_UNSTORED], end=RunEnd(outcome="error"))


@dataclass(slots=True, eq=False, kw_only=True)
class LiveRun:
    """A run with its lease. It is the ``Services`` of its agent; its ``pump`` is the ``Sink``.

    ``store`` has its log; ``files`` is the store that has the uploaded files. Without ``own`` the run is not stored:
    its store is dropped with it, and no turn is stored with its end. ``claims`` are the answers that the end of
    the run settles.
    """

    environment: Environment
    store: Store
    key: RunKey
    lease: Lease
    agent_name: str
    root_run_id: str
    files: Store
    claims: Sequence[str]
    own: OwnRun | None
    span: RunSpan | None
    """The span of the run, if it is traced."""
    ended: asyncio.Future[None]
    """Done when this process writes nothing more for the run."""

    pump: EventPump = field(init=False)
    task: asyncio.Task[None] = field(init=False)
    viewers: Viewers = field(init=False, default_factory=Viewers)
    session: bytes | None = field(init=False, default=None)
    """The thread's session before this run."""
    default_title: str | None = field(init=False, default=None)
    """The title that a new thread gets if neither the agent nor a client has named it when the run ends."""
    is_ending: bool = field(init=False, default=False)
    """Whether the agent has returned."""

    _end_ids: frozenset[str] | None = field(init=False, default=None)
    _grace_timer: asyncio.TimerHandle | asyncio.Task[None] | None = field(init=False, default=None)
    _cancel_listener: asyncio.Task[None] | None = field(init=False, default=None)
    _failure_event: bytes = field(init=False, default=_FAILED)
    _is_cancelling: bool = field(init=False, default=False)
    _is_executing: bool = field(init=False, default=False)
    _stop_error: RunFailed | None = field(init=False, default=None)
    _closing_at: float = field(init=False, default=inf)  # when the current append of the end began

    update_task = None
    """See ``RemoteRun``: a viewer in this process counts at once."""

    # Services

    async def record(self, key: str, value: bytes) -> None:
        """See ``aguila.agent.Services``."""
        effect = Effect(root_run_id=self.root_run_id, name=key, value=value)
        await self.store.write(self.lease, RunChange(effects=[effect]))

    async def settle(self, interrupt_ids: Sequence[str]) -> None:
        """See ``aguila.agent.Services``."""
        await self.store.write(self.lease, RunChange(settles=interrupt_ids))

    async def file(self, file_id: str) -> tuple[bytes, str, str | None] | None:
        """See ``aguila.agent.Services``."""
        return await resolve_file(self.files, self.lease.scope, file_id)

    # Running the agent

    async def run(self, agent: Any, load: Callable[[], Awaitable[RunContext]]) -> None:
        """Run the agent to its end and close the run. ``load`` returns the context of the run."""
        ids = {"thread": self.lease.thread_id, "run": self.lease.run_id}
        if self.span is not None:
            self.span.enter()
            ids |= trace_fields()
        log_context.set(ids)  # of this task
        ending: Ending | None = None
        outcome = "lost"
        began = self.environment.loop.time()
        limit = self.environment.settings.limits.run_seconds
        timer: asyncio.TimerHandle | None = None
        if limit is not None:
            message = f"The run took longer than the {limit:g} seconds that this server allows."
            timer = self.environment.loop.call_later(limit, self.fail, message, "run_timeout")
        try:
            # One turn of the event loop ends the start, and in the next its request sends RUN_STARTED.
            await asyncio.sleep(0)
            await asyncio.sleep(0)
            if _log.isEnabledFor(logging.INFO):
                log_event(_log, logging.INFO, "run started")
            self.store.on_change(self.lease, self._look_for_cancel)
            loading = load()
            del load  # it holds the request, which must not live as long as the run
            ending = await self._execute(agent, loading)
            self.is_ending = True
            await self.pump.end()
            outcome = "lost" if isinstance(self.pump.store_error, StaleLease) else await self._close(ending)
            seconds = self.environment.loop.time() - began
            if outcome != "lost" and self.environment.counts is not None:  # a lost run is counted where it is ended
                count_end(self.environment.counts, self.agent_name, outcome, self.pump.end_event, seconds)
            if self.span is not None and self.own is not None and self.span.needs_messages:
                await self._set_messages(self.span)
            if _log.isEnabledFor(logging.INFO):
                log_event(_log, logging.INFO, "run ended", outcome=outcome, ms=round(seconds * 1000))
        except asyncio.CancelledError:
            message = "the end of the run is not stored; the next process that opens the store ends the run"
            log_event(_log, logging.WARNING, message)
            raise
        finally:
            self.is_ending = True
            if self.span is not None:
                usage, error = ((), None) if ending is None else (ending.usage, ending.error)
                self.span.end(outcome, usage, self.pump.store_error or error)
            for waiting in (timer, self._grace_timer, self._cancel_listener):
                if waiting is not None:
                    waiting.cancel()
            if not self.ended.done():
                self.ended.set_result(None)

    async def _execute(self, agent: Any, loading: Awaitable[RunContext]) -> Ending | None:
        """Call the agent, unless the run was stopped before. Return None if the run ends with an error of ours."""
        try:
            context = await loading
            self._is_executing = True
            if self._stop_error is not None:
                self._failure_event = _encode_error(self._stop_error.message, self._stop_error.code)
                return None
            if self._is_cancelling:
                if self.pump.store_error is None:
                    self.pump.put(context.writer.cancel())
                return Ending(outcome="cancelled", session=context.session)
            grace = self.environment.settings.timing.cancel_grace
            ending = await execute(
                agent, context, self.pump, self, cancel_grace=grace, stop_error=lambda: self._stop_error
            )
            end_ids = context.writer.last_messages
            if not end_ids and context.resume_input is None and (end := find_end(context.input.messages)) is not None:
                end_ids = {end}
            self._end_ids = frozenset(end_ids) if end_ids else None
            return ending
        except StoreUnavailable as error:
            self.pump.stop(error)
        except Rejected as error:  # too late for an HTTP error: RUN_STARTED is stored
            self._failure_event = _encode_error(error.message, error.code)
        except Exception as error:  # noqa: BLE001 - the run must be closed, whatever failed
            log_event(_log, logging.ERROR, "the executor failed", error=error)
        return None

    async def _close(self, ending: Ending | None) -> str:
        """Store the end of the run and return its outcome. Tries until the store accepts it."""
        pump, lease, environment = self.pump, self.lease, self.environment
        report: asyncio.TimerHandle | None = None
        if pump.store_error is not None:
            change = _UNSTORED_END
            report = self.environment.loop.call_later(_REPORT_AFTER, self._end_viewers)
        else:
            change = await self._build_end(ending)
        began = self.environment.loop.time()
        delay = 0.05
        while True:
            is_stored = False
            self._closing_at = time.monotonic()
            try:
                batch = (await self.store.write(lease, replace(change, after=pump.last))).batch
                is_stored = True
                if environment.counts is not None and pump.terminal is not None:
                    pump.count_append(environment.counts, pump.accepted_at)
                if self.own is not None:
                    ends, key = environment.thread_ends, (lease.scope, lease.thread_id)
                    last = batch.first + len(batch.events) - 1
                    ends[key] = ThreadEnd(last, self._end_ids, lease.run_id, time.monotonic())
                    ends.move_to_end(key)
                    if len(ends) > _MAX_THREAD_ENDS:
                        ends.popitem(last=False)
                return "error" if change.end is None else change.end.outcome
            except StaleLease as error:
                self.stop_writing(error)
                return "lost"
            except StoreUnavailable as error:
                environment.store_health.record_failure(error)
                if change.end is not None:
                    change = replace(change, end=replace(change.end, turn=None))  # readers compute it from the log
            except Exception as error:
                if change.events[-1] == _UNSTORABLE:
                    raise
                # An id that the store cannot keep, such as that of an interrupt. The run must be closed, or its thread
                # stays busy.
                log_event(_log, logging.ERROR, "the end of the run cannot be stored", error=error)
                change = RunChange(events=[*change.events[:-1], _UNSTORABLE], end=RunEnd(outcome="error"))
                continue
            finally:
                self._closing_at = inf
                if self.own is not None and not is_stored:
                    environment.threads.forget(lease.scope, lease.thread_id)
                if report is not None:
                    report.cancel()
            if self.environment.loop.time() - began >= _REPORT_AFTER and self.viewers:
                # The log must end with the event that the viewers receive.
                change = _UNSTORED_END
                self._end_viewers()
            await asyncio.sleep(delay)
            delay = min(delay * 2, 0.5)

    async def _build_end(self, ending: Ending | None) -> RunChange:
        """Return the last events of the run, and what is stored with them."""
        pump, own = self.pump, self.own
        events = pump.take_rest()
        if ending is None or pump.terminal is None:
            change = RunChange(events=[*events, self._failure_event], end=RunEnd(outcome="error"))
        else:
            session = b"null" if ending.session is None else encode(ending.session)
            update = None if self.default_title is None else ThreadUpdate(default_title=self.default_title)
            change = RunChange(
                events=[*events, pump.terminal],
                settles=self.claims if ending.outcome in ("success", "interrupt") else (),
                session=None if session == (b"null" if self.session is None else self.session) else session,
                end=RunEnd(
                    outcome=ending.outcome,
                    interrupts=[
                        (one.id, interrupt_body(one, is_asked=one.id in ending.asked)) for one in ending.interrupts
                    ],
                    update=update if ending.title is UNSET else ThreadUpdate(title=ending.title),
                ),
            )
        if own is None or change.end is None:
            return change
        stored = None if pump.appended is None or own.stored is None else [*own.stored, *pump.appended]
        own = replace(own, stored=stored, sent=None if pump.is_large else own.sent)
        try:
            turn = await self.environment.threads.close_run(own, change.events)
            change = replace(change, end=replace(change.end, turn=turn))
        except StoreError:
            pass  # the append that follows reports it
        except Exception as error:  # noqa: BLE001 - the run must be closed, and readers can compute the turn
            log_event(_log, logging.ERROR, "the turn of the run could not be computed", error=error)
        return change

    async def _set_messages(self, span: RunSpan) -> None:
        """Set the messages of the run on its span; not those of a thread that cannot be read any more."""
        with suppress(StoreError):
            view = await self.environment.threads.at(self.key.scope, self.key.thread_id, self.key.run_id)
            initial = view.initial_messages
            known = {message.id for message in initial}
            span.set_messages(initial, [one for one in view.conversation.messages if one.id not in known])

    # Stopping

    def cancel(self) -> None:
        """Stop the agent; the run ends as cancelled. Does nothing if the run is being cancelled or has ended."""
        if self._is_cancelling or self.is_ending:
            return
        self._is_cancelling = True
        if self._is_executing:
            self.task.cancel()

    def fail(self, message: str, code: str) -> None:
        """Stop the agent; the run ends with RUN_ERROR. Does nothing if the run is being cancelled or has ended."""
        if not self._is_cancelling and not self.is_ending:
            self._stop_error = RunFailed(message, code=code)
            self.cancel()

    def _look_for_cancel(self) -> None:
        """Look for cancel requests of other processes: the store reports that there may be one."""
        if self._cancel_listener is None and not self.is_ending:
            self._cancel_listener = self.environment.loop.create_task(self._listen_for_cancel())

    async def _listen_for_cancel(self) -> None:
        """Receive cancel requests of other processes until one is granted."""
        lease = self.lease
        while not self.is_ending:
            try:
                if await self.store.wait_for_cancel(lease) == "always":
                    self.cancel()
                    return
                granted = await self.is_unwatched()
                if not self.is_ending:  # otherwise the end of the run is the answer
                    await self.store.tell(self.key, AnswerCancel(granted))
            except StoreError:
                await asyncio.sleep(_LISTEN_RETRY)

    def is_waiting_for_store(self, since: float) -> bool:
        """Return whether an append of this run that began before a time has not ended."""
        return self._closing_at < since or self.pump.is_waiting(since)

    def stop_writing(self, error: StoreError) -> None:
        """Stop the agent: the log accepts no more events. Without its lease the run is ended by another process."""
        if isinstance(error, StaleLease) and self.pump.store_error is None:
            what = f"the run lost its lease: {error}"
            log_event(_log, logging.WARNING, what, thread=self.lease.thread_id, run=self.lease.run_id)
        self.pump.stop(error)
        self.cancel()

    def check_store_timeout(self, since: float) -> None:
        """Fail the run if its events have been waiting for the store since this time.

        If the store has written anything since, it is slow or busy, and the run waits.
        """
        if self.pump.is_late(since) and self.pump.store_error is None and not self.is_ending:
            error = StoreUnavailable("the store has written nothing within store_patience seconds")
            self.environment.store_health.record_failure(error)
            self.stop_writing(error)
            self._end_viewers()

    def _end_viewers(self) -> None:
        """Send the viewers the event that the log will end with as soon as the store works again."""
        for viewer in list(self.viewers):
            viewer.end_early(_UNSTORED)

    # Viewers

    def join(self, viewer: Viewer) -> None:
        """Add a viewer."""
        self.viewers.add(viewer)
        if self._grace_timer is not None:
            self._grace_timer.cancel()
            self._grace_timer = None

    def leave(self, viewer: Viewer, grace: float | None) -> None:
        """Remove a viewer. With ``grace``, cancel the run that many seconds after the last viewer left.

        If the last viewer was in another process, this can take twice as long.
        """
        self.viewers.discard(viewer)
        if self.viewers.left is not None:
            self.viewers.wake()
        if grace is not None and not self.viewers and not self.is_ending:
            self._schedule_grace_check(grace, grace)

    def _schedule_grace_check(self, delay: float, grace: float) -> None:
        def check() -> None:
            self._grace_timer = self.environment.loop.create_task(self._cancel_if_unwatched(grace))

        self._grace_timer = self.environment.loop.call_later(delay, check)

    async def _cancel_if_unwatched(self, grace: float) -> None:
        """Cancel the run unless it has viewers in another process. A viewer that joins here cancels this task."""
        try:
            is_watched = await self.store.is_watched(self.key, within=grace)
        except StoreError:
            is_watched = True  # unknown
        if is_watched:
            self._schedule_grace_check(max(grace, _RECHECK_INTERVAL), grace)
        else:
            self.cancel()

    async def is_unwatched(self) -> bool:
        """Return whether the run has no viewers in any process. Waits for disconnects that are on their way.

        Raises ``StoreUnavailable``.
        """
        until = self.environment.loop.time() + DISCONNECT_DELAY
        if not await self.viewers.wait_until_empty(DISCONNECT_DELAY):
            return False
        while await self.store.is_watched(self.key):
            if self.environment.loop.time() >= until:
                return False
            await asyncio.sleep(DISCONNECT_DELAY / 5)
        return not self.viewers


def derive_title(messages: Sequence[Message]) -> str | None:
    """Return the beginning of the first user message on one line; None without a text that can be a title."""
    first = next((one for one in messages if isinstance(one, UserMessage)), None)
    if first is None:
        return None
    content = first.content
    parts = [content] if isinstance(content, str) else [part.text for part in content if isinstance(part, TextPart)]
    title = " ".join(" ".join(part[:_TITLE_SOURCE] for part in parts).split())[:_TITLE_LENGTH].rstrip()
    return title if title and not UNSTORABLE.search(title) else None
