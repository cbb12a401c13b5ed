"""``Retry-After``: the client retries after the time the server gives, if it is short enough."""

from datetime import UTC, datetime

import pytest
from builders import run_started_json, text_message_json
from scripted_server import Answer, ScriptedServer, frame, run_of

from aguila.client import Reconnect
from aguila.client.requests.http_requests import retry_after_seconds
from aguila.errors import HTTPRejected, StreamTruncated

NOW = datetime(2026, 11, 15, 12, 0, 0, tzinfo=UTC)


def rejection(status, after):
    body = b'{"error":{"code":"busy","message":"not now"}}'
    return Answer([body], status, "application/json", headers={} if after is None else {"Retry-After": after})


@pytest.mark.parametrize(
    ("written", "seconds"),
    [
        (None, None),
        ("0", 0.0),
        (" 12 ", 12.0),
        ("Sun, 15 Nov 2026 12:00:07 GMT", 7.0),
        ("Sun, 15 Nov 2026 11:00:00 GMT", 0.0),
        ("soon", None),
        ("-3", None),
        ("\u0663", None),
        ("", None),
    ],
)
def test_seconds_and_dates_are_understood(written, seconds):
    assert retry_after_seconds(written, NOW) == seconds


def test_only_a_pause_that_is_short_enough_is_made():
    policy = Reconnect(patience=30)
    assert policy.asked_pause(HTTPRejected(503, retry_after=30.0)) == 30.0
    assert policy.asked_pause(HTTPRejected(503, retry_after=30.1)) is None
    assert policy.asked_pause(HTTPRejected(503)) is None
    assert policy.asked_pause(None) is None


@pytest.mark.parametrize("status", [502, 504])
def test_a_run_that_a_proxy_could_not_deliver_is_sent_again_under_the_same_id(twin, status):
    bad_gateway = Answer([b"<html>Bad Gateway</html>"], status, "text/html")
    with ScriptedServer(bad_gateway, bad_gateway, run_of(*text_message_json("m", "Hello"))) as server:
        client = twin.client(server.url, reconnect=Reconnect(initial=0.01))
        assert twin.result(client.thread().run("Hi")).text == "Hello"
        assert len({asked.body for asked in server.requests}) == 1
        assert len(server.requests) == 3


@pytest.mark.parametrize("status", [429, 502, 503, 504])
def test_a_run_that_is_refused_for_now_is_asked_for_again_under_the_same_id(twin, status):
    with ScriptedServer(
        rejection(status, "0"), rejection(status, "0"), run_of(*text_message_json("m", "Hello"))
    ) as server:
        result = twin.result(twin.client(server.url).thread().run("Hi"))
        assert result.text == "Hello"
        assert len({asked.body for asked in server.requests}) == 1
        assert len(server.requests) == 3


@pytest.mark.parametrize(
    ("status", "after"), [(503, None), (503, "31"), (502, "31"), (429, "later"), (500, "0"), (409, "0")]
)
def test_what_does_not_say_when_or_says_too_late_is_a_rejection(twin, status, after):
    with ScriptedServer(rejection(status, after), run_of()) as server:
        with pytest.raises(HTTPRejected) as caught:
            twin.result(twin.client(server.url).thread().run("Hi"))
        assert caught.value.status == status
        assert caught.value.retry_after == (float(after) if after in ("31", "0") else None)
        assert len(server.requests) == 1


def test_the_attempts_are_limited(twin):
    with ScriptedServer(*[rejection(503, "0")] * 9) as server:
        with pytest.raises(HTTPRejected):
            twin.result(twin.client(server.url, reconnect=Reconnect(attempts=3)).thread().run("Hi"))
        assert len(server.requests) == 4


def test_without_reconnecting_a_refusal_is_a_refusal(twin):
    with ScriptedServer(rejection(503, "0"), run_of()) as server:
        with pytest.raises(HTTPRejected):
            twin.result(twin.client(server.url, reconnect=None).thread().run("Hi"))
        assert len(server.requests) == 1


def test_a_dropped_stream_reconnects_after_the_time_the_server_gave(twin):
    def cut(asked):
        return Answer([frame(run_started_json(asked.json["runId"], asked.json["threadId"]), 1)], cut=True)

    with ScriptedServer(cut, rejection(503, "0"), rejection(404, "0")) as server:
        with pytest.raises(StreamTruncated):
            twin.result(twin.client(server.url).thread().run("Hi"))
        assert len(server.requests) == 3
