"""The runs of a thread, for both clients.

The methods that end in ``_program`` are programs (see ``drivers.actions``): they neither wait nor connect themselves.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Generator, Iterable, Mapping
from functools import partial
from typing import TYPE_CHECKING, Any, Generic, Self, TypeVar

import msgspec

from aguila.chat.tools import AnyTool, Toolbox
from aguila.client.arguments import expect, listed
from aguila.client.drivers.actions import CallTools, Compute, Program
from aguila.client.interrupts import NONE_OPEN, resume_entries
from aguila.client.middleware import Chain
from aguila.client.requests.http_requests import fetch
from aguila.client.requests.hydration import hydrate
from aguila.client.requests.request_builder import (
    Content,
    context_of,
    enforced_body,
    is_large,
    messages_of,
)
from aguila.client.requests.urls import add_query, merge_headers
from aguila.client.runs.run import Outcome, RunBase, RunResult, RunSlot, changed_since
from aguila.client.settings import ClientCore, TransportT
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
from aguila.stream.message_equality import is_same_message
from aguila.telemetry import load_spans

if TYPE_CHECKING:
    from aguila.telemetry.spans import RunSpan

RunT = TypeVar("RunT", bound=RunBase[Any])


class RunRequest(msgspec.Struct, kw_only=True):
    """The arguments of one call of ``thread.run``."""

    messages: list[Message] = []
    answers: Mapping[str, Any] | None = None
    tools: Toolbox
    context: list[Context] = []
    forwarded_props: Any = None
    parent_run_id: str | None = None
    run_id: str | None = None
    headers: Mapping[str, str] | None = None
    max_rounds: int


class ThreadBase(ABC, Generic[TransportT, RunT]):
    """A conversation and its runs: messages, shared state, open interrupts. It has one run at a time.

    The properties return values, which do not change when the conversation does.
    """

    def __init__(
        self,
        core: ClientCore[TransportT],
        id: str | None = None,  # noqa: A002
        *,
        messages: Iterable[Message | Mapping[str, Any]] = (),
        state: State = None,
        tools: Iterable[AnyTool] = (),
    ) -> None:
        settings = core.settings
        self.id = settings.new_id() if id is None else id
        self._settings = settings
        self._tools = check_tools(Toolbox(tools, base=settings.tools))
        self._advertised: frozenset[str] = frozenset()  # names of the tools of the last run
        self._is_stale = False
        self._begun: dict[str, PlannedCall] = {}  # calls in progress of runs that were left
        initial = messages_of(listed("messages", messages, "messages"), settings, "messages")
        self._reducer = Reducer(
            initial, {} if state is None else _copied(state), warn=self._warn, max_size=settings.max_size
        )
        self._slot = RunSlot()
        self._run_id: str | None = None
        self._core = core
        self._branch_tip: str | None = None
        self._is_new_root = False  # whether the next run continues no run

    @property
    def conversation(self) -> Conversation:
        """The whole conversation at this moment."""
        return self._reducer.conversation

    @property
    def messages(self) -> list[Message]:
        """All messages, activities and reasoning included."""
        return self._reducer.conversation.messages

    @property
    def state(self) -> State:
        """The state shared with the agent. The next run sends the value that you assign.

        Assigning raises ``EncodeError`` for a value that is not JSON, and ``IllegalStep`` while a run is in progress.
        """
        return self._reducer.state

    @state.setter
    def state(self, value: State) -> None:
        if self._slot.is_taken:
            raise IllegalStep(
                "the state belongs to the agent while a run is in progress; assign it after the run", rule="STATE-2"
            )
        self._reducer.feed(StateSnapshotEvent(snapshot=_copied(value)))

    @property
    def interrupts(self) -> list[Interrupt]:
        """The open questions of the last run; ``resume`` answers them."""
        return self._reducer.conversation.interrupts

    @property
    def pending_tool_calls(self) -> list[ToolCall]:
        """The unanswered tool calls of the last run, or those at the end of the given messages."""
        return self._reducer.conversation.pending_tool_calls

    @property
    def usage(self) -> list[TokenUsage]:
        """The token usage of all runs, added up per provider and model."""
        return self._reducer.conversation.usage

    @property
    def runs(self) -> list[ConversationRun]:
        """The runs that this client has followed, and the last one on the server after ``refresh``."""
        return self._reducer.conversation.runs

    @property
    def run_id(self) -> str | None:
        """The id of the run in progress, else of the last run; None before the first."""
        return self._run_id

    def restore(self, conversation: Conversation) -> None:
        """Replace the conversation, with its open interrupts, by one that was stored elsewhere.

        Raise ``IllegalStep`` while a run is in progress.
        """
        if self._slot.is_taken:
            raise IllegalStep("the conversation cannot be replaced while a run is in progress", rule="LIFE-17")
        self._reducer = self._reducer_from(conversation)

    def _reducer_from(self, conversation: Conversation) -> Reducer:
        return Reducer.from_conversation(conversation, warn=self._warn, max_size=self._settings.max_size)

    def _warn(self, notice: Notice) -> None:
        if notice.rule == "SNAP-9" and notice.event_type == "STATE_DELTA":
            self._is_stale = True
        self._settings.warn(notice)

    def _consumer(self) -> Consumer:
        """Return a consumer that reads a stream into this conversation."""
        settings = self._settings
        return Consumer(
            compat=settings.compat,
            warn=self._warn,
            new_id=settings.new_id,
            reducer=self._reducer,
            max_size=settings.max_size,
        )

    def _outcome(self) -> Outcome:
        run = self.conversation.last_run
        outcome = None if run is None else run.outcome
        return "success" if outcome is None or outcome == "error" else outcome  # a run that failed raises

    def _gated(self) -> set[str | None]:
        return {interrupt.tool_call_id for interrupt in self.interrupts}

    def _calls_for_application(self) -> list[ToolCall]:
        """Return the unanswered calls, except those that a question asks about: the agent continues with these."""
        gated = self._gated()
        return [call for call in self.pending_tool_calls if call.id not in gated]

    @abstractmethod
    def _new_run(self, program: Program[RunResult], description: str) -> RunT:
        """Return a run that executes this program. ``description`` is the caller's call, for errors."""

    def run(
        self,
        content: Content = None,
        *,
        tools: Iterable[AnyTool] = (),
        context: Iterable[Context | Mapping[str, Any]] | Mapping[str, str] = (),
        forwarded_props: Any = None,
        parent_run_id: str | None = None,
        run_id: str | None = None,
        headers: Mapping[str, str] | None = None,
        max_rounds: int | None = None,
    ) -> RunT:
        """Send a message and run the agent. Iterate the run for its events, or finish it for its result.

        An ``AsyncClientRun`` is finished with ``await run``, a ``ClientRun`` with ``run.result()``.

        ``content`` is text, parts, messages, or nothing new. The client calls functions that are tools, and continues
        the run with their results until no call is pending. The run can end with ``RunFailed`` (the agent failed),
        ``StreamTruncated`` (it was cut off, or was sent and got no response), ``ProtocolError`` (the agent broke the
        protocol), ``HTTPRejected`` or ``TransportFailed`` (it never started), ``ToolRoundsExceeded``, or
        ``IllegalStep`` or ``EncodeError`` (nothing was sent). Events that arrived before are in the thread.
        """
        request = self._build_request(
            content,
            tools=tools,
            context=context,
            forwarded_props=forwarded_props,
            parent_run_id=parent_run_id,
            run_id=run_id,
            headers=headers,
            max_rounds=max_rounds,
        )
        return self._new_run(self._run_program(request), "thread.run()")

    def resume(
        self,
        answers: Mapping[str, Any],
        content: Content = None,
        *,
        tools: Iterable[AnyTool] = (),
        context: Iterable[Context | Mapping[str, Any]] | Mapping[str, str] = (),
        forwarded_props: Any = None,
        parent_run_id: str | None = None,
        run_id: str | None = None,
        headers: Mapping[str, str] | None = None,
        max_rounds: int | None = None,
    ) -> RunT:
        """Answer every open interrupt, by id, and run the agent. The other arguments are as in ``run``.

        An answer is a payload, ``GIVE_UP``, or a ``ResumeEntry``. Raise ``IllegalStep``, before anything is sent, for
        an answer that is missing, unknown, late, or does not match the schema of its interrupt.
        """
        request = self._build_request(
            content,
            answers=answers,
            tools=tools,
            context=context,
            forwarded_props=forwarded_props,
            parent_run_id=parent_run_id,
            run_id=run_id,
            headers=headers,
            max_rounds=max_rounds,
        )
        return self._new_run(self._run_program(request), "thread.resume()")

    def attach(self, *, headers: Mapping[str, str] | None = None) -> RunT:
        """Join the run in progress; without one, load the thread. Tools are not called.

        This needs a server with ``POST /connect``. It ends as a run does.
        """
        return self._new_run(self._attach_program(headers), "thread.attach()")

    @property
    def branch_run_id(self) -> str | None:
        """The run that the next run continues, in a view that ``branch`` or ``fork`` made.

        None in other threads, and in a view that begins before the first run.
        """
        return self._branch_tip

    def _last_run_id(self) -> str | None:
        """Return the last run of this conversation. On the server, another branch may have later runs."""
        if self._branch_tip is not None:
            return self._branch_tip
        last = self.conversation.last_run
        return None if last is None else last.run_id

    def _open_branch(self, run_id: str | None, conversation: Conversation) -> Self:
        """Return a view of this thread that continues from a run; without one, it begins before the first run."""
        view = type(self)(self._core, self.id)
        view.restore(conversation)
        view._tools, view._advertised = self._tools, self._advertised
        view._branch_tip = view._run_id = run_id
        view._is_new_root = run_id is None
        return view

    def send_input(self, input: RunAgentInput, headers: Mapping[str, str] | None) -> RunT:  # noqa: A002
        """Send an input as it is; see ``client.send``."""
        return self._new_run(self._input_program(input, headers), "client.send()")

    # Arguments

    def _build_request(
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
        """Start a run, and continue it with tool results until no call is pending."""
        reducer = self._reducer
        before = reducer.conversation
        resume = self._resume_entries(request.answers)
        self._check_ids(request, before)
        self._check_pending(request)
        # Calls of our functions that an earlier run left: only this client can answer them (FT-5). If an interrupt
        # asks about a call, the agent continues with it after the answer.
        settled = {message.tool_call_id for message in answers_in(request.messages)}
        yield from self._answer_pending(request, settled | self._gated())
        rounds = 0
        run_id = request.run_id
        while True:
            run_id = self._settings.new_id() if run_id is None else run_id
            run_id = yield from self._one_run(request, run_id, resume)
            # The next round continues this run, not the one that the first round branched off from.
            request.messages, request.parent_run_id, resume = [], None, None
            outcome = self._outcome()
            pending = self.pending_tool_calls
            if outcome == "success" and request.tools.functions and pending:
                if rounds >= request.max_rounds:
                    exceeded = ToolRoundsExceeded(rounds)
                    exceeded.conversation = reducer.conversation
                    raise exceeded
                yield from self._answer_pending(request, set(), refuse_unknown=True)
                if not self.pending_tool_calls:
                    rounds += 1
                    run_id = None
                    continue
            elif outcome == "interrupt":
                yield from self._answer_pending(request, self._gated())
            break
        runs = self.conversation.runs[len(before.runs) :]
        if self._is_stale and self._settings.refresh_stale:
            yield from self._refetch_stale()
        conversation = self.conversation
        return RunResult(
            run_id=run_id,
            outcome=outcome,
            result=runs[-1].result if runs else None,
            messages=changed_since(before, conversation),
            interrupts=conversation.interrupts,
            pending_tool_calls=self._calls_for_application(),
            usage=aggregate_token_usage(entry for run in runs for entry in run.usage),
            conversation=conversation,
        )

    def _one_run(self, request: RunRequest, run_id: str, resume: list[ResumeEntry] | None) -> Program[str]:
        """Send a run and follow it. Return the id that it has, which some servers choose themselves."""
        reducer = self._reducer
        state = reducer.state
        held = {message.id for message in reducer.conversation.messages}
        parent = self._branch_tip if request.parent_run_id is None else request.parent_run_id
        if parent is None and self._is_new_root:
            parent = run_id  # a run that names itself continues no run
        wanted = RunAgentInput(
            thread_id=self.id,
            run_id=run_id,
            protocol_version=PROTOCOL_VERSION,
            parent_run_id=parent,
            messages=[*reducer.conversation.messages, *(one for one in request.messages if one.id not in held)],
            # Older parsers require these, and empty means the same as absent (IN-9, IN-11).
            state={} if state is None else state,
            tools=request.tools.declarations,
            context=request.context,
            forwarded_props={} if request.forwarded_props is None else request.forwarded_props,
            resume=resume,
        )
        advertised, new = frozenset(request.tools.declared), request.messages

        def accept() -> None:
            reducer.add_messages(new)
            if self._branch_tip is not None or self._is_new_root:  # also if the run fails: the next one continues it
                self._branch_tip, self._is_new_root = run_id, False

        ran = yield from self._send(wanted, request.headers, advertised, accept)
        if self._branch_tip is not None:
            self._branch_tip = ran
        return ran

    def _send(
        self,
        wanted: RunAgentInput,
        headers: Mapping[str, str] | None,
        advertised: frozenset[str],
        on_accepted: Callable[[], None],
    ) -> Program[str]:
        settings = self._settings
        chain = Chain(settings.middleware)
        spans = load_spans()
        span = None
        if spans is not None:
            span = spans.of_request(settings.url, thread_id=wanted.thread_id, run_id=wanted.run_id)
        outcome, error = "left", None
        try:
            changed = chain.input(wanted)
            if is_large(changed):
                body: bytes = yield Compute(partial(enforced_body, changed, settings))
            else:
                body = enforced_body(changed, settings)
            self._run_id = wanted.run_id
            self._advertised = advertised
            request = Request(method="POST", url=settings.url, headers=self._run_headers(headers), body=body)
            ran = yield from self._follow(chain, request, wanted.run_id, on_accepted, span=span)
            outcome = self._outcome()
            return wanted.run_id if ran is None else ran
        except Exception as failure:
            outcome, error = "error", failure
            raise
        finally:
            if span is not None:
                last = self.conversation.last_run
                span.end(outcome, last.usage if last is not None and last.run_id == wanted.run_id else (), error)
            chain.close()

    def _input_program(self, wanted: RunAgentInput, headers: Mapping[str, str] | None) -> Program[RunResult]:
        """Send an input as it is and follow its run."""
        before = self.conversation
        run_id = yield from self._send(wanted, headers, frozenset(), lambda: None)
        return self._result_since(before, run_id)

    def _follow(
        self,
        chain: Chain,
        request: Request,
        run_id: str | None,
        on_accepted: Callable[[], None],
        restart: Callable[[], Consumer] | None = None,
        span: RunSpan | None = None,
    ) -> Program[str | None]:
        before = self.conversation

        def rehydrate() -> Consumer:
            self._reducer = self._reducer_from(before)
            return self._consumer()

        stream = RunStream(
            self._settings,
            self._consumer(),
            chain,
            thread_id=self.id,
            run_id=run_id,
            on_accepted=on_accepted,
            restart=restart,
            rehydrate=rehydrate,
            span=span,
        )
        try:
            yield from stream.follow(request)
        except ProtocolError as error:
            error.conversation = self.conversation
            raise
        failure = self.conversation.run_error
        if failure is not None:
            failed = RunFailed(failure.message, code=failure.code, event=failure)
            failed.conversation = self.conversation
            raise failed
        return stream.run_id

    def _run_headers(self, extra: Mapping[str, str] | None) -> dict[str, str]:
        fixed = {"Content-Type": "application/json", "Accept": self._settings.accept}
        return merge_headers(self._settings.headers, extra, fixed)

    # Attach, refresh, cancel

    def _attach_program(self, headers: Mapping[str, str] | None) -> Program[RunResult]:
        """Join the run in progress, or load the thread."""
        if self._is_new_root:
            raise IllegalStep("the view has no run to join; run() starts one", rule="LIFE-2")
        settings = self._settings
        before = self.conversation
        run_id = settings.new_id()
        wanted = RunAgentInput(
            thread_id=self.id,
            run_id=run_id,
            protocol_version=PROTOCOL_VERSION,
            parent_run_id=self._branch_tip,
            messages=before.messages,
            state={} if before.state is None else before.state,
            tools=[],
            context=[],
            forwarded_props={},
        )
        chain = Chain(settings.middleware)

        def restart() -> Consumer:
            # The stream starts again from its beginning: drop the messages of the first attempt.
            self._reducer = self._reducer_from(before)
            return self._consumer()

        try:
            body = enforced_body(chain.input(wanted), settings)
            url = settings.route("connect")
            request = Request(method="POST", url=url, headers=self._run_headers(headers), body=body)
            yield from self._follow(chain, request, None, lambda: None, restart)
        finally:
            chain.close()
        return self._result_since(before, run_id)

    def _result_since(self, before: Conversation, run_id: str) -> RunResult:
        """Return the result of a run that was followed without calling tools."""
        conversation = self.conversation
        last = conversation.last_run
        return RunResult(
            run_id=run_id if last is None or last.run_id is None else last.run_id,
            outcome=self._outcome(),
            result=None if last is None else last.result,
            messages=changed_since(before, conversation),
            interrupts=conversation.interrupts,
            pending_tool_calls=self._calls_for_application(),
            usage=[] if last is None else last.usage,
            conversation=conversation,
        )

    def _refetch_stale(self) -> Program[None]:
        """Fetch the thread after a patch that did not apply. The run has succeeded, so a failure here is a notice."""
        try:
            yield from self._fetch_thread()
        except AguilaError as error:
            self._settings.warn(Notice(rule="SNAP-9", message=f"the state could not be fetched again: {error}"))

    def _refresh_program(self) -> Program[Conversation]:
        if self._slot.is_taken:
            raise IllegalStep(
                "the conversation cannot be refreshed while a run is in progress; do it after the run", rule="LIFE-17"
            )
        return (yield from self._fetch_thread())

    def _fetch_thread(self) -> Program[Conversation]:
        """Replace the conversation by the server's."""
        if self._is_new_root:
            return self.conversation
        settings = self._settings
        tip = self._branch_tip
        url = add_query(settings.route("threads", self.id), {"run": tip})
        _, body = yield from fetch(settings, Request(method="GET", url=url, headers=settings.json_headers()))
        conversation = hydrate(
            body, self.id, self.conversation.runs, compat=settings.compat, warn=settings.warn, run_id=tip
        )
        self._reducer = self._reducer_from(conversation)
        self._is_stale = False
        return self.conversation

    def _cancel_program(self, run_id: str | None) -> Program[bool]:
        """Ask the server to stop the run. Return whether it was in progress."""
        last = self.conversation.last_run
        if run_id is None:  # an attached run has the id of its events
            run_id = self._run_id if last is None or last.outcome is not None else last.run_id
        if run_id is None:
            raise IllegalStep("there is no run to cancel", rule="LIFE-8")
        settings = self._settings
        url = settings.route("threads", self.id, "runs", run_id, "cancel")
        request = Request(method="POST", url=url, headers=settings.json_headers())
        head, _ = yield from fetch(settings, request)
        return head.status == 202

    # Answers to open interrupts and pending tool calls

    def _resume_entries(self, answers: Mapping[str, Any] | None) -> list[ResumeEntry] | None:
        interrupts = self.interrupts
        if answers is None and not interrupts:
            return None
        if not interrupts and not answers:
            raise IllegalStep(f"there is no interrupt to answer: {NONE_OPEN}", rule="INT-7")
        return resume_entries(interrupts, answers or {}, self._settings.now(), warn=self._settings.warn)

    def _check_ids(self, request: RunRequest, before: Conversation) -> None:
        """Raise ``IllegalStep`` for an id that is in use: the new message would be lost, or the run would not start."""
        known = {message.id: message for message in before.messages}
        for message in request.messages:
            if not is_same_message(message, known.setdefault(message.id, message), is_extended=True):
                problem = f"the thread has another message {message.id!r}; give the new one an id of its own"
                raise IllegalStep(problem, rule="ENV-12")
        if request.run_id is not None and any(run.run_id == request.run_id for run in before.runs):
            raise IllegalStep(f"the thread already has a run {request.run_id!r}; choose another run_id", rule="ENV-11")

    def _check_pending(self, request: RunRequest) -> None:
        """Raise ``IllegalStep`` if the application has not answered a call of a tool without a function (FT-5).

        The tools that another client offered are unknown; so those that are offered now count, too.
        """
        answered = {message.tool_call_id for message in answers_in(request.messages)}
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
            message = f"the tool call {names} has no answer; pass a ToolMessage for it to run()"
            raise IllegalStep(message, rule="FT-5")

    def _answer_pending(
        self, request: RunRequest, except_for: set[str | None], *, refuse_unknown: bool = False
    ) -> Generator[Any, Any, None]:
        """Answer the pending calls, and add the answers to the conversation.

        A function is called only if its run finished, and once: a call in progress of a run that was left is awaited.
        """
        last = self.conversation.last_run
        why_not = None if last is None else _NOT_EXECUTED.get(last.outcome)
        planned: list[PlannedCall] = []
        for call in self.pending_tool_calls:
            if call.id in except_for:
                continue
            begun, name = self._begun.get(call.id), call.function.name
            if begun is not None:
                planned.append(begun)
            elif name in request.tools.functions or (refuse_unknown and not request.tools.is_manual(name)):
                planned.append(plan_call(request.tools, call, self._settings.new_id(), self._settings.confirm))
                if why_not is not None:
                    planned[-1].tool, planned[-1].problem = None, why_not
        if not planned:
            return
        try:
            answers: list[ToolMessage] = yield CallTools(planned)
        except BaseException:
            # Calls that have not started are given up; the others have an outcome, now or later.
            self._begun.update((plan.call_id, plan) for plan in planned if not plan.outcome.cancel())
            raise
        for plan in planned:
            self._begun.pop(plan.call_id, None)
        self._reducer.add_messages(answers)


_NOT_EXECUTED: dict[RunOutcome | None, str] = {
    "cancelled": "not executed: the run was cancelled",
    "error": "not executed: the run failed",
    None: "not executed: the run was cut off",
}
"""Why a call that never started is not made, by the outcome of its run."""


def answers_in(messages: Iterable[Message]) -> list[ToolMessage]:
    """Return the results of tool calls among messages."""
    return [message for message in messages if isinstance(message, ToolMessage)]


def _copied(state: State) -> State:
    check_json(state, "/state")
    return copy_json(state)
