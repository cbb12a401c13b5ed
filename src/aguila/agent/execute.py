"""Run an agent in one task, and end its run with exactly one terminal event.

``execute`` waits for the agent's task; cancelling ``execute`` cancels it. ``ending`` says how a run ends.
"""

from __future__ import annotations

import asyncio
import dataclasses
import logging
from collections.abc import Callable
from typing import Any

from msgspec import UNSET

from aguila.agent.agents import Agent, call_agent
from aguila.agent.context import Ending, RunContext, Services, Sink
from aguila.agent.ending import EndOfRun
from aguila.agent.interrupts import interrupts_in
from aguila.agent.output import Output
from aguila.agent.questions import Questions
from aguila.agent.run import Run
from aguila.codec.logs import log_event
from aguila.errors import RunFailed, StoreError

_log = logging.getLogger("aguila")

_PATIENCE = 5.0
"""Seconds to record the branches of an agent after the run was cancelled."""

_left_behind: set[asyncio.Task[Any]] = set()
"""Tasks of agents that did not stop; held so that they are not garbage-collected."""


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
    output = Output(context, sink)
    questions = Questions(context, output, services, dict(context.recorded))
    run = Run(context, output, services, questions, agent)
    ended: asyncio.Future[None] = asyncio.get_running_loop().create_future()
    calling = call_agent(agent, run, output, questions, ended, cancel_grace)
    task = asyncio.create_task(calling, name=f"aguila run {context.run_id}")
    task.add_done_callback(lambda _: ended.done() or ended.set_result(None))  # if it is cancelled before it begins
    is_cancelled = False
    try:
        await ended  # with a third of the memory of asyncio.wait: every idle run waits here
    except asyncio.CancelledError:
        is_cancelled = await _cancel_agent(task, output, cancel_grace)
    stopped = stop_error() if is_cancelled else None
    output.is_over = True  # branches that are still active can send no more
    if output.sampler is not None:
        output.sampler.stop()
    error: BaseException | None = None
    if task.done():
        error = asyncio.CancelledError() if task.cancelled() else task.result()
    try:
        has_asked = questions.unanswered if error is None else interrupts_in(error)
        if stopped is None and context.is_stored and (has_asked or (is_cancelled and questions.has_unused_answers)):
            await record_branches(output, services)
        ending = EndOfRun(context, output, run, questions).write(error, is_cancelled, stopped)
        is_named = output.title is UNSET or output.title == context.title
        return ending if is_named else dataclasses.replace(ending, title=output.title)
    finally:
        output.branches.is_over = True
        if not task.done():
            abandon(task, context)


async def _cancel_agent(task: asyncio.Task[BaseException | None], output: Output, grace: float) -> bool:
    """Cancel the agent, because the task that waits for it was cancelled. Return whether it had not ended before."""
    waiting = asyncio.current_task()
    assert waiting is not None  # noqa: S101
    waiting.uncancel()  # handled here, so that no timeout of the caller takes it for its own
    if task.done():  # the loop is cancelling all tasks
        return task.cancelled() or isinstance(task.result(), asyncio.CancelledError)
    output.is_cancelled = True
    task.cancel()
    try:
        await asyncio.wait((task,), timeout=grace)
    except asyncio.CancelledError:
        waiting.uncancel()  # cancelled twice: do not wait for the grace period
    return True


async def record_branches(output: Output, services: Services) -> None:
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
        await asyncio.wait((recording,))
    except asyncio.CancelledError:
        waiting.uncancel()  # the agent has ended, so its outcome stands
        await asyncio.wait((recording,), timeout=_PATIENCE)
    if not recording.done():
        recording.cancel()
        output.failure = StoreError("the branches of the agent were not recorded within the time limit")
    elif recording.exception() is not None:
        output.failure = recording.exception()


def abandon(task: asyncio.Task[Any], context: RunContext) -> None:
    """Let the task of an agent that does not stop run on without the run."""
    what = "the agent did not stop within the grace period; the run ends without it"
    log_event(_log, logging.WARNING, what, thread=context.thread_id, run=context.run_id)
    _left_behind.add(task)
    task.add_done_callback(_left_behind.discard)
    task.cancel()
