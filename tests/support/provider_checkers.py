"""What each provider demands of a request, as checks. Nothing here knows how we make requests.

Written from knowledge of the public rules, not checked line by line against the documentation or a real provider.

Each function gives what is wrong, as sentences; an empty list means that the provider's rules accept the request.
"""

from __future__ import annotations

import json
import re
from typing import Any

Problems = list[str]
Block = dict[str, Any]

OPENAI_NAME = re.compile(r"[a-zA-Z0-9_-]{1,64}")
ANTHROPIC_ID = re.compile(r"[a-zA-Z0-9_-]{1,64}")
GEMINI_NAME = re.compile(r"[a-zA-Z_][a-zA-Z0-9_.:-]{0,63}")
PROPERTY = re.compile(r"[a-zA-Z0-9_.-]{1,64}")
IMAGES = {"image/png", "image/jpeg", "image/gif", "image/webp"}


def check_chat(request: Block) -> Problems:
    """OpenAI, Chat Completions."""
    wrong: Problems = []
    messages = request["messages"]
    if not messages:
        wrong.append("there are no messages")
    ids: list[str] = []
    waiting: list[str] = []
    for index, message in enumerate(messages):
        role, content = message["role"], message.get("content")
        if waiting and role != "tool":
            wrong.append(f"message {index}: calls {waiting} are not answered before it")
            waiting = []
        if "name" in message and not re.fullmatch(r"[^\s<|\\/>]{1,64}", message["name"]):
            wrong.append(f"message {index}: name")
        if role in ("system", "developer", "user"):
            wrong += [f"message {index}: {one}" for one in _chat_content(role, content)]
        elif role == "assistant":
            calls = message.get("tool_calls")
            if calls == [] or (not calls and not content):
                wrong.append(f"message {index}: an assistant says nothing")
            for call in calls or ():
                if not 0 < len(call["id"]) <= 40 or call["type"] != "function":
                    wrong.append(f"message {index}: call id {call['id']!r}")
                if not OPENAI_NAME.fullmatch(call["function"]["name"]):
                    wrong.append(f"message {index}: name {call['function']['name']!r}")
                if not isinstance(json.loads(call["function"]["arguments"]), dict):
                    wrong.append(f"message {index}: arguments")
                ids.append(call["id"])
                waiting.append(call["id"])
        elif role == "tool":
            if message["tool_call_id"] not in waiting:
                wrong.append(f"message {index}: answers no call before it")
            else:
                waiting.remove(message["tool_call_id"])
            if not isinstance(content, str):
                wrong.append(f"message {index}: a result is text")
        else:
            wrong.append(f"message {index}: role {role!r}")
    if waiting:
        wrong.append("calls at the end are not answered")
    if len(set(ids)) != len(ids):
        wrong.append("a call id is used twice")
    names = [tool["function"]["name"] for tool in request.get("tools", ())]
    wrong += _names(names, OPENAI_NAME)
    for tool in request.get("tools", ()):
        wrong += check_root_schema(tool["function"]["parameters"])
    return wrong


def _chat_content(role: str, content: Any) -> Problems:
    if isinstance(content, str):
        return [] if content != "" else ["empty"]
    if not isinstance(content, list) or not content:
        return ["content is neither text nor parts"]
    wrong: Problems = []
    for part in content:
        match part["type"]:
            case "text":
                wrong += [] if part["text"] != "" else ["empty text"]
            case "image_url" if role == "user":
                url = part["image_url"]["url"]
                is_data = re.match(r"data:(image/[a-z]+);base64,", url)
                if not (is_data and is_data[1] in IMAGES) and not re.match(r"https?:", url, re.IGNORECASE):
                    wrong.append(f"image {url[:40]!r}")
            case "input_audio" if role == "user":
                wrong += [] if part["input_audio"]["format"] in ("wav", "mp3") else ["audio format"]
            case "file" if role == "user":
                file = part["file"]
                if not ("file_id" in file or {"filename", "file_data"} <= file.keys()):
                    wrong.append("file")
            case other:
                wrong.append(f"part {other!r}")
    return wrong


