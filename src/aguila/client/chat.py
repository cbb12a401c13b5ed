"""``ChatClient``: call an AG-UI agent with chat types.

The application passes the whole conversation in each turn. ``ChatOptions`` carries the rest from turn to turn:

====================================  =================================================================================
thread                                ``options.thread_id``: reuse the options to continue a thread (#3475)
messages                              passed each time; append ``response.messages`` to them. A message that the agent
                                      continued is there in full, and of two with the same id the later one is sent. A
                                      message that the server only renamed is not new, and is sent under the new id
state                                 ``options.state``, before and after the turn
tools of the application              functions are called, and the run continues; calls of a declared ``Tool`` are in
                                      the response, and a tool message in the next turn answers them
questions of the agent                contents of the last message of the response; the next turn has the answers
====================================  =================================================================================
"""

from __future__ import annotations

from collections.abc import AsyncGenerator, Callable, Generator, Iterable, Mapping, Sequence
from contextlib import aclosing
from dataclasses import dataclass, field
from functools import partial
from typing import Any, Self

import msgspec

from aguila.chat.from_chat.messages import as_agui_messages
from aguila.chat.hooks import NO_HOOKS, Hooks
from aguila.chat.interrupts import write_answer, write_interrupt
from aguila.chat.property_keys import RUN_ID, THREAD_ID, thread_id_of
from aguila.chat.to_chat.messages import as_chat_messages
from aguila.chat.to_chat.updates import UpdateReader
from aguila.chat.tools import AnyTool
from aguila.chat.types import (
    ApprovalRequestContent,
    ApprovalResponseContent,
    ChatMessage,
    ChatUpdate,
    Content,
    FunctionCallContent,
    InterruptRequestContent,
    InterruptResponseContent,
    TextContent,
    UsageContent,
)
from aguila.client.async_client import AsyncClient, AsyncClientRun, AsyncThread
from aguila.client.requests.message_id_map import MessageKey, find_renamed
from aguila.client.runs.run import RunResult
from aguila.codec.notices import Warn
from aguila.errors import IllegalStep, StreamTruncated
from aguila.offload import is_large, offload
from aguila.protocol import (
    Context,
    Interrupt,
    Message,
    ResumeEntry,
    RunFinishedEvent,
    RunStartedEvent,
    TokenUsage,
    ToolCallResultEvent,
    ToolMessage,
    replace,
)
from aguila.stream import Conversation
from aguila.stream.conversation import RunOutcome

Request = ApprovalRequestContent | InterruptRequestContent
"""A question of the agent."""

Messages = str | ChatMessage | Sequence[ChatMessage | str]
"""A conversation; a string is a user message."""

_REQUESTS = (ApprovalRequestContent, InterruptRequestContent)
_RESPONSES = (ApprovalResponseContent, InterruptResponseContent)
_ARRAY: Any = (list, tuple)


class ThreadHistory:
    """The data that the turns of a thread leave for the next turn."""

    def __init__(self) -> None:
        self.interrupts: list[Interrupt] | None = None
        self.question_ids: set[str] = set()
        self.generated_ids: dict[int, tuple[ChatMessage, list[str]]] = {}
        """The ids that we gave to messages without one, by the identity of the message."""
        self.server_ids: dict[MessageKey, str] = {}
        """The ids that the server uses for messages of ours."""


