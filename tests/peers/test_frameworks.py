"""Agents of frameworks behind ``App``, each in an environment of its own. ``make peers`` tries them all."""

from __future__ import annotations

import os
import re
import subprocess
from pathlib import Path

import pytest
from environments import (
    FRAMEWORKS,
    HERE,
    REPOSITORY,
    Blocked,
    interpreter,
    peer_named,
    running,
)
from features import FRAMEWORK_FEATURES
from matrix import try_peer
from model_server import Recorded, stream
from serving import Peer as HTTPPeer
from serving import check_valid
from tables import Cell

SAMPLED = ("langgraph_app", "pydantic_ai_app", "openai_agents_app")


def install(name: str) -> None:
    """Make the environment of a framework. Skip the test if that is not possible, but fail in CI."""
    try:
        interpreter(peer_named(name))
    except Blocked as reason:
        if os.environ.get("CI"):
            raise
        pytest.skip(str(reason))


@pytest.mark.parametrize("name", SAMPLED)
def test_every_feature_works_behind_app(name: str) -> None:
    install(name)
    assert try_peer(peer_named(name), FRAMEWORK_FEATURES) == {one: Cell("works") for one in FRAMEWORK_FEATURES}


@pytest.mark.parametrize("name", SAMPLED)
def test_random_histories_return_from_the_messages_of_the_framework(name: str) -> None:
    install(name)
    program = str(HERE / "servers" / "message_round_trips.py")
    command = [interpreter(peer_named(name)), program, name.removesuffix("_app"), "200"]
    environment = {**os.environ, "PYTHONPATH": str(REPOSITORY / "src")}
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr


def test_the_details_of_langgraph() -> None:
    install("langgraph_app")
    command = [interpreter(peer_named("langgraph_app")), str(HERE / "servers" / "langgraph_details.py")]
    environment = {**os.environ, "PYTHONPATH": str(REPOSITORY / "src")}
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr


def test_a_tool_turn_of_langgraph_takes_less_than_3_kb() -> None:
    install("langgraph_app")
    with running(peer_named("langgraph_app")) as server:
        peer = HTTPPeer(server.url)
        with peer.run(messages=[{"id": "u1", "role": "user", "content": "backend"}]) as stream:
            events = stream.rest()
        peer.close()
    check_valid(events)
    assert "TOOL_CALL_RESULT" in [event["type"] for event in events]
    assert len(stream.raw) < 3000, len(stream.raw)


DOCUMENT = (REPOSITORY / "docs" / "frameworks.md").read_text()
PROGRAMS = {
    found[2]: found[1]
    for found in re.finditer(
        r"^```python\n((?:(?!^```).)*?^from aguila.frameworks import (\w+).*?)^```", DOCUMENT, re.M | re.S
    )
    if found[2] not in ("from_events", "upstream")
}

ASK = """
import asyncio
from aguila.testing import client_for

async def main():
    async with client_for(app) as client:
        print((await client.thread().run("Hi")).text)

asyncio.run(main())
"""


@pytest.mark.parametrize("name", [name for name in PROGRAMS if f"{name}_app" in SAMPLED])
def test_the_program_of_the_document_answers(name: str, tmp_path: Path) -> None:
    install(f"{name}_app")
    command = [interpreter(peer_named(f"{name}_app")), "-c", PROGRAMS[name] + ASK]
    with Recorded([stream("openai responses", text="Hello.")]) as model:
        own = {"PYTHONPATH": str(REPOSITORY / "src"), "OPENAI_BASE_URL": f"{model.url}/v1", "OPENAI_API_KEY": "key"}
        environment = {**os.environ, **own, "OPENAI_AGENTS_DISABLE_TRACING": "1"}
        done = subprocess.run(command, cwd=tmp_path, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert done.stdout.strip() != ""


def test_every_framework_is_in_the_document() -> None:
    assert {name.removesuffix("_app") for name in SAMPLED} == set(PROGRAMS)
    for peer in FRAMEWORKS:
        name = peer.name.removesuffix("_app")
        assert f"| `{name}` |" in DOCUMENT or name in PROGRAMS, name


def test_every_sampled_framework_is_one_of_the_matrix() -> None:
    assert set(SAMPLED) <= {peer.name for peer in FRAMEWORKS}


def test_a_handoff_of_openai_agents_is_a_subagent_and_its_answer_is_remembered() -> None:
    install("openai_agents_app")
    with running(peer_named("openai_agents_app")) as server:
        peer = HTTPPeer(server.url)
        events = peer.events(messages=[{"id": "u1", "role": "user", "content": "handoff"}])
        peer.close()
    check_valid(events)
    (started,) = (event for event in events if event["type"] == "SUBAGENT_STARTED")
    assert (started["name"], started["parentToolCallId"]) == ("billing", "call-handoff")
    (said,) = (event for event in events if event["type"] == "TEXT_MESSAGE_CONTENT")
    assert (said["delta"], said["subagentRunId"]) == ("Billing here: billing.", started["subagentRunId"])
