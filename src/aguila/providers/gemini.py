"""Agents with Google's Gemini models::

    from google.genai import Client
    from aguila import App
    from aguila.providers import gemini

    app = App(gemini.agent(Client(), model="gemini-3.8-flash", tools=[weather], instructions="Be brief."))

``request`` makes the arguments of ``client.aio.models.generate_content_stream``, ``updates`` reads its stream. The API
has the roles ``user`` and ``model``, and requires the user first and last. Results are in their own content after the
calls; the user's next message is another content. System and developer messages of the history become part of the
instructions. Calls come complete, often without an id. A signature belongs to the part that it came with (a call, a
text, reasoning or an empty part), and is sent back with exactly that part. Reasoning without a signature is not sent
back. Parts of the provider's own tools are sent back unchanged.
"""

from __future__ import annotations

import base64
import binascii
from collections.abc import AsyncIterator, Iterable, Mapping
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
from aguila.chat.allowed_media import DEFAULT_MEDIA, AllowedMedia
from aguila.chat.media import UnreadablePart
from aguila.chat.property_keys import ENCRYPTED_VALUE
from aguila.chat.tools import AnyTool
from aguila.codec.json.values import is_object
from aguila.codec.notices import Warn, log_notice
from aguila.protocol import replace
from aguila.providers._agent.loop import MAX_ROUNDS, Agent, Instructions, make_agent
from aguila.providers._agent.sdk_model import SDKModel, make_client
from aguila.providers._encrypted_values import Place, pack_place, read_json, unpack
from aguila.providers._request.media import (
    Block,
    File,
    file_name,
    kind_of,
    make_blocks,
    media_type_of,
    multimodal,
    read_file_id,
    read_url,
    require_text,
    result_contents,
)
from aguila.providers._request.prompt import (
    BEGIN,
    GO_ON,
    Prompt,
    ProviderView,
    Rules,
    add_options,
    make_offloaded,
    object_arguments,
)
from aguila.providers._request.schemas.gemini import gemini_schema
from aguila.providers._request.schemas.parts import SchemaBudget
from aguila.providers._response.gemini import OWN_PARTS, PART, SIGNATURE
from aguila.providers._response.gemini import updates as updates

RULES = Rules(call_id=r"[a-zA-Z0-9_-]+", tool_name=r"[a-zA-Z_][a-zA-Z0-9_.-]*")

UNSIGNED = b"skip_thought_signature_validator"
"""The signature for a call that has none because another model made it, as Google's own agents send it."""

_MEDIA = {
    "image": frozenset({"image/png", "image/jpeg", "image/webp", "image/heic", "image/heif"}),
    "audio": frozenset({"audio/wav", "audio/mp3", "audio/mpeg", "audio/aiff", "audio/aac", "audio/ogg", "audio/flac"}),
    "video": frozenset(
        {"video/mp4", "video/mpeg", "video/mov", "video/quicktime", "video/avi", "video/x-flv", "video/webm"}
        | {"video/wmv", "video/3gpp", "video/mpg"}
    ),
    "document": frozenset({"application/pdf"}),
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
    allowed_media: AllowedMedia = DEFAULT_MEDIA,
) -> Agent:
    """Make an agent with a model of Google. ``client`` is a ``google.genai.Client``; for the rest see ``openai.agent``.

    ``options`` are members of the request's ``config``. Raises ``MissingExtra`` if a client has to be made and the SDK
    is not installed, ``TypeError`` for another object as client.
    """
    client = make_client(client, "google.genai.Client", extra="gemini", package="google-genai", is_valid=_is_client)
    made = _Gemini(client, model, provider, options)
    return make_agent(made, tools=tools, instructions=instructions, max_rounds=max_rounds, allowed_media=allowed_media)


def _is_client(client: Any) -> bool:
    return hasattr(client, "aio")


class _Gemini(SDKModel):
    multimodal = multimodal(inputs=("audio", "video"), outputs=("image", "audio"))

    async def answer(self, prompt: Prompt, warn: Warn) -> AsyncIterator[ChatUpdate]:
        view = await make_offloaded(prompt, _view, warn)
        made = await make_offloaded(prompt, request, model=self._model, warn=warn, view=view)
        made["config"] = add_options(made["config"], self._options)
        stream = await self._client.aio.models.generate_content_stream(**made)
        try:
            async for update in updates(stream, model=self._model, provider=self._provider, view=view):
                yield update
        finally:
            await stream.aclose()


# Request


def _view(prompt: Prompt, warn: Warn) -> ProviderView:
    return ProviderView(prompt, RULES, warn, prepare=_with_own_artefact)


