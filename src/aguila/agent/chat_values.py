"""Chat types in agents: what an agent yields, and the conversation as chat messages.

URLs are never fetched. Only uploads of this server become bytes.
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
"""Chat types that an agent may yield."""

FILE_PROVIDER: Final = "aguila"
"""The ``provider`` of a file source that is an upload of this server."""

_ARRAY: Any = list


def is_delta(value: Any) -> bool:
    """Return whether a value only adds text or reasoning."""
    contents = _contents(value)
    if len(contents) == 1:  # the common case, on a hot path
        return isinstance(contents[0], (TextContent, ReasoningContent))
    return bool(contents) and all(isinstance(content, (TextContent, ReasoningContent)) for content in contents)


def is_usage(value: Any) -> bool:
    """Return whether a value has only usage, which models report after their last text."""
    contents = _contents(value)
    return bool(contents) and all(isinstance(content, UsageContent) for content in contents)


def _contents(value: Any) -> Sequence[Content]:
    return (value,) if isinstance(value, Content) else getattr(value, "contents", ())


def with_parts(value: Any) -> Any:
    """Return a chat value with the files in its results encoded. Slow for large files: offload it."""
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
    """Convert messages to chat messages, with uploads as bytes. Large data is decoded in a thread."""
    if is_large(messages):
        chat = await offload(as_chat_messages, messages, warn=warn)
    else:
        chat = as_chat_messages(messages, warn=warn)
    return [await _resolved(message, services, warn) for message in chat]


async def _resolved(message: ChatMessage, services: Services, warn: Warn) -> ChatMessage:
    contents = await _resolve(message.contents, services, warn)
    return message if contents is None else replace(message, contents=contents)


async def _resolve(contents: Sequence[Any], services: Services, warn: Warn) -> list[Content] | None:
    """Return the contents with bytes in place of uploads, or None if nothing changes."""
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
        return None  # a file of another provider
    blob = await services.file(content.file_id)
    if blob is None:
        message = "cannot load a file part: no upload of this scope has its id; it stays a reference"
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
