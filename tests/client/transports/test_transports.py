"""Transports: each carries the same conversation, be it in process, over a socket or from a recording."""

import asyncio
import inspect
import json
import threading
from typing import get_args

import httpx2
import pytest
from builders import run_finished_json, run_started_json, text_message_json
from httpx2._decoders import SUPPORTED_DECODERS
from scripted_server import Answer, ScriptedServer, frames, run_of
from starlette.responses import StreamingResponse
from waiting import DEADLINE, let_tasks_run

from aguila import App, AsyncClient, Client
from aguila.cli.convert import written
from aguila.client import Reconnect, Record, Timeouts
from aguila.client.recordings import read_lines, split_runs
from aguila.client.transports import httpx2 as httpx2_module
from aguila.client.transports.aiohttp import AiohttpTransport
from aguila.client.transports.asgi import ASGITransport
from aguila.client.transports.httpx2 import AsyncHTTPX2Transport, HTTPX2Transport
from aguila.client.transports.recorded import AsyncRecordedTransport, RecordedTransport
from aguila.client.transports.threaded import ThreadedTransport
from aguila.codec import decode_event
from aguila.codec.formats import Format
from aguila.errors import AguilaError, HTTPRejected, StreamTruncated, TransportFailed

pytestmark = pytest.mark.anyio


async def echo(run):
    run.state["n"] = run.state.get("n", 0) + 1
    yield "You said: "
    yield run.messages[-1].content


# In process


def test_an_app_is_called_in_process(twin):
    app = App(echo)
    client = twin.over(lambda: ASGITransport(app))
    thread = client.thread()
    assert twin.result(thread.run("Hello")).text == "You said: Hello"
    assert twin.result(thread.run("Again")).text == "You said: Again"
    assert thread.state == {"n": 2}
    twin.wait(thread.refresh())
    assert len(thread.messages) == 4
    assert twin.wait(client.capabilities()) is not None


def scripted_app(*pieces, status=200, content_type=b"text/event-stream", more=None):
    seen = []

    async def app(scope, receive, send):
        if scope["type"] != "http":
            raise RuntimeError("no lifespan here")
        seen.append(scope)
        await receive()
        await send({"type": "http.response.start", "status": status, "headers": [(b"Content-Type", content_type)]})
        for piece in pieces:
            await send({"type": "http.response.body", "body": piece, "more_body": True})
        if more is not None:
            await more(receive, send)
        await send({"type": "http.response.body", "body": b""})

    return app, seen


async def test_the_scope_is_that_of_a_server():
    app, seen = scripted_app(frames([run_started_json(), run_finished_json()]))

    async with AsyncClient("http://host:81/a%20b/?q=1", transport=ASGITransport(app)) as client:
        await client.thread().run("x", headers={"X-A": "b"})
    scope = seen[0]
    assert (scope["method"], scope["path"], scope["raw_path"]) == ("POST", "/a b/", b"/a%20b/")
    assert (scope["query_string"], scope["server"]) == (b"q=1", ("host", 81))
    assert (b"x-a", b"b") in scope["headers"]
    assert (b"host", b"host:81") in scope["headers"]


def test_an_app_that_fails_cuts_its_answer(twin):
    async def fails(receive, send):
        raise ValueError("late")

    app, _ = scripted_app(frames([run_started_json()]), more=fails)
    with pytest.raises(StreamTruncated, match="late"):
        twin.result(twin.over(lambda: ASGITransport(app)).thread().run("x"))

    async def broken(scope, receive, send):
        raise ValueError("early")

    with pytest.raises(TransportFailed, match="early"):
        twin.result(twin.over(lambda: ASGITransport(broken)).thread().run("x"))

    async def silent(scope, receive, send):
        return

    with pytest.raises(TransportFailed):
        twin.result(twin.over(lambda: ASGITransport(silent)).thread().run("x"))


async def test_an_app_waits_for_a_slow_reader():
    sent = []
    body = frames([run_started_json()])
    delta = frames([{"type": "CUSTOM", "name": "x", "value": 1}])

    async def many(receive, send):
        for n in range(50):
            await send({"type": "http.response.body", "body": delta, "more_body": True})
            sent.append(n)
        await send({"type": "http.response.body", "body": frames([run_finished_json()]), "more_body": True})

    app, _ = scripted_app(body, more=many)

    async with AsyncClient("http://x", transport=ASGITransport(app)) as client:
        read = 0
        async for _ in client.thread().run("x"):
            await let_tasks_run()
            read += 1
            assert len(sent) <= read + 1, "nothing gathers between the two"
        assert read == 52


async def test_leaving_the_loop_is_a_disconnect_for_the_app():
    gone = []

    async def listens(receive, send):
        gone.append(await receive())

    app, _ = scripted_app(frames([run_started_json()]), more=listens)

    async with AsyncClient("http://x", transport=ASGITransport(app)) as client:
        async with client.thread().run("x") as run:
            async for _ in run:
                break
        assert gone == [{"type": "http.disconnect"}]


