"""The agent loop: ask the model, execute its calls, ask again, until there are no more calls.

One round is one answer of the model and its calls, in this order:

1. Calls of the agent's own tools are executed concurrently, and answered as they finish. A call of an unknown tool or
   with wrong arguments is answered with an error, and the model may try again.
2. Calls that need approval are asked about, all in one interrupt. The run with the answers is replayed: the model's
   answers and the results of tools are recorded, and are not requested again.
3. Calls of the front end's tools end the run, and the client continues with their results (FT-2). If any tool may ask,
   they are sent only now: a run that ends with a question must not leave such a call open.

Calls in an answer that the model refused, or that the provider's filter stopped, are not executed.
"""

from __future__ import annotations

import asyncio
import inspect
import logging
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable
from typing import Any, Protocol

from aguila.agent.handles import ChatHandle
from aguila.agent.interrupts import RunInterrupt
from aguila.agent.questions import InterruptCancelled, ProposedCall
from aguila.agent.run import Run
from aguila.agent.tool_calls import ToolResult, call_function, describe_refusal, unknown_outcome
from aguila.chat import ChatMessage, ChatUpdate
from aguila.chat.allowed_media import DEFAULT_MEDIA, AllowedMedia
from aguila.chat.own_metadata import add_own_metadata
from aguila.chat.property_keys import METADATA
from aguila.chat.tools import AnyTool, FunctionTool, Toolbox, ToolError
from aguila.chat.types import FunctionCallContent
from aguila.codec.logs import log_fields
from aguila.codec.notices import Notice, Warn, log_notice
from aguila.errors import OutcomeUnknown, RunFailed, ToolRoundsExceeded
from aguila.protocol import (
    AgentCapabilities,
    HumanInTheLoopCapabilities,
    ReasoningCapabilities,
    StateCapabilities,
    ToolsCapabilities,
    replace,
)
from aguila.providers._agent.stream_writer import StreamWriter
from aguila.providers._agent.turn_record import Call, Text, Turn, replay_turn, send_call, send_encrypted_value
from aguila.providers._request.media import leave_out_media
from aguila.providers._request.prompt import Prompt, prompt_of
from aguila.providers._response.errors import FinishProblem, make_failure, truncated

_log = logging.getLogger("aguila")

MAX_ROUNDS = 10
"""Default limit on the number of rounds in one run."""

NOT_EXECUTED = "The call was not executed: the answer that contains it was refused."
"""The result of a call in an answer that the provider or the model withdrew."""

Instructions = str | Callable[[Run], str | Awaitable[str]] | None
Agent = Callable[[Run], Awaitable[None]]
Planned = tuple[Call, FunctionTool[..., Any], dict[str, Any]]


class Model(Protocol):
    """A model of a provider."""

    def answer(self, prompt: Prompt, warn: Warn) -> AsyncIterator[ChatUpdate]:
        """Stream the model's answer to a prompt."""
        ...


def make_agent(
    model: Model,
    *,
    tools: Iterable[AnyTool],
    instructions: Instructions,
    max_rounds: int,
    allowed_media: AllowedMedia = DEFAULT_MEDIA,
) -> Agent:
    """Make an agent for ``App``. Raises ``ValueError`` if two tools have one name, or ``max_rounds`` is below 1."""
    if max_rounds < 1:
        raise ValueError("max_rounds must be at least 1")
    toolbox = Toolbox(tools)
    declared = [name for name in toolbox.declared if toolbox.is_manual(name)]
    if declared:
        raise TypeError(f"tools: {declared[0]!r} is only declared; an agent of a provider needs the function")

    async def agent(run: Run) -> None:
        """Answer with a model and its tools."""
        key = run.new_key("aguila.providers")  # before the first await: agents may start concurrently
        text = instructions(run) if callable(instructions) else instructions
        if inspect.isawaitable(text):
            text = await text
        # Effects that a replay would repeat are recorded. An agent that is alone in its run knows whether a tool may
        # ask.
        remembers = run.is_stored and (toolbox.may_ask or run.agent is not agent)
        loop = _AgentLoop(run, key, model, toolbox, text, allowed_media, remembers=remembers)
        await loop.run_rounds(max_rounds)

    agent.__dict__["capabilities"] = _capabilities(model, toolbox)
    return agent


