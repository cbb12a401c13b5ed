"""Layer: providers. Google's Gemini.

Below: ``_prompt``, ``_media``, ``_schema``, ``_loop``. Above: applications:

    from google.genai import Client
    from aguila import App
    from aguila.providers import gemini

    app = App(gemini.agent(Client(), model="gemini-3.8-flash", tools=[weather], instructions="Be brief."))

``request`` gives what ``client.aio.models.generate_content_stream`` is called with, ``updates`` reads what it streams.
Contents there are of ``user`` and ``model``, begin and end with the user; results stand in one of their own after their
calls, and what the user says then is another. System and developer messages of the history join the instructions. Calls
come whole, often without an id. A signature belongs to the part it came with, a call, a text, a thought or an empty
part of its own, and is sent back with just that part; thoughts without one are not sent back. Parts of tools that the
provider runs itself are kept and sent back as they came.
"""

from __future__ import annotations

import base64
import binascii
from collections.abc import AsyncIterable, AsyncIterator, Iterable, Mapping
from mimetypes import guess_type
from typing import Any
from urllib.parse import urlsplit

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
)
from aguila.chat.media import UnreadablePart
from aguila.chat.property_keys import CONTENT_ID, ENCRYPTED_VALUE, ENCRYPTED_VALUE_TYPE
from aguila.chat.tools import AnyTool
from aguila.chat.types import OCTET_STREAM
from aguila.codec.json import encode
from aguila.codec.notice import Warn, log_notice
from aguila.codec.values import is_object
from aguila.errors import MissingExtra
from aguila.protocol import TokenUsage, replace
from aguila.providers._artefact import Place, pack, placed, read_json, unpack
from aguila.providers._grounding import grounded, recited
from aguila.providers._loop import MAX_ROUNDS, Agent, Instructions, SDKModel, make_agent
from aguila.providers._media import (
    Block,
    File,
    address_of,
    blocks_of,
    filename_of,
    handle_of,
    kind_of,
    media_type_of,
    result_contents,
    text_of_file,
)
from aguila.providers._prompt import BEGIN, GO_ON, Prompt, Rules, View, made_of, object_arguments, with_options
from aguila.providers._reading import Reader, known_finish, read_stream
from aguila.providers._schema import gemini_schema
from aguila.providers._usage import added, count, token_usage

RULES = Rules(call_id=r"[a-zA-Z0-9_-]+", tool_name=r"[a-zA-Z_][a-zA-Z0-9_.-]*")

SIGNATURE = "google.thought_signature"
"""The kind of the artefact that is a signature, of a call, a text or a thought."""
UNSIGNED = b"skip_thought_signature_validator"
"""What stands for a signature on a call that has none, as another model made it: as Google's own agents write it."""
PART = "google.part"
"""The kind of the artefact that is a whole part, of a tool that the provider runs itself."""

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
    "STOP": "stop",
    "MAX_TOKENS": "length",
    "CONTINUATION": "length",  # of one request; the SDK goes on by itself, unless it is told not to
    "SAFETY": "content_filter",
    "RECITATION": "content_filter",
    "BLOCKLIST": "content_filter",
    "PROHIBITED_CONTENT": "content_filter",
    "SPII": "content_filter",
    "IMAGE_SAFETY": "content_filter",
    "IMAGE_PROHIBITED_CONTENT": "content_filter",
    "IMAGE_RECITATION": "content_filter",
    "LANGUAGE": "refusal",
    "MALFORMED_FUNCTION_CALL": "malformed_call",
    "MALFORMED_RESPONSE": "malformed_call",
    "UNEXPECTED_TOOL_CALL": "malformed_call",
    "TOO_MANY_TOOL_CALLS": "length",
    "OTHER": "other",
    "IMAGE_OTHER": "other",
    "NO_IMAGE": "other",
}
_OWN = ("executable_code", "code_execution_result", "tool_call", "tool_response")


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


class _Gemini(SDKModel):
    async def answer(self, prompt: Prompt, warn: Warn) -> AsyncIterator[ChatUpdate]:
        view = await made_of(prompt, _view, warn)
        made = await made_of(prompt, request, model=self._model, warn=warn, view=view)
        made["config"] = with_options(made["config"], self._options)
        stream = await self._client.aio.models.generate_content_stream(**made)
        try:
            async for update in updates(stream, model=self._model, provider=self._provider, view=view):
                yield update
        finally:
            await stream.aclose()


