"""A broken stream is resumed exactly once, where it broke off; otherwise an error explains why it is not."""

import random
import threading

import pytest
from builders import run_finished_json, run_started_json, text_message_json, tool_call_json
from hypothesis import given, settings
from hypothesis import strategies as st
from scripted_server import Answer, ScriptedServer, frame, frames, run_of
from twins import TWINS

from aguila.client import Reconnect, Timeouts, tool
from aguila.errors import HTTPRejected, StreamTruncated, TransportFailed

NOT_FOUND = Answer([b'{"error":{"code":"not_found","message":"no"}}'], 404, "application/json")


class Log:
    """The log of one thread on a server: sent events stay, and every request gets the rest."""

    def __init__(self, events, cuts):
        self.events = events
        self.cuts = list(cuts)
        self.body = b""

    def run(self, asked):
        run, thread = asked.json["runId"], asked.json["threadId"]
        self.all = [run_started_json(run, thread), *self.events, run_finished_json(run, thread)]
        return self._rest(0)

    def resume(self, asked):
        return self._rest(int(asked.headers.get("last-event-id", 0)))

    def _rest(self, after):
        body = b"".join(frame(e, i) for i, e in enumerate(self.all, 1) if i > after)
        if not self.cuts:
            return Answer([body])
        return Answer([body[: self.cuts.pop(0)]], cut=True)


@settings(max_examples=25, deadline=None)
@given(st.data())
def test_a_stream_cut_anywhere_and_resumed_is_the_uncut_stream(data):
    twin = data.draw(st.sampled_from(TWINS))()
    events = [
        *text_message_json("m1", "Hel", "lo", "\u2028 \U0001f985"),
        *tool_call_json("c1", "f", {"a": 1}),
        *text_message_json("m2", "x"),
    ]
    events.insert(4, {"type": "STATE_DELTA", "delta": [{"op": "add", "path": "/n", "value": 1}]})
    cuts = data.draw(st.lists(st.integers(0, 400), max_size=6))
    if cuts:
        cuts[0] = max(cuts[0], len(frame(run_started_json("x" * 36, "y" * 36), 1)))
    log = Log(events, cuts)
    try:
        with ScriptedServer(log.run, *[log.resume] * 10) as server:
            client = twin.client(server.url, reconnect=Reconnect(attempts=20, initial=0.0))
            thread = client.thread()
            seen = [e.type for e in twin.events(thread.run("Hi"))]
            assert seen == [e["type"] for e in log.all]
            assert [m.content for m in thread.messages if m.role == "assistant"] == [
                "Hello\u2028 \U0001f985",
                None,
                "x",
            ]
            assert thread.state == {"n": 1}
            assert [r.method for r in server.requests] == ["POST"] + ["GET"] * (len(server.requests) - 1)
    finally:
        twin.close()


def test_the_log_is_asked_for_with_the_last_id_and_fresh_credentials(twin):
    tokens = iter("abc")
    log = Log(text_message_json("m", "x"), [10_000])
    log.cuts = [len(frame(run_started_json("x" * 36, "y" * 36), 1)) + 5]
    with ScriptedServer(log.run, log.resume) as server:
        client = twin.client(server.url + "/agent/", auth=lambda: next(tokens), headers={"X-Tenant": "t"})
        thread = client.thread("a/b?c")
        twin.result(thread.run("Hi", headers={"X-Call": "1"}))
        asked = server.requests[1]
        assert (asked.method, asked.path) == ("GET", "/agent/threads/a%2Fb%3Fc/events?protocolVersion=1.1")
        assert asked.headers["last-event-id"] == "1"
        assert asked.headers["authorization"] == "Bearer b"
        assert (asked.headers["x-tenant"], asked.headers["x-call"]) == ("t", "1")
        assert asked.headers["accept"] == "text/event-stream"
        assert "content-type" not in asked.headers


