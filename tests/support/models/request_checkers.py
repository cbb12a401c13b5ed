"""Check requests by the rules of each provider. Nothing here knows how we make requests.

Each function gives what is wrong, as sentences that begin with the rule's id; an empty list means that the rules accept
the request. ``SOURCES`` says where each rule is from: the provider's documentation, the constraints that the types of
its SDK document, or the API's own error message as somebody reported it. None of it was tried on a real provider here.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from typing import Any

Problems = list[str]
Block = dict[str, Any]

CLAUDE = "https://platform.claude.com/docs/en"
GITHUB = "https://github.com"
SOURCES = {
    # OpenAI, both APIs
    "O-1": "openai.types.shared_params.FunctionDefinition.name: a-z, A-Z, 0-9, _ and -, 64 at most",
    "O-2": f"{GITHUB}/langchain-ai/langchainjs/issues/9804: an object without combinations at the top level",
    "O-3": f"{GITHUB}/PrefectHQ/fastmcp/issues/2464: array schema missing items",
    "O-4": "https://developers.openai.com/api/docs/guides/function-calling: arguments are JSON, of an object's schema",
    "O-5": "openai.types.chat.ChatCompletionContentPartImageParam, InputImage: an address or base64; the vision guide: "
    "PNG, JPEG, WEBP and GIF that does not move",
    "O-6": "no source found: two tools of one name, and references that lead nowhere",
    "O-7": "https://platform.openai.com/docs/guides/structured-outputs: strict takes a subset of JSON Schema, and "
    f"{GITHUB}/kevinwatt/mysql-mcp/issues/5: Responses are strict unless told otherwise; so all here are told",
    # Chat Completions
    "C-1": f"{GITHUB}/dimagi/open-chat-studio/issues/1659: 'tool' answers a message with 'tool_calls' before it",
    "C-2": f"{GITHUB}/QwenLM/qwen-code/issues/606: tool_calls must be followed by messages that answer each",
    "C-3": f"{GITHUB}/vercel/ai/issues/5171: tool_calls[].id at most 40 (64 since, as jin-bo/agentao/pull/321 found)",
    "C-4": "openai.types.chat.ChatCompletionAssistantMessageParam.content: required unless tool_calls is given",
    "C-5": "openai.types.chat.ChatCompletionContentPartInputAudioParam: wav and mp3",
    "C-6": "openai.types.chat.ChatCompletionContentPartParam: what a user's parts may be; text for the others",
    "C-7": f"{GITHUB}/microsoft/autogen/issues/4157: messages[].name matches ^[a-zA-Z0-9_-]+$",
    "C-8": f"{GITHUB}/anomalyco/opencode/issues/24722 quotes DeepSeek's guide: reasoning_content with calls, if any",
    "C-9": "https://docs.mistral.ai/capabilities/reasoning: thoughts are chunks of an assistant's content, with text",
    "C-10": f"{GITHUB}/vllm-project/vllm/issues/6862: user and assistant take turns; suitenumerique/conversations/"
    "issues/197: there is one system message before them (OpenAI takes more; templates of other servers do not)",
    "C-11": f"{GITHUB}/langchain-ai/langchain/pull/24668: Mistral's ids of calls are nine of a-z, A-Z, 0-9",
    # Responses
    "R-1": f"{GITHUB}/openai/openai-agents-python/issues/1660: a reasoning item needs the item that follows it",
    "R-2": f"{GITHUB}/musistudio/claude-code-router/pull/1334: call_id at most 64",
    "R-3": "openai.types.responses.ResponseInputItemParam.FunctionCallOutput: answers the call_id of a call",
    "R-4": "openai.types.responses.ResponseReasoningItemParam: id, summary of summary_text, encrypted_content",
    "R-5": "openai.types.responses.ResponseInputContentParam: input_text, input_image, input_file",
    "R-6": "no source found: ids of calls and thoughts are unique",
    "R-7": "openai.types.responses.EasyInputMessageParam.phase: commentary or final_answer, of an assistant",
    # Anthropic
    "A-1": f"{CLAUDE}/agents-and-tools/tool-use/handle-tool-calls: results first, in the message after calls",
    "A-2": f"{GITHUB}/LibreChat-AI/agents/pull/124: text blocks are not empty, and not only white space",
    "A-3": f"{CLAUDE}/build-with-claude/preserved-thinking: thoughts as they came, with those that have no text; "
    "anthropic.types.ThinkingBlockParam.signature",
    "A-4": f"{GITHUB}/anthropics/anthropic-sdk-python/issues/494: with tool_use or tool_result, tools are defined",
    "A-5": f"{CLAUDE}/api/errors#prefill-not-supported: the user is last, but for what was paused "
    f"({CLAUDE}/agents-and-tools/tool-use/server-tools)",
    "A-6": f"{GITHUB}/HKUDS/nanobot/pull/4356: ids match ^[a-zA-Z0-9_-]+$; BerriAI/litellm/issues/23510: are unique",
    "A-7": f"{GITHUB}/langchain-ai/langchain/issues/39271: no combination at the top level of input_schema",
    "A-8": f"{GITHUB}/n8n-io/n8n/issues/30590: property keys match ^[a-zA-Z0-9_.-]{{1,64}}$",
    "A-9": "anthropic.types.Base64ImageSourceParam, Base64PDFSourceParam: media types; ToolParam: names",
    "A-10": f"{CLAUDE}/agents-and-tools/tool-use/server-tools: the result of a server tool is in the same turn",
    "A-11": "anthropic.types.MessageCreateParams: max_tokens, messages; turns that alternate (others are combined)",
    "A-12": f"{GITHUB}/tailcallhq/forgecode/issues/2107: the final block of an assistant is no thought",
    "A-13": "anthropic.types.CitationWebSearchResultLocationParam: just these members, and all of them; its response "
    "types have more for other kinds, and the API says of unknown members that they are not permitted",
    "A-14": "anthropic.types.ContentBlockParam: the blocks that it takes, container_upload with its file_id among them",
    # Gemini
    "G-1": f"{GITHUB}/google-gemini/gemini-cli/issues/3814: as many function responses as calls, in the next turn",
    "G-2": f"{GITHUB}/google-gemini/gemini-cli/issues/26486: calls come after a user's turn or function responses",
    "G-3": "https://ai.google.dev/gemini-api/docs/thought-signatures: in the current turn the first call of each step "
    "is signed; a signature may be in an empty part, and stays with its part",
    "G-4": f"{GITHUB}/google-gemini/gemini-cli/issues/7869: function names; 64 at most (the SDK's types say 128)",
    "G-5": "google.genai.types.GenerateContentConfig.response_json_schema: the keywords of JSON Schema, references "
    "that stand alone, enums of strings and numbers; FunctionDeclaration.parameters_json_schema: instead of parameters",
    "G-6": f"{GITHUB}/vercel/ai/issues/3775: parts are not empty; zuisong/gemini-openai-proxy/issues/83: nor is text",
    "G-7": f"{GITHUB}/pipecat-ai/pipecat/pull/5821: requests that end with a model turn are not supported",
    "G-8": "google.genai.types.Part: one kind of data; Blob, FileData: mime_type is required",
    "G-9": "no source found: the first content is the user's, model contents do not follow each other, ids are unique, "
    "anyOf stands alone (Vertex AI said so of the older parameters)",
}

OPENAI_NAME = re.compile(r"[a-zA-Z0-9_-]{1,64}")
ANTHROPIC_ID = re.compile(r"[a-zA-Z0-9_-]{1,64}")
GEMINI_NAME = re.compile(r"[a-zA-Z_][a-zA-Z0-9_.-]{0,63}")
PROPERTY = re.compile(r"[a-zA-Z0-9_.-]{1,64}")
IMAGES = {"image/png", "image/jpeg", "image/gif", "image/webp"}
_TYPES = ("string", "number", "integer", "boolean", "object", "array", "null")


# OpenAI, Chat Completions


def check_chat(request: Block) -> Problems:
    """OpenAI, Chat Completions."""
    wrong: Problems = []
    messages = request["messages"]
    if not messages:
        wrong.append("C-6 there are no messages")
    ids: list[str] = []
    waiting: list[str] = []
    for index, message in enumerate(messages):
        role, content = message["role"], message.get("content")
        before = messages[index - 1] if index else {}
        is_signed = "extra_content" in message or "extra_content" in before  # Gemini's own endpoint takes them so
        # Several system messages: pydantic-ai joins them for servers whose profile says so.
        if role not in ("tool", "system") and before.get("role") == role and not is_signed:
            wrong.append(f"C-10 message {index}: {role!r} speaks twice")
        if waiting and role != "tool":
            wrong.append(f"C-2 message {index}: calls {waiting} are not answered before it")
            waiting = []
        if "name" in message and not OPENAI_NAME.fullmatch(message["name"]):
            wrong.append(f"C-7 message {index}: name")
        if role in ("system", "developer", "user"):
            wrong += [f"{one} in message {index}" for one in _chat_content(role, content)]
        elif role == "assistant":
            wrong += [f"{one} in message {index}" for one in _chat_assistant(message)]
            waiting = [call["id"] for call in message.get("tool_calls") or ()]
            ids += waiting
        elif role == "tool":
            if message["tool_call_id"] not in waiting:
                wrong.append(f"C-1 message {index}: answers no call before it")
            else:
                waiting.remove(message["tool_call_id"])
            if not isinstance(content, str):
                wrong.append(f"C-6 message {index}: a result is text")
        else:
            wrong.append(f"C-6 message {index}: role {role!r}")
    if waiting:
        wrong.append("C-2 calls at the end are not answered")
    if len(set(ids)) != len(ids):
        wrong.append("C-1 a call id is used twice")
    calling = [message for message in messages if message.get("tool_calls")]
    if len({"reasoning_content" in message for message in calling}) > 1:
        wrong.append("C-8 some calls have their thoughts, and some have not")
    functions = [tool["function"] for tool in request.get("tools", ()) if tool["type"] == "function"]
    return wrong + _functions(functions)


def check_mistral(request: Block) -> Problems:
    """Mistral, whose API is that of Chat Completions, but takes documents and empty lists of calls."""
    ids = [call["id"] for message in request["messages"] for call in message.get("tool_calls") or ()]
    messages = [{name: value for name, value in one.items() if value != []} for one in request["messages"]]
    wrong = [problem for problem in check_chat({**request, "messages": messages}) if "'document_url'" not in problem]
    return wrong + [f"C-11 call id {one!r}" for one in ids if not re.fullmatch(r"[a-zA-Z0-9]{9}", one)]


def _chat_assistant(message: Block) -> Problems:
    wrong: Problems = []
    calls = message.get("tool_calls")
    if calls == [] or (not calls and not message.get("content")):
        wrong.append("C-4 an assistant says nothing")
    if isinstance(message.get("content"), list):
        for part in message["content"]:
            texts = part["thinking"] if part["type"] == "thinking" else [part]
            if not texts or any(one["type"] != "text" or one["text"] == "" for one in texts):
                wrong.append("C-9 a chunk of an assistant's content")
    for call in calls or ():
        if not 0 < len(call["id"]) <= 40 or call["type"] != "function":
            wrong.append(f"C-3 call id {call['id']!r}")
        wrong += _call(call["function"]["name"], call["function"]["arguments"])
    return wrong


def _call(name: str, arguments: str) -> Problems:
    wrong = [] if OPENAI_NAME.fullmatch(name) else [f"O-1 name {name!r}"]
    return wrong if isinstance(json.loads(arguments), dict) else [*wrong, "O-4 arguments"]


def _functions(functions: list[Block]) -> Problems:
    wrong = _names([one["name"] for one in functions], OPENAI_NAME, "O-1", "O-6")
    wrong += ["O-7 strict" for one in functions if one.get("strict") and not _is_strict(one["parameters"])]
    return wrong + [problem for one in functions for problem in check_root_schema(one["parameters"])]


def _is_strict(schema: Any) -> bool:
    """Return whether all objects of a schema have just their properties, and require all of them."""
    if isinstance(schema, list):
        return all(map(_is_strict, schema))
    if not isinstance(schema, dict):
        return True
    properties = schema.get("properties", {})
    is_closed = schema.get("additionalProperties") is False and sorted(schema.get("required", ())) == sorted(properties)
    return (schema.get("type") != "object" or is_closed) and all(map(_is_strict, schema.values()))


def _chat_content(role: str, content: Any) -> Problems:
    if isinstance(content, str):
        return [] if content != "" else ["C-6 empty"]
    if not isinstance(content, list) or not content:
        return ["C-6 content is neither text nor parts"]
    wrong: Problems = []
    for part in content:
        match part["type"]:
            case "text":
                wrong += [] if part["text"] != "" else ["C-6 empty text"]
            case "image_url" if role == "user":
                wrong += _image_address(part["image_url"]["url"])
            case "input_audio" if role == "user":
                audio = part["input_audio"]
                wrong += [] if audio["format"] in ("wav", "mp3") and audio["data"] else ["C-5 audio"]
            case "file" if role == "user":
                file = part["file"]
                whole = "file_id" in file or {"filename", "file_data"} <= file.keys()
                wrong += [] if whole and not file.get("file_data", "").endswith(",") else ["C-6 file"]
            case other:
                wrong.append(f"C-6 part {other!r}")
    return wrong


def _image_address(url: str) -> Problems:
    data = re.match(r"data:(image/[a-z]+);base64,.", url)
    is_good = (data and data[1] in IMAGES) or re.match(r"https?:", url, re.IGNORECASE)
    return [] if is_good else [f"O-5 image {url[:40]!r}"]


# OpenAI, Responses


OWN_ITEMS = ("web_search_call", "file_search_call", "code_interpreter_call", "mcp_call", "image_generation_call")
"""Items of tools that the provider runs itself, which its SDK's types take back as they came."""


