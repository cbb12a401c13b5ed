"""Runs over HTTP: the request, the result, and every way a run can end."""

import gc
import json
import threading
import time
from itertools import chain, repeat, takewhile

import pytest
from builders import run_finished_json, run_started_json, text_message_json, tool_call_json
from scripted_server import SSE, Answer, ScriptedServer, frame, frames, run_of
from waiting import DEADLINE

from aguila.client import Timeouts
from aguila.codec.protobuf import ProtobufEncoder
from aguila.errors import (
    EncodeError,
    HTTPRejected,
    IllegalStep,
    ProtocolError,
    RunFailed,
    StreamTruncated,
    TransportFailed,
)
from aguila.protocol import (
    ActivityMessage,
    AssistantMessage,
    EventType,
    ImagePart,
    RunFinishedEvent,
    RunStartedEvent,
    TextPart,
    UrlSource,
    UserMessage,
)

PROTO = "application/vnd.ag-ui.event+proto"


def test_a_run_is_iterated_for_typed_events_and_the_thread_follows(twin):
    with ScriptedServer(run_of(*text_message_json("m1", "Hel", "lo"))) as server:
        thread = twin.client(server.url).thread()
        events = twin.events(thread.run("Hi"))
        assert [e.type for e in events] == [
            "RUN_STARTED",
            "TEXT_MESSAGE_START",
            "TEXT_MESSAGE_CONTENT",
            "TEXT_MESSAGE_CONTENT",
            "TEXT_MESSAGE_END",
            "RUN_FINISHED",
        ]
        assert [(m.role, m.content) for m in thread.messages] == [("user", "Hi"), ("assistant", "Hello")]


def test_the_thread_stands_at_the_event_that_is_being_looked_at(twin):
    with ScriptedServer(run_of(*text_message_json("m1", "a", "b", "c"))) as server:
        thread = twin.client(server.url).thread()
        seen = []

        def look(event):
            if event.type == EventType.TEXT_MESSAGE_CONTENT:
                seen.append(thread.messages[-1].content)
            return False

        twin.events(thread.run("Hi"), look)
        assert seen == ["a", "ab", "abc"]


def test_a_run_is_awaited_for_its_result(twin):
    usage = [{"provider": "p", "model": "m", "inputTokens": 3}]
    with ScriptedServer(run_of(*text_message_json("m1", "Hello"), result={"n": 1}, usage=usage)) as server:
        thread = twin.client(server.url).thread("t-1")
        run = thread.run("Hi")
        result = twin.result(run)
        assert (result.outcome, result.result, result.text) == ("success", {"n": 1}, "Hello")
        assert [m.role for m in result.messages] == ["user", "assistant"]
        assert result.usage[0].input_tokens == 3
        assert thread.usage == result.usage
        assert twin.result(run) is result, "asked again, it is the same"
        assert server.requests[0].json["threadId"] == "t-1"
        assert server.requests[0].json["runId"] == result.run_id == thread.runs[0].run_id


def test_a_message_that_the_agent_goes_on_with_is_what_it_said_last_txt3(twin):
    with ScriptedServer(
        run_of(*text_message_json("m1", "Hello")), run_of(*text_message_json("m1", ", Bob")), run_of()
    ) as server:
        thread = twin.client(server.url).thread()
        twin.result(thread.run("Hi"))
        result = twin.result(thread.run("Bob"))
        assert result.text == "Hello, Bob"
        assert [(m.role, m.content) for m in result.messages] == [("assistant", "Hello, Bob"), ("user", "Bob")]
        result = twin.result(thread.run())
        assert (result.text, result.messages) == ("", []), "nothing was said and nothing changed"