def test_ids_with_tokens_are_sent_back_as_they_came_and_compared_by_their_numbers(twin):
    """A server that repeats events repeats them under other tokens only if they are other events."""
    events = [run_started_json(), *text_message_json("m", "a", "b"), run_finished_json()]
    ids = [f"{number}-{'first_-x' if number < 9 else 'second-y'}" for number in range(7, 13)]

    def first(asked):
        for event in (events[0], events[-1]):
            event["runId"] = asked.json["runId"]
        return Answer([b"".join(map(frame, events[:2], ids))], cut=True)

    def repeating(asked):
        assert asked.headers["last-event-id"] == "8-first_-x"
        return Answer([b"".join(map(frame, events, ids))])

    with ScriptedServer(first, repeating) as server:
        thread = twin.client(server.url, reconnect=Reconnect(initial=0.0)).thread("t")
        assert [one.type for one in twin.events(thread.run("Hi"))] == [event["type"] for event in events]
        assert thread.messages[-1].content == "ab"


def test_ids_of_other_servers_that_look_like_ours_lose_no_event(twin):
    """Such as those of Redis streams: a time, and a number within it."""
    events = [run_started_json(), *text_message_json("m", "a", "b"), run_finished_json()]
    ids = [f"1700000000000-0000000{number}" for number in range(6)]

    def first(asked):
        for event in (events[0], events[-1]):
            event["runId"] = asked.json["runId"]
        return Answer([b"".join(map(frame, events[:2], ids))], cut=True)

    with ScriptedServer(first, Answer([b"".join(map(frame, events[2:], ids[2:]))])) as server:
        thread = twin.client(server.url, reconnect=Reconnect(initial=0.0)).thread("t")
        assert [one.type for one in twin.events(thread.run("Hi"))] == [event["type"] for event in events]


def test_a_run_that_was_compacted_meanwhile_is_joined_again(twin):
    """The cursor is gone (410), and the thread as it is comes from /connect."""

    def cut(asked):
        body = frame(run_started_json(asked.json["runId"], "t"), 1) + frame(text_message_json("m", "He")[0], 2)
        return Answer([body], cut=True)

    def join(asked):
        run = asked.json["runId"]
        messages = [*asked.json["messages"], {"id": "m", "role": "assistant", "content": "Hello"}]
        snapshot = {"type": "MESSAGES_SNAPSHOT", "messages": messages}
        return Answer([frames([run_started_json(run, "t"), snapshot, run_finished_json(run, "t")])])

    gone = Answer([b'{"error":{"code":"cursor_expired","message":"compacted"}}'], 410, "application/json")
    with ScriptedServer(cut, gone, join) as server:
        thread = twin.client(server.url, reconnect=Reconnect(initial=0.0)).thread("t")
        twin.result(thread.run("Hi"))
        assert [message.content for message in thread.messages] == ["Hi", "Hello"]
        assert [run.outcome for run in thread.runs] == ["success"]
        assert [(one.method, one.path) for one in server.requests] == [
            ("POST", "/"),
            ("GET", "/threads/t/events?protocolVersion=1.1"),
            ("POST", "/connect"),
        ]
        assert server.requests[2].json["runId"] == server.requests[0].json["runId"]


def test_without_ids_a_drop_is_truncation_and_is_never_guessed_at(twin):
    def cut(asked):
        return Answer([frames([run_started_json(asked.json["runId"], "t")])], cut=True)

    with ScriptedServer(cut) as server:
        with pytest.raises(StreamTruncated):
            twin.result(twin.client(server.url).thread().run("Hi"))
        assert len(server.requests) == 1


def test_an_event_without_an_id_of_its_own_cannot_be_resumed_after(twin):
    def cut(asked):
        body = frame(run_started_json(asked.json["runId"], "t"), 1) + frame(text_message_json("m", "x")[0])
        return Answer([body], cut=True)

    with ScriptedServer(cut) as server:
        with pytest.raises(StreamTruncated):
            twin.result(twin.client(server.url).thread().run("Hi"))
        assert len(server.requests) == 1


def cut_after_start(asked):
    return Answer([frame(run_started_json(asked.json["runId"], asked.json["threadId"]), 1)], cut=True)


@pytest.mark.parametrize("ids", [[10, 11, 12, 13, 14], ["a", "b", "c", "d", "e"], ["9", "10", "11", "12", "13"]])
@pytest.mark.parametrize("again", [0, 1, 2])
def test_what_a_resumed_stream_sends_again_is_passed_over(twin, ids, again):
    heard = []

    def whole(asked):
        return [frame(e, i) for e, i in zip(all_of(asked), ids, strict=True)]

    def all_of(asked):
        run = asked.json["runId"] if asked.body else server.requests[0].json["runId"]
        return [run_started_json(run, "t"), *text_message_json("m", "x"), run_finished_json(run, "t")]

    def cut(asked):
        return Answer(whole(asked)[:3], cut=True)

    def resumed(asked):
        assert asked.headers["last-event-id"] == str(ids[2])
        return Answer(whole(asked)[3 - 1 - again :])

    with ScriptedServer(cut, resumed) as server:
        thread = twin.client(server.url, warn=heard.append).thread("t")
        assert twin.result(thread.run("Hi")).text == "x"
        assert [notice.rule for notice in heard] == ["SSE-13"]


