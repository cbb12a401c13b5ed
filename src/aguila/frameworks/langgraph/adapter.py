"""Use a LangGraph graph as an agent: ``App(langgraph.agent(graph))``.

The graph's own stream is read, not that of ag-ui-langgraph: that one sends each event of LangChain as RAW, whole states
with their messages, and other ids in its snapshots. LangGraph is imported when the agent is made.

==================================  ===================================================================================
LangGraph                           here
==================================  ===================================================================================
stream mode ``messages``            texts, reasoning, tool calls and results; a message has its LangChain id
stream mode ``values``              the state without its messages, as patches
stream mode ``tasks``               nodes as steps; subgraphs as subagents with steps of their own
stream mode ``custom``              CUSTOM ``langgraph``; an AG-UI event is sent as it is
``interrupt()``                     an interrupt with the same id; the answers are ``Command(resume=...)``
approvals of middleware             an interrupt of reason ``tool_call`` for each call
``interrupt_before`` and ``after``  an interrupt that asks whether to continue
checkpointer                        has our thread id; decides what the model has seen. Without one, the history does
==================================  ===================================================================================
"""

from __future__ import annotations

from collections.abc import AsyncGenerator, AsyncIterator, Callable, Collection, Mapping, Sequence
from contextvars import ContextVar
from typing import Any, Final

import msgspec

from aguila.agent.run import Run
from aguila.chat import ChatMessage, as_agui_messages, provider_history
from aguila.codec.json.values import is_array, is_object
from aguila.codec.notices import Notice, log_notice
from aguila.codec.official import is_official
from aguila.frameworks.external.packages import load
from aguila.frameworks.external.suspended import answers_of
from aguila.frameworks.langgraph.interrupts import ask, read_answers
from aguila.frameworks.langgraph.messages import from_langchain, to_langchain, without_files
from aguila.frameworks.langgraph.stream import GraphStream
from aguila.frameworks.relay.events import Errors
from aguila.frameworks.relay.iterator import from_events
from aguila.protocol import (
    CustomEvent,
    Event,
    MessagesSnapshotEvent,
    RunFinishedCancelledOutcome,
    RunFinishedEvent,
    RunFinishedInterruptOutcome,
)
from aguila.protocol._base import Wire

__all__ = ["agent", "frontend_tools"]

_MESSAGES: Final = "messages"
_TOOLS: Final = "tools"
"""The key of the state that graphs written for ag-ui-langgraph read the front end's tools from."""
_MODES: Final = ("messages", "values", "custom", "tasks")

_current: ContextVar[Run] = ContextVar("aguila_langgraph_run")


def agent(
    graph: Any,
    *,
    config: Mapping[str, Any] | Callable[[Run], Mapping[str, Any]] | None = None,
    context: Any = None,
    input: Callable[[Run], Any] | None = None,  # noqa: A002 - LangGraph's word
    thread_id: Callable[[Run], str] | None = None,
    state_keys: Collection[str] | None = None,
    errors: Errors = "mask",
) -> Callable[[Run], AsyncGenerator[Event, None]]:
    """Make an agent of a compiled graph.

    ``config`` is added to the config of each run; ``context`` is the graph's runtime context. Both may be functions of
    the run. ``input`` makes the input of a graph whose state has no ``messages``. ``thread_id`` is the checkpointer's
    thread of a run; the default is our thread, so distinguish tenants here. ``state_keys`` are the keys of the state
    that clients read and write; the default is all but the messages, the tools, and keys that begin with ``_``.

    Raise TypeError for an object that is not a compiled graph.
    """
    if not hasattr(graph, "astream"):
        hint = "; call its compile() method first" if hasattr(graph, "compile") else ""
        raise TypeError(f"langgraph.agent() takes a compiled graph, not {type(graph).__name__}{hint}")
    for module, package in (("langgraph.types", "langgraph"), ("langchain_core.messages", "langchain-core")):
        load(module, package)  # here, so that a missing package does not fail the first run
    visible = None if state_keys is None else frozenset(state_keys)

    def events(run: Run) -> AsyncIterator[Any]:
        settings: dict[str, Any] = {**((config(run) if callable(config) else config) or {})}
        given: dict[str, Any] = settings.get("configurable") or {}
        own_thread = run.thread_id if thread_id is None else thread_id(run)
        settings["configurable"] = {**given, "thread_id": own_thread}
        return _GraphRun(graph, run, settings, context(run) if callable(context) else context, input, visible).events()

    return from_events(events, errors=errors)


