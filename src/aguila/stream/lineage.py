"""Layer: stream. Runs form a tree: ``Lineage`` reads it from a log and travels along it.

Below: the reducer. Above: servers and tools that show branches, or a conversation as it was after some run. It only
reads logs; what it makes of them is told by the reducer alone.

A run's ``parentRunId`` names the run it continues; without one it continues the run before it in the log. Editing an
earlier message or trying again is a run that names an earlier parent, and makes a branch. A log holds the runs of one
thread one after the other, as a stream does (LIFE-17): runs that were live at the same time have to be written to it
one by one, since events do not say which run they belong to.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import cast

import msgspec
from msgspec import UNSET

from aguila.codec.notice import Notice, Warn, log_notice
from aguila.protocol import Event, Message, RunStartedEvent, State, StateSnapshotEvent
from aguila.stream.chunks import expand_chunks
from aguila.stream.conversation import Conversation
from aguila.stream.reduce import Reducer


class LineageRun(msgspec.Struct, frozen=True, kw_only=True):
    """One run of a log and its place in the tree.

    ``parent_run_id`` is the run it continues, also where the log left that unsaid; None at a root. ``children`` are in
    the order of the log. ``start`` is the index of its first event in the log.
    """

    run_id: str
    thread_id: str
    parent_run_id: str | None
    children: list[str]
    events: list[Event]
    start: int


def parent_of(
    event: RunStartedEvent, positions: Mapping[str, int], latest: int | None
) -> tuple[int | None, str | None]:
    """The run that a new one continues, by its position, and the parent that it names if that is not to be found.

    ``positions`` are those of the runs before it by their ids, ``latest`` that of the last of them.
    """
    parent_id = event.parent_run_id
    if parent_id is None and event.input is not None:
        parent_id = event.input.parent_run_id
    if parent_id is None:
        return latest, None
    parent = positions.get(parent_id)
    return parent, parent_id if parent is None else None


class Lineage:
    """The tree of runs in a log.

    ``log`` is every event of a thread in order. Tolerated with a notice: a parent that the log has not brought before
    (the run becomes a root), a run id used twice (ENV-11; the id then means the later run, and what continued the
    earlier one still does), and events before the first RUN_STARTED, such as the RUN_ERROR of a refused run, which
    belong to no run.
    """

    def __init__(self, log: Iterable[Event], *, warn: Warn = log_notice) -> None:
        self._runs: list[LineageRun] = []
        self._parents: list[int | None] = []
        self._position: dict[str, int] = {}
        events: list[Event] | None = None
        stray = False
        for index, event in enumerate(log):
            if isinstance(event, RunStartedEvent):
                events = self._add(event, index, warn)
            elif events is None:
                if not stray:
                    warn(Notice(rule="LIFE-1", message="events before the first run are in no branch"))
                stray = True
            else:
                events.append(event)

    @classmethod
    def from_runs(cls, runs: Iterable[Iterable[Event]], *, warn: Warn = log_notice) -> Lineage:
        """The tree of runs whose events are kept one by one, in the order in which the runs were made."""
        return cls((event for run in runs for event in run), warn=warn)

    def _add(self, event: RunStartedEvent, index: int, warn: Warn) -> list[Event]:
        run_id = event.run_id
        parent, missing = parent_of(event, self._position, len(self._runs) - 1 if self._runs else None)
        if missing is not None:
            message = f"run {run_id!r} names the parent {missing!r}, which is not in the log; it starts anew"
            warn(Notice(rule="LIFE-2", message=message, path="/parentRunId", event_type=str(event.type)))
        if run_id in self._position:
            message = f"two runs have the id {run_id!r}; it means the later one"
            warn(Notice(rule="ENV-11", message=message, path="/runId", event_type=str(event.type)))
        run = LineageRun(
            run_id=run_id,
            thread_id=event.thread_id,
            parent_run_id=None if parent is None else self._runs[parent].run_id,
            children=[],
            events=[event],
            start=index,
        )
        if parent is not None:
            self._runs[parent].children.append(run_id)
        self._position[run_id] = len(self._runs)
        self._runs.append(run)
        self._parents.append(parent)
        return run.events

    @property
    def runs(self) -> Sequence[LineageRun]:
        """Every run, in the order of the log."""
        return self._runs

    @property
    def roots(self) -> list[str]:
        """The runs that continue no other."""
        return [run.run_id for run, parent in zip(self._runs, self._parents, strict=True) if parent is None]

    @property
    def latest(self) -> str | None:
        """The run that a next one would continue if it named no parent."""
        return self._runs[-1].run_id if self._runs else None

    def branches(self) -> dict[str, list[str]]:
        """For each run that none continues, the runs from the root to it."""
        return {run.run_id: self.path(run.run_id) for run in self._runs if not run.children}

    def run(self, run_id: str) -> LineageRun:
        """The run of that id. Raises KeyError if the log has none."""
        return self._runs[self._position[run_id]]

    def path(self, run_id: str) -> list[str]:
        """The runs from the root to this one, both included. Raises KeyError if the log has no such run."""
        return [run.run_id for run in self._path(run_id)]

    def events_along(self, run_id: str) -> list[Event]:
        """The events of the runs from the root to this one. Raises KeyError if the log has no such run."""
        return [event for run in self._path(run_id) for event in run.events]

    def reduce_along(
        self,
        run_id: str,
        *,
        messages: Iterable[Message] = (),
        state: State = UNSET,
        warn: Warn = log_notice,
    ) -> Conversation:
        """The conversation as it was after this run, as if no other branch had been; raises as ``path``.

        A run whose input is echoed with a state started from that state (SNAP-4, IN-11), whatever the run before it
        had left: the application may have changed it in between. ``messages`` and ``state`` are what there was before
        the root.
        """
        reducer = Reducer(messages, state, warn=warn)
        for event in expand_chunks(self.events_along(run_id)):
            reducer.feed(event)
            if event.__class__ is RunStartedEvent:
                echo = cast("RunStartedEvent", event).input
                if echo is not None and echo.state is not None:
                    reducer.feed(StateSnapshotEvent(snapshot=echo.state))  # which says just this
        return reducer.conversation

    def _path(self, run_id: str) -> list[LineageRun]:
        path: list[LineageRun] = []
        position: int | None = self._position[run_id]
        while position is not None:
            path.append(self._runs[position])
            position = self._parents[position]
        path.reverse()
        return path
