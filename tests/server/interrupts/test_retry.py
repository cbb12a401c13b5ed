"""A resumed run that fails after it has used the answer: the same answer tries again, or it is given up (P8)."""

from __future__ import annotations

import json
import threading
from contextlib import closing
from typing import Any

import pytest
from builders import text_message, user, user_json
from faults.failing_agent import Failing
from serving import Gate, check_valid, run_input, serving, text_of, types
from stores.stored_threads import SCOPE, THREAD, agent_input, begin_run, make_interrupt, resume_entry, write_run

from aguila import App
from aguila.agent import InterruptCancelled
from aguila.protocol import Interrupt, RunFinishedEvent, RunFinishedInterruptOutcome
from aguila.server.config.errors import Rejected
from aguila.server.threads.cache import Threads
from aguila.server.threads.interrupts.resume_chain import FailedAttempts
from aguila.server.threads.interrupts.retry import retract_attempts
from aguila.store import MemoryStore, SQLiteStore, Store

pytestmark = pytest.mark.anyio


Events = list[dict[str, Any]]


def approves(interrupt_id: str, approved: bool = True) -> list[dict[str, Any]]:
    return [{"interruptId": interrupt_id, "status": "resolved", "payload": {"approved": approved}}]


def gives_up(interrupt_id: str) -> list[dict[str, Any]]:
    return [{"interruptId": interrupt_id, "status": "cancelled"}]


def question_of(events: Events) -> str:
    check_valid(events)
    (interrupt,) = events[-1]["outcome"]["interrupts"]
    return interrupt["id"]


def refusal(server: Any, **members: Any) -> tuple[int, str]:
    response = server.post("/", json=run_input(**members))
    return response.status_code, json.loads(response.content)["error"]["code"]


def thread_of(server: Any) -> tuple[Any, Any]:
    thread = server.get("/threads/thread").json()
    return thread["messages"], thread["state"]


def client_history(server: Any) -> list[dict[str, Any]]:
    """Return the messages of a client that keeps the history: all of them."""
    return [one for one in thread_of(server)[0] if one["role"] not in ("activity", "reasoning")]


def contents(messages: list[dict[str, Any]]) -> list[Any]:
    roles = ("user", "assistant", "tool")
    return [one["content"] for one in messages if one["role"] in roles and "content" in one]


@pytest.mark.parametrize("history", ["client", "server"])
@pytest.mark.parametrize("failures", [1, 2])
def test_the_same_answer_tries_again_and_the_thread_is_as_if_nothing_had_failed(
    tmp_path: Any, history: Any, failures: int
) -> None:
    threads: list[Any] = []
    for times in (0, failures):
        agent = Failing(times)
        app = App(agent, store=SQLiteStore(tmp_path / f"{times}.db"), history=history)
        with serving(app) as server:
            question = question_of(server.events(run_id="r1", messages=[user_json("u1", "Go")], state={"kept": 1}))
            for attempt in range(times + 1):
                sent = client_history(server) if history == "client" else []
                state = thread_of(server)[1]
                events = server.events(run_id=f"a{attempt}", messages=sent, state=state, resume=approves(question))
                check_valid(events)
                assert events[-1]["type"] == ("RUN_ERROR" if attempt < times else "RUN_FINISHED")
                snapshots = types(events).count("MESSAGES_SNAPSHOT")
                assert snapshots == (1 if attempt else 0)
            assert events[-1]["outcome"]["type"] == "success"
            assert text_of(events) == "that is done."
            threads.append(thread_of(server))
            assert refusal(server, run_id="late", resume=approves(question)) == (409, "interrupt_stale")
            assert refusal(server, run_id="late", resume=gives_up(question)) == (409, "interrupt_stale")
        assert agent.paid == [5]
    assert threads[0] == threads[1]
    messages, state = threads[0]
    assert [one["role"] for one in messages] == ["user", "assistant", "assistant", "tool", "reasoning", "activity"]
    assert state == {"kept": 1, "paid": True}


