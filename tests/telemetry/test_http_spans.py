"""The spans of an instrumented HTTP client, Aguila's own and one that an agent uses, have their place in the tree."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator
from typing import Any

import httpx2
import pytest
from opentelemetry.instrumentation.httpx import HTTPX2ClientInstrumentor
from serving import serving
from tracing import Traces

from aguila import App, AsyncClient

pytestmark = pytest.mark.anyio


@pytest.fixture
def instrumented(traces: Traces) -> Iterator[Traces]:
    """Instrument every client of httpx2, as ``opentelemetry-instrument`` does."""
    instrumentor = HTTPX2ClientInstrumentor()
    instrumentor.instrument(tracer_provider=traces.provider)
    yield traces
    instrumentor.uninstrument()


async def read_page(run: Any) -> AsyncIterator[str]:
    async with httpx2.AsyncClient() as client:
        yield "It says: "
        with run.span("read"):
            async with client.stream("GET", run.user_text) as response:
                async for text in response.aiter_text():
                    yield text


async def test_requests_of_a_client_and_of_an_agent_that_streams_are_in_one_tree(instrumented: Traces) -> None:
    with serving(App(read_page, store=":memory:")) as server:
        async with AsyncClient(server.url) as client:
            result = await client.thread().run(f"{server.url}/healthz")
    assert result.text == 'It says: {"status":"ok"}'
    assert instrumented.tree() == {"invoke_agent": {"POST": {"invoke_agent default": {"read": {"GET": {}}}}}}
