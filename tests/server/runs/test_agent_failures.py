"""Agents over HTTP: failures, limits, sessions, state, context."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path
from typing import Any

import pytest
from serving import Held, check_valid, run_input, serving, text_of, types
from waiting import wait_until

from aguila import App
from aguila.protocol import Interrupt, RunFinishedEvent, RunFinishedInterruptOutcome
from aguila.server import Limits

# Agents that misbehave


async def raising(run: Any) -> Any:
    yield "so far"
    raise RuntimeError("the password is hunter2")


async def yielding_garbage(run: Any) -> Any:
    yield "so far"
    yield object()


async def breaking_order(run: Any) -> Any:
    from aguila.protocol import TextMessageEndEvent

    yield TextMessageEndEvent(message_id="never-opened")


async def unencodable(run: Any) -> Any:
    from aguila.protocol import CustomEvent

    yield CustomEvent(name="x", value={"not json": float("nan")})


async def too_large(run: Any) -> None:
    await run.say("x" * (11 * 1024 * 1024))


@pytest.mark.parametrize(
    ("agent", "code"),
    [
        (raising, "agent_error"),
        (yielding_garbage, "agent_output"),
        (breaking_order, "agent_output"),
        (unencodable, "agent_output"),
        (too_large, "agent_output"),
    ],
    ids=lambda value: getattr(value, "__name__", value),
)
def test_a_bad_agent_gives_one_run_error_and_a_valid_stream(agent: Any, code: str) -> None:
    with serving(App(agent)) as server:
        events = server.events()
        check_valid(events)
        assert types(events).count("RUN_ERROR") == 1
        assert events[-1]["code"] == code
        assert "hunter2" not in json.dumps(events)
        assert "Reference" in events[-1]["message"]
        assert server.status_of("thread", "run") == "error"
        assert server.get("/healthz").status_code == 200


def plain(run: Any) -> str:
    return "Hello"


def plain_generator(run: Any) -> Any:
    yield "Hel"
    yield "lo"


async def through_the_handle(run: Any) -> None:
    async with run.text() as text:
        await text.write("Hello")


@pytest.mark.parametrize("agent", [plain, plain_generator, through_the_handle], ids=lambda agent: agent.__name__)
def test_every_form_of_agent_is_served(agent: Any) -> None:
    with serving(App(agent)) as server:
        events = server.events()
        check_valid(events)
        assert text_of(events) == "Hello"


def test_debug_shows_the_text_of_the_exception() -> None:
    with serving(App(raising, debug=True)) as server:
        assert "hunter2" in server.events()[-1]["message"]


# Limits


def test_a_request_beyond_capacity_is_refused_but_a_malformed_one_learns_its_fault_first() -> None:
    held = Held()
    app = App(held, limits=Limits(runs=1), drain=10.0)
    further = run_input("other", "other")
    with serving(app) as server, server.run() as first:
        first.read_until("TEXT_MESSAGE_CONTENT")
        assert server.post("/", json=further | {"messages": "none at all"}).status_code == 422
        answer = server.post("/", json=further)
        assert (answer.status_code, answer.json()["error"]["code"]) == (429, "too_many_runs")
        assert answer.headers["retry-after"] == "1"
        with server.run() as again:  # the same request attaches to its run
            again.read_until("TEXT_MESSAGE_CONTENT")
        other = run_input(messages=[{"id": "1", "role": "user", "content": "Not the same"}])
        assert server.post("/", json=other).status_code == 429
        server.call(app.begin_drain)
        wait_until(lambda: server.post("/", json=further).status_code == 503)
        with server.run() as again:
            held.gate("run").open()
            assert again.rest()[-1]["outcome"] == {"type": "success"}


def test_too_many_runs_of_a_scope_are_refused_until_one_ends() -> None:
    agent = Held()
    with serving(App(agent, limits=Limits(runs_per_scope=1))) as server, server.run() as first:
        first.read_until("TEXT_MESSAGE_CONTENT")
        with server.run(thread_id="another") as second:
            assert second.status == 429
            assert second.response.headers["retry-after"] == "1"
        agent.gate("run").open()
        first.rest()
        agent.gate("third").open()

        def is_taken() -> bool:
            with server.run(thread_id="another", run_id="third") as third:
                return third.status == 200 and third.rest()[-1]["type"] == "RUN_FINISHED"

        wait_until(is_taken)


def test_the_runs_of_a_scope_are_counted_over_all_processes_that_share_a_store(tmp_path: Path) -> None:
    agent = Held()

    def app() -> App:
        return App(agent, store=tmp_path / "threads.db", limits=Limits(runs_per_scope=2))

    with (
        serving(app()) as one,
        serving(app()) as two,
        one.run(thread_id="t1", run_id="first") as first,
        two.run(thread_id="t2", run_id="second") as second,
    ):
        first.read_until("TEXT_MESSAGE_CONTENT")
        second.read_until("TEXT_MESSAGE_CONTENT")
        for server in (one, two):
            answer = server.post("/", json=run_input("t3", "third"))
            assert (answer.status_code, answer.json()["error"]["code"]) == (429, "too_many_runs")
            assert answer.headers["retry-after"] == "1"
        busy = two.post("/", json=run_input("t1", "other"))
        assert (busy.status_code, busy.json()["error"]["code"]) == (409, "thread_busy")
        with two.run(thread_id="t1", run_id="first") as again:  # attaching is always possible
            again.read_until("TEXT_MESSAGE_CONTENT")
            agent.gate("first").open()
            assert again.rest() == first.rest()
        agent.gate("third").open()
        assert two.events(thread_id="t3", run_id="third")[-1]["outcome"] == {"type": "success"}
        agent.gate("second").open()
        second.rest()


def test_a_session_is_kept_between_runs_and_never_sent(store: Any) -> None:
    async def agent(run: Any) -> Any:
        run.session = {"secret": (run.session or {"secret": 0})["secret"] + 1}
        yield str(run.session["secret"])

    with serving(App(agent, store=store)) as server:
        assert text_of(server.events(run_id="1")) == "1"
        events = server.events(run_id="2")
        assert text_of(events) == "2"
        assert "secret" not in json.dumps(events)


def test_the_state_of_the_input_is_what_deltas_refer_to(store: Any) -> None:
    async def agent(run: Any) -> None:
        run.state["count"] = run.state.get("count", 0) + 1

    with serving(App(agent, store=store)) as server:
        events = server.events(state={"count": 4})
        assert [event["delta"] for event in events if event["type"] == "STATE_DELTA"] == [
            [{"op": "replace", "path": "/count", "value": 5}]
        ]
        assert server.get("/threads/thread").json()["state"] == {"count": 5}


def test_the_agent_sees_the_principal_and_the_allowed_headers_only() -> None:
    from aguila.server import Principal

    seen: list[Any] = []

    async def agent(run: Any) -> None:
        seen.append((run.principal, dict(run.headers)))

    principal = Principal(scope="s", name="Ada")
    app = App(agent, authenticate=lambda request: principal, headers_allowed=["X-Trace"])
    with serving(app) as server, server.run(headers={"x-trace": "1", "x-other": "2"}) as stream:
        stream.rest()
    assert seen == [(principal, {"x-trace": "1"})]


def test_context_variables_hold_from_the_first_line_of_an_agent_to_the_last() -> None:
    from contextvars import ContextVar

    current: ContextVar[str] = ContextVar("current", default="unset")

    async def agent(run: Any) -> Any:
        token = current.set(run.run_id)
        yield "a"
        await asyncio.sleep(0)
        yield current.get()
        current.reset(token)

    with serving(App(agent)) as server:
        assert text_of(server.events(run_id="mine")) == "amine"


@pytest.mark.postgres
@pytest.mark.parametrize("id_", ["\ud800", "a\0b", "🌍" * 5_000], ids=["surrogate", "NUL", "long"])
def test_an_end_that_the_store_cannot_keep_ends_the_run_anyway(store: Any, id_: str) -> None:
    """The id of an interrupt comes from the agent, or from the endpoint behind it. The thread stayed busy forever."""

    async def asking(run: Any) -> Any:
        await run.say("so far")
        raised = RunFinishedInterruptOutcome(interrupts=[Interrupt(id=id_, reason="question")])
        yield RunFinishedEvent(thread_id=run.thread_id, run_id=run.run_id, outcome=raised)

    with serving(App(asking, store=store, allow_anonymous=True)) as server:
        events = server.events()
        check_valid(events)
        assert text_of(events) == "so far"
        if events[-1]["type"] == "RUN_ERROR":  # not every store keeps every id
            assert events[-1]["code"] == "agent_output"
            assert server.status_of("thread", "run") == "error"
        else:
            assert id_ != "\ud800"
        assert server.delete("/data").status_code == 204
