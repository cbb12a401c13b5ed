"""Layer: providers. An agent that is a model with tools: ask the model, make its calls, ask again, until it is done.

Below: ``_teller`` (what the model says is told while it arrives), ``_turn``, ``_tools``. Above: ``agent`` of every
provider. A round is one answer of the model and what its calls ask for, in this order:

1. Calls of the agent's own tools are made, all at once, and answered as they finish. So is a call of a tool that
   nobody has, or with arguments that do not fit: with an error, from which the model may learn.
2. Calls that need approval are asked about, all in one interrupt. The run that brings the answers is replayed: what the
   model said and what tools gave is on record, and neither is asked for again.
3. Calls of the front end's tools end the run, which the client continues with their results (FT-2). If any tool may
   ask, they are told only now: a run that ends with a question must leave no such call open.

Calls in an answer that the model refused to go on with, or that the provider's filter stopped, are not made.
"""

from __future__ import annotations

import asyncio
import inspect
import logging
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable
from typing import Any, Protocol

import msgspec

from aguila.agent.handles import ChatHandle
from aguila.agent.interrupts import Interrupt
from aguila.agent.questions import ProposedCall
from aguila.agent.run import Run
from aguila.agent.tool_calls import ToolResult, call_function
from aguila.chat import ChatMessage, ChatUpdate
from aguila.chat.own_metadata import add_own_metadata
from aguila.chat.property_keys import METADATA
from aguila.chat.tools import AnyTool, FunctionTool, Toolbox, ToolError
from aguila.chat.types import FunctionCallContent
from aguila.codec.notice import Notice, Warn, log_notice
from aguila.codec.records import members
from aguila.errors import RunFailed, ToolRoundsExceeded
from aguila.protocol import replace
from aguila.providers._failure import FinishProblem, failure_of, truncated
from aguila.providers._prompt import Prompt, prompt_of
from aguila.providers._teller import Teller
from aguila.providers._turn import Call, Text, Turn, retell, tell_artefact, tell_call

_log = logging.getLogger("aguila")

MAX_ROUNDS = 10
"""How often an agent asks its model in one run, unless told otherwise."""

NOT_MADE = "The call was not made: the answer that it is part of was refused."
"""The result of a call that stands in an answer which the provider or the model took back."""

Instructions = str | Callable[[Run], str | Awaitable[str]] | None
Agent = Callable[[Run], Awaitable[None]]
Planned = tuple[Call, FunctionTool[..., Any], dict[str, Any]]


class Model(Protocol):
    """A model of some provider."""

    def answer(self, prompt: Prompt, warn: Warn) -> AsyncIterator[ChatUpdate]:
        """The model's answer to a prompt, as it arrives."""
        ...


class SDKModel:
    """What a ``Model`` that asks through an SDK has at hand. ``options`` go with every request."""

    def __init__(self, client: Any, model: str, provider: str, options: dict[str, Any]) -> None:
        self._client = client
        self._model = model
        self._provider = provider
        self._options = options


def make_agent(model: Model, *, tools: Iterable[AnyTool], instructions: Instructions, max_rounds: int) -> Agent:
    """An agent for ``App``. Raises ``ValueError`` for two tools of one name, or for no rounds at all."""
    if max_rounds < 1:
        raise ValueError("an agent needs at least one round")
    toolbox = Toolbox(tools)
    declared = [name for name in toolbox.declared if toolbox.is_manual(name)]
    if declared:
        raise TypeError(f"tools: {declared[0]!r} is only declared; an agent of a provider needs the function")

    async def agent(run: Run) -> None:
        """A model with tools."""
        key = run.new_key("aguila.providers")  # before anything is awaited: agents may begin side by side
        told = instructions(run) if callable(instructions) else instructions
        if inspect.isawaitable(told):
            told = await told
        # What it may have to do again is on record. Alone in the run it knows whether somebody may ask.
        remembers = run.is_stored and (toolbox.may_ask or run.agent is not agent)
        await _Rounds(run, key, model, toolbox, told, remembers=remembers).go(max_rounds)

    return agent


