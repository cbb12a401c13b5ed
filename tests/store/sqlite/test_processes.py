from __future__ import annotations

import asyncio
import json
import os
import signal
import sys
import time
from collections.abc import AsyncGenerator, AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest
from waiting import wait_until_async

from aguila.errors import StaleLease
from aguila.store import Cancel, RunEnd, RunKey, SQLiteStore, Taken
from aguila.testing.store_contract.support import (
    DEADLINE,
    LEASE,
    append,
    collect,
    finish,
    last_of,
    lines,
    lost_runs,
    run_of,
    start,
    take,
)

pytestmark = pytest.mark.anyio

RUN = RunKey("a", "t", "r")
WORKER = Path(__file__).with_name("worker.py")


class Worker:
    """A process that runs ``worker.py``."""

    def __init__(self, process: asyncio.subprocess.Process) -> None:
        self.process = process

    async def read_words(self) -> list[str]:
        assert self.process.stdout is not None
        async with asyncio.timeout(DEADLINE):
            return (await self.process.stdout.readline()).decode().split()

    def send_line(self) -> None:
        assert self.process.stdin is not None
        self.process.stdin.write(b"\n")


@asynccontextmanager
async def worker(path: Path, *arguments: object) -> AsyncGenerator[Worker, None]:
    process = await asyncio.create_subprocess_exec(
        sys.executable,
        WORKER,
        path,
        *map(str, arguments),
        stdin=asyncio.subprocess.PIPE,
        stdout=asyncio.subprocess.PIPE,
    )
    try:
        yield Worker(process)
    finally:
        if process.returncode is None:
            process.kill()
        await process.communicate()


@pytest.fixture
async def store(path: Path) -> AsyncIterator[SQLiteStore]:
    store = SQLiteStore(path)
    await store.open()
    yield store
    await store.close()


async def take_lost(store: SQLiteStore, owner: str = "x") -> Taken:
    """Wait for a lost run and take it over."""
    async with asyncio.timeout(DEADLINE):
        while not (found := await store.take_over(owner, LEASE)):  # noqa: ASYNC110 - another process dies
            await asyncio.sleep(0.01)
        return found[0]


async def test_a_run_is_followed_from_another_process(store: SQLiteStore, path: Path):
    async with worker(path, "write", "t", "seed", 200) as writer:
        assert await writer.read_words() == ["wrote", "t", "1"]
        numbers: list[int] = []
        async with asyncio.timeout(DEADLINE):
            async for batch in store.tail("a", "t"):
                assert batch.first == len(numbers) + 1
                numbers += [json.loads(event)["n"] for event in batch.events]
                run = await run_of(store)
                if not run.is_running and run.last == batch.last:
                    break
        assert numbers == list(range(1, len(numbers) + 1))
        assert len(numbers) > 200


async def test_two_processes_follow_a_run_of_this_one(store: SQLiteStore, path: Path):
    lease = await start(store)
    async with worker(path, "tail", "t", 40) as first, worker(path, "tail", "t", 40) as second:
        for reader in (first, second):
            assert await reader.read_words() == ["read", "1", "1"]
        for i in range(38):
            await append(store, lease, lines(i))
        await finish(store, lease)
        for reader in (first, second):
            last = 1
            while last < 40:
                word, begin, end = await reader.read_words()
                assert (word, int(begin)) == ("read", last + 1)
                last = int(end)


async def test_a_cancel_reaches_the_owner_in_another_process(store: SQLiteStore, path: Path):
    async with worker(path, "own", "t", LEASE) as owner:
        assert (await owner.read_words())[0] == "began"
        await store.tell(RunKey("a", "t", "r"), Cancel())
        assert await owner.read_words() == ["cancelled"]
        assert await owner.read_words() == ["ended"]
        assert (await run_of(store)).outcome == "cancelled"


async def test_the_run_of_a_dead_process_is_taken_over_once(store: SQLiteStore, path: Path):
    async with worker(path, "own", "t", 0.3) as owner:
        await owner.read_words()
        owner.process.kill()
        await owner.process.wait()
    other = SQLiteStore(path)
    await other.open()

    async def take_all() -> list[Taken]:
        calls = [each.take_over(f"o{i}", LEASE) for i, each in enumerate([store, other] * 3)]
        return [taken for found in await asyncio.gather(*calls) for taken in found]

    async with asyncio.timeout(DEADLINE):
        while not (taken := await take_all()):  # noqa: ASYNC110 - the process has just died
            await asyncio.sleep(0.01)
    assert len(taken + await take_all()) == 1
    leases = [taken[0].lease]
    await append(other, leases[0], lines("error"), end=RunEnd(outcome="error"))
    assert await collect(store.tail("a", "t", 1), 1) == lines("error")
    await start(store, run_id="next")
    await other.close()


