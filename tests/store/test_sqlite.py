from __future__ import annotations

from pathlib import Path

from contract import StoreContract
from contract_support import Clock

from aguila.store import SQLiteStore, Store


class TestSQLiteStore(StoreContract):
    def make(self, clock: Clock, tmp_path: Path) -> Store:
        return SQLiteStore(tmp_path / "threads.db", clock=clock)
