"""Layer: client. What is sent: messages from what an application says, and the input, enforced (IN-15).

Below: the codec. Above: ``thread``.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, get_args

from aguila.codec import decode, encode
from aguila.codec.downgrade import downgrade_input
from aguila.errors import DecodeError, EncodeError
from aguila.protocol import ActivityMessage, ContentPart, Message, RunAgentInput, TextPart, UserMessage, replace

if TYPE_CHECKING:
    from aguila.client._base import Settings

Content = (
    str | ContentPart | Message | Mapping[str, Any] | Sequence[str | ContentPart | Message | Mapping[str, Any]] | None
)
"""What ``thread.run`` takes: text, parts, messages, or nothing new."""

_LARGE = 1 << 20  # bytes, of which about three milliseconds are spent
_ARRAY: Any = list
_MESSAGES = get_args(Message)
_PARTS = get_args(ContentPart)


def messages_of(content: Content, settings: Settings) -> list[Message]:
    """New messages: text and parts in a row make one user message, messages are themselves, also as plain objects.

    Raises ``EncodeError`` for a plain object that is no message, TypeError for anything else.
    """
    if content is None:
        return []
    if isinstance(content, str):
        return [UserMessage(id=settings.new_id(), content=content)]
    items: Sequence[Any] = [content] if isinstance(content, (Mapping, *_MESSAGES, *_PARTS)) else content  # type: ignore[arg-type]
    messages: list[Message] = []
    parts: list[ContentPart] = []
    for item in items:
        if isinstance(item, str):
            parts.append(TextPart(text=item))
        elif isinstance(item, _PARTS):
            parts.append(item)  # type: ignore[arg-type]
        else:
            _say(messages, parts, settings)
            messages.append(_message(item, settings))
    _say(messages, parts, settings)
    return messages


def _say(messages: list[Message], parts: list[ContentPart], settings: Settings) -> None:
    if parts:
        messages.append(UserMessage(id=settings.new_id(), content=parts.copy()))
        parts.clear()


def _message(item: Any, settings: Settings) -> Message:
    if isinstance(item, _MESSAGES):
        return item  # type: ignore[return-value]
    if not isinstance(item, Mapping):
        raise TypeError(f"{type(item).__name__} is neither text nor a part nor a message")
    found: dict[str, Any] = dict(item)  # type: ignore[reportUnknownArgumentType]
    found.setdefault("id", settings.new_id())
    try:
        return decode(encode(found), Message, compat=settings.compat, warn=settings.warn)
    except DecodeError as error:
        raise EncodeError(error.message, path=error.path) from error


def is_large(input: RunAgentInput) -> bool:  # noqa: A002 - the protocol's word for it
    """Whether to write the input, and to check it, takes so long that an event loop should not wait for it."""
    parts = [part for message in input.messages for part in _parts_of(message)]
    return sum([len(part.source.value) for part in parts if not isinstance(part, TextPart)]) > _LARGE


def _parts_of(message: Message) -> Sequence[Any]:
    content: Any = getattr(message, "content", None)
    return content if isinstance(content, _ARRAY) else ()


def enforced_body(input: RunAgentInput, settings: Settings) -> bytes:  # noqa: A002 - the protocol's word for it
    """The input as it is sent: without activities (IN-7), unknown material and malformed values (IN-15).

    In the form of the peer's version, if an older one is configured (VER-11); nothing but that version loses anything.
    Raises ``EncodeError`` with the path of what is wrong.
    """
    if any(isinstance(message, ActivityMessage) for message in input.messages):
        input = replace(input, messages=[one for one in input.messages if not isinstance(one, ActivityMessage)])  # noqa: A001
    body = encode(input)
    try:
        # As a receiver reads it: what passes is exactly the schema, older shapes that a caller put in are upgraded.
        read: Any = decode(body, RunAgentInput, warn=settings.warn, max_size=max(settings.max_size, len(body)))
    except DecodeError as error:
        raise EncodeError(error.message, path=error.path) from error
    told = downgrade_input(read, settings.peer_version, settings.warn)
    return encode(told)