async def test_the_run_of_a_dead_process_is_lost_at_once(store: SQLiteStore, path: Path):
    async with worker(path, "own", "t", LEASE) as owner:
        await owner.read_words()
        owner.process.send_signal(signal.SIGSTOP)
        assert await lost_runs(store) == await lost_runs(store, only=RUN) == []  # a suspended process keeps its lease
        owner.process.kill()
        await owner.process.wait()
    taken = await take(store)
    assert taken.run.key == RUN
    assert await lost_runs(store, "y") == []
    await finish(store, taken.lease)


async def test_a_process_is_dead_even_if_a_child_of_it_lives(store: SQLiteStore, path: Path):
    fifo = path.with_name("fifo")
    os.mkfifo(fifo)
    async with worker(path, "fork", "t", fifo) as owner:
        assert await owner.read_words() == ["forked"]
        try:
            assert (await lost_runs(store)) == []
            owner.process.kill()
            async with asyncio.timeout(DEADLINE):
                await owner.process.wait()
            assert (await take(store)).run.thread_id == "t"
        finally:
            await asyncio.to_thread(fifo.write_bytes, b"")


@pytest.mark.parametrize("step", [60.0, 1e6, -60.0, -1e6])
async def test_a_process_whose_clock_was_set_neither_ends_nor_keeps_a_run_of_another(path: Path, step: float):
    observer = SQLiteStore(path, clock=lambda: time.time() + step)
    await observer.open()
    async with worker(path, "own", "healthy", LEASE) as owner, worker(path, "late", "t", 0.3) as suspended:
        assert (await owner.read_words())[0] == "began"
        await suspended.read_words()
        suspended.process.send_signal(signal.SIGSTOP)
        taken = (await take_lost(observer)).lease
        assert taken.thread_id == "t"
        assert (await lost_runs(observer)) == []
        assert await lost_runs(observer, only=RunKey("a", "healthy", "r")) == []
        await finish(observer, taken)
    await observer.close()


async def test_a_paused_owner_that_wakes_after_its_lease_cannot_append(store: SQLiteStore, path: Path):
    async with worker(path, "late", "t", 0.3) as owner:
        await owner.read_words()
        owner.process.send_signal(signal.SIGSTOP)
        taken = (await take_lost(store)).lease
        owner.process.send_signal(signal.SIGCONT)
        owner.send_line()
        assert await owner.read_words() == ["StaleLease"]
    assert await last_of(store) == 1
    await finish(store, taken)


async def test_a_paused_owner_continues_if_its_run_was_not_taken_over(store: SQLiteStore, path: Path):
    async with worker(path, "late", "t", 0.3) as owner:
        await owner.read_words()
        owner.process.send_signal(signal.SIGSTOP)
        run = await run_of(store)
        await wait_until_async(lambda: time.monotonic() > run.lease_until)
        owner.process.send_signal(signal.SIGCONT)
        owner.send_line()
        assert await owner.read_words() == ["appended"]
    assert await last_of(store) == 2
    assert (await run_of(store)).lease_until > run.lease_until


async def test_of_processes_that_race_for_a_thread_one_wins(path: Path):
    async with worker(path, "race", "t") as one, worker(path, "race", "t") as two, worker(path, "race", "t") as three:
        racers = (one, two, three)
        for racer in racers:
            assert await racer.read_words() == ["ready"]
        for racer in racers:
            racer.send_line()
        assert sorted([(await racer.read_words())[0] for racer in racers]) == ["RunExists", "RunExists", "began"]


async def test_processes_may_open_a_new_file_at_once(path: Path):
    async with worker(path, "check") as one, worker(path, "check") as two, worker(path, "check") as three:
        assert [await each.read_words() for each in (one, two, three)] == [["checked"]] * 3


async def test_two_stores_of_one_process_share_a_file(store: SQLiteStore, path: Path):
    other = SQLiteStore(path)
    await other.open()
    lease = await start(store)
    tail = asyncio.create_task(collect(other.tail("a", "t"), 3))
    waiter = asyncio.create_task(other.wait_for_cancel(lease))
    await append(store, lease, lines(1))
    await finish(other, lease)  # a lease is valid in every store
    assert await tail == lines("started", 1, "finished")
    async with asyncio.timeout(DEADLINE):
        await waiter
    with pytest.raises(StaleLease):
        await append(store, lease, lines("late"))
    await other.close()
