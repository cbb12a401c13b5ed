"""Layer: providers. OpenAI's Responses.

Below: ``_prompt``, ``_media``, ``_schema``. Above: ``aguila.providers.openai``. Nothing here imports the SDK or opens a
connection: ``request`` gives what ``client.responses.create`` is called with, ``updates`` reads what it streams.

Nothing is stored at the provider: thoughts come back encrypted, travel with the thread, and are sent again (P18). So do
the phase of a message, commentary or final answer, and items of tools that the provider runs itself, such as a web
search: a thought is refused without what it led to.
Skipped with a notice: audio, video, images and files of types that it does not take.
"""

from __future__ import annotations

from collections.abc import AsyncIterable, AsyncIterator
from typing import Any

from aguila.chat import (
    ChatMessage,
    ChatUpdate,
    Content,
    DataContent,
    FunctionCallContent,
    FunctionResultContent,
    HostedFileContent,
    ReasoningContent,
    TextContent,
    UriContent,
)
from aguila.chat.media import UnreadablePart, decode_base64
from aguila.chat.property_keys import CONTENT_ID, ENCRYPTED_VALUE, ENCRYPTED_VALUE_TYPE
from aguila.codec.json import encode
from aguila.codec.notice import Warn, log_notice
from aguila.codec.values import is_array, is_object
from aguila.providers._artefact import Place, pack, read_json, unpack
from aguila.providers._citations import Citation, member, place_of, plain, texts
from aguila.providers._failure import told_failure
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
from aguila.providers._usage import count, token_usage

RULES = Rules(call_id=r"[^\s].*", tool_name=r"[a-zA-Z0-9_-]+", longest_id=64)

_FINISH = {"max_output_tokens": "length", "content_filter": "content_filter"}

REASONING = "openai.reasoning"
"""The kind of the artefact that a thought of this provider is: the item's id and its encrypted content."""
ITEM = "openai.item"
"""The kind of the artefact that is a whole item, of a tool that the provider runs itself."""

MESSAGE = "openai.message"
"""The kind of the artefact of a text: whether it is commentary or the final answer, which the model wants to know."""

_PHASES = ("commentary", "final_answer")
_PICTURE = "image_generation_call"
_PAIRS = {"shell_call": "shell_call_output", "tool_search_call": "tool_search_output"}
_OWN = frozenset(
    {
        _PICTURE,
        "code_interpreter_call",
        "compaction",
        "file_search_call",
        "mcp_call",
        "mcp_list_tools",
        "web_search_call",
        *_PAIRS,
        *_PAIRS.values(),
    }
)
"""The types of items that may be sent back as they came. Others ask for an answer that nobody here can give."""
_GAP: Block = {"type": "gap"}
"""Stands where an item was that is not sent back: thoughts before it have lost what they led to."""


def request(prompt: Prompt, *, model: str, warn: Warn | None = None, view: View | None = None) -> dict[str, Any]:
    """The arguments of ``client.responses.create`` for a stream that answers a prompt."""
    warn = log_notice if warn is None else warn
    view = View(prompt, RULES, warn) if view is None else view
    items: list[Block] = []
    for message in view.messages:
        items += _items(message, view, warn)
    items = _without_lonely_thoughts(_without_loose_items(items))
    if not any(item.get("role") != "system" for item in items):
        items.append({"role": "user", "content": [{"type": "input_text", "text": BEGIN}]})
    made: dict[str, Any] = {
        "model": model,
        "input": items,
        "stream": True,
        "store": False,
        "include": ["reasoning.encrypted_content"],
    }
    if prompt.system_text != "":
        made["instructions"] = prompt.system_text
    if view.tools:
        made["tools"] = [
            {
                "type": "function",
                "name": name,
                "description": tool.description,
                "parameters": standard_schema(tool.parameters),
                "strict": False,
            }
            for name, tool in view.tools
        ]
    return made


def _items(message: ChatMessage, view: View, warn: Warn) -> list[Block]:
    match message.role:
        case "assistant":
            return _assistant(message, view, warn)
        case "tool":
            return [_output(result, view, warn) for result in message.results]
        case "system" | "developer":
            text = message.text
            role = message.role
            return [{"role": role, "content": [{"type": "input_text", "text": text}]}] if text.strip() != "" else []
        case _:
            blocks = blocks_of(message.contents, _part, warn)
            return [{"role": "user", "content": blocks}] if blocks else []