@dataclass(kw_only=True)
class ChatOptions:
    """The options of a turn. Pass the same object to the next turn to continue the thread.

    ``tools`` are offered besides the client's. ``state`` is the state before the turn, and then the state after it.
    ``context``, ``forwarded_props``, ``parent_run_id``, ``headers`` and ``max_rounds`` are as in ``AsyncThread.run``.
    The thread's id is in ``additional_properties``, as ``ag_ui_thread_id``; the older ``agui_thread_id`` is read too.
    """

    tools: Sequence[AnyTool] = ()
    state: Any = None
    context: Iterable[Context | Mapping[str, Any]] | Mapping[str, str] = ()
    forwarded_props: Any = None
    parent_run_id: str | None = None
    headers: Mapping[str, str] | None = None
    max_rounds: int | None = None
    additional_properties: dict[str, Any] = field(default_factory=dict[str, Any])
    history: ThreadHistory = field(default_factory=lambda: ThreadHistory(), init=False, repr=False)
    """The data that earlier turns with these options have left. For ``ChatClient`` only."""

    @property
    def thread_id(self) -> str | None:
        """The id of the thread; None before the first turn, unless it was set."""
        return thread_id_of(self.additional_properties)

    @thread_id.setter
    def thread_id(self, thread_id: str) -> None:
        self.additional_properties[THREAD_ID] = thread_id


class ChatResponse(msgspec.Struct, frozen=True, kw_only=True):
    """The response of a turn.

    ``messages`` are new: append them to the conversation. Questions of the agent are contents of the last one.
    ``additional_properties`` have the ids of thread and run, ``raw_representation`` is the ``RunResult``.
    """

    messages: list[ChatMessage]
    thread_id: str
    run_id: str
    outcome: RunOutcome
    result: Any
    state: Any
    usage: list[TokenUsage]
    pending_calls: list[FunctionCallContent]
    """Calls that a tool message in the next turn has to answer, without those that a question is about."""
    additional_properties: dict[str, Any]
    raw_representation: RunResult

    @property
    def text(self) -> str:
        """The text of the last message that has any, else an empty string."""
        return next((message.text for message in reversed(self.messages) if message.text != ""), "")

    @property
    def requests(self) -> list[Request]:
        """The questions of the agent. Answer each with its ``answer(...)`` or ``give_up()``."""
        return [content for message in self.messages for content in message.contents if isinstance(content, _REQUESTS)]


class ChatClient:
    """A client that calls an AG-UI agent with chat types.

    ``endpoint`` is the agent's URL, with ``options`` of ``AsyncClient`` (``headers``, ``auth``, ``tools``,
    ``transport``, ...), or an ``AsyncClient``, which is not closed with this client. ``hooks.map_interrupt`` says how
    questions are represented.
    """

    def __init__(self, endpoint: str | AsyncClient, *, hooks: Hooks = NO_HOOKS, **options: Any) -> None:
        self._is_ours = isinstance(endpoint, str)
        if isinstance(endpoint, str):
            self.client = AsyncClient(endpoint, **options)
        elif options:
            raise TypeError(f"{', '.join(options)}: options are for a URL; pass them to the AsyncClient")
        else:
            self.client = endpoint
        self.hooks = hooks

    async def get_response(self, messages: Messages, options: ChatOptions | None = None) -> ChatResponse:
        """Return the complete response. Raise as ``AsyncThread.run`` and ``AsyncThread.resume`` do."""
        return await self.get_streaming_response(messages, options)

    def get_streaming_response(self, messages: Messages, options: ChatOptions | None = None) -> ChatStream:
        """Stream the response: iterate for updates, or await for the response. Nothing is sent before that."""
        return ChatStream(self, _as_messages(messages), ChatOptions() if options is None else options)

    async def close(self) -> None:
        """Close every connection, unless the ``AsyncClient`` is yours."""
        if self._is_ours:
            await self.client.close()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()


