"""Servers nobody here wrote, behind ``upstream``: every feature works, and nothing is left to be remarked."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any, NamedTuple

import pytest
from environments import PEERS, Peer, Running, running
from features import FEATURES
from matrix import Cell, try_feature
from node import node_path
from serving import serving

from aguila import App
from aguila.client import AsyncClient
from aguila.frameworks import upstream

HERE_ANYWAY = [peer for peer in PEERS if not peer.needs_environment]


class Gateway(NamedTuple):
    """Our server before a peer: clients call it, and the peer counts."""

    url: str
    pid: int
    peer: Running

    def counts(self) -> dict[str, int]:
        return self.peer.counts()


@pytest.mark.parametrize("peer", HERE_ANYWAY, ids=lambda peer: peer.name)
def test_every_feature_works_through_upstream(peer: Peer, tmp_path: Path) -> None:
    if peer.program.endswith(".mjs"):
        node_path()  # skips, or fails in CI, without node
    with running(peer) as server:
        agent = upstream(AsyncClient(server.url, protobuf=peer.is_protobuf, options={"trust_env": False}))
        with serving(App(agent, store=tmp_path / "threads.db")) as front:
            gateway: Any = Gateway(front.url + "/", 0, server)

            async def all_features() -> dict[str, Cell]:
                seen_as = peer._replace(is_protobuf=False)
                return {name: await try_feature(seen_as, gateway, name) for name in FEATURES}

            assert asyncio.run(all_features()) == {feature: Cell("works") for feature in FEATURES}
