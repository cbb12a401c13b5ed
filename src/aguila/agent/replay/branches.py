"""The branches of an agent: its parts that use the run, and the position of each.

A replay invokes the agent again and suppresses what earlier runs sent. Concurrent parts of an agent may then run in
another order, so each is a branch with a name (``run.branch``). A branch counts what it sent since the last question
that it passed: a message, a call or a step counts as one, and unfinished ones are also counted in characters.

When a run ends with questions, the position of each branch is recorded. In the replay a branch is muted until it is
back at its position. A branch that asked is muted until its answer is there, any other until it has sent as much as
before. Events that a branch sends while the exception of a question unwinds it (in a ``finally``) are not counted: in
the replay the question returns. A run in which only the agent's own task used the run, and which ended with a question
of that task, needs no record.

A task or thread without a name that uses the run is a branch too. Such branches are numbered in the order in which they
first use the run. That order is stable if one is active at a time. If several are active at once, their questions need
a ``key``.

A resumed run must use the ids of the earlier run: a result needs the id of its call, and more text the id of its
message. So ids are not random. They are derived from the root run, the branch, and a count in that branch. After an
answer the count starts anew in a namespace named after the question, so that new items never get an id that an earlier
run used for something else. A provider names its tool calls itself, some of them the same in every response. Such an id
is claimed once in a thread.
"""

from __future__ import annotations

import asyncio
import hashlib
import sys
import threading
import weakref
from collections.abc import Callable, Generator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, field
from typing import Any, Final, Literal

from aguila.agent.interrupts import interrupts_in
from aguila.codec.json.encoder import encode
from aguila.codec.json.text import parse_json
from aguila.codec.notices import log_notice
from aguila.protocol import StateDeltaEvent, StateSnapshotEvent, replace
from aguila.stream.verification.rules import ITEMS, STEP, SUBAGENT, Item

RECORDED: Final = "aguila.branches "
"""Prefix of the keys under which branches are recorded; the number of the run in its chain follows."""

ROLES: Final[dict[type[Any], tuple[Item, Literal["opens", "continues", "closes"]]]] = {
    **{item.opener: (item, "opens") for item in ITEMS},
    **{cls: (item, "continues") for item in ITEMS for cls in item.content},
    **{cls: (item, "closes") for item in ITEMS for cls in item.closers},
}
"""What an event does to an item."""

_NO_ROLE = (None, None)
_STATE = (StateDeltaEvent, StateSnapshotEvent)

_here: ContextVar[Place | None] = ContextVar("aguila.agent.here", default=None)

_UNNAMED_QUESTION = (
    "this question is asked by one of several concurrent tasks that use the run without a name, so a replay cannot tell"
    " whose answer it is; name each task, with run.branch('a name', function, ...) or"
    " `async with run.branch('a name'):`, or pass key= to the question"
)


def short_hash(*parts: str) -> str:
    """Return a short digest of strings. The boundaries between them count."""
    joined = "".join([f"{len(part)}:{part}" for part in parts])
    return hashlib.sha256(joined.encode("utf-8", "surrogatepass")).hexdigest()[:20]


Caller = asyncio.Task[Any] | threading.Thread
"""The task that uses the run, or the thread if that is not the agent's own."""

Key = tuple[Item, str, str | None]
"""An open step or subagent: its kind, its id and its owner."""

Position = tuple[str | None, int | None]
"""A position of a branch: the last question that it passed, and how much it sent since. The count is None for a branch
that waits for an answer. Both are None for the agent's own branch in a replay without a record.
"""


