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

from collections.abc import Sequence
from typing import TYPE_CHECKING

import msgspec

from aguila.protocol import AssistantMessage, Message, RunAgentInput
from aguila.server.threads.client.message_ids import assign_ids

if TYPE_CHECKING:
    from aguila.server.threads.view import View
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


def infer_parent(input: RunAgentInput, latest: View, waited_for: str | None = None) -> str | None:  # noqa: A002
    """Return the run that a request without ``parentRunId`` continues.

    ``latest`` is the thread along the branch of its latest run. ``waited_for`` is the first run that had not ended when
    the request came. Return None for the latest run, and the request's own run id if it continues no run.
    """
    conversation, tree = latest.conversation, latest.index.tree
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
            if message.id in latest.index.first_runs:
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


def _find_parent(message_id: str, latest: View) -> RunNode | None:
    """Return the latest run that ended with a message; else the run before the one that brought it."""
    for node in reversed(latest.index.tree.nodes):
        if latest.index.ends.get(node.run_id) == message_id:
            return node
    first = latest.index.first_runs.get(message_id)
    return None if first is None else latest.index.tree[first].parent


class ThreadEnd(msgspec.Struct, frozen=True):
    """The end of a thread after a run: its last event, and ids of messages that a history has unless it is cut.

    ``ids`` is None if they are not known. ``ended_at`` is a time of the monotonic clock.
    """

    last: int
    ids: frozenset[str] | None
    run_id: str
    ended_at: float
