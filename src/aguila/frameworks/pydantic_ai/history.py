"""Convert chat messages to pydantic-ai's ModelMessages, and back.

The history of a thread is repaired for the request only (``provider_history``). Messages are restored from our members
in their metadata, so that a model sees the same messages in each run: vendors cache them, and sign reasoning for them.
Metadata that does not fit its message is ignored: a client may send anything.

===================================================  ==================================================================
lost to a model                                      lost from a model
===================================================  ==================================================================
names of messages and files; citations without       usage, timestamps, instructions; files that the model made, with
details of the vendor                                a notice
===================================================  ==================================================================
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from pydantic_ai.messages import (
    AudioUrl,
    BinaryContent,
    DocumentUrl,
    FilePart,
    ImageUrl,
    ModelMessage,
    ModelRequest,
    ModelRequestPart,
    ModelResponse,
    ModelResponsePart,
    RetryFeedbackPart,
    SystemPromptPart,
    TextPart,
    ThinkingPart,
    ToolCallPart,
    ToolReturnPart,
    UploadedFile,
    UserContent,
    UserPromptPart,
    VideoUrl,
)
from pydantic_ai.messages import TextContent as TextWithMetadata

from aguila.chat import (
    ChatMessage,
    Content,
    DataContent,
    FunctionCallContent,
    FunctionResultContent,
    HostedFileContent,
    ReasoningContent,
    TextContent,
    UriContent,
    provider_history,
)
from aguila.chat.own_metadata import read_own_metadata
from aguila.chat.property_keys import ENCRYPTED_VALUE, ENCRYPTED_VALUE_TYPE, METADATA, PART_KIND, PROVIDER
from aguila.codec.json.encoder import encode
from aguila.codec.json.values import is_array, is_object
from aguila.codec.notices import Notice, Warn, log_notice
from aguila.errors import EncodeError
from aguila.frameworks.pydantic_ai.media import user_contents
from aguila.frameworks.pydantic_ai.names import Names, call_id_for_model, replace_surrogates
from aguila.frameworks.pydantic_ai.opaque import (
    KIND,
    details_of,
    pack,
    read_whole_part,
    unpack,
    usable_details,
    whole_part,
)
from aguila.protocol import replace

BEGIN = "(The user has not said anything yet.)"
"""User text for vendors that require a user message first."""
GO_ON = "(Please go on.)"
"""User text for vendors that require a user message last."""

_DETAILS = "pydantic_ai_details"
"""The additional property of a text with what the vendor wants back with it."""


def describe_edit(arguments: Mapping[str, Any]) -> str:
    """Tell the model that the user edited the arguments of its call: it knows only its own."""
    return f"(The user changed the arguments to {encode(dict(arguments)).decode()}.)"


def add_note(result: Any, note: str) -> Any:
    """Return a result of a call, text or contents, with a line after it."""
    return f"{result}\n{note}" if isinstance(result, str) else [*(result if is_array(result) else [result]), note]


def to_model_messages(
    messages: Iterable[ChatMessage], *, names: Names | None = None, warn: Warn | None = None
) -> list[ModelMessage]:
    """Convert chat messages to the history of a request. The stored history is not changed."""
    warn = log_notice if warn is None else warn
    history = provider_history([_restore(message) for message in messages])
    subagents = sum(repair.kind == "dropped_subagent" for repair in history.repairs)
    if subagents:
        message = f"dropped {subagents} message(s) of subagents: the model sees only their results"
        warn(Notice(rule="history", message=message))
    for repair in history.repairs:
        if repair.kind == "dropped_subagent":
            continue
        of = "" if repair.call_id is None else f" (call {repair.call_id!r})"
        message = f"the history was repaired for the provider: {repair.kind}{of}"
        warn(Notice(rule="history", message=message, path=f"/{repair.index}"))
    clean = replace_surrogates(history.messages)
    if clean is not history.messages:
        warn(Notice(rule="utf-8", message="replaced lone surrogates, which no provider accepts"))
    return _Converter(Names(()) if names is None else names, warn).convert(clean)


class _Converter:
    def __init__(self, names: Names, warn: Warn) -> None:
        self._names = names
        self._warn = warn
        self._tools: dict[str, str] = {}  # names of tools by call id
        self._made: list[ModelMessage] = []

    def convert(self, messages: Iterable[ChatMessage]) -> list[ModelMessage]:
        for message in messages:
            match message.role:
                case "system" | "developer":
                    if message.text != "":
                        self._ask(SystemPromptPart(message.text))
                case "assistant":
                    self._answer([part for content in message.contents for part in self._response_parts(content)])
                case "tool":
                    for result in message.results:
                        self._result(message, result)
                case _:
                    contents = user_contents(message.contents, self._warn)
                    if contents:
                        is_text = len(contents) == 1 and isinstance(contents[0], str)
                        self._ask(UserPromptPart(contents[0] if is_text else contents))  # type: ignore[arg-type]
        return self._made

    def _ask(self, part: ModelRequestPart) -> None:
        if self._made and isinstance(self._made[-1], ModelRequest):
            self._made[-1] = ModelRequest(parts=[*self._made[-1].parts, part])
        else:
            self._made.append(ModelRequest(parts=[part]))

    def _answer(self, parts: list[ModelResponsePart]) -> None:
        if not parts:
            return
        if self._made and isinstance(self._made[-1], ModelResponse):
            self._made[-1] = ModelResponse(parts=[*self._made[-1].parts, *parts])
        else:
            self._made.append(ModelResponse(parts=parts))

    def _response_parts(self, content: Content) -> list[ModelResponsePart]:
        match content:
            case TextContent() if content.text != "":
                details = usable_details(content.additional_properties.get(_DETAILS, {}), "id", "provider_name")
                return [TextPart(content.text, **details)]
            case ReasoningContent():
                value = unpack(content.protected_data)
                if "part" in value:
                    whole = read_whole_part(value["part"])
                    return [] if whole is None else [whole]
                details = usable_details(value, "id", "signature", "provider_name")
                return [ThinkingPart(content.text, **details)] if content.text != "" or details else []
            case FunctionCallContent():
                self._tools[content.call_id] = content.name
                details = usable_details(
                    unpack(content.additional_properties.get(ENCRYPTED_VALUE)), "id", "provider_name"
                )
                name, call_id = self._names.for_model(content.name), call_id_for_model(content.call_id)
                return [ToolCallPart(name, _arguments(content), call_id, **details)]
            case _:
                return []

    def _result(self, message: ChatMessage, result: FunctionResultContent) -> None:
        own = read_own_metadata(message.additional_properties.get(METADATA))
        error = result.error if result.error is not None else own.get("error")
        failed = isinstance(error, str)
        value: Any = result.result
        if is_array(value) and not all(isinstance(one, str) for one in value):
            contents = user_contents(value, self._warn)
            texts = [one for one in contents if isinstance(one, str)]
            value = "\n".join(texts) if len(texts) == len(contents) else contents
        elif not isinstance(value, str):
            value = _json_text(value, self._warn)
        if value == "" and failed:
            value = error
        edited: Any = own.get("arguments")
        if is_object(edited):
            value = add_note(value, describe_edit(edited))
        name = self._names.for_model(self._tools.get(result.call_id, "unknown"))
        outcome = "failed" if failed else "success"
        self._ask(ToolReturnPart(name, value, call_id_for_model(result.call_id), outcome=outcome))


def _arguments(call: FunctionCallContent) -> str | dict[str, Any]:
    """Return arguments that every model can send. Text that is not a JSON object is put into one (TOOL-3)."""
    parsed = call.parsed_arguments
    if parsed is None:
        return {"unparsed_arguments": call.arguments}
    clean = replace_surrogates(parsed)  # they may be escaped in the text
    return clean if clean is not parsed or call.arguments.strip() == "" else call.arguments


def _json_text(value: Any, warn: Warn) -> str:
    try:
        return encode(value).decode()
    except EncodeError as error:
        warn(Notice(rule="TOOL-7", message=f"a result cannot be encoded as JSON: {error}"))
        return ""


# Restoring


def _restore(message: ChatMessage) -> ChatMessage:
    """Restore the order of texts and calls of an answer. Returns the same object if there is nothing to restore."""
    if message.role != "assistant":
        return message
    message = _restore_calls(message)
    own = read_own_metadata(message.additional_properties.get(METADATA))
    value = unpack(message.additional_properties.get(ENCRYPTED_VALUE))
    if not own and not value:
        return message
    text, others = (message.contents[0], message.contents[1:]) if message.contents else (None, [])
    if not isinstance(text, TextContent):
        return message
    calls = {one.call_id: one for one in others if isinstance(one, FunctionCallContent)}
    if len(calls) != len(others):
        return message
    restored: list[Content] = []
    start = 0
    for one in _read_order(own.get("order"), len(text.text), calls):
        if isinstance(one, str):
            restored.append(calls.pop(one))
        else:
            restored += _texts_of_parts(text, start, start + one, value.get("texts"))
            start += one
    return replace(message, contents=[*restored, *calls.values()])


def _restore_calls(message: ChatMessage) -> ChatMessage:
    """Restore the order of calls. A call of the front end may have been sent after later ones."""
    seen: set[str] = set()
    late: dict[str, list[Content]] = {}  # by the id of the call that they come before
    others: list[Content] = []
    for content in message.contents:
        if isinstance(content, FunctionCallContent):
            before = read_own_metadata(content.additional_properties.get(METADATA)).get("before")
            if isinstance(before, str) and before in seen:
                late.setdefault(before, []).append(content)
                continue
            seen.add(content.call_id)
        others.append(content)
    if not late:
        return message
    contents: list[Content] = []
    for content in others:
        if isinstance(content, FunctionCallContent):
            contents += late.pop(content.call_id, ())
        contents.append(content)
    return replace(message, contents=contents)


def _read_order(order: Any, length: int, calls: Mapping[str, FunctionCallContent]) -> list[int | str]:
    """Return a stored order of text lengths and call ids, or the whole text if it does not fit the message."""
    if not is_array(order) or not all(one in calls if isinstance(one, str) else type(one) is int for one in order):
        return [length]
    named = [one for one in order if isinstance(one, str)]
    lengths = [one for one in order if isinstance(one, int)]
    fits = len(set(named)) == len(named) and sum(lengths) == length and all(one > 0 for one in lengths)
    return order if fits else [length]


def _texts_of_parts(text: TextContent, start: int, end: int, parts: Any) -> list[Content]:
    """Cut a range of a text where the parts of the answer began that the vendor wants details back for."""
    made: list[Content] = []
    for part in parts if is_array(parts) else ():
        first, length = (part.get("start"), part.get("length")) if is_object(part) else (None, None)
        if type(first) is not int or type(length) is not int or length < 1 or first < start or first + length > end:
            continue
        if first > start:
            made.append(TextContent(text.text[start:first]))
        made.append(TextContent(text.text[first : first + length], additional_properties={_DETAILS: part}))
        start = first + length
    return [*made, TextContent(text.text[start:end])] if start < end else made


# From pydantic-ai


def from_model_messages(messages: Iterable[ModelMessage], *, warn: Warn | None = None) -> list[ChatMessage]:
    """Convert pydantic-ai's ModelMessages to chat messages."""
    warn = log_notice if warn is None else warn
    made: list[ChatMessage] = []
    for message in messages:
        if isinstance(message, ModelResponse):
            made += _chat_answer(message, warn)
            continue
        for part in message.parts:
            match part:
                case SystemPromptPart():
                    made.append(ChatMessage("system", part.content))
                case UserPromptPart():
                    contents = [part.content] if isinstance(part.content, str) else part.content
                    made.append(ChatMessage("user", [_content_of(one, warn) for one in contents if one != ""]))
                case ToolReturnPart():
                    made.append(ChatMessage("tool", [_result_of(part)]))
                case RetryFeedbackPart():
                    made.append(ChatMessage("user", part.model_response()))
                case _:
                    warn(Notice(rule="IN-6", message=f"dropped {part.part_kind}: a chat message cannot express it"))
    return made


