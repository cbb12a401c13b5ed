"""Reduce one run: its events, with the messages and the state that its client sent at the start.

Events have only the agent's side of a conversation. The client's side is the request of the run, which the store keeps
(``load_request``). The result is a ``Turn``. It is the only thing that is computed from the log.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import cached_property
from typing import Any, ClassVar

from aguila.codec import encode_event
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
    ToolCall,
    ToolCallResultEvent,
    ToolCallStartEvent,
    ToolMessage,
    replace,
)
from aguila.server.config.options import HistoryMode, UnknownHistory
from aguila.server.threads.client.cut_history import find_end
from aguila.server.threads.client.known_messages import KnownMessages, remove_unknown
from aguila.server.threads.client.merge import INSTRUCTING_ROLES, ThreadMessages, merge_messages
from aguila.server.threads.client.message_ids import assign_ids
from aguila.server.threads.client.other_branches import select_messages
from aguila.server.threads.client.tool_results import ServerCallTracker, restore_server_results
from aguila.server.threads.turn import Turn
from aguila.server.threads.view import View
from aguila.store.contents import compare_lists
from aguila.stream import Conversation, Reducer
from aguila.stream.verification.rules import ITEMS, REASONING_MESSAGE, SUBAGENT, TEXT, TOOL_CALL, Item

_ItemKey = tuple[Item, str, str | None]
_OPENERS = {item.opener: item for item in ITEMS}
_CLOSERS = {closer: item for item in ITEMS for closer in item.closers}


class RunReducer:
    """Reduces a run that continues the branch ``view`` and was requested with the input ``sent``.

    With ``is_cut``, the branch was found by the messages (``cut_history``), so all of them belong to it. ``reducer`` is
    one that has reduced the branch, if the caller has it; otherwise one is made from the view.

    The messages of the input are matched by id. The state of the input is the state from here on; without one it is
    ``{}`` (IN-11, STATE-2). If the server supplied another state, a STATE_SNAPSHOT follows in the log.
    """

    def __init__(
        self,
        view: View,
        started: RunStartedEvent,
        sent: RunAgentInput,
        history: HistoryMode = "client",
        unknown_history: UnknownHistory = "keep",
        *,
        is_cut: bool = False,
        warn: Warn,
        reducer: Reducer | None = None,
    ) -> None:
        self.view = view
        self.started = started if started.input is None else replace(started, input=None)
        self.reducer = reducer or Reducer.from_conversation(view.conversation, warn=warn)
        self._history: HistoryMode = history
        self._unknown_history: UnknownHistory = unknown_history
        self._warn = warn
        self._ended: RunFinishedEvent | RunErrorEvent | None = None
        self._has_state = view.has_state or sent.state not in (None, {})
        self._calls: dict[str, ToolCallStartEvent] = {}
        self._subagents: list[Event] = []
        self._open_items: dict[_ItemKey, Event] = {}
        self._tools = {tool.name for tool in sent.tools or ()}
        self._answered: set[str] = set()
        self._sending: dict[str, None] = {}  # ids of the messages that the run sends, in order
        self._created: list[tuple[str, str]] = []
        self._instructions: list[str] = []
        self._known: list[Message] = []
        self._own = KnownMessages()  # the same
        self._front_end_calls: dict[str, Message] = {}
        self._server_calls = ServerCallTracker(view.server_calls)
        first_runs = view.index.first_runs
        messages = self._start(assign_ids(sent, self.reducer.messages), is_cut=is_cut)
        self._brought = [one for one in dict.fromkeys(one.id for one in messages) if one not in first_runs]
        self.reducer.state = {} if sent.state is None else sent.state

    def _start(self, sent: RunAgentInput, *, is_cut: bool) -> Sequence[Message]:
        """Begin with the messages of the request. Return those that may be new."""
        reducer = self.reducer
        messages: Sequence[Message] = sent.messages
        if self._history == "server" and not is_cut:
            messages, _ = select_messages(messages, self.view, self.started.run_id)
        reducer.feed(self.started)
        messages = restore_server_results(messages, self.view.server_calls).messages
        if self._history == "client":
            if self._unknown_history == "drop":
                messages = remove_unknown(messages, self.view.index.known).messages
            return self._merge(messages)
        if self._unknown_history == "drop":
            new = [message for message in messages if reducer.get_role(message.id) is None]
            known = self.view.index.known
            messages = remove_unknown(new, known, lambda one: reducer.get_role(one) is not None).messages
        # A known id keeps its message.
        self._instructions += [
            one.id for one in messages if one.role in INSTRUCTING_ROLES and reducer.get_role(one.id) is None
        ]
        reducer.add_messages(messages)
        return messages

    @cached_property
    def _path(self) -> set[str]:
        """The runs of the branch."""
        return {self.started.run_id, *(str(run.run_id) for run in self.view.conversation.runs)}

    def _merge(self, messages: Sequence[Message]) -> Sequence[Message]:
        """Let the client's messages replace those of the thread, with a notice if it edited or omitted some.

        Return those that may be new.
        """
        reducer, index = self.reducer, self.view.index
        known = ThreadMessages(
            messages=reducer.messages,
            index_of=reducer.index_of,
            creator_of=lambda message_id: index.creator_of(message_id, self._path),
            created_by=index.created_by,
            client_instructions=self.view.client_instructions,
        )
        merged = merge_messages(messages, known)
        for old, new in merged.amended:
            reducer.replace_message(old, new)
        reducer.replace_from(merged.kept, merged.appended)
        self._instructions += merged.client_instructions
        for ids, verb in ((merged.edited, "edited"), (merged.omitted, "omitted")):
            if ids:
                text = f"the client {verb} messages of the thread: {list_ids(ids)}"
                self._warn(Notice(rule="client-history", message=text, path="/messages", is_routine=True))
        return merged.appended

    @property
    def conversation(self) -> Conversation:
        """The conversation after the last event: that of the view after this turn."""
        return self.reducer.conversation

    def messages(self) -> list[Message]:
        """Return all messages that the turn may name."""
        results = [message for by_id in self._server_calls.results().values() for message in by_id.values()]
        return [*self.conversation.messages, *self._known, *self._front_end_calls.values(), *results]

    def turn(self, digest_of: Callable[[Any], bytes]) -> Turn:
        """Return the turn of the run. ``digest_of`` returns the digest of a message or the state."""
        conversation, calls = self.conversation, self._server_calls
        digests = b"".join(map(digest_of, conversation.messages))
        return Turn(
            history=self._history,
            unknown_history=self._unknown_history,
            parent=self.view.tip,
            messages=compare_lists(self.view.digests, digests).parts,
            state=digest_of(conversation.state),
            has_state=self._has_state,
            start=encode_event(self.started),
            end=None if self._ended is None else encode_event(self._ended),
            calls=conversation.runs[-1].calls,
            call_starts=list(map(encode_event, self._calls.values())),
            subagents=list(map(encode_event, self._subagents)),
            open_items=list(map(encode_event, self._open_items.values())),
            last_sent=find_end(conversation.messages),
            created=list(self._created),
            brought=self._brought,
            instructions=self._instructions,
            known=list(map(digest_of, self._known)),
            front_end_calls={call_id: digest_of(one) for call_id, one in self._front_end_calls.items()},
            results={
                call_id: {message_id: digest_of(one) for message_id, one in by_id.items()}
                for call_id, by_id in calls.results().items()
            },
            interrupted=calls.interrupted(),
            uninterrupted=calls.uninterrupted(),
        )

    def prepare(self, event: Event) -> None:
        """Compute the patch of a large event in a thread, before it is fed. See ``Reducer.prepare``."""
        self.reducer.prepare(event)

    def feed(self, event: Event) -> None:
        """Apply an event of the run."""
        handle = self._HANDLERS.get(event.__class__)
        if handle is not None:  # before the reducer, which then has the message that the event creates
            handle(self, event)
        self.reducer.feed(event)

    def _create(self, message_id: str, role: str) -> None:
        """Record that the run sends a message, and creates it unless the conversation already has it."""
        if message_id in self._sending:
            return
        present = self.reducer.get_message(message_id)
        if present is None:
            self._created.append((message_id, role))
        # A client's message stays unknown if a run adds to it.
        if present is None or self.view.index.known.has(present):
            self._sending[message_id] = None

    def _open(self, event: Any) -> None:
        item = _OPENERS[event.__class__]
        self._open_items[_key(item, event)] = event
        if item is TOOL_CALL:
            self._calls.setdefault(event.tool_call_id, event)
            self._server_calls.on_call_started(event.tool_call_id)
            parent = event.parent_message_id
            self._create(event.tool_call_id if parent is None or parent == "" else parent, "assistant")
        elif item is TEXT:
            self._create(event.message_id, "assistant")
        elif item is REASONING_MESSAGE:
            self._create(event.message_id, "reasoning")
        elif item is SUBAGENT:
            self._subagents.append(event)

    def _close(self, event: Any) -> None:
        item = _CLOSERS[event.__class__]
        self._open_items.pop(_key(item, event), None)
        if item is SUBAGENT:
            self._subagents.append(event)

    def _on_state(self, _: Any) -> None:
        self._has_state = True

    def _on_activity(self, event: ActivitySnapshotEvent) -> None:
        self._create(event.message_id, "activity")

    def _on_messages_snapshot(self, event: MessagesSnapshotEvent) -> None:
        for message in event.messages:
            self._create(message.id, message.role)
            if self.reducer.get_message(message.id) != message:  # an equal one may be the client's
                self._sending[message.id] = None
        self._server_calls.on_messages_snapshot(event.messages)

    def _on_result(self, event: ToolCallResultEvent) -> None:
        self._create(event.message_id, "tool")
        self._answered.add(event.tool_call_id)
        self._server_calls.on_call_result(event)

    def _on_encrypted_value(self, event: ReasoningEncryptedValueEvent) -> None:
        message = self.reducer.get_message(event.entity_id) if event.subtype == "message" else None
        if isinstance(message, ToolMessage):
            self._server_calls.on_encrypted_value(message.tool_call_id, event)

    def _on_run_finished(self, event: RunFinishedEvent) -> None:
        self._end(event)
        if isinstance(event.outcome, RunFinishedInterruptOutcome):
            self._server_calls.on_interrupts(event.outcome.interrupts)
        pending = self._find_front_end_calls(event)
        if not pending:
            return
        known = self.view.index.known
        for message in self.reducer.messages:
            if isinstance(message, AssistantMessage) and message.tool_calls:
                own = [one.id for one in message.tool_calls if isinstance(one, ToolCall) and one.id in pending]
                if own and (known.has(message) or self._own.has(message)):
                    self._front_end_calls.update(dict.fromkeys(own, message))

    def _find_front_end_calls(self, event: RunFinishedEvent) -> set[str]:
        """Return the calls whose results a client may send: never those that a cancelled or failed run cut off."""
        outcome = event.outcome
        if isinstance(outcome, RunFinishedCancelledOutcome):
            return set()
        left = self._calls.keys() - self._answered
        if isinstance(outcome, RunFinishedInterruptOutcome):  # the server may still answer calls of its own tools
            return {call_id for call_id in left if self._calls[call_id].tool_call_name in self._tools}
        if outcome is None or not outcome.pending_tool_call_ids:
            return left
        return left.union(outcome.pending_tool_call_ids)

    def _end(self, event: RunFinishedEvent | RunErrorEvent) -> None:
        self._ended = event
        self._open_items.clear()
        for message_id in self._sending:
            message = self.reducer.get_message(message_id)
            if message is not None:
                self._known.append(message)
                self._own.add(message)

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
