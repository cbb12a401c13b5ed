"""``aguila check``: every kind of violation, each in a recording, and the reports of the command."""

from __future__ import annotations

import itertools
import json
import subprocess
from contextlib import nullcontext
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import pytest
from builders import (
    RUN_FINISHED,
    RUN_STARTED,
    UNVERSIONED_RUN_STARTED,
    run_finished_json,
    run_started_json,
    text_message_json,
    tool_call_json,
)
from processes.forked import aguila
from scripted_server import Answer, ScriptedServer, frames

from aguila.cli import demo, http_caller
from aguila.cli.check import check_file, check_url
from aguila.cli.output.report import as_junit, as_text
from aguila.client import on_event
from aguila.codec import encode_event
from aguila.codec.protobuf import ProtobufEncoder
from aguila.errors import RunFailed
from aguila.stream.verification.checker import judge
from aguila.testing import sync_client_for

Raw = dict[str, Any]
START = run_started_json()
END = run_finished_json()


def run(*events: Raw, start: Raw = START, end: Raw = END) -> list[Raw]:
    return [start, *events, end]


def event(type_: str, **members: Any) -> Raw:
    return {"type": type_, **members}


def message(id_: str, **members: Any) -> list[Raw]:
    return [
        event("TEXT_MESSAGE_START", messageId=id_, **members),
        event("TEXT_MESSAGE_END", messageId=id_),
    ]


def interrupted(*interrupts: Raw) -> Raw:
    return run_finished_json(outcome={"type": "interrupt", "interrupts": list(interrupts)})


QUESTION = {"id": "i", "reason": "input"}
ACTIVITY = event("ACTIVITY_SNAPSHOT", messageId="a", activityType="PLAN", content={})

