"""TanStack AI's client (``@tanstack/ai-client``) against ``aguila serve`` and the demo agent, in Node."""

from __future__ import annotations

import json
import math
import random
import struct
from collections.abc import Iterator
from itertools import groupby
from pathlib import Path
from typing import Any

import pytest
from processes.commands import aguila_serve
from processes.node import INTEROP, run_node

from aguila.server.frontends.tanstack.events import to_canonical_json

FOLDER = INTEROP / "tanstack"


@pytest.fixture(scope="module", params=["client", "server"])
def answers(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, Any]]:
    options = ("aguila.cli.demo:agent", "--history", request.param)
    with aguila_serve(tmp_path_factory.mktemp("tanstack"), *options) as server:
        yield json.loads(run_node("client.mjs", json.dumps({"url": server.url}), folder=FOLDER))


def parts(shown: dict[str, Any], type_: str) -> list[dict[str, Any]]:
    return [part for message in shown["messages"] for part in message["parts"] if part["type"] == type_]


def last_text(shown: dict[str, Any]) -> str:
    return parts(shown, "text")[-1]["content"]


def test_text_state_steps_activities_and_subagents_are_shown_as_text(answers: dict[str, Any]) -> None:
    for feature, words in (
        ("text", "An agent writes text through its run, piece by piece, and everybody who watches sees it grow."),
        ("state", "Now with thyme."),
        ("steps", "I read."),
        ("activity", "The plan is done."),
        ("subagents", "My team has spoken."),
        ("generative", "Three ways to say what to draw."),
    ):
        assert last_text(answers[feature]) == words
        assert answers[feature]["status"] == "ready"
        assert answers[feature]["errors"] == []
    assert [part["content"] for part in parts(answers["subagents"], "text")[1:3]] == [
        "I found two papers about eagles.",
        "One of them is about golf.",
    ]


def test_tool_calls_have_arguments_and_results(answers: dict[str, Any]) -> None:
    calls = parts(answers["tools"], "tool-call")
    assert {(call["input"]["city"], call["output"]["degrees"], call["state"]) for call in calls} == {
        ("Lisbon", 24, "complete"),
        ("Oslo", 11, "complete"),
    }
    assert last_text(answers["tools"]) == "It is 24 degrees in Lisbon and 11 in Oslo."


def test_reasoning_is_a_thinking_part_with_its_signature(answers: dict[str, Any]) -> None:
    (thought,) = parts(answers["reasoning"], "thinking")
    assert (thought["content"], thought["signature"]) == ("Six times seven: six sevens are forty-two.", "c2VhbGVk")
    assert last_text(answers["reasoning"]) == "The answer is 42."


def test_images_arrive_and_come_back(answers: dict[str, Any]) -> None:
    assert parts(answers["image"], "text")[1]["content"] == "You sent a PNG image, 1 by 1, of 70 bytes."
    (call,) = parts(answers["image"], "tool-call")
    assert call["state"] == "complete"
    assert [part["type"] for part in call["output"]] == ["text", "image"]
    assert answers["after image"]["errors"] == []  # the client has sent what it made of it
    assert last_text(answers["after image"]).startswith("An agent writes")


def test_a_failed_run_is_an_error(answers: dict[str, Any]) -> None:
    assert answers["error"]["status"] == "error"
    assert answers["error"]["errors"][0].startswith("The agent failed. Reference: ")


@pytest.mark.parametrize("name", ["client tool", "client tool, cut"])
def test_a_client_tool_runs_once_and_its_result_goes_back(answers: dict[str, Any], name: str) -> None:
    shown = answers[name]
    assert shown["calls"] == [{"hint": "demo"}]
    assert last_text(shown) == 'Your front end answered: {"colour":"green"}'
    assert shown["errors"] == []
    if name.endswith("cut"):
        assert shown["seen"][1] is not None  # it did come back with a cursor


def test_a_question_is_answered_or_cancelled(answers: dict[str, Any]) -> None:
    for name, words in (
        ("interrupt", "It will be red."),
        ("interrupt, cancelled", "Then I choose for you: blue."),
    ):
        (interrupt,) = answers[name]["asked"]["interrupts"]
        assert (interrupt["message"], interrupt["canResolve"]) == ("Which colour shall it have?", True)
        assert last_text(answers[name]["answered"]) == words
        assert answers[name]["answered"]["errors"] == []


