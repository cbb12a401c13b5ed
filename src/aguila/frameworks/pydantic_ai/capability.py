"""What a run adds to an agent through pydantic-ai's hooks: records, results, approvals, and the front end's tools.

One turn is one answer of the model and its calls, in this order:

1. Calls of the agent's own tools are executed concurrently, and answered as they finish. Each is recorded: a replay
   gets its result, and a call that its process died in is not made again. A tool that asks is called again when the
   answer arrives.
2. Calls that need approval are asked about, together with the questions of the tools, in one interrupt.
3. Calls of the front end's tools end the run, and the client continues with their results (FT-2). If any tool may ask,
   they are sent only now: a run that ends with a question must not leave such a call open.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from dataclasses import replace as replace_message
from typing import Any, Protocol, cast, runtime_checkable

from pydantic import BaseModel, TypeAdapter, ValidationError
from pydantic_ai.capabilities import AbstractCapability, CapabilityOrdering
from pydantic_ai.exceptions import (
    ApprovalRequired,
    CallDeferred,
    ModelRetry,
    RunCancelled,
    ToolFailed,
    ToolFailedError,
    ToolRetryError,
    UnexpectedModelBehavior,
    UserError,
)
from pydantic_ai.messages import (
    AgentStreamEvent,
    FunctionToolResultEvent,
    ModelMessage,
    ModelRequest,
    ModelRequestPart,
    ToolCallPart,
    ToolReturn,
    ToolReturnPart,
    UserContent,
    tool_return_content_ta,
)
from pydantic_ai.models import Model, ModelRequestParameters
from pydantic_ai.tools import (
    DeferredToolRequests,
    DeferredToolResults,
    RunContext,
    ToolApproved,
    ToolDefinition,
    ToolDenied,
)
from pydantic_ai.toolsets import AbstractToolset, ExternalToolset, WrapperToolset
from pydantic_ai.toolsets.abstract import ToolsetTool

from aguila.agent.interrupts import RunInterrupt
from aguila.agent.questions import InterruptCancelled, ProposedCall
from aguila.agent.run import Run
from aguila.agent.tool_calls import FAILED, describe_refusal
from aguila.chat import ChatUpdate, DataContent, FunctionResultContent, TextContent
from aguila.chat.allowed_media import AllowedMedia
from aguila.chat.own_metadata import add_own_metadata
from aguila.chat.property_keys import METADATA
from aguila.chat.tools import ToolError
from aguila.codec.logs import log_fields
from aguila.codec.notices import Notice, log_notice
from aguila.errors import OutcomeUnknown
from aguila.frameworks.pydantic_ai.errors import FinishProblem
from aguila.frameworks.pydantic_ai.history import add_note, describe_edit
from aguila.frameworks.pydantic_ai.lost_calls import describe_unknown_outcome
from aguila.frameworks.pydantic_ai.mcp_errors import MCPConnection, ServerInRun
from aguila.frameworks.pydantic_ai.model import AnswerEnded, RecordedModel
from aguila.frameworks.pydantic_ai.names import Names, replace_surrogates
from aguila.frameworks.pydantic_ai.turn import Turn, send_call
from aguila.protocol import Interrupt, Message
from aguila.stream.json_values import copy_json

_log = logging.getLogger("aguila")
_user_contents: TypeAdapter[Any] = TypeAdapter(str | list[UserContent] | None)

NOT_EXECUTED = "The call was not executed: the answer that contains it was refused."
"""The result of a call in an answer that the vendor or the model withdrew."""

LoadMessages = Callable[[Sequence[Message]], Any]


@runtime_checkable
class NeedsRun(Protocol):
    """A toolset that needs the run, such as ``mcp.MCPServer``, whose packages need not be installed."""

    def for_run_of(self, run: Run) -> AbstractToolset[Any]:
        """Return the toolset as one run uses it."""
        ...


class RunCapability(AbstractCapability[Any]):
    """The capability of one run. ``key`` is its prefix of recorded effects.

    ``load_messages`` converts messages that came with an answer to pydantic-ai's. ``is_alone`` is false if another
    agent called this one, and may ask.
    """

    def __init__(
        self,
        run: Run,
        *,
        key: str,
        names: Names,
        frontend: Sequence[ToolDefinition],
        load_messages: LoadMessages,
        allowed_media: AllowedMedia,
        state: SharedState,
        is_alone: bool,
    ) -> None:
        self.id = None
        self.run = run
        self.key = key
        self.names = names
        self.round = 0
        self.allowed_media = allowed_media
        self.chat = run.chat()
        self.frontend: set[str] = set()
        """Our names of the front end's tools that the model has."""
        self._offered = list(frontend)
        self._load_messages = load_messages
        self._state = state
        self._is_alone = is_alone
        self.turn = Turn()
        """The answer that is being worked on."""
        self._questions: list[Interrupt] = []
        self._answered: set[str] = set()  # calls whose result was sent
        self._edited: dict[str, dict[str, Any]] = {}  # arguments edited by the user, by call id
        self._added: list[tuple[int, list[ModelMessage]]] = []  # messages that came with answers, and their positions
        self._seen: set[str] = set()  # ids of those messages

    def get_ordering(self) -> CapabilityOrdering:
        """Enclose the hooks of all other capabilities, so that what they do is recorded with a call or an answer."""
        return CapabilityOrdering(position="outermost")

    def get_wrapper_model(self, model: Model) -> Model:
        """Send and record what the model answers."""
        return RecordedModel(model, self)

    def get_wrapper_toolset(self, toolset: AbstractToolset[Any]) -> AbstractToolset[Any]:
        """Add the tools of the front end, give the run to toolsets that need it, and treat errors of MCP servers."""
        toolset = toolset.visit_and_replace(self._for_run)
        return _WithFrontend(toolset, ExternalToolset(self._offered), self._learn_frontend)

    def _for_run(self, toolset: AbstractToolset[Any]) -> AbstractToolset[Any]:
        toolset = toolset.for_run_of(self.run) if isinstance(toolset, NeedsRun) else toolset
        return ServerInRun(toolset) if isinstance(toolset, MCPConnection) else toolset

    def _learn_frontend(self, offered: Iterable[str], own: set[str]) -> None:
        names = [self.names.own(name) for name in offered]
        self.frontend = {name for name in names if name not in own}
        for name in [name for name in names if name in own]:
            log_notice(Notice(rule="FT-6", message=f"dropped the front end's tool {name!r}: the agent has its own"))
            self._offered = [tool for tool in self._offered if self.names.own(tool.name) != name]

    # Answers of the model

    def is_recorded(self, parameters: ModelRequestParameters) -> bool:
        """Return whether a replay may need the answer: a tool may ask, or the caller of the agent may."""
        return self.run.is_stored and (not self._is_alone or self._has_own_tools(parameters))

    def must_hold(self, parameters: ModelRequestParameters) -> Callable[[str], bool]:
        """Return whether the calls of a tool are held: those of the front end, if the run may end with a question."""
        may_ask = self.is_recorded(parameters)
        return lambda name: may_ask and name in self.frontend

    def _has_own_tools(self, parameters: ModelRequestParameters) -> bool:
        return any(tool.kind != "external" for tool in parameters.function_tools)

    def begin_turn(self, turn: Turn | None = None) -> None:
        """Begin a turn, with its answer if that is recorded. The answer and the results belong to one stream."""
        self.chat = self.run.chat()
        self.turn = Turn() if turn is None else turn

    def check_questions(self) -> None:
        """End the run before the model is called, if a hook has turned a result into a question."""
        if self.chat.has_asked:
            raise AnswerEnded

    async def send_problem(self, problem: FinishProblem | None) -> None:
        """Report the problem with the end of an answer."""
        if problem is not None:
            await self.run.custom("aguila.finish_reason", {"reason": problem.reason, "message": problem.message})

    async def refuse_calls(self) -> None:
        """Answer the calls of a withdrawn answer. Calls that were held back are not sent."""
        for call in self.turn.calls:
            if not call.is_held:
                await self._send(call.call_id, NOT_EXECUTED, NOT_EXECUTED)

    async def finish(self) -> None:
        """End the run: with the questions of its tools, or else with the calls that were held back."""
        if self._questions:
            raise RunInterrupt(*self._questions)
        for call in self.turn.calls:
            if call.is_held:
                await send_call(self.chat, call, before=self.turn.find_call_sent_before(call))

    # Messages that came with an answer

    async def add_messages(self, messages: Sequence[ModelMessage], ids: Sequence[str] | None = None) -> list[str]:
        """Let the model see messages that came with an answer, after the results of the answered calls."""
        if ids is None:
            ids = [message.id for message in self.run.resume_messages if message.id not in self._seen]
        resumed = self.run.resume_input
        if ids and resumed is not None:
            self._seen.update(ids)
            made = await self._load_messages([one for one in resumed.messages if one.id in ids])
            self._added.append((len(messages), made))
        return list(ids)

    def with_added(self, messages: Sequence[ModelMessage]) -> list[ModelMessage]:
        """Return messages of a request with those that were added, and with notes about edited arguments."""
        made: list[ModelMessage] = []
        added = dict(self._added)
        for index, message in enumerate(messages, start=1):
            made.append(self._with_notes(message))
            for more in added.get(index, ()):
                last = made[-1]
                if isinstance(last, ModelRequest) and isinstance(more, ModelRequest):
                    made[-1] = replace_message(last, parts=[*last.parts, *more.parts])
                else:
                    made.append(more)
        return made

    def _with_notes(self, message: ModelMessage) -> ModelMessage:
        """Add the edits to the results of calls with edited arguments, also if they are errors (``history``)."""
        if not isinstance(message, ModelRequest) or all(self._edit_of(part) is None for part in message.parts):
            return message
        parts: list[ModelRequestPart] = []
        for part in message.parts:
            edited = self._edit_of(part)
            if edited is not None and isinstance(part, ToolReturnPart):
                value = part.content if part.files else part.model_response_str(wrap_if_error=False)
                part = replace_message(part, content=add_note(value, describe_edit(edited)))
            parts.append(part)
        return replace_message(message, parts=parts)

    def _edit_of(self, part: ModelRequestPart) -> dict[str, Any] | None:
        return self._edited.get(part.tool_call_id) if isinstance(part, ToolReturnPart) else None

    # Calls of the agent's own tools

    async def wrap_tool_execute(
        self,
        ctx: RunContext[Any],
        *,
        call: ToolCallPart,
        tool_def: ToolDefinition,
        args: dict[str, Any],
        handler: Callable[[dict[str, Any]], Any],
    ) -> Any:
        """Execute a call once, and send its result in its own branch, so that concurrent tools may each ask."""
        name = f"call {call.tool_call_id}"
        # A call that turns out to need approval has no result yet. Its replay must ask for the approval again.
        key = f"{self.key} approved {name}" if ctx.tool_call_approved else f"{self.key} {name}"
        return await self.run.branch(name, self._call, key, call, args, handler)

    async def _call(
        self, key: str, call: ToolCallPart, args: dict[str, Any], handler: Callable[[dict[str, Any]], Any]
    ) -> Any:
        async def effect() -> Any:
            async with self._state:
                return await _outcome_of(call, args, handler)

        try:
            if self.run.is_stored:
                record = await self.run.once(key, effect, uses_run=True)
                self._state.read()  # a recorded call has changed the state of the run
            else:
                record = await effect()
        except RunInterrupt as asked:
            self._questions += asked.interrupts
            raise CallDeferred from None
        except OutcomeUnknown:
            record = {"failed": describe_unknown_outcome(call.tool_name)}
        for kind, error in (("failed", ToolFailed), ("retry", ModelRetry)):
            if kind in record:
                await self._send(call.tool_call_id, record[kind], record[kind])
                raise error(record[kind])
        value = tool_return_content_ta.validate_python(record["value"])
        part = ToolReturnPart(call.tool_name, value, call.tool_call_id)
        await self._send(call.tool_call_id, _content_of(part))
        more: Any = _user_contents.validate_python(record.get("content"))
        tools: Any = record.get("tools")
        return ToolReturn(value, content=more, tools=tools) if more or tools else value

    async def on_event(self, ctx: RunContext[Any], *, event: AgentStreamEvent) -> None:
        """Send the results of calls that were not executed: invalid, unknown or refused ones."""
        if isinstance(event, FunctionToolResultEvent) and event.part.tool_call_id not in self._answered:
            part = event.part
            text = part.content if isinstance(part.content, str) else part.model_response_str(wrap_if_error=False)
            await self._send(part.tool_call_id, text, None if part.outcome in ("success", "denied") else text)

    async def _send(self, call_id: str, content: Any, error: str | None = None) -> None:
        self._answered.add(call_id)
        own = add_own_metadata(None, arguments=self._edited.get(call_id))
        its: dict[str, Any] = {} if own is None else {METADATA: own}
        result = FunctionResultContent(call_id, content, error, additional_properties=its)
        await self.chat.send(ChatUpdate("tool", [result], message_id=self.run.new_id("tool")))

    # Approvals

    async def handle_deferred_tool_calls(
        self, ctx: RunContext[Any], *, requests: DeferredToolRequests
    ) -> DeferredToolResults | None:
        """Ask the user to approve calls. The others wait for an answer to a question, or for the front end."""
        if not requests.approvals:
            return None
        proposed = [
            ProposedCall(
                tool_name=call.tool_name,
                args=call.args_as_dict(),
                key=call.tool_call_id,
                call=self.run.stream_tool_call(call.tool_name, tool_call_id=call.tool_call_id),
            )
            for call in requests.approvals
        ]
        try:
            approvals = await self.run.approve_all(proposed)
        except RunInterrupt as asked:
            self._questions += asked.interrupts
            return None
        except InterruptCancelled as given_up:  # these calls are answered as refused
            approvals = given_up.answers
        results = DeferredToolResults()
        for call, approval in zip(requests.approvals, approvals, strict=True):
            if not approval.approved:
                results.approvals[call.tool_call_id] = ToolDenied(describe_refusal(approval.reason))
                continue
            edited = approval.call.edited
            results.approvals[call.tool_call_id] = ToolApproved(override_args=edited)
            if edited is not None:
                self._edited[call.tool_call_id] = edited
        return results


