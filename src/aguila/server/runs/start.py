"""Plan the run of a request: what its agent sees, which run it continues, and what the store begins."""

from __future__ import annotations

import dataclasses
import time
from typing import Final

import msgspec

from aguila.chat.own_metadata import start_metadata
from aguila.codec.json.encoder import encode_strict
from aguila.errors import DecodeError, NotFound
from aguila.protocol import PROTOCOL_VERSION, Event, RunStartedEvent, replace
from aguila.server.config.errors import Rejected
from aguila.server.config.limits import UNLIMITED
from aguila.server.runs.environment import Environment
from aguila.server.runs.repeated import resolve_run
from aguila.server.runs.start_request import StartRequest
from aguila.server.runs.store_health import StoreHealth
from aguila.server.threads.client.agent_input import PreparedInput, may_have_translated, prepare_input
from aguila.server.threads.client.cut_history import infer_parent
from aguila.server.threads.client.merge import INSTRUCTING_ROLES
from aguila.server.threads.client.message_ids import PLACEHOLDER_PREFIX
from aguila.server.threads.interrupts.plan import ResumePlan, plan_resume
from aguila.server.threads.view import View
from aguila.store import Begun, MemoryStore, NewRun, RunRecord, Want

_REMOVED_ROLES: Final = frozenset({"tool", "activity"})
"""Roles of messages that an agent may not get as they were sent."""

_MAX_UNSTORED = 1 << 26
"""How many bytes of events an unstored run may produce. They stay in memory until it ends."""


class Plan(msgspec.Struct):
    """How the run of a request begins."""

    request: StartRequest
    """The request, under the stored id of its run."""
    prepared: PreparedInput
    resume: ResumePlan
    parent: str | None = None
    """The parent run, if it was inferred (``cut_history``)."""
    after: int | None = None
    """The last event of the thread when the plan was made; None if it does not matter."""
    is_quick: bool = False
    """Whether the store was not read. ``Store.begin`` refuses the plan if the thread has moved, or has a question."""
    events: list[Event] = []
    """The events that the run begins with, once ``new_run`` has made them."""


