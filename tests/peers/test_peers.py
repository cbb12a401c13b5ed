"""Third-party servers that need no environment of their own. ``make peers`` tries them all."""

from __future__ import annotations

from typing import Any

import pytest
from builders import run_finished_json
from environments import CLIENTS, PEERS, Peer, Running, peer_named, versions
from features import CLIENT_FEATURES, FEATURES, Trial
from matrix import try_peer
from processes.node import node_path
from tables import PEERS_PAGE, Cell, Column, peers_page

NO_VERSION = "RUN_STARTED has no protocolVersion; declare the version that the producer implements [VER-2]"
NO_CANCEL = "it has no route to cancel a run (HTTP 404); a client can only disconnect"
NO_PENDING = "RUN_FINISHED does not list the frontend call in pendingToolCallIds; the client derives it [FT-3]"

HERE_ANYWAY = [peer for peer in PEERS if not peer.needs_environment]


@pytest.fixture(scope="module", params=HERE_ANYWAY, ids=lambda peer: peer.name)
def tried(request: pytest.FixtureRequest) -> tuple[Peer, Column]:
    peer: Peer = request.param
    if peer.program.endswith(".mjs"):
        node_path()  # skips, or fails in CI, without node
    return peer, try_peer(peer)


def test_every_feature_works_against_the_peer_and_nothing_else_is_to_be_remarked(tried: tuple[Peer, Column]) -> None:
    peer, column = tried
    always = (NO_VERSION,) if peer.name == "quickstart" else ()
    expected = {feature: Cell("works", "", always) for feature in FEATURES}
    if peer.name == "quickstart":
        expected["frontend tools"] = Cell("works", "", (NO_PENDING, *always))
    expected["cancel"] = Cell("works", "", (NO_CANCEL, *always))
    assert column == expected


def remarks(*events: dict[str, Any]) -> list[str]:
    trial = Trial(peer_named("quickstart"), Running("http://127.0.0.1:9/", 0), "standard")
    trial.runs.append(list(events))
    trial.judge()
    return trial.remarks


STARTED = {"type": "RUN_STARTED", "threadId": "t", "runId": "r", "protocolVersion": "1.0"}
TEXT_START = {"type": "TEXT_MESSAGE_START", "messageId": "m", "role": "assistant"}


def test_a_good_stream_gives_nothing_to_remark() -> None:
    assert remarks(STARTED, TEXT_START, {"type": "TEXT_MESSAGE_END", "messageId": "m"}, run_finished_json()) == []


@pytest.mark.parametrize(
    ("events", "words"),
    [
        ([STARTED, TEXT_START, run_finished_json()], "[STR-3]"),
        ([STARTED, {"type": "TEXT_MESSAGE_END", "messageId": "m"}, run_finished_json()], "[STR-"),
        ([STARTED, {"type": "STEP_STARTED", "stepName": 5}, run_finished_json()], "STEP_STARTED: "),
        ([STARTED, {"type": "STEP_STARTED", "stepName": "s", "extra": 1}, run_finished_json()], "extra"),
        ([STARTED, TEXT_START, {"type": "MESSAGES_SNAPSHOT", "messages": []}], "leaves out a message"),
        ([STARTED, {"type": "RAW", "event": {"a": "b" * 1000}}, run_finished_json()], "RAW events"),
    ],
)
def test_what_a_peer_does_wrong_is_remarked(events: list[dict[str, Any]], words: str) -> None:
    assert any(words in remark for remark in remarks(*events)), remarks(*events)


def test_a_remark_is_made_once_and_without_generated_ids() -> None:
    first, second = "0b0e6a3e-5f57-4a37-8d6c-0f8a0f7d2b11", "1c0e6a3e-5f57-4a37-8d6c-0f8a0f7d2b22"
    found = remarks(
        STARTED, *({"type": "TEXT_MESSAGE_END", "messageId": one} for one in (first, second)), run_finished_json()
    )
    assert len(found) == 1
    assert "…" in found[0]


def test_a_peer_that_cannot_be_had_is_blocked_with_the_reason() -> None:
    column = try_peer(peer_named("quickstart")._replace(program="no_such_server.py"))
    assert {cell.verdict for cell in column.values()} == {"blocked"}
    assert "its server did not start" in column["text"].reason


def test_a_failure_stands_in_the_page_with_its_reason() -> None:
    column = {feature: Cell("works") for feature in FEATURES} | {"cancel": Cell("fails", "it goes on", ("odd",))}
    told = peers_page({peer_named("quickstart"): column}, {})
    assert "| cancel | **fails** (1, 2) |" in told
    assert "cancel fails: it goes on" in told


def test_the_documented_matrix_is_about_these_peers_and_features() -> None:
    told = PEERS_PAGE.read_text()
    for feature in FEATURES:
        assert f"\n| {feature} | " in told
    for feature in CLIENT_FEATURES:
        assert f"\n| {feature} | " in told
    for peer in (*PEERS, *CLIENTS):
        assert f"\n### {peer.title}\n\n{versions(peer)}; " in told
