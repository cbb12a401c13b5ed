"""One thread: the turns of its runs, and the views of its branches (``Thread.at``).

A stored turn is read with its run. A run without one is reduced, once: an ended run into its turn, which is then
stored, and the open run step by step, as its events come.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Any, Final, cast

import msgspec

from aguila.codec import decode_event, encode
from aguila.codec.notices import Notice, Warn, ignore_notice
from aguila.errors import CursorExpired, NotFound
from aguila.offload import LARGE, is_large, offload
from aguila.protocol import Event, Message, RunAgentInput, RunStartedEvent
from aguila.server.config.limits import UNLIMITED
from aguila.server.config.options import HistoryMode, UnknownHistory
from aguila.server.threads.reducer import RunReducer
from aguila.server.threads.requests import load_request
from aguila.server.threads.turn import FORMAT, Turn, UnusableTurn, decode_turn, encode_turn, list_digests
from aguila.server.threads.values import OpenValues, ThreadValues
from aguila.server.threads.view import ThreadIndex, View
from aguila.store import Lease, RunRecord, Store, ThreadRecord, Want
from aguila.store import Turn as StoredTurn
from aguila.stream import Reducer

MAX_CACHED_VIEWS: Final = 8
"""How many views of ended runs a thread caches, for its branches."""

MAX_REDUCED: Final = 1 << 20
"""A run of more bytes is not reduced at its end, which would take time and several times that memory."""

_READ_AT_ONCE: Final = 128
"""How many runs, values or events are read before other tasks may run."""
_MANY: Final = 2000
"""A conversation of more messages is loaded in a thread: 50,000 take 100 ms."""


class OwnRun(msgspec.Struct, frozen=True, kw_only=True):
    """A run of this process. The turn that is stored with its end is computed from this and its last events."""

    lease: Lease
    first: int
    """The number of its first event."""
    sent: RunAgentInput | None
    """Its input; None if the run is too large (``MAX_REDUCED``)."""
    parent_run_id: str | None = None
    """The stored id of its parent; see ``RunRecord``."""
    stored: Sequence[bytes] | None = None
    """Its events in the log; None if they are to be read from there."""


class _Reading:
    """A run that is being reduced, up to event ``last``."""

    def __init__(self, run_id: str, parent_run_id: str | None, sent: RunAgentInput, last: int, size: int) -> None:
        self.run_id = run_id
        self.parent_run_id = parent_run_id
        self.sent = sent
        self.last = last
        self.size = size
        self.reducer: RunReducer | None = None


class Thread:
    """One thread of a store. ``last`` is the last event of its ended runs. Callers hold ``lock``."""

    def __init__(
        self,
        store: Store,
        scope: str,
        thread_id: str,
        history: HistoryMode,
        unknown_history: UnknownHistory,
        warn: Warn,
        *,
        uses_stored: bool = True,
    ) -> None:
        self.lock = asyncio.Lock()
        self.last = 0
        self.unsaved: dict[str, StoredTurn] = {}
        """Turns that the store does not have, by run id. The caller stores them."""
        self._store = store
        self._scope = scope
        self._thread_id = thread_id
        self._history: HistoryMode = history
        self._unknown_history: UnknownHistory = unknown_history
        self._warn = warn
        self._uses_stored = uses_stored
        self._created_at: float | None = None
        self._index = ThreadIndex(warn)
        self._values = ThreadValues()
        self._turns: dict[str, tuple[Turn, int]] = {}  # with the numbers of the last events
        self._turns_size = 0
        self._unloaded: list[Turn] = []  # turns whose known messages are not loaded
        self._empty = View(thread_id=thread_id, index=self._index)
        self._views: dict[str, View] = {}  # the last used ones last
        self._reading: _Reading | None = None
        self._ending: tuple[str, Turn, int] | None = None  # a run of this process whose end is being stored
        # The reducer of the last reduced run, for the next one: to make one takes as long as there are messages.
        self._latest: tuple[str, Reducer] | None = None

    @property
    def size(self) -> int:
        """About the bytes that the thread needs in memory."""
        return self._values.size + self._turns_size + (0 if self._reading is None else self._reading.size)

    async def at(self, run_id: str | None = None, *, with_known: bool = False) -> View:
        """Return the view at a run, or at the latest one, with all events stored by now.

        ``with_known`` loads ``ThreadIndex.known``. Raises ``NotFound``, ``UnusableTurn``, or ``CursorExpired`` if the
        thread was deleted and created again since it was read. A call that is cancelled is continued by the next one.
        """
        found = await self._catch_up()
        if with_known:
            await self._load_known()
        summary = found.summary
        if summary.running is not None and run_id in (None, summary.running):
            return self._view_open(await self._read(found.run(summary.running), summary.last))
        latest = self._index.tree.latest
        if run_id is None:
            return self._empty if latest is None else await self._view(latest.run_id)
        if run_id not in self._turns:
            raise NotFound(f"no run {run_id!r}")
        return await self._view(run_id)

    # Ended runs

    async def _catch_up(self) -> ThreadRecord:
        """Add the runs that have ended since. Return what was read: these runs, and the open one."""
        want = Want(runs=True, runs_after=len(self._turns), turns=True)
        found = await self._store.thread(self._scope, self._thread_id, want)
        summary = found.summary
        if self._created_at not in (None, summary.created_at) or summary.last < self.last:
            raise CursorExpired(f"thread {self._thread_id!r} was deleted and created again")
        self._created_at = summary.created_at
        if self._ending is not None and self._ending[0] != summary.running:
            self._add_ended()
        for count, run in enumerate(found.runs, 1):
            if run.is_running or run.run_id in self._turns:
                continue
            turn = self._decode(run.turn) if self._uses_stored else None
            if turn is None:
                turn, stored = await self._close(await self._read(run, run.last))
                if stored is not None:
                    self.unsaved[run.run_id] = stored
            self._add(run.run_id, turn, run.last)
            if count % _READ_AT_ONCE == 0:
                await asyncio.sleep(0)
        return found

    def _decode(self, stored: StoredTurn | None) -> Turn | None:
        """Return a stored turn; None if other settings or another version wrote it."""
        if stored is None or stored.format != FORMAT:
            return None
        turn = decode_turn(stored.body)
        is_current = (turn.history, turn.unknown_history) == (self._history, self._unknown_history)
        return turn if is_current else None

    def _add(self, run_id: str, turn: Turn, last: int) -> None:
        """Add the turn of an ended run, unless the thread has it. Raises ``UnusableTurn``."""
        if run_id in self._turns:
            return
        tree = self._index.tree
        if turn.parent is not None and turn.parent not in self._turns:
            raise UnusableTurn(f"run {run_id!r} follows run {turn.parent!r}, which is missing")
        self._index.begin(turn.started, None if turn.parent is None else tree[turn.parent])
        self._index.add(run_id, turn)
        self._turns[run_id] = turn, last
        if self._reading is not None and self._reading.run_id == run_id:
            self._reading = None
        self._turns_size += turn.size
        if turn.known or turn.front_end_calls:
            self._unloaded.append(turn)
        self.last = last

    # Reducing

    async def close(self, run: OwnRun, events: Sequence[bytes]) -> StoredTurn | None:
        """Reduce a run of this process, whose last events these are. They are not stored yet.

        Return its turn as it is stored. Return None if the run is not open any more, or if the turn cannot be stored.
        Raises as ``at`` does.
        """
        assert run.sent is not None  # noqa: S101 - a large run is not reduced here
        lease, until = run.lease, 0
        if self._ending is not None and self._ending[2] == run.first - 1:
            self._add_ended()
        if self.last != run.first - 1 or run.stored is None:
            summary = (await self._catch_up()).summary
            if summary.running != lease.run_id:
                return None
            until = summary.last
        reading, self._reading = self._reading, None
        if reading is None or reading.run_id != lease.run_id:
            # No size: the run is about to end.
            reading = _Reading(lease.run_id, run.parent_run_id, run.sent, run.first - 1, 0)
        if run.stored is None:
            await self._read_log(reading, until)
        else:
            await self._feed(reading, run.stored[reading.last - run.first + 1 :])
        await self._feed(reading, events)
        turn, stored = await self._close(reading)
        self._ending = lease.run_id, turn, reading.last
        return stored

    def _add_ended(self) -> None:
        """Add the turn of the last run of this process. If its end had not been stored, this thread were forgotten."""
        if self._ending is not None:
            self._add(*self._ending)
            self._ending = None

    async def _read(self, run: RunRecord, until: int) -> _Reading:
        """Reduce a run up to an event of the log."""
        reading = self._reading
        if reading is None or reading.run_id != run.run_id:
            sent = await load_request(self._store, run)
            size = len(await offload(encode, sent) if is_large(sent) else encode(sent))
            reading = self._reading = _Reading(run.run_id, run.parent_run_id, sent, run.first - 1, size)
        await self._read_log(reading, until)
        return reading

    async def _read_log(self, reading: _Reading, until: int) -> None:
        while reading.last < until:
            batches = (await self._store.read(self._scope, self._thread_id, reading.last, until=until)).batches
            if not batches:
                raise CursorExpired(f"thread {self._thread_id!r} ends before event {until}")
            for batch in batches:
                reading.last = batch.first - 1  # a compacted run has fewer events than numbers
                await self._feed(reading, batch.events)
            await asyncio.sleep(0)  # let other tasks run while a long log is read

    async def _feed(self, reading: _Reading, events: Sequence[bytes]) -> None:
        for count, data in enumerate(events, 1):
            if count % _READ_AT_ONCE == 0:
                await asyncio.sleep(0)
            reducer = reading.reducer
            event = await offload(_decode_large, data, reducer) if len(data) > LARGE else _decode_event(data)
            # Nothing is awaited after an event was fed: a call that is cancelled leaves the run between two events.
            if reducer is not None:
                if event is not None:
                    reducer.feed(event)
            elif isinstance(event, RunStartedEvent):
                reading.reducer = await self._begin(event, reading)
            reading.last += 1
            reading.size += len(data)

    async def _begin(self, event: RunStartedEvent, reading: _Reading) -> RunReducer:
        """Start to reduce a run, on the branch of the latest run or on another one."""
        # If the event names no parent, the parent was inferred from the messages, or there is none.
        inferred = reading.parent_run_id if event.parent_run_id in (None, event.run_id) else None
        tree = self._index.tree  # it has the run already if the end of the run is being stored
        parent = tree[event.run_id].parent if event.run_id in tree else tree.find_parent(event, inferred)
        await self._load_known()
        view = self._empty if parent is None else await self._view(parent.run_id)
        latest, self._latest = self._latest, None
        reducer = latest[1] if latest is not None and latest[0] == view.tip else None
        if reducer is None and len(view.conversation.messages) > _MANY:
            notices: list[Notice] = []  # the thread must not call ``warn``
            reducer = await offload(Reducer.from_conversation, view.conversation, warn=notices.append)
            for notice in notices:
                self._warn(notice)
        self._index.begin(event, parent)
        return RunReducer(
            view,
            event,
            reading.sent,
            self._history,
            self._unknown_history,
            is_cut=inferred is not None,
            warn=self._warn,
            reducer=reducer,
        )

    async def _close(self, reading: _Reading) -> tuple[Turn, StoredTurn | None]:
        """Return the turn of an ended run, also as it is stored."""
        reducer = reading.reducer
        if reducer is None:
            raise UnusableTurn(f"run {reading.run_id!r} does not begin with RUN_STARTED")
        new = await self._values.add(reducer.messages(), reducer.conversation.state)
        turn = reducer.turn(self._values.digest_of)
        self._latest = reading.run_id, reducer.reducer
        if new is None:
            return turn, None
        try:
            return turn, StoredTurn(format=FORMAT, body=encode_turn(turn), values=new)
        except UnicodeEncodeError:  # an id has half a surrogate pair: the run is reduced each time
            return turn, None

    # Views

    def _view_open(self, reading: _Reading) -> View:
        """Return the view at the open run."""
        reducer = reading.reducer
        if reducer is None:
            raise UnusableTurn(f"run {reading.run_id!r} does not begin with RUN_STARTED")
        values = OpenValues(self._values)
        return View.fold(reducer.view, [reducer.turn(values.digest_of)], values, reading.last)

    async def _view(self, run_id: str) -> View:
        """Return the view at an ended run."""
        view, turns = self._views.pop(run_id, None), list[Turn]()
        if view is None:
            start = self._empty
            for node in reversed(self._index.tree.path(run_id)):
                if node.run_id in self._views:
                    start = self._views[node.run_id]
                    break
                turns.append(self._turns[node.run_id][0])
            turns.reverse()
            await self._load(list_digests(start.digests, turns))
            await self._load([turns[-1].state], Any)
            view = View.fold(start, turns, self._values, self._turns[run_id][1])
        self._views[run_id] = view
        if len(self._views) > MAX_CACHED_VIEWS:
            del self._views[next(iter(self._views))]
        return view

    async def _load(self, digests: Sequence[bytes], kind: Any = Message) -> None:
        missing = self._values.select_missing(digests)
        for at in range(0, len(missing), _READ_AT_ONCE):
            found = await self._store.values(self._scope, self._thread_id, missing[at : at + _READ_AT_ONCE])
            await self._values.load(found, kind)
            await asyncio.sleep(0)  # a store in memory answers at once

    async def _load_known(self) -> None:
        """Load the known messages of the turns."""
        turns = self._unloaded
        if not turns:
            return
        await self._load([digest for turn in turns for digest in (*turn.known, *turn.front_end_calls.values())])
        known = self._index.known
        for turn in turns:
            for count, digest in enumerate(turn.known, 1):
                known.add(self._values[digest])
                if count % _READ_AT_ONCE == 0:
                    await asyncio.sleep(0)
            known.front_end_calls.update({one: self._values[digest] for one, digest in turn.front_end_calls.items()})
        self._unloaded = self._unloaded[len(turns) :]


def _decode_event(data: bytes) -> Event | None:
    """Decode an event of the log. Return None if its type is unknown."""
    return cast("Event | None", decode_event(data, compat="off", warn=ignore_notice, max_size=UNLIMITED))


def _decode_large(data: bytes, reducer: RunReducer | None) -> Event | None:
    """Decode an event and compute its patch. Call it in a thread."""
    event = _decode_event(data)
    if reducer is not None and event is not None:
        reducer.prepare(event)
    return event