def check_responses(request: Block) -> Problems:
    """OpenAI, Responses."""
    wrong: Problems = []
    items = request["input"]
    if not items:
        wrong.append("there is no input")
    called: list[str] = []
    answered: list[str] = []
    thoughts: list[str] = []
    for index, item in enumerate(items):
        kind = item.get("type", "message")
        if kind == "message":
            wrong += [f"item {index}: {one}" for one in _responses_message(item)]
        elif kind == "function_call":
            called.append(item["call_id"])
            if not 0 < len(item["call_id"]) <= 64 or not OPENAI_NAME.fullmatch(item["name"]):
                wrong.append(f"item {index}: call {item['call_id']!r} of {item['name']!r}")
            if not isinstance(json.loads(item["arguments"]), dict):
                wrong.append(f"item {index}: arguments")
        elif kind == "function_call_output":
            answered.append(item["call_id"])
            if item["call_id"] not in called:
                wrong.append(f"item {index}: answers no call before it")
            if not isinstance(item["output"], str):
                wrong += [f"item {index}: {one}" for one in _responses_parts(item["output"])]
        elif kind == "reasoning":
            thoughts.append(item["id"])
            following = [one for one in items[index + 1 :] if one.get("type") != "reasoning"][:1]
            if not following or not (
                following[0].get("role") == "assistant" or following[0].get("type") == "function_call"
            ):
                wrong.append(f"item {index}: a thought without what follows it")
            if not item["encrypted_content"] or any(one["type"] != "summary_text" for one in item["summary"]):
                wrong.append(f"item {index}: thought")
        else:
            wrong.append(f"item {index}: type {kind!r}")
    if sorted(called) != sorted(answered):
        wrong.append("calls and results do not pair")
    if len(set(called)) != len(called) or len(set(thoughts)) != len(thoughts):
        wrong.append("an id is used twice")
    wrong += _names([tool["name"] for tool in request.get("tools", ())], OPENAI_NAME)
    for tool in request.get("tools", ()):
        wrong += check_root_schema(tool["parameters"])
    return wrong


def _responses_message(item: Block) -> Problems:
    if item["role"] == "assistant":
        return [] if isinstance(item["content"], str) and item["content"] != "" else ["an assistant says nothing"]
    if item["role"] not in ("user", "system", "developer"):
        return [f"role {item['role']!r}"]
    return _responses_parts(item["content"])


def _responses_parts(parts: Any) -> Problems:
    if not isinstance(parts, list) or not parts:
        return ["no parts"]
    wrong: Problems = []
    for part in parts:
        match part["type"]:
            case "input_text":
                wrong += [] if part["text"] != "" else ["empty text"]
            case "input_image":
                wrong += [] if len(part.keys() & {"image_url", "file_id"}) == 1 else ["image"]
            case "input_file":
                wrong += [] if len(part.keys() & {"file_data", "file_url", "file_id"}) == 1 else ["file"]
            case other:
                wrong.append(f"part {other!r}")
    return wrong


def check_anthropic(request: Block) -> Problems:
    """Anthropic, Messages."""
    wrong: Problems = []
    messages = request["messages"]
    if not messages or messages[0]["role"] != "user" or messages[-1]["role"] != "user":
        wrong.append("the user begins and ends")
    if "system" in request and request["system"].strip() == "":
        wrong.append("empty system")
    ids: list[str] = []
    waiting: list[str] = []
    for index, message in enumerate(messages):
        if message["role"] != ("user" if index % 2 == 0 else "assistant"):
            wrong.append(f"message {index}: roles do not take turns")
        blocks = message["content"]
        if not blocks:
            wrong.append(f"message {index}: empty")
            continue
        results = [block["tool_use_id"] for block in blocks if block["type"] == "tool_result"]
        if sorted(results) != sorted(waiting):
            wrong.append(f"message {index}: results {results} for calls {waiting}")
        if any(block["type"] != "tool_result" for block in blocks[: len(results)]):
            wrong.append(f"message {index}: results do not come first")
        waiting = [block["id"] for block in blocks if block["type"] == "tool_use"]
        ids += waiting
        if blocks[-1]["type"] in ("thinking", "redacted_thinking"):
            wrong.append(f"message {index}: ends with a thought")
        for block in blocks:
            wrong += [f"message {index}: {one}" for one in _anthropic_block(block, message["role"])]
    if waiting:
        wrong.append("calls at the end are not answered")
    if len(set(ids)) != len(ids):
        wrong.append("a call id is used twice")
    if request["max_tokens"] < 1:
        wrong.append("max_tokens")
    wrong += _names([tool["name"] for tool in request.get("tools", ())], ANTHROPIC_ID)
    for tool in request.get("tools", ()):
        wrong += check_root_schema(tool["input_schema"])
        wrong += [f"property {name!r}" for name in tool["input_schema"]["properties"] if not PROPERTY.fullmatch(name)]
    return wrong


