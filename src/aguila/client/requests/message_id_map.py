"""Find the messages that a server returns under ids of its own.

``ChatClient`` gets the whole conversation from the application each time, and has to send it under the server's ids.
"""

from __future__ import annotations

from collections.abc import Sequence

from aguila.protocol import AssistantMessage, Message, replace
from aguila.stream.message_equality import is_same_message

MessageKey = tuple[str, str]
"""A message's role and id."""


def find_renamed(sent: Sequence[Message], now: Sequence[Message]) -> dict[MessageKey, Message]:
    """Return the server's message for each sent message whose id is gone, by role and id.

    Messages are matched from the end: a server may have dropped the beginning of a conversation, not its last question.
    """
    keys, kept = {_key(message) for message in now}, {_key(message): at for at, message in enumerate(sent)}
    gone: dict[tuple[str, str | None], list[int]] = {}
    for at, message in enumerate(sent):
        if _key(message) not in keys:
            gone.setdefault(_text_key(message), []).append(at)
    found: dict[MessageKey, Message] = {}
    end = len(sent)
    for message in reversed(now) if gone else ():
        at = kept.get(_key(message))
        if at is None:
            # A message after the question is the answer, even if the agent gave the same answer before.
            if end == len(sent) and isinstance(message, AssistantMessage) and not message.tool_calls:
                continue
            places = reversed(gone.get(_text_key(message), ()))
            at = next((p for p in places if p < end and _is_renamed(sent[p], message)), None)
            if at is None:
                continue
            found[_key(sent[at])] = message
        end = min(end, at)
    return found


def _key(message: Message) -> MessageKey:
    return message.role, message.id


def _text_key(message: Message) -> tuple[str, str | None]:
    content = getattr(message, "content", None)
    return message.role, content if isinstance(content, str) else None


def _is_renamed(sent: Message, message: Message) -> bool:
    return is_same_message(replace(sent, id=message.id), message, is_extended=True)
