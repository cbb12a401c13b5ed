"""Applying a two-operation patch to a state of 2 KB, atomically, next to ``jsonpatch``.

Both get the patch as decoded dicts and leave the old state as it was: for ``jsonpatch`` that is its default mode,
which copies the document first. (Its in-place mode with ``atomic=True`` only undoes its changes on failure: whoever
holds the old state sees it change, so it does not do the same.)

Run it: ``.venv/bin/python benchmarks/patch.py``
"""

from __future__ import annotations

import json
from collections.abc import Callable
from time import perf_counter
from typing import Any

import jsonpatch

from aguila.stream.json_values import json_equal
from aguila.stream.patch import apply_patch

ROUNDS = 9
OURS_PER_ROUND = 4000
PEER_PER_ROUND = 200

STATE: dict[str, Any] = {
    "user": {"name": "Ada", "locale": "en-GB", "preferences": {"theme": "dark", "units": "metric"}},
    "steps": [
        {"id": f"step-{i}", "title": f"Look at part {i} of the report", "done": i < 4, "tags": ["read", "sum"]}
        for i in range(20)
    ],
    "progress": {"current": 4, "total": 20, "message": "Reading the fifth part"},
}
PATCH: list[dict[str, Any]] = [
    {"op": "replace", "path": "/steps/4/done", "value": True},
    {"op": "replace", "path": "/progress/current", "value": 5},
]


def in_turns(*sides: tuple[Callable[[], object], int]) -> list[float]:
    """The best rate of each side in operations per second, measured in turns so that noise meets all alike."""
    best = [0.0] * len(sides)
    for _ in range(ROUNDS):
        for index, (run, times) in enumerate(sides):
            start = perf_counter()
            for _ in range(times):
                run()
            best[index] = max(best[index], times / (perf_counter() - start))
    return best


def rows() -> list[dict[str, Any]]:
    """One row: ours and the peer's rate, with the floor of their ratio."""
    assert 1900 < len(json.dumps(STATE)) < 2200
    assert json_equal(apply_patch(STATE, PATCH), jsonpatch.apply_patch(STATE, PATCH))
    ours, peer = in_turns(
        (lambda: apply_patch(STATE, PATCH), OURS_PER_ROUND),
        (lambda: jsonpatch.apply_patch(STATE, PATCH), PEER_PER_ROUND),
    )
    return [
        {
            "name": "apply a two-operation patch to a 2 KB state, atomic",
            "ours": ours,
            "peer": peer,
            "peer_name": "jsonpatch",
            "floor": 10,
        }
    ]


def main() -> None:
    for row in rows():
        print(
            f"{row['name']}: {row['ours']:,.0f}/s, {row['peer_name']} {row['peer']:,.0f}/s, "
            f"{row['ours'] / row['peer']:.1f}x (floor {row['floor']}x)"
        )


if __name__ == "__main__":
    main()
