"""Convert chat messages to AG-UI messages.

A content that a message of its role cannot contain raises ``EncodeError``, or is dropped with a notice on request.
Nothing is sent as the text of a Python object.

Losses on the way there and back, besides those of ``to_chat.messages``:

=========================================  ============================================================================
the order within an assistant message      becomes reasoning, text (joined), calls, results, as separate messages;
                                           of several encrypted values the first is kept, with a notice
author name of tool and reasoning          dropped: these messages have no name
additional properties                      dropped if not in ``property_keys``
usage, errors, events, questions, answers  dropped with ``unsupported="drop"``: they are sent as events, outcomes and
                                           resume entries
=========================================  ============================================================================
"""

from __future__ import annotations

import uuid
from collections.abc import Callable, Iterable
from typing import Any, Final, Literal, get_args

from aguila.chat import event_content
from aguila.chat.media import write_part, write_parts
from aguila.chat.property_keys import ENCRYPTED_VALUE, ENCRYPTED_VALUE_TYPE, METADATA, SUBAGENT_RUN_ID
from aguila.chat.types import (
    ChatMessage,
    Content,
    DataContent,
    FunctionCallContent,
    FunctionResultContent,
    HostedFileContent,
    Properties,
    ReasoningContent,
    TextContent,
    UriContent,
)
from aguila.codec import encode
from aguila.codec.notices import Notice, Warn, log_notice
from aguila.errors import EncodeError
from aguila.protocol import (
    AssistantMessage,
    ContentPart,
    DeveloperMessage,
    FunctionCall,
    Message,
    ReasoningMessage,
    SystemMessage,
    ToolCall,
    ToolMessage,
    UserMessage,
)


def new_message_id() -> str:
    """Make an id for a message without one."""
    return f"msg_{uuid.uuid4().hex}"


SUPPORTED: Final[dict[str, tuple[Any, ...]]] = {
    "user": (TextContent, DataContent, UriContent, HostedFileContent, *get_args(ContentPart)),
    "system": (TextContent,),
    "developer": (TextContent,),
    "assistant": (TextContent, ReasoningContent, FunctionCallContent, FunctionResultContent),
    "tool": (FunctionResultContent,),
}
"""The contents that a message of each role can have. An event content is in no message."""


def as_agui_messages(
    messages: Iterable[ChatMessage],
    *,
    unsupported: Literal["raise", "drop"] = "raise",
    new_id: Callable[[], str] = new_message_id,
    warn: Warn | None = None,
) -> list[Message]:
    """Convert a conversation to AG-UI messages.

    A message without an id gets one from ``new_id``. Set the ids of messages that are sent more than once. Each result
    becomes a tool message and each reasoning a reasoning message; the first of the resulting messages keeps the id. The
    encrypted value of a text or result becomes that of its message. ``warn`` receives a notice for everything dropped.

    Raises ``EncodeError`` with the index of the message for an unknown role, and for a content that a message of its
    role cannot contain, such as usage, an error or a question. With ``unsupported="drop"`` such contents are dropped
    with a notice each, and a message that has no others with them.
    """
    writer = _Writer(unsupported == "drop", new_id, log_notice if warn is None else warn)
    return [written for index, message in enumerate(messages) for written in writer.write(message, index)]


