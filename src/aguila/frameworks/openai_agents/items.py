"""Convert chat messages to the input items of OpenAI's Responses API and back. No package is imported.

``run.chat_messages()`` returns the chat messages of a run. ``as_agui_messages`` converts these to AG-UI messages.

====================================  =================================================================================
chat                                  item
====================================  =================================================================================
user, system, developer, assistant    a message of that role; its content is a string, or parts for the user
data, URL, file of a provider         ``input_image``, ``input_audio`` (data only) or ``input_file``
call, result                          ``function_call``, ``function_call_output``
reasoning                             the item that its protected data has; without it, it is dropped with a notice
====================================  =================================================================================

From chat to items, these are lost: ids and names of messages, metadata, errors beside results, the media types of URLs
and files, and encrypted values other than those of reasoning. Dropped with a notice: video, and audio at a URL.

``from_items`` keeps the members that chat has no field for, such as ids and annotations, in
``additional_properties["openai"]``. ``to_items`` restores them; AG-UI messages do not have them. Members that are null
are left out, and items of hosted tools are dropped with a notice.
"""

from __future__ import annotations

import base64
import json
from collections.abc import Iterable, Mapping, Sequence
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
from aguila.chat.media import UnreadablePart, read_data_uri
from aguila.chat.property_keys import FILENAME, PART_KIND
from aguila.codec.json.encoder import encode
from aguila.codec.json.values import is_array, is_object
from aguila.codec.notices import Notice, Warn, log_notice
from aguila.errors import EncodeError

Item = dict[str, Any]

_AUDIO: Final = {"audio/mpeg": "mp3", "audio/mp3": "mp3", "audio/wav": "wav", "audio/x-wav": "wav"}
_AUDIO_TYPES: Final = {"mp3": "audio/mpeg", "wav": "audio/wav"}
_OWN: Final = "openai"
_TEXTS: Final = ("input_text", "output_text", "text")


def to_items(messages: Iterable[ChatMessage], *, warn: Warn | None = None) -> list[Item]:
    """Convert chat messages to input items. ``warn`` gets a notice for everything that is dropped.

    Raise ``EncodeError`` for a role or a content that has no item.
    """
    warn = log_notice if warn is None else warn
    items: list[Item] = []
    for message in messages:
        if message.role == "assistant":
            items += _answer(message, warn)
        elif message.role == "tool":
            items += [_result(content, warn) for content in message.results]
        elif message.role in ("user", "system", "developer"):
            own: Item = message.additional_properties.get(_OWN, {})
            items.append({**own, "role": message.role, "content": _content(message.contents, warn)})
        else:
            raise EncodeError(f"OpenAI has no message of the role {message.role!r}")
    return items


def _answer(message: ChatMessage, warn: Warn) -> list[Item]:
    items: list[Item] = []
    for content in message.contents:
        if isinstance(content, TextContent):
            _add_text(items, content)
        elif isinstance(content, FunctionCallContent):
            call = {"call_id": content.call_id, "name": content.name, "arguments": content.arguments}
            items.append({"type": "function_call", **call, **content.additional_properties.get(_OWN, {})})
        elif isinstance(content, ReasoningContent):
            item = _read_reasoning(content.protected_data)
            if item is None:
                _dropped(warn, "reasoning without the item that it came from")
            else:
                items.append(item)
        else:
            raise EncodeError(f"OpenAI has no item for {type(content).__name__} in an answer")
    return items


def _add_text(items: list[Item], content: TextContent) -> None:
    """Add a text of an answer: as an item of its own, or as another part of the item that it came from."""
    own: Item = content.additional_properties.get(_OWN, {})
    item: Item = {**own.get("item", {}), "role": "assistant", "content": content.text}
    if "part" in own:
        last = items[-1] if items else {}
        item["content"] = [_answer_part(content.text, own["part"])]
        if own["at"] > 0 and is_array(last.get("content")) and {**last, "content": item["content"]} == item:
            last["content"] += item["content"]
            return
    items.append(item)


def _answer_part(text: str, own: Item) -> Item:
    return {"refusal" if own["type"] == "refusal" else "text": text, **own}


