"""Use a LlamaIndex workflow as an agent: ``App(llama_index.agent(workflow))``.

The AG-UI events of its workflow are read, without its router: install ``llama-index-protocols-ag-ui``. The workflow is
cancelled when its run ends, which the router does not do.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator, AsyncIterator, Callable, Collection
from typing import Any

from aguila.agent.run import Run
from aguila.codec.official import is_official
from aguila.frameworks.external.agent_input import official_input
from aguila.frameworks.relay.events import Errors
from aguila.frameworks.relay.iterator import from_events
from aguila.protocol import Event

__all__ = ["agent"]


def agent(
    workflow: Any, *, state_keys: Collection[str] | None = None, errors: Errors = "mask"
) -> Callable[[Run], AsyncGenerator[Event, None]]:
    """Make an agent of a workflow that takes ``input_data``, such as ``AGUIChatWorkflow``.

    ``workflow`` may be a function of the run that returns one.

    Raise TypeError for an object that is neither.
    """
    if not hasattr(workflow, "run") and not callable(workflow):
        raise TypeError(f"llama_index.agent() takes a workflow, not {type(workflow).__name__}")

    async def events(run: Run) -> AsyncIterator[Any]:
        chosen: Any = workflow if hasattr(workflow, "run") else workflow(run)
        handler: Any = chosen.run(input_data=await official_input(run))
        try:
            async for event in handler.stream_events():
                if is_official(event):
                    yield event
            await handler
        finally:
            if not handler.done():
                await handler.cancel_run()

    return from_events(events, state_keys=state_keys, errors=errors)