def test_a_snapshot_that_restates_the_history_makes_nothing_of_it_new(twin):
    said = [{"id": "u", "role": "user", "content": "Hi"}, {"id": "m1", "role": "assistant", "content": "Hello"}]
    snapshot = {"type": "MESSAGES_SNAPSHOT", "messages": [*said, {"id": "u2", "role": "user", "content": "And?"}]}
    with ScriptedServer(run_of(snapshot, *text_message_json("m2", "Bye"))) as server:
        thread = twin.client(server.url).thread(messages=said)
        result = twin.result(thread.run({"id": "u2", "role": "user", "content": "And?"}))
        assert [m.id for m in result.messages] == ["u2", "m2"]


def test_the_request_says_what_it_accepts_and_declares_its_version(twin):
    with ScriptedServer(run_of(), run_of()) as server:
        thread = twin.client(server.url + "/agent?key=1", headers={"accept": "*/*", "X-A": "1", "X-B": "1"}).thread()
        twin.result(
            thread.run(
                "Hi",
                context={"where": "here"},
                forwarded_props={"a": None},
                parent_run_id="p-1",
                headers={"x-b": "2"},
            )
        )
        asked = server.requests[0]
        assert (asked.method, asked.path) == ("POST", "/agent?key=1")
        assert asked.headers["accept"] == SSE
        assert asked.headers["content-type"] == "application/json"
        assert (asked.headers["x-a"], asked.headers["x-b"]) == ("1", "2")
        assert asked.json["protocolVersion"] == "1.1"
        assert asked.json["context"] == [{"description": "where", "value": "here"}]
        assert asked.json["forwardedProps"] == {"a": None}
        assert asked.json["parentRunId"] == "p-1"
        assert asked.json["state"] == {}
        assert asked.json["tools"] == []
        assert "resume" not in asked.json
        twin.result(twin.client(server.url, protobuf=True).thread().run("Hi"))
        assert server.requests[1].headers["accept"] == f"{PROTO}, {SSE}"


def test_history_state_and_encrypted_values_go_back_unchanged_and_activities_stay_here(twin):
    events = [
        {"type": "STATE_SNAPSHOT", "snapshot": {"n": 0, "s": ""}},
        {"type": "ACTIVITY_SNAPSHOT", "messageId": "a1", "activityType": "plan", "content": {"x": 1}},
        *text_message_json("m1", "Hello"),
        {
            "type": "REASONING_ENCRYPTED_VALUE",
            "subtype": "message",
            "entityId": "m1",
            "encryptedValue": "opaque+/=",
            "encryptedValueType": "vendor/v1",
        },
    ]
    with ScriptedServer(run_of(*events), run_of()) as server:
        thread = twin.client(server.url).thread()
        twin.result(thread.run("Hi"))
        assert any(isinstance(m, ActivityMessage) for m in thread.messages)
        twin.result(thread.run("More"))
        sent = server.requests[1].json
        assert [m["role"] for m in sent["messages"]] == ["user", "assistant", "user"]
        assert sent["messages"][1]["encryptedValue"] == "opaque+/="
        assert sent["messages"][1]["encryptedValueType"] == "vendor/v1"
        assert sent["state"] == {"n": 0, "s": ""}


def test_content_may_be_parts_messages_plain_objects_or_nothing(twin):
    picture = ImagePart(source=UrlSource(value="https://x/y.png"))
    with ScriptedServer(*[run_of()] * 4) as server:
        thread = twin.client(server.url).thread(messages=[{"role": "system", "content": "Be brief."}])
        twin.result(thread.run(["Look", picture]))
        twin.result(thread.run(UserMessage(id="u2", content="two")))
        twin.result(thread.run([{"role": "user", "content": "three"}, "four"]))
        twin.result(thread.run())
        sent = server.requests[-1].json["messages"]
        assert [m["role"] for m in sent] == ["system", "user", "user", "user", "user"]
        assert [p["type"] for p in sent[1]["content"]] == ["text", "image"]
        assert sent[2]["id"] == "u2"
        assert [m["content"] for m in sent[3:]] == ["three", [{"type": "text", "text": "four"}]] or [
            m["content"] for m in sent[3:]
        ] == ["three", "four"]


