"""History, interrupts and joins over HTTP."""

from __future__ import annotations

import asyncio
import json
import re
from contextlib import closing
from typing import Any

import pytest
from builders import user_json
from serving import REPOSITORY, Gate, check_valid, run_input, serving, text_of, types

from aguila import App
from aguila.agent import RunInterrupt
from aguila.codec import Notice, decode_event, encode
from aguila.protocol import Interrupt as Question
from aguila.server import Sends
from aguila.store import MemoryStore, Want


def answers(*pairs: tuple[str, Any], status: str = "resolved") -> list[dict[str, Any]]:
    return [{"interruptId": name, "status": status, "payload": payload} for name, payload in pairs]


def interrupt_ids(events: list[dict[str, Any]]) -> list[str]:
    check_valid(events)
    return [interrupt["id"] for interrupt in events[-1]["outcome"]["interrupts"]]


def code_of(server: Any, **members: Any) -> tuple[int, str]:
    response = server.post("/", json=run_input(**members))
    return response.status_code, json.loads(response.content)["error"]["code"]


async def asks_twice(run: Any) -> Any:
    yield f"{run.messages[-1].content}: "
    run.state["asked"] = run.state.get("asked", 0) + 1
    first = await run.ask("First?", schema={"type": "string"})
    yield f"first={first} "
    second = await run.ask("Second?")
    yield f"second={second}"


@pytest.mark.parametrize("history", ["client", "server"])
def test_a_chain_of_questions_is_one_message_and_nothing_is_said_twice(store: Any, history: Any) -> None:
    with serving(App(asks_twice, store=store, history=history)) as server:
        (first,) = interrupt_ids(server.events(run_id="r1", messages=[user_json("u1", "Go")], state={"kept": True}))
        assert code_of(server, run_id="r2", messages=[user_json("u2", "well?")]) == (422, "interrupt_uncovered")
        assert code_of(server, run_id="r2", resume=answers((first, 5))) == (422, "interrupt_answer_invalid")
        (second,) = interrupt_ids(server.events(run_id="r2", resume=answers((first, "a"))))
        events = server.events(run_id="r3", resume=answers((second, "b")))
        check_valid(events)
        assert text_of(events) == "second=b"
        assert code_of(server, run_id="r4", resume=answers((second, "c"))) == (409, "interrupt_stale")
        with server.run("/connect", run_id="visit") as stream:
            joined = stream.rest()
        check_valid(joined)
        assert joined[1]["snapshot"] == {"kept": True, "asked": 1}
        assert [message["content"] for message in joined[2]["messages"]] == ["Go", "Go: first=a second=b"]


def test_an_answer_response_of_document_003_is_read_as_the_text_that_the_schema_requires(store: Any) -> None:
    notices: list[Notice] = []
    with serving(App(asks_twice, store=store, warn=notices.append)) as server:
        (first,) = interrupt_ids(server.events(run_id="r1", messages=[user_json("u1", "Go")]))
        invalid = answers((first, {"response": 5}))
        assert code_of(server, run_id="r2", resume=invalid) == (422, "interrupt_answer_invalid")
        (second,) = interrupt_ids(server.events(run_id="r2", resume=answers((first, {"response": "a"}))))
        assert [notice.rule for notice in notices] == ["VER-18"]
        # The agent is replayed with the first answer. A question without that schema gets the answer as it is.
        events = server.events(run_id="r3", resume=answers((second, {"response": "b"})))
        assert text_of(events) == "second={'response': 'b'}"
        messages = server.get("/threads/thread").json()["messages"]
        assert messages[-1]["content"] == "Go: first=a second={'response': 'b'}"


@pytest.mark.parametrize("name", ["mine", "int_mine"])
def test_an_agent_that_raises_its_own_interrupt_uses_the_answer_when_it_is_done(store: Any, name: str) -> None:
    async def agent(run: Any) -> Any:
        if not run.resume:
            raise RunInterrupt(Question(id=name, reason="confirm"))
        if run.resume[0].payload == "fail":
            raise ValueError("no")
        yield f"got {run.resume[0].payload}"

    with serving(App(agent, store=store, allow_anonymous=True)) as server:

        def waiting() -> list[str]:
            return [interrupt["id"] for interrupt in server.get("/threads/thread").json()["interrupts"]]

        assert interrupt_ids(server.events(run_id="r1")) == [name]
        assert waiting() == [name]
        assert server.events(run_id="r2", resume=answers((name, "fail")))[-1]["type"] == "RUN_ERROR"
        assert waiting() == [name]
        assert text_of(server.events(run_id="r3", resume=answers((name, "yes")))) == "got yes"
        assert waiting() == []
        again = {"resume": answers((name, "yes"))}
        assert code_of(server, run_id="r4", **again) == (409, "interrupt_stale")
        # Nor from the run that asked: it is settled once.
        assert code_of(server, run_id="r4", parentRunId="r1", **again) == (409, "interrupt_stale")


