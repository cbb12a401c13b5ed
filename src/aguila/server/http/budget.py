"""Limit the memory of large request bodies, and of what is held for readers.

Each body reserves its bytes from one budget, as they arrive.

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
from contextlib import suppress
from dataclasses import dataclass
from typing import Final, Protocol

from starlette.types import Message, Receive, Scope, Send

from aguila.server.config.errors import Rejected
from aguila.server.http.responses import Response

MAX_HOLD: Final = 1.0
"""Seconds for which a run keeps its reservation at most."""

_STEP: Final = 1024 * 1024
"""Bytes that a body reserves at a time. A smaller body reserves nothing: it is mostly a history."""
_GRACE: Final = 5.0
"""Seconds before the rate of an upload is checked."""
_MIN_RATE: Final = 256 * 1024
"""Bytes per second that an upload needs while other requests are queued."""
_MAX_SILENCE: Final = 60.0
"""Seconds in which the next piece of a body must arrive."""
_LEAST_RATE: Final = 1024
"""Bytes per second that a body needs after its first ``_MAX_SILENCE`` seconds."""


_SMALL: Final = 1 << 15
"""A body of at most this many bytes is not counted as unsent."""


class UnsentBytes:
    """Limits the bytes that are buffered for readers."""

    def __init__(self, most: int) -> None:
        self._most = most
        self._held = 0

    def hold(self, response: Response, size: int) -> Response:
        """Return the response, counted until it is sent. Raises ``Rejected`` (503) if there are too many bytes."""
        if size <= _SMALL:
            return response
        if self._held and self._held + size > self._most:
            message = f"{self._most} bytes are held for readers that have not accepted them; try again later"
            raise Rejected(503, "too_many_unsent", message, headers={"retry-after": "5"})

        async def send_counted(scope: Scope, receive: Receive, send: Send) -> None:
            self._held += size
            try:
                await response(scope, receive, send)
            finally:
                self._held -= size

        return send_counted

    def try_add(self, size: int) -> bool:
        """Count bytes until ``remove``; return whether there was room."""
        if self._held + size > self._most:
            return False
        self._held += size
        return True

    def remove(self, size: int) -> None:
        """Count bytes no longer."""
        self._held -= size


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
        queue = self._waiting.get(waiting.peer)
        # A release in the same turn of the event loop may have taken a cancelled one out.
        if queue is not None and waiting in queue:
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


@dataclass(slots=True, eq=False)
class Reservation:
    """The bytes that one request has reserved. ``Endpoint`` releases them when the request is answered."""

    budget: BodyBudget
    sender: Sender | None = None
    size: int = 0
    """The reserved bytes; 0 before ``reserve`` and after the release."""
    received: int = 0
    """The bytes of the body that have arrived."""
    _is_kept: bool = False
    _began: float = 0.0
    _opened: float = 0.0
    """When the first piece was awaited, plus the time that the body has waited for its reservation."""

    async def reserve(self, size: int) -> None:
        """Wait until ``size`` bytes are free, then reserve them."""
        loop = self.budget.loop
        asked = loop.time()
        await self.budget.acquire(size, "" if self.sender is None else self.sender.peer, self)
        waited = loop.time() - asked  # the wait does not make the upload slow
        self._began += waited if self.size else loop.time()
        self._opened = (self._opened or asked) + waited
        self.size += size

    async def arrived(self, size: int) -> None:
        """Count bytes of a body, and reserve them if there are more than one step."""
        self.received += size
        if self.received > max(_STEP, self.size):
            await self.reserve(-(-self.received // _STEP) * _STEP - self.size)

    async def receive(self, receive: Receive) -> Message:
        """Receive the next piece of the body.

        Raises ``Rejected`` (408) if nothing arrives for a minute, if less than a kilobyte per second has arrived after
        the first minute, or if the body is slow and other requests wait.
        """
        loop = self.budget.loop
        self._opened = self._opened or loop.time()
        until = min(loop.time(), self._opened + self.received / _LEAST_RATE) + _MAX_SILENCE
        while True:
            message = None
            with suppress(TimeoutError):
                async with asyncio.timeout_at(min(until, loop.time() + _GRACE) if self.size else until):
                    message = await receive()
            if self.size and self.budget.has_waiting:
                self._check_rate()
            if message is not None:
                return message
            if loop.time() >= until:
                raise _slow()

    def _check_rate(self) -> None:
        late = self.budget.loop.time() - self._began - _GRACE
        if late > self.received / _MIN_RATE:
            raise Rejected(
                408,
                "too_slow",
                f"the body arrived at less than {_MIN_RATE} bytes per second while others waited; send it again",
            )

    def release_soon(self) -> None:
        """Release the bytes after ``MAX_HOLD`` seconds at the latest."""
        if self.size:
            self.budget.loop.call_later(MAX_HOLD, self.release)

    def release_after(self, ended: asyncio.Future[None]) -> None:
        """Release the bytes when a future is done, not when the request is answered."""
        if self.size:
            self._is_kept = True
            ended.add_done_callback(lambda _: self.release())

    def release(self) -> None:
        """Release the bytes. A second call does nothing."""
        size, self.size, self.received = self.size, 0, 0
        if size:
            self.budget.release(size, self)

    def end(self) -> None:
        """Release the bytes of a request that is answered, unless its run keeps them."""
        if not self._is_kept:
            self.release()


def _slow() -> Rejected:
    message = (
        f"no piece of the body has arrived for {_MAX_SILENCE:g} seconds, or less than {_LEAST_RATE} bytes per second; "
        "send it again, and faster"
    )
    return Rejected(408, "too_slow", message)
