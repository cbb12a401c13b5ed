"""Layer: agent. ``BlockingRun``: the handle of an agent that runs in a thread. Same names, plain methods.

Above: the agent. Below: ``run`` and ``writing`` do the work, on the event loop; ``portal`` carries each call there;
``blocking_handles`` is what it gives out.
What a method means and raises is said there. Once the run was cancelled every method raises
``asyncio.CancelledError``, which is no ``Exception``.
"""

from __future__ import annotations

import threading
from abc import ABC, abstractmethod
from collections.abc import Callable, Generator, Mapping, Sequence
from contextlib import contextmanager
from functools import partial
from typing import Any, ParamSpec, TypeVar, overload

import msgspec

from aguila.agent.blocking.handles import (
    BlockingActivity,
    BlockingBranch,
    BlockingChat,
    BlockingReasoning,
    BlockingStep,
    BlockingText,
    BlockingToolCall,
    WithResult,
)
from aguila.agent.blocking.thread_portal import ThreadPortal
from aguila.agent.handles import ToolCallHandle
from aguila.agent.questions import Approval, InterruptCancelled, ProposedCall, Question, within_itself
from aguila.agent.run import Run
from aguila.agent.run_api import RunAPI, SubagentHandle
from aguila.agent.tool_calls import ToolResult, failed_call
from aguila.chat.hooks import Hooks
from aguila.chat.tools import FunctionTool
from aguila.chat.types import ChatMessage
from aguila.protocol import (
    Context,
    JsonPatchOperation,
    Message,
    Metadata,
    ResumeEntry,
    RunAgentInput,
    TextMessageRole,
    TokenUsage,
    Tool,
)
from aguila.protocol.legacy import BinaryInputContent
from aguila.protocol.parts import FileSource, MediaPart, TextPart
from aguila.stream.json_values import copy_json

P = ParamSpec("P")
T = TypeVar("T")


