"""``aguila replay``: a recording as an agent, for our client and for our recorder."""

from __future__ import annotations

import asyncio
import json
import sys
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from pathlib import Path
from typing import Any

import pytest
from builders import run_finished_json, run_started_json, text_message_json
from ports import free_port
from processes.commands import Command
from processes.forked import aguila
from streams.every_event import every_event

from aguila.cli.convert import written
from aguila.cli.replay import Replay, runs_of
from aguila.client import AsyncClient, Client
from aguila.client.transports.asgi import ASGITransport
from aguila.codec import decode_event
from aguila.codec.notices import Notice
from aguila.errors import HTTPRejected, RunFailed
from aguila.stream import consume
from aguila.testing.recordings import RecordedEvent, RecordedStream, read_streams

pytestmark = pytest.mark.anyio


def ignored(notice: Notice) -> None:
    """Ignore a notice: recordings are replayed with their faults."""


@contextmanager
def replaying(folder: Path, *arguments: str) -> Iterator[Command]:
    port = free_port()
    command = [sys.executable, "-m", "aguila", "replay", *arguments, "--port", str(port)]
    server = Command(command, port, folder, "/healthz", {})
    try:
        yield server
    finally:
        server.stop()


def test_a_stream_of_every_event_type_comes_back_as_it_was(tmp_path: Path) -> None:
    for form, name in (("jsonl", "a.jsonl"), ("sse", "a.sse"), ("protobuf", "a.pb")):
        original = written(every_event(), form, ignored)  # type: ignore[arg-type]
        (tmp_path / name).write_bytes(original)
        with replaying(tmp_path, name, "--fast", "--verbatim") as server:
            kept: list[bytes] = []
            if form == "jsonl":  # several runs in plain lines: each is an answer of its own
                runs = sum(event.type == "RUN_STARTED" for event in every_event())
                done = [
                    aguila("record", server.url, "b.jsonl", "--thread", "t", "--append", folder=tmp_path)
                    for _ in range(runs)
                ]
                assert {one.returncode for one in done} == {0}
                assert aguila("record", server.url, "x.jsonl", "--thread", "t", folder=tmp_path).returncode == 2
                streams = read_streams((tmp_path / "b.jsonl").read_bytes(), "jsonl")
                assert len(streams) == runs
                kept = [event.data for stream in streams for event in stream.events]
            else:
                assert aguila("record", server.url, "c.jsonl", "--force", folder=tmp_path).returncode == 0
                kept = [event.data for event in read_streams((tmp_path / "c.jsonl").read_bytes(), "jsonl")[0].events]
            assert f" of {name} at {server.url}" in server.log
        expected = [event.data for event in read_streams(original, form)[0].events]  # type: ignore[arg-type]
        assert [decode_event(data) for data in kept] == [decode_event(data) for data in expected]


def test_our_client_makes_of_a_replay_what_it_would_make_of_the_agent(tmp_path: Path) -> None:
    (tmp_path / "a.sse").write_bytes(written(every_event(), "sse", ignored))
    expected = consume(every_event(), warn=ignored)
    for protobuf in (False, True):
        with (
            replaying(tmp_path, "a.sse", "--fast") as server,
            Client(server.url, protobuf=protobuf, warn=ignored) as client,
        ):
            thread = client.thread()
            with nullcontext() if expected.run_error is None else pytest.raises(RunFailed):
                thread.run().result()
            assert thread.state == expected.state
            # protobuf has no empty lists of tool calls; otherwise messages are the same
            assert [(m.id, m.role, m.content if hasattr(m, "content") else None) for m in thread.messages] == [
                (m.id, m.role, m.content if hasattr(m, "content") else None) for m in expected.messages
            ]


def recording(runs: int, *, ms: int = 0) -> bytes:
    lines: list[dict[str, Any]] = []
    for number in range(runs):
        run = f"recorded-{number}"
        lines.append({"ms": 0, "input": {"threadId": "old", "runId": run, "messages": []}})
        events = [
            run_started_json(run, "old"),
            *text_message_json(f"m{number}", f"Answer {number}."),
            run_finished_json(run, "old"),
        ]
        events[0]["input"] = {"threadId": "old", "runId": run, "messages": []}
        lines += [{"ms": ms * place, "event": event} for place, event in enumerate(events)]
    return b"".join([json.dumps(line).encode() + b"\n" for line in lines])


