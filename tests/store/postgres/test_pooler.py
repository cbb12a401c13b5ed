"""The store behind PgBouncer. In transaction mode, each transaction may use another session of the server."""

from __future__ import annotations

import asyncio
import os
from collections.abc import AsyncIterator, Iterator
from contextlib import AsyncExitStack
from pathlib import Path
from typing import ClassVar

import pytest
from stores.pgbouncer import find_pgbouncer, pgbouncer

from aguila.store import PostgresStore, Store
from aguila.testing.store_contract import StoreContract
from aguila.testing.store_contract.support import (
    DEADLINE,
    Clock,
    append,
    collect,
    delete,
    events_of,
    finish,
    lines,
    list_threads,
    read,
    renew,
    start,
)

pytestmark = [
    pytest.mark.anyio,
    pytest.mark.skipif(find_pgbouncer() is None, reason="PgBouncer is not installed: apt-get install pgbouncer"),
]


@pytest.fixture(scope="module")
def transaction_mode(postgres: str) -> Iterator[str]:
    with pgbouncer(postgres) as dsn:
        yield dsn


@pytest.fixture(scope="module")
def session_mode(postgres: str) -> Iterator[str]:
    with pgbouncer(postgres, "session", servers=30) as dsn:
        yield dsn


@pytest.fixture(params=["transaction", "session"])
async def stores(request: pytest.FixtureRequest, postgres_schema: str) -> AsyncIterator[list[PostgresStore]]:
    """The stores of two processes behind the pooler."""
    dsn = request.getfixturevalue(f"{request.param}_mode")
    wakeups = "poll" if request.param == "transaction" else "listen"
    async with AsyncExitStack() as stack:
        yield [
            await stack.enter_async_context(
                PostgresStore(dsn, schema=postgres_schema, wakeups=wakeups, patience=DEADLINE)
            )
            for _ in range(2)
        ]


async def test_runs_of_two_processes_behind_a_pooler(stores: list[PostgresStore]):
    """The schema, concurrent writes, tails, files and take-overs, with fewer sessions than clients."""
    leases = [await start(store, f"t{i}") for i in range(10) for store in [stores[i % 2]]]
    tails = [asyncio.create_task(collect(stores[(i + 1) % 2].tail("a", f"t{i}"), 22)) for i in range(10)]
    for number in range(20):
        await asyncio.gather(*(append(stores[i % 2], lease, lines(number)) for i, lease in enumerate(leases)))
    await asyncio.gather(*(finish(stores[i % 2], lease, "question") for i, lease in enumerate(leases)))
    assert await asyncio.gather(*tails) == [lines("started", *range(20), "finished")] * 10
    data = bytes(range(256)) * (3 * 1024 * 1024 // 256 + 1)
    file = await stores[0].put_file("a", data, media_type="application/octet-stream", thread_id="t0")
    assert (await stores[1].file("a", file.file_id))[1] == data
    lease = await start(stores[0], "t0", "lost", claims=["question"])
    await renew(stores[0], lease, -1.0)
    (taken,) = await stores[1].take_over("other", 30)
    await finish(stores[1], taken.lease)
    assert events_of(await read(stores[0], "t0"))[22:] == lines("started", "finished")
    await asyncio.gather(*(delete(stores[i % 2], f"t{i}") for i in range(10)))
    assert await list_threads(stores[0]) == []


if "AGUILA_POOLER" in os.environ:  # make test-postgres sets it; make test has the sample above

    class TestPooledStore(StoreContract):
        """The whole contract behind the pooler."""

        STEPS: ClassVar = 60

        @pytest.fixture(autouse=True)
        def _server(self, transaction_mode: str, postgres_schema: str) -> None:
            self._dsn, self._schema = transaction_mode, postgres_schema

        def make(self, clock: Clock, tmp_path: Path) -> Store:
            return PostgresStore(self._dsn, schema=self._schema, wakeups="poll", patience=30.0, clock=clock.monotonic)

        def make_second(self, clock: Clock, tmp_path: Path) -> Store:
            return self.make(clock, tmp_path)