def test_a_new_message_under_the_id_of_another_is_refused_and_the_same_one_may_be_said_again_env12(twin):
    one, two = {"role": "user", "content": "a", "id": "1"}, {"role": "user", "content": "b", "id": "2"}
    with ScriptedServer(run_of(*text_message_json("m", "x")), run_of()) as server:
        thread = twin.client(server.url).thread()
        twin.result(thread.run([one, two]))
        for other in (
            {**one, "content": "c"},
            {**one, "role": "system"},
            {**one, "id": "m"},
            [{**one, "id": "3"}, two, {**two, "id": "3"}],
        ):
            with pytest.raises(IllegalStep) as caught:
                twin.result(thread.run(other))
            assert caught.value.rule == "ENV-12"
        assert len(server.requests) == 1, "nothing was sent"
        said = [m.content for m in thread.messages]
        twin.result(thread.run([one, two, {"role": "user", "content": "c", "id": "3"}]))
        assert [m["content"] for m in server.requests[1].json["messages"]] == [*said, "c"]


def test_what_an_agent_adds_to_a_message_does_not_make_it_another_one(twin):
    one = {"role": "user", "content": "a", "id": "1"}
    snapshot = {"type": "MESSAGES_SNAPSHOT", "messages": [{**one, "name": "Ada"}]}
    with ScriptedServer(run_of(snapshot), run_of()) as server:
        thread = twin.client(server.url).thread()
        twin.result(thread.run(one))
        twin.result(thread.run(one))
        assert server.requests[1].json["messages"] == [{**one, "name": "Ada"}]


def test_a_run_id_is_used_once_on_a_thread_env11(twin):
    refusal = Answer([b"no"], 403, "text/plain")
    with ScriptedServer(refusal, run_of(), run_of(), run_of()) as server:
        client = twin.client(server.url)
        thread = client.thread()
        with pytest.raises(HTTPRejected):
            twin.result(thread.run("Hi", run_id="r"))
        twin.result(thread.run("Hi", run_id="r"))  # a refused request never was a run
        with pytest.raises(IllegalStep) as caught:
            twin.result(thread.run("Hi", run_id="r"))
        assert caught.value.rule == "ENV-11"
        assert len(server.requests) == 2, "nothing was sent"
        twin.result(client.thread().run("Hi", run_id="r"))


def test_a_malformed_input_is_refused_before_anything_is_sent_in15(twin):
    with ScriptedServer() as server:
        thread = twin.client(server.url).thread()
        with pytest.raises(EncodeError) as caught:
            twin.result(thread.run(UserMessage(id="u", content=5)))  # type: ignore[arg-type]
        assert caught.value.path == "/messages/0/content"
        with pytest.raises(EncodeError):
            thread.run({"role": "user"})
        assert server.requests == []
        assert thread.messages == []


def test_an_older_peer_gets_its_own_form(twin):
    picture = ImagePart(source=UrlSource(value="https://x/y.png", mime_type="image/png"))
    notices = []
    with ScriptedServer(run_of(), run_of()) as server:
        twin.result(twin.client(server.url, peer_version="0.0.47").thread().run(["Look", picture]))
        sent = server.requests[0].json
        assert "protocolVersion" not in sent
        assert sent["messages"][0]["content"][1] == {
            "type": "binary",
            "mimeType": "image/png",
            "url": "https://x/y.png",
        }
        old = twin.client(server.url, peer_version="0.0.39", warn=notices.append)
        twin.result(old.thread().run(["Look", picture]))
        assert server.requests[1].json["messages"][0]["content"] == "Look"
        assert [n.rule for n in notices] == ["VER-16"]


