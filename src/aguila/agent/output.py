"""Layer: agent. All that an agent says goes through here, whichever form it has: one place, one order.

Above: ``handles``, ``writing`` and ``run`` (what is written), ``forms`` (what is yielded and returned). Below: the
event writer, which cannot write an illegal event, and the sink.

Before an event that is not a delta the state is compared and its changes go first. An agent's own RUN_FINISHED or
RUN_ERROR is kept for the executor: a run ends when its agent has. From its first chat update on, all that an agent
yields goes through the mapping of chat, which knows what is open; usage and questions in it are kept for the executor,
too. What a failed ``Sink.put`` refused is never followed
by anything but the end of the run, since nobody could know what the consumer has.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from typing import Any, Concatenate, NoReturn, ParamSpec, cast, get_args

from aguila.agent.chat_values import CHAT, is_account, is_delta, with_parts
from aguila.agent.context import RunContext, Sink
from aguila.agent.replay.branches import Branches
from aguila.agent.replay.filter import ReplayFilter
from aguila.agent.replay.ids import Ids
from aguila.agent.state import MAX_PAUSE, MIN_PAUSE, SharedState
from aguila.chat.from_chat.updates import UpdateWriter
from aguila.chat.hooks import NO_HOOKS, Hooks
from aguila.codec.compat.retired import RETIRED_CLASSES, RetiredEvents
from aguila.codec.official import from_official, is_official
from aguila.errors import EncodeError, IllegalStep
from aguila.offload import is_large, offload
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
from aguila.stream.json_values import copy_json
from aguila.stream.rules import TEXT
from aguila.stream.writer import Events, EventWriter

P = ParamSpec("P")
Make = Callable[Concatenate[EventWriter, P], Events]
"""A method of the event writer, to be called with the writer in charge."""

_EVENTS: frozenset[type[Any]] = frozenset(get_args(Event))
_BESIDE_TEXT: frozenset[type[Any]] = frozenset(
    {StateSnapshotEvent, StateDeltaEvent, CustomEvent, RawEvent, ActivitySnapshotEvent, ActivityDeltaEvent}
)
"""Events that may be yielded in the middle of a text without ending its message."""
_STATE: frozenset[type[Any]] = frozenset({StateDeltaEvent, StateSnapshotEvent})
_ARRAY: Any = (list, tuple)

_TIMER_SLACK = 0.001
"""Seconds that a timer of the event loop may be early."""


class OutputMapper:
    """The way of a run's events, from the agent to the sink."""

    def __init__(self, context: RunContext, sink: Sink) -> None:
        self._context = context
        self.sink = sink
        self.writer = context.writer
        self.branches = Branches(context.recorded, is_replay=context.replay is not None)
        self.ids = Ids(context.thread_id, context.root_run_id, self.branches)
        self.replaying: ReplayFilter | None = None
        self.front = context.writer
        """The writer that the agent writes to: the run's, or a replay's own."""
        if context.replay is not None:
            self.front = EventWriter(
                context.thread_id, context.run_id, new_id=context.new_id, state=_or_empty(context.input.state)
            )
            self.front.start()
            self.writer._state = copy_json(_or_empty(context.client_state))
            self.replaying = ReplayFilter(self.branches, self.front, context.writer)
        self.state = SharedState(self.front)
        self.ending: RunFinishedEvent | RunErrorEvent | None = None
        """The end of the run that the agent yielded itself."""
        self.failure: BaseException | None = None
        """What the sink raised."""
        self.is_over = False
        """Whether the run's terminal event was sent: an agent that still talks is not heard."""
        self.is_cancelled = False
        """Whether the run was asked to stop."""
        self.hooks: Hooks = NO_HOOKS
        """What is asked about chat contents before they are mapped."""
        self._retired = RetiredEvents(lambda: self.ids.mint("rsn"))
        self._sampler: StateSampler | None = None
        self._text: str | None = None  # the message that yielded strings go to
        self._called: frozenset[str] | None = None  # the calls in the history, once somebody asks
        self._chat: UpdateWriter | None = None  # once the agent has yielded something of a chat
        self._chats: list[UpdateWriter] = []  # it, and those of who speaks beside

    @property
    def is_muted(self) -> bool:
        """Whether what is said here and now was said by an earlier run."""
        branch = self.branches.place.branch  # to ask is not to begin: whether anyone asks may depend on others
        return branch.goal is not None or branch.is_quiet

    @property
    def usage(self) -> list[TokenUsage]:
        """What chat contents said was used."""
        return [usage for chat in self._chats for usage in chat.usage]

    @property
    def interrupts(self) -> list[Interrupt]:
        """The questions that chat contents asked."""
        return [interrupt for chat in self._chats for interrupt in chat.interrupts]

    def claim_call_id(self, given: str) -> str:
        """An id for a new call: the one given, unless that is none or means another call of the thread."""
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
        return call_id in self._called or self.front.has_call(call_id)

    # Written through handles

    async def send(self, make: Make[P], *args: P.args, **kwargs: P.kwargs) -> None:
        """Send what a method of the writer makes, after what changed in the state."""
        if self.is_over:
            await self._refuse()
        self._send_state()
        self._put(make(self.front, *args, **kwargs))
        if self.sink.is_full:
            await self.room()

    async def send_opener(self, make: Make[P], *args: P.args, **kwargs: P.kwargs) -> None:
        """The same for something that begins: it ends the message that yielded strings go to."""
        if self.is_over:
            await self._refuse()
        self._end_text()
        await self.send(make, *args, **kwargs)

    async def send_delta(self, make: Make[P], *args: P.args, **kwargs: P.kwargs) -> None:
        """The same for a delta: the state is compared only now and then."""
        if self.is_over:
            await self._refuse()
        if self.state.is_due():
            self._send_state()
        self._put(make(self.front, *args, **kwargs))
        if self.sink.is_full:
            await self.room()

    async def patch_state(self, patch: Sequence[JsonPatchOperation]) -> None:
        """Change the state by operations, without comparing."""
        if self.is_over:
            await self._refuse()
        self._send_state()
        if self.front is not self.writer and self.state.is_read:
            self.front.set_state(self.state.value)
        events = self.front.patch_state(patch)
        self.state.patch(patch, is_sent=self.front is self.writer)
        if self.front is self.writer:
            self._put(events)
        else:
            self._send_state()
        await self.room()

    async def snapshot_state(self) -> None:
        """Send the whole state."""
        if self.is_over:
            await self._refuse()
        snapshot = copy_json(self.state.value)
        if self.branches.count() and self.branches.is_caught_up:
            self._put_state(self.writer.emit(StateSnapshotEvent(snapshot=snapshot)))
        await self.room()

    async def flush(self) -> None:
        """Send the changes of the state now."""
        if self.is_over:
            await self._refuse()
        self._send_state()
        await self.room()

    # Sampling the state

    def begin_sampling(self) -> None:
        """Send changes of the state also while the agent waits. Only for agents on the event loop."""
        self.state.on_read = self._sample  # until then there is nothing to compare

    def _sample(self) -> None:
        self._sampler = StateSampler(self)

    def end_sampling(self) -> None:
        """Send changes of the state only with other events."""
        self.state.on_read = None
        if self._sampler is not None:
            self._sampler.stop()

    def send_state_if_due(self) -> None:
        """Send the changes of the state, unless it was compared a moment ago."""
        if self.state.is_due():
            self._send_state()

    def sample_state(self) -> bool:
        """Send the changes of the state while the agent waits; gives whether there were any."""
        replaying = self.replaying
        if self.sink.is_full or (replaying is not None and not (replaying.has_spoken and self.branches.is_caught_up)):
            return False
        events = self.state.changes(self.writer)
        if events:
            self._accept_by_sink(events)
        return len(events) > 0

    async def room(self) -> None:
        """Wait until the run is not too far ahead."""
        if self.is_over:
            await self._refuse()
        try:
            await self.sink.room()
        except Exception as error:
            self.failure = error
            raise

    # Chat updates

    def new_chat(self, messages: Sequence[Message] = ()) -> UpdateWriter:
        """A mapping of chat updates for one who speaks. ``messages`` are those whose ids are not to be used again."""
        chat = UpdateWriter(self.front, messages=messages, hooks=self.hooks, new_id=lambda: self.ids.mint("msg"))
        self._chats.append(chat)
        return chat

    async def tell(self, chat: UpdateWriter, value: Any) -> None:
        """Send what a chat update becomes for one who speaks. Raises as ``accept`` does."""
        if self.is_over:
            await self._refuse()
        if self._text is not None:
            self._end_text()
        if self.hooks is NO_HOOKS and is_delta(value):  # most of what a model says; it becomes nothing but itself
            if self.ending is not None:
                self._refuse_more(type(value).__name__)
            if self.state.is_due():
                self._send_state()
            self._put(chat.feed(value))
        else:
            if self.is_slow(value):
                value = await offload(with_parts, value)
            self._accept_update(chat, value)
        if self.sink.is_full:
            await self.room()

    async def close_chat(self, chat: UpdateWriter, metadata: Metadata | None) -> None:
        """End the text or the thought of one who speaks."""
        if self.is_over:
            await self._refuse()
        self._put(chat.close(metadata))
        if self.sink.is_full:
            await self.room()

    # Yielded and returned

    def is_slow(self, value: Any) -> bool:
        """Whether a chat value should be encoded in a thread before it is accepted; hooks want it as it is."""
        return self.hooks is NO_HOOKS and is_large(value)

    def accept(self, value: Any) -> None:
        """Take what an agent yielded.

        Raises ``EncodeError`` for what is no output, and as the writer and the sink do.
        """
        if value.__class__ is str:
            self._accept_text(value)
        elif value.__class__ in _EVENTS:
            self._accept_event(value)
        elif isinstance(value, CHAT):
            self._accept_chat(value)
        elif isinstance(value, _ARRAY):
            for element in cast("Sequence[Any]", value):
                self.accept(element)
        elif isinstance(value, str):
            self._accept_text(str(value))
        elif value.__class__ in RETIRED_CLASSES:
            self._accept_event(self._retired.convert(value))
        elif is_official(value):
            event = from_official(value)
            if event.__class__ in RETIRED_CLASSES:
                event = self._retired.convert(event)
            if event.__class__ not in _EVENTS:
                raise EncodeError(f"an agent yielded ag_ui's {type(value).__name__}, which is no event")
            self._accept_event(event)
        else:
            may = "it may yield text, events, chat updates and messages, and lists of these"
            raise EncodeError(f"an agent yielded {type(value).__name__}; {may}")

    def accept_return(self, value: Any) -> Any:
        """Take what an agent returned: what it could have yielded is said, but for lists; anything else is the run's
        result, which this gives.

        Raises ``EncodeError`` if the result is not JSON.
        """
        if value is None:
            return None
        is_event = value.__class__ in _EVENTS or value.__class__ in RETIRED_CLASSES
        if is_event or isinstance(value, (str, *CHAT)) or is_official(value):
            self.accept(value)
            return None
        return copy_json(value)

    def _accept_text(self, text: str) -> None:
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
            self._put(self.front.start_text(message_id))
        elif self.state.is_due():
            self._send_state()
        # As ``front.write_text`` and ``_put`` do, without the calls in between: this is most of what a run says.
        events = self.front.write(TextMessageContentEvent(message_id=message_id, delta=text))
        if self.replaying is not None or self.failure is not None:
            self._put(events)
            return
        self.branches.wrote(message_id, len(text))
        try:
            self.sink.put(events)
        except BaseException as error:
            self.failure = error
            raise

    def _accept_event(self, event: Any) -> None:
        cls = event.__class__
        if cls is RunErrorEvent:
            if not isinstance(self.ending, RunErrorEvent):
                self.ending = event  # also after RUN_FINISHED: a late failure is a failure (LIFE-15)
            return
        if self.ending is not None:
            self._refuse_more(str(event.type))
        if cls not in _BESIDE_TEXT:
            self._end_text()
        if cls is RunFinishedEvent:
            self.ending = self._own_boundary(event)
            return
        if cls is RunStartedEvent:
            self.front.emit(self._own_boundary(event))  # refused, or already sent
            return
        if self._chat is not None:
            self._accept_chat(event)
            return
        self._send_state()
        if cls is StateDeltaEvent or cls is StateSnapshotEvent:
            self._accept_state(event)
        else:
            self._put(self.front.emit(event))

    def _accept_state(self, event: StateDeltaEvent | StateSnapshotEvent) -> None:
        if self.front is not self.writer and self.state.is_read:
            self.front.set_state(self.state.value)
        events = self.front.emit(event)
        self.state.adopt()
        if self.front is self.writer:
            self._put(events)
        else:
            self._send_state()

    def _accept_chat(self, value: Any) -> None:
        if self._chat is None:
            self._end_text()
            self._chat = self.new_chat(self._context.input.messages)
            self._chat.retired = self._retired  # a thought may go on that was started before
        self._accept_update(self._chat, value)

    def _accept_update(self, chat: UpdateWriter, value: Any) -> None:
        if self.ending is not None and not is_account(value):
            self._refuse_more(type(value).__name__)
        is_replayed = self.front is not self.writer
        if value.__class__ is not str and not is_delta(value):
            self._send_state()
            if is_replayed and self.state.is_read:
                self.front.set_state(self.state.value)
        elif self.state.is_due():
            self._send_state()
        chat.counts_usage = not self.is_muted
        try:
            events = chat.feed(value)
        except Exception:
            self._put_chat(chat.take(), is_replayed)  # what it said before it could not go on
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

    def _own_boundary(self, event: Any) -> Any:
        """An agent that is replayed takes the ids of the run from an input that is the root run's."""
        if event.thread_id == self._context.thread_id and event.run_id == self._context.input.run_id:
            return replace(event, run_id=self._context.run_id)
        return event

    def _refuse_more(self, what: str) -> NoReturn:
        assert self.ending is not None  # noqa: S101
        raise IllegalStep(f"{what} after the agent's own {self.ending.type}", rule="LIFE-15")

    # How it is done

    def _end_text(self) -> None:
        message_id, self._text = self._text, None
        if message_id is not None and self.front.has_open(TEXT, message_id):
            self._put(self.front.end_text(message_id))

    def send_last_state(self) -> None:
        """Compare the state once more, before the terminal event."""
        events = self.state.changes(self.writer)
        if events:
            self._accept_by_sink(events)

    def _send_state(self) -> None:
        # Before all branches are where they were, the state may be older than what the client has.
        if self.replaying is None or (self.branches.is_caught_up and not self.is_muted):
            events = self.state.changes(self.writer)
            if events:
                self._put_state(events)

    def _put_state(self, events: Events) -> None:
        """The writer's own state events: those of a replay's front are never passed on."""
        self._accept_by_sink(events if self.replaying is None else [*self.replaying.reopened(), *events])

    def _put(self, events: Events) -> None:
        if self.replaying is None:
            for event in events:
                self.branches.tell(event)
        else:
            try:
                events = self.replaying.pass_on(events)
            except BaseException as error:
                self.failure = error  # some of it may be written and not sent
                raise
        if events:
            self._accept_by_sink(events)

    def _accept_by_sink(self, events: Events) -> None:
        if self.failure is not None:
            raise self.failure
        try:
            self.sink.put(events)
        except BaseException as error:
            self.failure = error
            raise

    async def _refuse(self) -> NoReturn:
        # The agent swallowed its cancellation, or left a task behind. It gives way to others before it is told again,
        # so that one that swallows this too cannot stop the loop.
        await asyncio.sleep(0)
        raise asyncio.CancelledError("the run is over")


