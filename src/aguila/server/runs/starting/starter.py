"""Start a run: find the run of a repeated request, plan the resume, and begin the run in the store."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Sequence
from functools import partial

import msgspec

from aguila.chat.own_metadata import notices_metadata
from aguila.codec.json.encoder import encode_simple
from aguila.codec.logs import RunLogContext
from aguila.codec.notices import Notice
from aguila.errors import (
    AgentMismatch,
    DecodeError,
    InterruptTaken,
    NotFound,
    QuotaExceeded,
    RunExists,
    StoreError,
    ThreadBusy,
    ThreadMoved,
    TooManyRuns,
)
from aguila.offload import is_large
from aguila.protocol import PROTOCOL_VERSION, Event, RunAgentInput, RunStartedEvent, replace
from aguila.server.errors import Disconnected, Rejected, draining_error
from aguila.server.history.client_history.agent_input import PreparedInput, prepare_input
from aguila.server.history.client_history.cut_history import infer_parent
from aguila.server.history.projection import Projection
from aguila.server.interrupts.derived_runs import find_run_using, resolve_run
from aguila.server.interrupts.langgraph_pages import has_command_answer, translate_command
from aguila.server.interrupts.plan import ResumePlan, plan_resume, plan_without_answers
from aguila.server.runs.environment import Environment
from aguila.server.runs.event_encoding import encode_all_checked
from aguila.server.runs.maintenance import Maintenance
from aguila.server.runs.run_task import LiveRun, RunStart
from aguila.server.runs.starting.busy_thread import BusyThreads
from aguila.server.runs.starting.capacity import too_many_runs
from aguila.server.runs.starting.run_context import RunContextLoader
from aguila.server.runs.starting.start_request import StartRequest, StartResult
from aguila.server.runs.thread_titles import derive_title
from aguila.server.runs.viewers import Key
from aguila.shield import run_shielded
from aguila.store import Batch, Lease, NewRun, RunRecord

_SMALL = 32 * 1024
"""A body of at most this many bytes has neither a large text nor very many messages."""

Launch = Callable[[LiveRun, str, RunContextLoader], None]
"""Starts the task of a run that has begun, given the name of its agent."""

Adopt = Callable[[Key, asyncio.Task[StartResult]], None]
"""Takes over the task that begins a run, if the request was cancelled meanwhile."""


class _StartPoint(msgspec.Struct, frozen=True, kw_only=True):
    """Where a run begins: its parent, if inferred (``cut_history``), and the number of the thread's last event."""

    parent: str | None = None
    after: int | None = None


_ANYWHERE = _StartPoint()
_NEW_THREAD = _StartPoint(after=0)


