"""The examples whose agents are models, started as their docstrings say, with aimock for the model."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from builders import user_json
from models.model_server import Recorded, aimock, sse, stream
from processes.commands import example
from serving import REPOSITORY, check_valid, text_of

Json = dict[str, Any]

TRANSFER = [
    {"name": "balance", "arguments": "{}"},
    {"name": "transfer", "arguments": json.dumps({"amount": 900, "to": "the landlord"})},
]
FIXTURES: list[Json] = [
    {"match": {"userMessage": "debt", "hasToolResult": False}, "response": {"toolCalls": TRANSFER[1:]}},
    {"match": {"userMessage": "debt", "hasToolResult": True}, "response": {"content": "That is settled."}},
    {"match": {"userMessage": "rent", "hasToolResult": False}, "response": {"toolCalls": TRANSFER}},
    {"match": {"userMessage": "rent", "hasToolResult": True}, "response": {"content": "That is settled."}},
]


@pytest.fixture(autouse=True)
def model(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    with aimock(FIXTURES) as url:
        monkeypatch.setenv("OPENAI_BASE_URL", f"{url}/v1")
        monkeypatch.setenv("ANTHROPIC_BASE_URL", url)
        monkeypatch.setenv("OPENAI_API_KEY", "key")
        monkeypatch.setenv("ANTHROPIC_API_KEY", "key")
        yield


def results(events: list[Json]) -> list[str]:
    check_valid(events)
    return sorted(event["content"] for event in events if event["type"] == "TOOL_CALL_RESULT")


def test_14_openai_sdk(tmp_path: Path) -> None:
    with example("14_openai_sdk.py", tmp_path) as server:
        first = server.events(messages=[user_json("m1", "Settle the debt")])
        assert text_of(first) == ""
        (interrupt,) = first[-1]["outcome"]["interrupts"]
        resume = [{"interruptId": interrupt["id"], "status": "resolved", "payload": {"approved": True}}]
        second = server.events(run_id="r2", messages=[user_json("m1", "Settle the debt")], resume=resume)
    assert results(second) == ["Transferred 900 to the landlord."]
    assert text_of(second) == "That is settled."


def test_14_openai_sdk_keeps_texts_with_their_calls_and_survives_bad_answers(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    calls = [("c1", "nobody", {}), ("c2", "transfer", {"amount": 900, "to": "the landlord"})]
    cut = {"choices": [{"index": 0, "delta": {"content": "Whi"}, "finish_reason": None}]}
    answers = [stream("openai chat", text="A moment.", calls=calls), stream("openai chat", calls=calls[:1]), sse([cut])]
    with Recorded(answers) as recorded:
        monkeypatch.setenv("OPENAI_BASE_URL", f"{recorded.url}/v1")
        with example("14_openai_sdk.py", tmp_path) as server:
            first = server.events(messages=[user_json("m1", "Settle the debt")])
            (interrupt,) = first[-1]["outcome"]["interrupts"]
            resume = [{"interruptId": interrupt["id"], "status": "resolved", "payload": {"approved": True}}]
            second = server.events(run_id="r2", messages=[user_json("m1", "Settle the debt")], resume=resume)
    assert (text_of(first), text_of(second)) == ("A moment.", "Whi")
    assert (second[-1]["type"], second[-1]["message"]) == ("RUN_ERROR", "The model's answer broke off.")
    texts = [event for event in [*first, *second] if event["type"] == "TEXT_MESSAGE_START"]
    assert len(texts) == 2  # none for an answer that has only calls
    asked, _, last = recorded.requests
    assert asked["tools"][0]["function"]["description"] == "Transfer an amount to somebody."
    assert [message.get("content") for message in last["messages"]] == [
        "Settle the debt",
        "A moment.",
        "There is no tool 'nobody'.",
        "Transferred 900 to the landlord.",
        "",
        "There is no tool 'nobody'.",
    ]


@pytest.mark.parametrize(
    ("payload", "told"),
    [
        ({"approved": True}, "Transferred 900.0 to the landlord: transfer 1."),
        ({"approved": False}, "The user did not allow this call."),
        (
            {"approved": True, "editedArgs": {"amount": 850, "to": "the landlord"}},
            "Transferred 850.0 to the landlord: transfer 1.",
        ),
    ],
)
def test_15_model_with_approval(tmp_path: Path, payload: Json, told: str) -> None:
    with example("15_model_with_approval.py", tmp_path) as server:
        first = server.events(messages=[user_json("m1", "Pay the rent")])
        assert results(first) == ["1200"]
        (interrupt,) = first[-1]["outcome"]["interrupts"]
        resume = [{"interruptId": interrupt["id"], "status": "resolved", "payload": payload}]
        second = server.events(run_id="r2", messages=[user_json("m1", "Pay the rent")], resume=resume)
    assert results(second) == [told]
    assert text_of(second) == "That is settled."


@pytest.mark.parametrize("name", ["14_openai_sdk.py", "15_model_with_approval.py"])
def test_they_are_short(name: str) -> None:
    assert len((REPOSITORY / "examples" / name).read_text().splitlines()) <= 80
