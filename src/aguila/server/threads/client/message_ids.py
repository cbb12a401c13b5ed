"""Give ids to messages that a client sent without one, as clients before 1.0 may (ENV-12).

The codec gives such a message a placeholder id by its position in the body. That does not identify it in a thread: some
clients send the whole history, others only the new messages. So messages without ids are matched by their content:

* The request's first messages that equal those of the thread get the thread's ids, if they include an answer of the
  agent, or are the whole thread and more messages follow.
* All other messages are new. Their ids are made from the run id and the position, so a repeated request gives the same
  ids.

A client that sends only new messages can send "yes" twice. So a client that otherwise sends the whole history, but now
only its first message, or leaves out the beginning, sends new messages, too.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from aguila.protocol import Message, RunAgentInput, replace
from aguila.server.threads.client.merge import UNSENT_ROLES
from aguila.stream.message_equality import is_same_message

PLACEHOLDER_PREFIX: Final = "legacy-message-"
"""The start of the ids that the codec gives by position."""


def has_placeholder_ids(messages: Sequence[Message]) -> bool:
    """Return whether some of these messages may have come without an id."""
    for message in messages:  # noqa: SIM110 - called several times a run, mostly for a few messages
        if message.id.startswith(PLACEHOLDER_PREFIX):
            return True
    return False


def assign_ids(input: RunAgentInput, known: Sequence[Message]) -> RunAgentInput:  # noqa: A002 - the protocol's word
    """Replace placeholder ids. ``known`` are the messages of the branch that the run continues.

    The result depends on the arguments alone, so every reader of a stored request gets the same ids.
    """
    if not has_placeholder_ids(input.messages):
        return input
    repeated = _find_repeated(input.messages, known)
    messages = list(input.messages)
    for index, message in enumerate(messages):
        if index < len(repeated):
            messages[index] = message if message.id == repeated[index] else replace(message, id=repeated[index])
        elif _has_placeholder_id(message, index):
            messages[index] = replace(message, id=f"{input.run_id}-message-{index + 1}")
    return replace(input, messages=messages)


def _has_placeholder_id(message: Message, index: int) -> bool:
    return message.id == f"{PLACEHOLDER_PREFIX}{index + 1}"


def _find_repeated(sent: Sequence[Message], known: Sequence[Message]) -> list[str]:
    """Return the ids of the known messages that the request starts with; none if that may be a coincidence."""
    named = {message.id for index, message in enumerate(sent) if not _has_placeholder_id(message, index)}
    ids: list[str] = []
    at = 0
    has_answer = False
    for index, message in enumerate(sent):
        while at < len(known) and known[at].role in UNSENT_ROLES and known[at].role != message.role:
            at += 1
        if at == len(known):
            break
        old = known[at]
        if message.id != old.id and (not _has_placeholder_id(message, index) or old.id in named):
            break  # another message, or the request has the known one later, with its id
        if not is_same_message(replace(message, id=old.id), old):
            break
        ids.append(old.id)
        has_answer = has_answer or message.role == "assistant"
        at += 1
    is_whole_thread = at == len(known) and len(sent) > len(ids)
    return ids if has_answer or is_whole_thread else []
