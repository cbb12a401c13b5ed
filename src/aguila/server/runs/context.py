"""Load the input of an agent, after its run has begun and the first event has usually been sent."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import partial
from typing import Any

from uuid_utils import uuid7

from aguila.agent.context import RunContext, find_call_ids
from aguila.chat.own_metadata import read_own_metadata
from aguila.codec import decode_event
from aguila.codec.json.bounded_floats import decode_json
from aguila.errors import CursorExpired, NotFound
from aguila.offload import is_large, offload
from aguila.protocol import Message, MessagesSnapshotEvent, RunStartedEvent, ToolMessage, replace
from aguila.server.runs.environment import Environment
from aguila.server.runs.live_run import LiveRun, derive_title
from aguila.server.runs.start import Plan
from aguila.server.threads.cache import Threads
from aguila.server.threads.client.known_messages import KnownMessages
from aguila.server.threads.interrupts.retry import retract_attempts
from aguila.server.threads.view import View
from aguila.store import Batch, RunKey, Store, Want
from aguila.stream import EventWriter
from aguila.stream.message_equality import is_same_message


async def load_context(environment: Environment, run: LiveRun, plan: Plan, first: Batch) -> RunContext:
    """Load the context of a run that has begun with these events.

    Raises ``StoreUnavailable``, or ``Rejected`` if the conversation has continued since the run was planned.
    """
    sent, resume, request = plan.prepared.input, plan.resume, plan.request
    store, threads, settings = environment.store, environment.threads, environment.settings
    scope, thread_id, run_id = request.scope, sent.thread_id, sent.run_id
    state: Any = {} if sent.state is None else sent.state
    make_writer = partial(
        EventWriter,
        thread_id,
        run_id,
        new_id=new_id,
        parent_run_id=sent.parent_run_id,
        state=state,
        max_size=settings.limits.event,
    )
    writer = await offload(make_writer) if state and is_large(state) else make_writer()  # a writer copies the state
    for event in plan.events:
        writer.emit(event)
    resume_input, snapshot = sent, None
    if resume.failed_attempts is not None:
        retraction, snapshot = await retract_attempts(resume.failed_attempts, threads, scope, thread_id, run_id)
        resume_input = replace(sent, messages=retraction.filter_messages(sent.messages))
    if snapshot is None and sent.resume and plan.prepared.ignored_results:
        view = await threads.at(scope, thread_id, run_id)
        snapshot = MessagesSnapshotEvent(messages=view.conversation.messages)
    if snapshot is not None:
        run.pump.put(writer.emit(snapshot))
        await run.pump.room()
    if resume.is_abandoned:
        run.cancel()
    if run.span is not None and resume.continued_run_id is not None:
        traceparent = await _find_traceparent(store, RunKey(scope, thread_id, resume.continued_run_id))
        if traceparent is not None:
            run.span.link(traceparent)
    # Read after the run has begun: until then the previous run may have been writing its session.
    title: str | None = None
    recorded: Mapping[str, bytes] = {}
    if first.first > 1 or not request.is_stored:
        try:
            found = await store.thread(scope, thread_id, Want(session=True, root_run_id=resume.root_run_id))
        except NotFound:  # the run is not stored, and neither is the thread
            pass
        else:
            run.session, recorded = found.session, found.results(resume.root_run_id)
            title = found.summary.title if first.first > 1 else None
    else:
        run.default_title = derive_title(sent.messages)
    root_run_id = run_id if resume.replay is None else resume.root_run_id
    history = EarlierHistory(threads, scope, thread_id, root_run_id if request.is_stored else None, sent.parent_run_id)
    is_new = request.is_stored and first.first == 1
    return RunContext(
        input=sent if resume.original_input is None else resume.original_input,
        resume_input=None if resume.original_input is None else resume_input,
        thread_id=thread_id,
        run_id=run_id,
        writer=writer,
        new_id=new_id,
        root_run_id=root_run_id,
        parent_run_id=sent.parent_run_id,
        replay=resume.replay,
        recorded=recorded,
        session=None if run.session is None else decode_json(run.session),
        title=title,
        principal=request.principal,
        headers=request.headers,
        client_state=state,
        max_state=settings.limits.state,
        is_stored=request.is_stored,
        debug=settings.debug,
        is_known=history.has,
        # The input of a quick plan has the calls of its thread.
        earlier_calls=frozenset() if is_new or plan.is_quick else await history.call_ids(),
        find_lost_calls=history.lost_calls,
    )


async def _find_traceparent(store: Store, key: RunKey) -> str | None:
    """Return the span of an earlier run, from its RUN_STARTED; None if it was not traced, or was compacted."""
    try:
        first = (await store.run(key)).first
        batches = (await store.read(key.scope, key.thread_id, first - 1, until=first)).batches
    except (NotFound, CursorExpired):
        return None
    started = decode_event(batches[0].events[0]) if batches else None
    own = read_own_metadata(started.metadata if isinstance(started, RunStartedEvent) else None)
    found = own.get("traceparent")
    return found if isinstance(found, str) else None


@dataclass(slots=True)
class EarlierHistory:
    """The messages that a thread had before a run. They are loaded when they are first asked for.

    ``run_id`` is the first run of a chain of resumes, so that a replayed agent gets the same answers again. It is None
    for a run that is not stored.
    """

    threads: Threads
    scope: str
    thread_id: str
    run_id: str | None
    parent_run_id: str | None
    _known: KnownMessages | None = None
    _messages: Mapping[str, Message] = field(default_factory=dict[str, Message])

    async def has(self, message: Message) -> bool:
        """Return whether the thread has this message. An assistant or tool message must have been sent by a run.

        Results of front-end calls come from clients, so an earlier request must have had them. Raises
        ``StoreUnavailable``.
        """
        if self._known is None:
            view = await self._load(with_known=True)
            self._messages = {} if view is None else {one.id: one for one in view.conversation.messages}
            self._known = KnownMessages() if view is None else view.index.known
        known = self._known
        if known.has(message):
            return True
        is_from_client = message.role in ("user", "system", "developer") or (
            isinstance(message, ToolMessage) and message.tool_call_id in known.front_end_calls
        )
        own = self._messages.get(message.id) if is_from_client else None
        return own is not None and is_same_message(message, own)

    async def call_ids(self) -> frozenset[str]:
        """Return the ids of the calls in the messages of the thread. Raises ``StoreUnavailable``."""
        view = await self._load()
        return frozenset() if view is None else find_call_ids(view.conversation.messages)

    async def lost_calls(self) -> frozenset[str]:
        """Return the calls without a result whose run, or one that continued it, was lost.

        Raises ``StoreUnavailable``.
        """
        view = await self._load()
        lost: set[str] = set()
        unanswered: set[str] = set()  # calls of a run and of those whose questions it answered
        for run in () if view is None else view.conversation.runs:
            for call_id, status in run.calls.items():
                if status == "called":
                    unanswered.add(call_id)
                elif status == "answered":
                    unanswered.discard(call_id)
                    lost.discard(call_id)
            if run.error is not None and run.error.code == "run_lost":
                lost |= unanswered
            elif run.outcome != "interrupt":
                unanswered.clear()
        return frozenset(lost)

    async def _load(self, *, with_known: bool = False) -> View | None:
        """Return the thread before the run; None if the run is its first."""
        threads, scope, thread_id = self.threads, self.scope, self.thread_id
        try:
            parent = self.parent_run_id
            if self.run_id is not None:
                runs = (await threads.at(scope, thread_id, self.run_id)).conversation.runs
                if len(runs) < 2:
                    return None
                parent = runs[-2].run_id
            return await threads.at(scope, thread_id, parent, with_known=with_known)
        except NotFound:  # a new thread, or one that was deleted
            return None


def new_id() -> str:
    """Create a unique id that sorts by time."""
    return str(uuid7())
