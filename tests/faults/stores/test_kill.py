"""``kill -9`` of a process that writes: all events that the store confirmed must be there, complete and in order.

``AGUILA_KILLS`` sets how often (the long version of ``make faults``).
"""

from __future__ import annotations

import json
import os
import random
import subprocess
import sys
from pathlib import Path

import pytest

from aguila.store import SQLiteStore

pytestmark = pytest.mark.anyio

WORKER = Path(__file__).parents[2] / "store" / "sqlite" / "worker.py"
KILLS = int(os.environ.get("AGUILA_KILLS", "12"))


def kill_a_writer(path: Path, rng: random.Random, seed: int) -> dict[str, int]:
    """Start a process with five runs, and kill it at a random time; return the last confirmation of each run."""
    process = subprocess.Popen(
        [sys.executable, WORKER, path, "write_many", "5", str(seed), "100000"], stdout=subprocess.PIPE, bufsize=0
    )
    assert process.stdout is not None
    confirmed: dict[str, int] = {}
    try:
        for _ in range(rng.choice([1, 3, 10, 50, 200, 500])):
            line = process.stdout.readline()
            assert line, "the writer ended by itself"
            _, thread_id, last = line.split()
            confirmed[thread_id.decode()] = int(last)
    finally:
        process.kill()
        rest = process.stdout.read()
        process.stdout.close()
        process.wait()
    for line in rest.split(b"\n")[:-1]:  # its output before it died, without an incomplete last line
        _, thread_id, last = line.split()
        confirmed[thread_id.decode()] = int(last)
    return confirmed


async def verify(path: Path, confirmed: dict[str, int]) -> None:
    store = SQLiteStore(path)
    await store.open()
    threads = (await store.threads("a")).threads
    for summary in threads:
        position = 0
        left = 0
        async for batch in _all(store, summary.thread_id):
            assert batch.first == position + 1
            for event in batch.events:
                position += 1
                found = json.loads(event)
                assert found["n"] == position
                left = found["left"]
            assert left == 0, "a batch is there in part"
        assert position == summary.last >= confirmed.get(summary.thread_id, 0)
        assert summary.is_running
    assert confirmed.keys() <= {summary.thread_id for summary in threads}
    await store.check()
    await store.close()


async def _all(store: SQLiteStore, thread_id: str):
    after = 0
    while batches := (await store.read("a", thread_id, after, limit=10_000)).batches:
        for batch in batches:
            yield batch
        after = batches[-1].last


@pytest.mark.parametrize("seed", range(KILLS))
async def test_what_was_confirmed_before_a_kill_is_in_the_log_at_its_place(tmp_path: Path, seed: int):
    rng = random.Random(seed)
    path = tmp_path / "threads.db"
    confirmed = kill_a_writer(path, rng, seed)
    assert confirmed
    await verify(path, confirmed)