def test_an_answer_counts_as_used_in_the_very_transaction_that_closes_its_run() -> None:
    before_the_end: list[list[str]] = []

    class Watching(MemoryStore):
        """Looks at the interrupts right before a run is closed: that is where a process may die."""

        async def write(self, lease: Any, change: Any) -> Any:
            if change.end is not None:
                found = await self.thread(lease.scope, lease.thread_id, Want(interrupts=True))
                before_the_end.append([one.status for one in found.interrupts])
            return await super().write(lease, change)

    async def agent(run: Any) -> Any:
        if not run.resume:
            raise RunInterrupt(Question(id="mine", reason="confirm"))
        yield "done"

    with serving(App(agent, store=Watching())) as server:
        server.events(run_id="r1")
        assert text_of(server.events(run_id="r2", resume=answers(("mine", True)))) == "done"
        assert code_of(server, run_id="r3", resume=answers(("mine", True))) == (409, "interrupt_stale")
    assert before_the_end == [[], ["claimed"]]


def test_an_interrupt_that_a_watched_run_is_answering_is_taken(store: Any) -> None:
    gate = Gate()

    calls: list[str] = []

    async def agent(run: Any) -> Any:
        calls.append(run.run_id)
        if len(calls) > 1:
            await gate.wait()  # before the answer is used
        yield await run.ask("Go?")

    with serving(App(agent, store=store)) as server, closing(server.peer()) as other:
        (name,) = interrupt_ids(server.events(run_id="r1", messages=[user_json("u1", "x")]))
        with server.run(run_id="r2", resume=answers((name, "one"))) as first:
            first.read_until("RUN_STARTED")
            gate.await_reached()
            assert code_of(other, run_id="r3", resume=answers((name, "two"))) == (409, "interrupt_taken")
            gate.open()
            rest = first.rest()
        assert text_of(rest) == "one"
        assert code_of(server, run_id="r3", resume=answers((name, "two"))) == (409, "interrupt_stale")
    assert len(calls) == 2


@pytest.mark.parametrize("is_used", [False, True])
@pytest.mark.parametrize("busy", ["auto", "replace", "queue", "reject"])
def test_a_second_click_attaches_to_the_run_that_uses_the_answer(store: Any, busy: Any, is_used: bool) -> None:
    gate = Gate()
    calls: list[str] = []

    async def agent(run: Any) -> Any:
        calls.append(run.run_id)
        if len(calls) > 1 and not is_used:
            await gate.wait()
        answer = await run.ask("Go?")
        if is_used:
            await gate.wait()
        yield answer

    with serving(App(agent, store=store, busy=busy)) as server, closing(server.peer()) as other:
        (name,) = interrupt_ids(server.events(run_id="r1", messages=[user_json("u1", "x")]))
        with server.run(run_id="r2", resume=answers((name, "one"))) as first:
            first.read_until("RUN_STARTED")
            gate.await_reached()
            with other.run(run_id="r3", resume=answers((name, "one"))) as second:
                assert second.next_event()["type"] == "RUN_STARTED"
                gate.open()
                assert text_of(second.rest()) == "one"
            assert text_of(first.rest()) == "one"
    assert calls == ["r1", "r2"]


@pytest.mark.parametrize("busy", ["auto", "replace", "queue", "reject"])
def test_a_second_click_with_another_answer_is_refused_and_cancels_nothing(store: Any, busy: Any) -> None:
    gate = Gate()

    async def agent(run: Any) -> Any:
        answer = await run.ask("Go?")
        await gate.wait()
        yield answer

    with serving(App(agent, store=store, busy=busy)) as server, closing(server.peer()) as other:
        (name,) = interrupt_ids(server.events(run_id="r1", messages=[user_json("u1", "x")]))
        with server.run(run_id="r2", resume=answers((name, "one"))) as first:
            first.read_until("RUN_STARTED")
            gate.await_reached()
            status, code = code_of(other, run_id="r3", resume=answers((name, "two")))
            assert (status, code) in {(409, "interrupt_taken"), (409, "interrupt_stale")}
            gate.open()
            events = first.rest()
        assert text_of(events) == "one"
        assert events[-1]["outcome"] == {"type": "success"}


