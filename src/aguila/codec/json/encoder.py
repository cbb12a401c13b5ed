"""Layer: codec. Protocol objects to JSON.

Below: ``text`` (what JSON cannot say, and lone surrogates), ``large``. Above: ``sse``, ``jsonl``. Absent fields are
left out (ENV-6), required nulls are there (ENV-7). What an object holds is written as it is: whether its values are of
the right type is for ``decode(..., strict=True)`` to say, which the server asks of everything it sends.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, Final, get_args

import msgspec

from aguila.codec.json.large_strings import ExcisedValue
from aguila.codec.json.text import encode_surrogates, refuse_non_finite
from aguila.errors import EncodeError
from aguila.protocol import Event, MessagesSnapshotEvent, RunAgentInput, RunStartedEvent, UserMessage, replace
from aguila.protocol.parts import TextPart, is_plain_text

_encode = write_simple = msgspec.json.Encoder().encode
_encode_lines = msgspec.json.Encoder().encode_lines


_LONG: Final = 1 << 16


def encode(obj: Any) -> bytes:
    """A protocol object, a list of them, or a plain JSON value as compact JSON in UTF-8.

    Absent fields are left out, required nulls are written, a user message whose only part is plain text is written
    as a string. Values that msgspec knows how to write as JSON (dates, UUIDs, dataclasses) are. Raises ``EncodeError``
    for NaN and Infinity, for objects with no JSON form, and for nesting too deep to write.
    """
    return _write(_respelled(obj))


def encode_large(obj: Any) -> bytes:
    """What ``encode`` gives, with large strings written slice by slice: for a thread, beside which others run.

    Small objects cost several times as much as with ``encode``.
    """
    try:
        taken = ExcisedValue(msgspec.to_builtins(_respelled(obj)))
        if taken:
            return taken.splice(_write(taken.rest))
    except (TypeError, ValueError, RecursionError):
        pass  # a msgspec.Raw, half a surrogate pair, or what encode says
    return encode(obj)


def encode_event(event: Event) -> bytes:
    """An event as compact JSON in UTF-8; see ``encode``."""
    return _write(_respell(event) if event.__class__ in _RESPELLED else event)


def encode_events(events: Iterable[Event]) -> bytes:
    """Many events, each as ``encode_event`` writes it and followed by LF; cheaper than one by one.

    LF is nowhere else in the result, CR nowhere at all.
    """
    batch = [_respell(event) if event.__class__ in _RESPELLED else event for event in events]
    try:
        data = _encode_lines(batch)
    except (ValueError, RecursionError, TypeError):  # one by one, it is clear which event and why
        return b"".join([_write(event) + b"\n" for event in batch])
    if data.count(b"\n") != len(batch) or 13 in data:  # a msgspec.Raw brought line ends of its own
        return b"".join([_write(event).replace(b"\n", b" ").replace(b"\r", b" ") + b"\n" for event in batch])
    if data.find(b"null") >= 0:
        for event, line in zip(batch, data.split(b"\n"), strict=False):
            if line.find(b"null") >= 0:
                _refuse_non_finite(event)
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
    # msgspec writes NaN and Infinity as null: only output with a null in it can hold one. (`in` would try the word as
    # a number first, and cost three times as much.)
    if data.find(b"null") >= 0 if len(data) <= _LONG else _has_null(data):
        _refuse_non_finite(obj)
    return data


def _has_null(data: bytes) -> bool:
    """Whether there is one that is no part of a word: in megabytes of base64 there is likely one that is."""
    return data == b"null" or any(data.find(mark) >= 0 for mark in (b":null", b",null", b"[null"))


def _refuse_non_finite(obj: Any) -> None:
    try:
        refuse_non_finite(obj)
    except RecursionError:
        raise EncodeError("nested too deep to write") from None


def _respelled(obj: Any) -> Any:
    cls = obj.__class__
    if cls in _RESPELLED:
        return _respell(obj)
    if cls is list or cls is tuple:
        return [_respell(item) if item.__class__ in _RESPELLED else item for item in obj]
    return obj


def _respell(obj: Any) -> Any:
    if isinstance(obj, UserMessage):
        if is_plain_text(obj.content):
            part: Any = obj.content[0]
            assert isinstance(part, TextPart)  # noqa: S101
            return replace(obj, content=part.text)
        return obj
    if isinstance(obj, RunStartedEvent):
        return obj if obj.input is None else replace(obj, input=_respell(obj.input))
    if any(message.__class__ is UserMessage and is_plain_text(message.content) for message in obj.messages):
        return replace(obj, messages=[_respell(m) if m.__class__ is UserMessage else m for m in obj.messages])
    return obj


_RESPELLED: Final = frozenset({UserMessage, MessagesSnapshotEvent, RunStartedEvent, RunAgentInput})


def _is_simple(cls: type[msgspec.Struct]) -> bool:
    scalars = msgspec.inspect.StrType | msgspec.inspect.LiteralType | msgspec.inspect.IntType | msgspec.inspect.BoolType
    fields = msgspec.structs.fields(cls)
    own = [msgspec.inspect.type_info(field.type) for field in fields if field.name not in ("metadata", "raw_event")]
    return all(isinstance(info, scalars) for info in own)


# Without metadata and raw event these hold text and little else: no number that is none, nothing to respell, no
# msgspec.Raw. They are most of any stream, and SSE writes them without a second look.
SIMPLE_EVENTS: Final = frozenset(cls for cls in get_args(Event) if _is_simple(cls))
