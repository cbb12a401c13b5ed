"""The methods that ``Run`` and subagents share: send output, call tools, ask the user."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Coroutine, Sequence
from contextlib import AbstractContextManager
from typing import Any, ParamSpec, TypeVar, get_args, overload

from aguila.agent.handles import (
    ActivityHandle,
    NamedBranch,
    Opened,
    ReasoningHandle,
    StepHandle,
    TextHandle,
    ToolCallHandle,
    encode_arguments,
    not_open,
    status_of,
)
from aguila.agent.output import Output
from aguila.agent.questions import (
    APPROVAL_SCHEMA,
    Approval,
    InterruptCancelled,
    ProposedCall,
    Question,
    Questions,
    read_approval,
)
from aguila.agent.tool_calls import ToolResult, begin_call, call_function, unknown_outcome
from aguila.chat.tools import FunctionTool
from aguila.errors import OutcomeUnknown
from aguila.protocol import Interrupt, Metadata, TextMessageRole, replace
from aguila.stream.json_values import copy_json
from aguila.stream.verification.rules import SUBAGENT
from aguila.telemetry import span, tool_span

P = ParamSpec("P")
T = TypeVar("T")

_ROLES: tuple[str, ...] = get_args(TextMessageRole)


class RunAPI:
    """Sends and asks on behalf of the agent, or of the subagent ``_owner``."""

    __slots__ = ("_frontend_tools", "_output", "_owner_id", "_questions")

    _output: Output
    _questions: Questions
    _frontend_tools: frozenset[str]
    _owner_id: str | None

    @property
    def _owner(self) -> str | None:
        """The id of the subagent; None for the agent itself."""
        return self._owner_id

    # Text and reasoning

    def text(
        self,
        role: TextMessageRole | None = None,
        name: str | None = None,
        message_id: str | None = None,
        metadata: Metadata | None = None,
    ) -> TextHandle:
        """Open a text message: ``async with run.text() as text: await text.write("...")``.

        Raises ``ValueError`` for an unknown role.
        """
        if role is not None and role not in _ROLES:
            raise ValueError(
                f"role must be one of {', '.join(_ROLES)}, not {role!r}; to send a whole message, use run.say(text)"
            )
        return TextHandle(self._output, self._owner, role, name, message_id, metadata)

    async def say(
        self,
        text: str,
        role: TextMessageRole | None = None,
        name: str | None = None,
        message_id: str | None = None,
        metadata: Metadata | None = None,
    ) -> str:
        """Send a whole text message. Return its id."""
        async with self.text(role, name, message_id, metadata) as message:
            await message.write(text)
        return message.message_id

    def reasoning(self, message_id: str | None = None, metadata: Metadata | None = None) -> ReasoningHandle:
        """Open a reasoning message, to be used like ``text``."""
        return ReasoningHandle(self._output, self._owner, message_id, metadata)

    # Tools

    async def tool_call(
        self,
        name: str | FunctionTool[..., Any],
        args: dict[str, Any] | str | None = None,
        *,
        tool_call_id: str | None = None,
        parent_message_id: str | None = None,
        metadata: Metadata | None = None,
        stream: bool = False,
    ) -> ToolCallHandle:
        """Send a tool call. Send its result with ``result`` of the handle. ``args`` are an object, or exact JSON text.

        If the client offers a tool of that name, the client executes the call: the run ends with it pending. With
        ``stream``, append to the arguments with ``args`` of the handle; ``end`` or ``result`` completes them.
        """
        text = encode_arguments(args, "" if stream else "{}")
        call = self.stream_tool_call(
            name, tool_call_id=tool_call_id, parent_message_id=parent_message_id, metadata=metadata
        )
        await call.__aenter__()
        await call.args(text)
        if not stream:
            await call.end()
        return call

    def stream_tool_call(
        self,
        name: str | FunctionTool[..., Any],
        *,
        tool_call_id: str | None = None,
        parent_message_id: str | None = None,
        metadata: Metadata | None = None,
    ) -> ToolCallHandle:
        """Open a tool call: ``async with run.stream_tool_call(name) as call: await call.args("...")``."""
        name = _name_of(name)
        is_frontend = name in self._frontend_tools
        return ToolCallHandle(self._output, self._owner, name, tool_call_id, parent_message_id, is_frontend, metadata)

    async def call_tool(
        self, tool: FunctionTool[..., Any] | Callable[..., Any], args: dict[str, Any] | None = None
    ) -> ToolResult:
        """Send a call of a function tool, ask for approval if the tool needs it, call it and send its result.

        Returns the result: ``value`` is what the function returned, ``content`` what was sent. It is recorded, so a
        replay does not call the function again. Invalid arguments, an exception and a
        refusal by the user become results too, with the reason in ``error``.
        """
        tool = FunctionTool.of(tool)
        arguments: dict[str, Any] = {} if args is None else copy_json(args)
        key = self._questions.new_key(f"tool {tool.name}")
        call, arguments, known = await begin_call(self, tool, arguments)

        async def effect() -> Any:
            with tool_span(tool.name, call.id, arguments) as note_result:
                result = await call_function(tool, arguments, self._questions.run)
                note_result(result.content, result.error)
            return result.as_record()

        if known is None:
            once = self._questions.once_using_run if tool.takes_run else self._questions.once
            try:
                known = ToolResult.from_record(await once(key, effect))
            except OutcomeUnknown:
                known = unknown_outcome(tool)
        await call.result(known.content)
        return known

    # Structure

    def step(self, name: str, parent: str | StepHandle | None = None, metadata: Metadata | None = None) -> StepHandle:
        """Open a step: ``async with run.step("search"):``. Its ``metadata["aguila"]`` names ``parent``."""
        return StepHandle(self._output, self._owner, name, parent, metadata)

    def subagent(
        self,
        name: str,
        description: str | None = None,
        *,
        subagent_run_id: str | None = None,
        tool_call: str | ToolCallHandle | None = None,
        parent_message_id: str | None = None,
        metadata: Metadata | None = None,
    ) -> SubagentHandle:
        """Open a subagent: ``async with run.subagent("writer") as sub: await sub.say("...")``."""
        call_id = tool_call.id if isinstance(tool_call, ToolCallHandle) else tool_call
        opening = {
            "description": description,
            "parent_subagent_run_id": self._owner,
            "parent_tool_call_id": call_id,
            "parent_message_id": parent_message_id,
            "metadata": metadata,
        }
        run_id = self._output.branches.new_id("sub") if subagent_run_id is None else subagent_run_id
        return SubagentHandle(self._output, self._questions, self._frontend_tools, run_id, name, opening)

    async def activity(
        self, activity_type: str, content: dict[str, Any], *, message_id: str | None = None, replace: bool | None = None
    ) -> ActivityHandle:
        """Send an activity message. The handle changes its content."""
        activity = ActivityHandle(self._output, self._owner, activity_type, content, message_id)
        await activity.send(replace)
        return activity

    async def custom(self, name: str, value: Any, *, metadata: Metadata | None = None) -> None:
        """Send a CUSTOM event. Raises ``EncodeError`` if the value is not JSON."""
        await self._output.send(self._output.agent_writer.custom, name, value, subagent=self._owner, metadata=metadata)

    async def raw(self, event: Any, source: str | None = None, *, metadata: Metadata | None = None) -> None:
        """Send a RAW event: one of another system, in addition to the standard events for it (PASS-3)."""
        await self._output.send(
            self._output.agent_writer.raw, event, source=source, subagent=self._owner, metadata=metadata
        )

    # Branches

    @overload
    def branch(self, name: str, /) -> NamedBranch: ...
    @overload
    def branch(
        self, name: str, function: Callable[P, Awaitable[T]], /, *args: P.args, **kwargs: P.kwargs
    ) -> Coroutine[Any, Any, T]: ...
    def branch(
        self, name: str, function: Callable[..., Awaitable[Any]] | None = None, /, *args: Any, **kwargs: Any
    ) -> Any:
        """Name a part of the agent that runs beside others, so that a replay finds it again.

        With a function, return a coroutine that calls it in the branch, for a task:
        ``group.create_task(run.branch("flight", book, "flight"))``. Without one, return a context manager:
        ``async with run.branch("flight"):``. Names are relative to the enclosing branch. A name may be used again after
        the branch has ended.

        Raises ``ValueError`` for an empty name, or while a branch of that name is active in the same parent.
        """
        branch = NamedBranch(self._output.branches, name)
        if function is None:
            return branch
        if not callable(function):
            raise TypeError(
                f"run.branch({name!r}, ...) takes a function and its arguments, as in run.branch('a', book, 'flight');"
                f" it got {type(function).__name__}"
            )
        return _call_in(branch, function, args, kwargs)

    def span(self, name: str, **attributes: Any) -> AbstractContextManager[None]:
        """Make an OpenTelemetry span of a part of the agent: ``with run.span("search", query="eagles"):``.

        Spans that begin within are its children. Nothing happens if the process does not trace.
        """
        return span(name, attributes)

    # Questions

    async def ask(
        self,
        question: str,
        *,
        schema: dict[str, Any] | None = None,
        key: str | None = None,
        reason: str = "input_required",
        expires_at: str | None = None,
        metadata: Metadata | None = None,
    ) -> Any:
        """Ask the user. Return the payload of the answer.

        The first time, this ends the run. The run that brings the answer invokes the agent again from its beginning and
        returns the answer here; earlier output is not sent again. A question is identified by its text, its schema, and
        its ``key``, or without a key by its branch and by how often that branch asked it.

        Raises ``InterruptCancelled`` if the user gave up. Raises ``ValueError`` without a key in one of several
        concurrent tasks that have no name: see ``branch``.
        """
        asked = Question(
            question=question, schema=schema, key=key, reason=reason, expires_at=expires_at, metadata=metadata
        )
        return (await self._questions.ask([asked], self._owner))[0]

    async def ask_all(self, questions: Sequence[Question | str]) -> list[Any]:
        """Ask several questions at once. Return the payloads in order.

        Raises ``InterruptCancelled``, which has the other answers, if the user gave up any of them.
        """
        asked = [Question(question=each) if isinstance(each, str) else each for each in questions]
        return await self._questions.ask(asked, self._owner)

    async def approve(
        self,
        tool: str | FunctionTool[..., Any],
        args: dict[str, Any],
        *,
        message: str | None = None,
        key: str | None = None,
        expires_at: str | None = None,
        metadata: Metadata | None = None,
    ) -> Approval[ToolCallHandle]:
        """Send a tool call and ask the user to approve it. The user may edit the arguments.

        The agent executes the call and sends its result with ``call.result`` of the approval, even if the client offers
        a tool of that name. Other arguments make another question.

        Raises ``InterruptCancelled`` if the user gave up. Its ``answers`` hold a false approval with the ``call``.
        """
        proposed: ProposedCall[ToolCallHandle] = ProposedCall(
            tool_name=_name_of(tool), args=args, message=message, key=key, expires_at=expires_at, metadata=metadata
        )
        return (await self.approve_all([proposed]))[0]

    async def approve_all(self, calls: Sequence[ProposedCall[ToolCallHandle]]) -> list[Approval[ToolCallHandle]]:
        """Send several tool calls and ask the user about all of them at once. Return the approvals in order.

        See ``approve``. Raises ``ValueError`` if two of them are the same: give them keys.
        """
        asked: list[Interrupt] = []
        shown: list[ToolCallHandle] = []
        for proposed in calls:
            text = encode_arguments(proposed.args, "{}")
            question = Question(
                question=f"Allow the call of {proposed.tool_name}?" if proposed.message is None else proposed.message,
                schema=APPROVAL_SCHEMA,
                key=proposed.key,
                reason="tool_call",
                expires_at=proposed.expires_at,
                metadata=proposed.metadata,
            )
            identity = f"{question.question}\n{proposed.tool_name}\n{text}"
            interrupt = self._questions.make_interrupt(question, subagent=self._owner, identity=identity)
            call = proposed.call
            if call is None:
                call = await self.tool_call(proposed.tool_name, text, tool_call_id=f"call_{interrupt.id}")
            # The agent executes the call, even if the front end has a tool of that name.
            call.is_frontend = False
            asked.append(replace(interrupt, tool_call_id=call.id))
            shown.append(call)
        answers = await self._questions.take_answers(asked)
        approvals: list[Approval[ToolCallHandle]] = []
        for answer, proposed, call in zip(answers, calls, shown, strict=True):
            approval = read_approval(answer, copy_json(proposed.args), call)
            if approval.approved and approval.arguments != copy_json(proposed.args):
                call.edited = approval.arguments
            approvals.append(approval)
        given_up = [answer.interrupt_id for answer in answers if answer.status == "cancelled"]
        if given_up:
            raise InterruptCancelled(given_up, approvals)
        return approvals

    def new_id(self, kind: str) -> str:
        """Make an id for a message or a call. A replay makes the same one again."""
        return self._output.branches.new_id(kind)

    def new_call_id(self, given: str) -> str:
        """Return a model's call id, or a new id if that is empty or the thread has a call with it."""
        return self._output.claim_call_id(given)


