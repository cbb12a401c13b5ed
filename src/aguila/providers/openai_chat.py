"""OpenAI's Chat Completions, which many servers are compatible with.

``request`` makes the arguments of ``client.chat.completions.create``, ``updates`` reads its stream. The SDK is not
imported.

Not supported by the API, and skipped with a notice: video, audio that is neither WAV nor MP3, documents by URL, files
in tool results, images by file id, images made by the model. Of spoken output only the transcript is shown.
``developer`` messages are sent as ``system``, which every server knows. Reasoning is sent back only with calls, and
only to the server that sent it as ``reasoning_content``: such servers refuse calls without it, while OpenAI itself,
which shows none, refuses the member. The same applies to other values that servers want back: ``reasoning_details``
(OpenRouter) with its message, ``extra_content`` (Gemini's compatible endpoint) with its call or message, and reasoning
in content chunks (Mistral) before the text.
"""

from __future__ import annotations

import re
from typing import Any, Literal

from aguila.chat import (
    ChatMessage,
    Content,
    DataContent,
    FunctionCallContent,
    HostedFileContent,
    ReasoningContent,
    TextContent,
    UriContent,
)
from aguila.chat.media import UnreadablePart
from aguila.chat.property_keys import ENCRYPTED_VALUE
from aguila.codec.json.encoder import encode
from aguila.codec.json.values import is_array, is_object
from aguila.codec.notices import Warn, log_notice
from aguila.providers._encrypted_values import read_json, unpack
from aguila.providers._request.chat_turns import join_turns
from aguila.providers._request.media import (
    IMAGES,
    PDF,
    Block,
    File,
    data_uri,
    encode_data,
    file_name,
    kind_of,
    make_blocks,
    media_type_of,
    read_file_id,
    read_text_file,
    read_url,
    require_text,
    result_contents,
)
from aguila.providers._request.prompt import BEGIN, Prompt, ProviderView, Rules, object_arguments
from aguila.providers._request.schemas.parts import SchemaBudget
from aguila.providers._request.schemas.standard import standard_schema
from aguila.providers._response.openai_chat import DETAILS, EXTRA, THINKING, THOUGHT, describe_origin
from aguila.providers._response.openai_chat import updates as updates

RULES = Rules(call_id=r"[^\s].*", tool_name=r"[a-zA-Z0-9_-]+", longest_id=40)
MISTRAL = Rules(call_id=r"[a-zA-Z0-9]{9}", tool_name=r"[a-zA-Z0-9_-]+", longest_id=9, id_prefix="")

Ids = Literal["any", "mistral"]
"""The call ids that a server accepts: those of OpenAI, or nine letters and digits."""


_AUTHOR = re.compile(r"[a-zA-Z0-9_-]{1,64}\Z")
_AUDIO = {"audio/wav": "wav", "audio/x-wav": "wav", "audio/wave": "wav", "audio/mpeg": "mp3", "audio/mp3": "mp3"}


def rules_of(ids: Ids) -> Rules:
    """Return the rules of a server. Raises ``ValueError`` for unknown ``ids``."""
    try:
        return {"any": RULES, "mistral": MISTRAL}[ids]
    except KeyError:
        raise ValueError(f"ids must be 'any' or 'mistral', not {ids!r}") from None


def request(
    prompt: Prompt,
    *,
    model: str,
    provider: str = "openai",
    ids: Ids = "any",
    warn: Warn | None = None,
    view: ProviderView | None = None,
) -> dict[str, Any]:
    """Make the arguments of ``client.chat.completions.create`` for a streamed answer to a prompt.

    ``ids="mistral"`` is for servers that accept only nine letters and digits as call id. A given ``view`` has its own
    rules.
    """
    warn = log_notice if warn is None else warn
    view = ProviderView(prompt, rules_of(ids), warn) if view is None else view
    messages: list[Block] = []
    if prompt.system_text != "":
        messages.append({"role": "system", "content": prompt.system_text})
    thoughts = _Thoughts(view.messages, describe_origin(provider, model))
    for message in view.messages:
        messages += _messages(message, view, thoughts, warn)
    if not any(message["role"] != "system" for message in messages):
        messages.append({"role": "user", "content": BEGIN})
    made: dict[str, Any] = {
        "model": model,
        "messages": join_turns(messages),
        "stream": True,
        "stream_options": {"include_usage": True},
    }
    if view.tools:
        budget = SchemaBudget()
        made["tools"] = [
            {
                "type": "function",
                "function": {
                    "name": name,
                    "description": tool.description,
                    "parameters": standard_schema(tool.parameters, budget=budget),
                },
            }
            for name, tool in view.tools
        ]
    return made


