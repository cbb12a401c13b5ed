"""A proxy that breaks connections: after so many bytes of an answer, or before a request arrives."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable
from contextlib import suppress
from urllib.parse import urlsplit

from waiting import DEADLINE


class CuttingProxy:
    """Forwards TCP to ``url``. ``budget`` is asked for every connection: how many bytes of the answer may pass before
    it is cut, None for all, -1 to cut before the request is passed on, -2 just after."""

    def __init__(self, url: str, budget: Callable[[], int | None]) -> None:
        self._target: tuple[str | None, int | None] = (None, None)
        self.lead_to(url)
        self.budget = budget
        self.cuts = 0
        self.port = 0
        self._ready = threading.Event()
        self._loop = asyncio.new_event_loop()
        self._stop: asyncio.Event | None = None
        self._open: set[asyncio.StreamWriter] = set()
        self._thread = threading.Thread(target=self._main, name="cutting")

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    def __enter__(self) -> CuttingProxy:
        self._thread.start()
        assert self._ready.wait(DEADLINE)
        return self

    def __exit__(self, *_: object) -> None:
        assert self._stop is not None
        self._loop.call_soon_threadsafe(self._stop.set)
        self._thread.join(DEADLINE)

    def lead_to(self, url: str) -> None:
        """Set the target of new connections."""
        parts = urlsplit(url)
        self._target = (parts.hostname, parts.port)

    def cut_now(self) -> None:
        """Break every connection."""
        done = threading.Event()

        def cut() -> None:
            for writer in self._open:
                self.cuts += 1
                writer.transport.abort()
            done.set()

        self._loop.call_soon_threadsafe(cut)
        assert done.wait(DEADLINE)

    def _main(self) -> None:
        self._loop.run_until_complete(self._serve())
        self._loop.close()

    async def _serve(self) -> None:
        self._stop = asyncio.Event()
        tasks: set[asyncio.Task[None]] = set()

        async def connected(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            task = asyncio.current_task()
            assert task is not None
            tasks.add(task)
            self._open.add(writer)
            with suppress(ConnectionError, asyncio.CancelledError):
                await self._pass(reader, writer)
            self._open.discard(writer)
            await _closed(writer)
            tasks.discard(task)

        server = await asyncio.start_server(connected, "127.0.0.1", 0)
        self.port = server.sockets[0].getsockname()[1]
        self._ready.set()
        await self._stop.wait()
        server.close()
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    async def _pass(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        budget = self.budget()
        first = await reader.read(65536)
        if budget == -1:
            self.cuts += 1
            writer.transport.abort()
            return
        above, below = await asyncio.open_connection(*self._target)
        try:
            below.write(first)
            await below.drain()
            await self._both_ways(reader, writer, above, below, budget)
        finally:
            await _closed(below)

    async def _both_ways(
        self,
        reader: asyncio.StreamReader,
        writer: asyncio.StreamWriter,
        above: asyncio.StreamReader,
        below: asyncio.StreamWriter,
        budget: int | None,
    ) -> None:
        async def up() -> None:
            while data := await reader.read(65536):
                below.write(data)
                await below.drain()

        async def down() -> None:
            left = budget
            while data := await above.read(65536):
                if left is not None and len(data) >= left:
                    if left > 0:
                        writer.write(data[:left])
                        await writer.drain()
                    self.cuts += 1
                    writer.transport.abort()
                    return
                left = None if left is None else left - len(data)
                writer.write(data)
                await writer.drain()

        upward = asyncio.ensure_future(up())
        downward = asyncio.ensure_future(down())
        try:
            await asyncio.wait({upward, downward}, return_when=asyncio.FIRST_COMPLETED)
        finally:
            for task in (upward, downward):
                task.cancel()
            await asyncio.gather(upward, downward, return_exceptions=True)


async def _closed(writer: asyncio.StreamWriter) -> None:
    writer.close()
    with suppress(ConnectionError, asyncio.CancelledError):
        await writer.wait_closed()
