"""Our protobuf against that of @ag-ui/proto 1.0.0: equal bytes both ways, for every kind of event (PB-8)."""

from __future__ import annotations

import json
from contextlib import suppress
from random import Random
from typing import Any, get_args

import msgspec
import pytest
from builders import RUN_FINISHED
from hypothesis import HealthCheck, Phase, given, settings
from processes.node import run_node
from streams.protobuf_bytes import framed
from streams.protobuf_losses import after_protobuf

from aguila.codec import encode
from aguila.codec.protobuf import ProtobufDecoder, ProtobufEncoder, decode_frame
from aguila.errors import DecodeError
from aguila.protocol import (
    ActivityDeltaEvent,
    ActivityMessage,
    ActivitySnapshotEvent,
    AssistantMessage,
    AudioPart,
    Context,
    CustomEvent,
    DataSource,
    DeveloperMessage,
    DocumentPart,
    Event,
    FileSource,
    FunctionCall,
    ImagePart,
    Interrupt,
    MessagesSnapshotEvent,
    RawEvent,
    ReasoningEncryptedValueEvent,
    ReasoningEndEvent,
    ReasoningMessage,
    ReasoningMessageChunkEvent,
    ReasoningMessageContentEvent,
    ReasoningMessageEndEvent,
    ReasoningMessageStartEvent,
    ReasoningStartEvent,
    ResumeEntry,
    RunAgentInput,
    RunErrorEvent,
    RunFinishedCancelledOutcome,
    RunFinishedEvent,
    RunFinishedInterruptOutcome,
    RunFinishedSuccessOutcome,
    RunStartedEvent,
    StateDeltaEvent,
    StateSnapshotEvent,
    StepFinishedEvent,
    StepStartedEvent,
    SubagentErrorEvent,
    SubagentFinishedEvent,
    SubagentFinishedSuccessOutcome,
    SubagentFinishedSuspendedOutcome,
    SubagentStartedEvent,
    SystemMessage,
    TextMessageChunkEvent,
    TextMessageContentEvent,
    TextMessageEndEvent,
    TextMessageStartEvent,
    TextPart,
    TokenUsage,
    Tool,
    ToolCall,
    ToolCallArgsEvent,
    ToolCallChunkEvent,
    ToolCallEndEvent,
    ToolCallResultEvent,
    ToolCallStartEvent,
    ToolMessage,
    UrlSource,
    UserMessage,
    VideoPart,
    replace,
)
from aguila.testing import strategies

NESTED: dict[str, Any] = {
    "null": None,
    "yes": True,
    "no": False,
    "zero": 0,
    "whole": 3,
    "half": 0.5,
    "tiny": 5e-324,
    "huge": 1.7976931348623157e308,
    "edge": 2**53 - 1,
    "minus": -7,
    "": "a key may be empty",
    "text": "día ☕ 𝄞 \u2028 \x00",
    "empty": {"list": [], "object": {}, "text": ""},
    "list": [1, [2, [3, [None]]], {"a": [{}]}],
}
DEEP: Any = "bottom"
for _ in range(60):
    DEEP = {"deeper": [DEEP]}

