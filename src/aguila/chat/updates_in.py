"""Layer: chat. Events to chat updates, one at a time and without I/O.

Below: the codec for raw and retired events, the chunk expander. Above: ``stream_in`` (``as_chat_updates``). Every event
becomes one update that has it as ``raw_representation``; a call in chunks that ends unsaid, because something else
begins, adds an update without one. What the end of a stream cuts off stays incomplete. Nothing is verified here: who
reads from a wire verifies first.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, get_args

from aguila.chat.content import (
    Content,
    ErrorContent,
    FunctionCallContent,
    FunctionResultContent,
    Properties,
    ReasoningContent,
    TextContent,
    UsageContent,
)
from aguila.chat.hooks import NO_HOOKS, Hooks
from aguila.chat.interrupts import read_interrupt
from aguila.chat.keys import CONTENT_ID, ENCRYPTED_VALUE_TYPE, METADATA, RUN_ID, SUBAGENT_RUN_ID, THREAD_ID
from aguila.chat.media import read_parts
from aguila.chat.message import ChatUpdate
from aguila.chat.own_metadata import own_of
from aguila.codec import EventDecoder, encode
from aguila.codec.notice import Warn, log_notice
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

_EVENTS: frozenset[type[Any]] = frozenset(get_args(Event))
_Said = tuple[str, str | None, list[Content]]  # role, message id, contents


class _OpenCall:
    __slots__ = ("message_id", "name", "texts")

    def __init__(self, name: str, message_id: str | None) -> None:
        self.name = name
        self.message_id = message_id
        self.texts: list[str] = []


class UpdateReader:
    """Reads the events of a stream as chat updates.

    ``new_id`` mints the ids that retired events lack. ``warn`` receives a notice for what was tolerated.
    """

    def __init__(
        self, *, hooks: Hooks = NO_HOOKS, new_id: Callable[[], str] | None = None, warn: Warn | None = None
    ) -> None:
        self._hooks = hooks
        self._warn = log_notice if warn is None else warn
        self._decoder = EventDecoder(warn=self._warn, new_id=new_id)
        self._expander = ChunkExpander()
        self._run: Properties = {}
        self._roles: dict[str, tuple[str, str | None]] = {}  # of the text messages that are open: role and name
        self._reasonings: set[str] = set()
        self._open: dict[str, _OpenCall] = {}
        self._calls: dict[str, FunctionCallContent] = {}

    def feed(self, event: Event | dict[str, Any] | bytes | str | Any) -> list[ChatUpdate]:
        """The updates that an event makes: one that carries it, after those that it completes.

        Takes events of this and of the official package, retired ones, and raw ones as objects or JSON, which are
        decoded as a receiver does. Raises ``DecodeError`` for a malformed one, ``SequenceError`` for a chunk that
        names nothing.
        """
        if event.__class__ in _EVENTS:
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
        # Ends of what came before are updates of their own; all the rest is what the event itself says.
        updates: list[ChatUpdate] = []
        role, message_id, contents = "assistant", None, list[Content]()
        item = _item_of(parts[-1]) if parts else None
        for part in parts:
            said = self._read(part)
            if _item_of(part) == item:
                role, message_id = said[0], said[1]
                contents += said[2]
            elif said[2]:
                updates.append(self._update(said, part))
        updates.append(self._update((role, message_id, contents), event, raw=event))
        return updates

    def _update(self, said: _Said, event: Any, raw: Any = None) -> ChatUpdate:
        role, message_id, contents = said
        properties = dict(self._run)
        if (subagent := getattr(event, "subagent_run_id", None)) is not None:
            properties[SUBAGENT_RUN_ID] = subagent
        if event.metadata is not None:
            properties[METADATA] = event.metadata
        name = None if message_id is None else self._roles.get(message_id, _NOBODY)[1]
        return ChatUpdate(role, contents, message_id, name, properties, raw)

    # What an event says

    def _read(self, event: Any) -> _Said:
        read = _READERS.get(event.__class__)
        if read is None:
            return "assistant", getattr(event, "message_id", None), []
        return read(self, event)

    def _read_run_started(self, event: RunStartedEvent) -> _Said:
        self._run = {THREAD_ID: event.thread_id, RUN_ID: event.run_id}
        return "assistant", None, []

    def _read_run_finished(self, event: RunFinishedEvent) -> _Said:
        contents: list[Content] = [UsageContent(usage) for usage in event.usage or ()]
        if isinstance(event.outcome, RunFinishedInterruptOutcome):
            contents += [self._question(interrupt) for interrupt in event.outcome.interrupts]
        return "assistant", None, contents

    def _question(self, interrupt: Interrupt) -> Content:
        for hook in self._hooks.interrupts:
            answer = hook(interrupt)
            if isinstance(answer, Content):
                return answer
        return read_interrupt(interrupt, self._calls)

    def _read_run_error(self, event: RunErrorEvent) -> _Said:
        usage = [UsageContent(usage) for usage in event.usage or ()]
        return "assistant", None, [*usage, ErrorContent(event.message, event.code)]

    def _read_text_start(self, event: TextMessageStartEvent) -> _Said:
        role = "assistant" if event.role is None else event.role
        self._roles[event.message_id] = (role, event.name)
        return role, event.message_id, []

    def _read_text(self, event: TextMessageContentEvent) -> _Said:
        return self._roles.get(event.message_id, _NOBODY)[0], event.message_id, [TextContent(event.delta)]

    def _read_text_end(self, event: TextMessageEndEvent) -> _Said:
        return self._roles.get(event.message_id, _NOBODY)[0], event.message_id, []

    def _read_reasoning_start(self, event: ReasoningMessageStartEvent) -> _Said:
        self._reasonings.add(event.message_id)
        return "assistant", event.message_id, []

    def _read_reasoning(self, event: ReasoningMessageContentEvent) -> _Said:
        return "assistant", event.message_id, [_thought(event.message_id, event.delta)]

    def _read_artefact(self, event: ReasoningEncryptedValueEvent) -> _Said:
        if event.subtype != "message" or event.entity_id not in self._reasonings:
            return "assistant", None, []  # of a text or a call, which have no content for it: the event has it
        content = _thought(event.entity_id, "", event.encrypted_value)
        if event.encrypted_value_type is not None:
            content.additional_properties[ENCRYPTED_VALUE_TYPE] = event.encrypted_value_type
        return "assistant", event.entity_id, [content]

    def _read_call_start(self, event: ToolCallStartEvent) -> _Said:
        call = self._open[event.tool_call_id] = _OpenCall(event.tool_call_name, event.parent_message_id)
        piece = FunctionCallContent(event.tool_call_id, event.tool_call_name, is_complete=False)
        return "assistant", call.message_id, [piece]

    def _read_call(self, event: ToolCallArgsEvent) -> _Said:
        call = self._open.get(event.tool_call_id)
        if call is None:
            return "assistant", None, []
        call.texts.append(event.delta)
        piece = FunctionCallContent(event.tool_call_id, call.name, event.delta, is_complete=False)
        return "assistant", call.message_id, [piece]

    def _read_call_end(self, event: ToolCallEndEvent) -> _Said:
        call = self._open.pop(event.tool_call_id, None)
        if call is None:
            return "assistant", None, []
        before = self._calls.get(event.tool_call_id)  # a call that was opened again goes on (TOOL-4)
        texts = call.texts if before is None else [before.arguments, *call.texts]
        whole = FunctionCallContent(event.tool_call_id, call.name, join_deltas("", texts))
        self._calls[event.tool_call_id] = whole
        return "assistant", call.message_id, [whole]

    def _read_result(self, event: ToolCallResultEvent) -> _Said:
        result: Any = event.content
        if not isinstance(result, str):
            result = read_parts(result, self._warn, "/content")
        return "tool", event.message_id, [FunctionResultContent(event.tool_call_id, result, _error_of(event))]


_NOBODY: tuple[str, str | None] = ("assistant", None)


def _thought(message_id: str, text: str, protected_data: str | None = None) -> ReasoningContent:
    """Reasoning that knows its message, since an update's id may be shared with a text."""
    return ReasoningContent(text, protected_data, additional_properties={CONTENT_ID: message_id})


