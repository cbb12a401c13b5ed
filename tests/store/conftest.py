"""Put the helpers of the store tests on the import path of every test module."""

import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parent))
pytest.register_assert_rewrite("sqlite_support", "postgres_support")
