"""Decide which events of a replayed agent are sent.

In a replay the agent writes to an event writer of its own, which knows everything that the agent has open. The filter
decides which of its events go to the run's writer. Items that were opened while muted are opened again, under the same
ids, when there is something new to send for them:

===========================  ==========================================================================================
event of the agent           what is sent
===========================  ==========================================================================================
the first new event          the starts of the steps and subagents around it, outermost first, then the event
more of a text, call or      its start, then the content: it continues where the earlier run closed it (TXT-3, TOOL-4)
reasoning message
the end of one of these      nothing
the end of a step, subagent  its start, then the end, which carries the outcome
an event of a subagent       the announcement of the subagent first (SUB-3)
a change of an activity      a snapshot of the changed activity (ACT-8)
state                        nothing: the whole state is compared with that of the client
===========================  ==========================================================================================

Each branch is muted separately, until it reaches its recorded position (``branches``). State is sent when all branches
have reached theirs: until then the agent's state may be older than the client's. A branch reopens only the steps and
subagents around itself.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextvars import ContextVar
from typing import Any

from aguila.agent.replay.branches import ROLES, Branches, Key
from aguila.codec.notices import Notice, log_notice
from aguila.errors import IllegalStep
from aguila.protocol import (
    ActivityDeltaEvent,
    ActivitySnapshotEvent,
    AssistantMessage,
    Event,
    Message,
    ReasoningMessage,
    ReasoningMessageContentEvent,
    ReasoningMessageEndEvent,
    StateDeltaEvent,
    StateSnapshotEvent,
    SubagentStartedEvent,
    TextMessageContentEvent,
    TextMessageEndEvent,
    ToolCall,
    ToolCallArgsEvent,
    ToolCallEndEvent,
    ToolCallResultEvent,
    ToolMessage,
)
from aguila.stream.patch import apply_patch
from aguila.stream.verification.rules import STEP, SUBAGENT, Item
from aguila.stream.writer import Events, EventWriter

effect_events: ContextVar[Events | None] = ContextVar("aguila.agent.effect_events", default=None)
"""What the recorded effect around the caller has sent in a replay: the run may fail, and its output be retracted."""

_SHOWN = 40
"""Characters of each text that the description of a difference has."""

_DELTAS = (TextMessageContentEvent, ReasoningMessageContentEvent, ToolCallArgsEvent)
_ENDS = (TextMessageEndEvent, ReasoningMessageEndEvent, ToolCallEndEvent)


class ReplayFilter:
    """Turns the events of the agent's writer into events to send.

    ``sent`` are the messages of earlier runs. The first difference of suppressed output to them is reported; with
    ``debug`` it raises ``IllegalStep``.
    """

    def __init__(
        self,
        branches: Branches,
        agent_writer: EventWriter,
        writer: EventWriter,
        *,
        sent: Sequence[Message] = (),
        debug: bool = False,
    ) -> None:
        self.agent_writer = agent_writer
        self._branches = branches
        self._comparison = ReplayComparison(sent) if sent else None  # until the replay differs
        self._debug = debug
        self._writer = writer
        self._openers: dict[Key, Event] = {}
        self._activities: dict[str, ActivitySnapshotEvent] = {}

    @property
    def may_send_state(self) -> bool:
        """Whether the state of the agent may be sent: until all branches have caught up, it may be an older one."""
        branch = self._branches.place.branch
        return self._branches.is_caught_up and branch.goal is None and not branch.repeats_effect

    def pass_on(self, events: Events) -> Events:
        """Return the events to send for events of the agent's writer."""
        sent: Events = []
        for event in events:
            if self._comparison is not None:
                self._compare(self._comparison, event)
            new = self._branches.count_event(event)
            if new is not None:
                made = self._events_for(new)
                if made:
                    self._branches.has_progressed = True
                    sent += made
            self._remember(event, new is None)
        return _note(sent)

    def send_again(self, events: Events) -> Events:
        """Return the events to send for those of a recorded effect, which a failed run sent and which were retracted.

        Steps and subagents that are open already are not opened again.
        """
        sent = self.reopen_around()
        for event in events:
            item, role = ROLES.get(event.__class__, (None, None))
            if item is None or role != "opens" or not self._writer.has_open(*_key(item, event)):
                sent += self._announce_subagent(event) + self._writer.emit(event)
        return _note(sent)

    def reopen_around(self) -> Events:
        """Return the starts of the muted steps and subagents around the caller, unless they were sent."""
        around = self._branches.place.around
        if not around:
            return []
        self._branches.surround(())
        sent: Events = []
        for key in around:
            opener = self._openers.get(key)
            if opener is not None and not self._writer.has_open(*key):
                sent += self._announce_subagent(opener) + self._writer.emit(opener)
        return sent

    def _compare(self, comparison: ReplayComparison, event: Event) -> None:
        branch = self._branches.place.branch
        if branch.goal is None or branch.repeats_effect:
            return
        difference = comparison.find_difference(event)
        if difference is not None:
            self._comparison = None
            message = (
                f"the agent does not repeat what it sent before the question: {difference}; record what may change"
                " (random values, the time, the order of a set) with run.once"
            )
            if self._debug:
                raise IllegalStep(message, rule="replay-differs")
            log_notice(Notice(rule="replay-differs", message=message, event_type=event.type))

    def _remember(self, event: Any, muted: bool) -> None:
        if isinstance(event, ActivitySnapshotEvent):
            if event.replace is not False or event.message_id not in self._activities:
                self._activities[event.message_id] = event
        elif isinstance(event, ActivityDeltaEvent):
            self._activities[event.message_id] = self._patched(event)
        else:
            item, role = ROLES.get(event.__class__, (None, None))
            if item is None or role == "continues":
                return
            key = _key(item, event)
            if role == "opens":
                self._openers[key] = event
            else:
                self._openers.pop(key, None)
            if muted and (item is STEP or item is SUBAGENT):
                around = self._branches.place.around
                others = tuple(other for other in around if other != key)
                self._branches.surround((*around, key) if role == "opens" else others)

    def _patched(self, event: ActivityDeltaEvent) -> ActivitySnapshotEvent:
        snapshot = self._activities[event.message_id]  # the agent's writer refuses a patch without a snapshot
        return ActivitySnapshotEvent(
            message_id=event.message_id,
            activity_type=event.activity_type,
            content=apply_patch(snapshot.content, event.patch),
            subagent_run_id=snapshot.subagent_run_id,
            metadata=event.metadata,
        )

    def _events_for(self, event: Any) -> Events:
        cls = event.__class__
        if cls is StateDeltaEvent or cls is StateSnapshotEvent:
            return []
        item, role = ROLES.get(cls, (None, None))
        key = None if item is None or role == "opens" else _key(item, event)
        is_open = key is None or self._writer.has_open(*key)
        if role == "closes" and not is_open and item is not STEP and item is not SUBAGENT:
            return []
        before = self.reopen_around() + self._announce_subagent(event)
        if key is not None:
            if not self._writer.has_open(*key):
                opener = self._openers.get(key)
                if opener is not None:
                    before += self._writer.emit(opener)
        elif cls is ActivityDeltaEvent and not self._writer.has_activity(event.message_id):
            event = self._patched(event)
        return before + self._writer.emit(event)

    def _announce_subagent(self, event: Any) -> Events:
        if event.__class__ is SubagentStartedEvent:
            subagent = event.parent_subagent_run_id
        else:
            subagent = getattr(event, "subagent_run_id", None)
        if subagent is None:
            return []
        opener = self._openers.get((SUBAGENT, subagent, None))
        if opener is None or self._writer.has_open(SUBAGENT, subagent):
            return []
        return self._announce_subagent(opener) + self._writer.emit(opener)


