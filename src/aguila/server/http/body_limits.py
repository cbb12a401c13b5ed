"""Limit the memory that large request bodies take together: each reserves its size from one budget.

A body reserves its size when its first megabyte has arrived: the headers of a request alone reserve nothing. Waiting
requests take turns by scope and peer, so that many requests of one peer delay another one by a single request.

A body needs most memory when its run starts: the bytes, the decoded input, the decoded files. So a run keeps its
reservation until it ends, but for ``MAX_HOLD`` seconds at most: a run may take minutes, and may itself send large
requests to this server. A slow upload is rejected (408) while other requests are queued. Small bodies reserve nothing.
"""

from __future__ import annotations

import asyncio
from collections import deque
from typing import Final, Self

from aguila.offload import LARGE
from aguila.server.errors import Rejected
from aguila.server.http.responses import Message, Receive

MAX_HOLD: Final = 1.0
"""Seconds for which a run keeps its reservation at most."""

_GRACE: Final = 5.0
"""Seconds before the rate of an upload is checked."""
_MIN_RATE: Final = 256 * 1024
"""Bytes per second that an upload needs while other requests are queued."""
_MAX_SILENCE: Final = 60.0
"""Seconds in which the next piece of a body must arrive."""


class BodyBudget:
    """A number of bytes that requests reserve. Waiting peers take turns.

    A request for more than the whole budget waits until it is alone.
    """

    def __init__(self, size: int) -> None:
        self._size = size
        self._reserved = 0
        self._waiting: dict[str, deque[tuple[int, asyncio.Future[None]]]] = {}  # by peer, the next one first

    @property
    def has_waiting(self) -> bool:
        """Whether requests are queued."""
        return bool(self._waiting)

    async def acquire(self, size: int, peer: str = "") -> None:
        """Wait until ``size`` bytes are free, then reserve them."""
        if not self._waiting and self._has_room(size):
            self._reserved += size
            return
        turn: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._waiting.setdefault(peer, deque()).append((size, turn))
        try:
            await turn
        except BaseException:
            if turn.done() and not turn.cancelled():
                self.release(size)  # cancelled after the reservation was made
            else:
                self._waiting[peer].remove((size, turn))
                if not self._waiting[peer]:
                    del self._waiting[peer]
                self._admit_waiting()
            raise

    def release(self, size: int) -> None:
        """Return bytes to the budget."""
        self._reserved -= size
        self._admit_waiting()

    def _has_room(self, size: int) -> bool:
        return self._reserved == 0 or self._reserved + size <= self._size

    def _admit_waiting(self) -> None:
        while self._waiting:
            peer = next(iter(self._waiting))
            queue = self._waiting[peer]
            size, turn = queue[0]
            if not turn.done() and not self._has_room(size):
                return
            queue.popleft()
            del self._waiting[peer]
            if queue:
                self._waiting[peer] = queue  # now the last
            if not turn.done():
                self._reserved += size
                turn.set_result(None)


class Reservation:
    """The bytes that one request has reserved. The end of the ``with`` block releases them.

    After ``release_after`` the end of the block does not release them.
    """

    def __init__(self, budget: BodyBudget, peer: str = "") -> None:
        self._budget = budget
        self._peer = peer
        self.size = 0
        """The reserved bytes; 0 before ``reserve`` and after the release."""
        self.received = 0
        """The bytes of the body that have arrived."""
        self._outlives_block = False
        self._began = 0.0

    async def reserve(self, size: int) -> None:
        """Wait until ``size`` bytes are free, then reserve them."""
        await self._budget.acquire(size, self._peer)
        self.size = size
        self._began = asyncio.get_running_loop().time()

    async def arrived(self, size: int, expected: int) -> None:
        """Count bytes of a body. When more than ``LARGE`` have arrived, reserve what is expected."""
        self.received += size
        if not self.size and self.received > LARGE:
            await self.reserve(expected)

    async def receive(self, receive: Receive) -> Message:
        """Receive the next piece of the body.

        Raises ``Rejected`` (408) if nothing arrives for a minute, or if it is slow and other requests wait.
        """
        if not self.size:
            try:
                async with asyncio.timeout(_MAX_SILENCE):
                    return await receive()
            except TimeoutError:
                message = f"no piece of the body has arrived for {_MAX_SILENCE:g} seconds; send it again"
                raise Rejected(408, "too_slow", message) from None
        while True:
            try:
                async with asyncio.timeout(_GRACE):
                    message = await receive()
            except TimeoutError:
                self._check_rate()
            else:
                self._check_rate()
                return message

    def _check_rate(self) -> None:
        if self._budget.has_waiting:
            late = asyncio.get_running_loop().time() - self._began - _GRACE
            if late > self.received / _MIN_RATE:
                raise Rejected(
                    408,
                    "too_slow",
                    f"the body arrived at less than {_MIN_RATE} bytes per second while other requests waited; "
                    "send it again",
                )

    def release_soon(self) -> None:
        """Release the bytes after ``MAX_HOLD`` seconds at the latest."""
        if self.size:
            asyncio.get_running_loop().call_later(MAX_HOLD, self.release)

    def release_after(self, ended: asyncio.Future[None]) -> None:
        """Release the bytes when a future is done, not at the end of the block."""
        if self.size:
            self._outlives_block = True
            ended.add_done_callback(lambda _: self.release())

    def release(self) -> None:
        """Release the bytes. A second call does nothing."""
        size, self.size = self.size, 0
        if size:
            self._budget.release(size)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        if not self._outlives_block:
            self.release()
