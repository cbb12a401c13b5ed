"""Layer: chat. What a chat message holds: text, reasoning, files, calls and their results, questions and answers.

Below: ``aguila.codec`` and ``aguila.protocol``. Above: ``message``, the mappings, the providers. Contents are immutable
values (``aguila.protocol.replace`` makes a changed copy) and know nothing about how they travel.

Every content has ``additional_properties``, where the mappings keep what has no field here (``keys``), and
``raw_representation``: the object it was made from. The latter is provenance, so two contents that differ only in it
are equal.
"""

from __future__ import annotations

from typing import Any, Literal

import msgspec

from aguila.codec.notice import log_notice
from aguila.codec.text import load
from aguila.codec.values import is_object
from aguila.errors import DecodeError
from aguila.protocol import ContentPart, TokenUsage

OCTET_STREAM = "application/octet-stream"
"""The media type of data that nobody has said the type of."""

Properties = dict[str, Any]


class Value(msgspec.Struct, frozen=True, eq=False, repr_omit_defaults=True):
    """Compared by all its fields but where it came from."""

    def __eq__(self, other: object) -> bool:
        if other.__class__ is not self.__class__:
            return NotImplemented
        names = self.__struct_fields__
        return all(getattr(self, name) == getattr(other, name) for name in names if name != "raw_representation")

    __hash__ = None  # type: ignore[assignment] - it holds a dict


class Content(Value, frozen=True, eq=False, kw_only=True):
    """What every content has."""

    additional_properties: Properties = {}
    raw_representation: Any = None


class TextContent(Content, frozen=True, eq=False):
    """Text, or a piece of it."""

    text: str


class ReasoningContent(Content, frozen=True, eq=False):
    """What a model thought, as far as it shows; ``protected_data`` is what it wants back to go on from there."""

    text: str = ""
    protected_data: str | None = None


class DataContent(Content, frozen=True, eq=False):
    """A file's bytes."""

    data: bytes
    media_type: str = OCTET_STREAM


class UriContent(Content, frozen=True, eq=False):
    """A file at an address. Nothing in Aguila fetches it by itself."""

    uri: str
    media_type: str | None = None


class HostedFileContent(Content, frozen=True, eq=False):
    """A file that a provider or an upload store holds."""

    file_id: str
    media_type: str | None = None


class FunctionCallContent(Content, frozen=True, eq=False):
    """A call that a model makes. ``arguments`` is the exact text, which need not be JSON (TOOL-3).

    In a stream a call may come in pieces: with ``is_complete=False``, ``arguments`` is what the text grew by, and the
    name may be empty after the first piece. A complete call, with the whole text, ends the pieces of its id.
    """

    call_id: str
    name: str
    arguments: str = ""
    is_complete: bool = True

    @property
    def parsed_arguments(self) -> dict[str, Any] | None:
        """The arguments as an object: empty if there is no text, None if the text is no JSON object."""
        if self.arguments.strip() == "":
            return {}
        try:
            value = load(self.arguments, strict=False, warn=log_notice)  # a half of a character is JSON as well
        except DecodeError:
            return None
        return value if is_object(value) else None


class FunctionResultContent(Content, frozen=True, eq=False):
    """The answer to a call: the exact text, or parts as contents, and what went wrong if something did.

    Any other JSON value is accepted too, and travels as its JSON text.
    """

    call_id: str
    result: str | list[Content | ContentPart] | Any = ""
    error: str | None = None

    @property
    def parsed_result(self) -> Any:
        """The value that the text is the JSON of, or the text itself if it is not JSON; parts are given as they are."""
        if not isinstance(self.result, str):
            return self.result
        try:
            return load(self.result, strict=False, warn=log_notice)
        except DecodeError:
            return self.result


class ErrorContent(Content, frozen=True, eq=False):
    """Word that the run failed. ``message`` is for people."""

    message: str
    code: str | None = None


class UsageContent(Content, frozen=True, eq=False):
    """Tokens of one (provider, model)."""

    usage: TokenUsage


class ApprovalRequestContent(Content, frozen=True, eq=False):
    """A question whether a call may be made. ``call`` has an empty name where the call was not seen."""

    interrupt_id: str
    call: FunctionCallContent
    message: str | None = None
    response_schema: dict[str, Any] | None = None
    expires_at: str | None = None

    def answer(
        self, approved: bool, *, edited_arguments: dict[str, Any] | None = None, reason: str | None = None
    ) -> ApprovalResponseContent:
        """The answer to this question."""
        return ApprovalResponseContent(
            self.interrupt_id, approved, edited_arguments=edited_arguments, reason=reason, call=self.call
        )

    def give_up(self) -> InterruptResponseContent:
        """Word that there will be no answer, neither yes nor no (INT-8)."""
        return InterruptResponseContent(self.interrupt_id, status="cancelled")


class ApprovalResponseContent(Content, frozen=True, eq=False):
    """The answer. ``edited_arguments`` replace the call's arguments as a whole."""

    interrupt_id: str
    approved: bool
    edited_arguments: dict[str, Any] | None = None
    reason: str | None = None
    call: FunctionCallContent | None = None


class InterruptRequestContent(Content, frozen=True, eq=False):
    """A question that a run stopped to ask (INT-4)."""

    interrupt_id: str
    reason: str = "input_required"
    message: str | None = None
    response_schema: dict[str, Any] | None = None
    expires_at: str | None = None
    tool_call_id: str | None = None

    def answer(self, payload: Any = None) -> InterruptResponseContent:
        """The answer to this question."""
        return InterruptResponseContent(self.interrupt_id, payload)

    def give_up(self) -> InterruptResponseContent:
        """Word that there will be no answer (INT-8)."""
        return InterruptResponseContent(self.interrupt_id, status="cancelled")


class InterruptResponseContent(Content, frozen=True, eq=False):
    """The answer, or word that there will be none."""

    interrupt_id: str
    payload: Any = None
    status: Literal["resolved", "cancelled"] = "resolved"