def check_responses(request: Block) -> Problems:
    """OpenAI, Responses."""
    wrong: Problems = []
    items = request["input"]
    if not items:
        wrong.append("R-5 there is no input")
    called: list[str] = []
    answered: list[str] = []
    thoughts: list[str] = []
    for index, item in enumerate(items):
        kind = item.get("type", "message")
        if kind == "message":
            wrong += [f"{one} in item {index}" for one in _responses_message(item)]
        elif kind == "function_call":
            called.append(item["call_id"])
            if not 0 < len(item["call_id"]) <= 64:
                wrong.append(f"R-2 item {index}: call {item['call_id']!r}")
            wrong += _call(item["name"], item["arguments"])
        elif kind == "function_call_output":
            answered.append(item["call_id"])
            if item["call_id"] not in called:
                wrong.append(f"R-3 item {index}: answers no call before it")
            if not isinstance(item["output"], str):
                wrong += [f"{one} in item {index}" for one in _responses_parts(item["output"])]
        elif kind == "reasoning":
            thoughts.append(item["id"])
            wrong += [f"{one} in item {index}" for one in _reasoning(item, items[index + 1 :])]
        elif kind in OWN_ITEMS:
            thoughts.append(item["id"])  # ids of items are one namespace
            wrong += [] if kind != "image_generation_call" or item["result"] else ["R-5 a picture without its bytes"]
        else:
            wrong.append(f"R-5 item {index}: type {kind!r}")
    if sorted(called) != sorted(answered):
        wrong.append("R-3 calls and results do not pair")
    if len(set(called)) != len(called) or len(set(thoughts)) != len(thoughts):
        wrong.append("R-6 an id is used twice")
    functions = [tool for tool in request.get("tools", ()) if tool["type"] == "function"]
    wrong += ["O-7 not told whether to be strict" for one in functions if "strict" not in one]
    return wrong + _functions(functions)


