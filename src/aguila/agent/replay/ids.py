"""Derive ids that a replay derives again.

A resumed run must use the ids of the earlier run: a result needs the id of its call, and more text the id of its
message. So ids are not random. They are derived from the root run, the branch, and a count in that branch. After an
answer the count starts anew in a namespace named after the question, so that new items never get an id that an earlier
run used for something else.

A provider names its tool calls itself, some of them the same in every response. Such an id is claimed once in a
thread.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from aguila.agent.replay.branches import Branches


def short_hash(*parts: str) -> str:
    """Return a short digest of strings. The boundaries between them count."""
    joined = "".join([f"{len(part)}:{part}" for part in parts])
    return hashlib.sha256(joined.encode("utf-8", "surrogatepass")).hexdigest()[:20]


class Ids:
    """Derives the ids of one run."""

    def __init__(self, thread_id: str, root_run_id: str, branches: Branches) -> None:
        self._thread_id = thread_id
        self._root_run_id = root_run_id
        self._branches = branches
        self._claimed: dict[str, None] = {}

    def mint(self, kind: str) -> str:
        """Derive the next id of its kind in the caller's branch."""
        branch = self._branches.current_branch()
        key = (branch.passed, kind)
        number = branch.counts[key] = branch.counts.get(key, 0) + 1
        return f"{kind}_{self.derive(branch.name, *key, str(number))}"

    def claim(self, given: str, is_taken: Callable[[str], bool]) -> str:
        """Return an id for a new call: the given one, unless it is empty, claimed or taken."""
        if given == "" or given in self._claimed or is_taken(given):
            return self.mint("call")
        self._claimed[given] = None
        return given

    def derive(self, *parts: str) -> str:
        """Return a digest that is specific to this chain of runs."""
        return short_hash(self._thread_id, self._root_run_id, *parts)

    @property
    def position(self) -> dict[str, Any]:
        """The counts of the caller's branch and the claimed ids, as JSON."""
        return {**self._branches.position(), "claimed": list(self._claimed)}

    def go_to(self, position: dict[str, Any]) -> None:
        """Continue from recorded counts."""
        self._branches.go_to(position)
        self._claimed.update(dict.fromkeys(position["claimed"]))
