"""Layer: agent. Everything that an agent, or one of its subagents, can say and ask.

Above: ``run`` adds what belongs to the run as a whole. Below: ``handles`` is what these methods give, ``questions`` is
what asking means.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Coroutine, Sequence
from typing import Any, ParamSpec, TypeVar, get_args, overload

import msgspec

from aguila.agent.handles import (
    ActivityHandle,
    BranchScope,
    Opened,
    ReasoningHandle,
    StepHandle,
    TextHandle,
    ToolCallHandle,
    arguments_of,
    status_of,
)
from aguila.agent.output import OutputMapper
from aguila.agent.questions import (
    APPROVAL_SCHEMA,
    Approval,
    InterruptCancelled,
    ProposedCall,
    Question,
    Questions,
    read_approval,
)
from aguila.agent.tool_calls import ToolResult, call_function
from aguila.chat.tools import FunctionTool, ToolError
from aguila.protocol import Interrupt, Metadata, TextMessageRole, replace
from aguila.stream.json_values import copy_json
from aguila.stream.rules import SUBAGENT
from aguila.stream.writer import EventWriter

P = ParamSpec("P")
T = TypeVar("T")

_ROLES: tuple[str, ...] = get_args(TextMessageRole)


class RunAPI:
    """What the agent itself and each of its subagents can say. All of it is attributed to ``_owner``."""

    __slots__ = ("_frontend_tools", "_out", "_owner", "_questions")

    def __init__(
        self, output: OutputMapper, questions: Questions, frontend_tools: frozenset[str], owner: str | None
    ) -> None:
        self._out = output
        self._questions = questions
        self._frontend_tools = frontend_tools
        self._owner = owner

    # Text and thoughts

    def text(
        self,
        role: TextMessageRole | None = None,
        name: str | None = None,
        message_id: str | None = None,
        metadata: Metadata | None = None,
    ) -> TextHandle:
        """A text message, open while it is entered: ``async with run.text() as text: await text.write("...")``.

        Raises ``ValueError`` for an unknown role.
        """
        if role is not None and role not in _ROLES:
            raise ValueError(f"role is one of {', '.join(_ROLES)}, not {role!r}; run.say(text) sends a whole message")
        return TextHandle(self._out, self._owner, role, name, message_id, metadata)

    async def say(
        self,
        text: str,
        role: TextMessageRole | None = None,
        name: str | None = None,
        message_id: str | None = None,
        metadata: Metadata | None = None,
    ) -> str:
        """A whole text message; gives its id."""
        async with self.text(role, name, message_id, metadata) as message:
            await message.write(text)
        return message.message_id

    def reasoning(self, message_id: str | None = None, metadata: Metadata | None = None) -> ReasoningHandle:
        """A thought, open while it is entered."""
        return ReasoningHandle(self._out, self._owner, message_id, metadata)

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
        """Call a tool: arguments as an object, or as the exact text. Answer it with ``result`` of what this gives.

        A call of a tool of the input is the front end's to answer: leave it, and the run ends with the call pending.
        ``stream`` leaves the arguments open for ``args``; ``end`` or ``result`` completes them.
        """
        text = arguments_of(args, "" if stream else "{}")
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
        """A call whose arguments are written piece by piece while it is entered."""
        name = _name_of(name)
        is_frontend = name in self._frontend_tools
        return ToolCallHandle(self._out, self._owner, name, tool_call_id, parent_message_id, is_frontend, metadata)

    async def call_tool(self, tool: FunctionTool[..., Any], args: dict[str, Any] | None = None) -> ToolResult:
        """Show a call of a function tool, ask for approval if it needs one, call it and send its result.

        The result is recorded: a replay does not call the function again. Arguments that do not fit, an exception and a
        refusal of the user are results too; ``error`` of the result tells that the call failed.
        """
        arguments: dict[str, Any] = {} if args is None else copy_json(args)
        key = self._questions.new_key(f"tool {tool.name}")
        call, arguments, known = await self._begin_call(tool, arguments)

        async def effect() -> Any:
            return msgspec.to_builtins(await call_function(tool, arguments, self._questions.run))

        if known is None:
            once = self._questions.once_in_run if tool.takes_run else self._questions.once
            known = msgspec.convert(await once(key, effect), ToolResult)
        await call.result(known.content)
        return known

    async def _begin_call(
        self, tool: FunctionTool[..., Any], arguments: dict[str, Any]
    ) -> tuple[ToolCallHandle, dict[str, Any], ToolResult | None]:
        """Show a call and ask for approval. Gives the result if the function is not to be called."""
        refused: ToolResult | None = None
        try:
            tool.check(arguments)
            needs_approval = tool.needs_approval(arguments)
        except ToolError as error:
            refused, needs_approval = ToolResult.failed(str(error)), False
        if not needs_approval:
            call = await self.tool_call(tool, arguments)
            call.is_frontend = False
            return call, arguments, refused
        approval = await self.approve(tool, arguments)
        if not approval.approved:
            refused = ToolResult.refused(approval.reason)
        return approval.call, approval.arguments, refused

    # Structure

    def step(self, name: str, parent: str | StepHandle | None = None, metadata: Metadata | None = None) -> StepHandle:
        """A step, open while it is entered. ``parent`` is told in its ``metadata["aguila"]``."""
        return StepHandle(self._out, self._owner, name, parent, metadata)

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
        """An invocation of a subagent, open while it is entered; what is said through it is the subagent's."""
        call_id = tool_call.id if isinstance(tool_call, ToolCallHandle) else tool_call
        opening = {
            "description": description,
            "parent_subagent_run_id": self._owner,
            "parent_tool_call_id": call_id,
            "parent_message_id": parent_message_id,
            "metadata": metadata,
        }
        run_id = self._out.ids.mint("sub") if subagent_run_id is None else subagent_run_id
        return SubagentHandle(self._out, self._questions, self._frontend_tools, run_id, name, opening)

    async def activity(
        self, activity_type: str, content: dict[str, Any], *, message_id: str | None = None, replace: bool | None = None
    ) -> ActivityHandle:
        """Show an activity; what this gives can change it. Content is passed on as it is."""
        activity = ActivityHandle(self._out, self._owner, activity_type, content, message_id)
        await activity.send(replace)
        return activity

    async def custom(self, name: str, value: Any, *, metadata: Metadata | None = None) -> None:
        """An event whose meaning the application defines. Raises ``EncodeError`` if the value is not JSON."""
        await self._out.send(EventWriter.custom, name, value, subagent=self._owner, metadata=metadata)

    async def raw(self, event: Any, source: str | None = None, *, metadata: Metadata | None = None) -> None:
        """An event of another system, beside the standard events that say the same (PASS-3)."""
        await self._out.send(EventWriter.raw, event, source=source, subagent=self._owner, metadata=metadata)

    # Branches

    @overload
    def branch(self, name: str, /) -> BranchScope: ...
    @overload
    def branch(
        self, name: str, function: Callable[P, Awaitable[T]], /, *args: P.args, **kwargs: P.kwargs
    ) -> Coroutine[Any, Any, T]: ...
    def branch(
        self, name: str, function: Callable[..., Awaitable[Any]] | None = None, /, *args: Any, **kwargs: Any
    ) -> Any:
        """Name a part of the agent that runs beside others, so that a replay finds it again.

        With a function, give a coroutine that calls it in the branch, for a task:
        ``group.create_task(run.branch("flight", book, "flight"))``. Without one, give a scope:
        ``async with run.branch("flight"):``. Names are relative to the enclosing branch. A name may be used again after
        the branch has ended.

        Raises ``ValueError`` for an empty name, or while a branch of that name is active in the same parent.
        """
        scope = BranchScope(self._out.branches, name)
        if function is None:
            return scope
        if not callable(function):
            raise TypeError(
                f"run.branch({name!r}, ...) takes a function and its arguments, as in run.branch('a', book, 'flight');"
                f" it got {type(function).__name__}"
            )
        return _call_in(scope, function, args, kwargs)

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
        """Ask the user; gives the answer's payload.

        The first time this ends the run. The run that brings the answer invokes the agent again from its
        beginning and returns here; what was said before is not said again. A question is recognised by its text, its
        schema, and its ``key`` or else its branch and how often that branch asked it before.

        Raises ``InterruptCancelled`` if the user gave up, ``ValueError`` if it has no key and is asked by one of
        several concurrent tasks that have no name: see ``branch``.
        """
        asked = Question(
            question=question, schema=schema, key=key, reason=reason, expires_at=expires_at, metadata=metadata
        )
        return (await self._questions.ask([asked], self._owner))[0]

    async def ask_all(self, questions: Sequence[Question | str]) -> list[Any]:
        """Ask several questions at once; gives the payloads in order.

        Raises ``InterruptCancelled``, which has the other answers, if the user gave any of them up.
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
        """Show a tool call and ask whether it may be made; the user may edit the arguments.

        The call is the agent's to make and to answer, also one of a tool of the input: with ``result`` of the
        approval's ``call``, which also says with which arguments, if they were edited. Other arguments are another
        question.

        Raises ``InterruptCancelled`` if the user gave up answering, as every question does. Its ``answers`` hold the
        approval, which is false, with the ``call`` to answer.
        """
        proposed: ProposedCall[ToolCallHandle] = ProposedCall(
            tool_name=_name_of(tool), args=args, message=message, key=key, expires_at=expires_at, metadata=metadata
        )
        return (await self.approve_all([proposed]))[0]

    async def approve_all(self, calls: Sequence[ProposedCall[ToolCallHandle]]) -> list[Approval[ToolCallHandle]]:
        """Show several tool calls and ask about all of them at once; gives what was decided, in order.

        Each is what ``approve`` says of one. Raises ``ValueError`` if two of them cannot be told apart: give them
        keys.
        """
        asked: list[Interrupt] = []
        shown: list[ToolCallHandle] = []
        for proposed in calls:
            text = arguments_of(proposed.args, "{}")
            question = Question(
                question=f"Allow the call of {proposed.tool_name}?" if proposed.message is None else proposed.message,
                schema=APPROVAL_SCHEMA,
                key=proposed.key,
                reason="tool_call",
                expires_at=proposed.expires_at,
                metadata=proposed.metadata,
            )
            identity = f"{question.question}\n{proposed.tool_name}\n{text}"
            interrupt = self._questions.interrupt(question, subagent=self._owner, identity=identity)
            call = proposed.call
            if call is None:
                call = await self.tool_call(proposed.tool_name, text, tool_call_id=f"call_{interrupt.id}")
            # Whoever asks before a call makes it, also if the front end has a tool of that name.
            call.is_frontend = False
            asked.append(replace(interrupt, tool_call_id=call.id))
            shown.append(call)
        answers = await self._questions.answers(asked)
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
        """An id for a message, a call or whatever is told; a replay of the agent gives the same one again."""
        return self._out.ids.mint(kind)

    def new_call_id(self, given: str) -> str:
        """An id for a call that a model named: that one, unless it is empty or the thread has such a call (P21)."""
        return self._out.claim_call_id(given)


def _name_of(tool: str | FunctionTool[..., Any]) -> str:
    return tool if isinstance(tool, str) else tool.name


async def _call_in(
    scope: BranchScope, function: Callable[..., Awaitable[T]], args: tuple[Any, ...], kwargs: dict[str, Any]
) -> T:
    async with scope:
        return await function(*args, **kwargs)


class SubagentHandle(Opened, RunAPI):
    """An invocation of a subagent. ``id`` is its run id, ``result`` may be set to a JSON value."""

    __slots__ = ("_opening", "id", "name", "result")

    def __init__(
        self,
        output: OutputMapper,
        questions: Questions,
        frontend_tools: frozenset[str],
        run_id: str,
        name: str,
        opening: dict[str, Any],
    ) -> None:
        RunAPI.__init__(self, output, questions, frontend_tools, run_id)
        self.id = run_id
        self.name = name
        self.result: Any = None
        self._opening = opening

    async def __aenter__(self) -> SubagentHandle:
        """Announce the invocation."""
        await self._out.send_opener(EventWriter.start_subagent, self.name, self.id, **self._opening)
        return self

    async def fail(self, message: str, code: str | None = None) -> None:
        """End the invocation as failed, with a message for people; the run goes on (SUB-6)."""
        await self._out.send_opener(EventWriter.fail_subagent, self.id, message, code)

    async def _close(self, error: BaseException | None) -> None:
        if not self._out.front.has_open(SUBAGENT, self.id):
            return
        status = status_of(error)
        if status == "success":
            await self._out.send_opener(EventWriter.finish_subagent, self.id, copy_json(self.result))
        elif status == "error":
            await self.fail("The subagent failed.", "subagent_error")
        elif status == "cancelled" and not self._questions.raised and not self._out.is_cancelled:
            await self.fail("The subagent was cancelled.", "cancelled")
        # Otherwise the run is about to end: its outcome decides how (suspended by a question, cancelled).