def test_a_run_error_is_delivered_and_raised_as_run_failed(twin):
    def fails(asked):
        run, thread = asked.json["runId"], asked.json["threadId"]
        error = {"type": "RUN_ERROR", "message": "no money", "code": "billing"}
        return Answer([frames([run_started_json(run, thread), *text_message_json("m1", "So far"), error])])

    with ScriptedServer(fails, fails) as server:
        thread = twin.client(server.url).thread()
        seen = []
        with pytest.raises(RunFailed) as caught:
            twin.events(thread.run("Hi"), lambda event: seen.append(event.type))
        assert (caught.value.message, caught.value.code) == ("no money", "billing")
        assert seen[-1] == "RUN_ERROR"
        assert thread.messages[-1].content == "So far", "what was delivered is kept"
        with pytest.raises(RunFailed):
            twin.result(thread.run("again"))


def test_a_failure_after_the_end_is_a_failure_life15(twin):
    def late(asked):
        run, thread = asked.json["runId"], asked.json["threadId"]
        return Answer(
            [
                frames([run_started_json(run, thread), run_finished_json(run, thread)]),
                frame({"type": "RUN_ERROR", "message": "x"}),
            ]
        )

    with ScriptedServer(late) as server, pytest.raises(RunFailed):
        twin.result(twin.client(server.url).thread().run("Hi"))


@pytest.mark.parametrize("cut", [True, False], ids=["connection lost", "clean end"])
@pytest.mark.parametrize("tail", [b"", b'data: {"type": "TEXT_MES'], ids=["between events", "inside one"])
def test_a_stream_without_its_end_is_truncated_never_a_success_trn7(twin, cut, tail):
    def cut_off(asked):
        run, thread = asked.json["runId"], asked.json["threadId"]
        return Answer([frames([run_started_json(run, thread), *text_message_json("m1", "So far")[:2]]), tail], cut=cut)

    with ScriptedServer(cut_off) as server:
        thread = twin.client(server.url).thread()
        with pytest.raises(StreamTruncated) as caught:
            twin.result(thread.run("Hi"))
        assert caught.value.conversation is thread.conversation
        assert thread.messages[-1].content == "So far"
        assert len(server.requests) == 1, "without ids there is nothing to come back to"


def test_an_answer_that_ends_at_once_is_truncated(twin):
    with ScriptedServer(Answer([b": hello\n\n"])) as server, pytest.raises(StreamTruncated):
        twin.result(twin.client(server.url).thread().run("Hi"))


def test_a_stream_that_breaks_the_protocol_is_a_protocol_error(twin):
    def broken(asked):
        run, thread = asked.json["runId"], asked.json["threadId"]
        return Answer(
            [
                frames([run_started_json(run, thread), *text_message_json("m1", "ok")]),
                frame({"type": "TEXT_MESSAGE_CONTENT", "messageId": "nobody", "delta": "x"}),
                frames([run_finished_json(run, thread)]),
            ]
        )

    with ScriptedServer(broken) as server:
        thread = twin.client(server.url).thread()
        seen = []
        with pytest.raises(ProtocolError) as caught:
            twin.events(thread.run("Hi"), lambda event: seen.append(event.type))
        assert caught.value.rule == "STR-2"
        assert caught.value.index == 4
        assert len(seen) == 4, "what came before is delivered"
        assert thread.messages[-1].content == "ok"


@pytest.mark.parametrize("data", [b"data: [DONE]\n\n", b"data: {\n\n", b"data:\n\n", b"data: 5\n\n"])
def test_a_frame_that_is_no_event_is_a_protocol_error(twin, data):
    with ScriptedServer(Answer([data])) as server, pytest.raises(ProtocolError):
        twin.result(twin.client(server.url).thread().run("Hi"))


