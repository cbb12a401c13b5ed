"""The event and lifecycle rules of document 003 (AGENTS.md for AGUI.Protocol), as executable cases."""

from __future__ import annotations

import json
from typing import Any, get_args

import msgspec
import pytest
from serving import serving
from streams.every_event import every_event

from aguila import App
from aguila.chat import ChatUpdate, ReasoningContent, TextContent, as_chat_updates
from aguila.codec import EventDecoder, Notice, decode, decode_event, encode
from aguila.codec.jsonl import JSONLDecoder, encode_lines
from aguila.codec.protobuf import ProtobufDecoder, ProtobufEncoder
from aguila.codec.sse import SSEDecoder, SSEEncoder
from aguila.errors import DecodeError, SequenceError, StreamTruncated
from aguila.protocol import (
    AssistantMessage,
    Event,
    FunctionCall,
    RawEvent,
    ReasoningMessage,
    ReasoningMessageStartEvent,
    RunAgentInput,
    RunFinishedEvent,
    RunStartedEvent,
    StateDeltaEvent,
    TextMessageChunkEvent,
    TextMessageContentEvent,
    TextMessageEndEvent,
    TextMessageStartEvent,
    Tool,
    ToolCall,
    ToolMessage,
    UserMessage,
)
from aguila.stream import compact, consume
from aguila.stream.chunks import expand_chunks

pytestmark = pytest.mark.anyio

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
        required = {field.encode_name: field.required for field in msgspec.structs.fields(cls)}
        assert (required["timestamp"], required["rawEvent"]) == (False, False), cls


@pytest.mark.parametrize("event", {event.type: event for event in every_event()}.values(), ids=lambda e: e.type)
def test_an_event_is_decoded_to_the_class_of_its_type(event: Event) -> None:
    read = decode_event(encode(event), strict=True)
    assert type(read) is type(event)
    assert read == event


def test_the_same_events_go_over_every_transport() -> None:
    events = [
        RunStartedEvent(thread_id="t", run_id="r"),
        TextMessageStartEvent(message_id="m", role="assistant"),
        TextMessageContentEvent(message_id="m", delta="Hello"),
        TextMessageEndEvent(message_id="m"),
        RunFinishedEvent(thread_id="t", run_id="r"),
    ]
    assert SSEDecoder().feed(b"".join(map(SSEEncoder().encode, events))) == events
    assert ProtobufDecoder().feed(b"".join(map(ProtobufEncoder().encode, events))) == events
    assert JSONLDecoder().feed(b"".join(encode_lines(events))) == events


def test_a_run_may_name_its_parent_and_repeat_its_input() -> None:
    given = RunAgentInput(thread_id="thread_abc", run_id="run_002", messages=[UserMessage(id="u", content="Hi")])
    event = RunStartedEvent(thread_id="thread_abc", run_id="run_002", parent_run_id="run_001", input=given)
    assert json.loads(encode(event)) == {
        "type": "RUN_STARTED",
        "threadId": "thread_abc",
        "runId": "run_002",
        "parentRunId": "run_001",
        "input": {
            "threadId": "thread_abc",
            "runId": "run_002",
            "messages": [{"id": "u", "role": "user", "content": "Hi"}],
        },
    }
    assert decode_event(encode(event), strict=True) == event


CHUNKS = {
    "TEXT_MESSAGE": ({"messageId": "m"}, "CONTENT"),
    "TOOL_CALL": ({"toolCallId": "c", "toolCallName": "count", "parentMessageId": "p"}, "ARGS"),
    "REASONING_MESSAGE": ({"messageId": "m"}, "CONTENT"),
}


@pytest.mark.parametrize("family", CHUNKS)
def test_chunks_become_a_start_deltas_and_an_end(family: str) -> None:
    ids, delta = CHUNKS[family]
    chunks = [{"type": f"{family}_CHUNK", **ids, "delta": "{"}, {"type": f"{family}_CHUNK", "delta": "}"}]
    events = [decode_event(json.dumps(raw), strict=True) for raw in [*RUN, *chunks, *END]]
    expanded = [json.loads(encode(event)) for event in expand_chunks(event for event in events if event is not None)]
    assert [raw["type"] for raw in expanded[1:-1]] == [f"{family}_{name}" for name in ("START", delta, delta, "END")]
    assert [raw["delta"] for raw in expanded[2:4]] == ["{", "}"]
    assert ids.items() <= expanded[1].items()


@pytest.mark.parametrize("role", ["developer", "system", "assistant", "user", None])
def test_a_text_chunk_has_one_of_four_roles_and_is_the_assistants_by_default(role: str | None) -> None:
    chunk = {"type": "TEXT_MESSAGE_CHUNK", "messageId": "m", "delta": "Hi"} | ({} if role is None else {"role": role})
    (message,) = consume([*RUN, chunk, *END]).messages
    assert (message.role, message.content) == (role or "assistant", "Hi")