# Each kind of violation that the events of a stream can have: its name, the events, and the exact findings.
KINDS: dict[str, tuple[list[Raw], list[tuple[str, str, int | None]]]] = {
    "an event without a type": (run({"delta": "x"}), [("error", "ENV-1", 1)]),
    "an event that lacks a member": (run(event("TEXT_MESSAGE_END")), [("error", "PROC-2", 1)]),
    "a member of the wrong type": (run(event("STATE_DELTA", delta={})), [("error", "PROC-2", 1)]),
    "null for what may only be left out": (
        run(event("CUSTOM", name="x", value=1, metadata=None)),
        [("error", "ENV-6", 1)],
    ),
    "an unknown event": (run(event("WINGS_SPREAD")), [("warning", "PROC-3", 1)]),
    "an unknown member": (run(*message("m", colour="red")), [("warning", "PROC-3", 1)]),
    "an unknown value where one is required": (
        run(event("REASONING_ENCRYPTED_VALUE", subtype="dream", entityId="m", encryptedValue="x")),
        [("warning", "PROC-4", 1)],
    ),
    "a patch operation without its value": (
        run(event("STATE_DELTA", delta=[{"op": "add", "path": "/a"}])),
        [("error", "SNAP-8", 1)],
    ),
    "a path that is no JSON Pointer": (
        run(event("STATE_DELTA", delta=[{"op": "remove", "path": "a"}])),
        [("error", "SNAP-7", 1)],
    ),
    "a patch that does not apply": (
        run(event("STATE_DELTA", delta=[{"op": "remove", "path": "/a"}])),
        [("warning", "SNAP-9", 1)],
    ),
    "a stream that begins with something else": (
        [*message("m"), run_finished_json()],
        [("error", "LIFE-1", 0)],
    ),
    "a run in a run": (run(run_started_json("r2", "t"), end=run_finished_json("r2", "t")), [("error", "LIFE-17", 1)]),
    "an event after the end": ([*run(), event("CUSTOM", name="x", value=1)], [("error", "LIFE-15", 2)]),
    "an event after a failure": (
        [START, event("RUN_ERROR", message="x"), event("CUSTOM", name="x", value=1)],
        [("error", "LIFE-16", 2)],
    ),
    "a stream without an end": ([START, *message("m")], [("error", "TRN-3", None)]),
    "a message opened twice": (
        run(event("TEXT_MESSAGE_START", messageId="m"), *message("m")),
        [("error", "STR-1", 2)],
    ),
    "text for a message that is not open": (
        run(event("TEXT_MESSAGE_CONTENT", messageId="m", delta="x")),
        [("error", "STR-2", 1)],
    ),
    "a message left open": (run(event("TEXT_MESSAGE_START", messageId="m")), [("error", "STR-3", 2)]),
    "a tool call left open": (run(tool_call_json("c")[0]), [("error", "STR-3", 2)]),
    "a reasoning message outside the rules": (
        run(event("REASONING_MESSAGE_CONTENT", messageId="m", delta="x")),
        [("error", "RSN-4", 1)],
    ),
    "a reasoning span ended twice": (
        run(
            event("REASONING_START", messageId="m"),
            event("REASONING_END", messageId="m"),
            event("REASONING_END", messageId="m"),
        ),
        [("error", "RSN-1", 3)],
    ),
    "a step that was not started": (run(event("STEP_FINISHED", stepName="s")), [("error", "STEP-1", 1)]),
    "a step left open": (run(event("STEP_STARTED", stepName="s")), [("error", "STEP-2", 2)]),
    "a step finished by another": (
        run(event("STEP_STARTED", stepName="s"), event("STEP_FINISHED", stepName="s", subagentRunId="a")),
        [("error", "STEP-4", 2), ("error", "STEP-2", 3)],
    ),
    "a subagent left open": (
        run(event("SUBAGENT_STARTED", subagentRunId="a", name="n")),
        [("error", "SUB-14", 2)],
    ),
    "a subagent's text tagged with another": (
        run(
            event("TEXT_MESSAGE_START", messageId="m", subagentRunId="a"),
            event("TEXT_MESSAGE_CONTENT", messageId="m", delta="x", subagentRunId="b"),
            event("TEXT_MESSAGE_END", messageId="m"),
        ),
        [("error", "SUB-8", 2)],
    ),
    "a subagent announced after it spoke": (
        run(
            *message("m", subagentRunId="a"),
            event("SUBAGENT_STARTED", subagentRunId="a", name="n"),
            event("SUBAGENT_FINISHED", subagentRunId="a"),
        ),
        [("warning", "SUB-3", 3)],
    ),
    "a chunk that opens a message without an id": (
        run(event("TEXT_MESSAGE_CHUNK", delta="x")),
        [("error", "CHK-3", 1)],
    ),
    "no declared version": (
        run(start=UNVERSIONED_RUN_STARTED),
        [("warning", "VER-2", 0)],
    ),
    "a version that is none": (run(start={**START, "protocolVersion": "1.1.0"}), [("warning", "VER-3", 0)]),
    "a run id used twice": ([*run(), *run()], [("warning", "ENV-11", 2)]),
    "an end that names another run": (run(end=run_finished_json("other", "t")), [("warning", "IN-3", 1)]),
    "a message id for two kinds of message": (
        run(*message("m"), event("TOOL_CALL_RESULT", messageId="m", toolCallId="c", content="x")),
        [("warning", "ENV-12", 3)],
    ),
    "a message opened again in another role": (
        run(*message("m", role="assistant"), *message("m", role="system")),
        [("warning", "TXT-3", 3)],
    ),
    "a call opened again with another name": (
        run(*tool_call_json("c", "f"), *tool_call_json("c", "g")),
        [("warning", "TOOL-4", 3)],
    ),
    "an activity changed before it is shown": (
        run(event("ACTIVITY_DELTA", messageId="a", activityType="PLAN", patch=[])),
        [("warning", "ACT-8", 1)],
    ),
    "two interrupts with one id": (run(end=interrupted(QUESTION, QUESTION)), [("warning", "INT-3", 1)]),
    "pending calls that were answered": (
        run(
            *tool_call_json("c"),
            event("TOOL_CALL_RESULT", messageId="m", toolCallId="c", content="x"),
            end=run_finished_json(outcome={"type": "success", "pendingToolCallIds": ["c"]}),
        ),
        [("warning", "FT-3", 4)],
    ),
    "an event of the protocol's past": (
        run(event("THINKING_START"), event("THINKING_END")),
        [("warning", "thinking-events", 1)],
    ),
}


def jsonl(events: list[Raw]) -> bytes:
    return b"".join([json.dumps(one).encode() + b"\n" for one in events])


