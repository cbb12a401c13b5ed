"""Use an agent of the OpenAI Agents SDK as an agent: ``App(openai_agents.agent(agent))``.

The SDK has no AG-UI adapter; its own stream is read. It is imported when the first run begins.

=============================  ======================================================================================
OpenAI Agents                  here
=============================  ======================================================================================
texts, reasoning, calls        streamed, with ids of ours; reasoning keeps its encrypted item
``needs_approval``             an interrupt of reason ``tool_call``; the SDK's run state is kept in ``run.session``
handoff                        a subagent, started by the call that hands off
front-end tools                tools of every agent; a call of one ends the run
context                        the run, so that tools reach ``context.context.state``; or what ``context`` returns
hosted tools                   activities
=============================  ======================================================================================
"""

from __future__ import annotations

import asyncio
import inspect
from collections.abc import AsyncGenerator, AsyncIterator, Callable
from typing import Any, Final

from aguila.agent.run import Run
from aguila.codec.json.values import is_object
from aguila.frameworks.external.agent_input import handoff_history
from aguila.frameworks.external.packages import load
from aguila.frameworks.openai_agents.items import to_items
from aguila.frameworks.openai_agents.stream import ItemStream
from aguila.frameworks.relay.events import Errors
from aguila.frameworks.relay.iterator import from_events
from aguila.protocol import (
    Event,
    Interrupt,
    RunFinishedCancelledOutcome,
    RunFinishedEvent,
    RunFinishedInterruptOutcome,
)

__all__ = ["agent"]

_SESSION: Final = "openai_agents"
"""The key of ``run.session`` that has what waits for an approval."""

_ANSWER: Final[dict[str, Any]] = {
    "type": "object",
    "properties": {"approved": {"type": "boolean"}, "reason": {"type": "string"}},
    "required": ["approved"],
    "additionalProperties": False,
}
"""The schema of an approval. The SDK cannot change the arguments of a call, so they cannot be edited."""


def agent(
    agent: Any, *, context: Any = None, errors: Errors = "mask", **options: Any
) -> Callable[[Run], AsyncGenerator[Event, None]]:
    """Make an agent of an ``agents.Agent``.

    ``context`` is the SDK's context object, or a function of the run that returns it; by default it is the run.
    ``options`` are arguments of ``Runner.run_streamed``, such as ``max_turns`` and ``run_config``.

    Raise TypeError for an object that is not an agent.
    """
    if not hasattr(agent, "handoffs") or not hasattr(agent, "clone"):
        raise TypeError(f"openai_agents.agent() takes an agents.Agent, not {type(agent).__name__}")

    async def events(run: Run) -> AsyncIterator[Any]:
        waiting = _take_waiting(run)
        if any(entry.status == "cancelled" for entry in run.resume):
            yield _finished(run, RunFinishedCancelledOutcome())
            return
        sdk = load("agents", "openai-agents")
        given = context(run) if callable(context) else context
        if given is None:
            given = run
            _ = run.state  # so that it is watched: the SDK calls sync tools in threads, which must not begin that
        names = frozenset(tool.name for tool in run.tools)
        first = _with_tools(sdk, agent, run, {}) if names else agent
        calls: dict[str, str] = {}
        if run.resume:
            calls = waiting["calls"]
            state = await sdk.RunState.from_json(first, waiting["state"], context_override=given)
            _answer(state, run, waiting["interrupts"])
            result = sdk.Runner.run_streamed(first, state, **options)
        else:
            result = sdk.Runner.run_streamed(first, to_items(await handoff_history(run)), context=given, **options)
        stream = ItemStream(run, first.name, names, calls)
        try:
            for event in stream.begin(result.current_agent):
                yield event
            async for part in result.stream_events():
                for event in stream.feed(part):
                    yield event
        finally:
            if not result.is_complete:
                result.cancel()
            if result.run_loop_task is not None:
                await asyncio.wait([result.run_loop_task])
        interrupts = _ask(result, run, stream.calls) if result.interruptions else []
        for event in stream.close(is_suspended=bool(interrupts)):
            yield event
        if interrupts:
            yield _finished(run, RunFinishedInterruptOutcome(interrupts=interrupts))

    return from_events(events, errors=errors)


