from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from aguila.store import SQLiteStore


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "threads.db"


@pytest.fixture
async def store(path: Path) -> AsyncIterator[SQLiteStore]:
    store = SQLiteStore(path, busy_seconds=0.05)
    await store.open()
    yield store
    await store.close()
