"""Response streams: headers, ids, heartbeats, cursors, protobuf, older readers, slow readers, many readers."""

from __future__ import annotations

import asyncio
import json
import re
import socket
from types import SimpleNamespace
from typing import Any

import pytest
from in_process import Reader
from serving import Gate, Held, number_of, run_input, serving, types
from waiting import DEADLINE, wait_until, wait_until_async

from aguila import App
from aguila.codec.negotiate import PROTOBUF_MEDIA_TYPE
from aguila.codec.protobuf import ProtobufDecoder
from aguila.codec.sse import SSEParser
from aguila.protocol import RunErrorEvent, RunFinishedEvent, RunStartedEvent
from aguila.server import Sends, Timing
from aguila.server.http.frames import CURRENT_SSE
from aguila.server.http.stream import EventStream, OpenStreams
from aguila.server.runs import maintenance
from aguila.store import MemoryStore, Retention, ThreadTarget


async def talker(run: Any) -> Any:
    for i in range(20):
        yield f"word{i} "
    async with run.step("search"):
        call = await run.tool_call("search", {"q": "eagles"})
        await call.result("two eagles")
    run.state["found"] = 2


def test_the_headers_keep_proxies_from_buffering_and_caches_from_keeping() -> None:
    with serving(App(talker)) as server, server.run() as stream:
        headers = stream.response.headers
        assert headers["content-type"] == "text/event-stream"
        assert headers["cache-control"] == "no-cache, no-transform"
        assert headers["x-accel-buffering"] == "no"
        assert headers["content-encoding"] == "identity"
        stream.rest()


def test_a_stream_is_lines_that_end_with_lf_and_ids_that_count_up() -> None:
    with serving(App(talker)) as server, server.run(run_id="one") as stream:
        frames = stream.frames()
        assert b"\r" not in stream.raw
        assert re.match(rb"id: 1-[A-Za-z0-9_-]{8}\ndata: {", stream.raw)
        assert [number for number, _ in frames] == list(range(1, len(frames) + 1))
        with server.run(run_id="two") as second:
            assert second.frames()[0][0] == len(frames) + 1


def test_an_idle_stream_sends_comments_that_readers_ignore() -> None:
    agent = Held()
    with serving(App(agent, heartbeat=0.02)) as server, server.run() as stream:
        pieces = stream.response.iter_raw()
        seen = b""
        while seen.count(b":\n\n") < 3:
            seen += next(pieces)
        assert seen.replace(b":\n\n", b"").startswith(b"id: 1-")
        agent.gate("run").open()
        rest = seen + b"".join(pieces)
        assert b"RUN_FINISHED" in rest


def test_a_stream_can_be_resumed_after_every_event(store: Any) -> None:
    with serving(App(talker, store=store)) as server:
        with server.run() as stream:
            frames = stream.frames()
        for last in range(len(frames) + 1):
            for path, headers in (
                (f"/threads/thread/events?after={last}", {}),
                ("/threads/thread/events?after=0", {"last-event-id": str(last)} if last else {}),
                (f"/threads/thread/runs/run/events?after={last}", {}),
            ):
                with server.stream("GET", path, headers=headers) as again:
                    assert again.status == 200
                    assert again.frames() == frames[last:]


def test_a_run_that_is_posted_again_goes_on_after_what_the_reader_has(store: Any) -> None:
    with serving(App(talker, store=store)) as server:
        with server.run() as stream:
            frames = stream.frames()
        for last in range(1, len(frames) + 1):
            with server.run(headers={"last-event-id": str(last)}) as again:
                assert again.status == 200
                assert again.frames() == frames[last:]
        with server.run(headers={"last-event-id": "999"}) as again:
            assert again.status == 410
        with server.run(run_id="new", headers={"last-event-id": "999"}) as new:  # a new run ignores the cursor
            assert new.status == 200


def test_a_run_that_is_on_and_posted_again_goes_on_after_what_the_reader_has(store: Any) -> None:
    agent = Held()
    with serving(App(agent, store=store)) as server, server.run() as first:
        first.read_until("RUN_STARTED")
        with server.run(headers={"last-event-id": "1"}) as again:
            agent.gate("run").open()
            assert again.rest() == first.rest()


