"""A process that appends to a run on PostgreSQL until it is refused: ``DSN SCHEMA``. It prints the stored numbers."""

from __future__ import annotations

import asyncio
import sys

from aguila.errors import StaleLease, StoreUnavailable
from aguila.store import NewRun, PostgresStore, RunChange

LEASE = 2.0


async def main(dsn: str, schema: str) -> None:
    store = PostgresStore(dsn, schema=schema, patience=3.0)
    await store.open()
    begun = await store.begin(
        NewRun(
            scope="a",
            thread_id="t",
            run_id="r",
            owner="cut off",
            lease_seconds=LEASE,
            request=b"{}",
            fingerprint="f",
            events=[b'{"n":1}'],
        )
    )
    number = 1
    while True:
        number += 1
        try:
            batch = (await store.write(begun.lease, RunChange(events=[b'{"n":%d}' % number]))).batch
            print(batch.last, flush=True)
        except StaleLease:
            print("stale", flush=True)
            return
        except StoreUnavailable:
            print("unavailable", flush=True)
            number -= 1
        await asyncio.sleep(0.01)


asyncio.run(main(*sys.argv[1:]))
