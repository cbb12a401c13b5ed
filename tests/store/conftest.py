"""Put the contract suite on the import path of every store's test module."""

import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parent))
pytest.register_assert_rewrite("contract", "sqlite_support", "postgres_support")
