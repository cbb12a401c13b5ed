"""Iterators of AG-UI events as agents: every form of an event, what is dropped and masked, cancelling, interrupts."""

from __future__ import annotations

import asyncio
import json
from typing import Any

import pytest
from agent_threads import Outcome, Thread, run_agent
from builders import text_message
from serving import Gate, check_valid, serving
from waiting import DEADLINE, wait_until

from aguila import App
from aguila.codec import encode_event
from aguila.codec.official import to_official
from aguila.codec.sse import SSEEncoder
from aguila.frameworks import from_events
from aguila.protocol import (
    AssistantMessage,
    Event,
    Interrupt,
    MessagesSnapshotEvent,
    RawEvent,
    ReasoningMessageContentEvent,
    ReasoningMessageEndEvent,
    ReasoningMessageStartEvent,
    ResumeEntry,
    RunErrorEvent,
    RunFinishedEvent,
    RunFinishedInterruptOutcome,
    RunStartedEvent,
    StateDeltaEvent,
    StateSnapshotEvent,
    TextMessageChunkEvent,
    TextMessageEndEvent,
    TextMessageStartEvent,
    TokenUsage,
    ToolCallEndEvent,
    ToolCallResultEvent,
    ToolCallStartEvent,
    ToolMessage,
    replace,
)
from aguila.server import Timing
from aguila.stream import consume

pytestmark = pytest.mark.anyio

TEXT: list[Event] = text_message("a1", "Hello ", "there", role="assistant")
ENDS: dict[str, Any] = {"thread_id": "another", "run_id": "its own"}


def whole(*events: Event) -> list[Event]:
    return [RunStartedEvent(**ENDS), *events, RunFinishedEvent(**ENDS)]


def yields(*values: Any, **options: Any) -> Any:
    async def iterate() -> Any:
        for value in values:
            yield value

    return from_events(lambda run: iterate(), **options)


def state_after(outcome: Outcome, state: Any = None) -> Any:
    return consume(outcome.events, state={} if state is None else state).state


def forms() -> dict[str, list[Any]]:
    """Return the same run in every form that an iterator may yield."""
    events = whole(*TEXT)
    stream = b": hello\n\n" + b"".join(map(SSEEncoder().encode, events))
    return {
        "ours": list(events),
        "official": [to_official(event) for event in events],
        "dicts": [json.loads(encode_event(event)) for event in events],
        "JSON": [encode_event(event).decode() for event in events],
        "SSE text": [SSEEncoder().encode(event).decode() for event in events],
        "SSE bytes in pieces": [stream[at : at + 7] for at in range(0, len(stream), 7)],
        "SSE without its last blank line": [stream.rstrip()],
    }


@pytest.mark.parametrize("form", list(forms()))
async def test_every_form_of_events_is_read(form: str) -> None:
    outcome = await run_agent(yields(*forms()[form]))
    assert outcome.types == [
        *("RUN_STARTED", "TEXT_MESSAGE_START", "TEXT_MESSAGE_CONTENT", "TEXT_MESSAGE_CONTENT", "TEXT_MESSAGE_END"),
        "RUN_FINISHED",
    ]
    assert outcome.text == "Hello there"
    assert outcome.events[1].message_id == "a1"  # type: ignore[union-attr]


async def test_the_server_owns_the_boundaries() -> None:
    outcome = await run_agent(yields(*TEXT))
    assert (outcome.types[0], outcome.types[-1], outcome.text) == ("RUN_STARTED", "RUN_FINISHED", "Hello there")


async def test_a_factory_may_be_a_coroutine() -> None:
    async def factory(run: Any) -> Any:
        await asyncio.sleep(0)

        async def iterate() -> Any:
            yield TextMessageChunkEvent(message_id="a1", delta=run.run_id)

        return iterate()

    outcome = await run_agent(from_events(factory))
    assert outcome.text == outcome.last.run_id


async def test_raw_events_are_dropped_unless_wanted() -> None:
    events = [RawEvent(event={"large": 1}), replace(TEXT[0], raw_event={"large": 2}), *TEXT[1:]]
    dropped, kept = await run_agent(yields(*events)), await run_agent(yields(*events, raw="keep"))
    assert "large" not in "".join(encode_event(event).decode() for event in dropped.events)
    assert dropped.text == "Hello there"
    assert kept.of(RawEvent)[0].event == {"large": 1}
    assert kept.of(TextMessageStartEvent)[0].raw_event == {"large": 2}


