"""Convert chat messages to LangChain messages and back. LangChain is imported when a function is called.

``run.chat_messages()`` returns the chat messages of a run. ``as_agui_messages`` converts these to AG-UI messages.

=============================  ======================================================================================
chat                           LangChain
=============================  ======================================================================================
user, assistant, tool, system  ``HumanMessage``, ``AIMessage``, ``ToolMessage``, ``SystemMessage``, with id and name
developer                      ``SystemMessage`` with ``additional_kwargs["__openai_role__"]``, as in langchain-openai
text, reasoning                blocks ``text`` and ``reasoning``; the content is a string if it is one text
data, URL, file of a provider  blocks ``image``, ``audio``, ``video`` or ``file`` with base64, ``url`` or ``file_id``
call                           ``tool_calls``; ``invalid_tool_calls`` if the arguments are not a JSON object
result                         the content of a ``ToolMessage``; ``status="error"`` if the result has an error
=============================  ======================================================================================

From chat to LangChain, these are lost: the spelling of arguments (``{"a":1}`` becomes ``{"a": 1}``), the order of texts
and calls, the text of an error beside a result, metadata, and encrypted values other than those of reasoning.

``from_langchain`` keeps the members that chat has no field for, such as ``response_metadata`` and ``artifact``, in
``additional_properties["langchain"]``. ``to_langchain`` restores them; AG-UI messages do not have them. Blocks in a
provider's own form become standard blocks. Blocks that no chat content can express are dropped with a notice.
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
from aguila.protocol import ContentPart, replace

_DEVELOPER: Final = "__openai_role__"
_PROTECTED: Final = "protected_data"
_OWN: Final = "langchain"
_OWN_FIELDS: Final = ("additional_kwargs", "response_metadata", "usage_metadata", "artifact")
_CALLS: Final = ("tool_call", "tool_call_chunk", "invalid_tool_call")
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
        own: dict[str, Any] = message.additional_properties.get(_OWN, {})
        common = {"id": message.message_id, "name": message.author_name, **own}
        if message.role == "assistant":
            if message.contents and all(isinstance(content, ReasoningContent) for content in message.contents):
                reasoning += message.contents
                continue
            names.update((call.call_id, call.name) for call in message.calls)
            made.append(_answer(types, [*reasoning, *message.contents], common))
            reasoning = []
            continue
        if reasoning:  # reasoning of an answer that never came
            made.append(_answer(types, reasoning, {"id": None, "name": None}))
            reasoning = []
        if message.role == "tool":
            for result in message.results:
                made.append(_result(types, result, {"name": names.get(result.call_id), **own, "id": common["id"]}))
                common["id"] = None
        elif message.role == "user":
            made.append(types.HumanMessage(content=_content(message.contents), **common))
        elif message.role in ("system", "developer"):
            if message.role == "developer":
                common["additional_kwargs"] = {**own.get("additional_kwargs", {}), _DEVELOPER: "developer"}
            made.append(types.SystemMessage(content=_content(message.contents), **common))
        else:
            raise EncodeError(f"LangChain has no message for the role {message.role!r}")
    if reasoning:
        made.append(_answer(types, reasoning, {"id": None, "name": None}))
    return made


def _answer(types: Any, contents: list[Content], common: dict[str, Any]) -> Any:
    calls: list[Any] = []
    invalid: list[Any] = []
    metadata: dict[str, Any] = common.get("response_metadata", {})
    others = [content for content in contents if not isinstance(content, FunctionCallContent)]
    content = _content(others)
    if isinstance(content, list) and "model_provider" in metadata:
        metadata = {**metadata, "output_version": "v1"}  # otherwise its blocks are read as those of the provider
        common = {**common, "response_metadata": metadata}
    is_standard = isinstance(content, list) and metadata.get("output_version") == "v1"
    blocks: list[dict[str, Any]] = []
    for one in contents:
        if not isinstance(one, FunctionCallContent):
            blocks += [_block(one)] if is_standard else []
            continue
        own: dict[str, Any] = one.additional_properties.get(_OWN, {})
        call = {"name": one.name, "args": one.parsed_arguments, "id": one.call_id, "type": "tool_call", **own}
        if call["type"] == "invalid_tool_call" or call["args"] is None:
            call = {"error": None, **call, "args": one.arguments, **own, "type": "invalid_tool_call"}
            invalid.append(call)
        else:
            calls.append(call)
        blocks.append(call)  # standard blocks include the calls, where they were made
    return types.AIMessage(
        content=blocks if is_standard else content, tool_calls=calls, invalid_tool_calls=invalid, **common
    )


def _result(types: Any, content: FunctionResultContent, common: dict[str, Any]) -> Any:
    status = "success" if content.error is None else "error"
    result: Any = content.result
    blocks: list[Any] = content.additional_properties.get(_OWN, [])
    if blocks and result == "".join(block["text"] for block in blocks):
        result = blocks
    elif is_array(result) and all(isinstance(one, Content) for one in result):
        result = _content(result)
    elif not isinstance(result, str):
        result = encode(result).decode()
    return types.ToolMessage(content=result, tool_call_id=content.call_id, status=status, **common)


def _content(contents: list[Content]) -> str | list[dict[str, Any]]:
    if len(contents) == 0:
        return ""
    if len(contents) == 1 and isinstance(contents[0], TextContent) and _OWN not in contents[0].additional_properties:
        return contents[0].text
    return [_block(content) for content in contents]


def _block(content: Content) -> dict[str, Any]:
    own: dict[str, Any] = content.additional_properties.get(_OWN, {})
    if isinstance(content, TextContent):
        return {"type": "text", "text": content.text, **own}
    if isinstance(content, ReasoningContent):
        block: dict[str, Any] = {"type": "reasoning", "reasoning": content.text}
        if content.protected_data is not None:
            block |= _read_protected(content.protected_data)
        return block | own
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
    return block | own


def _read_protected(protected: str) -> dict[str, Any]:
    """Return the provider's members of a reasoning block, which ``_write_protected`` has written."""
    try:
        found = json.loads(protected)
    except (ValueError, RecursionError):  # it may be nested to any depth
        found = None
    if not is_object(found):
        return {"extras": {_PROTECTED: protected}}
    return found if set(found) == {"id", "extras"} else {"extras": found}


