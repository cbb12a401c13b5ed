"""Convert chat messages to those of LlamaIndex."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

from aguila.chat import (
    ChatMessage,
    Content,
    DataContent,
    FunctionCallContent,
    FunctionResultContent,
    ReasoningContent,
    TextContent,
    UriContent,
)
from aguila.codec.json.encoder import encode
from aguila.codec.json.values import is_array
from aguila.codec.notices import Notice, log_notice
from aguila.frameworks.external.packages import load


def to_llama_index(messages: Iterable[ChatMessage]) -> list[Any]:
    """Convert chat messages to ``ChatMessage`` objects of LlamaIndex.

    Lost: ids and names of messages, reasoning and metadata. Files that a provider stores are dropped with a notice.
    """
    types: Any = load("llama_index.core.base.llms.types", "llama-index-core")
    made: list[Any] = []
    for message in messages:
        if message.role == "tool":
            made += [_result(types, content) for content in message.results]
            continue
        role = "system" if message.role == "developer" else message.role
        blocks = [block for content in message.contents if (block := _block(types, content)) is not None]
        if blocks:
            made.append(types.ChatMessage(role=role, blocks=blocks))
    return made


def _result(types: Any, content: FunctionResultContent) -> Any:
    result: Any = content.result
    blocks: list[Any]
    if is_array(result) and all(isinstance(one, Content) for one in result):
        parts: Sequence[Content] = result
        blocks = [block for part in parts if (block := _block(types, part)) is not None]
    else:
        blocks = [types.TextBlock(text=result if isinstance(result, str) else encode(result).decode())]
    return types.ChatMessage(role="tool", blocks=blocks, additional_kwargs={"tool_call_id": content.call_id})


def _block(types: Any, content: Content) -> Any:
    match content:
        case TextContent():
            return types.TextBlock(text=content.text)
        case FunctionCallContent():
            arguments = content.parsed_arguments
            given = content.arguments if arguments is None else arguments
            return types.ToolCallBlock(tool_call_id=content.call_id, tool_name=content.name, tool_kwargs=given)
        case ReasoningContent():
            return None
        case DataContent() | UriContent():
            return _file(types, content)
        case _:
            log_notice(Notice(rule="llama_index", message=f"dropped {type(content).__name__}, which has no block"))
            return None


def _file(types: Any, content: DataContent | UriContent) -> Any:
    media_type = content.media_type or ""
    given: dict[str, Any] = {"url": content.uri} if isinstance(content, UriContent) else {}
    data = None if isinstance(content, UriContent) else content.data
    match media_type.partition("/")[0]:
        case "image":
            return types.ImageBlock(**given, image=data, image_mimetype=media_type)
        case "audio":
            return types.AudioBlock(**given, audio=data, format=media_type.partition("/")[2])
        case "video":
            return types.VideoBlock(**given, video=data, video_mimetype=media_type)
        case _:
            return types.DocumentBlock(**given, data=data, document_mimetype=media_type or None)
