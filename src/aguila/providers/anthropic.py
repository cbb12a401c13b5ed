"""Layer: providers. Anthropic's Messages.

Below: ``_prompt``, ``_media``, ``_schema``, ``_loop``. Above: applications:

    from anthropic import AsyncAnthropic
    from aguila import App
    from aguila.providers import anthropic

    app = App(anthropic.agent(AsyncAnthropic(), model="claude-sonnet-5-5", tools=[weather], instructions="Be brief."))

``request`` gives what ``client.messages.create`` is called with, ``updates`` reads what it streams. Messages there take
turns, begin and end with the user, and hold nothing empty; results stand at the beginning of the user's turn after the
calls. System and developer messages of the history join the instructions. A thought is sent back with its signature,
its text empty if it was not shown, and left out without one. Blocks of tools that the provider runs itself are kept and
sent back as they came, and so are the files these made and citations of its web search; an answer that it paused is
sent back at the end, to be continued. Skipped with a notice: audio, video, images and files of types that it does not
take, and blocks of its betas (a summary of the history, a change of the model).
"""

from __future__ import annotations

import inspect
from collections.abc import AsyncIterable, AsyncIterator, Iterable, Mapping
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
from aguila.chat.media import UnreadablePart
from aguila.chat.property_keys import CONTENT_ID, ENCRYPTED_VALUE_TYPE
from aguila.chat.tools import AnyTool
from aguila.codec.json import encode
from aguila.codec.notice import Notice, Warn, log_notice
from aguila.codec.values import is_object
from aguila.errors import MissingExtra
from aguila.protocol import TokenUsage, Tool
from aguila.providers._artefact import pack, read_json, unpack
from aguila.providers._citations import Citation, citations_of, member, plain, stretches, texts
from aguila.providers._loop import MAX_ROUNDS, Agent, Instructions, SDKModel, make_agent
from aguila.providers._media import (
    IMAGES,
    PDF,
    Block,
    File,
    address_of,
    base64_of,
    blocks_of,
    filename_of,
    handle_of,
    kind_of,
    media_type_of,
    result_contents,
    text_of_file,
)
from aguila.providers._prompt import BEGIN, GO_ON, Prompt, Rules, View, made_of, object_arguments, with_options
from aguila.providers._reading import FINISH_REASON, Reader, known_finish, read_stream
from aguila.providers._schema import standard_schema
from aguila.providers._usage import added, count, token_usage

RULES = Rules(call_id=r"[a-zA-Z0-9_-]+", tool_name=r"[a-zA-Z0-9_-]+")
PROPERTY_NAME = r"[a-zA-Z0-9_.-]{1,64}"

THINKING = "anthropic.thinking"
"""The kind of the artefact that is the signature of a thought."""
REDACTED = "anthropic.redacted_thinking"
"""The kind of the artefact that is a thought which does not show."""
BLOCK = "anthropic.block"
"""The kind of the artefact that is a whole block, of a tool that the provider runs itself."""
WEB_CITATION = "web_search_result_location"
"""The type of a citation that is sent back."""
_WEB_CITATION = ("type", "cited_text", "encrypted_index", "title", "url")
GONE = "This tool is not there any more."
"""What a model is told of tools that only the history knows."""
MAX_TOKENS = 8192
"""How long an answer may be, which the provider wants to be told, unless ``options`` say otherwise."""

_FINISH = {
    "end_turn": "stop",
    "stop_sequence": "stop",
    "tool_use": "stop",
    "max_tokens": "length",
    "model_context_window_exceeded": "length",
    "refusal": "refusal",
    "pause_turn": "pause",
}


def agent(
    client: Any = None,
    *,
    model: str,
    tools: Iterable[AnyTool] = (),
    instructions: Instructions = None,
    max_rounds: int = MAX_ROUNDS,
    provider: str = "anthropic",
    options: Mapping[str, Any] | None = None,
) -> Agent:
    """An agent that is a model of Anthropic. ``client`` is an ``AsyncAnthropic``; see ``openai.agent`` for the rest.

    Raises ``MissingExtra`` if a client is to be made and the SDK is not installed, ``TypeError`` for one that blocks.
    """
    made = _Messages(_client(client), model, provider, dict(options or {}))
    return make_agent(made, tools=tools, instructions=instructions, max_rounds=max_rounds)


