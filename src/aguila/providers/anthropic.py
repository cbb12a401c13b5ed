"""Agents with Anthropic's models (Messages API)::

    from anthropic import AsyncAnthropic
    from aguila import App
    from aguila.providers import anthropic

    app = App(anthropic.agent(AsyncAnthropic(), model="claude-sonnet-5-5", tools=[weather], instructions="Be brief."))

``request`` makes the arguments of ``client.messages.create``, ``updates`` reads its stream. The API requires
alternating roles, with the user first and last, and no empty content; results are at the start of the user's turn after
the calls. System and developer messages of the history become part of the instructions. Reasoning is sent back with its
signature, with empty text if it was not shown, and is dropped without a signature. Blocks of the provider's own tools
are sent back unchanged, and so are the files that they made and citations of web search. A paused answer is sent back
at the end, to be continued. Skipped with a notice: audio, video, images and files of unsupported types, and blocks of
betas (a summary of the history, a change of model).
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterable, Mapping
from typing import Any

from aguila.chat import (
    ChatMessage,
    ChatUpdate,
    DataContent,
    FunctionCallContent,
    FunctionResultContent,
    HostedFileContent,
    ReasoningContent,
    TextContent,
    UriContent,
)
from aguila.chat.allowed_media import DEFAULT_MEDIA, AllowedMedia
from aguila.chat.media import UnreadablePart
from aguila.chat.tools import AnyTool
from aguila.codec.json.values import is_object
from aguila.codec.notices import Notice, Warn, log_notice
from aguila.protocol import Tool
from aguila.providers._agent.loop import MAX_ROUNDS, Agent, Instructions, make_agent
from aguila.providers._agent.sdk_model import SDKModel, make_client
from aguila.providers._encrypted_values import read_json, unpack
from aguila.providers._request.media import (
    IMAGES,
    PDF,
    Block,
    File,
    encode_data,
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
from aguila.providers._request.schemas.parts import SchemaBudget
from aguila.providers._request.schemas.standard import standard_schema
from aguila.providers._response.anthropic import BLOCK, OWN_CALLS, REDACTED, THINKING, is_own_result, is_sent_back
from aguila.providers._response.anthropic import updates as updates
from aguila.providers._response.citations import citations_of, split_by_citations
from aguila.providers._response.reader import FINISH_REASON

RULES = Rules(call_id=r"[a-zA-Z0-9_-]+", tool_name=r"[a-zA-Z0-9_-]+")
PROPERTY_NAME = r"[a-zA-Z0-9_.-]{1,64}"

WEB_CITATION = "web_search_result_location"
"""The type of citations that are sent back."""
_WEB_CITATION = ("type", "cited_text", "encrypted_index", "title", "url")
GONE = "This tool is no longer available."
"""The description of tools that only the history has."""
MAX_TOKENS = 8192
"""Default limit on the length of an answer, which the API requires; ``options`` may change it."""


def agent(
    client: Any = None,
    *,
    model: str,
    tools: Iterable[AnyTool] = (),
    instructions: Instructions = None,
    max_rounds: int = MAX_ROUNDS,
    provider: str = "anthropic",
    options: Mapping[str, Any] | None = None,
    allowed_media: AllowedMedia = DEFAULT_MEDIA,
) -> Agent:
    """Make an agent with a model of Anthropic. ``client`` is an ``AsyncAnthropic``; for the rest see ``openai.agent``.

    Raises ``MissingExtra`` if a client has to be made and the SDK is not installed, ``TypeError`` for a blocking
    client.
    """
    client = make_client(client, "anthropic.AsyncAnthropic", extra="anthropic", package="anthropic")
    made = _Messages(client, model, provider, options)
    return make_agent(made, tools=tools, instructions=instructions, max_rounds=max_rounds, allowed_media=allowed_media)


class _Messages(SDKModel):
    multimodal = multimodal(inputs=())

    async def answer(self, prompt: Prompt, warn: Warn) -> AsyncIterator[ChatUpdate]:
        view = await make_offloaded(prompt, ProviderView, RULES, warn)
        made = await make_offloaded(prompt, request, model=self._model, warn=warn, view=view)
        stream = await self._client.messages.create(**add_options(made, self._options))
        async with stream:
            async for update in updates(stream, model=self._model, provider=self._provider, view=view):
                yield update


# Request


def request(
    prompt: Prompt, *, model: str, warn: Warn | None = None, view: ProviderView | None = None
) -> dict[str, Any]:
    """Make the arguments of ``client.messages.create`` for a streamed answer to a prompt."""
    warn = log_notice if warn is None else warn
    view = ProviderView(prompt, RULES, warn) if view is None else view
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
        "messages": [{"role": role, "content": blocks} for role, blocks in _trim_turns(turns, _is_paused(view))],
        "stream": True,
    }
    texts = [text for text in system if text.strip() != ""]
    if texts:
        made["system"] = "\n\n".join(texts)
    budget = SchemaBudget()
    declared = [
        {
            "name": name,
            "description": tool.description,
            "input_schema": _schema(tool, budget, warn),
        }
        for name, tool in view.tools
    ]
    if not declared:  # the API refuses calls in the history if no tool is declared
        used = dict.fromkeys(block["name"] for _, blocks in turns for block in blocks if block["type"] == "tool_use")
        declared = [{"name": name, "description": GONE, "input_schema": standard_schema(None)} for name in used]
    if declared:
        made["tools"] = declared
    return made


def _schema(tool: Tool, budget: SchemaBudget, warn: Warn) -> Block:
    """Return the schema of a tool's arguments. The tool itself still checks dropped parameters."""
    refused: dict[str, None] = {}
    cleaned = standard_schema(
        tool.parameters, budget=budget, property_name=PROPERTY_NAME, on_dropped=refused.setdefault
    )
    if refused:
        names = ", ".join(map(repr, refused))
        message = f"the tool {tool.name!r} is declared without {names}: Anthropic refuses such parameter names"
        warn(Notice(rule="providers", message=message))
    return cleaned


