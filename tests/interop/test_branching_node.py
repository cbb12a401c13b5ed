"""The official client, in Node, branches by cutting off the end of its history: the agent sees exactly that branch."""

from __future__ import annotations

import json
from typing import Any

import pytest
from processes.node import run_node
from serving import serving

from aguila import App, Client

SEEN = {
    "r1": ["one"],
    "r2": ["one", "answer of r1", "two"],
    "r3": ["one", "answer of r1", "two", "answer of r2", "three"],
    "r4": ["one", "answer of r1", "from the first"],
    "r5": ["one", "answer of r1", "two", "answer of r2", "from the second"],
    "r6": ["one", "answer of r1", "two", "answer of r2", "three"],
    "r7": ["one", "answer of r1", "two, edited"],
    "r8": ["one, edited"],
    "r9": ["one", "answer of r1", "two", "answer of r2", "three", "answer of r3", "from the third"],
}
PARENTS = {
    "r1": None, "r2": "r1", "r3": "r2", "r4": "r1", "r5": "r2", "r6": "r2", "r7": "r1", "r8": None, "r9": "r3",
}  # fmt: skip


@pytest.mark.parametrize("history", ["client", "server"])
def test_the_official_client_branches_by_a_cut_history(store: Any, history: Any) -> None:
    seen: dict[str, list[Any]] = {}

    async def agent(run: Any) -> None:
        seen[run.run_id] = [message.content for message in run.messages]
        await run.say(f"answer of {run.run_id}")

    with serving(App(agent, store=store, history=history, allow_anonymous=True)) as server:
        played = json.loads(run_node("branching.mjs", json.dumps({"url": server.url})))
        assert played["console"] == []
        assert seen == SEEN
        with Client(server.url) as client:
            thread = client.thread("t")
            assert {run.run_id: run.parent_run_id for run in thread.branches().runs} == PARENTS
            for run_id, held in played["history"].items():
                branch = [message.content for message in thread.branch(run_id).messages]
                assert branch == [message["content"] for message in held]
                assert branch == [*SEEN[run_id], f"answer of {run_id}"]
