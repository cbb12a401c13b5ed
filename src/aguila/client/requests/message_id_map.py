"""Layer: client. Which messages of a conversation a server restates under ids of its own.

Below: ``outgoing`` (what it is to say the same). Above: ``chat``, which is given the conversation by the application
each time and has to send it under the ids that the server goes by. It only compares, and changes nothing.
"""

from __future__ import annotations

from collections.abc import Sequence

from aguila.client.requests.request_builder import says_the_same
from aguila.protocol import AssistantMessage, Message, replace

Key = tuple[str, str]
"""A message's role and id."""


def restated(sent: Sequence[Message], now: Sequence[Message]) -> dict[Key, Message]:
    """Messages that were sent and are gone, by role and id, with those that say the same in their place.

    Places are counted from the end: a server may have forgotten how a conversation began, not what it was just asked.
    """
    keys, kept = {_key(message) for message in now}, {_key(message): at for at, message in enumerate(sent)}
    gone: dict[tuple[str, str | None], list[int]] = {}
    for at, message in enumerate(sent):
        if _key(message) not in keys:
            gone.setdefault(_words(message), []).append(at)
    found: dict[Key, Message] = {}
    end = len(sent)
    for message in reversed(now) if gone else ():
        at = kept.get(_key(message))
        if at is None:
            # What comes after the question is the answer, even if the agent has given the same one before.
            if end == len(sent) and isinstance(message, AssistantMessage) and not message.tool_calls:
                continue
            places = reversed(gone.get(_words(message), ()))
            at = next((p for p in places if p < end and _is_restated(sent[p], message)), None)
            if at is None:
                continue
            found[_key(sent[at])] = message
        end = min(end, at)
    return found


def _key(message: Message) -> Key:
    return message.role, message.id


def _words(message: Message) -> tuple[str, str | None]:
    content = getattr(message, "content", None)
    return message.role, content if isinstance(content, str) else None


def _is_restated(sent: Message, message: Message) -> bool:
    return says_the_same(replace(sent, id=message.id), message)
