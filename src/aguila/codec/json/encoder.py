"""Encode protocol objects as JSON.

Absent fields are omitted (ENV-6) and required nulls are written (ENV-7). Values are written without type checks, which
constructors do not make either, unless ``encode`` gets ``check=True``. The server checks every event of an agent.
"""

from __future__ import annotations

from typing import Any, Final, get_args

import msgspec

from aguila.codec.json.bounded_floats import decode_json
from aguila.codec.json.text import (
    MAX_SIZE,
    SHORT_JSON,
    check_depth,
    check_size,
    encode_surrogates,
    parse_json,
    refuse_non_finite,
)
from aguila.codec.json.validation import EVENT_CHECKS, enforce_document, enforce_event
from aguila.codec.json.values import is_array
from aguila.codec.notices import log_notice
from aguila.errors import DecodeError, EncodeError
from aguila.protocol import (
    Event,
    MessagesSnapshotEvent,
    RunAgentInput,
    RunStartedEvent,
    StateSnapshotEvent,
    UserMessage,
    replace,
)
from aguila.protocol._base import Wire
from aguila.protocol.parts import TextPart, is_plain_text

_encode = msgspec.json.Encoder().encode

_LONG: Final = 1 << 16
_EVENTS: Final = frozenset(get_args(Event))


def encode(obj: Any, *, check: bool = False) -> bytes:
    """Encode a protocol object, a list of them, or a plain JSON value as compact JSON in UTF-8.

    A user message whose only part is plain text gets a string as its content. Dates, UUIDs, dataclasses and other
    values that msgspec supports are written its way. Raises ``EncodeError`` for NaN and Infinity, for objects without
    a JSON form, and for nesting too deep to write; with ``check``, also for a protocol object with a value that the
    schema refuses, with its path. That takes several times as long.
    """
    data = _write(with_text_content(obj))
    if check:
        written = decode_json(data)
        if is_array(obj):
            for index, (item, raw) in enumerate(zip(obj, written, strict=True)):
                _check_schema(item, raw, f"/{index}")
        else:
            _check_schema(obj, written, "")
    return data


def _check_schema(obj: Any, raw: Any, path: str) -> None:
    """Raise ``EncodeError`` if the JSON of a protocol object does not match its schema."""
    if not isinstance(obj, Wire):
        return
    try:
        if obj.__class__ in _EVENTS:
            enforce_event(raw, strict=True, warn=log_notice)
        else:
            enforce_document(raw, obj.__class__, strict=True, warn=log_notice)
    except DecodeError as error:
        message = f"{obj.__class__.__name__} is not valid: {error.message}"
        raise EncodeError(message, path=f"{path}{error.path}") from None


def encode_event(event: Event) -> bytes:
    """Encode an event as compact JSON in UTF-8; see ``encode``."""
    return _write(_simplify(event) if event.__class__ in _HOLDS_USER_MESSAGES else event)


def encode_strict(event: Event, max_size: int = MAX_SIZE) -> bytes:
    """Encode an event as one line of JSON, and check it as the strict decoder does, so that nothing malformed is sent.

    Raises ``EncodeError`` or ``DecodeError``.
    """
    holds_messages = event.__class__ in _HOLDS_USER_MESSAGES and getattr(event, "input", event) is not None
    data = _write(_simplify(event) if holds_messages else event)
    if b"\n" in data:  # a msgspec.Raw may contain line breaks
        data = data.replace(b"\n", b" ")
    if len(data) > SHORT_JSON:
        check_size(data, max_size)
        check_depth(data)
    if event.__class__ is StateSnapshotEvent:
        event = replace(event, snapshot=None)  # any JSON is a state, and copying a large one takes long
    try:  # check values, not text: parsing many numbers would block the event loop
        checked = msgspec.convert(msgspec.to_builtins(event, str_keys=True), event.__class__)
        is_exact = checked.__class__ not in EVENT_CHECKS or EVENT_CHECKS[checked.__class__](checked)
    except (TypeError, ValueError, RecursionError):
        is_exact = False
    if not is_exact:  # a lone surrogate, which is accepted, or an error that is described
        enforce_event(parse_json(data, strict=True, warn=log_notice), strict=True, warn=log_notice)
    return data


def _write(obj: Any) -> bytes:
    try:
        data = _encode(obj)
    except UnicodeEncodeError:
        return encode_surrogates(obj)
    except RecursionError:
        raise EncodeError("nested too deep to write") from None
    except (TypeError, ValueError) as error:  # no JSON form; an integer too long to write
        raise EncodeError(str(error)) from None
    # msgspec writes NaN and Infinity as null, so only output with a null can contain one. (`in` would first try its
    # operand as a number, which takes three times as long.)
    if data.find(b"null") >= 0 if len(data) <= _LONG else _has_null(data):
        refuse_non_finite(obj)
    return data


def _has_null(data: bytes) -> bool:
    """Return whether JSON contains a null outside words: an image in base64 likely contains the four letters.

    Without this, every large image is walked, and takes the memory of a copy (tests/server/test_chat_large.py).
    """
    return data == b"null" or any(data.find(mark) >= 0 for mark in (b":null", b",null", b"[null"))


def with_text_content(obj: Any) -> Any:
    """Write the content of user messages as a string if it is one plain text part, or no part."""
    cls = obj.__class__
    if cls in _HOLDS_USER_MESSAGES:
        return _simplify(obj)
    if cls is list or cls is tuple:
        return [_simplify(item) if item.__class__ in _HOLDS_USER_MESSAGES else item for item in obj]
    return obj


def _simplify(obj: Any) -> Any:
    cls = obj.__class__
    if cls is UserMessage:
        if not obj.content:
            return obj if obj.content == "" else replace(obj, content="")
        if is_plain_text(obj.content):
            part: Any = obj.content[0]
            assert isinstance(part, TextPart)  # noqa: S101
            return replace(obj, content=part.text)
        return obj
    if cls is RunStartedEvent:
        return obj if obj.input is None else replace(obj, input=_simplify(obj.input))
    if any(m.__class__ is UserMessage and (not m.content or is_plain_text(m.content)) for m in obj.messages):
        return replace(obj, messages=[_simplify(m) if m.__class__ is UserMessage else m for m in obj.messages])
    return obj


_HOLDS_USER_MESSAGES: Final = frozenset({UserMessage, MessagesSnapshotEvent, RunStartedEvent, RunAgentInput})


def _is_simple(cls: type[msgspec.Struct]) -> bool:
    scalars = msgspec.inspect.StrType | msgspec.inspect.LiteralType | msgspec.inspect.IntType | msgspec.inspect.BoolType
    fields = msgspec.structs.fields(cls)
    own = [msgspec.inspect.type_info(field.type) for field in fields if field.name not in ("metadata", "raw_event")]
    return all(isinstance(info, scalars) for info in own)


SIMPLE_EVENTS: Final = frozenset(cls for cls in get_args(Event) if _is_simple(cls))
"""Events that, without metadata and raw event, contain no float, no user message and no ``msgspec.Raw``.

They are most of any stream. ``SSEEncoder`` writes them with ``encode_simple``, without the checks of ``encode_event``.
"""
encode_simple = _encode