def test_a_server_that_only_ever_sends_again_is_given_up(twin):
    def cut(asked):
        return Answer(
            [frame(run_started_json(asked.json["runId"], "t"), 1), frame(text_message_json("m")[0], 2)], cut=True
        )

    def resumed(asked):
        return Answer([frame(run_started_json(server.requests[0].json["runId"], "t"), 1)], cut=True)

    with ScriptedServer(cut, *[resumed] * 4) as server:
        client = twin.client(server.url, reconnect=Reconnect(attempts=3, initial=0.0))
        with pytest.raises(StreamTruncated, match="3 attempts"):
            twin.result(client.thread("t").run("Hi"))


def test_a_run_that_never_reached_the_server_is_transport_failed_also_where_ids_were_seen(twin):
    with ScriptedServer(run_of(first_id=1)) as server:
        thread = twin.client(server.url, reconnect=Reconnect(attempts=3, initial=0.0)).thread()
        twin.result(thread.run("a"))
    with pytest.raises(TransportFailed, match="gave up after 3 attempts") as caught:
        twin.result(thread.run("b"))
    assert not caught.value.was_sent
    assert len(thread.messages) == 1, "it was not said"


def test_a_request_that_may_have_arrived_stays_a_run_that_was_cut_off(twin):
    lost = Answer(cut=True, before_head=True)
    with ScriptedServer(run_of(first_id=1), lost, *[Answer([b""], 503, None)] * 9) as server:
        thread = twin.client(server.url, reconnect=Reconnect(attempts=2, initial=0.0)).thread()
        twin.result(thread.run("a"))
        with pytest.raises(StreamTruncated):
            twin.result(thread.run("b"))


@pytest.mark.parametrize("headers", [{"x": "a\nb"}, {"x": "\u20ac"}, {"x y": "a"}, {"": "a"}])
def test_what_can_never_be_sent_is_not_tried_again(twin, headers):
    with ScriptedServer(run_of(first_id=1), run_of()) as server:
        thread = twin.client(server.url).thread()
        twin.result(thread.run("a"))
        with pytest.raises(TransportFailed, match="header") as caught:
            twin.result(thread.run("b", headers=headers))
        assert caught.value.is_lasting
        assert len(server.requests) == 1


def test_a_server_that_comes_back_to_refuse_the_run_has_refused_it(twin):
    refusal = Answer([b'{"error":{"code":"no","message":"no"}}'], 401, "application/json")
    with ScriptedServer(run_of(first_id=1), NOT_FOUND, refusal) as server:
        failing = FailsOnce(twin)
        client = failing.client(server.url, reconnect=Reconnect(attempts=3, initial=0.0))
        thread = client.thread()
        twin.result(thread.run("a"))
        failing.fails_next = True
        with pytest.raises(HTTPRejected) as caught:
            twin.result(thread.run("b"))
        assert caught.value.status == 401


class FailsOnce:
    """A client whose next connection can be refused."""

    def __init__(self, twin):
        self._twin = twin
        self.fails_next = False

    def client(self, url, **options):
        client = self._twin.client(url, **options)
        send = client.transport.send

        def refuse(*arguments):
            if not self.fails_next:
                return send(*arguments)
            self.fails_next = False
            raise TransportFailed("refused", was_sent=False)

        client.transport.send = refuse
        return client


@pytest.mark.parametrize("status", [404, 410, 401, 405])
def test_a_server_that_does_not_know_the_cursor_is_truncation_with_the_cause(twin, status):
    with ScriptedServer(cut_after_start, Answer([b"{}"], status, "application/json")) as server:
        with pytest.raises(StreamTruncated) as caught:
            twin.result(twin.client(server.url).thread().run("Hi"))
        assert isinstance(caught.value.__cause__, HTTPRejected)
        assert caught.value.__cause__.status == status
        assert len(server.requests) == (3 if status == 410 else 2)  # after 410 it tries to join the thread


