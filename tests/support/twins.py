"""Both clients behind one interface, so that one test covers both."""

from __future__ import annotations

import asyncio
import inspect
import threading
from typing import Any

from waiting import DEADLINE

from aguila.client import AsyncClient, Client, Reconnect
from aguila.client.transports.threaded import ThreadedTransport

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
        """Return a client over an async transport."""
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


def error_while_closing(twin: Any, client: Any, run: Any, is_waiting: threading.Event) -> Any:
    """Return the error of a run whose client is closed while the run waits."""
    if isinstance(twin, SyncTwin):
        found = []

        def follow():
            try:
                run.result()
            except Exception as error:  # noqa: BLE001 - it is looked at
                found.append(error)

        thread = threading.Thread(target=follow, daemon=True)
        thread.start()
        assert is_waiting.wait(DEADLINE)
        client.close()
        thread.join(DEADLINE)
        assert not thread.is_alive(), "it still waits"
        return found[0]

    async def main():
        following = asyncio.ensure_future(run.result())
        assert await asyncio.to_thread(is_waiting.wait, DEADLINE)
        await client.close()
        done, _ = await asyncio.wait({following}, timeout=DEADLINE)
        assert done, "it still waits"
        return following.exception()

    return twin.wait(main())
