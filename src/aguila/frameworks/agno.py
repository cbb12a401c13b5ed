"""Use an Agno agent or team as an agent: ``App(agno.agent(agent))``.

Agno's own AG-UI interface is used: install ``agno``, ``ag-ui-protocol`` and ``fastapi``, which it imports. A front-end
tool or an approval pauses Agno's run, so the agent needs a ``db`` to continue it; the ``db`` also has the history that
the model sees. Agno leaves a call that needs approval unanswered, and takes the answer as its result; here it is an
interrupt. Agno drops the reasoning that a model streams; here it is sent.
"""

from __future__ import annotations

import copy
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Collection
from typing import Any, Final

from aguila.agent.run import Run
from aguila.codec.json.encoder import encode
from aguila.codec.json.values import is_object
from aguila.codec.official import to_official
from aguila.frameworks.external.agent_input import adapter_input
from aguila.frameworks.external.packages import load
from aguila.frameworks.external.suspended import finished
from aguila.frameworks.relay.events import Errors
from aguila.frameworks.relay.iterator import from_events
from aguila.protocol import (
    Event,
    Interrupt,
    ResumeEntry,
    RunFinishedCancelledOutcome,
    RunFinishedInterruptOutcome,
    ToolMessage,
    replace,
)

__all__ = ["agent"]

_PREFIX: Final = "approve:"
"""The prefix of the id of an interrupt; the id of the call follows."""
_CONTENT: Final = ("RunContent", "TeamRunContent")
"""Agno's events that carry texts."""


def agent(
    agent: Any,
    *,
    user_id: Callable[[Run], str | None] | None = None,
    state_keys: Collection[str] | None = None,
    errors: Errors = "mask",
) -> Callable[[Run], AsyncGenerator[Event, None]]:
    """Make an agent of an Agno ``Agent`` or ``Team``. ``user_id`` is Agno's user of a run; the default is none."""
    run_entity: Any = load("agno.os.interfaces.agui.router", "agno ag-ui-protocol fastapi").run_entity

    async def events(run: Run) -> AsyncIterator[Any]:
        if any(entry.status == "cancelled" for entry in run.resume):
            yield finished(run, RunFinishedCancelledOutcome())
            return
        given = await adapter_input(run)
        given = replace(given, messages=[*given.messages, *map(_answer, given.resume or ())], resume=None)
        offered = {tool.name for tool in run.tools}
        waiting: dict[str, str] = {}
        user = None if user_id is None else user_id(run)
        stream = run_entity(_with_reasoning(agent), to_official(given), user_id=user)
        try:
            async for event in stream:
                if event.type == "TOOL_CALL_START" and event.tool_call_name not in offered:
                    waiting[event.tool_call_id] = event.tool_call_name
                elif event.type == "TOOL_CALL_RESULT":
                    waiting.pop(event.tool_call_id, None)
                elif event.type == "RUN_FINISHED" and waiting:
                    interrupts = [_ask(call_id, name) for call_id, name in waiting.items()]
                    yield finished(run, RunFinishedInterruptOutcome(interrupts=interrupts))
                    return
                yield event
        finally:
            await stream.aclose()

    return from_events(events, state_keys=state_keys, errors=errors)


def _with_reasoning(agent: Any) -> Any:
    """Return a copy of an agent or a team whose stream has the reasoning of its model as events of its own.

    Agno sends it with the events of the text, where its AG-UI interface does not look for it.
    """

    def arun(**options: Any) -> AsyncIterator[Any]:
        return _separate_reasoning(agent.arun(**options))

    def acontinue_run(**options: Any) -> AsyncIterator[Any]:
        return _separate_reasoning(agent.acontinue_run(**options))

    tapped = copy.copy(agent)
    tapped.arun, tapped.acontinue_run = arun, acontinue_run
    return tapped


async def _separate_reasoning(chunks: Any) -> AsyncIterator[Any]:
    types: Any = load("agno.run.agent", "agno")
    is_open = False
    try:
        async for chunk in chunks:
            text = getattr(chunk, "reasoning_content", None) if chunk.event in _CONTENT else None
            if text:
                is_open = True
                yield types.ReasoningContentDeltaEvent(reasoning_content=text)
                if not chunk.content:
                    continue
            if is_open:
                is_open = False
                yield types.ReasoningCompletedEvent()
            yield chunk
    finally:
        close = getattr(chunks, "aclose", None)  # a remote agent has an iterator that is no generator
        if close is not None:
            await close()


def _ask(call_id: str, name: str) -> Interrupt:
    message = f"Allow the call of {name}?"
    return Interrupt(id=f"{_PREFIX}{call_id}", reason="tool_call", message=message, tool_call_id=call_id)


def _answer(entry: ResumeEntry) -> ToolMessage:
    """Return the answer as Agno takes it: the result of the call. An answer in Agno's own form stays."""
    payload: Any = entry.payload
    if is_object(payload) and "approved" in payload:
        payload = {"accepted": payload["approved"], "note": payload.get("reason")}
    return ToolMessage(tool_call_id=entry.interrupt_id.removeprefix(_PREFIX), content=encode(payload).decode())
