"""End a run with exactly one terminal event.

=====================================================  ===========================================================
the agent returned                                     RUN_FINISHED, success
the agent sent its own RUN_FINISHED or RUN_ERROR,      that event; later output or exceptions after RUN_ERROR are
also as chat contents                                  logged
it asked a question, even if it caught the exception   RUN_FINISHED, interrupt
that ends the run
the user gave up a question, and the agent did not     RUN_FINISHED, cancelled (LIFE-8)
catch that
it reached its limit of rounds with tools              RUN_FINISHED, cancelled (LIFE-8)
``execute`` was cancelled                              RUN_FINISHED, cancelled, whatever the agent does; an agent
                                                       that does not stop within the grace period is abandoned
it raised any other exception                          RUN_ERROR, ``agent_error``
it sent an invalid event                               RUN_ERROR, ``agent_output``
the sink refused an event                              RUN_ERROR, ``run_unwritable``, if the sink accepts that
=====================================================  ===========================================================

The text of an exception is logged with a reference that is in the RUN_ERROR. It is sent only with ``debug``.
"""

from __future__ import annotations

import asyncio
import dataclasses
import logging
import traceback
from dataclasses import dataclass
from typing import Any, cast

from aguila.agent.agents import BadOutput
from aguila.agent.context import Ending, RunContext
from aguila.agent.interrupts import interrupts_in, others_in
from aguila.agent.output import Output
from aguila.agent.questions import InterruptCancelled, Questions
from aguila.agent.run import Run
from aguila.codec.json.decoder import decode
from aguila.codec.json.encoder import encode
from aguila.codec.logs import log_event
from aguila.codec.notices import Notice, log_notice
from aguila.errors import (
    DecodeError,
    EncodeError,
    IllegalStep,
    RunFailed,
    RunNotStored,
    StaleLease,
    StoreError,
    ToolRoundsExceeded,
)
from aguila.protocol import (
    Event,
    Interrupt,
    RunErrorEvent,
    RunFinishedCancelledOutcome,
    RunFinishedEvent,
    RunFinishedInterruptOutcome,
    RunFinishedOutcome,
    RunFinishedSuccessOutcome,
    replace,
)
from aguila.stream.json_values import copy_json
from aguila.stream.usage import aggregate_token_usage

_log = logging.getLogger("aguila")

_SUCCESS = RunFinishedSuccessOutcome()
_MESSAGES = {
    "agent_error": "The agent failed.",
    "agent_output": "The agent sent an invalid event.",
    "run_unwritable": "The run could not be recorded.",
}


