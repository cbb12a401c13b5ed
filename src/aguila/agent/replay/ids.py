"""Layer: agent. Ids that a replay derives again.

Below: hashlib. Above: everything that opens something. A run that resumes by replay must name what it continues as the
earlier run did: a call's result needs the call's id, and the rest of a message belongs to that message. So ids are not
drawn but derived, from the run that the chain began with, the branch of the agent, and a count in that branch.

A provider names its calls itself, some of them alike in every answer: such a name is claimed, once in a thread (P21).

After an answer a branch counts anew, in a namespace named after the question, so that what is new in a resumed
run never has an id that an earlier run used for something else, even if the agent took another way there.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from aguila.agent.replay.branches import Branches


def short_hash(*parts: str) -> str:
    """A short digest of some strings; each part counts on its own."""
    joined = "".join([f"{len(part)}:{part}" for part in parts])
    return hashlib.sha256(joined.encode("utf-8", "surrogatepass")).hexdigest()[:20]


class Ids:
    """Mints the ids of one run."""

    def __init__(self, thread_id: str, root_run_id: str, branches: Branches) -> None:
        self._thread_id = thread_id
        self._root_run_id = root_run_id
        self._branches = branches
        self._claimed: dict[str, None] = {}

    def mint(self, kind: str) -> str:
        """Derive the next id of its kind in the caller's branch."""
        branch = self._branches.here()
        key = (branch.passed, kind)
        number = branch.counts[key] = branch.counts.get(key, 0) + 1
        return f"{kind}_{self.derive(branch.name, *key, str(number))}"

    def claim(self, given: str, is_taken: Callable[[str], bool]) -> str:
        """An id for a new call: the one given, or one of ours if that is none, or was claimed, or is taken."""
        if given == "" or given in self._claimed or is_taken(given):
            return self.mint("call")
        self._claimed[given] = None
        return given

    def derive(self, *parts: str) -> str:
        """A digest that belongs to this chain of runs."""
        return short_hash(self._thread_id, self._root_run_id, *parts)

    @property
    def position(self) -> dict[str, Any]:
        """How far the branch has counted here and what was claimed, as JSON."""
        return {**self._branches.position(), "claimed": list(self._claimed)}

    def go_to(self, position: dict[str, Any]) -> None:
        """Mint on from there, here; what was minted meanwhile is not minted again."""
        self._branches.go_to(position)
        self._claimed.update(dict.fromkeys(position["claimed"]))