def app_for(data: bytes, **options: Any) -> Replay:
    return Replay(runs_of(read_streams(data, "jsonl"), "jsonl"), **options)


async def in_process(app: Replay, steps: Any) -> Any:
    async def main() -> Any:
        async with AsyncClient("http://replay.test", transport=ASGITransport(app, lifespan=False)) as client:
            return await steps(client)

    return await main()


async def test_each_thread_gets_the_runs_in_order_under_its_own_ids_and_then_none() -> None:
    async def steps(client: AsyncClient) -> None:
        for _ in range(2):
            thread = client.thread()
            events = [event async for event in thread.run("a", run_id="mine")]
            assert (events[0].thread_id, events[0].run_id) == (thread.id, "mine")
            assert (events[0].input.thread_id, events[0].input.run_id) == (thread.id, "mine")
            assert (events[-1].thread_id, events[-1].run_id) == (thread.id, "mine")
            assert (await thread.run("b")).text == "Answer 1."
            with pytest.raises(HTTPRejected, match=r"the whole recording \(2 runs\)") as refused:
                await thread.run("c")
            assert (refused.value.status, refused.value.code) == (404, "recording_ended")

    await in_process(app_for(recording(2), speed=0), steps)


async def test_verbatim_leaves_the_ids_alone() -> None:
    async def steps(client: AsyncClient) -> None:
        first, *_ = [event async for event in client.thread().run("a")]
        assert (first.thread_id, first.run_id) == ("old", "recorded-0")

    await in_process(app_for(recording(1), speed=0, verbatim=True), steps)


async def test_events_wait_for_their_time_unless_it_is_fast(monkeypatch: pytest.MonkeyPatch) -> None:
    async def main(speed: float) -> list[float]:
        waits: list[float] = []

        async def sleep(seconds: float) -> None:
            waits.append(seconds)

        monkeypatch.setattr("aguila.cli.replay.asyncio.sleep", sleep)
        monkeypatch.setattr(asyncio.get_running_loop(), "time", lambda: 1000.0)
        sent: list[Any] = []

        async def receive() -> Any:
            return {"type": "http.request", "body": b'{"threadId": "t", "runId": "r"}'}

        async def send(message: Any) -> None:
            sent.append(message)

        scope = {"type": "http", "method": "POST", "path": "/", "headers": []}
        await app_for(recording(1, ms=1000), speed=speed)(scope, receive, send)
        assert len([one for one in sent if one["type"] == "http.response.body"]) == 6
        return waits

    assert await main(1.0) == pytest.approx([0, 1, 2, 3, 4])
    assert await main(10.0) == pytest.approx([0, 0.1, 0.2, 0.3, 0.4])
    assert await main(0) == []


async def test_what_is_no_run_is_refused() -> None:
    async def ask(method: str, path: str, body: bytes) -> tuple[int, Any]:
        sent: list[Any] = []

        async def receive() -> Any:
            return {"type": "http.request", "body": body}

        async def send(message: Any) -> None:
            sent.append(message)

        scope = {"type": "http", "method": method, "path": path, "headers": []}
        await app_for(recording(1))(scope, receive, send)
        return sent[0]["status"], json.loads(sent[1]["body"])

    assert await ask("GET", "/healthz", b"") == (200, {"status": "ok"})
    assert (await ask("POST", "/connect", b"{}"))[0] == 404
    assert (await ask("GET", "/", b""))[0] == 404
    status, answer = await ask("POST", "/", b"{}")
    assert (status, answer["error"]["code"]) == (422, "invalid_input")


async def test_a_broken_stream_is_served_as_broken_as_it_was() -> None:
    stream = RecordedStream(events=[RecordedEvent(0, b"[DONE]"), RecordedEvent(1, b'{"type":"RUN_STARTED"')])
    from aguila.errors import ProtocolError

    async def steps(client: AsyncClient) -> None:
        with pytest.raises(ProtocolError, match="json"):
            await client.thread().run("a")

    await in_process(Replay([stream], speed=0), steps)


def test_what_cannot_be_replayed_is_said_so(tmp_path: Path) -> None:
    (tmp_path / "empty.jsonl").write_bytes(b"")
    for name, message in (("none.jsonl", b"cannot read"), ("empty.jsonl", b"empty.jsonl has no events")):
        done = aguila("replay", name, "--port", "0", folder=tmp_path)
        assert done.returncode == 2
        assert message in done.stderr