def _write_protected(block: dict[str, Any]) -> str | None:
    """Return the provider's members of a reasoning block, such as its id and a signature, as an encrypted value."""
    extras: Any = block.get("extras")
    if not is_object(extras) or len(extras) == 0:
        return None
    if "id" in block:  # OpenAI needs it with the encrypted content
        return encode({"id": block["id"], "extras": extras}).decode()
    if set(extras) == {_PROTECTED} and isinstance(extras[_PROTECTED], str):
        return extras[_PROTECTED]
    return encode(extras).decode()


def from_langchain(messages: Iterable[Any], *, warn: Warn | None = None) -> list[ChatMessage]:
    """Convert LangChain messages to chat messages. ``warn`` gets a notice for each block that is dropped."""
    warn = log_notice if warn is None else warn
    return [_chat_message(message, warn) for message in messages if message.type != "remove"]


def _chat_message(message: Any, warn: Warn) -> ChatMessage:
    role = {"human": "user", "ai": "assistant", "system": "system", "tool": "tool"}.get(message.type)
    if role is None:
        raise EncodeError(f"there is no chat message for a LangChain message of type {message.type!r}")
    if role == "system" and message.additional_kwargs.get(_DEVELOPER) == "developer":
        role = "developer"
    contents: list[Content] = _read_answer(message, warn) if role == "assistant" else read_blocks(message, warn)
    own: dict[str, Any] = {name: value for name in _OWN_FIELDS if (value := getattr(message, name, None))}
    if role == "tool":
        own["name"] = message.name
        result: Any = _text_or_contents(contents)
        error = None
        if message.status == "error":
            error = result if isinstance(result, str) else "The call failed."
        is_split = isinstance(result, str) and not isinstance(message.content, str)
        blocks = {_OWN: message.content_blocks} if is_split and contents else {}
        contents = [FunctionResultContent(message.tool_call_id, result, error, additional_properties=blocks)]
    name = None if role == "tool" else message.name
    properties = {_OWN: own} if own else {}
    return ChatMessage(role, contents, message.id, name, properties, raw_representation=message)


