"""Answer the two forms of ``GET /`` that TanStack AI's client sends: hydrate a thread, and join a run."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

from aguila.errors import NotFound
from aguila.offload import is_large, offload
from aguila.protocol import (
    ActivityMessage,
    AssistantMessage,
    Interrupt,
    Message,
    ReasoningMessage,
    ToolCall,
    ToolMessage,
    UserMessage,
)
from aguila.protocol.parts import ContentPart, TextPart, parts_of
from aguila.server.auth import Request
from aguila.server.exchange import Exchange, Service
from aguila.server.interrupts import open_interrupts
from aguila.server.rejection import Rejected
from aguila.server.responses import Reply, json_document
from aguila.server.run_routes import cursor_of, run_stream
from aguila.server.tanstack import bound, parsed

_MAX_PAGE = 1_000


async def root(service: Service, exchange: Exchange) -> Reply:
    """``GET /``: hydrate a thread (``?threadId=``) or join a run (``?offset=-1&runId=``); 405 without these."""
    query = exchange.request.query
    if "runId" in query and "offset" in query:
        return await _join(service, exchange, query["runId"])
    if "threadId" in query:
        return await _hydrate(service, exchange, query["threadId"])
    raise Rejected(405, "method_not_allowed", "GET is not possible here", headers={"allow": "POST"})


async def _hydrate(service: Service, exchange: Exchange, thread_id: str) -> Reply:
    """Answer with the messages, the run that is on, and the interrupts that wait for an answer.

    The messages of a run that is on are left out: the client joins it, and rebuilds them from its events.
    """
    limit, before = _page_of(exchange.request)
    await service.check_agent(exchange, thread_id)
    runs = service.runs
    try:
        view = await runs.projections.of(exchange.scope, thread_id)
    except NotFound:  # a new chat hydrates too
        return json_document(_hydration([], None, None, []), exchange.headers)
    messages: Sequence[Message] = view.conversation.messages
    active = interrupted = None
    interrupts: Sequence[Interrupt] = []
    if view.is_running:
        active = view.tip
        messages = await runs.projections.given_to(exchange.scope, thread_id, str(view.tip))
    else:
        interrupts = await open_interrupts(service.store, exchange.scope, view)
        interrupted = view.tip

    def page() -> Any:
        shown = ui_messages(messages)
        end = next((place for place, one in enumerate(shown) if one["id"] == before), len(shown))
        start = 0 if limit is None else max(0, end - limit)
        answer = _hydration(shown[start:end], active, interrupted, interrupts)
        if start > 0:
            answer["page"] = {"truncated": True, "cursor": shown[start]["id"]}
        return answer

    if is_large(messages):
        return await offload(lambda: json_document(page(), exchange.headers, is_large=True))
    return json_document(page(), exchange.headers)


def _page_of(request: Request) -> tuple[int | None, str | None]:
    text = request.query.get("limit")
    if text is None:
        return None, request.query.get("before")
    if not (text.isascii() and text.isdigit()) or len(text) > 6 or not 1 <= int(text) <= _MAX_PAGE:
        raise Rejected(422, "bad_limit", f"limit is a number from 1 to {_MAX_PAGE}", "/limit")
    return int(text), request.query.get("before")


def _hydration(
    messages: Sequence[dict[str, Any]], active: str | None, interrupted: str | None, interrupts: Sequence[Interrupt]
) -> dict[str, Any]:
    return {
        "messages": messages,
        "activeRun": None if active is None else {"runId": active},
        "interrupts": {"runId": interrupted, "pending": bound(interrupts, interrupted)}
        if interrupts and interrupted is not None
        else None,
        "page": {"truncated": False},
    }


async def _join(service: Service, exchange: Exchange, run_id: str) -> Reply:
    """Answer with the events of a run from its first, then live until its end. The request names no thread."""
    offset = exchange.request.query["offset"]
    if offset != "-1":
        raise Rejected(422, "bad_offset", "offset is -1: a run is joined from its first event", "/offset")
    thread_id = exchange.request.query.get("threadId")
    if thread_id is None:
        thread_id = await service.store.run_thread(exchange.scope, run_id)
    if thread_id is None:
        raise NotFound(f"no run {run_id!r} in the threads that were updated last")
    await service.check_agent(exchange, thread_id)
    record = await service.store.run(exchange.scope, thread_id, run_id)
    after = await cursor_of(service, exchange, thread_id)
    framing = service.framing(exchange, exchange.request.query.get("protocolVersion"))
    return await run_stream(service, exchange, record, after, framing=framing)


# Messages as the client has them


def ui_messages(messages: Iterable[Message]) -> list[dict[str, Any]]:
    """Convert messages to TanStack's ``UIMessage``, as its client converts a MESSAGES_SNAPSHOT.

    Reasoning becomes a part of the assistant message that follows it, a tool result a part of the message with the
    call. Activities have no counterpart and are left out.
    """
    found: list[dict[str, Any]] = []
    thoughts: list[dict[str, Any]] = []
    calls: dict[str, tuple[dict[str, Any], dict[str, Any]]] = {}
    for message in messages:
        if isinstance(message, ReasoningMessage):
            thoughts.append({"id": message.id, "role": "assistant", "parts": [_thinking(message)]})
        elif isinstance(message, AssistantMessage):
            shown: dict[str, Any] = {"id": message.id, "role": "assistant", "parts": []}
            parts: list[dict[str, Any]] = shown["parts"]
            parts += [part for thought in thoughts for part in thought["parts"]]
            thoughts.clear()
            if message.content:
                parts.append({"type": "text", "content": message.content})
            for call in message.tool_calls or ():
                if not isinstance(call, ToolCall):
                    continue
                part = _call_part(call)
                parts.append(part)
                calls[call.id] = (shown, part)
            found.append(shown)
        elif isinstance(message, ToolMessage):
            owner, part = calls.get(message.tool_call_id, (None, None))
            result = _result_part(message)
            if owner is None or part is None:
                found.append({"id": message.id, "role": "assistant", "parts": [result]})
            else:
                part["state"] = "error" if message.error is not None else "complete"
                part["output"] = parsed(result["content"])
                owner["parts"].append(result)
        elif not isinstance(message, ActivityMessage):
            found += thoughts
            thoughts.clear()
            is_user = isinstance(message, UserMessage)
            found.append(
                {
                    "id": message.id,
                    "role": "user" if is_user else "system",
                    "parts": [_content_part(part) for part in parts_of(message.content)],
                }
            )
    return [*found, *thoughts]


def _thinking(message: ReasoningMessage) -> dict[str, Any]:
    part = {"type": "thinking", "content": message.content}
    if message.encrypted_value is not None:
        part["signature"] = message.encrypted_value
    return part


def _call_part(call: ToolCall) -> dict[str, Any]:
    arguments = call.function.arguments
    return {
        "type": "tool-call",
        "id": call.id,
        "name": call.function.name,
        "arguments": arguments,
        "input": parsed(arguments),
        "state": "input-complete",
    }


def _result_part(message: ToolMessage) -> dict[str, Any]:
    content = message.content
    part: dict[str, Any] = {
        "type": "tool-result",
        "id": message.id,
        "toolCallId": message.tool_call_id,
        "content": content if isinstance(content, str) else [_content_part(part) for part in parts_of(content)],
        "state": "complete" if message.error is None else "error",
    }
    if message.error is not None:
        part["error"] = message.error
    return part


def _content_part(part: ContentPart) -> Any:
    return {"type": "text", "content": part.text} if isinstance(part, TextPart) else part
