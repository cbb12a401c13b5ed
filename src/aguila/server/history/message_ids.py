"""Layer: server. Ids of messages that a client sent without one, as clients from before 1.0 may (ENV-12).

Below: the ids that the codec gives by place, ``overlay`` (what is the same message). Above: ``history`` and
``projection``, which both come to the same ids: they depend on the request and on the view that it goes on from, and on
nothing else. Pure.

The codec sees one body, and names such a message by its place in it. That is no name in a thread: one client sends all
there is every time, another only what is new, and then every turn would be the same message. So here, and only for
these, the words decide as well:

* If the request begins as the thread does, word by word, as far as an answer of the agent or through all of it with
  more to come, then it repeats the thread: what agrees has the ids that the thread has.
* Everything else is new: its id is made of the run and the place, so that the same request is the same again.

A client that says "yes" twice and sends only what is new means it twice. A client that sends all there is and asks once
more with its first message alone cannot be told from that one, nor can one that has cut off the beginning: their
messages are new. They would have to send ids.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from aguila.protocol import Message, RunAgentInput, replace
from aguila.server.history.merge import UNSENT_ROLES, is_same_message

PLACEHOLDER_PREFIX: Final = "legacy-message-"
"""What ids of the codec begin with."""


def has_placeholder_ids(messages: Sequence[Message]) -> bool:
    """Whether some of these messages may have come without an id."""
    return any(message.id.startswith(PLACEHOLDER_PREFIX) for message in messages)


def assign_ids(input: RunAgentInput, held: Sequence[Message]) -> RunAgentInput:  # noqa: A002 - the protocol's word for it
    """The input with ids that are good in its thread, of which ``held`` are the messages that it goes on from."""
    if not has_placeholder_ids(input.messages):
        return input
    known = _repeated(input.messages, held)
    messages = list(input.messages)
    for place, message in enumerate(messages):
        if place < len(known):
            messages[place] = message if message.id == known[place] else replace(message, id=known[place])
        elif _is_unnamed(message, place):
            messages[place] = replace(message, id=f"{input.run_id}-message-{place + 1}")
    return replace(input, messages=messages)


def _is_unnamed(message: Message, place: int) -> bool:
    return message.id == f"{PLACEHOLDER_PREFIX}{place + 1}"


def _repeated(sent: Sequence[Message], held: Sequence[Message]) -> list[str]:
    """The ids of the held messages that the sent ones begin with; none if that may be by chance."""
    ids: list[str] = []
    at = 0
    has_answer = False
    for place, message in enumerate(sent):
        while at < len(held) and held[at].role in UNSENT_ROLES and held[at].role != message.role:
            at += 1  # which few clients send back
        if at == len(held):
            break
        old = held[at]
        if not (message.id == old.id or _is_unnamed(message, place)):
            break
        if not is_same_message(replace(message, id=old.id), old):
            break
        ids.append(old.id)
        has_answer = has_answer or message.role == "assistant"
        at += 1
    is_all = at == len(held) and len(sent) > len(ids)
    return ids if has_answer or is_all else []
