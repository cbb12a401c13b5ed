"""Layer: providers. Google's Gemini.

Below: ``_prompt``, ``_media``, ``_schema``, ``_loop``. Above: applications:

    from google.genai import Client
    from aguila import App
    from aguila.providers import gemini

    app = App(gemini.agent(Client(), model="gemini-3.8-flash", tools=[weather], instructions="Be brief."))

``request`` gives what ``client.aio.models.generate_content_stream`` is called with, ``updates`` reads what it streams.
Contents there take turns between ``user`` and ``model``, begin and end with the user, and results stand in one turn
after their calls. System and developer messages of the history join the instructions. Calls come whole, often without
an id. A signature belongs to the part it came with, a call or a text, and is sent back with it.
"""

from __future__ import annotations

import base64
import binascii
from collections.abc import AsyncIterable, AsyncIterator, Iterable, Mapping
from typing import Any

from aguila.chat import (
    ChatMessage,
    ChatUpdate,
    Content,
    DataContent,
    FunctionCallContent,
    FunctionResultContent,
    ReasoningContent,
    TextContent,
    UriContent,
    UsageContent,
)
from aguila.chat.keys import ENCRYPTED_VALUE, ENCRYPTED_VALUE_TYPE
from aguila.chat.media import Unusable
from aguila.codec.json import encode
from aguila.codec.notice import Warn, log_notice
from aguila.errors import MissingExtra
from aguila.providers._artefact import pack, unpack
from aguila.providers._loop import MAX_ROUNDS, Agent, Instructions, make_agent
from aguila.providers._media import (
    Block,
    File,
    address_of,
    blocks_of,
    handle_of,
    kind_of,
    media_type_of,
    result_contents,
    text_of_file,
)
from aguila.providers._prompt import BEGIN, GO_ON, Prompt, Rules, View, object_arguments
from aguila.providers._schema import gemini_schema
from aguila.providers._tools import AnyTool
from aguila.providers._turn import FINISH_REASON
from aguila.providers._usage import added, count, token_usage

RULES = Rules(call_id=r"[a-zA-Z0-9_-]+", tool_name=r"[a-zA-Z_][a-zA-Z0-9_.-]*")

SIGNATURE = "google.thought_signature"
"""The kind of the artefact that is a thought's signature, on a call or a text."""

_MEDIA = {
    "image": frozenset({"image/png", "image/jpeg", "image/webp", "image/heic", "image/heif"}),
    "audio": frozenset({"audio/wav", "audio/mp3", "audio/mpeg", "audio/aiff", "audio/aac", "audio/ogg", "audio/flac"}),
    "video": frozenset(
        {"video/mp4", "video/mpeg", "video/mov", "video/quicktime", "video/avi", "video/x-flv", "video/webm"}
        | {"video/wmv", "video/3gpp", "video/mpg"}
    ),
    "document": frozenset({"application/pdf"}),
}
_FINISH = {
    "MAX_TOKENS": "length",
    "SAFETY": "content_filter",
    "RECITATION": "content_filter",
    "BLOCKLIST": "content_filter",
    "PROHIBITED_CONTENT": "content_filter",
    "SPII": "content_filter",
    "IMAGE_SAFETY": "content_filter",
    "LANGUAGE": "refusal",
    "MALFORMED_FUNCTION_CALL": "malformed_call",
    "UNEXPECTED_TOOL_CALL": "malformed_call",
}


def agent(
    client: Any = None,
    *,
    model: str,
    tools: Iterable[AnyTool] = (),
    instructions: Instructions = None,
    max_rounds: int = MAX_ROUNDS,
    provider: str = "google",
    options: Mapping[str, Any] | None = None,
) -> Agent:
    """An agent that is a model of Google. ``client`` is a ``google.genai.Client``; see ``openai.agent`` for the rest.

    ``options`` are members of the request's ``config``. Raises ``MissingExtra`` if a client is to be made and the SDK
    is not installed, ``TypeError`` for what is no such client.
    """
    made = _Gemini(_client(client), model, provider, dict(options or {}))
    return make_agent(made, tools=tools, instructions=instructions, max_rounds=max_rounds)


def _client(client: Any) -> Any:
    if client is not None:
        if not hasattr(client, "aio"):
            raise TypeError("an agent needs a google.genai.Client")
        return client
    try:
        from google import genai
    except ImportError as error:
        raise MissingExtra("gemini", "google-genai") from error
    return genai.Client()