def _name_of(tool: str | FunctionTool[..., Any]) -> str:
    return tool if isinstance(tool, str) else tool.name


async def _call_in(
    branch: NamedBranch, function: Callable[..., Awaitable[T]], args: tuple[Any, ...], kwargs: dict[str, Any]
) -> T:
    async with branch:
        return await function(*args, **kwargs)


class SubagentHandle(Opened, RunAPI):
    """An invocation of a subagent. ``id`` is its run id. Set ``result`` to a JSON value for SUBAGENT_FINISHED."""

    __slots__ = ("_is_open", "_opening", "id", "name", "result")

    def __init__(
        self,
        output: Output,
        questions: Questions,
        frontend_tools: frozenset[str],
        run_id: str,
        name: str,
        opening: dict[str, Any],
    ) -> None:
        self._output = output
        self._questions = questions
        self._frontend_tools = frontend_tools
        self.id = self._owner_id = run_id
        self.name = name
        self.result: Any = None
        self._opening = opening
        self._is_open: bool | None = None  # None: not entered yet

    @property
    def _owner(self) -> str:
        if not self._is_open:
            raise not_open("run.subagent(name)", "subagent", self._is_open)
        return self.id

    async def __aenter__(self) -> SubagentHandle:
        self._is_open = True
        await self._output.send_opener(self._output.agent_writer.start_subagent, self.name, self.id, **self._opening)
        return self

    async def fail(self, message: str, code: str | None = None) -> None:
        """End the invocation as failed, with a message for the user. The run continues (SUB-6)."""
        await self._output.send_opener(self._output.agent_writer.fail_subagent, self.id, message, code)

    async def _close(self, error: BaseException | None) -> None:
        self._is_open = False
        if not self._output.agent_writer.has_open(SUBAGENT, self.id):
            return
        status = status_of(error)
        if status == "success":
            await self._output.send_opener(self._output.agent_writer.finish_subagent, self.id, copy_json(self.result))
        elif status == "error":
            await self.fail("The subagent failed.", "subagent_error")
        elif status == "cancelled" and not self._questions.unanswered and not self._output.is_cancelled:
            await self.fail("The subagent was cancelled.", "cancelled")
        # Otherwise the run is about to end, with a question or cancelled: the writer closes the subagent accordingly.