def _chat_answer(response: ModelResponse, warn: Warn) -> list[ChatMessage]:
    contents: list[Content] = []
    for part in response.parts:
        its: dict[str, Any] = {ENCRYPTED_VALUE_TYPE: KIND}
        match part:
            case TextPart():
                contents.append(TextContent(part.content))
            case ThinkingPart():
                contents.append(ReasoningContent(part.content, pack(details_of(part)), additional_properties=its))
            case ToolCallPart():
                value = pack(details_of(part))
                kept = {} if value is None else {ENCRYPTED_VALUE: value, **its}
                call = FunctionCallContent(part.tool_call_id, part.tool_name, part.args_as_json_str())
                contents.append(replace(call, additional_properties=kept))
            case FilePart():
                warn(Notice(rule="IN-6", message="dropped a file that the model made: an assistant message has none"))
            case _:
                contents.append(ReasoningContent("", pack(whole_part(part)), additional_properties=its))
    return [ChatMessage("assistant", contents)] if contents else []


def _result_of(part: ToolReturnPart) -> FunctionResultContent:
    text = part.content if isinstance(part.content, str) else part.model_response_str(wrap_if_error=False)
    return FunctionResultContent(part.tool_call_id, text, text if part.outcome in ("failed", "retried") else None)


def _content_of(item: UserContent, warn: Warn) -> Content:
    match item:
        case str():
            return TextContent(item)
        case TextWithMetadata():
            return TextContent(item.content)
        case BinaryContent():
            return DataContent(item.data, item.media_type)
        case UploadedFile():
            return HostedFileContent(
                item.file_id, item.media_type, additional_properties={PROVIDER: item.provider_name}
            )
        case ImageUrl() | AudioUrl() | VideoUrl() | DocumentUrl():
            kind = item.kind.removesuffix("-url")
            return UriContent(item.url, item.media_type, additional_properties={PART_KIND: kind})
        case _:
            warn(Notice(rule="IN-6", message=f"dropped {type(item).__name__}: a chat message cannot express it"))
            return TextContent("")
