"""Read one thread: from the stored projections of its runs, and from the log where there are none."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from contextlib import suppress
from typing import Final, cast

from aguila.codec import decode_event, encode, encode_event
from aguila.codec.notices import Warn, ignore_notice
from aguila.errors import NotFound
from aguila.offload import LARGE, is_large, offload
from aguila.protocol import Event, RunErrorEvent, RunFinishedEvent, RunStartedEvent, replace
from aguila.server.config.limits import UNLIMITED
from aguila.server.config.options import HistoryMode, UnknownHistory
from aguila.server.threads.branch_reducer import BranchReducer, MessageCreators
from aguila.server.threads.client.cut_history import find_end
from aguila.server.threads.client.known_messages import KnownMessages
from aguila.server.threads.client.tool_results import NO_CALLS, ServerCalls
from aguila.server.threads.closed_run import ClosedRun, conversation_run, decode_stored_event, last_run
from aguila.server.threads.projection_values import OwnRun, Projection, ThreadLog
from aguila.server.threads.run_changes import (
    FORMAT,
    RunChanges,
    ThreadValues,
    UnusableProjection,
    apply_list,
    decode_changes,
    encode_changes,
)
from aguila.server.threads.stored_input import load_input
from aguila.store import RunProjection, StoredProjection
from aguila.store.run_inputs import compare_lists, split_digests
from aguila.stream import Conversation
from aguila.stream.lineage import RunNode, RunTree

MAX_CACHED_ENDS: Final = 8
"""How many earlier runs of a thread have a cached projection, for branches."""

_READ_AT_ONCE: Final = 128
"""How many runs, values or events are read before other tasks may run."""

_TERMINAL = frozenset({RunFinishedEvent, RunErrorEvent})


class ThreadReader:
    """Reads one thread: the tree of its runs, the changes of each, and the branch to the latest run.

    The thread is cached between calls, so only runs and events after the last ones seen are read. A run without a
    stored projection is reduced from the log; ``take_projections`` returns the projection to store for it.
    """

    def __init__(
        self,
        log: ThreadLog,
        created_at: float | None,
        history: HistoryMode,
        unknown_history: UnknownHistory,
        warn: Warn,
        *,
        uses_stored: bool = True,
    ) -> None:
        self.created_at = created_at
        self.last = 0
        self.lock = asyncio.Lock()
        self.creators = MessageCreators()
        self._known = KnownMessages()
        self._unloaded: list[RunChanges] = []  # changes of runs whose known messages are not loaded
        self._log = log
        self._history: HistoryMode = history
        self._unknown_history: UnknownHistory = unknown_history
        self._warn = warn
        self._uses_stored = uses_stored
        self._tree = RunTree(warn)
        self._closed: dict[str, ClosedRun] = {}
        self._closed_size = 0
        self._open_size = 0  # bytes of the input and the events of an open run
        self._values = ThreadValues()
        self._branch: BranchReducer | None = None  # the latest run, if it was reduced here
        self._parent: str | None = None  # the run that the latest run continues
        self._ends: dict[str, Projection] = {}  # the last used ones last
        self._run_ends: dict[str, str | None] = {}
        self._lists: dict[str, bytes] = {}  # the message digests at some of the ends
        self._unsaved: dict[str, RunProjection] = {}

    @property
    def size(self) -> int:
        """About the bytes that the cached thread needs."""
        return self._values.size + self._closed_size + self._open_size

    async def catch_up(self, last: int, *, runs: int | None = None, run: OwnRun | None = None) -> None:
        """Read the thread up to event ``last``. A call that is cancelled is continued by the next one.

        ``runs`` is how many runs the thread has, ``run`` the latest one, if the caller knows them. Raises
        ``UnusableProjection``.
        """
        if self.last >= last:
            return
        log = self._log
        if self._uses_stored and (self._branch is None or self._branch.tip in self._closed):
            found = await log.store.projections(log.scope, log.thread_id, self.last)
            is_complete = len(found) == runs
            for count, stored in enumerate(found, 1):
                if stored.last > last:
                    break
                changes = self._decode(stored)
                if changes is None:
                    is_complete = False
                    continue
                if stored.first > self.last + 1 and self.last > 0:
                    await self._reduce(stored.first - 1, None)
                elif self.last == 0 and not is_complete:
                    await self._reduce_head(stored.first - 1)
                self._add(stored, changes)
                if count % _READ_AT_ONCE == 0:
                    await asyncio.sleep(0)
        await self._reduce(last, run)

    def _decode(self, stored: StoredProjection) -> RunChanges | None:
        """Return the changes of a run; None if other settings or another version wrote them."""
        if stored.format != FORMAT:
            return None
        changes = decode_changes(stored.body)
        is_current = (changes.history, changes.unknown_history) == (self._history, self._unknown_history)
        return changes if is_current else None

    def _add(self, stored: StoredProjection, changes: RunChanges) -> None:
        """Continue with a run from its stored projection."""
        if changes.parent is not None and changes.parent not in self._tree:
            raise UnusableProjection(f"run {stored.run_id!r} follows run {changes.parent!r}, which is missing")
        self._keep_latest()
        started = cast("RunStartedEvent", decode_stored_event(changes.started))
        self._tree.add(started, None if changes.parent is None else self._tree[changes.parent])
        self._closed[stored.run_id] = ClosedRun(changes, conversation_run(changes, started), stored.last)
        self._closed_size += 1024 + changes.size
        self._run_ends[stored.run_id] = changes.end
        for message_id in changes.brought:
            self.creators.first_runs.record(stored.run_id, message_id)
        for message_id, role in changes.created:
            self.creators.record(stored.run_id, message_id, role)
        if changes.known or changes.front_end_calls:
            self._unloaded.append(changes)
        self._branch = None
        self._parent = changes.parent
        self.last = stored.last

    # Reducing the log

    async def _reduce_head(self, until: int) -> None:
        """Reduce the runs before the first one with a projection. A log may start after event 1."""
        log = self._log
        batches = await log.store.read(log.scope, log.thread_id, 0, until=until, limit=1)
        if batches:
            await self._reduce(until, None)

    async def _reduce(self, until: int, run: OwnRun | None) -> None:
        while self.last < until:
            for batch in await self._log.read(self.last, until):
                self.last = batch.first - 1  # a log may start after event 1
                await self.feed(batch.events, run)
            await asyncio.sleep(0)  # let other tasks run while a long log is read

    async def feed_whole(self, run: OwnRun, events: Sequence[bytes]) -> bool:
        """Continue with all events of a small run. Return False if they are missing or do not follow the last event."""
        if run.stored is None or run.sent is None:
            return False
        async with self.lock:
            if self.last != run.first - 1:
                return False
            await self.feed([*run.stored, *events], run)
            return True

    async def feed(self, events: Sequence[bytes], run: OwnRun | None = None) -> None:
        """Continue with events of the log. ``run`` is their run, if the caller knows it."""
        for count, data in enumerate(events, 1):
            if count % _READ_AT_ONCE == 0:
                await asyncio.sleep(0)
            event = await offload(self._decode_large, data) if len(data) > LARGE else _decode_event(data)
            cls = event.__class__
            if cls is RunStartedEvent:
                sent = await self._start_run(cast("RunStartedEvent", event), self.last + 1, run)
                self.last += 1
                self._open_size += len(data)
                if sent > _READ_AT_ONCE:
                    await asyncio.sleep(0)
                continue
            branch = self._branch
            if branch is not None and event is not None:
                branch.feed(event, self.last + 1)
            self.last += 1
            self._open_size += len(data)
            if cls in _TERMINAL and branch is not None:
                if count > _READ_AT_ONCE:
                    await asyncio.sleep(0)
                await self._close_run(branch)

    def _decode_large(self, data: bytes) -> Event | None:
        """Decode an event and compute its patch. Call it in a thread."""
        event = _decode_event(data)
        if self._branch is not None and event is not None:
            self._branch.prepare(event)
        return event

    async def _start_run(self, event: RunStartedEvent, number: int, run: OwnRun | None) -> int:
        """Continue with a new run, on the branch of the latest run or on another one.

        Return how many messages the client has sent.
        """
        if self._branch is not None and self._branch.tip not in self._closed:
            await self._close_run(self._branch)  # a run without a terminal event
        if run is None or run.lease.run_id != event.run_id:
            record = await self._log.store.run(self._log.scope, self._log.thread_id, event.run_id)
            sent, stored_parent = await load_input(self._log.store, record), record.parent_run_id
            size = len(await offload(encode, sent) if is_large(sent) else encode(sent))
        else:
            assert run.sent is not None  # noqa: S101 - a large run is not reduced here
            sent, stored_parent, size = run.sent, run.parent_run_id, 0  # no size: the run is about to end
        # If the event names no parent, the parent was inferred from the messages, or there is none.
        inferred = stored_parent if event.parent_run_id in (None, event.run_id) else None
        parent = self._tree.find_parent(event, inferred)
        if self._unloaded:
            await self._load_known()
        branch = self._branch
        if branch is None or parent is not self._tree.latest:
            start = None if parent is None else await self._load_end(parent.run_id)
            branch = BranchReducer(start, self.creators, self._known, self._warn)
        # Nothing is awaited from here on: a call that was cancelled before has changed nothing.
        self._keep_latest()
        branch.start_run(event, sent, self._history, number, self._unknown_history, is_cut=inferred is not None)
        self._branch = branch
        self._open_size = size
        self._parent = None if parent is None else parent.run_id
        self._tree.add(event, parent)
        return len(sent.messages)

    def _keep_latest(self) -> None:
        """Cache the end of the latest run, which other branches may start from, before the next run begins."""
        branch = self._branch
        if branch is not None and branch.tip is not None:
            self._cache_end(branch.tip, self._snapshot(branch))

    async def _close_run(self, branch: BranchReducer) -> None:
        """Compute the changes of the run of a branch."""
        run_id = str(branch.tip)
        conversation = branch.conversation
        changes = await self._compute_changes(branch, conversation)
        self._closed[run_id] = ClosedRun(changes, conversation.runs[-1], branch.last)
        self._closed_size += 1024 + changes.size
        self._open_size = 0
        self._run_ends[run_id] = changes.end
        values = self._values.take_unsaved(changes)
        if values is not None:
            with suppress(UnicodeEncodeError):  # an id has half a surrogate pair: the run is reduced each time
                self._unsaved[run_id] = RunProjection(format=FORMAT, body=encode_changes(changes), values=values)

    async def _compute_changes(self, branch: BranchReducer, conversation: Conversation) -> RunChanges:
        values, changes, calls = self._values, branch.changes, branch.server_call_changes
        started, ended = branch.started, branch.ended
        assert started is not None  # noqa: S101
        messages = [*conversation.messages, *changes.known, *changes.front_end_calls.values()]
        for by_id in calls.results.values():
            messages += by_id.values()
        state = await values.add(messages, conversation.state)
        digests = b"".join(values.list_digests(conversation.messages))
        before = b"" if self._parent is None else self._list_of(self._parent)
        self._lists[str(branch.tip)] = digests
        return RunChanges(
            history=self._history,
            unknown_history=self._unknown_history,
            parent=self._parent,
            messages=compare_lists(before, digests).parts,
            state=state,
            has_state=branch.has_state,
            started=encode_event(started if started.input is None else replace(started, input=None)),
            ended=None if ended is None else encode_event(ended),
            calls=conversation.runs[-1].calls,
            call_starts=list(map(encode_event, branch.calls.values())),
            subagent_events=list(map(encode_event, branch.subagent_events)),
            created=changes.created,
            brought=changes.brought,
            instructions=changes.instructions,
            known=values.list_digests(changes.known),
            front_end_calls=values.map_digests(changes.front_end_calls) if changes.front_end_calls else {},
            results={call: values.map_digests(by_id) for call, by_id in calls.results.items()} if calls.results else {},
            end=find_end(conversation.messages),
            interrupted=list(calls.interrupted),
            uninterrupted=list(calls.uninterrupted),
        )

    def take_projections(self) -> dict[str, RunProjection]:
        """Return the projections of closed runs that the store does not have, by run id. The caller stores them."""
        found, self._unsaved = self._unsaved, {}
        return found

    # Projections

    async def project(self, run_id: str | None, *, with_known: bool = False) -> Projection:
        """Return the projection along the branch to a run, or to the latest. Raises ``NotFound``.

        Raises ``UnusableProjection``.
        """
        if with_known:
            await self._load_known()
        latest = self._tree.latest
        if run_id is None:
            run_id = None if latest is None else latest.run_id
        branch = self._branch
        if branch is not None and run_id == branch.tip:
            return self._snapshot(branch)
        if run_id is None:
            return self._snapshot(BranchReducer(None, self.creators, self._known, self._warn))
        if run_id not in self._tree:
            raise NotFound(f"no run {run_id!r}")
        return await self._load_end(run_id)

    def _snapshot(self, branch: BranchReducer) -> Projection:
        return Projection(
            thread_id=self._log.thread_id,
            conversation=branch.conversation,
            last=branch.last,
            tip=branch.tip,
            run=branch.last_run,
            client_instructions=branch.client_instructions,
            known=self._known,
            has_state=branch.has_state,
            server_calls=branch.server_calls,
            first_runs=self.creators.first_runs,
            tree=self._tree,
            run_ends=self._run_ends,
        )

    def _cache_end(self, run_id: str, end: Projection) -> None:
        self._ends.pop(run_id, None)
        self._ends[run_id] = end
        if len(self._ends) > MAX_CACHED_ENDS:
            oldest = next(iter(self._ends))
            del self._ends[oldest]
            self._lists.pop(oldest, None)

    def _list_of(self, run_id: str) -> bytes:
        """Return the digests of the messages at the end of a run."""
        found = self._lists.get(run_id)
        if found is None:
            path = [self._closed[node.run_id].changes for node in self._tree.path(run_id)]
            found = self._lists[run_id] = apply_list(path)
        return found

    async def _load_end(self, run_id: str) -> Projection:
        """Return the projection at the end of an earlier run."""
        end = self._ends.get(run_id)
        if end is None:
            end = await self._build_end(self._tree.path(run_id))
        self._cache_end(run_id, end)
        return end

    async def _build_end(self, path: Sequence[RunNode]) -> Projection:
        """Build the projection after the last run of a path from the changes of its runs."""
        closed = [self._closed[node.run_id] for node in path]
        tip = closed[-1]
        results: dict[str, dict[str, bytes]] = {}
        interrupted: set[str] = set()
        instructions: set[str] = set()
        for one in closed:
            changes = one.changes
            instructions.update(changes.instructions)
            interrupted.update(changes.interrupted)
            interrupted.difference_update(changes.uninterrupted)
            for call_id, messages in changes.results.items():
                if messages:
                    results[call_id] = messages
                else:
                    results.pop(call_id, None)
        digests = split_digests(self._list_of(path[-1].run_id))
        result_digests = [digest for messages in results.values() for digest in messages.values()]
        await self._load_values([*digests, *result_digests], states=frozenset([tip.changes.state]))
        values = self._values
        calls = ServerCalls(
            results={
                call_id: {message_id: values[digest] for message_id, digest in messages.items()}
                for call_id, messages in results.items()
            },
            interrupted=frozenset(interrupted),
        )
        runs = [one.run for one in closed]
        # A failed run leaves the questions of the run before it open (INT-7).
        ended = next((run for run in reversed(runs) if run.outcome not in (None, "error")), None)
        return Projection(
            thread_id=self._log.thread_id,
            conversation=Conversation(
                messages=[values[digest] for digest in digests],
                state=values[tip.changes.state],
                runs=runs,
                interrupts=[] if ended is None else ended.interrupts,
            ),
            last=tip.last,
            tip=path[-1].run_id,
            run=last_run(tip.changes),
            client_instructions=frozenset(instructions),
            known=self._known,
            has_state=tip.changes.has_state,
            server_calls=calls if results or interrupted else NO_CALLS,
            first_runs=self.creators.first_runs,
            tree=self._tree,
            run_ends=self._run_ends,
        )

    async def _load_values(self, messages: Sequence[bytes], *, states: frozenset[bytes] = frozenset()) -> None:
        log, values = self._log, self._values
        missing = values.select_missing([*messages, *states])
        for at in range(0, len(missing), _READ_AT_ONCE):
            found = await log.store.values(log.scope, log.thread_id, missing[at : at + _READ_AT_ONCE])
            await values.load(found, states=states)
            await asyncio.sleep(0)  # a store in memory answers at once

    async def _load_known(self) -> None:
        """Load the known messages of the runs that were read from stored projections."""
        unloaded = self._unloaded
        if not unloaded:
            return
        digests = [digest for changes in unloaded for digest in (*changes.known, *changes.front_end_calls.values())]
        await self._load_values(digests)
        values = self._values
        self._unloaded = self._unloaded[len(unloaded) :]
        for changes in unloaded:
            for digest in changes.known:
                self._known.add(values[digest])
            for call_id, digest in changes.front_end_calls.items():
                self._known.front_end_calls[call_id] = values[digest]


def _decode_event(data: bytes) -> Event | None:
    """Decode an event of the log. Return None if its type is unknown."""
    return cast("Event | None", decode_event(data, compat="off", warn=ignore_notice, max_size=UNLIMITED))
