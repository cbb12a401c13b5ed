"""A process that uses a store: ``worker.py FILE ACTION ARGUMENT...``.

It reports each step as a line on standard output, after the store has confirmed it.
"""

from __future__ import annotations

import asyncio
import json
import os
import random
import sys

from aguila.errors import StoreError
from aguila.store import Lease, NewRun, RunChange, RunEnd, SQLiteStore


def report(*words: object) -> None:
    os.write(1, (" ".join(map(str, words)) + "\n").encode())


async def begin(store: SQLiteStore, thread_id: str, lease_seconds: float = 30.0) -> Lease:
    new = NewRun(
        scope="a",
        thread_id=thread_id,
        run_id="r",
        owner=f"process {os.getpid()}",
        lease_seconds=lease_seconds,
        request=b"{}",
        events=[event(1, 0)],
    )
    return (await store.begin(new)).lease


async def append(store: SQLiteStore, lease: Lease, events: list[bytes], *, end: RunEnd | None = None) -> None:
    await store.write(lease, RunChange(events=events, end=end))


def event(number: int, left: int) -> bytes:
    """Return the event with a sequence number; ``left`` is how many events of its batch follow."""
    return json.dumps({"n": number, "left": left, "text": "x" * (number % 97)}).encode()


async def write(store: SQLiteStore, thread_id: str, seed: str, batches: str) -> None:
    """Append batches of random sizes; report "wrote THREAD LAST" for each."""
    rng = random.Random(seed)
    lease = await begin(store, thread_id)
    report("wrote", thread_id, 1)
    last = 1
    for _ in range(int(batches)):
        size = rng.randint(1, 40)
        await append(store, lease, [event(last + i + 1, size - i - 1) for i in range(size)])
        last += size
        report("wrote", thread_id, last)
    await append(store, lease, [event(last + 1, 0)], end=RunEnd(outcome="success"))
    report("wrote", thread_id, last + 1)


async def write_many(store: SQLiteStore, count: str, seed: str, batches: str) -> None:
    """Write several runs concurrently."""
    await asyncio.gather(*(write(store, f"t{i}", seed + str(i), batches) for i in range(int(count))))


async def own(store: SQLiteStore, thread_id: str, lease_seconds: str) -> None:
    """Begin a run, wait for a cancel request and report it."""
    lease = await begin(store, thread_id, float(lease_seconds))
    waiting = asyncio.create_task(store.wait_for_cancel(lease))
    report("began", lease.epoch)
    await waiting
    report("cancelled")
    await append(store, lease, [event(2, 0)], end=RunEnd(outcome="cancelled"))
    report("ended")


async def fork(store: SQLiteStore, thread_id: str, fifo: str) -> None:
    """Begin a run and fork a child that inherits the open files. The child lives until the pipe is opened."""
    await begin(store, thread_id)
    if os.fork() == 0:
        os.closerange(0, 3)  # otherwise the test would wait for the child, too
        os.open(fifo, os.O_RDONLY)
        os._exit(0)
    report("forked")
    await asyncio.Event().wait()


async def late(store: SQLiteStore, thread_id: str, lease_seconds: str) -> None:
    """Begin a run; append after a line on standard input."""
    lease = await begin(store, thread_id, float(lease_seconds))
    report("began", lease.epoch)
    await asyncio.to_thread(sys.stdin.readline)
    await append(store, lease, [event(2, 0)])
    report("appended")


async def tail(store: SQLiteStore, thread_id: str, until: str) -> None:
    """Follow a thread; report "read FIRST LAST" for each batch."""
    async for batch in store.tail("a", thread_id):
        report("read", batch.first, batch.last)
        if batch.last >= int(until):
            return


async def race(store: SQLiteStore, thread_id: str) -> None:
    """Begin a run after a line on standard input."""
    report("ready")
    await asyncio.to_thread(sys.stdin.readline)
    await begin(store, thread_id)
    report("began")


async def check(store: SQLiteStore) -> None:
    """Open the store and run a health check."""
    await store.check()
    report("checked")


async def main(path: str, action: str, *arguments: str) -> None:
    store = SQLiteStore(path)
    await store.open()
    try:
        await {
            "write": write,
            "write_many": write_many,
            "own": own,
            "late": late,
            "fork": fork,
            "tail": tail,
            "race": race,
            "check": check,
        }[action](store, *arguments)
    except StoreError as error:
        report(type(error).__name__)
    finally:
        await store.close()


if __name__ == "__main__":
    asyncio.run(main(*sys.argv[1:]))