class ChatStream:
    """A streamed response: ``async for update in stream``, then ``stream.response``; or ``response = await stream``.

    Every event is the ``raw_representation`` of an update. The result of a tool of the application is an update of role
    ``tool`` without one. A run that fails yields an update with ``ErrorContent``, and then raises ``RunFailed``.
    """

    def __init__(self, client: ChatClient, messages: list[ChatMessage], options: ChatOptions) -> None:
        self._client = client.client
        self._hooks = client.hooks
        self._messages = messages
        self._options = options
        self._sent: list[Message] = []
        self._response: ChatResponse | None = None
        self._has_begun = False

    @property
    def response(self) -> ChatResponse:
        """The complete response, after the updates were iterated. Raise ``StreamTruncated`` before that."""
        if self._response is None:
            raise StreamTruncated("the response is not complete; iterate the stream to its end, or await it")
        return self._response

    def __await__(self) -> Generator[Any, None, ChatResponse]:
        return self._finish().__await__()

    async def _finish(self) -> ChatResponse:
        if not self._has_begun:
            async with aclosing(self.__aiter__()) as updates:
                async for _ in updates:
                    pass
        return self.response

    async def __aiter__(self) -> AsyncGenerator[ChatUpdate, None]:
        if self._has_begun:
            raise IllegalStep("a response can be iterated once; call the client again for another", rule="IN-1")
        self._has_begun = True
        options, settings = self._options, self._client.settings
        thread, run = await self._begin()
        reader = UpdateReader(hooks=self._hooks, new_id=settings.new_id, warn=settings.warn)
        known = {message.id for message in thread.messages if isinstance(message, ToolMessage)}
        questions: list[Content] = []
        try:
            async with aclosing(run.__aiter__()) as events:
                async for event in events:
                    if isinstance(event, RunStartedEvent):
                        for update in _own_results(thread, known, settings.warn):
                            yield update
                    elif isinstance(event, ToolCallResultEvent):
                        known.add(event.message_id)
                    is_slow = isinstance(event, ToolCallResultEvent) and is_large(event.content)
                    updates = await offload(reader.feed, event) if is_slow else reader.feed(event)
                    if isinstance(event, RunFinishedEvent):
                        questions = [one for one in updates[-1].contents if not isinstance(one, UsageContent)]
                    for update in updates:
                        yield update
            for update in _own_results(thread, known, settings.warn):
                yield update
        finally:
            options.state, options.history.interrupts = thread.state, thread.interrupts
            options.history.question_ids.update(interrupt.id for interrupt in thread.interrupts)
            known_anew = self._rename(thread.messages)
        self._response = await _respond(await run.result(), known_anew, thread, questions, settings.warn)

    async def _begin(self) -> tuple[AsyncThread, AsyncClientRun]:
        options, client = self._options, self._client
        self._sent = messages = await self._wire_messages()
        thread = client.thread(options.thread_id, tools=options.tools)
        interrupts, answers = _open_questions(self._messages, options)
        state: Any = options.state
        if state is None:
            state = {}
        thread.restore(Conversation(messages=messages, state=state, runs=[], interrupts=interrupts))
        options.thread_id = thread.id
        arguments: dict[str, Any] = {
            "context": options.context,
            "forwarded_props": options.forwarded_props,
            "parent_run_id": options.parent_run_id,
            "headers": options.headers,
            "max_rounds": options.max_rounds,
        }
        return thread, thread.resume(answers, **arguments) if answers else thread.run(**arguments)

    async def _wire_messages(self) -> list[Message]:
        wanted = [(one, rest) for one in self._messages if (rest := _without_questions(one)) is not None]

        def convert() -> list[Message]:
            written = [
                message
                for original, rest in wanted
                for message in as_agui_messages(
                    [rest],
                    # Messages of the agent may be made of its updates, which have usage and errors too.
                    unsupported="raise" if rest.role == "user" else "drop",
                    new_id=self._ids_of(original),
                    warn=self._client.settings.warn,
                )
            ]
            ours = self._options.history.server_ids
            if ours:
                written = [replace(one, id=ours.get((one.role, one.id), one.id)) for one in written]
            return list({(message.role, message.id): message for message in written}.values())

        return await offload(convert) if is_large([rest for _, rest in wanted]) else convert()

    def _rename(self, now: list[Message]) -> list[Message]:
        """Remember the ids that the server gave to our messages. Return the messages in which only the id changed.

        A server that uses its own ids would take messages with our ids for new ones.
        """
        renamed = self._options.history.server_ids
        before = {(message.role, message.id): message for message in self._sent}
        known: list[Message] = []
        for (role, id_), message in find_renamed(self._sent, now).items():
            for key, theirs in renamed.items():
                if key[0] == role and theirs == id_:
                    renamed[key] = message.id
            renamed[role, id_] = message.id
            if replace(before[role, id_], id=message.id) == message:
                known.append(message)
        return known

    def _ids_of(self, message: ChatMessage) -> Callable[[], str]:
        """Return ids for the messages that a chat message becomes: the same each time with these options (#3433)."""
        _, minted = self._options.history.generated_ids.setdefault(id(message), (message, []))
        used = 0

        def new_id() -> str:
            nonlocal used
            used += 1
            if used > len(minted):
                minted.append(self._client.settings.new_id())
            return minted[used - 1]

        return new_id


