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
            return _join([part.text for part in message.content if isinstance(part, TextPart)])
    return ""


def _join(texts: list[str]) -> str:
    """Join texts with a space where neither has one: an image may have stood between two words."""
    joined = ""
    for text in texts:
        is_apart = not joined or not text or joined[-1].isspace() or text[0].isspace()
        joined += text if is_apart else f" {text}"
    return joined