def test_attempts_are_limited_and_progress_gives_them_back(twin):
    down = Answer([b""], 503, None)
    gone = Answer(cut=True, before_head=True)
    empty = Answer([b": nothing new\n\n"])
    log = Log(text_message_json("m", "a", "b", "c"), [])
    step = len(frame(run_started_json("x" * 36, "y" * 36), 1))
    log.cuts = [step, 90, 90, 90]
    with ScriptedServer(
        log.run, down, gone, log.resume, gone, empty, log.resume, down, down, log.resume, log.resume
    ) as server:
        thread = twin.client(server.url, reconnect=Reconnect(attempts=3, initial=0.0)).thread()
        twin.result(thread.run("Hi"))
        assert thread.messages[-1].content == "abc"
        assert server.script == []
    with ScriptedServer(cut_after_start, down, gone, empty, log.resume) as server:
        with pytest.raises(StreamTruncated, match="3 attempts"):
            twin.result(twin.client(server.url, reconnect=Reconnect(attempts=3, initial=0.0)).thread().run("Hi"))
        assert len(server.requests) == 4


def test_reconnecting_can_be_switched_off(twin):
    with ScriptedServer(cut_after_start) as server:
        with pytest.raises(StreamTruncated):
            twin.result(twin.client(server.url, reconnect=None).thread().run("Hi"))
        assert len(server.requests) == 1


def test_a_silent_stream_is_given_up_and_taken_up_again(twin):
    never = threading.Event()
    log = Log(text_message_json("m", "x"), [])

    def hangs(asked):
        log.run(asked)
        return Answer([frame(log.all[0], 1), never])

    with ScriptedServer(hangs, log.resume) as server:
        thread = twin.client(server.url, timeouts=Timeouts(idle=0.05)).thread()
        assert twin.result(thread.run("Hi")).text == "x"
        assert len(server.requests) == 2


def test_a_drop_in_the_middle_of_a_run_loop_is_not_noticed_and_tools_run_once(twin):
    made = []

    @tool(parameters={})
    def f():
        made.append(1)
        return "done"

    first, second = Log(tool_call_json("c1", "f", {}), [400]), Log(text_message_json("m", "after"), [100])
    with ScriptedServer(first.run, first.resume, second.run, second.resume) as server:
        thread = twin.client(server.url, tools=[f]).thread()
        second_run = second.run

        def renumbered(asked):
            answer = second_run(asked)
            assert [m["role"] for m in asked.json["messages"]] == ["user", "assistant", "tool"]
            return answer

        server.script[2] = renumbered
        assert twin.result(thread.run("Hi")).text == "after"
        assert made == [1]
        assert server.script == []


def test_the_resumed_log_is_left_when_the_run_is_over(twin):
    other = [run_started_json("other", "t"), run_finished_json("other", "t")]
    log = Log(text_message_json("m", "x"), [len(frame(run_started_json("x" * 36, "y" * 36), 1))])

    def more(asked):
        answer = log.resume(asked)
        return Answer([*answer.pieces, b"".join(frame(e, 100 + i) for i, e in enumerate(other))])

    with ScriptedServer(log.run, more) as server:
        thread = twin.client(server.url).thread()
        result = twin.result(thread.run("Hi"))
        assert [r.run_id for r in thread.runs] == [result.run_id]


def test_a_request_whose_answer_was_lost_is_looked_for_and_asked_again_if_the_server_never_got_it(twin):
    lost = Answer(cut=True, before_head=True)
    log = Log(text_message_json("m", "x"), [])
    with ScriptedServer(run_of(first_id=1), lost, NOT_FOUND, log.run, lost, log.resume) as server:
        thread = twin.client(server.url).thread("t")
        twin.result(thread.run("to learn that it gives ids"))
        assert twin.result(thread.run("Hi")).text == "x"
        posts = [r for r in server.requests if r.method == "POST"]
        assert posts[1].body == posts[2].body, "the same run"
        assert server.requests[2].path == f"/threads/t/runs/{posts[1].json['runId']}/events?protocolVersion=1.1"
        assert [m.content for m in thread.messages if m.role == "user"] == ["to learn that it gives ids", "Hi"]

        def found(asked):
            run = server.requests[4].json["runId"]
            return Answer(
                [
                    frames(
                        [run_started_json(run, "t"), *text_message_json("m9", "found"), run_finished_json(run, "t")], 50
                    )
                ]
            )

        server.script[-1] = found
        assert twin.result(thread.run("Again")).text == "found"
        assert [r.method for r in server.requests[4:]] == ["POST", "GET"]


