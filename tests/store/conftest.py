"""Puts the contract on the import path, so that every store's test module can run it."""

import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parent))
pytest.register_assert_rewrite(
    "contract", "contract_log", "contract_model", "contract_runs", "contract_support", "contract_threads"
)


@pytest.fixture
def anyio_backend() -> str:
    return "asyncio"
