from __future__ import annotations

from collections.abc import AsyncIterator

import pytest
from postgres_support import SQL, make_sql

from aguila.store import PostgresStore


@pytest.fixture
async def store(postgres: str, postgres_schema: str) -> AsyncIterator[PostgresStore]:
    """An open store with the clock of the database."""
    store = PostgresStore(postgres, schema=postgres_schema, patience=30.0)
    await store.open()
    yield store
    await store.close()


@pytest.fixture
async def other(postgres: str, postgres_schema: str, store: PostgresStore) -> AsyncIterator[PostgresStore]:
    """The store of another process, on the same schema."""
    other = PostgresStore(postgres, schema=postgres_schema, patience=30.0)
    await other.open()
    yield other
    await other.close()


@pytest.fixture
def sql(postgres: str, postgres_schema: str) -> SQL:
    """Run statements on the schema of the test, beside the stores."""
    return make_sql(postgres, postgres_schema)
