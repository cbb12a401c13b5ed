"""Layer: server. What a thread amounts to: the log, read through the one reducer, along one path of its runs.

Below: the store, ``Reducer`` of ``aguila.stream``, which alone says what events mean, and ``overlay``. Above:
``history`` (what the agent sees), ``interrupts`` (what is open), ``join`` (what a newcomer is told) and the thread
routes. Nothing here writes to the store.

Where the client's side comes from. Events tell what an agent said; what the client said is in the input of each run,
which the store keeps exactly (``RunRecord.input``). A projection reads each RUN_STARTED together with that input:

* its messages are reconciled with the view by id, never by content or count (``unnamed`` is about those without one).
  Where the server keeps the history, an id that is held stays as it is, whatever the client now sends under it, and
  what the client leaves out stays. Where the client keeps it, what it sends is laid over the view (``overlay``): an
  edited message is replaced, and what it leaves out is no longer in the view, with a notice. Either way a conversation
  that is to go on from an earlier point can say so with ``parentRunId``, and becomes a branch; and no run changes what
  the view was at the end of another;
* its state is the state from there on, ``{}`` if it has none (IN-11, STATE-2). Where the server supplied another
  state than the client sent, the log has a STATE_SNAPSHOT right after RUN_STARTED (``history``).

The tree of runs is that of ``aguila.stream.lineage``: a run continues the run its ``parentRunId`` names, else the one
before it in the log; a parent that this thread does not have makes it a root.

Who keeps the history is not in the log: it is read by the setting of whoever reads it.

Costs. A thread is kept between calls, so that only events after the last one seen are read; of the ends of earlier
runs the most recently needed are kept, the others are reduced anew from the log. What a client sent costs as much as
it is, and what of the view it left out.
"""

from __future__ import annotations

import asyncio
from collections import OrderedDict
from collections.abc import Callable, Collection, Iterable, Sequence
from typing import Any, Final, Literal

import msgspec

from aguila.codec import EventDecoder
from aguila.codec.notices import Notice, Warn, list_ids, log_notice
from aguila.errors import CursorExpired, NotFound
from aguila.offload import LARGE, offload
from aguila.protocol import (
    ActivitySnapshotEvent,
    Event,
    Message,
    MessagesSnapshotEvent,
    RunAgentInput,
    RunErrorEvent,
    RunFinishedEvent,
    RunStartedEvent,
    StateDeltaEvent,
    StateSnapshotEvent,
    ToolCallResultEvent,
    ToolCallStartEvent,
    replace,
)
from aguila.server.history.merge import INSTRUCTING_ROLES, UNSENT_ROLES, ThreadMessages, merge_messages
from aguila.server.history.message_ids import assign_ids, has_placeholder_ids
from aguila.server.history.stored_input import load_input
from aguila.server.history.tool_results import NO_CALLS, ServerCalls, ServerCallTracker, restore_server_results
from aguila.server.limits import UNLIMITED
from aguila.store import Store
from aguila.stream import Conversation, Reducer
from aguila.stream.json_values import json_equal
from aguila.stream.rules import ITEMS, REASONING_MESSAGE, SUBAGENT, TEXT, TOOL_CALL, Item

MAX_CACHED_ENDS: Final = 8
"""Of how many earlier runs per thread the end is kept, for branches."""

HistoryMode = Literal["client", "server"]
"""Who keeps the conversation: the client, which sends all of it, or the server, which adds what is new."""


class LastRun(msgspec.Struct, frozen=True, kw_only=True):
    """The run that a view ends at: the events that frame it, and what is open in it.

    ``open_items`` are the openers of what is open, in the order in which they came; ``calls`` the openers of its tool
    calls; ``subagent_events`` all that was said of subagents coming and going. ``ended`` is None while the run is on.
    """

    started: RunStartedEvent
    ended: RunFinishedEvent | RunErrorEvent | None
    open_items: list[Event]
    calls: dict[str, ToolCallStartEvent]
    subagent_events: list[Event]


