"""End to end: the official client, our server and provider, the official SDK, and a third-party model server."""

from __future__ import annotations

import base64
import json
from contextlib import ExitStack
from typing import Any

import pytest
from models.model_server import PROVIDERS, Json, Relay, agent_for, aimock, turn_fixtures
from processes.node import run_node
from serving import serving

from aguila import App
from aguila.chat import tool

pytestmark = [
    pytest.mark.filterwarnings("ignore:Inheritance class AiohttpClientSession:DeprecationWarning"),
    pytest.mark.filterwarnings("ignore:FUNCTION_CALL is not a valid FinishReason:UserWarning"),
]

Turns = list[dict[str, Any]]


def weather(city: str) -> str:
    """The weather in a city."""
    return f"{city}: 3 degrees"


@tool(needs_approval=True)
def pay(amount: float) -> str:
    """Pay an amount."""
    return f"paid {amount:g}"


@pytest.fixture(scope="module")
def all_turns() -> tuple[dict[str, dict[str, Turns]], dict[str, list[Json]]]:
    """The turns that the client received from each provider's agent, and the requests that the model received."""
    with ExitStack() as stack:
        mock = stack.enter_context(aimock(turn_fixtures()))
        models = {name: stack.enter_context(Relay(mock)) for name in PROVIDERS}
        made = {
            name: agent_for(name, models[name].url, tools=[weather, pay], instructions="Be brief.") for name in models
        }
        urls = {name: stack.enter_context(serving(App(agent))).url for name, agent in made.items()}
        turns = json.loads(run_node("providers.mjs", json.dumps({"urls": urls})))
        return turns, {name: model.requests for name, model in models.items()}


@pytest.fixture(params=PROVIDERS)
def provider(request: pytest.FixtureRequest) -> str:
    return request.param


@pytest.fixture
def turns(provider: str, all_turns: Any) -> dict[str, Turns]:
    return all_turns[0][provider]


@pytest.fixture
def arrived(provider: str, all_turns: Any) -> list[list[Json]]:
    """Return the conversation in each request that the model received."""
    member = {"openai responses": "input", "gemini": "contents"}.get(provider, "messages")
    return [[one for one in request[member] if one.get("role") != "system"] for request in all_turns[1][provider]]


def contents(messages: list[dict[str, Any]], role: str) -> list[Any]:
    return [message.get("content") for message in messages if message["role"] == role]


def test_tools_are_run_and_the_next_turn_goes_on(turns: dict[str, Turns]) -> None:
    first, second = turns["tools"]
    assert sorted(contents(first["messages"], "tool")) == ["Oslo: 3 degrees", "Rome: 3 degrees"]
    (caller,) = [message for message in first["messages"] if message.get("toolCalls")]
    assert len(caller["toolCalls"]) == 2  # parallel calls stay one message
    assert first["messages"][-1]["content"] == "That is done."
    assert second["messages"][-1]["content"] == "Hi there, friend!"
    assert second["outcome"] == {"type": "success"}


def test_an_approval_is_asked_for_answered_and_carried_out(turns: dict[str, Turns]) -> None:
    first, second = turns["approval"]
    assert first["outcome"]["type"] == "interrupt"
    assert contents(first["messages"], "tool") == []
    assert contents(second["messages"], "tool") == ["paid 900"]
    assert second["messages"][-1]["content"] == "That is done."
    assert len([message for message in second["messages"] if message.get("toolCalls")]) == 1


def test_a_front_end_tool_is_left_to_the_client(turns: dict[str, Turns]) -> None:
    first, second = turns["frontend"]
    assert first["outcome"]["type"] == "success"
    assert len(first["outcome"]["pendingToolCallIds"]) == 1
    assert second["messages"][-1]["content"] == "That is done."


def images(provider: str, message: Json) -> list[tuple[str, bytes]]:
    """Media type and bytes of the images in a message, as each provider's API spells them."""
    found: list[tuple[str, bytes]] = []
    for part in message["parts" if provider == "gemini" else "content"]:
        match part:
            case {"image_url": {"url": str(url)}} | {"type": "input_image", "image_url": str(url)}:
                media_type, _, data = url.removeprefix("data:").partition(";base64,")
            case {"source": {"type": "base64", "media_type": media_type, "data": data}}:
                pass
            case {"inlineData": {"mime_type": media_type, "data": data}}:
                pass
            case _:
                continue
        found.append((media_type, base64.b64decode(data)))
    return found


def test_an_image_arrives(provider: str, turns: dict[str, Turns], arrived: list[list[Json]]) -> None:
    (only,) = turns["images"]
    assert only["messages"][-1]["content"] == "A single blue pixel."
    (asked,) = [conversation for conversation in arrived if '"look"' in json.dumps(conversation[-1])]
    [(media_type, data)] = images(provider, asked[-1])
    (part,) = [part for part in only["messages"][0]["content"] if part["type"] == "image"]
    assert media_type == "image/png"
    assert data == base64.b64decode(part["source"]["value"])


def test_reasoning_is_kept_and_sent_again(provider: str, turns: dict[str, Turns], arrived: list[list[Json]]) -> None:
    first, second = turns["reasoning"]
    assert contents(first["messages"], "reasoning") == ["Let me think."]
    assert second["error"] is None
    assert second["messages"][-1]["content"] == "Hi there, friend!"
    (thought,) = [message for message in first["messages"] if message["role"] == "reasoning"]
    (again,) = [one for one in arrived if '"think"' in json.dumps(one[0]) and len(one) > 1]
    said = again[1:-1]
    match provider:
        case "openai responses":
            kept = json.loads(thought["encryptedValue"])
            assert said[0] == {
                "type": "reasoning",
                "id": kept["id"],
                "summary": [{"type": "summary_text", "text": "Let me think."}],
                "encrypted_content": kept["signature"],
            }
            assert kept["signature"] != ""
        case "anthropic":
            kept = json.loads(thought["encryptedValue"])
            block = {"type": "thinking", "thinking": "Let me think.", "signature": kept["signature"]}
            assert said[0]["content"] == [block, {"type": "text", "text": "42."}]
            assert kept["signature"] != ""
        case "openai chat":  # as the server sent it
            assert said == [{"role": "assistant", "content": "42.", "reasoning_content": "Let me think."}]
        case _:  # aimock signs no thoughts of Gemini
            assert said == [{"role": "model", "parts": [{"text": "Let me think.", "thought": True}, {"text": "42."}]}]
