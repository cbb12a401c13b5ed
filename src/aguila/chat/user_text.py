"""Read the text of the last user message."""

from __future__ import annotations

from collections.abc import Sequence

from aguila.protocol import Message, TextPart, UserMessage


def last_user_text(messages: Sequence[Message]) -> str:
    """Return the text of the last user message, its text parts joined; "" if there is none."""
    for message in reversed(messages):
        if isinstance(message, UserMessage):
            if isinstance(message.content, str):
                return message.content
            return "".join([part.text for part in message.content if isinstance(part, TextPart)])
    return ""