async def _outcome_of(call: ToolCallPart, args: dict[str, Any], handler: Callable[[dict[str, Any]], Any]) -> Any:
    """Execute a call and return its outcome as JSON, to be recorded. Questions and deferrals are raised."""
    task = asyncio.current_task()
    try:
        value = await handler(args)
    except (ApprovalRequired, CallDeferred, RunCancelled, UnexpectedModelBehavior):
        raise
    except UserError as error:
        error.add_note(
            f"It was raised by the tool {call.tool_name!r}. An agent that a tool runs with Agent.run cannot ask for an"
            " approval: put the approval on the tool itself (docs/models.md)."
        )
        raise
    except ToolRetryError as error:
        return {"retry": str(error)}
    except ToolFailedError as error:
        return {"failed": str(error)}
    except ModelRetry as error:
        return {"retry": error.message}
    except (ToolError, ToolFailed) as error:
        return {"failed": str(error)}
    except asyncio.CancelledError as error:
        if task is None or task.cancelling() > 0:
            raise
        return _failed(call, error)  # the tool awaited a cancelled task
    except (Exception, SystemExit, KeyboardInterrupt) as error:  # noqa: BLE001 - any failure of a tool is a result
        return _failed(call, error)
    whole = cast("ToolReturn[Any]", value) if isinstance(value, ToolReturn) else ToolReturn[Any](value)
    try:
        returned = replace_surrogates(whole.return_value)
        record: dict[str, Any] = {"value": tool_return_content_ta.dump_python(returned, mode="json")}
        if whole.content is not None:
            record["content"] = _user_contents.dump_python(replace_surrogates(whole.content), mode="json")
    except ValueError as error:  # it has no JSON form
        return _failed(call, error)
    if whole.tools is not None:
        record["tools"] = list(whole.tools)
    return record


