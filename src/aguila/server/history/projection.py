"""Read a thread's log into projections: its messages, state and last run along one branch.

``history`` decides what an input's messages do to the thread. With ``"server"``, a known id keeps its message, and
messages that the client omits stay. With ``"client"``, the client's messages replace the thread's from the first one
that both have (``merge``). A run that names a ``parentRunId`` branches off there. No run changes the projection at the
end of another run. The log does not say which mode a run had, so a thread is read by the current setting.
"""

from __future__ import annotations

import asyncio
from collections import OrderedDict
from collections.abc import Mapping, Sequence
from typing import Final

import msgspec

from aguila.codec import EventDecoder
from aguila.codec.notices import Notice, Warn, log_notice
from aguila.errors import CursorExpired, NotFound
from aguila.offload import LARGE, offload
from aguila.protocol import Message, RunAgentInput, RunStartedEvent
from aguila.server.history.branch_reducer import BranchReducer, HistoryMode, LastRun, MessageCreators
from aguila.server.history.known_messages import KnownMessages, UnknownHistory
from aguila.server.history.other_branches import FirstRuns
from aguila.server.history.stored_input import load_input
from aguila.server.history.tool_results import NO_CALLS, ServerCalls
from aguila.server.limits import UNLIMITED
from aguila.store import Batch, Store
from aguila.stream import Conversation
from aguila.stream.lineage import RunNode, RunTree

MAX_CACHED_ENDS: Final = 8
"""Of how many earlier runs of a thread the projection is cached, for branches."""


class Projection(msgspec.Struct, frozen=True, kw_only=True):
    """A thread after event ``last``, along the branch from its root to the run ``tip``.

    ``client_instructions`` are the ids of system and developer messages that clients sent. ``has_state`` is whether the
    thread ever had a state: ``{}`` may be a state or the lack of one (IN-11). ``server_calls`` are the tool calls whose
    results come from the server. ``known`` are the messages that the runs of all branches have sent.
    """

    thread_id: str
    conversation: Conversation
    last: int
    tip: str | None
    run: LastRun | None
    client_instructions: frozenset[str]
    known: KnownMessages
    has_state: bool = False
    server_calls: ServerCalls = NO_CALLS
    first_runs: FirstRuns
    """Of all messages of the thread."""
    tree: RunTree
    """All runs of the thread."""
    run_ends: Mapping[str, str | None]
    """The last message that every client holds after each run, except the latest; see ``cut_history``."""

    @property
    def is_running(self) -> bool:
        """Whether the last run is still running."""
        return self.run is not None and self.run.ended is None


class Projections:
    """The projections of a store's threads. The ``max_threads`` most recently used threads are cached."""

    def __init__(
        self,
        store: Store,
        *,
        history: HistoryMode = "client",
        unknown_history: UnknownHistory = "keep",
        max_threads: int = 256,
        warn: Warn = log_notice,
    ) -> None:
        self.store = store
        self._history: HistoryMode = history
        self._unknown_history: UnknownHistory = unknown_history
        self._max_threads = max_threads
        self._warn = warn
        self._threads: OrderedDict[tuple[str, str], _ThreadReader] = OrderedDict()

    async def load(self, scope: str, thread_id: str, run_id: str | None = None) -> Projection:
        """Return the thread along the branch to a run, or to its latest run, with all events stored by now.

        Raises ``NotFound`` if the scope has no such thread or run.
        """
        try:
            return await self._read(scope, thread_id, run_id)
        except CursorExpired:
            # The thread was deleted and created again while it was read.
            self._threads.pop((scope, thread_id), None)
            return await self._read(scope, thread_id, run_id)

    async def load_before(self, scope: str, thread_id: str, run_id: str, parent: str | None) -> Projection | None:
        """Return the branch that a new run continues: up to ``parent``, or to the latest run if that is None.

        Return None if the thread is new, or if ``parent`` is the new run itself, which then continues no run.
        """
        if parent == run_id:
            return None
        try:
            return await self.load(scope, thread_id, parent)
        except NotFound:
            return None

    async def load_initial_messages(self, scope: str, thread_id: str, run_id: str) -> Sequence[Message]:
        """Return the messages that a run started with: those of its projection that it has not created.

        Raises ``NotFound`` if the scope has no such thread or run.
        """
        view = await self.load(scope, thread_id, run_id)
        created = self._threads[scope, thread_id].creators.all_created_by(run_id)
        return [message for message in view.conversation.messages if message.id not in created]

    async def _read(self, scope: str, thread_id: str, run_id: str | None) -> Projection:
        summary = await self.store.thread(scope, thread_id)
        thread = self._find_reader(_Log(self.store, scope, thread_id), summary.created_at, summary.last)
        async with thread.lock:
            await thread.catch_up(summary.last)
            return await thread.project(run_id)

    def _find_reader(self, log: _Log, created_at: float, last: int) -> _ThreadReader:
        key = (log.scope, log.thread_id)
        thread = self._threads.get(key)
        # A deleted thread may have been created again under the same id.
        if thread is None or thread.created_at != created_at or thread.last > last:
            thread = self._threads[key] = _ThreadReader(
                log, created_at, self._history, self._unknown_history, self._warn
            )
        self._threads.move_to_end(key)
        while len(self._threads) > self._max_threads:
            self._threads.popitem(last=False)
        return thread


