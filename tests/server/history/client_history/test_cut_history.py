"""A stock client that cuts off the end of its history starts a branch; other omissions do not."""

from __future__ import annotations

import asyncio
import random
import time
from contextlib import ExitStack
from functools import partial
from typing import Any

import pytest
from builders import user_json
from serving import Background, Held, serving, text_of
from waiting import wait_until

from aguila import App
from aguila.codec import decode, encode
from aguila.server import Trust
from aguila.store import SQLiteStore, ThreadRecord, Want
from aguila.stream import Lineage

Json = dict[str, Any]


@pytest.fixture(params=["client", "server"])
def history(request: pytest.FixtureRequest) -> Any:
    return request.param


class Seen:
    """An agent that notes the messages it sees, and answers with their number."""

    def __init__(self) -> None:
        self.inputs: list[list[Any]] = []

    async def __call__(self, run: Any) -> None:
        self.inputs.append([message.content for message in run.messages])
        run.state = {"last": run.run_id}
        if run.user_text.startswith("ask"):
            await run.ask("Sure?")
        await run.say(f"answer of {run.run_id}")


def answer_of(events: list[Json], run_id: str) -> Json:
    answer = next(event["messageId"] for event in events if event["type"] == "TEXT_MESSAGE_START")
    return {"id": answer, "role": "assistant", "content": f"answer of {run_id}"}


def turn(server: Any, run_id: str, before: list[Json], *new: Json, **more: Any) -> list[Json]:
    """Run the agent with a history; return the history after the run."""
    events = server.events(run_id=run_id, messages=[*before, *new], **more)
    assert "parentRunId" not in events[0]
    return [*before, *new, answer_of(events, run_id)]


def count_admitted(app: App) -> int:
    assert app._service is not None
    return app._service.runs.admission.total


def parents(server: Any) -> dict[str, str | None]:
    return {run["runId"]: run["parentRunId"] for run in server.get("/threads/thread").json()["runs"]}


def contents(messages: list[Json]) -> list[Any]:
    return [message["content"] for message in messages]


@pytest.mark.parametrize("seed", range(4))
def test_the_agent_the_routes_and_the_lineage_see_the_branch_of_a_cut_history(
    store: Any, history: Any, seed: int
) -> None:
    rng = random.Random(seed)
    agent = Seen()
    with serving(App(agent, store=store, history=history)) as server:
        branches: dict[str, list[Json]] = {}
        tree: dict[str, str | None] = {}
        for number in range(10):
            run_id, new = f"r{number}", [user_json(f"u{number}", f"question {number}")]
            base, before = None, []
            if branches:
                base = rng.choice([*branches, None])
                whole = branches[base or rng.choice([*branches])]
                before = whole if base is not None else []
                kind = rng.choice(["new", "regenerate", "edit"]) if base is not None else "edit"
                if kind != "new":  # the last turn of a branch, or its first one
                    before = whole[:-2] if base is not None else []
                    question = whole[len(before)]
                    new = [question if kind == "regenerate" else {**question, "content": f"edited in {number}"}]
                    path = next(one for one, messages in branches.items() if messages is whole)
                    base = tree[path] if base is not None else None
            branches[run_id] = turn(server, run_id, before, *new)
            tree[run_id] = base
            assert agent.inputs[-1] == contents([*before, *new])
        found = server.get("/threads/thread").json()
        stored = {run["runId"]: run["parentRunId"] for run in found["runs"]}
        with server.stream("GET", "/threads/thread/events") as stream:
            events = [decode(encode(event)) for event in stream.rest()]
        lineage = Lineage(events, parents={run: parent for run, parent in stored.items() if parent is not None})
        assert {run.run_id: run.parent_run_id for run in lineage.runs} == tree
        for run_id, expected in branches.items():
            view = server.get(f"/threads/thread?run={run_id}").json()
            assert contents(view["messages"]) == contents(expected)
            assert view["state"] == {"last": run_id}
            path = lineage.path(run_id)
            answers = [f"answer of {one}" for one in path]
            said = [message.content for message in lineage.reduce_along(run_id).messages]
            assert said == answers
            if len({message["id"] for message in expected}) == len(expected):
                assert [one for one in contents(expected) if str(one).startswith("answer")] == answers


