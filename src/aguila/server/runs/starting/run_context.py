"""Load the input of an agent, after its run has begun and the client has received the first event."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any

import msgspec
from uuid_utils import uuid7

from aguila.agent.context import RunContext
from aguila.codec.json.bounded_floats import decode_json
from aguila.errors import NotFound
from aguila.offload import is_large, offload
from aguila.protocol import Event, Message, MessagesSnapshotEvent, RunAgentInput, ToolMessage, replace
from aguila.server.history.client_history.known_messages import KnownMessages
from aguila.server.history.projection import Projection, Projections
from aguila.server.interrupts.plan import ResumePlan
from aguila.server.interrupts.retry import retract_attempts
from aguila.server.runs.environment import Environment
from aguila.server.runs.run_task import LiveRun
from aguila.stream import EventWriter
from aguila.stream.message_equality import is_same_message


class RunContextLoader(msgspec.Struct, kw_only=True):
    """A run whose first events, the ``prelude``, are stored.

    It holds only those parts of the request that the agent sees: a body may be large, and a run long.
    """

    environment: Environment
    live: LiveRun
    input: RunAgentInput
    plan: ResumePlan
    prelude: Sequence[Event]
    has_history: bool
    """Whether the thread existed before this run."""
    principal: Any
    headers: Mapping[str, str]
    restates_messages: bool = False
    """Whether the client holds tool messages that are not in the thread, and receives a snapshot without them."""
    is_stored: bool = True

    async def load(self) -> RunContext:
        """Load the context of the run.

        Raises ``StoreUnavailable``, or ``Rejected`` if the conversation has continued since the run was planned.
        """
        sent, plan, live = self.input, self.plan, self.live
        store, projections, settings = self.environment.store, self.environment.projections, self.environment.settings
        scope, thread_id, run_id = live.lease.scope, sent.thread_id, sent.run_id
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
        writer = await offload(make_writer) if is_large(state) else make_writer()  # a writer copies the state
        for event in self.prelude:
            writer.emit(event)
        resume_input, snapshot = sent, None
        if plan.failed_attempts is not None:
            retraction, snapshot = await retract_attempts(plan.failed_attempts, projections, scope, thread_id, run_id)
            resume_input = replace(sent, messages=retraction.filter_messages(sent.messages))
        if snapshot is None and self.restates_messages:
            view = await projections.load(scope, thread_id, run_id)
            snapshot = MessagesSnapshotEvent(messages=view.conversation.messages)
        if snapshot is not None:
            live.pump.put(writer.emit(snapshot))
            await live.pump.room()
        if plan.is_abandoned:
            live.cancel()
        # Read after the run has begun: until then the previous run may have been writing its session.
        title: str | None = None
        if self.has_history:
            live.session = await store.session(scope, thread_id)
            title = (await store.thread(scope, thread_id)).title
        session = live.session
        recorded: Mapping[str, bytes] = {}
        if plan.root_run_id != run_id:
            recorded = await store.recorded(scope, thread_id, plan.root_run_id)
        return RunContext(
            input=sent if plan.original_input is None else plan.original_input,
            resume_input=None if plan.original_input is None else resume_input,
            thread_id=thread_id,
            run_id=run_id,
            writer=writer,
            new_id=new_id,
            root_run_id=plan.root_run_id,
            parent_run_id=sent.parent_run_id,
            replay=plan.replay,
            recorded=recorded,
            session=None if session is None else decode_json(session),
            title=title,
            principal=self.principal,
            headers=self.headers,
            client_state=state,
            max_state=settings.limits.state,
            is_stored=self.is_stored,
            debug=settings.debug,
            is_known=EarlierHistory(
                projections, scope, thread_id, plan.root_run_id if self.is_stored else None, sent.parent_run_id
            ).has,
        )


class EarlierHistory:
    """The messages that a thread had before a run. They are loaded when they are first asked for.

    ``run_id`` is the first run of a chain of resumes, so that a replayed agent gets the same answers again. It is None
    for a run that is not stored.
    """

    __slots__ = ("_known", "_messages", "_parent_run_id", "_projections", "_run_id", "_scope", "_thread_id")

    def __init__(
        self, projections: Projections, scope: str, thread_id: str, run_id: str | None, parent_run_id: str | None
    ) -> None:
        self._projections = projections
        self._scope = scope
        self._thread_id = thread_id
        self._run_id = run_id
        self._parent_run_id = parent_run_id
        self._known: KnownMessages | None = None
        self._messages: Mapping[str, Message] = {}

    async def has(self, message: Message) -> bool:
        """Return whether the thread has this message. An assistant or tool message must have been sent by a run.

        Results of front-end calls come from clients, so an earlier request must have had them. Raises
        ``StoreUnavailable``.
        """
        if self._known is None:
            view = await self._load()
            self._messages = {} if view is None else {one.id: one for one in view.conversation.messages}
            self._known = KnownMessages() if view is None else view.known
        known = self._known
        if known.has(message):
            return True
        is_from_client = message.role in ("user", "system", "developer") or (
            isinstance(message, ToolMessage) and message.tool_call_id in known.front_end_calls
        )
        own = self._messages.get(message.id) if is_from_client else None
        return own is not None and is_same_message(message, own)

    async def _load(self) -> Projection | None:
        """Return the thread before the run; None if the run is its first."""
        projections, scope, thread_id = self._projections, self._scope, self._thread_id
        try:
            parent = self._parent_run_id
            if self._run_id is not None:
                runs = (await projections.load(scope, thread_id, self._run_id)).conversation.runs
                if len(runs) < 2:
                    return None
                parent = runs[-2].run_id
            return await projections.load(scope, thread_id, parent, with_known=True)
        except NotFound:  # a new thread, or one that was deleted
            return None


def new_id() -> str:
    """Create a unique id that sorts by time."""
    return str(uuid7())
