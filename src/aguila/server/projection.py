"""Layer: server. What a thread amounts to: the log, read through the one reducer, along one path of its runs.

Below: the store, and ``Reducer`` of ``aguila.stream``, which alone says what events mean. Above: ``history`` (what the
agent sees), ``interrupts`` (what is open), ``join`` (what a newcomer is told) and the thread routes. Nothing here
writes to the store.

Where the client's side comes from. Events tell what an agent said; what the client said is in the input of each run,
which the store keeps exactly (``RunRecord.input``). A projection reads each RUN_STARTED together with that input:

* its messages are added by id, in order: an id that is held stays as it is, whatever the client now sends under it,
  and a message that the client leaves out stays. Nothing is told from content or from counts. A conversation that
  is to go on from an earlier point says so with ``parentRunId``, and becomes a branch;
* its state is the state from there on, ``{}`` if it has none (IN-11, STATE-2). Where the server supplied another
  state than the client sent, the log has a STATE_SNAPSHOT right after RUN_STARTED (``history``).

The tree of runs is that of ``aguila.stream.lineage``: a run continues the run its ``parentRunId`` names, else the one
before it in the log; a parent that this thread does not have makes it a root.

Costs. A thread is kept between calls, so that only events after the last one seen are read; of the ends of earlier
runs the most recently needed are kept, the others are reduced anew from the log.
"""

from __future__ import annotations

import asyncio
from collections import OrderedDict
from collections.abc import Callable
from typing import Any, Final

import msgspec

from aguila.codec import EventDecoder, decode
from aguila.codec.notice import Notice, Warn, log_notice
from aguila.errors import CursorExpired, NotFound
from aguila.protocol import (
    Event,
    RunAgentInput,
    RunErrorEvent,
    RunFinishedEvent,
    RunStartedEvent,
    StateDeltaEvent,
    StateSnapshotEvent,
    ToolCallStartEvent,
    replace,
)
from aguila.server.limits import STORED
from aguila.store import RunRecord, Store
from aguila.stream import Conversation, Reducer
from aguila.stream.patch import same_json
from aguila.stream.rules import ITEMS, SUBAGENT, TOOL_CALL, Item

KEPT_ENDS: Final = 8
"""Of how many earlier runs per thread the end is kept, for branches."""

INSTRUCTING_ROLES: Final = frozenset({"system", "developer"})
"""Roles whose messages instruct the agent rather than ask it something."""


class LastRun(msgspec.Struct, frozen=True, kw_only=True):
    """The run that a view ends at: the events that frame it, and what is open in it.

    ``opened`` are the openers of what is open, in the order in which they came; ``calls`` the openers of its tool
    calls; ``subagents`` all that was said of subagents coming and going. ``ended`` is None while the run is on.
    """

    started: RunStartedEvent
    ended: RunFinishedEvent | RunErrorEvent | None
    opened: list[Event]
    calls: dict[str, ToolCallStartEvent]
    subagents: list[Event]


class Projection(msgspec.Struct, frozen=True, kw_only=True):
    """A thread as it was after event ``last``, seen along the path from its root to the run ``tip``.

    ``instructions`` are the ids of system and developer messages that came from clients, not from the agent.
    ``has_state`` says whether anybody ever spoke of a state: ``{}`` may be one, or the lack of one (IN-11).
    """

    thread_id: str
    conversation: Conversation
    last: int
    tip: str | None
    run: LastRun | None
    instructions: frozenset[str]
    has_state: bool = False

    @property
    def is_running(self) -> bool:
        """Whether the run that the view ends at is on."""
        return self.run is not None and self.run.ended is None


class Projections:
    """The views of all threads of a store. At most ``max_threads`` are kept, the most recently used."""

    def __init__(self, store: Store, *, max_threads: int = 256, warn: Warn = log_notice) -> None:
        self.store = store
        self._max_threads = max_threads
        self._warn = warn
        self._threads: OrderedDict[tuple[str, str], _Thread] = OrderedDict()

    async def of(self, scope: str, thread_id: str, run_id: str | None = None) -> Projection:
        """The thread along the path to a run, or to its latest run, with all that is durable by now.

        Raises ``NotFound`` if there is no such thread or run in this scope.
        """
        try:
            return await self._read(scope, thread_id, run_id)
        except CursorExpired:
            # The thread was deleted and begun anew while it was read.
            self._threads.pop((scope, thread_id), None)
            return await self._read(scope, thread_id, run_id)

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
            thread = self._threads[key] = _Thread(self.store, scope, thread_id, created_at, self._warn)
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