PARTS = [
    TextPart(text="look"),
    TextPart(text="", id="p1", metadata={"a": None}),
    ImagePart(source=DataSource(value="aGk=", mime_type="image/png"), id="p2", metadata=[1, "x"]),
    AudioPart(source=UrlSource(value="https://example.org/a.ogg", mime_type="audio/ogg"), metadata="text"),
    VideoPart(source=UrlSource(value="https://example.org/v.mp4")),
    DocumentPart(source=FileSource(value="file-1", provider="acme", mime_type="application/pdf"), metadata=0),
    DocumentPart(source=FileSource(value="file-2")),
]
MESSAGES = [
    DeveloperMessage(id="1", content="be brief", name="dev", metadata={"a": [1]}),
    SystemMessage(id="2", content="", encrypted_value="sealed"),
    UserMessage(id="3", content="hello", name="Ada", subagent_run_id="s"),
    UserMessage(id="4", content=PARTS),
    UserMessage(id="5", content=[]),
    AssistantMessage(id="6"),
    AssistantMessage(
        id="7",
        content="calling",
        tool_calls=[
            ToolCall(id="c1", function=FunctionCall(name="look", arguments='{"a": 1}'), metadata={"b": {}}),
            ToolCall(id="c2", function=FunctionCall(name="", arguments=""), encrypted_value="sealed"),
        ],
    ),
    ToolMessage(id="8", content="found", tool_call_id="c1", error="partly"),
    ToolMessage(id="9", content=PARTS[:3], tool_call_id="c2"),
    ActivityMessage(id="10", activity_type="PLAN", content={"steps": [{"done": False}]}),
    ActivityMessage(id="11", activity_type="PLAN", content={}),
    ReasoningMessage(id="12", content="hm", encrypted_value=""),
]
USAGE = [
    TokenUsage(
        provider="p",
        model="m",
        input_tokens=0,
        output_tokens=1,
        total_tokens=2**53 - 1,
        reasoning_tokens=3,
        cached_input_tokens=4,
        cache_write_input_tokens=5,
    ),
    TokenUsage(),
]
INTERRUPTS = [
    Interrupt(id="i1", reason="input_required"),
    Interrupt(
        id="i2",
        reason="confirmation",
        message="sure?",
        tool_call_id="c1",
        response_schema={"type": "object"},
        expires_at="2027-01-01T00:00:00Z",
        metadata={"a": None},
        subagent_run_id="s",
    ),
]
INPUT = RunAgentInput(
    thread_id="t",
    run_id="r",
    messages=MESSAGES,
    protocol_version="1.0",
    parent_run_id="r0",
    state=NESTED,
    tools=[
        Tool(name="look", description="", parameters={"type": "object"}, metadata={}),
        Tool(name="n", description="d"),
    ],
    context=[Context(description="zone", value="UTC")],
    forwarded_props=[1],
    resume=[
        ResumeEntry(interrupt_id="i1", status="resolved", payload={"ok": True}, metadata={"a": 1}),
        ResumeEntry(interrupt_id="i2", status="cancelled"),
    ],
)
PATCH: list[Any] = [
    {"op": "add", "path": "/a", "value": None},
    {"op": "remove", "path": "/b"},
    {"op": "remove", "path": "/b", "value": "left over"},
    {"op": "replace", "path": "", "value": NESTED},
    {"op": "move", "from": "/c", "path": "/d~1e"},
    {"op": "copy", "from": "", "path": "/-"},
    {"op": "test", "path": "/x", "value": [False, 0, ""]},
]

