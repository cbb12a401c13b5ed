"""Layer: server. What a run that has begun needs to go on: all that its client need not wait for.

Below: ``history``, ``interrupts`` and ``attempts`` (what the agent sees, which answers it has, what it takes back),
``aguila.agent``, the store. Above: ``runs`` makes one when a run is in the log, and ``live`` loads it when the first
event is on its way.
"""

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


class RunContextLoader(msgspec.Struct):
    """A run as far as it is known when its first events, the ``prelude``, are stored.

    It has nothing of the request but what the agent sees: a body may be large, and a run long.
    """

    projections: Projections
    live: LiveRun
    input: RunAgentInput
    plan: ResumePlan
    prelude: Sequence[Event]
    has_history: bool
    """Whether the thread was there before."""
    principal: Any
    headers: Mapping[str, str]
    max_state: int
    debug: bool
    restates_messages: bool = False
    """Whether the client holds tool messages that are not in the thread, and gets a snapshot without them."""

    async def load(self) -> RunContext:
        """What the agent's execution needs to know.

        Raises ``StoreUnavailable``, or ``Rejected`` if what the run was to go on with is not there any more.
        """
        seen, plan, live, store = self.input, self.plan, self.live, self.projections.store
        scope, thread_id, run_id = live.lease.scope, seen.thread_id, seen.run_id
        state: Any = {} if seen.state is None else seen.state
        writer = EventWriter(thread_id, run_id, new_id=new_id, parent_run_id=seen.parent_run_id, state=state)
        for event in self.prelude:
            writer.emit(event)
        brought, snapshot = seen, None
        if plan.failed_attempts is not None:
            back, snapshot = await retract_attempts(plan.failed_attempts, self.projections, scope, thread_id, run_id)
            brought = replace(seen, messages=back.filter_messages(seen.messages))
        if snapshot is None and self.restates_messages:
            view = await self.projections.load(scope, thread_id, run_id)
            snapshot = MessagesSnapshotEvent(messages=view.conversation.messages)
        if snapshot is not None:
            live.put(writer.emit(snapshot))
            await live.room()
        if plan.is_abandoned:
            live.cancel()  # before it began
        # Not before the run has begun: the run before it may still have been writing its session.
        if self.has_history:
            live.session = await store.session(scope, thread_id)
        session = live.session
        recorded: Mapping[str, bytes] = {}
        if plan.root_run_id != run_id:
            recorded = await store.recorded(scope, thread_id, plan.root_run_id)
        return RunContext(
            input=seen if plan.original_input is None else plan.original_input,
            resume_input=None if plan.original_input is None else brought,
            thread_id=thread_id,
            run_id=run_id,
            writer=writer,
            new_id=new_id,
            root_run_id=plan.root_run_id,
            parent_run_id=seen.parent_run_id,
            replay=plan.replay,
            recorded=recorded,
            session=None if session is None else msgspec.json.decode(session),
            principal=self.principal,
            headers=self.headers,
            client_state=state,
            max_state=self.max_state,
            debug=self.debug,
        )


def new_id() -> str:
    """An id that nobody else has, sortable by time."""
    return str(uuid7())
