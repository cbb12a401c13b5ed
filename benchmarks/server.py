"""Serving runs next to FastAPI with the official encoder, as its quickstart shows it.

What counts is tokens: each is one delta of the agent. The peer sends each as an event of its own, and so do we with
``Sends(merge_deltas=False)``.

Each server runs in a process of its own; the load comes from another one, which reads raw bytes and looks at them
after the clock has stopped. ``python -m benchmarks.server serve KIND PORT FOLDER`` is the server.

Where one request is measured at a time, all servers are up at once and take turns in short rounds, each on a connection
that is kept: whatever else the machine does then, it does to all of them. All are on one core, with the client: else
the scheduler decides for each server whether a wake-up on another core is added to its times (some 50 us here, more
than a bare uvicorn takes). The client is a plain socket that is woken by the first event, not by the head before it,
since the time in which it is awake is time that the server has not.
"""

from __future__ import annotations

import asyncio
import json
import os
import socket
import sqlite3
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import AsyncIterator, Generator, Sequence
from contextlib import ExitStack, closing, contextmanager
from pathlib import Path
from typing import Any

RUNS = 50
DELTAS = 2000
FILLING_RUNS = 1500
WARM_STREAMS = 800
IDLE_STREAMS = 300
IDLE_ROUNDS = 40
IDLE_RUNS = 25
ROUNDS = 2
LOADS = 3
STORES = ("memory", "sqlite")
KINDS = ("peer", *STORES)
PEER = "FastAPI + EventEncoder"
HERE = Path(__file__).parent.parent
DSN = "AGUILA_BENCH_DSN"
"""The environment variable with the store of servers of the kind "postgres"."""


# The servers


def agent_app(kind: str, folder: str) -> Any:
    from aguila import App
    from aguila.server import Limits

    async def agent(run: Any) -> Any:
        asked: dict[str, Any] = run.input.forwarded_props or {}
        if asked.get("idle"):
            await asyncio.Event().wait()
        pause = asked.get("yielding", False)
        for i in range(asked.get("deltas", 1)):
            yield f"word{i} "
            if pause:
                await asyncio.sleep(0)

    return App(
        agent,
        store=os.environ[DSN] if kind == "postgres" else f"{folder}/threads.db" if kind.startswith("sqlite") else None,
        limits=Limits(runs_per_scope=10_000),
    )


def peer_app() -> Any:
    from ag_ui.core import (
        EventType,
        RunAgentInput,
        RunFinishedEvent,
        RunStartedEvent,
        TextMessageContentEvent,
        TextMessageEndEvent,
        TextMessageStartEvent,
    )
    from ag_ui.encoder import EventEncoder
    from fastapi import FastAPI, Request
    from fastapi.responses import StreamingResponse

    app = FastAPI()

    async def endpoint(input_data: RunAgentInput, request: Request) -> StreamingResponse:
        encoder = EventEncoder(accept=request.headers.get("accept", ""))
        asked: dict[str, Any] = input_data.forwarded_props or {}

        async def events() -> AsyncIterator[str]:
            thread_id, run_id = input_data.thread_id, input_data.run_id
            yield encoder.encode(RunStartedEvent(type=EventType.RUN_STARTED, thread_id=thread_id, run_id=run_id))
            if asked.get("idle"):
                await asyncio.Event().wait()
            start = TextMessageStartEvent(type=EventType.TEXT_MESSAGE_START, message_id="m", role="assistant")
            yield encoder.encode(start)
            pause = asked.get("yielding", False)
            for i in range(asked.get("deltas", 1)):
                yield encoder.encode(
                    TextMessageContentEvent(type=EventType.TEXT_MESSAGE_CONTENT, message_id="m", delta=f"word{i} ")
                )
                if pause:
                    await asyncio.sleep(0)
            yield encoder.encode(TextMessageEndEvent(type=EventType.TEXT_MESSAGE_END, message_id="m"))
            yield encoder.encode(RunFinishedEvent(type=EventType.RUN_FINISHED, thread_id=thread_id, run_id=run_id))

        return StreamingResponse(events(), media_type=encoder.get_content_type())

    endpoint.__annotations__.update(input_data=RunAgentInput, request=Request)
    app.post("/")(endpoint)
    return app