class _Log(msgspec.Struct, frozen=True):
    """The stored log of one thread."""

    store: Store
    scope: str
    thread_id: str

    async def read(self, after: int, until: int) -> Sequence[Batch]:
        """Read the next batches. Raises ``CursorExpired`` if the log ends before event ``until``."""
        batches = await self.store.read(self.scope, self.thread_id, after, until=until)
        if not batches:
            raise CursorExpired(f"thread {self.thread_id!r} ends before event {until}")
        return batches


class _EventRange(msgspec.Struct):
    first: int
    last: int


class _ThreadReader:
    """Reads one thread: the tree of its runs, the branch to the latest run, and the ends of some earlier runs.

    The thread is cached between calls, so only events after the last one seen are read. The end of an earlier run that
    is no longer cached is reduced from the log again.
    """

    def __init__(
        self, log: _Log, created_at: float, history: HistoryMode, unknown_history: UnknownHistory, warn: Warn
    ) -> None:
        self.created_at = created_at
        self.last = 0
        self.lock = asyncio.Lock()
        self.creators = MessageCreators()
        self._known = KnownMessages()
        self._log = log
        self._history: HistoryMode = history
        self._unknown_history: UnknownHistory = unknown_history
        self._warn = warn
        self._decoder = EventDecoder(compat="off", warn=_ignore, max_size=UNLIMITED)
        self._tree = RunTree(warn)
        self._ranges: list[_EventRange] = []  # of the runs, by their index in the tree
        self._branch = BranchReducer(None, self.creators, self._known, warn)
        self._ends: OrderedDict[str, Projection] = OrderedDict()
        self._run_ends: dict[str, str | None] = {}

    async def catch_up(self, last: int) -> None:
        """Read the log up to event ``last``. A call that is cancelled is continued by the next one."""
        while self.last < last:
            for batch in await self._log.read(self.last, last):
                self.last = batch.first - 1  # a log may start after event 1
                for data in batch.events:
                    for event in (
                        await offload(self._decoder.feed, data) if len(data) > LARGE else self._decoder.feed(data)
                    ):
                        if event.__class__ is RunStartedEvent:
                            await self._start_run(event, self.last + 1)  # type: ignore[arg-type]
                        elif self._branch.tip is not None:
                            self._branch.feed(event, self.last + 1)
                            self._ranges[-1].last = self.last + 1
                    self.last += 1
            await asyncio.sleep(0)  # let other tasks run while a long log is read

    async def project(self, run_id: str | None) -> Projection:
        """Return the projection along the branch to a run, or to the latest. Raises ``NotFound``."""
        if run_id is None or run_id == self._branch.tip:
            return self._snapshot(self._branch)
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

    async def _start_run(self, event: RunStartedEvent, number: int) -> None:
        """Continue with a new run, on the branch of the latest run or on another one."""
        sent, inferred = await self._load_input(event)
        parent = self._tree.find_parent(event, inferred)
        latest = self._tree.latest
        if latest is not None:
            self._cache_end(latest.run_id, self._snapshot(self._branch))
            self._run_ends[latest.run_id] = self._branch.end
        branch = self._branch
        if parent is not latest:
            start = None if parent is None else await self._load_end(parent.run_id)
            branch = BranchReducer(start, self.creators, self._known, self._warn)
        branch.start_run(event, sent, self._history, number, self._unknown_history, is_cut=inferred is not None)
        # Nothing is awaited from here on: a call that was cancelled before has changed nothing.
        self._branch = branch
        self._tree.add(event, parent)
        self._ranges.append(_EventRange(number, number))

    async def _load_input(self, event: RunStartedEvent) -> tuple[RunAgentInput, str | None]:
        """Load the request of a run, and its parent if the messages alone tell it: inferred, or none."""
        store = self._log.store
        record = await store.run(self._log.scope, self._log.thread_id, event.run_id)
        is_inferred = event.parent_run_id in (None, event.run_id)
        return await load_input(store, record), record.parent_run_id if is_inferred else None

    def _cache_end(self, run_id: str, end: Projection) -> None:
        self._ends[run_id] = end
        self._ends.move_to_end(run_id)
        while len(self._ends) > MAX_CACHED_ENDS:
            self._ends.popitem(last=False)

    async def _load_end(self, run_id: str) -> Projection:
        """Return the projection at the end of an earlier run."""
        end = self._ends.get(run_id)
        if end is None:
            branch = BranchReducer(None, self.creators, self._known, _ignore)  # the first reading gave the notices
            for node in self._tree.path(run_id):
                await self._replay(branch, node)
            end = self._snapshot(branch)
        self._cache_end(run_id, end)
        return end

    async def _replay(self, branch: BranchReducer, node: RunNode) -> None:
        events = self._ranges[node.index]
        number = events.first - 1
        while number < events.last:
            for batch in await self._log.read(number, events.last):
                for data in batch.events:
                    number += 1
                    for event in (
                        await offload(self._decoder.feed, data) if len(data) > LARGE else self._decoder.feed(data)
                    ):
                        if event.__class__ is RunStartedEvent:
                            sent, inferred = await self._load_input(event)  # type: ignore[arg-type]
                            branch.start_run(
                                event,  # type: ignore[arg-type]
                                sent,
                                self._history,
                                number,
                                self._unknown_history,
                                is_cut=inferred is not None,
                            )
                        else:
                            branch.feed(event, number)


def _ignore(notice: Notice) -> None:
    """Drop a notice that was reported when the request arrived."""
