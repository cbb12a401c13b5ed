"""Loads what the agent of a run needs, after the run has begun and its client has received the first event."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import msgspec
from uuid_utils import uuid7

from aguila.agent.context import RunContext
from aguila.protocol import Event, MessagesSnapshotEvent, RunAgentInput, replace
from aguila.server.history.projection import Projections
from aguila.server.interrupts.plan import ResumePlan
from aguila.server.interrupts.retry import retract_attempts
from aguila.server.runs.run_task import LiveRun
from aguila.stream import EventWriter


class RunContextLoader(msgspec.Struct, kw_only=True):
    """A run whose first events, the ``prelude``, are stored.

    It holds only those parts of the request that the agent sees: a body may be large, and a run long.
    """

    projections: Projections
    live: LiveRun
    input: RunAgentInput
    plan: ResumePlan
    prelude: Sequence[Event]
    has_history: bool
    """Whether the thread existed before this run."""
    principal: Any
    headers: Mapping[str, str]
    max_state: int
    debug: bool
    restates_messages: bool = False
    """Whether the client holds tool messages that are not in the thread, and receives a snapshot without them."""
    is_stored: bool = True

    async def load(self) -> RunContext:
        """Load the context of the run.

        Raises ``StoreUnavailable``, or ``Rejected`` if the conversation has continued since the run was planned.
        """
        sent, plan, live, store = self.input, self.plan, self.live, self.projections.store
        scope, thread_id, run_id = live.lease.scope, sent.thread_id, sent.run_id
        state: Any = {} if sent.state is None else sent.state
        writer = EventWriter(thread_id, run_id, new_id=new_id, parent_run_id=sent.parent_run_id, state=state)
        for event in self.prelude:
            writer.emit(event)
        resume_input, snapshot = sent, None
        if plan.failed_attempts is not None:
            retraction, snapshot = await retract_attempts(
                plan.failed_attempts, self.projections, scope, thread_id, run_id
            )
            resume_input = replace(sent, messages=retraction.filter_messages(sent.messages))
        if snapshot is None and self.restates_messages:
            view = await self.projections.load(scope, thread_id, run_id)
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
            session=None if session is None else msgspec.json.decode(session),
            title=title,
            principal=self.principal,
            headers=self.headers,
            client_state=state,
            max_state=self.max_state,
            is_stored=self.is_stored,
            debug=self.debug,
        )


def new_id() -> str:
    """Create a unique id that sorts by time."""
    return str(uuid7())
