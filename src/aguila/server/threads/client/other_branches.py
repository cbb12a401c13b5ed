"""Leave out messages of other branches (``history="server"``).

A client that branches off may still send the messages of the branch that it left. A message that first came with
a run of another branch is left out, with two exceptions. The last message is kept if it is the user's: a client that
asks for another answer sends the question again. A tool result is kept if its call is pending on this branch.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence

import msgspec

from aguila.protocol import Message, ToolMessage


class FirstRuns:
    """Which run of a thread brought each message first, from the client or from the agent."""

    __slots__ = ("_runs",)

    def __init__(self) -> None:
        self._runs: dict[str, str] = {}

    def record(self, run_id: str, message_id: str) -> bool:
        """Record that a run brought a message, unless an earlier run did. Call it in the order of the log.

        Return whether it is the first run that brought the message.
        """
        return self._runs.setdefault(message_id, run_id) == run_id

    def find(self, message_id: str) -> str | None:
        """Return the run that brought the message first; None if no run did."""
        return self._runs.get(message_id)

    def is_elsewhere(self, message_id: str, path: Collection[str]) -> bool:
        """Return whether a run that is not on this path brought the message first."""
        run_id = self._runs.get(message_id)
        return run_id is not None and run_id not in path


class SelectedMessages(msgspec.Struct, frozen=True):
    """The messages of a request that join a branch, and the ids of the others."""

    messages: Sequence[Message]
    left_out: Sequence[str] = ()


def select_messages(
    messages: Sequence[Message],
    known: Callable[[str], bool],
    first_runs: FirstRuns,
    path: Collection[str],
    find_pending: Callable[[], Collection[str]],
) -> SelectedMessages:
    """Select the messages that join the branch of the runs ``path``, which ends with the run of the request.

    ``known`` returns whether the branch has the message with an id, ``find_pending`` the ids of its pending calls.
    """
    foreign = {
        message.id
        for index, message in enumerate(messages)
        if first_runs.is_elsewhere(message.id, path)
        and not known(message.id)
        and not (index == len(messages) - 1 and message.role == "user")
    }
    if not foreign:
        return SelectedMessages(messages)
    pending = find_pending()
    for message in messages:
        if isinstance(message, ToolMessage) and message.tool_call_id in pending:
            foreign.discard(message.id)
    kept = [message for message in messages if message.id not in foreign]
    return SelectedMessages(kept, [message.id for message in messages if message.id in foreign])