def found_in(path: Path) -> list[tuple[str, str, int | None]]:
    checked = check_file(str(path), format_=None, input_file=None)
    return [(finding.level, finding.rule, finding.index) for finding in checked.findings]


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("form", ["jsonl", "sse", "json"])
def test_each_kind_of_violation_is_found_where_it_is(kind: str, form: str, tmp_path: Path) -> None:
    events, expected = KINDS[kind]
    path = tmp_path / f"stream.{form}"
    path.write_bytes({"jsonl": jsonl(events), "sse": frames(events), "json": json.dumps(events).encode()}[form])
    assert found_in(path) == expected


def test_the_kinds_are_many_and_differ() -> None:
    rules = {rule for _, expected in KINDS.values() for _, rule, _ in expected}
    assert len(rules) >= 30


def test_all_violations_of_a_stream_are_found_not_only_the_first(tmp_path: Path) -> None:
    path = tmp_path / "bad.jsonl"
    bad = run(
        event("TEXT_MESSAGE_CONTENT", messageId="a", delta="x"),
        event("STEP_FINISHED", stepName="s"),
        {"no": "type"},
        event("WINGS"),
        event("TEXT_MESSAGE_START", messageId="open"),
        start=UNVERSIONED_RUN_STARTED,
    )
    path.write_bytes(jsonl(bad) + b"{not json\n")
    assert [rule for _, rule, _ in found_in(path)] == ["VER-2", "STR-2", "STEP-1", "ENV-1", "PROC-3", "STR-3", "json"]


def test_a_newer_version_is_a_note_and_no_violation(tmp_path: Path) -> None:
    path = tmp_path / "new.jsonl"
    path.write_bytes(jsonl(run(start={**START, "protocolVersion": "1.9"})))
    assert found_in(path) == [("note", "VER-7", 0)]
    assert check_file(str(path), format_=None, input_file=None).is_clean


# Framing


GOOD = [START, *text_message_json("m", "Hi"), run_finished_json()]


@pytest.mark.parametrize(
    ("data", "expected"),
    [
        (frames(GOOD), []),
        (b": hello\n\nretry: 5\nevent: x\nid: 7\n" + frames(GOOD), []),
        (b"\xef\xbb\xbf" + frames(GOOD), []),
        (frames(GOOD).replace(b"\n", b"\r\n"), [("warning", "SSE-5", None)]),
        (frames(GOOD).removesuffix(b"\n"), [("warning", "SSE-4", None)]),
        (frames(GOOD) + json.dumps(run_finished_json()).encode() + b"\n\n", [("warning", "SSE-6", None)]),
        (frames(GOOD[:-1]) + b"data: [DONE]\n\n" + frames([run_finished_json()]), [("error", "json", 4)]),
        (frames(GOOD[:-1]) + b"data:\n\n" + frames([run_finished_json()]), [("error", "json", 4)]),
        (
            frames(GOOD[:1]) + b"data: " + json.dumps(GOOD[1]).encode() + b"\ndata: {}\n\n" + frames(GOOD[4:]),
            [("error", "json", 1)],
        ),
        (
            frames(GOOD[:-1]) + b'data: {"type": "RU',
            [("warning", "SSE-4", None), ("error", "json", 4), ("error", "TRN-3", None)],
        ),
        (b"", [("error", "TRN-3", None)]),
    ],
)
def test_the_framing_of_sse_is_judged(data: bytes, expected: list[Any], tmp_path: Path) -> None:
    path = tmp_path / "stream.sse"
    path.write_bytes(data)
    assert found_in(path) == expected


def test_bytes_that_are_not_text_are_found(tmp_path: Path) -> None:
    path = tmp_path / "stream.sse"
    path.write_bytes(frames(GOOD).replace(b"Hi", b"H\xff"))
    assert found_in(path) == [("warning", "utf-8", 2)]


def pb(*events: Any) -> bytes:
    encoder = ProtobufEncoder()
    return b"".join([encoder.encode(one) for one in events])


TYPED = [
    RUN_STARTED,
    RUN_FINISHED,
]


