"""Long threads: a client that sends its whole history with every run, next to one whose history the server keeps.

Requests go over HTTP to a server in this process. A time is the processor time of both sides, the least of several.
A thread is read and joined as a new process would: what earlier servers left is collected first. Otherwise the garbage
collector would do that during some of the requests, at the same ones in each round, for up to 100 ms. The client reads
a body in pieces and drops them. A buffer of 8 MB costs it 25 ms of page faults, or none if the process has the memory.
``python -m benchmarks.long_threads [turns]`` prints the figures.
"""

from __future__ import annotations

import asyncio
import gc
import sqlite3
import sys
import tempfile
import threading
import time
from collections.abc import Generator
from contextlib import AbstractContextManager, closing, contextmanager
from http.client import HTTPConnection
from pathlib import Path
from random import Random
from typing import Any

import msgspec
import uvicorn

from aguila import App
from aguila.codec import encode
from aguila.protocol import (
    AssistantMessage,
    ContentPart,
    DataSource,
    ImagePart,
    Message,
    RunAgentInput,
    TextPart,
    UserMessage,
)
from aguila.server.config.options import HistoryMode
from aguila.store import MemoryStore, SQLiteStore, Store, ThreadFilter

TURNS = 400
LONG = 2_000
IMAGE_TURNS = 50
ANSWER = "A few words of an answer, again and again. " * 96  # 4 KB
CHUNK = 64
ROUNDS = 16
PIECE = 1 << 16


async def agent(run: Any) -> Any:
    for at in range(0, len(ANSWER), CHUNK):
        yield ANSWER[at : at + CHUNK]


class Figures(msgspec.Struct, kw_only=True):
    """What a thread costs: the bytes of its file, and seconds of processor time."""

    file: float
    read: float
    connect: float
    first_event: float
    early_first_event: float
    """At the 20th turn."""


@contextmanager
def serving(store: Store, history: HistoryMode) -> Generator[Client]:
    """Serve the agent on a store, as a new process would."""
    app = App(agent, store=store, history=history)
    server = uvicorn.Server(uvicorn.Config(app, port=0, log_level="error"))
    thread = threading.Thread(target=server.run)
    thread.start()
    while not server.started:
        time.sleep(0.01)
    try:
        yield Client(server.servers[0].sockets[0].getsockname()[1], history)
    finally:
        server.should_exit = True
        thread.join()


class Client:
    """Sends requests and measures them."""

    def __init__(self, port: int, history: HistoryMode) -> None:
        self._connection = HTTPConnection("127.0.0.1", port)
        self._history = history
        self._messages: list[Message] = []
        self._turns = 0

    def call(self, method: str, path: str, body: bytes | None = None) -> tuple[float, float, bytes]:
        """Send a request; return the seconds until the first byte and until the end, and the start of the body."""
        headers = {} if body is None else {"content-type": "application/json"}
        began = time.process_time()
        self._connection.request(method, path, body, headers)
        response = self._connection.getresponse()
        start = response.read1()
        first = time.process_time() - began
        start += response.read(PIECE)
        while response.read(PIECE):
            pass
        return first, time.process_time() - began, start

    def turn(self, *parts: ContentPart) -> float:
        """Run once, with parts besides the question; return the seconds until the first event."""
        self._turns += 1
        question = f"Question {self._turns}"
        new = UserMessage(id=f"u{self._turns}", content=[TextPart(text=question), *parts] if parts else question)
        self._messages.append(new)
        body = self.build_body(self._messages if self._history == "client" else [new])
        first, _, answer = self.call("POST", "/", body)
        start = answer.index(b'"messageId":"') + 13
        message_id = answer[start : answer.index(b'"', start)].decode()
        self._messages.append(AssistantMessage(id=message_id, content=ANSWER))
        return first

    def build_body(self, messages: list[Message]) -> bytes:
        """Return the body of the next run."""
        return encode(RunAgentInput(thread_id="t", run_id=f"r{self._turns}", messages=messages, protocol_version="1.1"))