def _reasoning(item: Block, rest: list[Block]) -> Problems:
    wrong: Problems = []
    following = next((one for one in rest if one.get("type") != "reasoning"), {})
    if not (following.get("role") == "assistant" or following.get("type") in ("function_call", *OWN_ITEMS)):
        wrong.append("R-1 a thought without what follows it")
    if not item["encrypted_content"] or any(one["type"] != "summary_text" for one in item["summary"]):
        wrong.append("R-4 thought")
    return (
        wrong if set(item) == {"type", "id", "summary", "encrypted_content"} else [*wrong, "R-4 members of a thought"]
    )


def _responses_message(item: Block) -> Problems:
    is_known = item.get("phase", "commentary") in ("commentary", "final_answer")
    if not is_known or ("phase" in item and item["role"] != "assistant"):
        return [f"R-7 phase {item['phase']!r}"]
    if item["role"] == "assistant":
        content = item["content"]
        texts = (
            [content] if isinstance(content, str) else [one["text"] for one in content if one["type"] == "output_text"]
        )
        says = bool(texts) and all(texts) and (isinstance(content, str) or len(texts) == len(content))
        return [] if says else ["R-5 an assistant says nothing"]
    if item["role"] not in ("user", "system", "developer"):
        return [f"R-5 role {item['role']!r}"]
    return _responses_parts(item["content"])