@pytest.mark.parametrize(
    ("data", "expected"),
    [
        (pb(*TYPED), []),
        (pb(*TYPED)[:-3], [("error", "PB-6", 1)]),
        (pb(TYPED[0]) + b"\0\0\0\3\xff\xff\xff" + pb(TYPED[1]), [("error", "PB-7", 1)]),
        (pb(TYPED[0]) + b"\x7f\xff\xff\xff" + pb(TYPED[1]), [("error", "limit-size", 1), ("error", "TRN-3", None)]),
        (pb(TYPED[0]), [("error", "TRN-3", None)]),
    ],
)
def test_the_framing_of_protobuf_is_judged(data: bytes, expected: list[Any], tmp_path: Path) -> None:
    path = tmp_path / "stream.pb"
    path.write_bytes(data)
    assert found_in(path) == expected


def test_a_json_array_without_its_end_is_an_error(tmp_path: Path) -> None:
    path = tmp_path / "stream.json"
    path.write_bytes(b"[" + json.dumps(START).encode())
    assert found_in(path) == [("error", "json", None)]


# Recordings


def test_a_recording_has_a_stream_for_each_input_and_starts_from_its_state(tmp_path: Path) -> None:
    patch = event("STATE_DELTA", delta=[{"op": "replace", "path": "/count", "value": 2}])
    given = {"threadId": "t", "runId": "r", "messages": [], "state": {"count": 1}}
    lines: list[Raw] = []
    for state in ({"count": 1}, {}):
        lines.append({"ms": 0, "input": {**given, "state": state}})
        lines += [{"ms": 5, "event": one} for one in run(patch)]
    path = tmp_path / "kept.jsonl"
    path.write_bytes(jsonl(lines))
    checked = check_file(str(path), format_=None, input_file=None)
    assert (checked.streams, checked.events) == (2, 6)
    assert [(finding.stream, finding.rule) for finding in checked.findings] == [(1, "SNAP-9")]
    assert as_text(checked).startswith("warning: stream 1, event 1 STATE_DELTA: the patch does not apply")


def test_an_input_that_is_none_is_noted_and_not_held_against_the_producer(tmp_path: Path) -> None:
    path = tmp_path / "kept.jsonl"
    path.write_bytes(jsonl([{"ms": 0, "input": {"threadId": 5}}, *({"ms": 1, "event": one} for one in run())]))
    assert found_in(path) == [("note", "PROC-2", None)]


# The command


def check(*arguments: str, stdin: bytes = b"") -> subprocess.CompletedProcess[bytes]:
    return aguila("check", *arguments, stdin=stdin)


def test_the_exit_status_says_what_was_found(tmp_path: Path) -> None:
    good, bad = tmp_path / "good.jsonl", tmp_path / "bad.jsonl"
    good.write_bytes(jsonl(GOOD))
    bad.write_bytes(jsonl(GOOD[:-1]))
    done = check(str(good))
    assert (done.returncode, done.stdout.decode()) == (0, f"5 events (jsonl) from {good}: no violations\n")
    done = check(str(bad))
    assert done.returncode == 1
    assert done.stdout.decode().splitlines()[-1] == f"4 events (jsonl) from {bad}: 1 error, 0 warnings"
    assert "[TRN-3]" in done.stdout.decode()
    for arguments in ((str(tmp_path / "none.jsonl"),), (), (str(good), "--format", "poem")):
        done = check(*arguments)
        assert done.returncode == 2
        assert done.stderr
        assert done.stdout == b""


NO_STREAMS = {
    "passwd": b"root:x:0:0:root:/root:/bin/bash\ndaemon:x:1:1:daemon:/usr/sbin:/usr/sbin/nologin\n",
    "picture.png": (Path(__file__).parents[2] / "docs/pictures/chat.png").read_bytes(),
    "README.md": b"# Aguila\n\nA stack: it is complete.\n",
    "package.json": b'{\n  "name": "x",\n  "type": "module"\n}\n',
    "settings.json": b'{"name": "x"}\n',
    "numbers.json": b"[1, 2]\n",
    "pyproject.toml": b'[project]\nname = "x"\n',
    "film.mp4": b"\0\0\0\x18ftypmp42\0\0\0\0mp42isom\0\0\0\x10moov\0\0\0\0\0\0\0\0",
    "page.sse": b"<html>\n<body>502 Bad Gateway</body>\n</html>\n",
}