@pytest.mark.parametrize(
    ("status", "content_type", "body", "code", "message"),
    [
        (422, "application/json", b'{"error":{"code":"bad","message":"no","path":"/x"}}', "bad", "no"),
        (422, "application/json", b'{"detail":"nope"}', None, "nope"),
        (422, "application/json", b'{"detail":[{"loc":["body"]}]}', None, '{"loc":["body"]}'),
        (500, "text/plain", b"oops", None, "oops"),
        (401, None, b"", None, ""),
        (404, "application/json", b"{broken", None, "{broken"),
        (303, "text/plain", b"", None, ""),
    ],
)
def test_a_refusal_before_the_stream_is_http_rejected(twin, status, content_type, body, code, message):
    with ScriptedServer(Answer([body], status, content_type), run_of()) as server:
        thread = twin.client(server.url).thread()
        with pytest.raises(HTTPRejected) as caught:
            twin.result(thread.run("Hi"))
        found = caught.value
        assert (found.status, found.code, found.message) == (status, code, message)
        if content_type == "application/json" and body != b"{broken":
            assert found.body == json.loads(body)
        assert thread.messages == [], "nothing was said, so it can be said again"
        twin.result(thread.run("Hi"))
        assert len(thread.messages) == 1


@pytest.mark.parametrize(
    "content_type", ["text/html", "application/json", "application/x-ndjson", "text/plain", None, ""]
)
def test_a_success_that_is_no_stream_is_refused(twin, content_type):
    with ScriptedServer(Answer([b"<html>", b" hello"], 200, content_type)) as server:
        thread = twin.client(server.url).thread()
        with pytest.raises(HTTPRejected) as caught:
            twin.result(thread.run("Hi"))
        assert caught.value.status == 200
        assert "stream of events" in caught.value.message
        assert caught.value.body == "<html> hello"
        assert thread.messages == [], "nothing was said, so it can be said again"


@pytest.mark.parametrize("content_type", ["text/plain; charset=utf-8", None, "application/octet-stream"])
def test_a_stream_that_does_not_say_what_it_is_is_read_as_sse_sse3(twin, content_type):
    def answer(asked):
        whole = b"".join(run_of(*text_message_json("m", "x"))(asked).pieces)
        return Answer([b": hi\n\n", whole[:5], whole[5:]], content_type=content_type)

    heard = []
    with ScriptedServer(answer) as server:
        thread = twin.client(server.url, warn=heard.append).thread()
        assert twin.result(thread.run("Hi")).text == "x"
        assert [m.role for m in thread.messages] == ["user", "assistant"]
        assert [notice.rule for notice in heard] == ["SSE-3"]


@pytest.mark.parametrize("content_type", ["text/event-stream; charset=utf-8", "Text/Event-Stream"])
def test_parameters_and_case_of_the_content_type_do_not_matter(twin, content_type):
    def answer(asked):
        return Answer(list(run_of()(asked).pieces), content_type=content_type)

    with ScriptedServer(answer) as server:
        assert twin.result(twin.client(server.url).thread().run("Hi")).outcome == "success"


def test_a_server_that_is_not_there_is_transport_failed(twin):
    with ScriptedServer() as server:
        url = server.url
    thread = twin.client(url).thread()
    with pytest.raises(TransportFailed):
        twin.result(thread.run("Hi"))
    assert thread.messages == []


def test_a_connection_lost_before_the_answer_is_a_run_that_may_have_begun_and_is_not_begun_again(twin):
    lost = Answer(cut=True, before_head=True)
    with ScriptedServer(lost) as server:
        with pytest.raises(StreamTruncated, match="may have started: POST"):
            twin.result(twin.client(server.url).thread().run("Hi"))
        assert [asked.method for asked in server.requests] == ["POST", "GET"], "it was looked for, once"
    with ScriptedServer(lost) as server:
        with pytest.raises(StreamTruncated, match="may have started: POST"):
            twin.result(twin.client(server.url, reconnect=None).thread().run("Hi"))
        assert [asked.method for asked in server.requests] == ["POST"]


