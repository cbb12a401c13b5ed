"""Layer: client. ``Client``: the client without asyncio. Its twin is ``asyncio``, name by name.

Below: ``thread`` and ``_base`` (all the logic, as programs), ``transport`` (who carries bytes). Here programs are
driven: what they ask for is done, what they yield for the caller is given to it.
"""

from __future__ import annotations

import asyncio
from collections.abc import Generator, Iterable, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing, suppress
from contextvars import copy_context
from inspect import isawaitable
from types import GeneratorType
from typing import Any, Self, TypeVar
from weakref import ref

from aguila.chat.tools import AnyTool
from aguila.client.base import ClientBase, auth_headers
from aguila.client.drivers.effects import Authorize, CallTools, Close, Compute, Head, Open, Program, Read, Sleep
from aguila.client.files import FileLike
from aguila.client.requests.request_builder import Content
from aguila.client.run import RunBase, RunResult
from aguila.client.thread import ThreadBase
from aguila.client.tools import PlannedCall
from aguila.client.transports.base import Response, Transport
from aguila.errors import AuthFailed
from aguila.protocol import AgentCapabilities, Context, Event, Message, State, ToolMessage
from aguila.protocol.parts import MediaPart
from aguila.stream import Conversation

T = TypeVar("T")

_MAX_PARALLEL = 32  # tool calls at once


