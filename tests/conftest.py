"""Run every async test (``pytest.mark.anyio``) on asyncio, the only event loop that Aguila supports.

Start PostgreSQL if asked.
"""

import os
import secrets
from pathlib import Path

import pytest

from aguila.store import MemoryStore, PostgresStore, SQLiteStore, Store


@pytest.fixture(scope="session")
def anyio_backend() -> str:
    return "asyncio"


def pytest_configure(config: pytest.Config) -> None:
    from stores.postgres_cluster import FOLDER, make_folder

    if not hasattr(config, "workerinput"):
        os.environ[FOLDER] = str(make_folder())


def pytest_unconfigure(config: pytest.Config) -> None:
    from stores.postgres_cluster import stop_shared

    if not hasattr(config, "workerinput"):
        stop_shared()


@pytest.fixture(scope="session")
def postgres() -> str:
    """The DSN of the PostgreSQL server of this test run."""
    from stores.postgres_cluster import find_programs, shared_dsn

    if "AGUILA_POSTGRES" not in os.environ and find_programs() is None:
        reason = "PostgreSQL is not installed: apt-get install postgresql, or set AGUILA_POSTGRES to a DSN"
        if os.environ.get("CI") == "true":
            pytest.fail(reason)
        pytest.skip(reason)
    return shared_dsn()


@pytest.fixture
def postgres_schema(postgres: str) -> str:
    """A name for the schema of one test."""
    return f"test_{secrets.token_hex(6)}"


@pytest.fixture(params=["memory", "sqlite", "postgres"])
def store(request: pytest.FixtureRequest, tmp_path: Path) -> Store:
    """Each store in turn. PostgreSQL only for tests with the mark ``postgres``, and in ``make test-postgres``."""
    if request.param == "memory":
        return MemoryStore()
    if request.param == "sqlite":
        return SQLiteStore(tmp_path / "threads.db")
    schema = request.getfixturevalue("postgres_schema")
    return PostgresStore(request.getfixturevalue("postgres"), schema=schema, patience=30.0)  # also on a loaded machine


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    wants_all = os.environ.get("AGUILA_STORES") == "postgres"  # make test-postgres
    kept: list[pytest.Item] = []
    dropped: list[pytest.Item] = []
    for item in items:
        call = getattr(item, "callspec", None)
        on_postgres = call is not None and call.params.get("store") == "postgres"
        is_marked = item.get_closest_marker("postgres") is not None
        is_kept = on_postgres if wants_all else not on_postgres or is_marked
        (kept if is_kept else dropped).append(item)
    if dropped:
        config.hook.pytest_deselected(items=dropped)
        items[:] = kept