def test_a_stream_cut_at_any_byte_and_resumed_is_the_uncut_stream(store: Any) -> None:
    with serving(App(talker, store=store)) as server:
        with server.run() as stream:
            frames = stream.frames()
            raw = stream.raw
        rests: dict[str | None, list[tuple[int | None, bytes]]] = {}
        for cut in range(len(raw) + 1):
            parser = SSEParser()
            read = parser.feed(raw[:cut])
            seen = [(number_of(frame.id or "0"), frame.data) for frame in read]
            last = read[-1].id if read else None
            if last not in rests:
                headers = {} if last is None else {"last-event-id": last}
                with server.stream("GET", "/threads/thread/events", headers=headers) as again:
                    rests[last] = again.frames()
            assert [*seen, *rests[last]] == frames


@pytest.mark.parametrize("is_pruned", [False, True])
def test_a_cursor_of_a_removed_thread_is_410_on_the_one_that_has_its_id_next(
    store: Any, is_pruned: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(maintenance, "PRUNE_INTERVAL", 0.0)
    retention = Retention(max_threads=1) if is_pruned else None
    app = App(talker, store=store, allow_anonymous=True, retention=retention, timing=Timing(lease=1.0))
    with serving(app) as server:
        server.events(run_id="first")
        old = server.events()  # a second run of the thread's first life
        last = server.get("/threads/thread").json()["last"]
        if is_pruned:
            server.events(thread_id="newer")
            wait_until(lambda: server.get("/threads/thread").status_code == 404)
        else:
            assert server.delete("/threads/thread").status_code == 204
        with server.run() as stream:
            frames = stream.frames()
        assert [number for number, _ in frames] == list(range(last + 2, last + 2 + len(old)))
        server.events(run_id="other", parentRunId="run")
        for cursor in (1, 2, last - 1, last):
            for path in (
                "/threads/thread/events",
                "/threads/thread/events?compact=1",
                "/threads/thread/runs/run/events",
            ):
                for query, headers in ((f"after={cursor}", {}), ("after=0", {"last-event-id": str(cursor)})):
                    answer = server.get(path + ("&" if "?" in path else "?") + query, headers=headers)
                    assert (answer.status_code, answer.json()["error"]["code"]) == (410, "cursor_expired")
        for path in ("/threads/thread/runs/run/events", "/threads/thread/runs/run/events?after=0"):
            with server.stream("GET", path) as again:
                assert again.frames() == frames
        for place, (number, _) in enumerate(frames):
            with server.stream("GET", f"/threads/thread/runs/run/events?after={number}") as again:
                assert again.frames() == frames[place + 1 :]
        with server.stream("GET", "/threads/thread/events?compact=1&after=0") as whole:
            assert types(whole.rest()).count("RUN_FINISHED") == 2
        view = server.get("/threads/thread").json()
        assert view["last"] == last + 1 + 2 * len(frames)
        assert [run["first"] for run in view["runs"]] == [last + 2, last + 2 + len(frames)]
        earlier = server.get("/threads/thread?run=run").json()  # read again from the middle of the log
        assert earlier["last"] == last + 1 + len(frames)
        assert len(view["messages"]) == 2 * len(earlier["messages"])
        joined = server.events(path="/connect", run_id="joining")
        assert types(joined)[:3] == ["RUN_STARTED", "STATE_SNAPSHOT", "MESSAGES_SNAPSHOT"]


def test_replay_hands_over_to_the_live_run_without_a_gap_or_a_repeat(store: Any) -> None:
    agent = Held()
    with serving(App(agent, store=store)) as server, server.run() as first:
        first.read_until("TEXT_MESSAGE_CONTENT")
        with (
            server.stream("GET", "/threads/thread/events?after=1") as second,
            server.stream("GET", "/threads/thread/events", headers={"last-event-id": "3"}) as third,
        ):
            agent.gate("run").open()
            assert [number for number, _ in second.frames()] == [2, 3, 4, 5, 6]
            assert [number for number, _ in third.frames()] == [4, 5, 6]


def test_the_log_of_a_thread_has_all_its_runs_and_the_events_of_a_run_only_its_own(store: Any) -> None:
    with serving(App(talker, store=store)) as server:
        counts = [len(server.events(run_id=name)) for name in ("a", "b", "c")]
        with server.stream("GET", "/threads/thread/events") as stream:
            assert len(stream.rest()) == sum(counts)
        with server.stream("GET", "/threads/thread/runs/b/events") as stream:
            events = stream.rest()
        assert (events[0]["runId"], events[-1]["runId"], len(events)) == ("b", "b", counts[1])


def test_a_compacted_replay_says_the_same_with_fewer_events(store: Any) -> None:
    agent = Held()
    agent.gate("two").open()
    agent.gate("one").open()
    with serving(App(agent, store=store, sends=Sends(merge_deltas=False))) as server:
        server.events(run_id="one")
        whole = server.events(run_id="two")
        with server.run(run_id="three") as live:
            live.read_until("TEXT_MESSAGE_CONTENT")
            with server.stream("GET", "/threads/thread/events?compact=true") as stream:
                agent.gate("three").open()
                frames = stream.frames()
            events = [json.loads(data) for _, data in frames]
            short = ["RUN_STARTED", "TEXT_MESSAGE_START", "TEXT_MESSAGE_CONTENT", "TEXT_MESSAGE_END", "RUN_FINISHED"]
            assert types(events) == [*short, *short, *types(whole)]
            assert [event["delta"] for event in events if "delta" in event] == ["onetwo", "onetwo", "one", "two"]
        # A reader of a run that was compacted goes on after it; one that saw half of a run gets the other half.
        last_of_first = frames[4][0]
        assert last_of_first == len(whole)
        with server.stream("GET", f"/threads/thread/events?compact=true&after={last_of_first}") as stream:
            assert types(stream.rest())[:5] == short
        with server.stream("GET", "/threads/thread/events?compact=true&after=3") as stream:
            half = ["TEXT_MESSAGE_CONTENT", "TEXT_MESSAGE_END", "RUN_FINISHED"]
            assert types(stream.rest()) == [*half, *short, *short]  # and later runs in short all the same
        with server.stream("GET", "/threads/thread/runs/two/events?compact=true") as stream:
            frames = stream.frames()
        assert types([json.loads(data) for _, data in frames]) == short
        assert [number for number, _ in frames] == [None, None, None, None, 2 * len(whole)]
        with server.stream("GET", f"/threads/thread/runs/two/events?compact=true&after={len(whole) + 3}") as stream:
            assert types(stream.rest()) == half


def test_protobuf_is_sent_to_who_names_it(store: Any) -> None:
    with serving(App(talker, store=store)) as server:
        headers = {"accept": f"{PROTOBUF_MEDIA_TYPE}, text/event-stream;q=0.5"}
        answer = server.post("/", json=run_input(), headers=headers)
        assert answer.headers["content-type"] == PROTOBUF_MEDIA_TYPE
        decoder = ProtobufDecoder()
        events = decoder.feed(answer.content)
        decoder.close()
        assert isinstance(events[0], RunStartedEvent)
        assert isinstance(events[-1], RunFinishedEvent)
        with server.stream("GET", "/threads/thread/events") as stream:
            assert [event.type for event in events] == types(stream.rest())


def test_what_protobuf_cannot_carry_ends_the_stream_with_run_error_and_not_the_run() -> None:
    async def agent(run: Any) -> None:
        await run.say("half an emoji: \ud83d")

    with serving(App(agent)) as server:
        answer = server.post("/", json=run_input(), headers={"accept": PROTOBUF_MEDIA_TYPE})
        events = ProtobufDecoder().feed(answer.content)
        assert isinstance(events[-1], RunErrorEvent)
        assert events[-1].code == "not_encodable"
        assert wait_until(lambda: server.status_of("thread", "run") != "running")
        assert server.status_of("thread", "run") == "success"


async def encrypting(run: Any) -> Any:
    from aguila.protocol import ReasoningEncryptedValueEvent, TextMessageEndEvent, TextMessageStartEvent

    yield TextMessageStartEvent(message_id="m", role="assistant")
    yield TextMessageEndEvent(message_id="m")
    yield ReasoningEncryptedValueEvent(
        subtype="message", entity_id="m", encrypted_value="opaque", encrypted_value_type="vendor"
    )


@pytest.mark.parametrize(
    ("declared", "version", "has_type"), [("1.1", "1.1", True), ("1.0", "1.0", False), (..., "1.1", False)]
)
@pytest.mark.parametrize("more", ["", "&compact=true"])
def test_a_reader_receives_the_version_it_declared_on_every_route(
    declared: Any, version: str, has_type: bool, more: str
) -> None:
    """VER-9, VER-11: to a consumer of 1.0 the stream is a stream of 1.0; without a version it is for 0.x (VER-8)."""
    notices: list[Any] = []
    with serving(App(encrypting, warn=notices.append)) as server:
        events = server.events(protocolVersion=declared)
        assert events[0]["protocolVersion"] == version
        assert ("encryptedValueType" in events[3]) is has_type
        assert events[3]["encryptedValue"] == "opaque"
        query = "?" + more if declared is ... else f"?protocolVersion={declared}{more}"
        for path in ("/threads/thread/events", "/threads/thread/runs/run/events"):
            with server.stream("GET", path + query, None) as stream:
                assert stream.rest() == events
    assert {notice.rule for notice in notices} == (set() if has_type else {"VER-16"})


def test_a_cut_stream_goes_on_in_its_version() -> None:
    with serving(App(encrypting)) as server:
        events = server.events(protocolVersion="1.0")
        with server.stream("GET", "/threads/thread/events?protocolVersion=1.0&after=1") as stream:
            assert stream.rest() == events[1:]


@pytest.mark.parametrize(
    ("declared", "rule"),
    [("1.2", "VER-5"), ("2.0", "VER-5"), ("1.10", "VER-5"), ("draft", "VER-4"), ("1.0.0", "VER-4")],
)
def test_a_newer_or_unknown_version_is_served_with_ours_and_a_notice(declared: str, rule: str) -> None:
    """VER-3, VER-4, VER-5."""
    notices: list[Any] = []
    with serving(App(encrypting, warn=notices.append)) as server:
        events = server.events(protocolVersion=declared)
        assert (events[0]["protocolVersion"], events[3]["encryptedValueType"]) == ("1.1", "vendor")
        assert [(notice.rule, notice.path) for notice in notices] == [(rule, "/protocolVersion")]
        with server.stream("GET", f"/threads/thread/events?protocolVersion={declared}") as stream:
            assert stream.rest() == events
        assert server.post("/connect", json=run_input(run_id="other", protocolVersion=declared)).status_code == 200
    assert [notice.rule for notice in notices if notice.rule.startswith("VER")] == [rule] * 3


def test_the_input_is_echoed_if_the_app_says_so() -> None:
    """IN-2."""
    with serving(App(talker, sends=Sends(echo_input=True))) as server:
        started = server.events(state={"a": 1})[0]
        assert started["input"]["state"] == {"a": 1}
    with serving(App(talker)) as server:
        assert "input" not in server.events(state={"a": 1})[0]


def test_a_slow_reader_neither_stalls_the_run_nor_misses_anything(store: Any) -> None:
    count = 12_000  # more than the kernel buffers

    async def agent(run: Any) -> Any:
        for i in range(count):
            yield f"{i} " + "x" * 1000

    with serving(App(agent, store=store)) as server:
        host, port = server.url.removeprefix("http://").split(":")
        with socket.create_connection((host, int(port))) as slow:
            content = json.dumps(run_input()).encode()
            head = f"POST / HTTP/1.1\r\nHost: 127.0.0.1\r\nConnection: close\r\nContent-Length: {len(content)}\r\n"
            slow.sendall(head.encode() + b"Content-Type: application/json\r\n\r\n" + content)
            wait_until(lambda: server.get("/threads/thread/runs/run").status_code == 200)
            wait_until(lambda: server.status_of("thread", "run") == "success")
            pieces: list[bytes] = []
            while piece := slow.recv(1 << 20):
                pieces.append(piece)
            received = b"".join(pieces)
        assert [int(number) for number in re.findall(rb"(\d+) x{1000}", received)] == list(range(count))
        assert b"RUN_FINISHED" in received


def test_many_open_streams_on_one_process_all_end_with_their_runs() -> None:
    gate = Gate()

    async def agent(run: Any) -> None:
        await gate.wait()
        await run.say(run.thread_id)

    count = 250
    with serving(App(agent)) as server:
        host, port = server.url.removeprefix("http://").split(":")
        held: list[socket.socket] = []
        for i in range(count):
            connection = socket.create_connection((host, int(port)))
            content = json.dumps(run_input(f"thread-{i % 50}", f"run-{i % 50}")).encode()
            head = f"POST / HTTP/1.1\r\nHost: 127.0.0.1\r\nConnection: close\r\nContent-Length: {len(content)}\r\n"
            connection.sendall(head.encode() + b"Content-Type: application/json\r\n\r\n" + content)
            held.append(connection)
        for connection in held:
            assert b"200 OK" in connection.recv(65536)
        assert server.get("/healthz").status_code == 200
        gate.open()
        for i, connection in enumerate(held):
            received = b""
            while piece := connection.recv(65536):
                received += piece
            connection.close()
            assert f'"delta":"thread-{i % 50}"'.encode() in received
            assert b"RUN_FINISHED" in received


@pytest.mark.anyio
@pytest.mark.parametrize("is_used_again", [False, True])
async def test_a_thread_that_is_deleted_right_after_its_run_is_not_reported_as_failed(
    store: Any, is_used_again: bool
) -> None:
    async def agent(run: Any) -> Any:
        for _ in range(3):
            yield "x" * 2_000_000

    sent, goes_on = bytearray(), asyncio.Event()

    async def send(message: Any) -> None:
        sent.extend(message.get("body", b""))
        if b"RUN_STARTED" in sent:
            await goes_on.wait()  # the reader stalls

    async def receive() -> Any:
        return requests.pop() if requests else await asyncio.Event().wait()

    async with App(agent, store=store, allow_anonymous=True) as app:
        body = json.dumps(run_input("thread", "run")).encode()
        requests = [{"type": "http.request", "body": body, "more_body": False}]
        headers = [(b"host", b"localhost"), (b"content-type", b"application/json")]
        scope = {
            "type": "http",
            "method": "POST",
            "path": "/",
            "headers": headers,
            "query_string": b"",
            "root_path": "",
        }
        reading = asyncio.create_task(app(scope, receive, send))

        service: Any = app._service
        await wait_until_async(lambda: b"RUN_STARTED" in sent and not service.runs.live)
        await app.store.delete("anonymous", ThreadTarget("thread"))
        if is_used_again:
            again = Reader(app)
            await again.request("POST", "/", body.replace(b'"run"', b'"next"'), content_type="application/json")
        goes_on.set()
        await asyncio.wait_for(reading, DEADLINE)
    assert b"RUN_ERROR" not in sent


@pytest.mark.anyio
async def test_a_stream_whose_last_write_is_blocked_ends_when_the_streams_close() -> None:
    """The server cancelled it later, and logged a traceback."""
    blocked = asyncio.Event()

    async def send(message: Any) -> None:
        if message["type"] == "http.response.body" and not message["more_body"]:
            blocked.set()
            await asyncio.Event().wait()  # the client does not read

    async def receive() -> Any:
        return await asyncio.Event().wait()

    streams = OpenStreams(heartbeat=60)
    service: Any = SimpleNamespace(
        store=MemoryStore(), streams=streams, loop=streams.loop, cancel_after=None, counts=None
    )
    stream = EventStream(service, CURRENT_SSE, "scope", "thread", opening=b"data: {}\n\n")
    sending = asyncio.create_task(stream({}, receive, send))
    await asyncio.wait_for(blocked.wait(), DEADLINE)
    assert not await streams.close(0, DEADLINE)  # its connection stays open: the server need not wait for it
    await asyncio.wait_for(sending, DEADLINE)


@pytest.mark.anyio
@pytest.mark.parametrize("error", [RuntimeError, OSError])
async def test_a_heartbeat_to_a_closed_connection_ends_the_stream(error: type[Exception]) -> None:
    """uvloop raises RuntimeError if the connection is closed; each stream logged a traceback."""
    agent = Held()
    bodies = iter([{"type": "http.request", "body": json.dumps(run_input()).encode()}])

    async def receive() -> Any:
        return next(bodies, None) or await asyncio.Event().wait()

    async def send(message: Any) -> None:
        if message.get("body") == CURRENT_SSE.heartbeat:
            raise error("the handler is closed")

    headers = [(b"host", b"localhost"), (b"content-type", b"application/json")]
    scope = {"type": "http", "method": "POST", "path": "/", "query_string": b"", "headers": headers}
    async with App(agent, heartbeat=0.02) as app:
        await asyncio.wait_for(app(scope, receive, send), DEADLINE)
        agent.gate("run").open()
