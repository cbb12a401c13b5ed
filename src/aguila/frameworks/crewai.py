"""Use a CrewAI flow or crew as an agent: ``App(crewai.agent(flow))``.

Its AG-UI package, ``ag-ui-crewai``, offers only an endpoint, which is called in this process. The package cannot be
installed together with rich 15, which our extra ``cli`` accepts but does not need.
"""

from __future__ import annotations

from collections.abc import Collection
from typing import Any

from aguila.frameworks.external.packages import load
from aguila.frameworks.relay.events import Errors
from aguila.frameworks.relay.upstream import Upstream, upstream

__all__ = ["agent"]


def agent(crew: Any, *, state_keys: Collection[str] | None = None, errors: Errors = "mask", **options: Any) -> Upstream:
    """Make an agent of a ``Flow`` or of an instance of a ``CrewBase`` class.

    ``state_keys`` are the keys of the state that clients get; the default is all but those of ``CopilotKitState``.
    ``options`` are arguments of the endpoint of ag-ui-crewai, such as ``conversational``.
    """
    package = load("ag_ui_crewai", "ag-ui-crewai")
    app = load("fastapi", "fastapi").FastAPI()
    if isinstance(crew, load("crewai.flow.flow", "crewai").Flow):
        settings = {"emit_interrupt_outcome": True, "emit_raw_events": False, **options}
        package.add_crewai_flow_fastapi_endpoint(app, crew, "/", **settings)
        if state_keys is None:
            state_keys = _own_keys(crew.state, package.CopilotKitState)
    else:
        package.add_crewai_crew_fastapi_endpoint(app, crew, "/", **{"emit_raw_events": False, **options})
    return upstream(app, state_keys=state_keys, errors=errors)


def _own_keys(state: Any, base: Any) -> frozenset[str] | None:
    """Return the keys that a flow adds to the state of ag-ui-crewai; None if its state is not of that kind."""
    if not isinstance(state, base):
        return None
    fields: dict[str, Any] = state.__class__.model_fields
    return frozenset(fields) - frozenset(base.model_fields)
