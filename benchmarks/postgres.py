"""Threads in PostgreSQL: a server of its own with default durability, next to SQLite and the official quickstart.

The database, the servers and the load share the cores of this machine. ``python -m benchmarks postgres`` prints the
rows.
"""

from __future__ import annotations

import asyncio
import multiprocessing
import os
import shutil
import statistics
import sys
import time
from collections.abc import Generator
from contextlib import ExitStack, contextmanager
from multiprocessing.connection import Connection
from pathlib import Path
from statistics import median, quantiles
from typing import Any

from aguila.store import PostgresStore, RunChange
from benchmarks import server, store

sys.path.insert(0, str(Path(__file__).parent.parent / "tests" / "support"))

from stores.postgres_cluster import Cluster, find_programs, make_folder

PROCESSES = (1, 2, 4)
WAKEUPS = 200


@contextmanager
def database() -> Generator[str]:
    """Return the DSN of a fresh database; AGUILA_POSTGRES names another one."""
    if given := os.environ.get("AGUILA_POSTGRES"):
        yield given
        return
    folder = make_folder()
    cluster = Cluster(folder / "cluster", fsync="on", shared_buffers="256MB")
    cluster.create()
    cluster.start()
    try:
        yield cluster.dsn
    finally:
        cluster.stop()
        shutil.rmtree(folder, ignore_errors=True)


def serve_loads(dsn: str) -> dict[str, dict[str, Any]]:
    """Measure the load on each server in turn."""
    kinds = ["peer", "sqlite", *(f"postgres x{count}" for count in PROCESSES)]
    found: dict[str, dict[str, Any]] = {kind: {} for kind in kinds}
    for what in ("hot", "yielding"):
        for kind in kinds:
            found[kind][what] = measure(dsn, kind, what, f"bench_{what}") if "x" in kind else server.measure(kind, what)
    return found


def measure(dsn: str, kind: str, what: str, schema: str) -> dict[str, Any]:
    """Measure a load that is spread over the processes."""
    count = int(kind.partition("x")[2])
    os.environ[server.DSN] = f"{dsn}?aguila_schema={schema}_{count}"
    asyncio.run(PostgresStore(dsn, schema=f"{schema}_{count}").migrate())
    with ExitStack() as stack:
        started = [stack.enter_context(server.server("postgres")) for _ in range(count)]
        return server.load_on(what, [port for port, _ in started])


def idle_first(dsn: str) -> tuple[float, float]:
    """The medians of the first event of the peer and of an idle server, in seconds."""
    os.environ[server.DSN] = f"{dsn}?aguila_schema=bench_idle"
    with server.on_one_core(), ExitStack() as stack:
        callers = [server.Caller(stack.enter_context(server.server(kind))[0]) for kind in ("peer", "postgres")]
        number = 0
        for turn in range(server.IDLE_ROUNDS + 4):
            for caller in callers:
                if turn == 4:
                    caller.seconds.clear()
                for _ in range(server.IDLE_RUNS):
                    number += 1
                    caller.call(number)
        return statistics.median(callers[0].seconds), statistics.median(callers[1].seconds)


def wakeup(dsn: str) -> list[float]:
    """How long an append takes to a tail in another process, with its commit, in seconds."""
    context = multiprocessing.get_context("spawn")
    here, there = context.Pipe()
    process = context.Process(target=_follow, args=(dsn, there), daemon=True)
    process.start()
    try:
        return asyncio.run(_append_to_tail(dsn, here))
    finally:
        process.terminate()
        process.join()


async def _append_to_tail(dsn: str, tail: Connection) -> list[float]:
    one = PostgresStore(dsn, schema="bench_wake")
    await one.open()
    lease = await store.begin(one, "wake")
    tail.send("begin")
    await asyncio.to_thread(tail.recv)  # the first event has arrived
    times: list[float] = []
    for _ in range(WAKEUPS):
        await asyncio.sleep(0.005)
        began = time.monotonic()  # one clock for all processes
        await one.write(lease, RunChange(events=[store.EVENT]))
        times.append(await asyncio.to_thread(tail.recv) - began)
    await one.close()
    return times


def _follow(dsn: str, owner: Connection) -> None:
    """Send the time of arrival of each batch to the owner of the run."""

    async def follow() -> None:
        one = PostgresStore(dsn, schema="bench_wake")
        await one.open()
        await asyncio.to_thread(owner.recv)
        async for _ in one.tail("s", "wake"):
            owner.send(time.monotonic())

    asyncio.run(follow())


async def stores(dsn: str) -> list[store.Row]:
    async with store.opened(PostgresStore(dsn, schema="bench_store")) as one:
        found = await store.idle(one, "postgres")
        found += await store.throughput(one, "postgres, hot")
        return found + await store.tails(one, "postgres")


def rows() -> list[dict[str, Any]]:
    if find_programs() is None and "AGUILA_POSTGRES" not in os.environ:
        print("PostgreSQL is not installed: its rows are left out", file=sys.stderr)
        return []
    found: list[dict[str, Any]] = []
    with database() as dsn:
        measured = serve_loads(dsn)
        peer_first, first = idle_first(dsn)
        wakeups = wakeup(dsn)
        alone = asyncio.run(stores(dsn))
    for kind, ours in measured.items():
        if kind == "peer":
            continue
        for what in ("hot", "yielding"):
            name = f"serve {server.RUNS} runs of {server.DELTAS:,} tokens, {kind}, {what} source"
            row: dict[str, Any] = {
                "name": name.replace("postgres x1", "postgres, 1 process").replace(" x", ", processes: "),
                "ours": ours[what]["rate"],
                "peer": measured["peer"][what]["rate"],
                "peer_name": server.PEER,
                "unit": "tokens/s",
            }
            if kind == "postgres x1":
                row["floor"] = 2
            found.append(row)
    found.append(
        {
            "name": f"first event, idle server, postgres (peer {peer_first * 1000:.2f} ms)",
            "value": first * 1000,
            "unit": "ms",
            "most": 3,
        }
    )
    found.append(
        {"name": "postgres: wake-up of another process, p50", "value": median(wakeups) * 1000, "unit": "ms", "most": 20}
    )
    found.append(
        {
            "name": "postgres: wake-up of another process, p99",
            "value": quantiles(wakeups, n=100)[98] * 1000,
            "unit": "ms",
        }
    )
    return found + [{"name": name, "value": value, "unit": unit} for name, value, unit in alone]