def _with_own_artefact(message: ChatMessage) -> ChatMessage:
    """Move the opaque value of a message to its text, because messages may be joined while contents stay."""
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
            here = pack_place(value, None if place is None else place.moved(-start))
            contents[index] = replace(text, additional_properties={**text.additional_properties, ENCRYPTED_VALUE: here})
            return replace(message, contents=contents)
        start = end
    return replace(message, contents=[*contents, TextContent("", additional_properties={ENCRYPTED_VALUE: value})])


def request(
    prompt: Prompt, *, model: str, warn: Warn | None = None, view: ProviderView | None = None
) -> dict[str, Any]:
    """Make the arguments of ``client.aio.models.generate_content_stream`` for an answer to a prompt."""
    warn = log_notice if warn is None else warn
    view = _view(prompt, warn) if view is None else view
    system = [prompt.system_text]
    called: dict[str, str] = {}  # names of calls, which their results have to repeat
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
        # Results are in a content of their own. The user's next message is another one, which the API allows.
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
        budget = SchemaBudget()
        declarations = [
            {
                "name": name,
                "description": tool.description or name,
                "parameters_json_schema": gemini_schema(tool.parameters, budget=budget),
            }
            for name, tool in view.tools
        ]
        config["tools"] = [{"function_declarations": declarations}]
    contents = [{"role": role, "parts": parts} for role, parts in turns]
    return {"model": model, "contents": contents, "config": config}


def _sign_current_turn(turns: list[tuple[str, list[Block]]]) -> None:
    """Mark unsigned calls: the first call of each step since the last user message must be signed."""
    for role, parts in reversed(turns):
        if role == "user" and not _is_result(parts[0]):
            return
        first = next((part for part in parts if "function_call" in part), None)
        if first is not None:
            first.setdefault("thought_signature", UNSIGNED)


def _is_result(part: Block) -> bool:
    return "function_response" in part


def _parts(message: ChatMessage, view: ProviderView, called: dict[str, str], warn: Warn) -> list[Block]:
    if message.role == "tool":
        return [_result(result, view, called, warn) for result in message.results]
    if message.role != "assistant":
        return make_blocks(message.contents, _part, warn)
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
                made += [block | _signed(_artefact_of(content)) for block in make_blocks([content], part, warn)]
            case _:
                made += make_blocks([content], _text_part, warn)
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
    """Split a text into parts: the signed one, and the text before and after it."""
    found = _artefact_of(content)
    signed = _signed(found)
    if found is None or not signed:
        return make_blocks([content], _text_part, warn)
    place = Place.of(found)
    if place is None or place.is_after_calls:
        return [{"text": content.text, **signed}]
    end = place.start + place.length
    before, after = content.text[: place.start], content.text[end:]
    pieces = [{"text": before}, {"text": content.text[place.start : end], **signed}, {"text": after}]
    return [piece for piece in pieces if piece["text"] != "" or "thought_signature" in piece]


def _thought(content: ReasoningContent) -> list[Block]:
    """Return the parts to send back for reasoning: the signed piece, or the complete part in its opaque value."""
    found = unpack(content.protected_data, SIGNATURE)
    signed = _signed(found)
    if found is not None and signed:
        length = found.get("thought", "")
        if not length.isdecimal():
            return [{"text": "", **signed}]
        return [{"text": content.text[max(0, len(content.text) - int(length)) :], "thought": True, **signed}]
    own = unpack(content.protected_data, PART)
    part: Any = None if own is None else read_json(own.get("part", ""))
    if own is not None and is_object(part) and len(part) == 1 and next(iter(part)) in OWN_PARTS:
        return [{**part, **_signed(own)}]
    return []


def _result(result: FunctionResultContent, view: ProviderView, called: dict[str, str], warn: Warn) -> Block:
    blocks = make_blocks(result_contents(result, warn), _text_part, warn)
    text = "\n".join([block["text"] for block in blocks])
    response = {"error": text} if result.error is not None else {"result": text}
    call_id = view.call_id(result.call_id)
    return {"function_response": {"id": call_id, "name": called[result.call_id], "response": response}}


def _text_part(content: TextContent | File) -> Block:
    return {"text": require_text(content)}


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
        address = urlsplit(content.uri).path if isinstance(content, UriContent) else file_name(content, "")
        media_type = guess_type(address)[0] or ""
    if media_type == "":
        raise UnreadablePart("its media type is unknown, and its name does not show it")
    if isinstance(content, UriContent):
        return {"file_data": {"mime_type": media_type, "file_uri": read_url(content)}}
    return {"file_data": {"mime_type": media_type, "file_uri": read_file_id(content, "google")}}
