"""Convert chat updates to events, one at a time, without I/O.

``feed`` returns the events of an update. The end of the run is written by ``end``, so that the caller decides when the
run is over.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any, cast

from aguila.chat import event_content
from aguila.chat.from_chat.contents import ContentWriter
from aguila.chat.from_chat.messages import new_message_id
from aguila.chat.hooks import NO_HOOKS, Answer, Hooks, call_first_hook
from aguila.chat.interrupts import write_interrupt
from aguila.chat.property_keys import ENCRYPTED_VALUE, SUBAGENT_RUN_ID
from aguila.chat.types import (
    ApprovalRequestContent,
    ChatMessage,
    ChatUpdate,
    Content,
    DataContent,
    ErrorContent,
    FunctionCallContent,
    FunctionResultContent,
    InterruptRequestContent,
    Properties,
    ReasoningContent,
    TextContent,
    UsageContent,
)
from aguila.codec import decode
from aguila.codec.compat.retired import RETIRED_CLASSES, RetiredEvents
from aguila.codec.json.values import is_array
from aguila.codec.notices import Notice, Warn, log_notice
from aguila.codec.official import from_official, is_official
from aguila.errors import EncodeError, IllegalStep
from aguila.protocol import (
    ActivityDeltaEvent,
    ActivitySnapshotEvent,
    CustomEvent,
    Event,
    Interrupt,
    Message,
    MessagesSnapshotEvent,
    Metadata,
    RawEvent,
    RunErrorEvent,
    RunFinishedEvent,
    RunFinishedInterruptOutcome,
    RunStartedEvent,
    StateDeltaEvent,
    StateSnapshotEvent,
    SubagentErrorEvent,
    SubagentFinishedEvent,
    TokenUsage,
    ToolCallResultEvent,
    ToolCallStartEvent,
    replace,
)
from aguila.protocol.legacy import LegacyEvent
from aguila.stream import EventWriter, aggregate_token_usage
from aguila.stream.type_errors import EVENT_CLASSES

Update = ChatUpdate | ChatMessage | Event | LegacyEvent | Content | str
"""The values that a stream of updates may contain."""

_BESIDE_TEXT: frozenset[type[Any]] = frozenset(
    {StateSnapshotEvent, StateDeltaEvent, CustomEvent, RawEvent, ActivitySnapshotEvent, ActivityDeltaEvent}
)


class UpdateWriter(ContentWriter):
    """Write chat updates as events of one run.

    ``messages`` is the history of the thread; its ids are not used for new messages. ``hooks`` are called first.
    ``warn`` receives a notice for everything dropped.
    """

    def __init__(
        self,
        writer: EventWriter,
        *,
        messages: Iterable[Message] = (),
        hooks: Hooks = NO_HOOKS,
        new_id: Callable[[], str] = new_message_id,
        warn: Warn | None = None,
    ) -> None:
        super().__init__(writer, messages, hooks.previews, new_id, log_notice if warn is None else warn)
        self._hooks = hooks
        self._usage: list[TokenUsage] = []
        self.counts_usage = True
        """Whether usage is counted. False while updates repeat those of an earlier run (USE-9)."""
        self._interrupts: dict[str, Interrupt] = {}
        self._error: ErrorContent | None = None
        self._ending: RunFinishedEvent | RunErrorEvent | None = None
        self.retired = RetiredEvents(new_id)
        """Converts the retired events in updates."""
        self._unsent: set[type[Any]] = set()  # classes of raw representations that were reported
        self._replaced: dict[str, str] = {}  # tool names of calls that a hook replaced, so that they were not sent

    # Queries

    @property
    def is_over(self) -> bool:
        """Whether an update has ended the run, by an error or by an event."""
        return self._error is not None or self._ending is not None

    @property
    def ending(self) -> RunFinishedEvent | RunErrorEvent | None:
        """The RUN_FINISHED or RUN_ERROR that an update asked for, if the caller does not use ``end``; else None."""
        if self._ending is None and self._error is not None:
            message = self._error.message if self._error.message != "" else "The run failed."
            return RunErrorEvent(message=message, code=self._error.code)
        return self._ending

    @property
    def usage(self) -> list[TokenUsage]:
        """The usage of all updates, added up (USE-1)."""
        return aggregate_token_usage(self._usage)

    @property
    def interrupts(self) -> list[Interrupt]:
        """The questions of all updates."""
        return list(self._interrupts.values())

    # Stream

    def feed(self, update: Update) -> list[Event]:
        """Return the events of an update.

        Raises ``EncodeError`` for a content that cannot be expressed, ``DecodeError`` for a malformed event content,
        and ``IllegalStep`` for an event that is not allowed now. ``fail`` then returns the events written before.
        """
        if isinstance(update, ChatUpdate):
            self._feed_update(update)
        elif isinstance(update, ChatMessage):
            lane = self._lane(update.additional_properties.get(SUBAGENT_RUN_ID))
            self._end_item(lane)  # a message is complete in itself, also without an id
            self._feed_update(update)
            self._end_item(lane)
        elif isinstance(update, str):
            self._feed_update(ChatUpdate(contents=[TextContent(update)]))
        elif isinstance(update, Content):
            self._feed_update(ChatUpdate(contents=[update]))
        else:
            event = self._as_event(update)
            if event is None:
                raise EncodeError(f"a stream of chat updates cannot contain {type(update).__name__}")
            self._write_event(event)
        return self.take()

    def close(self, metadata: Metadata | None = None) -> list[Event]:
        """End the open text or reasoning, so that the next content starts a new message.

        ``metadata`` is for the text.
        """
        self._end_all_items(metadata)
        return self.take()

    def end(self) -> list[Event]:
        """End the run as the updates asked for: by their event, an error, questions, or success."""
        usage = self.usage or None
        if self._ending is not None:
            self._out += self._writer.emit(self._complete_ending(self._ending))
        elif self._error is not None:
            if self._interrupts:
                self._warn_dropped("the questions of a failed run are not asked")
            return self.fail(self._error.message, self._error.code)
        elif self._interrupts:
            self._end_all_items()
            self._out += self._writer.interrupt(self.interrupts, usage=usage)
        else:
            self._end_all_items()
            self._out += self._writer.finish(usage=usage)
        return self.take()

    def _complete_ending(self, ending: RunFinishedEvent | RunErrorEvent) -> RunFinishedEvent | RunErrorEvent:
        """Add the usage and the questions of contents to the agent's own end of the run."""
        if ending.usage is None and self._usage:
            ending = replace(ending, usage=self.usage)
        if isinstance(ending, RunFinishedEvent) and ending.outcome is None and self._interrupts:
            ending = replace(ending, outcome=RunFinishedInterruptOutcome(interrupts=self.interrupts))
        return ending

    def fail(self, message: str, code: str | None = None) -> list[Event]:
        """Return the events not returned yet, then RUN_ERROR, which always has a message (#880)."""
        self._out += self._writer.fail(message if message != "" else "The run failed.", code, usage=self.usage or None)
        return self.take()

    def take(self) -> list[Event]:
        """Return the events that were written before ``feed`` raised."""
        out, self._out = self._out, []
        return out

    # Updates and their contents

    def _feed_update(self, update: ChatUpdate | ChatMessage) -> None:
        event = self._as_event(update.raw_representation)
        if event is not None:
            self._write_event(event)  # the contents are made from it
            return
        if not update.contents:
            self._warn_unsent(update.raw_representation)
        self._current_message = None
        for content in update.contents:
            if self.is_over and not isinstance(content, UsageContent):
                self._warn_dropped(f"dropped a {type(content).__name__} after the end of the run")
                continue
            # Most contents are text without hooks, so this case is checked first.
            if content.__class__ is TextContent and self._hooks is NO_HOOKS and content.raw_representation is None:
                self._write_text(cast("TextContent", content), update)
            else:
                self._feed_content(content, update)
        if ENCRYPTED_VALUE in update.additional_properties:
            self._send_encrypted_value(update.additional_properties, update, self._current_message)

    def _feed_content(self, content: Content, update: ChatUpdate | ChatMessage) -> None:
        for hook in self._hooks.contents:
            if (answer := hook(content)) is not None:
                self._write_answer(answer, content, update)
                return
        for hook in self._hooks.interrupts:
            if isinstance(answer := hook(content), Interrupt):
                questioned = content.call if isinstance(content, ApprovalRequestContent) else content
                if isinstance(questioned, FunctionCallContent) and (
                    questioned is not content or answer.tool_call_id == questioned.call_id
                ):
                    self._write_questioned_call(questioned, update)
                self._add_interrupt(answer)
                self._settle(content, update)
                return
        is_result = isinstance(content, FunctionResultContent)
        event = self._as_event(content.raw_representation)
        if event is not None and not (is_result and content.call_id in self._replaced):
            self._write_event(event)
        elif isinstance(content, FunctionCallContent) and content.is_complete and self._hooks.calls:
            if (answer := call_first_hook(self._hooks.calls, content.name, content)) is not None:
                self._write_answer(answer, content, update)
            else:
                self._write_content(content, update)
        elif is_result:
            self._feed_result(content, update)
        else:
            self._write_content(content, update)

    def _feed_result(self, content: FunctionResultContent, update: ChatUpdate | ChatMessage) -> None:
        tool = self._replaced.get(content.call_id)
        if tool is None and (call := self._calls.get(content.call_id)) is not None:
            tool = call.name
        if (answer := call_first_hook(self._hooks.results, tool, content)) is not None:
            self._write_answer(answer, content, update)
        else:
            self._write_content(content, update)
        subagent = update.additional_properties.get(SUBAGENT_RUN_ID)
        if (snapshot := call_first_hook(self._hooks.snapshots, tool, content)) is not None:
            self._out += self._writer.emit(StateSnapshotEvent(snapshot=snapshot, subagent_run_id=subagent))
        if any(wanted is None or wanted == tool for wanted, _ in self._hooks.deltas):
            self._patch_from_result(content, tool, subagent)

    def _patch_from_result(self, content: FunctionResultContent, tool: str | None, subagent: str | None) -> None:
        patch = call_first_hook(self._hooks.deltas, tool, content)
        if patch is not None:
            self._patch(patch, subagent, f"the result of call {content.call_id!r}")

    def _patch(self, patch: Any, subagent: str | None, source: str) -> None:
        try:
            self._out += self._writer.patch_state(patch, subagent=subagent)
        except IllegalStep as error:  # a tool or model made the patch, not the agent, so the run continues
            self._warn_dropped(f"{source} does not change the state: {error.message}", error.rule)

    def _add_interrupt(self, interrupt: Interrupt) -> None:
        if interrupt.id in self._interrupts:
            self._warn_dropped(f"the question {interrupt.id!r} was asked twice; the later one counts", "INT-1")
        self._interrupts[interrupt.id] = self._with_call_id(interrupt)

    def _warn_dropped(self, message: str, rule: str = "left-out") -> None:
        self._warn(Notice(rule=rule, message=message))

    def _warn_unsent(self, raw: object) -> None:
        """Report a raw representation that is not an event, of an update without contents. Once for each class."""
        if raw is not None and raw.__class__ not in self._unsent:
            self._unsent.add(raw.__class__)
            self._warn_dropped(f"dropped a raw_representation: {type(raw).__name__} is not an event")

    def _write_answer(self, answer: Answer, asked: Content, update: ChatUpdate | ChatMessage) -> None:
        items: Any = answer if isinstance(answer, (list, tuple)) else (answer,)
        # In a tool message only results have the role of the tool. Other contents are sent as the assistant's.
        sender = update
        if update.role == "tool":
            sender = ChatUpdate("assistant", additional_properties=update.additional_properties)
        for item in items:
            event = self._as_event(item)
            if event is not None:
                self._write_event(event)
            elif isinstance(item, Content):
                self._write_content(item, update if isinstance(item, FunctionResultContent) else sender)
            else:
                raise EncodeError(
                    f"a hook returned {type(item).__name__}; return an event, a content or a list of these"
                )
        self._settle(asked, update)

    def _settle(self, replaced: Content, update: ChatUpdate | ChatMessage) -> None:
        """After a hook replaced a content: answer a call that was sent, and remember a call that was not sent."""
        call = replaced.call if isinstance(replaced, ApprovalRequestContent) else replaced
        if isinstance(call, FunctionCallContent):
            sent = self._calls.get(call.call_id)
            if sent is None or sent.is_answered:
                self._replaced[call.call_id] = call.name or self._replaced.get(call.call_id, "")
        elif isinstance(replaced, FunctionResultContent):
            sent = self._calls.get(replaced.call_id)
            if sent is not None and not sent.is_answered:
                # Clients would wait for the result, and models refuse a call without one.
                self._write_result(FunctionResultContent(replaced.call_id, ""), update)

    def _write_content(self, content: Content, update: ChatUpdate | ChatMessage) -> None:
        match content:
            case TextContent():
                self._write_text(content, update)
            case ReasoningContent():
                self._write_reasoning(content, update.additional_properties)
            case FunctionCallContent():
                self._replaced.pop(content.call_id, None)
                self._write_call(content, update)
            case FunctionResultContent():
                if content.call_id not in self._replaced:
                    self._write_result(content, update)
            case UsageContent():
                if self.counts_usage:
                    self._usage.append(content.usage)
            case ErrorContent():
                self._error = content
            case ApprovalRequestContent():
                self._replaced.pop(content.call.call_id, None)
                self._write_questioned_call(content.call, update)
                self._add_interrupt(write_interrupt(content))
            case InterruptRequestContent():
                self._add_interrupt(write_interrupt(content))
            case DataContent():
                self._write_data(content, update.additional_properties)
            case _:
                raise EncodeError(f"a stream of events cannot carry {type(content).__name__}; map it with a hook")

    # Events

    def _write_data(self, content: DataContent, properties: Properties) -> None:
        event = self._as_event(event_content.try_get(content))
        subagent = properties.get(SUBAGENT_RUN_ID)
        if event is not None:
            self._write_event(event)
        elif content.media_type == "application/json":
            # Other libraries send the state as JSON data. Agents send no other JSON to a user interface.
            snapshot = decode(content.data, Any)
            self._out += self._writer.emit(StateSnapshotEvent(snapshot=snapshot, subagent_run_id=subagent))
        elif content.media_type == "application/json-patch+json":
            patch = decode(content.data, Any)
            if not is_array(patch):
                raise EncodeError("a content of type application/json-patch+json is not a list of operations")
            self._patch(patch, subagent, "a content of type application/json-patch+json")
        else:
            kind = f"DataContent of type {content.media_type}"
            raise EncodeError(f"a stream of events cannot carry {kind}; map it with a hook")

    def _write_event(self, event: Any) -> None:
        """Write an event unchanged, except that run boundaries get the ids of this run (#7429)."""
        cls = event.__class__
        if cls is RunStartedEvent:
            return  # we have sent our own
        if cls is RunErrorEvent:
            self._ending = event
            return
        if cls is RunFinishedEvent:
            self._ending = replace(event, thread_id=self._writer.thread_id, run_id=self._writer.run_id)
            return
        if cls is MessagesSnapshotEvent:
            self._end_all_items()
        elif cls not in _BESIDE_TEXT:
            self._end_item(self._lane(getattr(event, "subagent_run_id", None)))
        # The end of a subagent closes its open items, as in the writer.
        ends = cls is SubagentFinishedEvent or cls is SubagentErrorEvent
        written = self._writer.end_subagent(event) if ends else self._writer.emit(event)
        for one in written:
            self._record_event(one)
        self._out += written

    def _record_event(self, event: Any) -> None:
        """Record the ids of an event that was not made from a content."""
        self._calls.record(event)
        message_id = getattr(event, "message_id", None)
        if message_id is not None:
            self._used_ids.add(message_id)
        if event.__class__ is ToolCallStartEvent:
            self._replaced.pop(event.tool_call_id, None)
        elif event.__class__ is ToolCallResultEvent:
            self._lane(event.subagent_run_id).named.clear()

    def _as_event(self, value: object) -> Event | None:
        """Return the event that a value is, ours, official or retired, or None. Call it once for each value."""
        if value is None:
            return None
        if value.__class__ in EVENT_CLASSES:
            return cast("Event", value)
        if is_official(value):
            value = from_official(value)
            if value.__class__ in EVENT_CLASSES:
                return cast("Event", value)
        if value.__class__ in RETIRED_CLASSES:
            return self.retired.convert(cast("LegacyEvent", value))
        return None
