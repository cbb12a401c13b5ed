"""The stores alone: there is no peer that keeps what we keep, so these rows are ours only.

``python -m benchmarks.store`` prints them.
"""

from __future__ import annotations

import asyncio
import gc
import shutil
import subprocess
import sys
import tempfile
import time
import tracemalloc
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from statistics import median, quantiles
from typing import Any

from aguila.errors import NotFound
from aguila.store import (
    Batch,
    Cancel,
    Durability,
    Lease,
    MemoryStore,
    NewRun,
    RunChange,
    RunEnd,
    RunKey,
    SQLiteStore,
    Store,
)

Row = tuple[str, float, str]

EVENT = b'{"type":"TEXT_MESSAGE_CONTENT","messageId":"0190f3a1-7a52","delta":"a few words "}'
RUNS = 50
EVENTS = 4000
MAX_UNSTORED = 64
SHORT_RUNS = 200
SHORT_APPENDS = 18


async def begin(store: Store, thread_id: str) -> Lease:
    new = NewRun(
        scope="s", thread_id=thread_id, run_id="r", owner="bench", lease_seconds=60, request=b"{}", events=[EVENT]
    )
    return (await store.begin(new)).lease


async def produce(
    store: Store, thread_id: str, count: int, *, ahead: int = MAX_UNSTORED, per_token: bool = False
) -> list[float]:
    """A run as the server drives it: at most ``ahead`` events that are not durable, what gathered goes out next.

    Gives the seconds that each append took.
    """
    lease = await begin(store, thread_id)
    waiting: list[bytes] = []
    times: list[float] = []
    room = asyncio.Event()
    work = asyncio.Event()
    done = False

    async def write() -> None:
        nonlocal waiting
        while waiting or not done:
            if not waiting:
                work.clear()
                await work.wait()
                continue
            batch, waiting = waiting, []
            start = time.perf_counter()
            await store.write(lease, RunChange(events=batch))
            times.append(time.perf_counter() - start)
            room.set()

    writing = asyncio.create_task(write())
    for _ in range(count):
        waiting.append(EVENT)
        work.set()
        while len(waiting) >= ahead:
            room.clear()
            await room.wait()
        if per_token:
            await asyncio.sleep(0)
    done = True
    work.set()
    await writing
    await store.write(lease, RunChange(events=[EVENT], end=RunEnd(outcome="success")))
    return times


async def follow(store: Store, thread_id: str, count: int) -> None:
    seen = 0
    async for batch in store.tail("s", thread_id):
        seen += len(batch.events)
        if seen >= count:
            return


async def throughput(store: Store, name: str, *, per_token: bool = False, followed: bool = False) -> list[Row]:
    async def one(index: int) -> list[float]:
        thread_id = f"{name} {index}"
        if not followed:
            return await produce(store, thread_id, EVENTS, per_token=per_token)
        producing = asyncio.create_task(produce(store, thread_id, EVENTS, per_token=per_token))
        while True:
            try:
                await store.thread("s", thread_id)
            except NotFound:
                await asyncio.sleep(0)
            else:
                break
        await follow(store, thread_id, EVENTS + 2)
        return await producing

    start = time.perf_counter()
    times = await asyncio.gather(*(one(index) for index in range(RUNS)))
    seconds = time.perf_counter() - start
    every = [each for run in times for each in run]
    return [
        (f"{name}: {RUNS} runs", RUNS * EVENTS / seconds, "events/s"),
        (f"{name}: append to durable, p50", median(every) * 1000, "ms"),
        (f"{name}: append to durable, p99", quantiles(every, n=100)[98] * 1000, "ms"),
    ]


async def idle(store: Store, name: str) -> list[Row]:
    lease = await begin(store, name)
    times: list[float] = []
    for _ in range(500):
        await asyncio.sleep(0.001)
        start = time.perf_counter()
        await store.write(lease, RunChange(events=[EVENT]))
        times.append(time.perf_counter() - start)
    return [
        (f"{name}: idle append to durable, p50", median(times) * 1000, "ms"),
        (f"{name}: idle append to durable, p99", quantiles(times, n=100)[98] * 1000, "ms"),
    ]


async def tails(store: Store, name: str, count: int = 1000) -> list[Row]:
    """What a tail that waits costs, and how fast all of one thread are woken."""
    lease = await begin(store, f"{name} tails")
    arrived: list[float] = []

    async def wait(tail: AsyncIterator[Batch]) -> None:
        await anext(tail)
        arrived.append(time.perf_counter())
        await anext(tail)
        arrived.append(time.perf_counter())

    gc.collect()
    tracemalloc.start()
    before = tracemalloc.get_traced_memory()[0]
    tasks = [asyncio.create_task(wait(store.tail("s", f"{name} tails"))) for _ in range(count)]
    while True:
        await asyncio.sleep(0.01)
        if len(arrived) == count:
            break
    gc.collect()
    cost = tracemalloc.get_traced_memory()[0] - before
    tracemalloc.stop()
    start = time.perf_counter()
    await store.write(lease, RunChange(events=[EVENT]))
    await asyncio.gather(*tasks)
    return [
        (f"{name}: memory of a waiting tail and its task", cost / count, "bytes"),
        (f"{name}: {count} tails woken", (arrived[-1] - start) * 1000, "ms"),
    ]


