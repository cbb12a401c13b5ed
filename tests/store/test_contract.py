"""Every store keeps the whole contract."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import ClassVar

import pytest
from postgres_support import database_of

from aguila.store import RunKey, Store, Watch
from aguila.store.postgres.store import PostgresStore
from aguila.store.sqlite.memory import MemoryStore
from aguila.store.sqlite.store import SQLiteStore
from aguila.testing.store_contract import StoreContract
from aguila.testing.store_contract.support import DEADLINE, LEASE, Clock, lost_runs, start


class TestMemoryStore(StoreContract):
    def make(self, clock: Clock, tmp_path: Path) -> Store:
        return MemoryStore(clock=clock, monotonic=clock.monotonic)


class TestSQLiteStore(StoreContract):
    def make(self, clock: Clock, tmp_path: Path) -> Store:
        return SQLiteStore(tmp_path / "threads.db", clock=clock, monotonic=clock.monotonic)

    def make_second(self, clock: Clock, tmp_path: Path) -> Store:
        return self.make(clock, tmp_path)  # the same file


class ListeningStore(PostgresStore):
    """Opens when it listens: whatever was missed until then, a run may have a cancel request."""

    async def open(self) -> None:
        await super().open()
        wakeups = database_of(self).wakeups
        assert wakeups is not None
        assert await asyncio.to_thread(wakeups.is_listening.wait, DEADLINE)


class TestPostgresStore(StoreContract):
    STEPS: ClassVar = 120

    @pytest.fixture(autouse=True)
    def _server(self, postgres: str, postgres_schema: str) -> None:
        self._dsn, self._schema = postgres, postgres_schema

    def make(self, clock: Clock, tmp_path: Path) -> Store:
        # The clock of the database: nobody sets it when the clock of a server is set.
        return ListeningStore(self._dsn, schema=self._schema, patience=30.0, clock=clock.monotonic)

    def make_second(self, clock: Clock, tmp_path: Path) -> Store:
        return self.make(clock, tmp_path)  # the same schema

    async def test_setting_back_the_clock_of_the_database_does_not_extend_leases_and_viewers(
        self, store: Store, clock: Clock
    ):
        await start(store)
        run = RunKey("a", "t", "r")
        await store.tell(run, Watch("p", LEASE))
        clock.now -= 1_000_000
        assert await lost_runs(store) == []
        assert await store.is_watched(run)
        clock.now += LEASE
        assert not await store.is_watched(run)
        assert await lost_runs(store) == ["r"]
