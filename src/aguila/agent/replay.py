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

Several questions may be answered at once, in branches that run side by side. Each branch is muted until its own
answer arrives; when all have, so has everyone.
"""

from __future__ import annotations

from collections.abc import Iterable
from contextvars import ContextVar
from typing import Any, Literal

from aguila.agent.context import Replay
from aguila.protocol import (
    ActivityDeltaEvent,
    ActivitySnapshotEvent,
    Event,
    StateDeltaEvent,
    StateSnapshotEvent,
    SubagentStartedEvent,
)
from aguila.stream.emit import Events
from aguila.stream.patch import apply_patch
from aguila.stream.rules import ITEMS, STEP, SUBAGENT, Item
from aguila.stream.write import EventWriter

_Role = Literal["opens", "continues", "closes"]
_Key = tuple[Item, str, str | None]

_ROLES: dict[type[Any], tuple[Item, _Role]] = {
    **{item.opener: (item, "opens") for item in ITEMS},
    **{cls: (item, "continues") for item in ITEMS for cls in item.content},
    **{cls: (item, "closes") for item in ITEMS for cls in item.closers},
}

_aloud: ContextVar[object | None] = ContextVar("aguila.agent.aloud", default=None)
"""The replay whose answer arrived in this branch of the agent; tasks started from it inherit it."""

_around: ContextVar[tuple[object, tuple[_Key, ...]] | None] = ContextVar("aguila.agent.around", default=None)
"""The replay of this branch, and the steps and subagents opened in it while it was muted, outermost first.

Other branches may have theirs open at the same time, and may close them before their answers arrive: those were told
by the earlier run, so a branch opens only its own again.
"""


class Replaying:
    """The muted part of a resumed run, and what it leaves open."""

    def __init__(self, replay: Replay, front: EventWriter, writer: EventWriter) -> None:
        self.front = front
        self._writer = writer
        self._awaited = set(replay.current)
        self._openers: dict[_Key, Event] = {}
        self._activities: dict[str, ActivitySnapshotEvent] = {}
        self._is_over = not replay.current
        self.has_spoken = self._is_over
        """Whether anyone was heard."""

    @property
    def is_muted(self) -> bool:
        """Whether what is said here and now goes nowhere."""
        return not self._is_over and _aloud.get() is not self

    @property
    def is_over(self) -> bool:
        """Whether nothing is muted any more, in any branch."""
        return self._is_over

    def answered(self, interrupt_ids: Iterable[str]) -> None:
        """Answers that came with this run are about to be returned, in this branch."""
        _aloud.set(self)
        self.has_spoken = True
        self._awaited.difference_update(interrupt_ids)
        if not self._awaited:
            self._is_over = True

    def end(self) -> None:
        """Nothing is muted from here on: there is a question that was not asked before."""
        self.has_spoken = True
        self._is_over = True

    def pass_on(self, events: Events) -> Events:
        """What to send for events of the front."""
        muted = self.is_muted
        sent: Events = []
        for event in events:
            if not muted:
                sent += self._spoken(event)
            self._remember(event, muted)
        return sent

    def reopened(self) -> Events:
        """The starts of steps and subagents that what is said here and now is part of, unless they were sent."""
        around = _around.get()
        if around is None or around[0] is not self or self.is_muted:
            return []
        _around.set(None)
        sent: Events = []
        for key in around[1]:
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
            item, role = _ROLES.get(event.__class__, (None, None))
            if item is None or role == "continues":
                return
            key = _key(item, event)
            if role == "opens":
                self._openers[key] = event
            else:
                self._openers.pop(key, None)
            if muted and (item is STEP or item is SUBAGENT):
                around = _around.get()
                held = () if around is None or around[0] is not self else around[1]
                _around.set((self, (*held, key) if role == "opens" else tuple(one for one in held if one != key)))

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
        before = self.reopened() + self._announced(event)
        item, role = _ROLES.get(cls, (None, None))
        if item is not None and role != "opens":
            key = _key(item, event)
            if not self._writer.has_open(item, key[1], key[2]):
                if role == "closes" and item is not STEP and item is not SUBAGENT:
                    return before
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


def _key(item: Item, event: Any) -> _Key:
    return item, getattr(event, item.id_field), event.subagent_run_id if item.keyed_by_owner else None
