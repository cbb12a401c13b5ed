"""A client stops reading a run that sends too much or takes too long."""

import json
import threading

import pytest
from builders import run_started_json
from scripted_server import Answer, ScriptedServer, frame

from aguila.errors import LimitExceeded

CUSTOM = frame({"type": "CUSTOM", "name": "x", "value": 1})


def endless(piece: bytes):
    yield frame(run_started_json("t", "r"))
    while True:
        yield piece


def exceeded_by(twin, answer, **options) -> LimitExceeded:
    with ScriptedServer(answer) as server, pytest.raises(LimitExceeded) as caught:
        twin.result(twin.client(server.url, reconnect=None, **options).thread("t").run("x"))
    return caught.value


def test_the_events_of_a_run_are_limited(twin):
    error = exceeded_by(twin, Answer(endless(CUSTOM * 100)), max_events=1_000)
    assert error.limit == "max_events"
    assert "more than 1000 events; raise max_events" in str(error)


def test_the_bytes_of_a_run_are_limited_also_if_no_event_ever_comes(twin):
    assert exceeded_by(twin, Answer(endless(b": comment\n" * 1_000)), max_bytes=100_000).limit == "max_bytes"


def test_the_time_of_a_run_is_limited_also_if_nothing_comes(twin):
    answer = Answer([frame(run_started_json("t", "r")), threading.Event()])
    error = exceeded_by(twin, answer, max_seconds=0.2)
    assert error.limit == "max_seconds"


def test_the_bytes_of_a_document_are_limited(twin):
    answer = Answer([b'{"messages":[', *[b" " * 1_000] * 200], content_type="application/json")
    with ScriptedServer(answer) as server, pytest.raises(LimitExceeded) as caught:
        twin.wait(twin.client(server.url, max_bytes=100_000).thread("t").refresh())
    assert caught.value.limit == "max_bytes"


def test_the_state_of_a_thread_that_was_refreshed_is_limited_too(twin):
    document = {"threadId": "t", "messages": [], "state": {"x": "y" * 1_000}, "runs": [], "interrupts": []}
    copies = [{"op": "copy", "from": "", "path": f"/{i}"} for i in range(14)]
    ids = {"threadId": "t", "runId": "r"}
    events = [
        {"type": "RUN_STARTED", **ids},
        {"type": "STATE_DELTA", "delta": copies},
        {"type": "RUN_FINISHED", **ids},
    ]
    notices = []
    answers = [
        Answer([json.dumps(document).encode()], content_type="application/json"),
        Answer([frame(event) for event in events]),
    ]
    with ScriptedServer(*answers) as server:
        client = twin.client(server.url, reconnect=None, max_size=100_000, warn=notices.append)
        thread = client.thread("t")
        twin.wait(thread.refresh())
        assert thread.state == {"x": "y" * 1_000}
        twin.result(thread.run("x", run_id="r"))
    assert thread.state == {"x": "y" * 1_000}
    assert any("more than 100000 bytes" in notice.message for notice in notices)