def _assistant(message: ChatMessage, view: View, warn: Warn) -> list[Block]:
    items: list[Block] = []
    said = 0
    picture: Block | None = None  # whose bytes are the next content, if they are still there
    for content in message.contents:
        if picture is not None and isinstance(content, DataContent) and content.data != b"":
            items[-1] = {**picture, "result": base64_of(content)}
            picture = None
            continue
        picture = None
        match content:
            case ReasoningContent() if (own := _own_item(content)) is not None:
                picture = own if own["type"] == _PICTURE else None
                items.append(_GAP if picture is not None else own)
            case ReasoningContent():
                thought = unpack(content.protected_data, REASONING)
                if thought is not None and "id" in thought and "encrypted_content" in thought:
                    summary = [{"type": "summary_text", "text": text} for text in _summary(content.text, thought)]
                    kept = {name: thought[name] for name in ("id", "encrypted_content")}
                    items.append({"type": "reasoning", "summary": summary, **kept})
            case FunctionCallContent():
                items.append(
                    {
                        "type": "function_call",
                        "call_id": view.call_id(content.call_id),
                        "name": view.name(content.name),
                        "arguments": encode(object_arguments(content)).decode(),
                    }
                )
            case TextContent():
                if content.text != "":
                    phase = _phase(content, 0, len(content.text)) or _phase(message, said, said + len(content.text))
                    items.append({"role": "assistant", "content": content.text, **phase})
                    said += len(content.text)
            case _:
                items += [
                    {"role": "assistant", "content": block["text"]} for block in blocks_of([content], _text_part, warn)
                ]
    return items


def _phase(holder: ChatMessage | TextContent, start: int, end: int) -> Block:
    """The phase of the stretch of a text, if its artefact was given at the end of that."""
    kept = unpack(holder.additional_properties.get(ENCRYPTED_VALUE), MESSAGE)
    if kept is None or kept.get("phase") not in _PHASES:
        return {}
    place = Place.of(kept)
    return {"phase": kept["phase"]} if place is None or start < place.start <= end else {}


def _own_item(content: ReasoningContent) -> Block | None:
    """The item that an artefact is; a gap for one that is not to be sent back."""
    kept = unpack(content.protected_data, ITEM)
    if kept is None:
        return None
    item: Any = read_json(kept.get("item", ""))
    return item if is_object(item) and item.get("type") in _OWN and isinstance(item.get("id"), str) else _GAP


def _without_loose_items(items: list[Block]) -> list[Block]:
    """The items with gaps for those of the provider's own tools that come twice, or without their other half."""
    made = {(kind, item.get("call_id")) for item in items if (kind := item.get("type")) in _OWN}
    other = {**_PAIRS, **{output: call for call, output in _PAIRS.items()}}
    kept: list[Block] = []
    seen: set[str] = set()
    for item in items:
        kind = item.get("type")
        if kind in _OWN:
            is_loose = kind in other and (other[kind], item.get("call_id")) not in made
            if is_loose or item["id"] in seen:
                kept.append(_GAP)
                continue
            seen.add(item["id"])
        kept.append(item)
    return kept


_BETWEEN = "\n\n"
"""What stands between the parts of a summary where they are shown as one thought."""


def _summary(text: str, thought: dict[str, str]) -> list[str]:
    """A summary as the parts that it came in, if the text is still the one that was shown."""
    lengths: Any = read_json(thought.get("parts", ""))
    parts: list[str] = []
    start = 0
    for length in lengths if is_array(lengths) and all(type(one) is int and one >= 0 for one in lengths) else ():
        parts.append(text[start : start + length])
        start += length + len(_BETWEEN)
    if parts and _BETWEEN.join(parts) == text:
        return parts
    return [text] if text != "" else []


def _without_lonely_thoughts(items: list[Block]) -> list[Block]:
    """A thought is refused unless what it led to follows; and its id must not come twice."""
    kept: list[Block] = []
    seen: set[str] = set()
    for index, item in enumerate(items):
        if item.get("type") == "reasoning":
            following = next((one for one in items[index + 1 :] if one.get("type") != "reasoning"), None)
            leads = following is not None and (
                following.get("role") == "assistant" or following.get("type") in ("function_call", *_OWN)
            )
            if not leads or item["id"] in seen:
                continue
            seen.add(item["id"])
        if item is not _GAP:
            kept.append(item)
    return kept


def _output(result: FunctionResultContent, view: View, warn: Warn) -> Block:
    blocks = blocks_of(result_contents(result, warn), _part, warn)
    only_text = all(block["type"] == "input_text" for block in blocks)
    output: Any = "\n".join([block["text"] for block in blocks]) if only_text else blocks
    return {"type": "function_call_output", "call_id": view.call_id(result.call_id), "output": output}


