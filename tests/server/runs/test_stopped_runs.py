"""Runs that the server ends: those that a drain cuts off, and those that take longer than ``Limits.run_seconds``."""

from __future__ import annotations

import asyncio
import logging
from typing import Any

import pytest
from serving import Held, check_valid, run_input, serving
from waiting import wait_until

from aguila import App
from aguila.server import Limits

pytestmark = pytest.mark.postgres


@pytest.mark.parametrize("declared", ["1.1", None])
def test_a_run_that_a_drain_cuts_off_fails_with_its_own_code_for_every_client(
    store: Any, declared: str | None, caplog: pytest.LogCaptureFixture
) -> None:
    held = Held()
    app = App(held, store=store, drain=0.05)
    version = {} if declared is None else {"protocolVersion": declared}
    sent = {**{name: value for name, value in run_input().items() if name != "protocolVersion"}, **version}
    with (
        caplog.at_level(logging.INFO, "aguila"),
        serving(app) as server,
        server.stream("POST", "/", declared=declared, json=sent) as stream,
    ):
        stream.read_until("TEXT_MESSAGE_CONTENT")
        server.call(app.begin_drain)
        end = stream.rest()[-1]
        assert (end["type"], end["code"]) == ("RUN_ERROR", "server_stopped")
        assert end["message"] == "The server stopped before the run had ended."
        record = server.get("/threads/thread/runs/run").json()
        assert (record["status"], server.get("/threads/thread").json()["runs"][0]["status"]) == ("error", "error")
    ended = [vars(one)["fields"] for one in caplog.records if vars(one).get("event") == "run ended"]
    assert [one["outcome"] for one in ended] == ["error"]
    assert [vars(one)["fields"]["code"] for one in caplog.records if "server stopped" in one.getMessage()] == [
        "server_stopped"
    ]


def test_the_log_of_a_run_that_a_drain_cut_off_ends_with_the_code(store: Any) -> None:
    held = Held()
    app = App(held, store=store, drain=0.05)
    with serving(app) as server, server.run() as stream:
        stream.read_until("TEXT_MESSAGE_CONTENT")
        server.call(app.begin_drain)
        events = stream.rest()
    with serving(App(held, store=store)) as server:
        if server.get("/threads/thread").status_code == 404:
            return  # a store in memory forgets its threads when it is closed
        with server.stream("GET", "/threads/thread/events") as log:
            stored = log.rest()
        assert stored[-1] == events[-1]
        check_valid(stored)
        with server.stream("POST", "/connect", json=run_input()) as joined:
            assert joined.rest()[-1]["code"] == "server_stopped"
        held.gate("next").open()
        assert server.events(run_id="next")[-1]["type"] == "RUN_FINISHED"


def test_a_run_that_is_cancelled_by_its_user_during_a_drain_is_cancelled() -> None:
    held = Held()
    app = App(held, drain=30.0)
    with serving(app) as server, server.run() as stream:
        stream.read_until("TEXT_MESSAGE_CONTENT")
        server.call(app.begin_drain)
        wait_until(lambda: server.get("/readyz").status_code == 503)
        assert server.post("/threads/thread/runs/run/cancel").status_code == 202
        assert stream.rest()[-1]["outcome"] == {"type": "cancelled"}


def test_a_run_that_takes_too_long_ends_with_its_own_code(store: Any) -> None:
    has_cleaned_up: list[str] = []

    async def agent(run: Any) -> Any:
        yield "word"
        if run.run_id == "stuck":
            try:
                await asyncio.Event().wait()
            finally:
                has_cleaned_up.append(run.run_id)

    with serving(App(agent, store=store, limits=Limits(run_seconds=0.5))) as server:
        events = server.events(run_id="stuck")
        check_valid(events)
        assert (events[-1]["type"], events[-1]["code"]) == ("RUN_ERROR", "run_timeout")
        assert events[-1]["message"] == "The run took longer than the 0.5 seconds that this server allows."
        assert server.status_of("thread", "stuck") == "error"
        assert has_cleaned_up == ["stuck"]
        assert server.events(run_id="quick")[-1]["type"] == "RUN_FINISHED"


def test_a_limit_of_seconds_is_positive() -> None:
    with pytest.raises(ValueError, match="run_seconds is 0; use a positive number, or None for no limit"):
        Limits(run_seconds=0)
