"""Layer: agent. Agents that speak chat types: what they yield as events, what they were asked as chat messages.

Above: ``output`` hands over what is yielded; ``run`` asks for the conversation. Below: ``aguila.chat`` says what
contents mean. Nothing here fetches an address: only uploads of this server become bytes.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final, cast

from aguila.agent.context import Services
from aguila.chat.media import write_part
from aguila.chat.property_keys import FILENAME, PROVIDER, REQUIRES_RESOLUTION
from aguila.chat.to_chat.messages import as_chat_messages
from aguila.chat.types import (
    ChatMessage,
    ChatUpdate,
    Content,
    DataContent,
    FunctionResultContent,
    HostedFileContent,
    ReasoningContent,
    TextContent,
    UsageContent,
)
from aguila.codec.notices import Notice, Warn, log_notice
from aguila.offload import is_large, offload
from aguila.protocol import Message, replace

CHAT: Final = (ChatUpdate, ChatMessage, Content)
"""What an agent may yield besides text and events."""

FILE_PROVIDER: Final = "aguila"
"""The provider of file sources that name an upload of this server."""

_ARRAY: Any = list


def is_delta(value: Any) -> bool:
    """Whether something only adds to a text or a thought."""
    contents = _contents(value)
    if len(contents) == 1:  # nearly always, and asked for every piece
        return isinstance(contents[0], (TextContent, ReasoningContent))
    return bool(contents) and all(isinstance(content, (TextContent, ReasoningContent)) for content in contents)


def is_account(value: Any) -> bool:
    """Whether something says nothing but what was used: models tell that after their last word."""
    contents = _contents(value)
    return bool(contents) and all(isinstance(content, UsageContent) for content in contents)


def _contents(value: Any) -> Sequence[Content]:
    return (value,) if isinstance(value, Content) else getattr(value, "contents", ())


def with_parts(value: Any) -> Any:
    """A chat value with the files in its results encoded, which takes long: to be called in a thread."""
    if isinstance(value, FunctionResultContent):
        if not isinstance(value.result, _ARRAY):
            return value
        parts = cast("list[Any]", value.result)
        return replace(value, result=[_part(one) if isinstance(one, DataContent) else one for one in parts])
    if isinstance(value, Content):
        return value
    return replace(value, contents=[with_parts(content) for content in value.contents])


def _part(content: DataContent) -> Any:
    return write_part(content, log_notice, "a result")


async def read_conversation(
    messages: Sequence[Message], services: Services, *, warn: Warn = log_notice
) -> list[ChatMessage]:
    """Messages as chat messages, uploads as the bytes they are. Large data is decoded in a thread."""
    if is_large(messages):
        chat = await offload(as_chat_messages, messages, warn=warn)
    else:
        chat = as_chat_messages(messages, warn=warn)
    return [await _resolved(message, services, warn) for message in chat]


async def _resolved(message: ChatMessage, services: Services, warn: Warn) -> ChatMessage:
    contents = await _resolve(message.contents, services, warn)
    return message if contents is None else replace(message, contents=contents)


async def _resolve(contents: Sequence[Any], services: Services, warn: Warn) -> list[Content] | None:
    """The contents with bytes in place of uploads; None if there is nothing to change."""
    resolved = list[Content](contents)
    is_changed = False
    for index, content in enumerate(contents):
        if isinstance(content, HostedFileContent):
            if (data := await _load(content, services, warn)) is not None:
                resolved[index], is_changed = data, True
        elif isinstance(content, FunctionResultContent) and isinstance(content.result, _ARRAY):
            parts = await _resolve(cast("list[Any]", content.result), services, warn)
            if parts is not None:
                resolved[index], is_changed = replace(content, result=parts), True
    return resolved if is_changed else None


async def _load(content: HostedFileContent, services: Services, warn: Warn) -> DataContent | None:
    properties = content.additional_properties
    if properties.get(REQUIRES_RESOLUTION) is not True and properties.get(PROVIDER) != FILE_PROVIDER:
        return None  # another provider's file, which is its to read
    blob = await services.file(content.file_id)
    if blob is None:
        message = "a file is not one that can be read here; it stays a reference"
        warn(Notice(rule="IN-8", message=message))
        return None
    data, media_type, filename = blob
    kept = {key: value for key, value in properties.items() if key not in (REQUIRES_RESOLUTION, PROVIDER)}
    if filename is not None:
        kept.setdefault(FILENAME, filename)
    return DataContent(
        data,
        media_type if content.media_type is None else content.media_type,
        additional_properties=kept,
        raw_representation=content.raw_representation,
    )
