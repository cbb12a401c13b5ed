"""Use a Strands agent as an agent: ``App(strands.agent(agent))``.

Its own AG-UI adapter is used: install ``ag-ui-strands``. It keeps a Strands agent for each thread in memory.
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
    """Make an agent of a Strands ``Agent``, ``Graph`` or ``Swarm``.

    ``options`` are arguments of ``StrandsAgent``, such as ``config``.
    """
    adapter_class: Any = load("ag_ui_strands", "ag-ui-strands").StrandsAgent
    adapter = adapter_class(agent, **{"name": getattr(agent, "name", None) or "agent", **options})

    async def events(run: Run) -> Any:
        return adapter.run(await official_input(run))

    return from_events(events, state_keys=state_keys, errors=errors)
