"""Layer: client. One conversation, and what a run of it is; for both twins, without I/O.

Below: ``exchange`` (a run over the wire), ``hydration`` (the thread as the server has it), ``tools``, ``interrupts``,
``outgoing``. Above: ``asyncio`` and ``sync``.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterable, Mapping
from functools import partial
from typing import Any

import msgspec

from aguila.chat.tools import AnyTool, Toolbox
from aguila.client.arguments import expect, listed
from aguila.client.drivers.effects import CallTools, Compute, Program
from aguila.client.interrupts import NONE_OPEN, resume_entries
from aguila.client.middleware import Chain
from aguila.client.requests.http_requests import fetch
from aguila.client.requests.hydration import hydrated
from aguila.client.requests.request_builder import (
    Content,
    context_of,
    enforced_body,
    is_large,
    messages_of,
    says_the_same,
)
from aguila.client.requests.urls import merge_headers
from aguila.client.run import Outcome, RunResult, RunSlot, changed_since
from aguila.client.settings import Settings
from aguila.client.streaming.run_stream import RunStream
from aguila.client.tools import PlannedCall, check_tools, plan_call
from aguila.client.transports.base import Request
from aguila.codec.notices import Notice
from aguila.errors import AguilaError, IllegalStep, ProtocolError, RunFailed, ToolRoundsExceeded
from aguila.protocol import (
    PROTOCOL_VERSION,
    Context,
    Interrupt,
    Message,
    ResumeEntry,
    RunAgentInput,
    State,
    StateSnapshotEvent,
    TokenUsage,
    ToolCall,
    ToolMessage,
)
from aguila.stream import Consumer, Conversation, Reducer, aggregate_token_usage
from aguila.stream.conversation import ConversationRun, RunOutcome
from aguila.stream.json_values import check_json, copy_json


class RunRequest(msgspec.Struct, kw_only=True):
    """What one call of ``thread.run`` asks for."""

    messages: list[Message] = []
    answers: Mapping[str, Any] | None = None
    tools: Toolbox
    context: list[Context] = []
    forwarded_props: Any = None
    parent_run_id: str | None = None
    run_id: str | None = None
    headers: Mapping[str, str] | None = None
    max_rounds: int


class ThreadBase:
    """One conversation: what was said, the shared state, what is open. One run at a time.

    Views are values; they do not change when the conversation does.
    """

    def __init__(
        self,
        settings: Settings,
        id: str | None,  # noqa: A002
        *,
        messages: Iterable[Message | Mapping[str, Any]],
        state: State,
        tools: Iterable[AnyTool],
    ) -> None:
        self.id = settings.new_id() if id is None else id
        self._settings = settings
        self._tools = check_tools(Toolbox(tools, base=settings.tools))
        self._advertised: frozenset[str] = frozenset()  # in the last run
        self._is_stale = False
        self._begun: dict[str, PlannedCall] = {}  # calls of runs that were left while they were made
        initial = messages_of(listed("messages", messages, "messages"), settings, "messages")
        self._reducer = Reducer(initial, {} if state is None else _own(state), warn=self._warn)
        self._slot = RunSlot()
        self._run_id: str | None = None

    @property
    def conversation(self) -> Conversation:
        """Everything at this moment."""
        return self._reducer.conversation

    @property
    def messages(self) -> list[Message]:
        """All messages, activities and reasoning included."""
        return self._reducer.conversation.messages

    @property
    def state(self) -> State:
        """The state shared with the agent. Assigning it changes what the next run is sent.

        Raises ``EncodeError`` for what is not JSON, ``IllegalStep`` while a run is on.
        """
        return self._reducer.state

    @state.setter
    def state(self, value: State) -> None:
        if self._slot.is_taken:
            raise IllegalStep("the state belongs to the agent while a run is on", rule="STATE-2")
        self._reducer.feed(StateSnapshotEvent(snapshot=_own(value)))

    @property
    def interrupts(self) -> list[Interrupt]:
        """The questions that the last run left open; ``resume`` answers them."""
        return self._reducer.conversation.interrupts

    @property
    def pending_tool_calls(self) -> list[ToolCall]:
        """The tool calls that nobody has answered: of the last run, or those that the given messages end with."""
        return self._reducer.conversation.pending_tool_calls

    @property
    def usage(self) -> list[TokenUsage]:
        """What all runs reported, added up per (provider, model)."""
        return self._reducer.conversation.usage

    @property
    def runs(self) -> list[ConversationRun]:
        """The runs of this thread that were seen here, and the server's last one if ``refresh`` met another."""
        return self._reducer.conversation.runs

    @property
    def run_id(self) -> str | None:
        """The run that is on, or the last one that was asked for; None before."""
        return self._run_id

    def restore(self, conversation: Conversation) -> None:
        """Replace the conversation, with its open interrupts, by one that was stored elsewhere.

        Raise ``IllegalStep`` while a run is in progress.
        """
        if self._slot.is_taken:
            raise IllegalStep("the conversation cannot be replaced while a run is in progress", rule="LIFE-17")
        self._reducer = Reducer.from_conversation(conversation, warn=self._warn)

    def _warn(self, notice: Notice) -> None:
        if notice.rule == "SNAP-9" and notice.event_type == "STATE_DELTA":
            self._is_stale = True
        self._settings.warn(notice)

    # What to ask for

    def _request(
        self,
        content: Content,
        *,
        answers: Mapping[str, Any] | None = None,
        tools: Iterable[AnyTool] = (),
        context: Iterable[Context | Mapping[str, Any]] | Mapping[str, str] = (),
        forwarded_props: Any = None,
        parent_run_id: str | None = None,
        run_id: str | None = None,
        headers: Mapping[str, str] | None = None,
        max_rounds: int | None = None,
    ) -> RunRequest:
        if answers is not None:
            expect("answers", answers, Mapping, "a mapping of interrupt ids to answers")
        if headers is not None:
            expect("headers", headers, Mapping, "a mapping of names to values")
        if max_rounds is not None:
            expect("max_rounds", max_rounds, int, "a number")
        check_json(forwarded_props, "/forwardedProps")
        return RunRequest(
            messages=messages_of(content, self._settings),
            answers=answers,
            tools=check_tools(Toolbox(tools, base=self._tools)),
            context=context_of(context, self._settings),
            forwarded_props=forwarded_props,
            parent_run_id=parent_run_id,
            run_id=run_id,
            headers=headers,
            max_rounds=self._settings.max_rounds if max_rounds is None else max_rounds,
        )

    # Runs

    def _run_program(self, request: RunRequest) -> Program[RunResult]:
        """A run and the runs that continue it with tool results."""
        reducer = self._reducer
        before = reducer.conversation
        resume = self._resume_entries(request.answers)
        self._check_ids(request, before)
        self._check_pending(request)
        # Calls of our functions that are left from before: nobody else will answer them (FT-5). Those that an interrupt
        # is about wait for what the agent makes of the answer.
        settled = {message.tool_call_id for message in _answers_in(request.messages)}
        yield from self._answer_pending(request, settled | self._gated())
        rounds = 0
        run_id = request.run_id
        while True:
            run_id = self._settings.new_id() if run_id is None else run_id
            run_id = yield from self._one_run(request, run_id, resume)
            # What continues it goes on from there, not from where the first one branched off.
            request.messages, request.parent_run_id, resume = [], None, None
            outcome = self._outcome()
            pending = self.pending_tool_calls
            if outcome == "success" and request.tools.functions and pending:
                if rounds >= request.max_rounds:
                    exceeded = ToolRoundsExceeded(rounds)
                    exceeded.conversation = reducer.conversation
                    raise exceeded
                yield from self._answer_pending(request, set(), is_refusing_unknown=True)
                if not self.pending_tool_calls:
                    rounds += 1
                    run_id = None
                    continue
            elif outcome == "interrupt":
                yield from self._answer_pending(request, self._gated())
            break
        runs = self.conversation.runs[len(before.runs) :]
        if self._is_stale and self._settings.refresh_stale:
            yield from self._freshen()
        conversation = self.conversation
        return RunResult(
            run_id=run_id,
            outcome=outcome,
            result=runs[-1].result if runs else None,
            messages=changed_since(before, conversation),
            interrupts=conversation.interrupts,
            pending_tool_calls=self._left_to_us(),
            usage=aggregate_token_usage(entry for run in runs for entry in run.usage),
            conversation=conversation,
        )

    def _one_run(self, request: RunRequest, run_id: str, resume: list[ResumeEntry] | None) -> Program[str]:
        """RunRequest for a run and follow it; gives the id that it has, which some servers choose themselves."""
        settings, reducer = self._settings, self._reducer
        state = reducer.state
        held = {message.id for message in reducer.conversation.messages}
        wanted = RunAgentInput(
            thread_id=self.id,
            run_id=run_id,
            protocol_version=PROTOCOL_VERSION,
            parent_run_id=request.parent_run_id,
            messages=[*reducer.conversation.messages, *(one for one in request.messages if one.id not in held)],
            # Older parsers demand these, and empty means the same as absent (IN-9, IN-11).
            state={} if state is None else state,
            tools=request.tools.declarations,
            context=request.context,
            forwarded_props={} if request.forwarded_props is None else request.forwarded_props,
            resume=resume,
        )
        chain = Chain(settings.middleware)
        try:
            told = chain.input(wanted)
            if is_large(told):
                body: bytes = yield Compute(partial(enforced_body, told, settings))
            else:
                body = enforced_body(told, settings)
            self._run_id = run_id
            self._advertised = frozenset(request.tools.declared)
            new = request.messages
            ran = yield from self._follow(
                chain,
                Request(method="POST", url=settings.url, headers=self._run_headers(request.headers), body=body),
                run_id,
                lambda: reducer.add_messages(new),
            )
            return run_id if ran is None else ran
        finally:
            chain.close()

    def _consumer(self) -> Consumer:
        """Reads a stream from its beginning, into this conversation."""
        settings = self._settings
        return Consumer(
            compat=settings.compat,
            warn=self._warn,
            new_id=settings.new_id,
            reducer=self._reducer,
            max_size=settings.max_size,
        )

    def _follow(
        self,
        chain: Chain,
        request: Request,
        run_id: str | None,
        accepted: Callable[[], None],
        begin_anew: Callable[[], Consumer] | None = None,
    ) -> Program[str | None]:
        exchange = RunStream(
            self._settings,
            self._consumer(),
            chain,
            thread_id=self.id,
            run_id=run_id,
            on_accepted=accepted,
            restart=begin_anew,
        )
        try:
            yield from exchange.follow(request)
        except ProtocolError as error:
            error.conversation = self.conversation
            raise
        failure = self.conversation.run_error
        if failure is not None:
            failed = RunFailed(failure.message, code=failure.code, event=failure)
            failed.conversation = self.conversation
            raise failed
        return exchange.run_id

    def _run_headers(self, extra: Mapping[str, str] | None) -> dict[str, str]:
        fixed = {"Content-Type": "application/json", "Accept": self._settings.accept}
        return merge_headers(self._settings.headers, extra, fixed)

    def _outcome(self) -> Outcome:
        run = self.conversation.last_run
        outcome = None if run is None else run.outcome
        return "success" if outcome is None or outcome == "error" else outcome  # a run that failed has no result

    # What has to be answered first

    def _resume_entries(self, answers: Mapping[str, Any] | None) -> list[ResumeEntry] | None:
        interrupts = self.interrupts
        if answers is None and not interrupts:
            return None
        if not interrupts and not answers:
            raise IllegalStep(f"there is nothing to answer: {NONE_OPEN}", rule="INT-7")
        return resume_entries(interrupts, answers or {}, self._settings.now(), warn=self._settings.warn)

    def _gated(self) -> set[str | None]:
        return {interrupt.tool_call_id for interrupt in self.interrupts}

    def _left_to_us(self) -> list[ToolCall]:
        """The calls that nobody has answered, but for those that a question is about: the agent goes on with these."""
        gated = self._gated()
        return [call for call in self.pending_tool_calls if call.id not in gated]

    def _check_ids(self, request: RunRequest, before: Conversation) -> None:
        """Ids are used once: to send a message under that of another would lose it, and a run is not run again."""
        known = {message.id: message for message in before.messages}
        for message in request.messages:
            if not says_the_same(message, known.setdefault(message.id, message)):
                problem = f"the thread has another message {message.id!r}; a new one needs an id of its own"
                raise IllegalStep(problem, rule="ENV-12")
        if request.run_id is not None and any(run.run_id == request.run_id for run in before.runs):
            raise IllegalStep(f"there was a run {request.run_id!r} on this thread already", rule="ENV-11")

    def _check_pending(self, request: RunRequest) -> None:
        """A call of a tool that we offer and have no function for has to be answered by the application (FT-5).

        What another client offered before, nobody knows; so what is offered now counts, too.
        """
        answered = {message.tool_call_id for message in _answers_in(request.messages)}
        gated = self._gated()
        offered = self._advertised | request.tools.declared.keys()
        open_calls = [
            call
            for call in self.pending_tool_calls
            if call.function.name in offered
            and call.function.name not in request.tools.functions
            and call.id not in self._begun
            and call.id not in answered
            and call.id not in gated
        ]
        if open_calls:
            names = ", ".join(f"{call.id!r} of {call.function.name}" for call in open_calls)
            message = f"nobody has answered the tool call {names}; give run() a ToolMessage for it"
            raise IllegalStep(message, rule="FT-5")

    def _answer_pending(
        self, request: RunRequest, except_for: set[str | None], *, is_refusing_unknown: bool = False
    ) -> Generator[Any, Any, None]:
        """Answer the calls that are left, and keep the answers whatever comes after.

        Our functions are called if the run that asked for it finished, and never twice: what began in a run that was
        left is waited for.
        """
        last = self.conversation.last_run
        why_not = None if last is None else _NOT_MADE.get(last.outcome)
        planned: list[PlannedCall] = []
        for call in self.pending_tool_calls:
            if call.id in except_for:
                continue
            begun, name = self._begun.get(call.id), call.function.name
            if begun is not None:
                planned.append(begun)
            elif name in request.tools.functions or (is_refusing_unknown and not request.tools.is_manual(name)):
                planned.append(plan_call(request.tools, call, self._settings.new_id(), self._settings.confirm))
                if why_not is not None:
                    planned[-1].tool, planned[-1].problem = None, why_not
        if not planned:
            return
        try:
            answers: list[ToolMessage] = yield CallTools(planned)
        except GeneratorExit:
            # What has not begun yet never will; the rest has an outcome, now or later.
            self._begun.update((plan.call_id, plan) for plan in planned if not plan.outcome.cancel())
            raise
        for plan in planned:
            self._begun.pop(plan.call_id, None)
        self._reducer.add_messages(answers)

    # The rest

    def _attach_program(self, headers: Mapping[str, str] | None) -> Program[RunResult]:
        """Join the run that is on, or see how the thread stands."""
        settings = self._settings
        before = self.conversation
        run_id = settings.new_id()
        wanted = RunAgentInput(
            thread_id=self.id,
            run_id=run_id,
            protocol_version=PROTOCOL_VERSION,
            messages=before.messages,
            state={} if before.state is None else before.state,
            tools=[],
            context=[],
            forwarded_props={},
        )
        chain = Chain(settings.middleware)

        def begin_anew() -> Consumer:
            # Of a run that was told halfway nothing may be left: it is told from its beginning.
            self._reducer = Reducer.from_conversation(before, warn=self._warn)
            return self._consumer()

        try:
            body = enforced_body(chain.input(wanted), settings)
            url = settings.route("connect")
            request = Request(method="POST", url=url, headers=self._run_headers(headers), body=body)
            yield from self._follow(chain, request, None, lambda: None, begin_anew)
        finally:
            chain.close()
        conversation = self.conversation
        last = conversation.last_run
        return RunResult(
            run_id=run_id if last is None or last.run_id is None else last.run_id,
            outcome=self._outcome(),
            result=None if last is None else last.result,
            messages=changed_since(before, conversation),
            interrupts=conversation.interrupts,
            pending_tool_calls=self._left_to_us(),
            usage=[] if last is None else last.usage,
            conversation=conversation,
        )

    def _freshen(self) -> Program[None]:
        """Fetch the thread because a patch did not apply. The run has ended well: a failure here is a notice."""
        try:
            yield from self._fetch_thread()
        except AguilaError as error:
            self._settings.warn(Notice(rule="SNAP-9", message=f"the state could not be fetched anew: {error}"))

    def _refresh_program(self) -> Program[Conversation]:
        if self._slot.is_taken:
            raise IllegalStep("the conversation belongs to the run while one is on", rule="LIFE-17")
        return (yield from self._fetch_thread())

    def _fetch_thread(self) -> Program[Conversation]:
        """Take over what the server holds."""
        settings = self._settings
        request = Request(method="GET", url=settings.route("threads", self.id), headers=settings.json_headers())
        _, body = yield from fetch(settings, request)
        conversation = hydrated(body, self.id, self.conversation.runs, compat=settings.compat, warn=settings.warn)
        self._reducer = Reducer.from_conversation(conversation, warn=self._warn)
        self._is_stale = False
        return self.conversation

    def _cancel_program(self, run_id: str | None) -> Program[bool]:
        """RunRequest the server to stop the run; whether it was still on."""
        last = self.conversation.last_run
        if run_id is None:  # an attached run is known by what it said, not by what was asked for
            run_id = self._run_id if last is None or last.outcome is not None else last.run_id
        if run_id is None:
            raise IllegalStep("there is no run to cancel", rule="LIFE-8")
        settings = self._settings
        url = settings.route("threads", self.id, "runs", run_id, "cancel")
        request = Request(method="POST", url=url, headers=settings.json_headers())
        head, _ = yield from fetch(settings, request)
        return head.status == 202


def _own(state: State) -> State:
    check_json(state, "/state")
    return copy_json(state)


_NOT_MADE: dict[RunOutcome | None, str] = {
    "cancelled": "not executed: the run was cancelled",
    "error": "not executed: the run failed",
    None: "not executed: the run was cut off",
}
"""Why a call that never began is not made after all, by how its run ended."""


def _answers_in(messages: Iterable[Message]) -> list[ToolMessage]:
    return [message for message in messages if isinstance(message, ToolMessage)]
