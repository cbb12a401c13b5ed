"""The contract on PostgreSQL."""

from __future__ import annotations

from pathlib import Path
from typing import ClassVar

import pytest
from contract import StoreContract
from contract.support import LEASE, Clock, start

from aguila.store import PostgresStore, Store

pytestmark = pytest.mark.anyio


class TestPostgresStore(StoreContract):
    STEPS: ClassVar = 120

    @pytest.fixture(autouse=True)
    def _server(self, postgres: str, postgres_schema: str) -> None:
        self._dsn, self._schema = postgres, postgres_schema

    def make(self, clock: Clock, tmp_path: Path) -> Store:
        # The clock of the database: nobody sets it when the clock of a server is set.
        return PostgresStore(self._dsn, schema=self._schema, patience=30.0, clock=clock.monotonic)

    async def test_setting_back_the_clock_of_the_database_does_not_extend_leases_and_viewers(
        self, store: Store, clock: Clock
    ):
        lease = await start(store)
        await store.watch("a", "t", "r", viewer="p", seconds=LEASE)
        clock.now -= 1_000_000
        assert list(await store.expired()) == []
        assert await store.watched(lease)
        clock.now += LEASE
        assert [run.run_id for run in await store.expired()] == ["r"]
        assert not await store.watched(lease)
