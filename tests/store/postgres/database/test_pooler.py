"""The store behind PgBouncer in transaction mode, where each transaction may use another session of the server."""

from __future__ import annotations

import asyncio
import os
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import ClassVar

import pytest
from contract import StoreContract
from contract.support import DEADLINE, Clock, collect, events_of, finish, lines, start
from stores.pgbouncer import find_pgbouncer, pgbouncer

from aguila.store import PostgresStore, Store
from aguila.store.postgres import files

pytestmark = [
    pytest.mark.anyio,
    pytest.mark.skipif(find_pgbouncer() is None, reason="PgBouncer is not installed: apt-get install pgbouncer"),
]


@pytest.fixture(scope="module")
def pooled(postgres: str) -> Iterator[str]:
    with pgbouncer(postgres) as dsn:
        yield dsn


@pytest.fixture
async def stores(pooled: str, postgres_schema: str) -> AsyncIterator[list[PostgresStore]]:
    """The stores of two processes behind the pooler."""
    found = [PostgresStore(pooled, schema=postgres_schema, wakeups="poll", patience=DEADLINE) for _ in range(2)]
    for store in found:
        await store.open()
    yield found
    for store in found:
        await store.close()


async def test_runs_of_two_processes_behind_a_pooler(stores: list[PostgresStore]):
    """Migrations, concurrent appends, tails, files and take-overs, with fewer sessions than clients."""
    leases = [await start(store, f"t{i}") for i in range(10) for store in [stores[i % 2]]]
    tails = [asyncio.create_task(collect(stores[(i + 1) % 2].tail("a", f"t{i}"), 22)) for i in range(10)]
    for number in range(20):
        await asyncio.gather(*(stores[i % 2].append(lease, lines(number)) for i, lease in enumerate(leases)))
    await asyncio.gather(*(finish(stores[i % 2], lease, "question") for i, lease in enumerate(leases)))
    assert await asyncio.gather(*tails) == [lines("started", *range(20), "finished")] * 10
    data = bytes(range(256)) * (3 * files.PART // 256 + 1)
    blob = await stores[0].put_blob("a", data, media_type="application/octet-stream", thread_id="t0")
    assert (await stores[1].blob("a", blob.blob_id))[1] == data
    lease = await start(stores[0], "t0", "lost", claims=["question"])
    await stores[0].renew(lease, -1.0)
    (run,) = await stores[1].expired()
    taken = await stores[1].take_over(run, owner="other", lease_seconds=30)
    assert taken is not None
    await finish(stores[1], taken)
    assert events_of(await stores[0].read("a", "t0"))[22:] == lines("started", "finished")
    await asyncio.gather(*(stores[i % 2].delete_thread("a", f"t{i}") for i in range(10)))
    assert await stores[0].threads("a") == []


if "AGUILA_POOLER" in os.environ:  # make test-postgres sets it; make test has the sample above

    class TestPooledStore(StoreContract):
        """The whole contract behind the pooler."""

        STEPS: ClassVar = 60

        @pytest.fixture(autouse=True)
        def _server(self, pooled: str, postgres_schema: str) -> None:
            self._dsn, self._schema = pooled, postgres_schema

        def make(self, clock: Clock, tmp_path: Path) -> Store:
            return PostgresStore(self._dsn, schema=self._schema, wakeups="poll", patience=30.0, clock=clock.monotonic)