def _is_paused(view: ProviderView) -> bool:
    """Return whether the last message is a paused answer, which the provider wants back to continue it."""
    return bool(view.messages) and view.messages[-1].additional_properties.get(FINISH_REASON) == "pause"


def _trim_turns(turns: list[tuple[str, list[Block]]], is_paused: bool) -> list[tuple[str, list[Block]]]:
    """Return the turns from the user's first to the user's last, without reasoning that nothing follows."""
    taken: list[tuple[str, list[Block]]] = []
    for index, (role, blocks) in enumerate(turns):
        if not (is_paused and index == len(turns) - 1):
            blocks = _drop_unpaired_blocks(blocks)
        if not blocks:
            continue
        if taken and taken[-1][0] == role:
            taken[-1] = (role, taken[-1][1] + blocks)
        else:
            taken.append((role, blocks))
    if not any(is_own_result(block) for _, blocks in taken for block in blocks):
        for _, blocks in taken:
            for block in blocks:
                block.pop("citations", None)  # their sources are not sent
    if not taken or taken[0][0] != "user":
        taken.insert(0, ("user", [{"type": "text", "text": BEGIN}]))
    if taken[-1][0] != "user" and not is_paused:
        taken.append(("user", [{"type": "text", "text": GO_ON}]))
    return taken


def _drop_unpaired_blocks(blocks: list[Block]) -> list[Block]:
    """Drop reasoning at the end of a turn, and unpaired calls and results of the provider's own tools."""
    made = {block.get("id") for block in blocks if block["type"] in OWN_CALLS}
    answered = {block.get("tool_use_id") for block in blocks if is_own_result(block)}
    kept = [
        block
        for block in blocks
        if not (block["type"] in OWN_CALLS and block.get("id") not in answered)
        and not (is_own_result(block) and block.get("tool_use_id") not in made)
    ]
    while kept and kept[-1]["type"] in ("thinking", "redacted_thinking"):
        kept.pop()
    return kept


def _blocks(message: ChatMessage, view: ProviderView, warn: Warn) -> list[Block]:
    if message.role == "tool":
        return [_result(result, view, warn) for result in message.results]
    if message.role != "assistant":
        return make_blocks(message.contents, _block, warn)
    made: list[Block] = []  # in the original order: reasoning is refused if its neighbours have changed
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
                made += make_blocks([content], _text_block, warn)
    return made


def _cited_blocks(content: TextContent, warn: Warn) -> list[Block]:
    """Split a text into blocks with their citations.

    Only citations of web search are sent back. The provider requires them; others would need documents that are not
    sent.
    """
    wanted = [one for one in citations_of(content) if one.source.get("type") == WEB_CITATION]
    made: list[Block] = []
    for text, citations in split_by_citations(content.text, wanted):
        for block in make_blocks([TextContent(text)], _text_block, warn):
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
    if is_object(block) and is_sent_back(block):
        return block
    if content.protected_data is not None:
        warn(Notice(rule="ENC-7", message="dropped reasoning that is not signed by Anthropic"))
    return None


def _result(result: FunctionResultContent, view: ProviderView, warn: Warn) -> Block:
    blocks = make_blocks(result_contents(result, warn), _block, warn)
    made: Block = {"type": "tool_result", "tool_use_id": view.call_id(result.call_id)}
    made["content"] = blocks if blocks else ""
    if result.error is not None:
        made["is_error"] = True
    return made


def _text_block(content: TextContent | File) -> Block:
    text = require_text(content)
    if text.isspace():  # the API refuses blank text
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
        raise UnreadablePart(f"a document of type {media_type!r} by URL")
    return {
        "type": "document",
        "title": file_name(content, "document"),
        "source": _source(content, media_type, frozenset({PDF})),
    }


def _source(content: File, media_type: str, allowed: frozenset[str]) -> Block:
    if isinstance(content, UriContent):
        return {"type": "url", "url": read_url(content)}
    if isinstance(content, HostedFileContent):
        return {"type": "file", "file_id": read_file_id(content, "anthropic")}
    if media_type not in allowed:
        raise UnreadablePart(f"data of type {media_type or 'unknown'!r}")
    return {"type": "base64", "media_type": media_type, "data": encode_data(content)}
