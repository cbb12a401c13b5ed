"""The official client keeps the interrupt after a resumed run that failed, and our server accepts the answer again."""

from __future__ import annotations

import json
from typing import Any

import pytest
from faults.failing_agent import Failing
from processes.node import run_node
from serving import serving

from aguila import App


class PerThread:
    """An agent for each thread, which fails once."""

    def __init__(self) -> None:
        self.agents: dict[str, Failing] = {}

    async def __call__(self, run: Any) -> None:
        await self.agents.setdefault(run.thread_id, Failing(1))(run)


@pytest.fixture(scope="module", params=["client", "server"])
def played(request: pytest.FixtureRequest) -> tuple[dict[str, Any], PerThread]:
    agent = PerThread()
    with serving(App(agent, history=request.param)) as server:
        return json.loads(run_node("retrying.mjs", json.dumps({"url": server.url}))), agent


def contents(turn: dict[str, Any]) -> list[Any]:
    return [
        one["content"] for one in turn["messages"] if one["role"] in ("user", "assistant", "tool") and "content" in one
    ]


def test_the_client_keeps_the_question_when_the_run_fails(played: Any) -> None:
    for asked, failed, *_ in played[0]["answers"].values():
        assert (asked["ended"], failed["ended"]) == ("interrupt", "error agent_error")
        assert len(asked["pending"]) == 1
        assert failed["pending"] == asked["pending"]
        assert contents(failed) == ["Go", "Go: that ", "paid"]


def test_the_same_answer_gets_it_on_and_nothing_is_there_twice(played: Any) -> None:
    _, _, then, last = played[0]["answers"]["the same answer"]
    assert (then["ended"], then["pending"], then["state"]) == ("success", [], {"paid": True})
    assert contents(then) == ["Go", "Go: that is done.", "paid"]
    assert [one["content"] for one in then["messages"] if one["role"] == "reasoning"] == ["And now?"]
    assert last["ended"] == "interrupt"  # an ordinary run, which asks anew
    assert played[1].agents["the same answer"].paid == [5]


def test_given_up_it_is_free_again(played: Any) -> None:
    _, _, silent, then, last = played[0]["answers"]["given up"]
    assert silent["ended"].startswith("thrown ")  # its own check: the question has to be covered (INT-8)
    assert (then["ended"], then["pending"]) == ("cancelled", [])
    assert last["ended"] == "interrupt"
    assert played[1].agents["given up"].paid == [5]


def test_the_client_complains_of_nothing_but_the_run_that_it_did_not_begin(played: Any) -> None:
    assert [line for line in played[0]["console"] if "nterrupt" not in line] == []