def _item_of(event: Any) -> tuple[Any, ...]:
    """Which item an event of the long spelling belongs to; a result is a message, and no piece of its call."""
    call_id = None if event.__class__ is ToolCallResultEvent else getattr(event, "tool_call_id", None)
    return (call_id is not None, event.message_id if call_id is None and hasattr(event, "message_id") else call_id)


def _error_of(event: ToolCallResultEvent) -> str | None:
    error = own_of(event.metadata).get("error")
    return error if isinstance(error, str) else None


_READERS: dict[type[Any], Callable[[UpdateReader, Any], _Said]] = {
    RunStartedEvent: UpdateReader._read_run_started,
    RunFinishedEvent: UpdateReader._read_run_finished,
    RunErrorEvent: UpdateReader._read_run_error,
    TextMessageStartEvent: UpdateReader._read_text_start,
    TextMessageContentEvent: UpdateReader._read_text,
    TextMessageEndEvent: UpdateReader._read_text_end,
    ReasoningMessageStartEvent: UpdateReader._read_reasoning_start,
    ReasoningMessageContentEvent: UpdateReader._read_reasoning,
    ReasoningEncryptedValueEvent: UpdateReader._read_artefact,
    ToolCallStartEvent: UpdateReader._read_call_start,
    ToolCallArgsEvent: UpdateReader._read_call,
    ToolCallEndEvent: UpdateReader._read_call_end,
    ToolCallResultEvent: UpdateReader._read_result,
}
