"""Agents of frameworks behind ``App``. ``make peers`` tries them all, each in an environment of its own."""

from __future__ import annotations

import asyncio
import os
import re
import subprocess
from pathlib import Path
from typing import Any

import pytest
from environments import FRAMEWORKS, HERE, OWN_VARIABLES, REPOSITORY, Blocked, Peer, interpreter, peer_named, versions
from features import FRAMEWORK_FEATURES, Trial, kill_in_a_call
from matrix import Features, try_peer
from models.model_server import Recorded, stream
from serving import Peer as HTTPPeer
from serving import check_valid
from tables import FAULTS, TABLES, Cell, Results, documents

SAMPLED = ("langgraph_app", "pydantic_ai_app", "openai_agents_app")


def installed(name: str) -> Peer:
    """Return a framework in the environment that the sampled ones share. Skip the test if it cannot be made.

    In CI the test fails instead.
    """
    peer = peer_named(name)._replace(environment="sampled")
    try:
        interpreter(peer)
    except Blocked as reason:
        if os.environ.get("CI"):
            raise
        pytest.skip(str(reason))
    return peer


async def tool_turn_of_langgraph(trial: Trial) -> None:
    """Check that a turn with a tool takes less than 3 KB; that of ag-ui-langgraph takes 43 KB."""

    def ask() -> tuple[list[dict[str, Any]], bytes]:
        peer = HTTPPeer(trial.server.url)
        with peer.run(messages=[{"id": "u1", "role": "user", "content": "backend"}]) as stream:
            events = stream.rest()
        peer.close()
        return events, stream.raw

    events, raw = await asyncio.to_thread(ask)
    check_valid(events)
    assert "TOOL_CALL_RESULT" in [event["type"] for event in events]
    assert len(raw) < 3000, len(raw)


async def handoff_of_openai_agents(trial: Trial) -> None:
    """Check that a handoff is a subagent."""

    def ask() -> list[dict[str, Any]]:
        peer = HTTPPeer(trial.server.url)
        events = peer.events(messages=[{"id": "u1", "role": "user", "content": "handoff"}])
        peer.close()
        return events

    events = await asyncio.to_thread(ask)
    check_valid(events)
    (started,) = (event for event in events if event["type"] == "SUBAGENT_STARTED")
    assert (started["name"], started["parentToolCallId"]) == ("billing", "call-handoff")
    (said,) = (event for event in events if event["type"] == "TEXT_MESSAGE_CONTENT")
    assert (said["delta"], said["subagentRunId"]) == ("Billing here: billing.", started["subagentRunId"])


OWN: dict[str, Features] = {
    "langgraph_app": {"tool turn": tool_turn_of_langgraph},
    "openai_agents_app": {
        "handoff": handoff_of_openai_agents,
        # The SDK's state is in our store, so it could make the call a second time.
        "kill -9 in an approved call": kill_in_a_call,
    },
}
"""Features that only one framework is tried with."""


@pytest.mark.parametrize("name", SAMPLED)
def test_every_feature_works_behind_app(name: str) -> None:
    features = {**OWN.get(name, {}), **FRAMEWORK_FEATURES}
    assert try_peer(installed(name), features) == {one: Cell("works") for one in features}


DOCUMENT = (REPOSITORY / "docs" / "frameworks.md").read_text()
PROGRAMS = {
    found[2]: found[1]
    for found in re.finditer(
        r"^```python\n((?:(?!^```).)*?^from aguila.frameworks import (\w+).*?)^```", DOCUMENT, re.M | re.S
    )
    if found[2] not in ("from_events", "upstream")
}


APIS = {"openai_agents": "openai responses", "agent_framework": "openai responses", "adk": "gemini"}
"""The API of a program's model, if it is not Chat Completions. LangGraph's and pydantic-ai's call no model."""


@pytest.mark.parametrize("framework", PROGRAMS)
def test_messages_return_and_the_program_of_the_document_answers(framework: str, tmp_path: Path) -> None:
    name = f"{framework}_app"
    if name not in SAMPLED and "AGUILA_PEERS" not in os.environ:
        pytest.skip("make peers tries it; set AGUILA_PEERS to try it here")
    python = interpreter(installed(name) if name in SAMPLED else peer_named(name))
    with Recorded([stream(APIS.get(framework, "openai chat"), text="Hello.")]) as model:
        keys = {"OPENAI_API_KEY": "key", "GOOGLE_API_KEY": "key", "OPENAI_AGENTS_DISABLE_TRACING": "1"}
        openai = f"{model.url}/v1"
        addresses = {"OPENAI_BASE_URL": openai, "OPENAI_API_BASE": openai, "GOOGLE_GEMINI_BASE_URL": model.url}
        done = subprocess.run(
            [python, str(HERE / "checks" / "framework_checks.py"), framework],
            cwd=tmp_path,
            env={**os.environ, **OWN_VARIABLES, **keys, **addresses},
            input=PROGRAMS[framework],
            capture_output=True,
            text=True,
            check=False,
        )
    assert done.returncode == 0, done.stderr
    assert done.stdout.splitlines()[-1].strip() != ""


def test_every_framework_has_a_program_in_the_document() -> None:
    assert set(PROGRAMS) == {peer.name.removesuffix("_app") for peer in FRAMEWORKS}


def test_every_sampled_framework_is_one_of_the_matrix() -> None:
    assert set(SAMPLED) <= {peer.name for peer in FRAMEWORKS}


def test_a_program_of_the_document_has_at_most_ten_lines() -> None:
    lengths = {name: len([line for line in text.splitlines() if line.strip()]) for name, text in PROGRAMS.items()}
    assert all(length <= 10 for length in lengths.values()), lengths


def test_the_documents_show_the_recorded_results() -> None:
    for path, text in documents(Results.load()).items():
        assert path.read_text() == text, f"{path.name}: run `make peers`"


@pytest.mark.parametrize("table", TABLES)
def test_every_peer_was_tried_with_its_pinned_versions(table: str) -> None:
    peers, features = TABLES[table]
    results = Results.load()
    columns = results.columns(table)
    for peer in peers:
        assert results.versions(table, peer) == versions(peer), f"run `make peers ARGS={peer.name}`"
        assert set(columns[peer]) == set(features), peer.name


@pytest.mark.parametrize("table", ["app", "upstream"])
def test_every_cell_works_or_names_whose_fault_it_is(table: str) -> None:
    failed = {
        (table, peer.name, feature)
        for peer, column in Results.load().columns(table).items()
        for feature, cell in column.items()
        if cell.verdict != "works"
    }
    assert failed == {fault for fault in FAULTS if fault[0] == table}
