"""Apply events to a conversation: ``Reducer`` and ``reduce``.

The order of events is not checked here, that is the verifier's job. An event that refers to something unknown is
reported as a notice and changes nothing.

The cost of an event does not depend on the events before it. Only MESSAGES_SNAPSHOT costs as much as there are
messages. A view costs one copied list of references, and the messages that changed since the last view. A view never
changes.

If messages of one thread share an id, which the protocol forbids (ENV-12) but producers do, no message is lost. A tool
result only replaces a tool message, and a tool call is only added to an assistant message. Otherwise a second message
with the same id is added. Events with that id then refer to the one that is not a tool message.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any, ClassVar, cast

from msgspec import UNSET

from aguila.codec.notices import Notice, Warn, log_notice
from aguila.errors import PatchError
from aguila.protocol import (
    ActivityDeltaEvent,
    ActivityMessage,
    ActivitySnapshotEvent,
    AssistantMessage,
    CustomEvent,
    DeveloperMessage,
    Event,
    FunctionCall,
    Message,
    MessagesSnapshotEvent,
    RawEvent,
    ReasoningEncryptedValueEvent,
    ReasoningEndEvent,
    ReasoningMessage,
    ReasoningMessageChunkEvent,
    ReasoningMessageContentEvent,
    ReasoningMessageEndEvent,
    ReasoningMessageStartEvent,
    ReasoningStartEvent,
    RunErrorEvent,
    RunFinishedEvent,
    RunStartedEvent,
    State,
    StateDeltaEvent,
    StateSnapshotEvent,
    StepFinishedEvent,
    StepStartedEvent,
    SubagentErrorEvent,
    SubagentFinishedEvent,
    SubagentStartedEvent,
    SystemMessage,
    TextMessageChunkEvent,
    TextMessageContentEvent,
    TextMessageEndEvent,
    TextMessageStartEvent,
    ToolCall,
    ToolCallArgsEvent,
    ToolCallChunkEvent,
    ToolCallEndEvent,
    ToolCallResultEvent,
    ToolCallStartEvent,
    ToolMessage,
    UserMessage,
    replace,
)
from aguila.protocol.legacy import MetaEvent
from aguila.stream.chunks import expand_chunks
from aguila.stream.conversation import Conversation
from aguila.stream.patch import PatchLimit
from aguila.stream.reducer.message_builder import MessageBuilder
from aguila.stream.reducer.message_list import MessageList
from aguila.stream.reducer.run_history import RunHistory
from aguila.stream.type_errors import event_type_error

# Copied with ``replace``, which takes a tenth of the time of a constructor of messages.
_TEXT_MESSAGES: dict[str | None, Message] = {
    None: AssistantMessage(id="", content=""),
    "assistant": AssistantMessage(id="", content=""),
    "user": UserMessage(id="", content=""),
    "system": SystemMessage(id="", content=""),
    "developer": DeveloperMessage(id="", content=""),
}
_REASONING = ReasoningMessage(id="", content="")


class Reducer:
    """Build a conversation event by event.

    ``messages`` and ``state`` are those before the stream; the default state is ``{}``. ``warn`` receives a notice for
    every tolerated fault. With ``max_size`` a patch does not apply if the state or activity would have more bytes.
    Chunks have to be expanded first.

    If RUN_STARTED echoes the input, its messages are added, but its state is not used: the reader of the stream has
    sent that state and passes it as ``state`` (SNAP-4). ``Lineage.reduce_along`` reads the log of runs that others
    started.
    """

    __slots__ = ("_by_id", "_calls", "_messages", "_patches", "_runs", "_state", "_view", "_warn")

    def __init__(
        self,
        messages: Iterable[Message] = (),
        state: State = UNSET,
        *,
        warn: Warn = log_notice,
        max_size: int | None = None,
    ) -> None:
        self._warn = warn
        self._patches = PatchLimit(max_size)
        self._state: State = {} if state is UNSET else state
        self._runs = RunHistory()
        self._view: Conversation | None = None
        self._messages = MessageList()
        self._by_id = self._messages.by_id  # saves an attribute lookup for every delta
        self._calls = self._messages.calls
        for message in messages:
            if self._messages.put(message):
                self._notice("ENV-12", f"two {message.role} messages have the id {message.id!r}; keeping the later one")

    @classmethod
    def from_conversation(
        cls, conversation: Conversation, *, warn: Warn = log_notice, max_size: int | None = None
    ) -> Reducer:
        """Make a reducer that continues from a conversation."""
        reducer = cls(conversation.messages, conversation.state, warn=warn, max_size=max_size)
        reducer._runs.load(conversation)
        return reducer

    def feed(self, event: Event) -> None:
        """Apply one event.

        Raises TypeError for a chunk, which has to be expanded first (CHK-1), and for an object that is not an event.
        """
        try:
            handle = self.handlers[event.__class__]
        except KeyError:
            raise event_type_error(event) from None
        handle(self, event)

    def prepare(self, event: Event) -> None:
        """Compute the patch of an event, which ``feed`` then applies at once, if it is the next event.

        Call it in another thread for an event with a long patch. Nothing may be fed meanwhile.
        """
        if isinstance(event, StateDeltaEvent):
            self._patches.prepare(self._state, event.delta)
        elif isinstance(event, ActivityDeltaEvent):
            builder = self._by_id.get(event.message_id)
            if builder is not None and isinstance(builder.message, ActivityMessage):
                self._patches.prepare(builder.message.content, event.patch, event.message_id)

    def add_messages(self, messages: Iterable[Message]) -> None:
        """Append messages that did not come with the stream, such as the user's next one. Known ids are skipped."""
        for message in messages:
            if message.id not in self._by_id:
                self._messages.append(MessageBuilder(message))

    def replace_from(self, index: int, messages: Iterable[Message]) -> None:
        """Keep the first ``index`` messages and append these.

        None of them may have the id and role of a kept message. Costs as much as there is after that index.
        """
        self._messages.replace_from(index, messages)

    def replace_message(self, old: Message, new: Message) -> None:
        """Replace a message by another one with the same id. Raises LookupError if there is no such message."""
        builder = self._messages.find(old.id, old.role)
        if builder is None:
            raise LookupError(f"there is no {old.role} message {old.id!r} to replace")
        self._messages.replace(builder, new)

    @property
    def messages(self) -> list[Message]:
        """The messages as they are now, in order. Do not change the list."""
        return self._messages.view()

    def index_of(self, message_id: str, role: str) -> int | None:
        """Return the index of a message in ``messages``. If several share the id, it is the one with this role."""
        builder = self._messages.find(message_id, role)
        if builder is None:
            builder = self._by_id.get(message_id)
        if builder is None:
            return None
        self._messages.view()  # assigns the indexes
        return builder.index

    @property
    def state(self) -> State:
        """The state as it is now. To set it has the effect of a STATE_SNAPSHOT."""
        return self._state

    @state.setter
    def state(self, state: State) -> None:
        self._state = state

    def get_message(self, message_id: str) -> Message | None:
        """Return the message with this id as it is now, or None."""
        builder = self._by_id.get(message_id)
        return None if builder is None else builder.build()

    def get_role(self, message_id: str) -> str | None:
        """Return the role of the message with this id, or None if there is none."""
        builder = self._by_id.get(message_id)
        return None if builder is None else builder.role

    @property
    def conversation(self) -> Conversation:
        """The conversation as it is now. Later events do not change the returned view."""
        view = self._view
        messages = self._messages.view()
        runs = self._runs.view()
        interrupts = self._runs.interrupts
        if (
            view is None
            or view.messages is not messages
            or view.runs is not runs
            or view.state is not self._state
            or view.interrupts is not interrupts
        ):
            self._view = view = Conversation(messages=messages, state=self._state, runs=runs, interrupts=interrupts)
        return view

    def _notice(self, rule: str, message: str, event: Event | None = None, path: str = "") -> None:
        event_type = None if event is None else str(event.type)
        self._warn(Notice(rule=rule, message=message, path=path, event_type=event_type))

    # Text and reasoning (TXT, RSN, META-5)

    def _find_writable(self, event: Any) -> MessageBuilder | None:
        builder = self._by_id.get(event.message_id)
        if builder is None:
            # The verifier checks the sequence. Here a snapshot has removed the message.
            self._notice("STR-2", f"there is no message {event.message_id!r} to write to; nothing changed", event)
        elif builder.role == "activity":
            self._notice("TXT-3", f"message {event.message_id!r} is an activity and takes no text", event)
            builder = None
        return builder

    def _start_text(self, event: TextMessageStartEvent) -> None:
        empty = _TEXT_MESSAGES[event.role]
        self._start_message(event, empty if event.name is None else replace(empty, name=event.name))

    def _start_reasoning(self, event: ReasoningMessageStartEvent) -> None:
        self._start_message(event, _REASONING)

    def _start_message(self, event: Any, empty: Message) -> None:
        if event.message_id in self._by_id:
            self._merge_metadata(event)
            return
        message = replace(empty, id=event.message_id, subagent_run_id=event.subagent_run_id, metadata=event.metadata)
        self._messages.append(MessageBuilder(message))

    def _append_text(self, event: TextMessageContentEvent | ReasoningMessageContentEvent) -> None:
        # The hottest path: one lookup and one append in the normal case.
        builder = self._by_id.get(event.message_id)
        if builder is None or builder.role == "activity":
            self._find_writable(event)
            return
        builder.deltas.append(event.delta)
        if event.metadata is not None:
            builder.merge(event.metadata)
        if not builder.is_dirty:
            self._messages.mark_changed(builder)

    def _merge_metadata(self, event: Any) -> None:
        """Merge the metadata of an event that opens a message again or ends it."""
        builder = self._find_writable(event)
        if builder is not None and event.metadata is not None:
            builder.merge(event.metadata)
            self._messages.mark_changed(builder)

    # Tool calls (TOOL, FT)

    def _start_call(self, event: ToolCallStartEvent) -> None:
        call_id = event.tool_call_id
        self._runs.start_call(call_id)
        call = self._calls.get(call_id)
        if call is None:
            parent = self._find_parent(event)
            function = FunctionCall(name=event.tool_call_name, arguments="")
            call = parent.add_call(ToolCall(id=call_id, function=function, metadata=event.metadata))
            self._calls[call_id] = call
            self._messages.mark_call_changed(call)
            return
        # Started again, by a replay or because more arguments follow. It stays one call (TOOL-4).
        name = call.call.function.name
        if name != event.tool_call_name:
            self._notice("TOOL-4", f"call {call_id!r} of {name!r} is renamed to {event.tool_call_name!r}", event)
            call.rename(event.tool_call_name)
            self._messages.mark_call_changed(call)
        if event.metadata is not None:
            call.merge(event.metadata)
            self._messages.mark_call_changed(call)

    def _find_parent(self, event: ToolCallStartEvent) -> MessageBuilder:
        """Find the assistant message for a call: the named parent, or a new one with the parent's or the call's id."""
        new_id, parent_id = event.tool_call_id, event.parent_message_id
        # An empty id counts as none: some producers send "" for every call, and these calls do not belong together.
        if parent_id is not None and parent_id != "":
            parent = self._messages.find(parent_id, "assistant")
            if parent is not None:
                return parent
            if parent_id in self._by_id:
                role = self._by_id[parent_id].role
                self._notice("TOOL-2", f"parent {parent_id!r} is a {role} message, which cannot have calls", event)
            else:
                new_id = parent_id
        parent = self._messages.find(new_id, "assistant")
        if parent is None:
            if new_id in self._by_id:
                self._notice("ENV-12", f"a message and a new assistant message share the id {new_id!r}", event)
            parent = MessageBuilder(AssistantMessage(id=new_id, subagent_run_id=event.subagent_run_id))
            self._messages.append(parent)
        return parent

    def _append_arguments(self, event: ToolCallArgsEvent) -> None:
        call = self._calls.get(event.tool_call_id)
        if call is None:
            self._notice("STR-2", f"no message has the call {event.tool_call_id!r}; nothing changed", event)
            return
        call.deltas.append(event.delta)
        if event.metadata is not None:
            call.merge(event.metadata)
        if not call.is_dirty:
            self._messages.mark_call_changed(call)

    def _end_call(self, event: ToolCallEndEvent) -> None:
        self._runs.end_call(event.tool_call_id)
        call = self._calls.get(event.tool_call_id)
        if call is None:
            self._notice("STR-2", f"no message has the call {event.tool_call_id!r}; nothing changed", event)
        elif event.metadata is not None:
            call.merge(event.metadata)
            self._messages.mark_call_changed(call)

    def _add_result(self, event: ToolCallResultEvent) -> None:
        call_id = event.tool_call_id
        self._runs.answer_call(call_id)
        builder = self._messages.find(event.message_id, "tool")
        if builder is not None:
            # Delivered again: the later result replaces the first one.
            builder.message = replace(
                cast("ToolMessage", builder.message),
                content=event.content,
                tool_call_id=call_id,
                error=None,
                subagent_run_id=event.subagent_run_id,
            )
            builder.deltas.clear()
            if event.metadata is not None:
                builder.merge(event.metadata)
            self._messages.mark_changed(builder)
            return
        if event.message_id in self._by_id:
            self._notice("ENV-12", f"a message and a tool result share the id {event.message_id!r}", event)
        result = MessageBuilder(
            ToolMessage(
                id=event.message_id,
                tool_call_id=call_id,
                content=event.content,
                subagent_run_id=event.subagent_run_id,
                metadata=event.metadata,
            )
        )
        call = self._calls.get(call_id)
        if call is None:
            self._messages.append(result)
        else:
            self._messages.insert_result(call.parent, result)

    def _set_encrypted_value(self, event: ReasoningEncryptedValueEvent) -> None:
        encrypted = (event.encrypted_value, event.encrypted_value_type)
        if event.subtype == "tool-call":
            call = self._calls.get(event.entity_id)
            if call is not None:
                call.encrypted = encrypted
                self._messages.mark_call_changed(call)
                return
        else:
            builder = self._by_id.get(event.entity_id)
            if builder is not None and builder.role != "activity":
                builder.encrypted = encrypted
                self._messages.mark_changed(builder)
                return
        self._notice(
            "ENC-9", f"no {event.subtype} {event.entity_id!r} can hold the encrypted value", event, "/entityId"
        )

    # State and snapshots (STATE, MSGS, SNAP)

    def _set_state(self, event: StateSnapshotEvent) -> None:
        self._state = event.snapshot

    def _patch_state(self, event: StateDeltaEvent) -> None:
        try:
            self._state = self._patches.apply_patch(self._state, event.delta)
        except PatchError as error:
            self._notice("SNAP-9", f"the patch does not apply; the state is unchanged: {error}", event, "/delta")

    def _replace_messages(self, event: MessagesSnapshotEvent) -> None:
        incoming: dict[tuple[str, str], Message] = {}
        for message in event.messages:
            if (message.id, message.role) in incoming:
                self._notice("ENV-12", f"two of the messages have the id {message.id!r}; keeping the later one", event)
            incoming[message.id, message.role] = message
        self._messages.apply_snapshot(incoming, _make_keep_filter(event))

    # Activities (ACT)

    def _set_activity(self, event: ActivitySnapshotEvent) -> None:
        builder = self._by_id.get(event.message_id)
        if builder is not None and event.replace is False:
            if builder.role != "activity":
                self._notice("ENV-12", f"{event.message_id!r} is a {builder.role} message; nothing changed", event)
            elif event.metadata is not None:
                builder.merge(event.metadata)
                self._messages.mark_changed(builder)
            return
        activity = ActivityMessage(
            id=event.message_id,
            activity_type=event.activity_type,
            content=event.content,
            subagent_run_id=event.subagent_run_id,
            metadata=event.metadata,
        )
        if builder is None:
            self._messages.append(MessageBuilder(activity))
        elif builder.role != "activity":
            self._notice("ENV-12", f"an activity replaces a {builder.role} message with the same id", event)
            self._messages.replace(builder, activity)
        else:
            # Metadata outlives the content that it came with, the owner does not (ACT-5).
            builder.message = replace(activity, metadata=builder.message.metadata)
            if event.metadata is not None:
                builder.merge(event.metadata)
            self._messages.mark_changed(builder)

    def _patch_activity(self, event: ActivityDeltaEvent) -> None:
        builder = self._by_id.get(event.message_id)
        if builder is None or builder.role != "activity":
            self._notice("ACT-9", f"there is no activity {event.message_id!r} to patch", event, "/messageId")
            return
        message = cast("ActivityMessage", builder.message)
        if event.metadata is not None:  # also if the patch fails (ACT-10)
            builder.merge(event.metadata)
            self._messages.mark_changed(builder)
        try:
            content = self._patches.apply_patch(message.content, event.patch, event.message_id)
        except PatchError as error:
            self._notice("SNAP-9", f"the patch does not apply; the activity is unchanged: {error}", event, "/patch")
            return
        if not isinstance(content, dict):
            problem = "the patched content is not an object; the activity is unchanged"
            self._notice("ACT-8", problem, event, "/patch")
            return
        builder.message = replace(message, content=content, activity_type=event.activity_type)
        self._messages.mark_changed(builder)

    # Runs (LIFE, INT, USE)

    def _start_run(self, event: RunStartedEvent) -> None:
        self._runs.start(event)
        if event.input is not None:
            self.add_messages(event.input.messages)

    def _finish_run(self, event: RunFinishedEvent) -> None:
        self._runs.finish(event)

    def _fail_run(self, event: RunErrorEvent) -> None:
        self._runs.fail(event)

    def _ignore(self, event: Event) -> None:
        """Do nothing: the event changes neither messages, state nor runs."""

    def _reject_chunk(self, event: Event) -> None:
        raise TypeError(f"{event.type} has to be expanded before it is reduced (CHK-1); use expand_chunks")

    handlers: ClassVar[dict[type[Any], Callable[[Reducer, Any], None]]] = {
        RunStartedEvent: _start_run,
        RunFinishedEvent: _finish_run,
        RunErrorEvent: _fail_run,
        StepStartedEvent: _ignore,
        StepFinishedEvent: _ignore,
        MetaEvent: _ignore,
        TextMessageStartEvent: _start_text,
        TextMessageContentEvent: _append_text,
        TextMessageEndEvent: _merge_metadata,
        TextMessageChunkEvent: _reject_chunk,
        ToolCallStartEvent: _start_call,
        ToolCallArgsEvent: _append_arguments,
        ToolCallEndEvent: _end_call,
        ToolCallChunkEvent: _reject_chunk,
        ToolCallResultEvent: _add_result,
        ReasoningStartEvent: _ignore,
        ReasoningMessageStartEvent: _start_reasoning,
        ReasoningMessageContentEvent: _append_text,
        ReasoningMessageEndEvent: _merge_metadata,
        ReasoningMessageChunkEvent: _reject_chunk,
        ReasoningEndEvent: _ignore,
        ReasoningEncryptedValueEvent: _set_encrypted_value,
        StateSnapshotEvent: _set_state,
        StateDeltaEvent: _patch_state,
        MessagesSnapshotEvent: _replace_messages,
        ActivitySnapshotEvent: _set_activity,
        ActivityDeltaEvent: _patch_activity,
        SubagentStartedEvent: _ignore,
        SubagentFinishedEvent: _ignore,
        SubagentErrorEvent: _ignore,
        RawEvent: _ignore,
        CustomEvent: _ignore,
    }
    """The method that applies each event."""


