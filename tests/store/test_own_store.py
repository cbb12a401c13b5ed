"""The store of examples/24_own_store.py keeps the whole contract."""

from __future__ import annotations

import asyncio
import runpy
from pathlib import Path
from typing import Any

import pytest
from processes.forked import run_script
from serving import REPOSITORY

from aguila.errors import ThreadBusy
from aguila.testing import StoreContract
from aguila.testing.store_contract.support import (
    Clock,
    append,
    collect,
    count_refused,
    events_of,
    finish,
    lines,
    read,
    start,
)

EXAMPLE = REPOSITORY / "examples" / "24_own_store.py"
OWN = runpy.run_path(str(EXAMPLE))


class TestOwnStore(StoreContract):
    COMPACTS = False
    STEPS = 150

    def make(self, clock: Clock, tmp_path: Path) -> Any:
        self._database = OWN["Database"]()
        return self.make_second(clock, tmp_path)

    def make_second(self, clock: Clock, tmp_path: Path) -> Any:
        return OWN["OwnStore"](self._database, clock=clock, monotonic=clock.monotonic)


@pytest.mark.anyio
async def test_two_processes_share_a_database() -> None:
    database = OWN["Database"]()
    async with OWN["OwnStore"](database) as one, OWN["OwnStore"](database) as other:
        begins = [start(store, run_id=f"r{number}") for number, store in enumerate([one, other] * 4)]
        assert await count_refused(begins, ThreadBusy) == 7
        leases = await asyncio.gather(*(start(store, f"t{number}") for number, store in enumerate([one, other] * 4)))
        tails = [asyncio.create_task(collect(other.tail("a", f"t{number}"), 5)) for number in range(8)]
        for _ in range(3):
            await asyncio.gather(*(append(one, lease, lines("x")) for lease in leases))
        await asyncio.gather(*(finish(one, lease) for lease in leases))
        assert await asyncio.gather(*tails) == [lines("started", *"xxx", "finished")] * 8
        assert events_of(await read(other, "t3")) == lines("started", *"xxx", "finished")


def test_the_example_shows_a_thread_to_two_processes(tmp_path: Path) -> None:
    assert run_script(EXAMPLE, tmp_path).splitlines() == [
        "You said: Is this durable?",
        "['Is this durable?', 'You said: Is this durable?']",
    ]
