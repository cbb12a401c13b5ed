"""Layer: chat. AG-UI messages to chat messages.

Below: ``media`` for parts. Above: servers that show an agent its conversation, clients that show a user theirs,
``pairing``, which makes of the result what a provider accepts. One message becomes one message: nothing is merged,
reordered or judged here, so that ``as_agui_messages`` gives the same history back.

Lost on the way there and back, and nothing else:

=========================================  ============================================================================
an activity message                        left out, with a notice: it is for the user interface alone (IN-7)
a part with bad base64 or media type       skipped, with a notice (MSG-2)
a ``data:`` URL as source                  comes back as a data source
base64 with line breaks, ``mimeType: ""``  come back as canonical base64; as ``application/octet-stream`` or absent
``content`` of one plain text part         comes back as a string, which means the same
``toolCalls: []``                          comes back absent
a file part's id that repeats its handle   comes back absent
=========================================  ============================================================================
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, get_args

from aguila.chat.content import (
    Content,
    FunctionCallContent,
    FunctionResultContent,
    Properties,
    ReasoningContent,
    TextContent,
)
from aguila.chat.keys import ENCRYPTED_VALUE, ENCRYPTED_VALUE_TYPE, METADATA, SUBAGENT_RUN_ID
from aguila.chat.media import read_parts
from aguila.chat.message import ChatMessage
from aguila.codec.notice import Notice, Warn, log_notice
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
    """The conversation as chat messages, each with the message it was made from as ``raw_representation``.

    Reasoning becomes an assistant's message; activities are left out. ``warn`` receives a notice for what was skipped
    (default: the ``aguila`` logger); the module lists all losses. Messages of ``ag_ui.core`` are read too. Raises
    ``DecodeError`` for a retired binary part that refers to nothing (ERA-3), ``TypeError`` for what is no message.
    """
    warn = log_notice if warn is None else warn
    chat: list[ChatMessage] = []
    activities = 0
    for index, message in enumerate(messages):
        if message.__class__ not in _MESSAGES:
            message = _from_elsewhere(message, warn)
        if isinstance(message, ActivityMessage):
            activities += 1
        else:
            chat.append(_chat_message(message, warn, f"/{index}/content"))
    if activities:
        warn(Notice(rule="IN-7", message=f"left out {activities} activity message(s), which are no part of a chat"))
    return chat


def _from_elsewhere(message: Any, warn: Warn) -> Message:
    if is_official(message):
        message = from_official(message, warn=warn)
    if message.__class__ not in _MESSAGES:
        raise TypeError(f"not a message: {type(message).__name__}")
    return message


def _chat_message(message: Any, warn: Warn, path: str) -> ChatMessage:
    properties = _properties_of(message)
    role: str = message.role
    contents: list[Content]
    if isinstance(message, UserMessage):
        contents = read_parts(message.content, warn, path)
    elif isinstance(message, AssistantMessage):
        contents = [] if message.content is None else [TextContent(message.content)]
        contents += [_call(call) for call in message.tool_calls or () if isinstance(call, ToolCall)]
    elif isinstance(message, ToolMessage):
        result: Any = message.content
        if not isinstance(result, str):
            result = read_parts(result, warn, path)
        contents = [FunctionResultContent(message.tool_call_id, result, message.error, raw_representation=message)]
    elif isinstance(message, ReasoningMessage):
        role = "assistant"
        protected_data = properties.pop(ENCRYPTED_VALUE, None)
        its: Properties = {}
        if ENCRYPTED_VALUE_TYPE in properties:
            its[ENCRYPTED_VALUE_TYPE] = properties.pop(ENCRYPTED_VALUE_TYPE)
        contents = [
            ReasoningContent(message.content, protected_data, additional_properties=its, raw_representation=message)
        ]
    else:
        contents = [TextContent(message.content)]
    return ChatMessage(
        role,
        contents,
        message_id=message.id,
        author_name=getattr(message, "name", None),
        additional_properties=properties,
        raw_representation=message,
    )


def _call(call: ToolCall) -> FunctionCallContent:
    return FunctionCallContent(
        call.id,
        call.function.name,
        call.function.arguments,
        additional_properties=_properties_of(call),
        raw_representation=call,
    )


_MESSAGES: frozenset[type[Any]] = frozenset(get_args(Message))
_KEPT = (
    ("encrypted_value", ENCRYPTED_VALUE),
    ("encrypted_value_type", ENCRYPTED_VALUE_TYPE),
    ("metadata", METADATA),
    ("subagent_run_id", SUBAGENT_RUN_ID),
)


def _properties_of(thing: Any) -> Properties:
    """The members that chat types have no field for."""
    kept = ((key, getattr(thing, member, None)) for member, key in _KEPT)
    return {key: value for key, value in kept if value is not None}
