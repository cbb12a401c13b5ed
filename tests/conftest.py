"""Run every async test (``pytest.mark.anyio``) on asyncio, which is what Aguila supports."""

import pytest


@pytest.fixture(scope="session")
def anyio_backend() -> str:
    return "asyncio"