def frontend_tools() -> list[dict[str, Any]]:
    """Return the front end's tools of the current run, as ``bind_tools`` takes them. Call it within a node.

    A graph must not execute calls of these tools: it ends, the client executes them, and the next run has the results.
    """
    run = _current.get(None)
    return [] if run is None else [_tool(tool) for tool in run.tools]


def _tool(tool: Any) -> dict[str, Any]:
    schema: dict[str, Any] = tool.parameters if is_object(tool.parameters) else {"type": "object", "properties": {}}
    function = {"name": tool.name, "description": tool.description, "parameters": schema}
    return {"type": "function", "function": function}


class _GraphRun:
    """One run of a graph."""

    def __init__(
        self,
        graph: Any,
        run: Run,
        config: dict[str, Any],
        context: Any,
        make_input: Callable[[Run], Any] | None,
        visible: frozenset[str] | None,
    ) -> None:
        self._graph = graph
        self._run = run
        self._config = config
        self._context = context
        self._make_input = make_input
        self._visible = visible
        self._has_checkpointer = getattr(graph, "checkpointer", None) not in (None, False)
        self._seen: dict[str, Any] = {}
        """Values of the state as the graph has them, by key, to find those that have changed."""
        self._state: dict[str, Any] = {}

    async def events(self) -> AsyncIterator[Any]:
        """Run the graph and yield its events."""
        run = self._run
        if any(entry.status == "cancelled" for entry in run.resume):
            outcome = RunFinishedCancelledOutcome()
            yield RunFinishedEvent(thread_id=run.thread_id, run_id=run.run_id, outcome=outcome)
            return
        before = await self._graph.aget_state(self._config) if self._has_checkpointer else None
        known = {message.id for message in (*_messages_of(before), *run.messages)}
        stream = GraphStream(run, known)
        token = _current.set(run)
        try:
            given = await self._input(before)
            options: dict[str, Any] = {} if self._context is None else {"context": self._context}
            parts = self._graph.astream(given, self._config, stream_mode=list(_MODES), subgraphs=True, **options)
            try:
                async for namespace, mode, data in parts:
                    if mode == "values":
                        if not namespace:
                            self._take_state(data)
                            for event in stream.catch_up(_messages_in(data)):
                                yield event
                    elif mode == "custom":
                        yield _custom_event(data, stream.owner(namespace))
                    else:
                        for event in stream.feed(namespace, mode, data):
                            yield event
            finally:
                await parts.aclose()
            for event in stream.close():
                yield event
            after = await self._graph.aget_state(self._config) if self._has_checkpointer else None
            if stream.has_removed:
                kept = [without_files(one, log_notice) for one in from_langchain(_visible_messages(after))]
                yield MessagesSnapshotEvent(messages=as_agui_messages(kept))
            interrupts = [] if after is None else ask(after, run)
            if interrupts:
                yield RunFinishedEvent(
                    thread_id=run.thread_id,
                    run_id=run.run_id,
                    outcome=RunFinishedInterruptOutcome(interrupts=interrupts),
                )
        finally:
            _reset(token)

    # Input

    async def _input(self, before: Any) -> Any:
        """Return the input of the graph: messages and state that it does not have, or the answers it waits for."""
        if self._make_input is not None and not self._run.resume:
            return self._make_input(self._run)
        update = {} if self._make_input is not None else await self._update(before)
        if not self._run.resume:
            return update
        answers = read_answers(before, await answers_of(self._run))
        if answers is None:  # a breakpoint, not a question
            return None
        changes = {key: value for key, value in update.items() if key != _MESSAGES}
        return load("langgraph.types", "langgraph").Command(resume=answers, update=changes or None)

    async def _update(self, before: Any) -> dict[str, Any]:
        run = self._run
        values: Any = {} if before is None else before.values
        channels: Any = getattr(self._graph, "channels", None)
        update: dict[str, Any] = {}
        if is_object(values):
            self._take_state(values, sends=False)
        if is_object(run.input.state):
            for key, value in run.input.state.items():
                is_input = self._is_visible(key) and (channels is None or key in channels)
                if is_input and (key not in self._state or self._state[key] != value):
                    update[key] = value
        if run.tools and channels is not None and _TOOLS in channels:
            update[_TOOLS] = [_tool(tool) for tool in run.tools]
        update[_MESSAGES] = await self._new_messages(_messages_of(before))
        return update

    async def _new_messages(self, known: Sequence[Any]) -> list[Any]:
        """Return the messages to add to those of the checkpoint."""
        chat = await self._run.chat_messages()
        by_id = {message.id: message for message in known}
        if known:
            open_calls = _open_calls(known)
            chat = [one for one in chat if one.message_id in by_id or await self._is_new(one, open_calls)]
        wanted = to_langchain(provider_history(chat, unanswered="close").messages)
        shown = [message for message in known if message.type != "system"]
        if [message.id for message in shown] == [message.id for message in wanted[: len(shown)]]:
            return wanted[len(shown) :]
        # The history was edited, or is another branch.
        types = load("langchain_core.messages", "langchain-core")
        remove_all = load("langgraph.graph.message", "langgraph").REMOVE_ALL_MESSAGES
        hidden = [message for message in known if message.type == "system"]
        return [types.RemoveMessage(id=remove_all), *hidden, *(by_id.get(one.id, one) for one in wanted)]

    async def _is_new(self, message: ChatMessage, open_calls: set[str]) -> bool:
        """Return whether the graph has to get a message that its checkpoint does not have.

        A message that an earlier run of the graph has sent, and not kept, is not new. Examples are a text of a
        cancelled run, and one of a model whose answer is not in the state.
        """
        if message.role in ("user", "system", "developer"):
            return True
        if any(result.call_id in open_calls for result in message.results):
            return True
        return not await self._run.is_known(message.raw_representation)

    # State

    def _is_visible(self, key: str) -> bool:
        if self._visible is not None:
            return key in self._visible
        return key not in (_MESSAGES, _TOOLS) and not key.startswith("_")

    def _take_state(self, values: Any, *, sends: bool = True) -> None:
        """Read the visible values that have changed, and send them."""
        if not is_object(values):
            return
        has_changed = False
        for key, value in values.items():
            if not self._is_visible(key) or (key in self._seen and self._seen[key] is value):
                continue
            self._seen[key] = value
            try:
                plain = msgspec.to_builtins(value, enc_hook=_plain)
            except (TypeError, NotImplementedError):
                message = f"the state's {key!r} is not JSON and is not sent; leave it out of state_keys"
                log_notice(Notice(rule="langgraph", message=message))
                continue
            if key not in self._state or self._state[key] != plain:
                self._state[key] = plain
                has_changed = True
        if has_changed and sends:
            state = self._run.state
            self._run.state = {**(state if is_object(state) else {}), **self._state}