# The request


def _view(prompt: Prompt, warn: Warn) -> View:
    return View(prompt, RULES, warn, prepare=_with_own_artefact)


def _with_own_artefact(message: ChatMessage) -> ChatMessage:
    """A message whose artefact is with the text that it belongs to: messages may be joined, their contents stay."""
    found = unpack(message.additional_properties.get(ENCRYPTED_VALUE), SIGNATURE)
    if message.role != "assistant" or found is None:
        return message
    value = message.additional_properties[ENCRYPTED_VALUE]
    contents = list(message.contents)
    place = Place.of(found)
    start = 0
    for index, text in enumerate(contents):
        if not isinstance(text, TextContent):
            continue
        end = start + len(text.text)
        if place is None or (not place.is_after_calls and place.start < (end if place.length else end + 1)):
            here = placed(value, None if place is None else place.moved(-start))
            contents[index] = replace(text, additional_properties={**text.additional_properties, ENCRYPTED_VALUE: here})
            return replace(message, contents=contents)
        start = end
    return replace(message, contents=[*contents, TextContent("", additional_properties={ENCRYPTED_VALUE: value})])


def request(prompt: Prompt, *, model: str, warn: Warn | None = None, view: View | None = None) -> dict[str, Any]:
    """The arguments of ``client.aio.models.generate_content_stream`` that answer a prompt."""
    warn = log_notice if warn is None else warn
    view = _view(prompt, warn) if view is None else view
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
    _sign_current_turn(turns)
    if not turns or turns[0][0] != "user":
        turns.insert(0, ("user", [{"text": BEGIN}]))
    if turns[-1][0] != "user":
        turns.append(("user", [{"text": GO_ON}]))
    config: dict[str, Any] = {"automatic_function_calling": {"disable": True}}
    texts = [text for text in system if text.strip() != ""]
    if texts:
        config["system_instruction"] = "\n\n".join(texts)
    if view.tools:
        declarations = [
            {
                "name": name,
                "description": tool.description or name,
                "parameters_json_schema": gemini_schema(tool.parameters),
            }
            for name, tool in view.tools
        ]
        config["tools"] = [{"function_declarations": declarations}]
    contents = [{"role": role, "parts": parts} for role, parts in turns]
    return {"model": model, "contents": contents, "config": config}


def _sign_current_turn(turns: list[tuple[str, list[Block]]]) -> None:
    """The first call of each step since the user last spoke must be signed; one that is not says so with a word."""
    for role, parts in reversed(turns):
        if role == "user" and not _is_result(parts[0]):
            return
        first = next((part for part in parts if "function_call" in part), None)
        if first is not None:
            first.setdefault("thought_signature", UNSIGNED)


def _is_result(part: Block) -> bool:
    return "function_response" in part


def _parts(message: ChatMessage, view: View, called: dict[str, str], warn: Warn) -> list[Block]:
    if message.role == "tool":
        return [_result(result, view, called, warn) for result in message.results]
    if message.role != "assistant":
        return blocks_of(message.contents, _part, warn)
    made: list[Block] = []
    for content in message.contents:
        match content:
            case ReasoningContent():
                made += _thought(content)
            case FunctionCallContent():
                call = {
                    "id": view.call_id(content.call_id),
                    "name": view.name(content.name),
                    "args": object_arguments(content),
                }
                made.append({"function_call": call, **_signed(_artefact_of(content))})
            case TextContent():
                made += _texts(content, warn)
            case DataContent():
                part = _part if media_type_of(content) in _MEDIA["image"] else _text_part
                made += [block | _signed(_artefact_of(content)) for block in blocks_of([content], part, warn)]
            case _:
                made += blocks_of([content], _text_part, warn)
    return made


def _artefact_of(content: Content) -> dict[str, str] | None:
    return unpack(content.additional_properties.get(ENCRYPTED_VALUE), SIGNATURE)


def _signed(found: Mapping[str, str] | None) -> Block:
    if found is None or "signature" not in found:
        return {}
    try:
        return {"thought_signature": base64.b64decode(found["signature"], validate=True)}
    except (binascii.Error, ValueError):
        return {}


