"""A TCP link between one server and its databases that a test can cut, freeze and close to new connections."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Sequence
from contextlib import suppress

from waiting import DEADLINE


class DatabaseLink:
    """Forwards one loopback port per database. Runs on a thread of its own."""

    def __init__(self, *targets: int) -> None:
        self._targets = [*targets, 0][:2]
        self.ports: list[int] = []
        self._loop = asyncio.new_event_loop()
        self._ready = threading.Event()
        self._stop: asyncio.Event | None = None
        self._flowing = asyncio.Event()
        self._is_open = True
        self._writers: set[asyncio.StreamWriter] = set()
        self._thread = threading.Thread(target=self._loop.run_until_complete, args=(self._serve(),), name="link")
        self._thread.start()
        assert self._ready.wait(DEADLINE)

    def dsn(self, user: str = "aguila") -> str:
        hosts = ",".join(f"127.0.0.1:{port}" for port in self.ports)
        return f"postgresql://{user}@{hosts}/postgres?target_session_attrs=read-write"

    def lead_to(self, targets: Sequence[int]) -> None:
        """Set the databases of new connections. Without a second one, its port refuses connections."""
        self._targets = [*targets, 0][:2]

    def cut(self) -> None:
        """Break every connection; new ones are accepted."""
        self._call(self._abort)

    def freeze(self) -> None:
        """Let nothing pass, in either direction, without closing anything."""
        self._call(self._flowing.clear)

    def thaw(self) -> None:
        """Let everything pass that waited."""
        self._call(self._flowing.set)

    def partition(self) -> None:
        """Break every connection and refuse new ones."""
        self._is_open = False
        self.cut()

    def heal(self) -> None:
        """Accept connections again."""
        self._is_open = True

    def close(self) -> None:
        assert self._stop is not None
        self._loop.call_soon_threadsafe(self._stop.set)
        self._thread.join(DEADLINE)
        self._loop.close()

    def _call(self, function: object) -> None:
        done = threading.Event()

        def call() -> None:
            function()  # type: ignore[operator]
            done.set()

        self._loop.call_soon_threadsafe(call)
        assert done.wait(DEADLINE)

    def _abort(self) -> None:
        for writer in self._writers:
            writer.transport.abort()

    async def _serve(self) -> None:
        self._stop = asyncio.Event()
        self._flowing.set()
        tasks: set[asyncio.Task[None]] = set()
        servers: list[asyncio.Server] = []
        for index in range(2):

            async def connected(reader: asyncio.StreamReader, writer: asyncio.StreamWriter, index: int = index) -> None:
                task = asyncio.current_task()
                assert task is not None
                tasks.add(task)
                with suppress(OSError, asyncio.CancelledError):
                    await self._forward(reader, writer, self._targets[index])
                tasks.discard(task)

            server = await asyncio.start_server(connected, "127.0.0.1", 0)
            servers.append(server)
            self.ports.append(server.sockets[0].getsockname()[1])
        self._ready.set()
        await self._stop.wait()
        for server in servers:
            server.close()
        self._abort()
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    async def _forward(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, target: int) -> None:
        self._writers.add(writer)
        below: asyncio.StreamWriter | None = None
        pumps: list[asyncio.Future[None]] = []
        try:
            if not self._is_open or not target:
                return
            above, below = await asyncio.open_connection("127.0.0.1", target)
            self._writers.add(below)
            pumps = [asyncio.ensure_future(self._pump(*ends)) for ends in ((reader, below), (above, writer))]
            await asyncio.wait(pumps, return_when=asyncio.FIRST_COMPLETED)
        finally:
            for pump in pumps:
                pump.cancel()
            for one in (writer, below):
                if one is not None:
                    self._writers.discard(one)
                    one.transport.abort()

    async def _pump(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with suppress(OSError, asyncio.CancelledError):
            while data := await reader.read(65536):
                await self._flowing.wait()
                writer.write(data)
                await writer.drain()
