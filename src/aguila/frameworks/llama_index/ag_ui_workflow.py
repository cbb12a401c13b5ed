"""Run a LlamaIndex workflow that takes ``input_data`` and writes AG-UI events, such as ``AGUIChatWorkflow``."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Any

from aguila.agent.run import Run
from aguila.codec.official import is_official
from aguila.frameworks.external.agent_input import official_input


async def workflow_events(workflow: Any, run: Run) -> AsyncIterator[Any]:
    """Yield the AG-UI events of the workflow.

    If the run ends first, cancel the workflow. The router of llama-index-protocols-ag-ui does not cancel it.
    """
    handler: Any = workflow.run(input_data=await official_input(run))
    try:
        async for event in handler.stream_events():
            if is_official(event):
                yield event
        await handler
    finally:
        if not handler.done():
            await handler.cancel_run()