async def test_an_app_that_ignores_the_disconnect_is_cancelled(monkeypatch):
    monkeypatch.setattr("aguila.client.transports.asgi._DISCONNECT_SECONDS", 0.01)
    ended = []

    async def deaf(receive, send):
        try:
            await asyncio.Event().wait()
        finally:
            ended.append(True)

    app, _ = scripted_app(frames([run_started_json()]), more=deaf)

    async with AsyncClient("http://x", transport=ASGITransport(app)) as client:
        async with client.thread().run("x") as run:
            async for _ in run:
                break
        assert ended == [True]


async def test_a_streaming_response_of_starlette_ends_with_the_disconnect(monkeypatch):
    """Starlette listens for the disconnect only below version 2.4 of the specification, as uvicorn declares it."""
    monkeypatch.setattr("aguila.client.transports.asgi._DISCONNECT_SECONDS", 100 * DEADLINE)
    ended = []

    async def stream():
        try:
            yield frames([run_started_json()])
            await asyncio.Event().wait()
        finally:
            ended.append(True)

    async def app(scope, receive, send):
        if scope["type"] == "http":
            await StreamingResponse(stream(), media_type="text/event-stream")(scope, receive, send)

    async with AsyncClient("http://x", transport=ASGITransport(app)) as client:
        async with asyncio.timeout(DEADLINE), client.thread().run("x") as run:
            async for _ in run:
                break
        assert ended == [True]


async def test_the_lifespan_of_the_app_is_run_and_its_failure_raised():
    stages = []

    async def app(scope, receive, send):
        assert scope["type"] == "lifespan"
        stages.append((await receive())["type"])
        await send({"type": "lifespan.startup.failed", "message": "no disk"})

    async with AsyncClient("http://x", transport=ASGITransport(app)) as client:
        with pytest.raises(TransportFailed, match="no disk"):
            await client.thread().run("x")
    assert stages == ["lifespan.startup"]


# aiohttp


def test_aiohttp_carries_a_conversation_and_reconnects(twin):
    log = frames(
        [
            run_started_json(),
            *text_message_json("m", "x"),
            run_finished_json(),
        ],
        1,
    )
    at = log.index(b"id: 3")
    with ScriptedServer(
        run_of(*text_message_json("m0", "Hello")),
        Answer([log[:at]], cut=True),
        Answer([log[at:]]),
        Answer([b'{"error":{"code":"no","message":"No."}}'], 422, "application/json"),
        Answer([frames([run_started_json()])], cut=True),
    ) as server:
        client = twin.over(AiohttpTransport, server.url)
        thread = client.thread("t")
        assert twin.result(thread.run("x")).text == "Hello"
        assert twin.result(thread.run("y", run_id="r")).text == "x"
        assert server.requests[2].headers["last-event-id"] == "2"
        assert "content-type" not in server.requests[2].headers
        with pytest.raises(HTTPRejected, match="No"):
            twin.result(thread.run("x"))
        with pytest.raises(StreamTruncated):
            twin.result(thread.run("x"))


def test_aiohttp_says_what_failed_and_hangs_up(twin):
    never = threading.Event()
    with ScriptedServer(lambda asked: Answer([frames([run_started_json()]), never])) as server:
        client = twin.over(AiohttpTransport, server.url)
        twin.events(client.thread().run("x"), lambda event: True)
        twin.wait(client.close()) if twin.name == "async" else None
        if twin.name == "async":
            assert server.requests[0].closed.wait(DEADLINE)
        url = server.url
    if twin.name == "async":
        with pytest.raises(TransportFailed):
            twin.result(twin.over(AiohttpTransport, url).thread().run("x"))


def test_idle_streams_are_given_up_over_any_async_transport(twin):
    never = threading.Event()
    with ScriptedServer(lambda asked: Answer([frames([run_started_json()]), never])) as server:
        client = twin.over(AiohttpTransport, server.url, timeouts=Timeouts(idle=0.05))
        with pytest.raises(StreamTruncated, match="no data for"):
            twin.result(client.thread().run("x"))


# httpx2


async def test_a_client_of_ones_own_is_used_and_not_closed():
    with ScriptedServer(run_of(), run_of()) as server:
        async with httpx2.AsyncClient(headers={"X-Mine": "1"}) as own:
            async with AsyncClient(server.url, transport=AsyncHTTPX2Transport(own)) as client:
                await client.thread().run("x")
            assert not own.is_closed
        with httpx2.Client(headers={"X-Mine": "2"}) as own:
            with Client(server.url, transport=HTTPX2Transport(own)) as client:
                client.thread().run("x").result()
            assert not own.is_closed
        assert [r.headers["x-mine"] for r in server.requests] == ["1", "2"]


def test_http2_and_proxies_are_options(twin):
    with ScriptedServer(run_of()) as proxy:
        client = twin.client("http://agent.invalid/run", options={"proxy": proxy.url, "http2": True})
        twin.result(client.thread().run("x"))
        assert proxy.requests[0].path == "http://agent.invalid/run"


def test_an_address_that_is_none_is_transport_failed(twin):
    for url in ("nonsense", "ftp://x/", "http://"):
        with pytest.raises(TransportFailed):
            twin.result(twin.client(url).thread().run("x"))


# Recordings