class _Line:
    """One path through the tree, reduced event by event."""

    __slots__ = ("_calls", "_ended", "_has_state", "_instructions", "_opened", "_reducer", "_started", "_subagents",
                 "last", "tip")  # fmt: skip

    def __init__(self, start: Projection | None, warn: Warn) -> None:
        self.tip = None if start is None else start.tip
        self.last = 0 if start is None else start.last
        self._reducer = (
            Reducer(warn=warn) if start is None else Reducer.from_conversation(start.conversation, warn=warn)
        )
        self._instructions = frozenset[str]() if start is None else start.instructions
        self._has_state = start is not None and start.has_state
        self._started: RunStartedEvent | None = None
        self._begin(None)

    def _begin(self, started: RunStartedEvent | None) -> None:
        self._started = started
        self._ended: RunFinishedEvent | RunErrorEvent | None = None
        self._opened: dict[_ItemKey, Event] = {}
        self._calls: dict[str, ToolCallStartEvent] = {}
        self._subagents: list[Event] = []

    def start(self, event: RunStartedEvent, given: RunAgentInput, at: int) -> None:
        """Go on with another run, which was asked for with this input."""
        reducer = self._reducer
        instructing = {
            message.id
            for message in given.messages
            if message.role in INSTRUCTING_ROLES and reducer.role_of(message.id) is None
        }
        if instructing:
            self._instructions |= instructing
        reducer.feed(replace(event, input=given))
        reducer.feed(StateSnapshotEvent(snapshot={} if given.state is None else given.state))
        self._has_state = self._has_state or (given.state is not None and not same_json(given.state, {}))
        self._begin(event)
        self.tip, self.last = event.run_id, at

    def feed(self, event: Event, at: int) -> None:
        """Take in an event of the run."""
        self._reducer.feed(event)
        self.last = at
        track = _TRACKED.get(event.__class__)
        if track is not None:
            track(self, event)

    def view(self, thread_id: str) -> Projection:
        """What it amounts to by now."""
        run: LastRun | None = None
        if self._started is not None:
            run = LastRun(
                started=self._started,
                ended=self._ended,
                opened=list(self._opened.values()),
                calls=dict(self._calls),
                subagents=list(self._subagents),
            )
        return Projection(
            thread_id=thread_id,
            conversation=self._reducer.conversation,
            last=self.last,
            tip=self.tip,
            run=run,
            instructions=self._instructions,
            has_state=self._has_state,
        )

    def _note_state(self, _: Any) -> None:
        self._has_state = True

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
        elif item is SUBAGENT:
            line._subagents.append(event)

    return opens


def _closes(item: Item) -> Callable[[_Line, Any], None]:
    def closes(line: _Line, event: Any) -> None:
        line._opened.pop(_key(item, event), None)
        if item is SUBAGENT:
            line._subagents.append(event)

    return closes


# Only what opens, closes or ends, and state: a delta of a text costs one look-up here.
_TRACKED: dict[type[Any], Callable[[_Line, Any], None]] = {
    **{item.opener: _opens(item) for item in ITEMS},
    **{closer: _closes(item) for item in ITEMS for closer in item.closers},
    RunFinishedEvent: _Line._end,
    RunErrorEvent: _Line._end,
    StateSnapshotEvent: _Line._note_state,
    StateDeltaEvent: _Line._note_state,
}


class _Thread:
    """One thread: the tree of its runs, the line to the latest of them, and the ends of some others."""

    def __init__(self, store: Store, scope: str, thread_id: str, created_at: float, warn: Warn) -> None:
        self.created_at = created_at
        self.last = 0
        self.lock = asyncio.Lock()
        self._store = store
        self._scope = scope
        self._thread_id = thread_id
        self._warn = warn
        self._decoder = EventDecoder(compat="off", warn=_ignore, max_size=STORED)
        self._runs: dict[str, _Run] = {}
        self._line = _Line(None, warn)
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
                    for event in self._decoder.feed(data):
                        if event.__class__ is RunStartedEvent:
                            await self._enter(event, self.last + 1)  # type: ignore[arg-type]
                        elif self._line.tip is not None:
                            self._line.feed(event, self.last + 1)
                            self._runs[self._line.tip].last = self.last + 1
                    self.last += 1
            await asyncio.sleep(0)  # a long log is read in one go, but not at the expense of everybody else

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
            line = _Line(None if parent is None else await self._end_of(parent), self._warn)
        line.start(event, stored_input(record), at)
        self._line = line
        self._runs[event.run_id] = _Run(run_id=event.run_id, parent=parent, first=at, last=at)

    def _keep(self, run_id: str, end: Projection) -> None:
        self._ends[run_id] = end
        self._ends.move_to_end(run_id)
        while len(self._ends) > KEPT_ENDS:
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
            line = _Line(None, _ignore)  # whatever there was to warn of was said when it was first read
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
                    for event in self._decoder.feed(data):
                        if event.__class__ is RunStartedEvent:
                            record = await self._store.run(self._scope, self._thread_id, run.run_id)
                            line.start(event, stored_input(record), at)  # type: ignore[arg-type]
                        else:
                            line.feed(event, at)


class _Declared(msgspec.Struct, rename="camel"):
    protocol_version: Any = None


def stored_input(run: RunRecord) -> RunAgentInput:
    """What a run was asked for with, read as the request was: without a version, as widely as possible (VER-18)."""
    try:
        is_old = msgspec.json.decode(run.input, type=_Declared).protocol_version is None
    except (msgspec.DecodeError, UnicodeError):
        is_old = True  # odd text, which the decoder below knows how to read
    return decode(run.input, RunAgentInput, compat="wide" if is_old else "standard", warn=_ignore, max_size=STORED)


def _ignore(notice: Notice) -> None:
    """What was tolerated in a request was reported when it arrived."""
