"""Find the run that a request continues if its client has cut off the end of its history.

A stock client that edits a message, or asks for another answer, removes the messages from there on and sends the rest.
It names no parent run (``parentRunId``, IN-4). So the parent is inferred, and stored with the run, but never sent.

Only a missing end makes a branch. The end of a thread branch is its last message that every client holds: a user
message, or an answer with text or calls. Activities and reasoning are not resent (IN-7), tool results may have other
ids, and messages of subagents are flattened for older clients. In these cases the request continues the latest run:

* the request has the end of the latest run, whatever else it omits, such as the beginning;
* the request has no known message besides system and developer messages;
* after its last known message there is an answer that is unknown: the client gives answers ids of its own;
* it answers a question of the latest branch;
* it waited for a run whose messages its client could not have.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Sequence
from typing import TYPE_CHECKING, Final

import msgspec

from aguila.protocol import AssistantMessage, Message, RunAgentInput
from aguila.server.history.client_history.message_ids import assign_ids

if TYPE_CHECKING:
    from aguila.server.history.projection import Projection
    from aguila.stream.lineage import RunNode


def find_end(messages: Sequence[Message]) -> str | None:
    """Return the id of the last message that every client sends back."""
    for message in reversed(messages):
        if _is_sent_back(message):
            return message.id
    return None


def _is_sent_back(message: Message) -> bool:
    if isinstance(message, AssistantMessage):
        return message.subagent_run_id is None and bool(message.content or message.tool_calls)
    return message.role == "user"


def infer_parent(input: RunAgentInput, latest: Projection, waited_for: str | None = None) -> str | None:  # noqa: A002
    """Return the run that a request without ``parentRunId`` continues.

    ``latest`` is the thread along the branch of its latest run. ``waited_for`` is the first run that had not ended when
    the request came. Return None for the latest run, and the request's own run id if it continues no run.
    """
    conversation, tree = latest.conversation, latest.tree
    messages = assign_ids(input, conversation.messages).messages
    end = find_end(conversation.messages)
    if end is None or any(message.id == end for message in messages):
        return None
    if input.resume:
        asked = {interrupt.id for run in conversation.runs for interrupt in run.interrupts}
        if not asked.isdisjoint(entry.interrupt_id for entry in input.resume):
            return None
    last: str | None = None
    for message in messages:
        if message.role in ("user", "assistant"):
            if latest.first_runs.find(message.id) is not None:
                last = message.id
            elif last is not None and message.role == "assistant":
                return None
    if last is None:
        return None
    parent = _find_parent(last, latest)
    if waited_for is not None and waited_for in tree:
        waited = tree[waited_for]
        if parent is waited.parent or (parent is not None and parent.index >= waited.index):
            return None
    return input.run_id if parent is None else parent.run_id


def _find_parent(message_id: str, latest: Projection) -> RunNode | None:
    """Return the latest run that ended with a message; else the run before the one that brought it."""
    for node in reversed(latest.tree.nodes):
        if latest.run_ends.get(node.run_id) == message_id:
            return node
    first = latest.first_runs.find(message_id)
    return None if first is None else latest.tree[first].parent


MAX_THREADS: Final = 4096
"""How many threads ``ThreadEnds`` remembers."""


class ThreadEnd(msgspec.Struct, frozen=True):
    """The end of a thread after a run: its last event, and ids of messages that a history has unless it is cut.

    ``ids`` is None if they are not known. ``ended_at`` is a time of the monotonic clock.
    """

    last: int
    ids: frozenset[str] | None
    run_id: str
    ended_at: float


class ThreadEnds:
    """The ends of the threads whose last run this process has executed, so that most requests need not read the log.

    An entry is valid as long as the thread has the same last event, which ``Store.begin`` checks.
    """

    def __init__(self) -> None:
        self._ends: OrderedDict[tuple[str, str], ThreadEnd] = OrderedDict()

    def record(self, scope: str, thread_id: str, end: ThreadEnd) -> None:
        """Record the end of a thread."""
        self._ends[scope, thread_id] = end
        self._ends.move_to_end((scope, thread_id))
        while len(self._ends) > MAX_THREADS:
            self._ends.popitem(last=False)

    def find_last(self, scope: str, input: RunAgentInput) -> int | None:  # noqa: A002
        """Return the last event of the thread if this request continues its latest run; 0 for an unknown thread.

        None if the history may be cut.
        """
        end = self._ends.get((scope, input.thread_id))
        if end is None:
            return 0
        has_end = end.ids is not None and end.ids.issubset({message.id for message in input.messages})
        return end.last if has_end else None

    def find_ended_since(self, scope: str, thread_id: str, time: float) -> str | None:
        """Return the latest run of the thread if it has ended in this process after a time of the monotonic clock."""
        end = self._ends.get((scope, thread_id))
        return None if end is None or end.ended_at <= time else end.run_id