@dataclass(slots=True, eq=False)
class EndOfRun:
    """Writes the end of a run."""

    _context: RunContext
    _output: Output
    _run: Run
    _questions: Questions

    def write(self, error: BaseException | None, cancelled: bool, stopped: RunFailed | None) -> Ending:
        """Write the terminal event, or RUN_ERROR if it cannot be written. ``stopped`` is why the run was cancelled."""
        output, yielded = self._output, self._output.yielded
        if output.failure is not None:
            return self._fail(output.failure)
        if output.branches.refusal is not None:
            return self._fail(output.branches.refusal)
        try:
            if cancelled and yielded.ending is None:
                if error is not None and not isinstance(error, asyncio.CancelledError):
                    self._log("the agent failed while it was being cancelled", error)
                return self._cancel() if stopped is None else self._fail(stopped)
            asked = [] if error is None else interrupts_in(error)
            if asked or (error is None and self._questions.unanswered):
                if error is None:
                    self._warn(
                        "the agent caught the exception of its question and continued; the run ends with the question"
                    )
                for other in others_in(error):
                    self._log("a branch of the agent failed while another asked; the run ends with the question", other)
                self._check_own(asked)
                return self._interrupt([*self._questions.unanswered.values(), *asked, *yielded.interrupts])
            if error is not None and _is_stopped(error) and yielded.ending is None:
                return self._cancel()
            if error is not None and not cancelled:
                if not isinstance(yielded.ending, RunErrorEvent):
                    return self._fail(error)
                self._log("the agent raised after its own RUN_ERROR", _cause_of(error))
            if not output.branches.has_progressed:
                self._warn("the agent ended without reaching the question that was answered; its output was suppressed")
            if yielded.ending is not None:
                return self._end_with_own_event(yielded.ending)
            if yielded.chats and yielded.interrupts:
                return self._interrupt(yielded.interrupts)
            # Copied before open items are closed, because that may raise.
            result = None if self._run.result is None else copy_json(self._run.result)
            session = self._context.session
            if session is not None or self._run.session != {}:
                session = copy_json(self._run.session)
            if output.state.may_differ:
                output.send_last_state()
            return self._finish(Ending(outcome="success", session=session), _SUCCESS, result)
        except Exception as failure:  # noqa: BLE001 - the run must end in any case
            return self._fail(failure)

    def _finish(
        self,
        ending: Ending,
        outcome: RunFinishedOutcome | None = None,
        result: Any = None,
        own: RunFinishedEvent | None = None,
    ) -> Ending:
        """End the run with RUN_FINISHED, which is ``own`` if the agent sent it itself."""
        context, output, event = self._context, self._output, own
        if event is None:
            event = RunFinishedEvent(thread_id=context.thread_id, run_id=context.run_id, result=result, outcome=outcome)
        if event.usage is not None or self._run.usage or output.yielded.chats:
            event = replace(event, **self._usage(event))
            ending = dataclasses.replace(ending, usage=event.usage or ())
        events = output.writer.emit(event)
        if not context.is_stored and ending.outcome != "cancelled":
            self._check_stored(ending)
        if output.writer.state not in (None, {}):
            self._check_state()
        try:
            output.sink.put(events)
        except Exception as refusal:
            output.failure = refusal
            raise
        return ending

    def _cancel(self) -> Ending:
        """End the run as cancelled. A session or state that is not JSON is only logged."""
        session = self._context.session
        try:
            session = copy_json(self._run.session)
        except Exception as failure:  # noqa: BLE001
            self._log("the session is not JSON and was not kept", failure)
        self._send_last_state_if_possible()
        return self._finish(Ending(outcome="cancelled", session=session), RunFinishedCancelledOutcome())

    def _send_last_state_if_possible(self, known: BaseException | None = None, reference: str | None = None) -> None:
        if self._output.failure is not None or not self._output.branches.has_progressed:
            return  # the state of a replay that did not reach its question is older than the client's
        try:
            self._output.send_last_state()
        except Exception as failure:  # noqa: BLE001 - an invalid state must not keep the run open
            is_known = known is not None and type(failure) is type(known) and failure.args == known.args
            if not is_known:  # otherwise it is logged as the reason of the failure
                self._log("the last state was not sent", failure, reference=reference)

    def _check_own(self, asked: list[Interrupt]) -> None:
        """Raise ``IllegalStep`` if two interrupts that the agent raised itself have the same id."""
        seen: set[str] = set()
        for interrupt in asked:
            if interrupt.id in self._questions.unanswered:
                continue
            if interrupt.id in seen:
                raise IllegalStep(f"two interrupts have the id {interrupt.id!r}; give each its own", rule="INT-3")
            seen.add(interrupt.id)

    def _interrupt(self, raised: list[Interrupt]) -> Ending:
        interrupts = list({interrupt.id: interrupt for interrupt in raised}.values())
        decode(encode(interrupts), list[Interrupt], strict=True)
        # A replay changes the session again, so it starts from the session before the run.
        asked = frozenset(self._questions.unanswered)
        session = copy_json(self._context.session if asked else self._run.session)
        if self._output.branches.is_current:
            self._output.send_last_state()
        ending = Ending(outcome="interrupt", interrupts=interrupts, asked=asked, session=session)
        return self._finish(ending, RunFinishedInterruptOutcome(interrupts=interrupts))

    def _end_with_own_event(self, event: RunFinishedEvent | RunErrorEvent) -> Ending:
        interrupts = self._output.yielded.interrupts
        if isinstance(event, RunFinishedEvent) and event.outcome is None and interrupts:
            event = replace(event, outcome=RunFinishedInterruptOutcome(interrupts=interrupts))
        decode(encode(event), Event, strict=True)
        session = copy_json(self._run.session)
        self._output.send_last_state()
        if isinstance(event, RunErrorEvent):
            return self._put_error(event, Ending(outcome="error", session=self._context.session))
        match event.outcome:
            case RunFinishedInterruptOutcome(interrupts=asked):
                ending = Ending(outcome="interrupt", interrupts=asked, session=session)
            case RunFinishedCancelledOutcome():
                ending = Ending(outcome="cancelled", session=session)
            case _:
                ending = Ending(outcome="success", session=session)
        return self._finish(ending, own=event)

    def _fail(self, error: BaseException) -> Ending:
        """End the run with RUN_ERROR, which is legal in every state."""
        cause = _cause_of(error)
        reference: str | None = None
        is_deliberate = isinstance(error, RunFailed) and error.event is None and error.__cause__ is None
        if isinstance(error, RunFailed) and error.event is None:  # the agent wrote its message for the client
            message, code = error.message, error.code
        else:
            reference = self._context.new_id()
            code = self._code(error, cause)
            message = f"{_MESSAGES[code]} Reference: {reference}"
            if self._context.debug:
                message += f" ({traceback.format_exception_only(cause)[-1].strip()})"
        if is_deliberate:  # the agent or the server chose to fail it: a traceback would only show where
            self._log(f"the run failed: {message}", None, logging.WARNING, code=code)
        else:
            self._log("the run failed", cause, code=code, reference=reference)
        if not self._output.writer.is_finished:
            self._send_last_state_if_possible(cause, reference)
        ending = Ending(outcome="error", session=self._context.session, reference=reference, error=cause)
        return self._put_error(RunErrorEvent(message=message, code=code), ending)

    def _put_error(self, event: RunErrorEvent, ending: Ending) -> Ending:
        """End the run with RUN_ERROR, unless the sink refuses that too."""
        output = self._output
        event = replace(event, **self._usage(event))
        ending = dataclasses.replace(ending, usage=event.usage or ())
        try:
            # If the sink refused the terminal event of the writer, this one is the first that is sent.
            output.sink.put([event] if output.writer.is_finished else output.writer.emit(event))
        except Exception as refusal:  # noqa: BLE001 - the run must end in any case
            if refusal is not output.failure:  # the first failure was logged
                self._log("the terminal event of the run was refused", refusal, reference=ending.reference)
            return dataclasses.replace(ending, error=ending.error or refusal, is_written=False)
        return ending

    def _code(self, error: BaseException, cause: BaseException) -> str:
        if cause is self._output.failure and not isinstance(cause, (EncodeError, DecodeError, IllegalStep)):
            return "run_unwritable"
        return (
            "agent_output" if isinstance(error, (BadOutput, EncodeError, IllegalStep, DecodeError)) else "agent_error"
        )

    def _check_stored(self, ending: Ending) -> None:
        """Raise ``RunNotStored`` for an end that leaves something to be stored."""
        if ending.outcome == "interrupt":
            raise RunNotStored("ask a question")
        if (ending.session or {}) != (self._context.session or {}):
            raise RunNotStored("change the session")

    def _check_state(self) -> None:
        """Warn about a state that is too large for the client to send back."""
        most = self._context.max_state
        if most is not None and len(encode(self._output.writer.state)) > most:
            message = f"the state is larger than the {most} bytes that a client may send"
            log_notice(Notice(rule="limits", message=message))

    def _usage(self, event: RunFinishedEvent | RunErrorEvent) -> dict[str, Any]:
        """Return the usage, and as metadata that of each model call, if this says more than the sums by model.

        Usage in the agent's own terminal event includes that of its chat contents.
        """
        calls = self._run.usage
        usage = [*(self._output.yielded.usage if event.usage is None else event.usage), *calls]
        used: dict[str, Any] = {"usage": aggregate_token_usage(usage) if usage else None}
        if event.metadata is None and len(calls) > len(aggregate_token_usage(calls)):
            used["metadata"] = {"aguila": {"modelCalls": decode(encode(calls), list[dict[str, Any]])}}
        return used

    def _log(self, what: str, error: BaseException | None, level: int = logging.ERROR, **more: Any) -> None:
        if isinstance(error, StaleLease):  # the sink logs it
            return
        if isinstance(error, StoreError):  # its traceback would not help
            what, error = f"{what}: {error}", None
        log_event(_log, level, what, error=error, thread=self._context.thread_id, run=self._context.run_id, **more)

    def _warn(self, message: str) -> None:
        log_notice(Notice(rule="ask", message=message))


def _cause_of(error: BaseException) -> BaseException:
    """Return the exception that made an agent fail."""
    return error.__cause__ if isinstance(error, BadOutput) and error.__cause__ is not None else error


def _is_stopped(error: BaseException | None) -> bool:
    """Return whether the agent stopped on purpose: the user gave up a question, or a limit was reached."""
    if isinstance(error, BaseExceptionGroup):
        group = cast("BaseExceptionGroup[BaseException]", error)
        return all(map(_is_stopped, group.exceptions))
    return isinstance(error, (InterruptCancelled, ToolRoundsExceeded))