def _text_part(content: TextContent | File) -> Block:
    text = content.text if isinstance(content, TextContent) else text_of_file(content)
    if text is None:
        raise UnreadablePart("only text may stand here")
    if text == "":
        raise UnreadablePart("it is empty")
    return {"type": "input_text", "text": text}


def _part(content: TextContent | File) -> Block:
    if isinstance(content, TextContent):
        return _text_part(content)
    kind, media_type = kind_of(content), media_type_of(content)
    if kind == "image":
        return {"type": "input_image", "detail": "auto", **_image(content, media_type)}
    if kind != "document":
        raise UnreadablePart(f"{kind} of type {media_type or 'unknown'!r}")
    if isinstance(content, HostedFileContent):
        return {"type": "input_file", "file_id": handle_of(content, "openai")}
    if isinstance(content, UriContent):
        return {"type": "input_file", "file_url": address_of(content)}
    if media_type == PDF:
        return {
            "type": "input_file",
            "filename": filename_of(content, "document.pdf"),
            "file_data": data_uri(content),
        }
    return _text_part(content)


def _image(content: File, media_type: str) -> Block:
    if isinstance(content, UriContent):
        return {"image_url": address_of(content)}
    if isinstance(content, HostedFileContent):
        return {"file_id": handle_of(content, "openai")}
    if media_type in IMAGES:
        return {"image_url": data_uri(content)}
    raise UnreadablePart(f"an image of type {media_type or 'unknown'!r}")


# The answer


async def updates(
    stream: AsyncIterable[Any], *, model: str, provider: str = "openai", view: View | None = None
) -> AsyncIterator[ChatUpdate]:
    """Chat updates for the events of a stream. ``view`` is the request's, to read the names of tools by.

    Raises ``RunFailed`` for a stream that breaks off or tells of an error.
    """
    async for update in read_stream(stream, _Reader(model, provider, view)):
        yield update


