"""What the OpenAPI document says about a handler."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from types import MappingProxyType
from typing import Any, Final

import msgspec

from aguila.codec.negotiate import PROTOBUF_MEDIA_TYPE, SSE_MEDIA_TYPE
from aguila.server.config.limits import MAX_ID_LENGTH

JSON: Final = "application/json"
ANY: Final = "*/*"
ID: Final = {"minLength": 1, "maxLength": MAX_ID_LENGTH, "pattern": r"^[^\u0000]*$"}
"""The schema of an id besides its type."""


class Parameter(msgspec.Struct, frozen=True, kw_only=True):
    """A query parameter or a header. ``schema`` is a JSON Schema."""

    description: str
    schema: Mapping[str, Any] = MappingProxyType({"type": "string"})
    is_header: bool = False


class Answer(msgspec.Struct, frozen=True, kw_only=True):
    """A response: its body by media type, each a type, several in a tuple, or None for text and bytes."""

    description: str
    content: Mapping[str, Any] = {}


class Operation(msgspec.Struct, frozen=True, kw_only=True):
    """One handler: its parameters, its body and its responses. Every response that is not listed is an error."""

    summary: str
    answers: Mapping[int, Answer]
    parameters: Mapping[str, Parameter] = {}
    body: Mapping[str, Any] = {}
    """Media type -> the type of the body; None for bytes."""
    needs_body: bool = True
    errors: Any = None
    """The type of its errors, if it is not that of all routes."""


Operations = Mapping[Callable[..., Awaitable[Any]], Operation]
"""What is said about each handler."""

EVENTS: Final = Answer(
    description="Events of the protocol, as SSE (each `data` is an Event) or as protobuf frames",
    content={SSE_MEDIA_TYPE: None, PROTOBUF_MEDIA_TYPE: None},
)
NO_CONTENT: Final = {204: Answer(description="Done")}


def json_answer(kind: Any, description: str = "Success") -> Answer:
    """Return a response whose body is JSON of this type."""
    return Answer(description=description, content={JSON: kind})


def flag(description: str) -> Parameter:
    """Return a parameter that is true or false."""
    return Parameter(description=description, schema={"type": "boolean"})


def number(description: str, least: int, most: int) -> Parameter:
    """Return a parameter that is a whole number."""
    return Parameter(description=description, schema={"type": "integer", "minimum": least, "maximum": most})


def text(description: str) -> Parameter:
    """Return a parameter that is any string."""
    return Parameter(description=description)
