"""Layer: client. Any async transport for the sync client: its loop runs in a thread.

Below: an ``AsyncTransport``. Above: ``Client(url, transport=ThreadedTransport(lambda: ASGITransport(app)))``.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Coroutine, Mapping
from concurrent.futures import CancelledError
from typing import Any, TypeVar

from aguila.client.transport import AsyncResponse, AsyncTransport, Request
from aguila.errors import TransportFailed

T = TypeVar("T")


class ThreadedTransport:
    """A sync transport over an async one, which is made in the thread that will use it."""

    def __init__(self, make: Callable[[], AsyncTransport]) -> None:
        self._make = make
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._main, name="aguila-transport", daemon=True)
        self._transport: AsyncTransport | None = None
        self._lock = threading.Lock()

    def send(self, request: Request, timeout: float | None) -> _Response:
        """See ``Transport``."""
        with self._lock:
            if not self._thread.is_alive():
                self._thread.start()
        response = self._wait(self._send(request), timeout)
        return _Response(self, response)

    def close(self) -> None:
        """See ``Transport``."""
        if not self._thread.is_alive():
            self._loop.close()
            return
        transport = self._transport
        if transport is not None:
            self._wait(transport.close(), None)
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()

    async def _send(self, request: Request) -> AsyncResponse:
        if self._transport is None:
            self._transport = self._make()
        return await self._transport.send(request)

    def _wait(self, what: Coroutine[Any, Any, T], timeout: float | None) -> T:
        future = asyncio.run_coroutine_threadsafe(what, self._loop)
        try:
            return future.result(timeout)
        except TimeoutError:
            future.cancel()
            raise TransportFailed(f"nothing came for {timeout:g} seconds", is_timeout=True) from None
        except CancelledError:
            raise TransportFailed("the transport was closed") from None
        except BaseException:
            future.cancel()  # nobody is going to ask for it
            raise

    def _main(self) -> None:
        asyncio.set_event_loop(self._loop)
        try:
            self._loop.run_forever()
        finally:
            self._loop.run_until_complete(self._loop.shutdown_asyncgens())
            self._loop.close()


class _Response:
    def __init__(self, transport: ThreadedTransport, response: AsyncResponse) -> None:
        self.status = response.status
        self.headers: Mapping[str, str] = response.headers
        self._transport = transport
        self._response = response

    def read(self, timeout: float | None) -> bytes:
        return self._transport._wait(self._response.read(), timeout)

    def close(self) -> None:
        self._transport._wait(self._response.close(), None)
