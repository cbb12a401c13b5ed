"""Call an app within the process: a client that may stop reading, and a watch over the event loop's thread."""

from __future__ import annotations

import asyncio
import time
from typing import Any

from aguila import App


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
            "path": path,
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
    """The longest CPU time of one turn of the event loop."""

    def __init__(self) -> None:
        self.longest = 0.0
        self._at = 0.0

    def start(self) -> None:
        self._at = time.thread_time()
        self._timer = asyncio.get_running_loop().call_soon(self._tick)

    def _tick(self) -> None:
        now = time.thread_time()
        self.longest = max(self.longest, now - self._at)
        self._at = now
        self._timer = asyncio.get_running_loop().call_later(0, self._tick)

    def stop(self) -> None:
        self._timer.cancel()
        self._tick()
        self._timer.cancel()
