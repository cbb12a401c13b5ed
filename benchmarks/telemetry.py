"""What telemetry costs: the CPU per event of a server that traces or counts its runs, next to one that does neither.

A run is 80 tokens, each after a turn of the event loop, in a span of their own. The servers take turns, since a shared
machine changes its speed more than traces do. Each says how much CPU it has used: the client is in this process.
``python -m benchmarks.telemetry KIND PORT`` is a server.
"""

from __future__ import annotations

import asyncio
import http.client
import json
import socket
import statistics
import subprocess
import sys
import time
from collections.abc import AsyncIterator, Generator, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

TOKENS = 80
RUNS = 5
"""Runs of a turn: it ends before the scheduler gives the core to another process."""
ROUNDS = 250
BASE = "no provider"
MOST = {
    "a provider that records nothing": 5,
    "a provider that records": 15,
    "App(metrics=True)": 5,
    "a meter provider": 15,
}
HERE = Path(__file__).parent.parent


# The servers


def serve(kind: str, port: int) -> None:
    import uvicorn
    from opentelemetry import metrics, trace
    from opentelemetry.sdk.metrics import MeterProvider
    from opentelemetry.sdk.metrics.export import InMemoryMetricReader
    from opentelemetry.sdk.trace import TracerProvider
    from opentelemetry.sdk.trace.export import BatchSpanProcessor, SpanExporter, SpanExportResult

    from aguila import App

    class Dropping(SpanExporter):
        """Takes the spans from the queue of the SDK. What an exporter does with them is its own cost."""

        def export(self, spans: Sequence[Any]) -> SpanExportResult:
            return SpanExportResult.SUCCESS

    if kind == "a provider that records nothing":
        trace.set_tracer_provider(trace.NoOpTracerProvider())
    elif kind == "a provider that records":
        provider = TracerProvider()
        provider.add_span_processor(BatchSpanProcessor(Dropping()))
        trace.set_tracer_provider(provider)
    elif kind == "a meter provider":
        metrics.set_meter_provider(MeterProvider([InMemoryMetricReader()]))

    async def agent(run: Any) -> AsyncIterator[str]:
        with run.span("answer"):
            for number in range(TOKENS):
                yield f"word{number} "
                await asyncio.sleep(0)

    app = App(agent, store=":memory:", metrics=kind == "App(metrics=True)")

    async def with_clock(scope: Any, receive: Any, send: Any) -> None:
        if scope["type"] != "http" or scope["path"] != "/cpu":
            await app(scope, receive, send)
            return
        await send({"type": "http.response.start", "status": 200, "headers": []})
        await send({"type": "http.response.body", "body": str(time.process_time()).encode()})

    uvicorn.run(with_clock, host="127.0.0.1", port=port, log_level="error", access_log=False, timeout_keep_alive=60)


class Server:
    """A connection to a server that is up."""

    def __init__(self, port: int) -> None:
        self._connection = http.client.HTTPConnection("127.0.0.1", port, timeout=60)
        self._count = 0

    def cpu(self) -> float:
        """Return the seconds of CPU that the server has used."""
        self._connection.request("GET", "/cpu")
        return float(self._connection.getresponse().read())

    def run(self) -> None:
        self._count += 1
        name = f"run{self._count}"
        messages = [{"id": "m", "role": "user", "content": "Go."}]
        body = json.dumps({"threadId": name, "runId": name, "messages": messages, "protocolVersion": "1.1"})
        headers = {
            "content-type": "application/json",
            "traceparent": "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01",
        }
        self._connection.request("POST", "/", body, headers)
        assert b"RUN_FINISHED" in self._connection.getresponse().read()


@contextmanager
def server(kind: str) -> Generator[Server]:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
    process = subprocess.Popen([sys.executable, "-m", "benchmarks.telemetry", kind, str(port)], cwd=HERE)
    try:
        deadline = time.monotonic() + 20
        while True:
            try:
                Server(port).cpu()
                break
            except OSError:
                if time.monotonic() > deadline or process.poll() is not None:
                    raise RuntimeError(f"the server with {kind} did not start") from None
                time.sleep(0.05)
        yield Server(port)
    finally:
        process.kill()
        process.wait()


# The measurement


def measure() -> dict[str, list[float]]:
    """Return the CPU seconds of each turn by server."""
    with ExitStack() as stack:
        servers = {kind: stack.enter_context(server(kind)) for kind in (BASE, *MOST)}
        spent: dict[str, list[float]] = {kind: [] for kind in servers}
        for turn in range(ROUNDS):
            first = turn % len(servers)
            order = [*servers][first:] + [*servers][:first]
            for kind in order:
                one = servers[kind]
                began = one.cpu()
                for _ in range(RUNS):
                    one.run()
                spent[kind].append(one.cpu() - began)
        return {kind: turns[10:] for kind, turns in spent.items()}  # the first ones warm up


def rows() -> Generator[dict[str, Any]]:
    # The fastest turns but few: those that no other process has disturbed.
    spent = {kind: statistics.quantiles(turns, n=10)[1] for kind, turns in measure().items()}
    per_event = spent[BASE] / RUNS / TOKENS * 1e6
    yield {"name": "telemetry: CPU per event without a provider", "value": per_event, "unit": "us"}
    for kind, most in MOST.items():
        more = (spent[kind] / spent[BASE] - 1) * 100
        yield {"name": f"telemetry: CPU per event, more with {kind}", "value": more, "unit": "%", "most": most}


if __name__ == "__main__":
    serve(sys.argv[1], int(sys.argv[2]))
