"""Layer: agent. Ids that a replay derives again.

Below: hashlib. Above: everything that opens something. A run that resumes by replay must name what it continues as the
earlier run did: a call's result needs the call's id, and the rest of a message belongs to that message. So ids are not
drawn but derived, from the run that the chain began with and a count. They never depend on content.

After an answer the count starts anew in a namespace named after the question, so that what is new in a resumed
run never has an id that an earlier run used for something else, even if the agent took another way there.
"""

from __future__ import annotations

import hashlib
from collections import Counter
from typing import Any


def short_hash(*parts: str) -> str:
    """A short digest of some strings; each part counts on its own."""
    joined = "".join([f"{len(part)}:{part}" for part in parts])
    return hashlib.sha256(joined.encode("utf-8", "surrogatepass")).hexdigest()[:20]


class Ids:
    """Mints the ids of one run."""

    def __init__(self, thread_id: str, root_run_id: str) -> None:
        self._thread_id = thread_id
        self._root_run_id = root_run_id
        self._namespace = ""
        self._counts: Counter[tuple[str, str]] = Counter()

    def mint(self, kind: str) -> str:
        """The next id of its kind."""
        key = (self._namespace, kind)
        self._counts[key] += 1
        return f"{kind}_{self.derive(*key, str(self._counts[key]))}"

    def derive(self, *parts: str) -> str:
        """A digest that belongs to this chain of runs."""
        return short_hash(self._thread_id, self._root_run_id, *parts)

    def enter(self, namespace: str) -> None:
        """Mint from here on under another name."""
        self._namespace = namespace

    @property
    def position(self) -> dict[str, Any]:
        """How far it has counted, as JSON."""
        counts = [[*key, count] for key, count in self._counts.items()]
        return {"namespace": self._namespace, "counts": counts}

    def go_to(self, position: dict[str, Any]) -> None:
        """Mint on from there; what was minted meanwhile is not minted again."""
        self._namespace = position["namespace"]
        for namespace, kind, count in position["counts"]:
            self._counts[namespace, kind] = max(self._counts[namespace, kind], count)
