"""Layer: agent. A resumed run says again what was said, to nobody, until its answer arrives; then it goes on aloud.

Above: ``output``. Below: the event writer and the verifier's tables.

While it is muted the agent writes to a writer of its own, the ``front``, whose events go nowhere but obey every rule.
The agent keeps writing to it afterwards as well: only the front knows all that the agent believes to be open. What
the front writes is then passed on to the run's real writer, where things opened while muted are opened again, under
the same ids, when there is something to say about them:

=============================  =======================================================================================
the first thing that is heard  the starts of the steps and subagents it is said in, outermost first, then itself
more of a text, call, thought  its start, then the content: it goes on where the earlier run closed it (TXT-3, TOOL-4)
the end of one of these        nothing
the end of a step, subagent    its start, then the end, which carries how it went
anything a subagent says       the subagent's announcement first (SUB-3)
a change of an activity        a snapshot of the changed activity (ACT-8)
state                          nothing: the whole state is compared with what the client holds
=============================  =======================================================================================

Each branch of the agent is muted for itself (``branches``), until it is where it was. State is told when all are: until
then that of the agent may be older than the client's. A branch opens only its own steps and subagents again: others may
have theirs open at the same time, and may close them before they are heard, and those were told by the earlier run.
"""

from __future__ import annotations

from typing import Any

from aguila.agent.replay.branches import ROLES, Branches, Key
from aguila.protocol import (
    ActivityDeltaEvent,
    ActivitySnapshotEvent,
    Event,
    StateDeltaEvent,
    StateSnapshotEvent,
    SubagentStartedEvent,
)
from aguila.stream.patch import apply_patch
from aguila.stream.rules import STEP, SUBAGENT, Item
from aguila.stream.writer import Events, EventWriter


class ReplayFilter:
    """The muted part of a resumed run, and what it leaves open."""

    def __init__(self, branches: Branches, front: EventWriter, writer: EventWriter) -> None:
        self.front = front
        self._branches = branches
        self._writer = writer
        self._openers: dict[Key, Event] = {}
        self._activities: dict[str, ActivitySnapshotEvent] = {}
        self.has_spoken = False
        """Whether an answer was used, something new was asked, or anyone was heard."""

    def pass_on(self, events: Events) -> Events:
        """What to send for events of the front."""
        sent: Events = []
        for event in events:
            new = self._branches.tell(event)
            if new is not None:
                told = self._spoken(new)
                if told:
                    self.has_spoken = True
                    sent += told
            self._remember(event, new is None)
        return sent

    def reopened(self) -> Events:
        """The starts of steps and subagents that what is said here and now is part of, unless they were sent."""
        around = self._branches.place.around
        if not around:
            return []
        self._branches.surround(())
        sent: Events = []
        for key in around:
            opener = self._openers.get(key)
            if opener is not None and not self._writer.has_open(*key):
                sent += self._announced(opener) + self._writer.emit(opener)
        return sent

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
                held = self._branches.place.around
                self._branches.surround((*held, key) if role == "opens" else tuple(one for one in held if one != key))

    def _patched(self, event: ActivityDeltaEvent) -> ActivitySnapshotEvent:
        held = self._activities[event.message_id]  # the front has refused patches of what has no snapshot
        return ActivitySnapshotEvent(
            message_id=event.message_id,
            activity_type=event.activity_type,
            content=apply_patch(held.content, event.patch),
            subagent_run_id=held.subagent_run_id,
            metadata=event.metadata,
        )

    def _spoken(self, event: Any) -> Events:
        cls = event.__class__
        if cls is StateDeltaEvent or cls is StateSnapshotEvent:
            return []
        item, role = ROLES.get(cls, (None, None))
        key = None if item is None or role == "opens" else _key(item, event)
        is_open = key is None or self._writer.has_open(*key)
        if role == "closes" and not is_open and item is not STEP and item is not SUBAGENT:
            return []
        before = self.reopened() + self._announced(event)
        if key is not None:
            if not self._writer.has_open(*key):
                opener = self._openers.get(key)
                if opener is not None:
                    before += self._writer.emit(opener)
        elif cls is ActivityDeltaEvent and not self._writer.has_activity(event.message_id):
            event = self._patched(event)
        return before + self._writer.emit(event)

    def _announced(self, event: Any) -> Events:
        if event.__class__ is SubagentStartedEvent:
            subagent = event.parent_subagent_run_id
        else:
            subagent = getattr(event, "subagent_run_id", None)
        if subagent is None:
            return []
        opener = self._openers.get((SUBAGENT, subagent, None))
        if opener is None or self._writer.has_open(SUBAGENT, subagent):
            return []
        return self._announced(opener) + self._writer.emit(opener)


def _key(item: Item, event: Any) -> Key:
    return item, getattr(event, item.id_field), event.subagent_run_id if item.keyed_by_owner else None
