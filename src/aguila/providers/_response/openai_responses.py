"""Read the stream of OpenAI's Responses API."""

from __future__ import annotations

from typing import Any

from aguila.chat import (
    ChatUpdate,
    Content,
    DataContent,
    FunctionCallContent,
    ReasoningContent,
    TextContent,
)
from aguila.chat.media import UnreadablePart, decode_base64
from aguila.chat.property_keys import CONTENT_ID, ENCRYPTED_VALUE, ENCRYPTED_VALUE_TYPE
from aguila.codec.json.encoder import encode
from aguila.providers._encrypted_values import pack
from aguila.providers._request.prompt import ProviderView
from aguila.providers._response.citations import Citation, member, plain, read_position, texts
from aguila.providers._response.errors import read_stream_error
from aguila.providers._response.reader import Reader, known_finish, make_updates
from aguila.providers._response.usage import count, token_usage

_FINISH = {"max_output_tokens": "length", "content_filter": "content_filter"}
REASONING = "openai.reasoning"
"""Kind of the opaque value of reasoning: the item's id and its encrypted content."""
ITEM = "openai.item"
"""Kind of the opaque value that is a complete item of one of the provider's own tools."""
MESSAGE = "openai.message"
"""Kind of the opaque value of a text: whether it is commentary or the final answer, which the model wants back."""
PHASES = ("commentary", "final_answer")
IMAGE_CALL = "image_generation_call"
ITEM_PAIRS = {"shell_call": "shell_call_output", "tool_search_call": "tool_search_output"}
OWN_ITEMS = frozenset(
    {
        IMAGE_CALL,
        "code_interpreter_call",
        "compaction",
        "file_search_call",
        "mcp_call",
        "mcp_list_tools",
        "web_search_call",
        *ITEM_PAIRS,
        *ITEM_PAIRS.values(),
    }
)
"""Types of items that are sent back unchanged. Other items need an answer that we cannot give."""
SUMMARY_SEPARATOR = "\n\n"
"""Separates the parts of a summary that is shown as one reasoning text."""


class _Reader(Reader):
    def __init__(self, model: str, provider: str, view: ProviderView | None) -> None:
        super().__init__(model, provider, view)
        self._calls: dict[Any, tuple[str, str]] = {}  # id and name, by item index
        self._told: dict[Any, int] = {}  # length of the arguments sent so far, by item index
        self._shown: dict[str, str] = {}  # reasoning text sent so far, by item id
        self._refused = False
        self._begun: dict[tuple[Any, Any], int] = {}  # position in the answer, by item and part

    def is_slow(self, event: Any) -> bool:
        """Return whether an event has an item of the provider's own tools: such items, like images, come complete."""
        return event.type == "response.output_item.done" and event.item.type in OWN_ITEMS

    def read(self, event: Any) -> ChatUpdate | None:
        """Convert an event to an update, or None."""
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
                    contents.append(self._thought(event.item_id, SUMMARY_SEPARATOR))
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
                raise read_stream_error(getattr(event.response, "error", None))
            case "error":
                raise read_stream_error(event)
            case _:
                return None
        if not contents:
            return None
        # Each message of a response stays a message: commentary is not joined with the answer.
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
        return self._cite(
            Citation(source=plain(source), provider=self._provider, **read_position(source, begins), **known)
        )

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
            if getattr(item, "status", None) == "incomplete":  # END means complete (TOOL-3)
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
        if phase not in PHASES or not any(getattr(part, "text", "") for part in item.content):
            return []
        kept = {ENCRYPTED_VALUE: pack(MESSAGE, phase=phase), ENCRYPTED_VALUE_TYPE: MESSAGE, CONTENT_ID: item.id}
        return [TextContent("", additional_properties=kept)]

    def _own(self, item: Any) -> list[Content]:
        """Keep an item of the provider's own tools for the model. An image is shown, too."""
        whole = item.model_dump(mode="json", exclude_unset=True)
        picture = whole.pop("result", None) if item.type == IMAGE_CALL else None
        file: list[Content] = []
        if isinstance(picture, str) and picture != "":
            try:
                data = decode_base64(picture)
            except UnreadablePart:
                self._warn_dropped(item.type, "its image is not base64, and is dropped")
            else:
                kind = whole.get("output_format")
                file = [DataContent(data, f"image/{kind if kind in ('jpeg', 'webp') else 'png'}")]
        else:
            how = "its item is kept for the model and not shown" if item.type in OWN_ITEMS else "it is dropped"
            self._warn_dropped(item.type, how)
        artefact = pack(ITEM, item=encode(whole).decode())
        properties = {CONTENT_ID: f"item-{whole.get('id')}", ENCRYPTED_VALUE_TYPE: ITEM}
        return [ReasoningContent("", artefact, additional_properties=properties), *file]

    def _end_thought(self, item: Any) -> list[Content]:
        encrypted = getattr(item, "encrypted_content", None)
        shown = self._shown.get(item.id, "")
        parts = [part.text for part in getattr(item, "summary", None) or ()]
        text = "" if shown != "" else SUMMARY_SEPARATOR.join(parts)
        if not isinstance(encrypted, str) or encrypted == "":
            return [self._thought(item.id, text)] if text != "" else []
        lengths = {"parts": encode([len(part) for part in parts]).decode()} if len(parts) > 1 else {}
        artefact = pack(REASONING, id=item.id, encrypted_content=encrypted, **lengths)
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
        if status == "failed":  # some servers report a failure in the event of a completed response
            raise read_stream_error(getattr(response, "error", None))
        if reason is None and status == "incomplete":
            reason = "incomplete"
        return "stop" if reason is None else known_finish(_FINISH, reason)

    def _count(self, response: Any) -> None:
        usage = getattr(response, "usage", None)
        if usage is None:
            return
        given, made = getattr(usage, "input_tokens_details", None), getattr(usage, "output_tokens_details", None)
        # input_tokens includes cached tokens, output_tokens includes reasoning.
        self.usage = token_usage(
            self._provider,
            self._model,
            input_tokens=count(usage, "input_tokens"),
            output_tokens=count(usage, "output_tokens"),
            reasoning=count(made, "reasoning_tokens"),
            cached=count(given, "cached_tokens"),
            cache_written=count(given, "cache_write_tokens"),
        )


updates = make_updates(_Reader, "openai")