def _responses_parts(parts: Any) -> Problems:
    if isinstance(parts, str):
        return [] if parts != "" else ["R-5 empty text"]
    if not isinstance(parts, list) or not parts:
        return ["R-5 no parts"]
    wrong: Problems = []
    for part in parts:
        match part["type"]:
            case "input_text":
                wrong += [] if part["text"] != "" else ["R-5 empty text"]
            case "input_image":
                wrong += [] if len(part.keys() & {"image_url", "file_id"}) == 1 else ["R-5 image"]
                wrong += _image_address(part["image_url"]) if "image_url" in part else []
            case "input_file":
                wrong += [] if len(part.keys() & {"file_data", "file_url", "file_id"}) == 1 else ["R-5 file"]
            case other:
                wrong.append(f"R-5 part {other!r}")
    return wrong


# Anthropic


def _texts(blocks: list[Block]) -> list[str]:
    return [block["text"] for block in blocks] or [""]


def check_anthropic(request: Block, *, is_paused: bool = False) -> Problems:
    """Anthropic, Messages. ``is_paused``: the last message is an answer that is to be continued."""
    wrong: Problems = []
    messages = request["messages"]
    if not messages or messages[0]["role"] != "user":
        wrong.append("A-11 the user begins")
    if messages and (messages[-1]["role"] == "assistant") != is_paused:
        wrong.append("A-5 the user ends")
    system = request.get("system")
    if system is not None and not all(one.strip() for one in ([system] if isinstance(system, str) else _texts(system))):
        wrong.append("A-2 empty system")
    ids: list[str] = []
    waiting: list[str] = []
    for index, message in enumerate(messages):
        if message["role"] != ("user" if index % 2 == 0 else "assistant"):
            wrong.append(f"A-11 message {index}: roles do not take turns")
        blocks = message["content"]
        if not blocks:
            wrong.append(f"A-11 message {index}: empty")
            continue
        results = [block["tool_use_id"] for block in blocks if block["type"] == "tool_result"]
        if sorted(results) != sorted(waiting):
            wrong.append(f"A-1 message {index}: results {results} for calls {waiting}")
        if any(block["type"] != "tool_result" for block in blocks[: len(results)]):
            wrong.append(f"A-1 message {index}: results do not come first")
        waiting = [block["id"] for block in blocks if block["type"] == "tool_use"]
        ids += waiting
        is_last = is_paused and index == len(messages) - 1
        if blocks[-1]["type"] in ("thinking", "redacted_thinking") and not is_last:
            wrong.append(f"A-12 message {index}: ends with a thought")
        wrong += [f"{one} in message {index}" for block in blocks for one in _anthropic_block(block, message["role"])]
        own = {block["id"] for block in blocks if block["type"] == "server_tool_use"}
        given = {block["tool_use_id"] for block in blocks if _is_server_result(block)}
        if own != given and not is_last:
            wrong.append(f"A-10 message {index}: calls and results of server tools")
    if waiting:
        wrong.append("A-1 calls at the end are not answered")
    if len(set(ids)) != len(ids):
        wrong.append("A-6 a call id is used twice")
    if ids and not request.get("tools"):
        wrong.append("A-4 calls, and no tools")
    if request["max_tokens"] < 1:
        wrong.append("A-11 max_tokens")
    tools = [tool for tool in request.get("tools", ()) if "input_schema" in tool]
    wrong += _names([tool["name"] for tool in tools], ANTHROPIC_ID, "A-9", "O-6")
    for tool in tools:
        wrong += [one.replace("O-2", "A-7") for one in check_root_schema(tool["input_schema"])]
        names = tool["input_schema"]["properties"]
        wrong += [f"A-8 property {name!r}" for name in names if not PROPERTY.fullmatch(name)]
    return wrong


