"""``aguila record`` with servers that follow the protocol and with servers that do not."""

from __future__ import annotations

import json
import threading
from pathlib import Path
from typing import Any

import pytest
from builders import run_finished_json, run_started_json, text_message_json
from processes.forked import aguila
from scripted_server import Answer, ScriptedServer, frame, frames
from streams.every_event import every_event

from aguila.cli.convert import written
from aguila.codec import decode_event
from aguila.codec.formats import detect_format, format_from_name
from aguila.testing.recordings import read_streams

PROTO = "application/vnd.ag-ui.event+proto"


def unexpected(notice: Any) -> None:
    assert notice.rule == "PB-12", notice


def record(server: ScriptedServer, folder: Path, *arguments: str) -> Any:
    return aguila("record", server.url, *arguments, folder=folder)


def test_a_recording_holds_the_input_and_every_event_with_its_time(tmp_path: Path) -> None:
    gate = threading.Event()
    gate.set()

    def answer(asked: Any) -> Answer:
        run, thread = asked.json["runId"], asked.json["threadId"]
        events = [run_started_json(run, thread), *text_message_json("m", "Hi"), run_finished_json(run, thread)]
        return Answer([frames(events[:2]), gate, frames(events[2:])])

    with ScriptedServer(answer) as server:
        done = record(server, tmp_path, "kept.jsonl", "--message", "Fly", "--thread", "mine")
        asked = server.requests[0].json
    assert done.returncode == 0, done.stderr
    assert done.stderr.decode() == f"5 events of run {asked['runId']} on thread mine in kept.jsonl\n"
    first, *rest = [json.loads(line) for line in (tmp_path / "kept.jsonl").read_text().splitlines()]
    assert first == {"ms": 0, "input": asked}
    assert asked["threadId"] == "mine"
    assert [line["event"]["type"] for line in rest][0::4] == ["RUN_STARTED", "RUN_FINISHED"]
    times = [line["ms"] for line in rest]
    assert times == sorted(times)
    assert all(isinstance(ms, int) and ms >= 0 for ms in times)


@pytest.mark.parametrize("form", ["sse", "protobuf"])
def test_a_stream_of_every_event_type_is_kept_over_both_transports(form: Any, tmp_path: Path) -> None:
    body = written(every_event(), form, unexpected)
    answer = Answer([body[:100], body[100:]], content_type="text/event-stream" if form == "sse" else PROTO)
    with ScriptedServer(answer) as server:
        done = record(server, tmp_path, "kept.jsonl", "--protobuf", "--input", str(input_file(tmp_path)))
        assert server.requests[0].headers["accept"] == f"{PROTO}, text/event-stream"
        assert server.requests[0].json["runId"] == "given"
    assert done.returncode == 0, done.stderr
    data = (tmp_path / "kept.jsonl").read_bytes()
    (stream,) = read_streams(data, "jsonl")
    kept = [decode_event(event.data) for event in stream.events]
    assert kept == [decode_event(event.data) for event in read_streams(body, form)[0].events]
    assert stream.input["runId"] == "given"


def input_file(folder: Path) -> Path:
    path = folder / "input.json"
    path.write_text(json.dumps({"runId": "given", "threadId": "t", "messages": []}))
    return path


def test_by_the_name_of_the_file_the_bytes_are_kept_as_they_came(tmp_path: Path) -> None:
    body = b": odd\r\n" + frames([run_started_json(), run_finished_json()]).replace(b"\n", b"\r\n")
    with ScriptedServer(Answer([body])) as server:
        done = record(server, tmp_path, "kept.sse")
    assert done.returncode == 0
    assert (tmp_path / "kept.sse").read_bytes() == body
    assert b"SSE-5" in aguila("check", "kept.sse", folder=tmp_path).stdout


@pytest.mark.parametrize("wire", ["sse", "protobuf"])
@pytest.mark.parametrize("name", ["kept.sse", "kept.pb", "kept.json", "kept.jsonl"])
def test_the_name_of_the_file_says_its_form_whatever_the_wire(name: str, wire: Any, tmp_path: Path) -> None:
    body = written(every_event(), wire, unexpected)
    with ScriptedServer(Answer([body], content_type="text/event-stream" if wire == "sse" else PROTO)) as server:
        done = record(server, tmp_path, name, "--input", str(input_file(tmp_path)))
    assert done.returncode == 0, done.stderr
    data = (tmp_path / name).read_bytes()
    form = format_from_name(name)
    assert form is not None
    assert detect_format(data) == form
    over_protobuf = written(every_event(), "protobuf", unexpected)
    expected = over_protobuf if "protobuf" in (wire, form) else body
    expected_form: Any = "protobuf" if "protobuf" in (wire, form) else wire
    kept = [decode_event(event.data) for event in read_streams(data, form)[0].events]
    assert kept == [decode_event(event.data) for event in read_streams(expected, expected_form)[0].events]


