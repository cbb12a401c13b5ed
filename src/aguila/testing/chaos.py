"""A transport that cuts, delays and splits the requests and responses of another transport.

The faults of the nth request depend on the seed and on n, not on time.
"""

from __future__ import annotations

import asyncio
import random
import time
from collections.abc import Awaitable, Callable, Mapping

import msgspec

from aguila.client.transports.base import AsyncResponse, AsyncTransport, Request, Response, Transport
from aguila.errors import TransportFailed


class Faults(msgspec.Struct, frozen=True, kw_only=True):
    """The faults of one request. ``cut_at`` is a position in the response; -1 loses the request, -2 the response."""

    cut_at: int | None = None
    split: bool = True
    delay: float = 0.0
    seed: str = ""

    @property
    def is_lost(self) -> bool:
        """Whether no response arrives at all."""
        return self.cut_at is not None and self.cut_at < 0


class Chaos:
    """A plan of faults, repeatable by its seed.

    At most ``cuts`` requests are cut, each with the probability ``chance``. One in five of these is lost, the others
    are cut within the first ``within`` bytes of the response. ``split`` delivers pieces of 1 to 64 bytes.
    ``delay`` is the longest pause before a piece, in seconds. ``done`` lists the faults of each request.
    """

    def __init__(
        self,
        seed: int,
        *,
        cuts: int = 3,
        chance: float = 0.5,
        within: int = 2000,
        split: bool = True,
        delay: float = 0.0,
        sleep: Callable[[float], Awaitable[None]] = asyncio.sleep,
        sleep_sync: Callable[[float], None] = time.sleep,
    ) -> None:
        self.done: list[Faults] = []
        self._seed = seed
        self._left = cuts
        self._chance = chance
        self._within = within
        self._split = split
        self._delay = delay
        self.sleep = sleep
        self.sleep_sync = sleep_sync

    def next(self) -> Faults:
        """Return the faults of the next request."""
        seed = f"{self._seed}/{len(self.done)}"
        rng = random.Random(seed)  # noqa: S311 - repeatable, not secret
        cut_at: int | None = None
        if self._left > 0 and rng.random() < self._chance:
            self._left -= 1
            cut_at = rng.choice((-1, -2)) if rng.random() < 0.2 else rng.randint(0, self._within)
        faults = Faults(cut_at=cut_at, split=self._split, delay=self._delay, seed=seed)
        self.done.append(faults)
        return faults

    def begin(self) -> Faults:
        """Return the faults of a request that is about to be sent. Raise ``TransportFailed`` if it is lost."""
        faults = self.next()
        if faults.cut_at == -1:
            raise TransportFailed("chaos: the request was lost")
        return faults

    def allow(self, cuts: int, *, chance: float | None = None, within: int | None = None) -> None:
        """Cut this many more requests from now on; the chance and the range can be changed, too."""
        self._left = cuts
        self._chance = self._chance if chance is None else chance
        self._within = self._within if within is None else within

    def wrap(self, transport: AsyncTransport) -> AsyncChaosTransport:
        """Wrap an async transport."""
        return AsyncChaosTransport(transport, self)

    def wrap_sync(self, transport: Transport) -> ChaosTransport:
        """Wrap a transport of the sync client."""
        return ChaosTransport(transport, self)


class _Mangler:
    """Splits and cuts the bytes of one response, wherever the transport split them."""

    def __init__(self, faults: Faults) -> None:
        self._faults = faults
        self._rng = random.Random(faults.seed + "/body")  # noqa: S311
        self._waiting = b""
        self._passed = 0
        self._piece_left = 0

    @property
    def is_empty(self) -> bool:
        return not self._waiting

    def put(self, data: bytes) -> None:
        self._waiting = data

    def pause(self) -> float:
        return self._rng.uniform(0, self._faults.delay) if self._faults.delay else 0.0

    def take(self) -> bytes:
        """Return the next piece. Raise ``TransportFailed`` at the cut."""
        size = len(self._waiting)
        if self._faults.split:
            if self._piece_left == 0:
                self._piece_left = self._rng.randint(1, 64)
            size = min(size, self._piece_left)
        cut_at = self._faults.cut_at
        if cut_at is not None:
            size = min(size, cut_at - self._passed)
            if size <= 0:
                raise TransportFailed(f"chaos: cut after {self._passed} bytes")
        piece, self._waiting = self._waiting[:size], self._waiting[size:]
        self._passed += size
        self._piece_left = max(0, self._piece_left - size)
        return piece


class AsyncChaosTransport:
    """An async transport with faults. See ``Chaos.wrap``."""

    def __init__(self, transport: AsyncTransport, chaos: Chaos) -> None:
        self._transport = transport
        self._chaos = chaos

    async def send(self, request: Request) -> _AsyncResponse:
        """Send a request, with its faults. See ``AsyncTransport``."""
        faults = self._chaos.begin()
        response = await self._transport.send(request)
        if faults.is_lost:
            await response.close()
            raise TransportFailed("chaos: the response was lost")
        return _AsyncResponse(response, faults, self._chaos.sleep)

    async def close(self) -> None:
        """Close the wrapped transport. See ``AsyncTransport``."""
        await self._transport.close()


class _AsyncResponse:
    def __init__(self, response: AsyncResponse, faults: Faults, sleep: Callable[[float], Awaitable[None]]) -> None:
        self.status = response.status
        self.headers: Mapping[str, str] = response.headers
        self._response = response
        self._bytes = _Mangler(faults)
        self._sleep = sleep

    async def read(self) -> bytes:
        if self._bytes.is_empty:
            data = await self._response.read()
            if not data:
                return b""
            self._bytes.put(data)
        pause = self._bytes.pause()
        if pause:
            await self._sleep(pause)
        return self._bytes.take()

    async def close(self) -> None:
        await self._response.close()


class ChaosTransport:
    """A transport with faults. See ``Chaos.wrap_sync``."""

    def __init__(self, transport: Transport, chaos: Chaos) -> None:
        self._transport = transport
        self._chaos = chaos

    def send(self, request: Request, timeout: float | None) -> _Response:
        """Send a request, with its faults. See ``Transport``."""
        faults = self._chaos.begin()
        response = self._transport.send(request, timeout)
        if faults.is_lost:
            response.close()
            raise TransportFailed("chaos: the response was lost")
        return _Response(response, faults, self._chaos.sleep_sync)

    def close(self) -> None:
        """Close the wrapped transport. See ``Transport``."""
        self._transport.close()


class _Response:
    def __init__(self, response: Response, faults: Faults, sleep: Callable[[float], None]) -> None:
        self.status = response.status
        self.headers: Mapping[str, str] = response.headers
        self._response = response
        self._bytes = _Mangler(faults)
        self._sleep = sleep

    def read(self, timeout: float | None) -> bytes:
        if self._bytes.is_empty:
            data = self._response.read(timeout)
            if not data:
                return b""
            self._bytes.put(data)
        pause = self._bytes.pause()
        if pause:
            self._sleep(pause)
        return self._bytes.take()

    def close(self) -> None:
        self._response.close()