class StateSampler:
    """Compares the state while an agent on the event loop waits for something else than the run.

    The pause between two comparisons doubles while nothing changes, and grows with the cost of a comparison.
    """

    __slots__ = ("_loop", "_output", "_pause", "_timer")

    def __init__(self, output: OutputMapper) -> None:
        self._output = output
        self._pause = MIN_PAUSE
        self._loop = asyncio.get_running_loop()
        self._timer: asyncio.TimerHandle | None = None
        self._schedule()

    def stop(self) -> None:
        """Compare no more."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _schedule(self) -> None:
        self._timer = self._loop.call_later(self._pause, self._sample)

    def _sample(self) -> None:
        output = self._output
        self._timer = None
        if output.is_over or output.failure is not None:
            return
        wait = output.state.due_in()
        if wait > _TIMER_SLACK:  # it was compared meanwhile, with another event
            self._timer = self._loop.call_later(wait, self._sample)
            return
        has_changed = False
        try:
            has_changed = output.sample_state()
        except EncodeError as error:
            if error is output.failure:
                return
            # A state that is not JSON fails the agent at its next event, or the run at its end.
        except Exception:  # noqa: BLE001 - the sink refused; the agent gets the failure with its next event
            return
        least = output.state.pause
        self._pause = least if has_changed else min(2 * self._pause, max(MAX_PAUSE, least))
        self._schedule()


def _or_empty(state: Any) -> Any:
    return {} if state is None else state
