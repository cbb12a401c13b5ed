"""docs/telemetry.md: its app is traced."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

DOCUMENT = (Path(__file__).parents[2] / "docs" / "telemetry.md").read_text()

RUN = """
import asyncio
from aguila import AsyncClient
from aguila.client.transports.asgi import ASGITransport

async def main():
    async with app, AsyncClient("http://localhost/", transport=ASGITransport(app)) as client:
        await client.thread().run("Go.")

asyncio.run(main())
"""


def test_the_app_of_the_document_prints_its_spans() -> None:
    block = re.findall(r"^```python\n(.*?)^```", DOCUMENT, re.MULTILINE | re.DOTALL)[0]
    exporter = "from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter"
    assert exporter in block
    # There is no collector: the spans are printed.
    block = block.replace(
        exporter, "from opentelemetry.sdk.trace.export import ConsoleSpanExporter as OTLPSpanExporter"
    )
    # In a process of its own, because a provider is set for good.
    done = subprocess.run(
        [sys.executable, "-c", block + RUN], capture_output=True, text=True, timeout=60, env={**os.environ}
    )
    assert done.returncode == 0, done.stderr
    assert re.findall(r'^    "name": "(.*)"', done.stdout, re.MULTILINE) == [
        "search",
        "invoke_agent default",
        "invoke_agent",
    ]
    assert '"query": "eagles"' in done.stdout
