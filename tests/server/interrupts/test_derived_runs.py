"""Answers sent under the run id of the run that asked, as CopilotKit sends them: each starts a derived run, once."""

from __future__ import annotations

import json
import threading
from pathlib import Path
from typing import Any

import pytest
from faults.failing_agent import Failing
from serving import Gate, Server, check_valid, run_input, serving, text_of
from waiting import wait_until

from aguila import App
from aguila.agent import RunInterrupt
from aguila.codec.protobuf import ProtobufDecoder
from aguila.protocol import Interrupt as ProtocolInterrupt
from aguila.server import Sends
from aguila.server.runs.repeated import derived_run_id
from aguila.store import SQLiteStore

Events = list[dict[str, Any]]

HELLO = [{"id": "u1", "role": "user", "content": "Go"}]


class Asking:
    """Asks questions one after the other and sends the answers."""

    def __init__(self, *questions: str) -> None:
        self.questions = questions or ("Name?", "Colour?", "Size?")
        self.calls = 0
        self.finished = 0

    async def __call__(self, run: Any) -> Any:
        self.calls += 1
        for question in self.questions:
            yield f"{await run.ask(question)}. "
        self.finished += 1


def question_of(events: Events) -> str:
    check_valid(events)
    (interrupt,) = events[-1]["outcome"]["interrupts"]
    return interrupt["id"]


def answer(interrupt_id: str, payload: Any = "yes") -> list[dict[str, Any]]:
    return [{"interruptId": interrupt_id, "status": "resolved", "payload": payload}]


def run_ids(events: Events) -> set[str]:
    return {event["runId"] for event in events if event["type"] in ("RUN_STARTED", "RUN_FINISHED")}


def runs_of(server: Server) -> list[dict[str, Any]]:
    return server.get("/threads/thread").json()["runs"]


def refusal(server: Any, **members: Any) -> tuple[int, str]:
    response = server.post("/", json=run_input(**members))
    return response.status_code, json.loads(response.content)["error"]["code"]


def test_a_chain_of_questions_is_answered_under_one_run_id(store: Any) -> None:
    agent = Asking("Name?", "Colour?", "Size?")
    with serving(App(agent, store=store)) as server:
        events = server.events(run_id="r1", messages=HELLO)
        expected = ["r1"]
        for payload in ("Ada", "red"):
            question = question_of(events)
            expected.append(derived_run_id("r1", [question], 0))
            events = server.events(run_id="r1", messages=HELLO, resume=answer(question, payload))
            assert run_ids(events) == {"r1"}
            assert text_of(events) == f"{payload}. "
        question = question_of(events)
        expected.append(derived_run_id("r1", [question], 0))
        events = server.events(run_id="r1", messages=HELLO, resume=answer(question, "XL"))
        assert (run_ids(events), events[-1]["outcome"]) == ({"r1"}, {"type": "success"})
        assert [run["runId"] for run in runs_of(server)] == expected
        with server.stream("GET", "/threads/thread/events?protocolVersion=1.1") as stream:
            assert run_ids(stream.rest()) == set(expected)
    assert (agent.calls, agent.finished) == (4, 1)


def test_other_viewers_see_the_stored_id(store: Any) -> None:
    with serving(App(Asking("Name?"), store=store, sends=Sends(echo_input=True))) as server:
        question = question_of(server.events(run_id="r1", messages=HELLO))
        stored = derived_run_id("r1", [question], 0)
        events = server.events(run_id="r1", messages=HELLO, resume=answer(question))
        assert (run_ids(events), events[0]["input"]["runId"]) == ({"r1"}, "r1")
        with server.stream("GET", f"/threads/thread/runs/{stored}/events?protocolVersion=1.1") as stream:
            told = stream.rest()
        assert (run_ids(told), told[0]["input"]["runId"]) == ({stored}, stored)
        for run_id in ("r1", stored):
            with server.run("/connect", run_id=run_id) as stream:
                assert run_ids(stream.rest()) == {stored}
        assert server.get("/threads/thread/runs/r1").json()["status"] == "interrupt"
        assert server.get(f"/threads/thread/runs/{stored}").json()["status"] == "success"


def test_the_parent_run_id_of_a_derived_run_stays_true(store: Any) -> None:
    with serving(App(Asking("Name?"), store=store)) as server:
        question = question_of(server.events(run_id="r1", messages=HELLO))
        events = server.events(run_id="r1", parentRunId="r1", messages=HELLO, resume=answer(question))
        assert (events[0]["runId"], events[0]["parentRunId"]) == ("r1", "r1")
        assert events[-1]["outcome"] == {"type": "success"}