def _is_server_result(block: Block) -> bool:
    return block["type"] != "tool_result" and block["type"].endswith("_tool_result")


def _anthropic_citations(citations: Any, role: str) -> Problems:
    if citations is None:
        return []
    members = {"type", "cited_text", "encrypted_index", "title", "url"}
    good = [
        one.keys() == members and one["type"] == "web_search_result_location" and isinstance(one["url"], str)
        for one in citations
    ]
    return [] if role == "assistant" and good and all(good) else ["A-13 citations"]


def _anthropic_block(block: Block, role: str) -> Problems:
    match block["type"], role:
        case "text", _:
            wrong = [] if block["text"].strip() != "" else ["A-2 empty text"]
            return wrong + _anthropic_citations(block.get("citations"), role)
        case "image" | "document", "user":
            source = block["source"]
            allowed = IMAGES if block["type"] == "image" else {"application/pdf"}
            if source["type"] == "base64":
                return [] if source["media_type"] in allowed and source["data"] else ["A-9 source"]
            return [] if source["type"] in ("url", "file") else ["A-9 source"]
        case "tool_use", "assistant":
            good = ANTHROPIC_ID.fullmatch(block["id"]) and ANTHROPIC_ID.fullmatch(block["name"])
            return [] if good and isinstance(block["input"], dict) else [f"A-6 call {block['id']!r}"]
        case "tool_result", "user":
            if isinstance(block["content"], str):
                return []
            return [one for part in block["content"] for one in _anthropic_block(part, role)]
        case "thinking", "assistant":
            good = isinstance(block["thinking"], str) and block["signature"] and len(block) == 3
            return [] if good else ["A-3 thought"]
        case "redacted_thinking", "assistant":
            return [] if block["data"] and len(block) == 2 else ["A-3 hidden thought"]
        case "container_upload", _:
            return [] if block["file_id"] else ["A-14 file"]
        case "server_tool_use", "assistant":
            return [] if isinstance(block["input"], dict) else ["A-10 call of a server tool"]
        case _, "assistant" if _is_server_result(block):
            return []
        case other:
            return [f"A-11 block {other!r}"]


