"""Layer: stream. What a stream of events means: ``Reducer`` and ``reduce`` give a ``Conversation``.

Below: ``growing`` (messages while they grow), ``patch``, ``chunks``. Above: the client, the server's projections,
compaction, the tools; so that nobody ever sees two answers. It does not judge the order of events, which is the
verifier's work: what an event names and is not there is reported as a notice and changes nothing.

Costs. An event costs the same however much came before it; only MESSAGES_SNAPSHOT, which is about every message,
costs as much as there are messages. A view costs one copied list of references and the messages that changed since the
view before it. Nothing a view holds is ever changed afterwards.

Where messages of one thread share an id, which the protocol forbids (ENV-12) and producers do, nothing is lost: a
tool result never replaces a message that is no tool message, and a call's new host never one that is no assistant.
Such a message stands beside the other, and the id then means the one that is not the tool message.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any, cast

from msgspec import UNSET

from aguila.codec.notice import Notice, Warn, log_notice
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
    Interrupt,
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
    RunFinishedInterruptOutcome,
    RunFinishedSuccessOutcome,
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
from aguila.stream.chunks import expand_chunks
from aguila.stream.conversation import CallStatus, Conversation, RunRecord
from aguila.stream.foreign import not_an_event
from aguila.stream.growing import GrowingMessage
from aguila.stream.held import HeldMessages
from aguila.stream.patch import apply_patch

_TEXT_MESSAGES: dict[str, type[Any]] = {
    "assistant": AssistantMessage,
    "user": UserMessage,
    "system": SystemMessage,
    "developer": DeveloperMessage,
}


class Reducer:
    """Builds a conversation event by event.

    ``messages`` and ``state`` are what there was before the stream; a state not given is ``{}``. ``warn`` receives a
    notice for everything that was tolerated. Events are taken in their long spelling: a chunk raises TypeError.

    The messages of an input echoed on RUN_STARTED are taken in, its state is not: who reads a stream has sent that
    state, and holds it already or gives it as ``state`` (SNAP-4). To read a log of runs that others sent, along a
    branch and from the states that were sent, see ``Lineage.reduce_along``.
    """

    __slots__ = (
        "_by_id",
        "_call_status",
        "_calls",
        "_held",
        "_interrupts",
        "_is_run_dirty",
        "_run",
        "_runs",
        "_state",
        "_view",
        "_warn",
    )

    def __init__(self, messages: Iterable[Message] = (), state: State = UNSET, *, warn: Warn = log_notice) -> None:
        self._warn = warn
        self._state: State = {} if state is UNSET else state
        self._runs: list[RunRecord] = []  # all but the last
        self._run: RunRecord | None = None  # the last, without its calls
        self._call_status: dict[str, CallStatus] = {}  # its calls
        self._is_run_dirty = True
        self._interrupts: list[Interrupt] = []
        self._view: Conversation | None = None
        self._held = HeldMessages()
        self._by_id = self._held.by_id  # one step less on the hottest path
        self._calls = self._held.calls
        for message in messages:
            if self._held.put(message):
                self._notice("ENV-12", f"two {message.role} messages have the id {message.id!r}; the later one counts")

    @classmethod
    def from_conversation(cls, conversation: Conversation, *, warn: Warn = log_notice) -> Reducer:
        """A reducer that goes on where the conversation stands."""
        reducer = cls(conversation.messages, conversation.state, warn=warn)
        if conversation.runs:
            reducer._runs = conversation.runs[:-1]
            reducer._run = conversation.runs[-1]
            reducer._call_status = dict(conversation.runs[-1].calls)
        reducer._interrupts = conversation.interrupts
        return reducer

    def feed(self, event: Event) -> None:
        """Take in one event.

        Raises TypeError for a chunk, which has to be expanded first (CHK-1), and for what is no event of the protocol.
        """
        try:
            handle = HANDLERS[event.__class__]
        except KeyError:
            raise not_an_event(event) from None
        handle(self, event)

    def add_messages(self, messages: Iterable[Message]) -> None:
        """Append messages that did not come with the stream, such as the user's next one; held ids stay as they are."""
        for message in messages:
            if message.id not in self._by_id:
                self._held.append(GrowingMessage(message))

    def replace_from(self, place: int, messages: Iterable[Message]) -> None:
        """Keep the first ``place`` of the ``messages``, and have these follow them.

        None of them may have the id and role of one that is kept. Costs as much as there is after that place.
        """
        self._held.replace_from(place, messages)

    def replace_message(self, held: Message, message: Message) -> None:
        """Let another message of the same id take the place of one of the ``messages``."""
        growing = self._held.find(held.id, held.role)
        if growing is None:
            raise LookupError(f"there is no {held.role} message {held.id!r}")
        self._held.convert(growing, message)

    @property
    def messages(self) -> list[Message]:
        """The messages as they are now, in order. It is a value, as a ``conversation`` is."""
        return self._held.view()

    def place_of(self, message_id: str, role: str) -> int | None:
        """Where in ``messages`` the message of that id is: that of this role, if several share the id."""
        growing = self._held.find(message_id, role)
        if growing is None:
            growing = self._by_id.get(message_id)
        if growing is None:
            return None
        self._held.view()  # which says where everything is
        return growing.place

    @property
    def state(self) -> State:
        """The state as it is now."""
        return self._state

    def message(self, message_id: str) -> Message | None:
        """The message of that id as it is now, or None."""
        growing = self._by_id.get(message_id)
        return None if growing is None else growing.value()

    def role_of(self, message_id: str) -> str | None:
        """The role of the message of that id, or None if there is none."""
        growing = self._by_id.get(message_id)
        return None if growing is None else growing.role

    def growing(self, message_id: str) -> GrowingMessage | None:
        """The message of that id, if text can be added to it: while it ``is_dirty``, ``deltas`` may be appended to."""
        growing = self._by_id.get(message_id)
        return None if growing is None or growing.role == "activity" else growing

    @property
    def conversation(self) -> Conversation:
        """The conversation as it is now. It is a value: later events change the next view, not this one."""
        view = self._view
        messages = self._held.view()
        runs = self._view_runs()
        if (
            view is None
            or view.messages is not messages
            or view.runs is not runs
            or view.state is not self._state
            or view.interrupts is not self._interrupts
        ):
            self._view = view = Conversation(
                messages=messages, state=self._state, runs=runs, interrupts=self._interrupts
            )
        return view

    def _view_runs(self) -> list[RunRecord]:
        view = self._view
        if view is not None and not self._is_run_dirty:
            return view.runs
        self._is_run_dirty = False
        if self._run is None:
            return []
        return [*self._runs, replace(self._run, calls=dict(self._call_status))]

    def _notice(self, rule: str, message: str, event: Event | None = None, path: str = "") -> None:
        event_type = None if event is None else str(event.type)
        self._warn(Notice(rule=rule, message=message, path=path, event_type=event_type))

    # Text and reasoning (TXT, RSN, META-5).

    def _writable(self, event: Any) -> GrowingMessage | None:
        growing = self._by_id.get(event.message_id)
        if growing is None:
            # Sequence errors are the verifier's; here it is a message that a snapshot has dropped.
            self._notice("STR-2", f"there is no message {event.message_id!r} to write to; nothing changed", event)
        elif growing.role == "activity":
            self._notice("TXT-3", f"message {event.message_id!r} is an activity and takes no text", event)
            growing = None
        return growing

    def _start_text(self, event: TextMessageStartEvent) -> None:
        if event.message_id in self._by_id:
            self._annotate(event)
            return
        kind = AssistantMessage if event.role is None else _TEXT_MESSAGES[event.role]
        self._held.append(
            GrowingMessage(
                kind(
                    id=event.message_id,
                    content="",
                    name=event.name,
                    subagent_run_id=event.subagent_run_id,
                    metadata=event.metadata,
                )
            )
        )

    def _start_reasoning(self, event: ReasoningMessageStartEvent) -> None:
        if event.message_id in self._by_id:
            self._annotate(event)
            return
        self._held.append(
            GrowingMessage(
                ReasoningMessage(
                    id=event.message_id,
                    content="",
                    subagent_run_id=event.subagent_run_id,
                    metadata=event.metadata,
                )
            )
        )

    def _grow(self, event: TextMessageContentEvent | ReasoningMessageContentEvent) -> None:
        # The hottest path there is: one look-up and one append when all is well.
        growing = self._by_id.get(event.message_id)
        if growing is None or growing.role == "activity":
            self._writable(event)
            return
        growing.deltas.append(event.delta)
        if event.metadata is not None:
            growing.merge(event.metadata)
        if not growing.is_dirty:
            self._held.touch(growing)

    def _annotate(self, event: Any) -> None:
        """The metadata of an event that starts a message again or ends one."""
        growing = self._writable(event)
        if growing is not None and event.metadata is not None:
            growing.merge(event.metadata)
            self._held.touch(growing)

    # Tool calls (TOOL, FT).

    def _start_call(self, event: ToolCallStartEvent) -> None:
        call_id = event.tool_call_id
        if self._call_status.get(call_id) != "answered":
            self._call_status[call_id] = "streaming"
            self._is_run_dirty = True
        call = self._calls.get(call_id)
        if call is None:
            host = self._host(event)
            function = FunctionCall(name=event.tool_call_name, arguments="")
            call = host.add_call(ToolCall(id=call_id, function=function, metadata=event.metadata))
            self._calls[call_id] = call
            self._held.touch_call(call)
            return
        # Started again: a replay, or more arguments to come. It stays one call (TOOL-4).
        name = call.call.function.name
        if name != event.tool_call_name:
            self._notice("TOOL-4", f"call {call_id!r} of {name!r} is now one of {event.tool_call_name!r}", event)
            call.rename(event.tool_call_name)
            self._held.touch_call(call)
        if event.metadata is not None:
            call.merge(event.metadata)
            self._held.touch_call(call)

    def _host(self, event: ToolCallStartEvent) -> GrowingMessage:
        """The assistant message that makes the call: the parent named, or a new one under the parent's or call's id."""
        host_id, parent_id = event.tool_call_id, event.parent_message_id
        # An empty parent is none: producers without one write "", and their calls do not belong together.
        if parent_id is not None and parent_id != "":
            parent = self._held.find(parent_id, "assistant")
            if parent is not None:
                return parent
            if parent_id in self._by_id:
                role = self._by_id[parent_id].role
                self._notice("TOOL-2", f"parent {parent_id!r} is a {role} message and makes no calls", event)
            else:
                host_id = parent_id
        host = self._held.find(host_id, "assistant")
        if host is None:
            if host_id in self._by_id:
                self._notice("ENV-12", f"a message and a new assistant message share the id {host_id!r}", event)
            host = GrowingMessage(AssistantMessage(id=host_id, subagent_run_id=event.subagent_run_id))
            self._held.append(host)
        return host

    def _grow_arguments(self, event: ToolCallArgsEvent) -> None:
        call = self._calls.get(event.tool_call_id)
        if call is None:
            self._notice("STR-2", f"no message makes the call {event.tool_call_id!r}; nothing changed", event)
            return
        call.deltas.append(event.delta)
        if event.metadata is not None:
            call.merge(event.metadata)
        if not call.is_dirty:
            self._held.touch_call(call)

    def _end_call(self, event: ToolCallEndEvent) -> None:
        if self._call_status.get(event.tool_call_id) == "streaming":
            self._call_status[event.tool_call_id] = "called"
            self._is_run_dirty = True
        call = self._calls.get(event.tool_call_id)
        if call is None:
            self._notice("STR-2", f"no message makes the call {event.tool_call_id!r}; nothing changed", event)
        elif event.metadata is not None:
            call.merge(event.metadata)
            self._held.touch_call(call)

    def _answer_call(self, event: ToolCallResultEvent) -> None:
        call_id = event.tool_call_id
        self._call_status[call_id] = "answered"  # also before its start: FT-3 asks for a result anywhere in the run
        self._is_run_dirty = True
        held = self._held.find(event.message_id, "tool")
        if held is not None:
            # Delivered again: the later answer counts, in the place of the first.
            held.message = replace(
                cast("ToolMessage", held.message),
                content=event.content,
                tool_call_id=call_id,
                error=None,
                subagent_run_id=event.subagent_run_id,
            )
            held.deltas.clear()
            if event.metadata is not None:
                held.merge(event.metadata)
            self._held.touch(held)
            return
        if event.message_id in self._by_id:
            self._notice("ENV-12", f"a message and a tool result share the id {event.message_id!r}", event)
        answer = GrowingMessage(
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
            self._held.append(answer)
        else:
            self._held.insert_answer(call.host, answer)

    def _seal(self, event: ReasoningEncryptedValueEvent) -> None:
        sealed = (event.encrypted_value, event.encrypted_value_type)
        if event.subtype == "tool-call":
            call = self._calls.get(event.entity_id)
            if call is not None:
                call.sealed = sealed
                self._held.touch_call(call)
                return
        else:
            growing = self._by_id.get(event.entity_id)
            if growing is not None and growing.role != "activity":
                growing.sealed = sealed
                self._held.touch(growing)
                return
        self._notice(
            "ENC-9", f"no {event.subtype} {event.entity_id!r} can hold the encrypted value", event, "/entityId"
        )

    # State and snapshots (STATE, MSGS, SNAP).

    def _set_state(self, event: StateSnapshotEvent) -> None:
        self._state = event.snapshot

    def _patch_state(self, event: StateDeltaEvent) -> None:
        try:
            self._state = apply_patch(self._state, event.delta)
        except PatchError as error:
            self._notice("SNAP-9", f"the patch does not apply, the state stays as it was: {error}", event, "/delta")

    def _restate_messages(self, event: MessagesSnapshotEvent) -> None:
        incoming: dict[tuple[str, str], Message] = {}
        for message in event.messages:
            if (message.id, message.role) in incoming:
                self._notice("ENV-12", f"two of the messages have the id {message.id!r}; the later one counts", event)
            incoming[message.id, message.role] = message
        self._held.restate(incoming, _survivors(event))

    # Activities (ACT).

    def _show_activity(self, event: ActivitySnapshotEvent) -> None:
        held = self._by_id.get(event.message_id)
        if held is not None and event.replace is False:
            if held.role != "activity":
                self._notice("ENV-12", f"{event.message_id!r} is a {held.role} message; nothing changed", event)
            elif event.metadata is not None:
                held.merge(event.metadata)
                self._held.touch(held)
            return
        activity = ActivityMessage(
            id=event.message_id,
            activity_type=event.activity_type,
            content=event.content,
            subagent_run_id=event.subagent_run_id,
            metadata=event.metadata,
        )
        if held is None:
            self._held.append(GrowingMessage(activity))
            return
        if held.role == "activity":
            # Metadata outlives the content it came with, the owner does not (ACT-5).
            held.message = replace(activity, metadata=held.message.metadata)
            if event.metadata is not None:
                held.merge(event.metadata)
        else:
            self._notice("ENV-12", f"an activity takes the place of a {held.role} message of its id", event)
            self._held.convert(held, activity)
            return
        self._held.touch(held)

    def _patch_activity(self, event: ActivityDeltaEvent) -> None:
        held = self._by_id.get(event.message_id)
        if held is None or held.role != "activity":
            self._notice("ACT-9", f"there is no activity {event.message_id!r} to change", event, "/messageId")
            return
        message = cast("ActivityMessage", held.message)
        if event.metadata is not None:  # also with a patch that fails (ACT-10)
            held.merge(event.metadata)
            self._held.touch(held)
        try:
            content = apply_patch(message.content, event.patch)
        except PatchError as error:
            self._notice("SNAP-9", f"the patch does not apply, the activity stays as it was: {error}", event, "/patch")
            return
        if not isinstance(content, dict):
            self._notice("ACT-8", "the patch leaves no object, the activity stays as it was", event, "/patch")
            return
        held.message = replace(message, content=content, activity_type=event.activity_type)
        self._held.touch(held)

    # Runs (LIFE, INT, USE).

    def _start_run(self, event: RunStartedEvent) -> None:
        self._archive_run()
        self._is_run_dirty = True
        self._run = RunRecord(run_id=event.run_id, thread_id=event.thread_id, parent_run_id=event.parent_run_id)
        if event.input is not None:
            self.add_messages(event.input.messages)

    def _archive_run(self) -> None:
        if self._run is not None:
            self._runs.append(replace(self._run, calls=self._call_status))
        self._call_status = {}

    def _finish_run(self, event: RunFinishedEvent) -> None:
        run = self._run
        self._is_run_dirty = True
        if run is None or run.outcome is not None:
            self._archive_run()
            run = RunRecord(run_id=event.run_id, thread_id=event.thread_id)
        outcome = event.outcome
        self._interrupts = outcome.interrupts if isinstance(outcome, RunFinishedInterruptOutcome) else []
        pending = outcome.pending_tool_call_ids if isinstance(outcome, RunFinishedSuccessOutcome) else None
        self._run = replace(
            run,
            outcome="success" if outcome is None else outcome.type,
            result=event.result,
            usage=[] if event.usage is None else event.usage,
            interrupts=self._interrupts,
            reported_pending=pending if pending else None,  # an empty list says nothing (FT-4)
        )

    def _fail_run(self, event: RunErrorEvent) -> None:
        run = self._run
        self._is_run_dirty = True
        if run is None or run.outcome == "error":
            self._archive_run()
            run = RunRecord()
        # After RUN_FINISHED this is the last word on the run, also on its usage (LIFE-15).
        self._run = replace(run, outcome="error", error=event, usage=run.usage if event.usage is None else event.usage)

    def _pass(self, event: Event) -> None:
        """An event that changes neither messages, state nor run history."""

    def _refuse(self, event: Event) -> None:
        raise TypeError(f"{event.type} has to be expanded before it is reduced (CHK-1)")


def _survivors(event: MessagesSnapshotEvent) -> Callable[[GrowingMessage], bool]:
    """Which held messages outlive a snapshot that does not name them (MSGS-2, MSGS-3).

    A snapshot with reasoning tells of all reasoning, one with activities of all activities. The reference client's
    projections narrow the latter to some activity types, by a list in the snapshot's metadata.
    """
    roles = {message.role for message in event.messages}
    keeps_reasoning = "reasoning" not in roles
    keeps_activities = "activity" not in roles
    told_types: set[Any] = set()

    scope: Any = {} if event.metadata is None else event.metadata.get("@ag-ui/client", {})
    if not isinstance(scope, dict):
        keeps_activities = True
    elif "authoritativeActivityTypes" in scope:
        types: Any = cast("dict[str, Any]", scope)["authoritativeActivityTypes"]
        keeps_activities = types is not None
        if isinstance(types, list) and all(isinstance(t, str) for t in cast("list[Any]", types)):
            told_types = set(cast("list[Any]", types))

    def is_kept(growing: GrowingMessage) -> bool:
        if growing.role == "reasoning":
            return keeps_reasoning
        if growing.role == "activity":
            return keeps_activities and cast("ActivityMessage", growing.message).activity_type not in told_types
        return False

    return is_kept


HANDLERS: dict[type[Any], Callable[[Reducer, Any], None]] = {
    RunStartedEvent: Reducer._start_run,
    RunFinishedEvent: Reducer._finish_run,
    RunErrorEvent: Reducer._fail_run,
    StepStartedEvent: Reducer._pass,
    StepFinishedEvent: Reducer._pass,
    TextMessageStartEvent: Reducer._start_text,
    TextMessageContentEvent: Reducer._grow,
    TextMessageEndEvent: Reducer._annotate,
    TextMessageChunkEvent: Reducer._refuse,
    ToolCallStartEvent: Reducer._start_call,
    ToolCallArgsEvent: Reducer._grow_arguments,
    ToolCallEndEvent: Reducer._end_call,
    ToolCallChunkEvent: Reducer._refuse,
    ToolCallResultEvent: Reducer._answer_call,
    ReasoningStartEvent: Reducer._pass,
    ReasoningMessageStartEvent: Reducer._start_reasoning,
    ReasoningMessageContentEvent: Reducer._grow,
    ReasoningMessageEndEvent: Reducer._annotate,
    ReasoningMessageChunkEvent: Reducer._refuse,
    ReasoningEndEvent: Reducer._pass,
    ReasoningEncryptedValueEvent: Reducer._seal,
    StateSnapshotEvent: Reducer._set_state,
    StateDeltaEvent: Reducer._patch_state,
    MessagesSnapshotEvent: Reducer._restate_messages,
    ActivitySnapshotEvent: Reducer._show_activity,
    ActivityDeltaEvent: Reducer._patch_activity,
    SubagentStartedEvent: Reducer._pass,
    SubagentFinishedEvent: Reducer._pass,
    SubagentErrorEvent: Reducer._pass,
    RawEvent: Reducer._pass,
    CustomEvent: Reducer._pass,
}
"""What each event does. Beside the class, so that the one look-up per event needs no bound method."""


def reduce(
    events: Iterable[Event],
    *,
    messages: Iterable[Message] = (),
    state: State = UNSET,
    warn: Warn = log_notice,
) -> Conversation:
    """The conversation that a stream amounts to. Chunks are expanded first.

    Raises SequenceError for a chunk that cannot be expanded; the order of events is otherwise not judged.
    """
    reducer = Reducer(messages, state, warn=warn)
    feed = reducer.feed
    for event in expand_chunks(events):
        feed(event)
    return reducer.conversation