async def tells(run: Any) -> Any:
    yield f"{[message.content for message in run.messages]} {run.state}"
    run.state["turns"] = run.state.get("turns", 0) + 1


def test_the_server_keeps_messages_and_state_for_clients_that_send_what_is_new(store: Any) -> None:
    with serving(App(tells, store=store, history="server")) as server:
        server.events(run_id="r1", messages=[user_json("u1", "one")], state={})
        events = server.events(run_id="r2", messages=[user_json("u2", "two")], state={})
        check_valid(events)
        assert types(events)[:2] == ["RUN_STARTED", "STATE_SNAPSHOT"]
        assert text_of(events) == "['one', \"['one'] {}\", 'two'] {'turns': 1}"
        # A branch from before that.
        events = server.events(run_id="r3", messages=[user_json("u3", "or")], parentRunId="r1")
        assert text_of(events) == "['one', \"['one'] {}\", 'or'] {'turns': 1}"


def test_a_client_that_edits_and_sends_again_has_the_thread_follow_it(store: Any) -> None:
    with serving(App(tells, store=store, allow_anonymous=True)) as server:

        def thread(query: str = "") -> list[dict[str, Any]]:
            return server.get(f"/threads/thread{query}").json()["messages"]

        server.events(run_id="r1", messages=[user_json("u1", "one")])
        first = thread()
        server.events(run_id="r2", messages=[*first, user_json("u2", "two")])
        second = thread()
        assert second[:-1] == [*first, user_json("u2", "two")]
        # The second question is asked again, in other words.
        events = server.events(run_id="r3", messages=[*first, user_json("u2", "deux")])
        assert thread()[:-1] == [*first, user_json("u2", "deux")]
        assert thread()[-1]["content"] == text_of(events)
        with server.run("/connect", run_id="visit") as stream:
            joined = stream.rest()
        check_valid(joined)
        assert [event["messages"] for event in joined if event["type"] == "MESSAGES_SNAPSHOT"] == [thread()]
        assert thread("?run=r2") == second
        server.events(run_id="r4", messages=[user_json("u4", "or")], parentRunId="r2")
        assert thread()[:-1] == [*second, user_json("u4", "or")]


def test_another_version_of_what_the_server_holds_does_not_count_and_is_said(store: Any) -> None:
    notices: list[Any] = []
    with serving(App(tells, store=store, history="server", allow_anonymous=True, warn=notices.append)) as server:
        server.events(run_id="r1", messages=[user_json("u1", "one")], protocolVersion="1.1")
        answer = server.get("/threads/thread").json()["messages"][1]
        events = server.events(
            run_id="r2", messages=[user_json("u1", "uno"), answer, user_json("u2", "two")], protocolVersion="1.1"
        )
        assert text_of(events).startswith("['one'")
        messages = server.get("/threads/thread").json()["messages"]
    assert [message["content"] for message in messages if message["role"] == "user"] == ["one", "two"]
    assert [notice.rule for notice in notices] == ["server-history"]
    assert "'u1'" in notices[0].message


def test_no_messages_hydrate_without_calling_the_agent(store: Any) -> None:
    with serving(App(tells, store=store, history="server", allow_anonymous=True)) as server:
        assert types(server.events(run_id="r0")) == ["RUN_STARTED", "RUN_FINISHED"]
        server.events(run_id="r1", messages=[user_json("u1", "one")])
        hydrated = server.events(run_id="r2")
        check_valid(hydrated)
        assert types(hydrated) == ["RUN_STARTED", "STATE_SNAPSHOT", "MESSAGES_SNAPSHOT", "RUN_FINISHED"]
        assert [run["runId"] for run in server.get("/threads/thread").json()["runs"]] == ["r1"]


