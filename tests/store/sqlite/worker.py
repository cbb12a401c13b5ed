"""A process that uses a store, for tests with several of them: ``worker.py FILE ACTION ARGUMENT...``.

It says what it has done as lines on its standard output, each only after the store has confirmed it.
"""

from __future__ import annotations

import asyncio
import json
import os
import random
import sys
import time

from aguila.errors import StoreError
from aguila.store import Lease, RunEnd, SQLiteStore


def say(*words: object) -> None:
    os.write(1, (" ".join(map(str, words)) + "\n").encode())


async def begin(store: SQLiteStore, thread_id: str, lease_seconds: float = 30.0) -> Lease:
    lease, _ = await store.begin(
        "a",
        thread_id,
        "r",
        owner=f"process {os.getpid()}",
        lease_seconds=lease_seconds,
        input=b"{}",
        fingerprint="f",
        events=[event(1, 0)],
    )
    return lease


def event(number: int, left: int) -> bytes:
    """The event of a sequence number, and how many of its batch come after it."""
    return json.dumps({"n": number, "left": left, "text": "x" * (number % 97)}).encode()


async def write(store: SQLiteStore, thread_id: str, seed: str, batches: str) -> None:
    """Append batches of random sizes; say "wrote THREAD LAST" for each."""
    rng = random.Random(seed)
    lease = await begin(store, thread_id)
    say("wrote", thread_id, 1)
    last = 1
    for _ in range(int(batches)):
        size = rng.randint(1, 40)
        await store.append(lease, [event(last + i + 1, size - i - 1) for i in range(size)])
        last += size
        say("wrote", thread_id, last)
    await store.append(lease, [event(last + 1, 0)], end=RunEnd(outcome="success"))
    say("wrote", thread_id, last + 1)


async def write_many(store: SQLiteStore, count: str, seed: str, batches: str) -> None:
    """Several runs at once."""
    await asyncio.gather(*(write(store, f"t{i}", seed + str(i), batches) for i in range(int(count))))


async def own(store: SQLiteStore, thread_id: str, lease_seconds: str) -> None:
    """Begin a run and wait for its cancel; say when it came."""
    lease = await begin(store, thread_id, float(lease_seconds))
    waiting = asyncio.create_task(store.cancel_requested(lease))
    say("began", lease.epoch)
    await waiting
    say("cancelled", time.monotonic())
    await store.append(lease, [event(2, 0)], end=RunEnd(outcome="cancelled"))
    say("ended")


async def fork(store: SQLiteStore, thread_id: str, fifo: str) -> None:
    """Begin a run, then leave a child behind that has our open files, and lives until somebody opens a pipe."""
    await begin(store, thread_id)
    if os.fork() == 0:
        os.closerange(0, 3)  # or we could not be waited for
        os.open(fifo, os.O_RDONLY)
        os._exit(0)
    say("forked")
    await asyncio.Event().wait()


async def late(store: SQLiteStore, thread_id: str, lease_seconds: str) -> None:
    """Begin a run, and append when told to."""
    lease = await begin(store, thread_id, float(lease_seconds))
    say("began", lease.epoch)
    await asyncio.to_thread(sys.stdin.readline)
    await store.append(lease, [event(2, 0)])
    say("appended")


async def tail(store: SQLiteStore, thread_id: str, until: str) -> None:
    """Follow a thread; say "read FIRST LAST" for each batch."""
    async for batch in store.tail("a", thread_id):
        say("read", batch.first, batch.last)
        if batch.last >= int(until):
            return


async def race(store: SQLiteStore, thread_id: str) -> None:
    """Begin a run when told to."""
    say("ready")
    await asyncio.to_thread(sys.stdin.readline)
    await begin(store, thread_id)
    say("began")


async def check(store: SQLiteStore) -> None:
    """Open and write."""
    await store.check()
    say("checked")


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
        say(type(error).__name__)
    finally:
        await store.close()


if __name__ == "__main__":
    asyncio.run(main(*sys.argv[1:]))