class _Gemini:
    def __init__(self, client: Any, model: str, provider: str, options: dict[str, Any]) -> None:
        self._client = client
        self._model = model
        self._provider = provider
        self._options = options

    async def answer(self, prompt: Prompt, warn: Warn) -> AsyncIterator[ChatUpdate]:
        view = View(prompt, RULES, warn)
        made = request(prompt, model=self._model, warn=warn, view=view)
        made["config"] = made["config"] | self._options
        stream = await self._client.aio.models.generate_content_stream(**made)
        try:
            async for update in updates(stream, model=self._model, provider=self._provider, view=view):
                yield update
        finally:
            await stream.aclose()


# The request


def request(prompt: Prompt, *, model: str, warn: Warn | None = None, view: View | None = None) -> dict[str, Any]:
    """The arguments of ``client.aio.models.generate_content_stream`` that answer a prompt."""
    warn = log_notice if warn is None else warn
    view = View(prompt, RULES, warn) if view is None else view
    system = [prompt.system_text]
    called: dict[str, str] = {}  # the names of calls, which their results have to repeat
    turns: list[tuple[str, list[Block]]] = []
    for message in view.messages:
        if message.role in ("system", "developer"):
            system.append(message.text)
            continue
        called.update((call.call_id, view.name(call.name)) for call in message.calls)
        role = "model" if message.role == "assistant" else "user"
        parts = _parts(message, view, called, warn)
        if not parts:
            continue
        # Results stand alone: what the user says next is another turn of the same role, which is allowed.
        if turns and turns[-1][0] == role and _is_result(turns[-1][1][-1]) == _is_result(parts[0]):
            turns[-1][1].extend(parts)
        else:
            turns.append((role, parts))
    if not turns or turns[0][0] != "user":
        turns.insert(0, ("user", [{"text": BEGIN}]))
    if turns[-1][0] != "user":
        turns.append(("user", [{"text": GO_ON}]))
    config: dict[str, Any] = {"automatic_function_calling": {"disable": True}}
    texts = [text for text in system if text.strip() != ""]
    if texts:
        config["system_instruction"] = "\n\n".join(texts)
    if view.tools:
        declarations: list[Block] = []
        for name, tool in view.tools:
            schema = gemini_schema(tool.parameters)
            declared: Block = {"name": name, "description": tool.description or name}
            declarations.append(declared if schema is None else {**declared, "parameters": schema})
        config["tools"] = [{"function_declarations": declarations}]
    contents = [{"role": role, "parts": parts} for role, parts in turns]
    return {"model": model, "contents": contents, "config": config}


def _is_result(part: Block) -> bool:
    return "function_response" in part


def _parts(message: ChatMessage, view: View, called: dict[str, str], warn: Warn) -> list[Block]:
    if message.role == "tool":
        return [_result(result, view, called, warn) for result in message.results]
    if message.role != "assistant":
        return blocks_of(message.contents, _part, warn)
    texts: list[Block] = []
    calls: list[Block] = []
    for content in message.contents:
        match content:
            case ReasoningContent():
                continue  # thoughts are not sent back, their signatures are
            case FunctionCallContent():
                call = {
                    "id": view.call_id(content.call_id),
                    "name": view.name(content.name),
                    "args": object_arguments(content),
                }
                calls.append({"function_call": call, **_signed(content.additional_properties)})
            case TextContent():
                # The signature of a whole message is with the message.
                signed = _signed(content.additional_properties) or _signed(message.additional_properties)
                texts += [block | signed for block in blocks_of([content], _text_part, warn)]
            case _:
                texts += blocks_of([content], _text_part, warn)
    return texts + calls


def _signed(properties: Mapping[str, Any]) -> Block:
    found = unpack(properties.get(ENCRYPTED_VALUE), SIGNATURE)
    if found is None or "signature" not in found:
        return {}
    try:
        return {"thought_signature": base64.b64decode(found["signature"], validate=True)}
    except (binascii.Error, ValueError):
        return {}


def _result(result: FunctionResultContent, view: View, called: dict[str, str], warn: Warn) -> Block:
    blocks = blocks_of(result_contents(result, warn), _text_part, warn)
    text = "\n".join([block["text"] for block in blocks])
    response = {"error": text} if result.error is not None else {"result": text}
    call_id = view.call_id(result.call_id)
    return {"function_response": {"id": call_id, "name": called[result.call_id], "response": response}}


