"""Call an agent, in each form that it can have.

==========================  ===============================================================================
async generator function    iterated and closed in the agent's task
async function              awaited in the agent's task; it returns text or the result
plain generator function    iterated and closed in a thread, at most 64 values ahead
plain function              called in a thread
callable object, partial    as the function behind it; a wrapper made with functools.wraps as what it wraps
==========================  ===============================================================================

A plain function receives a ``BlockingRun``, so it cannot delegate to an async agent. Wrap an async agent with
``functools.partial`` or with an async function.
"""

from __future__ import annotations

import asyncio
import contextvars
import functools
import inspect
import logging
import threading
from collections.abc import Callable
from contextlib import suppress
from typing import Any, cast

from aguila.agent.blocking.run import BlockingRun
from aguila.agent.blocking.thread_portal import Called, ThreadPortal, Yielded
from aguila.agent.output import Output
from aguila.agent.questions import Questions
from aguila.agent.run import Run
from aguila.codec.logs import log_fields
from aguila.stream.json_values import copy_json
from aguila.telemetry import use_context

_log = logging.getLogger("aguila")

Agent = Callable[[Any], Any]
"""An agent: any callable that takes a run."""


_FRAMEWORKS = {
    "agents": "openai_agents",
    "agno": "agno",
    "crewai": "crewai",
    "google": "adk",
    "langgraph": "langgraph",
    "llama_index": "llama_index",
    "pydantic_ai": "pydantic_ai",
    "workflows": "llama_index",
}
"""Modules of ``aguila.frameworks``, by the package of the objects that they make agents of."""


class BadOutput(Exception):
    """A yielded or returned value cannot be sent. The reason is in ``__cause__``."""


def check_agent(agent: Agent) -> None:
    """Raise ``TypeError`` for an agent that cannot be called with one argument, the run."""
    name = getattr(agent, "__qualname__", None) or type(agent).__qualname__
    if not callable(agent):
        framework = _FRAMEWORKS.get(type(agent).__module__.partition(".")[0])
        hint = f"; write {framework}.agent(...), with: from aguila.frameworks import {framework}" if framework else ""
        raise TypeError(f"an agent must be callable as agent(run); {name} is not callable{hint}")
    try:
        signature = inspect.signature(agent).replace(return_annotation=inspect.Signature.empty)
    except ValueError:  # some functions written in C have no signature
        return
    if [*signature.parameters][:3] == ["scope", "receive", "send"]:
        raise TypeError(
            f"{name} is an ASGI application, not an agent: serve it with uvicorn, or name an App or its agent instead"
        )
    try:
        signature.bind(None)
    except TypeError as error:
        message = f"an agent must be callable as agent(run); {name}{signature} is not: {error}"
        raise TypeError(message) from None


def _wraps_async(agent: Agent) -> bool:
    """Return whether there is an async function in a callable object, a partial or a wrapper."""
    seen: Any = agent
    while True:
        cls: Any = seen.__class__
        for each in (seen, getattr(cls, "__call__", None)):  # noqa: B004 - it is looked at, not called
            if inspect.iscoroutinefunction(each) or inspect.isasyncgenfunction(each):
                return True
        if isinstance(seen, functools.partial):
            seen = cast("functools.partial[Any]", seen).func
        elif hasattr(seen, "__wrapped__"):
            seen = seen.__wrapped__
        else:
            return False


async def call_agent(
    agent: Agent, run: Run, output: Output, questions: Questions, ended: asyncio.Future[None], grace: float
) -> BaseException | None:
    """Run an agent to its end in the current task, send what it yields and returns, and set ``ended``.

    Returns the exception of the agent, or ``BadOutput``. A task that raised SystemExit would end the event loop.
    """
    output.branches.begin()
    try:
        if inspect.isasyncgenfunction(agent) or inspect.iscoroutinefunction(agent) or _wraps_async(agent):
            await _call_on_loop(agent, run, output, grace)
        else:
            await _call_in_thread(agent, BlockingRun(run, ThreadPortal(questions)), output, grace)
    except BaseException as error:  # noqa: BLE001
        return error
    finally:
        if not ended.done():
            ended.set_result(None)  # a callback of the task would come a turn of the event loop later
    return None