class _Rounds:
    def __init__(
        self, run: Run, key: str, model: Model, toolbox: Toolbox, instructions: str | None, *, remembers: bool
    ) -> None:
        self._run = run
        self._key = key
        self._model = model
        self._toolbox = toolbox
        self._instructions = instructions
        self._frontend = {tool.name for tool in run.tools if toolbox.get(tool.name) is None}
        self._remembers = remembers
        self._chat: ChatHandle  # of the answer at hand: what is told of its calls and their results goes together
        self._heard: set[str] = set()  # messages that came with answers, and were shown to the model
        self._edited: dict[str, dict[str, Any]] = {}  # what the user made of arguments, by the call's id

    async def go(self, max_rounds: int) -> None:
        """Ask and call until the model has nothing more to call."""
        warn: Warn = log_notice
        prompt = await prompt_of(self._run, instructions=self._instructions, tools=self._toolbox.declarations)
        messages = list(prompt.messages)
        for number in range(1, max_rounds + 1):
            turn = await self._ask_model(number, prompt, messages, warn)
            warn = _say_nothing  # what is wrong with the history was said
            problem = await self._check_end(turn)
            if problem is not None and problem.is_refusal:
                await self._make_none(turn)
                return
            if not turn.calls and turn.finish_reason != "pause":
                return
            if self._chat.has_asked:
                return  # a hook made a question of something: the run ends with it
            messages.append(turn.as_message())
            if not await self._make_calls(turn, messages):
                return
        stopped = f"The agent stopped after {max_rounds} rounds with its tools."
        await self._tell_problem(FinishProblem("max_rounds", stopped))
        raise ToolRoundsExceeded(max_rounds)  # a limit that is enforced is no failure (LIFE-8)

    # The model

    async def _ask_model(self, number: int, prompt: Prompt, messages: list[ChatMessage], warn: Warn) -> Turn:
        """The model's answer to these messages, and to what the user sent along with an answer, which is added."""

        async def ask() -> Turn:
            # After the results that the answer led to: there it stands in later runs, where results follow calls.
            sent = [message.id for message in self._run.resume_messages if message.id not in self._heard]
            messages.extend(await self._sent(sent))
            turn = await self._hear(replace(prompt, messages=messages), warn)
            turn.heard = sent
            return turn

        if not self._remembers:
            return await ask()
        heard: list[Turn] = []

        async def effect() -> Any:
            heard.append(await ask())
            return await heard[0].as_record()

        recorded = await self._run.once(f"{self._key} round {number}", effect, uses_run=True)
        if heard:
            return heard[0]
        turn = await Turn.recalled(recorded)
        messages.extend(await self._sent(turn.heard))
        self._chat = self._run.chat()
        with self._run.retelling():
            await retell(self._run, self._chat, turn)
        return turn

    async def _sent(self, ids: list[str]) -> list[ChatMessage]:
        self._heard.update(ids)
        resumed = self._run.resume_input
        if not ids or resumed is None:
            return []
        return await self._run.chat_messages([message for message in resumed.messages if message.id in ids])

    async def _hear(self, prompt: Prompt, warn: Warn) -> Turn:
        # A front end's call must not stay open in a run that ends with a question (FT-2), which only the end will tell.
        self._chat = self._run.chat()
        teller = Teller(self._run, self._chat, lambda name: self._remembers and name in self._frontend)
        answer = self._model.answer(prompt, warn)
        try:
            async for update in answer:
                await teller.tell(update)
        except RunFailed:
            raise
        except Exception as error:
            failure = failure_of(error)
            if failure is None:
                raise
            raise failure from error
        finally:
            teller.count()
            await _close(answer)
        return await teller.end()

    async def _check_end(self, turn: Turn) -> FinishProblem | None:
        """Tell what was wrong with the end of an answer, and give it. Raises ``RunFailed`` if there is no going on."""
        if turn.finish_reason is None:  # a connection that was cut ends like one that was not
            raise truncated()
        problem = FinishProblem.of(turn.finish_reason)
        if problem is None:
            if not turn.items and turn.finish_reason != "pause":  # it may have nothing to add, but nobody can see that
                await self._tell_problem(FinishProblem.of("empty"))
            return None
        # Only the front end answers its calls (FT-1), and it would make those of a run that does not fail.
        is_out = problem.is_refusal and any(call.name in self._frontend and not call.is_held for call in turn.calls)
        if not turn.items or is_out or not all(call.is_complete for call in turn.calls):
            raise RunFailed(problem.message, code=problem.reason)
        if problem.reason == "other" and turn.calls:
            return None  # who calls has a reason to stop
        await self._tell_problem(problem)
        return problem

    async def _tell_problem(self, problem: FinishProblem | None) -> None:
        if problem is not None:
            await self._run.custom("aguila.finish_reason", {"reason": problem.reason, "message": problem.message})

    # Its calls

    async def _make_none(self, turn: Turn) -> None:
        """Answer the calls of an answer that is not to be acted upon. Nobody hears of those that were held back."""
        for call in turn.calls:
            if not call.is_held:
                await self._tell_result(call, ToolResult.failed(NOT_MADE), {})

    async def _make_calls(self, turn: Turn, messages: list[ChatMessage]) -> bool:
        """Make the calls of a turn and add their results; gives whether the model is to be asked again."""
        results: dict[str, ToolResult] = {}
        ready: list[Planned] = []
        gated: list[Planned] = []
        left: list[Call] = []
        for call in turn.calls:
            if call.name in self._frontend:
                left.append(call)
                continue
            plan = _plan(self._toolbox, call.as_content())
            if isinstance(plan, ToolResult):
                await self._tell_result(call, plan, results)
            else:
                (gated if self._needs_approval(*plan) else ready).append((call, *plan))
        await self._at_once([self._in_branch(*planned, results) for planned in ready])
        if gated:
            await self._ask(gated, results)
        for call in left:
            if call.is_held:
                await tell_call(self._chat, call, before=turn.told_before(call))
        for item in turn.items:
            if isinstance(item, Text) and item.is_held:
                await tell_artefact(self._run, item)
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
        except Exception:  # noqa: BLE001 - who cannot tell asks
            what, extra = "whether %r needs approval could not be found out", members()
            _log.warning(what, tool.declaration.name, exc_info=True, extra=extra)
            return True

    async def _at_once(self, jobs: list[Awaitable[None]]) -> None:
        """Do all of it; questions that several tools asked are asked together."""
        tasks = [asyncio.ensure_future(job) for job in jobs]
        try:
            outcomes = await asyncio.gather(*tasks, return_exceptions=True)
        finally:
            for task in tasks:
                task.cancel()
        errors = [outcome for outcome in outcomes if isinstance(outcome, BaseException)]
        questions = [question for error in errors if isinstance(error, Interrupt) for question in error.interrupts]
        for error in errors:
            if not isinstance(error, Interrupt):
                raise error
        if questions:
            raise Interrupt(*questions)

    def _in_branch(
        self, call: Call, tool: FunctionTool[..., Any], arguments: dict[str, Any], results: dict[str, ToolResult]
    ) -> Awaitable[None]:
        """Make a call in a branch of its own, so that tools which run at once may each ask."""
        return self._run.branch(f"call {call.call_id}", self._call, call, tool, arguments, results)

    async def _call(
        self, call: Call, tool: FunctionTool[..., Any], arguments: dict[str, Any], results: dict[str, ToolResult]
    ) -> None:
        if self._remembers:
            recorded = await self._run.once(
                f"{self._key} call {call.call_id}",
                lambda: _recorded(call_function(tool, arguments, self._run)),
                uses_run=tool.takes_run,
            )
            result = msgspec.convert(recorded, ToolResult)
        else:
            result = await call_function(tool, arguments, self._run)
        await self._tell_result(call, result, results)

    async def _tell_result(self, call: Call, result: ToolResult, results: dict[str, ToolResult]) -> None:
        results[call.call_id] = result
        content = result.as_content(call.call_id)
        if call.call_id in self._edited:
            own = add_own_metadata(None, arguments=self._edited[call.call_id])
            content = replace(content, additional_properties={METADATA: own})
        await self._chat.tell(ChatUpdate("tool", [content], message_id=self._run.new_id("tool")))

    async def _ask(self, gated: list[Planned], results: dict[str, ToolResult]) -> None:
        """Ask about all of these calls at once, and make those that may be made."""
        approvals = await self._run.approve_all(
            [
                ProposedCall(
                    tool_name=call.name,
                    args=arguments,
                    key=call.call_id,
                    call=self._run.stream_tool_call(call.name, tool_call_id=call.call_id),
                )
                for call, _, arguments in gated
            ]
        )
        jobs: list[Awaitable[None]] = []
        for (call, tool, _), approval in zip(gated, approvals, strict=True):
            if approval.approved:
                if approval.call.edited is not None:
                    self._edited[call.call_id] = approval.call.edited
                jobs.append(self._in_branch(call, tool, approval.arguments, results))
            else:
                await self._tell_result(call, ToolResult.refused(approval.reason), results)
        await self._at_once(jobs)


def _plan(toolbox: Toolbox, call: FunctionCallContent) -> tuple[FunctionTool[..., Any], dict[str, Any]] | ToolResult:
    """Give the tool and the arguments of a call that can be made, or the result of one that cannot."""
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
    return msgspec.to_builtins(await result)


async def _close(answer: Any) -> None:
    """Let the provider's stream go: who stops listening stops paying."""
    close = getattr(answer, "aclose", None)
    if close is not None:
        await close()


def _say_nothing(notice: Notice) -> None:
    """It was said in the first round."""
