"""A server that measures itself: its CPU time, its memory and the turns of its event loop.

Started as a script with its settings as JSON, as ``faults.app`` is. Its agents are ``echo``, ``relay``, which passes on
the stream of the endpoint ``settings["upstream"]``, and ``read``, which reads that stream with the client.
``settings["store"]`` is ``memory``, ``sqlite`` or a DSN. ``settings["http"]`` is uvicorn's protocol, by default that of
``aguila serve``. ``POST /measurements`` returns what was measured since the last one.
"""

from __future__ import annotations

import json
import sys
import time
from collections.abc import AsyncIterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import uvicorn
from in_process import Slices

from aguila import App, AsyncClient
from aguila.errors import AguilaError
from aguila.frameworks import upstream
from aguila.server.http.bounded_protocol import BoundedHTTPProtocol
from aguila.store import MemoryStore, PostgresStore, SQLiteStore
from faults.app import Announced


def ignore(_: Any) -> None:
    """Drop a notice: thousands of them would be measured as log lines."""


async def echo(run: Any) -> AsyncIterator[str]:
    yield f"{len(run.messages)} messages"


class Reading:
    """An agent that reads the stream of an endpoint with a client.

    One client reads all streams: to make one takes 30 ms, most of it for the certificates of TLS.
    """

    def __init__(self, url: str) -> None:
        self._client = AsyncClient(url, reconnect=None, warn=ignore)

    async def __call__(self, run: Any) -> str:
        with suppress(AguilaError):  # another error fails the run
            await self._client.thread("t").run("hello")
        return "read"


class Measured:
    """An ASGI application that measures the process it runs in."""

    def __init__(self, app: App) -> None:
        self._app = app
        self._slices = Slices()
        self._slices.start()

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        if scope["type"] != "http" or scope["path"] != "/measurements":
            await self._app(scope, receive, send)
            return
        await send({"type": "http.response.start", "status": 200, "headers": []})
        await send({"type": "http.response.body", "body": json.dumps(self._measure()).encode()})

    def _measure(self) -> dict[str, float]:
        status = dict(line.split(":", 1) for line in Path("/proc/self/status").read_text().splitlines())
        memory, peak = (int(status[name].split()[0]) * 1024 for name in ("VmRSS", "VmHWM"))
        found = {"cpu": time.process_time(), "longest": self._slices.longest, "memory": memory, "peak": peak}
        self._slices.longest = 0.0
        Path("/proc/self/clear_refs").write_text("5")  # the peak begins anew
        return found


def main(settings: dict[str, Any]) -> None:
    """Serve until killed."""
    match settings["store"]:
        case "sqlite":
            store: Any = SQLiteStore(Path(settings["folder"], "threads.db"))
        case "memory":
            store = MemoryStore()
        case _:
            store = PostgresStore(settings["store"], schema=settings["schema"])
    agents: dict[str, Any] = {"echo": echo}
    if "upstream" in settings:
        agents["relay"] = upstream(settings["upstream"], client={"reconnect": None, "warn": ignore})
        agents["read"] = Reading(settings["upstream"])
    app = App(agents, store=store, allow_anonymous=True, copilotkit=True, page=True, metrics=True, warn=ignore)
    Announced.port_file = Path(settings["port"])
    config = uvicorn.Config(
        Measured(app),
        host="127.0.0.1",
        port=0,
        http=settings.get("http", BoundedHTTPProtocol),
        access_log=False,
        log_level="warning",
        loop="asyncio",
        lifespan="on",
    )
    Announced(config).run()


if __name__ == "__main__":
    main(json.loads(sys.argv[1]))
