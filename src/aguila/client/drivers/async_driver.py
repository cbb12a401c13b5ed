"""Perform actions with asyncio."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Awaitable
from contextvars import copy_context
from functools import partial
from inspect import isawaitable
from types import GeneratorType
from typing import Any, TypeVar

from aguila.chat.tools import FunctionTool
from aguila.client.drivers.actions import (
    Authorize,
    CallTools,
    Close,
    Compute,
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
    """Performs the actions of one program. Holds the response that is open."""

    def __init__(self, core: ClientCore[AsyncTransport]) -> None:
        self.core = core
        core.drivers.add(self)
        self._response: AsyncResponse | None = None
        self._waiting: asyncio.Timeout | None = None

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
            for action in execution.actions():
                if action.__class__ is GeneratorType:
                    for event in action:
                        yield event
                    continue
                try:
                    execution.result = await self.perform(action)
                except Exception as error:  # noqa: BLE001 - thrown into the program
                    execution.failure = error
        finally:
            execution.close()
            await self.close()

    async def perform(self, action: Any) -> Any:
        """Perform one action and return its result."""
        kind = action.__class__
        if kind is Close:
            return await self.close()
        if self.core.closed.is_set():
            raise self.core.closing_error()
        if kind is Open:
            await self.close()
        timeout: float | None = action.timeout if kind is Read or kind is Open else None
        waiting = self._waiting = asyncio.timeout(timeout)
        try:
            async with waiting:
                if kind is Read:
                    assert self._response is not None  # noqa: S101
                    return await self._response.read()
                return await self._perform_other(kind, action)
        except TimeoutError:
            if not waiting.expired():  # an error of the application or of the transport
                raise
            if self.core.closed.is_set():
                raise TransportFailed("the client was closed") from None
            raise TransportFailed(f"no data for {timeout:g} seconds", is_timeout=True) from None
        finally:
            self._waiting = None

    async def _perform_other(self, kind: Any, action: Any) -> Any:
        if kind is Open:
            response = self._response = await self.core.transport.send(action.request)
            return Head(response.status, response.headers)
        if kind is Authorize:
            auth = self.core.auth
            try:
                given = None if auth is None else auth()
                return auth_headers(await given if isawaitable(given) else given)
            except Exception as error:
                raise AuthFailed(error) from error
        if kind is Sleep:
            return await asyncio.sleep(action.seconds)
        if kind is Compute:
            return await offload(action.work)
        assert kind is CallTools  # noqa: S101
        for planned in action.calls:
            if planned.needs_consent:
                await _confirm(planned)
        return await asyncio.gather(*(_call(planned) for planned in action.calls))

    def interrupt(self) -> None:
        """End the current wait, because the client is closed."""
        if self._waiting is not None and not self._waiting.expired():
            self._waiting.reschedule(0)

    async def close(self) -> None:
        """Close the open response."""
        response, self._response = self._response, None
        if response is not None:
            await response.close()


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