EVENTS: list[Event] = [
    RunStartedEvent(thread_id="t", run_id="r"),
    RunStartedEvent(thread_id="t", run_id="r", protocol_version="1.0", parent_run_id="r0", input=INPUT),
    RunStartedEvent(thread_id="", run_id="", input=RunAgentInput(thread_id="", run_id="", messages=[])),
    RUN_FINISHED,
    RunFinishedEvent(thread_id="t", run_id="r", result=NESTED, usage=USAGE, outcome=RunFinishedSuccessOutcome()),
    RunFinishedEvent(thread_id="t", run_id="r", outcome=RunFinishedSuccessOutcome(pending_tool_call_ids=["c1", ""])),
    RunFinishedEvent(thread_id="t", run_id="r", outcome=RunFinishedInterruptOutcome(interrupts=INTERRUPTS)),
    RunFinishedEvent(thread_id="t", run_id="r", outcome=RunFinishedCancelledOutcome(), result=False),
    RunErrorEvent(message="it broke"),
    RunErrorEvent(message="", code="", usage=USAGE),
    StepStartedEvent(step_name="plan"),
    StepStartedEvent(step_name="", subagent_run_id=""),
    StepFinishedEvent(step_name="plan"),
    StepFinishedEvent(step_name="plan", subagent_run_id="s"),
    TextMessageStartEvent(message_id="m"),
    TextMessageStartEvent(message_id="m", role="user", name="Ada", subagent_run_id="s"),
    TextMessageContentEvent(message_id="m", delta=""),
    TextMessageContentEvent(message_id="m", delta="día ☕ 𝄞 \u2028 \x00" * 40, subagent_run_id="s"),
    TextMessageEndEvent(message_id="m"),
    TextMessageEndEvent(message_id="m", subagent_run_id="s"),
    TextMessageChunkEvent(),
    TextMessageChunkEvent(message_id="", role="developer", delta="", name="", subagent_run_id=""),
    ToolCallStartEvent(tool_call_id="c", tool_call_name="look"),
    ToolCallStartEvent(tool_call_id="c", tool_call_name="look", parent_message_id="m", subagent_run_id="s"),
    ToolCallArgsEvent(tool_call_id="c", delta='{"a":'),
    ToolCallArgsEvent(tool_call_id="c", delta="", subagent_run_id="s"),
    ToolCallEndEvent(tool_call_id="c"),
    ToolCallEndEvent(tool_call_id="c", subagent_run_id="s"),
    ToolCallChunkEvent(),
    ToolCallChunkEvent(tool_call_id="c", tool_call_name="n", parent_message_id="m", delta="{}", subagent_run_id="s"),
    ToolCallResultEvent(message_id="m", tool_call_id="c", content=""),
    ToolCallResultEvent(message_id="m", tool_call_id="c", content="found", role="tool", subagent_run_id="s"),
    ToolCallResultEvent(message_id="m", tool_call_id="c", content=PARTS),
    ToolCallResultEvent(message_id="m", tool_call_id="c", content=[]),
    ReasoningStartEvent(message_id="m"),
    ReasoningStartEvent(message_id="m", subagent_run_id="s"),
    ReasoningMessageStartEvent(message_id="m"),
    ReasoningMessageStartEvent(message_id="m", role="reasoning", subagent_run_id="s"),
    ReasoningMessageContentEvent(message_id="m", delta="hm"),
    ReasoningMessageContentEvent(message_id="m", delta="", subagent_run_id="s"),
    ReasoningMessageEndEvent(message_id="m"),
    ReasoningMessageEndEvent(message_id="m", subagent_run_id="s"),
    ReasoningMessageChunkEvent(),
    ReasoningMessageChunkEvent(message_id="m", delta="", subagent_run_id="s"),
    ReasoningEndEvent(message_id="m"),
    ReasoningEndEvent(message_id="m", subagent_run_id="s"),
    ReasoningEncryptedValueEvent(subtype="message", entity_id="m", encrypted_value="sealed"),
    ReasoningEncryptedValueEvent(subtype="tool-call", entity_id="c", encrypted_value="", subagent_run_id="s"),
    StateSnapshotEvent(snapshot=None),
    StateSnapshotEvent(snapshot={}),
    StateSnapshotEvent(snapshot=NESTED, subagent_run_id="s"),
    StateSnapshotEvent(snapshot=DEEP),
    StateSnapshotEvent(snapshot={"10": 1, "9": 2, "a": 3}),
    StateDeltaEvent(delta=[]),
    StateDeltaEvent(delta=PATCH, subagent_run_id="s"),
    MessagesSnapshotEvent(messages=[]),
    MessagesSnapshotEvent(messages=MESSAGES),
    ActivitySnapshotEvent(message_id="m", activity_type="PLAN", content={}),
    ActivitySnapshotEvent(message_id="m", activity_type="PLAN", content=NESTED, replace=False, subagent_run_id="s"),
    ActivityDeltaEvent(message_id="m", activity_type="PLAN", patch=[]),
    ActivityDeltaEvent(message_id="m", activity_type="PLAN", patch=PATCH, subagent_run_id="s"),
    SubagentStartedEvent(subagent_run_id="s", name="scout"),
    SubagentStartedEvent(
        subagent_run_id="s",
        name="",
        description="d",
        parent_subagent_run_id="p",
        parent_tool_call_id="c",
        parent_message_id="m",
    ),
    SubagentFinishedEvent(subagent_run_id="s"),
    SubagentFinishedEvent(subagent_run_id="s", result=NESTED, outcome=SubagentFinishedSuccessOutcome()),
    SubagentFinishedEvent(subagent_run_id="s", outcome=SubagentFinishedSuspendedOutcome(interrupt_ids=["i1", ""])),
    SubagentErrorEvent(subagent_run_id="s", message="lost"),
    SubagentErrorEvent(subagent_run_id="s", message="", code="E1"),
    RawEvent(event=None),
    RawEvent(event=NESTED, source="acme", subagent_run_id="s"),
    CustomEvent(name="ping", value=None),
    CustomEvent(name="", value=[NESTED, [], "", 0.1, -1e21], subagent_run_id="s"),
]
BASES: list[dict[str, Any]] = [
    {"timestamp": 1731697200123},
    {"timestamp": 0, "raw_event": {"id": 1}, "metadata": {}},
    {"timestamp": -(2**53 - 1), "raw_event": "text", "metadata": NESTED},
]


def test_the_documents_hold_every_event_alone_and_with_a_full_base() -> None:
    assert {event.__class__ for event in EVENTS} == set(get_args(Event))
    assert len(get_args(Event)) == 31


def test_written_documents_have_the_bytes_of_the_official_encoder_and_each_side_reads_the_other() -> None:
    agree([*EVENTS, *(replace(event, **base) for event in EVENTS for base in BASES)])


def test_generated_events_have_the_bytes_of_the_official_encoder_and_each_side_reads_the_other() -> None:
    collected: list[Event] = []

    @settings(
        max_examples=400,
        phases=[Phase.generate],
        derandomize=True,
        database=None,
        deadline=None,
        suppress_health_check=list(HealthCheck),
    )
    @given(strategies.events())
    def collect(event: Event) -> None:
        collected.append(event)

    collect()
    agree([_of_version_1_0(event) for event in collected])


