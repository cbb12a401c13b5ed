"""Make an agent of a pydantic-ai ``Agent``, which runs natively: ``App(pydantic_ai.agent(agent))``."""

from __future__ import annotations

import copy
import inspect
from collections.abc import Awaitable, Callable, Sequence
from typing import Any

from pydantic_ai import AbstractToolset, Agent, DeferredToolRequests, FunctionToolset
from pydantic_ai.capabilities import ReinjectSystemPrompt
from pydantic_ai.exceptions import UnexpectedModelBehavior, UsageLimitExceeded
from pydantic_ai.messages import ModelMessage, ModelRequest, ModelResponse, UserPromptPart
from pydantic_ai.models import Model
from pydantic_ai.tools import ToolDefinition
from pydantic_core import to_jsonable_python

from aguila.agent.run import Run
from aguila.chat.allowed_media import DEFAULT_MEDIA, AllowedMedia
from aguila.codec.json.encoder import encode
from aguila.codec.json.values import is_array, is_object
from aguila.codec.notices import log_notice
from aguila.errors import RunFailed, ToolRoundsExceeded
from aguila.frameworks.pydantic_ai.capability import RunCapability, SharedState
from aguila.frameworks.pydantic_ai.errors import FinishProblem
from aguila.frameworks.pydantic_ai.history import BEGIN, GO_ON, to_model_messages
from aguila.frameworks.pydantic_ai.lost_calls import answer_lost_calls
from aguila.frameworks.pydantic_ai.media import leave_out_media
from aguila.frameworks.pydantic_ai.model import AnswerEnded
from aguila.frameworks.pydantic_ai.names import Names, replace_surrogates
from aguila.frameworks.pydantic_ai.schemas.parts import SchemaBudget
from aguila.frameworks.pydantic_ai.schemas.standard import standard_schema
from aguila.offload import offload
from aguila.protocol import (
    AgentCapabilities,
    HumanInTheLoopCapabilities,
    Message,
    MultimodalCapabilities,
    MultimodalInputCapabilities,
    MultimodalOutputCapabilities,
    ReasoningCapabilities,
    StateCapabilities,
    Tool,
    ToolsCapabilities,
)

_MAX_SIMPLE = 5_000
"""Tool schemas with at most this many parts are reduced on the event loop, which takes some milliseconds."""

_OWN_OPTIONS = ("deferred_tool_results", "instructions", "message_history", "output_type", "user_prompt")
"""Arguments of ``Agent.run`` that come from the run, or from the agent itself."""

RunAgent = Callable[[Run], Awaitable[None]]


def agent(
    agent: Agent[Any, Any],
    *,
    deps: Any = None,
    output_as_text: bool = False,
    allowed_media: AllowedMedia = DEFAULT_MEDIA,
    **options: Any,
) -> RunAgent:
    """Make an agent for ``App`` of a pydantic-ai ``Agent``.

    ``deps`` are its dependencies: a class or function that is called with the run, or an object of which each run gets
    a copy; by default the run itself. If they have a ``state``, clients share it. A structured output becomes the
    result of the run; with ``output_as_text`` it is also sent as a message. References to media that ``allowed_media``
    does not admit are left out with a notice. ``options`` are arguments of ``Agent.run``, such as ``model``,
    ``model_settings``, ``usage_limits`` and ``toolsets``.

    Raises ``TypeError`` for an object that is not an agent, and for an unknown option.
    """
    if not isinstance(agent, Agent):
        raise TypeError(f"pydantic_ai.agent() takes a pydantic-ai Agent, not {type(agent).__name__}")
    for name in options:
        if name not in inspect.signature(Agent.run).parameters:
            raise TypeError(f"pydantic_ai.agent() has no option {name!r}; options are arguments of Agent.run")
        if name in _OWN_OPTIONS:
            raise TypeError(f"pydantic_ai.agent() takes no {name!r}: the thread and the Agent have it")
    own_capabilities = [*options.pop("capabilities", ())]

    async def serve(run: Run) -> None:
        """Answer with a model and its tools."""
        key = run.new_key("aguila.pydantic_ai")  # before the first await: agents may start concurrently
        await answer_lost_calls(run)
        names = Names(())
        own = _make_deps(deps, run)
        state = SharedState(run, own)

        async def load(messages: Sequence[Message] | None = None) -> list[ModelMessage]:
            found = leave_out_media(await run.chat_messages(messages), allowed_media, log_notice)
            return to_model_messages(found, names=names)

        capability = RunCapability(
            run,
            key=key,
            names=names,
            frontend=await _definitions(run.tools, names),
            load_messages=load,
            allowed_media=allowed_media,
            state=state,
            is_alone=run.agent is serve,
        )
        try:
            result = await agent.run(
                message_history=_complete(await load()),
                deps=own,
                instructions=_context_of(run) or None,
                output_type=[agent.output_type, DeferredToolRequests],
                capabilities=[capability, ReinjectSystemPrompt(), *own_capabilities],
                **options,
            )
        except AnswerEnded:
            return
        except UsageLimitExceeded as error:
            rounds = capability.round
            stopped = f"The agent stopped after {rounds} rounds with its tools."
            await capability.send_problem(FinishProblem("max_rounds", stopped))
            raise ToolRoundsExceeded(rounds) from error  # enforcing a limit is not a failure (LIFE-8)
        except UnexpectedModelBehavior as error:
            raise RunFailed("The model did not answer as it was asked to.", code="unexpected_answer") from error
        state.write()
        await capability.finish()
        if not isinstance(result.output, DeferredToolRequests) and agent.output_type is not str:
            run.result = to_jsonable_python(result.output)
            if output_as_text:
                await run.say(run.result if isinstance(run.result, str) else encode(run.result).decode())

    serve.__dict__["capabilities"] = _capabilities(agent, options.get("model"), options.get("toolsets"))
    return serve