def _note(sent: Events) -> Events:
    """Note what is sent for the effect around the caller."""
    noted = effect_events.get()
    if noted is not None:
        noted += sent
    return sent


def _key(item: Item, event: Any) -> Key:
    return item, getattr(event, item.id_field), event.subagent_run_id if item.keyed_by_owner else None


class ReplayComparison:
    """Finds the first difference between a replay and the messages that the thread had before it.

    Suppressed output that is not the same as before (random values, the time, the order of a set) leads to something
    that the user has not seen. Texts, reasoning, arguments of calls and results are compared, by the ids of their
    items. An item that the thread does not have any more is skipped: a client may have removed it.
    """

    def __init__(self, messages: Sequence[Message]) -> None:
        self._texts: dict[str, str] = {}
        self._positions: dict[str, int] = {}
        for message in messages:
            if isinstance(message, AssistantMessage):
                self._texts[message.id] = message.content or ""
                for call in message.tool_calls or ():
                    if isinstance(call, ToolCall):
                        self._texts[call.id] = call.function.arguments
            elif isinstance(message, ReasoningMessage | ToolMessage) and isinstance(message.content, str):
                self._texts[message.id] = message.content

    def find_difference(self, event: Any) -> str | None:
        """Compare the next event of the agent. Return a description of the difference, or None."""
        if isinstance(event, ToolCallResultEvent):
            before = self._texts.get(event.message_id)
            if before is None or not isinstance(event.content, str) or event.content == before:
                return None
            return _describe(f"the result {event.message_id!r}", before, event.content)
        if not isinstance(event, (*_DELTAS, *_ENDS)):
            return None
        is_call = isinstance(event, ToolCallArgsEvent | ToolCallEndEvent)
        item_id = event.tool_call_id if is_call else event.message_id
        before = self._texts.get(item_id)
        if before is None:
            return None
        name = f"the arguments of call {item_id!r}" if is_call else f"the message {item_id!r}"
        start = self._positions.get(item_id, 0)
        if isinstance(event, _DELTAS):
            self._positions[item_id] = start + len(event.delta)
            expected = before[start : start + len(event.delta)]
            if event.delta.startswith(expected):
                return None
            same = next(i for i, (a, b) in enumerate(zip(expected, event.delta, strict=False)) if a != b)
            return _describe(name, before[start + same :], event.delta[same:], start + same)
        return None if start >= len(before) else _describe(name, before[start:], "", start)


def _describe(name: str, before: str, now: str, at: int = 0) -> str:
    where = f" from character {at}" if at else ""
    return f"{name} was {before[:_SHOWN]!r}{where} and is {now[:_SHOWN]!r} now"
