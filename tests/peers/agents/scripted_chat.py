"""A model that follows the script, behind OpenAI's Chat Completions, which most frameworks can talk to.

``serve_app`` of script.py serves it at ``/v1`` beside the app, so that a closed connection stops the model.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from typing import Any

import script

Delta = dict[str, Any]


async def reply(messages: list[dict[str, Any]]) -> AsyncIterator[Delta]:
    """Yield the deltas of the answer to a history in the form of Chat Completions."""
    # AG2 adds an empty message of the user after the result of a front-end tool.
    asked = max(at for at, message in enumerate(messages) if message["role"] == "user" and message["content"])
    prompt = _text(messages[asked]["content"])
    feature = script.feature_of(prompt)
    if feature == "many":  # LlamaIndex writes the state before the words of the user
        feature = script.feature_of(prompt.split()[-1])
    number = f"{asked}"  # a real model does not use an id twice
    names = {call["id"]: call["function"]["name"] for one in messages for call in one.get("tool_calls") or ()}
    results = [message for message in messages[asked:] if message["role"] == "tool"]
    if len(results) == 2:
        first, second = (_text(result["content"]) for result in results)
        yield {"content": f"The sums are {first} and {second}."}
        return
    if results:
        yield {"content": after_the_tool(names[results[0]["tool_call_id"]], _text(results[0]["content"]))}
        return
    match feature:
        case "text":
            for word in script.TEXT:
                yield {"content": word}
        case "backend":
            yield call(script.BACKEND_TOOL, f"call-add-{number}", '{"a": 2, "b": 3}')
        case "two":
            yield call(script.BACKEND_TOOL, f"call-add-1-{number}", '{"a": 1, "b": 2}')
            yield call(script.BACKEND_TOOL, f"call-add-2-{number}", '{"a": 3, "b": 4}', 1)
        case "frontend":
            yield call(script.FRONTEND_TOOL, f"call-colour-{number}", '{"of": "Ada"}')
        case "state":
            yield call(script.STATE_TOOL, f"call-count-{number}", "{}")
        case "reasoning":
            for thought in script.THOUGHT:
                yield {"reasoning_content": thought}
            yield {"content": script.THOUGHT_OF}
        case "interrupt":
            yield call(script.APPROVED_TOOL, f"call-mail-{number}", '{"to": "Ada"}')
        case "fault":
            yield call(script.BACKEND_TOOL, f"call-fault-{number}", '{"a": 0, "b": 0}')
        case "cut":
            yield {"content": script.BEFORE_THE_ERROR}
            raise EOFError  # the connection ends
        case "error":
            yield {"content": script.BEFORE_THE_ERROR}
            raise RuntimeError(script.ERROR)
        case "cancel":
            async for tick in script.probe.ticks():
                yield {"content": tick}
        case _:
            async for word in script.many_words():
                yield {"content": word}


def call(name: str, call_id: str, arguments: str, index: int = 0) -> Delta:
    function = {"name": name, "arguments": arguments}
    return {"tool_calls": [{"index": index, "id": call_id, "type": "function", "function": function}]}


def after_the_tool(name: str, content: str) -> str:
    if name == script.BACKEND_TOOL:
        return f"The sum is {content}."
    if name == script.STATE_TOOL:
        return script.COUNTED
    if name == script.APPROVED_TOOL:
        return script.SENT if content == "sent" else script.NOT_SENT
    return f"The colour is {content}."


def _text(content: Any) -> str:
    """Return a content as text. Some frameworks send results as JSON or as parts."""
    if isinstance(content, list):
        content = "".join(part.get("text", "") for part in content)
    try:
        value = json.loads(content)
    except ValueError:
        return content
    return value if isinstance(value, str) else content


async def serve_model(scope: Any, receive: Any, send: Any) -> None:
    """Answer ``POST /v1/chat/completions``."""
    body = b""
    while True:
        message = await receive()
        body += message.get("body", b"")
        if not message.get("more_body"):
            break
    request = json.loads(body)
    answering = asyncio.create_task(_stream(request, send))
    while not answering.done():
        left = asyncio.create_task(receive())
        await asyncio.wait([answering, left], return_when=asyncio.FIRST_COMPLETED)
        if left.done() and left.result()["type"] == "http.disconnect":
            answering.cancel()
            await asyncio.wait([answering])
        left.cancel()


async def _stream(request: dict[str, Any], send: Any) -> None:
    about = {"id": "chatcmpl-1", "created": 1, "model": "scripted"}
    is_stream = request.get("stream", False)
    kind = b"text/event-stream" if is_stream else b"application/json"
    await send({"type": "http.response.start", "status": 200, "headers": [(b"content-type", kind)]})

    async def chunk(delta: Delta, reason: str | None = None) -> None:
        choice = {"index": 0, "delta": delta, "finish_reason": reason}
        event = json.dumps({**about, "object": "chat.completion.chunk", "choices": [choice]})
        await send({"type": "http.response.body", "body": f"data: {event}\n\n".encode(), "more_body": True})

    text, calls = "", []
    deltas = reply(request["messages"])
    try:
        if is_stream:
            await chunk({"role": "assistant", "content": ""})
        async for delta in deltas:
            text += delta.get("content", "")
            calls += delta.get("tool_calls", [])
            if is_stream:
                await chunk(delta)
    except EOFError:
        await send({"type": "http.response.body"})
        return
    except RuntimeError:
        event = json.dumps({"error": {"message": script.ERROR, "type": "server_error", "code": "server_error"}})
        await send({"type": "http.response.body", "body": f"data: {event}\n\n".encode()})
        return
    finally:
        await deltas.aclose()  # type: ignore[attr-defined]
    reason = "tool_calls" if calls else "stop"
    if is_stream:
        await chunk({}, reason)
        await send({"type": "http.response.body", "body": b"data: [DONE]\n\n"})
        return
    message = {"role": "assistant", "content": text, "tool_calls": calls or None}
    choice = {"index": 0, "message": message, "finish_reason": reason}
    whole = json.dumps({**about, "object": "chat.completion", "choices": [choice]})
    await send({"type": "http.response.body", "body": whole.encode()})
