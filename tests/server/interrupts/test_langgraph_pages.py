"""Pages written for LangGraph: answers in forwardedProps.command.resume, and CUSTOM on_interrupt as an option."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from serving import Server, check_valid, run_input, serving, text_of, types

from aguila import App
from aguila.agent import Question, Run
from aguila.protocol import Interrupt, RunFinishedEvent, RunFinishedInterruptOutcome
from aguila.server.runs.repeated import derived_run_id
from aguila.store import SQLiteStore

Events = list[dict[str, Any]]

HELLO = [{"id": "u1", "role": "user", "content": "Go"}]


def command(resume: Any, **more: Any) -> dict[str, Any]:
    return {"command": {"resume": resume, **more}}


def interrupts_of(events: Events) -> list[dict[str, Any]]:
    check_valid(events)
    return events[-1]["outcome"]["interrupts"]


def refusal(server: Any, **members: Any) -> tuple[int, str]:
    response = server.post("/", json=run_input(**members))
    return response.status_code, json.loads(response.content)["error"]["code"]


def runs_of(server: Server) -> list[str]:
    return [run["runId"] for run in server.get("/threads/thread").json()["runs"]]


def asks(schema: dict[str, Any] | None = None) -> tuple[Any, list[Any]]:
    answers: list[Any] = []

    async def agent(run: Any) -> Any:
        answers.append(await run.ask("Well?", schema=schema))
        yield "Thanks."

    return agent, answers


ANY, TEXT, OBJECT, NUMBER = None, {"type": "string"}, {"type": "object"}, {"type": "number"}


@pytest.mark.parametrize(
    ("schema", "sent", "expected"),
    [
        (ANY, "yes", "yes"),
        (ANY, "42", "42"),
        (ANY, '{"approved": true}', {"approved": True}),
        (ANY, "[1]", [1]),
        (ANY, {"a": 1}, {"a": 1}),
        (ANY, False, False),
        (TEXT, '{"approved": true}', '{"approved": true}'),
        (OBJECT, '{"approved": true}', {"approved": True}),
        (NUMBER, "42", 42),
    ],
)
def test_the_command_answers_the_open_interrupt(schema: Any, sent: Any, expected: Any) -> None:
    agent, answers = asks(schema)
    with serving(App(agent)) as server:
        interrupts_of(server.events(run_id="r1", messages=HELLO))
        events = server.events(run_id="r2", messages=HELLO, forwardedProps=command(sent))
        assert (text_of(events), events[-1]["outcome"]) == ("Thanks.", {"type": "success"})
    assert answers == [expected]


def test_an_answer_that_does_not_fit_is_refused() -> None:
    agent, answers = asks(NUMBER)
    with serving(App(agent)) as server:
        interrupts_of(server.events(run_id="r1", messages=HELLO))
        for sent in ("many", "[1]"):
            refused = refusal(server, run_id="r2", messages=HELLO, forwardedProps=command(sent))
            assert refused == (422, "interrupt_answer_invalid")
    assert answers == []


def test_a_schema_that_expands_too_far_is_not_used() -> None:
    levels = 17
    definitions = {f"d{i}": {"allOf": [{"$ref": f"#/$defs/d{i + 1}"}] * 2} for i in range(levels)}
    schema = {"$ref": "#/$defs/d0", "$defs": definitions | {f"d{levels}": NUMBER}}
    answers: list[Any] = []

    async def agent(run: Run) -> Any:
        answers.extend(entry.payload for entry in run.input.resume or [])
        if not answers:
            interrupts = [Interrupt(id="q", reason="ask", response_schema=schema)]
            outcome = RunFinishedInterruptOutcome(interrupts=interrupts)
            yield RunFinishedEvent(thread_id=run.thread_id, run_id=run.run_id, outcome=outcome)

    with serving(App(agent)) as server:
        interrupts_of(server.events(run_id="r1", messages=HELLO))
        server.events(run_id="r2", messages=HELLO, forwardedProps=command("42"))
    assert answers == ["42"]  # not the number that the schema would ask for


def test_null_and_a_thread_that_asks_nothing_leave_the_request_as_it_is() -> None:
    seen: list[Any] = []

    async def agent(run: Any) -> Any:
        seen.append((run.input.forwarded_props, run.resume))
        if len(seen) == 2:
            await run.ask("Well?")
        yield "ok"

    with serving(App(agent)) as server:
        assert text_of(server.events(run_id="r1", messages=HELLO, forwardedProps=command("yes"))) == "ok"
        interrupts_of(server.events(run_id="r2", messages=HELLO))
        refused = refusal(server, run_id="r3", messages=HELLO, forwardedProps=command(None))
        assert refused == (422, "interrupt_uncovered")
        assert refusal(server, run_id="r3", messages=HELLO, forwardedProps={"command": 1}) == refused
    assert seen[0][0] == command("yes")


def test_a_repeated_command_does_not_answer_the_question_of_its_own_run() -> None:
    agent, answers = asks()
    with serving(App(agent)) as server:
        members = {"run_id": "r1", "messages": HELLO, "forwardedProps": command("yes")}
        asked = interrupts_of(server.events(**members))
        again = server.events(**members)
        assert again[-1]["outcome"]["interrupts"] == asked
        assert runs_of(server) == ["r1"]
    assert answers == []


def test_the_protocols_answer_counts_if_both_are_sent() -> None:
    agent, answers = asks()
    with serving(App(agent)) as server:
        (question,) = interrupts_of(server.events(run_id="r1", messages=HELLO))
        resume = [{"interruptId": question["id"], "status": "resolved", "payload": "no"}]
        server.events(run_id="r2", messages=HELLO, resume=resume, forwardedProps=command("yes"))
    assert answers == ["no"]


def test_several_open_interrupts_need_an_object_keyed_by_their_ids() -> None:
    answers: list[Any] = []

    async def agent(run: Any) -> Any:
        answers.extend(await run.ask_all([Question(question="Name?"), Question(question="Colour?", schema=NUMBER)]))
        yield "Thanks."

    with serving(App(agent)) as server:
        name, colour = interrupts_of(server.events(run_id="r1", messages=HELLO))
        for sent in ("red", {"name": "Ada"}, [1, 2]):
            refused = refusal(server, run_id="r2", messages=HELLO, forwardedProps=command(sent))
            assert refused == (422, "interrupt_ambiguous")
        partly = command({name["id"]: "Ada"})
        assert refusal(server, run_id="r2", messages=HELLO, forwardedProps=partly) == (422, "interrupt_uncovered")
        both = command(json.dumps({name["id"]: "Ada", colour["id"]: "3"}))
        assert text_of(server.events(run_id="r2", messages=HELLO, forwardedProps=both)) == "Thanks."
    assert answers == ["Ada", 3]


def test_a_chain_under_the_run_id_that_asked_and_each_request_repeated(store: Any) -> None:
    answers: list[Any] = []

    async def agent(run: Any) -> Any:
        for question in ("Name?", "Colour?"):
            answer = await run.ask(question)
            yield f"{answer}. "
        answers.append("done")

    with serving(App(agent, store=store)) as server:
        (name,) = interrupts_of(server.events(run_id="r1", messages=HELLO))
        first = {"run_id": "r1", "messages": HELLO, "forwardedProps": command("yes")}
        (colour,) = interrupts_of(server.events(**first))
        # The same request again is no answer to the second question, even though that is open now.
        assert interrupts_of(server.events(**first)) == [colour]
        second = {
            "run_id": "r1",
            "messages": HELLO,
            "forwardedProps": command("yes", interruptEvent=json.dumps(colour)),
        }
        for _ in range(2):
            events = server.events(**second)
            assert (events[0]["runId"], events[-1]["outcome"]) == ("r1", {"type": "success"})
        # Nor is a late answer that names the first question, whatever else it says.
        late = command("no", interruptEvent=json.dumps(name))
        assert refusal(server, run_id="r1", messages=HELLO, forwardedProps=late) == (409, "interrupt_stale")
        assert runs_of(server) == ["r1", derived_run_id("r1", [name["id"]], 0), derived_run_id("r1", [colour["id"]], 0)]
    assert answers == ["done"]


@pytest.mark.postgres
def test_an_answer_that_names_another_question_is_refused(store: Any) -> None:
    paid: list[Any] = []

    async def pays(run: Any) -> Any:
        paid.append((run.thread_id, await run.ask("Pay?")))
        yield "Paid."

    with serving(App(pays, store=store)) as server:
        (other,) = interrupts_of(server.events(thread_id="other", run_id="r1", messages=HELLO))
        (own,) = interrupts_of(server.events(run_id="r1", messages=HELLO))
        for event in (other, {**own, "id": "invented"}, json.dumps(other)):
            props = command(True, interruptEvent=event)
            assert refusal(server, run_id="r2", messages=HELLO, forwardedProps=props) == (422, "interrupt_foreign")
        assert paid == []
        props = command(True, interruptEvent=own)
        assert text_of(server.events(run_id="r2", messages=HELLO, forwardedProps=props)) == "Paid."
    assert paid == [("thread", True)]


def test_after_a_run_error_and_a_restart_the_same_command_tries_again(tmp_path: Path) -> None:
    failures = [1]
    paid: list[int] = []

    async def agent(run: Any) -> Any:
        await run.ask("Pay?")
        await run.once("pay", lambda: paid.append(5))
        if failures:
            failures.pop()
            raise RuntimeError("after the answer was used")
        yield "Done."

    members = {"run_id": "r1", "messages": HELLO, "forwardedProps": command("yes")}
    path = tmp_path / "threads.db"
    with serving(App(agent, store=SQLiteStore(path))) as server:
        interrupts_of(server.events(run_id="r1", messages=HELLO))
        assert server.events(**members)[-1]["type"] == "RUN_ERROR"
    with serving(App(agent, store=SQLiteStore(path))) as server:
        assert text_of(server.events(**members)) == "Done."
        assert server.events(**members)[-1]["outcome"] == {"type": "success"}
        assert len(runs_of(server)) == 3
    assert paid == [5]


@pytest.mark.parametrize("is_on", [True, False])
def test_on_interrupt_is_sent_beside_each_interrupt_only_if_asked_for(store: Any, is_on: bool) -> None:
    async def agent(run: Any) -> Any:
        yield "Hello"
        await run.ask_all([Question(question="Name?"), Question(question="Colour?")])

    with serving(App(agent, store=store, langgraph_interrupts=is_on)) as server:
        live = server.events(run_id="r1", messages=HELLO)
        asked = interrupts_of(live)
        with server.run("/connect", run_id="visit") as stream:
            joined = stream.rest()
        with server.stream("GET", "/threads/thread/events?protocolVersion=1.1") as stream:
            log = stream.rest()
        for events in (live, joined, log, server.events(run_id="r1", messages=HELLO)):
            check_valid(events)
            custom = [event for event in events if event["type"] == "CUSTOM"]
            assert [event["name"] for event in custom] == ["on_interrupt"] * (2 if is_on else 0)
            assert [json.loads(event["value"]) for event in custom] == (asked if is_on else [])
            assert types(events)[-1] == "RUN_FINISHED"


def test_a_run_that_ends_otherwise_sends_no_on_interrupt() -> None:
    async def agent(run: Any) -> Any:
        yield "Hello"

    with serving(App(agent, langgraph_interrupts=True)) as server:
        assert "CUSTOM" not in types(server.events(run_id="r1", messages=HELLO))
