"""One branch of an agent, and the place of a context in it."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from aguila.stream.verification.rules import Item

if TYPE_CHECKING:
    from aguila.agent.replay.branches import Branches

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
    """Whether the scope of a named branch was left."""
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
