"""Bad requests: the status and code of each; the server stays healthy."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import pytest
from serving import Server, run_input, serving

from aguila import App
from aguila.server import Limits, Sends

JSON = {"content-type": "application/json"}
AS_ADA = {"authorization": "Bearer ada"}


async def agent(run: Any) -> Any:
    yield "Hello"


def authenticate(request: Any) -> str | None:
    if request.headers.get("authorization") == "Bearer broken":
        raise RuntimeError("the database of users is away")
    return "ada" if request.headers.get("authorization") == "Bearer ada" else None


HOSTS = ["127.0.0.1", "agents.example", "[::1]"]
LIMITS = Limits(body=1_000_000, state=1_500, upload=1_000)


@pytest.fixture(scope="module")
def server() -> Iterator[Server]:
    with serving(App(agent, authenticate=authenticate, limits=LIMITS, allowed_hosts=HOSTS)) as server:
        assert server_run(server).status_code == 200
        yield server
        health = server.get("/healthz")
        assert (health.status_code, health.json()) == (200, {"status": "ok"})
        answer = server_run(server, threadId="after")
        assert answer.status_code == 200
        assert b"RUN_FINISHED" in answer.content


def server_run(server: Server, **members: Any) -> Any:
    return server.post("/", json=run_input(**members), headers=AS_ADA)


def body(**members: Any) -> bytes:
    return json.dumps(run_input(**members)).encode()


def message(**members: Any) -> list[dict[str, Any]]:
    return [{"id": "1", "role": "user", "content": "Hello", **members}]


# name, method, path, content, headers, status, code
CASES: list[tuple[str, str, str, bytes | None, dict[str, str], int, str]] = [
    # the text
    ("empty body", "POST", "/", b"", JSON, 422, "bad_json"),
    ("half an object", "POST", "/", b'{"threadId": "t"', JSON, 422, "bad_json"),
    ("not JSON at all", "POST", "/", b"hello", JSON, 422, "bad_json"),
    ("NaN", "POST", "/", b'{"threadId": NaN}', JSON, 422, "bad_json"),
    ("trailing text", "POST", "/", body() + b"x", JSON, 422, "bad_json"),
    ("single quotes", "POST", "/", b"{'threadId': 't'}", JSON, 422, "bad_json"),
    ("bytes that are no text", "POST", "/", b"\xff\xfe\x00", JSON, 422, "bad_json"),
    ("nested too deep", "POST", "/", b'{"state":' + b"[" * 400 + b"]" * 400 + b"}", JSON, 422, "malformed_input"),
    ("a state that no event can hold", "POST", "/",
     b'{"threadId":"t","runId":"r","messages":[],"state":' + b"[" * 251 + b"]" * 251 + b"}", JSON, 422,
     "malformed_input"),
    # the shape
    ("an array", "POST", "/", b"[]", JSON, 422, "malformed_input"),
    ("a string", "POST", "/", b'"run"', JSON, 422, "malformed_input"),
    ("null", "POST", "/", b"null", JSON, 422, "malformed_input"),
    ("an empty object", "POST", "/", b"{}", JSON, 422, "malformed_input"),
    ("no thread id", "POST", "/", body(threadId=...), JSON, 422, "malformed_input"),
    ("no run id", "POST", "/", body(runId=...), JSON, 422, "malformed_input"),
    ("no messages", "POST", "/", body(messages=...), JSON, 422, "malformed_input"),
    ("a number as thread id", "POST", "/", body(threadId=5), JSON, 422, "malformed_input"),
    ("an empty thread id", "POST", "/", body(threadId=""), JSON, 422, "malformed_input"),
    ("an empty run id", "POST", "/", body(runId=""), JSON, 422, "malformed_input"),
    ("half a character in a thread id", "POST", "/", body(threadId="t\ud800"), JSON, 422, "malformed_input"),
    ("half a character in a run id", "POST", "/", body(runId="\udc00r"), JSON, 422, "malformed_input"),
    ("half a character in a parent run id", "POST", "/", body(parentRunId="\ud800"), JSON, 422, "malformed_input"),
    ("half a character to connect with", "POST", "/connect", body(threadId="\ud800"), JSON, 422, "malformed_input"),
    ("messages that are an object", "POST", "/", body(messages={}), JSON, 422, "malformed_input"),
    ("a message that is a string", "POST", "/", body(messages=["Hello"]), JSON, 422, "malformed_input"),
    ("a message without content", "POST", "/", body(messages=[{"id": "1", "role": "user"}]), JSON, 422,
     "malformed_input"),
    ("content that is a number", "POST", "/", body(messages=message(content=5)), JSON, 422, "malformed_input"),
    ("a tool result without its call", "POST", "/", body(messages=message(role="tool")), JSON, 422, "malformed_input"),
    ("a tool without a name", "POST", "/", body(tools=[{"description": "x"}]), JSON, 422, "malformed_input"),
    ("tools that are a string", "POST", "/", body(tools="x"), JSON, 422, "malformed_input"),
    ("context without a value", "POST", "/", body(context=[{"description": "x"}]), JSON, 422, "malformed_input"),
    ("a version that is a number", "POST", "/", body(protocolVersion=1.1), JSON, 422, "malformed_input"),
    ("a parent run that is a number", "POST", "/", body(parentRunId=1), JSON, 422, "malformed_input"),
    ("resume that is an object", "POST", "/", body(resume={}), JSON, 422, "malformed_input"),
    ("resume with an unknown status", "POST", "/", body(resume=[{"interruptId": "i", "status": "maybe"}]), JSON, 422,
     "malformed_input"),
    ("resume answering twice", "POST", "/",
     body(runId="twice", resume=[{"interruptId": "i", "status": "resolved"}] * 2), JSON, 422, "interrupt_duplicate"),
    # the size
    ("a body beyond the limit", "POST", "/", body(state={"x": "y" * 1_100_000}), JSON, 413, "too_large"),
    ("too many messages", "POST", "/", body(messages=message() * 10_001), JSON, 422, "too_many_messages"),
    ("too many messages, which are none", "POST", "/", body(messages=[{}] * 10_001), JSON, 422, "too_many_messages"),
    ("too many tools, which are none", "POST", "/", body(tools=[{}] * 1_001), JSON, 422, "too_many_tools"),
    ("too large a state beside no messages", "POST", "/", body(messages=..., state="y" * 2_000), JSON, 422,
     "state_too_large"),
    ("too many tools", "POST", "/", body(tools=[{"name": "t", "description": "d"}] * 1_001), JSON, 422,
     "too_many_tools"),
    ("too large a state", "POST", "/", body(state={"x": "y" * 2_000}), JSON, 422, "state_too_large"),
    ("a state with a very long integer", "POST", "/", body(state={"x": 10**1_100}), JSON, 422, "malformed_input"),
    ("too large props", "POST", "/", body(forwardedProps={"x": "y" * 2_000}), JSON, 422, "too_large"),
    ("too large props in an older shape", "POST", "/", body(forwardedProps={"x": "y" * 2_000}, data={}), JSON, 422,
     "too_large"),
    ("too long a thread id", "POST", "/", body(threadId="t" * 513), JSON, 422, "id_too_long"),
    ("too long a run id", "POST", "/", body(runId="r" * 513), JSON, 422, "id_too_long"),
    ("too long a parent run id", "POST", "/", body(parentRunId="r" * 513), JSON, 422, "id_too_long"),
    # the media type
    ("no content type", "POST", "/", body(), {}, 415, "unsupported_media_type"),
    ("a form", "POST", "/", b"a=1", {"content-type": "application/x-www-form-urlencoded"}, 415,
     "unsupported_media_type"),
    ("text", "POST", "/", body(), {"content-type": "text/plain"}, 415, "unsupported_media_type"),
    ("a compressed body", "POST", "/", body(), {**JSON, "content-encoding": "gzip"}, 415, "unsupported_encoding"),
    ("connect with text", "POST", "/connect", body(), {"content-type": "text/plain"}, 415, "unsupported_media_type"),
    ("connect with an array", "POST", "/connect", b"[]", JSON, 422, "malformed_input"),
    # the path and the method
    ("an unknown path", "GET", "/nothing", None, {}, 404, "not_found"),
    ("an unknown path below a thread", "GET", "/threads/thread/nothing", None, {}, 404, "not_found"),
    ("an empty thread id in a path", "GET", "/threads//events", None, {}, 404, "not_found"),
    ("a path that is no text", "GET", "/threads/%ff", None, {}, 404, "not_found"),
    ("GET where runs are posted", "GET", "/", None, {}, 405, "method_not_allowed"),
    ("PUT of a thread", "PUT", "/threads/thread", b"{}", JSON, 405, "method_not_allowed"),
    ("DELETE of a run", "DELETE", "/threads/thread/runs/run", None, {}, 405, "method_not_allowed"),
    ("GET of cancel", "GET", "/threads/thread/runs/run/cancel", None, {}, 405, "method_not_allowed"),
    ("OPTIONS without CORS", "OPTIONS", "/", None, {}, 405, "method_not_allowed"),
    # missing threads and runs
    ("an unknown thread", "GET", "/threads/unknown", None, {}, 404, "not_found"),
    ("events of an unknown thread", "GET", "/threads/unknown/events", None, {}, 404, "not_found"),
    ("an unknown run", "GET", "/threads/thread/runs/unknown", None, {}, 404, "not_found"),
    ("events of an unknown run", "GET", "/threads/thread/runs/unknown/events", None, {}, 404, "not_found"),
    ("cancelling an unknown run", "POST", "/threads/thread/runs/unknown/cancel", None, {}, 404, "not_found"),
    ("deleting an unknown thread", "DELETE", "/threads/unknown", None, {}, 404, "not_found"),
    ("an unknown file", "GET", "/files/unknown", None, {}, 404, "not_found"),
    ("neither compact nor not", "GET", "/threads/thread/events?compact=banana", None, {}, 422, "bad_compact"),
    ("neither compact nor not, of a run", "GET", "/threads/thread/runs/run/events?compact=yes", None, {}, 422,
     "bad_compact"),
    ("a page after what is no cursor", "GET", "/threads?before=unknown", None, {}, 422, "bad_cursor"),
    ("a page after too high a number", "GET", f"/threads?before={'9' * 30}", None, {}, 422, "bad_cursor"),
    ("a view along an unknown run", "GET", "/threads/thread?run=unknown", None, {}, 404, "not_found"),
    # cursors and pages
    ("a cursor beyond the end", "GET", "/threads/thread/events?after=999", None, {}, 410, "cursor_expired"),
    ("a huge cursor", "GET", "/threads/thread/events?after=" + "9" * 30, None, {}, 410, "cursor_expired"),
    ("a foreign Last-Event-ID", "GET", "/threads/thread/events", None, {"last-event-id": "999"}, 410,
     "cursor_expired"),
    ("a cursor of a run beyond the end", "GET", "/threads/thread/runs/run/events?after=999", None, {}, 410,
     "cursor_expired"),
    ("a cursor that is no number", "GET", "/threads/thread/events?after=x", None, {}, 422, "bad_cursor"),
    ("a negative cursor", "GET", "/threads/thread/events?after=-1", None, {}, 422, "bad_cursor"),
    ("a Last-Event-ID that is no number", "GET", "/threads/thread/events", None, {"last-event-id": "1.x"}, 422,
     "bad_cursor"),
    ("a page of none", "GET", "/threads?limit=0", None, {}, 422, "bad_limit"),
    ("a page that is no number", "GET", "/threads?limit=many", None, {}, 422, "bad_limit"),
    ("a page of too many", "GET", "/threads?limit=100000", None, {}, 422, "bad_limit"),
    # credentials and origins
    ("no credentials", "POST", "/", body(), {**JSON, "authorization": ""}, 401, "unauthenticated"),
    ("wrong credentials", "GET", "/threads", None, {"authorization": "Bearer eve"}, 401, "unauthenticated"),
    ("a hook that breaks", "GET", "/threads", None, {"authorization": "Bearer broken"}, 500, "internal"),
    ("a foreign page", "POST", "/", body(), {**JSON, "origin": "https://evil.example"}, 403, "foreign_origin"),
    ("a page of no origin", "POST", "/", body(), {**JSON, "origin": "null"}, 403, "foreign_origin"),
    ("a foreign page that cancels", "POST", "/threads/thread/runs/run/cancel", None,
     {"origin": "https://evil.example"}, 403, "foreign_origin"),
    ("a foreign page that deletes", "DELETE", "/threads/thread", None, {"origin": "https://evil.example"}, 403,
     "foreign_origin"),
    ("a foreign host", "GET", "/threads", None, {"host": "evil.example"}, 403, "foreign_host"),
    ("a foreign host with our port", "POST", "/", body(), {**JSON, "host": "evil.example:8000"}, 403, "foreign_host"),
    ("a page whose own host points here", "POST", "/", body(),
     {**JSON, "host": "evil.example", "origin": "http://evil.example"}, 403, "foreign_host"),
    ("a host that begins like ours", "GET", "/threads", None, {"host": "127.0.0.1.evil.example"}, 403, "foreign_host"),
    ("a host that ends like ours", "GET", "/threads", None, {"host": "evil.agents.example"}, 403, "foreign_host"),
    ("a foreign host before the method", "PUT", "/threads", None, {"host": "evil.example"}, 403, "foreign_host"),
    ("an empty host", "GET", "/threads", None, {"host": ""}, 403, "foreign_host"),
    ("a preflight without CORS", "OPTIONS", "/", None,
     {"origin": "https://evil.example", "access-control-request-method": "POST"}, 405, "method_not_allowed"),
]  # fmt: skip


def test_the_table_is_long_enough_and_has_no_name_twice() -> None:
    assert len(CASES) >= 40
    assert len({case[0] for case in CASES}) == len(CASES)


@pytest.mark.parametrize(
    ("method", "path", "content", "headers", "status", "code"),
    [case[1:] for case in CASES],
    ids=[case[0] for case in CASES],
)
def test_a_bad_request_is_refused(
    server: Server, method: str, path: str, content: bytes | None, headers: dict[str, str], status: int, code: str
) -> None:
    answer = server.client.request(method, path, content=content, headers={**AS_ADA, **headers})
    found = answer.json()
    assert (answer.status_code, found["error"]["code"]) == (status, code)
    assert set(found) == {"error"}
    assert set(found["error"]) <= {"code", "message", "path"}
    assert answer.headers["content-type"] == "application/json"
    assert "users is away" not in answer.text


@pytest.mark.parametrize("depth", [249, 250, 251, 252, 255, 256, 300])
def test_a_state_is_refused_before_the_run_if_no_event_could_hold_it(server: Server, depth: int) -> None:
    state: Any = []
    for _ in range(depth - 1):
        state = [state]
    answer = server_run(server, threadId=f"depth {depth}", state=state)
    if depth <= 250:
        assert answer.status_code == 200
        assert b"RUN_ERROR" not in answer.content
    else:
        assert answer.json()["error"] == {
            "code": "malformed_input", "message": "nested deeper than 250", "path": "/state"
        }  # fmt: skip


def test_an_input_that_is_too_deep_to_be_echoed_is_refused() -> None:
    props: Any = {}
    for _ in range(254):
        props = {"a": props}
    with serving(App(agent, sends=Sends(echo_input=True))) as server:
        answer = server.post("/", json=run_input(forwardedProps=props))
        assert (answer.status_code, answer.json()["error"]["code"]) == (422, "malformed_input")
    with serving(App(agent)) as server:
        assert server.post("/", json=run_input(forwardedProps=props)).status_code == 200


def test_too_much_is_also_found_in_a_body_that_has_to_be_repaired(server: Server) -> None:
    """Half a character, which JavaScript may send, is beyond the quick look."""
    half = "\ud83d"
    for members, code in (
        ({"messages": message(content=half) * 10_001}, "too_many_messages"),
        ({"tools": [{"name": half, "description": "d"}] * 1_001}, "too_many_tools"),
        ({"state": {"x": half + "y" * 2_000}}, "state_too_large"),
    ):
        for whole in (body(runId=code, **members), body(runId=code, **members).replace(b'"x"', b'"\xff"')):
            answer = server.post("/", content=whole, headers={**AS_ADA, **JSON})
            assert answer.json()["error"]["code"] == code


def test_a_malformed_member_is_named_by_a_pointer(server: Server) -> None:
    answer = server_run(server, messages=message(content=5))
    assert answer.json()["error"]["path"] == "/messages/0/content"


def test_a_refusal_says_what_is_allowed_and_how_to_identify(server: Server) -> None:
    assert server.get("/", headers=AS_ADA).headers["allow"] == "POST"
    assert server.get("/threads").headers["www-authenticate"] == "Bearer"


@pytest.mark.parametrize("host", ["agents.example", "Agents.Example:8443", "agents.example.", "[::1]:80", "::1"])
def test_a_host_that_is_listed_may_be_called_with_any_port(server: Server, host: str) -> None:
    assert server.get("/threads", headers={**AS_ADA, "host": host}).status_code == 200


def test_health_answers_probes_that_only_know_an_address(server: Server) -> None:
    assert server.get("/healthz", headers={"host": "10.1.2.3:8000"}).status_code == 200
    assert server.get("/threads", headers={**AS_ADA, "host": "10.1.2.3:8000"}).status_code == 403


def test_a_body_that_does_not_say_its_size_is_cut_off_at_the_limit(server: Server) -> None:
    def pieces() -> Iterator[bytes]:
        for _ in range(120):
            yield b" " * 10_000

    answer = server.post("/", content=pieces(), headers={**AS_ADA, **JSON})
    assert (answer.status_code, answer.json()["error"]["code"]) == (413, "too_large")


def test_a_wrong_accept_header_is_answered_with_sse(server: Server) -> None:
    """Every consumer accepts SSE (PB-2), so there is no 406."""
    headers = {**AS_ADA, "accept": "image/png, garbage;;q=x"}
    answer = server.post("/", json=run_input("accept"), headers=headers)
    assert answer.headers["content-type"] == "text/event-stream"


def test_a_client_that_goes_away_in_the_middle_of_its_body_does_no_harm(server: Server) -> None:
    import socket

    host, port = server.url.removeprefix("http://").split(":")
    with socket.create_connection((host, int(port))) as connection:
        head = "POST / HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer ada\r\nContent-Type: application/json\r\n"
        connection.sendall(head.encode() + b'Content-Length: 100\r\n\r\n{"threadId"')
    assert server.get("/healthz").status_code == 200


@pytest.mark.parametrize(
    ("method", "path"),
    [
        ("GET", "/threads"),
        ("DELETE", "/threads/thread"),
        ("POST", "/files"),
        ("GET", "/files/x"),
        ("DELETE", "/files/x"),
        ("GET", "/data"),
        ("DELETE", "/data"),
    ],
)
def test_without_authentication_threads_are_not_listed_or_deleted_and_files_are_refused(method: str, path: str) -> None:
    with serving(App(agent)) as server:
        server.events()
        answer = server.client.request(method, path)
        assert (answer.status_code, answer.json()["error"]["code"]) == (403, "anonymous_not_allowed")
    with serving(App(agent, allow_anonymous=True)) as server:
        server.events()
        assert server.client.request(method, path).status_code != 403


@pytest.mark.parametrize("element", ["[]", "null", "1", '""'])
def test_very_many_elements_that_are_no_messages_are_counted_and_not_repaired(element: str) -> None:
    body = json.dumps(run_input("t", "r", messages="@")).replace('"@"', "[" + ",".join([element] * 50_000) + "]")
    with serving(App(agent)) as server:
        answer = server.post("/", content=body, headers={"content-type": "application/json"})
        assert (answer.status_code, answer.json()["error"]["code"]) == (422, "too_many_messages")