class _Writer:
    def __init__(self, drops: bool, new_id: Callable[[], str], warn: Warn) -> None:
        self._drops = drops
        self._new_id = new_id
        self._warn = warn

    def write(self, message: ChatMessage, index: int) -> list[Message]:
        try:
            contents = self._supported(message, index)
            if len(contents) == 0 and len(message.contents) > 0:
                return []
            return self._write(message, contents, index)
        except EncodeError as error:
            raise EncodeError(error.message, path=f"/{index}{error.path}") from None

    def _supported(self, message: ChatMessage, index: int) -> list[Content]:
        supported = SUPPORTED.get(message.role)
        if supported is None:
            raise EncodeError(f"AG-UI has no messages with role {message.role!r}")
        contents: list[Content] = []
        for content in message.contents:
            is_event = event_content.is_event(content)
            if isinstance(content, supported) and not is_event:
                contents.append(content)
                continue
            kind = "an event content" if is_event else type(content).__name__
            if not self._drops:
                raise EncodeError(
                    f'a message of role {message.role} cannot contain {kind}; unsupported="drop" leaves it out'
                )
            text = f"dropped {kind}, which a message of role {message.role} cannot contain"
            self._warn(Notice(rule="left-out", message=text, path=f"/{index}"))
        return contents

    def _write(self, message: ChatMessage, contents: list[Content], index: int) -> list[Message]:
        match message.role:
            case "user":
                parts = write_parts(contents, self._warn, "a user message")
                return [UserMessage(content=parts, **self._named_fields(message))]
            case "system" | "developer":
                kind = SystemMessage if message.role == "system" else DeveloperMessage
                return [kind(content=_join_text(contents), **self._named_fields(message))]
            case "assistant":
                return self._assistant(message, contents)
            case _:
                return self._tool(message, contents, index)

    def _assistant(self, message: ChatMessage, contents: list[Content]) -> list[Message]:
        written: list[Message] = []
        texts: list[TextContent] = []
        calls: list[Any] = []
        results: list[FunctionResultContent] = []
        reasonings: list[ReasoningContent] = []
        for content in contents:
            if isinstance(content, TextContent):
                texts.append(content)
            elif isinstance(content, FunctionCallContent):
                calls.append(_tool_call(content))
            elif isinstance(content, ReasoningContent):
                reasonings.append(content)
            elif isinstance(content, FunctionResultContent):
                results.append(content)
        has_text = bool(texts) or bool(calls)
        # The text and calls keep the id, because readers that look up the id want these.
        own, encrypted = message.message_id, self._choose_encrypted_value(message, texts)
        for reasoning in reasonings:
            written.append(self._reasoning(message, reasoning, None if has_text else own))
            own = own if has_text else None
        if has_text or not (reasonings or results):
            written.append(
                AssistantMessage(
                    content="".join([text.text for text in texts]) if texts else None,
                    tool_calls=calls if calls else None,
                    **(self._named_fields(message) | encrypted),
                )
            )
            own, encrypted = None, _NO_VALUE
        for result in results:
            written.append(self._result(message, result, own, encrypted))
            own, encrypted = None, _NO_VALUE
        if encrypted:
            self._warn_dropped_value("a message that has only reasoning, which has its own")
        return written

    def _choose_encrypted_value(self, message: ChatMessage, texts: list[TextContent]) -> dict[str, Any]:
        """Return the encrypted value of a message: its own, or that of the first text that has one."""
        found = [one for each in (message, *texts) if (one := _find_encrypted_value(each.additional_properties))]
        if any(one != found[0] for one in found):
            self._warn_dropped_value("a text, because its message already has another")
        return found[0] if found else _NO_VALUE

    def _warn_dropped_value(self, owner: str) -> None:
        self._warn(Notice(rule="ENC-2", message=f"dropped the encrypted value of {owner}"))

    def _reasoning(self, message: ChatMessage, content: ReasoningContent, own: str | None) -> ReasoningMessage:
        encrypted = _encrypted_value(content.protected_data, content.additional_properties)
        return ReasoningMessage(content=content.text, **self._common_fields(message, own), **encrypted)

    def _tool(self, message: ChatMessage, contents: list[Content], index: int) -> list[Message]:
        if len(contents) == 0:
            self._warn(Notice(rule="MSG-1", message="dropped a tool message without a result", path=f"/{index}"))
        written: list[Message] = []
        own, encrypted = message.message_id, _find_encrypted_value(message.additional_properties)
        for content in contents:
            assert isinstance(content, FunctionResultContent)  # noqa: S101 - by SUPPORTED
            # Parallel results do not share an id (#3962) or an encrypted value (ENC-1).
            written.append(self._result(message, content, own, encrypted))
            own, encrypted = None, _NO_VALUE
        return written

    def _result(
        self, message: ChatMessage, content: FunctionResultContent, own: str | None, encrypted: dict[str, Any]
    ) -> ToolMessage:
        return ToolMessage(
            tool_call_id=content.call_id,
            content=make_result_content(content, self._warn),
            error=content.error,
            **self._common_fields(message, own),
            **(encrypted | _find_encrypted_value(content.additional_properties)),
        )

    def _named_fields(self, message: ChatMessage) -> dict[str, Any]:
        named = {"name": message.author_name, **self._common_fields(message, message.message_id)}
        return named | _find_encrypted_value(message.additional_properties)

    def _common_fields(self, message: ChatMessage, own: str | None) -> dict[str, Any]:
        properties = message.additional_properties
        return {
            "id": self._new_id() if own is None else own,
            "metadata": properties.get(METADATA),
            "subagent_run_id": properties.get(SUBAGENT_RUN_ID),
        }


def make_result_content(content: FunctionResultContent, warn: Warn) -> str | list[ContentPart]:
    """Return the content of a tool message: text, parts, or the JSON text of any other value (TOOL-6).

    Raises ``EncodeError`` for a value that is not JSON.
    """
    result: Any = content.result
    if isinstance(result, str):
        return result
    if isinstance(result, _ARRAY) and all(isinstance(item, (Content, ContentPart)) for item in result):
        return [write_part(item, warn, "a result") for item in result]
    return "" if result is None else encode(result).decode()


def _join_text(contents: list[Content]) -> str:
    return "".join([content.text for content in contents if isinstance(content, TextContent)])


def _tool_call(content: FunctionCallContent) -> ToolCall:
    properties = content.additional_properties
    return ToolCall(
        id=content.call_id,
        function=FunctionCall(name=content.name, arguments=content.arguments),
        metadata=properties.get(METADATA),
        **_find_encrypted_value(properties),
    )


def _find_encrypted_value(properties: Properties) -> dict[str, Any]:
    """Return the encrypted value in additional properties, or nothing."""
    value = properties.get(ENCRYPTED_VALUE)
    return _NO_VALUE if value is None else _encrypted_value(value, properties)


def _encrypted_value(value: str | None, properties: Properties) -> dict[str, Any]:
    """Return an encrypted value with its type. The type is never sent without the value (ENC-6)."""
    value_type = None if value is None else properties.get(ENCRYPTED_VALUE_TYPE)
    return {"encrypted_value": value, "encrypted_value_type": value_type}


_ARRAY: Any = list
_NO_VALUE: dict[str, Any] = {}