# Gemini


def from_gemini_wire(body: Block) -> Block:
    """Convert a request that the SDK has sent to the member names of the SDK's arguments."""
    tools = [
        {
            "function_declarations": [_renamed(one, inside=False) for one in tool["functionDeclarations"]],
        }
        for tool in body.get("tools", ())
        if "functionDeclarations" in tool
    ]
    contents = [{**content, "parts": [_renamed(part) for part in content["parts"]]} for content in body["contents"]]
    return {"contents": contents, "config": {"tools": tools}}


def _renamed(value: Block, inside: bool = True) -> Block:
    def name(key: str) -> str:
        return re.sub(r"[A-Z]", lambda match: f"_{match[0].lower()}", key)

    def members(key: str, one: Any) -> Any:
        return {name(inner): two for inner, two in one.items()} if inside and isinstance(one, dict) else one

    return {name(key): members(key, one) for key, one in value.items()}


def check_gemini(request: Block) -> Problems:
    """Google, Gemini."""
    wrong: Problems = []
    contents = request["contents"]
    if not contents or contents[0]["role"] != "user":
        wrong.append("G-9 the user begins")
    if contents and contents[-1]["role"] != "user":
        wrong.append("G-7 the user ends")
    waiting: list[tuple[str, str]] = []
    ids: list[str] = []
    for index, content in enumerate(contents):
        if content["role"] not in ("user", "model"):
            wrong.append(f"G-8 content {index}: role {content['role']!r}")
        if index and content["role"] == "model" == contents[index - 1]["role"]:
            wrong.append(f"G-9 content {index}: the model speaks twice")
        parts = content["parts"]
        if not parts:
            wrong.append(f"G-6 content {index}: empty")
        results = [(one["id"], one["name"]) for part in parts if (one := part.get("function_response"))]
        if sorted(results) != sorted(waiting):
            wrong.append(f"G-1 content {index}: results {results} for calls {waiting}")
        if results and len(results) != len(parts):
            wrong.append(f"G-1 content {index}: results do not stand alone")
        waiting = [(one["id"], one["name"]) for part in parts if (one := part.get("function_call"))]
        if waiting and (index == 0 or contents[index - 1]["role"] != "user"):
            wrong.append(f"G-2 content {index}: calls after nobody")
        ids += [one for one, _ in waiting]
        wrong += [f"{one} in content {index}" for part in parts for one in _gemini_part(part, content["role"])]
    if waiting:
        wrong.append("G-1 calls at the end are not answered")
    if len(set(ids)) != len(ids):
        wrong.append("G-9 a call id is used twice")
    wrong += _gemini_signatures(contents)
    for tool in request["config"].get("tools", ()):
        declarations = tool.get("function_declarations", ())
        wrong += _names([one["name"] for one in declarations], GEMINI_NAME, "G-4", "O-6")
        for declared in declarations:
            if "parameters" in declared:
                wrong.append("G-5 both ways to describe parameters")
            wrong += check_gemini_schema(declared["parameters_json_schema"])
    return wrong


