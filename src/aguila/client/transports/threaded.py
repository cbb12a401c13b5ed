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


class LoopThread:
    """An event loop in a thread. It starts with the first transport that uses it and ends with the last."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._users = 0
        self._loop: asyncio.AbstractEventLoop | None = None
        self._thread: threading.Thread | None = None

    def acquire(self) -> asyncio.AbstractEventLoop:
        """Return the loop, started, until ``release``."""
        with self._lock:
            if self._loop is None:
                self._loop = asyncio.new_event_loop()
                self._thread = threading.Thread(target=_run, args=(self._loop,), name="aguila-transport", daemon=True)
                self._thread.start()
            self._users += 1
            return self._loop

    def release(self) -> None:
        """Give the loop back. The last user stops it and waits for its thread."""
        with self._lock:
            self._users -= 1
            if self._users > 0 or self._loop is None or self._thread is None:
                return
            loop, self._loop = self._loop, None
            loop.call_soon_threadsafe(loop.stop)
            self._thread.join()


def _run(loop: asyncio.AbstractEventLoop) -> None:
    asyncio.set_event_loop(loop)
    try:
        loop.run_forever()
    finally:
        loop.run_until_complete(loop.shutdown_asyncgens())
        loop.close()


class ThreadedTransport:
    """Send requests over an async transport: ``Client(url, transport=ThreadedTransport(lambda: ASGITransport(app)))``.

    ``make`` is called in the thread that uses the transport. Transports to the same application share ``thread``: an
    application belongs to one event loop.
    """

    def __init__(self, make: Callable[[], AsyncTransport], *, thread: LoopThread | None = None) -> None:
        self._make = make
        self._thread = thread or LoopThread()
        self._loop: asyncio.AbstractEventLoop | None = None  # set by the first request
        self._transport: AsyncTransport | None = None
        self._lock = threading.Lock()
        self._is_closed = False
        self._waits: set[Future[Any]] = set()
        self._responses: set[AsyncResponse] = set()

    def send(self, request: Request, timeout: float | None) -> _Response:
        """Send a request. See ``Transport``."""
        with self._lock:
            if self._loop is None and not self._is_closed:
                self._loop = self._thread.acquire()
        return _Response(self, self.wait(self._send(request), timeout))

    def close(self) -> None:
        """Close the connections, and end waits in other threads. See ``Transport``."""
        with self._lock:
            if self._is_closed:
                return
            self._is_closed = True
            waits = list(self._waits)
        if self._loop is None:
            return
        for future in waits:
            future.cancel()
        asyncio.run_coroutine_threadsafe(self._close_all(), self._loop).result()
        self._thread.release()

    def wait(self, coroutine: Coroutine[Any, Any, T], timeout: float | None) -> T:
        """Run a coroutine in the thread and return its result. Raise ``TransportFailed`` after ``timeout``."""
        with self._lock:
            if self._is_closed or self._loop is None:
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
