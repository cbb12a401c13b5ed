"""Leave out messages of other branches (``history="server"``).

A client that branches off may still send the messages of the branch that it left. A message that first came with
a run of another branch is left out, with two exceptions. The last message is kept if it is the user's: a client that
asks for another answer sends the question again. A tool result is kept if its call is pending on this branch.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from aguila.protocol import Message, ToolMessage

if TYPE_CHECKING:
    from aguila.server.threads.view import View


def select_messages(messages: Sequence[Message], view: View, run_id: str) -> tuple[Sequence[Message], list[str]]:
    """Return the messages of a request that join the branch ``view``, and the ids of the others.

    ``run_id`` is the run of the request: its own messages join, when it is planned again.
    """
    conversation, first_runs = view.conversation, view.index.first_runs
    path = {None, run_id, *(run.run_id for run in conversation.runs)}
    foreign = {message.id for message in messages if first_runs.get(message.id) not in path}
    if messages and messages[-1].role == "user":
        foreign.discard(messages[-1].id)
    foreign.difference_update([message.id for message in conversation.messages] if foreign else ())
    if not foreign:
        return messages, []
    pending = {call.id for call in conversation.pending_tool_calls}
    for message in messages:
        if isinstance(message, ToolMessage) and message.tool_call_id in pending:
            foreign.discard(message.id)
    kept = [message for message in messages if message.id not in foreign]
    return kept, [message.id for message in messages if message.id in foreign]
