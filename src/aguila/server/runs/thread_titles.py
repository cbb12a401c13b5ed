"""The title of a thread that nobody has named: the beginning of its first message."""

from __future__ import annotations

from collections.abc import Sequence

from aguila.protocol import Message, TextPart, UserMessage
from aguila.store.encoding import is_title

_LENGTH = 60
_READ = 1_000
"""Characters that are looked at: a message may be large."""


def derive_title(messages: Sequence[Message]) -> str | None:
    """Return the beginning of the first user message on one line; None without a text that can be a title."""
    first = next((one for one in messages if isinstance(one, UserMessage)), None)
    if first is None:
        return None
    content = first.content
    parts = [content] if isinstance(content, str) else [part.text for part in content if isinstance(part, TextPart)]
    title = " ".join(" ".join(part[:_READ] for part in parts).split())[:_LENGTH].rstrip()
    return title if title and is_title(title) else None