class Starter:
    """Plans runs."""

    def __init__(self, environment: Environment) -> None:
        self._environment = environment
        self._store = environment.store
        self._settings = environment.settings
        trust = self._settings.trust
        self._may_plan_quickly = (
            self._settings.history != "server" and trust.unknown_history != "drop" and trust.state_keys is None
        )
        self._removed_roles = _REMOVED_ROLES if trust.system_messages else _REMOVED_ROLES | INSTRUCTING_ROLES

    def plan_quickly(self, request: StartRequest) -> Plan | None:
        """Plan a run without reading the store, if its agent sees exactly what was sent, whatever the thread has.

        Returns None if the request has answers, would get notices, or depends on the thread.
        """
        sent = request.input
        if not self._may_plan_quickly or sent.resume or sent.parent_run_id is not None:
            return None
        if sent.protocol_version != PROTOCOL_VERSION and may_have_translated(sent):
            return None
        ids: set[str] = set()
        for message in sent.messages:
            if message.id in ids or message.id.startswith(PLACEHOLDER_PREFIX) or message.role in self._removed_roles:
                return None
            if message.content.__class__ is list:  # of parts, which may be references to media
                return None
            ids.add(message.id)
        after = None
        if sent.messages:
            end = self._environment.thread_ends.get((request.scope, sent.thread_id))
            if end is None:
                after = 0  # ``Store.begin`` refuses the plan if the thread exists
            elif end.ids is None or not end.ids <= ids:
                return None  # the history may be cut
            else:
                after = end.last
        prepared = PreparedInput(input=sent, sent=sent)
        return Plan(request, prepared, ResumePlan(root_run_id=sent.run_id), after=after, is_quick=True)

    async def plan(self, request: StartRequest) -> Plan | RunRecord | None:
        """Plan a run, or find the run that its request has started before; None if nothing is to run.

        Raises ``Rejected``, ``StoreUnavailable``.
        """
        settings, threads, scope = self._settings, self._environment.threads, request.scope
        if request.input.resume:
            await self._check_agent(request)
            resolved = await resolve_run(request, self._store)
            if isinstance(resolved, RunRecord):
                return resolved
            request = resolved
        parent, after = await self._find_start(request)
        prepared = await prepare_input(request.input, settings, threads=threads, scope=scope, inferred_parent=parent)
        if prepared.is_hydration:
            return None
        resume = await plan_resume(
            prepared.input,
            settings,
            store=self._store,
            scope=scope,
            threads=threads,
            now=time.time(),
            inferred_parent=parent,
        )
        return Plan(request, prepared, resume, parent, after)

    async def _check_agent(self, request: StartRequest) -> None:
        """Raise ``Rejected`` if the thread belongs to another agent."""
        try:
            owner = (await self._store.thread(request.scope, request.input.thread_id)).summary.agent
        except NotFound:
            return
        if owner != request.agent:
            raise wrong_agent(owner)

    async def _find_start(self, request: StartRequest) -> tuple[str | None, int | None]:
        """Return the run that a request continues, if that is inferred, and the last event of the thread."""
        sent = request.input
        if sent.parent_run_id is not None or not sent.messages:
            return None, None
        latest = await self._environment.threads.before(request.scope, sent.thread_id, sent.run_id, None)
        if latest is None:
            return None, 0
        parent = infer_parent(sent, latest)
        if parent is not None:
            unseen = await self._find_unseen(request, latest)
            parent = parent if unseen is None else infer_parent(sent, latest, unseen)
        return parent, latest.last

    async def _find_unseen(self, request: StartRequest, latest: View) -> str | None:
        """Return the first run of the thread that had not ended when the request came; None if there is none.

        Runs are compared by sequence numbers and the monotonic clock, because the times of the store may jump.
        """
        scope, thread_id = request.scope, request.input.thread_id
        end = self._environment.thread_ends.get((scope, thread_id))
        unseen = {None if end is None or end.ended_at <= request.received_at else end.run_id}
        if request.seen_until is not None:
            runs = (await self._store.thread(scope, thread_id, Want(runs=True))).runs
            unseen.add(next((run.run_id for run in runs if run.last > request.seen_until), None))
        nodes = [latest.index.tree[run_id] for run_id in unseen if run_id is not None and run_id in latest.index.tree]
        return min(nodes, key=lambda node: node.index).run_id if nodes else None

    def new_run(self, plan: Plan) -> NewRun:
        """Make the first events of a run, and return what the store begins. Raises ``Rejected``."""
        settings, request, prepared = self._settings, plan.request, plan.prepared
        sent, echo = prepared.input, None
        if settings.sends.echo_input and request.is_stored:
            echo = prepared.sent if prepared.sent.state is not None else replace(prepared.sent, state={})  # IN-11
        span = request.span
        traceparent = None if span is None else span.traceparent
        started = RunStartedEvent(
            thread_id=sent.thread_id,
            run_id=sent.run_id,
            protocol_version=PROTOCOL_VERSION,
            parent_run_id=sent.parent_run_id,
            input=echo,
            metadata=start_metadata(prepared.notices, traceparent) if prepared.notices or span is not None else None,
        )
        plan.events = [started, *prepared.prelude]
        try:
            encoded = [encode_strict(event, UNLIMITED) for event in plan.events]
        except DecodeError as error:  # the echo nests the input one level deeper, which may be too deep
            raise Rejected(422, "malformed_input", error.message, "") from None
        return NewRun(
            scope=request.scope,
            thread_id=sent.thread_id,
            run_id=sent.run_id,
            owner=self._environment.owner,
            lease_seconds=settings.timing.lease,
            request=request.body,
            fingerprint=request.fingerprint,
            events=encoded,
            parent_run_id=sent.parent_run_id if plan.parent is None else plan.parent,
            claims=plan.resume.claims,
            waiting=plan.resume.waiting,
            after=plan.after,
            max_running=request.limits.runs_per_scope,
            agent=request.agent,
            sent_run_id=request.sent_run_id,
            quotas=request.quotas,
        )

    async def begin_unstored(self, request: StartRequest) -> tuple[Environment, Plan, Begun]:
        """Begin a run that is not stored (``POST /?store=false``): for suggestions and other throwaway answers.

        It has a memory store of its own. Its thread does not become busy, and no other request can find it.
        """
        environment, sent = self._environment, request.input
        if sent.resume:
            message = "an unstored run cannot answer a question; send the answer without ?store=false"
            raise Rejected(422, "resume_not_stored", message, "/resume")
        prepared = await prepare_input(sent, self._settings, threads=environment.threads, scope=request.scope)
        plan = Plan(request, prepared, ResumePlan(root_run_id=sent.run_id))
        store = MemoryStore(max_bytes=_MAX_UNSTORED)
        await store.open()
        new = msgspec.structs.replace(self.new_run(plan), parent_run_id=None, quotas=None)
        begun = await store.begin(new)
        return dataclasses.replace(environment, store=store, store_health=StoreHealth()), plan, begun


def wrong_agent(owner: str) -> Rejected:
    """Return the refusal of a run on a thread of another agent."""
    message = f"this thread belongs to agent {owner!r}; run that agent, or use another threadId"
    return Rejected(409, "wrong_agent", message, "/threadId")
