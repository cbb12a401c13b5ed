"""The pytest plugin with the fixtures ``agui_client`` and ``assert_stream``.

pytest loads it wherever Aguila is installed, with any extras. So it imports nothing before a test uses a fixture.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from aguila.client import Client
    from aguila.testing.assertions import StreamAssertion
    from aguila.testing.client import ClientMaker


pytest.register_assert_rewrite("aguila.testing.store_contract")


@pytest.fixture
def agui_client() -> Iterator[ClientMaker]:
    """Make clients: ``agui_client(agent)`` calls an agent or an ASGI app in this process, without sockets.

    The options are those of ``aguila.testing.sync_client_for``. Clients are closed after the test. In an async test use
    ``async with client_for(agent) as client``.
    """
    with ExitStack() as clients:

        def make(target: Any, **options: Any) -> Client:
            from aguila.testing.client import sync_client_for

            return clients.enter_context(sync_client_for(target, **options))

        yield make


@pytest.fixture
def assert_stream() -> StreamAssertion:
    """Assert that a stream follows the protocol. See ``aguila.testing.assert_stream``."""
    from aguila.testing.assertions import assert_stream

    return assert_stream
