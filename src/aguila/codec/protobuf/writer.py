"""Write an event as the bytes of ``ag_ui.Event`` (PB-8).

The fields are those that the official encoder writes. A value without a protobuf form raises an error; the official
encoder drops it or writes nothing.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import msgspec

from aguila.codec.protobuf.schema import EVENTS, OPERATIONS, PARTS, SOURCES, MessageFields, message_class
from aguila.codec.protobuf.values import OnInexact, Unwritable, write_struct, write_value
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
    ToolCallResultEvent,
    UserMessage,
    is_plain_text,
)

WriteRest = Callable[[Any, Any, OnInexact], None]
"""Writes the members of an event, the second argument, that are not one field each into the message, the first."""


def write_event(event: Any, on_inexact: OnInexact) -> bytes:
    """Write an event. Raises ``EncodeError`` with the path of the value that cannot be written."""
    kind = _KINDS.get(event.__class__)
    if kind is None:
        raise EncodeError(f"{type(event).__name__} is not an event of the protocol")
    try:
        return _write(event, kind, on_inexact)
    except EncodeError:
        raise
    except (TypeError, ValueError, AttributeError, OverflowError) as error:
        raise _explain(event, error) from error


class _Kind(NamedTuple):
    """One kind of event: its field in the envelope, the number of its type, and its fields."""

    field: str
    number: int
    fields: MessageFields
    rest: WriteRest | None


def _write(event: Any, kind: _Kind, on_inexact: OnInexact) -> bytes:
    envelope = _ENVELOPE()
    message = getattr(envelope, kind.field)
    message.base_event.SetInParent()
    message.base_event.type = kind.number
    if event.timestamp is not None:
        _bounded(event.timestamp, -MAX_SAFE_INTEGER, "/timestamp")
    _fill(message.base_event, event, _BASE, on_inexact)
    _fill(message, event, kind.fields, on_inexact)
    if kind.rest is not None:
        kind.rest(message, event, on_inexact)
    return envelope.SerializeToString(deterministic=True)


def _bounded(number: int, least: int, path: str) -> None:
    if not least <= number <= MAX_SAFE_INTEGER:
        raise EncodeError(f"{number} is not between {least} and {MAX_SAFE_INTEGER}", path=path)


def _fill(message: Any, source: Any, fields: MessageFields, on_inexact: OnInexact) -> None:
    """Copy every scalar and every open value of ``source`` to the field of the same name."""
    for name in fields.scalars:
        value = getattr(source, name, None)
        if value is not None:
            setattr(message, name, value)
    for name in fields.values:
        value = getattr(source, name, None)
        if value is not None or name in fields.nullable:
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
    _usage(message, event, on_inexact)


def _usage(message: Any, event: RunFinishedEvent | RunErrorEvent, on_inexact: OnInexact) -> None:
    for i, entry in enumerate(event.usage or ()):
        for name in _USAGE.scalars:
            value = getattr(entry, name)
            if value is not None and name.endswith("tokens"):
                _bounded(value, 0, f"/usage/{i}/{_USAGE.json_names[name]}")
        _fill(message.usage.add(), entry, _USAGE, on_inexact)


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
    _fill(target, message, _MESSAGE, on_inexact)
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
    _fill(target, call, _TOOL_CALL, on_inexact)
    target.function.SetInParent()
    _fill(target.function, call.function, _FUNCTION, on_inexact)


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
    try:
        write_value(plain, lambda inexact: None)
        msgspec.convert(plain, event.__class__)
    except Unwritable as unwritable:
        return EncodeError(f"{event.type} cannot be written: {unwritable}", path=unwritable.path)
    except msgspec.ValidationError as invalid:
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
_FUNCTION = MessageFields("ToolCall.Function")
_MESSAGE = MessageFields("Message", without=("content",))
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
    RunErrorEvent: _usage,
    SubagentFinishedEvent: _subagent_finished,
    StateDeltaEvent: _state_delta,
    ActivityDeltaEvent: _activity_delta,
    MessagesSnapshotEvent: _messages_snapshot,
    ToolCallResultEvent: _tool_call_result,
}

_ENVELOPE = message_class("Event")
_FIELDS: dict[int, str] = {field.number: field.name for field in _ENVELOPE.DESCRIPTOR.fields}
_KINDS: dict[type[Any], _Kind] = {
    cls: _Kind(_FIELDS[field], number, MessageFields(cls.__name__, _RESHAPED.get(cls, ())), _REST.get(cls))
    for cls, _, field, number in EVENTS
}
