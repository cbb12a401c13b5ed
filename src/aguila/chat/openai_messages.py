"""Chat messages as the messages of OpenAI's Chat Completions, for agents that call a server with its SDK or httpx.

Each result directly follows its call, and no call is without one (#2699). Left out: reasoning, names, files that are
neither images nor text, and calls without results; the stored history is not changed.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from aguila.chat.history_repair import provider_history
from aguila.chat.media import encode_base64
from aguila.chat.types import ChatMessage, Content, DataContent, FunctionResultContent, TextContent, UriContent
from aguila.codec.json.encoder import encode
from aguila.codec.json.values import is_array


def as_openai_messages(messages: Iterable[ChatMessage]) -> list[dict[str, Any]]:
    """Convert chat messages to the ``messages`` of a request to Chat Completions."""
    made: list[dict[str, Any]] = []
    for message in provider_history(messages).messages:
        if message.role == "tool":
            made += [
                {"role": "tool", "tool_call_id": result.call_id, "content": _result_text(result)}
                for result in message.results
            ]
        elif message.role == "assistant":
            calls = [
                {"id": call.call_id, "type": "function", "function": {"name": call.name, "arguments": call.arguments}}
                for call in message.calls
            ]
            if message.text != "" or calls:
                made.append({"role": "assistant", "content": message.text, **({"tool_calls": calls} if calls else {})})
        else:
            parts = [part for part in map(_part, message.contents) if part is not None]
            if message.role != "user" or all(part["type"] == "text" for part in parts):
                if message.text != "":
                    made.append({"role": message.role, "content": message.text})
            else:
                made.append({"role": "user", "content": parts})
    return made


def _part(content: Content) -> dict[str, Any] | None:
    match content:
        case TextContent() if content.text != "":
            return {"type": "text", "text": content.text}
        case DataContent() if content.media_type.startswith("image/"):
            url = encode_base64(content.data, f"data:{content.media_type};base64,")
        case UriContent() if (content.media_type or "").startswith("image/"):
            url = content.uri
        case _:
            return None
    return {"type": "image_url", "image_url": {"url": url}}


def _result_text(result: FunctionResultContent) -> str:
    value: Any = result.result
    if is_array(value):
        texts = [one.text for one in value if isinstance(getattr(one, "text", None), str)]
        return "\n".join(texts)
    text = value if isinstance(value, str) else encode(value).decode()
    return text if text != "" or result.error is None else result.error
