"""Use an agent of the OpenAI Agents SDK as an agent: ``App(openai_agents.agent(agent))``.

The SDK has no AG-UI adapter; its own stream is read. It is imported when the agent is made.

=============================  ======================================================================================
OpenAI Agents                  here
=============================  ======================================================================================
texts, reasoning, calls        streamed, with ids of ours; reasoning keeps its encrypted item
``needs_approval``             an interrupt of reason ``tool_call``; the SDK's run state is kept in ``run.session``
handoff                        a subagent, started by the call that hands off
front-end tools                tools of every agent that need an approval: the SDK stops at a call of one
context                        the run, so that tools reach ``context.context.state``; or what ``context`` returns
hosted tools                   activities
=============================  ======================================================================================
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, AsyncIterator, Callable
from typing import Any, Final

from aguila.agent.run import Run
from aguila.codec.json.values import is_object
from aguila.errors import EncodeError
from aguila.frameworks.external.agent_input import handoff_history
from aguila.frameworks.external.packages import load
from aguila.frameworks.external.suspended import answers_of, finished, keep_suspended, take_suspended
from aguila.frameworks.openai_agents.items import to_items
from aguila.frameworks.openai_agents.stream import ItemStream
from aguila.frameworks.relay.events import Errors
from aguila.frameworks.relay.iterator import from_events
from aguila.protocol import (
    Event,
    Interrupt,
    ResumeEntry,
    RunFinishedCancelledOutcome,
    RunFinishedInterruptOutcome,
)

__all__ = ["agent"]

_SESSION: Final = "openai_agents"
"""The key of ``run.session`` for an SDK run that waits for an approval."""

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
    sdk = load("agents", "openai-agents")

    async def events(run: Run) -> AsyncIterator[Any]:
        waiting = take_suspended(run, _SESSION)
        if any(entry.status == "cancelled" for entry in run.resume):
            yield finished(run, RunFinishedCancelledOutcome())
            return
        given = context(run) if callable(context) else context
        if given is None:
            given = run
            _ = run.state  # begin to compare it here, not in the threads of sync tools
        agents = _agents_of(sdk, agent)
        owned = {tool.name for one in agents for tool in one.tools}
        tools = [tool for tool in run.tools if tool.name not in owned]
        results: dict[str, Any] = {}
        first = _with_tools(sdk, agents, [_tool(sdk, tool, results) for tool in tools]) if tools else agent
        calls: dict[str, str] = {}
        if run.resume:
            if waiting is None:
                raise LookupError("run.session has no state of the OpenAI Agents SDK for the answered approvals")
            calls = waiting["calls"]
            results.update(await _client_results(run, calls))
            state = await sdk.RunState.from_json(first, waiting["state"], context_override=given)
            _answer(state, await answers_of(run), waiting["interrupts"], results)
            result = sdk.Runner.run_streamed(first, state, **options)
        else:
            result = sdk.Runner.run_streamed(first, to_items(await handoff_history(run)), context=given, **options)
        stream = ItemStream(run, first.name, calls, results)
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
        frontend = frozenset(tool.name for tool in tools)
        asked = [item for item in result.interruptions if item.tool_name not in frontend]
        interrupts = _ask(result, asked, run, stream.calls) if asked else []
        for event in stream.close(is_suspended=bool(interrupts)):
            yield event
        if interrupts:
            yield finished(run, RunFinishedInterruptOutcome(interrupts=interrupts))

    return from_events(events, errors=errors)


# Approvals


def _ask(result: Any, asked: list[Any], run: Run, calls: dict[str, str]) -> list[Interrupt]:
    """Store the state of the run, and return the approvals that it waits for.

    Without a question there is nothing to store: the next run has the results of front-end tools in its history.
    """
    interrupts: list[Interrupt] = []
    named: dict[str, str] = {}
    for item in asked:
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
    keep_suspended(run, _SESSION, {"state": state, "interrupts": named, "calls": calls})
    return interrupts


def _no_context(context: Any) -> dict[str, Any]:
    """Serialize the context as nothing: each run makes its own."""
    return {}


def _answer(state: Any, entries: list[ResumeEntry], interrupts: dict[str, str], results: dict[str, Any]) -> None:
    """Give the SDK the decisions of the user. A front-end call without a result stays open."""
    answers = {interrupts.get(entry.interrupt_id): entry.payload for entry in entries}
    for item in state.get_interruptions():
        if item.call_id in answers:
            payload = answers[item.call_id]
            if is_object(payload) and payload.get("approved") is True:
                state.approve(item)
            else:
                state.reject(item, rejection_message=payload.get("reason") if is_object(payload) else None)
        elif item.call_id in results:
            state.approve(item)


# Front-end tools


async def _client_results(run: Run, calls: dict[str, str]) -> dict[str, Any]:
    """Return the outputs of calls that came with the answers, by the SDK's ids of the calls."""
    found = {
        item["call_id"]: item["output"]
        for item in to_items(await run.chat_messages())
        if item.get("type") == "function_call_output"
    }
    return {given: found[call_id] for given, call_id in calls.items() if call_id in found}


def _agents_of(sdk: Any, agent: Any) -> list[Any]:
    """Return an agent and those it can hand off to."""
    found = {id(agent): agent}
    new = [agent]
    while new:
        reached = {id(one): one for each in new for one in each.handoffs if isinstance(one, sdk.Agent)}
        new = [one for key, one in reached.items() if key not in found]
        found |= reached
    return list(found.values())


def _with_tools(sdk: Any, agents: list[Any], tools: list[Any]) -> Any:
    """Return a copy of the first agent, and of those it hands off to, with the front end's tools."""
    copies = {id(one): one.clone(tools=[*one.tools, *tools]) for one in agents}
    for one in agents:
        copies[id(one)].handoffs = [copies[id(each)] if isinstance(each, sdk.Agent) else each for each in one.handoffs]
    return copies[id(agents[0])]


def _tool(sdk: Any, tool: Any, results: dict[str, Any]) -> Any:
    """Return a front-end tool for the SDK, which stops at its calls. ``results`` are those that the client sent."""

    async def client_result(context: Any, arguments: str) -> Any:
        output = results[context.tool_call_id]
        if isinstance(output, str):
            return output
        return [_output_part(sdk, part) for part in output]

    schema: dict[str, Any] = tool.parameters if is_object(tool.parameters) else {"type": "object", "properties": {}}
    return sdk.FunctionTool(
        name=tool.name,
        description=tool.description,
        params_json_schema=schema,
        on_invoke_tool=client_result,
        strict_json_schema=False,
        needs_approval=True,
    )


def _output_part(sdk: Any, part: dict[str, Any]) -> Any:
    """Return a part of an item as the SDK takes it from a tool. Raise ``EncodeError`` for audio."""
    fields = {name: value for name, value in part.items() if name != "type"}
    match part["type"]:
        case "input_text":
            return sdk.ToolOutputText(**fields)
        case "input_image":
            return sdk.ToolOutputImage(**fields)
        case "input_file":
            return sdk.ToolOutputFileContent(**fields)
        case other:
            raise EncodeError(f"OpenAI takes no {other} as the result of a tool")
