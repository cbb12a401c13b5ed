"""Read the stream of Chat Completions."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

from aguila.chat import (
    ChatUpdate,
    Content,
    DataContent,
    FunctionCallContent,
    ReasoningContent,
    TextContent,
)
from aguila.chat.media import UnreadablePart, read_data_uri
from aguila.chat.property_keys import CONTENT_ID, ENCRYPTED_VALUE, ENCRYPTED_VALUE_TYPE
from aguila.codec.json.encoder import encode
from aguila.codec.json.values import is_array, is_object
from aguila.protocol import TokenUsage
from aguila.providers._encrypted_values import pack
from aguila.providers._request.prompt import ProviderView
from aguila.providers._response.citations import Citation, member, read_position, texts
from aguila.providers._response.reader import Reader, known_finish, make_updates
from aguila.providers._response.usage import count, include_reasoning, token_usage

THOUGHT = "openai.reasoning_content"
"""Kind of the opaque value of reasoning that its server wants back with the calls after it.

It has the server's name.
"""
THINKING = "openai.thinking"
"""Kind of the opaque value of reasoning that came as a content chunk, and is sent back as one.

It has the server's name.
"""
DETAILS = "openai.reasoning_details"
"""Kind of the opaque value of reasoning as a list of objects. It has the server's name."""
EXTRA = "openai.extra_content"
"""Kind of the opaque value that a server sent with a call or message. It has the server's name."""
_GROWING = ("text", "summary")
"""Members of a reasoning detail that come in pieces."""
_FINISH = {
    "stop": "stop",
    "tool_calls": "stop",
    "function_call": "stop",
    "eos": "stop",  # Together
    "eos_token": "stop",  # Text Generation Inference, as the next one
    "stop_sequence": "stop",
    "length": "length",
    "model_length": "length",  # Mistral
    "content_filter": "content_filter",
}