def test_a_tool_call_is_a_start_arguments_an_end_and_a_result() -> None:
    result = {"type": "TOOL_CALL_RESULT", "messageId": "t", "toolCallId": "c", "content": "2"}
    asked, answered = consume([*RUN, *item("tool call", 0, 1, 2), result, *END]).messages
    assert isinstance(asked, AssistantMessage)
    assert asked.tool_calls == [ToolCall(id="c", function=FunctionCall(name="look", arguments="{}"))]
    assert answered == ToolMessage(id="t", tool_call_id="c", content="2")


def test_a_run_input_is_the_body_of_a_post() -> None:
    async def agent(run: Any) -> Any:
        return json.loads(encode(run.input))

    body = {
        "threadId": "thread_123",
        "runId": "run_456",
        "state": {"birds": 2},
        "messages": [{"id": "msg_1", "role": "user", "content": "Hello"}],
        "tools": [{"name": "get_weather", "description": "Get weather info", "parameters": {"type": "object"}}],
        "context": [{"description": "The place", "value": "pond"}],
        "forwardedProps": {"theme": "dark"},
    }
    with serving(App(agent)) as server:
        sent = server.post("/", json=body).text
    finished = json.loads(sent.strip().splitlines()[-1].removeprefix("data: "))
    assert finished["type"] == "RUN_FINISHED"
    assert body.items() <= finished["result"].items()


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


def test_a_run_without_its_end_was_cut_off() -> None:
    with pytest.raises(StreamTruncated):
        consume([*RUN, *item("text", 0, 1, 2)])


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


# Nulls of older servers


def test_the_null_code_of_an_error_and_the_null_parent_of_a_run_do_not_hide_what_they_report() -> None:
    started = {"type": "RUN_STARTED", "threadId": "t", "runId": "r", "parentRunId": None}
    notices: list[Notice] = []
    conversation = consume([started, {"type": "RUN_ERROR", "message": "no model", "code": None}], warn=notices.append)
    assert conversation.run_error is not None
    assert conversation.run_error.message == "no model"
    assert [(notice.rule, notice.path) for notice in notices] == [
        ("null-parent-run-id", "/parentRunId"),
        ("null-error-code", "/code"),
    ]


def test_the_outcome_interrupt_without_its_interrupt_is_an_error_that_names_it() -> None:
    finished = {"type": "RUN_FINISHED", "threadId": "t", "runId": "r", "outcome": "interrupt"}
    with pytest.raises(DecodeError, match="interrupt") as refused:
        decode_event(json.dumps(finished))
    assert refused.value.path == "/interrupt"


# Reasoning


SEALED = {"type": "REASONING_START", "messageId": "s", "encryptedContent": "b3BhcXVl"}
UNSEALED = {"type": "REASONING_END", "messageId": "s"}


def reasoning(message_id: str) -> list[dict[str, Any]]:
    return [
        {"type": "REASONING_MESSAGE_START", "messageId": message_id, "role": "reasoning"},
        {"type": "REASONING_MESSAGE_CONTENT", "messageId": message_id, "delta": "Grey wings"},
        {"type": "REASONING_MESSAGE_END", "messageId": message_id},
    ]


def in_a_run(*events: Any) -> list[Any]:
    run = {"threadId": "t", "runId": "r"}
    return [{"type": "RUN_STARTED", **run}, *events, {"type": "RUN_FINISHED", **run}]


@pytest.mark.parametrize("message_id", ["s", "m"])
@pytest.mark.parametrize("is_chunked", [False, True])
async def test_encrypted_content_waits_for_its_message_and_is_kept_with_it(message_id: str, is_chunked: bool) -> None:
    chunk = {"type": "REASONING_MESSAGE_CHUNK", "messageId": message_id, "delta": "Grey wings"}
    message = [chunk] if is_chunked else reasoning(message_id)
    stream = in_a_run(SEALED, *message, UNSEALED, *reasoning("later"))
    notices: list[Notice] = []
    first, second = consume(stream, warn=notices.append).messages
    assert first == ReasoningMessage(id=message_id, content="Grey wings", encrypted_value="b3BhcXVl")
    assert second == ReasoningMessage(id="later", content="Grey wings")
    assert {notice.rule for notice in notices} == {"reasoning-encrypted-content"}

    async def events() -> Any:
        for event in stream:
            yield event

    contents = [content async for update in as_chat_updates(events()) for content in update.contents]
    assert [c.protected_data for c in contents if isinstance(c, ReasoningContent) and c.protected_data] == ["b3BhcXVl"]


def test_encrypted_content_without_a_message_gets_one_without_text() -> None:
    (message,) = consume(in_a_run(SEALED, UNSEALED), warn=[].append).messages
    assert message == ReasoningMessage(id="s", content="", encrypted_value="b3BhcXVl")


def test_encrypted_content_of_a_run_that_fails_before_its_message_is_lost_with_a_notice() -> None:
    notices: list[Notice] = []
    started = {"type": "RUN_STARTED", "threadId": "t", "runId": "r"}
    consume([started, SEALED, {"type": "RUN_ERROR", "message": "no model"}], warn=notices.append)
    assert [notice.rule for notice in notices] == ["reasoning-encrypted-content", "ENC-2"]


