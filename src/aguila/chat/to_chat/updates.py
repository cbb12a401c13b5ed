"""Convert events to chat updates, one at a time, without I/O.

Every event becomes one update with the event as ``raw_representation``. If a call in chunks ends because another event
begins, the completed call is an additional update. A call that is cut off by the end of the stream stays incomplete.
Events are not verified here; verify a stream from the network first.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, ClassVar

from aguila.chat.hooks import NO_HOOKS, Hooks
from aguila.chat.interrupts import read_interrupt
from aguila.chat.media import read_parts
from aguila.chat.own_metadata import read_own_metadata
from aguila.chat.property_keys import CONTENT_ID, ENCRYPTED_VALUE_TYPE, METADATA, RUN_ID, SUBAGENT_RUN_ID, THREAD_ID
from aguila.chat.types import (
    ChatUpdate,
    Content,
    ErrorContent,
    FunctionCallContent,
    FunctionResultContent,
    Properties,
    ReasoningContent,
    TextContent,
    UsageContent,
)
from aguila.codec import EventDecoder, encode
from aguila.codec.notices import Warn, log_notice
from aguila.codec.official import from_official, is_official
from aguila.protocol import (
    Event,
    Interrupt,
    ReasoningEncryptedValueEvent,
    ReasoningMessageContentEvent,
    ReasoningMessageStartEvent,
    RunErrorEvent,
    RunFinishedEvent,
    RunFinishedInterruptOutcome,
    RunStartedEvent,
    TextMessageContentEvent,
    TextMessageEndEvent,
    TextMessageStartEvent,
    ToolCallArgsEvent,
    ToolCallEndEvent,
    ToolCallResultEvent,
    ToolCallStartEvent,
)
from aguila.protocol._base import Wire
from aguila.stream import ChunkExpander
from aguila.stream.reducer.message_builder import join_deltas
from aguila.stream.type_errors import EVENT_CLASSES

_Reading = tuple[str, str | None, list[Content]]  # role, message id, contents


_DEFAULT_SENDER: tuple[str, str | None] = ("assistant", None)


class _OpenCall:
    __slots__ = ("message_id", "name", "texts")

    def __init__(self, name: str, message_id: str | None) -> None:
        self.name = name
        self.message_id = message_id
        self.texts: list[str] = []


class UpdateReader:
    """Convert the events of a stream to chat updates.

    ``new_id`` makes the ids that retired events lack. ``warn`` receives a notice for every tolerated fault.
    """

    def __init__(
        self, *, hooks: Hooks = NO_HOOKS, new_id: Callable[[], str] | None = None, warn: Warn | None = None
    ) -> None:
        self._hooks = hooks
        self._warn = log_notice if warn is None else warn
        self._decoder = EventDecoder(warn=self._warn, new_id=new_id)
        self._expander = ChunkExpander()
        self._run: Properties = {}
        self._roles: dict[str, tuple[str, str | None]] = {}  # role and name of each text message
        self._reasonings: set[str] = set()
        self._open: dict[str, _OpenCall] = {}
        self._calls: dict[str, FunctionCallContent] = {}

    def feed(self, event: Event | dict[str, Any] | bytes | str | Any) -> list[ChatUpdate]:
        """Convert one event: the updates that it completes, then the update with the event.

        Accepts events of this and of the official package, retired ones, and raw ones as objects or JSON. Raises
        ``DecodeError`` for a malformed event, ``SequenceError`` for a chunk that cannot be expanded.
        """
        if event.__class__ in EVENT_CLASSES:
            self._decoder.observe(event)  # type: ignore[arg-type]
            return self._feed(event)
        if isinstance(event, Wire):
            event = encode(event)
        elif is_official(event):
            return self._feed(from_official(event, warn=self._warn))
        return [update for one in self._decoder.feed(event) for update in self._feed(one)]

    def _feed(self, event: Any) -> list[ChatUpdate]:
        parts = self._expander.feed(event)
        if len(parts) == 1 and parts[0] is event:
            return [self._update(self._read(event), event, raw=event)]
        # Ends of earlier items become updates of their own. The other parts belong to the event itself.
        updates: list[ChatUpdate] = []
        role, message_id, contents = "assistant", None, list[Content]()
        item = _item_of(parts[-1]) if parts else None
        for part in parts:
            reading = self._read(part)
            if _item_of(part) == item:
                role, message_id = reading[0], reading[1]
                contents += reading[2]
            elif reading[2]:
                updates.append(self._update(reading, part))
        updates.append(self._update((role, message_id, contents), event, raw=event))
        return updates

    def _update(self, reading: _Reading, event: Any, raw: Any = None) -> ChatUpdate:
        role, message_id, contents = reading
        properties = dict(self._run)
        if (subagent := getattr(event, "subagent_run_id", None)) is not None:
            properties[SUBAGENT_RUN_ID] = subagent
        if event.metadata is not None:
            properties[METADATA] = event.metadata
        name = None if message_id is None else self._roles.get(message_id, _DEFAULT_SENDER)[1]
        return ChatUpdate(role, contents, message_id, name, properties, raw)

    # Readers by event class

    def _read(self, event: Any) -> _Reading:
        read = self._readers.get(event.__class__)
        if read is None:
            return "assistant", getattr(event, "message_id", None), []
        return read(self, event)

    def _read_run_started(self, event: RunStartedEvent) -> _Reading:
        self._run = {THREAD_ID: event.thread_id, RUN_ID: event.run_id}
        return "assistant", None, []

    def _read_run_finished(self, event: RunFinishedEvent) -> _Reading:
        contents: list[Content] = [UsageContent(usage) for usage in event.usage or ()]
        if isinstance(event.outcome, RunFinishedInterruptOutcome):
            contents += [self._convert_interrupt(interrupt) for interrupt in event.outcome.interrupts]
        return "assistant", None, contents

    def _convert_interrupt(self, interrupt: Interrupt) -> Content:
        for hook in self._hooks.interrupts:
            answer = hook(interrupt)
            if isinstance(answer, Content):
                return answer
        return read_interrupt(interrupt, self._calls)

    def _read_run_error(self, event: RunErrorEvent) -> _Reading:
        usage = [UsageContent(usage) for usage in event.usage or ()]
        return "assistant", None, [*usage, ErrorContent(event.message, event.code)]

    def _read_text_start(self, event: TextMessageStartEvent) -> _Reading:
        role = "assistant" if event.role is None else event.role
        self._roles[event.message_id] = (role, event.name)
        return role, event.message_id, []

    def _read_text(self, event: TextMessageContentEvent) -> _Reading:
        return self._roles.get(event.message_id, _DEFAULT_SENDER)[0], event.message_id, [TextContent(event.delta)]

    def _read_text_end(self, event: TextMessageEndEvent) -> _Reading:
        return self._roles.get(event.message_id, _DEFAULT_SENDER)[0], event.message_id, []

    def _read_reasoning_start(self, event: ReasoningMessageStartEvent) -> _Reading:
        self._reasonings.add(event.message_id)
        return "assistant", event.message_id, []

    def _read_reasoning(self, event: ReasoningMessageContentEvent) -> _Reading:
        return "assistant", event.message_id, [_make_reasoning(event.message_id, event.delta)]

    def _read_encrypted_value(self, event: ReasoningEncryptedValueEvent) -> _Reading:
        if event.subtype != "message" or event.entity_id not in self._reasonings:
            return "assistant", None, []  # no content can have the value of a text or call; the event has it
        content = _make_reasoning(event.entity_id, "", event.encrypted_value)
        if event.encrypted_value_type is not None:
            content.additional_properties[ENCRYPTED_VALUE_TYPE] = event.encrypted_value_type
        return "assistant", event.entity_id, [content]

    def _read_call_start(self, event: ToolCallStartEvent) -> _Reading:
        call = self._open[event.tool_call_id] = _OpenCall(event.tool_call_name, event.parent_message_id)
        piece = FunctionCallContent(event.tool_call_id, event.tool_call_name, is_complete=False)
        return "assistant", call.message_id, [piece]

    def _read_call(self, event: ToolCallArgsEvent) -> _Reading:
        call = self._open.get(event.tool_call_id)
        if call is None:
            return "assistant", None, []
        call.texts.append(event.delta)
        piece = FunctionCallContent(event.tool_call_id, call.name, event.delta, is_complete=False)
        return "assistant", call.message_id, [piece]

    def _read_call_end(self, event: ToolCallEndEvent) -> _Reading:
        call = self._open.pop(event.tool_call_id, None)
        if call is None:
            return "assistant", None, []
        before = self._calls.get(event.tool_call_id)  # a call opened again continues (TOOL-4)
        texts = call.texts if before is None else [before.arguments, *call.texts]
        complete = FunctionCallContent(event.tool_call_id, call.name, join_deltas("", texts))
        self._calls[event.tool_call_id] = complete
        return "assistant", call.message_id, [complete]

    def _read_result(self, event: ToolCallResultEvent) -> _Reading:
        result: Any = event.content
        if not isinstance(result, str):
            result = read_parts(result, self._warn, "/content")
        return "tool", event.message_id, [FunctionResultContent(event.tool_call_id, result, _find_error(event))]

    _readers: ClassVar[dict[type[Any], Callable[[UpdateReader, Any], _Reading]]] = {
        RunStartedEvent: _read_run_started,
        RunFinishedEvent: _read_run_finished,
        RunErrorEvent: _read_run_error,
        TextMessageStartEvent: _read_text_start,
        TextMessageContentEvent: _read_text,
        TextMessageEndEvent: _read_text_end,
        ReasoningMessageStartEvent: _read_reasoning_start,
        ReasoningMessageContentEvent: _read_reasoning,
        ReasoningEncryptedValueEvent: _read_encrypted_value,
        ToolCallStartEvent: _read_call_start,
        ToolCallArgsEvent: _read_call,
        ToolCallEndEvent: _read_call_end,
        ToolCallResultEvent: _read_result,
    }


def _make_reasoning(message_id: str, text: str, protected_data: str | None = None) -> ReasoningContent:
    """Make reasoning with its message id, because the update may share its id with a text."""
    return ReasoningContent(text, protected_data, additional_properties={CONTENT_ID: message_id})


def _item_of(event: Any) -> tuple[Any, ...]:
    """Return the item that an expanded event belongs to. A result is a message, not a piece of its call."""
    call_id = None if event.__class__ is ToolCallResultEvent else getattr(event, "tool_call_id", None)
    return (call_id is not None, event.message_id if call_id is None and hasattr(event, "message_id") else call_id)


def _find_error(event: ToolCallResultEvent) -> str | None:
    error = read_own_metadata(event.metadata).get("error")
    return error if isinstance(error, str) else None
