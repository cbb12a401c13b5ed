"""Write an event as the bytes of ``ag_ui.Event`` (PB-8).

The fields are those that the official encoder writes. A value without a protobuf form raises an error; the official
encoder drops it or writes nothing.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import msgspec

from aguila.codec.protobuf.schema import EVENTS, NULLABLE, OPERATIONS, PARTS, SOURCES, MessageFields
from aguila.codec.protobuf.values import OnInexact, Unwritable, find_unwritable, varint, write_struct, write_value
from aguila.errors import EncodeError
from aguila.protocol import (
    MAX_SAFE_INTEGER,
    ActivityDeltaEvent,
    ActivityMessage,
    AssistantMessage,
    Message,
    MessagesSnapshotEvent,
    RunAgentInput,
    RunErrorEvent,
    RunFinishedEvent,
    RunFinishedInterruptOutcome,
    RunFinishedSuccessOutcome,
    RunStartedEvent,
    StateDeltaEvent,
    SubagentFinishedEvent,
    SubagentFinishedSuspendedOutcome,
    TokenUsage,
    ToolCallResultEvent,
    UserMessage,
    is_plain_text,
)

WriteRest = Callable[[Any, Any, OnInexact], None]
"""Writes the members of an event, the second argument, that are not one field each into the message, the first."""


def write_event(event: Any, on_inexact: OnInexact) -> bytes:
    """Write an event. Raises ``EncodeError`` with the path of the value that cannot be written."""
    record = _RECORDS.get(event.__class__)
    if record is None:
        raise EncodeError(f"{type(event).__name__} is not an event of the protocol")
    try:
        return record.write(event, on_inexact)
    except EncodeError:
        raise
    except (TypeError, ValueError, AttributeError, OverflowError) as error:
        raise _explain(event, error) from error


class _Record:
    """Writes one kind of event."""

    def __init__(self, cls: type[Any], field: int, number: int, rest: WriteRest | None) -> None:
        fields = MessageFields(cls.__name__)
        reshaped = _RESHAPED.get(cls, ())
        self.new = fields.new
        self.number = number
        self.scalars = tuple(name for name in fields.scalars if name not in reshaped)
        self.opaque = [(n, write_value, f"{fields.name}.{n}" in NULLABLE) for n in fields.values]
        self.opaque += [(n, write_struct, False) for n in fields.structs]
        self.rest = rest
        self.tag = varint(field << 3 | 2)
        # The base of most events has only a type, so its bytes are made once.
        self.base = _sized(1, _BASE.new(type=number).SerializeToString())

    def write(self, event: Any, on_inexact: OnInexact) -> bytes:
        message = self.new()
        for name in self.scalars:
            value = getattr(event, name)
            if value is not None:
                setattr(message, name, value)
        for name, write, nullable in self.opaque:
            value = getattr(event, name)
            if value is not None or nullable:
                getattr(message, name).append(write(value, on_inexact))
        if self.rest is not None:
            self.rest(message, event, on_inexact)
        if event.timestamp is None and event.raw_event is None and event.metadata is None:
            base = self.base
        else:
            base = self._full_base(event, on_inexact)
        # The base is field 1 of every event and fields are written in order, so its bytes come first.
        body = base + message.SerializeToString(deterministic=True)
        return self.tag + varint(len(body)) + body

    def _full_base(self, event: Any, on_inexact: OnInexact) -> bytes:
        base = _BASE.new(type=self.number)
        if event.timestamp is not None:
            base.timestamp = _bounded(event.timestamp, -MAX_SAFE_INTEGER, "/timestamp")
        if event.raw_event is not None:
            base.raw_event.append(write_value(event.raw_event, on_inexact))
        if event.metadata is not None:
            base.metadata.append(write_struct(event.metadata, on_inexact))
        return _sized(1, base.SerializeToString(deterministic=True))


def _sized(field: int, body: bytes) -> bytes:
    return varint(field << 3 | 2) + varint(len(body)) + body


def _bounded(number: int, least: int, path: str) -> int:
    if not least <= number <= MAX_SAFE_INTEGER:
        raise EncodeError(f"{number} is not between {least} and {MAX_SAFE_INTEGER}", path=path)
    return number


def _fill(message: Any, source: Any, fields: MessageFields, on_inexact: OnInexact) -> None:
    """Copy every scalar and every open value of ``source`` to the field of the same name."""
    for name in fields.scalars:
        value = getattr(source, name, None)
        if value is not None:
            setattr(message, name, value)
    for name in fields.values:
        value = getattr(source, name, None)
        if value is not None:
            getattr(message, name).append(write_value(value, on_inexact))
    for name in fields.structs:
        value = getattr(source, name, None)
        if value is not None:
            getattr(message, name).append(write_struct(value, on_inexact))


# Runs


def _run_started(message: Any, event: RunStartedEvent, on_inexact: OnInexact) -> None:
    if event.input is not None:
        message.input.SetInParent()
        _input(message.input, event.input, on_inexact)


def _input(message: Any, given: RunAgentInput, on_inexact: OnInexact) -> None:
    _fill(message, given, _INPUT, on_inexact)
    _messages(message.messages, given.messages, "/input/messages", on_inexact)
    for tool in given.tools or ():
        _fill(message.tools.add(), tool, _TOOL, on_inexact)
    for context in given.context or ():
        _fill(message.context.add(), context, _CONTEXT, on_inexact)
    for entry in given.resume or ():
        _fill(message.resume.add(), entry, _RESUME_ENTRY, on_inexact)


def _run_finished(message: Any, event: RunFinishedEvent, on_inexact: OnInexact) -> None:
    outcome = event.outcome
    if outcome is not None:
        message.outcome = outcome.type
        if isinstance(outcome, RunFinishedInterruptOutcome):
            for interrupt in outcome.interrupts:
                _fill(message.interrupts.add(), interrupt, _INTERRUPT, on_inexact)
        elif isinstance(outcome, RunFinishedSuccessOutcome) and outcome.pending_tool_call_ids is not None:
            message.pending_tool_call_ids.extend(outcome.pending_tool_call_ids)
    _usage(message, event.usage)


def _run_error(message: Any, event: RunErrorEvent, on_inexact: OnInexact) -> None:
    _usage(message, event.usage)


def _usage(message: Any, usage: list[TokenUsage] | None) -> None:
    for i, entry in enumerate(usage or ()):
        target = message.usage.add()
        for name in _USAGE.scalars:
            value = getattr(entry, name)
            if value is None:
                continue
            if name.endswith("tokens"):
                _bounded(value, 0, f"/usage/{i}/{_USAGE.json_names[name]}")
            setattr(target, name, value)


def _subagent_finished(message: Any, event: SubagentFinishedEvent, on_inexact: OnInexact) -> None:
    if event.outcome is not None:
        message.outcome = event.outcome.type
        if isinstance(event.outcome, SubagentFinishedSuspendedOutcome) and event.outcome.interrupt_ids is not None:
            message.interrupt_ids.extend(event.outcome.interrupt_ids)


# Patches


def _state_delta(message: Any, event: StateDeltaEvent, on_inexact: OnInexact) -> None:
    _patch(message.delta, event.delta, "/delta", on_inexact)


def _activity_delta(message: Any, event: ActivityDeltaEvent, on_inexact: OnInexact) -> None:
    _patch(message.patch, event.patch, "/patch", on_inexact)


def _patch(target: Any, operations: Any, path: str, on_inexact: OnInexact) -> None:
    for i, operation in enumerate(operations):
        name = operation.get("op")
        number = OPERATIONS.get(name)
        if number is None:
            raise EncodeError(f"{name!r} is not a JSON Patch operation", path=f"{path}/{i}/op")
        if not isinstance(operation.get("path"), str):
            raise EncodeError("a patch operation needs a path", path=f"{path}/{i}/path")
        written = target.add(op=number, path=operation["path"])
        if "from" in operation:
            setattr(written, "from", operation["from"])  # a keyword in Python
        if "value" in operation:
            written.value.append(write_value(operation["value"], on_inexact))


# Messages


def _messages_snapshot(message: Any, event: MessagesSnapshotEvent, on_inexact: OnInexact) -> None:
    _messages(message.messages, event.messages, "/messages", on_inexact)


def _messages(target: Any, messages: list[Message], path: str, on_inexact: OnInexact) -> None:
    for i, message in enumerate(messages):
        _message(target.add(), message, f"{path}/{i}", on_inexact)


def _message(target: Any, message: Message, path: str, on_inexact: OnInexact) -> None:
    target.role = message.role
    for name in _MESSAGE_SCALARS:
        value = getattr(message, name, None)
        if value is not None:
            setattr(target, name, value)
    if message.metadata is not None:
        target.metadata.append(write_struct(message.metadata, on_inexact))
    if isinstance(message, ActivityMessage):
        target.activity_content.append(write_struct(message.content, on_inexact))
        return
    content: Any = message.content
    if message.__class__ is UserMessage:  # as in JSON, one plain text part and no part are a string
        content = content[0].text if is_plain_text(content) else content or ""
    _content(target, content, path, on_inexact)
    if isinstance(message, AssistantMessage):
        for call in message.tool_calls or ():
            _tool_call(target.tool_calls.add(), call, on_inexact)


def _tool_call(target: Any, call: Any, on_inexact: OnInexact) -> None:
    target.type = call.type
    _fill(target, call, _TOOL_CALL, on_inexact)
    target.function.SetInParent()
    target.function.name = call.function.name
    target.function.arguments = call.function.arguments


def _tool_call_result(message: Any, event: ToolCallResultEvent, on_inexact: OnInexact) -> None:
    _content(message, event.content, "", on_inexact)


def _content(target: Any, content: Any, path: str, on_inexact: OnInexact) -> None:
    if isinstance(content, str):
        target.content = content
    elif content is not None:
        for i, part in enumerate(content):
            _part(target.content_parts.add(), part, f"{path}/content/{i}", on_inexact)


def _part(target: Any, part: Any, path: str, on_inexact: OnInexact) -> None:
    kind = getattr(part, "type", None)
    if kind not in PARTS:
        raise EncodeError(f"{type(part).__name__} is not a content part of the protocol", path=path)
    written = getattr(target, kind)
    written.SetInParent()
    _fill(written, part, _PART[kind], on_inexact)
    if kind == "text":
        return
    source = part.source
    if getattr(source, "type", None) not in SOURCES:
        raise EncodeError(f"{type(source).__name__} is not a source of the protocol", path=f"{path}/source")
    inner = getattr(written.source, source.type)
    inner.SetInParent()
    _fill(inner, source, _SOURCE[source.type], on_inexact)


# Errors


def _explain(event: Any, error: Exception) -> EncodeError:
    """Find the path to the cause of an error. Slow; called only for events that cannot be written."""
    try:
        plain = msgspec.to_builtins(event, str_keys=True)
    except (TypeError, ValueError, RecursionError) as not_plain:
        return EncodeError(f"{event.type} cannot be written: {not_plain}")
    path, reason = find_unwritable(plain)
    if reason:
        return EncodeError(f"{event.type} cannot be written: {reason}", path=path)
    try:
        msgspec.convert(plain, event.__class__)
    except (msgspec.ValidationError, Unwritable) as invalid:
        return EncodeError(f"{event.type} cannot be written: {invalid}")
    return EncodeError(f"{event.type} cannot be written: {error}")


_BASE = MessageFields("BaseEvent")
_INPUT = MessageFields("RunAgentInput")
_TOOL = MessageFields("Tool")
_CONTEXT = MessageFields("Context")
_RESUME_ENTRY = MessageFields("ResumeEntry")
_INTERRUPT = MessageFields("Interrupt")
_USAGE = MessageFields("Usage")
_TOOL_CALL = MessageFields("ToolCall")
_MESSAGE_SCALARS = tuple(name for name in MessageFields("Message").scalars if name not in ("role", "content"))
_PART = {kind: MessageFields(f"{kind.capitalize()}InputPart") for kind in PARTS}
_SOURCE = {kind: MessageFields(f"InputContent{kind.capitalize()}Source") for kind in SOURCES}

# Fields with the name of an event's member but another shape: `rest` writes them.
_RESHAPED: dict[type[Any], tuple[str, ...]] = {
    RunFinishedEvent: ("outcome",),
    SubagentFinishedEvent: ("outcome",),
    ToolCallResultEvent: ("content",),
}

_REST: dict[type[Any], WriteRest] = {
    RunStartedEvent: _run_started,
    RunFinishedEvent: _run_finished,
    RunErrorEvent: _run_error,
    SubagentFinishedEvent: _subagent_finished,
    StateDeltaEvent: _state_delta,
    ActivityDeltaEvent: _activity_delta,
    MessagesSnapshotEvent: _messages_snapshot,
    ToolCallResultEvent: _tool_call_result,
}

_RECORDS: dict[type[Any], _Record] = {
    cls: _Record(cls, field, number, _REST.get(cls)) for cls, _, field, number in EVENTS
}