def test_the_same_answers_posted_again_attach_to_the_run_while_it_is_running(store: Any) -> None:
    gate = Gate()
    calls: list[str] = []

    async def agent(run: Any) -> Any:
        calls.append(await run.ask("Name?"))
        yield "Hello "
        await gate.wait()
        yield "world"

    with serving(App(agent, store=store)) as server:
        question = question_of(server.events(run_id="r1", messages=HELLO))
        with server.run(run_id="r1", messages=HELLO, resume=answer(question)) as first:
            first.read_until("TEXT_MESSAGE_CONTENT")
            gate.await_reached()
            # The second one is not the same to the byte: a page that was reloaded sends other messages and state.
            with (
                server.run(run_id="r1", messages=HELLO, resume=answer(question)) as second,
                server.run(run_id="r1", messages=[], state={"a": 1}, resume=answer(question)) as third,
            ):
                started = [second.next_event(), third.next_event()]
                gate.open()
                told = [[*map(dict, started[:1]), *second.rest()], [*map(dict, started[1:]), *third.rest()]]
        for events in told:
            assert (text_of(events), run_ids(events)) == ("Hello world", {"r1"})
            assert events[-1]["outcome"] == {"type": "success"}
        assert len(runs_of(server)) == 2
    assert calls == ["yes"]


@pytest.mark.parametrize("end", ["success", "question", "cancelled"])
def test_the_same_answers_posted_again_attach_to_the_run_after_its_end(store: Any, end: str) -> None:
    gate = Gate()
    calls: list[str] = []

    async def agent(run: Any) -> Any:
        calls.append(await run.ask("Name?"))
        yield "Hello"
        if end == "question":
            await run.ask("Colour?")
        if end == "cancelled":
            await gate.wait()

    with serving(App(agent, store=store)) as server:
        question = question_of(server.events(run_id="r1", messages=HELLO))
        with server.run(run_id="r1", messages=HELLO, resume=answer(question)) as stream:
            stream.read_until("TEXT_MESSAGE_CONTENT")
            if end == "cancelled":
                gate.await_reached()
                assert server.post("/threads/thread/runs/r1/cancel").status_code == 202
            first = stream.rest()
        again = server.events(run_id="r1", messages=HELLO, resume=answer(question))
        check_valid(again)
        assert run_ids(again) == {"r1"}
        assert again[-1]["outcome"] == first[-1]["outcome"]
        assert again[-1]["outcome"]["type"] == {"question": "interrupt"}.get(end, end)
        assert "Hello" in json.dumps(again)
        assert len(runs_of(server)) == 2
    assert calls == ["yes"]


def test_other_answers_under_the_same_run_id_are_stale(store: Any) -> None:
    with serving(App(Asking("Name?"), store=store)) as server:
        question = question_of(server.events(run_id="r1", messages=HELLO))
        server.events(run_id="r1", messages=HELLO, resume=answer(question, "Ada"))
        assert refusal(server, run_id="r1", messages=HELLO, resume=answer(question, "Eve")) == (409, "interrupt_stale")
        assert len(runs_of(server)) == 2


def test_a_run_id_that_asked_nothing_of_this_is_refused_as_before(store: Any) -> None:
    with serving(App(Asking("Name?"), store=store)) as server:
        question = question_of(server.events(run_id="r1", messages=HELLO))
        assert refusal(server, run_id="r1", messages=HELLO, resume=answer("stranger")) == (422, "interrupt_uncovered")
        server.events(run_id="r2", resume=answer(question))
        assert refusal(server, run_id="r2", messages=HELLO, resume=answer(question)) == (409, "interrupt_stale")
        assert refusal(server, run_id="r2", messages=HELLO, resume=answer("stranger")) == (409, "run_exists")
        assert len(runs_of(server)) == 2