def _make_deps(deps: Any, run: Run) -> Any:
    """Return the dependencies of a run: made for it, or a copy with a state of its own."""
    if deps is None:
        return run
    if isinstance(deps, type) or (callable(deps) and not hasattr(deps, "state")):
        return deps(run)
    own: Any = copy.copy(deps)
    if hasattr(own, "state"):
        own.state = copy.deepcopy(own.state)
    return own


async def _definitions(tools: Sequence[Tool], names: Names) -> list[ToolDefinition]:
    """Return the front end's tools with names and schemas that every vendor accepts."""
    budget = SchemaBudget()

    def make() -> list[ToolDefinition]:
        return [
            ToolDefinition(
                name=names.for_model(tool.name),
                description=replace_surrogates(tool.description),
                parameters_json_schema=replace_surrogates(standard_schema(tool.parameters, budget=budget)),
            )
            for tool in tools
        ]

    return make() if _is_simple([tool.parameters for tool in tools]) else await offload(make)


def _is_simple(found: list[Any]) -> bool:
    """Return whether schemas have few parts and no references, which could expand to many."""
    for part in found:  # the loop also visits added parts
        if is_object(part):
            if "$ref" in part:
                return False
            found += part.values()
        elif is_array(part):
            found += part
        if len(found) > _MAX_SIMPLE:
            return False
    return True


def _context_of(run: Run) -> str:
    """Return the front end's context as instructions, after those of the agent (IN-10)."""
    if not run.context:
        return ""
    entries = [f"- {entry.description}: {entry.value}" for entry in run.context]
    return replace_surrogates("\n".join(["Context from the application:", *entries]))


def _complete(messages: list[ModelMessage]) -> list[ModelMessage]:
    """Return a conversation that begins and ends with the user, as some vendors require."""
    if not any(isinstance(one, UserPromptPart) for message in messages for one in message.parts):
        has_answers = any(isinstance(message, ModelResponse) for message in messages)
        first = ModelRequest(parts=[UserPromptPart(BEGIN)])
        messages = [first, *messages] if has_answers else [*messages, first]
    elif isinstance(messages[0], ModelResponse):
        messages = [ModelRequest(parts=[UserPromptPart(BEGIN)]), *messages]
    if isinstance(messages[-1], ModelResponse):
        messages = [*messages, ModelRequest(parts=[UserPromptPart(GO_ON)])]
    return messages


def _capabilities(agent: Agent[Any, Any], model: Any, toolsets: Sequence[AbstractToolset[Any]] | None) -> Any:
    """Return the capabilities of the agent (CAP-3). Tools of MCP servers are known only while it runs."""
    functions = [one for one in (*agent.toolsets, *(toolsets or ())) if isinstance(one, FunctionToolset)]
    tools = [tool.tool_def for one in functions for tool in one.tools.values()]
    found = model if model is not None else agent.model
    profile: dict[str, Any] = dict(found.profile) if isinstance(found, Model) else {}
    documents = profile.get("supports_document_input", True)
    return AgentCapabilities(
        tools=ToolsCapabilities(
            supported=True,
            items=[
                Tool(name=one.name, description=one.description or "", parameters=one.parameters_json_schema)
                for one in tools
            ],
            parallel_calls=True,
            client_provided=True,
        ),
        multimodal=MultimodalCapabilities(
            input=MultimodalInputCapabilities(
                image=profile.get("supports_image_input", True),
                audio=profile.get("supports_audio_file_input", True),
                video=profile.get("supports_video_input", True),
                pdf=documents,
                file=documents,
            ),
            output=MultimodalOutputCapabilities(image=profile.get("supports_image_output", False), audio=False),
        )
        if isinstance(found, Model)
        else None,
        reasoning=ReasoningCapabilities(supported=True, streaming=True, encrypted=True),
        state=StateCapabilities(snapshots=True, deltas=True),
        human_in_the_loop=HumanInTheLoopCapabilities(
            supported=True, approvals=True, interrupts=True, approve_with_edits=True
        ),
    )