@pytest.mark.parametrize("name", NO_STREAMS)
def test_a_file_that_is_not_a_stream_is_refused_in_one_line(name: str, tmp_path: Path) -> None:
    (tmp_path / name).write_bytes(NO_STREAMS[name])
    done = check(str(tmp_path / name))
    assert (done.returncode, done.stdout) == (2, b"")
    expected = "expected SSE, JSON lines, a JSON array or protobuf frames; --from reads it as one of them"
    assert done.stderr.decode() == f"aguila check: {tmp_path / name} is not a stream of events: {expected}\n"
    assert check(str(tmp_path / name), "--from", "sse").returncode == 1


def test_the_text_links_each_broken_rule_to_its_explanation_once(tmp_path: Path) -> None:
    path = tmp_path / "bad.jsonl"
    path.write_bytes(jsonl(run(event("WINGS"), event("TAIL"), event("TEXT_MESSAGE_END", messageId="m"))))
    helps = [line for line in check(str(path)).stdout.decode().splitlines() if line.startswith("help: ")]
    assert helps == [
        "help: PROC-3 is explained in docs/rules.md#proc-3",
        "help: STR-2 is explained in docs/rules.md#str-2",
    ]


def test_rules_can_be_left_out_and_the_standard_input_read() -> None:
    stream = jsonl(run(start=UNVERSIONED_RUN_STARTED))
    assert check("-", stdin=stream).returncode == 1
    done = check("-", "--ignore", "VER-2", stdin=stream)
    assert (done.returncode, done.stdout) == (0, b"2 events (jsonl) from standard input: no violations\n")


def test_as_json_it_says_everything_a_program_needs(tmp_path: Path) -> None:
    path = tmp_path / "bad.jsonl"
    path.write_bytes(jsonl(run(event("TEXT_MESSAGE_START", messageId="m", colour="red"))))
    report = json.loads(check(str(path), "--format", "json").stdout)
    assert report["ok"] is False
    assert (report["target"], report["format"], report["streams"], report["events"]) == (str(path), "jsonl", 1, 3)
    first, second = report["findings"]
    assert first == {
        "level": "warning",
        "rule": "PROC-3",
        "message": "removed an unknown member",
        "index": 1,
        "event": "TEXT_MESSAGE_START",
        "path": "/colour",
    }
    assert second["rule"] == "STR-3"


def test_as_junit_each_broken_rule_is_a_failed_case(tmp_path: Path) -> None:
    path = tmp_path / "bad.jsonl"
    path.write_bytes(jsonl([*run(event("WINGS\u0000"), event("TAIL")), event("CUSTOM", name="x", value=1)]))
    suite = ElementTree.fromstring(check(str(path), "--format", "junit").stdout)[0]
    assert (suite.get("tests"), suite.get("failures")) == ("2", "2")
    assert [case.get("name") for case in suite] == ["PROC-3", "LIFE-15"]
    *found, link = (suite[0][0].text or "").splitlines()
    assert (len(found), link) == (2, "See docs/rules.md#proc-3")
    path.write_bytes(jsonl(GOOD))
    suite = ElementTree.fromstring(as_junit(check_file(str(path), format_=None, input_file=None)))[0]
    assert [(case.get("name"), len(case)) for case in suite] == [("follows the protocol", 0)]


# Servers


def answering(asked: Any, **options: Any) -> Answer:
    thread, run_id = asked.json["threadId"], asked.json["runId"]
    return Answer(
        [frames([run_started_json(run_id, thread), *text_message_json("m", "Hi"), run_finished_json(run_id, thread)])],
        **options,
    )


def test_an_agent_is_run_with_a_message_and_its_answer_judged() -> None:
    with ScriptedServer(answering) as server:
        done = check(server.url, "--message", "Fly", "--header", "Authorization: Bearer x")
        assert done.returncode == 0, done.stdout
        (asked,) = server.requests
        assert (asked.method, asked.headers["authorization"]) == ("POST", "Bearer x")
        assert asked.headers["accept"] == "text/event-stream"
        assert [one["content"] for one in asked.json["messages"]] == ["Fly"]
        assert asked.json["protocolVersion"] == "1.1"


