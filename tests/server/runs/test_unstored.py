"""Runs that are not stored: ``POST /?store=false``."""

from __future__ import annotations

import asyncio
import json
from typing import Any

import pytest
from builders import user_json
from in_process import Reader
from serving import Held, check_valid, run_input, serving, text_of, types
from waiting import wait_until, wait_until_async

from aguila import App, protocol
from aguila.agent import RunInterrupt
from aguila.server import Limits

PATH = "/?store=false"


async def echo(run: Any) -> Any:
    run.state["seen"] = len(run.messages)
    yield f"{len(run.messages)}: {run.messages[-1].content if run.messages else 'nothing'}"


def test_it_streams_like_any_run_and_leaves_nothing(store: Any) -> None:
    with serving(App(echo, store=store, allow_anonymous=True)) as server:
        with server.run(path=PATH, messages=[user_json("u", "Hello")]) as stream:
            frames = stream.frames()
            raw = stream.raw
        assert b"id:" not in raw
        assert all(number is None for number, _ in frames)
        with server.run(path=PATH, run_id="r2", messages=[user_json("u", "Hello")]) as stream:
            events = stream.rest()
        check_valid(events)
        assert text_of(events) == "1: Hello"
        assert (events[0]["type"], events[0]["runId"], events[-1]["type"]) == ("RUN_STARTED", "r2", "RUN_FINISHED")
        assert server.get("/threads").json()["threads"] == []
        assert server.get("/threads/thread").status_code == 404
        assert server.get("/threads/thread/runs/r2").status_code == 404


def test_the_same_run_id_runs_again_each_time() -> None:
    calls: list[str] = []

    async def agent(run: Any) -> str:
        calls.append(run.run_id)
        return "again"

    with serving(App(agent)) as server:
        for _ in range(2):
            assert text_of(server.events(path=PATH)) == "again"
        assert text_of(server.events()) == "again"  # and the id is free
        assert text_of(server.events(path=PATH)) == "again"  # also while it is taken
    assert calls == ["run"] * 4


def test_the_thread_does_not_become_busy_and_is_not_in_the_way(store: Any) -> None:
    agent = Held()
    with serving(App(agent, store=store, busy="reject")) as server:
        with server.run(run_id="stored") as stored, server.run(path=PATH, run_id="aside") as aside:
            stored.read_until("TEXT_MESSAGE_CONTENT")
            aside.read_until("TEXT_MESSAGE_CONTENT")
            agent.gate("aside").open()
            assert aside.rest()[-1]["type"] == "RUN_FINISHED"
            agent.gate("stored").open()
            assert stored.rest()[-1]["type"] == "RUN_FINISHED"
        assert [run["runId"] for run in server.get("/threads/thread").json()["runs"]] == ["stored"]


def test_it_is_cancelled_when_its_client_hangs_up() -> None:
    agent = Held()
    with serving(App(agent, cancel_unwatched_after=None)) as server:
        with server.run(path=PATH) as stream:
            stream.read_until("TEXT_MESSAGE_CONTENT")
            stream.close()
        wait_until(lambda: agent.cancelled == ["run"])


def test_it_counts_against_the_limits() -> None:
    agent = Held()
    with serving(App(agent, limits=Limits(runs=1))) as server:
        with server.run(path=PATH) as stream:
            stream.read_until("TEXT_MESSAGE_CONTENT")
            for path in (PATH, "/"):
                answer = server.post(path, json=run_input(run_id="r2"))
                assert (answer.status_code, answer.json()["error"]["code"]) == (429, "too_many_runs")
            agent.gate("run").open()
            stream.rest()

        def is_free() -> bool:
            agent.gate("r3").open()
            return server.post(PATH, json=run_input(run_id="r3")).status_code == 200

        wait_until(is_free)


