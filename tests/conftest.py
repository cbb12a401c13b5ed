"""Run every async test (``pytest.mark.anyio``) on asyncio, which is what Aguila supports. Start PostgreSQL if asked."""

import os
import secrets

import pytest


@pytest.fixture(scope="session")
def anyio_backend() -> str:
    return "asyncio"


def pytest_configure(config: pytest.Config) -> None:
    from postgres_cluster import FOLDER, make_folder

    if not hasattr(config, "workerinput"):
        os.environ[FOLDER] = str(make_folder())


def pytest_unconfigure(config: pytest.Config) -> None:
    from postgres_cluster import stop_shared

    if not hasattr(config, "workerinput"):
        stop_shared()


@pytest.fixture(scope="session")
def postgres() -> str:
    """The DSN of the PostgreSQL server of this test run."""
    from postgres_cluster import find_programs, shared_dsn

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
