"""Use an agent of Google's Agent Development Kit as an agent: ``App(adk.agent(agent))``.

Its own AG-UI adapter is used: install ``ag-ui-adk``. The adapter works in a task that continues after its stream is
closed, so each run has an adapter of its own, which is closed with the run. All share the services of ADK.

A tool that needs confirmation asks for approval of its call. The adapter also shows ADK's own call,
``adk_request_confirmation``. It is never answered, so it is left out.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator, AsyncIterator, Callable, Collection
from typing import Any, Final

from aguila.agent.run import Run
from aguila.codec.json.values import is_object
from aguila.codec.official import from_official
from aguila.frameworks.external.agent_input import official_input
from aguila.frameworks.external.detached import DetachedIterator
from aguila.frameworks.external.packages import load
from aguila.frameworks.relay.events import Errors
from aguila.frameworks.relay.iterator import from_events
from aguila.protocol import Event, Interrupt, RunFinishedInterruptOutcome, replace

__all__ = ["agent"]

_CONFIRMATION: Final = "adk_request_confirmation"
_HINT: Final = "Please approve or reject the tool call "
"""The beginning of the hint that ADK writes for programmers if a tool has no hint of its own."""
_PENDING: Final = "pending_tool_calls"
"""The key of the state in which the adapter keeps ids."""
_ANSWER: Final[dict[str, Any]] = {
    "type": "object",
    "properties": {"approved": {"type": "boolean"}, "reason": {"type": "string"}},
    "required": ["approved"],
}


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
        stream = DetachedIterator(adapter.run(await official_input(run)))
        try:
            async for event in _corrected(stream):
                yield event
        finally:
            await adapter.close()  # first: a closed stream forgets its task
            await stream.aclose()

    return from_events(events, state_keys=state_keys, errors=errors)


async def _corrected(events: Any) -> AsyncIterator[Any]:
    """Yield the adapter's events without the calls that ask for confirmation, and with approvals in their place."""
    left_out: set[str] = set()
    async for event in events:
        match event.type:
            case "TOOL_CALL_START" if event.tool_call_name == _CONFIRMATION:
                left_out.add(event.tool_call_id)
            case "TOOL_CALL_ARGS" | "TOOL_CALL_END" if event.tool_call_id in left_out:
                continue
            case "STATE_SNAPSHOT" if is_object(event.snapshot) and _PENDING in event.snapshot:
                state = {key: value for key, value in event.snapshot.items() if key != _PENDING}
                yield replace(from_official(event), snapshot=state)
            case "STATE_DELTA":
                change = from_official(event)
                delta = [one for one in change.delta if one["path"].split("/")[1:2] != [_PENDING]]
                if delta:
                    yield replace(change, delta=delta)
            case "RUN_FINISHED":
                yield _with_approvals(from_official(event))
            case _:
                yield event


def _with_approvals(event: Any) -> Any:
    outcome = event.outcome
    if not isinstance(outcome, RunFinishedInterruptOutcome):
        return event
    interrupts = [_approval(one) for one in outcome.interrupts]
    return replace(event, outcome=RunFinishedInterruptOutcome(interrupts=interrupts))


def _approval(asked: Interrupt) -> Interrupt:
    """Return the question for confirmation as an approval of the call. It keeps its id, by which ADK finds it."""
    about: Any = (asked.metadata or {}).get("adk")
    call: Any = about.get("originalFunctionCall") if is_object(about) else None
    if not is_object(call) or call.get("id") is None:
        return asked
    confirmation: Any = about.get("toolConfirmation")
    wants_more = is_object(confirmation) and confirmation.get("payload") is not None
    hint = asked.message
    return replace(
        asked,
        reason="tool_call",
        tool_call_id=call["id"],
        message=f"Allow the call of {call.get('name')}?" if hint is None or hint.startswith(_HINT) else hint,
        response_schema=None if wants_more else _ANSWER,
    )


def _scope(run: Run) -> str:
    return getattr(run.principal, "scope", None) or "user"
