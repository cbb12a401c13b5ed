"""The contract on PostgreSQL."""

from __future__ import annotations

from pathlib import Path
from typing import ClassVar

import pytest
from contract import StoreContract
from contract.support import Clock

from aguila.store import PostgresStore, Store

pytestmark = pytest.mark.anyio


class TestPostgresStore(StoreContract):
    STEPS: ClassVar = 120

    @pytest.fixture(autouse=True)
    def _server(self, postgres: str, postgres_schema: str) -> None:
        self._dsn, self._schema = postgres, postgres_schema

    def make(self, clock: Clock, tmp_path: Path) -> Store:
        return PostgresStore(self._dsn, schema=self._schema, patience=30.0, clock=clock)
