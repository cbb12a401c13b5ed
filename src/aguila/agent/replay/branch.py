"""One branch of an agent, and the place of a context in it."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable
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


class Branch:
    """One branch of an agent. ``name`` identifies it in all runs of a chain."""

    __slots__ = (
        "children",
        "counts",
        "goal",
        "is_ambiguous",
        "is_closed",
        "is_named",
        "left",
        "name",
        "named",
        "owner",
        "parent",
        "passed",
        "repeats_effect",
        "sent",
        "unnamed",
    )

    def __init__(
        self, parent: Branch | None, name: str, owner: Callable[[], Caller | None] | None, *, is_named: bool
    ) -> None:
        self.parent = parent
        self.name = name
        self.owner = owner
        self.is_named = is_named
        self.is_closed = False
        """Whether the scope of a named branch was left."""
        self.is_ambiguous = False
        """Whether it is one of several unnamed branches that were active at once."""
        self.passed = ""
        """The last question that it passed."""
        self.sent = 0
        """How much it sent after that question."""
        self.goal: Position | None = None
        """Its position in an earlier run. The branch is muted until it is there."""
        self.left: Position | None = None
        """Its position when it asked, or when it left because of a question."""
        self.repeats_effect = False
        """Whether a recorded effect has sent its output before."""
        self.counts: dict[tuple[str, str], int] = {}
        self.children: dict[str, int] = {}
        self.named: dict[str, Branch] = {}
        """The latest named branch of each name that was started here."""
        self.unnamed: list[Branch] = []
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


class Place:
    """The current branch of a context. A task that is started there inherits it."""

    __slots__ = ("around", "branch", "outer", "passed", "run")

    def __init__(
        self,
        run: Branches,
        branch: Branch,
        passed: str,
        around: tuple[Key, ...] = (),
        outer: Place | None = None,
    ) -> None:
        self.run = run
        self.branch = branch
        self.passed = passed
        self.around = around
        """The steps and subagents that were opened here while it was muted, outermost first."""
        self.outer = outer
        """The place in another run, if this run was started from an agent of that one."""
