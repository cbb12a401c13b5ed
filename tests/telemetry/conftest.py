"""Traces of this process, for one test."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from tracing import Traces, tracing


@pytest.fixture
def traces() -> Iterator[Traces]:
    with tracing() as found:
        yield found