async def test_internal_keys_of_the_state_are_hidden() -> None:
    events = [
        StateSnapshotEvent(snapshot={"count": 1, "_ag_ui_session": {"a": 1}, "messages": []}),
        StateDeltaEvent(delta=[{"op": "add", "path": "/_ag_ui_session/b", "value": 2}]),
        StateDeltaEvent(
            delta=[
                {"op": "replace", "path": "/count", "value": 2},
                {"op": "remove", "path": "/_ag_ui_session"},
            ]
        ),
    ]
    outcome = await run_agent(yields(*events))
    assert state_after(outcome) == {"count": 2, "messages": []}
    assert outcome.types.count("STATE_DELTA") == 1
    assert "_ag_ui" not in "".join(encode_event(event).decode() for event in outcome.events)
    assert state_after(await run_agent(yields(*events, state_keys=["count"]))) == {"count": 2}


@pytest.mark.parametrize(
    "delta",
    [
        [{"op": "replace", "path": "", "value": {"count": 5, "_ag_ui": 1}}],
        [{"op": "copy", "from": "/_ag_ui", "path": "/count"}],
        [{"op": "move", "from": "/_ag_ui", "path": "/count"}],
    ],
)
async def test_a_patch_between_hidden_and_visible_keys_becomes_a_snapshot(delta: Any) -> None:
    outcome = await run_agent(
        yields(StateSnapshotEvent(snapshot={"count": 1, "_ag_ui": 5}), StateDeltaEvent(delta=delta))
    )
    assert state_after(outcome) == {"count": 5}


async def test_a_patch_that_does_not_apply_is_dropped_and_the_run_goes_on() -> None:
    wrong = StateDeltaEvent(delta=[{"op": "remove", "path": "/nothing"}])
    outcome = await run_agent(yields(StateSnapshotEvent(snapshot={"a": 1}), wrong, *TEXT))
    assert outcome.ending.outcome == "success"
    assert (outcome.text, state_after(outcome)) == ("Hello there", {"a": 1})


async def test_a_message_that_a_snapshot_renames_keeps_its_id() -> None:
    call: dict[str, Any] = {"id": "c1", "type": "function", "function": {"name": "sum", "arguments": "{}"}}
    snapshot = [
        {"id": "renamed", "role": "assistant", "toolCalls": [call]},
        {"id": "renamed too", "role": "tool", "toolCallId": "c1", "content": "5"},
        {"id": "a1", "role": "assistant", "content": "It is 5."},
    ]
    outcome = await run_agent(
        yields(
            ToolCallStartEvent(tool_call_id="c1", tool_call_name="sum", parent_message_id="p1"),
            ToolCallEndEvent(tool_call_id="c1"),
            ToolCallResultEvent(message_id="t1", tool_call_id="c1", content="5"),
            TextMessageChunkEvent(message_id="a1", delta="It is 5."),
            {"type": "MESSAGES_SNAPSHOT", "messages": snapshot},
        )
    )
    (event,) = outcome.of(MessagesSnapshotEvent)
    assert [message.id for message in event.messages] == ["p1", "t1", "a1"]
    assert isinstance(event.messages[0], AssistantMessage)
    assert isinstance(event.messages[1], ToolMessage)


async def test_texts_and_thoughts_that_a_snapshot_renames_keep_their_ids() -> None:
    streamed = [*thought("r1"), *text_message("a1", "one"), *thought("r2"), *text_message("a2", "two")]
    snapshot = [
        {"id": "u1", "role": "user", "content": "?"},
        {"id": "x", "role": "reasoning", "content": "hm"},
        {"id": "a1", "role": "assistant", "content": "one"},
        {"id": "y", "role": "reasoning", "content": "hm"},
        {"id": "z", "role": "assistant", "content": "two"},
    ]
    for left_out, expected in (([], ["u1", "r1", "a1", "r2", "a2"]), (["x"], ["u1", "a1", "y", "a2"])):
        messages = [message for message in snapshot if message["id"] not in left_out]
        outcome = await run_agent(yields(*streamed, {"type": "MESSAGES_SNAPSHOT", "messages": messages}))
        (event,) = outcome.of(MessagesSnapshotEvent)
        assert [message.id for message in event.messages] == expected


def thought(message_id: str) -> list[Event]:
    return [
        ReasoningMessageStartEvent(message_id=message_id, role="reasoning"),
        ReasoningMessageContentEvent(message_id=message_id, delta="hm"),
        ReasoningMessageEndEvent(message_id=message_id),
    ]


async def test_error_texts_are_masked_unless_they_may_pass() -> None:
    error = RunErrorEvent(message="a secret", code="E1", usage=[TokenUsage(model="m", input_tokens=3)])
    masked, passed = await run_agent(yields(*TEXT, error)), await run_agent(yields(*TEXT, error, errors="pass"))
    assert (masked.last.code, masked.text) == ("agent_error", "Hello there")
    assert "a secret" not in masked.last.message
    assert "a secret" in str(masked.ending.error)
    assert masked.last.usage == [TokenUsage(model="m", input_tokens=3)]
    assert (passed.last.message, passed.last.code) == ("a secret", "E1")