@pytest.mark.parametrize("history", ["client", "server"])
def test_after_a_run_error_the_same_answers_try_again(store: Any, history: Any) -> None:
    agent = Failing(2)
    with serving(App(agent, store=store, history=history)) as server:
        question = question_of(server.events(run_id="r1", messages=HELLO))
        resume = answer(question, {"approved": True})
        for attempt in range(3):
            events = server.events(run_id="r1", messages=HELLO, resume=resume)
            assert events[-1]["type"] == ("RUN_FINISHED" if attempt == 2 else "RUN_ERROR")
            assert events[0]["runId"] == "r1"
        again = server.events(run_id="r1", messages=HELLO, resume=resume)
        assert again[-1]["outcome"] == {"type": "success"}
        expected = [derived_run_id("r1", [question], attempt) for attempt in range(3)]
        assert [run["runId"] for run in runs_of(server)] == ["r1", *expected]
    assert agent.paid == [5]


def test_a_stream_that_was_cut_goes_on_in_the_run_that_failed(store: Any) -> None:
    gate = Gate()

    async def agent(run: Any) -> Any:
        await run.ask("Name?")
        yield "Hello"
        await gate.wait()
        raise RuntimeError("after the stream was cut")

    with serving(App(agent, store=store)) as server:
        question = question_of(server.events(run_id="r1", messages=HELLO))
        with server.run(run_id="r1", messages=HELLO, resume=answer(question)) as stream:
            stream.next()
            frame = stream.next()
            assert frame is not None
        gate.open()
        stored = derived_run_id("r1", [question], 0)
        wait_until(lambda: server.status_of("thread", stored) == "error")
        headers = {"last-event-id": str(frame.id)}
        with server.run(run_id="r1", messages=HELLO, resume=answer(question), headers=headers) as stream:
            events = stream.rest()
        assert events[-1]["type"] == "RUN_ERROR"
        assert len(runs_of(server)) == 2


def test_a_stream_that_was_cut_goes_on_after_the_cursor_under_the_sent_id(store: Any) -> None:
    with serving(App(Asking("Name?"), store=store)) as server:
        question = question_of(server.events(run_id="r1", messages=HELLO))
        with server.run(run_id="r1", messages=HELLO, resume=answer(question)) as stream:
            frames = stream.frames()
        headers = {"last-event-id": str(frames[1][0])}
        with server.run(run_id="r1", messages=HELLO, resume=answer(question), headers=headers) as stream:
            assert stream.frames() == frames[2:]


def test_after_a_restart_the_same_answers_attach_and_the_chain_goes_on(tmp_path: Path) -> None:
    agent = Asking("Name?", "Colour?")
    path = tmp_path / "threads.db"
    with serving(App(agent, store=SQLiteStore(path))) as server:
        first = question_of(server.events(run_id="r1", messages=HELLO))
        second = question_of(server.events(run_id="r1", messages=HELLO, resume=answer(first, "Ada")))
    with serving(App(agent, store=SQLiteStore(path))) as server:
        again = server.events(run_id="r1", messages=HELLO, resume=answer(first, "Ada"))
        assert (question_of(again), run_ids(again)) == (second, {"r1"})
        events = server.events(run_id="r1", messages=HELLO, resume=answer(second, "red"))
        assert (text_of(events), run_ids(events)) == ("red. ", {"r1"})
    with serving(App(agent, store=SQLiteStore(path))) as server:
        again = server.events(run_id="r1", messages=HELLO, resume=answer(second, "red"))
        assert (again[-1]["outcome"], run_ids(again)) == ({"type": "success"}, {"r1"})
        assert len(runs_of(server)) == 3
    assert agent.finished == 1


def test_cancelling_by_the_sent_id_cancels_the_latest_derived_run(store: Any) -> None:
    gate = Gate()

    async def agent(run: Any) -> Any:
        await run.ask("Name?")
        await run.ask("Colour?")
        yield "Hello"
        await gate.wait()

    with serving(App(agent, store=store)) as server:
        first = question_of(server.events(run_id="r1", messages=HELLO))
        second = question_of(server.events(run_id="r1", messages=HELLO, resume=answer(first)))
        stored = derived_run_id("r1", [second], 0)
        with server.run(run_id="r1", messages=HELLO, resume=answer(second)) as stream:
            stream.read_until("TEXT_MESSAGE_CONTENT")
            gate.await_reached()
            response = server.post("/threads/thread/runs/r1/cancel")
            assert (response.status_code, response.json()["runId"]) == (202, stored)
            assert stream.rest()[-1]["outcome"] == {"type": "cancelled"}
        response = server.post("/threads/thread/runs/r1/cancel")
        assert (response.status_code, response.json()["status"]) == (200, "cancelled")