class Projection(msgspec.Struct, frozen=True, kw_only=True):
    """A thread as it was after event ``last``, seen along the path from its root to the run ``tip``.

    ``client_instructions`` are the ids of system and developer messages that came from clients, not from the agent.
    ``has_state`` says whether anybody ever spoke of a state: ``{}`` may be one, or the lack of one (IN-11).
    ``server_calls`` are the tool calls whose results come from the server.
    """

    thread_id: str
    conversation: Conversation
    last: int
    tip: str | None
    run: LastRun | None
    client_instructions: frozenset[str]
    has_state: bool = False
    server_calls: ServerCalls = NO_CALLS

    @property
    def is_running(self) -> bool:
        """Whether the run that the view ends at is on."""
        return self.run is not None and self.run.ended is None


class Projections:
    """The views of all threads of a store. At most ``max_threads`` are kept, the most recently used."""

    def __init__(
        self, store: Store, *, history: HistoryMode = "client", max_threads: int = 256, warn: Warn = log_notice
    ) -> None:
        self.store = store
        self._history: HistoryMode = history
        self._max_threads = max_threads
        self._warn = warn
        self._threads: OrderedDict[tuple[str, str], _Thread] = OrderedDict()

    async def load(self, scope: str, thread_id: str, run_id: str | None = None) -> Projection:
        """The thread along the path to a run, or to its latest run, with all that is durable by now.

        Raises ``NotFound`` if there is no such thread or run in this scope.
        """
        try:
            return await self._read(scope, thread_id, run_id)
        except CursorExpired:
            # The thread was deleted and begun anew while it was read.
            self._threads.pop((scope, thread_id), None)
            return await self._read(scope, thread_id, run_id)

    async def load_initial_messages(self, scope: str, thread_id: str, run_id: str) -> Sequence[Message]:
        """Return the messages that a run began with: those of the view that it has not made itself.

        Raises ``NotFound`` if there is no such thread or run in this scope.
        """
        view = await self.load(scope, thread_id, run_id)
        made = self._threads[scope, thread_id].created_by(run_id)
        return [message for message in view.conversation.messages if message.id not in made]

    async def _read(self, scope: str, thread_id: str, run_id: str | None) -> Projection:
        summary = await self.store.thread(scope, thread_id)
        thread = self._thread(scope, thread_id, summary.created_at, summary.last)
        async with thread.lock:
            await thread.catch_up(summary.last)
            return await thread.view(run_id)

    def _thread(self, scope: str, thread_id: str, created_at: float, last: int) -> _Thread:
        key = (scope, thread_id)
        thread = self._threads.get(key)
        # A thread of the same id that was begun anew is another thread.
        if thread is None or thread.created_at != created_at or thread.last > last:
            thread = self._threads[key] = _Thread(self.store, scope, thread_id, created_at, self._history, self._warn)
        self._threads.move_to_end(key)
        while len(self._threads) > self._max_threads:
            self._threads.popitem(last=False)
        return thread


class _Run(msgspec.Struct):
    """A run's place in the tree and in the log."""

    run_id: str
    parent: str | None
    first: int
    last: int


class _Makers:
    """Which run made what, of all runs of a thread."""

    def __init__(self) -> None:
        # Ordered sets: a run that is read again makes the same again.
        self._makers: dict[str, dict[str, None]] = {}
        self._made: dict[str, dict[str, None]] = {}

    def note(self, run_id: str, message_id: str, role: str) -> None:
        """A run makes a message."""
        if role in UNSENT_ROLES:
            self._makers.setdefault(message_id, {})[run_id] = None
        else:
            self._made.setdefault(run_id, {})[message_id] = None

    def creator_of(self, message_id: str, path: Collection[str]) -> str | None:
        """The run on a path that made an activity or a reasoning message; of several the latest."""
        return next((run for run in reversed(self._makers.get(message_id, {})) if run in path), None)

    def created_by(self, run_id: str) -> Iterable[str]:
        """The ids of all else that a run made."""
        return self._made.get(run_id, ())

    def all_made_by(self, run_id: str) -> frozenset[str]:
        """The ids of everything that a run made."""
        unsent = (message_id for message_id, runs in self._makers.items() if run_id in runs)
        return frozenset((*self.created_by(run_id), *unsent))