def agree(events: list[Event]) -> None:
    encoder = ProtobufEncoder()
    documents = [msgspec.json.decode(encode(event)) for event in events]
    ours = [encoder.encode(event)[4:] for event in events]
    lines = [{"json": document, "bytes": body.hex()} for document, body in zip(documents, ours, strict=True)]
    answers = ask(lines)
    for event, document, body, answer in zip(events, documents, ours, answers, strict=True):
        assert "error" not in answer, (answer, event)
        theirs = bytes.fromhex(answer["bytes"])
        if _reordered_by_javascript(document):
            assert sorted(theirs) == sorted(body), event
        else:
            assert theirs.hex() == body.hex(), event
        assert answer["json"] == decode_frame(body), event
        assert ProtobufDecoder(compat="off", warn=_unexpected).feed(framed(theirs)) == [after_protobuf(event)], event


def ask(lines: list[dict[str, Any]]) -> list[dict[str, Any]]:
    output = run_node("protobuf.mjs", "".join(json.dumps(line) + "\n" for line in lines))
    answers: list[Any] = [json.loads(line, parse_int=_as_double) for line in output.rstrip("\n").split("\n")]
    assert len(answers) == len(lines)
    for answer in answers:
        _drop_empty_lists(answer.get("json"))
    return answers


def _drop_empty_lists(document: Any) -> None:
    """Drop empty lists of an echoed input: the official decoder makes them of absent ones, which ours keeps absent."""
    given: Any = document.get("input") if document else None
    if given:
        for name in ("tools", "context", "resume"):
            if given.get(name) == []:
                del given[name]


def test_of_damaged_frames_we_read_none_that_the_official_decoder_refuses_and_none_differently() -> None:
    damaged = [damage(seed) for seed in range(8000)]
    read_alike = 0
    for body, answer in zip(damaged, ask([{"bytes": body.hex()} for body in damaged]), strict=True):
        if "json" in answer:
            # Ours may refuse more: strings that are not UTF-8, and numbers that JSON does not have.
            with suppress(DecodeError):
                assert decode_frame(body, warn=lambda notice: None) == answer["json"], body.hex()
                read_alike += 1
        elif answer["unknown"]:
            assert decode_frame(body, warn=lambda notice: None) is None, body.hex()
        else:
            with pytest.raises(DecodeError):
                ProtobufDecoder(compat="off", warn=lambda notice: None).feed(framed(body))
    assert read_alike > 100


def damage(seed: int) -> bytes:
    """Return an encoded event with a few bytes changed, added or removed, or with the beginning of another event."""
    random = Random(seed)
    encoder = ProtobufEncoder()
    body = bytearray(encoder.encode(random.choice(EVENTS))[4:])
    for _ in range(random.randint(1, 3)):
        at = random.randrange(len(body) + 1)
        match random.randrange(4):
            case 0:
                body[at : at + 1] = random.randbytes(1)
            case 1:
                body[at:at] = random.randbytes(random.randint(1, 2))
            case 2:
                del body[at : at + random.randint(1, 3)]
            case _:
                body += encoder.encode(random.choice(EVENTS))[4 : random.randint(5, 40)]
    return bytes(body)


def _as_double(digits: str) -> int | float:
    """Parse digits as a double: JavaScript prints doubles up to 1e21 with more digits than they have."""
    return int(digits) if abs(int(digits)) < 2**53 else float(digits)


def _reordered_by_javascript(value: Any) -> bool:
    """Return whether an object has a key that JavaScript moves to the front: the digits of an integer."""
    if isinstance(value, dict):
        members: dict[str, Any] = value
        return (len(members) > 1 and any(key.isdecimal() for key in members)) or any(
            _reordered_by_javascript(member) for member in members.values()
        )
    return isinstance(value, list) and any(_reordered_by_javascript(item) for item in value)


def _of_version_1_0(event: Any) -> Any:
    """Return the event without the types of encrypted values, which @ag-ui/proto 1.0.0 does not know."""
    changes: dict[str, Any] = {}
    if hasattr(event, "encrypted_value_type"):
        changes["encrypted_value_type"] = None
    if isinstance(getattr(event, "messages", None), list):
        changes["messages"] = [_of_version_1_0(message) for message in event.messages]
    if isinstance(getattr(event, "tool_calls", None), list):
        changes["tool_calls"] = [_of_version_1_0(call) for call in event.tool_calls]
    if isinstance(getattr(event, "input", None), RunAgentInput):
        changes["input"] = _of_version_1_0(event.input)
    return replace(event, **changes) if changes else event


def _unexpected(notice: object) -> None:
    raise AssertionError(f"a valid event needs no tolerance: {notice}")
