"""A client stops reading a run that sends too much or takes too long."""

import json
import socket
import subprocess
import sys
import threading

import pytest
from builders import run_started_json
from scripted_server import Answer, ScriptedServer, frame
from waiting import DEADLINE

from aguila.client import Client, Reconnect
from aguila.errors import LimitExceeded, TransportFailed

CUSTOM = frame({"type": "CUSTOM", "name": "x", "value": 1})


def endless(piece: bytes):
    yield frame(run_started_json("t", "r"))
    while True:
        yield piece


def exceeded_by(twin, answer, **options) -> LimitExceeded:
    with ScriptedServer(answer) as server, pytest.raises(LimitExceeded) as caught:
        twin.result(twin.client(server.url, reconnect=None, **options).thread("t").run("x"))
    return caught.value


def test_the_events_of_a_run_are_limited(twin):
    error = exceeded_by(twin, Answer(endless(CUSTOM * 100)), max_events=1_000)
    assert error.limit == "max_events"
    assert "more than 1000 events; raise max_events" in str(error)


def test_the_bytes_of_a_run_are_limited_also_if_no_event_ever_comes(twin):
    assert exceeded_by(twin, Answer(endless(b": comment\n" * 1_000)), max_bytes=100_000).limit == "max_bytes"


def test_the_time_of_a_run_is_limited_also_if_nothing_comes(twin):
    answer = Answer([frame(run_started_json("t", "r")), threading.Event()])
    error = exceeded_by(twin, answer, max_seconds=0.2)
    assert error.limit == "max_seconds"


def test_the_time_of_a_run_is_limited_also_while_the_server_does_not_answer(twin):
    with socket.create_server(("127.0.0.1", 0)) as silent:
        run = twin.client(f"http://127.0.0.1:{silent.getsockname()[1]}", max_seconds=0.2).thread("t").run("x")
        with pytest.raises(LimitExceeded) as caught:
            twin.result(run)
    assert caught.value.limit == "max_seconds"
    assert caught.value.conversation is not None


@pytest.mark.parametrize("status", [200, 503])
def test_the_time_of_a_run_is_limited_also_between_two_attempts(twin, status):
    """``status`` is that of the first answer: a stream that breaks off, or a refusal that asks to wait."""
    pieces = [frame(run_started_json("r", "t"), 1)]
    answer = Answer(pieces, status=status, cut=status == 200, headers={} if status == 200 else {"Retry-After": "3000"})
    policy = Reconnect(attempts=3, initial=3000.0, longest=3000.0, patience=3000.0)
    with ScriptedServer(answer) as server, pytest.raises(LimitExceeded) as caught:
        twin.result(twin.client(server.url, reconnect=policy, max_seconds=0.5).thread("t").run("x", run_id="r"))
    assert caught.value.limit == "max_seconds"
    assert len(caught.value.conversation.runs) == (status == 200)


@pytest.mark.parametrize("status", [200, 500])
def test_the_time_of_a_document_or_a_refusal_is_limited(twin, status):
    answer = Answer([b" ", threading.Event()], status=status, content_type="application/json")
    with ScriptedServer(answer) as server, pytest.raises(LimitExceeded) as caught:
        twin.wait(twin.client(server.url, max_seconds=0.2).thread("t").refresh())
    assert caught.value.limit == "max_seconds"


@pytest.mark.parametrize("what", ["run", "document"])
def test_a_client_without_enough_memory_names_its_limits(twin, what):
    """In a process of its own, because the limit of its memory would hold for all other tests, too."""
    kind = "text/event-stream" if what == "run" else "application/json"
    answer = Answer(endless_event() if what == "run" else endless_document(), content_type=kind)
    with ScriptedServer(answer) as server:
        command = [sys.executable, "-c", OUT_OF_MEMORY, server.url, twin.name, what]
        done = subprocess.run(command, capture_output=True, text=True, timeout=DEADLINE)
    assert done.stdout.strip() == "max_bytes", done.stderr
    assert "lower max_bytes" in done.stderr


def endless_event():
    yield frame(run_started_json("r", "t"))
    yield b"data: "
    while True:
        yield b" " * 1_000_000


def endless_document():
    yield b'{"messages":['
    while True:
        yield b" " * 1_000_000


OUT_OF_MEMORY = """
import asyncio, resource, sys
from pathlib import Path
from aguila.client import AsyncClient, Client
from aguila.errors import LimitExceeded, TransportFailed

url, name, what = sys.argv[1:]
options = {"max_size": 1 << 40, "max_bytes": 1 << 40, "reconnect": None, "options": {"verify": False}}
pages = int(Path("/proc/self/statm").read_text().split()[0])
most = pages * resource.getpagesize() + (200 << 20)
resource.setrlimit(resource.RLIMIT_AS, (most, resource.RLIM_INFINITY))

def report(error):
    resource.setrlimit(resource.RLIMIT_AS, (resource.RLIM_INFINITY, resource.RLIM_INFINITY))
    print(error.limit)
    print(error, file=sys.stderr)

async def main():
    thread = AsyncClient(url, **options).thread("t")
    try:
        await (thread.run("x").result() if what == "run" else thread.refresh())
    except LimitExceeded as error:
        report(error)  # here, because asyncio needs memory for its end

if name == "async":
    asyncio.run(main())
else:
    thread = Client(url, **options).thread("t")
    try:
        thread.run("x").result() if what == "run" else thread.refresh()
    except LimitExceeded as error:
        report(error)
"""


class _OutOfMemory:
    """A transport whose library reports a lack of memory as a broken connection, as anyio does."""

    def send(self, request, timeout):
        try:
            raise OSError("read error") from MemoryError()
        except OSError as error:
            raise TransportFailed("read error") from error

    def close(self):
        pass


def test_a_lack_of_memory_that_breaks_the_connection_is_not_a_lost_connection():
    with pytest.raises(LimitExceeded, match="lower max_bytes") as caught:
        Client("http://127.0.0.1:9", transport=_OutOfMemory()).thread("t").refresh()
    assert caught.value.limit == "max_bytes"


def test_the_bytes_of_a_document_are_limited(twin):
    answer = Answer([b'{"messages":[', *[b" " * 1_000] * 200], content_type="application/json")
    with ScriptedServer(answer) as server, pytest.raises(LimitExceeded) as caught:
        twin.wait(twin.client(server.url, max_bytes=100_000).thread("t").refresh())
    assert caught.value.limit == "max_bytes"


def test_the_state_of_a_thread_that_was_refreshed_is_limited_too(twin):
    document = {"threadId": "t", "messages": [], "state": {"x": "y" * 1_000}, "runs": [], "interrupts": []}
    copies = [{"op": "copy", "from": "", "path": f"/{i}"} for i in range(14)]
    ids = {"threadId": "t", "runId": "r"}
    events = [
        {"type": "RUN_STARTED", **ids},
        {"type": "STATE_DELTA", "delta": copies},
        {"type": "RUN_FINISHED", **ids},
    ]
    notices = []
    answers = [
        Answer([json.dumps(document).encode()], content_type="application/json"),
        Answer([frame(event) for event in events]),
    ]
    with ScriptedServer(*answers) as server:
        client = twin.client(server.url, reconnect=None, max_size=100_000, warn=notices.append)
        thread = client.thread("t")
        twin.wait(thread.refresh())
        assert thread.state == {"x": "y" * 1_000}
        twin.result(thread.run("x", run_id="r"))
    assert thread.state == {"x": "y" * 1_000}
    assert any("more than 100000 bytes" in notice.message for notice in notices)
