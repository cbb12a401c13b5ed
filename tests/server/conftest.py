"""Stores for tests that need no server around them."""

from collections.abc import AsyncIterator

import pytest

from aguila.store import Store


@pytest.fixture
async def open_store(store: Store) -> AsyncIterator[Store]:
    """Each store in turn, open."""
    await store.open()
    yield store
    await store.close()