class Client(ClientBase[Transport]):
    """Calls an agent. A pool of connections, to be shared freely; see ``ClientBase`` for the parameters."""

    _is_async = False

    def _default_transport(self, options: Mapping[str, Any]) -> Transport:
        from aguila.client.transports.httpx2 import HTTPX2Transport

        return HTTPX2Transport(timeouts=self._settings.timeouts, **options)

    def thread(
        self,
        id: str | None = None,  # noqa: A002
        *,
        messages: Iterable[Message | Mapping[str, Any]] = (),
        state: State = None,
        tools: Iterable[AnyTool] = (),
    ) -> Thread:
        """A conversation, new or with what it is known to hold; ``tools`` are offered in all its runs."""
        return Thread(self, id, messages=messages, state=state, tools=tools)

    def capabilities(self) -> AgentCapabilities | None:
        """What the agent declares; None if it declares nothing that can be read."""
        return self._driver().finish(self._capabilities_program())

    def upload(
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
        return self._driver().finish(self._upload_program(source, mime_type, filename, thread_id))

    def close(self) -> None:
        """Close every connection, from any thread. A run that is on ends with ``TransportFailed``.

        On the server it goes on.
        """
        self._closed.set()
        self._transport.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _driver(self) -> _Driver:
        return _Driver(self)


class Thread(ThreadBase):
    """One conversation with an agent."""

    def __init__(
        self,
        client: Client,
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
    ) -> Run:
        """Say something and let the agent run: iterate the run for its events, or ask for its ``result()``.

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
        return Run(self, self._run_program(ask), "thread.run()")

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
    ) -> Run:
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
        return Run(self, self._run_program(ask), "thread.resume()")

    def attach(self, *, headers: Mapping[str, str] | None = None) -> Run:
        """Join the run that is on; without one, see how the thread stands. Tools are not called.

        Needs a server with ``POST /connect``; ends as a run does.
        """
        return Run(self, self._attach_program(headers), "thread.attach()")

    def cancel(self, run_id: str | None = None) -> bool:
        """Ask the server to stop the run (this thread's, unless one is named); whether it was still on.

        Nothing else changes here: whoever follows the run sees it end as ``cancelled``.
        Raises ``HTTPRejected`` if the server cannot, ``IllegalStep`` if there is no run.
        """
        return self._client._driver().finish(self._cancel_program(run_id))

    def refresh(self) -> Conversation:
        """Take over messages, state, open interrupts and unanswered calls as the server holds them.

        Raises ``HTTPRejected``, or ``ProtocolError`` for an answer that is no thread; then nothing changes here.
        """
        return self._client._driver().finish(self._refresh_program())


class Run(RunBase):
    """A run: ``for event in run``, or ``run.result()``; ``with run`` closes it for certain."""

    _thread: Thread
    _driver: _Driver | None = None

    def __iter__(self) -> Generator[Event, None, None]:
        left = self._begin()
        iterator = self._events(left)
        # Not held: when the loop is left, nothing else refers to it, and it is closed at once.
        self._iterator = ref(iterator)
        return iterator

    def result(self) -> RunResult:
        """Follow the run to its end, if nobody has, and give its result or raise how it ended."""
        if not self._begun:
            with closing(self.__iter__()) as events:
                for _ in events:
                    pass
        return self._finished()

    def close(self) -> None:
        """Disconnect. The run goes on where it is."""
        self._begun = self._is_closed = True
        self._program.close()
        if self._driver is not None:
            self._driver.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _events(self, left: Any) -> Generator[Event, None, None]:
        if left is not None and not left._is_closed:
            left.close()
        driver = self._driver = self._thread._client._driver()
        program, answer = self._program, None
        try:
            while True:
                try:
                    wanted = program.send(answer)
                    while wanted.__class__ is not GeneratorType:
                        try:
                            answer = driver.perform(wanted)
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
                yield from wanted
                answer = None
        finally:
            self._is_closed = True
            program.close()
            driver.close()


class _Driver:
    """Carries out what one program asks for; holds the answer that is open."""

    def __init__(self, client: Client) -> None:
        self.client = client
        self._response: Response | None = None

    def finish(self, program: Program[T]) -> T:
        try:
            wanted = program.send(None)
            while True:
                try:
                    answer = self.perform(wanted)
                except Exception as error:  # noqa: BLE001 - raised again, but for one that is no surprise
                    wanted = program.throw(self.client._told_of(error))
                else:
                    wanted = program.send(answer)
        except StopIteration as stop:
            return stop.value
        finally:
            program.close()
            self.close()

    def perform(self, effect: Any) -> Any:
        kind = effect.__class__
        if kind is Close:
            return self.close()
        self.client._check_open()
        if kind is Read:
            assert self._response is not None  # noqa: S101
            return self._response.read(effect.timeout)
        if kind is Open:
            self.close()
            response = self.client._transport.send(effect.request, effect.timeout)
            self._response = response
            return Head(response.status, response.headers)
        if kind is Authorize:
            auth = self.client._auth
            try:
                return auth_headers(None if auth is None else _given(auth()))
            except Exception as error:
                raise AuthFailed(error) from error
        if kind is Sleep:
            return self.client._closed.wait(effect.seconds)
        if kind is Compute:
            return effect.work()
        assert kind is CallTools  # noqa: S101
        return _call_all(effect.calls)

    def close(self) -> None:
        response, self._response = self._response, None
        if response is not None:
            response.close()


def _given(value: Any) -> Any:
    if isawaitable(value):
        with suppress(AttributeError):
            value.close()  # type: ignore[union-attr]
        raise TypeError("auth is async, which only AsyncClient can wait for")
    return value


def _call_all(calls: list[PlannedCall]) -> list[ToolMessage]:
    for planned in calls:
        _ask(planned)
    if len(calls) == 1:
        return [_call(calls[0])]
    pool = ThreadPoolExecutor(min(len(calls), _MAX_PARALLEL), "aguila-tool")
    try:
        return [done.result() for done in [pool.submit(copy_context().run, _call, planned) for planned in calls]]
    finally:
        # After Ctrl-C what has begun goes on, to be waited for by the next run; what has not does not begin.
        pool.shutdown(wait=False, cancel_futures=True)


def _ask(planned: PlannedCall) -> None:
    if planned.confirm is None or planned.has_begun:
        return
    try:
        allowed = planned.ask()
        if not (_awaited(allowed) if isawaitable(allowed) else allowed):
            planned.decline()
    except Exception as error:  # noqa: BLE001 - whatever happens there, it is no consent
        planned.decline(error)


def _call(planned: PlannedCall) -> ToolMessage:
    tool = planned.tool
    if tool is None:
        return planned.refused()
    with planned.settling():
        if planned.begin():
            value = tool.function(**planned.arguments)
            planned.settle(_awaited(value) if isawaitable(value) else value)
    return planned.outcome.result()  # waits for a call that began in a run that was left


def _awaited(value: Any) -> Any:
    """The result of an async function, in a loop of its own; in a thread of its own if this one has a loop."""

    async def wait() -> Any:
        return await value

    try:
        asyncio.get_running_loop()
    except RuntimeError:
        return asyncio.run(wait())
    with ThreadPoolExecutor(1, "aguila-tool") as pool:
        return pool.submit(copy_context().run, asyncio.run, wait()).result()
