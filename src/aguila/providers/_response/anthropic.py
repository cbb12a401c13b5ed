"""Read the stream of Anthropic's Messages API."""

from __future__ import annotations

from typing import Any

from aguila.chat import (
    ChatUpdate,
    Content,
    FunctionCallContent,
    ReasoningContent,
)
from aguila.chat.property_keys import CONTENT_ID, ENCRYPTED_VALUE_TYPE
from aguila.codec.json.encoder import encode
from aguila.codec.json.values import is_object
from aguila.protocol import TokenUsage
from aguila.providers._encrypted_values import pack, read_json
from aguila.providers._request.media import (
    Block,
)
from aguila.providers._request.prompt import (
    ProviderView,
)
from aguila.providers._response.citations import Citation, member, plain, texts
from aguila.providers._response.reader import Reader, known_finish, make_updates
from aguila.providers._response.usage import add_counts, count, token_usage

THINKING = "anthropic.thinking"
"""Kind of the opaque value that is the signature of reasoning."""
REDACTED = "anthropic.redacted_thinking"
"""Kind of the opaque value that is hidden reasoning."""
BLOCK = "anthropic.block"
"""Kind of the opaque value that is a complete block of one of the provider's own tools."""
_FINISH = {
    "end_turn": "stop",
    "stop_sequence": "stop",
    "tool_use": "stop",
    "max_tokens": "length",
    "model_context_window_exceeded": "length",
    "refusal": "refusal",
    "pause_turn": "pause",
}
OWN_CALLS = ("server_tool_use", "mcp_tool_use")


class _Call:
    """A call whose arguments arrive after the start of its block, or with it at some servers."""

    def __init__(self, call_id: str, name: str, given: Any) -> None:
        self.id = call_id
        self.name = name
        self.pieces: list[str] = []
        self._given = given

    @property
    def arguments(self) -> str:
        """The complete arguments."""
        text = "".join(self.pieces)
        if text.strip() != "" or not self._given:
            return text
        return self._given if isinstance(self._given, str) else encode(self._given).decode()


class _Reader(Reader):
    def __init__(self, model: str, provider: str, view: ProviderView | None) -> None:
        super().__init__(model, provider, view)
        self._message_id: str | None = None
        self._counts: dict[str, int] = {}
        self._calls: dict[int, _Call] = {}  # by block index
        self._own: dict[int, tuple[Block, list[str]]] = {}  # blocks of the provider's own tools, and their input
        self._texts: dict[int, tuple[int, list[Any]]] = {}  # position of a text block in the answer, and its citations

    def read(self, event: Any) -> ChatUpdate | None:
        """Convert an event to an update, or None."""
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
                if is_sent_back(whole):
                    self._warn_dropped(other, "its block is kept for the model and not shown")
                    self._own[index] = (whole, [])
                else:
                    self._warn_dropped(other, "its block is dropped")
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
                self._warn_dropped(other, "it is dropped")
                return []

    def _end(self, index: int) -> list[Content]:
        if index in self._texts:
            begins, sources = self._texts.pop(index)
            return self._cite(*[self._citation(source, begins) for source in sources])
        if index in self._calls:
            call = self._calls[index]
            whole = FunctionCallContent(call.id, call.name, call.arguments)
            # A block that the token limit cut off is stopped in the same way; only the end of the answer shows it.
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
        """Make a citation for a whole block."""
        url, text = member(source, "url") or member(source, "source"), member(source, "cited_text")
        title = member(source, "title") or member(source, "document_title")
        known = texts(url=url, title=title, text=text)
        return Citation(source=plain(source), provider=self._provider, start=begins, end=self._said, **known)

    def _count(self, usage: Any) -> None:
        """Update the counts. They are cumulative: later ones replace earlier ones."""
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
        # input_tokens excludes cached tokens (USE-3); output_tokens includes reasoning.
        return token_usage(
            self._provider,
            self._model,
            input_tokens=add_counts(get("input_tokens"), cached, written),
            output_tokens=get("output_tokens"),
            reasoning=get("thinking_tokens"),
            cached=cached,
            cache_written=written,
        )


updates = make_updates(_Reader, "anthropic")


def _of(index: int, kind: str | None = None) -> dict[str, Any]:
    """Return the properties of reasoning: its block, and the kind of its opaque value."""
    properties: dict[str, Any] = {CONTENT_ID: f"block-{index}"}
    return properties if kind is None else {**properties, ENCRYPTED_VALUE_TYPE: kind}


def _signature(index: int, signature: str | None) -> list[Content]:
    """Return the signature of reasoning. It is empty while the reasoning has just started."""
    if not signature:
        return []
    return [ReasoningContent("", pack(THINKING, signature=signature), additional_properties=_of(index, THINKING))]


def is_sent_back(block: Block) -> bool:
    """Return whether a block is sent back unchanged: blocks of the provider's own tools, and files that they made.

    Blocks of betas are not: a summary would have to be the first block, and the only one. Without it the provider gets
    the whole history.
    """
    kind = block.get("type")
    return kind in OWN_CALLS or is_own_result(block) or (kind == "container_upload" and bool(block.get("file_id")))


def is_own_result(block: Block) -> bool:
    kind = block.get("type")
    return isinstance(kind, str) and kind != "tool_result" and kind.endswith("_tool_result")
