"""The tree of runs in a log (``RunTree``), with their events and the conversation along each branch (``Lineage``).

A run continues the run that its ``parentRunId`` names, or else the run before it in the log. A run that names an
earlier parent, to edit a message or to retry, starts a branch. A run that names itself continues no run. A log has the
runs of one thread one after another, as a stream does (LIFE-17). Runs that were live at the same time have to be
written one by one, because events do not name their run.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import cast

import msgspec
from msgspec import UNSET

from aguila.codec.notices import Notice, Warn, log_notice
from aguila.protocol import Event, Message, RunStartedEvent, State, StateSnapshotEvent
from aguila.stream.chunks import expand_chunks
from aguila.stream.conversation import Conversation
from aguila.stream.reducer import Reducer


class LineageRun(msgspec.Struct, frozen=True, kw_only=True):
    """One run of a log and its position in the tree.

    ``parent_run_id`` is the run that it continues, also if the log does not name it; None for a root. ``children`` are
    in log order. ``start`` is the index of the run's first event in the log.
    """

    run_id: str
    thread_id: str
    parent_run_id: str | None
    children: list[str]
    events: list[Event]
    start: int


class RunNode:
    """The position of one run in a tree: ``index`` counts runs in log order; ``parent`` is None for a root."""

    __slots__ = ("children", "index", "parent", "run_id")

    def __init__(self, run_id: str, index: int, parent: RunNode | None) -> None:
        self.run_id = run_id
        self.index = index
        self.parent = parent
        self.children: list[RunNode] = []


class RunTree:
    """Which run continues which, in the order in which the runs started."""

    __slots__ = ("_by_id", "_warn", "nodes")

    def __init__(self, warn: Warn = log_notice) -> None:
        self.nodes: list[RunNode] = []
        self._by_id: dict[str, RunNode] = {}
        self._warn = warn

    def __contains__(self, run_id: str) -> bool:
        return run_id in self._by_id

    def __getitem__(self, run_id: str) -> RunNode:
        """Return a run; the later one if two have the same id. Raises KeyError if there is none."""
        return self._by_id[run_id]

    @property
    def latest(self) -> RunNode | None:
        """The run that the next run continues if it names no parent."""
        return self.nodes[-1] if self.nodes else None

    def find_parent(self, event: RunStartedEvent, inferred: str | None = None) -> RunNode | None:
        """Find the run that a new run continues. A run whose parent is not in the tree is a root, with a notice.

        ``inferred`` is the parent of a run that names none.
        """
        parent_id = event.parent_run_id
        if parent_id is None and event.input is not None:
            parent_id = event.input.parent_run_id
        if parent_id is None:
            parent_id = inferred
        if parent_id is None:
            return self.latest
        if parent_id == event.run_id:
            return None
        if parent_id not in self._by_id:
            message = f"run {event.run_id!r} names parent {parent_id!r}, which is not in the log; it becomes a root"
            self._warn(Notice(rule="LIFE-2", message=message, path="/parentRunId", event_type=str(event.type)))
        return self._by_id.get(parent_id)

    def add(self, event: RunStartedEvent, parent: RunNode | None) -> RunNode:
        """Add a run below the parent that ``find_parent`` found."""
        run_id = event.run_id
        if run_id in self._by_id:
            message = f"two runs have the id {run_id!r}; the id means the later one"
            self._warn(Notice(rule="ENV-11", message=message, path="/runId", event_type=str(event.type)))
        node = RunNode(run_id, len(self.nodes), parent)
        if parent is not None:
            parent.children.append(node)
        self.nodes.append(node)
        self._by_id[run_id] = node
        return node

    def path(self, run_id: str) -> list[RunNode]:
        """Return the runs from the root to this run, inclusive. Raises KeyError if the tree does not have the run."""
        path: list[RunNode] = []
        node: RunNode | None = self._by_id[run_id]
        while node is not None:
            path.append(node)
            node = node.parent
        path.reverse()
        return path


class Lineage:
    """The tree of runs in a log.

    ``log`` is every event of a thread in order. ``parents`` are the parents of runs that name none in the log, by run
    id: a server infers some, and ``GET /threads/{id}`` returns them with the runs. Three faults are tolerated with a
    notice. If the parent of a run is not in the log before it, the run becomes a root. If a run id is used twice
    (ENV-11), the id means the later run, and runs that continued the earlier one still do. Events before the first
    RUN_STARTED, such as the RUN_ERROR of a refused run, belong to no run.
    """

    def __init__(
        self, log: Iterable[Event], *, parents: Mapping[str, str] | None = None, warn: Warn = log_notice
    ) -> None:
        self._tree = RunTree(warn)
        self._parents: Mapping[str, str] = {} if parents is None else parents
        self._runs: list[LineageRun] = []
        events: list[Event] | None = None
        stray = False
        for index, event in enumerate(log):
            if isinstance(event, RunStartedEvent):
                events = self._add(event, index)
            elif events is None:
                if not stray:
                    warn(Notice(rule="LIFE-1", message="events before the first run belong to no branch"))
                stray = True
            else:
                events.append(event)

    def _add(self, event: RunStartedEvent, index: int) -> list[Event]:
        parent = self._tree.find_parent(event, self._parents.get(event.run_id))
        self._tree.add(event, parent)
        run = LineageRun(
            run_id=event.run_id,
            thread_id=event.thread_id,
            parent_run_id=None if parent is None else parent.run_id,
            children=[],
            events=[event],
            start=index,
        )
        if parent is not None:
            self._runs[parent.index].children.append(event.run_id)
        self._runs.append(run)
        return run.events

    @property
    def runs(self) -> Sequence[LineageRun]:
        """All runs, in log order."""
        return self._runs

    @property
    def roots(self) -> list[str]:
        """The runs that continue no other run."""
        return [node.run_id for node in self._tree.nodes if node.parent is None]

    @property
    def latest(self) -> str | None:
        """The run that the next run continues if it names no parent."""
        node = self._tree.latest
        return None if node is None else node.run_id

    def branches(self) -> dict[str, list[str]]:
        """Return the path from the root to each run that has no children, by run id."""
        return {run.run_id: self.path(run.run_id) for run in self._runs if not run.children}

    def run(self, run_id: str) -> LineageRun:
        """Return a run. Raises KeyError if the log does not have it."""
        return self._runs[self._tree[run_id].index]

    def path(self, run_id: str) -> list[str]:
        """Return the run ids from the root to this run, inclusive. Raises KeyError if the log does not have the run."""
        return [node.run_id for node in self._tree.path(run_id)]

    def events_along(self, run_id: str) -> list[Event]:
        """Return the events from the root to the end of this run. Raises KeyError if the log does not have the run."""
        return [event for run in self._path(run_id) for event in run.events]

    def reduce_along(
        self,
        run_id: str,
        *,
        messages: Iterable[Message] = (),
        state: State = UNSET,
        warn: Warn = log_notice,
    ) -> Conversation:
        """Reduce the runs from the root to this run, without those of other branches. Raises KeyError as ``path`` does.

        If a run's input is echoed with a state, the run starts from that state (SNAP-4, IN-11): the application may
        have changed it since the run before. ``messages`` and ``state`` are those before the root.
        """
        reducer = Reducer(messages, state, warn=warn)
        for event in expand_chunks(self.events_along(run_id)):
            reducer.feed(event)
            if event.__class__ is RunStartedEvent:
                echo = cast("RunStartedEvent", event).input
                if echo is not None and echo.state is not None:
                    reducer.feed(StateSnapshotEvent(snapshot=echo.state))
        return reducer.conversation

    def _path(self, run_id: str) -> list[LineageRun]:
        return [self._runs[node.index] for node in self._tree.path(run_id)]
