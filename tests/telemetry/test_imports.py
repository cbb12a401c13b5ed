"""OpenTelemetry is imported by who uses it."""

from __future__ import annotations

import subprocess
import sys

import pytest
from opentelemetry import trace
from opentelemetry.sdk.trace import TracerProvider

from aguila.telemetry import load_spans

RUN = """
import asyncio, sys
from aguila import App, AsyncClient
from aguila.client.transports.asgi import ASGITransport

async def agent(run):
    with run.span("work"):
        await run.call_tool(work)

async def work():
    pass

async def main():
    app = App(agent, store=":memory:")
    async with app, AsyncClient("http://localhost/", transport=ASGITransport(app)) as client:
        print((await client.thread().run("Go.")).outcome)

asyncio.run(main())
print([name for name in sys.modules if name.startswith("opentelemetry")])
"""


def test_a_process_that_does_not_trace_imports_nothing_of_opentelemetry() -> None:
    done = subprocess.run([sys.executable, "-c", RUN], capture_output=True, text=True, timeout=60)
    assert done.stdout.splitlines() == ["success", "[]"], done.stderr


def test_a_provider_without_effect_is_as_none(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(trace, "get_tracer_provider", trace.NoOpTracerProvider)
    assert load_spans() is None
    monkeypatch.setattr(trace, "get_tracer_provider", TracerProvider)
    assert load_spans() is not None