class _Thoughts:
    """The reasoning that a server wants back with the calls after it, while the messages are converted."""

    def __init__(self, messages: list[ChatMessage], origin: str) -> None:
        self.describe_origin = origin
        self._is_wanted = any(self._of(message) != "" for message in messages)
        self._pending = ""
        self._chunks: list[Block] = []
        self._details: list[Any] = []

    def _of(self, message: ChatMessage, kind: str = THOUGHT) -> str:
        found = [content for content in message.contents if isinstance(content, ReasoningContent)]
        return "".join(
            [
                one.text
                for one in found
                if (unpack(one.protected_data, kind) or {}).get("origin") == self.describe_origin
            ]
        )

    def chunks(self, message: ChatMessage) -> list[Block]:
        """Return the reasoning chunks that go before the text of an assistant message."""
        text = self._of(message, THINKING)
        if text != "":
            self._chunks.append({"type": "thinking", "thinking": [{"type": "text", "text": text}]})
        if not message.calls and message.text == "":
            return []  # the message has only reasoning, which goes to the next one
        made, self._chunks = self._chunks, []
        return made

    def take(self, message: ChatMessage) -> Block:
        """Return the members for an assistant message. Once one call has reasoning, all calls get the member."""
        self._pending += self._of(message)
        holders = [message, *message.contents]  # within a run the value is on a text, later on its message
        for holder in holders:
            details = self.kept(holder, DETAILS, "details")
            self._details += details if is_array(details) else []
        made: Block = {}
        if self._details and (message.calls or message.text != ""):
            made["reasoning_details"], self._details = self._details, []
        for holder in holders:
            if isinstance(holder, (ChatMessage, TextContent)) and is_object(extra := self.kept(holder, EXTRA, "extra")):
                made["extra_content"] = extra
        if not message.calls:
            return made
        thought, self._pending = self._pending, ""
        return {**made, "reasoning_content": thought} if self._is_wanted else made

    def of_call(self, call: FunctionCallContent) -> Block:
        """Return the members for a call."""
        extra = self.kept(call, EXTRA, "extra")
        return {"extra_content": extra} if is_object(extra) else {}

    def kept(self, holder: Content | ChatMessage, kind: str, member: str) -> Any:
        """Return the JSON in an opaque value of this kind, if it belongs to this server; else None."""
        properties = holder.additional_properties
        value = holder.protected_data if isinstance(holder, ReasoningContent) else properties.get(ENCRYPTED_VALUE)
        found = unpack(value, kind)
        return None if found is None or found.get("origin") != self.describe_origin else read_json(found.get(member))

    def forget(self) -> None:
        """Forget pending reasoning, because a message of another role follows."""
        self._pending = ""
        self._chunks = []
        self._details = []


def _messages(message: ChatMessage, view: ProviderView, thoughts: _Thoughts, warn: Warn) -> list[Block]:
    if message.role == "assistant":
        return _assistant(message, view, thoughts, warn)
    thoughts.forget()
    match message.role:
        case "tool":
            return [
                {
                    "role": "tool",
                    "tool_call_id": view.call_id(result.call_id),
                    "content": _joined(result_contents(result, warn), warn),
                }
                for result in message.results
            ]
        case "system" | "developer":
            text = message.text
            return [{"role": "system", "content": text, **_named(message)}] if text.strip() != "" else []
        case _:
            blocks = make_blocks(message.contents, _part, warn)
            if not blocks:
                return []
            only_text = all(block["type"] == "text" for block in blocks)
            content: Any = "\n".join([block["text"] for block in blocks]) if only_text else blocks
            return [{"role": "user", "content": content, **_named(message)}]


def _assistant(message: ChatMessage, view: ProviderView, thoughts: _Thoughts, warn: Warn) -> list[Block]:
    thought = thoughts.take(message)
    texts = [content for content in message.contents if not isinstance(content, FunctionCallContent)]
    text = _joined(texts, warn)
    content: Any = text if text != "" else None
    if chunks := thoughts.chunks(message):
        content = [*chunks, {"type": "text", "text": text}] if text != "" else chunks
    made: Block = {"role": "assistant", "content": content, **_named(message), **thought}
    calls = [
        {
            "id": view.call_id(call.call_id),
            "type": "function",
            "function": {"name": view.name(call.name), "arguments": encode(object_arguments(call)).decode()},
            **thoughts.of_call(call),
        }
        for call in message.calls
    ]
    if calls:
        made["tool_calls"] = calls
    return [made] if calls or text != "" else []


def _joined(contents: list[Content], warn: Warn) -> str:
    """Join contents to text, where only text is allowed."""
    return "\n".join([block["text"] for block in make_blocks(contents, _text_part, warn)])


def _text_part(content: TextContent | File) -> Block:
    return {"type": "text", "text": require_text(content)}


def _named(message: ChatMessage) -> Block:
    name = message.author_name
    return {"name": name} if name is not None and _AUTHOR.match(name) else {}


def _part(content: TextContent | File) -> Block:
    if isinstance(content, TextContent):
        return _text_part(content)
    kind, media_type = kind_of(content), media_type_of(content)
    if kind == "image":
        return {"type": "image_url", "image_url": {"url": _image_url(content, media_type)}}
    if kind == "audio" and isinstance(content, DataContent) and media_type in _AUDIO:
        return {"type": "input_audio", "input_audio": {"data": encode_data(content), "format": _AUDIO[media_type]}}
    if isinstance(content, HostedFileContent):
        return {"type": "file", "file": {"file_id": read_file_id(content, "openai")}}
    if isinstance(content, DataContent) and media_type == PDF:
        file = {"filename": file_name(content, "document.pdf"), "file_data": data_uri(content)}
        return {"type": "file", "file": file}
    text = read_text_file(content)
    if text is None or text == "":
        raise UnreadablePart(f"{kind} of type {media_type or 'unknown'!r}")
    return {"type": "text", "text": text}


def _image_url(content: File, media_type: str) -> str:
    if isinstance(content, UriContent):
        return read_url(content)
    if isinstance(content, DataContent) and media_type in IMAGES:
        return data_uri(content)
    raise UnreadablePart(f"an image of type {media_type or 'unknown'!r}")
