"""Chat messages, streamed updates, and their contents: text, reasoning, files, calls, results, questions and answers.

All of them are immutable; ``aguila.protocol.replace`` makes a changed copy. ``additional_properties`` has the data
without a field of its own (``property_keys``). ``raw_representation`` is the object that a value was made from; it is
ignored when values are compared.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final, Literal

import msgspec

from aguila.codec.json.text import parse_json
from aguila.codec.json.values import is_object
from aguila.codec.notices import log_notice
from aguila.errors import DecodeError
from aguila.protocol import ContentPart, TokenUsage

OCTET_STREAM = "application/octet-stream"
"""The media type of data of unknown type."""

Properties = dict[str, Any]


class Value(msgspec.Struct, frozen=True, eq=False, repr_omit_defaults=True):
    """A value that is compared by all fields except ``raw_representation``."""

    def __eq__(self, other: object) -> bool:
        if other.__class__ is not self.__class__:
            return NotImplemented
        names = self.__struct_fields__
        return all(getattr(self, name) == getattr(other, name) for name in names if name != "raw_representation")

    __hash__ = None  # type: ignore[assignment] - it contains a dict


class Content(Value, frozen=True, eq=False, kw_only=True):
    """The fields of every content."""

    additional_properties: Properties = {}
    raw_representation: Any = None


class TextContent(Content, frozen=True, eq=False):
    """Text, or a piece of a streamed text."""

    text: str


class ReasoningContent(Content, frozen=True, eq=False):
    """Reasoning of a model. ``protected_data`` is an opaque value that the model needs back to continue."""

    text: str = ""
    protected_data: str | None = None


class DataContent(Content, frozen=True, eq=False):
    """The bytes of a file. Without a media type it is ``application/octet-stream``."""

    data: bytes
    media_type: str = OCTET_STREAM

    if TYPE_CHECKING:  # msgspec makes the constructor, which also accepts None as the media type

        def __init__(
            self,
            data: bytes,
            media_type: str | None = None,
            *,
            additional_properties: Properties = ...,
            raw_representation: Any = None,
        ) -> None: ...

    def __post_init__(self) -> None:
        media_type: str | None = self.media_type
        if media_type is None or media_type == "":
            msgspec.structs.force_setattr(self, "media_type", OCTET_STREAM)


class UriContent(Content, frozen=True, eq=False):
    """A file at a URL. Aguila does not fetch it."""

    uri: str
    media_type: str | None = None


class HostedFileContent(Content, frozen=True, eq=False):
    """A file stored by a provider or by the upload store."""

    file_id: str
    media_type: str | None = None


class FunctionCallContent(Content, frozen=True, eq=False):
    """A tool call of a model. ``arguments`` is the exact text, which may be invalid JSON (TOOL-3).

    A streamed call comes in pieces with ``is_complete=False``: ``arguments`` is the new text, and the name may be empty
    after the first piece. A complete call with the whole text ends the pieces with its id.
    """

    call_id: str
    name: str
    arguments: str = ""
    is_complete: bool = True

    @property
    def parsed_arguments(self) -> dict[str, Any] | None:
        """The arguments as an object: empty if there is no text, None if the text is not a JSON object."""
        if self.arguments.strip() == "":
            return {}
        try:
            value = parse_json(self.arguments, strict=False, warn=log_notice)  # lone surrogates are accepted
        except DecodeError:
            return None
        return value if is_object(value) else None


class FunctionResultContent(Content, frozen=True, eq=False):
    """The result of a tool call: the exact text or parts as contents, and the error if it failed.

    Any other JSON value is sent as its JSON text.
    """

    call_id: str
    result: str | list[Content | ContentPart] | Any = ""
    error: str | None = None

    @property
    def parsed_result(self) -> Any:
        """The JSON value of the text, or the text itself if it is not JSON. Parts are returned unchanged."""
        if not isinstance(self.result, str):
            return self.result
        try:
            return parse_json(self.result, strict=False, warn=log_notice)
        except DecodeError:
            return self.result


class ErrorContent(Content, frozen=True, eq=False):
    """The run failed. ``message`` is meant for users."""

    message: str
    code: str | None = None


class UsageContent(Content, frozen=True, eq=False):
    """Token usage of one provider and model."""

    usage: TokenUsage


class ApprovalRequestContent(Content, frozen=True, eq=False):
    """A question whether a call may be executed. ``call`` has an empty name if the call is unknown."""

    interrupt_id: str
    call: FunctionCallContent
    message: str | None = None
    response_schema: dict[str, Any] | None = None
    expires_at: str | None = None

    def answer(
        self, approved: bool, *, edited_arguments: dict[str, Any] | None = None, reason: str | None = None
    ) -> ApprovalResponseContent:
        """Make the answer to this question."""
        return ApprovalResponseContent(
            self.interrupt_id, approved, edited_arguments=edited_arguments, reason=reason, call=self.call
        )

    def give_up(self) -> InterruptResponseContent:
        """Make the response that declines to answer, which is neither yes nor no (INT-8)."""
        return InterruptResponseContent(self.interrupt_id, status="cancelled")


class ApprovalResponseContent(Content, frozen=True, eq=False):
    """The answer to an ``ApprovalRequestContent``. ``edited_arguments`` replace all arguments of the call."""

    interrupt_id: str
    approved: bool
    edited_arguments: dict[str, Any] | None = None
    reason: str | None = None
    call: FunctionCallContent | None = None


class InterruptRequestContent(Content, frozen=True, eq=False):
    """A question that a run was interrupted for (INT-4)."""

    interrupt_id: str
    reason: str = "input_required"
    message: str | None = None
    response_schema: dict[str, Any] | None = None
    expires_at: str | None = None
    tool_call_id: str | None = None

    def answer(self, payload: Any = None) -> InterruptResponseContent:
        """Make the answer to this question."""
        return InterruptResponseContent(self.interrupt_id, payload)

    def give_up(self) -> InterruptResponseContent:
        """Make the response that declines to answer (INT-8)."""
        return InterruptResponseContent(self.interrupt_id, status="cancelled")


class InterruptResponseContent(Content, frozen=True, eq=False):
    """The answer to a question, or the response that declines it (``status="cancelled"``)."""

    interrupt_id: str
    payload: Any = None
    status: Literal["resolved", "cancelled"] = "resolved"


NOT_IN_MESSAGES: Final = (
    ApprovalRequestContent,
    ApprovalResponseContent,
    InterruptRequestContent,
    InterruptResponseContent,
    ErrorContent,
    UsageContent,
)
"""Contents that report on a run or ask a question: they are in no message, and no model sees them."""


class _ChatBase(Value, frozen=True, eq=False):
    """Fields of messages and updates."""

    role: str
    contents: list[Content]
    message_id: str | None = None
    author_name: str | None = None
    additional_properties: Properties = {}
    raw_representation: Any = None

    def __post_init__(self) -> None:
        contents: object = self.contents
        if isinstance(contents, str):
            msgspec.structs.force_setattr(self, "contents", [TextContent(contents)])

    @property
    def text(self) -> str:
        """All text, joined."""
        return "".join([content.text for content in self.contents if isinstance(content, TextContent)])


class ChatMessage(_ChatBase, frozen=True, eq=False):
    """A chat message. Roles: ``system``, ``developer``, ``user``, ``assistant``, ``tool``.

    A string as ``contents`` becomes one text. Calls and reasoning are contents of assistant messages, results are
    contents of tool messages.
    """

    contents: list[Content] = []

    if TYPE_CHECKING:  # msgspec makes the constructor, which also accepts a string as contents

        def __init__(
            self,
            role: str,
            contents: str | list[Content] = ...,
            message_id: str | None = None,
            author_name: str | None = None,
            additional_properties: Properties = ...,
            raw_representation: Any = None,
        ) -> None: ...

    @property
    def calls(self) -> list[FunctionCallContent]:
        """The tool calls in the message."""
        return [content for content in self.contents if isinstance(content, FunctionCallContent)]

    @property
    def results(self) -> list[FunctionResultContent]:
        """The tool results in the message."""
        return [content for content in self.contents if isinstance(content, FunctionResultContent)]


class ChatUpdate(_ChatBase, frozen=True, eq=False):
    """A piece of a streamed answer: contents to append to the message ``message_id``, or only an event."""

    role: str = "assistant"
    contents: list[Content] = []

    if TYPE_CHECKING:  # msgspec makes the constructor, which also accepts a string as contents

        def __init__(
            self,
            role: str = "assistant",
            contents: str | list[Content] = ...,
            message_id: str | None = None,
            author_name: str | None = None,
            additional_properties: Properties = ...,
            raw_representation: Any = None,
        ) -> None: ...
