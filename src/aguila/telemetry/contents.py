"""Messages in the JSON form of OpenTelemetry's conventions. Spans have them only if the process asks for contents."""

from __future__ import annotations

import os
from collections.abc import Sequence
from typing import Any

from aguila.codec import encode
from aguila.protocol import (
    ActivityMessage,
    AssistantMessage,
    Message,
    ReasoningMessage,
    TextPart,
    ToolCall,
    ToolMessage,
)


def has_contents() -> bool:
    """Return whether spans carry messages, and arguments and results of tools."""
    wanted = os.environ.get("OTEL_INSTRUMENTATION_GENAI_CAPTURE_MESSAGE_CONTENT", "")
    return wanted.lower() in ("true", "1", "span_only", "span_and_event")


def encode_messages(messages: Sequence[Message], **more: str) -> str:
    """Encode messages, each with these members besides. Activities are left out: no model has sent or sees them."""
    shown = [one for one in messages if not isinstance(one, ActivityMessage)]
    return encode_content([{"role": _role(one), "parts": _parts(one), **more} for one in shown])


def encode_content(value: Any) -> str:
    """Return text unchanged, and any other value as JSON."""
    return value if isinstance(value, str) else encode(value).decode()


def _role(message: Message) -> str:
    return "assistant" if isinstance(message, ReasoningMessage) else message.role


def _parts(message: Message) -> list[dict[str, Any]]:
    content: Any = message.content
    if isinstance(message, ToolMessage):
        return [{"type": "tool_call_response", "id": message.tool_call_id, "response": content}]
    kind = "reasoning" if isinstance(message, ReasoningMessage) else "text"
    texts: list[Any] = [{"type": kind, "content": content}]
    parts = texts if isinstance(content, str) else [_media(one) for one in content or ()]
    if isinstance(message, AssistantMessage):
        for call in message.tool_calls or ():
            if isinstance(call, ToolCall):
                its = call.function
                parts.append({"type": "tool_call", "id": call.id, "name": its.name, "arguments": its.arguments})
    return parts


def _media(part: Any) -> dict[str, Any]:
    """Return a part of a message. Media are only named, because they may be large."""
    return {"type": "text", "content": part.text} if isinstance(part, TextPart) else {"type": part.type}
