"""Use an AG2 agent as an agent: ``App(ag2.agent(agent))``.

Its own AG-UI stream is used: install ``ag2[ag-ui]``. AG2 continues a turn after its stream is closed, so each run has a
stream of its own, which is closed when the run is cancelled. A turn that waits for an answer stays in memory: it is
lost if the process ends.
"""

from __future__ import annotations

import json
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Collection
from typing import Any

from aguila.agent.run import Run
from aguila.codec.json.values import is_object
from aguila.frameworks.external.agent_input import official_input
from aguila.frameworks.external.packages import load
from aguila.frameworks.relay.events import Errors
from aguila.frameworks.relay.iterator import from_events
from aguila.protocol import Event

__all__ = ["agent"]


def agent(
    agent: Any, *, state_keys: Collection[str] | None = None, errors: Errors = "mask", **options: Any
) -> Callable[[Run], AsyncGenerator[Event, None]]:
    """Make an agent of an AG2 ``Agent``. ``options`` are arguments of ``AGUIStream.dispatch``, such as ``tools``."""
    stream_class: Any = load("ag2.ag_ui", "'ag2[ag-ui]'").AGUIStream
    waiting: dict[tuple[Any, str], Any] = {}

    async def events(run: Run) -> AsyncIterator[Any]:
        key = getattr(run.principal, "scope", None), run.thread_id
        stream = waiting.pop(key, None)
        if stream is None or not run.resume:
            if stream is not None:  # the question of the last stream was not answered
                await stream.aclose()
            stream = stream_class(agent)
        is_waiting = False
        try:
            async for part in stream.dispatch(await official_input(run), **options):
                yield part
                is_waiting = is_waiting or _asks(part)
        finally:
            if is_waiting:
                waiting[key] = stream
            else:
                await stream.aclose()

    return from_events(events, state_keys=state_keys, errors=errors)


def _asks(part: str) -> bool:
    """Return whether an SSE frame ends the run with a question."""
    if '"RUN_FINISHED"' not in part:
        return False
    outcome: Any = json.loads(part.partition("data:")[2]).get("outcome")
    return is_object(outcome) and outcome.get("type") == "interrupt"
