"""Limit the memory of all large request bodies: each body reserves its bytes from one budget, as they arrive.

Beyond its first megabyte, a body reserves a megabyte at a time. Its declared length reserves nothing. A body that waits
is not read. The body with the oldest reservation never waits, even if it exceeds the budget: otherwise bodies that have
arrived in part could block each other. Waiting requests take turns by scope and peer: however many requests of one peer
wait, a request of another peer waits for one of them.

A body needs most memory when its run starts: the bytes, the decoded input, the decoded files. So a run keeps its
reservation until it ends, but for ``MAX_HOLD`` seconds at most: a run may take minutes, and may itself send large
requests to this server. A slow upload is rejected (408) while other requests are queued. Small bodies reserve nothing.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Awaitable
from dataclasses import dataclass
from typing import Final, Protocol, Self

from aguila.offload import LARGE
from aguila.server.errors import Rejected
from aguila.server.http.responses import Message, Receive
from aguila.server.http.shared_timeout import SharedTimeout

MAX_HOLD: Final = 1.0
"""Seconds for which a run keeps its reservation at most."""

_STEP: Final = 1024 * 1024
"""Bytes that a body reserves at a time."""
_GRACE: Final = 5.0
"""Seconds before the rate of an upload is checked."""
_MIN_RATE: Final = 256 * 1024
"""Bytes per second that an upload needs while other requests are queued."""
_MAX_SILENCE: Final = 60.0
"""Seconds in which the next piece of a body must arrive."""
_LEAST_RATE: Final = 1024
"""Bytes per second that a body needs after its first ``_MAX_SILENCE`` seconds."""


@dataclass(slots=True, eq=False)
class _Waiting:
    """A request that waits for bytes."""

    size: int
    peer: str
    holder: object
    turn: asyncio.Future[None]


class BodyBudget:
    """A number of bytes that requests reserve. Waiting peers take turns.

    A request for more than the whole budget waits until it is alone, unless its ``holder`` has held bytes for longer
    than all others.
    """

    def __init__(self, size: int) -> None:
        self._size = size
        self._reserved = 0
        self._holders: dict[object, None] = {}  # the oldest first
        self._waiting: dict[str, deque[_Waiting]] = {}  # by peer, the next one first
        self._growing: dict[object, _Waiting] = {}  # holders that wait for more
        self.loop = asyncio.get_running_loop()  # once: before Python 3.12 this is a system call
        self.first_pieces = SharedTimeout(_MAX_SILENCE, _slow)
        """The timeout for the first pieces of bodies."""

    @property
    def has_waiting(self) -> bool:
        """Whether requests are queued."""
        return bool(self._waiting)

    async def acquire(self, size: int, peer: str = "", holder: object = None) -> None:
        """Wait until ``size`` bytes are free, then reserve them."""
        if (not self._waiting and self._has_room(size)) or (holder is not None and holder is self._oldest()):
            self._grant(size, holder)
            return
        waiting = _Waiting(size, peer, holder, self.loop.create_future())
        self._waiting.setdefault(peer, deque()).append(waiting)
        is_first = holder not in self._holders
        if not is_first:
            self._growing[holder] = waiting
        try:
            await waiting.turn
        except BaseException:
            if waiting.turn.done() and not waiting.turn.cancelled():  # cancelled after the reservation was made
                self._reserved -= size
                if is_first:
                    self._holders.pop(holder, None)
            else:
                self._remove(waiting)
            self._admit_waiting()
            raise

    def release(self, size: int, holder: object = None) -> None:
        """Return bytes to the budget: all that the holder has."""
        self._reserved -= size
        self._holders.pop(holder, None)
        self._admit_waiting()

    def _oldest(self) -> object:
        return next(iter(self._holders), None)

    def _has_room(self, size: int) -> bool:
        return self._reserved == 0 or self._reserved + size <= self._size

    def _grant(self, size: int, holder: object) -> None:
        self._reserved += size
        if holder is not None:
            self._holders.setdefault(holder)

    def _remove(self, waiting: _Waiting) -> None:
        self._growing.pop(waiting.holder, None)
        queue = self._waiting[waiting.peer]
        queue.remove(waiting)
        if not queue:
            del self._waiting[waiting.peer]

    def _admit_waiting(self) -> None:
        growing = self._growing.get(self._oldest())
        if growing is not None:
            self._remove(growing)
            self._admit(growing)
        while self._waiting:
            peer = next(iter(self._waiting))
            queue = self._waiting[peer]
            waiting = queue[0]
            if not waiting.turn.done() and not self._has_room(waiting.size):
                return
            queue.popleft()
            self._growing.pop(waiting.holder, None)
            del self._waiting[peer]
            if queue:
                self._waiting[peer] = queue  # now the last
            self._admit(waiting)

    def _admit(self, waiting: _Waiting) -> None:
        if not waiting.turn.done():
            self._grant(waiting.size, waiting.holder)
            waiting.turn.set_result(None)


class Sender(Protocol):
    """The sender of a body."""

    @property
    def peer(self) -> str:
        """The name of its queue."""
        ...


class Reservation:
    """The bytes that one request has reserved. The end of the ``with`` block releases them.

    After ``release_after`` the end of the block does not release them.
    """

    def __init__(self, budget: BodyBudget, sender: Sender | None = None) -> None:
        self._budget = budget
        self._sender = sender
        self.size = 0
        """The reserved bytes; 0 before ``reserve`` and after the release."""
        self.received = 0
        """The bytes of the body that have arrived."""
        self._outlives_block = False
        self._began = 0.0
        self._opened: float | None = None
        """When the wait for the first piece began, plus the time that the body has waited for its reservation."""

    async def reserve(self, size: int) -> None:
        """Wait until ``size`` bytes are free, then reserve them."""
        loop = self._budget.loop
        asked = loop.time()
        await self._budget.acquire(size, "" if self._sender is None else self._sender.peer, self)
        waited = loop.time() - asked  # the wait does not make the upload slow
        self._began += waited if self.size else loop.time()
        if self._opened is not None:
            self._opened += waited
        self.size += size

    async def arrived(self, size: int) -> None:
        """Count bytes of a body, and reserve them if there are more than ``LARGE``."""
        self.received += size
        if self.received > max(LARGE, self.size):
            await self.reserve(-(-self.received // _STEP) * _STEP - self.size)

    def receive(self, receive: Receive) -> Awaitable[Message]:
        """Receive the next piece of the body.

        Raises ``Rejected`` (408) if nothing arrives for a minute, if less than a kilobyte per second has arrived after
        the first minute, or if the body is slow and other requests wait.
        """
        now = self._budget.loop.time()
        if self._opened is None:
            self._opened = now
            if not self.size:
                return self._budget.first_pieces.wait(receive())
        return self._receive(receive, min(now, self._opened + self.received / _LEAST_RATE) + _MAX_SILENCE)

    async def _receive(self, receive: Receive, until: float) -> Message:
        """Receive the next piece until a time of the event loop."""
        loop = self._budget.loop
        while True:
            try:
                async with asyncio.timeout_at(min(until, loop.time() + _GRACE) if self.size else until):
                    message = await receive()
            except TimeoutError:
                self._check_rate()
                if loop.time() >= until:
                    raise _slow() from None
            else:
                self._check_rate()
                return message

    def _check_rate(self) -> None:
        if self.size and self._budget.has_waiting:
            late = self._budget.loop.time() - self._began - _GRACE
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
            self._budget.loop.call_later(MAX_HOLD, self.release)

    def release_after(self, ended: asyncio.Future[None]) -> None:
        """Release the bytes when a future is done, not at the end of the block."""
        if self.size:
            self._outlives_block = True
            ended.add_done_callback(lambda _: self.release())

    def release(self) -> None:
        """Release the bytes. A second call does nothing."""
        size, self.size = self.size, 0
        if size:
            self._budget.release(size, self)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        if not self._outlives_block:
            self.release()


def _slow() -> Rejected:
    message = (
        f"no piece of the body has arrived for {_MAX_SILENCE:g} seconds, or less than {_LEAST_RATE} bytes per second; "
        "send it again, and faster"
    )
    return Rejected(408, "too_slow", message)
