"""Layer: chat. Chat updates to events, one at a time and without I/O.

Below: ``contents_out``, which knows the order and the ids of what is said. Above: ``stream_out`` (``as_event_stream``),
and the agent layer for agents that yield chat updates. ``feed`` says what an update adds at once; the run's end is not
written before ``end``, so that who drives a run decides when it is over.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any, cast, get_args

from aguila.chat import event_content
from aguila.chat.content import (
    ApprovalRequestContent,
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
from aguila.chat.contents_out import ContentWriter
from aguila.chat.hooks import NO_HOOKS, Answer, Hooks, first_answer
from aguila.chat.interrupts import write_interrupt
from aguila.chat.keys import ENCRYPTED_VALUE, SUBAGENT_RUN_ID
from aguila.chat.message import ChatMessage, ChatUpdate
from aguila.chat.messages_out import new_message_id
from aguila.codec import decode
from aguila.codec.notice import Notice, Warn, log_notice
from aguila.codec.official import from_official, is_official
from aguila.codec.values import is_array
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
from aguila.stream import EventWriter, aggregate_token_usage

Update = ChatUpdate | ChatMessage | Event | Content | str
"""What a stream of updates may hold."""

_EVENTS: frozenset[type[Any]] = frozenset(get_args(Event))
_BESIDE_TEXT: frozenset[type[Any]] = frozenset(
    {StateSnapshotEvent, StateDeltaEvent, CustomEvent, RawEvent, ActivitySnapshotEvent, ActivityDeltaEvent}
)


class UpdateWriter(ContentWriter):
    """Writes chat updates as events of one run.

    ``messages`` is the history of the thread, so that ids in it are not used for anything new. ``hooks`` are asked
    first. ``warn`` receives a notice for what was left out.
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
        """Whether usage counts: not where updates say again what an earlier run said (USE-9)."""
        self._interrupts: dict[str, Interrupt] = {}
        self._error: ErrorContent | None = None
        self._ending: RunFinishedEvent | RunErrorEvent | None = None
        self._replaced: dict[str, str] = {}  # the tools of calls that a hook answered for, and which were not sent

    # Questions

    @property
    def is_over(self) -> bool:
        """Whether an update said that the run has ended: by an error, or by an event that ends it."""
        return self._error is not None or self._ending is not None

    @property
    def ending(self) -> RunFinishedEvent | RunErrorEvent | None:
        """How an update said that the run has ended, for who ends runs otherwise than by ``end``; None if none did."""
        if self._ending is None and self._error is not None:
            message = self._error.message if self._error.message != "" else "The run failed."
            return RunErrorEvent(message=message, code=self._error.code)
        return self._ending

    @property
    def usage(self) -> list[TokenUsage]:
        """The usage that updates reported, added up (USE-1)."""
        return aggregate_token_usage(self._usage)

    @property
    def interrupts(self) -> list[Interrupt]:
        """The questions that updates asked."""
        return list(self._interrupts.values())

    # The stream

    def feed(self, update: Update) -> list[Event]:
        """The events that an update adds.

        Raises ``EncodeError`` for what cannot be expressed, naming its kind; ``DecodeError`` for a malformed event
        content; ``IllegalStep`` for an event that may not come now. ``fail`` then gives what was written before.
        """
        if isinstance(update, ChatUpdate):
            self._feed_update(update)
        elif isinstance(update, ChatMessage):
            lane = self._lane(update.additional_properties.get(SUBAGENT_RUN_ID))
            self._end_lane(lane)  # it begins and ends with itself, also where nobody has named it
            self._feed_update(update)
            self._end_lane(lane)
        elif isinstance(update, str):
            self._feed_update(ChatUpdate(contents=[TextContent(update)]))
        elif isinstance(update, Content):
            self._feed_update(ChatUpdate(contents=[update]))
        else:
            event = _as_event(update)
            if event is None:
                raise EncodeError(f"a stream of chat updates cannot hold {type(update).__name__}")
            self._write_event(event)
        return self.take()

    def close(self, metadata: Metadata | None = None) -> list[Event]:
        """End what is open, text or reasoning; what comes next begins anew. ``metadata`` is told with a text's end."""
        self._end_all(metadata)
        return self.take()

    def end(self) -> list[Event]:
        """The run's end, by what the updates said: an event of theirs, an error, questions, or success."""
        usage = self.usage or None
        if self._ending is not None:
            self._out += self._writer.emit(self._with_what_was_said(self._ending))
        elif self._error is not None:
            if self._interrupts:
                self._leave_out("questions of a run that failed are not asked")
            return self.fail(self._error.message, self._error.code)
        elif self._interrupts:
            self._end_all()
            self._out += self._writer.interrupt(self.interrupts, usage=usage)
        else:
            self._end_all()
            self._out += self._writer.finish(usage=usage)
        return self.take()

    def _with_what_was_said(self, ending: RunFinishedEvent | RunErrorEvent) -> RunFinishedEvent | RunErrorEvent:
        """The agent's own end of the run, with the usage and the questions that it left to contents."""
        if ending.usage is None and self._usage:
            ending = replace(ending, usage=self.usage)
        if isinstance(ending, RunFinishedEvent) and ending.outcome is None and self._interrupts:
            ending = replace(ending, outcome=RunFinishedInterruptOutcome(interrupts=self.interrupts))
        return ending

    def fail(self, message: str, code: str | None = None) -> list[Event]:
        """What was written and not yet handed out, then RUN_ERROR, with a message in any case (#880)."""
        self._out += self._writer.fail(message if message != "" else "The run failed.", code, usage=self.usage or None)
        return self.take()

    def take(self) -> list[Event]:
        """What was written and not handed out, because ``feed`` raised after it."""
        out, self._out = self._out, []
        return out

    # Updates and what they hold

    def _feed_update(self, update: ChatUpdate | ChatMessage) -> None:
        event = _as_event(update.raw_representation)
        if event is not None:
            self._write_event(event)  # the contents say the same
            return
        self._host = None
        for content in update.contents:
            if self.is_over and not isinstance(content, UsageContent):
                self._leave_out(f"a {type(content).__name__} after what ended the run is left out")
                continue
            # Most of a stream is text that no hook asks for, so it is looked for first.
            if content.__class__ is TextContent and self._hooks is NO_HOOKS and content.raw_representation is None:
                self._write_text(cast("TextContent", content), update)
            else:
                self._feed_content(content, update)
        if ENCRYPTED_VALUE in update.additional_properties:
            self._sign(update.additional_properties, update, self._host)

    def _feed_content(self, content: Content, update: ChatUpdate | ChatMessage) -> None:
        for hook in self._hooks.contents:
            if (answer := hook(content)) is not None:
                self._write_answer(answer, content, update)
                return
        for hook in self._hooks.interrupts:
            if isinstance(answer := hook(content), Interrupt):
                gated = content.call if isinstance(content, ApprovalRequestContent) else content
                if isinstance(gated, FunctionCallContent) and (
                    gated is not content or answer.tool_call_id == gated.call_id
                ):
                    self._write_gated(gated, update)
                self._ask(answer)
                self._settle(content, update)
                return
        is_result = isinstance(content, FunctionResultContent)
        event = _as_event(content.raw_representation)
        if event is not None and not (is_result and content.call_id in self._replaced):
            self._write_event(event)
        elif isinstance(content, FunctionCallContent) and content.is_complete and self._hooks.calls:
            if (answer := first_answer(self._hooks.calls, content.name, content)) is not None:
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
        if (answer := first_answer(self._hooks.results, tool, content)) is not None:
            self._write_answer(answer, content, update)
        else:
            self._write_content(content, update)
        subagent = update.additional_properties.get(SUBAGENT_RUN_ID)
        if (snapshot := first_answer(self._hooks.snapshots, tool, content)) is not None:
            self._out += self._writer.emit(StateSnapshotEvent(snapshot=snapshot, subagent_run_id=subagent))
        if any(wanted is None or wanted == tool for wanted, _ in self._hooks.deltas):
            self._patch_by(content, tool, subagent)

    def _patch_by(self, content: FunctionResultContent, tool: str | None, subagent: str | None) -> None:
        patch = first_answer(self._hooks.deltas, tool, content)
        if patch is not None:
            self._patch(patch, subagent, f"the result of call {content.call_id!r}")

    def _patch(self, patch: Any, subagent: str | None, source: str) -> None:
        try:
            self._out += self._writer.patch_state(patch, subagent=subagent)
        except IllegalStep as error:  # a tool or a model said it, not the agent: its run need not end for that
            self._leave_out(f"{source} changes no state: {error.message}", error.rule)

    def _ask(self, interrupt: Interrupt) -> None:
        if interrupt.id in self._interrupts:
            self._leave_out(f"the question {interrupt.id!r} was asked twice; the later one counts", "INT-1")
        self._interrupts[interrupt.id] = self._gating(interrupt)

    def _leave_out(self, message: str, rule: str = "left-out") -> None:
        self._warn(Notice(rule=rule, message=message))

    def _write_answer(self, answer: Answer, asked: Content, update: ChatUpdate | ChatMessage) -> None:
        items: Any = answer if isinstance(answer, (list, tuple)) else (answer,)
        # Of a tool's message only results are the tool's: nothing else can be said in its role.
        speaker = update
        if update.role == "tool":
            speaker = ChatUpdate("assistant", additional_properties=update.additional_properties)
        for item in items:
            event = _as_event(item)
            if event is not None:
                self._write_event(event)
            elif isinstance(item, Content):
                self._write_content(item, update if isinstance(item, FunctionResultContent) else speaker)
            else:
                raise EncodeError(f"a hook answered with {type(item).__name__}, which is no event and no content")
        self._settle(asked, update)

    def _settle(self, taken: Content, update: ChatUpdate | ChatMessage) -> None:
        """After a hook took a content's place: a call that was sent is answered, one that was not sent is not."""
        call = taken.call if isinstance(taken, ApprovalRequestContent) else taken
        if isinstance(call, FunctionCallContent):
            sent = self._calls.get(call.call_id)
            if sent is None or sent.is_answered:
                self._replaced[call.call_id] = call.name or self._replaced.get(call.call_id, "")
        elif isinstance(taken, FunctionResultContent):
            sent = self._calls.get(taken.call_id)
            if sent is not None and not sent.is_answered:
                # Whoever saw the call would wait for its answer, and models refuse a call without one.
                self._write_result(FunctionResultContent(taken.call_id, ""), update)

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
                self._write_gated(content.call, update)
                self._ask(write_interrupt(content))
            case InterruptRequestContent():
                self._ask(write_interrupt(content))
            case DataContent():
                self._write_data(content, update.additional_properties)
            case _:
                raise EncodeError(f"a stream of events cannot carry {type(content).__name__}; map it with a hook")

    # Events

    def _write_data(self, content: DataContent, properties: Properties) -> None:
        event = event_content.try_get(content)
        subagent = properties.get(SUBAGENT_RUN_ID)
        if event is not None:
            self._write_event(event)
        elif content.media_type == "application/json":
            # How others spell state in a chat; there is no other JSON that an agent says to its user interface.
            snapshot = decode(content.data, Any)
            self._out += self._writer.emit(StateSnapshotEvent(snapshot=snapshot, subagent_run_id=subagent))
        elif content.media_type == "application/json-patch+json":
            patch = decode(content.data, Any)
            if not is_array(patch):
                raise EncodeError("a content of type application/json-patch+json is no list of operations")
            self._patch(patch, subagent, "a content of type application/json-patch+json")
        else:
            kind = f"DataContent of type {content.media_type}"
            raise EncodeError(f"a stream of events cannot carry {kind}; map it with a hook")

    def _write_event(self, event: Any) -> None:
        """Write an event as it is. What begins and ends the run has the ids of this run, whoever made it (#7429)."""
        cls = event.__class__
        if cls is RunStartedEvent:
            return  # ours was sent
        if cls is RunErrorEvent:
            self._ending = event
            return
        if cls is RunFinishedEvent:
            self._ending = replace(event, thread_id=self._writer.thread_id, run_id=self._writer.run_id)
            return
        if cls is MessagesSnapshotEvent:
            self._end_all()
        elif cls not in _BESIDE_TEXT:
            self._end_lane(self._lane(getattr(event, "subagent_run_id", None)))
        # A subagent that ends takes along what it left open, as in a stream that is written by hand.
        ends = cls is SubagentFinishedEvent or cls is SubagentErrorEvent
        written = self._writer._end_subagent(event) if ends else self._writer.emit(event)
        for one in written:
            self._note(one)
        self._out += written

    def _note(self, event: Any) -> None:
        """Remember what an event that was not made here says about ids."""
        self._calls.note(event)
        message_id = getattr(event, "message_id", None)
        if message_id is not None:
            self._taken.add(message_id)
        if event.__class__ is ToolCallStartEvent:
            self._replaced.pop(event.tool_call_id, None)
        elif event.__class__ is ToolCallResultEvent:
            self._lane(event.subagent_run_id).named.clear()


def _as_event(value: object) -> Event | None:
    if value is None:
        return None
    if value.__class__ in _EVENTS:
        return cast("Event", value)
    if is_official(value):
        event = from_official(value)
        if event.__class__ in _EVENTS:
            return event
    return None
