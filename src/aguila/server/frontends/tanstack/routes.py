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
from aguila.protocol.messages import parts_of
from aguila.protocol.parts import ContentPart, TextPart
from aguila.server.config.errors import Rejected
from aguila.server.frontends.tanstack.events import bind_interrupts, parse_json
from aguila.server.http.frames import select_framing
from aguila.server.http.parameters import read_cursor, read_limit
from aguila.server.http.request import Request
from aguila.server.http.responses import Response, json_response
from aguila.server.http.routes import Endpoint
from aguila.server.http.run_routes import stream_runs
from aguila.server.http.service import Service
from aguila.server.threads.interrupts.plan import find_open_interrupts
from aguila.store import RunKey, ThreadFilter

_MAX_PAGE = 1_000


def find_root(request: Request) -> Endpoint | None:
    """Return the endpoint of ``GET /?threadId=`` or ``GET /?offset=-1&runId=``; None for other requests."""
    if request.method != "GET":
        return None
    if "runId" in request.query and "offset" in request.query:
        return _JOIN
    return _HYDRATE if "threadId" in request.query else None


async def _hydrate(service: Service, request: Request) -> Response:
    """Send the messages, the running run and the open interrupts.

    The messages of a running run are omitted: the client joins the run and rebuilds them from its events.
    """
    limit, before = read_limit(request, _MAX_PAGE), request.query.get("before")
    thread_id = request.query["threadId"]
    await service.check_agent(request, thread_id)
    runs = service.runs
    try:
        view = await runs.threads.at(request.caller.scope, thread_id)
    except NotFound:  # a new chat hydrates too
        return json_response(_build_hydration([], None, None, []))
    messages: Sequence[Message] = view.conversation.messages
    active = interrupted = None
    interrupts: Sequence[Interrupt] = []
    if view.is_running:
        active = view.tip
        messages = view.initial_messages
    else:
        interrupts = await find_open_interrupts(service.store, request.caller.scope, view)
        interrupted = view.tip

    def page() -> Any:
        shown = to_ui_messages(messages)
        end = next((place for place, one in enumerate(shown) if one["id"] == before), len(shown))
        start = 0 if limit is None else max(0, end - limit)
        answer = _build_hydration(shown[start:end], active, interrupted, interrupts)
        if start > 0:
            answer["page"] = {"truncated": True, "cursor": shown[start]["id"]}
        return answer

    if is_large(messages):
        return await offload(lambda: json_response(page()))
    return json_response(page())


def _build_hydration(
    messages: Sequence[dict[str, Any]], active: str | None, interrupted: str | None, interrupts: Sequence[Interrupt]
) -> dict[str, Any]:
    return {
        "messages": messages,
        "activeRun": None if active is None else {"runId": active},
        "interrupts": {"runId": interrupted, "pending": bind_interrupts(interrupts, interrupted)}
        if interrupts and interrupted is not None
        else None,
        "page": {"truncated": False},
    }


async def _join(service: Service, request: Request) -> Response:
    """Send the events of a run from its first, then live until its end. The request names no thread."""
    run_id, offset = request.query["runId"], request.query["offset"]
    if offset != "-1":
        raise Rejected(422, "bad_offset", "offset must be -1: a run is joined from its first event", "/offset")
    thread_id = request.query.get("threadId")
    if thread_id is None:
        found = (await service.store.threads(request.caller.scope, ThreadFilter(run_id=run_id, limit=1))).threads
        thread_id = found[0].thread_id if found else None
    if thread_id is None:
        raise NotFound(f"no run {run_id!r} in the most recently updated threads; add ?threadId=")
    await service.check_agent(request, thread_id)
    record = await service.store.run(RunKey(request.caller.scope, thread_id, run_id))
    after = await read_cursor(service, request, thread_id)
    framing = select_framing(service, request, request.query.get("protocolVersion"), thread_id, run_id)
    return await stream_runs(service, request, [record], after, framing=framing)


_HYDRATE = Endpoint({"GET": _hydrate}, is_stream=True)
_JOIN = Endpoint({"GET": _join}, is_stream=True)


# The client's form of messages


def to_ui_messages(messages: Iterable[Message]) -> list[dict[str, Any]]:
    """Convert messages to TanStack's ``UIMessage``, grouped as its client groups events.

    Reasoning, tool calls and their results are parts of the text message before them, or else of the one after them. A
    second text starts another message. Activities have no counterpart and are omitted.
    """
    found: list[dict[str, Any]] = []
    group: dict[str, Any] | None = None
    has_text = False
    owners: dict[str, tuple[dict[str, Any], dict[str, Any]]] = {}
    for message in messages:
        if isinstance(message, ActivityMessage):
            continue
        if isinstance(message, ToolMessage) and message.tool_call_id in owners:
            owner, call_part = owners[message.tool_call_id]
            result = _to_result_part(message)
            call_part["state"] = "error" if message.error is not None else "complete"
            call_part["output"] = parse_json(result["content"])
            owner["parts"].append(result)
            continue
        if isinstance(message, ReasoningMessage | AssistantMessage | ToolMessage):
            is_text = isinstance(message, AssistantMessage) and bool(message.content)
            if group is None or (is_text and has_text):
                new: dict[str, Any] = {"id": message.id, "role": "assistant", "parts": []}
                group, has_text = new, False
                found.append(group)
            if is_text:
                group["id"], has_text = message.id, True
            for part in _to_parts(message):
                group["parts"].append(part)
                if part["type"] == "tool-call":
                    owners[part["id"]] = (group, part)
            continue
        group = None
        parts = [_to_content_part(part) for part in parts_of(message.content)]
        role = "user" if isinstance(message, UserMessage) else "system"
        found.append({"id": message.id, "role": role, "parts": parts})
    return found


def _to_parts(message: ReasoningMessage | AssistantMessage | ToolMessage) -> list[dict[str, Any]]:
    if isinstance(message, ReasoningMessage):
        return [_to_thinking_part(message)]
    if isinstance(message, ToolMessage):
        return [_to_result_part(message)]
    text: list[dict[str, Any]] = [{"type": "text", "content": message.content}] if message.content else []
    return text + [_to_call_part(call) for call in message.tool_calls or () if isinstance(call, ToolCall)]


def _to_thinking_part(message: ReasoningMessage) -> dict[str, Any]:
    part = {"type": "thinking", "content": message.content}
    if message.encrypted_value is not None:
        part["signature"] = message.encrypted_value
    return part


def _to_call_part(call: ToolCall) -> dict[str, Any]:
    arguments = call.function.arguments
    return {
        "type": "tool-call",
        "id": call.id,
        "name": call.function.name,
        "arguments": arguments,
        "input": parse_json(arguments),
        "state": "input-complete",
    }


def _to_result_part(message: ToolMessage) -> dict[str, Any]:
    content = message.content
    part: dict[str, Any] = {
        "type": "tool-result",
        "id": message.id,
        "toolCallId": message.tool_call_id,
        "content": content if isinstance(content, str) else [_to_content_part(part) for part in parts_of(content)],
        "state": "complete" if message.error is None else "error",
    }
    if message.error is not None:
        part["error"] = message.error
    return part


def _to_content_part(part: ContentPart) -> Any:
    return {"type": "text", "content": part.text} if isinstance(part, TextPart) else part