def test_the_first_run_of_a_client_is_looked_for_as_well(twin):
    def found(asked):
        run = server.requests[0].json["runId"]
        assert asked.path == f"/threads/t/runs/{run}/events?protocolVersion=1.1"
        return Answer(
            [frames([run_started_json(run, "t"), *text_message_json("m", "found"), run_finished_json(run, "t")], 50)]
        )

    lost = Answer(cut=True, before_head=True)
    with ScriptedServer(lost, lost, Answer([b""], 503, None), found) as server:
        thread = twin.client(server.url).thread("t")
        assert twin.result(thread.run("Hi")).text == "found"
        assert [asked.method for asked in server.requests] == ["POST", "GET", "GET", "GET"]
        assert [m.role for m in thread.messages] == ["user", "assistant"]


def joined(upto=None, last_id=7):
    """Return an answer to ``/connect``: only its last event has an id, so a stream cannot be resumed before it."""
    opening = [
        run_started_json("live", "t"),
        {"type": "STATE_SNAPSHOT", "snapshot": {"n": 1}},
        {"type": "MESSAGES_SNAPSHOT", "messages": [{"id": "m", "role": "assistant", "content": "so far"}]},
    ]
    body = [frame(event) for event in opening]
    body.append(frame({"type": "TEXT_MESSAGE_START", "messageId": "m", "role": "assistant"}, last_id))
    rest = [
        {"type": "TEXT_MESSAGE_CONTENT", "messageId": "m", "delta": ", and on"},
        {"type": "TEXT_MESSAGE_END", "messageId": "m"},
        run_finished_json("live", "t", result=1),
    ]
    body += [frame(event, last_id + n) for n, event in enumerate(rest, 1)]
    whole = b"".join(body)
    return Answer([whole]) if upto is None else Answer([whole[:upto]], cut=True)


@pytest.mark.parametrize("upto", [0, 1, 60, 120, 180, 260, 330])
def test_an_attach_that_is_cut_before_there_is_a_cursor_is_begun_anew(twin, upto):
    lost = Answer(cut=True, before_head=True)
    with ScriptedServer(lost, joined(upto=upto), joined(upto=upto), joined()) as server:
        thread = twin.client(server.url).thread("t")
        result = twin.result(thread.attach())
        assert (result.outcome, result.run_id, result.result) == ("success", "live", 1)
        assert [m.content for m in thread.messages] == ["so far, and on"]
        assert thread.state == {"n": 1}
        assert [run.run_id for run in thread.runs] == ["live"], "one run, however often it was told"
        assert [asked.path for asked in server.requests] == ["/connect"] * 4


def test_an_attach_that_never_gets_beyond_its_beginning_is_given_up(twin):
    with ScriptedServer(*[joined(upto=200)] * 9) as server:
        client = twin.client(server.url, reconnect=Reconnect(attempts=3, initial=0.0))
        with pytest.raises(StreamTruncated, match="3 attempts"):
            twin.result(client.thread("t").attach())
        assert len(server.requests) == 4


def test_a_strangers_404_is_no_reason_to_run_anything_twice(twin):
    lost = Answer(cut=True, before_head=True)
    with ScriptedServer(run_of(first_id=1), lost, Answer([b"Not Found"], 404, "text/plain"), run_of()) as server:
        thread = twin.client(server.url).thread("t")
        twin.result(thread.run("x"))
        with pytest.raises(StreamTruncated):
            twin.result(thread.run("Hi"))
        assert len(server.requests) == 3


def test_pauses_grow_to_a_limit_and_are_spread():
    policy = Reconnect(initial=1.0, factor=2.0, longest=5.0)
    assert [policy.delay(n, 0.0) for n in range(5)] == [1.0, 2.0, 4.0, 5.0, 5.0]
    assert policy.delay(1, 1.0) == 1.0
    assert all(1.0 <= policy.delay(1, random.random()) <= 2.0 for _ in range(20))