def _reset(token: Any) -> None:
    """Restore the context variable, unless the generator is closed from another context."""
    try:
        _current.reset(token)
    except ValueError:
        return


def _plain(value: Any) -> Any:
    """Convert a pydantic model for JSON."""
    dump = getattr(value, "model_dump", None)
    if dump is None:
        raise NotImplementedError
    return dump(mode="json")


def _messages_of(snapshot: Any) -> list[Any]:
    return [] if snapshot is None else _messages_in(snapshot.values)


def _messages_in(values: Any) -> list[Any]:
    found: Any = values.get(_MESSAGES) if is_object(values) else None
    return found if is_array(found) else []


def _open_calls(messages: Sequence[Any]) -> set[str]:
    """Return the ids of the calls without a result."""
    made = {call["id"] for message in messages if message.type == "ai" for call in message.tool_calls}
    return made - {message.tool_call_id for message in messages if message.type == "tool"}


def _visible_messages(snapshot: Any) -> list[Any]:
    return [message for message in _messages_of(snapshot) if message.type != "system"]


def _custom_event(data: Any, owner: str | None) -> Any:
    if isinstance(data, Wire) or is_official(data):
        return data
    value = msgspec.to_builtins(data, enc_hook=_plain)
    return CustomEvent(name="langgraph", value=value, subagent_run_id=owner)
