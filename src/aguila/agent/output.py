"""Turn everything that an agent writes, yields or returns into the events of its run, in one order.

Before an event that is not a delta, the state is compared and its changes are sent. An agent's own RUN_FINISHED or
RUN_ERROR is kept for the executor, because a run ends when its agent has ended. From the first chat update on,
everything that an agent yields goes through the chat mapping, which knows the open items. Usage and questions in chat
contents are kept for the executor too. After the sink has refused events, only the end of the run follows: it is
unknown which events the consumer has.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from functools import cached_property
from typing import Any, Concatenate, NoReturn, ParamSpec, cast, get_args

from aguila.agent.chat_values import CHAT, is_delta, is_usage, with_parts
from aguila.agent.context import RunContext, Sink
from aguila.agent.replay.branches import Branches
from aguila.agent.replay.comparison import ReplayComparison
from aguila.agent.replay.filter import ReplayFilter
from aguila.agent.replay.ids import Ids
from aguila.agent.state import SharedState
from aguila.agent.state_sampler import StateSampler
from aguila.chat.from_chat.updates import UpdateWriter
from aguila.chat.hooks import NO_HOOKS, Hooks
from aguila.codec.compat.retired import RETIRED_CLASSES, RetiredEvents
from aguila.codec.notices import Notice, log_notice
from aguila.codec.official import from_official, is_official
from aguila.errors import EncodeError, IllegalStep
from aguila.offload import is_large, is_large_patch, offload
from aguila.protocol import (
    ActivityDeltaEvent,
    ActivitySnapshotEvent,
    AssistantMessage,
    CustomEvent,
    Event,
    Interrupt,
    JsonPatchOperation,
    Message,
    Metadata,
    RawEvent,
    RunErrorEvent,
    RunFinishedEvent,
    RunStartedEvent,
    StateDeltaEvent,
    StateSnapshotEvent,
    TextMessageContentEvent,
    TokenUsage,
    ToolCall,
    replace,
)
from aguila.stream.delta_merger import MAX_DELTA
from aguila.stream.json_values import copy_json
from aguila.stream.verification.rules import TEXT
from aguila.stream.writer import Events, EventWriter

P = ParamSpec("P")
Make = Callable[Concatenate[EventWriter, P], Events]
"""A method of the event writer; it is called with the agent's writer."""
MakeDelta = Callable[[EventWriter, str, str], Events]
"""A method of the event writer that appends text to an open item."""

_EVENTS: frozenset[type[Any]] = frozenset(get_args(Event))
_BESIDE_TEXT: frozenset[type[Any]] = frozenset(
    {StateSnapshotEvent, StateDeltaEvent, CustomEvent, RawEvent, ActivitySnapshotEvent, ActivityDeltaEvent}
)
"""Events that may be yielded in the middle of a text without ending its message."""
_STATE: frozenset[type[Any]] = frozenset({StateDeltaEvent, StateSnapshotEvent})
_ARRAY: Any = (list, tuple)