def test_protobuf_is_read_by_its_content_type(twin):
    encoder = ProtobufEncoder()

    def binary(asked):
        run, thread = asked.json["runId"], asked.json["threadId"]
        events = [
            RunStartedEvent(thread_id=thread, run_id=run, protocol_version="1.1"),
            RunFinishedEvent(thread_id=thread, run_id=run, result={"n": 1}),
        ]
        body = b"".join(encoder.encode(event) for event in events)
        return Answer([body[i : i + 3] for i in range(0, len(body), 3)], content_type=PROTO)

    def cut(asked):
        return Answer(list(binary(asked).pieces)[:-1], content_type=PROTO)

    with ScriptedServer(binary, cut) as server:
        thread = twin.client(server.url, protobuf=True).thread()
        assert twin.result(thread.run("Hi")).result == {"n": 1}
        with pytest.raises(StreamTruncated):
            twin.result(thread.run("Hi"))


def test_leaving_the_loop_hangs_up_at_once(twin):
    never = threading.Event()

    def endless(asked):
        return Answer([frames([run_started_json(asked.json["runId"], "t")]), never])

    with ScriptedServer(endless, run_of()) as server:
        thread = twin.client(server.url).thread()
        run = thread.run("Hi")
        twin.events(run, lambda event: True)
        gc.collect()
        twin.wait(None)
        twin.result(thread.run("and on"))
        assert server.requests[0].closed.wait(DEADLINE)
        assert not server.requests[1].headers.get("last-event-id")
        with pytest.raises(StreamTruncated):
            twin.result(run)


def test_a_thread_has_one_run_at_a_time_and_a_run_is_followed_once(twin):
    with ScriptedServer(run_of(), run_of()) as server:
        thread = twin.client(server.url).thread()
        run = thread.run("Hi")
        errors = []

        def nested(event):
            inner = thread.run("inner")
            try:
                if twin.name == "sync":
                    inner.result()
                else:
                    inner.__aiter__()
            except IllegalStep as error:
                errors.append(error.rule)
            inner._has_begun = True
            return False

        twin.events(run, nested)
        assert set(errors) == {"LIFE-17"}
        with pytest.raises(IllegalStep):
            twin.events(run)
        assert len(server.requests) == 1


def test_a_run_that_is_never_read_warns(twin):
    thread = twin.client("http://127.0.0.1:9").thread()
    with pytest.warns(RuntimeWarning, match="nothing was sent"):
        thread.run("Hi")


def test_silence_before_the_first_event_and_between_events_has_a_limit(twin):
    never, later = threading.Event(), threading.Event()

    def silent(asked):
        return Answer([b": alive\n\n", never])

    def stops(asked):
        return Answer([frames([run_started_json(asked.json["runId"], "t")]), later])

    with ScriptedServer(silent, stops) as server:
        # In the sync twin the default transport waits for the first event as long as a stream may be idle.
        limits = Timeouts(first_event=0.05, idle=0.1)
        with pytest.raises(StreamTruncated, match=r"no event|nothing came|Timeout"):
            twin.result(twin.client(server.url, timeouts=limits).thread().run("Hi"))
        limits = Timeouts(first_event=5.0, idle=0.05)
        with pytest.raises(StreamTruncated):
            twin.result(twin.client(server.url, timeouts=limits).thread().run("Hi"))


def test_a_stream_left_open_after_its_run_is_waited_for_as_long_as_the_limit_says(twin):
    never = threading.Event()

    def lingers(asked):
        return Answer([*run_of(*text_message_json("m", "x"))(asked).pieces, never])

    with ScriptedServer(lingers) as server:
        limits = Timeouts(linger=0.05)
        result = twin.result(twin.client(server.url, timeouts=limits).thread().run("Hi"))
        assert result.outcome == "success"
        assert server.requests[0].closed.wait(DEADLINE), "it is the client that hangs up"


