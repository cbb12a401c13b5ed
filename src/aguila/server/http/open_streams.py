"""The open streams of an app: their heartbeats, readers that accept nothing, and the end of all of them."""

from __future__ import annotations

import asyncio
from contextlib import suppress
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from aguila.server.http.stream import EventStream


class OpenStreams:
    """The open streams of an app. One timer sends heartbeats to all of them.

    A heartbeat comes after at most ``heartbeat`` seconds without a write. One timer per stream would take more memory
    than the rest of the stream. A stream whose reader accepts nothing for ``write_seconds`` is ended.
    """

    def __init__(self, heartbeat: float, write_seconds: float = 60.0) -> None:
        self.loop = asyncio.get_running_loop()
        self.is_closed = False
        """Whether ``close`` was called: no stream may be added."""
        self.write_seconds = write_seconds
        self._heartbeat = heartbeat
        self._interval = min(heartbeat, write_seconds) / 4
        self.open: set[EventStream] = set()
        self.emptied = asyncio.Event()
        """Set when the last stream has ended, or when ``close`` is to wait no longer."""
        self._heartbeats: set[asyncio.Task[None]] = set()
        self._timer = self.loop.call_later(self._interval, self._send_heartbeats)

    async def close(self, seconds: float, end_seconds: float) -> bool:
        """Give the streams ``seconds`` to end, then end them early; return whether all have ended and were read.

        ``end_seconds`` is the time for the early end. A stream whose client does not read takes longer.
        """
        self.is_closed = True
        await self._wait_until_empty(seconds)
        # A connection whose client does not read stays open after its stream.
        is_stuck = any(stream.is_stalled(self.loop.time()) for stream in self.open)
        for stream in list(self.open):
            stream.end(b"")
        await self._wait_until_empty(end_seconds)
        self._timer.cancel()
        return not self.open and not is_stuck

    async def _wait_until_empty(self, seconds: float) -> None:
        if self.open:
            self.emptied.clear()
            with suppress(TimeoutError):
                async with asyncio.timeout(seconds):
                    await self.emptied.wait()

    def _send_heartbeats(self) -> None:
        idle_since = self.loop.time() - self._heartbeat * 0.75
        stalled_since = self.loop.time() - self.write_seconds
        for stream in self.open:
            if stream.is_stalled(stalled_since):
                stream.end(None)
            elif stream.is_idle(idle_since):
                task = self.loop.create_task(stream.send_heartbeat())  # a blocked stream must not delay the others
                self._heartbeats.add(task)
                task.add_done_callback(self._heartbeats.discard)
        self._timer = self.loop.call_later(self._interval, self._send_heartbeats)