async def _call_on_loop(agent: Agent, run: Run, output: Output, grace: float) -> None:
    # Nothing can have changed before.
    output.state.on_read = functools.partial(output.begin_sampling, asyncio.get_running_loop())
    produced: Any = agent(run)
    if inspect.isawaitable(produced):
        produced = await produced
    if not (hasattr(produced, "__anext__") or hasattr(produced, "__aiter__")):
        await _take_return(produced, run, output)
        return
    values = produced.__aiter__()
    try:
        async for value in values:
            try:  # not _send: every coroutine above an agent costs time whenever it is resumed
                await output.send(value)
            except Exception as error:
                raise BadOutput from error
            value = None  # release it: it may be large, and the next one may take long
    finally:
        if hasattr(values, "aclose"):
            try:
                async with asyncio.timeout(grace):
                    await values.aclose()
            except Exception:  # noqa: BLE001 - the run has its outcome already
                _log.warning("the agent failed while its generator was closed", exc_info=True, extra=log_fields())


async def _send(value: Any, output: Output) -> None:
    try:
        await output.send(value)
    except Exception as error:
        raise BadOutput from error


async def _take_return(value: Any, run: Run | BlockingRun, output: Output) -> None:
    """Send a returned value that could have been yielded. Any other is the result of the run."""
    if value is None:
        return
    if output.yielded.is_sent(value):
        await _send(value, output)
        return
    try:
        run.result = copy_json(value)
    except Exception as error:
        raise BadOutput from error


async def _call_in_thread(agent: Agent, run: BlockingRun, output: Output, grace: float) -> None:
    portal = run.portal
    work = functools.partial(_work, agent, run, portal, output)
    # A thread per run: agents block while they wait for models, and would exhaust a shared pool.
    threading.Thread(
        target=contextvars.copy_context().run, args=(work,), name=f"aguila run {run.run_id}", daemon=True
    ).start()
    try:
        while True:
            item = await portal.get()
            if isinstance(item, Yielded):
                await _send(item.value, output)
            elif isinstance(item, Called):
                with output.branches.acting_for(item.thread, item.error):
                    await _do(item, output)
            else:
                break
        portal.close()  # for other threads that the agent left behind
    except BaseException:
        portal.close()
        with suppress(TimeoutError):
            async with asyncio.timeout(grace):
                await portal.ended.wait()
        raise
    if item.error is not None:
        raise item.error
    await _take_return(item.value, run, output)


async def _do(called: Called, output: Output) -> None:
    try:
        output.send_state_if_due()  # a thread that waits for its call cannot be changing the state
        with use_context(called.trace_context):
            result = await called.call()
    except asyncio.CancelledError as error:
        called.future.set_exception(error)
        task = asyncio.current_task()
        if task is not None and task.cancelling():
            raise
    except BaseException as error:  # noqa: BLE001 - it is raised in the thread
        called.future.set_exception(error)
    else:
        called.future.set_result(result)


def _work(agent: Agent, run: BlockingRun, portal: ThreadPortal, output: Output) -> None:
    portal.begin()
    value: Any = None
    failure: BaseException | None = None
    try:
        value = agent(run)
        if hasattr(value, "__anext__") or inspect.isawaitable(value):
            if inspect.iscoroutine(value):
                value.close()
            raise TypeError(
                "a plain function returned an awaitable or an async generator; make the agent an async function,"
                " or use functools.partial"
            )
        if hasattr(value, "__next__"):
            value = _pull(value, portal, output)
    except BaseException as error:  # noqa: BLE001 - it is raised in the agent's task
        failure = error
    portal.end(value, failure)


def _pull(values: Any, portal: ThreadPortal, output: Output) -> Any:
    """Iterate a generator in its thread; return its result."""
    try:
        while True:
            try:
                value = next(values)
            except StopIteration as stop:
                return stop.value
            if output.state.is_read:
                # The generator waits while the state is compared, so that it cannot change it meanwhile.
                portal.call(functools.partial(_send, value, output))
            else:
                portal.put(Yielded(value))
    finally:
        close = getattr(values, "close", None)
        if close is not None:
            close()
