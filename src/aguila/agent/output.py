"""The one way out of an agent: everything that it yields, returns or writes through a handle becomes events here.

Before an event that is not a delta, the state is compared and its changes are sent. The events of a first run are only
counted; in a replay a filter drops those that an earlier run sent. After the sink has refused events, only the end of
the run follows: it is unknown which events the consumer has.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from typing import Any, NoReturn, ParamSpec, cast, overload

from msgspec import UNSET, UnsetType

from aguila.agent.context import RunContext, Sink, find_call_ids
from aguila.agent.replay.branches import Branches
from aguila.agent.replay.filter import ReplayFilter
from aguila.agent.state import SharedState, StateSampler
from aguila.agent.yielded import YieldedValues
from aguila.offload import offload
from aguila.protocol import (
    JsonPatchOperation,
    StateSnapshotEvent,
    TextMessageContentEvent,
    TextMessageStartEvent,
)
from aguila.stream.json_values import copy_json
from aguila.stream.verification.rules import TEXT
from aguila.stream.writer import Events, EventWriter

P = ParamSpec("P")

_ARRAY: Any = (list, tuple)


class Output:
    """Puts the output of one agent into the sink."""

    def __init__(self, context: RunContext, sink: Sink) -> None:
        self._context = context
        self.sink = sink
        self.writer = self.agent_writer = context.writer
        """The writer of the run, and the one that the agent's calls go to. In a replay the agent has its own."""
        is_replay = context.replay is not None
        self.branches = Branches(context.thread_id, context.root_run_id, is_replay, has_progressed=not is_replay)
        self.filter: ReplayFilter | None = None
        if context.replay is not None:
            self.branches.load_goals(context.recorded)
            self.agent_writer = EventWriter(
                context.thread_id, context.run_id, new_id=context.new_id, state=_or_empty(context.input.state)
            )
            self.agent_writer.start()
            self.writer.assume_state(_or_empty(context.client_state))
            self.filter = ReplayFilter(
                self.branches, self.agent_writer, self.writer, sent=context.replay.sent, debug=context.debug
            )
        self.state = SharedState(self.agent_writer, is_replay, may_differ=is_replay)
        self.yielded = YieldedValues(context, self)
        self.failure: BaseException | None = None
        """The exception of the sink."""
        self.is_over = False
        """Whether the run has ended: later output of the agent is refused."""
        self.is_cancelled = False
        """Whether the run was cancelled."""
        self.title: str | UnsetType | None = UNSET
        """The new title of the thread, if the agent set one."""
        self.sampler: StateSampler | None = None
        """Compares the state while the agent awaits something, from when the agent first reads it."""
        self._text: str | None = None  # the id of the message that yielded strings go to
        self._called: frozenset[str] | None = None  # ids of the calls in the history, collected on first use

    @property
    def is_muted(self) -> bool:
        """Whether the caller's output was sent by an earlier run."""
        branch = self.branches.place.branch  # here() would begin a branch, and reading this must not
        return branch.goal is not None or branch.repeats_effect

    def claim_call_id(self, given: str) -> str:
        """Return an id for a new call: the given one, unless it is empty or another call of the thread has it."""
        return self.branches.claim_call_id(given, self._is_called)

    def _is_called(self, call_id: str) -> bool:
        if self._called is None:
            resumed = self._context.resume_input
            self._called = self._context.earlier_calls.union(
                find_call_ids(self._context.input.messages), () if resumed is None else find_call_ids(resumed.messages)
            )
        return call_id in self._called or self.agent_writer.has_call(call_id)

    @overload
    async def send(self, value: Callable[P, Events], /, *args: P.args, **kwargs: P.kwargs) -> None: ...
    @overload
    async def send(self, value: Any, /) -> None: ...
    async def send(self, value: Any, /, *args: Any, **kwargs: Any) -> None:
        """Send what an agent may yield; or, with arguments, the events of a method of the agent's writer.

        Raises ``EncodeError`` for a value that is not output, and whatever the writer and the sink raise.
        """
        if self.is_over:
            await self._raise_over()
        if value.__class__ is not str and not args:
            if isinstance(value, _ARRAY):
                for element in cast("Sequence[Any]", value):
                    await self.send(element)
                return
            if self.yielded.is_large(value):
                value = await offload(self.yielded.prepare, value)
        if self.state.may_differ and self.state.is_due(value):
            self.send_state()
        if args:
            events = value(*args, **kwargs)
        else:
            events = self._events_of_text(str(value)) if isinstance(value, str) else self.yielded.events_of(value)
        self.put(events)
        if self.sink.is_full:
            await self.room()

    def _events_of_text(self, text: str) -> Events:
        """Return the events of a yielded string: more of the message that the strings before it went to."""
        if self.yielded.ending is not None:
            self.yielded.refuse_more("text")
        if text == "":
            return []
        if self.yielded.chat is not None:
            return self.yielded.events_of_update(self.yielded.chat, text)
        if self._text is not None:
            return self.agent_writer.emit(TextMessageContentEvent(message_id=self._text, delta=text))
        if self.state.may_differ and self.state.is_due(None):
            self.send_state()
        self._text = self.branches.new_id("msg")
        events = self.agent_writer.emit(TextMessageStartEvent(message_id=self._text, role="assistant"))
        return events + self.agent_writer.emit(TextMessageContentEvent(message_id=self._text, delta=text))

    def end_text(self) -> None:
        """End the message that yielded strings go to."""
        message_id, self._text = self._text, None
        if message_id is not None and self.agent_writer.has_open(TEXT, message_id):
            self.put(self.agent_writer.end_text(message_id))

    async def send_opener(self, make: Callable[P, Events], *args: P.args, **kwargs: P.kwargs) -> None:
        """Send the events of a new item as ``send`` does. First end the message that yielded strings go to."""
        if self.is_over:
            await self._raise_over()
        self.end_text()
        await self.send(make, *args, **kwargs)

    def put(self, events: Events) -> None:
        """Put events of the agent's writer into the sink, as far as they are new."""
        if self.failure is not None:
            raise self.failure
        try:
            if self.filter is not None:
                events = self.filter.pass_on(events)
            else:
                for event in events:
                    self.branches.count_event(event)
            if events:
                self.sink.put(events)
        except BaseException as error:
            self.failure = error  # some events may be written and not sent
            raise

    async def send_again(self, events: Events) -> None:
        """Send what a recorded effect sent in a failed run, whose output was retracted."""
        if self.filter is not None:
            self.branches.has_progressed = True
            self.sink.put(self.filter.send_again(events))
            await self.room()

    async def room(self) -> None:
        """Wait until the sink accepts more events."""
        if self.is_over:
            await self._raise_over()
        try:
            await self.sink.room()
        except Exception as error:
            self.failure = error
            raise

    async def _raise_over(self) -> NoReturn:
        # The agent swallowed its cancellation, or left a task behind. Yield to the loop first: an agent that swallows
        # this error too must not block it.
        await asyncio.sleep(0)
        raise asyncio.CancelledError("the run is over")

    # State

    async def patch_state(self, patch: Sequence[JsonPatchOperation]) -> None:
        """Apply a JSON Patch to the state, without comparing it."""
        await self.send(self._patch_state, patch)

    def _patch_state(self, patch: Sequence[JsonPatchOperation]) -> Events:
        self.settle_state()
        events = self.agent_writer.patch_state(patch)
        self.state.patch(patch)
        return self.adopt_state(events)

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
        self.send_state()
        await self.room()

    def settle_state(self) -> None:
        """Let the agent's writer catch up with the state, before an event of the agent changes it."""
        if self.agent_writer is not self.writer and self.state.is_read:
            self.agent_writer.set_state(self.state.value)

    def adopt_state(self, events: Events) -> Events:
        """Return events of the agent that changed its state. A replay sends what differs from the client's instead."""
        if self.agent_writer is not self.writer:
            self.send_state()
        return events

    def send_last_state(self) -> None:
        """Compare the state once more, before the terminal event."""
        if self.state.may_differ and self.state.is_due(None):
            self._put_state(self.state.changes(self.writer), reopens=False)

    def send_state(self) -> None:
        """Send the changes of the state, unless it may be older than that of the client."""
        if self.filter is None or self.filter.may_send_state:
            self._put_state(self.state.changes(self.writer))

    def _put_state(self, events: Events, *, reopens: bool = True) -> None:
        """Put state events of the run's writer: a replay filter never passes on those of the agent's."""
        if not events:
            return
        if self.failure is not None:
            raise self.failure
        try:
            around = self.filter.reopen_around() if reopens and self.filter is not None else []
            self.sink.put([*around, *events])
        except BaseException as error:
            self.failure = error
            raise

    def begin_sampling(self, loop: asyncio.AbstractEventLoop) -> None:
        """Compare the state also while the agent awaits something. Only for agents on the event loop."""
        self.sampler = StateSampler(self, loop)

    def send_state_if_due(self) -> None:
        """Send the changes of the state if a comparison is due."""
        if self.state.may_differ and self.state.is_due(""):
            self.send_state()

    def sample_state(self) -> bool:
        """Send the changes of the state while the agent awaits something. Return whether there were any."""
        if self.sink.is_full or not self.branches.is_current:
            return False
        events = self.state.changes(self.writer)
        self._put_state(events, reopens=False)
        return len(events) > 0


def _or_empty(state: Any) -> Any:
    return {} if state is None else state
