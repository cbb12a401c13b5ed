"""Convert AG-UI messages to chat messages.

One message becomes one message. Nothing is merged or reordered, so that ``as_agui_messages`` restores the same history;
``provider_history`` makes the result acceptable for models.

Losses on the way there and back:

=========================================  ============================================================================
an activity message                        dropped with a notice: it is for user interfaces only (IN-7)
a part with bad base64 or media type       skipped with a notice (MSG-2)
a ``data:`` URL as source                  becomes a data source
base64 with line breaks, ``mimeType: ""``  becomes canonical base64; ``application/octet-stream`` or absent
``content`` of one plain text part         becomes a string, which has the same meaning
``toolCalls: []``                          becomes absent
``content: []`` of a user message          becomes ``""``
a file part's id that repeats its handle   becomes absent
=========================================  ============================================================================
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, get_args

from aguila.chat.media import read_parts
from aguila.chat.property_keys import ENCRYPTED_VALUE, ENCRYPTED_VALUE_TYPE, METADATA, SUBAGENT_RUN_ID
from aguila.chat.types import (
    ChatMessage,
    Content,
    FunctionCallContent,
    FunctionResultContent,
    Properties,
    ReasoningContent,
    TextContent,
)
from aguila.codec.notices import Notice, Warn, log_notice
from aguila.codec.official import from_official, is_official
from aguila.protocol import (
    ActivityMessage,
    AssistantMessage,
    Message,
    ReasoningMessage,
    ToolCall,
    ToolMessage,
    UserMessage,
)


def as_chat_messages(messages: Iterable[Message], *, warn: Warn | None = None) -> list[ChatMessage]:
    """Convert a conversation. Each chat message has its AG-UI message as ``raw_representation``.

    The order is that of the messages. Before you send them to a model, call ``provider_history`` on the result: it puts
    each result directly after its call and leaves no call without one, as models require (#2699).

    Reasoning becomes an assistant message, activities are dropped. ``warn`` receives a notice for everything skipped
    (default: the ``aguila`` logger). Messages of ``ag_ui.core`` are accepted too. Raises ``DecodeError`` for a retired
    binary part without data, url and id (ERA-3), and ``TypeError`` for an object that is not a message.
    """
    warn = log_notice if warn is None else warn
    chat: list[ChatMessage] = []
    activities = 0
    for index, message in enumerate(messages):
        if message.__class__ not in _MESSAGES:
            message = _convert_official(message, warn)
        if isinstance(message, ActivityMessage):
            activities += 1
        else:
            chat.append(_convert_message(message, warn, f"/{index}/content"))
    if activities:
        warn(Notice(rule="IN-7", message=f"dropped {activities} activity message(s), which are not part of a chat"))
    return chat


def _convert_official(message: Any, warn: Warn) -> Message:
    if is_official(message):
        message = from_official(message, warn=warn)
    if message.__class__ not in _MESSAGES:
        raise TypeError(f"expected an AG-UI message, got {type(message).__name__}")
    return message


def _convert_message(message: Any, warn: Warn, path: str) -> ChatMessage:
    properties = _collect_properties(message)
    role: str = message.role
    contents: list[Content]
    if isinstance(message, UserMessage):
        contents = read_parts(message.content, warn, path, raw=message)
    elif isinstance(message, AssistantMessage):
        contents = [] if message.content is None else [TextContent(message.content, raw_representation=message)]
        contents += [_convert_call(call) for call in message.tool_calls or () if isinstance(call, ToolCall)]
    elif isinstance(message, ToolMessage):
        result: Any = message.content
        if not isinstance(result, str):
            result = read_parts(result, warn, path)
        contents = [FunctionResultContent(message.tool_call_id, result, message.error, raw_representation=message)]
    elif isinstance(message, ReasoningMessage):
        role = "assistant"
        protected_data = properties.pop(ENCRYPTED_VALUE, None)
        own_properties: Properties = {}
        if ENCRYPTED_VALUE_TYPE in properties:
            own_properties[ENCRYPTED_VALUE_TYPE] = properties.pop(ENCRYPTED_VALUE_TYPE)
        contents = [
            ReasoningContent(
                message.content, protected_data, additional_properties=own_properties, raw_representation=message
            )
        ]
    else:
        contents = [TextContent(message.content, raw_representation=message)]
    return ChatMessage(
        role,
        contents,
        message_id=message.id,
        author_name=getattr(message, "name", None),
        additional_properties=properties,
        raw_representation=message,
    )


def _convert_call(call: ToolCall) -> FunctionCallContent:
    return FunctionCallContent(
        call.id,
        call.function.name,
        call.function.arguments,
        additional_properties=_collect_properties(call),
        raw_representation=call,
    )


_MESSAGES: frozenset[type[Any]] = frozenset(get_args(Message))
_KEPT = (
    ("encrypted_value", ENCRYPTED_VALUE),
    ("encrypted_value_type", ENCRYPTED_VALUE_TYPE),
    ("metadata", METADATA),
    ("subagent_run_id", SUBAGENT_RUN_ID),
)


def _collect_properties(thing: Any) -> Properties:
    """Return the members that chat types have no field for."""
    kept = ((key, getattr(thing, member, None)) for member, key in _KEPT)
    return {key: value for key, value in kept if value is not None}