class LongThread:
    """A thread that is built, then read and joined as new processes would."""

    def __init__(self, folder: Path, history: HistoryMode, turns: int) -> None:
        self._path = folder / f"{history}-{turns}.db"
        self._history: HistoryMode = history
        with self._serving() as client:
            self._turns = [client.turn() for _ in range(turns)]
        self._file = size_of_file(self._path)
        self._read: list[float] = []
        self._connect: list[float] = []

    def _serving(self) -> AbstractContextManager[Client]:
        return serving(SQLiteStore(self._path), self._history)

    def measure(self) -> None:
        """Read and join it once."""
        with self._serving() as client:
            gc.collect()
            self._read.append(client.call("GET", "/threads/t")[1])
        with self._serving() as client:
            gc.collect()
            self._connect.append(client.call("POST", "/connect", client.build_body([]))[1])

    @property
    def figures(self) -> Figures:
        return Figures(
            file=self._file,
            read=min(self._read),
            connect=min(self._connect),
            first_event=min(self._turns[-9:]),
            early_first_event=min(self._turns[15:24]),
        )


def build(*threads: tuple[HistoryMode, int]) -> list[Figures]:
    """Build threads, then measure them in turns: a slow moment of the machine falls on all of them."""
    with tempfile.TemporaryDirectory() as folder:
        built = [LongThread(Path(folder), history, turns) for history, turns in threads]
        for _ in range(ROUNDS):
            for thread in built:
                thread.measure()
        return [thread.figures for thread in built]


def size_of_file(path: Path) -> int:
    """Return the bytes of a file with its write-ahead log."""
    with closing(sqlite3.connect(path)) as db:
        db.execute("PRAGMA wal_checkpoint(TRUNCATE)")
    return path.stat().st_size


def store_image(kind: str) -> float:
    """Send an image of 5 MB with every turn; return the megabytes that a store then has."""
    image = ImagePart(source=DataSource(value=Random(1).randbytes(2_500_000).hex(), mime_type="image/png"))
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "threads.db"
        store = MemoryStore() if kind == "memory" else SQLiteStore(path)
        with serving(store, "client") as client:
            client.turn(image)
            for _ in range(IMAGE_TURNS - 1):
                client.turn()
            page = asyncio.run(store.threads("", ThreadFilter(limit=0, usage=True))) if kind == "memory" else None
        return (size_of_file(path) if page is None else page.total.bytes) / 1e6


def rows() -> list[dict[str, Any]]:
    """Return the rows of the table."""
    own, kept, half, long = build(("client", TURNS), ("server", TURNS), ("client", LONG // 2), ("client", LONG))
    found: list[dict[str, Any]] = []

    def add(name: str, value: float, most: float) -> None:
        found.append({"name": name, "value": value, "unit": "x", "most": most})

    name = f"{TURNS} turns, history resent, next to kept by the server"
    add(f"{name}: SQLite file", own.file / kept.file, 2)
    add(f"{name}: GET /threads/{{id}}", own.read / kept.read, 3)
    add(f"{name}: POST /connect", own.connect / kept.connect, 3)
    add(
        f"{TURNS} turns, history resent: first event, next to the 20th turn", own.first_event / own.early_first_event, 8
    )
    name = f"{LONG} turns, history resent, next to {LONG // 2}"
    add(f"{name}: SQLite file", long.file / half.file, 2.3)
    add(f"{name}: GET /threads/{{id}}", long.read / half.read, 2.3)
    add(f"{name}: POST /connect", long.connect / half.connect, 2.3)
    add(f"{name}: first event", long.first_event / half.first_event, 2.3)
    for kind in ("memory", "sqlite"):
        name = f"{IMAGE_TURNS} turns with an inline image of 5 MB, {kind}: stored"
        found.append({"name": name, "value": store_image(kind), "unit": "MB", "most": 12})
    return found


if __name__ == "__main__":
    count = int(sys.argv[1]) if len(sys.argv) > 1 else TURNS
    for figures in build(("client", count), ("server", count)):
        print(figures)