class _Reader(Reader):
    def __init__(self, model: str, provider: str, view: View | None) -> None:
        super().__init__(model, provider, view)
        self._calls: dict[Any, tuple[str, str]] = {}  # by the item's place: the id and the name
        self._told: dict[Any, int] = {}  # by the item's place: how much of the arguments
        self._shown: dict[str, str] = {}  # how much of a thought was shown, by the item's id
        self._refused = False
        self._begun: dict[tuple[Any, Any], int] = {}  # by item and part, how much was said before

    def is_slow(self, event: Any) -> bool:
        """Items of tools that the provider runs itself come whole, pictures among them."""
        return event.type == "response.output_item.done" and event.item.type in _OWN

    def read(self, event: Any) -> ChatUpdate | None:
        """What an event adds, or None."""
        contents: list[Content] = []
        match event.type:
            case "response.output_text.delta":
                self._begun.setdefault((event.output_index, event.content_index), self._said)
                contents.append(self._text(event.delta, **{CONTENT_ID: event.item_id}))
            case "response.refusal.delta":
                self._refused = True
                contents.append(self._text(event.delta, **{CONTENT_ID: event.item_id}))
            case "response.reasoning_summary_text.delta" | "response.reasoning_text.delta":
                contents.append(self._thought(event.item_id, event.delta))
            case "response.reasoning_summary_part.added":
                if getattr(event, "summary_index", 0) > 0:
                    contents.append(self._thought(event.item_id, _BETWEEN))
            case "response.output_item.added":
                if event.item.type == "function_call":
                    contents.append(self._begin(event))
            case "response.function_call_arguments.delta":
                call_id, name = self._calls[event.output_index]
                self._told[event.output_index] = self._told.get(event.output_index, 0) + len(event.delta)
                contents.append(FunctionCallContent(call_id, name, event.delta, is_complete=False))
            case "response.output_item.done":
                contents += self._end(event)
            case "response.output_text.annotation.added":
                contents += self._citation(event)
            case "response.completed" | "response.incomplete":
                self._count(event.response)
                self.finish = self._finish(event.response)
            case "response.failed":
                self._count(event.response)
                raise told_failure(getattr(event.response, "error", None))
            case "error":
                raise told_failure(event)
            case _:
                return None
        if not contents:
            return None
        # Every message that a response has is one: commentary is not to be joined with the answer.
        is_text = isinstance(contents[0], TextContent)
        given = contents[0].additional_properties.get(CONTENT_ID) if is_text else None
        return ChatUpdate(contents=contents, message_id=given, raw_representation=event)

    def _citation(self, event: Any) -> list[Content]:
        source = event.annotation
        if source is None:
            return []
        begins = self._begun.get((event.output_index, event.content_index), self._said)
        title = member(source, "title") or member(source, "filename")
        known = texts(url=member(source, "url"), title=title)
        return self._cite(Citation(source=plain(source), provider=self._provider, **place_of(source, begins), **known))

    def _begin(self, event: Any) -> FunctionCallContent:
        name = self._own_name(event.item.name)
        self._calls[event.output_index] = (event.item.call_id, name)
        return FunctionCallContent(event.item.call_id, name, is_complete=False)

    def _end(self, event: Any) -> list[Content]:
        item = event.item
        if item.type == "function_call":
            if event.output_index not in self._calls:
                self._begin(event)
            call_id, name = self._calls[event.output_index]
            arguments = item.arguments or ""
            if getattr(item, "status", None) == "incomplete":  # END means complete (TOOL-3): the end will tell
                more = arguments[self._told.get(event.output_index, 0) :]
                return [FunctionCallContent(call_id, name, more, is_complete=False)]
            return [FunctionCallContent(call_id, name, arguments)]
        match item.type:
            case "reasoning":
                return self._end_thought(item)
            case "message":
                return self._end_text(item)
            case _:
                return self._own(item)

    def _end_text(self, item: Any) -> list[Content]:
        phase = getattr(item, "phase", None)
        if phase not in _PHASES or not any(getattr(part, "text", "") for part in item.content):
            return []
        kept = {ENCRYPTED_VALUE: pack(MESSAGE, phase=phase), ENCRYPTED_VALUE_TYPE: MESSAGE, CONTENT_ID: item.id}
        return [TextContent("", additional_properties=kept)]

    def _own(self, item: Any) -> list[Content]:
        """An item of a tool that the provider runs itself: kept for the model; a picture is shown as well."""
        whole = item.model_dump(mode="json", exclude_unset=True)
        picture = whole.pop("result", None) if item.type == _PICTURE else None
        file: list[Content] = []
        if isinstance(picture, str) and picture != "":
            try:
                data = decode_base64(picture)
            except UnreadablePart:
                self._leave_out(item.type, "its picture is not base64, and left out")
            else:
                kind = whole.get("output_format")
                file = [DataContent(data, f"image/{kind if kind in ('jpeg', 'webp') else 'png'}")]
        else:
            how = "its item is kept for the model and not shown" if item.type in _OWN else "it is left out"
            self._leave_out(item.type, how)
        artefact = pack(ITEM, item=encode(whole).decode())
        properties = {CONTENT_ID: f"item-{whole.get('id')}", ENCRYPTED_VALUE_TYPE: ITEM}
        return [ReasoningContent("", artefact, additional_properties=properties), *file]

    def _end_thought(self, item: Any) -> list[Content]:
        encrypted = getattr(item, "encrypted_content", None)
        shown = self._shown.get(item.id, "")
        parts = [part.text for part in getattr(item, "summary", None) or ()]
        text = "" if shown != "" else _BETWEEN.join(parts)
        if not isinstance(encrypted, str) or encrypted == "":
            return [self._thought(item.id, text)] if text != "" else []
        told = {"parts": encode([len(part) for part in parts]).decode()} if len(parts) > 1 else {}
        artefact = pack(REASONING, id=item.id, encrypted_content=encrypted, **told)
        properties = {CONTENT_ID: item.id, ENCRYPTED_VALUE_TYPE: REASONING}
        return [ReasoningContent(text, artefact, additional_properties=properties)]

    def _thought(self, item_id: str, text: str) -> ReasoningContent:
        self._shown[item_id] = self._shown.get(item_id, "") + text
        return ReasoningContent(text, additional_properties={CONTENT_ID: item_id})

    def _finish(self, response: Any) -> str:
        if self._refused:
            return "refusal"
        reason = getattr(getattr(response, "incomplete_details", None), "reason", None)
        status = getattr(response, "status", None)
        if status == "failed":  # some servers say so in the event of one that is complete
            raise told_failure(getattr(response, "error", None))
        if reason is None and status == "incomplete":
            reason = "incomplete"
        return "stop" if reason is None else known_finish(_FINISH, reason)

    def _count(self, response: Any) -> None:
        usage = getattr(response, "usage", None)
        if usage is None:
            return
        given, made = getattr(usage, "input_tokens_details", None), getattr(usage, "output_tokens_details", None)
        # input_tokens has the cached ones in it, output_tokens those of thoughts.
        self.usage = token_usage(
            self._provider,
            self._model,
            input_tokens=count(usage, "input_tokens"),
            output_tokens=count(usage, "output_tokens"),
            reasoning=count(made, "reasoning_tokens"),
            cached=count(given, "cached_tokens"),
            cache_written=count(given, "cache_write_tokens"),
        )