class _Reader(Reader):
    def __init__(self, model: str, provider: str, view: ProviderView | None) -> None:
        super().__init__(model, provider, view)
        self._calls: dict[int, str] = {}  # our call ids, by index
        self._given: dict[int, str] = {}  # the server's call ids, by index
        self._last = 0  # index of the last piece of a call
        self._names: dict[str, str] = {}
        self._unnamed: dict[str, str] = {}  # arguments of calls whose names have not arrived
        self._is_thinking = False
        self._refused = False
        self._details: list[dict[str, Any]] = []  # not sent yet
        self._extra: set[str] = set()  # ids of calls with an opaque value

    def is_slow(self, chunk: Any) -> bool:
        """Return whether a chunk has images: they come complete, as text."""
        choices = getattr(chunk, "choices", None) or ()
        return any(getattr(getattr(choice, "delta", None), "images", None) for choice in choices)

    def read(self, chunk: Any) -> ChatUpdate | None:
        """Convert a chunk to an update, or None."""
        if getattr(chunk, "usage", None) is not None:
            self.usage = self._usage(chunk.usage)  # some servers repeat it with growing counts: the last one counts
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
                    self._warn_dropped("call", "it has no name, and is dropped")
        given = getattr(chunk, "id", None)
        return ChatUpdate(contents=contents, message_id=given, raw_representation=chunk) if contents else None

    def _contents(self, delta: Any) -> list[Content]:
        contents: list[Content] = []
        # Names used by compatible servers; OpenAI itself sends no reasoning here.
        wanted = getattr(delta, "reasoning_content", None)
        thought = wanted or getattr(delta, "reasoning", None)
        if isinstance(thought, str) and thought != "":
            contents.append(self._thought(thought, THOUGHT if thought is wanted else None))
        self._add_details(getattr(delta, "reasoning_details", None))
        said = self._content(getattr(delta, "content", None))
        calls: list[Any] = list(getattr(delta, "tool_calls", None) or ())
        if getattr(delta, "function_call", None) is not None:  # the old form of a single call
            calls.append(SimpleNamespace(index=0, function=delta.function_call))
        if self._details and (said or calls):
            contents.append(self._take_details())  # before the contents that they led to
        contents += said
        contents += self._citations(getattr(delta, "annotations", None))
        extra = getattr(delta, "extra_content", None)
        if is_object(extra) and is_object(google := extra.get("google")) and "thought_signature" in google:
            contents.append(TextContent("", additional_properties=self._artefact(EXTRA, extra=extra)))
        contents += self._read_audio(getattr(delta, "audio", None))
        contents += self._read_images(getattr(delta, "images", None))
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
        """Read the citations of models that search."""
        citations: list[Citation] = []
        for source in given if is_array(given) else ():
            if is_object(source):
                its: Any = source.get("url_citation")
                known = texts(url=member(its, "url"), title=member(its, "title"), text=member(its, "content"))
                citations.append(Citation(source=source, provider=self._provider, **read_position(its), **known))
        return self._cite(*citations)

    def _read_audio(self, audio: Any) -> list[Content]:
        """Return the transcript of spoken output."""
        if getattr(audio, "data", None):
            self._warn_dropped("audio", "its sound is dropped, and its transcript shown")
        words = getattr(audio, "transcript", None)
        return [self._text(words)] if isinstance(words, str) and words != "" else []

    def _read_images(self, images: Any) -> list[Content]:
        """Read images in OpenRouter's format."""
        made: list[Content] = []
        for image in images if is_array(images) else ():
            holder: Any = image.get("image_url") if is_object(image) else None
            url = holder.get("url") if is_object(holder) else None
            try:
                if not isinstance(url, str) or url[:5].lower() != "data:":
                    raise UnreadablePart("it is not a data: URL")
                data, media_type = read_data_uri(url)
            except UnreadablePart as reason:
                self._warn_dropped("image", f"it is dropped: {reason}")
            else:
                made.append(DataContent(data, "image/png" if media_type is None else media_type))
        return made

    def _content(self, content: Any) -> list[Content]:
        """Read text. Mistral's reasoning models send it in chunks, together with reasoning."""
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
                self._warn_dropped(str(part.get("type")) if is_object(part) else "chunk", "it is dropped")
            elif text != "":
                made.append(text)
        return made

    def _thought(self, text: str, kind: str | None) -> ReasoningContent:
        """Make a reasoning content. The first piece has the kind, if the reasoning is to be sent back."""
        if self._is_thinking or kind is None:
            return ReasoningContent(text)
        self._is_thinking = True
        artefact = pack(kind, origin=describe_origin(self._provider, self._model))
        return ReasoningContent(text, artefact, additional_properties={ENCRYPTED_VALUE_TYPE: kind})

    def _add_details(self, given: Any) -> None:
        """Collect details. Their text comes in pieces and is joined, so that they are sent back complete."""
        for piece in given if is_array(given) else ():
            if not is_object(piece):
                continue
            last: dict[str, Any] = self._details[-1] if self._details else {}
            if not _continues(last, piece):
                self._details.append(dict(piece))
                continue
            for name, value in piece.items():
                if name in _GROWING and isinstance(value, str) and isinstance(last.get(name), str):
                    last[name] += value
                elif value is not None or name not in last:
                    last[name] = value

    def _take_details(self) -> ReasoningContent:
        properties = self._artefact(DETAILS, details=self._details)
        value = properties.pop(ENCRYPTED_VALUE)
        self._details = []
        return ReasoningContent("", value, additional_properties={**properties, CONTENT_ID: DETAILS})

    def _late_details(self) -> list[Content]:
        """Return details that came after the contents they led to:

        with a call without opaque value, or with the text.
        """
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
        value = pack(kind, origin=describe_origin(self._provider, self._model), **texts)
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
        # Servers that give every call the index 0 start a new call with a new id; servers that repeat the id continue.
        # A server that gives two calls one id gives each a name.
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
                self._unnamed[call_id] = arguments  # a call without a name cannot be sent
                return None
            known = self._names[call_id] = self._own_name(name)
        extra = getattr(piece, "extra_content", None)
        kept: dict[str, Any] = {}
        if is_object(extra) and extra and call_id not in self._extra:
            self._extra.add(call_id)
            kept = self._artefact(EXTRA, extra=extra)
        return FunctionCallContent(call_id, known, arguments, is_complete=False, additional_properties=kept)

    def _place(self, given: str, name: str) -> int:
        """Find the index of a piece without one: that of the call with its id, or the last if it has only arguments."""
        if given == "" and name == "":
            return self._last
        known = (place for place, call_id in self._calls.items() if call_id == given)
        return next(known, len(self._calls))

    def _usage(self, usage: Any) -> TokenUsage:
        given = getattr(usage, "prompt_tokens_details", None)
        made = getattr(usage, "completion_tokens_details", None)
        prompt, reasoning = count(usage, "prompt_tokens"), count(made, "reasoning_tokens")
        completion = count(usage, "completion_tokens")
        # prompt_tokens includes cached tokens; completion_tokens includes reasoning at OpenAI, but not at xAI.
        return token_usage(
            self._provider,
            self._model,
            input_tokens=prompt,
            output_tokens=include_reasoning(completion, reasoning, prompt, count(usage, "total_tokens")),
            reasoning=reasoning,
            cached=count(given, "cached_tokens"),
            cache_written=count(given, "cache_write_tokens"),
        )


updates = make_updates(_Reader, "openai")


def _continues(detail: dict[str, Any], piece: dict[str, Any]) -> bool:
    """Return whether a piece continues the detail before it. Some streams give every detail the index 0."""
    if isinstance(piece.get("data"), str) or detail.get("type") != piece.get("type"):
        return False  # encrypted details come complete
    ids = {one["id"] for one in (detail, piece) if one.get("id") is not None}
    return detail.get("index") == piece.get("index") and len(ids) < 2


def describe_origin(provider: str, model: str) -> str:
    """Name the server that reasoning belongs to. Many servers have the default provider name "openai"."""
    return model if provider == "openai" else provider
