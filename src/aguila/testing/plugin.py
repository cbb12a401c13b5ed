"""Layer: testing. The pytest plugin: the fixtures ``agui_client`` and ``assert_stream``.

pytest loads this wherever Aguila is installed, with any of its extras or none: nothing is imported before a test asks
for it, and what is missing then is named.
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


@pytest.fixture
def agui_client() -> Iterator[ClientMaker]:
    """Makes clients: ``agui_client(agent)`` talks to an agent or an ASGI app in this process, without sockets.

    The options are those of ``aguila.testing.sync_client_for``. Clients are closed after the test. An async test uses
    ``async with client_for(agent) as client``.
    """
    with ExitStack() as clients:

        def make(target: Any, **options: Any) -> Client:
            from aguila.testing.client import sync_client_for

            return clients.enter_context(sync_client_for(target, **options))

        yield make


@pytest.fixture
def assert_stream() -> StreamAssertion:
    """Holds a stream to the protocol: ``assert_stream(events)``; see ``aguila.testing.assertions``."""
    from aguila.testing.assertions import assert_stream

    return assert_stream