def _failed(call: ToolCallPart, error: BaseException) -> dict[str, Any]:
    _log.warning("the tool %r failed", call.tool_name, exc_info=error, extra=log_fields())
    return {"failed": FAILED}


def _content_of(part: ToolReturnPart) -> Any:
    """Return the result of a call for the client: text, or parts if it has files."""
    if not part.files:
        return part.content if isinstance(part.content, str) else part.model_response_str(wrap_if_error=False)
    contents: list[Any] = []
    for item in part.content_items(mode="str"):
        data, media_type = getattr(item, "data", None), getattr(item, "media_type", None)
        if isinstance(item, str):
            contents.append(TextContent(item))
        elif isinstance(data, bytes):
            contents.append(DataContent(data, media_type))
        else:
            contents.append(TextContent(str(getattr(item, "url", "")) or f"[{media_type}]"))
    return contents


@dataclass
class _WithFrontend(WrapperToolset[Any]):
    """The tools of an agent and those of the front end. A client cannot replace a tool of the agent (FT-6)."""

    external: ExternalToolset[Any]
    learn: Callable[[Iterable[str], set[str]], None] = field(repr=False)

    async def get_tools(self, ctx: RunContext[Any]) -> dict[str, ToolsetTool[Any]]:
        own = await self.wrapped.get_tools(ctx)
        offered = await self.external.get_tools(ctx)
        self.learn(offered, set(own))
        return {**offered, **own}


