"""Layer: codec. JSON to protocol objects; the way back is ``writing``, whose functions this module gives too.

Below: ``text`` (plain JSON), ``compat`` (older shapes), ``enforce`` (what a receiver strips and refuses), ``large``.
Above: ``sse``, ``jsonl`` and ``protobuf`` bring the bytes, or the raw objects, that end here.

Decoding tries the typed decoder first: it refuses unknown members, nulls and wrong types at C speed, so input that
is exactly right costs one call. Only what it refuses takes the path of the receiver rules: compatibility boundary,
stripping with notices, and the final verdict (PROC-7, PROC-8). Both paths end in the same types.
What JSON itself leaves open is decided in ``text``.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import cache
from itertools import islice
from typing import Any, Final, TypeVar, Union, get_args, get_origin, overload

import msgspec

from aguila.codec.compat import Compat, Level
from aguila.codec.json.encoder import encode, encode_event, encode_events
from aguila.codec.json.large_strings import LARGE, ExcisedJSON, excise_strings
from aguila.codec.json.shapes import Choice, Shape, shape_of
from aguila.codec.json.text import (
    MAX_SIZE,
    SHORT_JSON,
    check_depth,
    check_size,
    parse_json,
    replace_surrogates,
)
from aguila.codec.json.validation import is_patch, refused, strip
from aguila.codec.json.values import is_array, is_object
from aguila.codec.notices import Notice, Warn, log_notice
from aguila.errors import DecodeError, EncodeError
from aguila.protocol import (
    ActivityDeltaEvent,
    AssistantMessage,
    ContentPart,
    Event,
    Message,
    MessagesSnapshotEvent,
    ReasoningMessageStartEvent,
    ResumeStatus,
    RunAgentInput,
    RunFinishedOutcome,
    RunStartedEvent,
    StateDeltaEvent,
    SubagentFinishedOutcome,
)
from aguila.protocol.events import IMPLIED_REASONING_ROLE

__all__ = ["EventDecoder", "decode", "decode_event", "encode", "encode_event", "encode_events"]

T = TypeVar("T")

_EVENT_CLASSES: Final[tuple[type[msgspec.Struct], ...]] = get_args(Event)
_EVENT_SHAPE = shape_of(Event)
assert isinstance(_EVENT_SHAPE, Choice)  # noqa: S101
_EVENT_RECORDS: Final = _EVENT_SHAPE.options
_FLAT_DEPTH: Final = 16  # no protocol object nests deeper than this in others
_decode_event_exactly = msgspec.json.Decoder(Event).decode


class EventDecoder:
    """Turns raw events, one at a time, into typed ones: the compatibility boundary and enforcement of a stream.

    Stateful, because older shapes refer to earlier events, and one of them may become two events. ``new_id`` mints
    the ids that older shapes lack; without it ids are derived from the run's. ``warn`` receives a ``Notice`` for
    everything that was tolerated (default: the ``aguila`` logger). ``strict`` accepts exactly the schema.
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
        self._unchecked = min(SHORT_JSON, max_size // 4)
        self._fed = 0
        # What has to look at an event after the typed decoder accepted it; a class that is absent is done.
        self._after: dict[type[Any], Callable[[Any], bool]] = dict(_CHECKS)
        if not strict and compat != "off":
            for cls in Compat.OBSERVED:
                self._after[cls] = self._observing(_CHECKS.get(cls))

    def _observing(self, check: Callable[[Any], bool] | None) -> Callable[[Any], bool]:
        observe = self._compat.observe

        def checked(event: Event) -> bool:
            if check is not None and not check(event):
                return False
            observe(event)
            return True

        return checked

    @property
    def next_index(self) -> int:
        """How many raw events were fed: the index of the next one."""
        return self._fed

    def feed(self, data: bytes | str | dict[str, Any]) -> list[Event]:
        """The events that one raw event stands for: mostly one, none if its type is unknown, two for some old shapes.

        A plain object is judged as the JSON it is written as. Raises ``DecodeError`` (with rule, path, and the index of
        the event among those fed) for what is not a well-formed event.
        """
        index = self._fed
        self._fed = index + 1
        text = data if data.__class__ is bytes or data.__class__ is str else _as_text(data, index)
        if len(text) > self._unchecked:
            check_size(text, self._max_size, index)  # type: ignore[arg-type]
            if len(text) > LARGE and (event := _without_large(text)) is not None:  # type: ignore[arg-type]
                check = self._after.get(event.__class__)
                if check is None or check(event):
                    return [event]
        try:
            event = _decode_event_exactly(text)  # type: ignore[arg-type]
        except (msgspec.DecodeError, UnicodeError, RecursionError):
            return self._inexact(text, index)  # type: ignore[arg-type]
        if len(text) > self._unchecked:
            check_depth(text, index, _flat_brackets(event))  # type: ignore[arg-type]
        check = self._after.get(event.__class__)
        if check is None or check(event):
            return [event]
        return self._inexact(text, index)  # type: ignore[arg-type]

    def feed_all(self, texts: Iterable[bytes], events: list[Event]) -> None:
        """Appends to ``events`` what ``feed`` would return for each text: what came before an error is then there."""
        short, after = self._unchecked, self._after
        for data in texts:
            if len(data) <= short:
                try:
                    event = _decode_event_exactly(data)
                except (msgspec.DecodeError, UnicodeError, RecursionError):
                    events += self.feed(data)
                    continue
                check = after.get(event.__class__)
                if check is None or check(event):
                    self._fed += 1
                    events.append(event)
                    continue
            events += self.feed(data)

    def feed_exact(self, texts: Sequence[bytes], start: int = 0) -> list[Event]:
        """What ``feed`` would return for the texts from ``start`` on, as long as each is one event just as it stands.

        The first text that needs a closer look ends the run; it has not been fed.
        """
        events = self._all_exact(texts) if start == 0 else None
        if events is None:
            events = list(self._leading_exact(islice(texts, start, None)))
        self._fed += len(events)
        return events

    def _all_exact(self, texts: Sequence[bytes]) -> list[Event] | None:
        """All of them at once, which costs half; None if one of them cannot be read that way."""
        if max(map(len, texts), default=0) > self._unchecked:
            return None
        try:
            events: list[Event] = list(map(_decode_event_exactly, texts))
        except (msgspec.DecodeError, UnicodeError, RecursionError):
            return None
        if not self._after.keys().isdisjoint(map(type, events)):
            for i, event in enumerate(events):
                check = self._after.get(event.__class__)
                if check is not None and not check(event):
                    return events[:i]
        return events

    def _leading_exact(self, texts: Iterable[bytes]) -> Iterator[Event]:
        for data in texts:
            if len(data) > self._unchecked:
                return
            try:
                event = _decode_event_exactly(data)
            except (msgspec.DecodeError, UnicodeError, RecursionError):
                return
            check = self._after.get(event.__class__)
            if check is not None and not check(event):
                return
            yield event

    def _inexact(self, data: bytes | str, index: int) -> list[Event]:
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
                event = _enforce_event(item, self._strict, self._warn)
                if event is not None:
                    if event.__class__ in Compat.OBSERVED:
                        self._compat.observe(event)
                    events.append(event)
            return events
        except DecodeError as error:
            error.index = index
            raise


def _without_large(data: bytes | str) -> Event | None:
    """An event that is exactly right, read without its large strings; None if it is not, or has none."""
    short = excise_strings(data) if isinstance(data, bytes) else None
    if short is None:
        return None
    try:
        event = _decode_event_exactly(short.text)
        check_depth(short.text, flat=_flat_brackets(event))
    except (msgspec.DecodeError, UnicodeError, RecursionError, DecodeError):
        return None
    return short.restore(event)


def _as_text(data: Any, index: int) -> bytes | str:
    """What is neither bytes nor str as one of them: a plain object is judged as the JSON it is written as."""
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


def _enforce_event(raw: dict[str, Any], strict: bool, warn: Warn) -> Event | None:
    type_ = raw.get("type")
    if not isinstance(type_, str) or not type_:
        raise DecodeError("an event must say its type", rule="ENV-1", path="/type")
    record = _EVENT_RECORDS.get(type_)
    if record is None:
        if strict:
            raise DecodeError(f"there is no event {type_!r}", rule="PROC-3", path="/type")
        warn(Notice(rule="PROC-3", message="dropped an event of an unknown type", path="/type", event_type=type_))
        return None
    stripped, notices, unknown = strip(raw, record, type_)
    if strict and notices:
        raise _unknown(notices[0])
    if unknown is not None:
        if strict:
            raise DecodeError("unknown value in a required place", rule="PROC-4", path=unknown)
        message = "dropped an event with an unknown value in a required place"
        warn(Notice(rule="PROC-4", message=message, path=unknown, event_type=type_))
        return None
    event: Any = _convert(stripped, record.cls, record)
    check = _CHECKS.get(event.__class__)
    if check is not None and not check(event):  # a patch was checked while stripping: only the role is left
        raise DecodeError("required member is missing", rule="RSN-3", path="/role")
    for notice in notices:
        warn(notice)
    return event


def _unknown(notice: Notice) -> DecodeError:
    message = notice.message.removeprefix("removed an ").removeprefix("removed the ")
    return DecodeError(message, rule=notice.rule, path=notice.path)


def _convert(raw: Any, type_: Any, shape: Shape) -> Any:
    try:
        return msgspec.convert(raw, type_)
    except msgspec.ValidationError as error:
        raise refused(error, raw, shape) from None
    except UnicodeEncodeError:
        # Half a surrogate pair where no text may be: msgspec trips over it before it can say where.
        _convert(replace_surrogates(raw), type_, shape)
        raise DecodeError("half a surrogate pair in a place that cannot hold one", rule="PROC-2") from None


def _flat_brackets(value: Any) -> int:
    """How many brackets the messages of a document have at least: many, in long histories, and none of them deep.

    Without it every long history would be measured in full, which takes longer than decoding it.
    """
    if value.__class__ is RunStartedEvent:
        value = value.input
    if value.__class__ is not RunAgentInput and value.__class__ is not MessagesSnapshotEvent:
        return 0
    messages: list[Any] = value.messages
    calls = sum([len(m.tool_calls) for m in messages if m.__class__ is AssistantMessage and m.tool_calls is not None])
    return max(0, len(messages) + 2 * calls - _FLAT_DEPTH)


def _has_role(event: ReasoningMessageStartEvent) -> bool:
    return event.role is not IMPLIED_REASONING_ROLE


# What the typed decoder cannot say: JSON Patch operations are dicts to it, and an implied role has a default.
_CHECKS: Final[dict[type[Any], Callable[[Any], bool]]] = {
    StateDeltaEvent: lambda event: is_patch(event.delta),
    ActivityDeltaEvent: lambda event: is_patch(event.patch),
    ReasoningMessageStartEvent: _has_role,
}


def decode_event(
    data: bytes | str,
    *,
    strict: bool = False,
    compat: Level = "standard",
    warn: Warn | None = None,
    max_size: int = MAX_SIZE,
) -> Event | None:
    """One event by itself; None if its type is unknown (dropped with a notice).

    For a stream use ``EventDecoder``: older shapes refer to earlier events. Raises ``DecodeError``.
    """
    long = len(data) > SHORT_JSON
    if long or max_size < 4 * SHORT_JSON:
        check_size(data, max_size, 0)
        if len(data) > LARGE:
            event = _without_large(data)
            if event is not None and (event.__class__ not in _CHECKS or _CHECKS[event.__class__](event)):
                return event
    try:  # an event that is exactly right needs no decoder object
        event = _decode_event_exactly(data)
    except (msgspec.DecodeError, UnicodeError, RecursionError):
        pass
    else:
        if long:
            check_depth(data, 0, _flat_brackets(event))
        if event.__class__ not in _CHECKS or _CHECKS[event.__class__](event):
            return event
    events = EventDecoder(compat=compat, warn=warn, strict=strict, max_size=max_size).feed(data)
    if not events:
        return None
    if len(events) > 1 and warn is not None:
        warn(
            Notice(
                rule="split-event",
                message="an older event stands for several; only the first is returned here, EventDecoder gives all",
                event_type=events[0].type,
            )
        )
    return events[0]


_exact: dict[Any, Callable[[bytes | str], Any]] = {}

# The name under which the compatibility boundary knows a type that has more than one class; others go by their own.
_KINDS: Final[dict[Any, str]] = {
    **dict.fromkeys((Message, *get_args(Message)), "Message"),
    **dict.fromkeys((ContentPart, *get_args(ContentPart)), "ContentPart"),
    **dict.fromkeys((RunFinishedOutcome, SubagentFinishedOutcome), "Outcome"),
}


@overload
def decode(
    data: bytes | str, *, strict: bool = ..., compat: Level = ..., warn: Warn | None = ..., max_size: int = ...
) -> Event | None: ...
@overload
def decode(
    data: bytes | str,
    type: type[T],
    *,
    strict: bool = ...,
    compat: Level = ...,
    warn: Warn | None = ...,
    max_size: int = ...,
) -> T: ...
@overload
def decode(
    data: bytes | str,
    type: Any,
    *,
    strict: bool = ...,
    compat: Level = ...,
    warn: Warn | None = ...,
    max_size: int = ...,
) -> Any: ...
def decode(
    data: bytes | str,
    type: Any = Event,  # noqa: A002  # the name is part of the interface
    *,
    strict: bool = False,
    compat: Level = "standard",
    warn: Warn | None = None,
    max_size: int = MAX_SIZE,
) -> Any:
    """``data`` as a protocol type, a union of them, or a list of either.

    By the receiver's rules: older shapes are upgraded as far as ``compat`` says, unknown material is stripped with
    notices, malformed values raise ``DecodeError`` with rule and path. With ``strict`` exactly the schema is accepted.
    A single event of an unknown type gives None, as with ``decode_event``; any other unknown document raises.
    """
    if type is Event:
        return decode_event(data, strict=strict, compat=compat, warn=warn, max_size=max_size)
    exactly = _exact.get(type)
    if exactly is not None and len(data) <= SHORT_JSON and max_size >= 4 * SHORT_JSON:  # nothing to check but its shape
        try:
            return exactly(data)
        except (msgspec.DecodeError, UnicodeError, RecursionError):
            pass
    warn = warn or log_notice
    if get_origin(type) is list and get_args(type) == (Event,):
        return _decode_events(data, strict, compat, warn, max_size)
    if type in _EVENT_CLASSES:
        event = decode_event(data, strict=strict, compat=compat, warn=warn, max_size=max_size)
        if event.__class__ is not type:
            found = "an unknown event" if event is None else event.type
            raise DecodeError(f"expected {type.type}, got {found}", rule="ENV-1", path="/type")
        return event
    check_size(data, max_size)
    if len(data) > LARGE and isinstance(data, bytes) and (short := excise_strings(data)) is not None:
        return decode_excised(short, type, strict=strict, compat=compat, warn=warn)
    return _document(data, type, strict, compat, warn)


def decode_excised(
    short: ExcisedJSON,
    type: Any,  # noqa: A002
    *,
    strict: bool = False,
    compat: Level = "standard",
    warn: Warn | None = None,
) -> Any:
    """What ``decode`` gives for a large document that is no event, and was cut; its size is not looked at."""
    warn = warn or log_notice
    notices: list[Notice] = []
    try:
        value = _document(short.text, type, strict, compat, notices.append)
    except DecodeError:
        return _document(short.data, type, strict, compat, warn)  # it may be right all the same
    for notice in notices:
        warn(notice)
    return short.restore(value)


def _document(data: bytes | str, type_: Any, strict: bool, compat: Level, warn: Warn) -> Any:
    try:
        value = _exactly(type_)(data)
    except (msgspec.DecodeError, UnicodeError, RecursionError):
        check_depth(data)
    else:
        check_depth(data, flat=_flat_brackets(value))
        return value
    raw = parse_json(data, strict=strict, warn=warn)
    kind = None if strict else _kind(type_)
    if kind is not None:
        raw = Compat(compat, warn).upgrade_document(raw, kind)
    return enforce_document(raw, type_, strict, warn)


def decode_exactly(data: bytes, type: type[T]) -> T | None:  # noqa: A002
    """A document that is exactly as the schema has it; None for any other, which ``decode`` may repair."""
    try:
        value = _exactly(type)(data)
        if len(data) > SHORT_JSON:
            check_depth(data, flat=_flat_brackets(value))
    except (msgspec.DecodeError, UnicodeError, RecursionError, DecodeError):
        return None
    return value


def _kind(type_: Any) -> str | None:
    if get_origin(type_) is list:
        item = _kind(get_args(type_)[0])
        return None if item is None else f"{item}[]"
    return _KINDS.get(type_) or getattr(type_, "__name__", None)


def enforce_document(raw: Any, type_: Any, strict: bool, warn: Warn) -> Any:
    """A plain value that is no event as its protocol type, by the receiver's rules. Raises ``DecodeError``."""
    stripped, notices, unknown = strip(raw, shape_of(type_))
    if strict and notices:
        raise _unknown(notices[0])
    if unknown is not None:
        raise DecodeError("the document as a whole is of no known kind", rule="PROC-4", path=unknown)
    if type_ is RunAgentInput and is_object(raw):
        _refuse_lost_answers(raw, stripped)
    value = _convert(stripped, _told_apart(type_), shape_of(type_))
    for notice in notices:
        warn(notice)
    return value


def _refuse_lost_answers(raw: dict[str, Any], stripped: dict[str, Any]) -> None:
    """A resume entry with an unknown status must not silently uncover its interrupt (AMB-9)."""
    before, after = raw.get("resume"), stripped.get("resume")
    if is_array(before) and is_array(after) and len(after) < len(before):
        known = get_args(ResumeStatus)
        lost = next(i for i, entry in enumerate(before) if is_object(entry) and entry.get("status") not in known)
        raise DecodeError("a resume entry has an unknown status", rule="AMB-9", path=f"/resume/{lost}/status")


def _decode_events(data: bytes | str, strict: bool, compat: Level, warn: Warn, max_size: int) -> list[Event]:
    check_size(data, max_size)
    check_depth(data)
    raw = parse_json(data, strict=strict, warn=warn)
    if not is_array(raw):
        raise DecodeError("expected a JSON array of events", rule="ENV-1")
    decoder = EventDecoder(compat=compat, warn=warn, strict=strict)
    events: list[Event] = []
    for index, item in enumerate(raw):
        if not is_object(item):
            raise DecodeError("an event must be a JSON object", rule="ENV-1", path=f"/{index}", index=index)
        events += decoder.feed(item)
    return events


def _exactly(type_: Any) -> Callable[[bytes | str], Any]:
    decoder = _exact.get(type_)
    if decoder is None:
        decoder = _exact[type_] = msgspec.json.Decoder(_told_apart(type_)).decode
    return decoder


@cache
def _told_apart(type_: Any) -> Any:
    """``type_``, in a union with a sibling nobody can name if it has a discriminator: msgspec demands it only then."""
    if get_origin(type_) is list:
        return list[_told_apart(get_args(type_)[0])]
    config = getattr(type_, "__struct_config__", None)
    if config is None or config.tag is None:
        return type_
    sibling = msgspec.defstruct("Sibling", [], tag_field=config.tag_field, tag="\x00")
    return Union[type_, sibling]  # noqa: UP007  # built at run time
