"""Runs over HTTP: they belong to the server, and a connection only reads them."""

from __future__ import annotations

import asyncio
import json
from typing import Any

import pytest
from serving import Gate, Held, check_valid, run_input, serving, text_of, types
from waiting import wait_until

from aguila import App
from aguila.server import Timing

pytestmark = pytest.mark.postgres

JSON = {"content-type": "application/json"}


def test_a_run_is_streamed_from_its_start_to_its_terminal_event(store: Any) -> None:
    async def agent(run: Any) -> Any:
        yield "Hello "
        yield "world"

    with serving(App(agent, store=store)) as server:
        events = server.events()
        check_valid(events)
        assert types(events) == [
            "RUN_STARTED",
            "TEXT_MESSAGE_START",
            "TEXT_MESSAGE_CONTENT",
            "TEXT_MESSAGE_END",
            "RUN_FINISHED",
        ]
        assert text_of(events) == "Hello world"


def test_the_first_event_is_sent_while_the_agent_is_still_at_work(store: Any) -> None:
    agent = Held()
    with serving(App(agent, store=store)) as server, server.run() as stream:
        assert stream.next_event() == {
            "type": "RUN_STARTED",
            "threadId": "thread",
            "runId": "run",
            "protocolVersion": "1.1",
        }
        assert stream.read_until("TEXT_MESSAGE_CONTENT")["delta"] == "one"
        agent.gate("run").open()
        assert types(stream.rest()) == ["TEXT_MESSAGE_CONTENT", "TEXT_MESSAGE_END", "RUN_FINISHED"]


def test_a_run_goes_on_when_its_client_hangs_up_and_can_be_read_later(store: Any) -> None:
    agent = Held()
    with serving(App(agent, store=store)) as server:
        with server.run() as stream:
            stream.read_until("TEXT_MESSAGE_CONTENT")
        agent.gate("run").open()
        wait_until(lambda: server.status_of("thread", "run") == "success")
        with server.stream("GET", "/threads/thread/runs/run/events") as again:
            events = again.rest()
        check_valid(events)
        assert text_of(events) == "onetwo"


def test_every_viewer_sees_the_same_events(store: Any) -> None:
    agent = Held()
    with serving(App(agent, store=store)) as server, server.run() as first:
        first.read_until("TEXT_MESSAGE_CONTENT")
        with (
            server.stream("GET", "/threads/thread/events") as second,
            server.stream("GET", "/threads/thread/runs/run/events") as third,
            server.run() as fourth,
        ):
            agent.gate("run").open()
            seen = [second.frames(), third.frames(), fourth.frames()]
        assert seen[0] == seen[1] == seen[2]
        assert [number for number, _ in seen[0]] == list(range(1, len(seen[0]) + 1))
        assert agent.calls == ["run"]


def test_a_run_id_posted_again_with_the_same_body_attaches_and_runs_once(store: Any) -> None:
    agent = Held()
    with serving(App(agent, store=store)) as server, server.run() as first:
        first.read_until("TEXT_MESSAGE_CONTENT")
        with server.stream("POST", "/", content=json.dumps(run_input(), indent=2), headers=JSON) as second:
            agent.gate("run").open()
            events = second.rest()
            check_valid(events)
            assert text_of(events) == "onetwo"
        assert agent.calls == ["run"]


def test_a_run_id_posted_again_with_another_body_is_refused(store: Any) -> None:
    agent = Held()
    with serving(App(agent, store=store)) as server, server.run() as first:
        first.read_until("TEXT_MESSAGE_CONTENT")
        with server.run(state={"other": 1}) as second:
            assert second.status == 409
            assert json.loads(second.response.read())["error"]["code"] == "run_exists"
        agent.gate("run").open()
        first.rest()
        with server.run(state={"other": 1}) as third:
            assert third.status == 409


def test_a_finished_run_posted_again_answers_with_what_the_thread_holds(store: Any) -> None:
    calls: list[str] = []

    async def agent(run: Any) -> Any:
        calls.append(run.run_id)
        yield "Hello"

    with serving(App(agent, store=store)) as server:
        server.events()
        again = server.events()
        check_valid(again)
        snapshot = next(event for event in again if event["type"] == "MESSAGES_SNAPSHOT")
        assert snapshot["messages"][-1]["content"] == "Hello"
        assert again[-1]["type"] == "RUN_FINISHED"
        assert calls == ["run"]


# Cancelling


def test_cancelling_ends_the_run_as_cancelled_with_everything_closed(store: Any) -> None:
    agent = Held()
    with serving(App(agent, store=store)) as server, server.run() as stream:
        seen = [stream.next_event()]
        while seen[-1]["type"] != "TEXT_MESSAGE_CONTENT":
            seen.append(stream.next_event())
        answer = server.post("/threads/thread/runs/run/cancel")
        assert answer.status_code == 202
        rest = stream.rest()
        check_valid([*seen, *rest])
        assert types(rest) == ["TEXT_MESSAGE_END", "RUN_FINISHED"]
        assert rest[-1]["outcome"] == {"type": "cancelled"}
        assert agent.cancelled == ["run"]
        again = server.post("/threads/thread/runs/run/cancel")
        assert (again.status_code, again.json()["status"]) == (200, "cancelled")


def test_an_agent_that_will_not_stop_is_left_behind() -> None:
    gate = Gate()

    async def agent(run: Any) -> None:
        while True:
            try:
                await gate.wait()
                return
            except asyncio.CancelledError:
                continue

    with serving(App(agent, timing=Timing(cancel_grace=0.05))) as server, server.run() as stream:
        gate.await_reached()
        server.post("/threads/thread/runs/run/cancel")
        assert stream.rest()[-1]["outcome"] == {"type": "cancelled"}
        gate.open()
