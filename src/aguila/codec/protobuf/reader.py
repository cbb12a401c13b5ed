"""Read a frame as the JSON object that the same event has on the JSON transports (PB-9).

The object is then validated like any other (TRN-9). Only errors that JSON cannot have are refused here: two events in a
frame, a base event of another type, two contents of one message. Unknown events and parts are reported here (PB-11).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from google.protobuf.message import DecodeError as ProtobufError
from msgspec import UNSET

from aguila.codec.notices import Notice, Warn
from aguila.codec.protobuf.scanner import Malformed, read_envelope
from aguila.codec.protobuf.schema import EVENTS, OPERATION_NAMES, PARTS, SOURCES, TYPE_NAMES, MessageFields
from aguila.codec.protobuf.values import read_struct, read_value
from aguila.errors import DecodeError

JSON = dict[str, Any]


class Context:
    """The event type and the receiver of notices, for readers of nested messages."""

    __slots__ = ("event_type", "warn")

    def __init__(self, event_type: str, warn: Warn) -> None:
        self.event_type = event_type
        self.warn = warn

    def report_dropped(self, what: str, path: str) -> None:
        """Report fields without a name in this version: validation cannot report them."""
        self.warn(Notice(rule="PROC-4", message=f"dropped {what}", path=path, event_type=self.event_type))


Read = Callable[[Any, str, Context], Any]
"""Converts the content of one field, at a path, to JSON. ``UNSET`` omits the member."""


def read_event(data: bytes, warn: Warn) -> JSON | None:
    """Read the event of a frame as a JSON object. Return None, with a notice, if its kind is unknown (PB-11).

    Raises ``DecodeError``.
    """
    try:
        field, payload, unknown = read_envelope(data, _KNOWN)
    except Malformed as error:
        raise DecodeError(str(error), rule="PB-7") from None
    if not field:
        warn(Notice(rule="PB-11", message=f"dropped an event of an unknown kind (field {unknown})"))
        return None
    type_, number, record = _RECORDS[field]
    message = record.new()
    try:
        message.MergeFromString(payload)
    except ProtobufError as error:
        raise DecodeError(f"not a {type_} event: {error}", rule="PB-7") from None
    if not message.HasField("base_event"):
        raise DecodeError(f"{type_} without base_event", rule="PB-7", path="/type")
    base = message.base_event
    if base.type != number:
        other = TYPE_NAMES.get(base.type, base.type)
        raise DecodeError(f"a {type_} event with the base_event of {other}", rule="PB-7", path="/type")
    context = Context(type_, warn)
    out = record.read(message, "", context)
    out.update(_BASE.read(base, "", context))
    out["type"] = type_
    if record.finish is not None:
        record.finish(out, "", context)
    return out


class _Record:
    """Reads one kind of message. ``always`` names the lists that are empty rather than absent (PB-12)."""

    def __init__(
        self,
        name: str,
        readers: dict[str, Read] | None = None,
        *,
        always: tuple[str, ...] = (),
        finish: Callable[[JSON, str, Context], None] | None = None,
    ) -> None:
        fields = MessageFields(name)
        self.new = fields.new
        self.finish = finish
        self.always = always
        self.texts = dict.fromkeys([fields.json_names[field] for field in fields.implicit], "")
        self.scalars = frozenset(fields.scalars)
        self.readers: dict[str, Read] = {
            **dict.fromkeys(fields.values, _value),
            **dict.fromkeys(fields.structs, _struct),
            **(readers or {}),
        }

    def read(self, message: Any, path: str, context: Context) -> JSON:
        """Read the members of a message, without ``finish``."""
        out: JSON = {**self.texts, **{name: [] for name in self.always}}
        for field, value in message.ListFields():
            name: str = field.json_name
            if field.name in self.readers:
                result = self.readers[field.name](value, f"{path}/{name}", context)
                if result is not UNSET:
                    out[name] = result
            elif field.name in self.scalars:
                out[name] = value
        return out

    def __call__(self, message: Any, path: str, context: Context) -> JSON:
        out = self.read(message, path, context)
        if self.finish is not None:
            self.finish(out, path, context)
        return out


# Open JSON


def _open_json(read: Callable[[Any], Any]) -> Read:
    def read_open(occurrences: Any, path: str, context: Context) -> Any:
        try:
            return read(occurrences)
        except Malformed as error:
            raise DecodeError(str(error), rule="PB-7", path=path) from None

    return read_open


_value, _struct = _open_json(read_value), _open_json(read_struct)


def _each(read: Read) -> Read:
    def read_all(items: Any, path: str, context: Context) -> list[Any]:
        read_items = [read(item, f"{path}/{i}", context) for i, item in enumerate(items)]
        return [item for item in read_items if item is not UNSET]

    return read_all


def _strings(items: Any, path: str, context: Context) -> list[str]:
    return list(items)


# Content


def _part(message: Any, path: str, context: Context) -> Any:
    present = message.ListFields()
    if not present:
        context.report_dropped("a content part of an unknown kind", path)
        return UNSET
    if len(present) > 1:
        names = f"{present[0][0].name} and {present[1][0].name}"
        raise DecodeError(f"a content part that is both {names}", rule="PB-7", path=path)
    field, part = present[0]
    kind: str = field.name
    out = _PART[kind].read(part, path, context)
    out["type"] = kind
    if kind != "text" and part.HasField("source"):
        source = _source(part.source, f"{path}/source", context)
        if source is UNSET:
            context.report_dropped("a content part whose source is of an unknown kind", path)
            return UNSET
        out["source"] = source
    return out


def _source(message: Any, path: str, context: Context) -> Any:
    present = message.ListFields()
    if not present:
        return UNSET
    if len(present) > 1:
        names = f"{present[0][0].name} and {present[1][0].name}"
        raise DecodeError(f"a source that is both {names}", rule="PB-7", path=path)
    field, source = present[0]
    out = _SOURCE[field.name].read(source, path, context)
    out["type"] = field.name
    return out


def _parts(items: Any, path: str, context: Context) -> list[Any]:
    return _every_part(items, path.removesuffix("Parts"), context)  # in JSON the member is called content


def _activity_content(occurrences: Any, path: str, context: Context) -> Any:
    return _struct(occurrences, path.removesuffix("activityContent") + "content", context)


def _finish_message(out: JSON, path: str, context: Context) -> None:
    """Merge the three content fields into the one member of JSON. The role decides which field is allowed."""
    role = out["role"]
    text = out.get("content", UNSET)
    parts = out.pop("contentParts", UNSET)
    activity = out.pop("activityContent", UNSET)
    given = [content for content in (text, parts, activity) if content is not UNSET]
    if len(given) > 1:
        raise DecodeError("a message with two content fields", rule="PB-7", path=f"{path}/content")
    if role in _ROLES:
        misplaced = (
            (parts is not UNSET and role not in _MULTIMODAL)
            or (activity is not UNSET and role != "activity")
            or (text is not UNSET and role == "activity")
        )
        if misplaced:
            raise DecodeError(f"the role {role} does not have this content field", rule="PB-7", path=f"{path}/content")
    if given:
        out["content"] = given[0]
    elif role in _MULTIMODAL:
        out["content"] = []  # an absent list and an empty one have the same bytes


def _finish_result(out: JSON, path: str, context: Context) -> None:
    parts = out.pop("contentParts", UNSET)
    if "content" not in out:
        out["content"] = [] if parts is UNSET else parts
    elif parts is not UNSET:
        raise DecodeError("a tool result with two content fields", rule="PB-7", path=f"{path}/content")


# An outcome is a string and lists here, and one object in JSON. Contradictions are rebuilt as they came, so that
# validation refuses them (PB-10).


def _finish_run(out: JSON, path: str, context: Context) -> None:
    _finish_outcome(out, ("interrupts", "pendingToolCallIds"))
    if "outcome" in out and out["outcome"]["type"] == "interrupt":
        out["outcome"].setdefault("interrupts", [])


def _finish_subagent(out: JSON, path: str, context: Context) -> None:
    _finish_outcome(out, ("interruptIds",))


def _finish_outcome(out: JSON, payloads: tuple[str, ...]) -> None:
    kind = out.pop("outcome")
    if kind == "":
        return
    out["outcome"] = {"type": kind, **{name: out.pop(name) for name in payloads if name in out}}


def _operation(message: Any, path: str, context: Context) -> JSON:
    out = _OPERATION.read(message, path, context)
    # An unknown number is written as digits: validation drops unknown operations by name.
    out["op"] = OPERATION_NAMES.get(message.op) or str(message.op)
    return out


_ROLES = frozenset({"developer", "system", "assistant", "user", "tool", "activity", "reasoning"})
_MULTIMODAL = frozenset({"user", "tool"})

_PART = {kind: _Record(f"{kind.capitalize()}InputPart") for kind in PARTS}
_SOURCE = {kind: _Record(f"InputContent{kind.capitalize()}Source") for kind in SOURCES}
_OPERATION = _Record("JsonPatchOperation")
_FUNCTION = _Record("ToolCall.Function")
_TOOL_CALL = _Record("ToolCall", {"function": _FUNCTION})
_every_part = _each(_part)
_MESSAGE = _Record(
    "Message",
    {"tool_calls": _each(_TOOL_CALL), "content_parts": _parts, "activity_content": _activity_content},
    finish=_finish_message,
)
_INPUT = _Record(
    "RunAgentInput",
    {
        "messages": _each(_MESSAGE),
        "tools": _each(_Record("Tool")),
        "context": _each(_Record("Context")),
        "resume": _each(_Record("ResumeEntry")),
    },
    always=("messages",),
)
_USAGE = _each(_Record("Usage"))
_BASE = _Record("BaseEvent")

_SPECIAL: dict[str, dict[str, Any]] = {
    "RUN_STARTED": {"readers": {"input": _INPUT}},
    "RUN_FINISHED": {
        "readers": {
            "usage": _USAGE,
            "interrupts": _each(_Record("Interrupt")),
            "pending_tool_call_ids": _strings,
        },
        "finish": _finish_run,
    },
    "RUN_ERROR": {"readers": {"usage": _USAGE}},
    "SUBAGENT_FINISHED": {"readers": {"interrupt_ids": _strings}, "finish": _finish_subagent},
    "STATE_DELTA": {"readers": {"delta": _each(_operation)}, "always": ("delta",)},
    "ACTIVITY_DELTA": {"readers": {"patch": _each(_operation)}, "always": ("patch",)},
    "MESSAGES_SNAPSHOT": {"readers": {"messages": _each(_MESSAGE)}, "always": ("messages",)},
    "TOOL_CALL_RESULT": {"readers": {"content_parts": _parts}, "finish": _finish_result},
}


def _event_record(cls: type[Any], type_: str) -> _Record:
    special = _SPECIAL.get(type_, {})
    return _Record(cls.__name__, special.get("readers"), always=special.get("always", ()), finish=special.get("finish"))


_RECORDS: dict[int, tuple[str, int, _Record]] = {
    field: (str(type_), number, _event_record(cls, type_)) for cls, type_, field, number in EVENTS
}
_KNOWN = frozenset(_RECORDS)
