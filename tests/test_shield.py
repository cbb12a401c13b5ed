"""A started run is driven to its end, even if the request that started it is cancelled."""

from __future__ import annotations

import asyncio
import contextlib
import json
from contextvars import ContextVar
from typing import Any

import pytest
from serving import run_input
from waiting import let_tasks_run

from aguila import App
from aguila.shield import run_shielded
from aguila.store import MemoryStore, RunKey

pytestmark = pytest.mark.anyio

SCOPE: Any = {
    "type": "http", "method": "POST", "path": "/", "raw_path": b"/", "query_string": b"",
    "headers": [(b"content-type", b"application/json"), (b"host", b"localhost")],
}  # fmt: skip

unit: ContextVar[str] = ContextVar("unit")


class Slow(MemoryStore):
    """A store that begins runs when the test allows it."""

    def __init__(self) -> None:
        super().__init__()
        self.begun = asyncio.Event()
        self.asked = asyncio.Event()

    async def begin(self, *values: Any, **options: Any) -> Any:
        self.asked.set()
        await self.begun.wait()
        return await super().begin(*values, **options)


async def agent(run: Any) -> Any:
    yield "Hello"


def request(receive: Any, app: App) -> asyncio.Task[None]:
    async def send(message: Any) -> None:
        pass

    return asyncio.create_task(app(SCOPE, receive, send))


@pytest.mark.parametrize("busy", ["auto", "queue"])
async def test_a_run_whose_request_is_cancelled_while_it_begins_is_driven_to_its_end(busy: Any) -> None:
    store = Slow()
    sent = False

    async def receive() -> Any:
        nonlocal sent
        if sent:
            await asyncio.Event().wait()
        sent = True
        return {"type": "http.request", "body": json.dumps(run_input()).encode()}

    async with App(agent, store=store, busy=busy) as app:
        task = request(receive, app)
        await store.asked.wait()
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        assert not app.begin_drain().done()  # type: ignore[union-attr] - it waits for what is about to begin
        store.begun.set()
        await app.begin_drain()  # type: ignore[misc]
        assert (await store.run(RunKey("anonymous", "thread", "run"))).outcome == "success"


class TimeLimited(MemoryStore):
    """A store that limits its own time and uses a context variable around what it awaits."""

    async def begin(self, *values: Any, **options: Any) -> Any:
        token = unit.set("begin")
        try:
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(0):
                    await asyncio.Event().wait()
        finally:
            unit.reset(token)
        return await super().begin(*values, **options)


async def test_a_store_may_limit_its_own_time_while_a_run_begins() -> None:
    """``asyncio.timeout`` cancelled the request instead of the store, and ``ContextVar.reset`` raised."""
    sent: list[Any] = []
    ended = asyncio.Event()

    async def send(message: Any) -> None:
        sent.append(message)
        if not message.get("more_body", True):
            ended.set()

    async def receive() -> Any:
        if sent:
            await ended.wait()
            return {"type": "http.disconnect"}
        return {"type": "http.request", "body": json.dumps(run_input()).encode()}

    async with App(agent, store=TimeLimited()) as app:
        await app(SCOPE, receive, send)
    assert sent[0]["status"] == 200
    body = b"".join(message.get("body", b"") for message in sent)
    assert b"RUN_FINISHED" in body


async def test_work_keeps_its_own_timeouts_and_context() -> None:
    async def work() -> str:
        token = unit.set("work")
        try:
            async with asyncio.timeout(0):
                await asyncio.Event().wait()
        except TimeoutError:
            return unit.get()
        finally:
            unit.reset(token)
        raise AssertionError("the timeout did not expire")

    assert await run_shielded(work(), lambda _: None) == "work"


async def test_work_that_does_not_wait_gives_its_result_or_its_error() -> None:
    async def work(fails: bool) -> str:
        if fails:
            raise LookupError
        return "done"

    def abandoned(_: Any) -> None:
        raise AssertionError("nothing was cancelled")

    assert await run_shielded(work(False), abandoned) == "done"
    with pytest.raises(LookupError):
        await run_shielded(work(True), abandoned)


async def test_work_that_waits_several_times_gives_its_result_or_its_error() -> None:
    async def work(fails: bool) -> str:
        await let_tasks_run(3)
        future = asyncio.get_running_loop().create_future()
        asyncio.get_running_loop().call_soon(future.set_exception if fails else future.set_result, LookupError())
        try:
            await future
        except LookupError:
            await asyncio.sleep(0)
            return "caught"
        raise LookupError

    assert await run_shielded(work(True), lambda _: None) == "caught"
    with pytest.raises(LookupError):
        await run_shielded(work(False), lambda _: None)


async def test_work_continues_when_its_caller_is_cancelled() -> None:
    gate = asyncio.Event()
    left: list[asyncio.Task[str]] = []

    async def work() -> str:
        await gate.wait()
        return "done"

    waiting = asyncio.create_task(run_shielded(work(), left.append))
    await asyncio.sleep(0)
    waiting.cancel()
    with pytest.raises(asyncio.CancelledError):
        await waiting
    gate.set()
    assert await left[0] == "done"
