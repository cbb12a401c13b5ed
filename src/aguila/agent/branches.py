"""Layer: agent. Where in an agent something happens: in which of the branches that run side by side, and how far on.

Above: ``ids`` and ``questions`` name things after the place, ``replay`` mutes by it, ``output`` counts. Below: the
tasks and context variables of asyncio. Nothing here sends events.

A branch is a task that uses the run, or a job of a thread other than the agent's own. A replay has to find each branch
again, though they may come in another order, and each has to find what it said, though the others may be elsewhere. So
a branch is named after the branch that started it, the question which that one had passed, the function with its plain
arguments, and the first thing that it does with the run: what it says, calls or asks. Branches that begin alike are
numbered, in the order in which they do.

How far a branch is, is counted: the questions it has passed, and what it said since the last of them (a message, a
call, a step, each as one; and how many characters of those that were not finished). When a run ends with questions,
its branches are recorded, and in the replay each is muted until it is where it was: one that asked until its answer is
there, any other until it has said as much. What is said on the way out of a question does not count, as the replay
does not come that way. A run in which nobody but the agent itself said anything, and which asked, needs no record.
"""

from __future__ import annotations

import asyncio
import sys
import weakref
from collections.abc import Callable, Generator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar
from types import FrameType
from typing import Any, Final, Literal

from aguila.agent.ids import short_hash
from aguila.agent.interrupts import interrupts_in
from aguila.codec.json import encode
from aguila.codec.notice import log_notice
from aguila.codec.text import load
from aguila.protocol import StateDeltaEvent, StateSnapshotEvent, replace
from aguila.stream.rules import ITEMS, STEP, SUBAGENT, Item

RECORDED: Final = "aguila.branches "
"""What the keys begin with under which branches are recorded; a number follows, one more for each run."""

ROLES: Final[dict[type[Any], tuple[Item, Literal["opens", "continues", "closes"]]]] = {
    **{item.opener: (item, "opens") for item in ITEMS},
    **{cls: (item, "continues") for item in ITEMS for cls in item.content},
    **{cls: (item, "closes") for item in ITEMS for cls in item.closers},
}
"""What an event does to an item."""

_NO_ROLE = (None, None)
_PLAIN = frozenset({str, int, bool})  # but no floats: those are often times
_STATE = (StateDeltaEvent, StateSnapshotEvent)
_LOOKED_AT = 500  # characters of what a branch does first: enough to tell it from others

Key = tuple[Item, str, str | None]
"""A step or subagent: what it is, its id, and whose it is."""

Goal = tuple[str | None, int | None]
"""How far a branch was: the question it had passed, and how much it had said since; None for all before an answer."""

_here: ContextVar[Place | None] = ContextVar("aguila.agent.here", default=None)


class Job:
    """What a call from a thread comes from: the outermost function of the job, None for the agent's own thread, and the
    exception that is being handled there.
    """

    __slots__ = ("error", "frame", "thread")

    def __init__(self, thread: int, frame: FrameType | None, error: BaseException | None) -> None:
        self.thread = thread
        self.frame = frame  # held, so that no other one is taken for it
        self.error = error


class Branch:
    """A branch of an agent. ``kind`` is its name without the numbers that tell apart what begins alike."""

    __slots__ = ("children", "counts", "goal", "is_quiet", "kind", "left", "name", "owner", "parent", "passed", "said")

    def __init__(self, parent: Branch | None, name: str, kind: str, owner: Callable[[], object] | None) -> None:
        self.parent = parent
        self.name = name
        self.kind = kind
        self.owner = owner
        self.passed = ""
        """The question that it passed last."""
        self.said = 0
        """How much it said since."""
        self.goal: Goal | None = None
        """Where it was in an earlier run; it is muted until it is there."""
        self.left: Goal | None = None
        """Where it was when it asked, or was on its way out of a question."""
        self.is_quiet = False
        """Whether it only tells again what an effect told."""
        self.counts: dict[tuple[str, str], int] = {}
        self.children: dict[str, int] = {}

    def is_within(self, above: Branch) -> bool:
        """Whether it is that branch, or one that was started there, perhaps over others in between."""
        each: Branch | None = self
        while each is not None and each is not above:
            each = each.parent
        return each is above


