"""One address without credentials cannot take all runs of an app."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path
from typing import Any

import pytest
from in_process import Reader
from serving import run_input
from waiting import wait_until_async

from aguila import App
from aguila.server import Limits

pytestmark = pytest.mark.anyio


class Held:
    def __init__(self) -> None:
        self.goes_on = asyncio.Event()

    async def __call__(self, run: Any) -> Any:
        yield "begun"
        await self.goes_on.wait()


def start(app: App, address: str, thread_id: str, path: str = "/") -> tuple[Reader, asyncio.Task[int]]:
    reader = Reader(app, address=address)
    body = json.dumps(run_input(thread_id, "r")).encode()
    return reader, asyncio.create_task(reader.request("POST", path, body, content_type="application/json"))


async def begun(reader: Reader, task: asyncio.Task[int]) -> int:
    """Return the status when the response has begun."""
    await wait_until_async(lambda: reader.messages or task.done())
    return reader.messages[0]["status"]


@pytest.mark.parametrize(("address", "other_status"), [("192.0.2.1", 429), ("127.0.0.1", 200)])
async def test_an_address_without_credentials_has_a_limit_of_its_own(address: str, other_status: int) -> None:
    agent = Held()
    async with App(agent, limits=Limits(runs_per_address=3)) as app:
        held = [start(app, address, f"t{i}") for i in range(3)]
        assert [await begun(*each) for each in held] == [200] * 3
        fourth = start(app, address, "t4")
        assert await begun(*fourth) == other_status
        assert await begun(*start(app, address, "t1")) == 200  # a repeated request attaches to its run
        assert await begun(*start(app, "192.0.2.2", "t5")) == 200  # another visitor is served
        agent.goes_on.set()
        await asyncio.gather(*[task for _, task in held])
        assert await begun(*start(app, address, "t6")) == 200


@pytest.mark.parametrize("path", ["/", "/?store=false"])
async def test_requests_that_come_at_once_do_not_exceed_the_limit(path: str, tmp_path: Path) -> None:
    agent = Held()
    async with App(agent, store=tmp_path / "threads.db", limits=Limits(runs_per_address=3)) as app:
        burst = [start(app, f"2001:db8::{i}", f"t{i}", path) for i in range(8)]  # addresses of one network
        assert sorted([await begun(*each) for each in burst]) == [200] * 3 + [429] * 5
        agent.goes_on.set()
        await asyncio.gather(*[task for _, task in burst])
        assert await begun(*start(app, "2001:db8::9", "t9", path)) == 200  # refused runs are not counted


async def test_by_default_abandoned_runs_of_one_visitor_lock_nobody_else_out() -> None:
    agent = Held()
    async with App(agent) as app:
        abandoned = [start(app, "192.0.2.1", f"t{i}") for i in range(100)]
        statuses = [await begun(*each) for each in abandoned]
        assert sorted(statuses) == [200] * 20 + [429] * 80
        assert await begun(*start(app, "192.0.2.2", "mine")) == 200
        agent.goes_on.set()
        await asyncio.gather(*[task for _, task in abandoned])


async def test_callers_with_credentials_have_no_limit_by_address() -> None:
    agent = Held()
    async with App(agent, authenticate=lambda request: "me", limits=Limits(runs_per_address=1)) as app:
        held = [start(app, "192.0.2.1", f"t{i}") for i in range(3)]
        assert [await begun(*each) for each in held] == [200] * 3
        agent.goes_on.set()
        await asyncio.gather(*[task for _, task in held])