def test_a_client_that_joins_in_the_middle_of_a_message_gets_the_whole_message(store: Any) -> None:
    gate = Gate()

    async def agent(run: Any) -> Any:
        yield "one "
        run.state["n"] = 1
        await gate.wait()
        yield "two"
        run.state["n"] = 2

    with (
        serving(App(agent, store=store)) as server,
        closing(server.peer()) as other,
        server.run(run_id="r1", messages=[user_json("u1", "x")]) as first,
    ):
        first.read_until("TEXT_MESSAGE_CONTENT")
        with other.run("/connect", run_id="visit") as second:
            start = [second.next_event() for _ in range(3)]
            assert [event["type"] for event in start if event] == ["RUN_STARTED", "STATE_SNAPSHOT", "MESSAGES_SNAPSHOT"]
            gate.open()
            rest = second.rest()
        events = [event for event in [*start, *rest] if event is not None]
        check_valid(events)
        assert events[0]["runId"] == events[-1]["runId"] == "r1"
        assert events[2]["messages"][-1]["content"] + text_of(events) == "one two"
        assert first.rest()[-1] == events[-1]


@pytest.mark.parametrize("history", ["client", "server"])
@pytest.mark.parametrize("form", ["async", "thread"])
def test_the_input_of_an_answer_is_sent_and_can_be_read_int_11(store: Any, history: Any, form: str) -> None:
    async def agent(run: Any) -> Any:
        run.state["a"] = 1
        assert (run.resume_input is None) == (run.run_id == "r1")
        await run.ask("?")
        return seen(run)

    def in_a_thread(run: Any) -> Any:
        run.state["a"] = 1
        run.ask("?")
        return seen(run)

    def seen(run: Any) -> Any:
        came = run.resume_input
        run.state["ui"] = came.state["ui"]
        return {"messages": [m.id for m in run.messages], "came": [m.id for m in came.messages if m.role == "user"]}

    notices: list[Any] = []
    which = agent if form == "async" else in_a_thread
    with serving(App(which, store=store, history=history, warn=notices.append)) as server:
        first = [user_json("u1", "Go")]
        (one,) = interrupt_ids(server.events(run_id="r1", messages=first))
        assert notices == []
        events = server.events(
            run_id="r2",
            messages=[*first, user_json("u2", "also this")],
            state={"a": 1, "ui": 5},
            resume=answers((one, "x")),
        )
        check_valid(events)
        assert events[-1]["result"] == {"messages": ["u1"], "came": ["u1", "u2"]}
        assert server.get("/threads/thread").json()["state"] == {"a": 1, "ui": 5}
    assert [(notice.rule, notice.path) for notice in notices] == [("INT-11", "/state"), ("INT-11", "/messages")]
    assert "'u2'" in notices[1].message
    assert "'u1'" not in notices[1].message


@pytest.mark.parametrize("state", [None, {}, {"asked": 1}])
def test_an_answer_that_comes_as_the_protocol_says_is_no_notice_int_11(store: Any, state: Any) -> None:
    notices: list[Any] = []
    with serving(App(asks_twice, store=store, warn=notices.append)) as server:
        (one,) = interrupt_ids(server.events(run_id="r1", messages=[user_json("u1", "Go")]))
        more = {} if state is None else {"state": state}
        interrupt_ids(server.events(run_id="r2", messages=[user_json("u1", "Go")], resume=answers((one, "x")), **more))
    assert [one for one in notices if one.rule != "client-history"] == []  # the client omits the answer


def document_block(page: str, word: str) -> dict[str, Any]:
    """Return the names that a Python block of a page in docs/ defines."""
    text = (REPOSITORY / f"docs/{page}.md").read_text()
    (block,) = (one for one in re.findall(r"```python\n(.*?)```", text, re.DOTALL) if word in one)
    names: dict[str, Any] = {}
    exec(compile(block, page, "exec"), names)
    return names


def test_the_document_shows_how_to_keep_what_the_front_end_changed(store: Any) -> None:
    with serving(
        App(document_block("interrupts", "resume_input")["agent"], store=store, warn=lambda _: None)
    ) as server:
        (one,) = interrupt_ids(server.events(run_id="r1", messages=[user_json("u1", "Go")], state={"zoom": 1}))
        check_valid(server.events(run_id="r2", state={"zoom": 2}, resume=answers((one, "red"))))
        assert server.get("/threads/thread").json()["state"] == {"zoom": 2, "colour": "red"}
        (one,) = interrupt_ids(server.events(run_id="r3", messages=[user_json("u2", "Go")]))
        check_valid(server.events(run_id="r4", resume=answers((one, "blue"))))
        assert server.get("/threads/thread").json()["state"] == {"zoom": 1, "colour": "blue"}


