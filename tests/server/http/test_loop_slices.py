"""Answers that cost much CPU time are made off the event loop: no callback of it takes long."""

from __future__ import annotations

import asyncio
import json
import subprocess
import sys
from typing import Any

import pytest
from cpu_bounds import allowed, frozen_heap
from in_process import Reader, Slices
from serving import run_input

from aguila import App
from aguila.protocol import TextMessageContentEvent, TextMessageEndEvent, TextMessageStartEvent
from aguila.store import MemoryStore, SQLiteStore

pytestmark = pytest.mark.anyio

MESSAGES = 4_000
MAX_SLICE = 0.05
"""Seconds of CPU time that the event loop's thread may use in one callback."""


async def many_messages(run: Any) -> Any:
    for i in range(MESSAGES):
        yield TextMessageStartEvent(message_id=f"m{i}", role="assistant")
        yield TextMessageContentEvent(message_id=f"m{i}", delta="hello")
        yield TextMessageEndEvent(message_id=f"m{i}")


@pytest.mark.parametrize("kind", ["memory", "sqlite"])
@pytest.mark.parametrize(
    "path", ["/threads/t/events?compact=true", "/threads/t/runs/r1/events?compact=true", "/threads/t"]
)
async def test_an_answer_about_thousands_of_messages_does_not_block_the_event_loop(
    tmp_path: Any, kind: str, path: str
) -> None:
    store = MemoryStore() if kind == "memory" else SQLiteStore(tmp_path / "threads.db")
    async with App(many_messages, store=store, allow_anonymous=True) as app:
        body = json.dumps(run_input("t", "r1")).encode()
        await Reader(app).request("POST", "/", body, content_type="application/json")
        slices, reader = Slices(), Reader(app)
        with frozen_heap():
            slices.start()
            assert await reader.request("GET", path) == 200
            slices.stop()
        assert reader.body.count(b'"hello"') == MESSAGES
    assert slices.longest < allowed(MAX_SLICE)


async def test_other_tasks_get_turns_while_a_long_log_is_sent() -> None:
    async with App(many_messages, store=MemoryStore(), allow_anonymous=True) as app:
        body = json.dumps(run_input("t", "r1")).encode()
        await Reader(app).request("POST", "/", body, content_type="application/json")
        reader = Reader(app)
        request = asyncio.create_task(reader.request("GET", "/threads/t/events"))
        turns = 0
        while not request.done():
            await asyncio.sleep(0)
            turns += bool(reader.messages) and not reader.is_complete
        assert reader.body.count(b'"hello"') == MESSAGES
    assert turns >= 3 * MESSAGES // 1024


async def test_other_tasks_get_turns_while_a_reader_resumes_at_the_end_of_a_long_run() -> None:
    """A reader that gets one text at a time needs what it has received before."""
    async with App(many_messages, store=MemoryStore(), allow_anonymous=True) as app:
        body = json.dumps(run_input("t", "r1")).encode()
        await Reader(app).request("POST", "/", body, content_type="application/json")
        last = (await app.store.thread("anonymous", "t")).summary.last
        reader = Reader(app)
        request = asyncio.create_task(reader.request("GET", f"/threads/t/runs/r1/events?after={last - 1}"))
        turns = 0
        while not request.done():
            await asyncio.sleep(0)
            turns += not reader.messages
        assert b"RUN_FINISHED" in reader.body
    assert turns >= MESSAGES // 1024


def test_an_app_imports_protobuf_before_the_first_request_that_needs_it() -> None:
    program = "import sys; from aguila import App; App(print); sys.exit('google.protobuf.message' not in sys.modules)"
    assert subprocess.run([sys.executable, "-c", program], check=False).returncode == 0
