"""Layer: agent. The forms that an agent can have, and how each is driven.

Above: ``executor`` runs one of these in the agent's task. Below: ``output`` takes what is yielded and returned.

==========================  ===============================================================================
async generator function    iterated in the task, closed there; strings and events are what it yields
async function              awaited in the task; what it returns is text or the result
plain generator function    iterated in a thread, at most 64 values ahead, closed there
plain function              called in a thread
callable object, partial    as the function behind it; a wrapper made with functools.wraps as what it wraps
==========================  ===============================================================================

A plain function is given a ``BlockingRun``, so it cannot hand on to an async one: wrap with ``functools.partial``, or
with an async function.
"""

from __future__ import annotations

import asyncio
import contextvars
import functools
import inspect
import logging
import threading
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine
from contextlib import suppress
from typing import Any, cast

from aguila.agent.blocking.run import BlockingRun
from aguila.agent.blocking.thread_portal import Called, ThreadPortal, Yielded
from aguila.agent.chat_values import CHAT, with_parts
from aguila.agent.output import OutputMapper
from aguila.agent.run import Run
from aguila.codec.logs import members
from aguila.offload import offload

_log = logging.getLogger("aguila")

Agent = Callable[[Any], Any]
"""An agent: anything that can be called with a run."""


class BadOutput(Exception):
    """What an agent yielded or returned cannot be sent; the cause says why."""


def check_agent(agent: Agent) -> None:
    """Raise ``TypeError`` for what cannot be called with a run and nothing else."""
    name = getattr(agent, "__qualname__", None) or type(agent).__qualname__
    if not callable(agent):
        raise TypeError(f"an agent is called with a run, as in agent(run); {name} cannot be called")
    try:
        signature = inspect.signature(agent).replace(return_annotation=inspect.Signature.empty)
    except ValueError:  # as of some that are written in C
        return
    try:
        signature.bind(None)
    except TypeError as error:
        message = f"an agent is called with a run, as in agent(run); {name}{signature} cannot be: {error}"
        raise TypeError(message) from None


def is_async(agent: Agent) -> bool:
    """Whether an agent is to be called on the event loop, rather than in a thread."""
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


def drive(agent: Agent, run: Run, output: OutputMapper, grace: float) -> Coroutine[Any, Any, None]:
    """Run an agent to its end, and send what it yields and returns.

    Raises what the agent raises, or ``BadOutput``.
    """
    return (_drive_async if is_async(agent) else _drive_thread)(agent, run, output, grace)


async def _drive_async(agent: Agent, run: Run, output: OutputMapper, grace: float) -> None:
    output.begin_sampling()
    # All in one coroutine: whenever the agent goes on, the event loop comes through each one above it.
    produced: Any = agent(run)
    if inspect.isawaitable(produced):
        produced = await produced
    if not (hasattr(produced, "__anext__") or hasattr(produced, "__aiter__")):
        _take_return(produced, run, output)
        return
    values: AsyncIterator[Any] = produced.__aiter__()
    accept, sink = output.accept, output.sink
    try:
        async for value in values:
            if value.__class__ is not str and isinstance(value, CHAT) and output.is_slow(value):
                value = await offload(with_parts, value)
            try:
                accept(value)
            except Exception as error:
                raise BadOutput from error
            value = None  # it may be large, and the agent may take its time over the next
            if sink.is_full or output.is_over:
                await output.room()
    finally:
        close = getattr(values, "aclose", None)
        if close is not None:
            await _close(close, grace)


async def _close(close: Callable[[], Awaitable[Any]], grace: float) -> None:
    """Let an agent clean up. It has had its end already: what goes wrong now is logged and changes nothing."""
    try:
        async with asyncio.timeout(grace):
            await close()
    except Exception:  # noqa: BLE001
        _log.warning("the agent failed while it was being closed", exc_info=True, extra=members())


def _take_return(value: Any, run: Run, output: OutputMapper) -> None:
    try:
        result = output.accept_return(value)
    except Exception as error:
        raise BadOutput from error
    if result is not None:
        run.result = result


async def _drive_thread(agent: Agent, run: Run, output: OutputMapper, grace: float) -> None:
    portal = ThreadPortal()
    work = functools.partial(_work, agent, BlockingRun(run, portal), portal, output)
    # A thread of its own: agents wait for models, and a shared pool would make them wait for each other.
    threading.Thread(
        target=contextvars.copy_context().run, args=(work,), name=f"aguila run {run.run_id}", daemon=True
    ).start()
    try:
        while True:
            item = await portal.get()
            if isinstance(item, Yielded):
                try:
                    output.accept(item.value)
                except Exception as error:
                    raise BadOutput from error
                await output.room()
            elif isinstance(item, Called):
                with output.branches.acting_for(item.thread, item.error):
                    await _do(item, output)
            else:
                break
        portal.close()  # to other threads that the agent may have left behind
    except BaseException:
        portal.close()
        with suppress(TimeoutError):
            async with asyncio.timeout(grace):
                await portal.ended.wait()
        raise
    if item.error is not None:
        raise item.error
    _take_return(item.value, run, output)


async def _do(called: Called, output: OutputMapper) -> None:
    try:
        output.send_state_if_due()  # a thread that waits for its call cannot be changing the state
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


def _work(agent: Agent, run: BlockingRun, portal: ThreadPortal, output: OutputMapper) -> None:
    """The whole life of an agent's thread."""
    portal.begin()
    value: Any = None
    failure: BaseException | None = None
    try:
        value = agent(run)
        if hasattr(value, "__anext__") or inspect.isawaitable(value):
            if inspect.iscoroutine(value):
                value.close()
            raise TypeError(
                "a plain function returned something async; make the agent an async function, or use functools.partial"
            )
        if hasattr(value, "__next__"):
            value = _pull(value, portal, output)
    except BaseException as error:  # noqa: BLE001 - it is raised in the agent's task
        failure = error
    portal.end(value, failure)


def _pull(values: Any, portal: ThreadPortal, output: OutputMapper) -> Any:
    """Iterate a generator in its thread; gives what it returns."""
    try:
        while True:
            try:
                value = next(values)
            except StopIteration as stop:
                return stop.value
            if value.__class__ is not str and isinstance(value, CHAT) and output.is_slow(value):
                value = with_parts(value)
            if output.state.is_read:
                # The agent can change the state at any moment, so it waits while the state is compared.
                portal.call(functools.partial(_accept, output, value))
            else:
                portal.put(Yielded(value))
    finally:
        close = getattr(values, "close", None)
        if close is not None:
            close()


async def _accept(output: OutputMapper, value: Any) -> None:
    try:
        output.accept(value)
    except Exception as error:
        raise BadOutput from error
    await output.room()