def serve(kind: str, port: int, folder: str) -> None:
    import uvicorn

    app = peer_app() if kind == "peer" else agent_app(kind, folder)
    # A connection is kept while the others have their turns, however long that takes on a busy machine.
    uvicorn.run(app, host="127.0.0.1", port=port, log_level="error", access_log=False, timeout_keep_alive=60)


@contextmanager
def server(kind: str) -> Generator[tuple[int, int], None, None]:
    """The port and the process id of a fresh server."""
    with tempfile.TemporaryDirectory() as folder, server_in(kind, folder) as started:
        yield started


@contextmanager
def server_in(kind: str, folder: str) -> Generator[tuple[int, int], None, None]:
    """The same, with its store in this folder."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
    command = [sys.executable, "-m", "benchmarks.server", "serve", kind, str(port), folder]
    process = subprocess.Popen(command, cwd=HERE, stderr=subprocess.DEVNULL)
    try:
        deadline = time.monotonic() + 20
        while True:
            try:
                socket.create_connection(("127.0.0.1", port), 1).close()
                break
            except OSError:
                if time.monotonic() > deadline or process.poll() is not None:
                    raise RuntimeError(f"the {kind} server did not start") from None
                time.sleep(0.05)
        yield port, process.pid
    finally:
        process.kill()
        process.wait()


# The load


class Reader(asyncio.Protocol):
    """Sends one request and keeps what comes back."""

    def __init__(self, request: bytes) -> None:
        self.request = request
        self.pieces: list[bytes] = []
        self.first_at = 0.0
        self.sent_at = 0.0
        self.began: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self.done: asyncio.Future[None] = asyncio.get_running_loop().create_future()

    def connection_made(self, transport: Any) -> None:
        self.sent_at = time.perf_counter()
        transport.write(self.request)

    def data_received(self, data: bytes) -> None:
        self.pieces.append(data)
        if not self.first_at and b"RUN_STARTED" in data:
            self.first_at = time.perf_counter()
            self.began.set_result(None)

    def connection_lost(self, exc: Exception | None) -> None:
        self.done.set_result(None)

    @property
    def body(self) -> bytes:
        _, _, rest = b"".join(self.pieces).partition(b"\r\n\r\n")
        pieces: list[bytes] = []
        while rest:
            size, _, rest = rest.partition(b"\r\n")
            length = int(size, 16)
            pieces.append(rest[:length])
            rest = rest[length + 2 :]
        return b"".join(pieces)


def request(number: int, keep: bool = False, **asked: Any) -> bytes:
    body = json.dumps(
        {
            # As current clients do. One that declares none gets the dialect of older ones, which costs a little more.
            "protocolVersion": "1.1",
            "threadId": f"thread-{number}",
            "runId": f"run-{number}",
            "messages": [{"id": "1", "role": "user", "content": "Hello"}],
            "state": {},
            "tools": [],
            "context": [],
            "forwardedProps": asked,
        }
    ).encode()
    head = (
        "POST / HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\nAccept: text/event-stream\r\n"
        f"Content-Length: {len(body)}\r\n" + ("\r\n" if keep else "Connection: close\r\n\r\n")
    )
    return head.encode() + body


async def stream(port: int, number: int, **asked: Any) -> Reader:
    _, reader = await asyncio.get_running_loop().create_connection(
        lambda: Reader(request(number, **asked)), "127.0.0.1", port
    )
    return reader


async def load(ports: Sequence[int], yielding: bool, base: int) -> dict[str, Any]:
    """Start all runs at once, spread over the ports."""
    began = time.perf_counter()
    readers = await asyncio.gather(
        *(stream(ports[i % len(ports)], base + i, deltas=DELTAS, yielding=yielding) for i in range(RUNS))
    )
    await asyncio.gather(*(reader.done for reader in readers))
    seconds = time.perf_counter() - began
    from aguila.codec.sse import SSEDecoder
    from aguila.stream import consume

    size = 0
    for reader in readers:
        size += len(reader.body)
        conversation = consume(SSEDecoder().feed(reader.body))
        if conversation.messages[-1].content != "".join(f"word{i} " for i in range(DELTAS)):
            raise RuntimeError("a stream did not bring what the agent said")
    firsts = sorted(reader.first_at - reader.sent_at for reader in readers)
    tokens = RUNS * DELTAS
    return {"rate": tokens / seconds, "p99": firsts[-1], "bytes": size / tokens}


class Caller:
    """A client of one server that measures how long its first event takes."""

    def __init__(self, port: int) -> None:
        self._socket = socket.create_connection(("127.0.0.1", port))
        self._head = 1  # bytes; known after the first answer
        self.seconds: list[float] = []

    def call(self, number: int) -> None:
        body = request(number, keep=True, deltas=1)
        self._socket.setsockopt(socket.SOL_SOCKET, socket.SO_RCVLOWAT, self._head + 1)
        began = time.perf_counter()
        self._socket.sendall(body)
        answer = self._socket.recv(65536)
        while b"RUN_STARTED" not in answer:  # a loaded machine may wake it for less
            answer += self._more()
        seconds = time.perf_counter() - began
        if self._head > 1:
            self.seconds.append(seconds)
        while not answer.endswith(b"\r\n0\r\n\r\n"):
            answer += self._more()
        self._head = answer.index(b"\r\n\r\n") + 4

    def _more(self) -> bytes:
        self._socket.setsockopt(socket.SOL_SOCKET, socket.SO_RCVLOWAT, 1)
        more = self._socket.recv(65536)
        if not more:
            raise RuntimeError("the answer was cut off")
        return more


@contextmanager
def on_one_core() -> Generator[None, None, None]:
    """Keep this process, and those it starts meanwhile, on a core, where the platform can."""
    if not hasattr(os, "sched_setaffinity"):
        yield
        return
    cores = os.sched_getaffinity(0)
    os.sched_setaffinity(0, {min(cores)})
    try:
        yield
    finally:
        os.sched_setaffinity(0, cores)


def idle_firsts() -> dict[str, float]:
    """The median of the first event of each server while it has nothing else to do."""
    with on_one_core(), ExitStack() as stack:
        callers = {kind: Caller(stack.enter_context(server(kind))[0]) for kind in ("peer", *STORES)}
        number = 0
        for turn in range(IDLE_ROUNDS + 4):
            for caller in callers.values():
                if turn == 4:  # the rest was to warm up
                    caller.seconds.clear()
                for _ in range(IDLE_RUNS):
                    number += 1
                    caller.call(number)
        return {kind: statistics.median(caller.seconds) for kind, caller in callers.items()}


def resident(pid: int) -> int:
    pages = int(Path(f"/proc/{pid}/statm").read_text().split()[1])
    return pages * os.sysconf("SC_PAGE_SIZE")


async def idle_memory(port: int, pid: int, base: int) -> float:
    # What is loaded once is not counted: modules, and the page cache of a database. Nor is memory that the start of
    # the server has left unused, which lasts for hundreds of streams.
    for first in range(0, FILLING_RUNS, RUNS):
        ended = [await stream(port, base + 10_000 + first + i) for i in range(RUNS)]
        await asyncio.gather(*(reader.done for reader in ended))
    held = [await stream(port, base + i, idle=True) for i in range(WARM_STREAMS)]
    await asyncio.gather(*(reader.began for reader in held))
    before = resident(pid)
    more = [await stream(port, base + 1000 + i, idle=True) for i in range(IDLE_STREAMS)]
    await asyncio.gather(*(reader.began for reader in more))
    return (resident(pid) - before) / IDLE_STREAMS / 1024


def measure(kind: str, what: str) -> Any:
    """Have another process put load on a server of this kind."""
    with tempfile.TemporaryDirectory() as folder, server_in(kind, folder) as (port, pid):
        found = load_on(what, [port], pid)
        if what != "memory":
            found["stored"] = stored(Path(folder, "threads.db"))
        return found


def load_on(what: str, ports: Sequence[int], pid: int = 0) -> Any:
    """Have another process put load on servers."""
    command = [sys.executable, "-m", "benchmarks.server", "load", what, ",".join(map(str, ports)), str(pid)]
    done = subprocess.run(command, cwd=HERE, capture_output=True, text=True, timeout=300)
    if done.returncode:
        raise RuntimeError(done.stderr)
    return json.loads(done.stdout)


def stored(file: Path) -> dict[str, float] | None:
    """The rows, events and bytes that the log has for each token; None without a file."""
    if not file.exists():
        return None
    with closing(sqlite3.connect(file)) as db:
        # The lower half of "place" is the number of the row's last event.
        query = "SELECT count(*), sum((place & 0xffffffff) - first + 1), sum(length(events)) FROM log"
        rows, events, size = db.execute(query).fetchone()
    tokens = LOADS * RUNS * DELTAS
    return {"rows": rows / tokens, "events": events / tokens, "bytes": size / tokens}


def run_load(what: str, ports: Sequence[int], pid: int) -> Any:
    async def run() -> Any:
        if what == "memory":
            return await idle_memory(ports[0], pid, 0)
        return best([await load(ports, what == "yielding", 1000 * i) for i in range(LOADS)])

    import uvloop  # the load must not be what is measured

    return uvloop.run(run())


def best(found: list[dict[str, Any]]) -> dict[str, Any]:
    rate, p99 = max(one["rate"] for one in found), min(one["p99"] for one in found)
    return {**found[-1], "rate": rate, "p99": p99}


def measure_all() -> dict[str, dict[str, Any]]:
    """The best of some rounds in which the servers take turns."""
    found: dict[str, dict[str, Any]] = {kind: {} for kind in KINDS}
    for kind, seconds in idle_firsts().items():
        found[kind]["idle"] = seconds
    for _ in range(ROUNDS):
        for what in ("hot", "yielding", "memory"):
            for kind in KINDS:
                one: Any = measure(kind, what)
                before: Any = found[kind].get(what)
                if before is not None:
                    one = min(one, before) if what == "memory" else best([before, one])
                found[kind][what] = one
    return found


FLOORS = {"memory": (6, 4), "sqlite": (4, 3)}
"""The ratios for a hot source, and for one that yields to the event loop after each token."""
FIRST_EVENT_FLOORS = {"memory": 1.3, "sqlite": 0.8}


def rows() -> list[dict[str, Any]]:
    measured = measure_all()
    peer = measured["peer"]
    found: list[dict[str, Any]] = []
    for kind, floors in FLOORS.items():
        ours = measured[kind]
        for what, floor in zip(("hot", "yielding"), floors, strict=True):
            found.append(
                {
                    "name": f"serve {RUNS} runs of {DELTAS:,} tokens, {kind}, {what} source",
                    "ours": ours[what]["rate"],
                    "peer": peer[what]["rate"],
                    "peer_name": PEER,
                    "unit": "tokens/s",
                    "floor": floor,
                }
            )
            sent = f"bytes sent for each token of these, {kind}, {what} source (peer {peer[what]['bytes']:.0f})"
            found.append({"name": sent, "value": ours[what]["bytes"], "unit": "bytes"})
            if ours[what]["stored"] is not None:
                for unit, value in ours[what]["stored"].items():
                    name = f"{unit} stored for each token of these, {kind}, {what} source"
                    found.append({"name": name, "value": value, "unit": unit})
            slowest = f"slowest first event of these, {kind}, {what} source (peer {peer[what]['p99'] * 1000:.0f} ms)"
            found.append({"name": slowest, "value": ours[what]["p99"] * 1000, "unit": "ms", "most": 50})
        found.append(
            {
                "name": f"first event, idle server, {kind}: how many a second",
                "ours": 1 / ours["idle"],
                "peer": 1 / peer["idle"],
                "peer_name": PEER,
                "unit": "/s",
                "floor": FIRST_EVENT_FLOORS[kind],
            }
        )
        found.append(
            {
                "name": f"idle open streams per MiB, {kind}",
                "ours": 1024 / ours["memory"],
                "peer": 1024 / peer["memory"],
                "peer_name": PEER,
                "unit": "/MiB",
                "floor": 1,
            }
        )
    return found


if __name__ == "__main__":
    if sys.argv[1] == "serve":
        serve(sys.argv[2], int(sys.argv[3]), sys.argv[4])
    else:
        print(json.dumps(run_load(sys.argv[2], [int(port) for port in sys.argv[3].split(",")], int(sys.argv[4]))))
