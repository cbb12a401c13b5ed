"""Perform effects with asyncio."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Awaitable, Coroutine
from contextvars import copy_context
from functools import partial
from inspect import isawaitable
from types import GeneratorType
from typing import Any, TypeVar

from aguila.chat.tools import FunctionTool
from aguila.client.drivers.effects import (
    Authorize,
    CallTools,
    Close,
    Compute,
    GiveWay,
    Head,
    Open,
    Program,
    Read,
    Sleep,
)
from aguila.client.drivers.execution import Execution
from aguila.client.settings import ClientCore, auth_headers
from aguila.client.tools import PlannedCall
from aguila.client.transports.base import AsyncResponse, AsyncTransport
from aguila.errors import AuthFailed, TransportFailed
from aguila.offload import offload
from aguila.protocol import Event, ToolMessage

T = TypeVar("T")


class AsyncDriver:
    """Performs the effects of one program. Holds the response that is open."""

    def __init__(self, core: ClientCore[AsyncTransport]) -> None:
        self.core = core
        core.drivers.add(self)
        self._response: AsyncResponse | None = None
        self._timer = WaitTimer()

    async def finish(self, program: Program[T]) -> T:
        """Drive a program without events to its end and return its result."""
        execution = Execution(self.core, program)
        async for _ in self.follow(execution):
            pass
        return execution.outcome

    async def follow(self, execution: Execution[Any], abandoned: Any = None) -> AsyncGenerator[Event, None]:
        """Drive a program to its end and yield its events. First close an ``abandoned`` run of the same thread."""
        if abandoned is not None and not abandoned.is_closed:
            await abandoned.close()
        try:
            for effect in execution.effects():
                if effect.__class__ is GeneratorType:
                    for event in effect:
                        yield event
                    continue
                try:
                    execution.result = await self.perform(effect)
                except Exception as error:  # noqa: BLE001 - raised by ``effects`` unless the program handles it
                    execution.failure = error
        finally:
            execution.close()
            await self.close()

    async def perform(self, effect: Any) -> Any:
        """Perform one effect and return its result."""
        kind = effect.__class__
        if kind is Close:
            return await self.close()
        self.core.check_open()
        if kind is Read:
            assert self._response is not None  # noqa: S101
            return await self._timer.wait(effect.timeout, self._response.read())
        if kind is Open:
            await self.close()
            response = await self._timer.wait(effect.timeout, self.core.transport.send(effect.request))
            self._response = response
            return Head(response.status, response.headers)
        return await self._timer.wait(None, self._perform_other(kind, effect))

    async def _perform_other(self, kind: Any, effect: Any) -> Any:
        if kind is Authorize:
            auth = self.core.auth
            try:
                given = None if auth is None else auth()
                return auth_headers(await given if isawaitable(given) else given)
            except Exception as error:
                raise AuthFailed(error) from error
        if kind is Sleep:
            return await asyncio.sleep(effect.seconds)
        if kind is GiveWay:
            return await asyncio.sleep(0)
        if kind is Compute:
            return await offload(effect.work)
        assert kind is CallTools  # noqa: S101
        for planned in effect.calls:
            if planned.needs_consent:
                await _confirm(planned)
        return await asyncio.gather(*(_call(planned) for planned in effect.calls))

    def interrupt(self) -> None:
        """End the current wait, because the client is closed."""
        self._timer.end("the client was closed")

    async def close(self) -> None:
        """Close the open response."""
        self._timer.stop()
        response, self._response = self._response, None
        if response is not None:
            await response.close()


class WaitTimer:
    """``asyncio.timeout`` for many short waits in a row.

    It keeps one timer and moves it only when that fires. A timer for each read would cost a tenth of reading an event.
    """

    def __init__(self) -> None:
        self._timer: asyncio.TimerHandle | None = None
        self._task: asyncio.Task[Any] | None = None  # the task that waits
        self._deadline = 0.0
        self._reason: str | None = None  # why the wait was ended; empty for a timeout

    async def wait(self, seconds: float | None, waiting: Coroutine[Any, Any, T]) -> T:
        """Await a coroutine. Raise ``TransportFailed`` after the timeout, or when ``end`` is called."""
        task = asyncio.current_task()
        assert task is not None  # noqa: S101
        if seconds is None:
            self._deadline = _NEVER
        else:
            loop = asyncio.get_running_loop()
            self._deadline = deadline = loop.time() + seconds
            timer = self._timer
            if timer is None or timer.when() > deadline:
                if timer is not None:
                    timer.cancel()
                self._timer = loop.call_at(deadline, self._check, loop)
        before = task.cancelling()
        self._task = task
        try:
            return await waiting
        except asyncio.CancelledError:
            if self._reason is None:
                raise
            reason, self._reason = self._reason, None
            if task.uncancel() > before:  # another task has cancelled it as well
                raise
            if reason:
                raise TransportFailed(reason) from None
            raise TransportFailed(f"no data for {seconds:g} seconds", is_timeout=True) from None
        finally:
            self._task = None

    def stop(self) -> None:
        """Cancel the timer."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def end(self, reason: str) -> None:
        """End the current wait, if there is one. An empty reason is a timeout."""
        if self._task is not None and self._reason is None:
            self._reason = reason
            self._task.cancel()

    def _check(self, loop: asyncio.AbstractEventLoop) -> None:
        self._timer = None
        if self._task is None or self._deadline == _NEVER:
            return
        if loop.time() < self._deadline:
            self._timer = loop.call_at(self._deadline, self._check, loop)
        else:
            self.end("")


_NEVER = float("inf")


async def _confirm(planned: PlannedCall) -> None:
    with planned.asking():
        allowed = await asyncio.to_thread(planned.ask)  # it may block, as ``input`` does
        planned.take_consent(await allowed if isawaitable(allowed) else allowed)


async def _call(planned: PlannedCall) -> ToolMessage:
    tool = planned.tool
    if tool is None:
        return planned.answer_refusal()
    if planned.has_begun:  # it was called in an earlier run
        return await asyncio.wrap_future(planned.outcome)
    if tool.is_async:
        with planned.settling():
            if planned.begin():
                planned.settle(await tool.function(**planned.arguments))
        return planned.outcome.result()
    loop = asyncio.get_running_loop()
    work = partial(_call_in_thread, planned, tool, loop)
    working = loop.run_in_executor(None, copy_context().run, work)
    try:
        # Cancelling gives up a call that has not started. A started call continues, and the next run awaits it.
        return await asyncio.wrap_future(planned.outcome)
    finally:
        working.cancel()


def _call_in_thread(planned: PlannedCall, tool: FunctionTool[..., Any], loop: asyncio.AbstractEventLoop) -> None:
    """Call a function in a thread. An awaitable that it returns is awaited on the event loop."""
    with planned.settling():
        if not planned.begin():
            return
        value = tool.function(**planned.arguments)
        if isawaitable(value):
            asyncio.run_coroutine_threadsafe(_finish(planned, value), loop)
        else:
            planned.settle(value)


async def _finish(planned: PlannedCall, value: Awaitable[Any]) -> None:
    with planned.settling():
        planned.settle(await value)