def _make_keep_filter(event: MessagesSnapshotEvent) -> Callable[[MessageBuilder], bool]:
    """Return which messages stay although the snapshot does not have them (MSGS-2, MSGS-3).

    A snapshot with reasoning has all reasoning, one with activities has all activities. The reference client's
    projections limit the latter to some activity types, by a list in the snapshot's metadata.
    """
    roles = {message.role for message in event.messages}
    keeps_reasoning = "reasoning" not in roles
    keeps_activities = "activity" not in roles
    complete_types: set[Any] = set()

    given: Any = {} if event.metadata is None else event.metadata.get("@ag-ui/client", {})
    if not isinstance(given, dict):
        keeps_activities = True
    elif "authoritativeActivityTypes" in given:
        types: Any = cast("dict[str, Any]", given)["authoritativeActivityTypes"]
        keeps_activities = types is not None
        if isinstance(types, list) and all(isinstance(t, str) for t in cast("list[Any]", types)):
            complete_types = set(cast("list[Any]", types))

    def is_kept(builder: MessageBuilder) -> bool:
        if builder.role == "reasoning":
            return keeps_reasoning
        if builder.role == "activity":
            return keeps_activities and cast("ActivityMessage", builder.message).activity_type not in complete_types
        return False

    return is_kept


def reduce(
    events: Iterable[Event],
    *,
    messages: Iterable[Message] = (),
    state: State = UNSET,
    warn: Warn = log_notice,
) -> Conversation:
    """Reduce a stream to its conversation. Chunks are expanded first.

    Raises SequenceError for a chunk that cannot be expanded. The order of events is otherwise not checked.
    """
    reducer = Reducer(messages, state, warn=warn)
    feed = reducer.feed
    for event in expand_chunks(events):
        feed(event)
    return reducer.conversation