def test_an_agent_is_run_with_an_input_from_a_file(tmp_path: Path) -> None:
    given = tmp_path / "input.json"
    given.write_text(json.dumps({"threadId": "mine", "messages": [], "state": {"a": 1}, "extra": True}))
    with ScriptedServer(answering) as server:
        assert check(server.url, "--input", str(given)).returncode == 0
        sent = server.requests[0].json
        assert (sent["threadId"], sent["messages"], sent["state"], sent["extra"]) == ("mine", [], {"a": 1}, True)
        assert sent["runId"]


def test_what_an_http_answer_can_do_wrong_is_found() -> None:
    def rules(answer: Any) -> list[str]:
        with ScriptedServer(answer) as server:
            found = check_url(server.url, message=None, input_file=None, headers=(), protobuf=False, timeout=20.0)
            return [finding.rule for finding in found.findings]

    assert rules(lambda asked: answering(asked, content_type="text/plain")) == ["SSE-3"]
    assert rules(lambda asked: answering(asked, status=201)) == ["SSE-3"]
    assert rules(lambda asked: answering(asked, content_type="text/event-stream; charset=utf-8")) == []
    assert rules(lambda asked: answering(asked, cut=True)) == ["SSE-12"]
    assert rules(Answer([jsonl(GOOD)], content_type="application/x-ndjson")) == ["SSE-3"]
    proto = "application/vnd.ag-ui.event+proto"
    assert rules(Answer([pb(*TYPED)], content_type=proto)) == []
    assert rules(Answer([pb(*TYPED)], content_type=proto + "; v=1")) == ["PB-3"]


def test_a_refusal_and_an_unreachable_server_mean_that_the_check_could_not_run() -> None:
    with ScriptedServer(Answer([b'{"detail": "no"}'], status=422, content_type="application/json")) as server:
        done = check(server.url)
        url = server.url
    assert done.returncode == 2
    assert done.stderr.decode() == f'aguila check: {url} answered HTTP 422: {{"detail": "no"}}\n'
    done = check(url)
    assert done.returncode == 2
    assert done.stderr.decode().startswith(f"aguila check: cannot reach {url}: ")
    assert check(url, "--header", "nonsense").returncode == 2


def test_typed_events_are_judged_as_their_json() -> None:
    assert judge(TYPED) == []
    assert [finding.rule for finding in judge([encode_event(TYPED[0]), TYPED[0]])] == ["LIFE-17", "ENV-11", "TRN-3"]


@pytest.mark.parametrize("keyword", sorted(demo.FEATURES))
def test_nothing_is_found_in_what_our_own_demo_says(keyword: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(demo.say, "__defaults__", (0,))
    monkeypatch.setattr(demo.write, "__defaults__", (0,))
    if keyword == "slow":
        monkeypatch.setattr(demo, "say", lambda run, words, pace: run.say(words))
    raw: list[Raw] = []

    def keep(one: Raw) -> Raw:
        raw.append(one)
        return one

    ending = pytest.raises(RunFailed) if keyword == "error" else nullcontext()
    with sync_client_for(demo.agent, middleware=[on_event(keep)]) as client, ending:
        client.thread().run(f"show {keyword}").result()
    assert len(raw) >= 3
    assert judge(raw) == []


@pytest.mark.parametrize("piece", [b"x" * 65_536, b": comment\n\n" * 6_000], ids=["line", "body"])
@pytest.mark.parametrize("status", [200, 500])
def test_a_body_that_does_not_end_is_read_up_to_a_limit(
    piece: bytes, status: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("aguila.cli.check.MAX_BODY", 1_000_000)
    endless = itertools.repeat(piece, 10_000)
    options: Any = {"message": None, "input_file": None, "headers": (), "protobuf": False, "timeout": 20.0}
    with ScriptedServer(Answer(endless, status=status)) as server:
        if status == 500:
            with pytest.raises(http_caller.CannotRun, match="answered HTTP 500"):
                check_url(server.url, **options)
        else:
            found = check_url(server.url, **options).findings
            assert any("it has more than 1000000 bytes" in finding.message for finding in found)
    assert sum(1 for _ in endless) > 9_000  # the rest was not sent
