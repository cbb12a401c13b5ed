"""A run that was begun is driven, whatever becomes of the request that began it."""

from __future__ import annotations

import asyncio
import json
from typing import Any

import pytest
from serving import run_input

from aguila import App
from aguila.server.unharmed import unharmed
from aguila.store import MemoryStore

pytestmark = pytest.mark.anyio


class Slow(MemoryStore):
    """Begins runs when it is told to."""

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

    scope = {
        "type": "http", "method": "POST", "path": "/", "raw_path": b"/", "query_string": b"",
        "headers": [(b"content-type", b"application/json"), (b"host", b"localhost")],
    }  # fmt: skip
    return asyncio.create_task(app(scope, receive, send))


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
        assert (await store.run("anonymous", "thread", "run")).outcome == "success"


async def test_what_does_not_wait_is_no_task_and_gives_its_result_or_its_error() -> None:
    async def task_of(fails: bool) -> Any:
        if fails:
            raise LookupError
        return asyncio.current_task()

    def left(_: Any) -> None:
        raise AssertionError("nobody was cancelled")

    assert await unharmed(task_of(False), left) is asyncio.current_task()
    with pytest.raises(LookupError):
        await unharmed(task_of(True), left)


async def test_what_waits_several_times_gives_its_result_or_its_error() -> None:
    async def work(fails: bool) -> str:
        for _ in range(3):
            await asyncio.sleep(0)
        future = asyncio.get_running_loop().create_future()
        asyncio.get_running_loop().call_soon(future.set_exception if fails else future.set_result, LookupError())
        try:
            await future
        except LookupError:
            await asyncio.sleep(0)
            return "caught"
        raise LookupError

    assert await unharmed(work(True), lambda _: None) == "caught"
    with pytest.raises(LookupError):
        await unharmed(work(False), lambda _: None)


async def test_who_is_cancelled_leaves_it_at_work() -> None:
    gate = asyncio.Event()
    left: list[asyncio.Task[str]] = []

    async def work() -> str:
        await gate.wait()
        return "done"

    waiting = asyncio.create_task(unharmed(work(), left.append))
    await asyncio.sleep(0)
    waiting.cancel()
    with pytest.raises(asyncio.CancelledError):
        await waiting
    gate.set()
    assert await left[0] == "done"
