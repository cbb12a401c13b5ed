"""Use an agent of Google's Agent Development Kit as an agent: ``App(adk.agent(agent))``.

Its own AG-UI adapter is used: install ``ag-ui-adk``. The adapter works in a task that continues after its stream is
closed, so each run has an adapter of its own, which is closed with the run. All share the services of ADK.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator, AsyncIterator, Callable, Collection
from typing import Any

from aguila.agent.run import Run
from aguila.frameworks.external.agent_input import official_input
from aguila.frameworks.external.detached import Detached
from aguila.frameworks.external.packages import load
from aguila.frameworks.relay.events import Errors
from aguila.frameworks.relay.iterator import from_events
from aguila.protocol import Event

__all__ = ["agent"]


def agent(
    agent: Any,
    *,
    user_id: Callable[[Run], str] | None = None,
    session_service: Any = None,
    state_keys: Collection[str] | None = None,
    errors: Errors = "mask",
    **options: Any,
) -> Callable[[Run], AsyncGenerator[Event, None]]:
    """Make an agent of an ADK agent.

    ``user_id`` is ADK's user of a run; the default is the scope of the principal. ``session_service`` keeps ADK's
    sessions; the default keeps them in memory. ``options`` are arguments of ``ADKAgent``, such as ``predict_state``.
    """
    adapter_class: Any = load("ag_ui_adk", "ag-ui-adk").ADKAgent
    if session_service is None:
        session_service = load("google.adk.sessions", "google-adk").InMemorySessionService()
    settings: dict[str, Any] = {
        "app_name": getattr(agent, "name", "agent"),
        "emit_interrupt_outcome": True,
        "artifact_service": load("google.adk.artifacts", "google-adk").InMemoryArtifactService(),
        "memory_service": load("google.adk.memory", "google-adk").InMemoryMemoryService(),
        **options,
    }

    async def events(run: Run) -> AsyncIterator[Any]:
        user = _scope(run) if user_id is None else user_id(run)
        adapter = adapter_class(adk_agent=agent, user_id=user, session_service=session_service, **settings)
        stream = Detached(adapter.run(await official_input(run)))
        try:
            async for event in stream:
                yield event
        finally:
            await adapter.close()  # first: a closed stream forgets its task
            await stream.aclose()

    return from_events(events, state_keys=state_keys, errors=errors)


def _scope(run: Run) -> str:
    return getattr(run.principal, "scope", None) or "user"
