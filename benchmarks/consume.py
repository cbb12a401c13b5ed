"""Consuming whole streams, SSE bytes to messages and state, next to ``@ag-ui/client`` in Node."""

from __future__ import annotations

import json
import subprocess
import tempfile
import time
from pathlib import Path
from typing import Any

from aguila.codec import encode
from aguila.codec.sse import SSEDecoder
from aguila.protocol import (
    Event,
    RunFinishedEvent,
    RunStartedEvent,
    StateDeltaEvent,
    StateSnapshotEvent,
    TextMessageContentEvent,
    TextMessageEndEvent,
    TextMessageStartEvent,
    ToolCallArgsEvent,
    ToolCallEndEvent,
    ToolCallResultEvent,
    ToolCallStartEvent,
)
from aguila.stream.consumer import Consumer

HERE = Path(__file__).parent
NODE_DIR = HERE.parent / "tests" / "interop" / "node"
CHUNK = 65536


def one_message(deltas: int) -> list[Event]:
    content: list[Event] = [TextMessageContentEvent(message_id="m", delta=f"word{i} ") for i in range(deltas)]
    return [TextMessageStartEvent(message_id="m", role="assistant"), *content, TextMessageEndEvent(message_id="m")]


def tool_calls(count: int) -> list[Event]:
    events: list[Event] = []
    for i in range(count):
        call = f"call-{i}"
        events.append(ToolCallStartEvent(tool_call_id=call, tool_call_name="search"))
        events += [ToolCallArgsEvent(tool_call_id=call, delta=part) for part in ('{"q": "', f"eagle {i}", '"}')]
        events.append(ToolCallEndEvent(tool_call_id=call))
        events.append(ToolCallResultEvent(message_id=f"result-{i}", tool_call_id=call, content=f"{i} eagles"))
    return events


def state_deltas(count: int) -> list[Event]:
    items = [{"id": i, "title": f"task {i}", "done": False} for i in range(50)]
    events: list[Event] = [StateSnapshotEvent(snapshot={"items": items, "count": 0})]
    for i in range(count):
        operations: list[Any] = [
            {"op": "replace", "path": "/count", "value": i},
            {"op": "replace", "path": f"/items/{i % 50}/done", "value": i % 2 == 0},
        ]
        events.append(StateDeltaEvent(delta=operations))
    return events


def sse(events: list[Event]) -> bytes:
    stream = [
        RunStartedEvent(thread_id="t", run_id="r", protocol_version="1.0"),
        *events,
        RunFinishedEvent(thread_id="t", run_id="r"),
    ]
    return b"".join(b"data: " + encode(event) + b"\n\n" for event in stream)


def consume_bytes(data: bytes) -> float:
    start = time.perf_counter()
    decoder, consumer = SSEDecoder(), Consumer()
    for at in range(0, len(data), CHUNK):
        for event in decoder.feed(data[at : at + CHUNK]):
            consumer.feed(event)
    for event in decoder.close():
        consumer.feed(event)
    conversation = consumer.close()
    elapsed = time.perf_counter() - start
    assert conversation.messages or conversation.state
    return elapsed


def rows() -> list[dict[str, Any]]:
    cases = [
        ("consume a 20,000-delta message", one_message(20_000), 30),
        ("consume 500 tool calls", tool_calls(500), 30),
        ("consume 2,000 state deltas", state_deltas(2_000), 5),
    ]
    out: list[dict[str, Any]] = []
    with tempfile.TemporaryDirectory() as folder:
        files = []
        for i, (_, events, _) in enumerate(cases):
            file = Path(folder) / f"{i}.sse"
            file.write_bytes(sse(events))
            files.append(file)
        ours = [min(consume_bytes(file.read_bytes()) for _ in range(5)) for file in files]
        done = subprocess.run(
            ["node", str(HERE / "consume_peer.mjs"), str(NODE_DIR), *map(str, files)],
            check=True,
            capture_output=True,
            text=True,
        )
        peer = json.loads(done.stdout.splitlines()[-1])
        again = [min(consume_bytes(file.read_bytes()) for _ in range(5)) for file in files]
        for (name, events, floor), file, first, second in zip(cases, files, ours, again, strict=True):
            count = len(events) + 2
            out.append(
                {
                    "name": name,
                    "ours": count / min(first, second),
                    "peer": count / peer[str(file)],
                    "peer_name": "@ag-ui/client 1.0.0 (Node)",
                    "floor": floor,
                    "unit": "events/s",
                    "spread": abs(first - second) / min(first, second),
                }
            )
    small = min(consume_bytes(sse(one_message(20_000))) for _ in range(3))
    large = min(consume_bytes(sse(one_message(200_000))) for _ in range(3))
    out.append(
        {
            "name": "growth: 200,000 deltas cost this many times 20,000",
            "value": large / small,
            "unit": "x (10 is linear)",
            "most": 15,
        }
    )
    return out


if __name__ == "__main__":
    for row in rows():
        print(row)