def test_what_was_said_with_the_answer_stays_and_what_the_failed_run_said_does_not(store: Any) -> None:
    agent = Failing(1)
    with serving(App(agent, store=store)) as server:
        question = question_of(server.events(run_id="r1", messages=[user_json("u1", "Go")]))
        hurry = [*client_history(server), user_json("u2", "and hurry up")]
        server.events(run_id="r2", messages=hurry, resume=approves(question))
        still = [*client_history(server), user_json("u3", "well?")]
        assert contents(still) == ["Go", "Go: that ", "paid", "and hurry up", "well?"]
        events = server.events(run_id="r3", messages=still, resume=approves(question))
        (snapshot,) = [event for event in events if event["type"] == "MESSAGES_SNAPSHOT"]
        assert contents(snapshot["messages"]) == ["Go", "Go: ", "and hurry up", "well?"]
        # A snapshot without reasoning would keep the client's reasoning, and the replay would append to it (MSGS-2).
        assert [one["content"] for one in snapshot["messages"] if one["role"] == "reasoning"] == [""]
        assert contents(thread_of(server)[0]) == ["Go", "Go: that is done.", "paid", "and hurry up", "well?"]
    assert agent.came_with[-1] == ["user Go", "assistant Go: ", "assistant None", "user and hurry up", "user well?"]


@pytest.mark.parametrize("first", [True, False])
def test_given_up_the_run_ends_as_cancelled_without_the_agent_and_the_next_is_ordinary(store: Any, first: bool) -> None:
    agent = Failing(1)
    with serving(App(agent, store=store)) as server:
        question = question_of(server.events(run_id="r1", messages=[user_json("u1", "Go")]))
        server.events(run_id="r2", resume=approves(question, first))
        calls = agent.calls
        events = server.events(run_id="r3", state=thread_of(server)[1], resume=gives_up(question))
        check_valid(events)
        assert types(events) == ["RUN_STARTED", "RUN_FINISHED"]
        assert events[-1]["outcome"] == {"type": "cancelled"}
        assert agent.calls == calls
        # It has ended for good, but giving it up again does no harm.
        assert refusal(server, run_id="r4", resume=approves(question, first)) == (409, "interrupt_stale")
        assert server.events(run_id="r4", resume=gives_up(question))[-1]["outcome"] == {"type": "cancelled"}
        assert question_of(server.events(run_id="r5", messages=[user_json("u2", "Again")])) != question


def test_an_answer_that_was_given_up_and_failed_can_be_given_up_again(store: Any) -> None:
    async def agent(run: Any) -> Any:
        try:
            yield await run.ask("Go?")
        except InterruptCancelled:
            raise RuntimeError("it cannot even be given up") from None

    with serving(App(agent, store=store)) as server:
        question = question_of(server.events(run_id="r1", messages=[user_json("u1", "Go")]))
        assert server.events(run_id="r2", resume=gives_up(question))[-1]["type"] == "RUN_ERROR"
        assert server.events(run_id="r3", resume=gives_up(question))[-1]["outcome"] == {"type": "cancelled"}


def test_another_answer_than_the_one_that_was_used_is_stale(store: Any) -> None:
    agent = Failing(1)
    with serving(App(agent, store=store)) as server:
        question = question_of(server.events(run_id="r1", messages=[user_json("u1", "Go")]))
        server.events(run_id="r2", resume=approves(question))
        assert refusal(server, run_id="r3", resume=approves(question, False)) == (409, "interrupt_stale")
        assert server.events(run_id="r3", resume=approves(question))[-1]["outcome"]["type"] == "success"
    assert agent.paid == [5]


def test_of_several_answers_all_are_given_again_or_all_are_given_up(store: Any) -> None:
    failures = [1]

    async def agent(run: Any) -> Any:
        try:
            answers = await run.ask_all(["One?", "Two?"])
        except InterruptCancelled as abandoned:
            answers = abandoned.answers
        yield str(answers)
        if failures:
            raise RuntimeError(failures.pop())

    with serving(App(agent, store=store)) as server:
        events = server.events(run_id="r1", messages=[user_json("u1", "Go")])
        one, two = (interrupt["id"] for interrupt in events[-1]["outcome"]["interrupts"])
        first = [{"interruptId": one, "status": "resolved", "payload": 1}, *gives_up(two)]
        assert server.events(run_id="r2", resume=first)[-1]["type"] == "RUN_ERROR"
        other = [*gives_up(one), {"interruptId": two, "status": "resolved", "payload": 2}]
        assert refusal(server, run_id="r3", resume=other) == (409, "interrupt_stale")
        assert text_of(server.events(run_id="r3", resume=first)) == "[1, None]"


