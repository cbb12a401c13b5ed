"""Use a LlamaIndex agent or workflow as an agent.

The agent (``FunctionAgent``, ``ReActAgent``, ``AgentWorkflow``) is read through LlamaIndex's own stream. The stream of
llama-index-protocols-ag-ui has no reasoning and no interrupts, and that package gives the results of front-end tools to
the model as user messages.

===============================  ====================================================================================
LlamaIndex                       here
===============================  ====================================================================================
``AgentStream``                  texts and reasoning, as they come
``ToolCall``, ``ToolCallResult`` calls and results
``state`` of the context         the state of the run, which tools read and write
``InputRequiredEvent``           an interrupt. The context waits in ``run.session``; the answer is sent as a
                                 ``HumanResponseEvent`` with the fields of the question
handoff of an ``AgentWorkflow``  a subagent, started by the call that hands off
front-end tools                  tools of every agent; a call of one ends the run
===============================  ====================================================================================

A workflow that takes ``input_data`` and writes AG-UI events, such as ``AGUIChatWorkflow``, is run as it is.
"""

from __future__ import annotations

import copy
import warnings
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Collection
from typing import Any, Final

from aguila.agent.run import Run, read_state
from aguila.codec.json.encoder import encode
from aguila.codec.json.values import is_object
from aguila.frameworks.external.agent_input import handoff_history
from aguila.frameworks.external.packages import load
from aguila.frameworks.external.suspended import answers_of, finished, keep_suspended, take_suspended
from aguila.frameworks.llama_index.ag_ui_workflow import workflow_events
from aguila.frameworks.llama_index.messages import to_llama_index
from aguila.frameworks.llama_index.stream import AgentStream
from aguila.frameworks.relay.events import Errors, RelayOptions
from aguila.frameworks.relay.iterator import from_events
from aguila.protocol import (
    Event,
    Interrupt,
    RunFinishedCancelledOutcome,
    RunFinishedInterruptOutcome,
)
from aguila.stream.json_values import copy_json

_SESSION: Final = "llama_index"
"""The key of ``run.session`` for a workflow that waits for an answer."""


def agent(
    workflow: Any, *, state_keys: Collection[str] | None = None, errors: Errors = "mask", **options: Any
) -> Callable[[Run], AsyncGenerator[Event, None]]:
    """Make an agent of a LlamaIndex agent, an ``AgentWorkflow``, or a workflow that takes ``input_data``.

    ``workflow`` may be a function of the run that returns one. ``options`` are arguments of an agent's ``run``, such as
    ``max_iterations``.

    Raise TypeError for an object that is neither.
    """
    if not hasattr(workflow, "run") and not callable(workflow):
        raise TypeError(f"llama_index.agent() takes an agent or a workflow, not {type(workflow).__name__}")
    if _is_agent(workflow):  # imported here, so that a missing package does not fail the first run
        load("llama_index.core.workflow", "llama-index-core")
    elif hasattr(workflow, "run"):
        load("ag_ui.core", "ag-ui-protocol")
    relay = RelayOptions(raw="drop", state_keys=state_keys, errors=errors)

    def events(run: Run) -> AsyncIterator[Any]:
        chosen: Any = workflow if hasattr(workflow, "run") else workflow(run)
        return _agent_events(chosen, run, relay, options) if _is_agent(chosen) else workflow_events(chosen, run)

    return from_events(events, state_keys=state_keys, errors=errors)


def _is_agent(workflow: Any) -> bool:
    """Return whether a workflow is an agent or an ``AgentWorkflow``, rather than one that takes ``input_data``."""
    return hasattr(workflow, "take_step") or hasattr(workflow, "agents")


async def _agent_events(workflow: Any, run: Run, relay: RelayOptions, options: dict[str, Any]) -> AsyncIterator[Event]:
    waiting = take_suspended(run, _SESSION)
    if any(entry.status == "cancelled" for entry in run.resume):
        yield finished(run, RunFinishedCancelledOutcome())
        return
    core = load("llama_index.core.workflow", "llama-index-core")
    chosen = _for_run(workflow, run)
    answered: list[Any] = []
    if run.resume:
        context = core.Context.from_dict(chosen, waiting["context"], serializer=core.JsonSerializer())
        handler = chosen.run(ctx=context)
        await handler.ctx.store.set("memory", _memory(waiting["memory"]))
        for entry in await answers_of(run):
            fields = waiting["questions"][entry.interrupt_id]
            answered.append((fields, entry.payload))
            handler.ctx.send_event(_answer(core, fields, entry.payload))
        stream = AgentStream(run, waiting["stream"])
    else:
        context = core.Context(chosen)
        if is_object(state := read_state(run)) and state:
            await context.store.set("state", copy_json(state))
        handler = chosen.run(ctx=context, chat_history=to_llama_index(await handoff_history(run)), **options)
        stream = AgentStream(run, None)
    questions: list[Any] = []
    interrupts: list[Interrupt] = []
    try:
        for event in stream.begin():
            yield event
        async for part in handler.stream_events():
            for event in stream.feed(part):
                yield event
            if isinstance(part, core.InputRequiredEvent):
                fields = _fields(part)
                repeated = next((payload for known, payload in answered if known == fields), _NEW)
                if repeated is _NEW:
                    questions.append(fields)
                else:  # a call that is made again after a restart asks again
                    handler.ctx.send_event(_answer(core, fields, repeated))
            if type(part).__name__ == "ToolCallResult":
                await _share_state(handler, run, relay)
            if questions and len(questions) >= stream.open_calls:
                break
        if questions:
            interrupts = await _ask(core, handler, run, questions, stream)
        else:
            await handler
            await _share_state(handler, run, relay)
    finally:
        if not handler.done():
            await handler.cancel_run()
    for event in stream.close(is_suspended=bool(questions)):
        yield event
    if questions:
        yield finished(run, RunFinishedInterruptOutcome(interrupts=interrupts))