def _read_reasoning(protected: str | None) -> Item | None:
    try:
        item = None if protected is None else json.loads(protected)
    except (ValueError, RecursionError):  # it may be nested to any depth
        return None
    return item if is_object(item) and item.get("type") == "reasoning" else None


def _result(content: FunctionResultContent, warn: Warn) -> Item:
    result: Any = content.result
    if is_array(result) and all(isinstance(one, Content) for one in result):
        result = _content(result, warn)
    elif not isinstance(result, str):
        result = encode(result).decode()
    own: Item = content.additional_properties.get(_OWN, {})
    return {"type": "function_call_output", "call_id": content.call_id, "output": result, **own}


def _content(contents: Sequence[Content], warn: Warn) -> str | list[Item]:
    if len(contents) == 0:
        return ""
    if len(contents) == 1 and isinstance(contents[0], TextContent) and _OWN not in contents[0].additional_properties:
        return contents[0].text
    made = [(_part(content), content.additional_properties.get(_OWN, {})) for content in contents]
    parts: list[Item | None] = [None if part is None else part | own for part, own in made]
    for content, part in zip(contents, parts, strict=True):
        if part is None:
            _dropped(warn, f"{type(content).__name__} of a type that OpenAI does not take")
    return [part for part in parts if part is not None]


def _part(content: Content) -> Item | None:
    if isinstance(content, TextContent):
        return {"type": "input_text", "text": content.text}
    if not isinstance(content, DataContent | UriContent | HostedFileContent):
        raise EncodeError(f"OpenAI has no part for {type(content).__name__}")
    media_type = content.media_type or ""
    kind = content.additional_properties.get(PART_KIND, media_type.partition("/")[0])
    if kind == "video":
        return None
    if kind == "audio":
        form = _AUDIO.get(media_type)
        if form is None or not isinstance(content, DataContent):
            return None
        return {"type": "input_audio", "input_audio": {"data": _base64(content.data), "format": form}}
    if kind == "image":
        if isinstance(content, HostedFileContent):
            return {"type": "input_image", "detail": "auto", "file_id": content.file_id}
        url = content.uri if isinstance(content, UriContent) else f"data:{media_type};base64,{_base64(content.data)}"
        return {"type": "input_image", "detail": "auto", "image_url": url}
    name = content.additional_properties.get(FILENAME)
    if isinstance(content, DataContent):
        data = f"data:{media_type};base64,{_base64(content.data)}"
        return {"type": "input_file", "filename": "file" if name is None else name, "file_data": data}
    named = {} if name is None else {"filename": name}
    if isinstance(content, UriContent):
        return {"type": "input_file", **named, "file_url": content.uri}
    return {"type": "input_file", **named, "file_id": content.file_id}


def _base64(data: bytes) -> str:
    return base64.b64encode(data).decode()


def _dropped(warn: Warn, what: str) -> None:
    warn(Notice(rule="openai", message=f"dropped {what}"))


def from_items(items: Iterable[Any], *, warn: Warn | None = None) -> list[ChatMessage]:
    """Convert input or output items, as dicts or as models of the SDK, to chat messages.

    Consecutive items of an answer become one message. ``warn`` gets a notice for each item that is dropped.
    """
    warn = log_notice if warn is None else warn
    messages: list[ChatMessage] = []
    answer: list[Content] = []
    for each in items:
        item = read_item(each)
        kind = item.get("type", "message")
        if kind == "message" and item.get("role") == "assistant":
            answer += _read_answer(item, warn)
            continue
        if kind == "function_call":
            own = _own(item, "call_id", "name", "arguments")
            call = FunctionCallContent(item["call_id"], item["name"], item["arguments"], additional_properties=own)
            answer.append(call)
            continue
        if kind == "reasoning":
            answer.append(ReasoningContent(reasoning_text(item), encode(item).decode()))
            continue
        if answer:
            messages.append(ChatMessage("assistant", answer))
            answer = []
        if kind == "message":
            own = _own(item, "role", "content", is_typed=True)
            messages.append(ChatMessage(item["role"], read_parts(item["content"], warn), additional_properties=own))
        elif kind == "function_call_output":
            output: Any = item["output"]
            result: Any = output if isinstance(output, str) else read_parts(output, warn)
            own = _own(item, "call_id", "output")
            content = FunctionResultContent(item["call_id"], result, additional_properties=own)
            messages.append(ChatMessage("tool", [content]))
        else:
            _dropped(warn, f"an item of type {kind!r}, which is no message")
    if answer:
        messages.append(ChatMessage("assistant", answer))
    return messages