class _Line:
    """One path through the tree, reduced event by event."""

    __slots__ = ("_calls", "_ended", "_has_state", "_instructions", "_makers", "_opened", "_path", "_reducer",
                 "_server_calls", "_started", "_subagents", "_warn", "last", "tip")  # fmt: skip

    def __init__(self, start: Projection | None, makers: _Makers, warn: Warn) -> None:
        self._makers = makers
        self._path = set[str]() if start is None else {str(run.run_id) for run in start.conversation.runs}
        self._warn = warn
        self.tip = None if start is None else start.tip
        self.last = 0 if start is None else start.last
        self._reducer = (
            Reducer(warn=warn) if start is None else Reducer.from_conversation(start.conversation, warn=warn)
        )
        self._instructions = frozenset[str]() if start is None else start.client_instructions
        self._has_state = start is not None and start.has_state
        self._server_calls = ServerCallTracker(NO_CALLS if start is None else start.server_calls)
        self._started: RunStartedEvent | None = None
        self._begin(None)

    def _begin(self, started: RunStartedEvent | None) -> None:
        self._started = started
        self._ended: RunFinishedEvent | RunErrorEvent | None = None
        self._opened: dict[_ItemKey, Event] = {}
        self._calls: dict[str, ToolCallStartEvent] = {}
        self._subagents: list[Event] = []

    def start(self, event: RunStartedEvent, given: RunAgentInput, history: HistoryMode, at: int) -> None:
        """Go on with another run, which was asked for with this input."""
        reducer = self._reducer
        given = assign_ids(given, reducer.messages) if has_placeholder_ids(given.messages) else given
        reducer.feed(replace(event, input=None))
        messages = restore_server_results(given.messages, self._server_calls.calls()).messages
        if history == "client":
            self._lay_over(messages)
        else:
            self._add(messages)
        reducer.feed(StateSnapshotEvent(snapshot={} if given.state is None else given.state))
        self._has_state = self._has_state or (given.state is not None and not json_equal(given.state, {}))
        self._begin(event)
        self._path.add(event.run_id)
        self.tip, self.last = event.run_id, at

    def _add(self, messages: Sequence[Message]) -> None:
        reducer = self._reducer
        self._instructed(
            [one.id for one in messages if one.role in INSTRUCTING_ROLES and reducer.get_role(one.id) is None]
        )
        reducer.add_messages(messages)

    def _lay_over(self, messages: Sequence[Message]) -> None:
        reducer = self._reducer
        held = ThreadMessages(
            messages=reducer.messages,
            index_of=reducer.index_of,
            creator_of=lambda message_id: self._makers.creator_of(message_id, self._path),
            created_by=self._makers.created_by,
            instructions=self._instructions,
        )
        found = merge_messages(messages, held)
        for old, new in found.amended:
            reducer.replace_message(old, new)
        reducer.replace_from(found.kept, found.rest)
        self._instructed(found.instructions)
        for ids, what in ((found.replaced, "edited"), (found.left_out, "left out")):
            if ids:
                text = f"the client has {what} messages that the thread had: {list_ids(ids)}"
                self._warn(Notice(rule="client-history", message=text, path="/messages", is_routine=True))

    def _instructed(self, ids: Sequence[str]) -> None:
        if ids:
            self._instructions = self._instructions.union(ids)

    def feed(self, event: Event, at: int) -> None:
        """Take in an event of the run."""
        track = _TRACKED.get(event.__class__)
        if track is not None:  # before the reducer, which then has whatever the event makes
            track(self, event)
        self._reducer.feed(event)
        self.last = at

    def view(self, thread_id: str) -> Projection:
        """What it amounts to by now."""
        run: LastRun | None = None
        if self._started is not None:
            run = LastRun(
                started=self._started,
                ended=self._ended,
                open_items=list(self._opened.values()),
                calls=dict(self._calls),
                subagent_events=list(self._subagents),
            )
        return Projection(
            thread_id=thread_id,
            conversation=self._reducer.conversation,
            last=self.last,
            tip=self.tip,
            run=run,
            client_instructions=self._instructions,
            has_state=self._has_state,
            server_calls=self._server_calls.calls(),
        )

    def _note_state(self, _: Any) -> None:
        self._has_state = True

    def _make(self, message_id: str, role: str) -> None:
        """The run makes a message, if it is none that was there before."""
        if self.tip is not None and self._reducer.get_role(message_id) is None:
            self._makers.note(self.tip, message_id, role)

    def _make_all(self, event: MessagesSnapshotEvent) -> None:
        for message in event.messages:
            self._make(message.id, message.role)
        self._server_calls.messages_restated(event.messages)

    def _answer(self, event: ToolCallResultEvent) -> None:
        self._make(event.message_id, "tool")
        self._server_calls.call_answered(event)

    def _finish(self, event: RunFinishedEvent) -> None:
        self._end(event)
        self._server_calls.run_finished(event)

    def _end(self, event: Any) -> None:
        self._ended = event
        self._opened.clear()


