"""What traces cost: the CPU per event of runs that are traced, next to the same runs without a tracer provider.

All run in this process and take turns, since a shared machine changes its speed more than traces do. A run is 80
tokens, each after a turn of the event loop, in a span of their own, to a client that reads them through ASGI.
"""

from __future__ import annotations

import asyncio
import gc
import json
import statistics
import time
from collections.abc import AsyncIterator, Generator, Sequence
from contextlib import contextmanager
from typing import Any
from unittest.mock import patch

from opentelemetry import trace
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import BatchSpanProcessor, SpanExporter, SpanExportResult

TOKENS = 80
RUNS = 40
ROUNDS = 25
BASE = "no provider"
MOST = {"a provider that records nothing": 5, "a provider that records": 15}


class Dropping(SpanExporter):
    """Takes the spans from the queue of the SDK, as an exporter does that is slower."""

    def export(self, spans: Sequence[Any]) -> SpanExportResult:
        return SpanExportResult.SUCCESS


def providers() -> dict[str, Any]:
    recording = TracerProvider(shutdown_on_exit=False)
    recording.add_span_processor(BatchSpanProcessor(Dropping()))
    return dict(zip((BASE, *MOST), (None, trace.NoOpTracerProvider(), recording), strict=True))


@contextmanager
def provided(provider: Any) -> Generator[None]:
    """Give the process this provider for a while. ``set_tracer_provider`` is for good."""
    if provider is None:
        yield
        return
    with patch.object(trace, "get_tracer_provider", lambda: provider):
        yield


async def agent(run: Any) -> AsyncIterator[str]:
    with run.span("answer"):
        for number in range(TOKENS):
            yield f"word{number} "
            await asyncio.sleep(0)


class Reading:
    """Posts runs to an app and reads them."""

    def __init__(self) -> None:
        from aguila import App

        self.app = App(agent, store=":memory:")
        self._count = 0

    async def post(self) -> None:
        self._count += 1
        name = f"run{self._count}"
        message = {"id": "m", "role": "user", "content": "Go."}
        sent = {"threadId": name, "runId": name, "messages": [message], "protocolVersion": "1.1"}
        received = [{"type": "http.request", "body": json.dumps(sent).encode(), "more_body": False}]

        async def receive() -> Any:
            return received.pop() if received else await asyncio.Event().wait()

        async def send(message: Any) -> None:
            pass

        headers = [
            (b"host", b"localhost"),
            (b"content-type", b"application/json"),
            (b"traceparent", b"00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01"),
        ]
        scope = {"type": "http", "client": None, "method": "POST", "path": "/", "raw_path": b"/", "headers": headers}
        await self.app({**scope, "query_string": b"", "root_path": ""}, receive, send)


async def measure() -> dict[str, list[float]]:
    """Return the CPU seconds of each round by provider."""
    given = providers()
    readings: dict[str, Reading] = {}
    for name, provider in given.items():
        with provided(provider):
            readings[name] = Reading()
            await readings[name].post()  # the app starts, and decides whether it traces
    spent: dict[str, list[float]] = {name: [] for name in given}
    for turn in range(ROUNDS + 1):
        order = [*given][turn % 3 :] + [*given][: turn % 3]
        for name in order:
            with provided(given[name]):
                gc.collect()
                began = time.process_time()
                for _ in range(RUNS):
                    await readings[name].post()
                spent[name].append(time.process_time() - began)
    for reading in readings.values():
        await reading.app.close()
    return {name: rounds[1:] for name, rounds in spent.items()}  # the first warms up


def rows() -> Generator[dict[str, Any]]:
    spent = asyncio.run(measure())
    base = spent[BASE]
    yield {
        "name": "traces: CPU per event without a provider",
        "value": statistics.median(base) / RUNS / TOKENS * 1e6,
        "unit": "us",
    }
    for name, most in MOST.items():
        more = [own / other - 1 for own, other in zip(spent[name], base, strict=True)]
        yield {
            "name": f"traces: CPU per event, more with {name}",
            "value": statistics.median(more) * 100,
            "unit": "%",
            "most": most,
        }