def _texts(content: TextContent, warn: Warn) -> list[Block]:
    """A text as its parts: that which is signed, and what stands before and after it."""
    found = _artefact_of(content)
    signed = _signed(found)
    if found is None or not signed:
        return blocks_of([content], _text_part, warn)
    place = Place.of(found)
    if place is None or place.is_after_calls:
        return [{"text": content.text, **signed}]
    end = place.start + place.length
    before, after = content.text[: place.start], content.text[end:]
    pieces = [{"text": before}, {"text": content.text[place.start : end], **signed}, {"text": after}]
    return [piece for piece in pieces if piece["text"] != "" or "thought_signature" in piece]


def _thought(content: ReasoningContent) -> list[Block]:
    """What goes back of a thought: the piece that is signed, or a whole part that it stands for."""
    found = unpack(content.protected_data, SIGNATURE)
    signed = _signed(found)
    if found is not None and signed:
        length = found.get("thought", "")
        if not length.isdecimal():
            return [{"text": "", **signed}]
        return [{"text": content.text[max(0, len(content.text) - int(length)) :], "thought": True, **signed}]
    own = unpack(content.protected_data, PART)
    part: Any = None if own is None else read_json(own.get("part", ""))
    if own is not None and is_object(part) and len(part) == 1 and next(iter(part)) in _OWN:
        return [{**part, **_signed(own)}]
    return []


def _result(result: FunctionResultContent, view: View, called: dict[str, str], warn: Warn) -> Block:
    blocks = blocks_of(result_contents(result, warn), _text_part, warn)
    text = "\n".join([block["text"] for block in blocks])
    response = {"error": text} if result.error is not None else {"result": text}
    call_id = view.call_id(result.call_id)
    return {"function_response": {"id": call_id, "name": called[result.call_id], "response": response}}


def _text_part(content: TextContent | File) -> Block:
    text = content.text if isinstance(content, TextContent) else text_of_file(content)
    if text is None:
        raise UnreadablePart("only text may stand here")
    if text == "":
        raise UnreadablePart("it is empty")
    return {"text": text}


def _part(content: TextContent | File) -> Block:
    if isinstance(content, TextContent):
        return _text_part(content)
    kind, media_type = kind_of(content), media_type_of(content)
    if isinstance(content, DataContent) and media_type not in _MEDIA.get(kind, ()):
        return _text_part(content)
    if isinstance(content, DataContent):
        if content.data == b"":
            raise UnreadablePart("it is empty")
        return {"inline_data": {"mime_type": media_type, "data": content.data}}
    if media_type == "":
        address = urlsplit(content.uri).path if isinstance(content, UriContent) else filename_of(content, "")
        media_type = guess_type(address)[0] or ""
    if media_type == "":
        raise UnreadablePart("nobody has said of which type it is, nor does its name")
    if isinstance(content, UriContent):
        return {"file_data": {"mime_type": media_type, "file_uri": address_of(content)}}
    return {"file_data": {"mime_type": media_type, "file_uri": handle_of(content, "google")}}


# The answer


async def updates(
    stream: AsyncIterable[Any], *, model: str, provider: str = "google", view: View | None = None
) -> AsyncIterator[ChatUpdate]:
    """Chat updates for the responses of a stream. ``view`` is the request's, to read the names of tools by.

    Raises ``RunFailed`` for a stream that breaks off or tells of an error.
    """
    async for update in read_stream(stream, _Reader(model, provider, view)):
        yield update


