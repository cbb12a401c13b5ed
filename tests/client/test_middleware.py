"""Middleware: the input and raw events, before enforcement, in order."""

import json

import pytest
from builders import text_message_json, tool_call_json
from scripted_server import ScriptedServer, run_of

from aguila.client import FilterToolCalls, Record, Stage, on_event, on_input
from aguila.errors import EncodeError, ProtocolError
from aguila.protocol import Context, replace


def test_the_first_is_the_outermost_it_sees_the_input_first_and_events_last(twin):
    order = []

    def named(name):
        class Named(Stage):
            def input(self, input):
                order.append(f"{name} input")
                return input

            def event(self, event):
                if event["type"] == "RUN_STARTED":
                    order.append(f"{name} event")
                return (event,)

            def close(self):
                order.append(f"{name} closed")

        return Named

    with ScriptedServer(run_of()) as server:
        twin.result(twin.client(server.url, middleware=[named("a"), named("b")]).thread().run("x"))
    assert order == ["a input", "b input", "b event", "a event", "a closed", "b closed"]


def test_the_input_can_be_changed_and_is_enforced_afterwards(twin):
    def add(input):
        return replace(input, context=[Context(description="d", value="v")])

    def spoil(input):
        return replace(input, messages=[5])

    with ScriptedServer(run_of()) as server:
        twin.result(twin.client(server.url, middleware=[on_input(add)]).thread().run("x"))
        assert server.requests[0].json["context"] == [{"description": "d", "value": "v"}]
        with pytest.raises(EncodeError):
            twin.result(twin.client(server.url, middleware=[on_input(spoil)]).thread().run("x"))
        assert len(server.requests) == 1


def test_raw_events_are_seen_as_they_came_changed_dropped_and_multiplied(twin):
    seen = []

    class Tamper(Stage):
        def event(self, event):
            seen.append(event["type"])
            if event["type"] == "X_VENDOR":
                return ()
            if event["type"] == "TEXT_MESSAGE_CONTENT":
                return (event, {**event, "delta": "!"})
            return (event,)

    notices = []
    unknown = {"type": "X_VENDOR", "n": 1}
    with ScriptedServer(run_of(unknown, *text_message_json("m", "Hi", "\ud83e"))) as server:
        client = twin.client(server.url, middleware=[Tamper], warn=notices.append)
        thread = client.thread()
        assert twin.result(thread.run("x")).text == "Hi!\ud83e!"
    assert "X_VENDOR" in seen
    assert not [n for n in notices if n.event_type == "X_VENDOR"], "dropped before anybody could wonder"


def test_what_a_middleware_gives_is_enforced_and_verified(twin):
    for spoilt in ({"type": "TEXT_MESSAGE_CONTENT", "messageId": "nobody", "delta": "x"}, {"type": "STEP_STARTED"}):
        with ScriptedServer(run_of({"type": "CUSTOM", "name": "n", "value": 1})) as server:
            spoil = on_event(lambda event, spoilt=spoilt: spoilt if event["type"] == "CUSTOM" else event)
            with pytest.raises(ProtocolError):
                twin.result(twin.client(server.url, middleware=[spoil]).thread().run("x"))


def test_a_function_can_drop_events(twin):
    drop = on_event(lambda event: None if event["type"] == "CUSTOM" else event)
    with ScriptedServer(run_of({"type": "CUSTOM", "name": "n", "value": 1})) as server:
        events = twin.events(twin.client(server.url, middleware=[drop]).thread().run("x"))
        assert [e.type for e in events] == ["RUN_STARTED", "RUN_FINISHED"]


RESULT = {"type": "TOOL_CALL_RESULT", "toolCallId": "c2", "messageId": "r", "content": "x"}
CHUNKS = [
    {"type": "TOOL_CALL_CHUNK", "toolCallId": "c3", "toolCallName": "bad", "delta": "{"},
    {"type": "TOOL_CALL_CHUNK", "delta": "}"},
    {"type": "TOOL_CALL_CHUNK", "toolCallId": "c4", "toolCallName": "good", "delta": "{}"},
]


@pytest.mark.parametrize("how", [{"allowed": ["good"]}, {"disallowed": ["bad"]}], ids=["allowed", "disallowed"])
def test_tool_calls_are_filtered_whole_by_name(twin, how):
    events = [*tool_call_json("c1", "good", {}), *tool_call_json("c2", "bad", {}), RESULT, *CHUNKS]
    with ScriptedServer(run_of(*events), run_of(*tool_call_json("c2", "good", {}))) as server:
        thread = twin.client(server.url, middleware=[FilterToolCalls(**how)]).thread()
        twin.result(thread.run("x"))
        calls = [c.id for m in thread.messages for c in getattr(m, "tool_calls", None) or []]
        assert calls == ["c1", "c4"]
        assert not [m for m in thread.messages if m.role == "tool"]
        twin.result(thread.run("y"))
        calls = [c.id for m in thread.messages for c in getattr(m, "tool_calls", None) or []]
        assert calls == ["c1", "c4", "c2"], "another run, another call"


def test_a_filter_needs_one_list():
    for wrong in ({}, {"allowed": [], "disallowed": []}):
        with pytest.raises(ValueError, match="allowed"):
            FilterToolCalls(**wrong)


def test_a_recording_never_overwrites_a_file_unasked(twin, tmp_path):
    path = tmp_path / "run.jsonl"
    sizes = []
    with ScriptedServer(*[run_of()] * 5) as server:
        for options in ({}, {"existing": "append"}, {"existing": "replace"}):
            thread = twin.client(server.url, middleware=[Record(path, **options)]).thread()
            twin.result(thread.run("x"))
            sizes.append(len(path.read_bytes().splitlines()))
        twin.result(thread.run("a second run of the same recording"))
        sizes.append(len(path.read_bytes().splitlines()))
    assert sizes == [3, 6, 3, 6]
    with pytest.raises(FileExistsError, match="append"):
        Record(path)


@pytest.mark.parametrize("name", ["x.sse", "x.pb", "x.json"])
def test_a_name_that_promises_another_form_than_json_lines_is_refused(name, tmp_path):
    with pytest.raises(ValueError, match="JSON lines"):
        Record(tmp_path / name)


def test_recordings_hold_every_input_and_raw_event(twin, tmp_path):
    path = tmp_path / "run.jsonl"
    times = iter(n / 1000 for n in range(1000))
    with ScriptedServer(run_of({"type": "X_VENDOR"}, *text_message_json("m", "\u2028"))) as server:
        record = Record(path, clock=lambda: next(times))
        notices = []
        twin.result(twin.client(server.url, middleware=[record], warn=notices.append).thread().run("x"))
        sent = server.requests[0].json
    lines = [json.loads(line) for line in path.read_bytes().splitlines()]
    assert lines[0]["input"]["runId"] == sent["runId"]
    assert [line["event"]["type"] for line in lines[1:]] == [
        "RUN_STARTED",
        "X_VENDOR",
        "TEXT_MESSAGE_START",
        "TEXT_MESSAGE_CONTENT",
        "TEXT_MESSAGE_END",
        "RUN_FINISHED",
    ]
    assert [line["ms"] for line in lines] == sorted(line["ms"] for line in lines)
    assert lines[4]["event"]["delta"] == "\u2028"
    assert [n.event_type for n in notices] == ["X_VENDOR"], "what is recorded is still judged"