async def appends(run: Any) -> None:
    run.state.setdefault("l", []).append(len(run.messages))
    await run.say(f"{run.messages[-1].content}!")
    if run.messages[-1].content == "ask":
        run.state["answer"] = await run.ask("?")


@pytest.mark.parametrize("compact", ["", "?compact=true"])
@pytest.mark.parametrize("history", ["client", "server"])
def test_a_log_with_echoes_is_read_to_what_the_thread_is(store: Any, history: Any, compact: str) -> None:
    """The table of the document: states that were sent, changed by the front end, or absent (IN-11, SNAP-4)."""
    read = document_block("threads", "reduce_along")["read"]
    with serving(App(appends, store=store, history=history, sends=Sends(echo_input=True))) as server:
        sent: list[Any] = []

        def talk(run_id: str, content: str | None, **members: Any) -> Any:
            if content is not None:
                sent.append(user_json(f"u-{run_id}", content))
            events = server.events(run_id=run_id, messages=sent, **members)
            view = server.get("/threads/thread").json()
            sent[:] = view["messages"]
            with server.stream("GET", f"/threads/thread/events{compact}") as stream:
                log = stream.rest()
            found = read([decode_event(json.dumps(event).encode()) for event in log])
            assert json.loads(encode(found.messages)) == view["messages"]
            assert found.state == view["state"]
            return events

        talk("r1", "one", state={"l": [9], "x": 1})
        talk("r2", "two")  # which begins with {} if the client keeps the history
        talk("r3", "three", state={"l": [], "ui": 1})
        (question,) = interrupt_ids(talk("r4", "ask", state={"l": [1]}))
        talk("r5", None, resume=answers((question, "yes")))
        assert server.get("/threads/thread").json()["state"]["answer"] == "yes"


def test_without_echoes_the_thread_is_at_its_own_address(store: Any) -> None:
    with serving(App(appends, store=store)) as server:
        events = server.events(messages=[user_json("u1", "one")], state={"l": [9]})
        assert "input" not in events[0]
        view = server.get("/threads/thread").json()
        assert [message["content"] for message in view["messages"]] == ["one", "one!"]
        assert view["state"] == {"l": [9, 1]}


async def asks_in_branches(run: Any) -> None:
    async def book(what: str) -> None:
        async with run.subagent(what) as agent:
            call = await agent.tool_call("book", {"what": what})
            day = await agent.ask(f"{what}: which day?")
            await call.result(f"{day}, {await agent.ask('At what time?')}")

    async with asyncio.TaskGroup() as group:
        for what in ("flight", "dinner"):
            group.create_task(run.branch(what, book, what))
    await run.say("Both are booked.")


class SlowSettling(MemoryStore):
    """Settles every second interrupt late."""

    def __init__(self) -> None:
        super().__init__()
        self._count = 0

    async def write(self, lease: Any, change: Any) -> Any:
        if change.settles and change.end is None:
            self._count += 1
            if self._count % 2 == 0:
                await asyncio.sleep(0.05)
        return await super().write(lease, change)


def test_an_answer_that_is_settled_late_is_not_asked_for_again() -> None:
    check_branches(SlowSettling())


def test_branches_that_ask_side_by_side_go_on_under_their_own_ids(store: Any) -> None:
    check_branches(store)


def check_branches(store: Any) -> None:
    with serving(App(asks_in_branches, store=store)) as server:
        runs = [server.events(run_id="r1", messages=[user_json("u1", "Go")])]
        given: list[str] = []
        for number in range(2, 8):
            if runs[-1][-1]["outcome"]["type"] != "interrupt":
                break
            open_ = interrupt_ids(runs[-1])
            days = [f"answer {len(given) + index}" for index in range(len(open_))]
            given += days
            runs.append(server.events(run_id=f"r{number}", resume=answers(*zip(open_, days, strict=True))))
        check_valid(runs[-1])
        events = [event for run in runs for event in run]
        calls = [event["toolCallId"] for event in events if event["type"] == "TOOL_CALL_START"]
        results = [event["toolCallId"] for event in events if event["type"] == "TOOL_CALL_RESULT"]
        subagents = {event["subagentRunId"] for event in events if event["type"] == "SUBAGENT_STARTED"}
        assert (len(calls), sorted(calls), len(subagents)) == (2, sorted(results), 2)
        assert len(given) == 4  # nothing was asked again
        assert text_of(events) == "Both are booked."
