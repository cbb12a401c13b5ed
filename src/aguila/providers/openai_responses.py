"""OpenAI's Responses API.

``request`` makes the arguments of ``client.responses.create``, ``updates`` reads its stream. The SDK is not imported.

Nothing is stored at the provider: reasoning comes encrypted, travels with the thread, and is sent back. So are
the phase of a message (commentary or final answer) and items of the provider's own tools, such as a web search:
reasoning is refused without the item after it. Skipped with a notice: audio, video, images and files of unsupported
types.
"""

from __future__ import annotations

from typing import Any

from aguila.chat import (
    ChatMessage,
    DataContent,
    FunctionCallContent,
    FunctionResultContent,
    HostedFileContent,
    ReasoningContent,
    TextContent,
    UriContent,
)
from aguila.chat.media import UnreadablePart
from aguila.chat.property_keys import ENCRYPTED_VALUE
from aguila.codec.json.encoder import encode
from aguila.codec.json.values import is_array, is_object
from aguila.codec.notices import Warn, log_notice
from aguila.providers._encrypted_values import Place, read_json, unpack
from aguila.providers._request.media import (
    IMAGES,
    PDF,
    Block,
    File,
    data_uri,
    encode_data,
    file_name,
    kind_of,
    make_blocks,
    media_type_of,
    read_file_id,
    read_url,
    require_text,
    result_contents,
)
from aguila.providers._request.prompt import BEGIN, Prompt, ProviderView, Rules, object_arguments
from aguila.providers._request.schemas.parts import SchemaBudget
from aguila.providers._request.schemas.standard import standard_schema
from aguila.providers._response.openai_responses import (
    IMAGE_CALL,
    ITEM,
    ITEM_PAIRS,
    MESSAGE,
    OWN_ITEMS,
    PHASES,
    REASONING,
    SUMMARY_SEPARATOR,
)
from aguila.providers._response.openai_responses import updates as updates

RULES = Rules(call_id=r"[^\s].*", tool_name=r"[a-zA-Z0-9_-]+", longest_id=64)


_GAP: Block = {"type": "gap"}
"""Marks an item that is not sent back: reasoning before it has lost the item after it."""


def request(
    prompt: Prompt, *, model: str, warn: Warn | None = None, view: ProviderView | None = None
) -> dict[str, Any]:
    """Make the arguments of ``client.responses.create`` for a streamed answer to a prompt."""
    warn = log_notice if warn is None else warn
    view = ProviderView(prompt, RULES, warn) if view is None else view
    items: list[Block] = []
    for message in view.messages:
        items += _items(message, view, warn)
    items = _drop_unfollowed_reasoning(_replace_unpaired_items(items))
    if not any(item.get("role") != "system" for item in items):
        items.append({"role": "user", "content": [{"type": "input_text", "text": BEGIN}]})
    made: dict[str, Any] = {
        "model": model,
        "input": items,
        "stream": True,
        "store": False,
        "include": ["reasoning.encrypted_content"],
    }
    if prompt.system_text != "":
        made["instructions"] = prompt.system_text
    if view.tools:
        budget = SchemaBudget()
        made["tools"] = [
            {
                "type": "function",
                "name": name,
                "description": tool.description,
                "parameters": standard_schema(tool.parameters, budget=budget),
                "strict": False,
            }
            for name, tool in view.tools
        ]
    return made


def _items(message: ChatMessage, view: ProviderView, warn: Warn) -> list[Block]:
    match message.role:
        case "assistant":
            return _assistant(message, view, warn)
        case "tool":
            return [_output(result, view, warn) for result in message.results]
        case "system" | "developer":
            text = message.text
            role = message.role
            return [{"role": role, "content": [{"type": "input_text", "text": text}]}] if text.strip() != "" else []
        case _:
            blocks = make_blocks(message.contents, _part, warn)
            return [{"role": "user", "content": blocks}] if blocks else []


def _assistant(message: ChatMessage, view: ProviderView, warn: Warn) -> list[Block]:
    items: list[Block] = []
    said = 0
    picture: Block | None = None  # an image item whose bytes are the next content, if still present
    for content in message.contents:
        if picture is not None and isinstance(content, DataContent) and content.data != b"":
            items[-1] = {**picture, "result": encode_data(content)}
            picture = None
            continue
        picture = None
        match content:
            case ReasoningContent() if (own := _own_item(content)) is not None:
                picture = own if own["type"] == IMAGE_CALL else None
                items.append(_GAP if picture is not None else own)
            case ReasoningContent():
                thought = unpack(content.protected_data, REASONING)
                if thought is not None and "id" in thought and "encrypted_content" in thought:
                    summary = [{"type": "summary_text", "text": text} for text in _summary(content.text, thought)]
                    kept = {name: thought[name] for name in ("id", "encrypted_content")}
                    items.append({"type": "reasoning", "summary": summary, **kept})
            case FunctionCallContent():
                items.append(
                    {
                        "type": "function_call",
                        "call_id": view.call_id(content.call_id),
                        "name": view.name(content.name),
                        "arguments": encode(object_arguments(content)).decode(),
                    }
                )
            case TextContent():
                if content.text != "":
                    phase = _phase(content, 0, len(content.text)) or _phase(message, said, said + len(content.text))
                    items.append({"role": "assistant", "content": content.text, **phase})
                    said += len(content.text)
            case _:
                items += [
                    {"role": "assistant", "content": block["text"]}
                    for block in make_blocks([content], _text_part, warn)
                ]
    return items