class _Reader(Reader):
    def __init__(self, model: str, provider: str, view: View | None) -> None:
        super().__init__(model, provider, view)
        self._calls: set[str] = set()  # their ids
        self._thoughts = 0
        self._texts: list[str] = []
        self._grounding: Any = None

    def read(self, response: Any) -> ChatUpdate | None:
        """What a response adds, or None."""
        if getattr(response, "usage_metadata", None) is not None:
            self.usage = self._usage(response.usage_metadata)  # cumulative: the last counts
        feedback = getattr(response, "prompt_feedback", None)
        if getattr(feedback, "block_reason", None) is not None:
            self.finish = "content_filter"
        contents: list[Content] = []
        for candidate in (getattr(response, "candidates", None) or ())[:1]:
            for part in getattr(getattr(candidate, "content", None), "parts", None) or ():
                contents += self._contents(part)
            repeated = getattr(candidate, "citation_metadata", None)
            if repeated is not None:
                contents += self._cite(*recited(repeated, "".join(self._texts), self._provider))
            self._grounding = getattr(candidate, "grounding_metadata", None) or self._grounding
            reason = getattr(candidate, "finish_reason", None)
            if reason is not None:
                contents += self._grounded()
                self.finish = known_finish(_FINISH, str(getattr(reason, "value", reason)))
        given = getattr(response, "response_id", None)
        return ChatUpdate(contents=contents, message_id=given, raw_representation=response) if contents else None

    def _contents(self, part: Any) -> list[Content]:
        signature = getattr(part, "thought_signature", None)
        members: dict[str, str] = {}
        if isinstance(signature, bytes) and signature != b"":
            members["signature"] = base64.b64encode(signature).decode("ascii")
        signed = {ENCRYPTED_VALUE: pack(SIGNATURE, **members), ENCRYPTED_VALUE_TYPE: SIGNATURE} if members else {}
        text = getattr(part, "text", None)
        if getattr(part, "function_call", None) is not None:
            return [self._call(part.function_call, signed)]
        if getattr(part, "thought", None) is True:
            return self._thought(text if isinstance(text, str) else "", members)
        if getattr(part, "inline_data", None) is not None:
            blob = part.inline_data
            return [DataContent(blob.data or b"", blob.mime_type or OCTET_STREAM, additional_properties=signed)]
        for name in _OWN:
            if getattr(part, name, None) is not None:
                self._leave_out(name, "its part is kept for the model and not shown")
                whole = {name: getattr(part, name).model_dump(mode="json", exclude_none=True)}
                artefact = pack(PART, part=encode(whole).decode(), **members)
                self._thoughts += 1
                return [ReasoningContent("", artefact, additional_properties=self._of(PART))]
        if isinstance(text, str):
            self._texts.append(text)
        if isinstance(text, str) or members:
            return [self._signed_text(text if isinstance(text, str) else "", signed)]
        for name in getattr(part, "model_fields_set", ()):
            self._leave_out(name, "it is left out")
        return []

    def _grounded(self) -> list[Content]:
        """What the whole answer rests on, which the last response of a stream tells of."""
        found, self._grounding = self._grounding, None
        return [] if found is None else self._cite(*grounded(found, "".join(self._texts), self._provider))

    def _signed_text(self, text: str, signed: dict[str, Any]) -> TextContent:
        if signed:  # it came with this piece of the answer's text, and goes back with just that
            place = Place(self._said, len(text), is_after_calls=text == "" and len(self._calls) > 0)
            signed = {**signed, ENCRYPTED_VALUE: placed(signed[ENCRYPTED_VALUE], place)}
        return self._text(text, **signed)

    def _thought(self, text: str, members: dict[str, str]) -> list[Content]:
        if not members:
            return [ReasoningContent(text, additional_properties=self._of())]
        artefact = pack(SIGNATURE, thought=str(len(text)), **members)
        signed = ReasoningContent(text, artefact, additional_properties=self._of(SIGNATURE))
        self._thoughts += 1  # a signed part is not to be joined with what follows it
        return [signed]

    def _of(self, kind: str | None = None) -> dict[str, Any]:
        """Which thought a piece belongs to, and what its artefact is."""
        properties: dict[str, Any] = {CONTENT_ID: f"thought-{self._thoughts}"}
        return properties if kind is None else {**properties, ENCRYPTED_VALUE_TYPE: kind}

    def _call(self, call: Any, properties: dict[str, Any]) -> FunctionCallContent:
        given = getattr(call, "id", None)
        call_id = given if isinstance(given, str) else ""
        number = len(self._calls) + 1
        while call_id == "" or call_id in self._calls:  # calls come whole: the same id again is another call
            call_id = f"{given or 'call'}_{number}"
            number += 1
        self._calls.add(call_id)
        name = call.name or ""
        return FunctionCallContent(
            call_id,
            self._own_name(name),
            encode(call.args or {}).decode(),
            additional_properties=properties,
        )

    def _usage(self, usage: Any) -> TokenUsage:
        thoughts = count(usage, "thoughts_token_count")
        # The prompt has the cached ones in it; results of tools and thoughts are counted beside (USE-3).
        prompt = count(usage, "prompt_token_count")
        return token_usage(
            self._provider,
            self._model,
            input_tokens=None if prompt is None else added(prompt, count(usage, "tool_use_prompt_token_count")),
            output_tokens=added(count(usage, "candidates_token_count"), thoughts),
            reasoning=thoughts,
            cached=count(usage, "cached_content_token_count"),
        )
