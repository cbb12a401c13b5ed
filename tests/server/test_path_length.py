"""How many functions a run passes, on the server and in the client. ``pytest -s`` on this file prints the chains.

``CallPath`` says what counts. A run is a POST with a user message to an app with a memory store, whose agent yields
five tokens. An event in the client is a token, from the bytes of one read to the next read. If a change makes a path
shorter, lower its limit here.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from typing import Any

import pytest
from call_paths import CallPath
from in_process import Reader
from serving import run_input

from aguila import App
from aguila.client import AsyncClient

pytestmark = pytest.mark.anyio

# Functions and files, as they are today. A limit only goes down.
FIRST_BYTE = (32, 17)
WHOLE_RUN = (70, 28)
CLIENT_EVENT = (12, 7)

TOKENS = ["One ", "two ", "three ", "four ", "five."]
ROUNDS = 3
TURNS = 50


def check(what: str, path: CallPath, limit: tuple[int, int]) -> None:
    functions, files = path.size
    title = f"{what}: {functions} functions in {files} files (at most {limit[0]} in {limit[1]})"
    print(f"\n{title}\n{path.describe()}")  # pytest -s shows it
    assert functions <= limit[0], title
    assert files <= limit[1], title


# The server


async def agent(run: Any) -> AsyncIterator[str]:
    for token in TOKENS:
        yield token
        await asyncio.sleep(0)


class Measured(Reader):
    """A client that collects the calls until its first byte, and all."""

    def __init__(self, app: App) -> None:
        super().__init__(app)
        self.first = CallPath()
        self.whole = CallPath()

    async def send(self, message: Any) -> None:
        await super().send(message)
        if message.get("body") and not self.first.functions:
            self.first = self.whole.copy()

    async def post(self, run_id: str) -> None:
        messages = [{"id": "u", "role": "user", "content": "Count."}]
        body = json.dumps(run_input(thread_id=run_id, run_id=run_id, messages=messages)).encode()
        self.whole.start()
        try:
            assert await self.request("POST", "/", body, content_type="application/json") == 200
            for _ in range(TURNS):  # what the run does after its last byte
                await asyncio.sleep(0)
        finally:
            self.whole.stop()


async def measure() -> list[Measured]:
    """Run the agent some times: at the first time modules are imported, and timers may fire on a busy machine."""
    app = App(agent, store=":memory:")
    clients = [Measured(app) for _ in range(ROUNDS + 1)]
    for number, client in enumerate(clients):
        await client.post(f"run{number}")
    await app.close()
    return clients[1:]


async def test_a_run_reaches_its_first_byte_within_few_functions() -> None:
    shortest = min((client.first for client in await measure()), key=lambda path: path.size)
    check("To the first byte", shortest, FIRST_BYTE)


async def test_a_whole_run_passes_few_functions() -> None:
    shortest = min((client.whole for client in await measure()), key=lambda path: path.size)
    check("Whole run", shortest, WHOLE_RUN)


# The client


def frame(event: dict[str, Any]) -> bytes:
    return b"data: " + json.dumps(event).encode() + b"\n\n"


class Scripted:
    """A transport, and its response: one event per read. It collects the calls for the event in the middle."""

    status = 200
    headers = {"content-type": "text/event-stream"}  # noqa: RUF012

    def __init__(self) -> None:
        self.path = CallPath()
        ids = {"threadId": "thread", "runId": "run"}
        self._frames = [
            frame({"type": "RUN_STARTED", **ids}),
            frame({"type": "TEXT_MESSAGE_START", "messageId": "m", "role": "assistant"}),
            *(frame({"type": "TEXT_MESSAGE_CONTENT", "messageId": "m", "delta": token}) for token in TOKENS),
            frame({"type": "TEXT_MESSAGE_END", "messageId": "m"}),
            frame({"type": "RUN_FINISHED", **ids}),
        ]
        self._reads = 0

    async def send(self, request: Any) -> Scripted:
        return self

    async def read(self) -> bytes:
        self.path.stop()
        self._reads += 1
        if self._reads == 5:  # the third token
            self.path.start()
        await asyncio.sleep(0)
        return self._frames.pop(0) if self._frames else b""

    async def close(self) -> None:
        pass


async def test_an_event_becomes_part_of_a_message_within_few_functions() -> None:
    transport = Scripted()
    async with AsyncClient("http://agent.test", transport=transport) as client:
        thread = client.thread("thread")
        deltas: list[str] = []
        async for event in thread.run("Count.", run_id="run"):
            transport.path.stop()  # the event is delivered
            deltas += [event.delta] if hasattr(event, "delta") else []
    assert deltas == TOKENS
    check("One event in the client", transport.path, CLIENT_EVENT)
