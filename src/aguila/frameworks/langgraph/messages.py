"""Convert chat messages to LangChain messages and back. LangChain is imported when a function is called.

``run.chat_messages()`` gives the messages of a run, and ``as_agui_messages`` makes AG-UI messages of the result.

=============================  ======================================================================================
chat                           LangChain
=============================  ======================================================================================
user, assistant, tool, system  ``HumanMessage``, ``AIMessage``, ``ToolMessage``, ``SystemMessage``, with id and name
developer                      ``SystemMessage`` with ``additional_kwargs["__openai_role__"]``, as in langchain-openai
text, reasoning                blocks ``text`` and ``reasoning``; the content is a string if it is one text
data, URL, file of a provider  blocks ``image``, ``audio``, ``video`` or ``file`` with base64, ``url`` or ``file_id``
call; not a JSON object        ``tool_calls``; ``invalid_tool_calls``
result; its error              the content of a ``ToolMessage``; ``status="error"``
=============================  ======================================================================================

Lost: the spelling of arguments (``{"a":1}`` becomes ``{"a": 1}``), the order of texts and calls, the text of an error
beside a result, metadata, and encrypted values other than those of reasoning. Other blocks of LangChain are dropped
with a notice.
"""

from __future__ import annotations

import base64
import json
from collections.abc import Iterable
from typing import Any, Final

from aguila.chat import (
    ChatMessage,
    Content,
    DataContent,
    FunctionCallContent,
    FunctionResultContent,
    HostedFileContent,
    ReasoningContent,
    TextContent,
    UriContent,
)
from aguila.chat.property_keys import FILENAME, PART_KIND
from aguila.codec.json.encoder import encode
from aguila.codec.json.values import is_array, is_object
from aguila.codec.notices import Notice, Warn, log_notice
from aguila.errors import EncodeError
from aguila.frameworks.external.packages import load
from aguila.protocol import ContentPart

_DEVELOPER: Final = "__openai_role__"
_PROTECTED: Final = "protected_data"
_MEDIA: Final = {"image": "image", "audio": "audio", "video": "video"}


def to_langchain(messages: Iterable[ChatMessage]) -> list[Any]:
    """Convert chat messages to LangChain messages. Reasoning becomes a part of the answer that follows it.

    Raise ``EncodeError`` for a content that LangChain has no block for.
    """
    types = load("langchain_core.messages", "langchain-core")
    made: list[Any] = []
    names: dict[str, str] = {}
    reasoning: list[Content] = []
    for message in messages:
        common = {"id": message.message_id, "name": message.author_name}
        if message.role == "assistant":
            if all(isinstance(content, ReasoningContent) for content in message.contents):
                reasoning += message.contents
                continue
            names.update((call.call_id, call.name) for call in message.calls)
            made.append(_answer(types, [*reasoning, *message.contents], common))
            reasoning = []
            continue
        if reasoning:  # of an answer that never came
            made.append(_answer(types, reasoning, {"id": None, "name": None}))
            reasoning = []
        if message.role == "tool":
            for result in message.results:
                made.append(_result(types, result, {**common, "name": names.get(result.call_id)}))
                common["id"] = None
        elif message.role == "user":
            made.append(types.HumanMessage(content=_content(message.contents), **common))
        elif message.role in ("system", "developer"):
            more = {_DEVELOPER: "developer"} if message.role == "developer" else {}
            made.append(types.SystemMessage(content=message.text, additional_kwargs=more, **common))
        else:
            raise EncodeError(f"LangChain has no message for the role {message.role!r}")
    if reasoning:
        made.append(_answer(types, reasoning, {"id": None, "name": None}))
    return made


def _answer(types: Any, contents: list[Content], common: dict[str, Any]) -> Any:
    calls: list[Any] = []
    invalid: list[Any] = []
    others: list[Content] = []
    for content in contents:
        if not isinstance(content, FunctionCallContent):
            others.append(content)
        elif (arguments := content.parsed_arguments) is not None:
            calls.append({"name": content.name, "args": arguments, "id": content.call_id})
        else:
            call = {"name": content.name, "args": content.arguments, "id": content.call_id, "error": None}
            invalid.append({**call, "type": "invalid_tool_call"})
    return types.AIMessage(content=_content(others), tool_calls=calls, invalid_tool_calls=invalid, **common)


def _result(types: Any, content: FunctionResultContent, common: dict[str, Any]) -> Any:
    status = "success" if content.error is None else "error"
    result: Any = content.result
    if is_array(result) and all(isinstance(one, Content) for one in result):
        result = _content(result)
    elif not isinstance(result, str):
        result = encode(result).decode()
    return types.ToolMessage(content=result, tool_call_id=content.call_id, status=status, **common)


def _content(contents: list[Content]) -> str | list[dict[str, Any]]:
    if len(contents) == 0:
        return ""
    if len(contents) == 1 and isinstance(contents[0], TextContent):
        return contents[0].text
    return [_block(content) for content in contents]