class RunStarter:
    """Starts admitted runs. ``launch`` takes over each run that has begun.

    If the caller of ``start`` is cancelled while the run begins in the store, ``adopt`` gets the task that begins it.
    """

    def __init__(
        self,
        environment: Environment,
        busy_threads: BusyThreads,
        maintenance: Maintenance,
        *,
        draining: asyncio.Event,
        launch: Launch,
        adopt: Adopt,
    ) -> None:
        self._environment = environment
        self._store = environment.store
        self._settings = environment.settings
        self._quotas = environment.quotas
        self._busy_threads = busy_threads
        self._maintenance = maintenance
        self._draining = draining
        self._launch = launch
        self._adopt = adopt

    async def start(self, request: StartRequest) -> StartResult:
        """Start a run, or find the run that this request has started before.

        Raises ``Rejected``, ``StoreUnavailable``, or ``Disconnected`` if the client has disconnected.
        """
        # A request without answers needs no plan, unless its thread has open interrupts, which ``begin`` checks. So the
        # first attempt reads nothing from the store. Only if it fails, the store is read.
        has_answers = bool(request.input.resume) or has_command_answer(request.input)
        is_optimistic = not has_answers
        waited_for: str | None = None  # the first running run that kept this one from beginning
        while True:
            if self._draining.is_set():
                raise draining_error()
            resolved: RunRecord | StartRequest = request
            if has_answers:
                await self._check_agent(request)
                resolved = await self._resolve(request)
                if isinstance(resolved, RunRecord):
                    return StartResult(record=resolved)
            try:
                start = self._guess_start(resolved) if is_optimistic else None
                if start is None:
                    start = await self._find_start(resolved, waited_for)
                prepared, plan = await self._plan(resolved, start, is_optimistic)
            except Rejected:
                found = await self.find_started(request) or await self._find_using(resolved)
                if found is None:
                    raise
                return found  # refused because this very request was accepted before
            if plan is None:
                return StartResult(is_hydration=True)
            try:
                begin = self._begin if resolved.ticket is None else self._begin_unless_withdrawn
                result = await begin(resolved, start, prepared, plan)
                if is_optimistic and prepared.notices:
                    self._warn(prepared.sent, prepared.notices)
                return result
            except AgentMismatch as error:
                raise _wrong_agent(error.agent) from None
            except RunExists as error:
                if await request.matches(error.run, self._store):
                    return StartResult(record=error.run)
                is_derived = resolved.input.run_id != request.input.run_id  # the run has just begun: resolve it again
                if not is_optimistic and not is_derived:
                    message = "this run id was used on this thread for another request; use a new run id"
                    raise Rejected(409, "run_exists", message, "/runId") from None
            except ThreadBusy as error:
                waited_for = error.run.run_id if waited_for is None else waited_for
                # Otherwise check first whether this request is valid.
                if not is_optimistic and not request.is_abandoned:
                    found = await self._find_using(resolved)
                    if found is not None:
                        return found
                    await self._wait_for_thread(request, error.run, plan)
            except TooManyRuns:
                if not await self._maintenance.recover():  # runs of dead processes count until they are ended
                    raise too_many_runs() from None
            except QuotaExceeded as error:
                found = await self.find_started(request) or await self._find_using(resolved)
                if found is not None:
                    return found
                raise self._quotas.refusal(error, request.principal) from None
            except ThreadMoved:
                pass  # the thread has changed since the plan was made, or has a question: plan again (INT-15)
            except InterruptTaken as error:
                found = await self._find_using(resolved)
                if found is not None:
                    return found
                message = f"interrupt {error.interrupt_id} is answered by another run"
                raise Rejected(409, "interrupt_taken", message, "/resume") from None
            is_optimistic = False
            if request.is_abandoned:
                raise Disconnected

    async def find_started(self, request: StartRequest) -> StartResult | None:
        """Find the run that this request has started before."""
        resolved = await self._resolve(request)
        return StartResult(record=resolved) if isinstance(resolved, RunRecord) else None

    async def _find_using(self, request: StartRequest) -> StartResult | None:
        """Find the running run that uses the answers of this request."""
        if not request.input.resume:
            return None
        try:
            found = await find_run_using(request, self._store)
        except NotFound:  # the thread does not exist, or was deleted meanwhile
            return None
        return None if found is None else StartResult(record=found)

    async def _check_agent(self, request: StartRequest) -> None:
        """Raise ``Rejected`` if the thread belongs to another agent."""
        try:
            owner = (await self._store.thread(request.scope, request.input.thread_id)).agent
        except NotFound:
            return
        if owner != request.agent:
            raise _wrong_agent(owner)

    async def _wait_for_thread(self, request: StartRequest, run: RunRecord, plan: ResumePlan) -> None:
        # The first of two answers wins, even if its run has no viewers: that run may have used its answer already.
        if plan.is_retry or plan.is_abandoned or plan.contested:
            raise _interrupt_taken(plan, run)
        await self._busy_threads.wait_or_preempt(run, () if request.ticket is None else request.ticket.reasons_to_leave)

    async def _resolve(self, request: StartRequest) -> RunRecord | StartRequest:
        """Find the run that this request has started before; else return the request with answers and stored id."""
        if has_command_answer(request.input):
            translated = await translate_command(request, self._store)
            if isinstance(translated, RunRecord):
                return translated
            request = translated
        return await resolve_run(request, self._store)

    def _guess_start(self, request: StartRequest) -> _StartPoint | None:
        """Return where the run of a request begins if the log need not be read for that, else None."""
        sent = request.input
        if sent.parent_run_id is not None or not sent.messages:
            return _ANYWHERE
        last = self._environment.thread_ends.find_last(request.scope, sent)
        return None if last is None else _NEW_THREAD if last == 0 else _StartPoint(after=last)

    async def _find_start(self, request: StartRequest, waited_for: str | None) -> _StartPoint:
        """Find the run that a request continues, if it names none."""
        sent = request.input
        if sent.parent_run_id is not None or not sent.messages:
            return _ANYWHERE
        latest = await self._environment.projections.load_before(request.scope, sent.thread_id, sent.run_id, None)
        if latest is None:
            return _NEW_THREAD
        parent = infer_parent(sent, latest)
        if parent is not None:
            unseen = await self._find_unseen(request, waited_for, latest)
            parent = parent if unseen is None else infer_parent(sent, latest, unseen)
        return _StartPoint(parent=parent, after=latest.last)

    async def _find_unseen(self, request: StartRequest, waited_for: str | None, latest: Projection) -> str | None:
        """Return the first run of the thread that had not ended when the request came; None if there is none.

        Runs are compared by sequence numbers and the monotonic clock, because the times of the store may jump.
        """
        scope, thread_id = request.scope, request.input.thread_id
        ended = self._environment.thread_ends.find_ended_since(scope, thread_id, request.received_at)
        unseen = {waited_for, ended}
        if request.queued_after is not None:
            runs = await self._store.runs(scope, thread_id)
            unseen.add(next((run.run_id for run in runs if run.last > request.queued_after), None))
        nodes = [latest.tree[run_id] for run_id in unseen if run_id is not None and run_id in latest.tree]
        return min(nodes, key=lambda node: node.index).run_id if nodes else None

    async def _plan(
        self, request: StartRequest, start: _StartPoint, is_optimistic: bool
    ) -> tuple[PreparedInput, ResumePlan | None]:
        """Prepare the agent's input and plan the resume. An optimistic plan sends no notices: it may be discarded."""
        settings, projections = self._settings, self._environment.projections
        prepared = await prepare_input(
            request.input, settings, projections=projections, scope=request.scope, inferred_parent=start.parent
        )
        if prepared.is_hydration:
            return prepared, None
        if is_optimistic:
            return prepared, plan_without_answers(prepared.input)
        plan = await plan_resume(
            prepared.input,
            settings,
            store=self._store,
            scope=request.scope,
            projections=projections,
            now=time.time(),
            inferred_parent=start.parent,
        )
        self._warn(prepared.sent, [*prepared.notices, *plan.notices])
        return prepared, plan

    def _warn(self, sent: RunAgentInput, notices: Sequence[Notice]) -> None:
        with RunLogContext(sent.thread_id, sent.run_id):
            for notice in notices:
                self._environment.warn(notice)

    async def _begin_unless_withdrawn(
        self,
        request: StartRequest,
        start: _StartPoint,
        prepared: PreparedInput,
        plan: ResumePlan,
    ) -> StartResult:
        """Begin the run of a queued request. From the first write on, only a refusal of the store can withdraw it."""
        ticket = request.ticket
        assert ticket is not None  # noqa: S101 - the request is queued
        if ticket.withdrawn.done():
            raise Disconnected
        ticket.is_beginning = True
        try:
            return await self._begin(request, start, prepared, plan)
        except StoreError:
            ticket.is_beginning = False
            raise

    async def _begin(
        self,
        request: StartRequest,
        start: _StartPoint,
        prepared: PreparedInput,
        plan: ResumePlan,
    ) -> StartResult:
        settings = self._settings
        agent_input = prepared.input
        started = RunStartedEvent(
            thread_id=agent_input.thread_id,
            run_id=agent_input.run_id,
            protocol_version=PROTOCOL_VERSION,
            parent_run_id=agent_input.parent_run_id,
            input=_echo_input(prepared.sent) if settings.echo_input else None,
            metadata=notices_metadata(prepared.notices) if prepared.notices else None,
        )
        prelude: list[Event] = [started, *prepared.prelude]
        try:
            # A lone RUN_STARTED has only ids, which were checked with the request.
            is_plain = len(prelude) == 1 and started.input is None and started.metadata is None
            lines = [encode_simple(started)] if is_plain else await encode_all_checked(prelude)
        except DecodeError as error:  # the echo nests the input one level deeper, which may be too deep
            raise Rejected(422, "malformed_input", error.message, "") from None
        parent_run_id = agent_input.parent_run_id if start.parent is None else start.parent
        began = time.monotonic()
        beginning = self._store.begin(
            NewRun(
                request.scope,
                agent_input.thread_id,
                agent_input.run_id,
                owner=self._environment.owner,
                lease_seconds=settings.lease,
                input=request.body,
                fingerprint=request.fingerprint,
                events=lines,
                parent_run_id=parent_run_id,
                claims=plan.claims,
                waiting=plan.waiting,
                after=start.after,
                max_running=settings.limits.runs_per_scope,
                agent=request.agent,
                sent_run_id=request.sent_run_id,
                quotas=self._quotas.find(request.principal),
            )
        )
        # A task would delay the first event by two turns of the event loop.
        if isinstance(beginning, asyncio.Future) and beginning.done():
            lease, first = beginning.result()
            self._environment.store_health.record_success(began)
            return self._own(lease, first, request, prepared, plan, prelude, parent_run_id)

        async def wait() -> StartResult:
            lease, first = await beginning
            self._environment.store_health.record_success(began)
            return self._own(lease, first, request, prepared, plan, prelude, parent_run_id)

        return await run_shielded(wait(), partial(self._adopt, request.key))

    def _own(
        self,
        lease: Lease,
        first: Batch,
        request: StartRequest,
        prepared: PreparedInput,
        plan: ResumePlan,
        prelude: Sequence[Event],
        parent_run_id: str | None,
    ) -> StartResult:
        """Launch a run that has begun."""
        sent = request.input if len(request.body) <= _SMALL or not _is_large(request.input) else None
        live = LiveRun(
            self._environment,
            lease,
            root_run_id=plan.root_run_id,
            # A replayed agent settles each answer where it asks. For an agent that reads run.resume, the end of the run
            # settles them.
            claims=plan.claims if plan.replay is None else (),
            start=RunStart(first, sent, parent_run_id),
        )
        if first.first == 1:
            live.default_title = derive_title(prepared.input.messages)
        loader = RunContextLoader(
            environment=self._environment,
            live=live,
            input=prepared.input,
            plan=plan,
            prelude=prelude,
            has_history=first.first > 1,
            principal=request.principal,
            headers=request.headers,
            restates_messages=bool(prepared.input.resume and prepared.ignored_results),
        )
        self._launch(live, request.agent, loader)
        return StartResult(live=live, first=first)


def _is_large(input: RunAgentInput) -> bool:  # noqa: A002 - the protocol's word for it
    return is_large(input.messages) or is_large(input.state)


def _echo_input(input: RunAgentInput) -> RunAgentInput:  # noqa: A002 - the protocol's word for it
    """Return the input for RUN_STARTED. Without a state a run begins with ``{}``, so the echo says so (IN-11)."""
    return input if input.state is not None else replace(input, state={})


def _interrupt_taken(plan: ResumePlan, run: RunRecord) -> Rejected:
    message = f"interrupt {plan.contested[0]} is being answered by run {run.run_id}"
    return Rejected(409, "interrupt_taken", message, "/resume")


def _wrong_agent(owner: str) -> Rejected:
    message = f"this thread belongs to agent {owner!r}; run that agent, or use another threadId"
    return Rejected(409, "wrong_agent", message, "/threadId")