def without_files(message: ChatMessage, warn: Warn) -> ChatMessage:
    """Return a message without its files if it is an assistant message: in AG-UI these have no files."""
    files = [one for one in message.contents if isinstance(one, DataContent | UriContent | HostedFileContent)]
    if message.role != "assistant" or not files:
        return message
    warn(Notice(rule="langchain", message=f"dropped {len(files)} files of an answer, which AG-UI has no place for"))
    return replace(message, contents=[one for one in message.contents if one not in files])


def _text_or_contents(contents: list[Content]) -> str | list[Content | ContentPart]:
    if all(isinstance(one, TextContent) for one in contents):
        return "".join(one.text for one in contents if isinstance(one, TextContent))
    return [*contents]


def _read_answer(message: Any, warn: Warn) -> list[Content]:
    """Return the contents of an ``AIMessage``. Calls among its blocks stay in place; other calls follow."""
    calls = read_calls(message)
    if isinstance(message.content, str):
        return [*read_blocks(message, warn), *calls]
    found: list[Content] = []
    for block in message.content_blocks:
        if block["type"] in _CALLS:
            call = next((one for one in calls if one.call_id == block.get("id")), None)
            if call is not None:
                calls.remove(call)
                found.append(call)
        else:
            found += _read_or_warn(block, warn)
    return [*found, *calls]


def read_calls(message: Any) -> list[FunctionCallContent]:
    """Return the calls of an ``AIMessage``, also those with invalid arguments."""
    calls = [_read_call(call, json.dumps(call["args"], ensure_ascii=False)) for call in message.tool_calls]
    return calls + [_read_call(call, call["args"] or "") for call in message.invalid_tool_calls]


def _read_call(call: dict[str, Any], arguments: str) -> FunctionCallContent:
    own = {name: value for name, value in call.items() if name not in ("name", "args", "id", "type") or value is None}
    if call.get("type") == "invalid_tool_call":
        own["type"] = call["type"]
    properties = {_OWN: own} if own else {}
    return FunctionCallContent(call["id"] or "", call["name"] or "", arguments, additional_properties=properties)


def read_blocks(message: Any, warn: Warn) -> list[Content]:
    """Return the contents of a LangChain message, without its calls."""
    content: Any = message.content
    if isinstance(content, str):
        return [] if content == "" and message.type == "ai" else [TextContent(content)]
    found: list[Content] = []
    for block in message.content_blocks:
        if block["type"] not in _CALLS:
            found += _read_or_warn(block, warn)
    return found


def _read_or_warn(block: dict[str, Any], warn: Warn) -> list[Content]:
    one = _read_block(block)
    if one is not None:
        return [one]
    warn(Notice(rule="langchain", message=f"dropped a block of type {block['type']!r}: no chat content can express it"))
    return []


def _own(block: dict[str, Any], *read: str) -> dict[str, Any]:
    """Return the members of a block that were not read, as a property."""
    own = {name: value for name, value in block.items() if name not in ("type", *read)}
    return {_OWN: own} if own else {}


def _read_block(block: dict[str, Any]) -> Content | None:
    kind = block["type"]
    if kind == "text":
        return TextContent(block["text"], additional_properties=_own(block, "text"))
    if kind == "reasoning":
        protected = _write_protected(block)
        own = _own(block, "reasoning", "extras", *(() if protected is None else ("id",)))
        return ReasoningContent(block.get("reasoning", ""), protected, additional_properties=own)
    if kind not in ("image", "audio", "video", "file"):
        return None
    media_type: str | None = block.get("mime_type")
    extras: dict[str, Any] = block.get("extras") or {}
    is_name_only = set(extras) == {"filename"}
    read = ("base64", "url", "file_id", "mime_type", *(["extras"] if is_name_only else []))
    properties = _own(block, *read)
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