_ItemKey = tuple[Item, str, str | None]


def _key(item: Item, event: Any) -> _ItemKey:
    return item, getattr(event, item.id_field), event.subagent_run_id if item.keyed_by_owner else None


def _opens(item: Item) -> Callable[[_Line, Any], None]:
    def opens(line: _Line, event: Any) -> None:
        line._opened[_key(item, event)] = event
        if item is TOOL_CALL:
            line._calls.setdefault(event.tool_call_id, event)
            line._server_calls.call_started(event.tool_call_id)
            parent = event.parent_message_id
            line._make(event.tool_call_id if parent is None or parent == "" else parent, "assistant")
        elif item is TEXT:
            line._make(event.message_id, "assistant")
        elif item is REASONING_MESSAGE:
            line._make(event.message_id, "reasoning")
        elif item is SUBAGENT:
            line._subagents.append(event)

    return opens


def _closes(item: Item) -> Callable[[_Line, Any], None]:
    def closes(line: _Line, event: Any) -> None:
        line._opened.pop(_key(item, event), None)
        if item is SUBAGENT:
            line._subagents.append(event)

    return closes


# Only what opens, closes, makes or ends, and state: a delta of a text costs one look-up here.
_TRACKED: dict[type[Any], Callable[[_Line, Any], None]] = {
    **{item.opener: _opens(item) for item in ITEMS},
    **{closer: _closes(item) for item in ITEMS for closer in item.closers},
    RunFinishedEvent: _Line._finish,
    RunErrorEvent: _Line._end,
    StateSnapshotEvent: _Line._note_state,
    StateDeltaEvent: _Line._note_state,
    ToolCallResultEvent: _Line._answer,
    ActivitySnapshotEvent: lambda line, event: line._make(event.message_id, "activity"),
    MessagesSnapshotEvent: _Line._make_all,
}


