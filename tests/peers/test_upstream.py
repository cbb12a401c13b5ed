"""Third-party servers behind ``upstream``: the features that work, and the remaining remarks.

``make peers`` tries those with an environment of their own, and writes the table in docs/frameworks.md.
"""

from __future__ import annotations

import os

import pytest
from environments import PEERS, Peer
from features import FRAMEWORK_FEATURES
from matrix import try_upstream
from processes.node import node_path
from tables import Cell

LEFT: dict[str, dict[str, Cell]] = {
    "agent_framework": {
        "text": Cell("works", "", ("a run without state in its input ends with one: count (dict)",)),
        "interrupt": Cell(
            "works",
            "",
            (
                "it also calls confirm_changes, a tool that the client did not offer [FT-6]",
                "its call of confirm_changes is never answered",
            ),
        ),
    },
    "langgraph": {
        "cancel": Cell("fails", "half a minute after the disconnect the agent is still running"),
    },
}
"""The cells that are not right behind ``upstream`` either. All others are ``works`` without a remark."""


LONG = ("reload during a run", "kill -9")
FEATURES = {name: feature for name, feature in FRAMEWORK_FEATURES.items() if name not in LONG}
"""The peers that CI tries. `make peers` tries the other two, which start more processes."""


@pytest.mark.parametrize("peer", PEERS, ids=lambda peer: peer.name)
def test_every_feature_through_upstream(peer: Peer) -> None:
    if peer.program.endswith(".mjs"):
        node_path()  # skips, or fails in CI, without node
    if peer.needs_environment and "AGUILA_PEERS" not in os.environ:
        pytest.skip("make peers tries it; set AGUILA_PEERS to try it here")
    expected = {feature: Cell("works") for feature in FEATURES} | LEFT.get(peer.name, {})
    assert try_upstream(peer, FEATURES) == expected
