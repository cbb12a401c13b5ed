"""Layer: providers. OpenAI's Chat Completions, which many servers speak.

Below: ``_prompt``, ``_chat_turns``, ``_media``, ``_schema``. Above: ``aguila.providers.openai``. Nothing here imports
the SDK or opens a connection: ``request`` gives what ``client.chat.completions.create`` is called with, ``updates``
reads what it streams.

Not expressible there, and skipped with a notice: video, audio that is neither WAV nor MP3, documents by address, files
in results of tools, images by handle, pictures that the model made. Of what it says in sound only the words are told.
``developer`` is sent as ``system``, which every server knows. Thoughts go back only with calls, and only to who gave
them as ``reasoning_content``: such servers refuse calls without them, and OpenAI itself, which shows none, refuses the
member. The same goes for what other servers want back: ``reasoning_details`` (OpenRouter) with the message it came in,
``extra_content`` (Gemini's compatible endpoint) with its call or message, and thoughts in chunks of the content
(Mistral) before what was said.
"""

from __future__ import annotations

import re
from collections.abc import AsyncIterable, AsyncIterator
from types import SimpleNamespace
from typing import Any, Literal

from aguila.chat import (
    ChatMessage,
    ChatUpdate,
    Content,
    DataContent,
    FunctionCallContent,
    HostedFileContent,
    ReasoningContent,
    TextContent,
    UriContent,
)
from aguila.chat.media import UnreadablePart, read_data_uri
from aguila.chat.property_keys import CONTENT_ID, ENCRYPTED_VALUE, ENCRYPTED_VALUE_TYPE
from aguila.codec.json import encode
from aguila.codec.notice import Warn, log_notice
from aguila.codec.values import is_array, is_object
from aguila.protocol import TokenUsage
from aguila.providers._artefact import pack, read_json, unpack
from aguila.providers._chat_turns import joined
from aguila.providers._citations import Citation, member, place_of, texts
from aguila.providers._media import (
    IMAGES,
    PDF,
    Block,
    File,
    address_of,
    base64_of,
    blocks_of,
    data_uri,
    filename_of,
    handle_of,
    kind_of,
    media_type_of,
    result_contents,
    text_of_file,
)
from aguila.providers._prompt import BEGIN, Prompt, Rules, View, object_arguments
from aguila.providers._reading import Reader, known_finish, read_stream
from aguila.providers._schema import standard_schema
from aguila.providers._usage import count, token_usage, with_thoughts

RULES = Rules(call_id=r"[^\s].*", tool_name=r"[a-zA-Z0-9_-]+", longest_id=40)
MISTRAL = Rules(call_id=r"[a-zA-Z0-9]{9}", tool_name=r"[a-zA-Z0-9_-]+", longest_id=9, id_prefix="")

Ids = Literal["any", "mistral"]
"""What a server accepts as the id of a call: what OpenAI does, or nine letters and digits."""

THOUGHT = "openai.reasoning_content"
"""The kind of the artefact of a thought that its server wants back with the calls it led to; it says whose it is."""

THINKING = "openai.thinking"
"""The kind of the artefact of a thought that came as a chunk of the content, and goes back so; it says whose it is."""
DETAILS = "openai.reasoning_details"
"""The kind of the artefact of thoughts as a list of objects; it says whose they are."""
EXTRA = "openai.extra_content"
"""The kind of the artefact that a server gave with a call or a message; it says whose it is."""

_GROWING = ("text", "summary")
"""What of a detail comes in pieces."""

_AUTHOR = re.compile(r"[a-zA-Z0-9_-]{1,64}\Z")
_AUDIO = {"audio/wav": "wav", "audio/x-wav": "wav", "audio/wave": "wav", "audio/mpeg": "mp3", "audio/mp3": "mp3"}
_FINISH = {
    "stop": "stop",
    "tool_calls": "stop",
    "function_call": "stop",
    "eos": "stop",  # Together
    "eos_token": "stop",  # Text Generation Inference, and the next
    "stop_sequence": "stop",
    "length": "length",
    "model_length": "length",  # Mistral
    "content_filter": "content_filter",
}