class Place:
    """A branch as a context has it: a task started there is a branch that begins there."""

    __slots__ = ("around", "branch", "job", "outer", "passed", "run")

    def __init__(
        self,
        run: Branches,
        branch: Branch,
        passed: str,
        around: tuple[Key, ...] = (),
        outer: Place | None = None,
        job: Job | None = None,
    ) -> None:
        self.run = run
        self.branch = branch
        self.passed = passed
        self.around = around
        """The steps and subagents opened here while it was muted, outermost first."""
        self.outer = outer
        """The place in another run, if this one was started there."""
        self.job = job
        """What has not been given a branch yet."""


class Branches:
    """The branches of one run."""

    def __init__(self, recorded: Mapping[str, bytes], *, is_replay: bool) -> None:
        self._is_replay = is_replay
        self._goals: dict[str, Goal] = {}
        self._unfinished: dict[str, int] = {}  # how many characters earlier runs told of what they did not finish
        self._untold: dict[str, int] = {}  # how many of them have not been passed
        self._written: dict[str, list[Any]] = {}  # of what is open: whose it is, and how many characters it has
        self._number = 0
        self._jobs: dict[int, tuple[FrameType, Place]] = {}
        self._asked: list[Branch] = []
        self._error: BaseException | None = None
        self.is_over = False
        self.root = Branch(None, "", "", None)
        self._known = {"": self.root}
        self._top = Place(self, self.root, "")
        if is_replay:
            self._go_on(recorded)
        self._behind = len(self._goals)

    def _go_on(self, recorded: Mapping[str, bytes]) -> None:
        keys = [key for key in recorded if key.startswith(RECORDED)]
        self._number = len(keys)
        if not keys:
            self._goals[""] = (None, None)
        else:
            held = load(recorded[f"{RECORDED}{len(keys)}"], strict=False, warn=log_notice)
            self._goals = {name: (passed, said) for name, passed, said in held["branches"]}
            self._unfinished = dict(held["unfinished"])
            self._untold = dict(self._unfinished)
        self.root.goal = self._goals.get("")

    @property
    def is_caught_up(self) -> bool:
        """Whether every branch is where it was in the earlier runs, or further."""
        return self._behind <= 0

    # Where

    def begin(self) -> None:
        """The agent begins, in this task."""
        self.root.owner = weakref.ref(asyncio.current_task())  # pyright: ignore[reportArgumentType]
        self._catch_up(self.root)
        self._top = Place(self, self.root, "", outer=_here.get())
        _here.set(self._top)

    def here(self, *about: Any) -> Branch:
        """The branch that this is called in. ``about`` is what it is going to do, for one that was not here before."""
        # For every event that is no delta: first what is nearly always so.
        place = _here.get()
        try:
            task = asyncio.current_task()
        except RuntimeError:  # in a thread
            task = None
        if place is not None and place.run is self and place.job is None and not self._asked:
            branch = place.branch
            if branch.owner is not None and branch.owner() is task:
                return branch
        place = self.place
        branch = place.branch if task is None or _is_of(place, task) else self._start(place, task, about)
        if self._asked and branch.left is None:
            self._look_out(branch)
        return branch

    def _begun(self) -> Branch:
        """The branch that this is called in, or the one it was started in: to write on in what is open begins none.

        In a first run nobody looks who does that, so it must not be what a replay knows a branch by.
        """
        place, task = self.place, _task()
        return self.here() if task is None or _is_of(place, task) else place.branch

    @property
    def place(self) -> Place:
        """The place that this is called in; of a branch that has not begun, the one it was started in."""
        place = _here.get()
        while place is not None and place.run is not self:
            place = place.outer
        return self._top if place is None else place

    def _start(self, place: Place, task: asyncio.Task[Any], about: tuple[Any, ...]) -> Branch:
        parent = place.branch
        texts = [one if isinstance(one, str) else encode(one).decode() for one in about]
        frame = getattr(task.get_coro(), "cr_frame", None) if place.job is None else place.job.frame
        if frame is not None:
            texts += _function(frame)
        first = short_hash(place.passed, *(f"{len(text)} {text[:_LOOKED_AT]}" for text in texts))
        number = parent.children[first] = parent.children.get(first, 0) + 1
        name = short_hash(parent.name, first, str(number))
        branch = Branch(parent, name, short_hash(parent.kind, first), weakref.ref(task))
        branch.goal = self._goals.get(name)
        self._catch_up(branch)
        self._known[name] = branch
        self._go(Place(self, branch, "", place.around))
        return branch

    def _go(self, place: Place) -> None:
        held = _here.get()
        while held is not None and (held.run is self or held.run.is_over):
            held = held.outer
        place.outer = held
        _here.set(place)

    @contextmanager
    def during(self, job: Job | None) -> Generator[None]:
        """Act for a thread; for the agent's own if there is no job."""
        if job is None or job.frame is None:
            self._error = None if job is None else job.error
            try:
                yield
            finally:
                self._error = None
            return
        frame, place = self._jobs.get(job.thread, (None, self._top))
        if frame is not job.frame:
            place = Place(self, self.root, self.root.passed, self._top.around, job=job)
        token = _here.set(place)
        self._error = job.error
        try:
            yield
        finally:
            self._jobs[job.thread] = (job.frame, self.place)
            self._error = None
            _here.reset(token)

    # How far

    def tell(self, event: Any) -> Any:
        """Something is told, here: gives the event, what is new of it if it continues something, or None.

        State is not counted, and ends of what has characters may come from anywhere: both are given as they are.
        """
        cls = event.__class__
        item, role = ROLES.get(cls, _NO_ROLE)
        is_plain = not (self._is_replay or self._asked)  # as nearly always: what is said is new, and counts
        if item is None or item is STEP or item is SUBAGENT:
            if cls in _STATE:
                return event
            if is_plain:
                self.here(event).said += 1
                return event
            return event if self.count(event) else None
        id_ = getattr(event, item.id_field)
        if role == "continues":
            if not is_plain:
                return self._more(id_, event)
            if id_ in self._written:
                self._written[id_][1] += len(event.delta)
            return event
        if role == "closes":
            self._closed(id_)
            return event
        is_new = self.count(event)
        branch = self.here()
        if not branch.is_quiet:
            self._written[id_] = [branch, 0]
            if not is_new:
                self._untold.setdefault(id_, sys.maxsize)  # an earlier run told all of it
        return event if is_new else None

    def count(self, *about: Any) -> bool:
        """Something is said, here; gives whether it is new."""
        branch = self.here(*about)
        if branch.is_quiet:
            return False
        is_new = branch.goal is None
        if branch.left is None:
            branch.said += 1
            self._catch_up(branch)
        return is_new

    def wrote(self, id_: str, length: int) -> None:
        """More characters, which count unless they are written on the way out."""
        if id_ in self._written and (not self._asked or self._begun().left is None):
            self._written[id_][1] += length

    def _more(self, id_: str, event: Any) -> Any:
        length = len(event.delta)
        self.wrote(id_, length)
        if not self._is_replay:
            return event
        branch = self._begun()
        if branch.is_quiet:
            return None
        untold = self._untold.get(id_, 0)
        self._untold[id_] = max(0, untold - length)
        if branch.goal is not None or untold >= length:
            return None
        return event if untold == 0 else replace(event, delta=event.delta[untold:])

    def _closed(self, id_: str) -> None:
        """It is complete, unless it is only closed on the way out."""
        if id_ in self._written and (not self._asked or self._begun().left is None):
            del self._written[id_]
            self._unfinished.pop(id_, None)

    @contextmanager
    def retelling(self) -> Generator[None]:
        """What is said meanwhile, here, was said by an effect that is on record."""
        branch = self.here("retelling")
        held, branch.is_quiet = branch.is_quiet, True
        try:
            yield
        finally:
            branch.is_quiet = held

    def passed(self, branch: Branch, interrupt_id: str, *, is_current: bool) -> None:
        """An answer is about to be returned; ``is_current`` if no earlier run had it."""
        if branch.left is not None:
            return
        goal = branch.goal
        if goal is not None and (is_current or goal[0] == branch.passed):
            self._is_there(branch)
            self._speak_up(branch)
        branch.passed = interrupt_id
        branch.said = 0
        self._catch_up(branch)
        here = self.place
        self._move(Place(self, branch, interrupt_id, here.around))

    def asked(self, branch: Branch, interrupt_id: str) -> None:
        """There is no answer: the branch ends, and what it still says is no part of it."""
        if branch.goal is not None:
            self._is_there(branch)  # it asks something else than before, or for the first time
            self._speak_up(branch)
        if branch.left is None:
            self._leave(branch, (branch.passed, None), interrupt_id)
        self._asked.append(branch)

    def surround(self, keys: tuple[Key, ...]) -> None:
        """These steps and subagents are open here and were not told. A branch that has not begun knows better."""
        place, task = self.place, _task()
        if task is not None and _is_of(place, task):
            self._move(Place(self, place.branch, place.passed, keys))

    def _move(self, place: Place) -> None:
        if place.branch is self.root:
            self._top = place
        self._go(place)

    def _catch_up(self, branch: Branch) -> None:
        goal = branch.goal
        if goal is not None and goal[1] is not None and goal[0] == branch.passed and branch.said >= goal[1]:
            self._is_there(branch)

    def _is_there(self, branch: Branch) -> None:
        branch.goal = None
        self._behind -= 1

    def _speak_up(self, branch: Branch) -> None:
        """What a branch has open when it gets its answer goes on from there."""
        for id_, (opener, _) in self._written.items():
            if opener is branch:
                self._untold.pop(id_, None)

    def _leave(self, branch: Branch, at: Goal, interrupt_id: str) -> None:
        branch.left = at
        branch.passed = f"asked {interrupt_id}"

    def _look_out(self, branch: Branch) -> None:
        """Find out whether a branch is on its way out of a question that one which it waited for has asked."""
        # Not by whether its task was cancelled: wait_for of Python 3.11 may go on in spite of that.
        error = sys.exception() if self._error is None else self._error
        if (
            interrupts_in(error)
            or isinstance(error, asyncio.CancelledError)
            or any(_has_seen(branch, asked) for asked in self._asked)
        ):
            self._leave(branch, (branch.passed, branch.said), self._asked[0].passed)

    # On record

    def position(self) -> dict[str, Any]:
        """How far the branch has counted here, as JSON, for an effect that a replay skips."""
        branch = self.here()
        return {
            "passed": branch.passed,
            "said": branch.said,
            "counts": [[*key, count] for key, count in branch.counts.items()],
            "children": branch.children,
            "known": [name for name, one in self._known.items() if one is not branch and one.is_within(branch)],
        }

    def go_to(self, position: dict[str, Any]) -> None:
        """Count on from there, here; the branches that the effect started will not come."""
        branch = self.here()
        if position["passed"] != branch.passed and branch.left is None:
            self.passed(branch, position["passed"], is_current=False)
        branch.said = max(branch.said, position["said"])
        for passed, kind, count in position["counts"]:
            branch.counts[passed, kind] = max(branch.counts.get((passed, kind), 0), count)
        for first, number in position["children"].items():
            branch.children[first] = max(branch.children.get(first, 0), number)
        for name in position["known"]:
            if name not in self._known and self._goals.pop(name, None) is not None:
                self._behind -= 1
        self._catch_up(branch)

    @property
    def record(self) -> tuple[str, bytes] | None:
        """What to record of this run, and under which key; None if there is no need."""
        root = self.root
        asked = root.left is not None and root.left[1] is None
        if len(self._known) == 1 and self._number == 0 and (asked or root.goal == (None, None)):
            return None
        goals = dict(self._goals)
        for name, branch in self._known.items():
            if branch.goal is None:
                goals[name] = (branch.passed, branch.said) if branch.left is None else branch.left
        unfinished = dict(self._unfinished)
        for id_, (branch, length) in self._written.items():
            if branch.left is None or branch.left[1] is not None:
                unfinished[id_] = max(length, unfinished.get(id_, 0))
            else:
                unfinished.pop(id_, None)  # its branch is muted until its answer is there, and it goes on then
        held = {"branches": [[name, *goal] for name, goal in goals.items()], "unfinished": unfinished}
        return f"{RECORDED}{self._number + 1}", encode(held)


def _is_of(place: Place, task: asyncio.Task[Any]) -> bool:
    """Whether a place is that of a task, rather than of the one that started it."""
    owner = place.branch.owner
    return place.job is None and owner is not None and owner() is task


def _task() -> asyncio.Task[Any] | None:
    try:
        return asyncio.current_task()
    except RuntimeError:  # in a thread
        return None


def _function(frame: FrameType) -> list[str]:
    """The name of a function that is on, and those of its arguments that say the same each time."""
    code, given = frame.f_code, frame.f_locals
    names = code.co_varnames[: code.co_argcount + code.co_kwonlyargcount]
    plain = [given[name] for name in names if name in given and given[name].__class__ in _PLAIN]
    return [code.co_name, *map(repr, plain)]


def _has_seen(branch: Branch, asked: Branch) -> bool:
    """Whether a branch was given the question of one that it started, perhaps over others in between."""
    each: Branch | None = asked
    while each is not None and each.parent is not branch:
        each = each.parent
    if each is None or each.owner is None:
        return False
    task: Any = each.owner()
    # What asyncio knows so that it can warn of exceptions that nobody looked at.
    return task is None or (task.done() and not getattr(task, "_log_traceback", False))
