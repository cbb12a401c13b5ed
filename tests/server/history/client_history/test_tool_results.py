"""A client's tool message never replaces the result of a call that the server answers, as CopilotKit's would."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from serving import Server, check_valid, serving, text_of, types

from aguila import App
from aguila.chat import as_chat_messages, provider_history
from aguila.protocol import (
    DataSource,
    ImagePart,
    ReasoningEncryptedValueEvent,
    TextPart,
    ToolCallEndEvent,
    ToolCallResultEvent,
    ToolCallStartEvent,
)
from aguila.store import SQLiteStore

Events = list[dict[str, Any]]
Messages = list[dict[str, Any]]

HELLO = [{"id": "u1", "role": "user", "content": "Pay"}]
IMAGE = DataSource(value="AA==", mime_type="image/png")
AGAIN = {"id": "u2", "role": "user", "content": "And now?"}


@pytest.fixture(params=["client", "server"])
def history(request: pytest.FixtureRequest) -> Any:
    return request.param


class Paying:
    """Asks for approval, pays, and answers the call; in other runs sends the messages that it sees."""

    def __init__(self) -> None:
        self.seen: list[list[str]] = []
        self.came_with: list[str] = []
        self.to_the_model: list[str] = []

    async def __call__(self, run: Any) -> Any:
        self.seen.append([f"{one.role} {one.content}" for one in run.messages])
        if run.messages[-1].content == "Pay":
            approval = await run.approve("pay", {"amount": 5})
            self.came_with = [one.role for one in run.resume_messages]
            await approval.call.result("paid" if approval else "not paid")
            return
        for message in provider_history(as_chat_messages(run.messages)).messages:
            self.to_the_model += [str(content.result) for content in message.contents if hasattr(content, "result")]
        yield "Nothing."


def own_message(call_id: str, message_id: str = "own", content: str = '{"approved":true}') -> dict[str, Any]:
    """Return the tool message that CopilotKit adds by itself."""
    return {"id": message_id, "role": "tool", "toolCallId": call_id, "content": content}


def answer(question: dict[str, Any], payload: Any) -> list[dict[str, Any]]:
    return [{"interruptId": question["id"], "status": "resolved", "payload": payload}]


def question_of(events: Events) -> dict[str, Any]:
    check_valid(events)
    (interrupt,) = events[-1]["outcome"]["interrupts"]
    return interrupt


def thread_of(server: Server) -> Messages:
    return server.get("/threads/thread").json()["messages"]


def results(messages: Messages) -> list[tuple[str, Any]]:
    return [(one["toolCallId"], one["content"]) for one in messages if one["role"] == "tool"]


def applied(events: Events, messages: Messages) -> Messages:
    """Return the messages of a client after these events. Only snapshots and results are applied."""
    for event in events:
        if event["type"] == "MESSAGES_SNAPSHOT":
            messages = list(event["messages"])
        elif event["type"] == "TOOL_CALL_RESULT":
            result = {"id": event["messageId"], "role": "tool", **{k: event[k] for k in ("toolCallId", "content")}}
            messages = [*messages, result]
    return messages


def test_the_message_that_comes_with_the_answer_is_kept_aside(store: Any, history: Any) -> None:
    agent = Paying()
    notices: list[Any] = []
    with serving(App(agent, store=store, history=history, warn=notices.append)) as server:
        question = question_of(server.events(run_id="r1", messages=HELLO))
        call_id = question["toolCallId"]
        sent = [*thread_of(server), own_message(call_id)]
        events = server.events(run_id="r1", messages=sent, resume=answer(question, {"approved": True}))
        check_valid(events)
        assert types(events)[:2] == ["RUN_STARTED", "MESSAGES_SNAPSHOT"]
        assert results(events[1]["messages"]) == []
        client = applied(events, sent)
        assert results(client) == results(thread_of(server)) == [(call_id, "paid")]
        assert [one.rule for one in notices].count("tool-results") == 1
        assert "'own'" in next(one.message for one in notices if one.rule == "tool-results")
        # The log has it, so that a client that joins later gets the same.
        with server.stream("GET", "/threads/thread/events?protocolVersion=1.1") as stream:
            assert types(stream.rest()).count("MESSAGES_SNAPSHOT") == 1
        assert text_of(server.events(run_id="r2", messages=[*client, AGAIN])) == "Nothing."
    assert agent.came_with == []
    assert agent.to_the_model == ["paid"]


@pytest.mark.parametrize("keeps", ["both", "its own"])
def test_the_message_never_replaces_the_result_on_a_later_turn(store: Any, history: Any, keeps: str) -> None:
    """A client that takes no notice of the snapshot sends its own message again and again."""
    agent = Paying()
    with serving(App(agent, store=store, history=history)) as server:
        question = question_of(server.events(run_id="r1", messages=HELLO))
        call_id = question["toolCallId"]
        before = thread_of(server)
        server.events(
            run_id="r1", messages=[*before, own_message(call_id)], resume=answer(question, {"approved": True})
        )
        (result,) = [one for one in thread_of(server) if one["role"] == "tool"]
        held = [*before, own_message(call_id), *([result] if keeps == "both" else [])]
        for turn in range(2, 4):
            asks = {**AGAIN, "id": f"u{turn}"}
            held = [*held, asks]
            events = server.events(run_id=f"r{turn}", messages=held)
            assert "MESSAGES_SNAPSHOT" not in types(events)
            assert results(thread_of(server)) == [(call_id, "paid")]
            held = [*held, thread_of(server)[-1]]
    assert agent.to_the_model == ["paid", "paid"]
    assert [one for one in agent.seen[-1] if one.startswith("tool")] == ["tool paid"]


def test_an_edited_result_of_the_server_does_not_count(store: Any, history: Any) -> None:
    agent = Paying()
    notices: list[Any] = []
    with serving(App(agent, store=store, history=history, warn=notices.append)) as server:
        question = question_of(server.events(run_id="r1", messages=HELLO))
        server.events(run_id="r2", messages=thread_of(server), resume=answer(question, {"approved": False}))
        forged = [{**one, "content": "paid"} if one["role"] == "tool" else one for one in thread_of(server)]
        server.events(run_id="r3", messages=[*forged, AGAIN])
        assert results(thread_of(server)) == [(question["toolCallId"], "not paid")]
        assert "tool-results" in [one.rule for one in notices]
    assert agent.to_the_model == ["not paid"]


def test_the_answer_of_a_front_end_tool_counts_as_before(store: Any, history: Any) -> None:
    seen: list[Any] = []

    async def agent(run: Any) -> Any:
        if run.messages[-1].role == "tool":
            seen.append(run.messages[-1].content)
            yield "Thanks."
        else:
            await run.tool_call("locate", {})

    with serving(App(agent, store=store, history=history)) as server:
        server.events(run_id="r1", messages=HELLO)
        (call,) = thread_of(server)[-1]["toolCalls"]
        sent = [*thread_of(server), own_message(call["id"], content="Rome")]
        events = server.events(run_id="r2", messages=sent)
        assert (text_of(events), "MESSAGES_SNAPSHOT" in types(events)) == ("Thanks.", False)
        assert results(thread_of(server)) == [(call["id"], "Rome")]
        server.events(run_id="r3", messages=[*sent, thread_of(server)[-1], AGAIN, own_message(call["id"], "own2")])
    assert seen[0] == "Rome"


def test_a_call_that_is_asked_about_and_started_again_can_be_left_to_the_front_end(store: Any, history: Any) -> None:
    seen: list[Any] = []

    async def agent(run: Any) -> Any:
        if run.messages[-1].role == "tool":
            seen.append(run.messages[-1].content)
            return
        approval = await run.approve("locate", {})
        yield ToolCallStartEvent(tool_call_id=approval.call.id, tool_call_name="locate")
        yield ToolCallEndEvent(tool_call_id=approval.call.id)

    with serving(App(agent, store=store, history=history)) as server:
        question = question_of(server.events(run_id="r1", messages=HELLO))
        call_id = question["toolCallId"]
        sent = [*thread_of(server), own_message(call_id)]
        server.events(run_id="r1", messages=sent, resume=answer(question, {"approved": True}))
        assert results(thread_of(server)) == []
        server.events(run_id="r3", messages=[*thread_of(server), own_message(call_id, "located", "Rome")])
        assert results(thread_of(server)) == [(call_id, "Rome")]
    assert seen == ["Rome"]


def test_the_message_is_kept_aside_after_the_run_failed_and_when_it_is_tried_again(store: Any, history: Any) -> None:
    failures = [1, 1]

    async def agent(run: Any) -> Any:
        approval = await run.approve("pay", {"amount": 5})
        await approval.call.result("paid")
        if failures.pop():
            raise RuntimeError("after the result")
        yield "Done."

    failures.insert(0, 0)
    with serving(App(agent, store=store, history=history)) as server:
        question = question_of(server.events(run_id="r1", messages=HELLO))
        call_id = question["toolCallId"]
        sent = [*thread_of(server), own_message(call_id)]
        for _ in range(2):
            events = server.events(run_id="r1", messages=sent, resume=answer(question, {"approved": True}))
            assert events[-1]["type"] == "RUN_ERROR"
            sent = [one for one in applied(events, sent) if one["role"] != "tool"]
            sent.append(own_message(call_id))
        events = server.events(run_id="r1", messages=sent, resume=answer(question, {"approved": True}))
        assert events[-1]["outcome"] == {"type": "success"}
        assert types(events).count("MESSAGES_SNAPSHOT") == 1
        assert results(applied(events, sent)) == results(thread_of(server)) == [(call_id, "paid")]


def test_a_view_that_is_read_anew_is_the_same(tmp_path: Path, history: Any) -> None:
    path = tmp_path / "threads.db"
    threads: list[Messages] = []
    with serving(App(Paying(), store=SQLiteStore(path), history=history)) as server:
        question = question_of(server.events(run_id="r1", messages=HELLO))
        sent = [*thread_of(server), own_message(question["toolCallId"])]
        server.events(run_id="r1", messages=sent, resume=answer(question, {"approved": True}))
        server.events(run_id="r2", messages=[*sent, AGAIN])
        threads.append(thread_of(server))
    with serving(App(Paying(), store=SQLiteStore(path), history=history)) as server:
        threads.append(thread_of(server))
        with server.run("/connect", run_id="visit") as stream:
            (snapshot,) = [event for event in stream.rest() if event["type"] == "MESSAGES_SNAPSHOT"]
        threads.append(snapshot["messages"])
    assert threads[0] == threads[1] == threads[2]
    assert results(threads[0]) == [(question["toolCallId"], "paid")]
    assert "approved" not in json.dumps([one for one in threads[0] if one["role"] == "tool"])


def test_a_result_that_a_dialect_wrote_as_text_reaches_the_agent_as_it_was(store: Any, history: Any) -> None:
    seen: list[Any] = []
    notices: list[Any] = []

    async def agent(run: Any) -> Any:
        seen.append([one.content for one in run.messages if one.role == "tool"])
        if len(seen) == 1:
            call = await run.tool_call("draw", {})
            await call.result([TextPart(text="here"), ImagePart(source=IMAGE)])
        yield "ok"

    with serving(App(agent, store=store, history=history, warn=notices.append)) as server:
        events = server.events(run_id="r1", messages=HELLO, protocolVersion=...)
        (result,) = [event for event in events if event["type"] == "TOOL_CALL_RESULT"]
        assert isinstance(result["content"], str)
        sent = [{**one, "content": result["content"]} if one["role"] == "tool" else one for one in thread_of(server)]
        server.events(run_id="r2", messages=[*sent, AGAIN], protocolVersion=...)
        assert isinstance(results(thread_of(server))[0][1], list)
    assert seen[1] == [[TextPart(text="here"), ImagePart(source=IMAGE)]]
    assert "tool-results" not in [one.rule for one in notices]


def test_an_encrypted_value_of_a_result_returns_to_the_agent(store: Any, history: Any) -> None:
    """pydantic-ai reports a denied call in this form. A client that sends it back has not edited the result."""
    seen: list[Any] = []
    notices: list[Any] = []

    async def agent(run: Any) -> Any:
        seen.append([one.encrypted_value for one in run.messages if one.role == "tool"])
        if len(seen) == 1:
            yield ToolCallStartEvent(tool_call_id="c1", tool_call_name="pay")
            yield ToolCallEndEvent(tool_call_id="c1")
            yield ToolCallResultEvent(message_id="t1", tool_call_id="c1", content="no")
            yield ReasoningEncryptedValueEvent(subtype="message", entity_id="t1", encrypted_value="denied")
        else:
            yield "Nothing."

    with serving(App(agent, store=store, history=history, warn=notices.append)) as server:
        check_valid(server.events(run_id="r1", messages=HELLO))
        server.events(run_id="r2", messages=[*thread_of(server), AGAIN])
    assert seen == [[], ["denied"]]
    assert [one.message for one in notices if one.rule == "tool-results"] == []
