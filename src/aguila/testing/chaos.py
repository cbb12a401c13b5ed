"""Layer: testing. A transport that misbehaves, the same way every time: it cuts, delays, and splits bytes anywhere.

Below: another transport. ``Chaos(seed=7).wrap(transport)`` goes around any transport of an ``AsyncClient``,
``wrap_sync`` around one of a ``Client``. What happens to the nth request depends on the seed and on n, not on time.
"""

from __future__ import annotations

import asyncio
import random
import time
from collections.abc import Awaitable, Callable, Mapping

import msgspec

from aguila.client.transports.base import AsyncResponse, AsyncTransport, Request, Response, Transport
from aguila.errors import TransportFailed


class Fate(msgspec.Struct, frozen=True, kw_only=True):
    """What becomes of one request. ``cut_at`` is bytes of the answer; -1 is before it is sent, -2 before the answer."""

    cut_at: int | None = None
    split: bool = True
    delay: float = 0.0
    seed: str = ""

    @property
    def is_lost(self) -> bool:
        """Whether no answer comes at all."""
        return self.cut_at is not None and self.cut_at < 0


class Chaos:
    """A plan for misfortune.

    ``cuts`` is how many requests are cut at most, ``chance`` how likely each is until then; a cut one is lost
    altogether one time in five, else after up to ``within`` bytes of its answer. ``split`` gives the rest in pieces of
    1 to 64 bytes. ``delay`` is the longest pause before a piece, in seconds. ``done`` has the fate of each request.
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
        self.done: list[Fate] = []
        self._seed = seed
        self._left = cuts
        self._chance = chance
        self._within = within
        self._split = split
        self._delay = delay
        self.sleep = sleep
        self.sleep_sync = sleep_sync

    def next(self) -> Fate:
        """What becomes of the next request."""
        seed = f"{self._seed}/{len(self.done)}"
        rng = random.Random(seed)  # noqa: S311 - to be repeated, not to be secret
        cut_at: int | None = None
        if self._left > 0 and rng.random() < self._chance:
            self._left -= 1
            cut_at = rng.choice((-1, -2)) if rng.random() < 0.2 else rng.randint(0, self._within)
        fate = Fate(cut_at=cut_at, split=self._split, delay=self._delay, seed=seed)
        self.done.append(fate)
        return fate

    def allow(self, cuts: int, *, chance: float | None = None, within: int | None = None) -> None:
        """Cut so many more requests from now on, perhaps with another chance, or at other places."""
        self._left = cuts
        self._chance = self._chance if chance is None else chance
        self._within = self._within if within is None else within

    def wrap(self, transport: AsyncTransport) -> AsyncChaosTransport:
        """An async transport with this plan."""
        return AsyncChaosTransport(transport, self)

    def wrap_sync(self, transport: Transport) -> ChaosTransport:
        """A transport of the sync client with this plan."""
        return ChaosTransport(transport, self)


class _Mangler:
    """The bytes of one answer, as they are let through. Where they are split does not depend on how they came."""

    def __init__(self, fate: Fate) -> None:
        self._fate = fate
        self._rng = random.Random(fate.seed + "/body")  # noqa: S311
        self._waiting = b""
        self._passed = 0
        self._piece_left = 0

    @property
    def is_empty(self) -> bool:
        return not self._waiting

    def put(self, data: bytes) -> None:
        self._waiting = data

    def pause(self) -> float:
        return self._rng.uniform(0, self._fate.delay) if self._fate.delay else 0.0

    def take(self) -> bytes:
        """The next piece. Raises ``TransportFailed`` where the answer is cut."""
        size = len(self._waiting)
        if self._fate.split:
            if self._piece_left == 0:
                self._piece_left = self._rng.randint(1, 64)
            size = min(size, self._piece_left)
        cut_at = self._fate.cut_at
        if cut_at is not None:
            size = min(size, cut_at - self._passed)
            if size <= 0:
                raise TransportFailed(f"chaos: cut after {self._passed} bytes")
        piece, self._waiting = self._waiting[:size], self._waiting[size:]
        self._passed += size
        self._piece_left = max(0, self._piece_left - size)
        return piece


class AsyncChaosTransport:
    """See ``Chaos.wrap``."""

    def __init__(self, transport: AsyncTransport, chaos: Chaos) -> None:
        self._transport = transport
        self._chaos = chaos

    async def send(self, request: Request) -> _AsyncResponse:
        """See ``AsyncTransport``."""
        fate = self._chaos.next()
        if fate.cut_at == -1:
            raise TransportFailed("chaos: the request was lost")
        response = await self._transport.send(request)
        if fate.is_lost:
            await response.close()
            raise TransportFailed("chaos: the answer was lost")
        return _AsyncResponse(response, fate, self._chaos.sleep)

    async def close(self) -> None:
        """See ``AsyncTransport``."""
        await self._transport.close()


class _AsyncResponse:
    def __init__(self, response: AsyncResponse, fate: Fate, sleep: Callable[[float], Awaitable[None]]) -> None:
        self.status = response.status
        self.headers: Mapping[str, str] = response.headers
        self._response = response
        self._bytes = _Mangler(fate)
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
    """See ``Chaos.wrap_sync``."""

    def __init__(self, transport: Transport, chaos: Chaos) -> None:
        self._transport = transport
        self._chaos = chaos

    def send(self, request: Request, timeout: float | None) -> _Response:
        """See ``Transport``."""
        fate = self._chaos.next()
        if fate.cut_at == -1:
            raise TransportFailed("chaos: the request was lost")
        response = self._transport.send(request, timeout)
        if fate.is_lost:
            response.close()
            raise TransportFailed("chaos: the answer was lost")
        return _Response(response, fate, self._chaos.sleep_sync)

    def close(self) -> None:
        """See ``Transport``."""
        self._transport.close()


class _Response:
    def __init__(self, response: Response, fate: Fate, sleep: Callable[[float], None]) -> None:
        self.status = response.status
        self.headers: Mapping[str, str] = response.headers
        self._response = response
        self._bytes = _Mangler(fate)
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
