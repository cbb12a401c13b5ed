"""THINKING_* and META of an agent, as three generations of ``@ag-ui/client`` read them in Node."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import pytest
from processes.commands import aguila_serve
from processes.node import CLIENTS, run_node

VERSIONS = ("0.0.40", "0.0.53", "1.0.0")

AGENT = """
from aguila import App
from aguila.protocol.legacy import (
    MetaEvent,
    ThinkingEndEvent,
    ThinkingStartEvent,
    ThinkingTextMessageContentEvent,
    ThinkingTextMessageEndEvent,
    ThinkingTextMessageStartEvent,
)


async def agent(run):
    yield ThinkingStartEvent(title="Birds")
    yield ThinkingTextMessageStartEvent()
    yield ThinkingTextMessageContentEvent(delta="Grey, ")
    yield ThinkingTextMessageContentEvent(delta="and tall.")
    yield ThinkingTextMessageEndEvent()
    yield ThinkingEndEvent()
    yield MetaEvent(meta_type="tag", payload={"color": "grey"})
    yield "A heron."


app = App(agent)
"""


@pytest.fixture(scope="module")
def seen(tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, Any]]:
    folder = tmp_path_factory.mktemp("founding")
    (folder / "mine.py").write_text(AGENT)
    with aguila_serve(folder, "mine:app") as server:
        yield {
            version: json.loads(
                run_node("founding.mjs", json.dumps({"url": server.url, "version": version}), folder=CLIENTS)
            )
            for version in VERSIONS
        }


def of_type(seen: dict[str, Any], *types: str) -> list[dict[str, Any]]:
    return [event for event in seen["events"] if event["type"] in types]


@pytest.mark.parametrize("version", VERSIONS)
def test_the_run_ends_in_order(seen: dict[str, Any], version: str) -> None:
    assert seen[version]["thrown"] is None
    assert of_type(seen[version], "RUN_FINISHED") != []
    assert seen[version]["messages"][-1]["content"] == "A heron."


@pytest.mark.parametrize("version", VERSIONS)
def test_a_thought_arrives_in_every_client(seen: dict[str, Any], version: str) -> None:
    family = "THINKING_TEXT" if version == "0.0.40" else "REASONING"
    deltas = of_type(seen[version], f"{family}_MESSAGE_CONTENT")
    assert "".join(event["delta"] for event in deltas) == "Grey, and tall."
    assert len(of_type(seen[version], "THINKING_START", "REASONING_START")) == 1
    assert len(of_type(seen[version], "THINKING_END", "REASONING_END")) == 1
    if version == "0.0.40":
        assert of_type(seen[version], "THINKING_START")[0]["title"] == "Birds"
    else:
        thoughts = [message["content"] for message in seen[version]["messages"] if message["role"] == "reasoning"]
        assert thoughts == ["Grey, and tall."]


@pytest.mark.parametrize("version", VERSIONS)
def test_a_side_note_arrives_in_every_client(seen: dict[str, Any], version: str) -> None:
    (note,) = of_type(seen[version], "CUSTOM")
    assert (note["name"], note["value"]) == ("meta:tag", {"color": "grey"})
