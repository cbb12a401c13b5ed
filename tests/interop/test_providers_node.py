"""The whole way: the official client, our server and provider, the official SDK, a model server by somebody else."""

from __future__ import annotations

import json
from contextlib import ExitStack
from typing import Any

import pytest
from model_server import PROVIDERS, agent_for, aimock, turn_fixtures
from node import run_node
from serving import serving

from aguila import App
from aguila.providers import tool

pytestmark = [
    pytest.mark.filterwarnings("ignore:Inheritance class AiohttpClientSession:DeprecationWarning"),
    pytest.mark.filterwarnings("ignore:FUNCTION_CALL is not a valid FinishReason:UserWarning"),
]

Told = list[dict[str, Any]]


def weather(city: str) -> str:
    """The weather in a city."""
    return f"{city}: 3 degrees"


@tool(needs_approval=True)
def pay(amount: float) -> str:
    """Pay an amount."""
    return f"paid {amount:g}"


@pytest.fixture(scope="module")
def all_told() -> dict[str, dict[str, Told]]:
    with ExitStack() as stack:
        mock = stack.enter_context(aimock(turn_fixtures()))
        apps = {name: App(agent_for(name, mock, tools=[weather, pay], instructions="Be brief.")) for name in PROVIDERS}
        urls = {name: stack.enter_context(serving(app)).url for name, app in apps.items()}
        return json.loads(run_node("providers.mjs", json.dumps({"urls": urls})))


@pytest.fixture(params=PROVIDERS)
def told(request: pytest.FixtureRequest, all_told: dict[str, dict[str, Told]]) -> dict[str, Told]:
    return all_told[request.param]


def contents(messages: list[dict[str, Any]], role: str) -> list[Any]:
    return [message.get("content") for message in messages if message["role"] == role]


def test_tools_are_run_and_the_next_turn_goes_on(told: dict[str, Told]) -> None:
    first, second = told["tools"]
    assert sorted(contents(first["messages"], "tool")) == ["Oslo: 3 degrees", "Rome: 3 degrees"]
    (caller,) = [message for message in first["messages"] if message.get("toolCalls")]
    assert len(caller["toolCalls"]) == 2  # parallel calls stay one message
    assert first["messages"][-1]["content"] == "That is done."
    assert second["messages"][-1]["content"] == "Hi there, friend!"
    assert second["outcome"] == {"type": "success"}


def test_an_approval_is_asked_for_answered_and_carried_out(told: dict[str, Told]) -> None:
    first, second = told["approval"]
    assert first["outcome"]["type"] == "interrupt"
    assert contents(first["messages"], "tool") == []
    assert contents(second["messages"], "tool") == ["paid 900"]
    assert second["messages"][-1]["content"] == "That is done."
    assert len([message for message in second["messages"] if message.get("toolCalls")]) == 1


def test_a_front_end_tool_is_left_to_the_client(told: dict[str, Told]) -> None:
    first, second = told["frontend"]
    assert first["outcome"]["type"] == "success"
    assert len(first["outcome"]["pendingToolCallIds"]) == 1
    assert second["messages"][-1]["content"] == "That is done."


def test_an_image_arrives(told: dict[str, Told]) -> None:
    (only,) = told["images"]
    assert only["messages"][-1]["content"] == "A single blue pixel."


def test_reasoning_is_kept_and_sent_again(told: dict[str, Told]) -> None:
    first, second = told["reasoning"]
    assert contents(first["messages"], "reasoning") == ["Let me think."]
    assert second["error"] is None
    assert second["messages"][-1]["content"] == "Hi there, friend!"