def _text_part(content: TextContent | File) -> Block:
    text = content.text if isinstance(content, TextContent) else text_of_file(content)
    if text is None:
        raise Unusable("only text may stand here")
    if text == "":
        raise Unusable("it is empty")
    return {"text": text}


def _part(content: TextContent | File) -> Block:
    if isinstance(content, TextContent):
        return _text_part(content)
    kind, media_type = kind_of(content), media_type_of(content)
    if isinstance(content, DataContent) and media_type not in _MEDIA.get(kind, ()):
        return _text_part(content)
    if isinstance(content, DataContent):
        return {"inline_data": {"mime_type": media_type, "data": content.data}}
    if media_type == "":
        raise Unusable("nobody has said of which type it is")
    if isinstance(content, UriContent):
        return {"file_data": {"mime_type": media_type, "file_uri": address_of(content)}}
    return {"file_data": {"mime_type": media_type, "file_uri": handle_of(content, "google")}}


# The answer


async def updates(
    stream: AsyncIterable[Any], *, model: str, provider: str = "google", view: View | None = None
) -> AsyncIterator[ChatUpdate]:
    """Chat updates for the responses of a stream. ``view`` is the request's, to read the names of tools by."""
    reader = _Reader(model, provider, view)
    async for response in stream:
        update = reader.read(response)
        if update is not None:
            yield update
    yield reader.end()


class _Reader:
    def __init__(self, model: str, provider: str, view: View | None) -> None:
        self._model = model
        self._provider = provider
        self._view = view
        self._calls = 0
        self._usage: Any = None
        self._finish: str | None = None

    def read(self, response: Any) -> ChatUpdate | None:
        """What a response adds, or None."""
        if getattr(response, "usage_metadata", None) is not None:
            self._usage = response.usage_metadata  # cumulative: the last counts
        feedback = getattr(response, "prompt_feedback", None)
        if getattr(feedback, "block_reason", None) is not None:
            self._finish = "content_filter"
        contents: list[Content] = []
        for candidate in (getattr(response, "candidates", None) or ())[:1]:
            for part in getattr(getattr(candidate, "content", None), "parts", None) or ():
                contents += self._contents(part)
            reason = getattr(candidate, "finish_reason", None)
            if reason is not None:
                self._finish = _FINISH.get(str(getattr(reason, "value", reason)), "stop")
        given = getattr(response, "response_id", None)
        return ChatUpdate(contents=contents, message_id=given, raw_representation=response) if contents else None

    def _contents(self, part: Any) -> list[Content]:
        signature = getattr(part, "thought_signature", None)
        properties: dict[str, Any] = {}
        if isinstance(signature, bytes) and signature != b"":
            artefact = pack(SIGNATURE, signature=base64.b64encode(signature).decode("ascii"))
            properties = {ENCRYPTED_VALUE: artefact, ENCRYPTED_VALUE_TYPE: SIGNATURE}
        call = getattr(part, "function_call", None)
        if call is not None:
            return [self._call(call, properties)]
        text = getattr(part, "text", None)
        if not isinstance(text, str):
            return []
        if getattr(part, "thought", None) is True:
            return [ReasoningContent(text)]
        return [TextContent(text, additional_properties=properties)]

    def _call(self, call: Any, properties: dict[str, Any]) -> FunctionCallContent:
        self._calls += 1
        given = getattr(call, "id", None)
        name = call.name or ""
        return FunctionCallContent(
            given if isinstance(given, str) and given != "" else f"call_{self._calls}",
            name if self._view is None else self._view.own_name(name),
            encode(call.args or {}).decode(),
            additional_properties=properties,
        )

    def end(self) -> ChatUpdate:
        """What is known at the end: usage, and why it ended."""
        contents: list[Content] = []
        usage = self._usage
        if usage is not None:
            thoughts = count(usage, "thoughts_token_count")
            # The prompt has the cached ones in it; results of tools and thoughts are counted beside (USE-3).
            prompt = count(usage, "prompt_token_count")
            contents.append(
                UsageContent(
                    token_usage(
                        self._provider,
                        self._model,
                        input_tokens=None
                        if prompt is None
                        else added(prompt, count(usage, "tool_use_prompt_token_count")),
                        output_tokens=added(count(usage, "candidates_token_count"), thoughts),
                        reasoning=thoughts,
                        cached=count(usage, "cached_content_token_count"),
                    )
                )
            )
        properties = {} if self._finish is None else {FINISH_REASON: self._finish}
        return ChatUpdate(contents=contents, additional_properties=properties)
