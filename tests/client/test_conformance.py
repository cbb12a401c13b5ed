"""The official conformance streams through the real client over a real HTTP connection: same verdicts as in process."""

from __future__ import annotations

import json
from typing import Any

import pytest
from scripted_server import Answer, ScriptedServer, frame
from streams.conformance import PRODUCER_DUTIES, STREAMS, Seen, failures, load_cases

from aguila.codec import decode_event, encode
from aguila.codec.protobuf import ProtobufEncoder
from aguila.errors import DecodeError, EncodeError, ProtocolError, RunFailed, StreamTruncated
from aguila.protocol import RunErrorEvent

CASES = load_cases()
pytestmark = pytest.mark.skipif(not CASES, reason=f"the official streams are not at {STREAMS.name}/ beside us")

PROTO = "application/vnd.ag-ui.event+proto"


def play(twin: Any, case: dict[str, Any], answer: Answer, **options: Any) -> Seen:
    seen = Seen()
    given = case.get("input", {})
    peer = case.get("client", {}).get("maxProtocolVersion")
    with ScriptedServer(answer) as server:
        client = twin.client(server.url, peer_version=peer, warn=lambda n: seen.notices.append(str(n)), **options)
        thread = client.thread("t", messages=given.get("messages", []))
        runs = [event.get("runId") for event in case["stream"] if event.get("type") == "RUN_STARTED"]
        wanted = runs[-1] if runs and isinstance(runs[-1], str) else None  # the requested run is the last one (IN-1)
        run = thread.run(forwarded_props=given.get("forwardedProps"), run_id=wanted)

        def look(event: Any) -> bool:
            seen.events.append(json.loads(encode(event)))
            if isinstance(event, RunErrorEvent):
                seen.run_error = event.message
            return False

        try:
            twin.events(run, look)
        except RunFailed as error:
            seen.run_error = error.message
        except ProtocolError as error:
            seen.rule, seen.error = error.rule, str(error)
        except StreamTruncated as error:
            seen.rule, seen.error = "TRN-7", str(error)
        seen.request = server.requests[0].json
        seen.messages = [json.loads(encode(message)) for message in thread.messages]
        seen.state = thread.state
    return seen


@pytest.mark.parametrize("case", CASES, ids=lambda case: case["name"])
def test_over_sse_the_official_stream_is_read_as_in_process(twin: Any, case: dict[str, Any]) -> None:
    if case["name"] in PRODUCER_DUTIES:
        assert play(twin, case, Answer([b"".join(map(frame, case["stream"]))])).rule is None
        return
    seen = play(twin, case, Answer([b"".join(map(frame, case["stream"]))]))
    assert failures(case, seen) == []


def binary(case: dict[str, Any]) -> bytes | None:
    """Return the stream as frames; None if it has malformed or unknown values, which protobuf cannot carry."""
    encoder = ProtobufEncoder()
    body = b""
    for raw in case["stream"]:
        try:
            event = decode_event(json.dumps(raw), strict=True)
            assert event is not None
            body += encoder.encode(event)
        except (DecodeError, EncodeError):
            return None
    return body


BINARY = [(case, body) for case in CASES if (body := binary(case)) is not None]


@pytest.mark.parametrize(("case", "body"), BINARY, ids=[case["name"] for case, _ in BINARY])
def test_over_protobuf_the_verdict_is_the_same(twin: Any, case: dict[str, Any], body: bytes) -> None:
    sse = play(twin, case, Answer([b"".join(map(frame, case["stream"]))]))
    proto = play(twin, case, Answer([body], content_type=PROTO), protobuf=True)
    assert proto.rule == sse.rule
    assert [event["type"] for event in proto.events] == [event["type"] for event in sse.events]
    assert proto.messages == sse.messages
    assert proto.state == sse.state


def test_most_of_the_corpus_can_be_said_in_protobuf() -> None:
    assert len(BINARY) >= 40