def test_a_recording_is_played_back_run_by_run(twin, tmp_path):
    path = tmp_path / "run.jsonl"
    with ScriptedServer(run_of(*text_message_json("m", "one")), run_of(*text_message_json("n", "two"))) as server:
        thread = twin.client(server.url, middleware=[Record(path)]).thread()
        twin.result(thread.run("a"))
        twin.result(thread.run("b"))
    make = RecordedTransport if twin.name == "sync" else AsyncRecordedTransport
    again = twin.client("recorded:", transport=make(path)).thread()
    assert twin.result(again.run("a")).text == "one"
    assert twin.result(again.run("b")).text == "two"
    with pytest.raises(TransportFailed):
        twin.result(again.run("c"))
    runs = read_lines(path.read_bytes(), strict=True)
    assert [run.input["messages"][-1]["content"] for run in runs] == ["a", "b"]
    assert all(event.ms is not None for run in runs for event in run.events)


def test_plain_events_and_sse_are_recordings_too(twin, tmp_path):
    plain, sse = tmp_path / "run.jsonl", tmp_path / "run.sse"
    with ScriptedServer(run_of(*text_message_json("m", "one")), run_of(*text_message_json("n", "two"))) as server:
        thread = twin.client(server.url, middleware=[Record(plain, form="events")]).thread()
        twin.result(thread.run("a"))
        twin.result(thread.run("b"))
    assert len(split_runs(read_lines(plain.read_bytes(), strict=True))) == 2
    sse.write_bytes(b"".join(b"data: " + line + b"\n\n" for line in plain.read_bytes().split(b"\n")[:5]))
    make = RecordedTransport if twin.name == "sync" else AsyncRecordedTransport
    for path in (plain, sse):
        assert twin.result(twin.client("recorded:", transport=make(path)).thread().run("a")).text == "one"


@pytest.mark.parametrize("line", [b"nonsense", b"{}", b'{"ms": 5}', b"[1]", b"[{]"])
def test_what_is_no_recording_is_refused(line, tmp_path):
    path = tmp_path / "x.jsonl"
    path.write_bytes(line + b"\n")
    with pytest.raises(ValueError, match=r"line 1|not a JSON array"):
        RecordedTransport(path)


@pytest.mark.parametrize("form", get_args(Format))
def test_a_recording_is_read_by_its_content_whatever_its_name(twin, form, tmp_path):
    events = [
        decode_event(json.dumps(event))
        for event in (run_started_json(), *text_message_json("m", "one"), run_finished_json())
    ]
    make = RecordedTransport if twin.name == "sync" else AsyncRecordedTransport
    for name in ("x.jsonl", "x.json", "x.sse", "x.pb", "x"):
        (tmp_path / name).write_bytes(written(events, form, pytest.fail))
        thread = twin.client("recorded:", transport=make(tmp_path / name)).thread()
        assert twin.result(thread.run("a", run_id="r")).text == "one"


def test_a_threaded_transport_that_was_never_used_can_be_closed():
    with Client("http://x", transport=ThreadedTransport(AiohttpTransport), reconnect=Reconnect(attempts=0)):
        pass


# Compression


def compressed(encoding, status=200):
    return Answer([b"\x8b\x03\x80garbage"], status, headers={"Content-Encoding": encoding})


@pytest.mark.parametrize("encoding", ["br", "GZIP, x-new"])
@pytest.mark.parametrize("transport", ["httpx2", "aiohttp"])
def test_a_compression_that_cannot_be_decoded_is_named(twin, transport, encoding):
    def client(server):
        if transport == "aiohttp":
            return twin.over(AiohttpTransport, server.url)
        return twin.client(server.url)

    name = r"\bbr\b" if encoding == "br" else "x-new"
    with ScriptedServer(compressed(encoding), compressed(encoding)) as server:
        with pytest.raises(StreamTruncated, match=name):  # the run may have begun
            twin.result(client(server).thread().run("x"))
        assert len(server.requests) == 1  # a repeated request would get the same encoding
        asked = server.requests[0].headers["accept-encoding"]
        assert "gzip" in asked
        assert "x-new" not in asked
        with pytest.raises(AguilaError, match=name):
            twin.wait(client(server).upload(b"x", mime_type="text/plain"))


def test_a_response_that_is_compressed_several_times_is_refused(twin):
    with ScriptedServer(compressed("gzip, gzip")) as server:
        with pytest.raises(StreamTruncated, match="2 content encodings; at most one is decoded"):
            twin.result(twin.client(server.url).thread().run("x"))
        assert len(server.requests) == 1


def test_what_httpx2_decodes_is_known_without_its_private_names():
    assert set(SUPPORTED_DECODERS) - {"identity"} == httpx2_module.ENCODINGS
    assert "httpx2._" not in inspect.getsource(httpx2_module)


def test_a_refusal_whose_body_cannot_be_decoded_is_still_one(twin):
    with ScriptedServer(compressed("x-new", 403)) as server:
        with pytest.raises(HTTPRejected, match="content encoding 'x-new'") as caught:
            twin.result(twin.client(server.url).thread().run("x"))
        assert caught.value.status == 403