@pytest.mark.anyio
async def test_it_counts_until_its_reader_has_read_it() -> None:
    async def agent(run: Any) -> Any:
        yield "x" * 100_000

    async def post(reader: Reader, run_id: str) -> int:
        data = json.dumps(run_input(run_id=run_id)).encode()
        return await reader.request("POST", PATH, data, content_type="application/json")

    async with App(agent, limits=Limits(runs_per_scope=1)) as app:
        slow = Reader(app, accepts=2)
        reading = asyncio.create_task(post(slow, "r1"))
        await slow.stalled.wait()
        service: Any = app._service
        await wait_until_async(lambda: not service.runs.admission.total)  # it ends, although nobody has read it
        assert await post(Reader(app), "r2") == 429
        slow.goes_on.set()
        assert await reading == 200
        assert slow.is_complete
        assert await post(Reader(app), "r2") == 200


@pytest.mark.parametrize("how", ["ask", "once", "session", "interrupt"])
def test_what_would_have_to_be_stored_fails_in_clear_words(how: str) -> None:
    async def agent(run: Any) -> None:
        assert not run.is_stored
        if how == "ask":
            await run.ask("Well?")
        elif how == "once":
            await run.once("key", lambda: 1)
        elif how == "session":
            run.session["count"] = 1
        else:
            raise RunInterrupt(protocol.Interrupt(id="mine", reason="confirmation", message="Well?"))

    with serving(App(agent)) as server:
        events = server.events(path=PATH)
        check_valid(events)
        assert types(events)[-1] == "RUN_ERROR"
        assert events[-1]["code"] == "run_not_stored"
        assert "not stored" in events[-1]["message"]


def test_it_reads_the_session_and_the_history_of_its_thread() -> None:
    async def agent(run: Any) -> str:
        if run.is_stored:
            run.session["name"] = "Ada"
        return f"{run.session.get('name')} {len(run.messages)}"

    with serving(App(agent, history="server")) as server:
        server.events(messages=[user_json("u1", "Hello")])
        events = server.events(path=PATH, run_id="r2", messages=[user_json("u2", "And?")])
        assert text_of(events) == "Ada 3"
        assert text_of(server.events(path=PATH, run_id="r3")) == "Ada 2"  # no hydration: it was asked to run


def test_it_cannot_answer_a_question() -> None:
    with serving(App(echo)) as server:
        resume = [{"interruptId": "i", "status": "resolved", "payload": 1}]
        answer = server.post(PATH, json=run_input(resume=resume))
        assert (answer.status_code, answer.json()["error"]["code"]) == (422, "resume_not_stored")
        answer = server.post("/?store=maybe", json=run_input())
        assert (answer.status_code, answer.json()["error"]["code"]) == (422, "bad_parameter")
        assert server.events(path="/?store=true")[-1]["type"] == "RUN_FINISHED"


def test_a_failure_is_one_run_error() -> None:
    async def agent(run: Any) -> Any:
        yield "Hel"
        raise RuntimeError("secret")

    with serving(App(agent)) as server:
        events = server.events(path=PATH)
        check_valid(events)
        assert types(events)[-1] == "RUN_ERROR"
        assert "secret" not in events[-1]["message"]


def test_a_drain_ends_it() -> None:
    agent = Held()
    app = App(agent, drain=0.0)
    with serving(app) as server, server.run(path=PATH) as stream:
        stream.read_until("TEXT_MESSAGE_CONTENT")
        server.call(app.begin_drain)
        end = stream.rest()[-1]
        assert (end["type"], end["code"]) == ("RUN_ERROR", "server_stopped")
    assert agent.cancelled == ["run"]


def test_it_is_translated_for_an_older_peer_and_for_protobuf() -> None:
    with serving(App(echo)) as server:
        events = server.events(path=PATH, protocolVersion="1.0")
        assert events[0]["protocolVersion"] == "1.0"
        headers = {"accept": "application/vnd.ag-ui.event+proto"}
        with server.run(path=PATH, headers=headers) as stream:
            assert stream.response.headers["content-type"].startswith("application/vnd.ag-ui")
            assert stream.response.read()