def test_of_two_processes_that_race_one_starts_the_run_and_both_show_it(tmp_path: Path) -> None:
    path = tmp_path / "threads.db"
    agent = Asking("Name?")
    with serving(App(agent, store=SQLiteStore(path))) as one, serving(App(agent, store=SQLiteStore(path))) as two:
        question = question_of(one.events(run_id="r1", messages=HELLO))
        peers = [server.peer() for server in (one, two) for _ in range(4)]
        told: list[Events] = []
        barrier = threading.Barrier(len(peers))

        def post(peer: Any) -> None:
            barrier.wait()
            told.append(peer.events(run_id="r1", messages=HELLO, resume=answer(question)))

        threads = [threading.Thread(target=post, args=(peer,)) for peer in peers]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        for peer in peers:
            peer.close()
        assert len(told) == len(peers)
        for events in told:
            assert (run_ids(events), events[-1]["outcome"]) == ({"r1"}, {"type": "success"})
        assert len(runs_of(two)) == 2
    assert (agent.calls, agent.finished) == (2, 1)


def test_a_thread_that_queues_attaches_as_well(store: Any) -> None:
    agent = Asking("Name?")
    with serving(App(agent, store=store, busy="queue")) as server:
        question = question_of(server.events(run_id="r1", messages=HELLO))
        for _ in range(2):
            events = server.events(run_id="r1", messages=HELLO, resume=answer(question))
            assert (run_ids(events), events[-1]["outcome"]) == ({"r1"}, {"type": "success"})
        assert len(runs_of(server)) == 2
    assert agent.finished == 1


def test_a_question_that_is_asked_again_under_its_own_id_takes_a_new_answer(store: Any) -> None:
    payloads: list[Any] = []

    async def agent(run: Any) -> Any:
        payloads.extend(entry.payload for entry in run.resume or ())
        if len(payloads) < 3:
            yield f"round {len(payloads)}"
            raise RunInterrupt(ProtocolInterrupt(id="confirm", reason="confirm"))
        yield "done"

    with serving(App(agent, store=store)) as server:
        messages = HELLO
        for _ in range(3):
            events = server.events(
                run_id="r1", messages=messages, resume=answer("confirm") if messages != HELLO else []
            )
            assert question_of(events) == "confirm"
            messages = server.get("/threads/thread").json()["messages"]
        events = server.events(run_id="r1", messages=messages, resume=answer("confirm"))
        assert (run_ids(events), text_of(events)) == ({"r1"}, "done")
        # The very same request is the same run.
        events = server.events(run_id="r1", messages=messages, resume=answer("confirm"))
        assert events[-1]["outcome"] == {"type": "success"}
    assert payloads == ["yes"] * 3


def test_a_stored_id_can_be_answered_under_as_well(store: Any) -> None:
    with serving(App(Asking("Name?", "Colour?", "Size?"), store=store)) as server:
        first = question_of(server.events(run_id="r1", messages=HELLO))
        stored = derived_run_id("r1", [first], 0)
        second = question_of(server.events(run_id="r1", messages=HELLO, resume=answer(first)))
        events = server.events(run_id=stored, messages=HELLO, resume=answer(second))
        third = question_of(events)
        assert run_ids(events) == {stored}
        events = server.events(run_id="r1", messages=HELLO, resume=answer(third))
        assert (run_ids(events), events[-1]["outcome"]) == ({"r1"}, {"type": "success"})


def test_protobuf_shows_the_sent_id_too(store: Any) -> None:
    with serving(App(Asking("Name?"), store=store)) as server:
        question = question_of(server.events(run_id="r1", messages=HELLO))
        for _ in range(2):
            body = run_input(run_id="r1", messages=HELLO, resume=answer(question))
            response = server.post("/", json=body, headers={"accept": "application/vnd.ag-ui.event+proto"})
            events = ProtobufDecoder().feed(response.content)
            assert {event.run_id for event in (events[0], events[-1])} == {"r1"}  # type: ignore[attr-defined]


def test_messages_without_an_id_get_ids_of_their_own_run(store: Any) -> None:
    with serving(App(Asking("Name?", "Colour?"), store=store, history="server")) as server:
        first = question_of(
            server.events(run_id="r1", messages=[{"role": "user", "content": "Go"}], protocolVersion=...)
        )
        late = [{"role": "user", "content": "Hurry"}]
        server.events(run_id="r1", messages=late, resume=answer(first), protocolVersion=...)
        messages = server.get("/threads/thread").json()["messages"]
        assert [one["content"] for one in messages if one["role"] == "user"] == ["Go", "Hurry"]
