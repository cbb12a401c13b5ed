"""Build messages from the arguments of the application, and the validated body of a run (IN-15)."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, TypeVar, get_args

import msgspec

from aguila.client.arguments import expect, listed
from aguila.codec import decode, encode
from aguila.codec.dialects import downgrade_input
from aguila.errors import DecodeError, EncodeError
from aguila.offload import LARGE
from aguila.protocol import (
    ActivityMessage,
    ContentPart,
    Context,
    Message,
    RunAgentInput,
    TextPart,
    UserMessage,
    replace,
)
from aguila.protocol.legacy import BinaryInputContent
from aguila.stream.json_values import check_json

if TYPE_CHECKING:
    from aguila.client.settings import Settings

T = TypeVar("T")

Piece = str | ContentPart | BinaryInputContent | Message | Mapping[str, Any]
Content = Piece | Sequence[Piece] | None
"""The content of ``thread.run``: text, parts, messages, or nothing new."""

_ARRAY: Any = list
_OBJECT: Any = Mapping
_MESSAGES = get_args(Message)
_PARTS = (*get_args(ContentPart), BinaryInputContent)
_WANTED = "text, parts or messages"


def messages_of(content: Content, settings: Settings, name: str = "content") -> list[Message]:
    """Return the new messages. Consecutive texts and parts make one user message.

    A dict with a role is a message, a dict with a type is a part. An older ``binary`` part becomes a current one, with
    a notice (ERA-3). Raise ``EncodeError`` for a dict that is neither, TypeError for anything else.
    """
    if content is None:
        return []
    if isinstance(content, str):
        return [UserMessage(id=settings.new_id(), content=content)]
    if isinstance(content, (Mapping, *_MESSAGES, *_PARTS)):
        items: list[Any] = [content]
    else:
        expect(name, content, Iterable, _WANTED)
        items = list(content)  # type: ignore[reportUnknownArgumentType]
    messages: list[Message] = []
    parts: list[Any] = []
    for index, item in enumerate(items):
        if isinstance(item, str):
            parts.append(TextPart(text=item))
        elif isinstance(item, _PARTS):
            parts.append(_current(item, settings))
        elif isinstance(item, Mapping) and "type" in item and "role" not in item:
            parts.append(_decoded(dict(item), ContentPart, settings))  # type: ignore[reportUnknownArgumentType]
        else:
            _add_user_message(messages, parts, settings)
            expect(f"{name}[{index}]", item, (Mapping, *_MESSAGES), _WANTED)
            messages.append(_message(item, settings))
    _add_user_message(messages, parts, settings)
    return messages


def _add_user_message(messages: list[Message], parts: list[Any], settings: Settings) -> None:
    if parts:
        messages.append(UserMessage(id=settings.new_id(), content=parts.copy()))
        parts.clear()


def _message(item: Any, settings: Settings) -> Message:
    if isinstance(item, _MESSAGES):
        parts = _parts_of(item)  # type: ignore[arg-type]
        if any(isinstance(part, BinaryInputContent) for part in parts):
            return replace(item, content=[_current(part, settings) for part in parts])  # type: ignore[return-value, type-var]
        return item  # type: ignore[return-value]
    if "role" not in item:
        raise EncodeError("a dict has to be a message, with a role, or a part, with a type")
    found: dict[str, Any] = dict(item)
    found.setdefault("id", settings.new_id())
    return _decoded(found, Message, settings)


def _current(part: Any, settings: Settings) -> Any:
    """Return a part in its current form. Only ``downgrade_input`` writes older forms, for an older peer."""
    if not isinstance(part, BinaryInputContent):
        return part
    try:
        return decode(encode(part), ContentPart, warn=settings.warn)
    except DecodeError as error:
        raise EncodeError(error.message, path=error.path) from error


def _decoded(found: dict[str, Any], type_: Any, settings: Settings) -> Any:
    # A message that is a dict may have parts that are typed objects.
    content: Any = found.get("content")
    plain = content
    if isinstance(content, _ARRAY):
        plain = [None if isinstance(part, msgspec.Struct) else part for part in content]
    check_json({**found, "content": plain})
    try:
        return decode(encode(found), type_, compat=settings.compat, warn=settings.warn)
    except DecodeError as error:
        raise EncodeError(error.message, path=error.path) from error


def context_of(given: Any, settings: Settings) -> list[Context]:
    """Return the context from a mapping of descriptions to values or a list. Raise TypeError or ``EncodeError``."""
    if isinstance(given, _OBJECT):
        given = [{"description": name, "value": value} for name, value in given.items()]
    found: list[Context] = []
    for index, one in enumerate(listed("context", given, "Context objects, or a mapping of descriptions to values")):
        if isinstance(one, Context):
            found.append(one)
            continue
        expect(f"context[{index}]", one, Mapping, "a Context, or a plain object with description and value")
        check_json(dict(one), f"/context/{index}")
        try:
            found.append(decode(encode(dict(one)), Context, warn=settings.warn))
        except DecodeError as error:
            raise EncodeError(error.message, path=f"/context/{index}{error.path}") from error
    return found


def is_large(input: RunAgentInput) -> bool:  # noqa: A002 - the protocol's word for it
    """Return whether encoding the input takes so long that it should be offloaded."""
    parts = [part for message in input.messages for part in _parts_of(message)]
    sources = [getattr(part, "source", None) for part in parts]
    return sum([len(source.value) for source in sources if source is not None]) > LARGE


def _parts_of(message: Message) -> Sequence[Any]:
    content: Any = getattr(message, "content", None)
    return content if isinstance(content, _ARRAY) else ()


def enforced_body(input: RunAgentInput, settings: Settings) -> bytes:  # noqa: A002 - the protocol's word for it
    """Return the body of a run: without activities (IN-7), unknown fields and malformed values (IN-15).

    If an older ``peer_version`` is configured, the body has the form of that version (VER-11). Raise ``EncodeError``
    with the path of an invalid value.
    """
    if any(isinstance(message, ActivityMessage) for message in input.messages):
        input = replace(input, messages=[one for one in input.messages if not isinstance(one, ActivityMessage)])  # noqa: A001
    _check_values(input)
    body = encode(input)
    try:
        # Decoding as a receiver does leaves exactly the schema, and upgrades older shapes that a caller passed.
        read: Any = decode(body, RunAgentInput, warn=settings.warn, max_size=max(settings.max_size, len(body)))
    except DecodeError as error:
        raise EncodeError(error.message, path=error.path) from error
    return encode(downgrade_input(read, settings.peer_version, settings.warn))


def _check_values(input: RunAgentInput) -> None:  # noqa: A002
    """Raise ``EncodeError`` for free values that are not JSON: sets, bytes and dates would be sent as something else.

    The decoder checks the types of all other values, which middleware may have changed.
    """
    check_json(input.state, "/state")
    check_json(input.forwarded_props, "/forwardedProps")
    for i, entry in enumerate(input.resume or ()):
        _check_members(entry, f"/resume/{i}", "payload", "metadata")
    for i, tool in enumerate(input.tools or ()):
        _check_members(tool, f"/tools/{i}", "parameters", "metadata")
    for i, message in enumerate(input.messages):
        _check_members(message, f"/messages/{i}", "metadata")
        for j, part in enumerate(_parts_of(message)):
            _check_members(part, f"/messages/{i}/content/{j}", "metadata")


def _check_members(value: Any, path: str, *names: str) -> None:
    for name in names:
        member = getattr(value, name, None)
        if member is not None:
            check_json(member, f"{path}/{name}")
