"""Reduce the runs of one thread branch, with the messages and state that clients sent at the start of each.

Events have only the agent's side of a conversation. The client's side is the input of each run, which the store keeps
(``Store.input``). Each RUN_STARTED is read together with that input.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Sequence
from typing import TYPE_CHECKING, Any, ClassVar

import msgspec

from aguila.codec.notices import Notice, Warn, list_ids
from aguila.protocol import (
    ActivitySnapshotEvent,
    AssistantMessage,
    Event,
    Message,
    MessagesSnapshotEvent,
    ReasoningEncryptedValueEvent,
    RunAgentInput,
    RunErrorEvent,
    RunFinishedCancelledOutcome,
    RunFinishedEvent,
    RunFinishedInterruptOutcome,
    RunStartedEvent,
    StateDeltaEvent,
    StateSnapshotEvent,
    Tool,
    ToolCall,
    ToolCallResultEvent,
    ToolCallStartEvent,
    ToolMessage,
    replace,
)
from aguila.server.config.options import HistoryMode, UnknownHistory
from aguila.server.threads.client.known_messages import KnownMessages, remove_unknown
from aguila.server.threads.client.merge import INSTRUCTING_ROLES, UNSENT_ROLES, ThreadMessages, merge_messages
from aguila.server.threads.client.message_ids import assign_ids
from aguila.server.threads.client.other_branches import FirstRuns, select_messages
from aguila.server.threads.client.tool_results import (
    NO_CALLS,
    ServerCallChanges,
    ServerCalls,
    ServerCallTracker,
    restore_server_results,
)
from aguila.stream import Conversation, Reducer
from aguila.stream.verification.rules import ITEMS, REASONING_MESSAGE, SUBAGENT, TEXT, TOOL_CALL, Item

if TYPE_CHECKING:
    from aguila.server.threads.projection import Projection

_ItemKey = tuple[Item, str, str | None]
_OPENERS = {item.opener: item for item in ITEMS}
_CLOSERS = {closer: item for item in ITEMS for closer in item.closers}


class LastRun(msgspec.Struct, frozen=True, kw_only=True):
    """The last run of a branch. ``ended`` is None while it is running.

    ``open_items`` are the start events of its open items, in order. ``calls`` are the start events of its tool calls.
    ``subagent_events`` are all events that start or end a subagent.
    """

    started: RunStartedEvent
    ended: RunFinishedEvent | RunErrorEvent | None
    open_items: list[Event]
    calls: dict[str, ToolCallStartEvent]
    subagent_events: list[Event]


class MessageCreators:
    """Which run created which message, for all runs of a thread."""

    __slots__ = ("_created", "_creators", "first_runs")

    def __init__(self) -> None:
        self.first_runs = FirstRuns()
        # Dicts as ordered sets: a run that is read twice creates the same messages again.
        self._creators: dict[str, dict[str, None]] = {}
        self._created: dict[str, dict[str, None]] = {}

    def record(self, run_id: str, message_id: str, role: str) -> None:
        """Record that a run created a message."""
        self.first_runs.record(run_id, message_id)
        if role in UNSENT_ROLES:
            self._creators.setdefault(message_id, {})[run_id] = None
        else:
            self._created.setdefault(run_id, {})[message_id] = None

    def creator_of(self, message_id: str, path: Collection[str]) -> str | None:
        """Return the latest run of a path that created this activity or reasoning message."""
        return next((run for run in reversed(self._creators.get(message_id, {})) if run in path), None)

    def created_by(self, run_id: str) -> Iterable[str]:
        """Return the ids of the messages that a run created, without activities and reasoning."""
        return self._created.get(run_id, ())

    def all_created_by(self, run_id: str) -> frozenset[str]:
        """Return the ids of all messages that a run created."""
        unsent = (message_id for message_id, runs in self._creators.items() if run_id in runs)
        return frozenset((*self.created_by(run_id), *unsent))


class BranchChanges(msgspec.Struct, kw_only=True):
    """The changes of the last run of a branch besides the conversation; see ``RunChanges``."""

    created: list[tuple[str, str]]
    brought: list[str]
    instructions: list[str]
    known: list[Message]
    front_end_calls: dict[str, Message]


class BranchReducer:
    """Reduces the runs of one branch, event by event, from its root or from the end of an earlier run (``start``)."""

    __slots__ = ("_answered", "_creators", "_known", "_open_items", "_path", "_reducer", "_sending", "_server_calls",
                 "_tools", "_warn", "calls", "changes", "client_instructions", "ended", "has_state", "last", "started",
                 "subagent_events", "tip")  # fmt: skip

    def __init__(self, start: Projection | None, creators: MessageCreators, known: KnownMessages, warn: Warn) -> None:
        self._creators = creators
        self._known = known
        self._warn = warn
        self._path: set[str] = set()
        self.tip: str | None = None
        self.last = 0
        self.client_instructions: frozenset[str] = frozenset()  # ``frozenset[str]()`` takes 2 us
        self.has_state = False
        calls = NO_CALLS
        if start is None:
            self._reducer = Reducer(warn=warn)
        else:
            self._reducer = Reducer.from_conversation(start.conversation, warn=warn)
            self._path.update(str(run.run_id) for run in start.conversation.runs)
            self.tip, self.last = start.tip, start.last
            self.client_instructions, self.has_state = start.client_instructions, start.has_state
            calls = start.server_calls
        self._server_calls = ServerCallTracker(calls)
        self.started: RunStartedEvent | None = None

    def _begin(self, started: RunStartedEvent, tools: Sequence[Tool]) -> None:
        self.started = started
        self.ended: RunFinishedEvent | RunErrorEvent | None = None
        self.calls: dict[str, ToolCallStartEvent] = {}
        self.subagent_events: list[Event] = []
        self._open_items: dict[_ItemKey, Event] = {}
        self._tools = tools
        self._answered: set[str] = set()
        self._sending: dict[str, None] = {}  # ids of the messages that the run sends, in order

    @property
    def conversation(self) -> Conversation:
        """The conversation after the last event."""
        return self._reducer.conversation

    @property
    def server_calls(self) -> ServerCalls:
        """The tool calls whose results come from the server."""
        return self._server_calls.calls()

    @property
    def server_call_changes(self) -> ServerCallChanges:
        """The changes of the last run in ``server_calls``."""
        return self._server_calls.changes()

    @property
    def last_run(self) -> LastRun | None:
        """The last run; None before the first."""
        if self.started is None:
            return None
        return LastRun(
            started=self.started,
            ended=self.ended,
            open_items=list(self._open_items.values()),
            calls=dict(self.calls),
            subagent_events=list(self.subagent_events),
        )

    def start_run(
        self,
        event: RunStartedEvent,
        sent: RunAgentInput,
        mode: HistoryMode,
        number: int,
        unknown_history: UnknownHistory = "keep",
        *,
        is_cut: bool = False,
    ) -> None:
        """Continue with a run, which was requested with the input ``sent``. ``number`` is that of its RUN_STARTED.

        With ``is_cut``, the branch was found by the messages (``cut_history``), so all of them belong to it.
        The messages of the input are matched by id. The state of the input is the state from here on; without one it is
        ``{}`` (IN-11, STATE-2). If the server supplied another state, a STATE_SNAPSHOT follows in the log.
        """
        reducer = self._reducer
        self.changes = BranchChanges(created=[], brought=[], instructions=[], known=[], front_end_calls={})
        self._server_calls.start_run()
        sent = assign_ids(sent, reducer.messages)
        self._path.add(event.run_id)
        messages = sent.messages if mode == "client" or is_cut else self._select(sent.messages)
        reducer.feed(event if event.input is None else replace(event, input=None))
        server_calls = self._server_calls.calls()
        if server_calls is not NO_CALLS:
            messages = restore_server_results(messages, server_calls).messages
        if mode == "client":
            if unknown_history == "drop":
                messages = remove_unknown(messages, self._known).messages
            messages = self._merge(messages)
        else:
            if unknown_history == "drop":
                new = [message for message in messages if reducer.get_role(message.id) is None]
                messages = remove_unknown(new, self._known, lambda one: reducer.get_role(one) is not None).messages
            self._add(messages)
        for message in messages:
            if self._creators.first_runs.record(event.run_id, message.id):
                self.changes.brought.append(message.id)
        reducer.state = {} if sent.state is None else sent.state
        self.has_state = self.has_state or sent.state not in (None, {})
        self._begin(event, sent.tools or ())
        self.tip, self.last = event.run_id, number

    def _select(self, messages: Sequence[Message]) -> Sequence[Message]:
        """Leave out messages of other branches."""
        reducer = self._reducer
        selected = select_messages(
            messages,
            lambda message_id: reducer.get_role(message_id) is not None,
            self._creators.first_runs,
            self._path,
            lambda: {call.id for call in reducer.conversation.pending_tool_calls},
        )
        return selected.messages

    def _add(self, messages: Sequence[Message]) -> None:
        """Add the messages that are new. A known id keeps its message."""
        reducer = self._reducer
        new = [one for one in messages if one.role in INSTRUCTING_ROLES and reducer.get_role(one.id) is None]
        if new:
            self._add_client_instructions([one.id for one in new])
        reducer.add_messages(messages)

    def _merge(self, messages: Sequence[Message]) -> Sequence[Message]:
        """Let the client's messages replace those of the thread, with a notice if it edited or omitted some.

        Return those that may be new.
        """
        reducer = self._reducer
        known = ThreadMessages(
            messages=reducer.messages,
            index_of=reducer.index_of,
            creator_of=lambda message_id: self._creators.creator_of(message_id, self._path),
            created_by=self._creators.created_by,
            client_instructions=self.client_instructions,
        )
        merged = merge_messages(messages, known)
        for old, new in merged.amended:
            reducer.replace_message(old, new)
        reducer.replace_from(merged.kept, merged.appended)
        if merged.client_instructions:
            self._add_client_instructions(merged.client_instructions)
        for ids, verb in ((merged.edited, "edited"), (merged.omitted, "omitted")):
            if ids:
                text = f"the client {verb} messages of the thread: {list_ids(ids)}"
                self._warn(Notice(rule="client-history", message=text, path="/messages", is_routine=True))
        return merged.appended

    def _add_client_instructions(self, ids: Sequence[str]) -> None:
        self.client_instructions = self.client_instructions.union(ids)
        self.changes.instructions += ids

    def prepare(self, event: Event) -> None:
        """Compute the patch of a large event in a thread, before it is fed. See ``Reducer.prepare``."""
        self._reducer.prepare(event)

    def feed(self, event: Event, number: int) -> None:
        """Apply an event of the run; ``number`` is its position in the log."""
        handle = self._HANDLERS.get(event.__class__)
        if handle is not None:  # before the reducer, which then has the message that the event creates
            handle(self, event)
        self._reducer.feed(event)
        self.last = number

    def _create(self, message_id: str, role: str) -> None:
        """Record that the run sends a message, and creates it unless the conversation already has it."""
        if message_id in self._sending:
            return
        present = self._reducer.get_message(message_id)
        if present is None and self.tip is not None:
            self._creators.record(self.tip, message_id, role)
            self.changes.created.append((message_id, role))
        if present is None or self._known.has(present):  # a client's message stays unknown if a run adds to it
            self._sending[message_id] = None

    def _open(self, event: Any) -> None:
        item = _OPENERS[event.__class__]
        self._open_items[_key(item, event)] = event
        if item is TOOL_CALL:
            self.calls.setdefault(event.tool_call_id, event)
            self._server_calls.on_call_started(event.tool_call_id)
            parent = event.parent_message_id
            self._create(event.tool_call_id if parent is None or parent == "" else parent, "assistant")
        elif item is TEXT:
            self._create(event.message_id, "assistant")
        elif item is REASONING_MESSAGE:
            self._create(event.message_id, "reasoning")
        elif item is SUBAGENT:
            self.subagent_events.append(event)

    def _close(self, event: Any) -> None:
        item = _CLOSERS[event.__class__]
        self._open_items.pop(_key(item, event), None)
        if item is SUBAGENT:
            self.subagent_events.append(event)

    def _on_state(self, _: Any) -> None:
        self.has_state = True

    def _on_activity(self, event: ActivitySnapshotEvent) -> None:
        self._create(event.message_id, "activity")

    def _on_messages_snapshot(self, event: MessagesSnapshotEvent) -> None:
        for message in event.messages:
            self._create(message.id, message.role)
            if self._reducer.get_message(message.id) != message:  # an equal one may be the client's
                self._sending[message.id] = None
        self._server_calls.on_messages_snapshot(event.messages)

    def _on_result(self, event: ToolCallResultEvent) -> None:
        self._create(event.message_id, "tool")
        self._answered.add(event.tool_call_id)
        self._server_calls.on_call_result(event)

    def _on_encrypted_value(self, event: ReasoningEncryptedValueEvent) -> None:
        message = self._reducer.get_message(event.entity_id) if event.subtype == "message" else None
        if isinstance(message, ToolMessage):
            self._server_calls.on_encrypted_value(message.tool_call_id, event)

    def _on_run_finished(self, event: RunFinishedEvent) -> None:
        self._end(event)
        if isinstance(event.outcome, RunFinishedInterruptOutcome):
            self._server_calls.on_interrupts(event.outcome.interrupts)
        pending = self._find_front_end_calls(event)
        if pending:
            for message in self._reducer.messages:
                if isinstance(message, AssistantMessage) and message.tool_calls and self._known.has(message):
                    for call in message.tool_calls:
                        if isinstance(call, ToolCall) and call.id in pending:
                            self._known.front_end_calls[call.id] = message
                            self.changes.front_end_calls[call.id] = message

    def _find_front_end_calls(self, event: RunFinishedEvent) -> set[str]:
        """Return the calls whose results a client may send: never those that a cancelled or failed run cut off."""
        outcome = event.outcome
        if isinstance(outcome, RunFinishedCancelledOutcome):
            return set()
        left: set[str] = self.calls.keys() - self._answered if self.calls else set()
        if isinstance(outcome, RunFinishedInterruptOutcome):  # the server may still answer calls of its own tools
            offered = {tool.name for tool in self._tools}
            return {call_id for call_id in left if self.calls[call_id].tool_call_name in offered}
        if outcome is None or not outcome.pending_tool_call_ids:
            return left
        return left.union(outcome.pending_tool_call_ids)

    def _end(self, event: RunFinishedEvent | RunErrorEvent) -> None:
        self.ended = event
        self._open_items.clear()
        for message_id in self._sending:
            message = self._reducer.get_message(message_id)
            if message is not None:
                self._known.add(message)
                self.changes.known.append(message)

    # Deltas, the most common events, have no handler: they cost one lookup.
    _HANDLERS: ClassVar[dict[type[Any], Callable[[Any, Any], None]]] = {
        **dict.fromkeys(_OPENERS, _open),
        **dict.fromkeys(_CLOSERS, _close),
        RunFinishedEvent: _on_run_finished,
        RunErrorEvent: _end,
        StateSnapshotEvent: _on_state,
        StateDeltaEvent: _on_state,
        ToolCallResultEvent: _on_result,
        ActivitySnapshotEvent: _on_activity,
        ReasoningEncryptedValueEvent: _on_encrypted_value,
        MessagesSnapshotEvent: _on_messages_snapshot,
    }


def _key(item: Item, event: Any) -> _ItemKey:
    return item, getattr(event, item.id_field), event.subagent_run_id if item.keyed_by_owner else None
