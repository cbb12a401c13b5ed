"""Both clients behind one plain interface, so that one test says what both do."""

from __future__ import annotations

import asyncio
import inspect
from typing import Any

from aguila.client import AsyncClient, Client, Reconnect
from aguila.client.bridge import ThreadedTransport

DEFAULTS: dict[str, Any] = {
    "reconnect": Reconnect(attempts=5, initial=0.0),
    "options": {"verify": False},  # there is no TLS here, and reading the certificates of the system takes longest
}


class SyncTwin:
    name = "sync"

    def __init__(self) -> None:
        self._open: list[Any] = []

    def client(self, url: str, **options: Any) -> Any:
        options = {**DEFAULTS, **options}
        client = Client(url, **options)
        self._open.append(client)
        return client

    def over(self, make_transport: Any, url: str = "http://test", **options: Any) -> Any:
        """A client over an async transport."""
        return self.client(url, transport=ThreadedTransport(make_transport), **options)

    def wait(self, value: Any) -> Any:
        return value

    def result(self, run: Any) -> Any:
        return run.result()

    def events(self, run: Any, until: Any = None) -> list[Any]:
        found = []
        for event in run:
            found.append(event)
            if until is not None and until(event):
                break
        return found

    def close(self) -> None:
        for client in self._open:
            client.close()


class AsyncTwin:
    name = "async"

    def __init__(self) -> None:
        self._runner = asyncio.Runner()
        self._open: list[Any] = []

    def client(self, url: str, **options: Any) -> Any:
        options = {**DEFAULTS, **options}
        client = AsyncClient(url, **options)
        self._open.append(client)
        return client

    def over(self, make_transport: Any, url: str = "http://test", **options: Any) -> Any:
        return self.client(url, transport=make_transport(), **options)

    def wait(self, value: Any) -> Any:
        if not inspect.isawaitable(value):
            return value

        async def wait() -> Any:
            return await value

        return self._runner.run(wait())

    def result(self, run: Any) -> Any:
        return self.wait(run.result())

    def events(self, run: Any, until: Any = None) -> list[Any]:
        async def gather() -> list[Any]:
            found = []
            async for event in run:
                found.append(event)
                if until is not None and until(event):
                    break
            return found

        return self._runner.run(gather())

    def close(self) -> None:
        async def close() -> None:
            for client in self._open:
                await client.close()

        self._runner.run(close())
        self._runner.close()


TWINS = (AsyncTwin, SyncTwin)