def test_a_late_failure_is_waited_for_as_long_as_the_limit_says_life15(twin):
    told = threading.Event()

    def fails_late(asked):
        late = frame({"type": "RUN_ERROR", "message": "after all"})
        return Answer([*run_of(*text_message_json("m", "x"))(asked).pieces, told, late])

    def follow(limits):
        told.clear()
        run = twin.client(server.url, timeouts=limits).thread().run("Hi")
        return twin.events(run, lambda event: told.set() if event.type == "RUN_FINISHED" else False)

    with ScriptedServer(fails_late, fails_late) as server:
        for limit in (None, 10.0):
            with pytest.raises(RunFailed, match="after all"):
                follow(Timeouts(linger=limit))


def test_comments_do_not_hold_a_run_that_is_over_in1(twin):
    def pings(asked):
        run, thread = asked.json["runId"], asked.json["threadId"]
        late = frame({"type": "RUN_ERROR", "message": "somebody was still listening"})
        end = time.monotonic() + DEADLINE
        comments = takewhile(lambda _: time.monotonic() < end, repeat(b": ping\n\n"))
        return Answer(
            chain([frames([run_started_json(run, thread), run_finished_json(run, thread)])], comments, [late])
        )

    with ScriptedServer(pings) as server:
        assert (
            twin.result(twin.client(server.url, timeouts=Timeouts(linger=0.05)).thread().run("Hi")).outcome == "success"
        )


def test_replayed_runs_before_the_requested_one_are_history(twin):
    def replays(asked):
        run, thread = asked.json["runId"], asked.json["threadId"]
        old = [run_started_json("old", thread), {"type": "RUN_ERROR", "message": "then"}]
        return Answer(
            [
                frames(
                    [
                        *old,
                        run_started_json(run, thread),
                        *text_message_json("m", "now"),
                        run_finished_json(run, thread),
                    ]
                )
            ]
        )

    with ScriptedServer(replays) as server:
        thread = twin.client(server.url).thread()
        assert twin.result(thread.run("Hi")).outcome == "success"
        assert [r.outcome for r in thread.runs] == ["error", "success"]


def test_a_cancelled_run_is_neither_success_nor_failure_life11(twin):
    with ScriptedServer(run_of(outcome={"type": "cancelled"})) as server:
        assert twin.result(twin.client(server.url).thread().run("Hi")).outcome == "cancelled"


def test_credentials_are_asked_for_before_every_attempt(twin):
    tokens = iter(["one", "two"])
    with ScriptedServer(run_of(), run_of()) as server:
        thread = twin.client(server.url, auth=lambda: next(tokens)).thread()
        twin.result(thread.run("Hi"))
        twin.result(thread.run("Hi"))
        assert [r.headers["authorization"] for r in server.requests] == ["Bearer one", "Bearer two"]


def test_a_redirect_of_the_same_origin_keeps_method_and_body(twin):
    moved = Answer([], 307, None, headers={"Location": "/agent/"})
    away = Answer([], 307, None, headers={"Location": "http://elsewhere.invalid/"})
    with ScriptedServer(moved, run_of(), away) as server:
        thread = twin.client(server.url + "/agent").thread()
        twin.result(thread.run("Hi"))
        assert [(r.method, r.path) for r in server.requests] == [("POST", "/agent"), ("POST", "/agent/")]
        assert server.requests[0].body == server.requests[1].body
        with pytest.raises(HTTPRejected):
            twin.result(thread.run("Hi"))


def test_the_state_can_be_set_between_runs(twin):
    with ScriptedServer(run_of({"type": "STATE_DELTA", "delta": [{"op": "add", "path": "/b", "value": 2}]})) as server:
        thread = twin.client(server.url).thread(state={"x": 1})
        thread.state = {"a": 1}
        twin.result(thread.run("Hi"))
        assert server.requests[0].json["state"] == {"a": 1}
        assert thread.state == {"a": 1, "b": 2}