_NEW: Final[Any] = object()


async def _share_state(handler: Any, run: Run, relay: RelayOptions) -> None:
    """Send the changes that tools have made to the state."""
    state = relay.visible_state(await handler.ctx.store.get("state", default=None))
    if is_object(state) and state != (read_state(run) or {}):
        run.state = copy_json(state)


# Questions


async def _ask(core: Any, handler: Any, run: Run, questions: list[Any], stream: AgentStream) -> list[Interrupt]:
    """Store the context of the workflow, and return the questions that it waits for."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # the memory is not a part of it, and is kept beside it
        context = handler.ctx.to_dict(serializer=core.JsonSerializer())
    memory = await handler.ctx.store.get("memory")
    named = {f"{run.run_id}:{at}": fields for at, fields in enumerate(questions)}
    state = {
        "context": context,
        "memory": [message.model_dump(mode="json") for message in await memory.aget_all()],
        "questions": named,
        "stream": stream.snapshot(),
    }
    keep_suspended(run, _SESSION, state)
    return [
        Interrupt(
            id=interrupt_id,
            reason="input_required",
            message=_text(fields["prefix"]) if "prefix" in fields else None,
            tool_call_id=stream.only_call,
            metadata={"llama_index": fields},
        )
        for interrupt_id, fields in named.items()
    ]


def _fields(question: Any) -> dict[str, Any]:
    """Return the fields of a question as JSON: those of its class, and those that it was made with besides."""
    fields: dict[str, Any] = question.model_dump(mode="json")
    given = fields.pop("_data", {})
    return copy_json({**fields, **given})


def _text(value: Any) -> str:
    return value if isinstance(value, str) else encode(value).decode()


def _answer(core: Any, fields: dict[str, Any], payload: Any) -> Any:
    """Return the event that answers a question. It has the question's fields, which a tool may require."""
    return core.HumanResponseEvent(**{**fields, "response": payload})


def _memory(messages: list[Any]) -> Any:
    message_class: Any = load("llama_index.core.llms", "llama-index-core").ChatMessage
    memory_class: Any = load("llama_index.core.memory", "llama-index-core").ChatMemoryBuffer
    return memory_class.from_defaults(chat_history=[message_class.model_validate(one) for one in messages])


# Front-end tools


def _for_run(workflow: Any, run: Run) -> Any:
    """Return a copy of an agent or an ``AgentWorkflow`` with the front end's tools."""
    if not run.tools:
        return workflow
    if not hasattr(workflow, "agents"):
        return _with_tools(workflow, run)
    chosen = copy.copy(workflow)
    chosen.agents = {name: _with_tools(one, run) for name, one in workflow.agents.items()}
    return chosen


def _with_tools(agent: Any, run: Run) -> Any:
    own = {tool.metadata.name for tool in agent.tools or ()}
    tools = [_tool(tool) for tool in run.tools if tool.name not in own]
    return agent.model_copy(update={"tools": [*(agent.tools or ()), *tools]})


def _tool(tool: Any) -> Any:
    tools: Any = load("llama_index.core.tools", "llama-index-core")
    base: Any = load("pydantic", "pydantic").BaseModel
    schema: dict[str, Any] = tool.parameters if is_object(tool.parameters) else {"type": "object", "properties": {}}

    def model_json_schema(cls: Any, *arguments: Any, **options: Any) -> dict[str, Any]:
        return copy_json(schema)

    async def leave_to_client(**arguments: Any) -> str:
        return ""

    members = {"model_json_schema": classmethod(model_json_schema), "__module__": __name__}
    return tools.FunctionTool.from_defaults(
        async_fn=leave_to_client,
        name=tool.name,
        description=tool.description or tool.name,
        fn_schema=type("Arguments", (base,), members),
        return_direct=True,
    )
