"""Every test that takes ``twin`` runs with both clients."""

from collections.abc import Iterator

import pytest
from twins import TWINS


@pytest.fixture(params=TWINS, ids=lambda twin: twin.name)
def twin(request: pytest.FixtureRequest) -> Iterator[object]:
    made = request.param()
    yield made
    made.close()