def _client(client: Any) -> Any:
    if client is not None:
        if not inspect.iscoroutinefunction(getattr(client, "close", None)):
            raise TypeError("an agent needs the client that does not block: AsyncAnthropic")
        return client
    try:
        from anthropic import AsyncAnthropic
    except ImportError as error:
        raise MissingExtra("anthropic", "anthropic") from error
    return AsyncAnthropic()


class _Messages(SDKModel):
    async def answer(self, prompt: Prompt, warn: Warn) -> AsyncIterator[ChatUpdate]:
        view = await made_of(prompt, View, RULES, warn)
        made = await made_of(prompt, request, model=self._model, warn=warn, view=view)
        stream = await self._client.messages.create(**with_options(made, self._options))
        async with stream:
            async for update in updates(stream, model=self._model, provider=self._provider, view=view):
                yield update


# The request


def request(prompt: Prompt, *, model: str, warn: Warn | None = None, view: View | None = None) -> dict[str, Any]:
    """The arguments of ``client.messages.create`` for a stream that answers a prompt."""
    warn = log_notice if warn is None else warn
    view = View(prompt, RULES, warn) if view is None else view
    system = [prompt.system_text]
    turns: list[tuple[str, list[Block]]] = []
    for message in view.messages:
        if message.role in ("system", "developer"):
            system.append(message.text)
            continue
        role = "assistant" if message.role == "assistant" else "user"
        blocks = _blocks(message, view, warn)
        if not blocks:
            continue
        if turns and turns[-1][0] == role:
            turns[-1][1].extend(blocks)
        else:
            turns.append((role, blocks))
    made: dict[str, Any] = {
        "model": model,
        "max_tokens": MAX_TOKENS,
        "messages": [{"role": role, "content": blocks} for role, blocks in _taking_turns(turns, _is_paused(view))],
        "stream": True,
    }
    texts = [text for text in system if text.strip() != ""]
    if texts:
        made["system"] = "\n\n".join(texts)
    declared = [
        {
            "name": name,
            "description": tool.description,
            "input_schema": _schema(tool, warn),
        }
        for name, tool in view.tools
    ]
    if not declared:  # calls are refused where no tool is declared, also those that were made long ago
        used = dict.fromkeys(block["name"] for _, blocks in turns for block in blocks if block["type"] == "tool_use")
        declared = [{"name": name, "description": GONE, "input_schema": standard_schema(None)} for name in used]
    if declared:
        made["tools"] = declared
    return made


def _schema(tool: Tool, warn: Warn) -> Block:
    """The schema of a tool's arguments. The tool itself still asks for what had to be left out of it."""
    refused: dict[str, None] = {}
    cleaned = standard_schema(tool.parameters, property_name=PROPERTY_NAME, leave_out=refused.setdefault)
    if refused:
        names = ", ".join(map(repr, refused))
        message = f"the tool {tool.name!r} is declared without {names}: Anthropic refuses parameters of such names"
        warn(Notice(rule="providers", message=message))
    return cleaned


def _is_paused(view: View) -> bool:
    """Whether the last message is an answer that the provider wants back as it is, to continue it."""
    return bool(view.messages) and view.messages[-1].additional_properties.get(FINISH_REASON) == "pause"


def _taking_turns(turns: list[tuple[str, list[Block]]], is_paused: bool) -> list[tuple[str, list[Block]]]:
    """The turns without thoughts that lead to nothing, from the user's first to the user's last."""
    taken: list[tuple[str, list[Block]]] = []
    for index, (role, blocks) in enumerate(turns):
        if not (is_paused and index == len(turns) - 1):
            blocks = _without_loose_ends(blocks)
        if not blocks:
            continue
        if taken and taken[-1][0] == role:
            taken[-1] = (role, taken[-1][1] + blocks)
        else:
            taken.append((role, blocks))
    if not any(_is_own_result(block) for _, blocks in taken for block in blocks):
        for _, blocks in taken:
            for block in blocks:
                block.pop("citations", None)  # what they refer to is not there
    if not taken or taken[0][0] != "user":
        taken.insert(0, ("user", [{"type": "text", "text": BEGIN}]))
    if taken[-1][0] != "user" and not is_paused:
        taken.append(("user", [{"type": "text", "text": GO_ON}]))
    return taken


