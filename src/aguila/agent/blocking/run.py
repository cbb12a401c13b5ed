"""``BlockingRun``: the run of an agent in a thread. It has the methods of ``Run``, without ``await``."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Generator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager
from functools import partial
from typing import Any, ParamSpec, TypeVar, cast, overload

from aguila.agent.blocking.handles import (
    Attribute,
    BlockingActivity,
    BlockingBranch,
    BlockingChat,
    BlockingItem,
    BlockingReasoning,
    BlockingStep,
    BlockingText,
    BlockingToolCall,
    PortalHandle,
    blocking,
    on_loop,
    wrap_result,
)
from aguila.agent.handles import ToolCallHandle
from aguila.agent.questions import Approval, InterruptCancelled, ProposedCall
from aguila.agent.run import Run
from aguila.agent.run_api import RunAPI, SubagentHandle
from aguila.agent.tool_calls import ToolResult, begin_call, failed_call, unknown_outcome
from aguila.chat.hooks import Hooks
from aguila.chat.tools import FunctionTool
from aguila.errors import OutcomeUnknown
from aguila.protocol import Context, Message, Metadata, ResumeEntry, RunAgentInput, TokenUsage, Tool
from aguila.stream.json_values import copy_json
from aguila.telemetry import span, tool_span

P = ParamSpec("P")
T = TypeVar("T")
A = TypeVar("A", bound=RunAPI)


class BlockingRunAPI(PortalHandle[A]):
    """See ``RunAPI``. Handles are made on the event loop, because only there the branch of the caller is known."""

    __slots__ = ()

    text = wrap_result(on_loop(RunAPI.text), BlockingText)
    say = blocking(RunAPI.say)
    reasoning = wrap_result(on_loop(RunAPI.reasoning), BlockingReasoning)
    tool_call = wrap_result(blocking(RunAPI.tool_call), BlockingToolCall)
    stream_tool_call = wrap_result(on_loop(RunAPI.stream_tool_call), BlockingToolCall)
    activity = wrap_result(blocking(RunAPI.activity), BlockingActivity)
    custom = blocking(RunAPI.custom)
    raw = blocking(RunAPI.raw)
    ask = blocking(RunAPI.ask)
    ask_all = blocking(RunAPI.ask_all)
    new_id = on_loop(RunAPI.new_id)
    new_call_id = on_loop(RunAPI.new_call_id)

    def call_tool(
        self, tool: FunctionTool[..., Any] | Callable[..., Any], args: dict[str, Any] | None = None
    ) -> ToolResult:
        """Call a function tool as ``Run.call_tool`` does.

        A plain function is called in this thread, an async one on the loop.
        """
        tool = FunctionTool.of(tool)
        if tool.is_async:
            return self.portal.call(partial(self.wrapped.call_tool, tool, args))
        arguments: dict[str, Any] = {} if args is None else copy_json(args)
        key = self.portal.new_key(f"tool {tool.name}")
        call, arguments, known = self.portal.call(partial(begin_call, self.wrapped, tool, arguments))

        def effect() -> Any:
            with tool_span(tool.name, call.id, arguments) as note_result:
                try:
                    result = ToolResult.of(tool.function(**tool.check(arguments)))
                except Exception as error:  # noqa: BLE001 - whatever the function raises, the call gets a result
                    result = failed_call(tool, error)
                note_result(result.content, result.error)
            return result.as_record()

        if known is None:
            try:
                known = ToolResult.from_record(self.portal.once(key, effect))
            except OutcomeUnknown:
                known = unknown_outcome(tool)
        self.portal.call(partial(call.result, known.content))
        return known

    def step(
        self, name: str, parent: str | BlockingStep | None = None, metadata: Metadata | None = None
    ) -> BlockingStep:
        """Open a step: ``with run.step("search"):``. Its ``metadata["aguila"]`` names ``parent``."""
        above = parent.wrapped if isinstance(parent, BlockingStep) else parent
        return BlockingStep(self.wrapped.step(name, above, metadata), self.portal)

    def subagent(
        self,
        name: str,
        description: str | None = None,
        *,
        subagent_run_id: str | None = None,
        tool_call: str | BlockingToolCall | None = None,
        parent_message_id: str | None = None,
        metadata: Metadata | None = None,
    ) -> BlockingSubagent:
        """Open a subagent: ``with run.subagent("writer") as sub: sub.say("...")``."""
        handle = self.portal.call_function(
            self.wrapped.subagent,
            name,
            description,
            subagent_run_id=subagent_run_id,
            tool_call=tool_call.id if isinstance(tool_call, BlockingToolCall) else tool_call,
            parent_message_id=parent_message_id,
            metadata=metadata,
        )
        return BlockingSubagent(handle, self.portal)

    @overload
    def branch(self, name: str, /) -> BlockingBranch: ...
    @overload
    def branch(self, name: str, function: Callable[P, T], /, *args: P.args, **kwargs: P.kwargs) -> T: ...
    def branch(self, name: str, function: Callable[..., Any] | None = None, /, *args: Any, **kwargs: Any) -> Any:
        """Name a part of the agent that runs beside others, so that a replay finds it again.

        With a function, call it in the branch, in this thread: ``pool.submit(run.branch, "flight", book, "flight")``.
        Without one, return a context manager: ``with run.branch("flight"):``.
        """
        branch = BlockingBranch(self.wrapped.branch(name), self.portal)
        if function is None:
            return branch
        with branch:
            return function(*args, **kwargs)

    def span(self, name: str, **attributes: Any) -> AbstractContextManager[None]:
        """Make an OpenTelemetry span of a part of the agent, in this thread. See ``Run.span``."""
        return span(name, attributes)

    def approve(
        self,
        tool: str | FunctionTool[..., Any],
        args: dict[str, Any],
        *,
        message: str | None = None,
        key: str | None = None,
        expires_at: str | None = None,
        metadata: Metadata | None = None,
    ) -> Approval[BlockingToolCall]:
        """Send a tool call and ask the user to approve it. The user may edit the arguments. See ``Run.approve``."""
        proposed: ProposedCall[BlockingToolCall] = ProposedCall(
            tool_name=tool if isinstance(tool, str) else tool.name,
            args=args,
            message=message,
            key=key,
            expires_at=expires_at,
            metadata=metadata,
        )
        return self.approve_all([proposed])[0]

    def approve_all(self, calls: Sequence[ProposedCall[BlockingToolCall]]) -> list[Approval[BlockingToolCall]]:
        """Send several tool calls and ask the user about all of them at once. See ``Run.approve_all``."""
        proposed: list[ProposedCall[ToolCallHandle]] = [
            dataclasses.replace(cast("Any", each), call=None if each.call is None else each.call.wrapped)
            for each in calls
        ]
        try:
            return list(map(self._wrap, self.portal.call(partial(self.wrapped.approve_all, proposed))))
        except InterruptCancelled as error:
            raise InterruptCancelled(error.interrupt_ids, list(map(self._wrap, error.answers))) from None

    def _wrap(self, approval: Approval[ToolCallHandle]) -> Approval[BlockingToolCall]:
        return dataclasses.replace(cast("Any", approval), call=BlockingToolCall(approval.call, self.portal))


class BlockingSubagent(BlockingItem[SubagentHandle], BlockingRunAPI[SubagentHandle]):
    """See ``SubagentHandle``."""

    __slots__ = ()
    id = Attribute[str]()
    result = Attribute[Any]()
    fail = blocking(SubagentHandle.fail)


class BlockingRun(BlockingRunAPI[Run]):
    """The run of an agent in a thread. See ``Run``.

    Once the run was cancelled, every method raises ``asyncio.CancelledError``, which is not an ``Exception``.
    """

    agent = Attribute[Any]()
    input = Attribute[RunAgentInput]()
    resume_input = Attribute[RunAgentInput | None]()
    messages = Attribute[list[Message]]()
    tools = Attribute[list[Tool]]()
    context = Attribute[list[Context]]()
    forwarded_props = Attribute[Any]()
    resume = Attribute[list[ResumeEntry]]()
    thread_id = Attribute[str]()
    run_id = Attribute[str]()
    parent_run_id = Attribute[str | None]()
    principal = Attribute[Any]()
    headers = Attribute[Mapping[str, str]]()
    state = Attribute[Any]()
    session = Attribute[Any]()
    title = Attribute[str | None]()
    result = Attribute[Any]()
    is_stored = Attribute[bool]()
    is_cancelled = Attribute[bool]()
    user_text = Attribute[str]()
    usage = Attribute[list[TokenUsage]]()
    hooks = Attribute[Hooks]()

    chat = wrap_result(on_loop(Run.chat), BlockingChat)
    chat_messages = blocking(Run.chat_messages)
    is_known = blocking(Run.is_known)
    lost_calls = blocking(Run.lost_calls)
    emit = blocking(Run.emit)
    patch_state = blocking(Run.patch_state)
    flush = blocking(Run.flush)
    state_snapshot = blocking(Run.state_snapshot)
    messages_snapshot = blocking(Run.messages_snapshot)
    add_usage = on_loop(Run.add_usage)
    new_key = on_loop(Run.new_key)
    file = blocking(Run.file)

    @property
    def resume_messages(self) -> list[Message]:
        """See ``Run.resume_messages``."""
        return self.portal.call_function(lambda: self.wrapped.resume_messages)

    def once(self, key: str, effect: Callable[[], Any], *, idempotent: bool = False) -> Any:
        """Call an effect once, as ``Run.once`` does. The effect is called in this thread."""
        return self.portal.once(key, effect, is_idempotent=idempotent)

    @contextmanager
    def muted(self) -> Generator[None]:
        """Suppress output that a recorded effect sent before. See ``Run.muted``."""
        muted = self.wrapped.muted()
        self.portal.call_function(muted.__enter__)
        try:
            yield
        finally:
            if not self.portal.is_closed:
                self.portal.call_function(muted.__exit__, None, None, None)
