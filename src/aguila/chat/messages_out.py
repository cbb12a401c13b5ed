"""Layer: chat. Chat messages to AG-UI messages.

Below: ``media`` for parts. Above: clients that send a conversation, agents that restate one. What cannot be expressed
raises an ``EncodeError`` that names it; nothing is ever written as the text of a Python object.

Lost on the way there and back, besides what ``messages_in`` lists:

=========================================  ============================================================================
the order within an assistant's message    reasoning, then text (joined), then calls, then results: messages of each;
                                           of several artefacts of one message the first is kept, with a notice
author name of tool and reasoning          not written: these have no name
properties and approval contents           additional properties that are not in ``keys``, and usage, errors, events,
                                           approvals and interrupts as contents, are left out, the contents with a
                                           notice: they travel as events, outcomes and answers
=========================================  ============================================================================
"""

from __future__ import annotations

import uuid
from collections.abc import Callable, Iterable
from typing import Any

from aguila.chat import event_content
from aguila.chat.content import (
    ApprovalRequestContent,
    ApprovalResponseContent,
    Content,
    ErrorContent,
    FunctionCallContent,
    FunctionResultContent,
    InterruptRequestContent,
    InterruptResponseContent,
    Properties,
    ReasoningContent,
    TextContent,
    UsageContent,
)
from aguila.chat.keys import ENCRYPTED_VALUE, ENCRYPTED_VALUE_TYPE, METADATA, SUBAGENT_RUN_ID
from aguila.chat.media import write_part, write_parts
from aguila.chat.message import ChatMessage
from aguila.codec import encode
from aguila.codec.notice import Notice, Warn, log_notice
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

_TRAVEL_OTHERWISE = (
    UsageContent,
    ErrorContent,
    ApprovalRequestContent,
    ApprovalResponseContent,
    InterruptRequestContent,
    InterruptResponseContent,
)


def new_message_id() -> str:
    """A new id for a message that has none."""
    return f"msg_{uuid.uuid4().hex}"


def as_agui_messages(
    messages: Iterable[ChatMessage], *, new_id: Callable[[], str] = new_message_id, warn: Warn | None = None
) -> list[Message]:
    """The conversation as AG-UI messages.

    A message without an id gets one from ``new_id``, since the protocol demands one: give messages that are sent again
    ids of their own. Each result becomes a tool message and each reasoning a reasoning message; the first of what a
    message is made of keeps its id. An artefact of a text or a result becomes that of its message. ``warn`` receives a
    notice for what was left out; the module lists all losses.

    Raises ``EncodeError`` for an unknown role and for contents that a message of its role cannot hold.
    """
    writer = _Writer(new_id, log_notice if warn is None else warn)
    return [written for index, message in enumerate(messages) for written in writer.write(message, index)]