def _without_loose_ends(blocks: list[Block]) -> list[Block]:
    """A turn without thoughts at its end, nor calls and results of the provider's own tools that do not pair."""
    made = {block.get("id") for block in blocks if block["type"] in _OWN_CALLS}
    answered = {block.get("tool_use_id") for block in blocks if _is_own_result(block)}
    kept = [
        block
        for block in blocks
        if not (block["type"] in _OWN_CALLS and block.get("id") not in answered)
        and not (_is_own_result(block) and block.get("tool_use_id") not in made)
    ]
    while kept and kept[-1]["type"] in ("thinking", "redacted_thinking"):
        kept.pop()
    return kept


_OWN_CALLS = ("server_tool_use", "mcp_tool_use")


def _goes_back(block: Block) -> bool:
    """Whether a block is sent back as it came: those of the provider's own tools, and the files they made.

    Not those of its betas: a summary has to be the first of all blocks, and to be the only one. Without it the
    provider has the whole history, as before.
    """
    kind = block.get("type")
    return kind in _OWN_CALLS or _is_own_result(block) or (kind == "container_upload" and bool(block.get("file_id")))


def _is_own_result(block: Block) -> bool:
    kind = block.get("type")
    return isinstance(kind, str) and kind != "tool_result" and kind.endswith("_tool_result")


def _blocks(message: ChatMessage, view: View, warn: Warn) -> list[Block]:
    if message.role == "tool":
        return [_result(result, view, warn) for result in message.results]
    if message.role != "assistant":
        return blocks_of(message.contents, _block, warn)
    made: list[Block] = []  # in the order it was said: thoughts are refused if what stands around them has changed
    for content in message.contents:
        match content:
            case ReasoningContent():
                block = _thought(content, warn)
                if block is not None:
                    made.append(block)
            case FunctionCallContent():
                made.append(
                    {
                        "type": "tool_use",
                        "id": view.call_id(content.call_id),
                        "name": view.name(content.name),
                        "input": object_arguments(content),
                    }
                )
            case TextContent():
                made += _cited_blocks(content, warn)
            case _:
                made += blocks_of([content], _text_block, warn)
    return made


def _cited_blocks(content: TextContent, warn: Warn) -> list[Block]:
    """A text as the blocks that it came in, each with its citations. Only those of its web search go back: the provider
    wants them, and others would need documents that are not sent here so that they can be cited.
    """
    wanted = [one for one in citations_of(content) if one.source.get("type") == WEB_CITATION]
    made: list[Block] = []
    for text, citations in stretches(content.text, wanted):
        for block in blocks_of([TextContent(text)], _text_block, warn):
            its = [{name: one.source.get(name) for name in _WEB_CITATION} for one in citations]
            its = [one for one in its if all(isinstance(value, str) for name, value in one.items() if name != "title")]
            made.append({**block, "citations": its} if its else block)
    return made


def _thought(content: ReasoningContent, warn: Warn) -> Block | None:
    signed = unpack(content.protected_data, THINKING)
    if signed is not None and "signature" in signed:
        return {"type": "thinking", "thinking": content.text, "signature": signed["signature"]}
    hidden = unpack(content.protected_data, REDACTED)
    if hidden is not None and "data" in hidden:
        return {"type": "redacted_thinking", "data": hidden["data"]}
    own = unpack(content.protected_data, BLOCK)
    block: Any = None if own is None else read_json(own.get("block", ""))
    if is_object(block) and _goes_back(block):
        return block
    if content.protected_data is not None:
        warn(Notice(rule="ENC-7", message="left out a thought that is not signed by Anthropic"))
    return None


def _result(result: FunctionResultContent, view: View, warn: Warn) -> Block:
    blocks = blocks_of(result_contents(result, warn), _block, warn)
    made: Block = {"type": "tool_result", "tool_use_id": view.call_id(result.call_id)}
    made["content"] = blocks if blocks else ""
    if result.error is not None:
        made["is_error"] = True
    return made