def _gemini_signatures(contents: list[Block]) -> Problems:
    """Check the signatures after the user's last message. Each content of the model there is a step."""
    wrong: Problems = []
    for index in range(len(contents) - 1, -1, -1):
        parts = contents[index]["parts"]
        if contents[index]["role"] == "user":
            if parts and not any("function_response" in part for part in parts):
                break
        else:
            first = next((part for part in parts if "function_call" in part), None)
            if first is not None and "thought_signature" not in first:
                wrong.append(f"G-3 content {index}: the first call of a step of the current turn is not signed")
    return wrong


def _gemini_part(part: Block, role: str) -> Problems:
    kinds = part.keys() - {"thought_signature", "thought"}
    if len(kinds) != 1:
        return [f"G-8 a part is one thing, not {sorted(kinds)}"]
    kind = kinds.pop()
    if part.get("thought_signature", "x") in ("", b""):
        return ["G-3 empty signature"]
    match kind, role:
        case "text", _:
            return [] if part["text"] != "" or "thought_signature" in part else ["G-6 empty text"]
        case "inline_data" | "file_data", _:
            good = re.fullmatch(r"[a-z]+/[\w.+-]+", part[kind]["mime_type"])
            return [] if good and part[kind].get("data", "x") not in ("", b"") else ["G-8 media"]
        case "function_call", "model":
            call = part["function_call"]
            return [] if GEMINI_NAME.fullmatch(call["name"]) and isinstance(call["args"], dict) else ["G-4 call"]
        case "function_response", "user":
            return [] if isinstance(part["function_response"]["response"], dict) else ["G-1 result"]
        case "executable_code" | "code_execution_result" | "tool_call" | "tool_response", "model":
            return []
        case other:
            return [f"G-8 part {other!r}"]


_GEMINI_KEYWORDS = {
    *("type", "format", "title", "description", "enum", "items", "prefixItems", "minItems", "maxItems"),
    *("minimum", "maximum", "anyOf", "properties", "additionalProperties", "required", "$ref"),
}


def check_gemini_schema(schema: Any) -> Problems:
    """Check the schema of a function's parameters, for Gemini."""
    if not isinstance(schema, dict) or schema.get("type") != "object" or not isinstance(schema.get("properties"), dict):
        return ["G-5 the root of a schema is an object with properties"]
    inner = {name: value for name, value in schema.items() if name != "$defs"}
    wrong = [problem for one in (inner, *schema.get("$defs", {}).values()) for problem in _gemini_schema(one, schema)]
    return wrong + [f"G-5 {name!r} is in a cycle" for name in schema.get("$defs", {}) if _reaches(schema, name)]


