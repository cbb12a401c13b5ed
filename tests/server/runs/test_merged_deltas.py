"""Merged deltas as clients and agents see them."""

from __future__ import annotations

from typing import Any

import pytest
from serving import Gate, run_input, serving, text_of, types

from aguila import App
from aguila.chat import TextContent
from aguila.codec.negotiate import PROTOBUF_MEDIA_TYPE
from aguila.codec.protobuf import ProtobufDecoder
from aguila.codec.sse import SSEDecoder
from aguila.errors import EncodeError, IllegalStep
from aguila.protocol import RunErrorEvent, TextMessageEndEvent
from aguila.server import Sends
from aguila.server.runs import event_pump
from aguila.store import MemoryStore, SQLiteStore
from aguila.stream import consume

TOKENS = [f"token{number} " for number in range(300)]


@pytest.fixture(params=["memory", "sqlite"])
def store(request: pytest.FixtureRequest, tmp_path: Any) -> Any:
    return MemoryStore() if request.param == "memory" else SQLiteStore(tmp_path / "threads.db")


async def fast(run: Any) -> None:
    """Write a text, a reasoning message and arguments, as the agent and as a subagent."""
    async with run.reasoning() as reasoning:
        for token in TOKENS:
            await reasoning.write(token)
    async with run.subagent("helper") as helper, helper.text() as inner, run.text() as outer:
        for token in TOKENS:
            await inner.write(token)
            await outer.write(token)
    async with run.stream_tool_call("find") as call:
        for token in TOKENS:
            await call.args(token)
    await call.result("found")


def deltas_of(events: list[dict[str, Any]]) -> list[str]:
    return [event["delta"] for event in events if "delta" in event]


def test_deltas_that_come_faster_than_the_window_are_merged(store: Any) -> None:
    async def agent(run: Any) -> Any:
        for token in TOKENS:
            yield token

    with serving(App(agent, store=store)) as server:
        with server.run() as stream:
            live = stream.frames()
        with server.stream("GET", "/threads/thread/events") as stream:
            stored = stream.frames()
        assert stored == live
        assert [number for number, _ in live] == list(range(1, len(live) + 1))
        assert len(live) < 30
        events = server.get("/threads/thread").json()
        assert events["messages"][-1]["content"] == "".join(TOKENS)


def test_each_delta_is_an_event_without_merging(store: Any) -> None:
    async def agent(run: Any) -> Any:
        for token in TOKENS:
            yield token

    with serving(App(agent, store=store, sends=Sends(merge_deltas=False))) as server:
        assert deltas_of(server.events()) == TOKENS


@pytest.mark.parametrize("merges", [True, False])
def test_a_source_that_pauses_is_streamed_token_by_token(store: Any, merges: bool) -> None:
    gates = [Gate() for _ in range(5)]

    async def agent(run: Any) -> None:
        async with run.text() as text:
            for number, gate in enumerate(gates):
                await text.write(f"{number}")
                await gate.wait()

    with serving(App(agent, store=store, sends=Sends(merge_deltas=merges))) as server, server.run() as stream:
        for number, gate in enumerate(gates):
            assert stream.read_until("TEXT_MESSAGE_CONTENT")["delta"] == f"{number}"
            gate.open()
        assert types(stream.rest()) == ["TEXT_MESSAGE_END", "RUN_FINISHED"]


def test_the_first_delta_of_an_item_does_not_wait_for_the_window(monkeypatch: pytest.MonkeyPatch) -> None:
    gate = Gate()

    async def agent(run: Any) -> None:
        async with run.text() as text:
            await text.write("first")
            await gate.wait()
            await text.write(" second")

    monkeypatch.setattr(event_pump, "COALESCE", 3600)
    with serving(App(agent)) as server, server.run() as stream:
        assert stream.read_until("TEXT_MESSAGE_CONTENT")["delta"] == "first"
        gate.open()
        assert text_of(stream.rest()) == " second"


@pytest.mark.parametrize("accept", ["text/event-stream", PROTOBUF_MEDIA_TYPE])
@pytest.mark.parametrize("declared", ["1.1", "1.0", ...])
def test_every_reader_gets_the_same_messages_in_fewer_events(declared: Any, accept: str) -> None:
    messages: list[Any] = []
    counts: list[int] = []
    for merges in (True, False):
        with serving(App(fast, sends=Sends(merge_deltas=merges))) as server:
            body = server.post("/", json=run_input(protocolVersion=declared), headers={"accept": accept}).content
        events = (ProtobufDecoder() if accept == PROTOBUF_MEDIA_TYPE else SSEDecoder()).feed(body)
        counts.append(len(events))
        messages.append([(one.role, one.content) for one in consume(events).messages])
    assert messages[0] == messages[1]
    assert ("assistant", "".join(TOKENS)) in messages[0]
    assert counts[0] < counts[1] / 5


async def write_to_a_text_that_was_ended(run: Any, errors: list[Exception]) -> Any:
    async with run.text() as text:
        await text.write("a")
        await text.write("b")
        yield TextMessageEndEvent(message_id=text.message_id)
        try:
            await text.write("c")
        except IllegalStep as error:
            errors.append(error)


async def write_a_number(run: Any, errors: list[Exception]) -> Any:
    async with run.text() as text:
        await text.write("a")
        await text.write("b")
        try:
            await text.write(5)
        except EncodeError as error:
            errors.append(error)
    return
    yield


@pytest.mark.parametrize("write", [write_to_a_text_that_was_ended, write_a_number])
def test_an_invalid_delta_raises_at_the_agents_call(write: Any) -> None:
    errors: list[Exception] = []

    async def agent(run: Any) -> Any:
        async for event in write(run, errors):
            yield event

    with serving(App(agent)) as server:
        assert deltas_of(server.events()) == ["ab"]
    assert len(errors) == 1


@pytest.mark.parametrize("ending", [RunErrorEvent(message="failed"), TextContent("chat")])
def test_text_after_another_value_is_not_added_to_the_delta_before(ending: Any) -> None:
    async def agent(run: Any) -> Any:
        yield "a"
        yield "b"
        yield ending
        yield "c"

    with serving(App(agent)) as server:
        assert deltas_of(server.events())[0] == "ab"


def test_a_replay_continues_a_text_after_its_merged_deltas(store: Any) -> None:
    async def agent(run: Any) -> None:
        async with run.text() as text:
            for token in TOKENS[:100]:
                await text.write(token)
            answer = await run.ask("Go on?")
            await text.write(answer)
            await text.write("!")

    with serving(App(agent, store=store)) as server:
        asked = server.events()
        assert text_of(asked) == "".join(TOKENS[:100])
        question = asked[-1]["outcome"]["interrupts"][0]["id"]
        resume = [{"interruptId": question, "status": "resolved", "payload": "yes"}]
        assert text_of(server.events(run_id="next", resume=resume)) == "yes!"
        assert server.get("/threads/thread").json()["messages"][-1]["content"] == "".join(TOKENS[:100]) + "yes!"