def rules_of(ids: Ids) -> Rules:
    """The rules of a server. Raises ``ValueError`` for one that is not known."""
    try:
        return {"any": RULES, "mistral": MISTRAL}[ids]
    except KeyError:
        raise ValueError(f"ids are 'any' or 'mistral', not {ids!r}") from None


def request(
    prompt: Prompt,
    *,
    model: str,
    provider: str = "openai",
    ids: Ids = "any",
    warn: Warn | None = None,
    view: View | None = None,
) -> dict[str, Any]:
    """The arguments of ``client.chat.completions.create`` for a stream that answers a prompt.

    ``ids="mistral"`` is for servers that take nothing but nine letters and digits as the id of a call. A ``view`` was
    made by rules of its own.
    """
    warn = log_notice if warn is None else warn
    view = View(prompt, rules_of(ids), warn) if view is None else view
    messages: list[Block] = []
    if prompt.system_text != "":
        messages.append({"role": "system", "content": prompt.system_text})
    thoughts = _Thoughts(view.messages, _origin(provider, model))
    for message in view.messages:
        messages += _messages(message, view, thoughts, warn)
    if not any(message["role"] != "system" for message in messages):
        messages.append({"role": "user", "content": BEGIN})
    made: dict[str, Any] = {
        "model": model,
        "messages": joined(messages),
        "stream": True,
        "stream_options": {"include_usage": True},
    }
    if view.tools:
        made["tools"] = [
            {
                "type": "function",
                "function": {
                    "name": name,
                    "description": tool.description,
                    "parameters": standard_schema(tool.parameters),
                },
            }
            for name, tool in view.tools
        ]
    return made


def _origin(provider: str, model: str) -> str:
    """Whose thoughts these are. Many servers are called "openai" by who does not say who is paid."""
    return model if provider == "openai" else provider


class _Thoughts:
    """The thoughts that a server wants back with the calls they led to, as the messages pass by."""

    def __init__(self, messages: list[ChatMessage], origin: str) -> None:
        self._origin = origin
        self._is_wanted = any(self._of(message) != "" for message in messages)
        self._pending = ""
        self._chunks: list[Block] = []
        self._details: list[Any] = []

    def _of(self, message: ChatMessage, kind: str = THOUGHT) -> str:
        found = [content for content in message.contents if isinstance(content, ReasoningContent)]
        return "".join(
            [one.text for one in found if (unpack(one.protected_data, kind) or {}).get("origin") == self._origin]
        )

    def chunks(self, message: ChatMessage) -> list[Block]:
        """The thoughts that go before what a message of the assistant says."""
        text = self._of(message, THINKING)
        if text != "":
            self._chunks.append({"type": "thinking", "thinking": [{"type": "text", "text": text}]})
        if not message.calls and message.text == "":
            return []  # it has only thoughts: they are the next one's
        made, self._chunks = self._chunks, []
        return made

    def take(self, message: ChatMessage) -> Block:
        """What goes with a message of the assistant. All calls have a thought then, be it an empty one."""
        self._pending += self._of(message)
        holders = [message, *message.contents]  # within a run a piece of text holds what is its message's afterwards
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
        """What goes with a call."""
        extra = self.kept(call, EXTRA, "extra")
        return {"extra_content": extra} if is_object(extra) else {}

    def kept(self, holder: Content | ChatMessage, kind: str, member: str) -> Any:
        """The JSON that an artefact of this kind holds, if it is this server's; None if there is none."""
        properties = holder.additional_properties
        value = holder.protected_data if isinstance(holder, ReasoningContent) else properties.get(ENCRYPTED_VALUE)
        found = unpack(value, kind)
        return None if found is None or found.get("origin") != self._origin else read_json(found.get(member))

    def forget(self) -> None:
        """Somebody else speaks."""
        self._pending = ""
        self._chunks = []
        self._details = []


def _messages(message: ChatMessage, view: View, thoughts: _Thoughts, warn: Warn) -> list[Block]:
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
            blocks = blocks_of(message.contents, _part, warn)
            if not blocks:
                return []
            only_text = all(block["type"] == "text" for block in blocks)
            content: Any = "\n".join([block["text"] for block in blocks]) if only_text else blocks
            return [{"role": "user", "content": content, **_named(message)}]


