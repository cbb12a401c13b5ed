"""Build the JSON documents that a CopilotKit page reads."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any, Final

from aguila.codec.json.bounded_floats import decode_json
from aguila.protocol import AssistantMessage, Message, ToolCall, ToolMessage
from aguila.protocol.parts import TextPart
from aguila.server.http.request import Request
from aguila.server.http.service import Service
from aguila.store import ThreadSummary

VERSION: Final = "1.75.0"
"""The CopilotKit version whose contract is implemented here."""


def build_info(service: Service, request: Request, *, is_single: bool) -> dict[str, Any]:
    """Describe the runtime: its agents, and what this caller may do.

    Over the single endpoint, thread routes are requested in envelopes, so they are announced as ``singleRoute``.
    """
    agents: dict[str, Any] = {}
    with_a2ui: list[str] = []
    for name in service.agents:
        capabilities = decode_json(service.capabilities[name])
        agents[name] = {
            "name": name,
            "description": capabilities.get("identity", {}).get("description", ""),
            "className": "Aguila",
            "capabilities": capabilities,
        }
        custom: dict[str, Any] = capabilities.get("custom") or {}
        if custom.get("a2ui"):
            with_a2ui.append(name)
    threads = {
        "list": service.access.grants_ownership,
        "inspect": True,
        "mutations": service.access.grants_ownership,
        "realtimeMetadata": False,
    }
    document: dict[str, Any] = {
        "version": VERSION,
        "agents": agents,
        "mode": "sse",
        "audioFileTranscriptionEnabled": False,
        "threadEndpoints": dict.fromkeys(threads, False) if is_single else threads,
        "suggestions": True,
        "a2uiEnabled": bool(with_a2ui),
        "openGenerativeUIEnabled": False,
        "telemetryDisabled": True,
    }
    if with_a2ui:
        document["a2ui"] = {"enabled": True, "agents": with_a2ui}
    if is_single:
        document["singleRoute"] = {"resourceOperations": True, "threadEndpoints": threads}
    return document


def to_thread_record(thread: ThreadSummary) -> dict[str, Any]:
    """Convert a thread to an entry of CopilotKit's lists."""
    return {
        "id": thread.thread_id,
        "name": thread.title,
        "agentId": thread.agent,
        "organizationId": "",
        "createdById": "",
        "archived": thread.archived,
        "createdAt": _iso(thread.created_at),
        "updatedAt": _iso(thread.updated_at),
    }


def _iso(seconds: float) -> str:
    return datetime.fromtimestamp(seconds, UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")


def to_message(message: Message) -> dict[str, Any]:
    """Convert a message for CopilotKit's inspector, where tool calls have ``name`` and ``args``."""
    document: dict[str, Any] = {"id": message.id, "role": message.role}
    content: Any = getattr(message, "content", None)
    if isinstance(message, ToolMessage):
        return {**document, "content": _text(content), "toolCallId": message.tool_call_id}
    if content is not None:
        document["content"] = content
    if isinstance(message, AssistantMessage) and message.tool_calls:
        document["toolCalls"] = [
            {"id": call.id, "name": call.function.name, "args": call.function.arguments}
            for call in message.tool_calls
            if isinstance(call, ToolCall)
        ]
    return document


def _text(content: Any) -> str:
    """Return the text of a tool result. Images and files have no place in this document."""
    if isinstance(content, str):
        return content
    return "\n".join(part.text for part in content if isinstance(part, TextPart))