class _Writer:
    def __init__(self, new_id: Callable[[], str], warn: Warn) -> None:
        self._new_id = new_id
        self._warn = warn

    def write(self, message: ChatMessage, index: int) -> list[Message]:
        contents: list[Content] = []
        for content in message.contents:
            if isinstance(content, _TRAVEL_OTHERWISE) or event_content.is_event(content):
                kind = type(content).__name__
                self._warn(Notice(rule="MSG-1", message=f"left out {kind}, which is no message", path=f"/{index}"))
            else:
                contents.append(content)
        if len(contents) == 0 and len(message.contents) > 0:
            return []
        match message.role:
            case "user":
                parts = write_parts(contents, self._warn, "a user message")
                return [UserMessage(content=parts, **self._named(message))]
            case "system" | "developer":
                kind = SystemMessage if message.role == "system" else DeveloperMessage
                return [kind(content=_text_of(contents, message.role), **self._named(message))]
            case "assistant":
                return self._assistant(message, contents)
            case "tool":
                return self._tool(message, contents, index)
            case role:
                raise EncodeError(f"AG-UI has no messages of role {role!r}", path=f"/{index}")

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
            else:
                raise EncodeError(f"an assistant message cannot hold {type(content).__name__}")
        says = bool(texts) or bool(calls)
        # What the message is mostly made of has its id: who asks for it by that id means what was said.
        own, artefact = message.message_id, self._one_artefact(message, texts)
        for reasoning in reasonings:
            written.append(self._reasoning(message, reasoning, None if says else own))
            own = own if says else None
        if says or not (reasonings or results):
            written.append(
                AssistantMessage(
                    content="".join([text.text for text in texts]) if texts else None,
                    tool_calls=calls if calls else None,
                    **(self._named(message) | artefact),
                )
            )
            own, artefact = None, _NO_ARTEFACT
        for result in results:
            written.append(self._result(message, result, own, artefact))
            own, artefact = None, _NO_ARTEFACT
        if artefact:
            self._leave_out_artefact("a message that is nothing but reasoning, which has its own")
        return written

    def _one_artefact(self, message: ChatMessage, texts: list[TextContent]) -> dict[str, Any]:
        """The artefact of a message: its own, or that of the first of its texts that has one."""
        found = [one for each in (message, *texts) if (one := _artefact_in(each.additional_properties))]
        if any(one != found[0] for one in found):
            self._leave_out_artefact("a text: its message has another, and holds one")
        return found[0] if found else _NO_ARTEFACT

    def _leave_out_artefact(self, whose: str) -> None:
        self._warn(Notice(rule="ENC-2", message=f"left out the encrypted value of {whose}"))

    def _reasoning(self, message: ChatMessage, content: ReasoningContent, own: str | None) -> ReasoningMessage:
        artefact = _artefact(content.protected_data, content.additional_properties)
        return ReasoningMessage(content=content.text, **self._shared(message, own), **artefact)

    def _tool(self, message: ChatMessage, contents: list[Content], index: int) -> list[Message]:
        if len(contents) == 0:
            self._warn(Notice(rule="MSG-1", message="left out a tool message without a result", path=f"/{index}"))
        written: list[Message] = []
        own, artefact = message.message_id, _artefact_in(message.additional_properties)
        for content in contents:
            if not isinstance(content, FunctionResultContent):
                raise EncodeError(f"a tool message cannot hold {type(content).__name__}", path=f"/{index}")
            # Parallel results never share an id (#3962), nor what is kept with one (ENC-1).
            written.append(self._result(message, content, own, artefact))
            own, artefact = None, _NO_ARTEFACT
        return written

    def _result(
        self, message: ChatMessage, content: FunctionResultContent, own: str | None, artefact: dict[str, Any]
    ) -> ToolMessage:
        return ToolMessage(
            tool_call_id=content.call_id,
            content=result_content(content, self._warn),
            error=content.error,
            **self._shared(message, own),
            **(artefact | _artefact_in(content.additional_properties)),
        )

    def _named(self, message: ChatMessage) -> dict[str, Any]:
        named = {"name": message.author_name, **self._shared(message, message.message_id)}
        return named | _artefact_in(message.additional_properties)

    def _shared(self, message: ChatMessage, own: str | None) -> dict[str, Any]:
        properties = message.additional_properties
        return {
            "id": self._new_id() if own is None else own,
            "metadata": properties.get(METADATA),
            "subagent_run_id": properties.get(SUBAGENT_RUN_ID),
        }


def result_content(content: FunctionResultContent, warn: Warn) -> str | list[ContentPart]:
    """A result as a tool message carries it: its text or parts, or the JSON text of any other value (TOOL-6).

    Raises ``EncodeError`` for what is neither.
    """
    result: Any = content.result
    if isinstance(result, str):
        return result
    if isinstance(result, _ARRAY) and all(isinstance(item, (Content, ContentPart)) for item in result):
        return [write_part(item, warn, "a result") for item in result]
    return "" if result is None else encode(result).decode()


def _text_of(contents: list[Content], role: str) -> str:
    for content in contents:
        if not isinstance(content, TextContent):
            raise EncodeError(f"a {role} message cannot hold {type(content).__name__}")
    return "".join([content.text for content in contents if isinstance(content, TextContent)])


def _tool_call(content: FunctionCallContent) -> ToolCall:
    properties = content.additional_properties
    return ToolCall(
        id=content.call_id,
        function=FunctionCall(name=content.name, arguments=content.arguments),
        metadata=properties.get(METADATA),
        **_artefact_in(properties),
    )


def _artefact_in(properties: Properties) -> dict[str, Any]:
    """The artefact among additional properties; nothing if there is none."""
    value = properties.get(ENCRYPTED_VALUE)
    return _NO_ARTEFACT if value is None else _artefact(value, properties)


def _artefact(value: str | None, properties: Properties) -> dict[str, Any]:
    """An encrypted value with its type, which never travels alone (ENC-6)."""
    value_type = None if value is None else properties.get(ENCRYPTED_VALUE_TYPE)
    return {"encrypted_value": value, "encrypted_value_type": value_type}


_ARRAY: Any = list
_NO_ARTEFACT: dict[str, Any] = {}