def _own(item: Item, *read: str, is_typed: bool = False) -> dict[str, Any]:
    """Return the members of an item or part that were not read, as a property. The type is one if ``is_typed``."""
    own = {name: value for name, value in item.items() if name not in read and (is_typed or name != "type")}
    return {_OWN: own} if own else {}


def _read_answer(item: Item, warn: Warn) -> list[Content]:
    """Return the texts of an answer. Each keeps the members of its item and its part."""
    members = {name: value for name, value in item.items() if name not in ("role", "content")}
    content: Any = item["content"]
    if isinstance(content, str):
        own = {_OWN: {"item": members}} if members else {}
        return [TextContent(content, additional_properties=own)]
    found: list[Content] = []
    for each in content:
        part = read_item(each)
        text = part.get("refusal" if part["type"] == "refusal" else "text")
        if part["type"] not in (*_TEXTS, "refusal") or text is None:
            _dropped(warn, f"a part of type {part['type']!r}")
            continue
        rest = {name: value for name, value in part.items() if name not in ("text", "refusal")}
        own = {"item": members, "part": rest, "at": len(found)}
        found.append(TextContent(text, additional_properties={_OWN: own}))
    return found


def read_item(item: Any) -> Item:
    """Return an item as a dict without members that are null."""
    found: Mapping[str, Any] = item if is_object(item) else item.model_dump(mode="json", exclude_unset=True)
    return {name: value for name, value in found.items() if value is not None}


def reasoning_text(item: Mapping[str, Any]) -> str:
    """Return the text of a reasoning item."""
    parts: Sequence[Any] = [*item.get("summary", ()), *item.get("content", ())]
    return "\n\n".join(part["text"] for part in parts)


def read_parts(content: Any, warn: Warn) -> list[Content]:
    """Return the contents of a message or of an output."""
    if isinstance(content, str):
        return [TextContent(content)]
    found: list[Content] = []
    for each in content:
        part = read_item(each)
        try:
            one = _read_part(part)
        except UnreadablePart as reason:
            _dropped(warn, f"a part: {reason}")
            continue
        if one is None:
            _dropped(warn, f"a part of type {part.get('type')!r}")
        else:
            found.append(one)
    return found


def _read_part(part: Item) -> Content | None:
    kind = part["type"]
    if kind in _TEXTS:
        own = _own(part, "text", is_typed=kind != "input_text")
        return TextContent(part["text"], additional_properties=own)
    if kind == "refusal":
        return TextContent(part["refusal"])
    if kind == "input_audio":
        audio = part["input_audio"]
        return DataContent(base64.b64decode(audio["data"]), _AUDIO_TYPES.get(audio["format"], "audio/mpeg"))
    if kind not in ("input_image", "input_file"):
        return None
    default = ("detail",) if kind == "input_image" and part.get("detail") == "auto" else ()
    properties = _own(part, "filename", "file_id", "image_url", "file_data", "file_url", *default)
    if kind == "input_image":
        properties[PART_KIND] = "image"
    if (name := part.get("filename")) is not None:
        properties[FILENAME] = name
    if "file_id" in part:
        return HostedFileContent(part["file_id"], additional_properties=properties)
    url: str = part.get("image_url", part.get("file_data", part.get("file_url", "")))
    if not url.startswith("data:"):
        return UriContent(url, additional_properties=properties)
    data, media_type = read_data_uri(url)
    is_image = (media_type or "").startswith("image/")
    if kind == "input_image" and is_image:
        del properties[PART_KIND]
    elif kind == "input_file" and (media_type or "").partition("/")[0] in ("image", "audio", "video"):
        properties[PART_KIND] = "document"  # otherwise its type makes it an image, or a sound
    return DataContent(data, media_type or "application/octet-stream", additional_properties=properties)