class SharedState:
    """The ``state`` of an agent's dependencies, which clients share. Entered around each call of a tool."""

    def __init__(self, run: Run, deps: Any) -> None:
        self._run = run
        self._deps = None if deps is run or not hasattr(deps, "state") else deps
        self._shared: Any = self._dump()
        self.read()

    async def __aenter__(self) -> None:
        """Do nothing: the dependencies have the state."""

    async def __aexit__(self, *error: object) -> None:
        """Send what the tool has changed, also before a question."""
        self.write()

    def read(self) -> None:
        """Give the dependencies the state of the run. One that does not fit their type is left out with a notice."""
        state = self._run.state if self._deps is not None else None
        if self._deps is None or state is None or state == {} or self._dump() == state:
            return
        own = self._deps.state
        try:
            given = copy_json(state)
            self._deps.state = type(own).model_validate(given) if isinstance(own, BaseModel) else given
        except ValidationError as error:
            problem = f"the client's state does not fit {type(own).__name__}: {error.error_count()} error(s)"
            log_notice(Notice(rule="state", message=problem))
        self._shared = self._dump()

    def write(self) -> None:
        """Give the run the state of the dependencies, if a tool has changed it."""
        if self._deps is not None and (state := self._dump()) != self._shared:
            self._shared = state
            self._run.state = state

    def _dump(self) -> Any:
        state: Any = getattr(self._deps, "state", None)
        return state.model_dump(mode="json") if isinstance(state, BaseModel) else copy_json(state)