async def test_an_exception_of_the_iterator_is_masked_and_no_cancel() -> None:
    calls: list[Any] = []

    async def factory(run: Any) -> Any:
        yield TEXT[0]
        raise ValueError("a secret")

    outcome = await run_agent(from_events(factory, on_cancel=calls.append))
    assert outcome.last.code == "agent_error"
    assert "a secret" not in outcome.last.message
    assert calls == []


@pytest.mark.parametrize("value", [5, {"no": "type"}, TextMessageEndEvent(message_id="x"), b"{"])
async def test_what_is_no_legal_event_fails_the_run(value: Any) -> None:
    assert (await run_agent(yields(RunStartedEvent(**ENDS), value))).ending.outcome == "error"


async def test_an_event_of_an_unknown_type_is_skipped() -> None:
    assert (await run_agent(yields({"type": "NO_SUCH"}, *TEXT))).text == "Hello there"


async def test_interrupts_are_raised_as_ours_and_the_factory_is_called_again_with_the_answers() -> None:
    asked = [Interrupt(id=f"int_{name}", reason="confirm", message=f"{name}?") for name in ("one", "two")]
    seen: list[Any] = []

    async def factory(run: Any) -> Any:
        seen.append([(entry.interrupt_id, entry.payload) for entry in run.resume])
        if not run.resume:
            yield RunFinishedEvent(**ENDS, outcome=RunFinishedInterruptOutcome(interrupts=asked))
        else:
            yield TextMessageChunkEvent(message_id="a1", delta="Thank you.")

    agent = from_events(factory)

    thread = Thread()
    first = await thread.run(agent)
    entries = [ResumeEntry(interrupt_id=one.id, status="resolved", payload=one.message) for one in asked]
    second = await thread.run(agent, resume=entries)
    assert first.ending.interrupts == asked
    assert seen == [[], [("int_one", "one?"), ("int_two", "two?")]]
    assert second.text == "Thank you."


def test_cancel_ends_the_iterator_and_calls_on_cancel() -> None:
    gate, happened = Gate(), []

    async def factory(run: Any) -> Any:
        try:
            yield TextMessageChunkEvent(message_id="a1", delta="first")
            await gate.wait()
        finally:
            happened.append("closed")

    async def on_cancel(run: Any) -> None:
        happened.append(run.run_id)

    with serving(App(from_events(factory, on_cancel=on_cancel))) as server, server.run(run_id="r1") as stream:
        stream.read_until("TEXT_MESSAGE_CONTENT")
        server.post("/threads/thread/runs/r1/cancel")
        assert stream.rest()[-1]["outcome"] == {"type": "cancelled"}
        wait_until(lambda: happened == ["closed", "r1"])


def test_on_cancel_may_stop_what_closing_waits_for() -> None:
    stopped: list[asyncio.Event] = []

    class Iterator:
        """Closes when its framework has stopped."""

        def __aiter__(self) -> Any:
            return self

        async def __anext__(self) -> Any:
            if not stopped:
                stopped.append(asyncio.Event())
                return TextMessageChunkEvent(message_id="a1", delta="first")
            return await asyncio.Event().wait()

        async def aclose(self) -> None:
            await stopped[0].wait()

    agent = from_events(lambda run: Iterator(), on_cancel=lambda run: stopped[0].set())
    with serving(App(agent, timing=Timing(cancel_grace=DEADLINE))) as server, server.run(run_id="r1") as stream:
        stream.read_until("TEXT_MESSAGE_CONTENT")
        server.post("/threads/thread/runs/r1/cancel")
        assert stream.rest()[-1]["outcome"] == {"type": "cancelled"}


def test_a_run_is_durable_behind_an_app() -> None:
    gate = Gate()

    async def factory(run: Any) -> Any:
        for event in TEXT[:2]:
            yield to_official(event)
        await gate.wait()
        for event in TEXT[2:]:
            yield to_official(event)

    with serving(App(from_events(factory))) as server:
        with server.run(run_id="r1") as stream:
            stream.read_until("TEXT_MESSAGE_CONTENT")
        gate.open()
        with server.stream("GET", "/threads/thread/runs/r1/events") as again:
            events = again.rest()
        check_valid(events)
        assert [event["delta"] for event in events if "delta" in event] == ["Hello ", "there"]


@pytest.mark.parametrize(
    ("factory", "options", "words"),
    [
        (5, {}, "factory"),
        (lambda run: None, {"on_cancel": 5}, "on_cancel"),
        (lambda run: None, {"raw": "no"}, "raw"),
    ],
)
def test_arguments_are_checked(factory: Any, options: Any, words: str) -> None:
    with pytest.raises((TypeError, ValueError), match=words):
        from_events(factory, **options)


async def test_a_factory_that_gives_no_iterator_fails_the_run_with_a_reason() -> None:
    outcome = await run_agent(from_events(lambda run: [1]))
    assert "async iterator of events, got list" in str(outcome.ending.error)
