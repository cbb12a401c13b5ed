"""A view of a thread: its messages, state and runs along one branch, folded from the turns of the branch."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from typing import Any, Protocol

import msgspec

from aguila.codec.notices import Warn
from aguila.protocol import Message, RunStartedEvent
from aguila.server.threads.client.known_messages import KnownMessages
from aguila.server.threads.client.merge import UNSENT_ROLES
from aguila.server.threads.client.tool_results import NO_CALLS, ServerCalls
from aguila.server.threads.turn import Turn, apply_lists, apply_results
from aguila.store.contents import split_digests
from aguila.stream import Conversation
from aguila.stream.lineage import RunNode, RunTree


class Values(Protocol):
    """Values by their digests."""

    def __getitem__(self, digest: bytes, /) -> Any: ...


class ThreadIndex:
    """The runs of all branches of a thread, and which run brought or created which message."""

    def __init__(self, warn: Warn) -> None:
        self.tree = RunTree(warn)
        self.first_runs: dict[str, str] = {}
        """The run that brought each message first, from the client or from the agent."""
        self.known = KnownMessages()
        """The messages that the runs have sent. They are loaded only if the caller of ``Thread.at`` asks for them."""
        self.ends: dict[str, str | None] = {}
        """The last message that every client holds after each closed run; see ``cut_history``."""
        # Dicts as ordered sets.
        self._creators: dict[str, dict[str, None]] = {}
        self._created: dict[str, dict[str, None]] = {}

    def begin(self, event: RunStartedEvent, parent: RunNode | None) -> None:
        """Add a run to the tree, unless it has it."""
        if event.run_id not in self.tree:
            self.tree.add(event, parent)

    def add(self, run_id: str, turn: Turn) -> None:
        """Add the turn of a closed run. Its run must have begun."""
        self.ends[run_id] = turn.last_sent
        for message_id in turn.brought:
            self.first_runs.setdefault(message_id, run_id)
        for message_id, role in turn.created:
            self.first_runs.setdefault(message_id, run_id)
            if role in UNSENT_ROLES:
                self._creators.setdefault(message_id, {})[run_id] = None
            else:
                self._created.setdefault(run_id, {})[message_id] = None

    def creator_of(self, message_id: str, path: Collection[str]) -> str | None:
        """Return the latest run of a path that created this activity or reasoning message."""
        return next((run for run in reversed(self._creators.get(message_id, {})) if run in path), None)

    def created_by(self, run_id: str) -> Iterable[str]:
        """Return the ids of the messages that a run created, without activities and reasoning."""
        return self._created.get(run_id, ())


class View(msgspec.Struct, frozen=True, kw_only=True):
    """A thread after event ``last``, along the branch from its root to a run. Without turns it is the empty thread.

    ``turn`` is that of the run. ``digests`` are those of the messages. ``client_instructions`` are the ids of system
    and developer messages that clients sent. ``server_calls`` are the tool calls whose results come from the server.
    """

    thread_id: str
    index: ThreadIndex
    last: int = 0
    turn: Turn | None = None
    digests: bytes = b""
    conversation: Conversation = Conversation(messages=[], state={}, runs=[], interrupts=[])
    client_instructions: frozenset[str] = frozenset()
    server_calls: ServerCalls = NO_CALLS

    @property
    def tip(self) -> str | None:
        """The run at the end of the branch."""
        return None if self.turn is None else self.turn.started.run_id

    @property
    def is_running(self) -> bool:
        """Whether that run is still running."""
        return self.turn is not None and self.turn.end is None

    @property
    def has_state(self) -> bool:
        """Whether the branch ever had a state: ``{}`` may be a state or the lack of one (IN-11)."""
        return self.turn is not None and self.turn.has_state

    @property
    def initial_messages(self) -> list[Message]:
        """The messages that the last run started with: those that it has not created."""
        created = set[str]() if self.turn is None else {message_id for message_id, _ in self.turn.created}
        return [message for message in self.conversation.messages if message.id not in created]

    @classmethod
    def fold(cls, start: View, turns: Sequence[Turn], values: Values, last: int) -> View:
        """Return the view after these turns, which continue the branch of ``start``. Nothing else makes a view.

        ``values`` has the messages and results that ``list_digests`` names, and the last state. ``last`` is the number
        of the last event. Raises ``UnusableTurn``.
        """
        digests = apply_lists(start.digests, turns)
        runs = [*start.conversation.runs, *(turn.run for turn in turns)]
        # A failed run leaves the questions of the run before it open (INT-7).
        ended = next((run for run in reversed(runs) if run.outcome not in (None, "error")), None)
        return cls(
            thread_id=start.thread_id,
            index=start.index,
            last=last,
            turn=turns[-1],
            digests=digests,
            conversation=Conversation(
                messages=[values[digest] for digest in split_digests(digests)],
                state=values[turns[-1].state],
                runs=runs,
                interrupts=[] if ended is None else ended.interrupts,
            ),
            client_instructions=start.client_instructions.union(*(turn.instructions for turn in turns)),
            server_calls=_fold_calls(start.server_calls, turns, values),
        )


def _fold_calls(start: ServerCalls, turns: Sequence[Turn], values: Values) -> ServerCalls:
    changed = apply_results(turns)
    interrupted = start.interrupted
    for turn in turns:
        if turn.interrupted or turn.uninterrupted:
            interrupted = interrupted.union(turn.interrupted).difference(turn.uninterrupted)
    if not changed and interrupted is start.interrupted:
        return start
    results = dict(start.results)
    for call_id, digests in changed.items():
        results.pop(call_id, None)
        if digests:
            results[call_id] = {message_id: values[digest] for message_id, digest in digests.items()}
    return ServerCalls(results=results, interrupted=interrupted)