@dataclass(slots=True, eq=False)
class Branch:
    """One branch of an agent. ``name`` identifies it in all runs of a chain."""

    parent: Branch | None = None
    name: str = ""
    owner: Callable[[], Caller | None] | None = None
    is_named: bool = True
    is_closed: bool = False
    """Whether the block of a named branch was left."""
    is_ambiguous: bool = False
    """Whether it is one of several unnamed branches that were active at once."""
    passed: str = ""
    """The last question that it passed."""
    sent: int = 0
    """How much it sent after that question."""
    goal: Position | None = None
    """Its position in an earlier run. The branch is muted until it is there."""
    left: Position | None = None
    """Its position when it asked, or when it left because of a question."""
    repeats_effect: bool = False
    """Whether a recorded effect has sent its output before."""
    counts: dict[tuple[str, str], int] = field(default_factory=dict[tuple[str, str], int])
    """How many ids of each kind it has made, by the question before them and the kind."""
    children: dict[str, int] = field(default_factory=dict[str, int])
    named: dict[str, Branch] = field(default_factory=dict[str, "Branch"])
    """The latest named branch of each name that was started here."""
    unnamed: list[Branch] = field(default_factory=list["Branch"])
    """The unnamed branches that were started here and may still be active."""

    @property
    def has_ended(self) -> bool:
        """Whether the branch is done, so that its parent may have seen its result."""
        if self.is_named:
            return self.is_closed
        owner = None if self.owner is None else self.owner()
        if isinstance(owner, threading.Thread):
            return not owner.is_alive()
        return owner is None or owner.done()

    def is_within(self, above: Branch) -> bool:
        """Return whether this is the branch ``above`` or one of its descendants."""
        each: Branch | None = self
        while each is not None and each is not above:
            each = each.parent
        return each is above


@dataclass(slots=True, eq=False)
class Place:
    """The current branch of a context. A task that is started there inherits it."""

    run: Branches
    branch: Branch
    passed: str
    around: tuple[Key, ...] = ()
    """The steps and subagents that were opened here while it was muted, outermost first."""
    outer: Place | None = None
    """The place in another run, if this run was started from an agent of that one."""