def test_a_call_is_approved_with_edited_arguments(answers: dict[str, Any]) -> None:
    (interrupt,) = answers["approval"]["asked"]["interrupts"]
    assert interrupt["canResolve"] is True
    (call,) = parts(answers["approval"]["answered"], "tool-call")
    assert call["output"] == {"sent": True, "to": "bob@example.com", "subject": "Owls"}
    assert last_text(answers["approval"]["answered"]) == "Sent to bob@example.com."


def test_the_thread_keeps_its_own_messages_however_the_client_sends_them_back(answers: dict[str, Any]) -> None:
    before, after = answers["approval"]["before"]["messages"], answers["approval"]["after"]["messages"]
    assert after[: len(before)] == before
    ids = [call["id"] for message in after for call in message.get("toolCalls", ())]
    assert len(ids) == len(set(ids)) == 3
    assert sorted(message["toolCallId"] for message in after if message["role"] == "tool") == sorted(ids)
    roles = " ".join(message["role"] for message in after[len(before) :])
    assert [sorted(turn.split()) for turn in roles.split("user")[1:]] == [
        ["assistant", "assistant", "assistant", "tool", "tool"],
        ["assistant", "reasoning"],
        ["assistant", "assistant", "assistant"],
        ["assistant"],
    ]
    assert answers["approval"]["errors"] == []


def test_another_tab_shows_the_same_messages_and_can_answer(answers: dict[str, Any]) -> None:
    before, hydrated, answered = (answers["hydrate"][name] for name in ("before", "hydrated", "answered"))
    assert [(one["id"], one["role"]) for one in hydrated["messages"]] == [
        (one["id"], one["role"]) for one in before["messages"]
    ]
    for type_ in ("text", "tool-call"):
        assert parts(hydrated, type_) == parts(before, type_)
    assert hydrated["interrupts"] == before["interrupts"]
    assert last_text(answered) == "It will be pink."
    newest, both = answers["pages"]["newest"], answers["pages"]["both"]
    assert len(newest) == 1
    assert both[1:] == newest
    assert answers["fresh"]["status"] == "ready"


def test_a_run_that_is_on_is_joined_and_followed_to_its_end(answers: dict[str, Any]) -> None:
    found = answers["join"]
    assert last_text(found["joined"]).startswith("1 2 3 4 5 6 7")
    assert found["cancelled"] == 202
    assert [one["id"] for one in found["second"]["messages"]] == [one["id"] for one in found["first"]["messages"]]
    assert last_text(found["second"]) == last_text(found["first"])
    assert found["second"]["errors"] == []


def test_two_cuts_lose_nothing(answers: dict[str, Any]) -> None:
    whole, cut, seen = (answers["cuts"][name] for name in ("whole", "cut", "seen"))
    assert len(seen) == 3
    assert [one["lastEventId"] is None for one in seen] == [True, False, False]
    assert parts(cut, "text")[1:] == parts(whole, "text")[1:]
    # How many deltas were merged depends on the machine.
    assert [kind for kind, _ in groupby(cut["chunks"])] == [kind for kind, _ in groupby(whole["chunks"])]
    assert cut["errors"] == []


def test_numbers_are_written_as_javascript_writes_them() -> None:
    chance = random.Random(11)
    patterns = [struct.unpack(">d", chance.randbytes(8))[0] for _ in range(2_000)]
    scaled = [chance.choice((-1, 1)) * chance.random() * 10.0 ** chance.randint(-10, 25) for _ in range(2_000)]
    powers = [10.0**power for power in range(-30, 30)]
    whole = [chance.randint(-(2**70), 2**70) for _ in range(500)]
    numbers = [number for number in (*patterns, *scaled, *powers, *whole, 0, -0.0) if math.isfinite(number)]
    assert to_canonical_json(numbers) == run_node("numbers.mjs", json.dumps(numbers), folder=FOLDER)


def test_the_lock_file_names_no_registry() -> None:
    assert '"resolved"' not in Path(FOLDER / "package-lock.json").read_text()
