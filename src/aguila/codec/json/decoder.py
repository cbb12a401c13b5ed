"""Decode JSON to protocol objects.

The typed decoder of msgspec runs first. It refuses unknown members, nulls and wrong types. Input that matches the
schema is called exact, and costs only this call. Input that is refused is parsed as plain JSON, upgraded by the
compatibility rules (``compat``), stripped of unknown members with notices (``validation``), and converted to the same
types (PROC-7, PROC-8).
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any, Final, Literal, TypedDict, TypeVar, Unpack, get_args, get_origin, overload

import msgspec

from aguila.codec.compat import Compat, Level
from aguila.codec.json.bounded_floats import json_decoder
from aguila.codec.json.encoder import encode
from aguila.codec.json.text import MAX_SIZE, SHORT_JSON, check_depth, check_size, parse_json
from aguila.codec.json.validation import EVENT_CHECKS, enforce_document, enforce_event, with_required_tag
from aguila.codec.json.values import is_array, is_object
from aguila.codec.notices import Notice, Warn, log_notice
from aguila.errors import DecodeError, EncodeError
from aguila.protocol import (
    AssistantMessage,
    ContentPart,
    Event,
    Message,
    MessagesSnapshotEvent,
    RunAgentInput,
    RunFinishedOutcome,
    RunStartedEvent,
    SubagentFinishedOutcome,
)
from aguila.protocol.legacy import MetaEvent

T = TypeVar("T")

_EVENT_CLASSES: Final[tuple[type[msgspec.Struct], ...]] = get_args(Event)
_OBSERVED: Final = Compat.OBSERVED
_MAX_TYPED_DEPTH: Final = 16  # no protocol type nests deeper than this
_decode_exact_event = json_decoder(Event).decode
_decode_exact_input = json_decoder(RunAgentInput).decode


class DecoderOptions(TypedDict, total=False):
    """The options of ``EventDecoder``, for decoders that wrap one."""

    compat: Level
    warn: Warn | None
    new_id: Callable[[], str] | None
    strict: bool
    max_size: int


class EventDecoder:
    """Decodes the raw events of one stream, in order.

    It has state because older shapes refer to earlier events. ``new_id`` makes the ids that older shapes lack; without
    it they are derived from the run's id. ``warn`` receives a ``Notice`` for everything that is tolerated (default: the
    ``aguila`` logger). ``strict`` accepts exactly the schema. ``max_size`` limits one event, in bytes.
    """

    def __init__(
        self,
        *,
        compat: Level = "standard",
        warn: Warn | None = None,
        new_id: Callable[[], str] | None = None,
        strict: bool = False,
        max_size: int = MAX_SIZE,
    ) -> None:
        self._warn = warn or log_notice
        self._strict = strict
        self._compat = Compat("off" if strict else compat, self._warn, new_id)
        self._max_size = max_size
        # Shorter text cannot be too deep, or too large in any encoding.
        self._unchecked_size = min(SHORT_JSON, max_size // 4)
        self._next_index = 0

    @property
    def next_index(self) -> int:
        """The index of the next raw event: how many were fed."""
        return self._next_index

    def feed(self, data: bytes | str | dict[str, Any]) -> list[Event]:
        """Decode one raw event: into one event, none if its type is unknown, or several for some older shapes.

        META outside a run, where no current event has its meaning, is returned as a ``legacy.MetaEvent``, which is no
        ``Event``; ``verify``, ``compact`` and ``consume`` accept it. A dict is decoded as the JSON that it encodes to.
        Raises ``DecodeError`` with the rule, the path, and the index of the event in the stream.
        """
        index = self._next_index
        self._next_index = index + 1
        text: Any = data if data.__class__ is bytes or data.__class__ is str else _as_text(data, index)
        is_long = len(text) > self._unchecked_size
        if is_long:
            check_size(text, self._max_size, index)
        try:
            event = _decode_exact_event(text)
        except (msgspec.DecodeError, UnicodeError, RecursionError):
            return self._decode_inexact(text, index)
        if is_long:
            check_depth(text, index, partial(_shallow_brackets, event))
        cls = event.__class__
        if cls in EVENT_CHECKS and not EVENT_CHECKS[cls](event):
            return self._decode_inexact(text, index)
        if cls in _OBSERVED and not self._compat.observe(event):
            return self._decode_inexact(text, index)
        return [event]

    def observe(self, event: Event) -> None:
        """Note an event that was not decoded here: older shapes refer to earlier events."""
        if event.__class__ in _OBSERVED:
            self._compat.observe(event)

    def _decode_inexact(self, data: bytes | str, index: int) -> list[Event]:
        check_depth(data, index)
        raw = parse_json(data, strict=self._strict, warn=self._warn, index=index)
        if not is_object(raw):
            raise DecodeError("an event must be a JSON object", rule="ENV-1", index=index)
        return self._enforced(raw, index)

    def _enforced(self, raw: dict[str, Any], index: int) -> list[Event]:
        try:
            upgraded = [raw] if self._strict else self._compat.upgrade(raw)
            events: list[Event] = []
            for item in upgraded:
                if self._compat.level != "off" and item.get("type") == MetaEvent.type:  # outside a run
                    events.append(enforce_document(item, MetaEvent, strict=False, warn=self._warn))
                    continue
                event = enforce_event(item, self._strict, self._warn)
                if event is not None:
                    self.observe(event)
                    events.append(event)
            return events
        except DecodeError as error:
            error.index = index
            raise


def _as_text(data: Any, index: int) -> bytes | str:
    """Convert other input to bytes or str. A dict is encoded as JSON."""
    if isinstance(data, bytes | str):
        return data
    if isinstance(data, bytearray | memoryview):
        return bytes(data)  # type: ignore[reportUnknownArgumentType]
    if not is_object(data):
        kind: str = data.__class__.__name__
        raise DecodeError(f"an event must be a JSON object, not {kind}", rule="ENV-1", index=index)
    try:
        return encode(data)
    except EncodeError as error:
        raise DecodeError(f"not JSON: {error.message}", rule="json", path=error.path, index=index) from None


def _shallow_brackets(value: Any) -> int:
    """Count brackets of messages and tool calls, which are many in a long history and do not nest deep.

    Without this number, ``check_depth`` would measure every long history, which takes longer than decoding it: decode
    RunAgentInput, 3x.
    """
    if value.__class__ is RunStartedEvent:
        value = value.input
    if value.__class__ is not RunAgentInput and value.__class__ is not MessagesSnapshotEvent:
        return 0
    messages: list[Any] = value.messages
    calls = sum([len(m.tool_calls) for m in messages if m.__class__ is AssistantMessage and m.tool_calls is not None])
    return max(0, len(messages) + 2 * calls - _MAX_TYPED_DEPTH)


@overload
def decode_event(
    data: bytes | str, *, strict: Literal[True], warn: Warn | None = ..., max_size: int = ...
) -> Event | None: ...
@overload
def decode_event(data: bytes | str, **options: Unpack[DecoderOptions]) -> Event | MetaEvent | None: ...
def decode_event(
    data: bytes | str,
    *,
    strict: bool = False,
    compat: Level = "standard",
    warn: Warn | None = None,
    max_size: int = MAX_SIZE,
    new_id: Callable[[], str] | None = None,
) -> Event | MetaEvent | None:
    """Decode a single event. Return None if its type is unknown; it is dropped with a notice.

    META, a retired event, is returned as it is: it may occur outside a run, where no current event has its meaning.
    For a stream use ``EventDecoder``: older shapes refer to earlier events. Raises ``DecodeError``.
    """
    is_long = len(data) > SHORT_JSON or max_size < 4 * SHORT_JSON
    if is_long:
        check_size(data, max_size, 0)
    try:  # an exact event needs no decoder object: decode, 3x
        event = _decode_exact_event(data)
    except (msgspec.DecodeError, UnicodeError, RecursionError):
        pass
    else:
        if is_long:
            check_depth(data, 0, partial(_shallow_brackets, event))
        if event.__class__ not in EVENT_CHECKS or EVENT_CHECKS[event.__class__](event):
            return event
    decoder = EventDecoder(compat=compat, warn=warn, new_id=new_id, strict=strict, max_size=max_size)
    events: list[Event | MetaEvent] = [*decoder.feed(data)]
    if not events:
        return None
    if len(events) > 1 and warn is not None:
        warn(
            Notice(
                rule="split-event",
                message="an older event becomes several; only the first is returned here, EventDecoder returns all",
                event_type=events[0].type,
            )
        )
    return events[0]


# The names of unions in the compatibility rules. Other types are named by their class.
_KINDS: Final[dict[Any, str]] = {
    **dict.fromkeys((Message, *get_args(Message)), "Message"),
    **dict.fromkeys((ContentPart, *get_args(ContentPart)), "ContentPart"),
    **dict.fromkeys((RunFinishedOutcome, SubagentFinishedOutcome), "Outcome"),
}


@overload
def decode(data: bytes | str, **options: Unpack[DecoderOptions]) -> Event | None: ...
@overload
def decode(data: bytes | str, type: type[T], **options: Unpack[DecoderOptions]) -> T: ...
@overload
def decode(data: bytes | str, type: Any, **options: Unpack[DecoderOptions]) -> Any: ...
def decode(
    data: bytes | str,
    type: Any = Event,  # noqa: A002  # the name is part of the interface
    *,
    strict: bool = False,
    compat: Level = "standard",
    warn: Warn | None = None,
    max_size: int = MAX_SIZE,
    new_id: Callable[[], str] | None = None,
) -> Any:
    """Decode JSON as a protocol type, a union of them, or a list of either.

    Older shapes are upgraded as ``compat`` allows, unknown members are stripped with notices, and malformed values
    raise ``DecodeError`` with rule and path. ``strict`` accepts exactly the schema. A single event of an unknown type
    returns None, as with ``decode_event``; any other unknown document raises.

    ``new_id`` makes the ids that older shapes lack. Without it the same document gets the same ids, so two messages
    that are decoded one by one would both be ``legacy-message-1``.
    """
    if type is Event:
        return decode_event(data, strict=strict, compat=compat, warn=warn, max_size=max_size, new_id=new_id)
    warn = warn or log_notice
    if get_origin(type) is list and get_args(type) == (Event,):
        return _decode_events(data, strict, compat, warn, max_size, new_id)
    if type in _EVENT_CLASSES:
        event = decode_event(data, strict=strict, compat=compat, warn=warn, max_size=max_size, new_id=new_id)
        if event.__class__ is not type:
            found = "an unknown event" if event is None else event.type
            raise DecodeError(f"expected {type.type}, got {found}", rule="ENV-1", path="/type")
        return event
    check_size(data, max_size)
    return _decode_document(data, type, strict, compat, warn, new_id)


def _decode_document(
    data: bytes | str, type_: Any, strict: bool, compat: Level, warn: Warn, new_id: Callable[[], str] | None
) -> Any:
    try:
        value = json_decoder(with_required_tag(type_)).decode(data)
    except (msgspec.DecodeError, UnicodeError, RecursionError):
        check_depth(data)
    else:
        check_depth(data, count_shallow=partial(_shallow_brackets, value))
        return value
    raw = parse_json(data, strict=strict, warn=warn)
    kind = None if strict else _kind(type_)
    if kind is not None:
        raw = Compat(compat, warn, new_id).upgrade_document(raw, kind)
    return enforce_document(raw, type_, strict, warn)


def decode_exact_input(data: bytes) -> RunAgentInput | None:
    """Decode an input that matches the schema exactly. Return None for any other; ``decode`` may accept it."""
    try:
        value = _decode_exact_input(data)
        if len(data) > SHORT_JSON:
            check_depth(data, count_shallow=partial(_shallow_brackets, value))
    except (msgspec.DecodeError, UnicodeError, RecursionError, DecodeError):
        return None
    return value


def _kind(type_: Any) -> str | None:
    if get_origin(type_) is list:
        item = _kind(get_args(type_)[0])
        return None if item is None else f"{item}[]"
    return _KINDS.get(type_) or getattr(type_, "__name__", None)


def _decode_events(
    data: bytes | str,
    strict: bool,
    compat: Level,
    warn: Warn,
    max_size: int,
    new_id: Callable[[], str] | None,
) -> list[Event]:
    check_size(data, max_size)
    check_depth(data)
    raw = parse_json(data, strict=strict, warn=warn)
    if not is_array(raw):
        raise DecodeError("expected a JSON array of events", rule="ENV-1")
    decoder = EventDecoder(compat=compat, warn=warn, new_id=new_id, strict=strict)
    events: list[Event] = []
    for index, item in enumerate(raw):
        if not is_object(item):
            raise DecodeError("an event must be a JSON object", rule="ENV-1", path=f"/{index}", index=index)
        events += decoder.feed(item)
    return events
