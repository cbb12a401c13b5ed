"""Perform actions without asyncio: each blocks the calling thread."""

from __future__ import annotations

import asyncio
from collections.abc import Generator
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from contextvars import copy_context
from inspect import isawaitable
from types import GeneratorType
from typing import Any, TypeVar

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
from aguila.client.transports.base import Response, Transport
from aguila.errors import AuthFailed
from aguila.protocol import Event, ToolMessage

T = TypeVar("T")

_MAX_PARALLEL_CALLS = 32


class SyncDriver:
    """Performs the actions of one program. Holds the response that is open."""

    def __init__(self, core: ClientCore[Transport]) -> None:
        self.core = core
        self._response: Response | None = None

    def finish(self, program: Program[T]) -> T:
        """Drive a program without events to its end and return its result."""
        execution = Execution(self.core, program)
        for _ in self.follow(execution):
            pass
        return execution.outcome

    def follow(self, execution: Execution[Any], abandoned: Any = None) -> Generator[Event]:
        """Drive a program to its end and yield its events. First close an ``abandoned`` run of the same thread."""
        if abandoned is not None and not abandoned.is_closed:
            abandoned.close()
        try:
            for action in execution.actions():
                if action.__class__ is GeneratorType:
                    yield from action
                    continue
                try:
                    execution.result = self.perform(action)
                except Exception as error:  # noqa: BLE001 - thrown into the program
                    execution.failure = error
        finally:
            execution.close()
            self.close()

    def perform(self, action: Any) -> Any:
        """Perform one action and return its result."""
        kind = action.__class__
        if kind is Close:
            return self.close()
        if self.core.closed.is_set():
            raise self.core.closing_error()
        if kind is Read:
            assert self._response is not None  # noqa: S101
            return self._response.read(action.timeout)
        if kind is Open:
            self.close()
            response = self.core.transport.send(action.request, action.timeout)
            self._response = response
            return Head(response.status, response.headers)
        if kind is Authorize:
            auth = self.core.auth
            try:
                return auth_headers(None if auth is None else _check_sync(auth()))
            except Exception as error:
                raise AuthFailed(error) from error
        if kind is Sleep:
            return self.core.closed.wait(action.seconds)
        if kind is Compute:
            return action.work()
        assert kind is CallTools  # noqa: S101
        return _call_all(action.calls)

    def close(self) -> None:
        """Close the open response."""
        response, self._response = self._response, None
        if response is not None:
            response.close()


def _check_sync(value: Any) -> Any:
    if isawaitable(value):
        with suppress(AttributeError):
            value.close()  # type: ignore[union-attr]
        raise TypeError("the auth function is async; only AsyncClient can await it")
    return value


def _call_all(calls: list[PlannedCall]) -> list[ToolMessage]:
    for planned in calls:
        if planned.needs_consent:
            _confirm(planned)
    if len(calls) == 1:
        return [_call(calls[0])]
    pool = ThreadPoolExecutor(min(len(calls), _MAX_PARALLEL_CALLS), "aguila-tool")
    try:
        return [done.result() for done in [pool.submit(copy_context().run, _call, planned) for planned in calls]]
    finally:
        # After Ctrl-C, calls that have started continue, and the next run waits for them. The others do not start.
        pool.shutdown(wait=False, cancel_futures=True)


def _confirm(planned: PlannedCall) -> None:
    with planned.asking():
        allowed = planned.ask()
        planned.take_consent(_await(allowed) if isawaitable(allowed) else allowed)


def _call(planned: PlannedCall) -> ToolMessage:
    tool = planned.tool
    if tool is None:
        return planned.answer_refusal()
    with planned.settling():
        if planned.begin():
            value = tool.function(**planned.arguments)
            planned.settle(_await(value) if isawaitable(value) else value)
    return planned.outcome.result()  # waits for a call that started in an earlier run


def _await(value: Any) -> Any:
    """Return the result of an awaitable, in an event loop of its own; in another thread if this one has a loop."""

    async def wait() -> Any:
        return await value

    try:
        asyncio.get_running_loop()
    except RuntimeError:
        return asyncio.run(wait())
    with ThreadPoolExecutor(1, "aguila-tool") as pool:
        return pool.submit(copy_context().run, asyncio.run, wait()).result()
