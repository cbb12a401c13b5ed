"""The event and lifecycle rules of document 003 (AGENTS.md for AGUI.Protocol), as executable cases."""

from __future__ import annotations

import json
from typing import Any, get_args

import msgspec
import pytest

from aguila.codec import EventDecoder, Notice, decode, decode_event, encode
from aguila.codec.sse import SSEDecoder, SSEEncoder
from aguila.errors import DecodeError, SequenceError
from aguila.protocol import (
    Event,
    RawEvent,
    ReasoningMessageStartEvent,
    RunAgentInput,
    RunFinishedEvent,
    RunStartedEvent,
    TextMessageContentEvent,
    TextMessageEndEvent,
    TextMessageStartEvent,
    Tool,
    UserMessage,
)
from aguila.stream import consume

REASONING_START = {"type": "REASONING_MESSAGE_START", "messageId": "m", "role": "assistant"}


@pytest.mark.parametrize("version", [None, "0.0.57"])
def test_a_reasoning_message_of_the_role_assistant_is_read_from_a_peer_before_1_0(version: str | None) -> None:
    notices: list[Notice] = []
    decoder = EventDecoder(warn=notices.append)
    declared = {} if version is None else {"protocolVersion": version}
    decoder.feed({"type": "RUN_STARTED", "threadId": "t", "runId": "r", **declared})
    assert decoder.feed(REASONING_START) == [ReasoningMessageStartEvent(message_id="m")]
    assert [notice.rule for notice in notices] == ["reasoning-role"]


def test_a_reasoning_message_of_the_role_assistant_is_read_alone() -> None:
    data = b'{"type":"REASONING_MESSAGE_START","messageId":"m","role":"assistant"}'
    assert decode_event(data, warn=[].append) == ReasoningMessageStartEvent(message_id="m")
    with pytest.raises(DecodeError):
        decode_event(data, strict=True)


@pytest.mark.parametrize("version", ["1.0", "1.1", "2.0", "draft"])
def test_a_reasoning_message_of_the_role_assistant_is_fatal_from_1_0_on(version: str) -> None:
    decoder = EventDecoder()
    decoder.feed({"type": "RUN_STARTED", "threadId": "t", "runId": "r", "protocolVersion": version})
    with pytest.raises(DecodeError, match="role"):
        decoder.feed(REASONING_START)


def test_each_run_of_a_stream_declares_its_own_version() -> None:
    decoder = EventDecoder(warn=[].append)
    decoder.feed({"type": "RUN_STARTED", "threadId": "t", "runId": "r1", "protocolVersion": "1.1"})
    decoder.feed({"type": "RUN_FINISHED", "threadId": "t", "runId": "r1"})
    decoder.feed({"type": "RUN_STARTED", "threadId": "t", "runId": "r2"})
    assert decoder.feed(REASONING_START) == [ReasoningMessageStartEvent(message_id="m")]


# Events


def test_every_event_has_the_common_members() -> None:
    for cls in get_args(Event):
        names = {field.encode_name for field in msgspec.structs.fields(cls)}
        assert {"timestamp", "rawEvent"} <= names, cls


def test_the_source_of_a_raw_event_is_optional() -> None:
    assert decode_event(b'{"type":"RAW","event":{"a":1}}', strict=True) == RawEvent(event={"a": 1})
    assert json.loads(encode(RawEvent(event=1, source="s"))) == {"type": "RAW", "event": 1, "source": "s"}


def test_the_sse_example() -> None:
    event = TextMessageContentEvent(message_id="msg_123", delta="Hello")
    frame = b'data: {"type":"TEXT_MESSAGE_CONTENT","messageId":"msg_123","delta":"Hello"}\n\n'
    assert SSEEncoder().encode(event) == frame
    assert SSEDecoder().feed(frame) == [event]


# Lifecycle


RUN = [{"type": "RUN_STARTED", "threadId": "t", "runId": "r"}]
END = [{"type": "RUN_FINISHED", "threadId": "t", "runId": "r"}]
ITEMS = {
    "text": ("TEXT_MESSAGE_{}", {"messageId": "m"}, "START", "CONTENT", "END"),
    "tool call": ("TOOL_CALL_{}", {"toolCallId": "c"}, "START", "ARGS", "END"),
    "reasoning": ("REASONING_MESSAGE_{}", {"messageId": "m"}, "START", "CONTENT", "END"),
}


