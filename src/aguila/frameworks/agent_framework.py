"""Use an agent of Microsoft's Agent Framework as an agent: ``App(agent_framework.agent(agent))``.

Its own AG-UI adapter is used: install ``agent-framework-ag-ui``. The extra call of ``confirm_changes``, which it makes
beside an approval and which no client answers, is switched off. It needs ag-ui-protocol below 0.2, so it cannot be
installed together with adapters that need 1.0.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator, Callable, Collection
from typing import Any

from aguila.agent.run import Run
from aguila.frameworks.external.agent_input import official_input
from aguila.frameworks.external.packages import load
from aguila.frameworks.relay.events import Errors
from aguila.frameworks.relay.iterator import from_events
from aguila.protocol import Event

__all__ = ["agent"]


def agent(
    agent: Any, *, state_keys: Collection[str] | None = None, errors: Errors = "mask", **options: Any
) -> Callable[[Run], AsyncGenerator[Event, None]]:
    """Make an agent of an agent or a workflow agent of the Agent Framework.

    ``options`` are arguments of ``AgentFrameworkAgent``, such as ``state_schema`` and ``predict_state_config``.
    """
    adapter_class: Any = load("agent_framework_ag_ui", "agent-framework-ag-ui").AgentFrameworkAgent
    adapter = adapter_class(agent, **{"require_confirmation": False, **options})

    async def events(run: Run) -> Any:
        given = await official_input(run)
        return adapter.run(given.model_dump(exclude_none=True))

    return from_events(events, state_keys=state_keys, errors=errors)