def test_after_a_run_that_was_stopped_the_answer_can_only_be_given_up_life_10(store: Any) -> None:
    """A stock client that disconnected still has the question: it never saw the end of the run."""
    gate = Gate()

    async def agent(run: Any) -> Any:
        yield await run.ask("Go?")
        await gate.wait()

    yes = [{"interruptId": "", "status": "resolved", "payload": "yes"}]
    with serving(App(agent, store=store)) as server, closing(server.peer()) as other:
        yes[0]["interruptId"] = question = question_of(server.events(run_id="r1", messages=[user_json("u1", "Go")]))
        with server.run(run_id="r2", resume=yes) as stream:
            gate.await_reached()
            # The work of a run is neither repeated nor given up by another run. The same answer attaches to the run.
            with other.run(run_id="r3", resume=yes) as again:
                assert again.status == 200
            assert refusal(other, run_id="r3", resume=gives_up(question)) == (409, "interrupt_stale")
            other.post("/threads/thread/runs/r2/cancel")
            assert stream.rest()[-1]["outcome"] == {"type": "cancelled"}
        assert refusal(server, run_id="r3", resume=yes) == (409, "interrupt_stale")
        assert server.events(run_id="r3", resume=gives_up(question))[-1]["outcome"] == {"type": "cancelled"}


def test_once_another_run_has_failed_since_the_answer_is_stale_but_can_be_given_up(store: Any) -> None:
    calls: list[str] = []

    async def agent(run: Any) -> Any:
        calls.append(run.run_id)
        if len(calls) == 1 or run.resume_input is not None:
            await run.ask("Go?")
        raise RuntimeError("always")

    with serving(App(agent, store=store)) as server:
        question = question_of(server.events(run_id="r1", messages=[user_json("u1", "Go")]))
        yes = [{"interruptId": question, "status": "resolved", "payload": "yes"}]
        server.events(run_id="r2", resume=yes)
        server.events(run_id="r3", messages=[user_json("u3", "something else")])
        assert refusal(server, run_id="r4", resume=yes) == (409, "interrupt_stale")
        assert server.events(run_id="r4", resume=gives_up(question))[-1]["outcome"] == {"type": "cancelled"}


@pytest.mark.parametrize("count", [2, 6])
def test_of_racing_retries_one_runs_and_the_others_attach(store: Any, count: int) -> None:
    agent = Failing(1)
    gate = Gate()

    async def gated(run: Any) -> None:
        await agent(run)
        await gate.wait()

    with serving(App(gated, store=store)) as server:
        question = question_of(server.events(run_id="r1", messages=[user_json("u1", "Go")]))
        server.events(run_id="r2", resume=approves(question))
        connected: list[int] = []
        ended: list[Any] = []

        def retry(number: int) -> None:
            with closing(server.peer()) as peer, peer.run(run_id=f"again-{number}", resume=approves(question)) as one:
                connected.append(one.status)
                if len(connected) == count:
                    gate.open()
                ended.append(one.rest()[-1])

        racing = [threading.Thread(target=retry, args=(number,)) for number in range(count)]
        for each in racing:
            each.start()
        for each in racing:
            each.join(60)
        assert connected == [200] * count
        assert [event["outcome"]["type"] for event in ended] == ["success"] * count
        assert len(server.get("/threads/thread").json()["runs"]) == 3
    assert agent.paid == [5]


async def test_a_retry_that_another_overtook_between_its_plan_and_its_beginning_does_not_call_the_agent() -> None:
    async def test(store: Store) -> None:
        await write_run(store, agent_input("r1", user("u1")), outcome=[make_interrupt("int_1")])
        for run_id in ("r2", "r3"):
            sent = agent_input(run_id, resume=[resume_entry("int_1")])
            first = run_id == "r2"
            claims = ["int_1"] if first else []
            await write_run(store, sent, claims=claims, settled=claims, outcome="error" if first else "success")
        await begin_run(store, agent_input("r4", resume=[resume_entry("int_1")]))
        attempts = FailedAttempts(asked_by="r1", run_ids=["r2"])  # as it was when r4 was planned
        with pytest.raises(Rejected) as caught:
            await retract_attempts(attempts, Threads(store), SCOPE, THREAD, "r4")
        assert caught.value.code == "interrupt_taken"

    store = MemoryStore()
    await store.open()
    await test(store)
    await store.close()