def _assistant(message: ChatMessage, view: View, thoughts: _Thoughts, warn: Warn) -> list[Block]:
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
    """Contents where only text is allowed."""
    return "\n".join([block["text"] for block in blocks_of(contents, _text_part, warn)])


def _text_part(content: TextContent | File) -> Block:
    text = content.text if isinstance(content, TextContent) else text_of_file(content)
    if text is None:
        raise UnreadablePart("only text may stand here")
    if text == "":
        raise UnreadablePart("it is empty")
    return {"type": "text", "text": text}


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
        return {"type": "input_audio", "input_audio": {"data": base64_of(content), "format": _AUDIO[media_type]}}
    if isinstance(content, HostedFileContent):
        return {"type": "file", "file": {"file_id": handle_of(content, "openai")}}
    if isinstance(content, DataContent) and media_type == PDF:
        file = {"filename": filename_of(content, "document.pdf"), "file_data": data_uri(content)}
        return {"type": "file", "file": file}
    text = text_of_file(content)
    if text is None or text == "":
        raise UnreadablePart(f"{kind} of type {media_type or 'unknown'!r}")
    return {"type": "text", "text": text}


def _image_url(content: File, media_type: str) -> str:
    if isinstance(content, UriContent):
        return address_of(content)
    if isinstance(content, DataContent) and media_type in IMAGES:
        return data_uri(content)
    raise UnreadablePart(f"an image of type {media_type or 'unknown'!r}")


# The answer


async def updates(
    stream: AsyncIterable[Any], *, model: str, provider: str = "openai", view: View | None = None
) -> AsyncIterator[ChatUpdate]:
    """Chat updates for the chunks of a stream. ``view`` is the request's, to read the names of tools by.

    Raises ``RunFailed`` for a stream that breaks off or tells of an error.
    """
    async for update in read_stream(stream, _Reader(model, provider, view)):
        yield update