class BlockingRunAPI(ABC):
    """See ``Writing``."""

    __slots__ = ()  # a subagent is a handle as well, and only one of them may have some
    _portal: ThreadPortal

    @property
    @abstractmethod
    def _writing(self) -> RunAPI:
        """What does the work."""

    def _made(self, make: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
        """What a plain method gives, called on the event loop: only there is it known in which branch it is called."""

        async def call() -> T:
            return make(*args, **kwargs)

        return self._portal.call(call)

    def text(
        self,
        role: TextMessageRole | None = None,
        name: str | None = None,
        message_id: str | None = None,
        metadata: Metadata | None = None,
    ) -> BlockingText:
        """A text message, open while it is entered: ``with run.text() as text: text.write("...")``."""
        return BlockingText(self._made(self._writing.text, role, name, message_id, metadata), self._portal)

    def say(
        self,
        text: str,
        role: TextMessageRole | None = None,
        name: str | None = None,
        message_id: str | None = None,
        metadata: Metadata | None = None,
    ) -> str:
        """A whole text message; gives its id."""
        return self._portal.call(partial(self._writing.say, text, role, name, message_id, metadata))

    def reasoning(self, message_id: str | None = None, metadata: Metadata | None = None) -> BlockingReasoning:
        """A thought, open while it is entered."""
        return BlockingReasoning(self._made(self._writing.reasoning, message_id, metadata), self._portal)

    def tool_call(
        self,
        name: str | FunctionTool[..., Any],
        args: dict[str, Any] | str | None = None,
        *,
        tool_call_id: str | None = None,
        parent_message_id: str | None = None,
        metadata: Metadata | None = None,
        stream: bool = False,
    ) -> BlockingToolCall:
        """Call a tool."""
        call = self._portal.call(
            partial(
                self._writing.tool_call,
                name,
                args,
                tool_call_id=tool_call_id,
                parent_message_id=parent_message_id,
                metadata=metadata,
                stream=stream,
            )
        )
        return BlockingToolCall(call, self._portal)

    def call_tool(self, tool: FunctionTool[..., Any], args: dict[str, Any] | None = None) -> ToolResult:
        """Show a call of a function tool, ask for approval if it needs one, call it and send its result.

        A plain function is called in this thread, an async one on the event loop.
        """
        if tool.is_async:
            return self._portal.call(partial(self._writing.call_tool, tool, args))
        arguments: dict[str, Any] = {} if args is None else copy_json(args)
        key = self._made(self._writing._questions.new_key, f"tool {tool.name}")
        call, arguments, known = self._portal.call(partial(self._writing._begin_call, tool, arguments))

        def effect() -> Any:
            try:
                result = ToolResult.of(tool.function(**tool.check(arguments)))
            except Exception as error:  # noqa: BLE001 - whatever the function raises, the call gets a result
                result = failed_call(tool, error)
            return msgspec.to_builtins(result)

        if known is None:
            known = msgspec.convert(self._once(key, effect), ToolResult)
        self._portal.call(partial(call.result, known.content))
        return known

    def _once(self, key: str, effect: Callable[[], Any]) -> Any:
        """Give the recorded result of an effect, or call it in this thread and record its result."""
        questions, portal = self._writing._questions, self._portal
        doing = (threading.get_ident(), key)
        if doing in portal.active_effects:
            raise RuntimeError(within_itself(key))
        with portal.effect_locks[key]:
            known, value = portal.call(partial(questions.find, key))
            if known:
                return value
            portal.active_effects.add(doing)
            try:
                value = effect()
            finally:
                portal.active_effects.discard(doing)
            return portal.call(partial(questions.record, key, value))

    def stream_tool_call(
        self,
        name: str | FunctionTool[..., Any],
        *,
        tool_call_id: str | None = None,
        parent_message_id: str | None = None,
        metadata: Metadata | None = None,
    ) -> BlockingToolCall:
        """A call whose arguments are written piece by piece while it is entered."""
        call = self._made(
            self._writing.stream_tool_call,
            name,
            tool_call_id=tool_call_id,
            parent_message_id=parent_message_id,
            metadata=metadata,
        )
        return BlockingToolCall(call, self._portal)

    def step(
        self, name: str, parent: str | BlockingStep | None = None, metadata: Metadata | None = None
    ) -> BlockingStep:
        """A step, open while it is entered."""
        above = parent._handle if isinstance(parent, BlockingStep) else parent
        return BlockingStep(self._writing.step(name, above, metadata), self._portal)

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
        """An invocation of a subagent, open while it is entered."""
        handle = self._made(
            self._writing.subagent,
            name,
            description,
            subagent_run_id=subagent_run_id,
            tool_call=tool_call.id if isinstance(tool_call, BlockingToolCall) else tool_call,
            parent_message_id=parent_message_id,
            metadata=metadata,
        )
        return BlockingSubagent(handle, self._portal)

    def activity(
        self, activity_type: str, content: dict[str, Any], *, message_id: str | None = None, replace: bool | None = None
    ) -> BlockingActivity:
        """Show an activity; what this gives can change it."""
        call = partial(self._writing.activity, activity_type, content, message_id=message_id, replace=replace)
        return BlockingActivity(self._portal.call(call), self._portal)

    def custom(self, name: str, value: Any, *, metadata: Metadata | None = None) -> None:
        """An event whose meaning the application defines."""
        self._portal.call(partial(self._writing.custom, name, value, metadata=metadata))

    def raw(self, event: Any, source: str | None = None, *, metadata: Metadata | None = None) -> None:
        """An event of another system."""
        self._portal.call(partial(self._writing.raw, event, source, metadata=metadata))

    @overload
    def branch(self, name: str, /) -> BlockingBranch: ...
    @overload
    def branch(self, name: str, function: Callable[P, T], /, *args: P.args, **kwargs: P.kwargs) -> T: ...
    def branch(self, name: str, function: Callable[..., Any] | None = None, /, *args: Any, **kwargs: Any) -> Any:
        """Name a part of the agent that runs beside others, so that a replay finds it again.

        With a function, call it in the branch, in this thread: ``pool.submit(run.branch, "flight", book, "flight")``.
        Without one, give a scope: ``with run.branch("flight"):``.
        """
        scope = BlockingBranch(self._writing.branch(name), self._portal)
        if function is None:
            return scope
        with scope:
            return function(*args, **kwargs)

    def ask(
        self,
        question: str,
        *,
        schema: dict[str, Any] | None = None,
        key: str | None = None,
        reason: str = "input_required",
        expires_at: str | None = None,
        metadata: Metadata | None = None,
    ) -> Any:
        """Ask the user; gives the answer's payload."""
        return self._portal.call(
            partial(
                self._writing.ask,
                question,
                schema=schema,
                key=key,
                reason=reason,
                expires_at=expires_at,
                metadata=metadata,
            )
        )

    def ask_all(self, questions: Sequence[Question | str]) -> list[Any]:
        """Ask several questions at once."""
        return self._portal.call(partial(self._writing.ask_all, questions))

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
        """Show a tool call and ask whether it may be made."""
        call = partial(
            self._writing.approve, tool, args, message=message, key=key, expires_at=expires_at, metadata=metadata
        )
        try:
            return self._approval(self._portal.call(call))
        except InterruptCancelled as given_up:
            raise self._given_up(given_up) from None

    def approve_all(self, calls: Sequence[ProposedCall[BlockingToolCall]]) -> list[Approval[BlockingToolCall]]:
        """Show several tool calls and ask about all of them at once."""
        proposed = [
            ProposedCall(
                tool_name=each.tool_name,
                args=each.args,
                message=each.message,
                key=each.key,
                expires_at=each.expires_at,
                metadata=each.metadata,
                call=None if each.call is None else each.call._handle,
            )
            for each in calls
        ]
        try:
            return [self._approval(one) for one in self._portal.call(partial(self._writing.approve_all, proposed))]
        except InterruptCancelled as given_up:
            raise self._given_up(given_up) from None

    def _given_up(self, error: InterruptCancelled) -> InterruptCancelled:
        return InterruptCancelled(error.interrupt_ids, [self._approval(one) for one in error.answers])

    def new_id(self, kind: str) -> str:
        """An id for a message, a call or whatever is told; a replay of the agent gives the same one again."""
        return self._made(self._writing.new_id, kind)

    def new_call_id(self, given: str) -> str:
        """An id for a call that a model named: that one, unless it means another call."""
        return self._made(self._writing.new_call_id, given)

    def _approval(self, approval: Approval[ToolCallHandle]) -> Approval[BlockingToolCall]:
        return Approval(
            approved=approval.approved,
            arguments=approval.arguments,
            call=BlockingToolCall(approval.call, self._portal),
            reason=approval.reason,
        )


class BlockingSubagent(WithResult[SubagentHandle], BlockingRunAPI):
    """See ``SubagentHandle``."""

    __slots__ = ()

    @property
    def _writing(self) -> SubagentHandle:
        return self._handle

    @property
    def id(self) -> str:
        """The invocation's run id."""
        return self._handle.id

    def fail(self, message: str, code: str | None = None) -> None:
        """End the invocation as failed; the run goes on."""
        self._portal.call(partial(self._handle.fail, message, code))


class BlockingRun(BlockingRunAPI):
    """See ``Run``."""

    def __init__(self, run: Run, portal: ThreadPortal) -> None:
        self._portal = portal
        self._run = run
        self.input: RunAgentInput = run.input
        self.resume_input: RunAgentInput | None = run.resume_input
        self.messages: list[Message] = run.messages
        self.tools: list[Tool] = run.tools
        self.context: list[Context] = run.context
        self.forwarded_props: Any = run.forwarded_props
        self.resume: list[ResumeEntry] = run.resume
        self.thread_id = run.thread_id
        self.run_id = run.run_id
        self.parent_run_id = run.parent_run_id
        self.principal: Any = run.principal
        self.headers: Mapping[str, str] = run.headers

    @property
    def _writing(self) -> Run:
        return self._run

    @property
    def state(self) -> Any:
        """The state shared with the client."""
        return self._run.state

    @state.setter
    def state(self, state: Any) -> None:
        self._run.state = state

    @property
    def agent(self) -> Any:
        """What the run was begun with."""
        return self._run.agent

    @agent.setter
    def agent(self, agent: Any) -> None:
        self._run.agent = agent

    @property
    def session(self) -> Any:
        """A private JSON value, kept with the thread."""
        return self._run.session

    @session.setter
    def session(self, session: Any) -> None:
        self._run.session = session

    @property
    def result(self) -> Any:
        """The run's result."""
        return self._run.result

    @result.setter
    def result(self, result: Any) -> None:
        self._run.result = result

    def chat(self) -> BlockingChat:
        """One who speaks in chat updates beside others."""
        return BlockingChat(self._run.chat(), self._portal)

    @property
    def is_stored(self) -> bool:
        """Whether the run is stored."""
        return self._run.is_stored

    @property
    def user_text(self) -> str:
        """The last user message as text."""
        return self._run.user_text

    @property
    def is_cancelled(self) -> bool:
        """Whether the run was asked to stop: a thread that works for long looks at it now and then."""
        return self._run.is_cancelled

    @property
    def usage(self) -> list[TokenUsage]:
        """What ``add_usage`` was told, in order."""
        return self._run.usage

    @property
    def hooks(self) -> Hooks:
        """What is asked about chat contents that the agent yields."""
        return self._run.hooks

    @hooks.setter
    def hooks(self, hooks: Hooks) -> None:
        self._run.hooks = hooks

    @property
    def resume_messages(self) -> list[Message]:
        """What was said by others than the agent since it first asked."""
        return self._made(lambda: self._run.resume_messages)

    def chat_messages(self, messages: Sequence[Message] | None = None) -> list[ChatMessage]:
        """The conversation as chat messages, with data decoded and uploads as the bytes they are."""
        return self._portal.call(partial(self._run.chat_messages, messages))

    def emit(self, event: Any) -> None:
        """Send what a generator would yield."""
        self._portal.call(partial(self._run.emit, event))

    def patch_state(self, patch: Sequence[JsonPatchOperation]) -> None:
        """Change the state by a JSON Patch, without comparing it."""
        self._portal.call(partial(self._run.patch_state, patch))

    def flush(self) -> None:
        """Send the changes of the state now."""
        self._portal.call(self._run.flush)

    def state_snapshot(self) -> None:
        """Send the whole state."""
        self._portal.call(self._run.state_snapshot)

    def messages_snapshot(self, messages: Sequence[Message]) -> None:
        """Restate the conversation."""
        self._portal.call(partial(self._run.messages_snapshot, messages))

    def add_usage(self, usage: TokenUsage) -> None:
        """Tokens of one model call."""
        self._made(self._run.add_usage, usage)

    def once(self, key: str, effect: Callable[[], Any]) -> Any:
        """Do something once, however often the agent is replayed. ``effect`` is called in this thread."""
        return self._once(key, effect)

    @contextmanager
    def retelling(self) -> Generator[None]:
        """What a replay says in this context was said before, by an effect that is on record: it is not heard again."""
        held = self._run.retelling()
        self._made(held.__enter__)
        try:
            yield
        finally:
            if not self._portal.is_closed:
                self._made(held.__exit__, None, None, None)

    def new_key(self, kind: str) -> str:
        """A key for ``once`` that nothing else in the run has."""
        return self._made(self._run.new_key, kind)

    def file(self, part: MediaPart | TextPart | FileSource | BinaryInputContent | str) -> bytes | None:
        """The bytes of an uploaded file, or of data carried inline."""
        return self._portal.call(partial(self._run.file, part))