def _text_block(content: TextContent | File) -> Block:
    text = content.text if isinstance(content, TextContent) else text_of_file(content)
    if text is None:
        raise UnreadablePart("only text may stand here")
    if text.strip() == "":
        raise UnreadablePart("it is empty")
    return {"type": "text", "text": text}


def _block(content: TextContent | File) -> Block:
    if isinstance(content, TextContent):
        return _text_block(content)
    kind, media_type = kind_of(content), media_type_of(content)
    if kind == "image":
        return {"type": "image", "source": _source(content, media_type, IMAGES)}
    if kind != "document":
        raise UnreadablePart(f"{kind} of type {media_type or 'unknown'!r}")
    if isinstance(content, DataContent) and media_type != PDF:
        return _text_block(content)
    if isinstance(content, UriContent) and media_type not in ("", PDF):
        raise UnreadablePart(f"a document of type {media_type!r} by address")
    return {
        "type": "document",
        "title": filename_of(content, "document"),
        "source": _source(content, media_type, frozenset({PDF})),
    }


def _source(content: File, media_type: str, allowed: frozenset[str]) -> Block:
    if isinstance(content, UriContent):
        return {"type": "url", "url": address_of(content)}
    if isinstance(content, HostedFileContent):
        return {"type": "file", "file_id": handle_of(content, "anthropic")}
    if media_type not in allowed:
        raise UnreadablePart(f"data of type {media_type or 'unknown'!r}")
    return {"type": "base64", "media_type": media_type, "data": base64_of(content)}


# The answer


async def updates(
    stream: AsyncIterable[Any], *, model: str, provider: str = "anthropic", view: View | None = None
) -> AsyncIterator[ChatUpdate]:
    """Chat updates for the events of a stream. ``view`` is the request's, to read the names of tools by.

    Raises ``RunFailed`` for a stream that breaks off or tells of an error.
    """
    async for update in read_stream(stream, _Reader(model, provider, view)):
        yield update


class _Call:
    """A call whose arguments arrive, after its block has begun or, at servers that do so, with it."""

    def __init__(self, call_id: str, name: str, given: Any) -> None:
        self.id = call_id
        self.name = name
        self.pieces: list[str] = []
        self._given = given

    @property
    def arguments(self) -> str:
        """All of their text."""
        text = "".join(self.pieces)
        if text.strip() != "" or not self._given:
            return text
        return self._given if isinstance(self._given, str) else encode(self._given).decode()


