"""Many clients that start, watch, disconnect, cancel and return at once: every log stays valid."""

from __future__ import annotations

import asyncio
import random
from typing import Any

import httpx2
import pytest
from serving import check_valid, run_input, serving
from waiting import wait_until

from aguila import App
from aguila.store import MemoryStore, SQLiteStore

pytestmark = pytest.mark.anyio

THREADS = 6
CLIENTS = 24
ACTIONS = 12


async def chatty(run: Any) -> Any:
    """Send many pieces with open items all the time; sometimes fail."""
    rng = random.Random(run.run_id)
    async with run.step("work"):
        for i in range(rng.randrange(5, 120)):
            yield f"{i} "
            if rng.random() < 0.2:
                await asyncio.sleep(rng.random() * 0.004)
            if rng.random() < 0.02:
                run.state[str(i)] = i
    if rng.random() < 0.2:
        raise RuntimeError("chatty failed")


@pytest.mark.parametrize("busy", ["auto", "reject", "replace", "queue"])
@pytest.mark.parametrize("kind", ["memory", "sqlite"])
async def test_whatever_clients_do_each_run_has_one_end_and_each_log_is_valid(
    kind: str, busy: Any, tmp_path: Any
) -> None:
    store = MemoryStore() if kind == "memory" else SQLiteStore(tmp_path / "threads.db")
    with serving(App(chatty, store=store, busy=busy, allow_anonymous=True, drain=0.5)) as server:
        statuses = await swarm(server.url)
        assert 200 in statuses
        assert statuses <= {200, 202, 404, 409}
        for name in [one["threadId"] for one in server.get("/threads").json()["threads"]]:
            runs = wait_until(lambda name=name: ended(server, name))
            with server.stream("GET", f"/threads/{name}/events") as stream:
                frames = stream.frames()
            assert [number for number, _ in frames] == list(range(1, len(frames) + 1))
            with server.stream("GET", f"/threads/{name}/events") as stream:
                events = stream.rest()
            check_valid(events)
            ends = [event for event in events if event["type"] in ("RUN_FINISHED", "RUN_ERROR")]
            assert len(ends) == len(runs)
            assert {run["status"] for run in runs} <= {"success", "cancelled", "error"}


def ended(server: Any, thread_id: str) -> list[dict[str, Any]]:
    runs = server.get(f"/threads/{thread_id}").json()["runs"]
    return runs if all(run["status"] != "running" for run in runs) else []


async def swarm(url: str) -> set[int]:
    statuses: set[int] = set()

    async def client(number: int) -> None:
        rng = random.Random(number)
        mine: list[tuple[str, str]] = []
        async with httpx2.AsyncClient(base_url=url, timeout=20, trust_env=False) as http:
            for i in range(ACTIONS):
                thread_id = f"thread-{rng.randrange(THREADS)}"
                choice = rng.random()
                if choice < 0.55 or not mine:
                    run_id = f"run-{number}-{i}"
                    mine.append((thread_id, run_id))
                    request = http.stream("POST", "/", json=run_input(thread_id, run_id))
                elif choice < 0.65:
                    thread_id, run_id = rng.choice(mine)
                    request = http.stream("POST", "/", json=run_input(thread_id, run_id))
                elif choice < 0.75:
                    request = http.stream("POST", "/connect", json=run_input(thread_id, "visitor"))
                elif choice < 0.9:
                    request = http.stream("GET", f"/threads/{thread_id}/events")
                else:
                    thread_id, run_id = rng.choice(mine)
                    request = http.stream("POST", f"/threads/{thread_id}/runs/{run_id}/cancel")
                async with request as response:
                    statuses.add(response.status_code)
                    patience = rng.randrange(0, 4000)  # bytes after which this client disconnects
                    async for piece in response.aiter_raw():
                        patience -= len(piece)
                        if patience < 0:
                            break

    await asyncio.gather(*(client(number) for number in range(CLIENTS)))
    return statuses