async def other_process(path: Path, name: str) -> list[Row]:
    """Two stores on one file, as two processes have: how long a cancel takes from one to the other."""
    first, second = SQLiteStore(path), SQLiteStore(path)
    await first.open()
    await second.open()
    times: list[float] = []
    for index in range(200):
        lease = await begin(first, f"cancel {index}")
        waiting = asyncio.create_task(first.wait_for_cancel(lease))
        await asyncio.sleep(0.002)
        start = time.perf_counter()
        await second.tell(RunKey("s", f"cancel {index}", "r"), Cancel())
        await waiting
        times.append(time.perf_counter() - start)
        await first.write(lease, RunChange(events=[EVENT], end=RunEnd(outcome="cancelled")))
    await first.close()
    await second.close()
    return [
        (f"{name}: cancel from another process, p50", median(times) * 1000, "ms"),
        (f"{name}: cancel from another process, worst of 200", max(times) * 1000, "ms"),
    ]


async def short_runs(path: Path, durability: Durability) -> float:
    """Store short runs as an idle server does, one commit after the other; return the seconds of CPU time."""
    async with opened(SQLiteStore(path, durability=durability)) as store:
        start = time.process_time()
        for index in range(SHORT_RUNS):
            lease = await begin(store, f"short {index}")
            for _ in range(SHORT_APPENDS):
                await store.write(lease, RunChange(events=[EVENT] * 5))
            await store.write(lease, RunChange(events=[EVENT], end=RunEnd(outcome="success")))
        return time.process_time() - start


def durability_costs(folder: Path) -> list[Row]:
    """CPU time and fsyncs of a short run for each durability. Fsyncs are counted only if strace is installed."""
    found: list[Row] = []
    for durability in ("process", "power"):
        paths = [folder / f"{durability}-{number}.db" for number in range(3)]
        seconds = min(asyncio.run(short_runs(path, durability)) for path in paths)
        name = f"sqlite, {durability}: a run of {SHORT_APPENDS + 2} commits"
        found.append((f"{name}, CPU", seconds / SHORT_RUNS * 1000, "ms"))
        strace = shutil.which("strace")
        if strace is None:
            continue
        traced = folder / f"{durability}.trace"
        child = [sys.executable, "-m", "benchmarks.store", durability, str(folder / f"{durability}-traced.db")]
        command = [strace, "-f", "-qq", "-e", "trace=fsync,fdatasync", "-e", "signal=none", "-o", str(traced), *child]
        subprocess.run(command, check=True)
        count = sum("sync(" in line for line in traced.read_text().splitlines())
        found.append((f"{name}, fsyncs", count / SHORT_RUNS, "fsyncs"))
    return found


@asynccontextmanager
async def opened(store: Store) -> AsyncIterator[Store]:
    await store.open()
    try:
        yield store
    finally:
        await store.close()


async def measure(folder: Path) -> list[Row]:
    makers: dict[str, Callable[[], Store]] = {
        "memory": MemoryStore,
        "sqlite": lambda: SQLiteStore(folder / "normal.db"),
        "sqlite, power": lambda: SQLiteStore(folder / "full.db", durability="power"),
    }
    found: list[Row] = []
    for name, make in makers.items():
        async with opened(make()) as store:
            found += await idle(store, name)
            found += await throughput(store, f"{name}, hot")
            found += await throughput(store, f"{name}, per token", per_token=True)
            found += await throughput(store, f"{name}, hot and followed", followed=True)
            if name != "sqlite, power":
                found += await tails(store, name)
    return found + await other_process(folder / "two.db", "sqlite")


def rows() -> list[dict[str, Any]]:
    """All rows: name, value, unit; a cancel from another process has the bound that was promised."""
    with tempfile.TemporaryDirectory() as folder:
        costs = durability_costs(Path(folder))
        measured = costs + asyncio.run(measure(Path(folder)))
    found: list[dict[str, Any]] = [{"name": name, "value": value, "unit": unit} for name, value, unit in measured]
    found[-1]["most"] = 250
    return found


if __name__ == "__main__":
    if len(sys.argv) == 3:
        asyncio.run(short_runs(Path(sys.argv[2]), "power" if sys.argv[1] == "power" else "process"))
        sys.exit()
    for row in rows():
        sys.stdout.write(f"{row['name']:60} {row['value']:14,.3f} {row['unit']}\n")