def test_a_history_that_is_not_cut_continues_the_latest_run(store: Any, history: Any) -> None:
    agent = Seen()
    system = {"id": "s", "role": "system", "content": "Be nice."}
    with serving(App(agent, store=store, history=history, trust=Trust(system_messages=True))) as server:
        first = turn(server, "r1", [system], user_json("u1", "one"))
        whole = turn(server, "r2", first, user_json("u2", "two"))
        turn(server, "r3", whole[3:], user_json("u3", "a trimmed head"))
        server.events(run_id="r4", messages=[user_json("u4", "no known message")])
        server.events(run_id="r5", messages=[system, user_json("u5", "no known message but the system's")])
        assert set(parents(server).values()) == {None}


def test_a_cut_history_is_a_branch_also_for_another_process(tmp_path: Any, history: Any) -> None:
    path = tmp_path / "threads.db"
    with serving(App(Seen(), store=path, history=history)) as server:
        first = turn(server, "r1", [], user_json("u1", "one"))
        turn(server, "r2", first, user_json("u2", "two"))
    agent = Seen()
    with serving(App(agent, store=path, history=history)) as server:
        turn(server, "r3", first, user_json("u3", "three"))
        assert agent.inputs == [["one", "answer of r1", "three"]]
        assert parents(server) == {"r1": None, "r2": None, "r3": "r1"}


def test_activities_and_reasoning_that_are_not_resent_make_no_branch(store: Any, history: Any) -> None:
    async def agent(run: Any) -> None:
        async with run.reasoning() as thought:
            await thought.write("Hm.")
        await run.say("Yes.")
        await run.activity("PLAN", {"steps": 1})
        async with run.reasoning() as thought:
            await thought.write("Done.")

    with serving(App(agent, store=store, history=history)) as server:
        server.events(run_id="r1", messages=[user_json("u1", "one")])
        held = [one for one in server.get("/threads/thread").json()["messages"] if one["role"] in ("user", "assistant")]
        assert len(held) == 2
        server.events(run_id="r2", messages=[*held, user_json("u2", "two")])
        assert parents(server) == {"r1": None, "r2": None}


def test_a_message_within_a_run_is_a_cut_end(store: Any, history: Any) -> None:
    inputs: list[Any] = []

    async def agent(run: Any) -> None:
        inputs.append([message.content for message in run.messages])
        await run.say(f"first of {run.run_id}")
        await run.say(f"second of {run.run_id}")

    with serving(App(agent, store=store, history=history)) as server:
        server.events(run_id="r1", messages=[user_json("u1", "one")])
        first = server.get("/threads/thread").json()["messages"]
        server.events(run_id="r2", messages=[*first, user_json("u2", "two")])
        second = server.get("/threads/thread").json()["messages"]
        server.events(run_id="r3", messages=[*second[:-1], user_json("u3", "three")])
        assert inputs[-1] == ["one", "first of r1", "second of r1", "two", "first of r2", "three"]
        assert parents(server)["r3"] == "r1"
        assert contents(server.get("/threads/thread").json()["messages"])[:6] == inputs[-1]


def test_interrupts_are_judged_on_the_branch_of_a_cut_history(store: Any, history: Any) -> None:
    agent = Seen()
    with serving(App(agent, store=store, history=history)) as server:
        first = turn(server, "r1", [], user_json("u1", "one"))
        asked = server.events(run_id="r2", messages=[*first, user_json("u2", "ask two")])
        question = asked[-1]["outcome"]["interrupts"][0]["id"]
        # The other branch has no question to answer.
        turn(server, "r3", first, user_json("u3", "three"))
        assert parents(server)["r3"] == "r1"
        # The question is still open on its branch, and its client answers it there.
        resume = [{"interruptId": question, "status": "resolved", "payload": True}]
        answered = server.events(run_id="r4", messages=[*first, user_json("u2", "ask two")], resume=resume)
        assert text_of(answered) == "answer of r4"
        assert parents(server)["r4"] == "r2"
        assert agent.inputs[-1] == ["one", "answer of r1", "ask two"]
        with server.run(run_id="r5", messages=[*first, user_json("u5", "five")], resume=resume) as again:
            assert again.status in (409, 422)


