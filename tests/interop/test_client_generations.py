"""Stock clients of every generation since 0.0.45 over every feature of the demo: what works, and what is lost."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import pytest
from node import CLIENTS, run_node
from serving import Server, serving

from aguila import App
from aguila.cli import demo

GENERATIONS = ["0.0.45", "0.0.47", "0.0.50", "0.0.53", "0.0.57", "0.0.59", "1.0.0"]
FEATURES = [name for name in demo.FEATURES if name != "slow"]

NO_RESUME = ("0.0.45", "0.0.47", "0.0.50", "0.0.53")
"""Generations whose ``runAgent`` cannot send ``resume``: a question is shown, and cannot be answered."""
NO_PATCHES = ("0.0.45", "0.0.47", "0.0.50")
"""Generations whose ES modules cannot apply a patch in Node: an activity stays as it began."""


class Matrix:
    """The report of all clients, and the server they talked to."""

    def __init__(self, server: Server, report: dict[str, Any]) -> None:
        self.server = server
        self.report = report

    def texts(self, generation: str, feature: str) -> list[str]:
        """The texts that the client holds of its assistant."""
        messages = self.report[generation][feature]["messages"]
        return [message["content"] for message in messages if message["role"] == "assistant" and message.get("content")]

    def types(self, generation: str, feature: str, run: int = 0) -> list[str]:
        return [event["type"] for event in self.report[generation][feature]["runs"][run]["events"]]


@pytest.fixture(scope="module")
def matrix() -> Iterator[Matrix]:
    pace, demo.PACE = demo.PACE, 0.001
    try:
        with serving(App(demo.agent, allow_anonymous=True, echo_input=True)) as server:
            asked = json.dumps({"url": server.url, "generations": GENERATIONS, "features": FEATURES})
            yield Matrix(server, json.loads(run_node("features.mjs", asked, folder=CLIENTS, timeout=600)))
    finally:
        demo.PACE = pace


@pytest.mark.parametrize("generation", GENERATIONS)
def test_no_client_fails_on_any_feature(matrix: Matrix, generation: str) -> None:
    failed = {
        feature: [run["failed"] for run in cell["runs"] if run["failed"] is not None]
        for feature, cell in matrix.report[generation].items()
    }
    lost = {"interrupt", "approval"} if generation in NO_RESUME else set[str]()
    assert {feature: why for feature, why in failed.items() if why and feature not in lost} == {}
    for feature in lost:
        assert matrix.report[generation][feature]["runs"][0]["failed"] is None
        assert all("interrupt_uncovered" in why for why in failed[feature])


@pytest.mark.parametrize("generation", GENERATIONS)
def test_every_feature_shows_what_it_should(matrix: Matrix, generation: str) -> None:
    report, texts = matrix.report[generation], matrix.texts
    assert len(texts(generation, "text")) == 2
    assert texts(generation, "tools")[0] == "It is 24 degrees in Lisbon and 11 in Oslo."
    assert texts(generation, "frontend")[0] == "Your front end answered: seven"
    assert texts(generation, "steps")[:2] == ["I search.", "I read."]
    assert "My team has spoken." in texts(generation, "subagents")
    assert "One of them is about golf." in texts(generation, "subagents")
    assert report["error"]["runs"][0]["error"] is not None
    assert report["state"]["state"] == {
        "n": 1,
        "recipe": {"title": "Soup", "ingredients": ["leek", "potato", "thyme"]},
    }
    assert "REASONING_MESSAGE_CONTENT" in matrix.types(generation, "reasoning")
    (plan,) = [message for message in report["activity"]["messages"] if message["role"] == "activity"]
    assert [step["done"] for step in plan["content"]["steps"]] == [generation not in NO_PATCHES] * 3


@pytest.mark.parametrize("generation", [one for one in GENERATIONS if one not in NO_RESUME])
def test_questions_are_answered(matrix: Matrix, generation: str) -> None:
    assert "It will be red." in matrix.texts(generation, "interrupt")
    assert "Sent to ada@example.com." in matrix.texts(generation, "approval")


@pytest.mark.parametrize("generation", GENERATIONS)
def test_an_image_result_is_text_for_0_x_and_stays_an_image_in_the_thread(matrix: Matrix, generation: str) -> None:
    (result,) = [one for one in matrix.report[generation]["image"]["messages"] if one["role"] == "tool"]
    if generation == "1.0.0":
        assert [part["type"] for part in result["content"]] == ["text", "image"]
    else:
        assert result["content"] == "A square.\n[image: image/png]"
    thread = matrix.server.get(f"/threads/{generation}-image").json()  # after the client has sent it back
    (stored,) = [message for message in thread["messages"] if message["role"] == "tool"]
    assert [part["type"] for part in stored["content"]] == ["text", "image"]


@pytest.mark.parametrize("generation", ["0.0.53", "0.0.57", "0.0.59", "1.0.0"])
def test_a_client_compacts_what_it_received(matrix: Matrix, generation: str) -> None:
    (run, *_) = matrix.report[generation]["state"]["runs"]
    states = [event for event in run["compacted"] if event["type"].startswith("STATE_")]
    assert states[-1]["snapshot"]["recipe"]["ingredients"] == ["leek", "potato", "thyme"]
