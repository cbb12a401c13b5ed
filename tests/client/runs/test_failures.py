"""Error messages: the request, the limit and the server's reason."""

import json
import socket
import threading

import pytest
from builders import run_started_json
from scripted_server import Answer, ScriptedServer, frame

from aguila.client import Timeouts
from aguila.client.requests.urls import display_url
from aguila.client.transports.aiohttp import AiohttpTransport
from aguila.errors import HTTPRejected, StreamTruncated, TransportFailed


def rejection_of(twin, answer):
    with ScriptedServer(answer) as server, pytest.raises(HTTPRejected) as caught:
        twin.result(twin.client(server.url).thread().run("x"))
    return caught.value


@pytest.mark.parametrize(
    ("detail", "message"),
    [
        (
            [
                {"type": "missing", "loc": ["body", "messages"], "msg": "Field required", "input": {}},
                {"type": "string_type", "loc": ["body", "tools", 0, "name"], "msg": "Input should be a valid string"},
            ],
            "body.messages: Field required; body.tools.0.name: Input should be a valid string",
        ),
        ("Not\n  here", "Not here"),
        (["one", {"msg": "two"}], "one; two"),
        ({"reason": 5}, '{"reason":5}'),
        (None, ""),
    ],
)
def test_a_refusal_of_fastapi_says_what_is_wrong_on_one_line(twin, detail, message):
    error = rejection_of(twin, Answer([json.dumps({"detail": detail}).encode()], 422, "application/json"))
    assert error.message == message
    assert str(error) == ("HTTP 422: " + message if message else "HTTP 422")
    assert error.body == {"detail": detail}


@pytest.mark.parametrize(
    ("status", "location", "message"),
    [
        (
            307,
            "http://u:p@elsewhere.test/a?key=1",
            "to http://elsewhere.test/a, which is another origin, is not followed",
        ),
        (307, "http://[bad", "to an invalid URL, which cannot be resolved, is not followed"),
        (308, "//[bad/a?key=1", "to an invalid URL, which cannot be resolved, is not followed"),
        (302, "/login?next=1", "/login, which would not keep the request, is not followed"),
    ],
)
def test_a_redirect_that_is_not_followed_says_where_to_and_why(twin, status, location, message):
    error = rejection_of(twin, Answer([b""], status, None, {"Location": location}))
    assert error.status == status
    assert message in error.message
    assert "key" not in error.message


def test_redirects_in_a_circle_are_given_up(twin):
    with ScriptedServer(*[Answer([], 307, None, {"Location": "/again"})] * 5) as server:
        with pytest.raises(HTTPRejected, match="the 5th in a row"):
            twin.result(twin.client(server.url).thread().run("x"))
        assert len(server.requests) == 5


def test_a_failure_names_the_request_without_secrets(twin):
    with socket.create_server(("127.0.0.1", 0)) as probe:
        port = probe.getsockname()[1]
    client = twin.client(f"http://user:secret@127.0.0.1:{port}/agent?key=secret")
    with pytest.raises(TransportFailed) as caught:
        twin.result(client.thread().run("x"))
    assert str(caught.value).startswith(f"POST http://127.0.0.1:{port}/agent: ConnectError")
    assert "secret" not in str(caught.value)
    with pytest.raises(TransportFailed, match=f"GET http://127.0.0.1:{port}/agent/threads/t: "):
        twin.wait(client.thread("t").refresh())


def test_an_address_is_shown_without_query_and_credentials():
    assert display_url("https://u:p@host:8/a?q=1#f") == "https://host:8/a"
    assert display_url("http://[x") == "an invalid URL"


TRANSPORTS = pytest.mark.parametrize("over", ["default", "aiohttp"])


def client_over(twin, over, url, limits):
    if over == "default":
        return twin.client(url, timeouts=limits)
    return twin.over(lambda: AiohttpTransport(timeouts=limits), url, timeouts=limits)


@TRANSPORTS
def test_the_error_names_the_limit_and_its_value(twin, over):
    def begins(asked):
        return Answer([frame(run_started_json(asked.json["runId"], "t")), threading.Event()])

    def silent(asked):
        return Answer([b": alive\n\n", threading.Event()])

    with ScriptedServer(begins, silent, silent) as server:
        client = client_over(twin, over, server.url, Timeouts(first_event=30, idle=0.0625))
        with pytest.raises(StreamTruncated, match=r"no data for 0\.0625 seconds \(Timeouts\.idle\)"):
            twin.result(client.thread().run("x"))
        with pytest.raises(StreamTruncated, match=r"no data for 0\.0625 seconds \(Timeouts\.idle\)"):
            twin.result(client.thread().run("x"))
        client = client_over(twin, over, server.url, Timeouts(first_event=0.0625, idle=30))
        with pytest.raises(StreamTruncated, match=r"no event within 0\.0625 seconds \(Timeouts\.first_event\)"):
            twin.result(client.thread().run("x"))


@TRANSPORTS
def test_a_server_that_never_answers_hits_a_limit_that_the_error_names(twin, over):
    with socket.create_server(("127.0.0.1", 0)) as deaf:
        url = f"http://127.0.0.1:{deaf.getsockname()[1]}"
        client = client_over(twin, over, url, Timeouts(first_event=0.0625, answer=0.125))
        with pytest.raises(StreamTruncated, match="may have started") as caught:
            twin.result(client.thread().run("x"))
        assert str(caught.value).endswith(f": POST {url}: no event within 0.0625 seconds (Timeouts.first_event)")
        assert isinstance(caught.value.__cause__, TransportFailed)
        assert caught.value.__cause__.is_timeout
        with pytest.raises(TransportFailed) as caught:
            twin.wait(client.thread("t").refresh())
        assert str(caught.value) == f"GET {url}/threads/t: no answer within 0.125 seconds (Timeouts.answer)"


@TRANSPORTS
def test_a_connection_that_is_never_made_hits_the_limit_for_connecting(twin, over):
    with socket.socket() as full:
        full.bind(("127.0.0.1", 0))
        full.listen(0)
        url = f"http://127.0.0.1:{full.getsockname()[1]}"
        waiting = [socket.socket() for _ in range(4)]  # they fill the queue of connections, and none is accepted
        try:
            for one in waiting:
                one.setblocking(False)
                one.connect_ex(full.getsockname())
            client = client_over(twin, over, url, Timeouts(connect=0.25))
            with pytest.raises(TransportFailed) as caught:
                twin.result(client.thread().run("x"))
        finally:
            for one in waiting:
                one.close()
    assert str(caught.value) == f"POST {url}: no connection within 0.25 seconds (Timeouts.connect)"