def _capabilities(model: Model, toolbox: Toolbox) -> AgentCapabilities:
    """Return the capabilities of the agent (CAP-3). ``App`` adds those of the server."""
    asks = toolbox.may_ask
    return AgentCapabilities(
        tools=ToolsCapabilities(supported=True, items=toolbox.declarations, parallel_calls=True, client_provided=True),
        multimodal=getattr(model, "multimodal", None),
        reasoning=ReasoningCapabilities(supported=True, streaming=True, encrypted=True),
        state=StateCapabilities(snapshots=True, deltas=True),
        human_in_the_loop=HumanInTheLoopCapabilities(
            supported=asks, approvals=asks, interrupts=asks, approve_with_edits=asks
        ),
    )


class _AgentLoop:
    def __init__(
        self,
        run: Run,
        key: str,
        model: Model,
        toolbox: Toolbox,
        instructions: str | None,
        allowed_media: AllowedMedia,
        *,
        remembers: bool,
    ) -> None:
        self._run = run
        self._key = key
        self._model = model
        self._toolbox = toolbox
        self._instructions = instructions
        self._frontend = {tool.name for tool in run.tools if toolbox.get(tool.name) is None}
        self._remembers = remembers
        self._allowed_media = allowed_media
        self._chat: ChatHandle  # one for each answer: its calls and results belong together
        self._seen_messages: set[str] = set()  # ids of messages that came with answers, and were shown to the model
        self._edited: dict[str, dict[str, Any]] = {}  # arguments edited by the user, by call id

    async def run_rounds(self, max_rounds: int) -> None:
        """Run rounds until the model makes no more calls."""
        warn: Warn = log_notice
        prompt = await prompt_of(self._run, instructions=self._instructions, tools=self._toolbox.declarations)
        messages = list(prompt.messages)
        for number in range(1, max_rounds + 1):
            turn = await self._ask_model(number, prompt, messages, warn)
            warn = _ignore_notice  # the first round has reported the faults of the history
            problem = await self._check_end(turn)
            if problem is not None and problem.is_refusal:
                await self._refuse_calls(turn)
                return
            if not turn.calls and turn.finish_reason != "pause":
                return
            if self._chat.has_asked:
                return  # a hook turned a content into a question, which ends the run
            messages.append(turn.as_message())
            if not await self._execute_calls(turn, messages):
                return
        stopped = f"The agent stopped after {max_rounds} rounds with its tools."
        await self._send_problem(FinishProblem("max_rounds", stopped))
        raise ToolRoundsExceeded(max_rounds)  # enforcing a limit is not a failure (LIFE-8)

    # The model

    async def _ask_model(self, number: int, prompt: Prompt, messages: list[ChatMessage], warn: Warn) -> Turn:
        """Return the model's answer to these messages, after adding messages that the user sent with an answer."""

        async def ask() -> Turn:
            # After the results of the answered call, as in later runs, where results follow their calls.
            sent = [message.id for message in self._run.resume_messages if message.id not in self._seen_messages]
            messages.extend(await self._load_messages(sent))
            messages[:] = leave_out_media(messages, self._allowed_media, log_notice)
            turn = await self._read_answer(replace(prompt, messages=messages), warn)
            turn.added_messages = sent
            return turn

        if not self._remembers:
            return await ask()
        answers: list[Turn] = []

        async def effect() -> Any:
            answers.append(await ask())
            return await answers[0].to_record()

        recorded = await self._run.once(f"{self._key} round {number}", effect, uses_run=True, idempotent=True)
        if answers:
            return answers[0]
        turn = await Turn.from_record(recorded)
        messages.extend(await self._load_messages(turn.added_messages))
        self._chat = self._run.chat()
        with self._run.muted():
            await replay_turn(self._run, self._chat, turn)
        return turn

    async def _load_messages(self, ids: list[str]) -> list[ChatMessage]:
        self._seen_messages.update(ids)
        resumed = self._run.resume_input
        if not ids or resumed is None:
            return []
        return await self._run.chat_messages([message for message in resumed.messages if message.id in ids])

    async def _read_answer(self, prompt: Prompt, warn: Warn) -> Turn:
        # A front end's call must not stay open in a run that ends with a question (FT-2). Only the end of the turn
        # shows whether it does.
        self._chat = self._run.chat()
        writer = StreamWriter(self._run, self._chat, lambda name: self._remembers and name in self._frontend)
        answer = self._model.answer(prompt, warn)
        try:
            async for update in answer:
                await writer.write(update)
        except RunFailed:
            raise
        except Exception as error:
            failure = make_failure(error)
            if failure is None:
                raise
            raise failure from error
        finally:
            writer.report_usage()
            await _close(answer)
        return await writer.end()

    async def _check_end(self, turn: Turn) -> FinishProblem | None:
        """Return the problem with the end of an answer, after reporting it. Raises ``RunFailed`` if it is fatal."""
        if turn.finish_reason is None:  # the connection was cut
            raise truncated()
        problem = FinishProblem.of(turn.finish_reason)
        if problem is None:
            if not turn.items and turn.finish_reason != "pause":  # otherwise the user would see nothing
                await self._send_problem(FinishProblem.of("empty"))
            return None
        # Only the front end answers its calls (FT-1). It would execute those of a run that does not fail.
        is_out = problem.is_refusal and any(call.name in self._frontend and not call.is_held for call in turn.calls)
        if not turn.items or is_out or not all(call.is_complete for call in turn.calls):
            raise RunFailed(problem.message, code=problem.reason)
        if problem.reason == "other" and turn.calls:
            return None  # calls are the reason to stop
        await self._send_problem(problem)
        return problem

    async def _send_problem(self, problem: FinishProblem | None) -> None:
        if problem is not None:
            await self._run.custom("aguila.finish_reason", {"reason": problem.reason, "message": problem.message})

    # Tool calls

    async def _refuse_calls(self, turn: Turn) -> None:
        """Answer the calls of a withdrawn answer. Calls that were held back are not sent."""
        for call in turn.calls:
            if not call.is_held:
                await self._send_result(call, ToolResult.failed(NOT_EXECUTED), {})

    async def _execute_calls(self, turn: Turn, messages: list[ChatMessage]) -> bool:
        """Execute the calls of a turn and add their results. Returns whether to ask the model again."""
        results: dict[str, ToolResult] = {}
        ready: list[Planned] = []
        needing_approval: list[Planned] = []
        left: list[Call] = []
        for call in turn.calls:
            if call.name in self._frontend:
                left.append(call)
                continue
            plan = _plan(self._toolbox, call.as_content())
            if isinstance(plan, ToolResult):
                await self._send_result(call, plan, results)
            else:
                (needing_approval if self._needs_approval(*plan) else ready).append((call, *plan))
        await self._run_together([self._in_branch(*planned, results) for planned in ready])
        if needing_approval:
            await self._ask(needing_approval, results)
        for call in left:
            if call.is_held:
                await send_call(self._chat, call, before=turn.find_call_sent_before(call))
        for item in turn.items:
            if isinstance(item, Text) and item.is_held:
                await send_encrypted_value(self._run, item)
        messages += [
            ChatMessage(
                "tool",
                [results[call.call_id].as_content(call.call_id)],
                additional_properties={METADATA: add_own_metadata(None, arguments=self._edited.get(call.call_id))},
            )
            for call in turn.calls
            if call.call_id in results
        ]
        return not left

    def _needs_approval(self, tool: FunctionTool[..., Any], arguments: dict[str, Any]) -> bool:
        try:
            return tool.needs_approval(arguments)
        except Exception:  # noqa: BLE001 - if it cannot be decided, ask
            what, extra = "needs_approval of %r failed; asking for approval", log_fields()
            _log.warning(what, tool.declaration.name, exc_info=True, extra=extra)
            return True

    async def _run_together(self, jobs: list[Awaitable[None]]) -> None:
        """Run all jobs. The questions of several tools are asked together."""
        tasks = [asyncio.ensure_future(job) for job in jobs]
        try:
            outcomes = await asyncio.gather(*tasks, return_exceptions=True)
        finally:
            for task in tasks:
                task.cancel()
        errors = [outcome for outcome in outcomes if isinstance(outcome, BaseException)]
        questions = [question for error in errors if isinstance(error, RunInterrupt) for question in error.interrupts]
        for error in errors:
            if not isinstance(error, RunInterrupt):
                raise error
        if questions:
            raise RunInterrupt(*questions)

    def _in_branch(
        self, call: Call, tool: FunctionTool[..., Any], arguments: dict[str, Any], results: dict[str, ToolResult]
    ) -> Awaitable[None]:
        """Execute a call in its own branch, so that concurrent tools may each ask."""
        return self._run.branch(f"call {call.call_id}", self._call, call, tool, arguments, results)

    async def _call(
        self, call: Call, tool: FunctionTool[..., Any], arguments: dict[str, Any], results: dict[str, ToolResult]
    ) -> None:
        if self._remembers:
            try:
                recorded = await self._run.once(
                    f"{self._key} call {call.call_id}",
                    lambda: _recorded(call_function(tool, arguments, self._run)),
                    uses_run=tool.takes_run,
                )
                result = ToolResult.from_record(recorded)
            except OutcomeUnknown:
                result = unknown_outcome(tool)
        else:
            result = await call_function(tool, arguments, self._run)
        await self._send_result(call, result, results)

    async def _send_result(self, call: Call, result: ToolResult, results: dict[str, ToolResult]) -> None:
        results[call.call_id] = result
        content = result.as_content(call.call_id)
        if call.call_id in self._edited:
            own = add_own_metadata(None, arguments=self._edited[call.call_id])
            content = replace(content, additional_properties={METADATA: own})
        await self._chat.send(ChatUpdate("tool", [content], message_id=self._run.new_id("tool")))

    async def _ask(self, needing_approval: list[Planned], results: dict[str, ToolResult]) -> None:
        """Ask about all of these calls at once, and execute those that are approved."""
        proposed = [
            ProposedCall(
                tool_name=call.name,
                args=arguments,
                key=call.call_id,
                call=self._run.stream_tool_call(call.name, tool_call_id=call.call_id),
            )
            for call, _, arguments in needing_approval
        ]
        try:
            approvals = await self._run.approve_all(proposed)
        except InterruptCancelled as given_up:  # these calls are answered as refused
            approvals = given_up.answers
        jobs: list[Awaitable[None]] = []
        for (call, tool, _), approval in zip(needing_approval, approvals, strict=True):
            if approval.approved:
                if approval.call.edited is not None:
                    self._edited[call.call_id] = approval.call.edited
                jobs.append(self._in_branch(call, tool, approval.arguments, results))
            else:
                await self._send_result(call, ToolResult(describe_refusal(approval.reason)), results)
        await self._run_together(jobs)


def _plan(toolbox: Toolbox, call: FunctionCallContent) -> tuple[FunctionTool[..., Any], dict[str, Any]] | ToolResult:
    """Return the tool and arguments of a valid call, or the error result of an invalid one."""
    found = toolbox.get(call.name)
    if found is None:
        return ToolResult.failed(f"there is no tool {call.name!r}")
    arguments = call.parsed_arguments
    if arguments is None:
        return ToolResult.failed("the arguments do not fit: expected a JSON object")
    try:
        found.check(arguments)
    except ToolError as error:
        return ToolResult.failed(str(error))
    return found, arguments


async def _recorded(result: Awaitable[ToolResult]) -> Any:
    return (await result).as_record()


async def _close(answer: Any) -> None:
    """Close the provider's stream, so that it stops generating."""
    close = getattr(answer, "aclose", None)
    if close is not None:
        await close()


def _ignore_notice(notice: Notice) -> None:
    """Do nothing: the first round has reported it."""