def item(kind: str, *which: int) -> list[dict[str, Any]]:
    pattern, ids, *names = ITEMS[kind]
    raw = [{"type": pattern.format(name), **ids} for name in names]  # type: ignore[union-attr]
    raw[0] |= {"toolCallName": "look"} if kind == "tool call" else {}
    raw[0] |= {"role": "reasoning"} if kind == "reasoning" else {}
    raw[1]["delta"] = "{}"
    return [raw[i] for i in which]


@pytest.mark.parametrize("kind", ITEMS)
def test_an_item_is_a_start_any_number_of_deltas_and_an_end(kind: str) -> None:
    assert len(consume([*RUN, *item(kind, 0, 1, 1, 2), *END]).messages) == 1
    for broken in (item(kind, 1, 2), item(kind, 0, 0, 1, 2), item(kind, 0, 1), item(kind, 0, 2, 1)):
        with pytest.raises(SequenceError):
            consume([*RUN, *broken, *END])


@pytest.mark.parametrize(
    "stream",
    [
        END,
        [*RUN, *RUN, *END],
        [*RUN, *END, *item("text", 0)],
        [*RUN, {"type": "STEP_FINISHED", "stepName": "s"}, *END],
        [*RUN, {"type": "STEP_STARTED", "stepName": "s"}, *END],
    ],
)
def test_a_run_starts_ends_once_and_has_its_steps_in_pairs(stream: list[Any]) -> None:
    with pytest.raises(SequenceError):
        consume(stream)


@pytest.mark.parametrize("end", [END, [{"type": "RUN_ERROR", "message": "no"}]])
def test_a_run_ends_with_finished_or_error(end: list[Any]) -> None:
    step = [{"type": "STEP_STARTED", "stepName": "s"}, {"type": "STEP_FINISHED", "stepName": "s"}]
    (run,) = consume([*RUN, *step, *end]).runs
    assert run.outcome == ("success" if end is END else "error")


def test_the_patch_operations_of_the_document() -> None:
    state = {"conversation_state": "x", "temporary_data": 1, "pending_items": ["a"], "current": 5, "version": 2}
    patch: list[Any] = [
        {"op": "add", "path": "/user", "value": {"preferences": {"theme": "dark"}}},
        {"op": "replace", "path": "/conversation_state", "value": "paused"},
        {"op": "remove", "path": "/temporary_data"},
        {"op": "move", "path": "/completed_items", "from": "/pending_items/0"},
        {"op": "copy", "path": "/backup", "from": "/current"},
        {"op": "test", "path": "/version", "value": 2},
    ]
    snapshot = {"type": "STATE_SNAPSHOT", "snapshot": state}
    assert consume([*RUN, snapshot, {"type": "STATE_DELTA", "delta": patch}, *END]).state == {
        "conversation_state": "paused",
        "pending_items": [],
        "completed_items": "a",
        "current": 5,
        "backup": 5,
        "version": 2,
        "user": {"preferences": {"theme": "dark"}},
    }


def test_the_common_tasks_of_the_document() -> None:
    events: list[Event] = [
        RunStartedEvent(thread_id="t1", run_id="r1"),
        TextMessageStartEvent(message_id="m1", role="assistant"),
        TextMessageContentEvent(message_id="m1", delta="Hello!"),
        TextMessageEndEvent(message_id="m1"),
        RunFinishedEvent(thread_id="t1", run_id="r1"),
    ]
    stored = encode(events)
    assert isinstance(json.loads(stored), list)
    restored = decode(stored, list[Event])
    assert restored == events
    assert [event.delta for event in restored if isinstance(event, TextMessageContentEvent)] == ["Hello!"]
    given = RunAgentInput(
        thread_id="thread_123",
        run_id="run_456",
        messages=[UserMessage(id="msg_1", content="Hello")],
        tools=[Tool(name="get_weather", description="Get weather info")],
    )
    assert decode(encode(given), RunAgentInput) == given