def _anthropic_block(block: Block, role: str) -> Problems:
    match block["type"], role:
        case "text", _:
            return [] if block["text"].strip() != "" else ["empty text"]
        case "image" | "document", "user":
            source = block["source"]
            allowed = IMAGES if block["type"] == "image" else {"application/pdf"}
            if source["type"] == "base64":
                return [] if source["media_type"] in allowed and source["data"] else ["source"]
            return [] if source["type"] in ("url", "file") else ["source"]
        case "tool_use", "assistant":
            good = ANTHROPIC_ID.fullmatch(block["id"]) and ANTHROPIC_ID.fullmatch(block["name"])
            return [] if good and isinstance(block["input"], dict) else [f"call {block['id']!r}"]
        case "tool_result", "user":
            if isinstance(block["content"], str):
                return []
            return [one for part in block["content"] for one in _anthropic_block(part, role)]
        case "thinking", "assistant":
            return [] if isinstance(block["thinking"], str) and block["signature"] else ["thought"]
        case "redacted_thinking", "assistant":
            return [] if block["data"] else ["hidden thought"]
        case other:
            return [f"block {other!r}"]


def check_gemini(request: Block) -> Problems:
    """Google, Gemini."""
    wrong: Problems = []
    contents = request["contents"]
    if not contents or contents[0]["role"] != "user" or contents[-1]["role"] != "user":
        wrong.append("the user begins and ends")
    waiting: list[tuple[str, str]] = []
    ids: list[str] = []
    for index, content in enumerate(contents):
        if content["role"] not in ("user", "model"):
            wrong.append(f"content {index}: role {content['role']!r}")
        if index and content["role"] == "model" == contents[index - 1]["role"]:
            wrong.append(f"content {index}: the model speaks twice")
        parts = content["parts"]
        if not parts:
            wrong.append(f"content {index}: empty")
        results = [(one["id"], one["name"]) for part in parts if (one := part.get("function_response"))]
        if sorted(results) != sorted(waiting):
            wrong.append(f"content {index}: results {results} for calls {waiting}")
        if results and len(results) != len(parts):
            wrong.append(f"content {index}: results do not stand alone")
        waiting = [(one["id"], one["name"]) for part in parts if (one := part.get("function_call"))]
        ids += [one for one, _ in waiting]
        for part in parts:
            wrong += [f"content {index}: {one}" for one in _gemini_part(part, content["role"])]
    if waiting:
        wrong.append("calls at the end are not answered")
    if len(set(ids)) != len(ids):
        wrong.append("a call id is used twice")
    for tool in request["config"].get("tools", ()):
        wrong += _names([one["name"] for one in tool["function_declarations"]], GEMINI_NAME)
        for declared in tool["function_declarations"]:
            if declared["description"] == "":
                wrong.append("empty description")
            if "parameters" in declared:
                wrong.append("both ways to describe parameters")
            wrong += check_gemini_schema(declared["parameters_json_schema"])
    return wrong


def _gemini_part(part: Block, role: str) -> Problems:
    kinds = part.keys() - {"thought_signature", "thought"}
    if len(kinds) != 1:
        return [f"a part is one thing, not {sorted(kinds)}"]
    kind = kinds.pop()
    match kind, role:
        case "text", _:
            return [] if part["text"] != "" or "thought_signature" in part else ["empty text"]
        case "inline_data" | "file_data", "user":
            return [] if re.fullmatch(r"[a-z]+/[\w.+-]+", part[kind]["mime_type"]) else ["media type"]
        case "function_call", "model":
            call = part["function_call"]
            return [] if GEMINI_NAME.fullmatch(call["name"]) and isinstance(call["args"], dict) else ["call"]
        case "function_response", "user":
            return [] if isinstance(part["function_response"]["response"], dict) else ["result"]
        case other:
            return [f"part {other!r}"]


_GEMINI_KEYWORDS = {
    *("type", "format", "title", "description", "enum", "items", "prefixItems", "minItems", "maxItems"),
    *("minimum", "maximum", "anyOf", "properties", "additionalProperties", "required", "$ref"),
}


def check_gemini_schema(schema: Any) -> Problems:
    """The schema of a function's parameters, for Gemini."""
    if not isinstance(schema, dict) or schema.get("type") != "object" or not isinstance(schema.get("properties"), dict):
        return ["the root of a schema is an object with properties"]
    inner = {name: value for name, value in schema.items() if name != "$defs"}
    wrong = [problem for one in (inner, *schema.get("$defs", {}).values()) for problem in _gemini_schema(one, schema)]
    return wrong + [f"{name!r} is in a cycle" for name in schema.get("$defs", {}) if _reaches(schema, name)]


