"""Published clients that resume as CopilotKit and pages for LangGraph do: under the run id of the run that asked."""

from __future__ import annotations

import json
from typing import Any

import pytest
from processes.node import CLIENTS, run_node
from serving import serving

from aguila import App

WITH_INTERRUPTS = ["0.0.57", "0.0.59", "1.0.0"]
WITHOUT = ["0.0.45", "0.0.53"]


class Paying:
    """Asks for approval, pays, and asks for a text; later sends the data of the payment."""

    def __init__(self) -> None:
        self.results: list[str] = []

    async def __call__(self, run: Any) -> Any:
        if run.messages[-1].content != "Pay":
            self.results = [str(one.content) for one in run.messages if one.role == "tool"]
            yield "That was all."
            return
        approval = await run.approve("pay", {"amount": 5})
        await approval.call.result("paid" if approval else "not paid")
        yield f"You say: {await run.ask('Anything to say?')}"


class Played:
    def __init__(self, generation: str) -> None:
        self.generation = generation
        self.agent = Paying()
        with serving(App(self.agent, langgraph_interrupts=True)) as server:
            asked = json.dumps({"url": server.url, "generation": generation})
            told = json.loads(run_node("resuming.mjs", asked, folder=CLIENTS))
            self.threads = {name: server.get(f"/threads/{name}").json() for name in ("standard", "legacy")}
        self.turns: list[dict[str, Any]] = told["turns"]
        self.legacy: list[dict[str, Any]] = told["legacy"]


@pytest.fixture(scope="module", params=WITH_INTERRUPTS)
def played(request: pytest.FixtureRequest) -> Played:
    return Played(request.param)


@pytest.fixture(scope="module", params=WITHOUT)
def played_without(request: pytest.FixtureRequest) -> Played:
    return Played(request.param)


def results(messages: list[dict[str, Any]]) -> list[str]:
    return [one["content"] for one in messages if one["role"] == "tool"]


def test_a_chain_of_questions_is_answered_under_one_run_id(played: Played) -> None:
    assert [turn["error"] for turn in played.turns] == [None] * 4
    assert [turn["runIds"] for turn in played.turns] == [["r1", "r1"]] * 3 + [["r2", "r2"]]
    asked = [[one["reason"] for one in turn["standard"] or ()] for turn in played.turns]
    assert asked == [["tool_call"], ["input_required"], [], []]
    stored = [run["runId"] for run in played.threads["standard"]["runs"]]
    assert (stored[0], stored[-1], len(set(stored))) == ("r1", "r2", 4)
    assert all(run_id.startswith("run_") for run_id in stored[1:-1])


def test_the_client_and_the_thread_have_the_servers_result_and_no_other(played: Played) -> None:
    for turn in played.turns[1:]:
        assert results(turn["messages"]) == ["paid"]
    assert results(played.threads["standard"]["messages"]) == ["paid"]
    assert played.agent.results == ["paid"]
    held = [(one["id"], one["role"]) for one in played.turns[-1]["messages"]]
    assert held == [(one["id"], one["role"]) for one in played.threads["standard"]["messages"]]


def test_each_question_is_announced_once_in_each_form(played: Played) -> None:
    """CopilotKit 1.74 takes the protocol's form if a run has both, so it shows one question."""
    for turn in played.turns:
        assert [json.loads(value) for value in turn["legacy"]] == (turn["standard"] or [])


def test_a_page_for_langgraph_answers_in_its_own_way(played_without: Played) -> None:
    assert [turn["error"] for turn in played_without.legacy] == [None] * 3
    assert [len(turn["legacy"]) for turn in played_without.legacy] == [1, 1, 0]
    assert [turn["runIds"] for turn in played_without.legacy] == [["r1", "r1"]] * 3
    thread = played_without.threads["legacy"]["messages"]
    assert results(thread) == ["paid"]
    assert thread[-1]["content"] == "You say: thanks"


def test_a_client_that_knows_the_question_runs_on_with_resume_only(played: Played) -> None:
    """INT-8, in the client: a page that sees the protocol's form has to answer in it, as CopilotKit 1.74 does."""
    asked, refused, *_ = played.legacy
    assert (asked["error"], len(asked["standard"]), refused["runIds"]) == (None, 1, [])
    assert refused["error"].startswith("thrown ")
    assert "nterrupt" in refused["error"]