def _block(content: Content) -> dict[str, Any]:
    if isinstance(content, TextContent):
        return {"type": "text", "text": content.text}
    if isinstance(content, ReasoningContent):
        block: dict[str, Any] = {"type": "reasoning", "reasoning": content.text}
        if content.protected_data is not None:
            block["extras"] = _read_extras(content.protected_data)
        return block
    if not isinstance(content, DataContent | UriContent | HostedFileContent):
        raise EncodeError(f"LangChain has no block for {type(content).__name__}")
    media_type = content.media_type
    kind = content.additional_properties.get(PART_KIND, (media_type or "").partition("/")[0])
    block = {"type": _MEDIA.get(kind, "file")}
    if isinstance(content, DataContent):
        block["base64"] = base64.b64encode(content.data).decode()
    elif isinstance(content, UriContent):
        block["url"] = content.uri
    else:
        block["file_id"] = content.file_id
    if media_type is not None:
        block["mime_type"] = media_type
    if (name := content.additional_properties.get(FILENAME)) is not None:
        block["extras"] = {"filename": name}
    return block


def _read_extras(protected: str) -> dict[str, Any]:
    """Return the provider's members of a reasoning block, which ``write_extras`` has written."""
    try:
        found = json.loads(protected)
    except (ValueError, RecursionError):  # it may be nested to any depth
        found = None
    return found if is_object(found) else {_PROTECTED: protected}


def write_extras(extras: Any) -> str | None:
    """Return the provider's members of a reasoning block, such as a signature, as an encrypted value."""
    if not is_object(extras) or len(extras) == 0:
        return None
    if set(extras) == {_PROTECTED} and isinstance(extras[_PROTECTED], str):
        return extras[_PROTECTED]
    return encode(extras).decode()


def from_langchain(messages: Iterable[Any], *, warn: Warn | None = None) -> list[ChatMessage]:
    """Convert LangChain messages to chat messages. ``warn`` gets a notice for each block that is dropped."""
    warn = log_notice if warn is None else warn
    return [_chat_message(message, warn) for message in messages if message.type != "remove"]


def _chat_message(message: Any, warn: Warn) -> ChatMessage:
    contents: list[Content] = read_blocks(message, warn)
    role = {"human": "user", "ai": "assistant", "system": "system", "tool": "tool"}.get(message.type)
    if role is None:
        raise EncodeError(f"there is no chat message for a LangChain message of type {message.type!r}")
    if role == "system" and message.additional_kwargs.get(_DEVELOPER) == "developer":
        role = "developer"
    if role == "assistant":
        contents += read_calls(message)
    elif role == "tool":
        result: Any = _text_or_contents(contents)
        error = None
        if message.status == "error":
            error = result if isinstance(result, str) else "The call failed."
        contents = [FunctionResultContent(message.tool_call_id, result, error)]
    name = None if role == "tool" else message.name
    return ChatMessage(role, contents, message_id=message.id, author_name=name, raw_representation=message)


def _text_or_contents(contents: list[Content]) -> str | list[Content | ContentPart]:
    if all(isinstance(one, TextContent) for one in contents):
        return "".join(one.text for one in contents if isinstance(one, TextContent))
    return [*contents]


def read_calls(message: Any) -> list[FunctionCallContent]:
    """Return the calls of an ``AIMessage``, also those with invalid arguments."""
    calls = [
        FunctionCallContent(call["id"] or "", call["name"], json.dumps(call["args"], ensure_ascii=False))
        for call in message.tool_calls
    ]
    for call in message.invalid_tool_calls:
        calls.append(FunctionCallContent(call["id"] or "", call["name"] or "", call["args"] or ""))
    return calls


def read_blocks(message: Any, warn: Warn) -> list[Content]:
    """Return the contents of a LangChain message, without its calls."""
    content: Any = message.content
    if isinstance(content, str):
        return [] if content == "" and message.type == "ai" else [TextContent(content)]
    found: list[Content] = []
    for block in message.content_blocks:
        one = _read_block(block)
        if one is not None:
            found.append(one)
        elif block["type"] not in ("tool_call", "tool_call_chunk", "invalid_tool_call"):
            warn(Notice(rule="langchain", message=f"dropped a block of type {block['type']!r}, which has no content"))
    return found


def _read_block(block: dict[str, Any]) -> Content | None:
    kind = block["type"]
    if kind == "text":
        return TextContent(block["text"])
    if kind == "reasoning":
        return ReasoningContent(block.get("reasoning", ""), write_extras(block.get("extras")))
    if kind not in ("image", "audio", "video", "file"):
        return None
    media_type: str | None = block.get("mime_type")
    properties: dict[str, Any] = {}
    extras: dict[str, Any] = block.get("extras") or {}
    name = extras.get("filename", block.get("filename"))
    if name is not None:
        properties[FILENAME] = name
    part = "document" if kind == "file" else kind
    if part != _MEDIA.get((media_type or "").partition("/")[0], "document"):
        properties[PART_KIND] = part
    if "base64" in block:
        data = base64.b64decode(block["base64"])
        return DataContent(data, media_type or "application/octet-stream", additional_properties=properties)
    if "url" in block:
        return UriContent(block["url"], media_type, additional_properties=properties)
    if "file_id" in block:
        return HostedFileContent(block["file_id"], media_type, additional_properties=properties)
    return None