def _gemini_schema(schema: Any, root: Block) -> Problems:
    if isinstance(schema, bool):
        return []
    if not isinstance(schema, dict):
        return ["a schema is an object"]
    wrong = [f"keyword {name!r}" for name in schema if name not in _GEMINI_KEYWORDS]
    if "$ref" in schema and len(schema) > 1:
        wrong.append("a reference does not stand alone")
    if "$ref" in schema and schema["$ref"].removeprefix("#/$defs/") not in root.get("$defs", {}):
        wrong.append(f"{schema['$ref']!r} leads nowhere")
    if "anyOf" in schema and len(schema) > 1:
        wrong.append("anyOf does not stand alone")
    types = schema.get("type", [])
    wrong += [f"type {name!r}" for name in (types if isinstance(types, list) else [types]) if name not in _TYPES]
    if types == "array" and not schema.keys() & {"items", "prefixItems"}:
        wrong.append("an array without items")
    values = schema.get("enum", [])
    if not (all(isinstance(one, str) for one in values) or all(type(one) in (int, float) for one in values)):
        wrong.append("enum")
    if not set(schema.get("required", ())) <= schema.get("properties", {}).keys():
        wrong.append("required")
    return wrong + [problem for one in _inside(schema) for problem in _gemini_schema(one, root)]


def _inside(schema: Block) -> list[Any]:
    inner = [*schema.get("properties", {}).values(), *schema.get("anyOf", ()), *schema.get("prefixItems", ())]
    return inner + [schema[name] for name in ("items", "additionalProperties") if name in schema]


def _reaches(root: Block, name: str) -> bool:
    seen: set[str] = set()
    todo: list[Any] = [root["$defs"][name]]
    while todo:
        one = todo.pop()
        if not isinstance(one, dict):
            continue
        todo += _inside(one)
        target = one.get("$ref", "").removeprefix("#/$defs/")
        if target == name:
            return True
        if target in root["$defs"] and target not in seen:
            seen.add(target)
            todo.append(root["$defs"][target])
    return False


_TYPES = ("string", "number", "integer", "boolean", "object", "array", "null")


def _names(names: list[str], pattern: re.Pattern[str]) -> Problems:
    wrong = [f"tool name {name!r}" for name in names if not pattern.fullmatch(name)]
    return wrong if len(set(names)) == len(names) else [*wrong, "two tools have one name"]


def check_root_schema(schema: Any) -> Problems:
    """The schema of a tool's input, for OpenAI and Anthropic."""
    if not isinstance(schema, dict) or schema.get("type") != "object" or not isinstance(schema.get("properties"), dict):
        return ["the root of a schema is an object with properties"]
    wrong = [f"{name!r} at the root" for name in ("anyOf", "oneOf", "allOf", "enum", "not") if name in schema]
    return wrong + _json_schema(schema, schema)


def _json_schema(schema: Any, root: Block) -> Problems:
    if isinstance(schema, bool):
        return []
    if not isinstance(schema, dict):
        return ["a schema is an object"]
    wrong: Problems = []
    types = schema.get("type", [])
    for name in types if isinstance(types, list) else [types]:
        if name not in ("string", "number", "integer", "boolean", "object", "array", "null"):
            wrong.append(f"type {name!r}")
    if schema.get("type") == "array" and not isinstance(schema.get("items"), dict):
        wrong.append("an array without items")
    if "$schema" in schema or "$id" in schema:
        wrong.append("$schema")
    reference = schema.get("$ref")
    if reference is not None:
        _, where, name = reference.split("/")
        if name.replace("~1", "/").replace("~0", "~") not in root.get(where, {}):
            wrong.append(f"{reference!r} leads nowhere")
    if not set(schema.get("required", ())) <= schema.get("properties", {}).keys():
        wrong.append("required")
    inner = [one for name in ("properties", "$defs", "definitions") for one in schema.get(name, {}).values()]
    inner += [one for name in ("anyOf", "oneOf", "allOf", "prefixItems") for one in schema.get(name, ())]
    inner += [schema[name] for name in ("items", "not", "additionalProperties") if name in schema]
    return wrong + [problem for one in inner for problem in _json_schema(one, root)]
