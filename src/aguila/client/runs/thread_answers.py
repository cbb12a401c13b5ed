"""The answers that a thread needs before its next run: to open interrupts and pending tool calls."""

from __future__ import annotations

from collections.abc import Generator, Iterable, Mapping
from typing import Any

import msgspec

from aguila.chat.tools import Toolbox
from aguila.client.drivers.actions import CallTools
from aguila.client.interrupts import NONE_OPEN, resume_entries
from aguila.client.runs.thread_state import ThreadState
from aguila.client.tools import PlannedCall, plan_call
from aguila.errors import IllegalStep
from aguila.protocol import Context, Message, ResumeEntry, ToolMessage
from aguila.stream import Conversation
from aguila.stream.conversation import RunOutcome
from aguila.stream.message_equality import is_same_message


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


class ThreadAnswers(ThreadState):
    """A conversation whose questions and calls can be answered."""

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
        except GeneratorExit:
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
