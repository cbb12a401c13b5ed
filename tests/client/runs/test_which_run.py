"""Which run of a stream is the requested one (IN-1, IN-3); the others do not change its result."""

import pytest
from builders import run_finished_json, run_started_json, text_message_json
from scripted_server import Answer, ScriptedServer, frames

from aguila.errors import RunFailed, StreamTruncated


def run_events(run, *events, **finish):
    return [run_started_json(run, "t"), *events, run_finished_json(run, "t", **finish)]


OLD = run_events("old", *text_message_json("o", "old"), result=0)


@pytest.mark.parametrize("is_cut", [True, False])
def test_replayed_runs_alone_are_no_success(twin, is_cut):
    answer = Answer([frames([*OLD, *run_events("older")])], cut=is_cut)
    with ScriptedServer(answer) as server, pytest.raises(StreamTruncated):
        twin.result(twin.client(server.url).thread("t").run("x", run_id="mine"))


def test_a_stream_that_breaks_after_a_replayed_run_is_no_success(twin):
    with ScriptedServer(Answer([frames(OLD)], cut=True)) as server, pytest.raises(StreamTruncated):
        twin.result(twin.client(server.url).thread("t").run("x", run_id="mine"))


def test_a_replayed_run_that_failed_is_not_the_failure_of_the_run_that_was_asked_for(twin):
    failed = [run_started_json("old", "t"), {"type": "RUN_ERROR", "message": "long ago"}]
    with ScriptedServer(Answer([frames(failed)], cut=True)) as server, pytest.raises(StreamTruncated):
        twin.result(twin.client(server.url).thread("t").run("x", run_id="mine"))


@pytest.mark.parametrize("is_cut", [True, False])
def test_the_log_is_asked_for_the_run_that_did_not_come_after_a_replayed_one(twin, is_cut):
    rest = Answer([frames(run_events("mine", *text_message_json("n", "new"), result=1), 15)])
    with ScriptedServer(Answer([frames(OLD, 10)], cut=is_cut), rest) as server:
        result = twin.result(twin.client(server.url).thread("t").run("x", run_id="mine"))
        assert (result.run_id, result.text, result.result) == ("mine", "new", 1)
        assert server.requests[1].headers["last-event-id"] == "14"


@pytest.mark.parametrize("first_id", [None, 1])
@pytest.mark.parametrize("log", [Answer([b"no"], 404, "text/plain"), Answer([b": nothing\n\n"])])
def test_a_server_that_names_its_runs_itself_is_tolerated_with_a_notice(twin, first_id, log):
    heard = []
    with ScriptedServer(
        Answer([frames(run_events("theirs", *text_message_json("m", "hi"), result=1), first_id)]), log
    ) as server:
        thread = twin.client(server.url, warn=heard.append).thread("t")
        result = twin.result(thread.run("x", run_id="mine"))
        assert (result.run_id, result.text, result.result) == ("theirs", "hi", 1)
        assert [notice.rule for notice in heard] == ["IN-3"]
        assert thread.runs[-1].run_id == "theirs"


def test_a_run_that_the_thread_had_before_is_a_replayed_one(twin):
    with ScriptedServer(Answer([frames(OLD)]), Answer([frames(OLD)])) as server:
        thread = twin.client(server.url, warn=lambda _: None).thread("t")
        twin.result(thread.run("x"))
        with pytest.raises(StreamTruncated):
            twin.result(thread.run("y"))


def test_a_server_that_names_its_runs_itself_may_fail_them(twin):
    failed = [run_started_json("theirs", "t"), {"type": "RUN_ERROR", "message": "no luck"}]
    with ScriptedServer(Answer([frames(failed)])) as server, pytest.raises(RunFailed, match="no luck"):
        twin.result(twin.client(server.url, warn=lambda _: None).thread("t").run("x"))


@pytest.mark.parametrize("is_cut", [True, False])
def test_a_run_after_the_one_that_was_asked_for_is_passed_over_with_a_notice(twin, is_cut):
    heard = []
    other = run_events("next", *text_message_json("m", "other"), result=2)
    body = frames([*run_events("mine", *text_message_json("o", "ours"), result=1), *(other[:2] if is_cut else other)])
    with ScriptedServer(Answer([body], cut=is_cut)) as server:
        thread = twin.client(server.url, warn=heard.append).thread("t")
        result = twin.result(thread.run("x", run_id="mine"))
        assert (result.run_id, result.result, result.text) == ("mine", 1, "ours")
        assert [run.run_id for run in thread.runs] == ["mine"]
        assert [notice.rule for notice in heard] == ["IN-1"]


def test_a_late_failure_of_the_run_that_was_asked_for_is_its_failure(twin):
    late = {"type": "RUN_ERROR", "message": "late"}
    answer = Answer([frames([*OLD, *run_events("mine"), late])])
    with ScriptedServer(answer) as server, pytest.raises(RunFailed, match="late"):
        twin.result(twin.client(server.url).thread("t").run("x", run_id="mine"))