class OutputMapper:
    """Maps the output of one agent to events and puts them into the sink."""

    def __init__(self, context: RunContext, sink: Sink) -> None:
        self._context = context
        self.sink = sink
        self.writer = context.writer
        self.branches = Branches(context.recorded, is_replay=context.replay is not None)
        self.ids = Ids(context.thread_id, context.root_run_id, self.branches)
        self.replaying: ReplayFilter | None = None
        self._comparison: ReplayComparison | None = None  # until the replay differs from what was sent before
        self.agent_writer = context.writer
        """The writer that the agent's calls go to: that of the run, or in a replay a separate one."""
        if context.replay is not None:
            self.agent_writer = EventWriter(
                context.thread_id, context.run_id, new_id=context.new_id, state=_or_empty(context.input.state)
            )
            self.agent_writer.start()
            self.writer.assume_state(_or_empty(context.client_state))
            self.replaying = ReplayFilter(self.branches, self.agent_writer, context.writer)
            if context.replay.sent:
                self._comparison = ReplayComparison(context.replay.sent)
        self.state = SharedState(self.agent_writer)
        self.ending: RunFinishedEvent | RunErrorEvent | None = None
        """The terminal event that the agent sent itself."""
        self.failure: BaseException | None = None
        """The exception of the sink."""
        self.is_over = False
        """Whether the run has ended: later output of the agent is refused."""
        self.is_cancelled = False
        """Whether the run was cancelled."""
        self.hooks: Hooks = NO_HOOKS
        """Called for chat contents before they are mapped."""
        self._sampler: StateSampler | None = None
        self._text: str | None = None  # the id of the message that yielded strings go to
        self._last_delta: TextMessageContentEvent | None = None  # its last delta; None if that must not be extended
        self._called: frozenset[str] | None = None  # ids of the calls in the history, collected on first use
        self._chat: UpdateWriter | None = None  # the mapping for yielded chat values, from the first of them on
        self._chats: list[UpdateWriter] = []  # _chat, and those of chat handles

    @cached_property
    def _retired(self) -> RetiredEvents:
        return RetiredEvents(lambda: self.ids.mint("rsn"))

    @property
    def is_muted(self) -> bool:
        """Whether the caller's output was sent by an earlier run."""
        branch = self.branches.place.branch  # here() would begin a branch, and reading this must not
        return branch.goal is not None or branch.repeats_effect

    @property
    def usage(self) -> list[TokenUsage]:
        """The token usage in chat contents."""
        return [usage for chat in self._chats for usage in chat.usage]

    @property
    def interrupts(self) -> list[Interrupt]:
        """The questions in chat contents."""
        return [interrupt for chat in self._chats for interrupt in chat.interrupts]

    def claim_call_id(self, given: str) -> str:
        """Return an id for a new call: the given one, unless it is empty or another call of the thread has it."""
        return self.ids.claim(given, self._is_called)

    def _is_called(self, call_id: str) -> bool:
        if self._called is None:
            resumed = self._context.resume_input
            histories = (self._context.input.messages, () if resumed is None else resumed.messages)
            self._called = frozenset(
                call.id
                for messages in histories
                for message in messages
                if isinstance(message, AssistantMessage)
                for call in message.tool_calls or ()
                if isinstance(call, ToolCall)
            )
        return call_id in self._called or self.agent_writer.has_call(call_id)

    # Output through handles

    async def send(self, make: Make[P], *args: P.args, **kwargs: P.kwargs) -> None:
        """Send the changes of the state, then the events that a method of the writer makes."""
        if self.is_over:
            await self._raise_over()
        self._send_state()
        self._put(make(self.agent_writer, *args, **kwargs))
        if self.sink.is_full:
            await self.room()

    async def send_opener(self, make: Make[P], *args: P.args, **kwargs: P.kwargs) -> None:
        """Send the events of a new item as ``send`` does. First end the message that yielded strings go to."""
        if self.is_over:
            await self._raise_over()
        self._end_text()
        await self.send(make, *args, **kwargs)

    async def send_delta(self, last: Event | None, make: MakeDelta, item_id: str, text: str) -> Event:
        """Send a delta as ``send`` does, but compare the state only if that is due.

        ``last`` is the item's last delta. Returns the new one.
        """
        if self.is_over:
            await self._raise_over()
        if self.state.is_due():
            self._send_state()
        if (
            last is not None
            and last is self.sink.last_delta
            and self.failure is None
            and self.replaying is None
            and len(text) <= MAX_DELTA
        ):
            # The writer accepted the last delta, and nothing came after it.
            self.branches.count_characters(item_id, len(text))
            self.sink.extend(text)
        else:
            events = make(self.agent_writer, item_id, text)
            last = events[-1]
            self._put(events)
        if self.sink.is_full:
            await self.room()
        return last

    async def patch_state(self, patch: Sequence[JsonPatchOperation]) -> None:
        """Apply a JSON Patch to the state, without comparing it."""
        if self.is_over:
            await self._raise_over()
        self._send_state()
        if self.agent_writer is not self.writer and self.state.is_read:
            self.agent_writer.set_state(self.state.value)
        events = self.agent_writer.patch_state(patch)
        self.state.patch(patch, is_sent=self.agent_writer is self.writer)
        if self.agent_writer is self.writer:
            self._put(events)
        else:
            self._send_state()
        await self.room()

    async def snapshot_state(self) -> None:
        """Send the whole state."""
        if self.is_over:
            await self._raise_over()
        snapshot = copy_json(self.state.value)
        if self.branches.count() and self.branches.is_caught_up:
            self._put_state(self.writer.emit(StateSnapshotEvent(snapshot=snapshot)))
        await self.room()

    async def flush(self) -> None:
        """Send the changes of the state now."""
        if self.is_over:
            await self._raise_over()
        self._send_state()
        await self.room()

    # Sampling the state

    def begin_sampling(self) -> None:
        """Compare the state also while the agent awaits something. Only for agents on the event loop."""
        self.state.on_read = self._sample  # nothing can have changed before

    def _sample(self) -> None:
        self._sampler = StateSampler(self)

    def end_sampling(self) -> None:
        """Compare the state only before other events."""
        self.state.on_read = None
        if self._sampler is not None:
            self._sampler.stop()

    def send_state_if_due(self) -> None:
        """Send the changes of the state if a comparison is due."""
        if self.state.is_due():
            self._send_state()

    def sample_state(self) -> bool:
        """Send the changes of the state while the agent awaits something. Return whether there were any."""
        replaying = self.replaying
        if self.sink.is_full or (
            replaying is not None and not (replaying.has_progressed and self.branches.is_caught_up)
        ):
            return False
        events = self.state.changes(self.writer)
        if events:
            self._put_into_sink(events)
        return len(events) > 0

    async def room(self) -> None:
        """Wait until the sink accepts more events."""
        if self.is_over:
            await self._raise_over()
        try:
            await self.sink.room()
        except Exception as error:
            self.failure = error
            raise

    # Chat updates

    def new_chat(self, messages: Sequence[Message] = ()) -> UpdateWriter:
        """Make a mapping for one stream of chat updates. It does not use the ids of ``messages`` again."""
        chat = UpdateWriter(self.agent_writer, messages=messages, hooks=self.hooks, new_id=lambda: self.ids.mint("msg"))
        self._chats.append(chat)
        return chat

    async def send_update(self, chat: UpdateWriter, value: Any) -> None:
        """Send the events of one chat update. Raises as ``accept`` does."""
        if self.is_over:
            await self._raise_over()
        if self._text is not None:
            self._end_text()
        if self.hooks is NO_HOOKS and is_delta(value):  # the common case: it maps to one event
            if self.ending is not None:
                self._refuse_more(type(value).__name__)
            if self.state.is_due():
                self._send_state()
            self._put(chat.feed(value))
        else:
            if self.is_slow(value):
                value = await offload(self.prepare, value)
            self._accept_update(chat, value)
        if self.sink.is_full:
            await self.room()

    async def close_chat(self, chat: UpdateWriter, metadata: Metadata | None) -> None:
        """End the text or reasoning message that a stream of chat updates has open."""
        if self.is_over:
            await self._raise_over()
        self._put(chat.close(metadata))
        if self.sink.is_full:
            await self.room()

    # Yielded and returned values

    def is_slow(self, value: Any) -> bool:
        """Return whether ``prepare`` should be called in a thread: the value is a large state event or chat value.

        Hooks get chat values as they are.
        """
        if value.__class__ is StateDeltaEvent:
            return is_large_patch(value.delta)
        if value.__class__ is StateSnapshotEvent:
            return is_large(value.snapshot)
        return self.hooks is NO_HOOKS and isinstance(value, CHAT) and is_large(value)

    def prepare(self, value: Any) -> Any:
        """Do the slow part of accepting a value, for which no other output has to wait. Return the value to accept."""
        if value.__class__ in _STATE:
            self.agent_writer.prepare(value)
            return value
        return with_parts(value)

    def accept(self, value: Any) -> None:
        """Send a value that the agent yielded.

        Raises ``EncodeError`` for a value that is not output, and whatever the writer and the sink raise.
        """
        if value.__class__ is str:
            self.accept_text(value)
        elif value.__class__ in _EVENTS:
            self._accept_event(value)
        elif isinstance(value, CHAT):
            self._accept_chat(value)
        elif isinstance(value, _ARRAY):
            for element in cast("Sequence[Any]", value):
                self.accept(element)
        elif isinstance(value, str):
            self.accept_text(str(value))
        elif value.__class__ in RETIRED_CLASSES:
            self._accept_event(self._retired.convert(value))
        elif is_official(value):
            event = from_official(value)
            if event.__class__ in RETIRED_CLASSES:
                event = self._retired.convert(event)
            if event.__class__ not in _EVENTS:
                raise EncodeError(f"the agent yielded ag_ui's {type(value).__name__}, which is not an event")
            self._accept_event(event)
        else:
            allowed = "yield text, events, chat updates, chat messages or lists of these"
            raise EncodeError(f"the agent yielded {type(value).__name__}; {allowed}")

    def accept_return(self, value: Any) -> Any:
        """Send a returned value that could have been yielded. Return any other value: it is the run's result.

        A list is always a result. Raises ``EncodeError`` if the result is not JSON.
        """
        if value is None:
            return None
        is_event = value.__class__ in _EVENTS or value.__class__ in RETIRED_CLASSES
        if is_event or isinstance(value, (str, *CHAT)) or is_official(value):
            self.accept(value)
            return None
        return copy_json(value)

    def accept_text(self, text: str) -> None:
        """Send text that the agent yielded. Raises as ``accept``."""
        last = self._last_delta
        if (
            last is not None
            and last is self.sink.last_delta
            and self.failure is None
            and not (self.state.is_read and self.state.is_due())
            and 0 < len(text) <= MAX_DELTA
        ):
            # Almost every value comes this way. The writer accepted the last delta, and nothing came after it.
            self.branches.count_characters(last.message_id, len(text))
            self.sink.extend(text)
            return
        if self.ending is not None:
            self._refuse_more("text")
        if text == "":
            return
        if self._chat is not None:
            self._accept_chat(text)
            return
        message_id = self._text
        if message_id is None:
            self._send_state()
            message_id = self._text = self.ids.mint("msg")
            self._put(self.agent_writer.start_text(message_id))
        elif self.state.is_due():
            self._send_state()
        # The same as ``agent_writer.write_text`` and ``_put``, inlined: without merging most events come this way.
        delta = TextMessageContentEvent(message_id=message_id, delta=text)
        events = self.agent_writer.write(delta)
        if self.replaying is not None or self.failure is not None:
            self._put(events)
            return
        self._last_delta = delta
        self.branches.count_characters(message_id, len(text))
        try:
            self.sink.put(events)
        except BaseException as error:
            self.failure = error
            raise

    def _accept_event(self, event: Any) -> None:
        cls = event.__class__
        if cls is RunErrorEvent:
            self._last_delta = None
            if not isinstance(self.ending, RunErrorEvent):
                self.ending = event  # also after RUN_FINISHED: a late failure is a failure (LIFE-15)
            return
        if self.ending is not None:
            self._refuse_more(str(event.type))
        if cls not in _BESIDE_TEXT:
            self._end_text()
        if cls is RunFinishedEvent:
            self.ending = self._with_run_id(event)
            return
        if cls is RunStartedEvent:
            self.agent_writer.emit(self._with_run_id(event))  # refused, or already sent
            return
        if self._chat is not None:
            self._accept_chat(event)
            return
        self._send_state()
        if cls is StateDeltaEvent or cls is StateSnapshotEvent:
            self._accept_state(event)
        else:
            self._put(self.agent_writer.emit(event))

    def _accept_state(self, event: StateDeltaEvent | StateSnapshotEvent) -> None:
        if self.agent_writer is not self.writer and self.state.is_read:
            self.agent_writer.set_state(self.state.value)
        events = self.agent_writer.emit(event)
        self.state.adopt()
        if self.agent_writer is self.writer:
            self._put(events)
        else:
            self._send_state()

    def _accept_chat(self, value: Any) -> None:
        if self._chat is None:
            self._end_text()
            self._chat = self.new_chat(self._context.input.messages)
            self._chat.retired = self._retired  # retired events may continue reasoning that was started before
        self._accept_update(self._chat, value)

    def _accept_update(self, chat: UpdateWriter, value: Any) -> None:
        if self.ending is not None and not is_usage(value):
            self._refuse_more(type(value).__name__)
        is_replayed = self.agent_writer is not self.writer
        if value.__class__ is not str and not is_delta(value):
            self._send_state()
            if is_replayed and self.state.is_read:
                self.agent_writer.set_state(self.state.value)
        elif self.state.is_due():
            self._send_state()
        chat.counts_usage = not self.is_muted
        try:
            events = chat.feed(value)
        except Exception:
            self._put_chat(chat.take(), is_replayed)  # the events from before the failure
            raise
        self._put_chat(events, is_replayed)
        if chat.ending is not None and self.ending is None:
            self.ending = chat.ending

    def _put_chat(self, events: Events, is_replayed: bool) -> None:
        has_state = any(event.__class__ in _STATE for event in events)
        if has_state:
            self.state.adopt()
        self._put(events)
        if has_state and is_replayed:
            self._send_state()

    def _with_run_id(self, event: Any) -> Any:
        """Replace the run id by the current one: a replayed agent reads that of the root run from its input."""
        if event.thread_id == self._context.thread_id and event.run_id == self._context.input.run_id:
            return replace(event, run_id=self._context.run_id)
        return event

    def _refuse_more(self, what: str) -> NoReturn:
        assert self.ending is not None  # noqa: S101
        raise IllegalStep(f"{what} after the agent's own {self.ending.type}", rule="LIFE-15")

    # State and sink

    def _end_text(self) -> None:
        message_id, self._text, self._last_delta = self._text, None, None
        if message_id is not None and self.agent_writer.has_open(TEXT, message_id):
            self._put(self.agent_writer.end_text(message_id))

    def send_last_state(self) -> None:
        """Compare the state once more, before the terminal event."""
        events = self.state.changes(self.writer)
        if events:
            self._put_into_sink(events)

    def _send_state(self) -> None:
        # Until all branches have caught up, the state may be older than that of the client.
        if self.replaying is None or (self.branches.is_caught_up and not self.is_muted):
            events = self.state.changes(self.writer)
            if events:
                self._put_state(events)

    def _put_state(self, events: Events) -> None:
        """Put state events of the run's writer: a replay filter never passes on those of the agent's."""
        self._put_into_sink(events if self.replaying is None else [*self.replaying.reopen_around(), *events])

    def _put(self, events: Events) -> None:
        if self.replaying is None:
            for event in events:
                self.branches.count_event(event)
        else:
            try:
                if self._comparison is not None:
                    self._compare(self._comparison, events)
                events = self.replaying.pass_on(events)
            except BaseException as error:
                self.failure = error  # some events may be written and not sent
                raise
        if events:
            self._put_into_sink(events)

    def _compare(self, comparison: ReplayComparison, events: Events) -> None:
        """Report the first difference of suppressed output. Raises ``IllegalStep`` with ``debug``."""
        branch = self.branches.place.branch
        if branch.goal is None or branch.repeats_effect:
            return
        for event in events:
            difference = comparison.find_difference(event)
            if difference is not None:
                self._comparison = None
                message = (
                    f"the agent does not repeat what it sent before the question: {difference}; record what may change"
                    " (random values, the time, the order of a set) with run.once"
                )
                if self._context.debug:
                    raise IllegalStep(message, rule="replay-differs")
                log_notice(Notice(rule="replay-differs", message=message, event_type=event.type))
                return

    def _put_into_sink(self, events: Events) -> None:
        if self.failure is not None:
            raise self.failure
        try:
            self.sink.put(events)
        except BaseException as error:
            self.failure = error
            raise

    async def _raise_over(self) -> NoReturn:
        # The agent swallowed its cancellation, or left a task behind. Yield to the loop first: an agent that swallows
        # this error too must not block it.
        await asyncio.sleep(0)
        raise asyncio.CancelledError("the run is over")


def _or_empty(state: Any) -> Any:
    return {} if state is None else state