def test_a_file_that_is_there_is_added_to_or_replaced_only_if_asked(tmp_path: Path) -> None:
    answers = [Answer([frames([run_started_json(run, "t"), run_finished_json(run, "t")])]) for run in ("a", "b", "c")]
    kept = tmp_path / "kept.jsonl"
    with ScriptedServer(*answers) as server:
        assert record(server, tmp_path, "kept.jsonl").returncode == 0
        before = kept.read_bytes()
        done = record(server, tmp_path, "kept.jsonl")
        assert done.returncode == 2
        assert b"kept.jsonl exists; --append adds to it" in done.stderr
        done = aguila("chat", server.url, "-m", "x", "--record", "kept.jsonl", folder=tmp_path)
        assert done.returncode == 2
        assert b"kept.jsonl exists; --append adds to it" in done.stderr
        assert record(server, tmp_path, "kept.jsonl", "--append", "--force").returncode == 2
        assert record(server, tmp_path, "kept.sse", "--append").returncode == 2
        assert kept.read_bytes() == before
        assert len(server.requests) == 1, "refused before anything is sent"
        assert record(server, tmp_path, "kept.jsonl", "--append").returncode == 0
        assert len(read_streams(kept.read_bytes(), "jsonl")) == 2
        assert record(server, tmp_path, "kept.jsonl", "--force").returncode == 0
        assert len(read_streams(kept.read_bytes(), "jsonl")) == 1


def test_a_chat_is_recorded_as_json_lines_and_under_no_other_name(tmp_path: Path) -> None:
    with ScriptedServer() as server:
        done = aguila("chat", server.url, "-m", "x", "--record", "kept.sse", folder=tmp_path)
        assert done.returncode == 2
        assert b"JSON lines" in done.stderr
        assert server.requests == []


def test_what_breaks_the_protocol_is_kept_for_the_checker(tmp_path: Path) -> None:
    bad = [
        run_started_json(),
        {"type": "WINGS"},
        {"type": "TEXT_MESSAGE_END", "messageId": "m"},
        run_finished_json(),
    ]
    with ScriptedServer(Answer([frames(bad)])) as server:
        assert record(server, tmp_path, "kept.jsonl").returncode == 0
    found = aguila("check", "kept.jsonl", folder=tmp_path).stdout
    assert b"PROC-3" in found
    assert b"STR-2" in found


def test_a_stream_that_breaks_off_is_kept_as_far_as_it_came(tmp_path: Path) -> None:
    with ScriptedServer(Answer([frame(run_started_json())], cut=True)) as server:
        done = record(server, tmp_path, "kept.jsonl")
    assert done.returncode == 1
    assert b"aguila record: " in done.stderr
    assert len((tmp_path / "kept.jsonl").read_text().splitlines()) == 2


def test_an_event_that_is_no_json_cannot_be_a_line_and_ends_the_recording(tmp_path: Path) -> None:
    with ScriptedServer(Answer([frame(run_started_json()) + b"data: [DONE]\n\n"])) as server:
        done = record(server, tmp_path, "kept.jsonl")
    assert done.returncode == 1
    assert b"'[DONE]'" in done.stderr


@pytest.mark.parametrize("name", ["kept.jsonl", "kept.sse"])
def test_a_stream_that_says_text_plain_is_recorded_as_check_reads_it(tmp_path: Path, name: str) -> None:
    body = b": hello\n\n" + frames([run_started_json(), run_finished_json()])
    pieces = [body[:3], body[3:20], body[20:]]
    with ScriptedServer(*[Answer(pieces, content_type="text/plain")] * 2) as server:
        done = record(server, tmp_path, name)
        assert done.returncode == 0, done.stderr
        assert b"2 events" in aguila("check", server.url, folder=tmp_path).stdout
    assert b"2 events" in aguila("check", name, folder=tmp_path).stdout
    if name == "kept.sse":
        assert (tmp_path / name).read_bytes() == body


def test_an_answer_that_is_no_stream_is_not_recorded_as_sse(tmp_path: Path) -> None:
    for kind in ("text/html", "text/plain"):
        with ScriptedServer(Answer([b"<html>data: none</html>"], content_type=kind)) as server:
            done = record(server, tmp_path, "kept.sse")
        assert (done.returncode, (tmp_path / "kept.sse").exists()) == (2, False)


def test_what_cannot_be_run_or_written_is_said_so(tmp_path: Path) -> None:
    plain = Answer([b"hello"], content_type="text/plain")
    refusing = Answer([b"no"], status=403, content_type="text/plain")
    good = Answer([frames([run_started_json(), run_finished_json()])])
    with ScriptedServer(plain, refusing, good) as server:
        done = record(server, tmp_path, "kept.jsonl")
        assert (done.returncode, done.stderr) == (
            2,
            b"aguila record: expected a stream of events, got text/plain\n",
        )
        assert not (tmp_path / "kept.jsonl").exists()
        done = record(server, tmp_path, "kept.jsonl")
        assert done.returncode == 2
        assert b"answered HTTP 403: no" in done.stderr
        done = record(server, tmp_path, "no/kept.jsonl")
        assert done.returncode == 2
        assert b"cannot write no/kept.jsonl" in done.stderr