def _gemini_schema(schema: Any, root: Block) -> Problems:
    if isinstance(schema, bool):
        return []
    if not isinstance(schema, dict):
        return ["G-5 a schema is an object"]
    wrong = [f"G-5 keyword {name!r}" for name in schema if name not in _GEMINI_KEYWORDS]
    if "$ref" in schema and len(schema) > 1:
        wrong.append("G-5 a reference does not stand alone")
    if "$ref" in schema and schema["$ref"].removeprefix("#/$defs/") not in root.get("$defs", {}):
        wrong.append(f"G-5 {schema['$ref']!r} leads nowhere")
    if "anyOf" in schema and len(schema) > 1:
        wrong.append("G-9 anyOf does not stand alone")
    types = schema.get("type", [])
    wrong += [f"G-5 type {name!r}" for name in (types if isinstance(types, list) else [types]) if name not in _TYPES]
    if types == "array" and not schema.keys() & {"items", "prefixItems"}:
        wrong.append("G-5 an array without items")
    values = schema.get("enum", [])
    if not (all(isinstance(one, str) for one in values) or all(type(one) in (int, float) for one in values)):
        wrong.append("G-5 enum")
    if not set(schema.get("required", ())) <= schema.get("properties", {}).keys():
        wrong.append("G-5 required")
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


# Tools of OpenAI and Anthropic


def _names(names: list[str], pattern: re.Pattern[str], rule: str, unique: str) -> Problems:
    wrong = [f"{rule} tool name {name!r}" for name in names if not pattern.fullmatch(name)]
    return wrong if len(set(names)) == len(names) else [*wrong, f"{unique} two tools have one name"]


def check_root_schema(schema: Any) -> Problems:
    """Check the schema of a tool's input, for OpenAI and Anthropic."""
    if not isinstance(schema, dict) or schema.get("type") != "object" or not isinstance(schema.get("properties"), dict):
        return ["O-2 the root of a schema is an object with properties"]
    combined = ("anyOf", "oneOf", "allOf", "enum", "const", "not")
    wrong = [f"O-2 {name!r} at the root" for name in combined if name in schema]
    return wrong + _json_schema(schema, schema)


def _json_schema(schema: Any, root: Block) -> Problems:
    if isinstance(schema, bool):
        return []
    if not isinstance(schema, dict):
        return ["O-6 a schema is an object"]
    wrong: Problems = []
    types = schema.get("type", [])
    for name in types if isinstance(types, list) else [types]:
        if name not in _TYPES:
            wrong.append(f"O-6 type {name!r}")
    if schema.get("type") == "array" and not isinstance(schema.get("items"), dict):
        wrong.append("O-3 an array without items")
    if "$schema" in schema or "$id" in schema:
        wrong.append("O-6 $schema")
    reference = schema.get("$ref")
    if reference is not None:
        _, where, name = reference.split("/")
        if name.replace("~1", "/").replace("~0", "~") not in root.get(where, {}):
            wrong.append(f"O-6 {reference!r} leads nowhere")
    if not set(schema.get("required", ())) <= schema.get("properties", {}).keys():
        wrong.append("O-6 required")
    inner = [one for name in ("properties", "$defs", "definitions") for one in schema.get(name, {}).values()]
    inner += [one for name in ("anyOf", "oneOf", "allOf", "prefixItems") for one in schema.get(name, ())]
    inner += [schema[name] for name in ("items", "not", "additionalProperties") if name in schema]
    return wrong + [problem for one in inner for problem in _json_schema(one, root)]


WIRE_CHECKERS: dict[str, Callable[[Block], Problems]] = {
    "openai chat": check_chat,
    "openai responses": check_responses,
    "anthropic": check_anthropic,
    "gemini": lambda body: check_gemini(from_gemini_wire(body)),
    "mistral": check_mistral,
}
"""By provider, the check of a request as it arrives there."""