def _phase(holder: ChatMessage | TextContent, start: int, end: int) -> Block:
    """Return the phase of a range of text, if its opaque value was sent at the end of that range."""
    kept = unpack(holder.additional_properties.get(ENCRYPTED_VALUE), MESSAGE)
    if kept is None or kept.get("phase") not in PHASES:
        return {}
    place = Place.of(kept)
    return {"phase": kept["phase"]} if place is None or start < place.start <= end else {}


def _own_item(content: ReasoningContent) -> Block | None:
    """Return the item in an opaque value, or a gap if it is not sent back."""
    kept = unpack(content.protected_data, ITEM)
    if kept is None:
        return None
    item: Any = read_json(kept.get("item", ""))
    return item if is_object(item) and item.get("type") in OWN_ITEMS and isinstance(item.get("id"), str) else _GAP


def _replace_unpaired_items(items: list[Block]) -> list[Block]:
    """Replace items of the provider's own tools by gaps if they come twice, or without their counterpart."""
    made = {(kind, item.get("call_id")) for item in items if (kind := item.get("type")) in OWN_ITEMS}
    other = {**ITEM_PAIRS, **{output: call for call, output in ITEM_PAIRS.items()}}
    kept: list[Block] = []
    seen: set[str] = set()
    for item in items:
        kind = item.get("type")
        if kind in OWN_ITEMS:
            is_loose = kind in other and (other[kind], item.get("call_id")) not in made
            if is_loose or item["id"] in seen:
                kept.append(_GAP)
                continue
            seen.add(item["id"])
        kept.append(item)
    return kept


def _summary(text: str, thought: dict[str, str]) -> list[str]:
    """Split a summary into its original parts, if the text is unchanged."""
    lengths: Any = read_json(thought.get("parts", ""))
    parts: list[str] = []
    start = 0
    for length in lengths if is_array(lengths) and all(type(one) is int and one >= 0 for one in lengths) else ():
        parts.append(text[start : start + length])
        start += length + len(SUMMARY_SEPARATOR)
    if parts and SUMMARY_SEPARATOR.join(parts) == text:
        return parts
    return [text] if text != "" else []


def _drop_unfollowed_reasoning(items: list[Block]) -> list[Block]:
    """Drop reasoning without an item after it, and reasoning with a repeated id: the API refuses both."""
    kept: list[Block] = []
    seen: set[str] = set()
    for index, item in enumerate(items):
        if item.get("type") == "reasoning":
            following = next((one for one in items[index + 1 :] if one.get("type") != "reasoning"), None)
            leads = following is not None and (
                following.get("role") == "assistant" or following.get("type") in ("function_call", *OWN_ITEMS)
            )
            if not leads or item["id"] in seen:
                continue
            seen.add(item["id"])
        if item is not _GAP:
            kept.append(item)
    return kept


def _output(result: FunctionResultContent, view: ProviderView, warn: Warn) -> Block:
    blocks = make_blocks(result_contents(result, warn), _part, warn)
    only_text = all(block["type"] == "input_text" for block in blocks)
    output: Any = "\n".join([block["text"] for block in blocks]) if only_text else blocks
    return {"type": "function_call_output", "call_id": view.call_id(result.call_id), "output": output}


def _text_part(content: TextContent | File) -> Block:
    return {"type": "input_text", "text": require_text(content)}


def _part(content: TextContent | File) -> Block:
    if isinstance(content, TextContent):
        return _text_part(content)
    kind, media_type = kind_of(content), media_type_of(content)
    if kind == "image":
        return {"type": "input_image", "detail": "auto", **_image(content, media_type)}
    if kind != "document":
        raise UnreadablePart(f"{kind} of type {media_type or 'unknown'!r}")
    if isinstance(content, HostedFileContent):
        return {"type": "input_file", "file_id": read_file_id(content, "openai")}
    if isinstance(content, UriContent):
        return {"type": "input_file", "file_url": read_url(content)}
    if media_type == PDF:
        return {
            "type": "input_file",
            "filename": file_name(content, "document.pdf"),
            "file_data": data_uri(content),
        }
    return _text_part(content)


def _image(content: File, media_type: str) -> Block:
    if isinstance(content, UriContent):
        return {"image_url": read_url(content)}
    if isinstance(content, HostedFileContent):
        return {"file_id": read_file_id(content, "openai")}
    if media_type in IMAGES:
        return {"image_url": data_uri(content)}
    raise UnreadablePart(f"an image of type {media_type or 'unknown'!r}")
