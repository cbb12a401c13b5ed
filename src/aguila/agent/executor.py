"""Run an agent and end its run with exactly one terminal event.

The agent runs in one task. ``execute`` waits for that task; cancelling ``execute`` cancels it. A run ends like this:

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
from collections.abc import Callable, Coroutine
from functools import partial
from typing import Any, cast

from aguila.agent.context import Ending, RunContext, Services, Sink
from aguila.agent.interrupts import interrupts_in, others_in
from aguila.agent.output import OutputMapper
from aguila.agent.questions import InterruptCancelled, Questions
from aguila.agent.run import Run
from aguila.agent.runners import Agent, BadOutput, drive
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
from aguila.offload import is_large, offload
from aguila.protocol import (
    Event,
    Interrupt,
    RunErrorEvent,
    RunFinishedCancelledOutcome,
    RunFinishedEvent,
    RunFinishedInterruptOutcome,
    TokenUsage,
    replace,
)
from aguila.stream.json_values import copy_json
from aguila.stream.usage import aggregate_token_usage
from aguila.stream.writer import Events

__all__ = ["Ending", "RunContext", "Services", "Sink", "execute"]

_log = logging.getLogger("aguila")

_PATIENCE = 5.0
"""Seconds to record the branches of an agent after the run was cancelled."""

_checks: set[asyncio.Task[Any]] = set()
"""Tasks that measure large states; held so that they are not garbage-collected."""
_left_behind: set[asyncio.Task[Any]] = set()
"""Tasks of agents that did not stop; held so that they are not garbage-collected."""

_MESSAGES = {
    "agent_error": "The agent failed.",
    "agent_output": "The agent sent an invalid event.",
    "run_unwritable": "The run could not be recorded.",
}


async def execute(
    agent: Agent,
    context: RunContext,
    sink: Sink,
    services: Services,
    *,
    cancel_grace: float = 5.0,
    stop_error: Callable[[], RunFailed | None] = lambda: None,
) -> Ending:
    """Run an agent to its end. Put all events after RUN_STARTED into ``sink``; only the last is a terminal event.

    Cancelling this coroutine cancels the agent and ends the run as cancelled. The coroutine then returns as usual,
    within ``cancel_grace`` seconds, or at once if it is cancelled again. If ``stop_error`` then returns an error, the
    run ends with that error instead. Never raises an exception of the agent.
    """
    output = OutputMapper(context, sink)
    questions = Questions(context, output, services)
    run = Run(context, output, services, questions, agent)
    driving = partial(drive, agent, run, output, questions, cancel_grace)
    ended: asyncio.Future[None] = asyncio.get_running_loop().create_future()
    task = asyncio.create_task(_outcome_of(driving, output, ended), name=f"aguila run {context.run_id}")
    cancelled = await _wait(task, ended, output, cancel_grace)
    stopped = stop_error() if cancelled else None
    error = _error_of(task) if task.done() else None
    output.is_over = True  # branches that are still active can send no more
    try:
        has_asked = interrupts_in(error) or (error is None and questions.unanswered)
        if stopped is None and context.is_stored and (has_asked or (cancelled and questions.has_unused_answers)):
            await _record_branches(output, services)
        ending = _End(context, sink, output, run, questions).write(error, cancelled, stopped)
        if ending.outcome != "error":
            _check_state(output.writer.state, context.max_state)
        return ending if run.title == context.title else dataclasses.replace(ending, title=run.title)
    finally:
        output.branches.is_over = True
        if not task.done():
            what = "the agent did not stop within the grace period; the run ends without it"
            log_event(_log, logging.WARNING, what, thread=context.thread_id, run=context.run_id)
            _left_behind.add(task)
            task.add_done_callback(_left_behind.discard)
            task.cancel()


async def _outcome_of(
    driving: Callable[[], Coroutine[Any, Any, None]], output: OutputMapper, ended: asyncio.Future[None]
) -> BaseException | None:
    """Drive the agent and return its exception. A task that raised SystemExit would end the event loop."""
    output.branches.begin()
    try:
        await driving()
    except BaseException as error:  # noqa: BLE001
        return error
    finally:
        output.end_sampling()
        _set_done(ended)  # a callback of the task would come a turn of the event loop later
    return None


def _check_state(state: Any, most: int | None) -> None:
    """Warn about a state that is too large for the client to send back. A large one is measured in a thread."""
    if most is None or state in (None, {}):
        return

    def check() -> None:
        if len(encode(state)) > most:
            log_notice(
                Notice(rule="limits", message=f"the state is larger than the {most} bytes that a client may send")
            )

    if is_large(state):
        task = asyncio.create_task(offload(check))  # the end of the run does not wait for it
        _checks.add(task)
        task.add_done_callback(_checks.discard)
    else:
        check()


async def _record_branches(output: OutputMapper, services: Services) -> None:
    """Record the positions of the agent's branches for a replay. An error fails the run.

    A failed run records nothing: its events are retracted before another run replaces it.
    """
    record = output.branches.record if output.failure is None else None
    if record is None:
        return
    recording = asyncio.ensure_future(services.record(*record))
    waiting = asyncio.current_task()
    assert waiting is not None  # noqa: S101
    try:
        await _wait_until_ended(recording, recording.get_loop().create_future())
    except asyncio.CancelledError:
        waiting.uncancel()  # the agent has ended, so its outcome stands
        await asyncio.wait((recording,), timeout=_PATIENCE)
    if not recording.done():
        recording.cancel()
        output.failure = StoreError("the branches of the agent were not recorded within the time limit")
    elif recording.exception() is not None:
        output.failure = recording.exception()


def _error_of(task: asyncio.Task[BaseException | None]) -> BaseException | None:
    return asyncio.CancelledError() if task.cancelled() else task.result()


async def _wait(
    task: asyncio.Task[BaseException | None], ended: asyncio.Future[None], output: OutputMapper, grace: float
) -> bool:
    """Wait for the agent. Return whether the run was cancelled before the agent ended."""
    waiting = asyncio.current_task()
    assert waiting is not None  # noqa: S101
    try:
        await _wait_until_ended(task, ended)
    except asyncio.CancelledError:
        waiting.uncancel()  # handled here, so that no timeout of the caller takes it for its own
        if task.done():
            return isinstance(_error_of(task), asyncio.CancelledError)  # the loop is cancelling all tasks
        output.is_cancelled = True
        task.cancel()
        try:
            await asyncio.wait((task,), timeout=grace)
        except asyncio.CancelledError:
            waiting.uncancel()  # cancelled twice: do not wait for the grace period
        return True
    return False


async def _wait_until_ended(task: asyncio.Future[Any], ended: asyncio.Future[None]) -> None:
    """Wait until a task is done, like ``asyncio.wait`` but with a third of the memory: every run waits here."""

    def wake(_: object) -> None:  # for a task that was cancelled before it began
        _set_done(ended)

    task.add_done_callback(wake)
    try:
        await ended
    finally:
        task.remove_done_callback(wake)


def _set_done(future: asyncio.Future[None]) -> None:
    if not future.done():
        future.set_result(None)


class _End:
    """Writes the end of a run."""

    def __init__(self, context: RunContext, sink: Sink, output: OutputMapper, run: Run, questions: Questions) -> None:
        self._questions = questions
        self._context = context
        self._sink = sink
        self._output = output
        self._run = run

    def write(self, error: BaseException | None, cancelled: bool, stopped: RunFailed | None) -> Ending:
        """Write the terminal event, or RUN_ERROR if it cannot be written. ``stopped`` is why the run was cancelled."""
        output = self._output
        if output.failure is not None:
            return self._fail(output.failure)
        if output.branches.refusal is not None:
            return self._fail(output.branches.refusal)
        try:
            if cancelled and output.ending is None:
                if error is not None and not isinstance(error, asyncio.CancelledError):
                    self._log("the agent failed while it was being cancelled", error)
                return self._cancel() if stopped is None else self._fail(stopped)
            asked = interrupts_in(error)
            if asked or (error is None and self._questions.unanswered):
                if error is None:
                    self._warn(
                        "the agent caught the exception of its question and continued; the run ends with the question"
                    )
                for other in others_in(error):
                    self._log("a branch of the agent failed while another asked; the run ends with the question", other)
                self._check_own(asked)
                return self._interrupt([*self._questions.unanswered.values(), *asked, *output.interrupts])
            if _is_stopped(error) and output.ending is None:
                return self._cancel()
            if error is not None and not cancelled:
                if not isinstance(output.ending, RunErrorEvent):
                    return self._fail(error)
                self._log("the agent raised after its own RUN_ERROR", _cause_of(error))
            if output.replaying is not None and not output.replaying.has_progressed:
                self._warn("the agent ended without reaching the question that was answered; its output was suppressed")
            if output.ending is not None:
                return self._end_with_own_event()
            return self._interrupt(output.interrupts) if output.interrupts else self._finish()
        except Exception as failure:  # noqa: BLE001 - the run must end in any case
            return self._fail(failure)

    def _finish(self) -> Ending:
        result = copy_json(self._run.result)  # before open items are closed: it may raise
        session = copy_json(self._run.session)
        self._output.send_last_state()
        events = self._output.writer.finish(result, usage=self._usage(), metadata=self._calls())
        return self._put(events, Ending(outcome="success", session=session))

    def _cancel(self) -> Ending:
        """End the run as cancelled. A session or state that is not JSON is only logged."""
        session = self._context.session
        try:
            session = copy_json(self._run.session)
        except Exception as failure:  # noqa: BLE001
            self._log("the session is not JSON and was not kept", failure)
        self._send_last_state_if_possible()
        events = self._output.writer.cancel(usage=self._usage(), metadata=self._calls())
        return self._put(events, Ending(outcome="cancelled", session=session))

    def _send_last_state_if_possible(self, known: BaseException | None = None, reference: str | None = None) -> None:
        replaying = self._output.replaying
        if self._output.failure is not None or (replaying is not None and not replaying.has_progressed):
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
        replaying = self._output.replaying
        if replaying is None or (replaying.has_progressed and self._output.branches.is_caught_up):
            self._output.send_last_state()
        events = self._output.writer.interrupt(interrupts, usage=self._usage(), metadata=self._calls())
        return self._put(events, Ending(outcome="interrupt", interrupts=interrupts, asked=asked, session=session))

    def _end_with_own_event(self) -> Ending:
        event = self._output.ending
        assert event is not None  # noqa: S101
        event = replace(
            event, usage=self._usage(event.usage), metadata=self._calls() if event.metadata is None else event.metadata
        )
        if isinstance(event, RunFinishedEvent) and event.outcome is None and self._output.interrupts:
            event = replace(event, outcome=RunFinishedInterruptOutcome(interrupts=self._output.interrupts))
        decode(encode(event), Event, strict=True)
        session = copy_json(self._run.session)
        self._output.send_last_state()
        events = self._output.writer.emit(event)
        if isinstance(event, RunErrorEvent):
            return self._put(events, Ending(outcome="error", session=self._context.session))
        return self._put(events, _ending_of(event, session))

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
            log_event(
                _log,
                logging.WARNING,
                f"the run failed: {message}",
                thread=self._context.thread_id,
                run=self._context.run_id,
                code=code,
            )
        else:
            self._log("the run failed", cause, code=code, reference=reference)
        event = RunErrorEvent(message=message, code=code, usage=self._usage(), metadata=self._calls())
        ending = Ending(outcome="error", session=self._context.session, reference=reference, error=cause)
        if self._output.writer.is_finished:
            # The sink refused the terminal event of the writer, so this one is the first that is sent.
            return self._put([event], ending)
        self._send_last_state_if_possible(cause, reference)
        return self._put(self._output.writer.emit(event), ending)

    def _code(self, error: BaseException, cause: BaseException) -> str:
        if cause is self._output.failure and not isinstance(cause, (EncodeError, DecodeError, IllegalStep)):
            return "run_unwritable"
        return (
            "agent_output" if isinstance(error, (BadOutput, EncodeError, IllegalStep, DecodeError)) else "agent_error"
        )

    def _put(self, events: Events, ending: Ending) -> Ending:
        """Put the terminal event."""
        if ending.outcome != "error":
            self._check_stored(ending)
        try:
            self._sink.put(events)
        except Exception as refusal:
            if ending.outcome != "error":
                self._output.failure = refusal
                raise
            if refusal is not self._output.failure:  # the first failure was logged
                self._log("the terminal event of the run was refused", refusal, reference=ending.reference)
            return Ending(
                outcome="error",
                session=ending.session,
                reference=ending.reference,
                error=ending.error or refusal,
                is_written=False,
            )
        return ending

    def _check_stored(self, ending: Ending) -> None:
        """Raise ``RunNotStored`` for an end that leaves something to be stored."""
        if self._context.is_stored or ending.outcome == "cancelled":
            return
        if ending.outcome == "interrupt":
            raise RunNotStored("ask a question")
        if (ending.session or {}) != (self._context.session or {}):
            raise RunNotStored("change the session")

    def _usage(self, given: list[TokenUsage] | None = None) -> list[TokenUsage] | None:
        # Usage in the agent's own terminal event includes that of its chat contents.
        usage = aggregate_token_usage([*(self._output.usage if given is None else given), *self._run.usage])
        return usage if usage else None

    def _calls(self) -> dict[str, Any] | None:
        """Return the usage of each model call as metadata, if that says more than the sums by model."""
        calls = self._run.usage
        if len(calls) == len(aggregate_token_usage(calls)):
            return None
        return {"aguila": {"modelCalls": decode(encode(calls), list[dict[str, Any]])}}

    def _log(self, what: str, error: BaseException, **more: Any) -> None:
        if isinstance(error, StaleLease):  # the sink logs it
            return
        is_store = isinstance(error, StoreError)  # the traceback of a store error would not help
        log_event(
            _log,
            logging.ERROR,
            f"{what}: {error}" if is_store else what,
            error=None if is_store else error,
            thread=self._context.thread_id,
            run=self._context.run_id,
            **more,
        )

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


def _ending_of(event: RunFinishedEvent, session: Any) -> Ending:
    if isinstance(event.outcome, RunFinishedInterruptOutcome):
        return Ending(outcome="interrupt", interrupts=event.outcome.interrupts, session=session)
    if isinstance(event.outcome, RunFinishedCancelledOutcome):
        return Ending(outcome="cancelled", session=session)
    return Ending(outcome="success", session=session)
