"""A sync transport over an async one, whose event loop runs in a thread."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Coroutine, Mapping
from concurrent.futures import CancelledError, Future
from contextlib import suppress
from typing import Any, TypeVar

from aguila.client.transports.base import AsyncResponse, AsyncTransport, Request
from aguila.errors import TransportFailed

T = TypeVar("T")


class ThreadedTransport:
    """Send requests over an async transport: ``Client(url, transport=ThreadedTransport(lambda: ASGITransport(app)))``.

    ``make`` is called in the thread that uses the transport.
    """

    def __init__(self, make: Callable[[], AsyncTransport]) -> None:
        self._make = make
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._main, name="aguila-transport", daemon=True)
        self._transport: AsyncTransport | None = None
        self._lock = threading.Lock()
        self._is_closed = False
        self._waits: set[Future[Any]] = set()
        self._responses: set[AsyncResponse] = set()

    def send(self, request: Request, timeout: float | None) -> _Response:
        """Send a request. See ``Transport``."""
        with self._lock:
            if not self._thread.is_alive() and not self._is_closed:
                self._thread.start()
        return _Response(self, self.wait(self._send(request), timeout))

    def close(self) -> None:
        """Close the connections, and end waits in other threads. See ``Transport``."""
        with self._lock:
            if self._is_closed:
                return
            self._is_closed = True
            waits = list(self._waits)
        if not self._thread.is_alive():
            self._loop.close()
            return
        for future in waits:
            future.cancel()
        asyncio.run_coroutine_threadsafe(self._close_all(), self._loop).result()
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()

    def wait(self, coroutine: Coroutine[Any, Any, T], timeout: float | None) -> T:
        """Run a coroutine in the thread and return its result. Raise ``TransportFailed`` after ``timeout``."""
        with self._lock:
            if self._is_closed:
                coroutine.close()
                raise TransportFailed("the transport was closed")
            future = asyncio.run_coroutine_threadsafe(coroutine, self._loop)
            self._waits.add(future)
        try:
            return future.result(timeout)
        except TimeoutError:
            future.cancel()
            raise TransportFailed(f"no data for {timeout:g} seconds", is_timeout=True) from None
        except CancelledError:
            raise TransportFailed("the transport was closed") from None
        except BaseException:
            future.cancel()  # its result is not needed any more
            raise
        finally:
            self._waits.discard(future)

    def close_response(self, response: AsyncResponse) -> None:
        """Close a response. When the transport is closed, it has closed its responses already."""

        async def close() -> None:
            self._responses.discard(response)
            await response.close()

        if not self._is_closed:
            with suppress(TransportFailed):
                self.wait(close(), None)

    async def _send(self, request: Request) -> AsyncResponse:
        if self._transport is None:
            self._transport = self._make()
        response = await self._transport.send(request)
        self._responses.add(response)
        return response

    async def _close_all(self) -> None:
        for response in list(self._responses):
            await response.close()
        if self._transport is not None:
            await self._transport.close()

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
        return self._transport.wait(self._response.read(), timeout)

    def close(self) -> None:
        self._transport.close_response(self._response)
