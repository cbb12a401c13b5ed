"""A client that declares 1.0 or 1.1 receives the same bytes as before there were dialects.

``declared_frames`` has the frames that the server wrote then (commit 05b61f3) for every event of the vectors.
One thing has changed since: a user message without content is written as an empty string, as document 000 has it.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from builders import run_started_json
from streams.vectors import VALID

from aguila.codec import decode_event, encode_event
from aguila.codec.dialects import dialect_of
from aguila.codec.negotiate import SSE_MEDIA_TYPE
from aguila.protocol import Event
from aguila.server.http.frames import framing_for

FOLDER = Path(__file__).parent / "declared_frames"


def stored() -> list[bytes]:
    """Return every valid event, message and input of the vectors, as events of a log."""
    wire: list[Any] = []
    for vector in VALID:
        if vector.read_as == "Event":
            wire.append(vector.wire)
        elif vector.read_as == "Message":
            wire.append({"type": "MESSAGES_SNAPSHOT", "messages": [vector.wire]})
        elif vector.read_as == "RunAgentInput":
            started = run_started_json()
            wire.append({**started, "input": vector.wire})
    return [encode_event(event) for event in decoded(wire)]


def decoded(wire: list[Any]) -> list[Event]:
    events = [decode_event(json.dumps(one), strict=True) for one in wire]
    return [event for event in events if event is not None]


def written(declared: str) -> bytes:
    """Return the frames of a batch, of one event at a time, and of events that are not in the log."""
    events = stored()
    together = framing_for(SSE_MEDIA_TYPE, dialect_of(declared)).frame_batch(1, events)
    framing = framing_for(SSE_MEDIA_TYPE, dialect_of(declared))
    alone = b"".join([framing.frame_batch(number, [event]) for number, event in enumerate(events, 1)])
    typed = decoded([json.loads(event) for event in events])
    unstored = b"".join([framing.frame_event(event) for event in typed])
    return b"\n=====\n".join([together, alone, unstored])


@pytest.mark.parametrize("declared", ["1.0", "1.1"])
def test_declared_clients_receive_the_same_bytes_as_before(declared: str) -> None:
    expected = (FOLDER / f"{declared}.txt").read_bytes()
    assert written(declared).split(b"\n\n") == expected.split(b"\n\n")


def test_the_recorded_frames_differ_where_1_0_has_less() -> None:
    old, new = ((FOLDER / f"{version}.txt").read_bytes() for version in ("1.0", "1.1"))
    assert b"encryptedValueType" in new
    assert b"encryptedValueType" not in old
    assert b'"protocolVersion":"1.0"' in old