def _finished(run: Run, outcome: Any) -> RunFinishedEvent:
    return RunFinishedEvent(thread_id=run.thread_id, run_id=run.run_id, outcome=outcome)


# Approvals


def _take_waiting(run: Run) -> Any:
    """Return what an earlier run left for its approvals, and remove it from the session."""
    session = run.session
    return session.pop(_SESSION, None) if is_object(session) else None


def _ask(result: Any, run: Run, calls: dict[str, str]) -> list[Interrupt]:
    """Store the state of the run, and return the approvals that it waits for."""
    if not is_object(run.session):
        raise TypeError(f"run.session must be a dict to keep approvals in it, not {type(run.session).__name__}")
    interrupts: list[Interrupt] = []
    named: dict[str, str] = {}
    for item in result.interruptions:
        call_id = item.call_id
        interrupt_id = f"{run.run_id}:{call_id}"
        named[interrupt_id] = call_id
        interrupts.append(
            Interrupt(
                id=interrupt_id,
                reason="tool_call",
                message=f"Allow the call of {item.qualified_name}?",
                tool_call_id=calls.get(call_id, call_id),
                response_schema=_ANSWER,
            )
        )
    state = result.to_state().to_json(context_serializer=_no_context)
    run.session[_SESSION] = {"state": state, "interrupts": named, "calls": calls}
    return interrupts


def _no_context(context: Any) -> dict[str, Any]:
    """Serialize the context as nothing: each run makes its own."""
    return {}


def _answer(state: Any, run: Run, interrupts: dict[str, str]) -> None:
    answers = {interrupts.get(entry.interrupt_id): entry.payload for entry in run.resume}
    for item in state.get_interruptions():
        payload = answers.get(item.call_id)
        if is_object(payload) and payload.get("approved") is True:
            state.approve(item)
        else:
            state.reject(item, rejection_message=payload.get("reason") if is_object(payload) else None)


# Front-end tools


def _with_tools(sdk: Any, agent: Any, run: Run, made: dict[int, Any]) -> Any:
    """Return a copy of an agent, and of those it hands off to, with the front end's tools."""
    if id(agent) in made:
        return made[id(agent)]
    own = {tool.name for tool in agent.tools}
    tools = [_tool(sdk, tool) for tool in run.tools if tool.name not in own]
    names = frozenset(tool.name for tool in tools)
    copy = agent.clone(tools=[*agent.tools, *tools], tool_use_behavior=_stop_at(sdk, names, agent.tool_use_behavior))
    made[id(agent)] = copy
    copy.handoffs = [_with_tools(sdk, one, run, made) if isinstance(one, sdk.Agent) else one for one in agent.handoffs]
    return copy


def _tool(sdk: Any, tool: Any) -> Any:
    async def leave_to_client(context: Any, arguments: str) -> str:
        return ""

    schema: dict[str, Any] = tool.parameters if is_object(tool.parameters) else {"type": "object", "properties": {}}
    return sdk.FunctionTool(
        name=tool.name,
        description=tool.description,
        params_json_schema=schema,
        on_invoke_tool=leave_to_client,
        strict_json_schema=False,
    )


def _stop_at(sdk: Any, names: frozenset[str], behavior: Any) -> Any:
    """Return the SDK's decision what follows tool calls: a call of a front-end tool ends the run."""

    async def decide(context: Any, results: list[Any]) -> Any:
        made = [result.tool.name for result in results]
        if not names.isdisjoint(made):
            return sdk.ToolsToFinalOutputResult(is_final_output=True, final_output="")
        if callable(behavior):
            decided = behavior(context, results)
            return await decided if inspect.isawaitable(decided) else decided
        stops = behavior["stop_at_tool_names"] if is_object(behavior) else made if behavior != "run_llm_again" else ()
        found = next((result for result in results if result.tool.name in stops), None)
        if found is None:
            return sdk.ToolsToFinalOutputResult(is_final_output=False, final_output=None)
        return sdk.ToolsToFinalOutputResult(is_final_output=True, final_output=found.output)

    return decide
