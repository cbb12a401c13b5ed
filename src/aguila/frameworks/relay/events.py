"""Convert the events of another server's run into events of this run.

===================================  ==================================================================================
event                                what happens to it
===================================  ==================================================================================
RUN_STARTED                          dropped: this server has sent its own
RUN_FINISHED                         sent with the ids of this run; outcome, result and usage stay
RUN_ERROR                            raised as ``RunFailed``, which the server masks; sent with ``errors="pass"``
RAW, and ``rawEvent`` of any event   dropped, unless ``raw="keep"``
STATE_SNAPSHOT, STATE_DELTA          sent without hidden keys; a patch that does not apply is dropped (SNAP-9)
ACTIVITY_DELTA                       sent; dropped if the patch does not apply
MESSAGES_SNAPSHOT                    sent; a message whose id changed keeps the one that it had first
any other                            sent as it is
===================================  ==================================================================================
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from typing import Any, ClassVar, Final, Literal, get_args

from aguila.agent.run import Run
from aguila.codec.json.text import MAX_SIZE
from aguila.codec.json.values import is_object
from aguila.codec.notices import Notice, log_notice
from aguila.codec.pointer import parse_pointer
from aguila.errors import PatchError, RunFailed
from aguila.offload import LARGE, is_large, offload
from aguila.protocol import (
    ActivityDeltaEvent,
    ActivitySnapshotEvent,
    AssistantMessage,
    Event,
    Message,
    MessagesSnapshotEvent,
    RawEvent,
    ReasoningMessage,
    ReasoningMessageStartEvent,
    RunAgentInput,
    RunErrorEvent,
    RunFinishedEvent,
    RunFinishedSuccessOutcome,
    RunStartedEvent,
    StateDeltaEvent,
    StateSnapshotEvent,
    TextMessageStartEvent,
    ToolCall,
    ToolCallResultEvent,
    ToolCallStartEvent,
    ToolMessage,
    replace,
)
from aguila.stream.patch import PatchLimit

Raw = Literal["drop", "keep"]
Errors = Literal["mask", "pass"]

_INTERNAL: Final = "_ag_ui"
"""The prefix of the keys that AG-UI adapters add to the state for themselves."""

_NOTHING: Final[tuple[Event, ...]] = ()

_CHANGES: Final = frozenset({StateSnapshotEvent, StateDeltaEvent, ActivityDeltaEvent, MessagesSnapshotEvent})
"""Events whose conversion takes time in proportion to their size."""


class RelayOptions:
    """What a relay drops and masks. Raises TypeError or ValueError with the name of an invalid option."""

    def __init__(self, *, raw: Raw, state_keys: Collection[str] | None, errors: Errors) -> None:
        for name, value, known in (("raw", raw, get_args(Raw)), ("errors", errors, get_args(Errors))):
            if value not in known:
                raise ValueError(f"{name}: expected one of {', '.join(known)}, got {value!r}")
        if isinstance(state_keys, str):
            raise TypeError(f"state_keys: expected a list of keys, got text; write [{state_keys!r}]")
        self.keeps_raw = raw == "keep"
        self.masks_errors = errors == "mask"
        self._state_keys = None if state_keys is None else frozenset(state_keys)

    def is_visible(self, key: str) -> bool:
        """Return whether a key of the state is sent."""
        return not key.startswith(_INTERNAL) if self._state_keys is None else key in self._state_keys

    def visible_state(self, state: Any) -> Any:
        """Return the state without hidden keys: the same object if it has none."""
        if not is_object(state) or all(map(self.is_visible, state)):
            return state
        return {key: value for key, value in state.items() if self.is_visible(key)}


class Relay:
    """Converts the events of one run. ``input`` was sent to the other server.

    With ``may_replay`` the other server may send earlier runs first (IN-1). A run with another id is held back until it
    refers to a message that this thread does not have. Then it is the requested run, under an id that the server chose.
    """

    def __init__(self, run: Run, input: RunAgentInput, options: RelayOptions, *, may_replay: bool) -> None:  # noqa: A002
        self._run = run
        self._run_id = input.run_id
        self._options = options
        self._may_replay = may_replay
        self._held: list[Event] | None = None
        """Events of a run with another id, while it may be an earlier one."""
        self._state: Any = {} if input.state is None else input.state
        self._activities: dict[str, Any] = {}  # their contents
        self._patches = PatchLimit(MAX_SIZE)
        self._copied = 0  # bytes that patches have copied since other tasks ran
        self._tool_messages: dict[str, str] = {}  # ids by the call that they answer
        self._callers: dict[str, str] = {}  # ids of the assistant's messages by the calls that they make
        self._streamed: dict[str, None] = {}  # ids of the texts and thoughts of this run, in order
        self._thoughts: set[str] = set()  # ids of the thoughts among them
        self._known: set[str] = set()
        for message in input.messages:
            self._note(message)

    async def convert(self, event: Event) -> Iterable[Event]:
        """Convert an event as ``feed`` does, a large change in a thread."""
        if event.__class__ in _CHANGES and is_large(event):
            return await offload(self.feed, event)
        return self.feed(event)

    def is_busy(self) -> bool:
        """Return whether patches have copied so much that other tasks should run first. If so, reset the count."""
        self._copied += self._patches.take_measured()
        if self._copied <= LARGE:
            return False
        self._copied = 0
        return True

    def feed(self, event: Event) -> Iterable[Event]:
        """Return the events to send. Raise ``RunFailed`` for a RUN_ERROR that is masked, also while they are read."""
        if event.__class__ is RunStartedEvent:
            return self._start(event)  # type: ignore[arg-type]
        if self._held is not None:
            return self._hold(event, self._held)
        return self._convert(event)

    def close(self) -> Iterable[Event]:
        """Return the held events of the only run that was received. Call it at the end of the stream."""
        held, self._held = self._held, None
        return (each for event in held or () for each in self._convert(event))

    def _start(self, event: RunStartedEvent) -> Sequence[Event]:
        if not self._may_replay or event.run_id == self._run_id:
            self._held = None
        else:
            self._held = []
        return _NOTHING

    def _hold(self, event: Any, held: list[Event]) -> Iterable[Event]:
        held.append(event)
        ids = (getattr(event, name, None) for name in ("message_id", "tool_call_id", "parent_message_id"))
        found = [each for each in ids if each is not None]
        if not found or not self._known.isdisjoint(found):
            return _NOTHING
        message = "the upstream gave the run an id of its own; its events are sent under the id of this run"
        log_notice(Notice(rule="IN-3", message=message))
        return self.close()

    def _convert(self, event: Any) -> Sequence[Event]:
        if event.raw_event is not None and not self._options.keeps_raw:
            event = replace(event, raw_event=None)
        handler = self._handlers.get(event.__class__)
        return (event,) if handler is None else handler(self, event)

    # By event

    def _raw(self, event: RawEvent) -> Sequence[Event]:
        return (event,) if self._options.keeps_raw else _NOTHING

    def _error(self, event: RunErrorEvent) -> Sequence[Event]:
        if not self._options.masks_errors:
            return (event,)
        for usage in event.usage or ():
            self._run.add_usage(usage)
        raise RunFailed(event.message, code=event.code, event=event)

    def _finish(self, event: RunFinishedEvent) -> Sequence[Event]:
        outcome = event.outcome
        if isinstance(outcome, RunFinishedSuccessOutcome):
            outcome = RunFinishedSuccessOutcome()  # the server lists the pending calls itself (FT-3)
        return (replace(event, thread_id=self._run.thread_id, run_id=self._run.run_id, outcome=outcome),)

    def _state_snapshot(self, event: StateSnapshotEvent) -> Sequence[Event]:
        self._state = event.snapshot
        visible = self._options.visible_state(event.snapshot)
        return (event if visible is event.snapshot else replace(event, snapshot=visible),)

    def _state_delta(self, event: StateDeltaEvent) -> Sequence[Event]:
        try:
            self._state = self._patches.apply_patch(self._state, event.delta)
        except PatchError:
            return _NOTHING  # the reader has reported it
        is_visible = [self._is_visible(operation["path"]) for operation in event.delta]
        if all(is_visible) and all(self._is_visible(each.get("from")) for each in event.delta):
            return (event,)
        if any(each["path"] == "" or "from" in each for each in event.delta):
            snapshot = self._options.visible_state(self._state)
            return (StateSnapshotEvent(snapshot=snapshot, subagent_run_id=event.subagent_run_id),)
        delta = [each for each, is_sent in zip(event.delta, is_visible, strict=True) if is_sent]
        return (replace(event, delta=delta),) if delta else _NOTHING

    def _activity(self, event: ActivitySnapshotEvent) -> Sequence[Event]:
        if event.replace is not False or event.message_id not in self._activities:
            self._activities[event.message_id] = event.content
        return (event,)

    def _activity_delta(self, event: ActivityDeltaEvent) -> Sequence[Event]:
        content = self._activities.get(event.message_id)
        if content is not None:
            try:
                self._activities[event.message_id] = self._patches.apply_patch(content, event.patch, event.message_id)
            except PatchError:
                return _NOTHING  # the reader has reported it
        return (event,)

    def _is_visible(self, path: str | None) -> bool:
        """Return whether a path of a patch names visible keys only. The whole state may have hidden ones."""
        if path is None:
            return True
        return path != "" and self._options.is_visible(parse_pointer(path)[0])

    def _tool_result(self, event: ToolCallResultEvent) -> Sequence[Event]:
        self._tool_messages.setdefault(event.tool_call_id, event.message_id)
        return (event,)

    def _tool_call(self, event: ToolCallStartEvent) -> Sequence[Event]:
        parent = event.parent_message_id
        if parent is None or parent == "":  # some producers send "" for every call
            parent = event.tool_call_id
        self._callers.setdefault(event.tool_call_id, parent)
        return (event,)

    def _text_start(self, event: TextMessageStartEvent | ReasoningMessageStartEvent) -> Sequence[Event]:
        if event.role in (None, "assistant", "reasoning"):
            self._streamed[event.message_id] = None
            if event.role == "reasoning":
                self._thoughts.add(event.message_id)
        return (event,)

    def _messages(self, event: MessagesSnapshotEvent) -> Sequence[Event]:
        first_ids = self._first_ids(event.messages)
        messages = [replace(one, id=first_ids[one.id]) if one.id in first_ids else one for one in event.messages]
        for message in messages:
            self._note(message)
        return (replace(event, messages=messages),)

    def _first_ids(self, messages: Sequence[Message]) -> dict[str, str]:
        """Map each id that a snapshot gives to a known message to the first id of that message."""
        taken = {message.id for message in messages}
        found: dict[str, str] = {}
        for message in messages:
            first: str | None = None
            if isinstance(message, ToolMessage):
                first = self._tool_messages.get(message.tool_call_id)
            elif isinstance(message, AssistantMessage):
                first = next((self._callers[one] for one in _call_ids(message) if one in self._callers), None)
            if first is not None and first not in taken:
                found[message.id] = first
        # Texts and thoughts have no other name. If as many are missing as are new, they are the same, in order.
        for kind, is_thought in ((AssistantMessage, False), (ReasoningMessage, True)):
            new = [one.id for one in messages if isinstance(one, kind) and self._is_new(one.id, found)]
            kept = taken | set(found.values())
            missing = [one for one in self._streamed if one not in kept and (one in self._thoughts) is is_thought]
            if len(new) == len(missing):
                found.update(zip(new, missing, strict=True))
        return found

    def _is_new(self, message_id: str, found: dict[str, str]) -> bool:
        return message_id not in self._known and message_id not in self._streamed and message_id not in found

    def _note(self, message: Message) -> None:
        self._known.add(message.id)
        if isinstance(message, ToolMessage):
            self._tool_messages.setdefault(message.tool_call_id, message.id)
        elif isinstance(message, AssistantMessage):
            for call_id in _call_ids(message):
                self._callers.setdefault(call_id, message.id)
                self._known.add(call_id)

    _handlers: ClassVar[dict[type[Any], Any]] = {
        RawEvent: _raw,
        RunErrorEvent: _error,
        RunFinishedEvent: _finish,
        StateSnapshotEvent: _state_snapshot,
        StateDeltaEvent: _state_delta,
        ToolCallResultEvent: _tool_result,
        ToolCallStartEvent: _tool_call,
        TextMessageStartEvent: _text_start,
        ReasoningMessageStartEvent: _text_start,
        MessagesSnapshotEvent: _messages,
        ActivitySnapshotEvent: _activity,
        ActivityDeltaEvent: _activity_delta,
    }


def _call_ids(message: AssistantMessage) -> list[str]:
    return [call.id for call in message.tool_calls or () if isinstance(call, ToolCall)]