class _Thread:
    """One thread: the tree of its runs, the line to the latest of them, and the ends of some others."""

    def __init__(
        self, store: Store, scope: str, thread_id: str, created_at: float, history: HistoryMode, warn: Warn
    ) -> None:
        self.created_at = created_at
        self.last = 0
        self.lock = asyncio.Lock()
        self._store = store
        self._scope = scope
        self._thread_id = thread_id
        self._history: HistoryMode = history
        self._warn = warn
        self._decoder = EventDecoder(compat="off", warn=_ignore, max_size=UNLIMITED)
        self._runs: dict[str, _Run] = {}
        self._makers = _Makers()
        self._line = _Line(None, self._makers, warn)
        self._ends: OrderedDict[str, Projection] = OrderedDict()

    async def catch_up(self, last: int) -> None:
        """Read the log up to an event. Stopped anywhere, it goes on from there the next time."""
        while self.last < last:
            batches = await self._store.read(self._scope, self._thread_id, self.last, until=last)
            if not batches:
                raise CursorExpired(f"thread {self._thread_id!r} ends before event {last}")
            for batch in batches:
                self.last = batch.first - 1  # a log need not begin with 1
                for data in batch.events:
                    for event in (
                        await offload(self._decoder.feed, data) if len(data) > LARGE else self._decoder.feed(data)
                    ):
                        if event.__class__ is RunStartedEvent:
                            await self._enter(event, self.last + 1)  # type: ignore[arg-type]
                        elif self._line.tip is not None:
                            self._line.feed(event, self.last + 1)
                            self._runs[self._line.tip].last = self.last + 1
                    self.last += 1
            await asyncio.sleep(0)  # a long log is read in one go, but not at the expense of everybody else

    def created_by(self, run_id: str) -> frozenset[str]:
        """Return the ids of the messages that a run has made."""
        return self._makers.all_made_by(run_id)

    async def view(self, run_id: str | None) -> Projection:
        """The view along the path to a run."""
        if run_id is None or run_id == self._line.tip:
            return self._line.view(self._thread_id)
        if run_id not in self._runs:
            raise NotFound(f"no run {run_id!r}")
        return await self._end_of(run_id)

    async def _enter(self, event: RunStartedEvent, at: int) -> None:
        """A run begins: find the path that it continues, and what it was asked for with."""
        record = await self._store.run(self._scope, self._thread_id, event.run_id)
        latest = self._line.tip
        parent = latest if event.parent_run_id is None else event.parent_run_id
        line: _Line
        if parent is not None and parent not in self._runs:
            message = f"run {event.run_id!r} names the parent {parent!r}, which this thread does not have"
            self._warn(Notice(rule="LIFE-2", message=message, path="/parentRunId", event_type=str(event.type)))
            parent = None
        if latest is not None:
            self._keep(latest, self._line.view(self._thread_id))
        if parent == latest:
            line = self._line
        else:
            line = _Line(None if parent is None else await self._end_of(parent), self._makers, self._warn)
        line.start(event, await load_input(self._store, record), self._history, at)
        self._line = line
        self._runs[event.run_id] = _Run(run_id=event.run_id, parent=parent, first=at, last=at)

    def _keep(self, run_id: str, end: Projection) -> None:
        self._ends[run_id] = end
        self._ends.move_to_end(run_id)
        while len(self._ends) > MAX_CACHED_ENDS:
            self._ends.popitem(last=False)

    async def _end_of(self, run_id: str) -> Projection:
        """The view at the end of an earlier run."""
        end = self._ends.get(run_id)
        if end is None:
            path: list[_Run] = []
            step: str | None = run_id
            while step is not None:
                path.append(self._runs[step])
                step = self._runs[step].parent
            line = _Line(None, self._makers, _ignore)  # whatever there was to warn of was said when it was first read
            for run in reversed(path):
                await self._replay(line, run)
            end = line.view(self._thread_id)
        self._keep(run_id, end)
        return end

    async def _replay(self, line: _Line, run: _Run) -> None:
        at = run.first - 1
        while at < run.last:
            batches = await self._store.read(self._scope, self._thread_id, at, until=run.last)
            if not batches:
                raise CursorExpired(f"thread {self._thread_id!r} ends before event {run.last}")
            for batch in batches:
                for data in batch.events:
                    at += 1
                    for event in (
                        await offload(self._decoder.feed, data) if len(data) > LARGE else self._decoder.feed(data)
                    ):
                        if event.__class__ is RunStartedEvent:
                            record = await self._store.run(self._scope, self._thread_id, run.run_id)
                            line.start(event, await load_input(self._store, record), self._history, at)  # type: ignore[arg-type]
                        else:
                            line.feed(event, at)


def _ignore(notice: Notice) -> None:
    """Drop a notice that was reported when the request arrived."""