def test_an_initial_conversation_is_taken_over(twin):
    history = [UserMessage(id="u", content="a"), AssistantMessage(id="m", content="b")]
    with ScriptedServer(run_of(*tool_call_json("c", "t", {}))) as server:
        thread = twin.client(server.url).thread("t", messages=history)
        result = twin.result(thread.run("c"))
        assert [m["content"] for m in server.requests[0].json["messages"]] == ["a", "b", "c"]
        assert [c.id for c in result.pending_tool_calls] == ["c"], "no tools were offered: nobody answers"


@pytest.mark.parametrize(
    "answer",
    [
        Answer([b"nothing"], 404, "text/plain"),
        Answer([b'{"tools": {"supported": "yes"}}'], 200, "application/json"),
        Answer([b"<html>"], 200, "text/html"),
        Answer(cut=True, before_head=True),
    ],
    ids=["absent", "malformed", "something else", "unreachable"],
)
def test_capabilities_that_are_absent_or_malformed_are_none_and_stop_nothing_cap10(twin, answer):
    notices = []
    with ScriptedServer(answer, run_of()) as server:
        client = twin.client(server.url, warn=notices.append)
        assert twin.wait(client.capabilities()) is None
        assert [n.rule for n in notices] == ["CAP-10"]
        assert twin.result(client.thread().run("x")).outcome == "success"


def test_capabilities_with_unknown_members_are_read_cap9(twin):
    body = b'{"tools": {"supported": false, "new": 1}, "later": {}, "custom": {"x": null}}'
    with ScriptedServer(Answer([body], 200, "application/json")) as server:
        found = twin.wait(twin.client(server.url, warn=lambda n: None).capabilities())
        assert found.tools.supported is False
        assert found.custom == {"x": None}


def test_a_state_that_a_patch_did_not_fit_is_fetched_if_asked(twin):
    bad = {"type": "STATE_DELTA", "delta": [{"op": "remove", "path": "/nothing"}]}
    body = json.dumps({"messages": [{"id": "u", "role": "user", "content": "x"}], "state": {"fresh": 1}, "last": 9})
    fresh = Answer([body.encode()], 200, "application/json")
    notices = []
    with ScriptedServer(run_of(bad), fresh, run_of()) as server:
        thread = twin.client(server.url, refresh_stale=True, warn=notices.append).thread("t")
        result = twin.result(thread.run("x"))
        assert result.state == thread.state == {"fresh": 1}
        assert server.requests[1].path == "/threads/t"
        assert len(thread.runs) == 1
        twin.result(thread.run("y"))
        assert len(server.requests) == 3, "once is enough"
        server.script.insert(0, run_of(bad))
        assert twin.result(thread.run("z")).outcome == "success", "not being able to is no failure of the run"
        server.script.append(run_of(bad))
        del server.requests[3:]
        left = twin.client(server.url, warn=notices.append).thread("t")
        twin.result(left.run("x"))
        assert len(server.requests) == 4, "nobody asked for it"


def test_a_slow_consumer_holds_the_server_back(twin):
    """Events that the consumer has not read stay in the buffers of the sockets, and then at the server."""
    piece = frame({"type": "CUSTOM", "name": "x", "value": "x" * 65536})
    count = 0

    def pieces(asked):
        nonlocal count
        yield frames([run_started_json(asked.json["runId"], "t")])
        for _ in range(1000):
            count += 1
            yield piece
        yield frames([run_finished_json(asked.json["runId"], "t")])

    with ScriptedServer(lambda asked: Answer(pieces(asked))) as server:
        looked = threading.Event()

        def look(event):
            looked.wait(0.2)
            return True

        twin.events(twin.client(server.url).thread().run("x"), look)
        assert count < 500, "64 MB were on offer"


def test_the_last_user_message_of_the_conversation_is_there_as_text(twin):
    parts = [TextPart(text="Look: "), ImagePart(source=UrlSource(value="https://example.com/a.png"))]
    with ScriptedServer(run_of(*text_message_json("m1", "Hello"))) as server:
        thread = twin.client(server.url).thread()
        assert twin.result(thread.run(UserMessage(id="u1", content=parts))).user_text == "Look: "