def _as_messages(messages: Messages) -> list[ChatMessage]:
    given: Sequence[Any] = [messages] if isinstance(messages, (str, ChatMessage)) else messages
    found: list[ChatMessage] = []
    for message in given:
        if isinstance(message, str):
            message = ChatMessage("user", [TextContent(message)])
        if not isinstance(message, ChatMessage):
            raise TypeError(f"expected text or a ChatMessage, got {type(message).__name__}")
        found.append(message)
    return found


def _without_questions(message: ChatMessage) -> ChatMessage | None:
    """Return the message without questions and answers, which travel as interrupts; None if nothing is left."""
    contents = [one for one in message.contents if not isinstance(one, (*_REQUESTS, *_RESPONSES))]
    if len(contents) == len(message.contents):
        return message
    return replace(message, contents=contents) if contents else None


def _open_questions(
    messages: Iterable[ChatMessage], options: ChatOptions
) -> tuple[list[Interrupt], dict[str, ResumeEntry]]:
    """Return the open questions, and the new answers.

    A stored conversation contains its questions. One that is followed by a message of the agent is settled.
    """
    asked: dict[str, Interrupt] = {}
    answers: dict[str, ResumeEntry] = {}
    for message in messages:
        if message.role in ("assistant", "tool"):
            asked, answers = {}, {}
        for content in message.contents:
            if isinstance(content, _REQUESTS):
                raw = content.raw_representation
                asked[content.interrupt_id] = raw if isinstance(raw, Interrupt) else write_interrupt(content)
            elif isinstance(content, _RESPONSES):
                answers[content.interrupt_id] = write_answer(content)
    interrupts = list(asked.values()) if options.history.interrupts is None else options.history.interrupts
    # Questions that an earlier turn answered are settled, even if its run added no message.
    settled = options.history.question_ids.difference(interrupt.id for interrupt in interrupts)
    return interrupts, {id_: entry for id_, entry in answers.items() if id_ not in settled}


def _own_results(thread: AsyncThread, known: set[str], warn: Warn) -> list[ChatUpdate]:
    """Return the new results of the application's tools as updates."""
    new = [one for one in thread.messages if isinstance(one, ToolMessage) and one.id not in known]
    known.update(one.id for one in new)
    named = {THREAD_ID: thread.id}
    return [
        ChatUpdate("tool", message.contents, message.message_id, additional_properties=named)
        for message in as_chat_messages(new, warn=warn)
    ]


async def _respond(
    result: RunResult, known: list[Message], thread: AsyncThread, questions: list[Content], warn: Any
) -> ChatResponse:
    not_new = {(message.role, message.id) for message in known}
    new = [message for message in result.messages if (message.role, message.id) not in not_new]
    convert = partial(as_chat_messages, new, warn=warn)
    messages = await offload(convert) if is_large(new) else convert()
    if questions:
        messages.append(ChatMessage("assistant", questions))
    pending = {call.id for call in result.pending_tool_calls}
    return ChatResponse(
        messages=messages,
        thread_id=thread.id,
        run_id=result.run_id,
        outcome=result.outcome,
        result=result.result,
        state=result.state,
        usage=result.usage,
        pending_calls=[call for message in messages for call in message.calls if call.call_id in pending],
        additional_properties={THREAD_ID: thread.id, RUN_ID: result.run_id},
        raw_representation=result,
    )
