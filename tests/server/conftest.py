"""Stores for tests that need no server around them."""

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from aguila.store import MemoryStore, SQLiteStore, Store


@pytest.fixture(params=["memory", "sqlite"])
async def open_store(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[Store]:
    """Each store in turn, open."""
    store: Store = MemoryStore() if request.param == "memory" else SQLiteStore(tmp_path / "threads.db")
    await store.open()
    yield store
    await store.close()
