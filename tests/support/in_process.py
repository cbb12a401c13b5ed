"""Call an app within the process: a client that may stop reading, and a watch over the event loop's thread."""

from __future__ import annotations

import asyncio
import time
from types import SimpleNamespace
from typing import Any
from urllib.parse import unquote

from aguila import App
from aguila.server.config.options import Settings
from aguila.server.runs.store_health import StoreHealth


class Reader:
    """A client within the process. It stops reading after ``accepts`` messages."""

    def __init__(self, app: App, accepts: int = 1_000_000, address: str | None = None) -> None:
        self._app = app
        self._address = address
        self._accepts = accepts
        self.messages: list[Any] = []
        self.stalled = asyncio.Event()
        self.goes_on = asyncio.Event()

    async def send(self, message: Any) -> None:
        if len(self.messages) >= self._accepts:
            self.stalled.set()
            await self.goes_on.wait()
        self.messages.append(message)

    async def request(self, method: str, path: str, body: bytes = b"", **headers: str) -> int:
        """Send a request and return the status, when the app is done with it."""
        received = [{"type": "http.request", "body": body, "more_body": False}]

        async def receive() -> Any:
            return received.pop() if received else await asyncio.Event().wait()

        pairs = [(name.replace("_", "-").encode(), value.encode()) for name, value in headers.items()]
        path, _, query = path.partition("?")
        client = None if self._address is None else (self._address, 1)
        scope = {
            "type": "http",
            "client": client,
            "method": method,
            "path": unquote(path),
            "raw_path": path.encode(),
            "headers": [(b"host", b"localhost"), *pairs],
        }
        await self._app({**scope, "query_string": query.encode(), "root_path": ""}, receive, self.send)
        return self.messages[0]["status"]

    @property
    def body(self) -> bytes:
        return b"".join(message.get("body", b"") for message in self.messages)

    @property
    def is_complete(self) -> bool:
        return "body" in self.messages[-1] and not self.messages[-1].get("more_body", False)


class Slices:
    """The longest CPU time of one callback of the event loop, from ``start`` to ``stop``."""

    def __init__(self) -> None:
        self.longest = 0.0

    def start(self) -> None:
        self._run = run = asyncio.Handle._run  # type: ignore[attr-defined]

        def measured(handle: asyncio.Handle) -> None:
            began = time.thread_time()
            run(handle)
            self.longest = max(self.longest, time.thread_time() - began)

        asyncio.Handle._run = measured  # type: ignore[attr-defined]

    def stop(self) -> None:
        asyncio.Handle._run = self._run  # type: ignore[attr-defined]


def run_environment(store: Any, settings: Settings = Settings()) -> Any:  # noqa: B008 - frozen
    """Make what an event pump needs of a server, in a running event loop."""
    parts: dict[str, Any] = {"store": store, "settings": settings, "store_health": StoreHealth(), "counts": None}
    return SimpleNamespace(**parts, loop=asyncio.get_running_loop(), closing=lambda _: ())  # pyright: ignore[reportUnknownLambdaType]
