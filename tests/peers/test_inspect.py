"""``aguila inspect`` in front of third-party servers: the matrix of docs/peers.md through the gateway.

``make peers`` tries the peers that have an environment of their own.
"""

from __future__ import annotations

import asyncio
import os
from pathlib import Path
from typing import Any

import httpx2
import pytest
from environments import Peer, peer_named, running
from features import FEATURES, FRAMEWORK_FEATURES
from matrix import Gateway, try_feature
from processes.commands import aguila_serve
from processes.node import node_path
from tables import Cell

REMARKS = (
    "the state also holds",
    "a run without state in its input ends with one",
    "the text of the exception is sent",
    "the class of the exception is sent",
    "what was said before the error is",
    "most of the bytes it sends are RAW",
)
"""Data that an inspector passes on and a gateway for users hides: RAW events, inner state, error texts."""

FAILS = {("langgraph", "cancel")}
"""The gateway ends the run and disconnects, as "reload during a run" shows. LangGraph's agent continues anyway."""

RELOAD = "reload during a run"


VIOLATES = {"quickstart": {"VER-2"}, "pydantic_ai": set[str](), "langgraph": {"VER-2"}, "encoder_sse": set[str]()}
"""Rules that a peer is known to break. The notes of docs/peers.md have them all."""


@pytest.mark.parametrize("name", ["quickstart", "pydantic_ai", "langgraph", "encoder_sse"])
def test_every_feature_through_inspect(name: str, tmp_path: Path) -> None:
    peer = peer_named(name)
    _check_installed(peer)
    with running(peer) as server, aguila_serve(tmp_path, server.url, "--no-open", command_name="inspect") as front:
        gateway: Any = Gateway(front.url + "/", 0, server, {})

        async def all_features() -> dict[str, Cell]:
            features = {**FEATURES, RELOAD: FRAMEWORK_FEATURES[RELOAD]}
            tried = {one: feature for one, feature in features.items() if (name, one) not in FAILS}
            return {one: await try_feature(peer, gateway, feature) for one, feature in tried.items()}

        found = asyncio.run(all_features())
        threads = httpx2.get(f"{front.url}/threads", params={"limit": 100}).json()["threads"]
        runs = [
            (one["threadId"], run)
            for one in threads
            for run in httpx2.get(f"{front.url}/threads/{one['threadId']}").json()["runs"]
        ]
        checked = [httpx2.get(f"{front.url}/threads/{thread}/runs/{run['runId']}/check").json() for thread, run in runs]
    for feature, cell in found.items():
        assert cell.verdict == "works", (feature, cell)
        assert [one for one in cell.remarks if not one.startswith(REMARKS)] == [], feature
    assert [run["status"] for _, run in runs].count("cancelled") == len(found.keys() & {"cancel", RELOAD})
    findings = [one for check in checked for one in check["findings"]]
    # The stored events keep the rules. Violations of the peer are reported about the peer.
    assert [one for one in findings if one["source"] == "run"] == []
    assert {one["rule"] for one in findings if one["source"] == "upstream"} >= VIOLATES[name]
    assert all(one["text"] for one in findings)


def _check_installed(peer: Peer) -> None:
    if peer.program.endswith(".mjs"):
        node_path()  # skips, or fails in CI, without node
    if peer.needs_environment and "AGUILA_PEERS" not in os.environ:
        pytest.skip("make peers tries it; set AGUILA_PEERS to try it here")
