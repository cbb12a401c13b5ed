"""Clients that others publish, on our server. ``make peers`` tries them, and writes the table in docs/peers.md."""

from __future__ import annotations

import os

import pytest
from environments import CLIENTS, Peer
from features import CLIENT_FEATURES
from matrix import try_client

LOST: dict[str, set[str]] = {
    "agui_chat_client": {"state", "reasoning", "activity", "image result", "cancel"},
}
"""The features that a client does not have. All others work."""


@pytest.mark.parametrize("peer", CLIENTS, ids=lambda peer: peer.name)
def test_what_a_client_can_do_works_on_our_server(peer: Peer) -> None:
    if "AGUILA_PEERS" not in os.environ:
        pytest.skip("make peers tries it; set AGUILA_PEERS to try it here")
    column = try_client(peer)
    assert {name: cell.verdict for name, cell in column.items()} == {
        name: "lost" if name in LOST[peer.name] else "works" for name in CLIENT_FEATURES
    }, column
