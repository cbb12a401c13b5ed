"""Long threads: a client that sends its whole history with every run, next to one whose history the server keeps.

Each row is the peer's cost (``history="server"``, or half as many turns) as a multiple of ours, so more is better.
``python -m benchmarks.threads [turns]`` prints the figures.
"""

from __future__ import annotations

import asyncio
import sqlite3
import sys
import tempfile
import time
from contextlib import closing
from pathlib import Path
from typing import Any

import msgspec

from aguila import App
from aguila.codec import encode
from aguila.protocol import AssistantMessage, Message, RunAgentInput, UserMessage
from aguila.server.history.branch_reducer import HistoryMode
from aguila.store import MemoryStore, SQLiteStore, Store

TURNS = 400
LONG = 2_000
ANSWER = "A few words of an answer, again and again. " * 96  # 4 KB
CHUNK = 64


async def agent(run: Any) -> Any:
    for at in range(0, len(ANSWER), CHUNK):
        yield ANSWER[at : at + CHUNK]


class Figures(msgspec.Struct, kw_only=True):
    """What a thread costs: the bytes of its file, and seconds of CPU."""

    file: float
    read: float
    connect: float
    first_event: float
    early_first_event: float
    """At the 20th turn."""


class Client:
    """Sends requests to an app in this process and measures CPU time."""

    def __init__(self, app: App, history: HistoryMode) -> None:
        self._app = app
        self._history = history
        self._messages: list[Message] = []
        self._turns = 0

    async def call(self, method: str, path: str, body: bytes = b"") -> tuple[float, float, bytes]:
        """Send a request; return the CPU seconds until the first byte and until the end, and the body."""
        scope = {
            "type": "http", "asgi": {"version": "3.0"}, "http_version": "1.1", "method": method, "path": path,
            "raw_path": path.encode(), "query_string": b"", "root_path": "", "scheme": "http",
            "headers": [(b"host", b"localhost"), (b"content-type", b"application/json")],
            "client": ("127.0.0.1", 1), "server": ("localhost", 80),
        }  # fmt: skip
        sent = False
        first: float | None = None
        received: list[bytes] = []

        async def receive() -> dict[str, Any]:
            nonlocal sent
            if sent:
                await asyncio.Event().wait()
            sent = True
            return {"type": "http.request", "body": body, "more_body": False}

        async def send(message: dict[str, Any]) -> None:
            nonlocal first
            if message["type"] == "http.response.body" and message["body"]:
                first = time.process_time() - began if first is None else first
                received.append(message["body"])

        began = time.process_time()
        await self._app(scope, receive, send)  # type: ignore[arg-type]
        total = time.process_time() - began
        return (total if first is None else first), total, b"".join(received)

    async def turn(self) -> float:
        """Run once; return the CPU seconds until the first event."""
        self._turns += 1
        new = UserMessage(id=f"u{self._turns}", content=f"Question {self._turns}")
        self._messages.append(new)
        messages = self._messages if self._history == "client" else [new]
        body = encode(self.input(messages))
        first, _, answer = await self.call("POST", "/", body)
        start = answer.index(b'"messageId":"') + 13
        message_id = answer[start : answer.index(b'"', start)].decode()
        self._messages.append(AssistantMessage(id=message_id, content=ANSWER))
        return first

    def input(self, messages: list[Message]) -> RunAgentInput:
        """Return the input of the next run."""
        return RunAgentInput(thread_id="t", run_id=f"r{self._turns}", messages=messages, protocol_version="1.1")


async def measure(store: Store, history: HistoryMode, turns: int, path: Path | None) -> Figures:
    """Build a thread, then read and join it as a new process would."""
    await store.open()
    app = App(agent, store=store, history=history, coalesce=0.005)
    client = Client(app, history)
    times = [await client.turn() for _ in range(turns)]
    read: list[float] = []
    connect: list[float] = []
    for _ in range(5):
        for costs, method, route in ((read, "GET", "/threads/t"), (connect, "POST", "/connect")):
            fresh = Client(App(agent, store=store, history=history), history)  # has nothing cached
            body = encode(fresh.input([])) if method == "POST" else b""
            costs.append((await fresh.call(method, route, body))[1])
    await store.close()
    file = 0 if path is None else _size(path)
    return Figures(
        file=file,
        read=min(read),
        connect=min(connect),
        first_event=min(times[-9:]),
        early_first_event=min(times[15:24]),
    )


def _size(path: Path) -> int:
    """Return the bytes of a SQLite file whose write-ahead log is empty."""
    with closing(sqlite3.connect(path)) as db:
        db.execute("PRAGMA wal_checkpoint(TRUNCATE)")
    return path.stat().st_size


def build(history: HistoryMode, turns: int, *, is_durable: bool = True) -> Figures:
    """Measure a thread on SQLite, or in memory."""
    if not is_durable:
        return asyncio.run(measure(MemoryStore(max_bytes=1 << 30), history, turns, None))
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "threads.db"
        return asyncio.run(measure(SQLiteStore(path), history, turns, path))


def rows() -> list[dict[str, Any]]:
    """Return the rows of the table."""
    own, kept = build("client", TURNS), build("server", TURNS)
    half, long = build("client", LONG // 2), build("client", LONG)
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
    return found


if __name__ == "__main__":
    count = int(sys.argv[1]) if len(sys.argv) > 1 else TURNS
    for mode in ("client", "server"):
        print(mode, build(mode, count))