def test_the_first_reasoning_chunk_has_an_id_that_is_not_empty() -> None:
    chunk = {"type": "REASONING_MESSAGE_CHUNK", "messageId": "", "delta": "Grey"}
    with pytest.raises(SequenceError, match="messageId of the first chunk") as refused:
        consume(in_a_run(chunk))
    assert refused.value.rule == "CHK-3"


# Compaction


def delta(**operation: Any) -> StateDeltaEvent:
    return StateDeltaEvent(delta=[operation])  # type: ignore[list-item]


def test_consecutive_state_deltas_are_merged_also_without_a_snapshot() -> None:
    run = {"thread_id": "t", "run_id": "r"}
    deltas = [
        delta(op="add", path="/birds", value=1),
        delta(op="replace", path="/birds", value=2),
        delta(op="add", path="/pond", value={}),
    ]
    started, merged, finished = compact([RunStartedEvent(**run), *deltas, RunFinishedEvent(**run)])
    assert merged == StateDeltaEvent(delta=[operation for each in deltas for operation in each.delta])
    assert (started.type, finished.type) == ("RUN_STARTED", "RUN_FINISHED")


def test_deltas_that_may_fail_one_by_one_are_not_merged() -> None:
    run = {"thread_id": "t", "run_id": "r"}
    for deltas in (
        [delta(op="replace", path="/birds", value=1), delta(op="add", path="/pond", value=2)],
        [delta(op="add", path="/a", value=1), delta(op="test", path="", value={"a": 1})],
        [delta(op="add", path="/0", value=1), delta(op="add", path="/5", value=1)],  # the state may be a list
    ):
        stream: list[Any] = [RunStartedEvent(**run), *deltas, RunFinishedEvent(**run)]
        assert compact(stream) == stream


def test_a_compacted_replay_has_one_delta_for_consecutive_ones() -> None:
    async def agent(run: Any) -> None:
        for count in range(3):
            run.state["birds"] = count
            await run.flush()

    body = {"threadId": "t", "runId": "r", "state": {"birds": 9}, "messages": [], "protocolVersion": "1.1"}
    with serving(App(agent, allow_anonymous=True)) as server:
        assert server.post("/", json=body).text.count("STATE_DELTA") == 3
        replay = server.get("/threads/t/events?compact=true&protocolVersion=1.1").text
    assert replay.count("STATE_DELTA") == 1
    assert "STATE_SNAPSHOT" not in replay


# The role of a text


DOTNET_ROLES = {"system", "user", "assistant", "developer", "tool"}
"""The names that the .NET SDK 0.0.5 maps to a role. It throws for any other, and for a start without a role."""


def test_the_dotnet_sdk_finds_a_role_it_knows_in_every_start_of_a_text() -> None:
    async def agent(run: Any) -> Any:
        yield "as a string"
        async with run.text() as text:
            await text.write("with a handle")
        await run.say("as a whole", role="user")
        yield ChatUpdate(contents=[TextContent("as an update")], message_id="u")
        yield TextMessageStartEvent(message_id="e")
        yield TextMessageContentEvent(message_id="e", delta="as events")
        yield TextMessageEndEvent(message_id="e")
        yield TextMessageChunkEvent(message_id="c", delta="as a chunk")

    body = {"threadId": "t", "runId": "r", "messages": []}
    with serving(App(agent, allow_anonymous=True)) as server:
        sent = server.post("/", json=body).text
        declared = server.get("/threads/t/events?protocolVersion=1.1").text
    frames = [json.loads(line[6:]) for line in sent.splitlines() if line.startswith("data: ")]
    starts = [frame for frame in frames if frame["type"] == "TEXT_MESSAGE_START"]
    assert len(starts) == 6
    assert [frame for frame in starts if frame.get("role") not in DOTNET_ROLES] == []
    assert frames[-1]["type"] == "RUN_FINISHED"
    # An event that the agent yields is passed on as it is.
    assert '{"type":"TEXT_MESSAGE_START","messageId":"e"}' in declared


# Activities


@pytest.mark.parametrize("history", ["client", "server"])
def test_activities_that_a_client_sends_are_not_for_the_agent(history: Any) -> None:
    async def agent(run: Any) -> Any:
        return [message.id for message in run.messages]

    messages = [
        {"id": "a", "role": "activity", "activityType": "WATCH", "content": {"seen": 0}},
        {"id": "u", "role": "user", "content": "Hello"},
    ]
    body = {"threadId": "t", "runId": "r", "messages": messages, "protocolVersion": "1.1"}
    with serving(App(agent, history=history, allow_anonymous=True)) as server:
        sent = server.post("/", json=body).text
        kept = server.get("/threads/t").json()["messages"]
    assert json.loads(sent.strip().splitlines()[-1].removeprefix("data: "))["result"] == ["u"]
    assert [message["id"] for message in kept] == ["a", "u"]