def test_a_message_that_waited_for_a_run_continues_it(store: Any, history: Any) -> None:
    agent = Held()
    one = user_json("u1", "one")
    app = App(agent, store=store, history=history, busy="queue")
    with serving(app) as server:
        with server.run(run_id="r1", messages=[one]) as first:
            agent.gate("r1").await_reached()
            agent.gate("r2").open()
            with Background(lambda: server.events(run_id="r2", messages=[one, user_json("u2", "two")])) as second:
                wait_until(lambda: count_admitted(app) == 2)
                agent.gate("r1").open()
                first.rest()
                second.result()
        assert parents(server) == {"r1": None, "r2": None}


def test_setting_the_clock_back_does_not_change_which_run_a_queued_message_continues(
    tmp_path: Any, history: Any
) -> None:
    step = 0.0
    store = SQLiteStore(tmp_path / "threads.db", clock=lambda: time.time() + step)
    agent = Held()
    one = user_json("u1", "one")
    app = App(agent, store=store, history=history, busy="queue")
    with serving(app) as server:
        with server.run(run_id="r1", messages=[one]) as first, ExitStack() as stack:
            agent.gate("r1").await_reached()
            waiting = []
            for number in (2, 3):
                run_id, messages = f"r{number}", [one, user_json(f"u{number}", "more")]
                agent.gate(run_id).open()
                send = partial(server.events, run_id=run_id, messages=messages)
                waiting.append(stack.enter_context(Background(send)))
                wait_until(lambda count=number: count_admitted(app) == count)
            step = -3600.0
            agent.gate("r1").open()
            first.rest()
            for one_waiting in waiting:
                one_waiting.result()
        assert parents(server) == {"r1": None, "r2": None, "r3": None}


class LateSummaries(SQLiteStore):
    """A store whose summaries of threads arrive only after ``is_late`` is cleared."""

    is_late = False

    async def thread(self, scope: str, thread_id: str, want: Want = Want()) -> ThreadRecord:  # noqa: B008
        while self.is_late and want == Want():  # noqa: ASYNC110 - the test sets it from another thread
            await asyncio.sleep(0.01)
        return await super().thread(scope, thread_id, want)


def test_a_queued_message_continues_the_run_before_although_the_store_answers_after_that_run(
    tmp_path: Any, history: Any
) -> None:
    store = LateSummaries(tmp_path / "threads.db")
    agent, one = Held(), user_json("u1", "one")
    app = App(agent, store=store, history=history, busy="queue")
    with serving(app) as server, server.run(run_id="r1", messages=[one]) as first, ExitStack() as stack:
        agent.gate("r1").await_reached()
        store.is_late = True
        waiting = []
        for number in (2, 3):
            run_id, messages = f"r{number}", [one, user_json(f"u{number}", "more")]
            agent.gate(run_id).open()
            waiting.append(stack.enter_context(Background(partial(server.events, run_id=run_id, messages=messages))))
            wait_until(lambda count=number: count_admitted(app) == count)
        agent.gate("r1").open()
        first.rest()
        waiting[0].result()
        store.is_late = False
        waiting[1].result()
        assert parents(server) == {"r1": None, "r2": None, "r3": None}


def test_a_client_with_answer_ids_of_its_own_continues_the_latest_run(store: Any, history: Any) -> None:
    agent = Seen()
    with serving(App(agent, store=store, history=history)) as server:
        turn(server, "r1", [], user_json("u1", "one"))
        own = {"id": "its-own-id", "role": "assistant", "content": "answer of r1"}
        server.events(run_id="r2", messages=[user_json("u1", "one"), own, user_json("u2", "two")])
        assert parents(server) == {"r1": None, "r2": None}
