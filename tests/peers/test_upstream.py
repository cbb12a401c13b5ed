"""Servers nobody here wrote, behind ``upstream``: what works, and what is left to be remarked.

Peers with an environment of their own are tried where ``make peers`` has installed it. The table is in
docs/frameworks.md.
"""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any, NamedTuple

import pytest
from environments import ENVIRONMENTS, PEERS, Peer, Running, running
from features import FEATURES
from matrix import Cell, try_feature
from node import node_path
from serving import serving

from aguila import App
from aguila.frameworks import upstream

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
"""What is not right behind ``upstream`` either. Every other cell is ``works`` without a remark."""

STATE_KEYS = {"langgraph": ["count"]}


class Gateway(NamedTuple):
    """Our server before a peer: clients call it, and the peer counts."""

    url: str
    pid: int
    peer: Running

    def counts(self) -> dict[str, int]:
        return self.peer.counts()


@pytest.mark.parametrize("peer", PEERS, ids=lambda peer: peer.name)
def test_every_feature_through_upstream(peer: Peer, tmp_path: Path) -> None:
    if peer.program.endswith(".mjs"):
        node_path()  # skips, or fails in CI, without node
    if peer.needs_environment and not (ENVIRONMENTS / peer.name / ".stamp").exists():
        pytest.skip(f"{peer.title} is not installed: make peers")
    with running(peer) as server:
        options = {"protobuf": peer.is_protobuf, "options": {"trust_env": False}}
        agent = upstream(server.url, client=options, state_keys=STATE_KEYS.get(peer.name))
        with serving(App(agent, store=tmp_path / "threads.db")) as front:
            gateway: Any = Gateway(front.url + "/", 0, server)

            async def all_features() -> dict[str, Cell]:
                seen_as = peer._replace(is_protobuf=False)
                return {name: await try_feature(seen_as, gateway, name) for name in FEATURES}

            found = asyncio.run(all_features())
    assert found == {feature: Cell("works") for feature in FEATURES} | LEFT.get(peer.name, {})