@dataclass(slots=True, eq=False)
class Branches:
    """The branches of one run, their positions, and the ids that they make."""

    thread_id: str
    root_run_id: str
    is_replay: bool
    has_progressed: bool
    """Whether this is a first run, or an answer was used, a new question was asked, or a new event was sent."""
    is_over: bool = False
    refusal: ValueError | None = None
    """Why an answer cannot be assigned to its question. The run fails with it, even if the agent catches it."""
    _goals: dict[str, Position] = field(default_factory=dict[str, Position])
    _unfinished: dict[str, int] = field(default_factory=dict[str, int])  # characters that were sent of unfinished items
    _unsent: dict[str, int] = field(default_factory=dict[str, int])  # how many of them this run has yet to pass
    _written: dict[str, list[Any]] = field(default_factory=dict[str, list[Any]])  # open items: branch, characters
    _number: int = 0  # of records before this run
    _behind: int = 0  # branches that are not back at their positions
    _thread: threading.Thread | None = None  # the thread that the task acts for; None: the agent's own
    _places: dict[threading.Thread, Place] = field(default_factory=dict[threading.Thread, Place])
    _asked: list[Branch] = field(default_factory=list[Branch])
    _error: BaseException | None = None
    _known: dict[str, Branch] = field(default_factory=lambda: {"": Branch()})  # "" is the agent's own
    _claimed: dict[str, None] = field(default_factory=dict[str, None])  # ids of calls
    _top: Place = field(init=False)  # of the agent's own branch

    def load_goals(self, recorded: Mapping[str, bytes]) -> None:
        """Load the positions to replay to."""
        keys = [key for key in recorded if key.startswith(RECORDED)]
        self._number = len(keys)
        if not keys:
            self._goals[""] = (None, None)
        else:
            held = parse_json(recorded[f"{RECORDED}{len(keys)}"], strict=False, warn=log_notice)
            self._goals = {name: (passed, sent) for name, passed, sent in held["branches"]}
            self._unfinished = dict(held["unfinished"])
            self._unsent = dict(self._unfinished)
        self._known[""].goal = self._goals.get("")
        self._behind = len(self._goals)

    @property
    def is_caught_up(self) -> bool:
        """Whether every branch is back at its recorded position, or further."""
        return self._behind <= 0

    @property
    def is_current(self) -> bool:
        """Whether the state of the agent is not older than that of the client."""
        return self.has_progressed and self._behind <= 0

    # The current branch

    def begin(self) -> None:
        """Begin the agent's own branch, in the current task."""
        root = self._known[""]
        root.owner = weakref.ref(asyncio.current_task())  # pyright: ignore[reportArgumentType]
        if root.goal is not None:
            self._catch_up(root)
        self._top = Place(self, root, "", outer=_here.get())
        _here.set(self._top)

    def current_branch(self, *, begins: bool = True) -> Branch:
        """Return the branch of the caller, or the one that started the caller if it has none yet and ``begins`` not.

        More characters for an open item begin no branch: in a first run they are not attributed to a caller.
        """
        try:
            caller = asyncio.current_task() if self._thread is None else self._thread
        except RuntimeError:  # no event loop runs in this thread
            caller = None
        place = _here.get()
        if place is None or place.run is not self:
            place = self.place
        branch = place.branch
        if caller is not None and (branch.owner is None or branch.owner() is not caller):
            if not begins:
                return branch
            branch = self._begin_unnamed(place, caller)
        if self._asked and branch.left is None:
            self._check_left(branch)
        return branch

    @property
    def place(self) -> Place:
        """The place of the caller, or the place that it was started in."""
        place = _here.get()
        while place is not None and place.run is not self:
            place = place.outer
        return self._top if place is None else place

    def _caller(self) -> Caller | None:
        if self._thread is not None:
            return self._thread
        try:
            return asyncio.current_task()
        except RuntimeError:  # no event loop runs in this thread
            return None

    def _begin_unnamed(self, place: Place, caller: Caller) -> Branch:
        branch = self._new(place, "#", caller, is_named=False)
        siblings = place.branch.unnamed
        # A sibling that ended with a question may have been active too: its parent has not necessarily waited for it.
        siblings[:] = [one for one in siblings if not one.has_ended or self._has_asked(one)]
        for one in siblings:
            one.is_ambiguous = branch.is_ambiguous = True
        siblings.append(branch)
        return branch

    def enter(self, name: str) -> tuple[Branch, Place]:
        """Begin a named branch in the current context. Return it, and the place to return to, for ``leave``.

        Raises ``ValueError`` if a branch of that name is active in the same parent.
        """
        before = self.place
        open_ = before.branch.named.get(name)
        if open_ is not None and (not open_.is_closed or self._has_asked(open_)):
            self.refusal = ValueError(
                f"run.branch({name!r}) is already active here; give each concurrent branch a name of its own"
            )
            raise self.refusal
        branch = before.branch.named[name] = self._new(before, f"={name}", self._caller(), is_named=True)
        return branch, before

    def leave(self, branch: Branch, before: Place) -> None:
        """End a named branch in the current context."""
        branch.is_closed = True
        _here.set(before)

    def _new(self, place: Place, label: str, caller: Caller | None, *, is_named: bool) -> Branch:
        parent = place.branch
        first = short_hash(place.passed, label)
        number = parent.children[first] = parent.children.get(first, 0) + 1
        name = short_hash(parent.name, first, str(number))
        owner = None if caller is None else weakref.ref(caller)
        branch = Branch(parent, name, owner, is_named=is_named, goal=self._goals.get(name))
        self._catch_up(branch)
        self._known[name] = branch
        self._go(Place(self, branch, "", place.around))
        return branch

    def require_name(self, branch: Branch) -> None:
        """Raise ``ValueError`` if a replay could take the branch for another one."""
        each: Branch | None = branch
        while each is not None:
            if each.is_ambiguous:
                self.refusal = ValueError(_UNNAMED_QUESTION)
                raise self.refusal
            each = each.parent

    def _has_asked(self, branch: Branch) -> bool:
        return any(asked.is_within(branch) for asked in self._asked)

    def _go(self, place: Place) -> None:
        held = _here.get()
        while held is not None and (held.run is self or held.run.is_over):
            held = held.outer
        place.outer = held
        _here.set(place)

    @contextmanager
    def acting_for(self, thread: threading.Thread | None, error: BaseException | None) -> Generator[None]:
        """Act for a thread that handles ``error``. ``thread`` is None for the agent's own."""
        self._error = error
        if thread is None:
            try:
                yield
            finally:
                self._error = None
            return
        self._thread = thread
        token = _here.set(self._places.get(thread, self._top))
        try:
            yield
        finally:
            place = self.place
            if _is_of(place, thread):
                self._places[thread] = place
            else:
                self._places.pop(thread, None)
            self._thread = self._error = None
            _here.reset(token)

    # The position of a branch

    def count_event(self, event: Any) -> Any:
        """Count an event that the caller sends. Return the event, its new part if it continues an item, or None.

        State events are not counted. The end of an item with characters may come from any branch. Both are returned
        unchanged.
        """
        cls = event.__class__
        item, role = ROLES.get(cls, _NO_ROLE)
        is_plain = not (self.is_replay or self._asked)  # nearly always: the event is new, and counts
        if item is None or item is STEP or item is SUBAGENT:
            if cls in _STATE:
                return event
            if is_plain:
                self.current_branch().sent += 1
                return event
            return event if self.count() else None
        id_ = getattr(event, item.id_field)
        if role == "continues":
            if not is_plain:
                return self._continue(id_, event)
            if id_ in self._written:
                self._written[id_][1] += len(event.delta)
            return event
        if role == "closes":
            self._close(id_)
            return event
        if is_plain and not (branch := self.current_branch()).repeats_effect:
            branch.sent += 1
            self._written[id_] = [branch, 0]
            return event
        is_new = self.count()
        branch = self.current_branch()
        if not branch.repeats_effect:
            self._written[id_] = [branch, 0]
            if not is_new:
                self._unsent.setdefault(id_, sys.maxsize)  # an earlier run sent all of it
        return event if is_new else None

    def count(self) -> bool:
        """Count one item that the caller sends; return whether it is new."""
        branch = self.current_branch()
        if branch.repeats_effect:
            return False
        is_new = branch.goal is None
        if branch.left is None:
            branch.sent += 1
            self._catch_up(branch)
        return is_new

    def count_characters(self, id_: str, length: int) -> None:
        """Count characters of an open item, unless the exception of a question is unwinding the caller."""
        if id_ in self._written and (not self._asked or self.current_branch(begins=False).left is None):
            self._written[id_][1] += length

    def _continue(self, id_: str, event: Any) -> Any:
        length = len(event.delta)
        self.count_characters(id_, length)
        if not self.is_replay:
            return event
        branch = self.current_branch(begins=False)
        if branch.repeats_effect:
            return None
        unsent = self._unsent.get(id_, 0)
        self._unsent[id_] = max(0, unsent - length)
        if branch.goal is not None or unsent >= length:
            return None
        return event if unsent == 0 else replace(event, delta=event.delta[unsent:])

    def _close(self, id_: str) -> None:
        """Note that an item is complete, unless it is closed on the way out of a question."""
        if id_ in self._written and (not self._asked or self.current_branch(begins=False).left is None):
            del self._written[id_]
            self._unfinished.pop(id_, None)

    @contextmanager
    def muted(self) -> Generator[None]:
        """Suppress the output of the caller within the block: a recorded effect sent it before."""
        branch = self.current_branch()
        held, branch.repeats_effect = branch.repeats_effect, True
        try:
            yield
        finally:
            branch.repeats_effect = held

    def passed(self, branch: Branch, interrupt_id: str, *, is_current: bool) -> None:
        """Note that a question is answered. ``is_current`` if no earlier run had the answer."""
        if branch.left is not None:
            return
        goal = branch.goal
        if goal is not None and (is_current or goal[0] == branch.passed):
            self._reach_goal(branch)
            self._unmute_open_items(branch)
        branch.passed = interrupt_id
        branch.sent = 0
        self._catch_up(branch)
        here = self.place
        self._move(Place(self, branch, interrupt_id, here.around))

    def asked(self, branch: Branch, interrupt_id: str) -> None:
        """Note that a question has no answer yet: the branch ends, and its further output is not counted."""
        if branch.goal is not None:
            self._reach_goal(branch)  # another question than before, or the first
            self._unmute_open_items(branch)
        if branch.left is None:
            self._leave_by_question(branch, (branch.passed, None), interrupt_id)
        self._asked.append(branch)

    def surround(self, keys: tuple[Key, ...]) -> None:
        """Set the muted steps and subagents that are open here, unless the caller has no branch yet."""
        place, caller = self.place, self._caller()
        if caller is not None and _is_of(place, caller):
            self._move(Place(self, place.branch, place.passed, keys))

    def _move(self, place: Place) -> None:
        if place.branch is self._known[""]:
            self._top = place
        self._go(place)

    def _catch_up(self, branch: Branch) -> None:
        goal = branch.goal
        if goal is not None and goal[1] is not None and goal[0] == branch.passed and branch.sent >= goal[1]:
            self._reach_goal(branch)

    def _reach_goal(self, branch: Branch) -> None:
        branch.goal = None
        self._behind -= 1

    def _unmute_open_items(self, branch: Branch) -> None:
        """Let the items that a branch has open when it gets its answer continue from there."""
        for id_, (opener, _) in self._written.items():
            if opener is branch:
                self._unsent.pop(id_, None)

    def _leave_by_question(self, branch: Branch, at: Position, interrupt_id: str) -> None:
        branch.left = at
        branch.passed = f"asked {interrupt_id}"

    def _check_left(self, branch: Branch) -> None:
        """Check whether a question is unwinding a branch: its own question, or that of a branch that it awaited."""
        # A cancelled task is no proof: wait_for of Python 3.11 may continue anyway.
        error = sys.exception() if self._error is None else self._error
        if (
            interrupts_in(error)
            or isinstance(error, asyncio.CancelledError)
            or any(_may_have_seen(branch, asked) for asked in self._asked)
        ):
            self._leave_by_question(branch, (branch.passed, branch.sent), self._asked[0].passed)

    # Ids

    def new_id(self, kind: str) -> str:
        """Derive the next id of its kind in the caller's branch."""
        branch = self.current_branch()
        key = (branch.passed, kind)
        number = branch.counts[key] = branch.counts.get(key, 0) + 1
        return f"{kind}_{short_hash(self.thread_id, self.root_run_id, branch.name, *key, str(number))}"

    def claim_call_id(self, given: str, is_taken: Callable[[str], bool]) -> str:
        """Return an id for a new call: the given one, unless it is empty, claimed or taken."""
        if given == "" or given in self._claimed or is_taken(given):
            return self.new_id("call")
        self._claimed[given] = None
        return given

    def derive(self, *parts: str) -> str:
        """Return a digest that is specific to this chain of runs."""
        return short_hash(self.thread_id, self.root_run_id, *parts)

    # The record

    def position(self) -> dict[str, Any]:
        """Return the counts of the caller's branch and the claimed ids as JSON, for an effect that a replay skips."""
        branch = self.current_branch()
        return {
            "passed": branch.passed,
            "sent": branch.sent,
            "counts": [[*key, count] for key, count in branch.counts.items()],
            "children": branch.children,
            "known": [name for name, one in self._known.items() if one is not branch and one.is_within(branch)],
            "claimed": list(self._claimed),
        }

    def go_to(self, position: dict[str, Any], *, is_new: bool) -> None:
        """Continue the caller's branch from recorded counts. Branches that the effect started do not start again.

        ``is_new`` if the run that recorded them failed, so that the position of the branch is before them.
        """
        branch = self.current_branch()
        if position["passed"] != branch.passed and branch.left is None:
            self.passed(branch, position["passed"], is_current=is_new)
        branch.sent = max(branch.sent, position["sent"])
        for passed, kind, count in position["counts"]:
            branch.counts[passed, kind] = max(branch.counts.get((passed, kind), 0), count)
        for first, number in position["children"].items():
            branch.children[first] = max(branch.children.get(first, 0), number)
        for name in position["known"]:
            if name not in self._known and self._goals.pop(name, None) is not None:
                self._behind -= 1
        self._claimed.update(dict.fromkeys(position["claimed"]))
        self._catch_up(branch)

    @property
    def record(self) -> tuple[str, bytes] | None:
        """The key and value to record when this run ends; None if a replay needs no record."""
        root = self._known[""]
        asked = root.left is not None and root.left[1] is None
        if len(self._known) == 1 and self._number == 0 and (asked or root.goal == (None, None)):
            return None
        goals = dict(self._goals)
        for name, branch in self._known.items():
            if branch.goal is None:
                goals[name] = (branch.passed, branch.sent) if branch.left is None else branch.left
        unfinished = dict(self._unfinished)
        for id_, (branch, length) in self._written.items():
            if branch.left is None or branch.left[1] is not None:
                unfinished[id_] = max(length, unfinished.get(id_, 0))
            else:
                unfinished.pop(id_, None)  # muted until the answer is there, and continued then
        held = {"branches": [[name, *goal] for name, goal in goals.items()], "unfinished": unfinished}
        return f"{RECORDED}{self._number + 1}", encode(held)


def _is_of(place: Place, caller: Caller) -> bool:
    """Return whether a place belongs to the caller itself, and not to the task or thread that started it."""
    owner = place.branch.owner
    return owner is not None and owner() is caller


def _may_have_seen(branch: Branch, asked: Branch) -> bool:
    """Return whether a branch may have received the question of a descendant: its child on the way there has ended."""
    each: Branch | None = asked
    while each is not None and each.parent is not branch:
        each = each.parent
    return each is not None and each.has_ended