def test_a_run_that_is_refused_after_it_began_ends_with_the_code(store: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    async def overtaken(*_: Any) -> Any:
        raise Rejected(409, "interrupt_taken", "another run has answered meanwhile", "/resume")

    agent = Failing(1)
    with serving(App(agent, store=store)) as server:
        question = question_of(server.events(run_id="r1", messages=[user_json("u1", "Go")]))
        server.events(run_id="r2", resume=approves(question))
        calls = agent.calls
        with monkeypatch.context() as patch:
            patch.setattr("aguila.server.runs.context.retract_attempts", overtaken)
            events = server.events(run_id="r3", state=thread_of(server)[1], resume=approves(question))
        assert types(events) == ["RUN_STARTED", "RUN_ERROR"]
        assert events[-1]["code"] == "interrupt_taken"
        assert agent.calls == calls
        assert server.events(run_id="r4", resume=approves(question))[-1]["outcome"]["type"] == "success"


async def test_nothing_is_taken_back_of_a_run_that_said_nothing() -> None:
    store = MemoryStore()
    await store.open()
    await write_run(store, agent_input("r1", user("u1")), text_message("a1", "hm"), outcome=[make_interrupt("int_1")])
    await write_run(store, agent_input("r2", resume=[resume_entry("int_1")]), claims=["int_1"], outcome="error")
    await begin_run(store, agent_input("r3", resume=[resume_entry("int_1")]), claims=["int_1"])
    back, snapshot = await retract_attempts(
        FailedAttempts(asked_by="r1", run_ids=["r2"]), Threads(store, history="server"), SCOPE, THREAD, "r3"
    )
    assert snapshot is None
    assert back.changed == frozenset()
    await store.close()


class Reporting:
    """Asks, and then sends within recorded effects, each of which happens once. After them it fails so many times."""

    def __init__(self, failures: int) -> None:
        self.failures = failures
        self.effects: list[str] = []

    async def __call__(self, run: Any) -> None:
        async def inner() -> str:
            self.effects.append("inner")
            await run.say("looking")
            return "found"

        async def outer() -> str:
            self.effects.append("outer")
            found = await run.once("inner", inner, uses_run=True)
            async with run.subagent("clerk") as clerk:
                call = await clerk.tool_call("look", {"at": found})
                await call.result("a note")
            await run.activity("PLAN", {"done": True})
            async with run.text() as text:
                for word in ("the ", "report"):
                    await text.write(word)
            return "written"

        async with run.step("work"):
            await run.say("Go: ")
            await run.ask("Report?")
            await run.say("it follows")
            await run.once("outer", outer, uses_run=True)
        await run.say("that was it")
        if self.failures > 0:
            self.failures -= 1
            raise OSError


@pytest.mark.parametrize("failures", [1, 2])
def test_what_a_recorded_effect_sent_in_a_failed_run_is_sent_again_where_it_was(tmp_path: Any, failures: int) -> None:
    threads: list[Any] = []
    for times in (0, failures):
        agent = Reporting(times)
        with serving(App(agent, store=SQLiteStore(tmp_path / f"{times}.db"))) as server:
            question = question_of(server.events(run_id="r1", messages=[user_json("u1", "Go")]))
            for attempt in range(times + 1):
                events = server.events(run_id=f"a{attempt}", resume=approves(question))
                check_valid(events)
            threads.append(thread_of(server))
        assert agent.effects == ["outer", "inner"]
    as_sent, again = (sorted(messages, key=lambda one: one["id"]) for messages, _ in threads)
    assert again == as_sent  # an activity keeps its place in a snapshot (MSGS-2), so it may come earlier
    assert contents(threads[1][0]) == ["Go", "Go: ", "it follows", "looking", "a note", "the report", "that was it"]


def test_an_agent_that_is_not_replayed_has_the_effects_of_the_failed_run_with_the_same_answer(store: Any) -> None:
    paid: list[str] = []

    async def agent(run: Any) -> Any:
        if not run.resume:
            asked = Interrupt(id="pay?", reason="tool_call")
            yield RunFinishedEvent(
                thread_id=run.thread_id,
                run_id=run.run_id,
                outcome=RunFinishedInterruptOutcome(interrupts=[asked]),
            )
            return
        yield f"attempt {run.run_id}: "
        yield await run.once("pay", lambda: paid.append(run.run_id) or f"paid in {run.run_id}")
        if run.run_id == "r2":
            raise OSError

    with serving(App(agent, store=store)) as server:
        question = question_of(server.events(run_id="r1", messages=[user_json("u1", "Go")]))
        check_valid(server.events(run_id="r2", resume=approves(question)))
        events = server.events(run_id="r3", resume=approves(question))
        check_valid(events)
        assert contents(thread_of(server)[0]) == ["Go", "attempt r2: paid in r2", "attempt r3: paid in r2"]
    assert paid == ["r2"]