class _Reader(Reader):
    def __init__(self, model: str, provider: str, view: View | None) -> None:
        super().__init__(model, provider, view)
        self._message_id: str | None = None
        self._counts: dict[str, int] = {}
        self._calls: dict[int, _Call] = {}  # by place
        self._own: dict[int, tuple[Block, list[str]]] = {}  # blocks of the provider's own tools, and their input
        self._texts: dict[int, tuple[int, list[Any]]] = {}  # how much was said before a block, and what it cites

    def read(self, event: Any) -> ChatUpdate | None:
        """What an event adds, or None."""
        contents: list[Content] = []
        match event.type:
            case "message_start":
                self._message_id = event.message.id
                self._count(getattr(event.message, "usage", None))
            case "content_block_start":
                contents += self._begin(event.index, event.content_block)
            case "content_block_delta":
                contents += self._delta(event.index, event.delta)
            case "content_block_stop":
                contents += self._end(event.index)
            case "message_delta":
                self._count(getattr(event, "usage", None))
                reason = getattr(event.delta, "stop_reason", None)
                if reason is not None:
                    self.finish = known_finish(_FINISH, reason)
            case _:
                return None
        if not contents:
            return None
        return ChatUpdate(contents=contents, message_id=self._message_id, raw_representation=event)

    def _begin(self, index: int, block: Any) -> list[Content]:
        match block.type:
            case "text":
                self._texts[index] = (self._said, list(getattr(block, "citations", None) or ()))
                return [self._text(block.text)] if block.text != "" else []
            case "tool_use":
                name = self._own_name(block.name)
                self._calls[index] = _Call(block.id, name, getattr(block, "input", None))
                return [FunctionCallContent(block.id, name, is_complete=False)]
            case "thinking":
                begun = [ReasoningContent(block.thinking, additional_properties=_of(index))] if block.thinking else []
                return [*begun, *_signature(index, getattr(block, "signature", None))]
            case "redacted_thinking":
                artefact = pack(REDACTED, data=block.data)
                return [ReasoningContent("", artefact, additional_properties=_of(index, REDACTED))]
            case other:
                whole: Block = block.model_dump(mode="json", exclude_unset=True)
                if _goes_back(whole):
                    self._leave_out(other, "its block is kept for the model and not shown")
                    self._own[index] = (whole, [])
                else:
                    self._leave_out(other, "its block is left out")
                return []

    def _delta(self, index: int, delta: Any) -> list[Content]:
        match delta.type:
            case "text_delta":
                return [self._text(delta.text)]
            case "citations_delta" if index in self._texts:
                self._texts[index][1].append(delta.citation)
                return []
            case "thinking_delta":
                return [ReasoningContent(delta.thinking, additional_properties=_of(index))]
            case "signature_delta":
                return _signature(index, delta.signature)
            case "input_json_delta" if index in self._calls:
                call = self._calls[index]
                call.pieces.append(delta.partial_json)
                return [FunctionCallContent(call.id, call.name, delta.partial_json, is_complete=False)]
            case "input_json_delta" if index in self._own:
                self._own[index][1].append(delta.partial_json)
                return []
            case other:
                self._leave_out(other, "it is left out")
                return []

    def _end(self, index: int) -> list[Content]:
        if index in self._texts:
            begins, sources = self._texts.pop(index)
            return self._cite(*[self._citation(source, begins) for source in sources])
        if index in self._calls:
            call = self._calls[index]
            whole = FunctionCallContent(call.id, call.name, call.arguments)
            # A block that was cut off at the limit of tokens is stopped just so, which only the end will tell.
            return [whole] if whole.arguments != "" and whole.parsed_arguments is not None else []
        if index in self._own:
            block, pieces = self._own.pop(index)
            given = read_json("".join(pieces))
            if is_object(given):
                block["input"] = given
            artefact = pack(BLOCK, block=encode(block).decode())
            return [ReasoningContent("", artefact, additional_properties=_of(index, BLOCK))]
        return []

    def _citation(self, source: Any, begins: int) -> Citation:
        """A citation of a block, all of which it is about."""
        url, text = member(source, "url") or member(source, "source"), member(source, "cited_text")
        title = member(source, "title") or member(source, "document_title")
        known = texts(url=url, title=title, text=text)
        return Citation(source=plain(source), provider=self._provider, start=begins, end=self._said, **known)

    def _count(self, usage: Any) -> None:
        """Counts are cumulative: those of the end take the place of those of the beginning."""
        for name in ("input_tokens", "output_tokens", "cache_read_input_tokens", "cache_creation_input_tokens"):
            found = count(usage, name)
            if found is not None:
                self._counts[name] = found
        found = count(getattr(usage, "output_tokens_details", None), "thinking_tokens")
        if found is not None:
            self._counts["thinking_tokens"] = found
        if self._counts:
            self.usage = self._usage()

    def _usage(self) -> TokenUsage:
        get = self._counts.get
        cached, written = get("cache_read_input_tokens"), get("cache_creation_input_tokens")
        # input_tokens has neither in it (USE-3); output_tokens has the thoughts.
        return token_usage(
            self._provider,
            self._model,
            input_tokens=added(get("input_tokens"), cached, written),
            output_tokens=get("output_tokens"),
            reasoning=get("thinking_tokens"),
            cached=cached,
            cache_written=written,
        )


def _of(index: int, kind: str | None = None) -> dict[str, Any]:
    """Which block a thought belongs to, and what its artefact is."""
    properties: dict[str, Any] = {CONTENT_ID: f"block-{index}"}
    return properties if kind is None else {**properties, ENCRYPTED_VALUE_TYPE: kind}


def _signature(index: int, signature: str | None) -> list[Content]:
    """The signature of a thought, if there is any: it is empty where the thought has only begun."""
    if not signature:
        return []
    return [ReasoningContent("", pack(THINKING, signature=signature), additional_properties=_of(index, THINKING))]
