"""Layer: client. ``AsyncClient``: the client for asyncio. Its twin is ``sync``, name by name.

Below: ``thread`` and ``_base`` (all the logic, as programs), ``transport`` (who carries bytes). Here programs are
driven: what they ask for is awaited, what they yield for the caller is given to it.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Awaitable, Coroutine, Generator, Iterable, Mapping
from contextlib import aclosing
from contextvars import copy_context
from functools import partial
from inspect import isawaitable
from types import GeneratorType
from typing import Any, Self, TypeVar
from weakref import ref

from aguila.chat.tools import AnyTool, FunctionTool
from aguila.client.base import ClientBase, auth_headers
from aguila.client.drivers.effects import Authorize, CallTools, Close, Compute, Head, Open, Program, Read, Sleep
from aguila.client.files import FileLike
from aguila.client.requests.request_builder import Content
from aguila.client.run import RunBase, RunResult
from aguila.client.thread import ThreadBase
from aguila.client.tools import PlannedCall
from aguila.client.transports.base import AsyncResponse, AsyncTransport
from aguila.errors import AuthFailed, TransportFailed
from aguila.protocol import AgentCapabilities, Context, Event, Message, State, ToolMessage
from aguila.protocol.parts import MediaPart
from aguila.stream import Conversation

T = TypeVar("T")


class AsyncClient(ClientBase[AsyncTransport]):
    """Calls an agent. A pool of connections, to be shared freely; see ``ClientBase`` for the parameters."""

    _is_async = True

    def _default_transport(self, options: Mapping[str, Any]) -> AsyncTransport:
        from aguila.client.transports.httpx2 import AsyncHTTPX2Transport

        return AsyncHTTPX2Transport(timeouts=self._settings.timeouts, **options)

    def thread(
        self,
        id: str | None = None,  # noqa: A002
        *,
        messages: Iterable[Message | Mapping[str, Any]] = (),
        state: State = None,
        tools: Iterable[AnyTool] = (),
    ) -> AsyncThread:
        """A conversation, new or with what it is known to hold; ``tools`` are offered in all its runs."""
        return AsyncThread(self, id, messages=messages, state=state, tools=tools)

    async def capabilities(self) -> AgentCapabilities | None:
        """What the agent declares; None if it declares nothing that can be read."""
        return await self._driver().finish(self._capabilities_program())

    async def upload(
        self,
        source: FileLike,
        *,
        mime_type: str | None = None,
        filename: str | None = None,
        thread_id: str | None = None,
    ) -> MediaPart:
        """Upload a file, from its path or its bytes, and give the part that refers to it.

        With ``thread_id`` the server deletes it with that thread. Raises ``HTTPRejected``, ``TransportFailed``,
        ``ProtocolError`` if the answer says nothing about the file, or OSError if the file cannot be read.
        """
        if not isinstance(source, bytes | bytearray | memoryview):
            from aguila.client.files import read_file

            source, filename = await asyncio.to_thread(read_file, source, filename)
        return await self._driver().finish(self._upload_program(source, mime_type, filename, thread_id))

    async def close(self) -> None:
        """Close every connection. A run that is on ends with ``TransportFailed``.

        On the server it goes on.
        """
        self._closed.set()
        for driver in list(self._drivers):
            driver.end()
        await self._transport.close()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()

    def _driver(self) -> _Driver:
        driver = _Driver(self)
        self._drivers.add(driver)
        return driver


class AsyncThread(ThreadBase):
    """One conversation with an agent."""

    def __init__(
        self,
        client: AsyncClient,
        id: str | None = None,  # noqa: A002
        *,
        messages: Iterable[Message | Mapping[str, Any]] = (),
        state: State = None,
        tools: Iterable[AnyTool] = (),
    ) -> None:
        super().__init__(client._settings, id, messages=messages, state=state, tools=tools)
        self._client = client

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
    ) -> AsyncRun:
        """Say something and let the agent run: iterate the run for its events, or await it for its result.

        ``content`` is text, parts, messages, or nothing new. Tool calls of functions are answered and the run is
        continued until nothing is pending. Ends with ``RunFailed`` (the run said so), ``StreamTruncated`` (it was cut
        off, or was sent and nothing came), ``ProtocolError`` (the agent broke the protocol), ``HTTPRejected`` or
        ``TransportFailed`` (it never began), ``ToolRoundsExceeded``, or ``IllegalStep`` or ``EncodeError``
        (nothing was sent); what had arrived is kept in the thread.
        """
        ask = self._ask(
            content,
            tools=tools,
            context=context,
            forwarded_props=forwarded_props,
            parent_run_id=parent_run_id,
            run_id=run_id,
            headers=headers,
            max_rounds=max_rounds,
        )
        return AsyncRun(self, self._run_program(ask), "thread.run()")

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
    ) -> AsyncRun:
        """Answer every open interrupt, by id, and let the agent go on; the rest is as in ``run``.

        An answer is a payload, ``GIVE_UP``, or a ``ResumeEntry``. Raises ``IllegalStep`` before anything is sent for
        answers that are missing, too many, too late, or not what the interrupt's schema asks for.
        """
        ask = self._ask(
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
        return AsyncRun(self, self._run_program(ask), "thread.resume()")

    def attach(self, *, headers: Mapping[str, str] | None = None) -> AsyncRun:
        """Join the run that is on; without one, see how the thread stands. Tools are not called.

        Needs a server with ``POST /connect``; ends as a run does.
        """
        return AsyncRun(self, self._attach_program(headers), "thread.attach()")

    async def cancel(self, run_id: str | None = None) -> bool:
        """Ask the server to stop the run (this thread's, unless one is named); whether it was still on.

        Nothing else changes here: whoever follows the run sees it end as ``cancelled``.
        Raises ``HTTPRejected`` if the server cannot, ``IllegalStep`` if there is no run.
        """
        return await self._client._driver().finish(self._cancel_program(run_id))

    async def refresh(self) -> Conversation:
        """Take over messages, state, open interrupts and unanswered calls as the server holds them.

        Raises ``HTTPRejected``, or ``ProtocolError`` for an answer that is no thread; then nothing changes here.
        """
        return await self._client._driver().finish(self._refresh_program())


class AsyncRun(RunBase):
    """A run: ``async for event in run``, or ``result = await run``; ``async with run`` closes it for certain."""

    _thread: AsyncThread
    _driver: _Driver | None = None

    def __aiter__(self) -> AsyncGenerator[Event, None]:
        left = self._begin()
        iterator = self._events(left)
        # Not held: when the loop is left, nothing else refers to it, and it is closed at once.
        self._iterator = ref(iterator)
        return iterator

    def __await__(self) -> Generator[Any, None, RunResult]:
        return self.result().__await__()

    async def result(self) -> RunResult:
        """Follow the run to its end, if nobody has, and give its result or raise how it ended."""
        if not self._begun:
            async with aclosing(self.__aiter__()) as events:
                async for _ in events:
                    pass
        return self._finished()

    async def close(self) -> None:
        """Disconnect. The run goes on where it is."""
        self._begun = self._is_closed = True
        self._program.close()
        if self._driver is not None:
            await self._driver.close()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()

    async def _events(self, left: Any) -> AsyncGenerator[Event, None]:
        if left is not None and not left._is_closed:
            await left.close()
        driver = self._driver = self._thread._client._driver()
        program, answer = self._program, None
        try:
            while True:
                try:
                    wanted = program.send(answer)
                    while wanted.__class__ is not GeneratorType:
                        try:
                            answer = await driver.perform(wanted)
                        except Exception as error:  # noqa: BLE001 - raised again, but for one that is no surprise
                            wanted = program.throw(driver.client._told_of(error))
                        else:
                            wanted = program.send(answer)
                except StopIteration as stop:
                    self._outcome = stop.value
                    return
                except Exception as error:
                    self._outcome = error
                    raise
                for event in wanted:
                    yield event
                answer = None
        finally:
            self._is_closed = True
            program.close()
            await driver.close()


class _Driver:
    """Carries out what one program asks for; holds the answer that is open."""

    def __init__(self, client: AsyncClient) -> None:
        self.client = client
        self._response: AsyncResponse | None = None
        self._watch = _Watch()

    async def finish(self, program: Program[T]) -> T:
        try:
            wanted = program.send(None)
            while True:
                try:
                    answer = await self.perform(wanted)
                except Exception as error:  # noqa: BLE001 - raised again, but for one that is no surprise
                    wanted = program.throw(self.client._told_of(error))
                else:
                    wanted = program.send(answer)
        except StopIteration as stop:
            return stop.value
        finally:
            program.close()
            await self.close()

    async def perform(self, effect: Any) -> Any:
        kind = effect.__class__
        if kind is Close:
            return await self.close()
        self.client._check_open()
        if kind is Read:
            assert self._response is not None  # noqa: S101
            return await self._watch.within(effect.timeout, self._response.read())
        if kind is Open:
            await self.close()
            response = await self._watch.within(effect.timeout, self.client._transport.send(effect.request))
            self._response = response
            return Head(response.status, response.headers)
        return await self._watch.within(None, self._other(kind, effect))

    async def _other(self, kind: Any, effect: Any) -> Any:
        if kind is Authorize:
            auth = self.client._auth
            try:
                given = None if auth is None else auth()
                return auth_headers(await given if isawaitable(given) else given)
            except Exception as error:
                raise AuthFailed(error) from error
        if kind is Sleep:
            return await asyncio.sleep(effect.seconds)
        if kind is Compute:
            return await asyncio.to_thread(effect.work)
        assert kind is CallTools  # noqa: S101
        for planned in effect.calls:
            await _ask(planned)
        return await asyncio.gather(*(_call(planned) for planned in effect.calls))

    def end(self) -> None:
        """Wait for nothing any more."""
        self._watch.go_off("the client was closed")

    async def close(self) -> None:
        self._watch.stop()
        response, self._response = self._response, None
        if response is not None:
            await response.close()


class _Watch:
    """``asyncio.timeout`` for many short waits in a row: one timer, moved only when it goes off.

    A timer for each read costs a tenth of what reading an event costs in all.
    """

    def __init__(self) -> None:
        self._timer: asyncio.TimerHandle | None = None
        self._task: asyncio.Task[Any] | None = None  # that waits
        self._deadline = 0.0
        self._why: str | None = None  # it has gone off

    async def within(self, seconds: float | None, waiting: Coroutine[Any, Any, T]) -> T:
        """What comes of it. Raises ``TransportFailed`` after so many seconds, or if it goes off before."""
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
                self._timer = loop.call_at(deadline, self._look, loop)
        before = task.cancelling()
        self._task = task
        try:
            return await waiting
        except asyncio.CancelledError:
            if self._why is None:
                raise
            why, self._why = self._why, None
            if task.uncancel() > before:  # somebody else cancels it as well
                raise
            if why:
                raise TransportFailed(why) from None
            raise TransportFailed(f"nothing came for {seconds:g} seconds", is_timeout=True) from None
        finally:
            self._task = None

    def stop(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _look(self, loop: asyncio.AbstractEventLoop) -> None:
        self._timer = None
        if self._task is None or self._deadline == _NEVER:
            return
        if loop.time() < self._deadline:
            self._timer = loop.call_at(self._deadline, self._look, loop)
        else:
            self.go_off("")

    def go_off(self, why: str) -> None:
        """End the wait, if there is one. Without a reason the reason is that it was too long."""
        if self._task is not None and self._why is None:
            self._why = why
            self._task.cancel()


_NEVER = float("inf")


async def _ask(planned: PlannedCall) -> None:
    if planned.confirm is None or planned.has_begun:
        return
    try:
        allowed = await asyncio.to_thread(planned.ask)  # it may well be ``input``
        if not (await allowed if isawaitable(allowed) else allowed):
            planned.decline()
    except Exception as error:  # noqa: BLE001 - whatever happens there, it is no consent
        planned.decline(error)


async def _call(planned: PlannedCall) -> ToolMessage:
    tool = planned.tool
    if tool is None:
        return planned.refused()
    if planned.has_begun:  # in a run that was left
        return await asyncio.wrap_future(planned.outcome)
    if tool.is_async:
        with planned.settling():
            if planned.begin():
                planned.settle(await tool.function(**planned.arguments))
        return planned.outcome.result()
    loop = asyncio.get_running_loop()
    work = partial(_work, planned, tool, loop)
    working = loop.run_in_executor(None, copy_context().run, work)
    try:
        # To cancel this gives up a call that has not begun. One that has goes on, to be waited for again.
        return await asyncio.wrap_future(planned.outcome)
    finally:
        working.cancel()


def _work(planned: PlannedCall, tool: FunctionTool[..., Any], loop: asyncio.AbstractEventLoop) -> None:
    """Make a call in a thread; what it returns to be awaited belongs to the loop."""
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
