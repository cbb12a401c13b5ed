"""The official client, in Node, against a real server with the demo agent: every feature, a quiet console."""

from __future__ import annotations

import json
from typing import Any

import pytest
from processes.commands import aguila_serve
from processes.node import run_node

from aguila.cli.demo import A2UI_CATALOG, FEATURES

FORMS = ["", "binary "]
LAST_WORDS = {
    "text": "An agent writes text through its run, piece by piece, and everybody who watches sees it grow.",
    "tools": "It is 24 degrees in Lisbon and 11 in Oslo.",
    "state": "Now with thyme.",
    "reasoning": "The answer is 42.",
    "activity": "The plan is done.",
    "steps": "I read.",
    "subagents": "My team has spoken.",
    "generative": "Three ways to say what to draw.",
    "image": "I drew a blue square.",
}

Played = dict[str, Any]


@pytest.fixture(scope="module", params=["client", "server"])
def played(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Played:
    """The report of the script, with the history on either side."""
    options = ("aguila.cli.demo:agent", "--history", request.param)
    with aguila_serve(tmp_path_factory.mktemp("served"), *options) as server:
        return json.loads(run_node("client.mjs", json.dumps({"url": server.url})))


@pytest.fixture(scope="module")
def scenarios(played: Played) -> Played:
    thrown = {name: turns["thrown"] for name, turns in played["scenarios"].items() if "thrown" in turns}
    assert thrown == {}
    return played["scenarios"]


def types(turns: Played) -> list[str]:
    return [event["type"] for event in turns["events"]]


def of_type(turns: Played, *wanted: str) -> list[Played]:
    return [event for event in turns["events"] if event["type"] in wanted]


def last_text(turns: Played) -> str:
    return turns["messages"][-1]["content"]


def message(turns: Played, role: str) -> Played:
    return next(one for one in turns["newMessages"] if one["role"] == role)


def test_the_client_has_nothing_to_say_on_its_console(played: Played) -> None:
    assert played["console"] == []


def test_every_feature_of_the_demo_is_played(scenarios: Played) -> None:
    assert set(FEATURES) - {"slow"} <= set(scenarios)
    assert "stop and go on" in scenarios  # the purpose of slow


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("feature", LAST_WORDS)
def test_the_client_takes_the_feature(scenarios: Played, form: str, feature: str) -> None:
    turns = scenarios[form + feature]
    assert turns["outcome"]["outcome"] == "success"
    assert (turns["error"], turns["failed"]) == (None, None)
    assert last_text(turns) == LAST_WORDS[feature]


@pytest.mark.parametrize("form", FORMS)
def test_the_client_receives_the_events_of_the_feature(scenarios: Played, form: str) -> None:
    def turns(feature: str) -> Played:
        return scenarios[form + feature]

    assert all(f"- {keyword}: " in last_text(turns("help")) for keyword in FEATURES)
    usage = {"provider": "demo", "model": "words", "inputTokens": 3, "outputTokens": 19}
    assert of_type(turns("text"), "RUN_FINISHED")[0]["usage"] == [usage]
    calls = of_type(turns("tools"), "TOOL_CALL_START", "TOOL_CALL_END")
    assert [call["type"] for call in calls] == ["TOOL_CALL_START"] * 2 + ["TOOL_CALL_END"] * 2
    results = [one["content"] for one in turns("tools")["newMessages"] if one["role"] == "tool"]
    assert results == ['{"city":"Lisbon","degrees":24}', '{"city":"Oslo","degrees":11}']
    assert turns("state")["state"] == {"recipe": {"title": "Soup", "ingredients": ["leek", "potato", "thyme"]}}
    assert types(turns("state")).count("STATE_SNAPSHOT") == 1
    assert types(turns("state")).count("STATE_DELTA") == 3
    thought = message(turns("reasoning"), "reasoning")
    assert (thought["content"], thought["encryptedValue"]) == ("Six times seven: six sevens are forty-two.", "c2VhbGVk")
    assert all(step["done"] for step in message(turns("activity"), "activity")["content"]["steps"])
    assert types(turns("activity")).count("ACTIVITY_DELTA") == 3
    ends = [event["metadata"]["aguila"] for event in of_type(turns("steps"), "STEP_FINISHED")]
    assert ends[0] == {"status": "completed", "result": {"found": 1}}
    team = of_type(turns("subagents"), "SUBAGENT_STARTED", "SUBAGENT_FINISHED")
    assert [event["type"] for event in team] == ["SUBAGENT_STARTED"] * 2 + ["SUBAGENT_FINISHED"] * 2
    surface = message(turns("generative"), "activity")["content"]["a2ui_operations"]
    assert surface[0] == {"version": "v0.9", "createSurface": {"surfaceId": "flight", "catalogId": A2UI_CATALOG}}
    assert of_type(turns("generative"), "CUSTOM")[0]["value"]["type"] == "open-json-ui"
    assert '"uri":"ui://demo/chart"' in message(turns("generative"), "tool")["content"]


@pytest.mark.parametrize("form", FORMS)
def test_images_go_in_inline_and_uploaded_and_come_out_of_a_tool(scenarios: Played, form: str) -> None:
    turns = scenarios[f"{form}image"]
    said = [one["content"] for one in turns["newMessages"] if one["role"] == "assistant" and "content" in one]
    assert said[:2] == ["You sent a PNG image, 1 by 1, of 70 bytes."] * 2
    text, image = message(turns, "tool")["content"]
    assert text == {"type": "text", "text": "A square."}
    assert image["source"]["mimeType"] == "image/png"


@pytest.mark.parametrize("form", FORMS)
def test_a_failing_agent_is_a_run_error_with_a_reference_and_no_internals(scenarios: Played, form: str) -> None:
    turns = scenarios[f"{form}error"]
    assert turns["error"]["code"] == "agent_error"
    assert turns["error"]["message"].startswith("The agent failed. Reference: ")
    assert last_text(turns) == "I am about to fail."


@pytest.mark.parametrize("form", FORMS)
def test_a_front_end_tool_is_left_to_the_client_whose_answer_goes_back(scenarios: Played, form: str) -> None:
    first, then = scenarios[f"{form}frontend"]["first"], scenarios[f"{form}frontend"]["then"]
    (call,) = message(first, "assistant")["toolCalls"]
    assert call["function"] == {"name": "pick_date", "arguments": '{"month":"demo"}'}
    assert first["outcome"] == {"outcome": "success", "pendingToolCallIds": [call["id"]]}
    assert last_text(then) == "Your front end answered: the 3rd of May"


@pytest.mark.parametrize("form", FORMS)
def test_an_interrupt_is_answered_and_the_run_goes_on_where_it_stopped(scenarios: Played, form: str) -> None:
    turns = scenarios[f"{form}interrupt"]
    assert turns["first"]["outcome"]["outcome"] == "interrupt"
    assert [one["content"] for one in turns["then"]["newMessages"]] == ["It will be green."]
    assert turns["pending"] == []
    assert last_text(turns["last"]) == LAST_WORDS["text"]


@pytest.mark.parametrize("form", FORMS)
def test_an_interrupt_can_be_given_up(scenarios: Played, form: str) -> None:
    assert last_text(scenarios[f"{form}interrupt cancelled"]["then"]) == "Then I choose for you: blue."


@pytest.mark.parametrize("form", FORMS)
def test_an_approval_takes_edits_and_refusals(scenarios: Played, form: str) -> None:
    turns = scenarios[f"{form}approval"]
    (call,) = message(turns["first"], "assistant")["toolCalls"]
    (interrupt,) = turns["first"]["outcome"]["interrupts"]
    assert (interrupt["reason"], interrupt["toolCallId"]) == ("tool_call", call["id"])
    result = message(turns["then"], "tool")
    assert result["toolCallId"] == call["id"]
    assert json.loads(result["content"]) == {"sent": True, "to": "grace@example.com", "subject": "Owls"}
    refused = scenarios[f"{form}approval refused"]["then"]
    assert message(refused, "tool")["content"] == "The user refused."
    assert last_text(refused) == "Nothing was sent."


def test_the_transport_is_the_one_that_was_asked_for(scenarios: Played) -> None:
    for feature in LAST_WORDS:
        assert set(scenarios[feature]["types"]) == {"text/event-stream"}
        assert set(scenarios[f"binary {feature}"]["types"]) == {"application/vnd.ag-ui.event+proto"}


@pytest.mark.parametrize("form", FORMS)
def test_a_client_stops_by_hanging_up_and_goes_on_at_once(scenarios: Played, form: str) -> None:
    stopped, then = scenarios[f"{form}stop and go on"]["stopped"], scenarios[f"{form}stop and go on"]["then"]
    assert stopped["outcome"] is None
    assert (stopped["failed"] or stopped["error"]["message"]).endswith("This operation was aborted")
    # Events in transit may be applied or not, which are many on a busy machine, but not the whole answer.
    assert last_text(stopped).startswith("1 2")
    assert not last_text(stopped).endswith("300")
    assert then["outcome"]["outcome"] == "success"
    assert last_text(then) == LAST_WORDS["text"]


def test_a_client_that_joins_later_has_the_same_conversation_and_can_answer(scenarios: Played) -> None:
    turns = scenarios["join after the end"]
    assert turns["joined"]["messages"] == turns["last"]["messages"]
    assert turns["joined"]["state"] == turns["last"]["state"] != {}
    assert turns["joined"]["outcome"] == turns["last"]["outcome"]
    assert last_text(turns["then"]) == "It will be red."


def test_a_client_that_joins_after_a_failure_sees_it_and_can_go_on(scenarios: Played) -> None:
    turns = scenarios["join after a failure"]
    assert turns["joined"]["messages"] == turns["first"]["messages"]
    (failed,), (seen,) = of_type(turns["first"], "RUN_ERROR"), of_type(turns["joined"], "RUN_ERROR")
    assert (seen["message"], seen["code"]) == (failed["message"], failed["code"])
    assert types(turns["joined"])[-1] == "RUN_ERROR"
    assert turns["joined"]["failed"] is None  # it throws nothing
    assert last_text(turns["then"]) == LAST_WORDS["text"]


def test_a_client_that_joins_a_run_sees_its_rest_and_has_what_the_first_one_has(scenarios: Played) -> None:
    watched, joined = scenarios["join while it runs"]["watched"], scenarios["join while it runs"]["joined"]
    assert watched["outcome"] == joined["outcome"] == {"outcome": "cancelled"}
    assert joined["messages"] == watched["messages"]
    assert types(joined)[:3] == ["RUN_STARTED", "STATE_SNAPSHOT", "MESSAGES_SNAPSHOT"]
