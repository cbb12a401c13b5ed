"""Requests for one run share its place: only the first needs capacity."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
from serving import run_input

from aguila import App
from aguila.errors import StoreUnavailable
from aguila.server import Limits
from aguila.store import MemoryStore, SQLiteStore

pytestmark = pytest.mark.anyio

SCOPE: Any = {
    "type": "http", "method": "POST", "path": "/", "raw_path": b"/", "query_string": b"",
    "headers": [(b"content-type", b"application/json"), (b"host", b"localhost")],
}  # fmt: skip

DEADLINE = 30.0


class Gate:
    """Holds calls of ``begin`` until it is opened. With ``fails`` the first of them fails then.

    The agents of the runs that have begun wait for ``finish``.
    """

    def __init__(self) -> None:
        self.reached = asyncio.Event()
        self.opened = asyncio.Event()
        self.finish = asyncio.Event()
        self.fails = False
        self.calls = 0

    async def pass_through(self) -> None:
        self.calls += 1
        self.reached.set()
        await self.opened.wait()
        if self.fails:
            self.fails = False
            raise StoreUnavailable("the disk is full")


class GatedMemoryStore(MemoryStore):
    def __init__(self, gate: Gate) -> None:
        super().__init__()
        self.gate = gate

    async def begin(self, *values: Any, **options: Any) -> Any:
        await self.gate.pass_through()
        return await super().begin(*values, **options)


class GatedSQLiteStore(SQLiteStore):
    def __init__(self, path: Path, gate: Gate) -> None:
        super().__init__(path)
        self.gate = gate

    async def begin(self, *values: Any, **options: Any) -> Any:
        await self.gate.pass_through()
        return await super().begin(*values, **options)


class Call:
    """A request to the app in this process. The client disconnects when the response has ended."""

    def __init__(self, app: App, **members: Any) -> None:
        self.status = 0
        self.body = b""
        self.has_body_been_read = asyncio.Event()
        self.is_answered = asyncio.Event()
        self._app = app
        self._request = json.dumps(run_input(**members)).encode()
        self._ended = asyncio.Event()
        self.task = asyncio.create_task(self._run())

    @property
    def types(self) -> list[str]:
        """The types of the events that were received."""
        lines = [line for line in self.body.splitlines() if line.startswith(b"data: ")]
        return [json.loads(line[6:])["type"] for line in lines]

    @property
    def code(self) -> str:
        """The code of the error response."""
        return json.loads(self.body)["error"]["code"]

    async def _run(self) -> None:
        await self._app(dict(SCOPE), self._receive, self._send)

    async def _receive(self) -> Any:
        if not self.has_body_been_read.is_set():
            self.has_body_been_read.set()
            return {"type": "http.request", "body": self._request}
        await self._ended.wait()
        return {"type": "http.disconnect"}

    async def _send(self, message: Any) -> None:
        self.status = message.get("status", self.status)
        self.is_answered.set()
        self.body += message.get("body", b"")
        if message["type"] == "http.response.body" and not message.get("more_body", False):
            self._ended.set()


async def finish(*calls: Call) -> None:
    async with asyncio.timeout(DEADLINE):
        await asyncio.gather(*(call.task for call in calls))


async def finish_run(gate: Gate, *calls: Call) -> None:
    """Let the runs begin, and end when all calls are attached."""
    gate.opened.set()
    async with asyncio.timeout(DEADLINE):
        for call in calls:
            await call.is_answered.wait()
    gate.finish.set()
    await finish(*calls)


@asynccontextmanager
async def serving_gated(kind: str, tmp_path: Path, **options: Any) -> AsyncIterator[tuple[App, Gate]]:
    """Serve an app with room for one run, whose store begins no run before the gate is open."""
    gate = Gate()

    async def agent(run: Any) -> Any:
        yield "Hello"
        await gate.finish.wait()

    store = GatedMemoryStore(gate) if kind == "memory" else GatedSQLiteStore(tmp_path / "threads.db", gate)
    async with App(agent, store=store, limits=Limits(runs_per_scope=1), **options) as app:
        yield app, gate


@pytest.mark.parametrize("busy", ["auto", "queue"])
@pytest.mark.parametrize("kind", ["memory", "sqlite"])
async def test_a_request_for_a_run_that_is_beginning_waits_and_attaches(kind: str, busy: str, tmp_path: Path) -> None:
    async with serving_gated(kind, tmp_path, busy=busy) as (app, gate):
        first = Call(app)
        await gate.reached.wait()
        others = [Call(app) for _ in range(3)]
        refused = Call(app, thread_id="other", run_id="other")
        await finish(refused)  # the others have read their bodies before it
        assert (refused.status, refused.code) == (429, "too_many_runs")
        assert [call.task.done() for call in others] == [False, False, False]
        await finish_run(gate, first, *others)
        assert [call.status for call in (first, *others)] == [200] * 4
        assert all(call.types == first.types and call.types[-1] == "RUN_FINISHED" for call in others)
        assert gate.calls == 1
        assert (await app.store.thread("anonymous", "thread")).summary.runs == 1


@pytest.mark.parametrize("kind", ["memory", "sqlite"])
async def test_if_the_first_request_cannot_begin_its_run_a_waiting_one_does(kind: str, tmp_path: Path) -> None:
    async with serving_gated(kind, tmp_path) as (app, gate):
        gate.fails = True
        first = Call(app)
        await gate.reached.wait()
        second, third = Call(app), Call(app)
        refused = Call(app, thread_id="other", run_id="other")
        await finish(refused)
        await finish_run(gate, first, second, third)
        assert (first.status, first.code) == (503, "store_unavailable")
        assert (second.status, third.status) == (200, 200)
        assert second.types == third.types
        assert gate.calls == 2


async def test_a_run_that_begins_after_its_request_was_cancelled_can_be_attached_to(tmp_path: Path) -> None:
    for busy in ("auto", "queue"):
        async with serving_gated("memory", tmp_path, busy=busy) as (app, gate):
            first = Call(app)
            await gate.reached.wait()
            second = Call(app)
            await second.has_body_been_read.wait()
            first.task.cancel()
            with pytest.raises(asyncio.CancelledError):
                await first.task
            third = Call(app)
            refused = Call(app, thread_id="other", run_id="other")
            await finish(refused)
            assert refused.status == 429
            await finish_run(gate, second, third)
            assert (second.status, third.status) == (200, 200)
            assert second.types[-1] == "RUN_FINISHED"
            assert gate.calls == 1
