"""Layer: codec. An event as the bytes of ``ag_ui.Event`` (PB-8).

Above: ``protobuf`` frames what this writes. Below: ``_pb_value`` for open JSON. Field by field it is what the
official encoder writes, with two differences in manners: what has no form on the wire raises instead of being
dropped or written as no bytes, and nothing is guessed.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, cast

import msgspec

from aguila.codec.protobuf.slots import EVENTS, NULLABLE, OPERATIONS, PARTS, SOURCES, Slots
from aguila.codec.protobuf.values import Inexact, Unwritable, find_unwritable, varint, write_struct, write_value
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

Rest = Callable[[Any, Any, Inexact], None]
"""Writes what is not one slot per field: takes the message, the event, and who is told of lost precision."""


def write_event(event: Any, inexact: Inexact) -> bytes:
    """The bytes of an event. Raises ``EncodeError`` with the path of what cannot be written."""
    record = _RECORDS.get(event.__class__)
    if record is None:
        raise EncodeError(f"{type(event).__name__} is no event of the protocol")
    try:
        return record.write(event, inexact)
    except EncodeError:
        raise
    except (TypeError, ValueError, AttributeError, OverflowError) as error:
        raise _explained(event, error) from error


class _Record:
    """How one kind of event is written."""

    def __init__(self, cls: type[Any], arm: int, number: int, rest: Rest | None) -> None:
        slots = Slots(cls.__name__)
        reshaped = _RESHAPED.get(cls, ())
        self.new = slots.new
        self.number = number
        self.scalars = tuple(name for name in slots.scalars if name not in reshaped)
        self.opaque = [(n, write_value, f"{slots.name}.{n}" in NULLABLE) for n in slots.values]
        self.opaque += [(n, write_struct, False) for n in slots.structs]
        self.rest = rest
        self.tag = varint(arm << 3 | 2)
        # Most events have only a type in their base, so its bytes are made once.
        self.base = _sized(1, _BASE.new(type=number).SerializeToString())

    def write(self, event: Any, inexact: Inexact) -> bytes:
        message = self.new()
        for name in self.scalars:
            value = getattr(event, name)
            if value is not None:
                setattr(message, name, value)
        for name, write, nullable in self.opaque:
            value = getattr(event, name)
            if value is not None or nullable:
                getattr(message, name).append(write(value, inexact))
        if self.rest is not None:
            self.rest(message, event, inexact)
        if event.timestamp is None and event.raw_event is None and event.metadata is None:
            base = self.base
        else:
            base = self._full_base(event, inexact)
        # The base is slot 1 of every event and slots are written in order, so its bytes simply come first.
        body = base + message.SerializeToString(deterministic=True)
        return self.tag + varint(len(body)) + body

    def _full_base(self, event: Any, inexact: Inexact) -> bytes:
        base = _BASE.new(type=self.number)
        if event.timestamp is not None:
            base.timestamp = _bounded(event.timestamp, -MAX_SAFE_INTEGER, "/timestamp")
        if event.raw_event is not None:
            base.raw_event.append(write_value(event.raw_event, inexact))
        if event.metadata is not None:
            base.metadata.append(write_struct(event.metadata, inexact))
        return _sized(1, base.SerializeToString(deterministic=True))


def _sized(slot: int, body: bytes) -> bytes:
    return varint(slot << 3 | 2) + varint(len(body)) + body


def _bounded(number: int, least: int, path: str) -> int:
    if not least <= number <= MAX_SAFE_INTEGER:
        raise EncodeError(f"{number} is not between {least} and {MAX_SAFE_INTEGER}", path=path)
    return number


def _fill(message: Any, source: Any, slots: Slots, inexact: Inexact) -> None:
    """Copy every scalar and every open value that ``source`` has to the slot of its name."""
    for name in slots.scalars:
        value = getattr(source, name, None)
        if value is not None:
            setattr(message, name, value)
    for name in slots.values:
        value = getattr(source, name, None)
        if value is not None:
            getattr(message, name).append(write_value(value, inexact))
    for name in slots.structs:
        value = getattr(source, name, None)
        if value is not None:
            getattr(message, name).append(write_struct(value, inexact))


# Runs


def _run_started(message: Any, event: RunStartedEvent, inexact: Inexact) -> None:
    if event.input is not None:
        message.input.SetInParent()
        _input(message.input, event.input, inexact)


def _input(message: Any, given: RunAgentInput, inexact: Inexact) -> None:
    _fill(message, given, _INPUT, inexact)
    _messages(message.messages, given.messages, "/input/messages", inexact)
    for tool in given.tools or ():
        _fill(message.tools.add(), tool, _TOOL, inexact)
    for context in given.context or ():
        _fill(message.context.add(), context, _CONTEXT, inexact)
    for entry in given.resume or ():
        _fill(message.resume.add(), entry, _RESUME_ENTRY, inexact)


def _run_finished(message: Any, event: RunFinishedEvent, inexact: Inexact) -> None:
    outcome = event.outcome
    if outcome is not None:
        message.outcome = outcome.type
        if isinstance(outcome, RunFinishedInterruptOutcome):
            for interrupt in outcome.interrupts:
                _fill(message.interrupts.add(), interrupt, _INTERRUPT, inexact)
        elif isinstance(outcome, RunFinishedSuccessOutcome) and outcome.pending_tool_call_ids is not None:
            message.pending_tool_call_ids.extend(outcome.pending_tool_call_ids)
    _usage(message, event.usage)


def _run_error(message: Any, event: RunErrorEvent, inexact: Inexact) -> None:
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


def _subagent_finished(message: Any, event: SubagentFinishedEvent, inexact: Inexact) -> None:
    if event.outcome is not None:
        message.outcome = event.outcome.type
        if isinstance(event.outcome, SubagentFinishedSuspendedOutcome) and event.outcome.interrupt_ids is not None:
            message.interrupt_ids.extend(event.outcome.interrupt_ids)


# Patches


def _state_delta(message: Any, event: StateDeltaEvent, inexact: Inexact) -> None:
    _patch(message.delta, event.delta, "/delta", inexact)


def _activity_delta(message: Any, event: ActivityDeltaEvent, inexact: Inexact) -> None:
    _patch(message.patch, event.patch, "/patch", inexact)


def _patch(target: Any, operations: Any, path: str, inexact: Inexact) -> None:
    for i, operation in enumerate(operations):
        name = operation.get("op")
        number = OPERATIONS.get(name)
        if number is None:
            raise EncodeError(f"{name!r} is no JSON Patch operation", path=f"{path}/{i}/op")
        if not isinstance(operation.get("path"), str):
            raise EncodeError("an operation needs a path", path=f"{path}/{i}/path")
        written = target.add(op=number, path=operation["path"])
        if "from" in operation:
            setattr(written, "from", operation["from"])  # a keyword in Python
        if "value" in operation:
            written.value.append(write_value(operation["value"], inexact))


# Messages


def _messages_snapshot(message: Any, event: MessagesSnapshotEvent, inexact: Inexact) -> None:
    _messages(message.messages, event.messages, "/messages", inexact)


def _messages(target: Any, messages: list[Message], path: str, inexact: Inexact) -> None:
    for i, message in enumerate(messages):
        _message(target.add(), message, f"{path}/{i}", inexact)


def _message(target: Any, message: Message, path: str, inexact: Inexact) -> None:
    target.role = message.role
    for name in _MESSAGE_SCALARS:
        value = getattr(message, name, None)
        if value is not None:
            setattr(target, name, value)
    if message.metadata is not None:
        target.metadata.append(write_struct(message.metadata, inexact))
    if isinstance(message, ActivityMessage):
        target.activity_content.append(write_struct(message.content, inexact))
        return
    # Spelled as JSON spells it: a user message of one plain text part is a string.
    respelled = message.__class__ is UserMessage and is_plain_text(message.content)
    _content(target, cast(Any, message.content)[0].text if respelled else message.content, path, inexact)
    if isinstance(message, AssistantMessage):
        for call in message.tool_calls or ():
            _tool_call(target.tool_calls.add(), call, inexact)


def _tool_call(target: Any, call: Any, inexact: Inexact) -> None:
    target.type = call.type
    _fill(target, call, _TOOL_CALL, inexact)
    target.function.SetInParent()
    target.function.name = call.function.name
    target.function.arguments = call.function.arguments


def _tool_call_result(message: Any, event: ToolCallResultEvent, inexact: Inexact) -> None:
    _content(message, event.content, "", inexact)


def _content(target: Any, content: Any, path: str, inexact: Inexact) -> None:
    if isinstance(content, str):
        target.content = content
    elif content is not None:
        for i, part in enumerate(content):
            _part(target.content_parts.add(), part, f"{path}/content/{i}", inexact)


def _part(target: Any, part: Any, path: str, inexact: Inexact) -> None:
    kind = getattr(part, "type", None)
    if kind not in PARTS:
        raise EncodeError(f"{type(part).__name__} is no content part of the protocol", path=path)
    arm = getattr(target, kind)
    arm.SetInParent()
    _fill(arm, part, _PART[kind], inexact)
    if kind == "text":
        return
    source = part.source
    if getattr(source, "type", None) not in SOURCES:
        raise EncodeError(f"{type(source).__name__} is no source of the protocol", path=f"{path}/source")
    inner = getattr(arm.source, source.type)
    inner.SetInParent()
    _fill(inner, source, _SOURCE[source.type], inexact)


# What went wrong


def _explained(event: Any, error: Exception) -> EncodeError:
    """The error with the path to its cause. Slow, and only for events that cannot be written."""
    try:
        plain = msgspec.to_builtins(event, str_keys=True)
    except (TypeError, ValueError, RecursionError) as unplain:
        return EncodeError(f"{event.type} cannot be written: {unplain}")
    path, reason = find_unwritable(plain)
    if reason:
        return EncodeError(f"{event.type} cannot be written: {reason}", path=path)
    try:
        msgspec.convert(plain, event.__class__)
    except (msgspec.ValidationError, Unwritable) as invalid:
        return EncodeError(f"{event.type} cannot be written: {invalid}")
    return EncodeError(f"{event.type} cannot be written: {error}")


_BASE = Slots("BaseEvent")
_INPUT = Slots("RunAgentInput")
_TOOL = Slots("Tool")
_CONTEXT = Slots("Context")
_RESUME_ENTRY = Slots("ResumeEntry")
_INTERRUPT = Slots("Interrupt")
_USAGE = Slots("Usage")
_TOOL_CALL = Slots("ToolCall")
_MESSAGE_SCALARS = tuple(name for name in Slots("Message").scalars if name not in ("role", "content"))
_PART = {kind: Slots(f"{kind.capitalize()}InputPart") for kind in PARTS}
_SOURCE = {kind: Slots(f"InputContent{kind.capitalize()}Source") for kind in SOURCES}

# Slots whose name an event has too, with another shape: what `rest` writes and the plain copy must not.
_RESHAPED: dict[type[Any], tuple[str, ...]] = {
    RunFinishedEvent: ("outcome",),
    SubagentFinishedEvent: ("outcome",),
    ToolCallResultEvent: ("content",),
}

_REST: dict[type[Any], Rest] = {
    RunStartedEvent: _run_started,
    RunFinishedEvent: _run_finished,
    RunErrorEvent: _run_error,
    SubagentFinishedEvent: _subagent_finished,
    StateDeltaEvent: _state_delta,
    ActivityDeltaEvent: _activity_delta,
    MessagesSnapshotEvent: _messages_snapshot,
    ToolCallResultEvent: _tool_call_result,
}

_RECORDS: dict[type[Any], _Record] = {cls: _Record(cls, arm, number, _REST.get(cls)) for cls, _, arm, number in EVENTS}