class _Reader(Reader):
    def __init__(self, model: str, provider: str, view: View | None) -> None:
        super().__init__(model, provider, view)
        self._calls: dict[int, str] = {}  # by place, the id
        self._given: dict[int, str] = {}  # by place, the id that the server gave
        self._last = 0  # the place of the last piece of a call
        self._names: dict[str, str] = {}
        self._unnamed: dict[str, str] = {}  # arguments of calls whose names have not come
        self._is_thinking = False
        self._refused = False
        self._details: list[dict[str, Any]] = []  # that were not told yet
        self._extra: set[str] = set()  # calls that have an artefact

    def is_slow(self, chunk: Any) -> bool:
        """Pictures come whole, and as text."""
        choices = getattr(chunk, "choices", None) or ()
        return any(getattr(getattr(choice, "delta", None), "images", None) for choice in choices)

    def read(self, chunk: Any) -> ChatUpdate | None:
        """What a chunk adds, or None."""
        if getattr(chunk, "usage", None) is not None:
            self.usage = self._usage(chunk.usage)  # some servers repeat it, growing: the last counts
        contents: list[Content] = []
        for choice in getattr(chunk, "choices", None) or ():
            if getattr(choice, "index", 0) not in (0, None):
                continue
            delta = getattr(choice, "delta", None)
            if delta is not None:
                contents += self._contents(delta)
            reason = getattr(choice, "finish_reason", None)
            if isinstance(reason, str) and reason != "":
                self.finish = "refusal" if self._refused else known_finish(_FINISH, reason)
                contents += self._late_details()
                if self._unnamed:
                    self._leave_out("call", "it has no name, and is left out")
        given = getattr(chunk, "id", None)
        return ChatUpdate(contents=contents, message_id=given, raw_representation=chunk) if contents else None

    def _contents(self, delta: Any) -> list[Content]:
        contents: list[Content] = []
        # What compatible servers call it; OpenAI itself sends no thoughts here.
        wanted = getattr(delta, "reasoning_content", None)
        thought = wanted or getattr(delta, "reasoning", None)
        if isinstance(thought, str) and thought != "":
            contents.append(self._thought(thought, THOUGHT if thought is wanted else None))
        self._add_details(getattr(delta, "reasoning_details", None))
        said = self._content(getattr(delta, "content", None))
        calls: list[Any] = list(getattr(delta, "tool_calls", None) or ())
        if getattr(delta, "function_call", None) is not None:  # what calls were before there could be several
            calls.append(SimpleNamespace(index=0, function=delta.function_call))
        if self._details and (said or calls):
            contents.append(self._told_details())  # before what they led to
        contents += said
        contents += self._citations(getattr(delta, "annotations", None))
        extra = getattr(delta, "extra_content", None)
        if is_object(extra) and is_object(google := extra.get("google")) and "thought_signature" in google:
            contents.append(TextContent("", additional_properties=self._artefact(EXTRA, extra=extra)))
        contents += self._sound(getattr(delta, "audio", None))
        contents += self._pictures(getattr(delta, "images", None))
        refusal = getattr(delta, "refusal", None)
        if isinstance(refusal, str) and refusal != "":
            self._refused = True
            contents.append(self._text(refusal))
        for piece in calls:
            content = self._call(piece)
            if content is not None:
                contents.append(content)
        if contents:
            self._is_thinking = isinstance(contents[-1], ReasoningContent)
        return contents

    def _citations(self, given: Any) -> list[Content]:
        """What models that search say beside their text."""
        citations: list[Citation] = []
        for source in given if is_array(given) else ():
            if is_object(source):
                its: Any = source.get("url_citation")
                known = texts(url=member(its, "url"), title=member(its, "title"), text=member(its, "content"))
                citations.append(Citation(source=source, provider=self._provider, **place_of(its), **known))
        return self._cite(*citations)

    def _sound(self, audio: Any) -> list[Content]:
        """What is said in sound, as its words."""
        if getattr(audio, "data", None):
            self._leave_out("audio", "its sound is left out, and its transcript told")
        words = getattr(audio, "transcript", None)
        return [self._text(words)] if isinstance(words, str) and words != "" else []

    def _pictures(self, images: Any) -> list[Content]:
        """Pictures as OpenRouter gives them."""
        made: list[Content] = []
        for image in images if is_array(images) else ():
            holder: Any = image.get("image_url") if is_object(image) else None
            url = holder.get("url") if is_object(holder) else None
            try:
                if not isinstance(url, str) or url[:5].lower() != "data:":
                    raise UnreadablePart("it is not in the answer itself")
                data, media_type = read_data_uri(url)
            except UnreadablePart as reason:
                self._leave_out("image", f"it is left out: {reason}")
            else:
                made.append(DataContent(data, "image/png" if media_type is None else media_type))
        return made

    def _content(self, content: Any) -> list[Content]:
        """Text, which Mistral's models that think give in chunks, together with their thoughts."""
        if isinstance(content, str):
            return [self._text(content)] if content != "" else []
        made: list[Content] = []
        for part in content if is_array(content) else ():
            kind: Any = part.get("type") if is_object(part) else None
            if kind == "thinking":
                made += [self._thought(text, THINKING) for text in self._texts(part.get("thinking"))]
            else:
                made += [self._text(text) for text in self._texts([part])]
        return made

    def _texts(self, parts: Any) -> list[str]:
        made: list[str] = []
        for part in parts if is_array(parts) else ():
            text: Any = part.get("text") if is_object(part) else None
            if not isinstance(text, str):
                self._leave_out(str(part.get("type")) if is_object(part) else "chunk", "it is left out")
            elif text != "":
                made.append(text)
        return made

    def _thought(self, text: str, kind: str | None) -> ReasoningContent:
        """A thought; its first piece says of what kind it is, if it is to go back."""
        if self._is_thinking or kind is None:
            return ReasoningContent(text)
        self._is_thinking = True
        artefact = pack(kind, origin=_origin(self._provider, self._model))
        return ReasoningContent(text, artefact, additional_properties={ENCRYPTED_VALUE_TYPE: kind})

    def _add_details(self, given: Any) -> None:
        """Details come in pieces: text that grows is joined, as they are to go back as if they had come at once."""
        for piece in given if is_array(given) else ():
            if not is_object(piece):
                continue
            last: dict[str, Any] = self._details[-1] if self._details else {}
            if not _goes_on(last, piece):
                self._details.append(dict(piece))
                continue
            for name, value in piece.items():
                if name in _GROWING and isinstance(value, str) and isinstance(last.get(name), str):
                    last[name] += value
                elif value is not None or name not in last:
                    last[name] = value

    def _told_details(self) -> ReasoningContent:
        properties = self._artefact(DETAILS, details=self._details)
        value = properties.pop(ENCRYPTED_VALUE)
        self._details = []
        return ReasoningContent("", value, additional_properties={**properties, CONTENT_ID: DETAILS})

    def _late_details(self) -> list[Content]:
        """Details that came after what they led to: with a call that has no other artefact, or with the text."""
        if not self._details:
            return []
        properties = self._artefact(DETAILS, details=self._details)
        self._details = []
        free = next((call_id for call_id in self._names if call_id not in self._extra), None)
        if free is None:
            return [TextContent("", additional_properties=properties)]
        known = self._names[free]
        return [FunctionCallContent(free, known, "", is_complete=False, additional_properties=properties)]

    def _artefact(self, kind: str, **members: Any) -> dict[str, Any]:
        texts = {name: encode(value).decode() for name, value in members.items()}
        value = pack(kind, origin=_origin(self._provider, self._model), **texts)
        return {ENCRYPTED_VALUE: value, ENCRYPTED_VALUE_TYPE: kind}

    def _call(self, piece: Any) -> FunctionCallContent | None:
        function = getattr(piece, "function", None)
        name = getattr(function, "name", None) or ""
        arguments = getattr(function, "arguments", None) or ""
        given = getattr(piece, "id", None) or ""
        place = getattr(piece, "index", None)
        if place is None:
            place = self._place(given, name)
        self._last = place
        # Servers that number every call 0 start a new one with a new id; servers that repeat the id go on. One that
        # gives two calls one id gives each a name.
        call_id = self._calls.get(place)
        if call_id is None or (given not in ("", self._given[place]) and name != ""):
            if call_id is not None:
                self._calls[-1 - len(self._calls)] = call_id
            self._given[place] = given
            if given == "" or (name != "" and given in self._calls.values()):
                given = f"{given or 'call'}_{len(self._calls)}"
            call_id = self._calls[place] = given
        known = self._names.get(call_id)
        if known is None:
            arguments = self._unnamed.pop(call_id, "") + arguments
            if name == "":
                self._unnamed[call_id] = arguments  # nothing can be called by no name
                return None
            known = self._names[call_id] = self._own_name(name)
        extra = getattr(piece, "extra_content", None)
        kept: dict[str, Any] = {}
        if is_object(extra) and extra and call_id not in self._extra:
            self._extra.add(call_id)
            kept = self._artefact(EXTRA, extra=extra)
        return FunctionCallContent(call_id, known, arguments, is_complete=False, additional_properties=kept)

    def _place(self, given: str, name: str) -> int:
        """Where a piece belongs that does not say so: to the call of its id, or, if it has only arguments, the last."""
        if given == "" and name == "":
            return self._last
        known = (place for place, call_id in self._calls.items() if call_id == given)
        return next(known, len(self._calls))

    def _usage(self, usage: Any) -> TokenUsage:
        given = getattr(usage, "prompt_tokens_details", None)
        made = getattr(usage, "completion_tokens_details", None)
        prompt, reasoning = count(usage, "prompt_tokens"), count(made, "reasoning_tokens")
        completion = count(usage, "completion_tokens")
        # prompt_tokens has the cached ones in it; completion_tokens those of thoughts with OpenAI, but not with xAI.
        return token_usage(
            self._provider,
            self._model,
            input_tokens=prompt,
            output_tokens=with_thoughts(completion, reasoning, prompt, count(usage, "total_tokens")),
            reasoning=reasoning,
            cached=count(given, "cached_tokens"),
            cache_written=count(given, "cache_write_tokens"),
        )


def _goes_on(detail: dict[str, Any], piece: dict[str, Any]) -> bool:
    """Whether a piece of a server's thoughts is of the detail before it. Streams may number all of them 0."""
    if isinstance(piece.get("data"), str) or detail.get("type") != piece.get("type"):
        return False  # what is encrypted comes whole
    ids = {one["id"] for one in (detail, piece) if one.get("id") is not None}
    return detail.get("index") == piece.get("index") and len(ids) < 2
