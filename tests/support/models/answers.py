"""Answers of each provider in its own format, and common steps of conversation tests."""

from __future__ import annotations

import json
from typing import Any

from aguila.codec import decode, encode
from aguila.protocol import UserMessage
from aguila.stream import consume
from models.model_server import sse

Json = dict[str, Any]


def of_type(events: list[Json], type_: str) -> list[Json]:
    return [event for event in events if event["type"] == type_]


def history(events: list[Json], said: str = "Hi") -> list[Json]:
    """Return the conversation after some events, as a client sends it again."""
    first = decode(json.dumps({"id": "m1", "role": "user", "content": said}), UserMessage)
    return json.loads(encode(consume(events, messages=[first]).messages))


def next_turn(thread: Any, before: list[Json], run_id: str = "r2", **members: Any) -> list[Json]:
    messages = [*history(before), {"id": "m9", "role": "user", "content": "Go on"}]
    return thread.events(run_id=run_id, messages=messages, **members)


def result_in(provider: str, sent: Json) -> Any:
    """Return the results of tools in a request, as the provider is given them."""
    match provider:
        case "openai chat":
            return [one["content"] for one in sent["messages"] if one["role"] == "tool"]
        case "openai responses":
            return [one["output"] for one in sent["input"] if one.get("type") == "function_call_output"]
        case "anthropic":
            blocks = [block for message in sent["messages"] for block in message["content"]]
            return [block for block in blocks if block["type"] == "tool_result"]
        case _:
            found = [part for content in sent["contents"] for part in content["parts"]]
            return [part["functionResponse"] for part in found if "functionResponse" in part]


def resumed(thread: Any, events: list[Json], run_id: str = "r2", payload: Any = None) -> list[Json]:
    payload = {"approved": True} if payload is None else payload
    answers = [
        {"interruptId": one["id"], "status": "resolved", "payload": payload}
        for one in events[-1]["outcome"]["interrupts"]
    ]
    return thread.events(run_id=run_id, messages=[], resume=answers)


def blocks(*made: Json, stop: str = "end_turn", usage: Json | None = None, ends: bool = True) -> tuple[int, bytes]:
    """Return an answer of Anthropic with these blocks, as they stand in a message."""
    counts = {"input_tokens": 1, "output_tokens": 1} if usage is None else usage
    message = {"id": "msg", "type": "message", "role": "assistant", "model": "m", "content": [], "usage": counts}
    events: list[Json] = [{"type": "message_start", "message": {**message, "stop_reason": None, "stop_sequence": None}}]
    for index, block in enumerate(made):
        begun, deltas = dict(block), []
        match block["type"]:
            case "text":
                begun["text"], deltas = "", [{"type": "text_delta", "text": block["text"]}]
                deltas += [{"type": "citations_delta", "citation": one} for one in begun.pop("citations", [])]
            case "thinking":
                begun |= {"thinking": "", "signature": ""}
                deltas = [{"type": "thinking_delta", "thinking": block["thinking"]}] if block["thinking"] else []
                deltas.append({"type": "signature_delta", "signature": block["signature"]})
            case "tool_use" | "server_tool_use":
                given = block["input"] if isinstance(block["input"], str) else json.dumps(block["input"])
                begun["input"], deltas = {}, [{"type": "input_json_delta", "partial_json": given}]
        events.append({"type": "content_block_start", "index": index, "content_block": begun})
        events += [{"type": "content_block_delta", "index": index, "delta": delta} for delta in deltas]
        events.append({"type": "content_block_stop", "index": index})
    if ends:
        events.append({"type": "message_delta", "delta": {"stop_reason": stop, "stop_sequence": None}, "usage": counts})
        events.append({"type": "message_stop"})
    return sse(events, named=True)


def use(call_id: str, city: str) -> Json:
    return {"type": "tool_use", "id": call_id, "name": "weather", "input": {"city": city}}


def parts(*made: Json, finish: str | None = "STOP", usage: Json | None = None) -> tuple[int, bytes]:
    """Return an answer of Gemini, one part after the other."""
    events: list[Json] = [{"candidates": [{"content": {"role": "model", "parts": [part]}}]} for part in made]
    if usage is not None:
        events = [{**event, "usageMetadata": usage} for event in events]
    if finish is not None:
        events.append({"candidates": [{"content": {"role": "model", "parts": []}, "finishReason": finish}]})
    return sse(events)


def call_part(city: str, **more: Any) -> Json:
    return {"functionCall": {"id": f"call-{city}", "name": "weather", "args": {"city": city}}, **more}


def items(*made: Json) -> tuple[int, bytes]:
    """Return an answer of Responses with these items, each begun and done."""
    whole = {"id": "resp_1", "object": "response", "created_at": 1, "model": "m", "output": [], "tools": []}
    whole |= {"parallel_tool_calls": True, "tool_choice": "auto", "status": "completed", "usage": None}
    events: list[Json] = [{"type": "response.created", "response": {**whole, "status": "in_progress"}}]
    for place, item in enumerate(made):
        events.append({"type": "response.output_item.added", "output_index": place, "item": item})
        if item["type"] == "message":
            delta = {"item_id": item["id"], "content_index": 0, "delta": item["content"][0]["text"], "logprobs": []}
            events.append({"type": "response.output_text.delta", "output_index": place, **delta})
            for number, annotation in enumerate(item["content"][0]["annotations"]):
                where = {"item_id": item["id"], "content_index": 0, "annotation_index": number, "output_index": place}
                added = {"type": "response.output_text.annotation.added", **where, "annotation": annotation}
                events.append(added)
        events.append({"type": "response.output_item.done", "output_index": place, "item": item})
    events.append({"type": "response.completed", "response": whole})
    return sse([{**event, "sequence_number": number} for number, event in enumerate(events)], named=True)
