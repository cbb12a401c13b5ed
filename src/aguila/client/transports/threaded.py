"""Layer: client. Any async transport for the sync client: its loop runs in a thread.

Below: an ``AsyncTransport``. Above: ``Client(url, transport=ThreadedTransport(lambda: ASGITransport(app)))``.
"""

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
    """A sync transport over an async one, which is made in the thread that will use it."""

    def __init__(self, make: Callable[[], AsyncTransport]) -> None:
        self._make = make
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._main, name="aguila-transport", daemon=True)
        self._transport: AsyncTransport | None = None
        self._lock = threading.Lock()
        self._is_closed = False
        self._waited_for: set[Future[Any]] = set()
        self._open: set[AsyncResponse] = set()

    def send(self, request: Request, timeout: float | None) -> _Response:
        """See ``Transport``."""
        with self._lock:
            if not self._thread.is_alive() and not self._is_closed:
                self._thread.start()
        return _Response(self, self._wait(self._send(request), timeout))

    def close(self) -> None:
        """See ``Transport``."""
        with self._lock:
            if self._is_closed:
                return
            self._is_closed = True
            waited_for = list(self._waited_for)
        if not self._thread.is_alive():
            self._loop.close()
            return
        for future in waited_for:
            future.cancel()
        asyncio.run_coroutine_threadsafe(self._end(), self._loop).result()
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()

    async def _end(self) -> None:
        for response in list(self._open):
            await response.close()
        if self._transport is not None:
            await self._transport.close()

    async def _send(self, request: Request) -> AsyncResponse:
        if self._transport is None:
            self._transport = self._make()
        response = await self._transport.send(request)
        self._open.add(response)
        return response

    def _wait(self, what: Coroutine[Any, Any, T], timeout: float | None) -> T:
        with self._lock:
            if self._is_closed:
                what.close()
                raise TransportFailed("the transport was closed")
            future = asyncio.run_coroutine_threadsafe(what, self._loop)
            self._waited_for.add(future)
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
        finally:
            self._waited_for.discard(future)

    def _let_go(self, response: AsyncResponse) -> None:
        async def close() -> None:
            self._open.discard(response)
            await response.close()

        if not self._is_closed:  # what is open then is closed with the transport
            with suppress(TransportFailed):
                self._wait(close(), None)

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
        self._transport._let_go(self._response)
