"""Admission of runs: how many runs a scope and this process may have at once. Nothing else refuses for capacity."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Generator
from contextlib import contextmanager

from aguila.server.errors import Rejected, draining_error
from aguila.server.limits import Limits


class Capacity:
    """Counts the admitted runs, from before they begin until they have ended."""

    def __init__(self, limits: Limits) -> None:
        self._limits = limits
        self._scopes: dict[str, int] = {}
        self._empty: asyncio.Future[None] | None = None
        self.total = 0
        self.draining = asyncio.Event()
        """Set when no new runs are admitted any more."""

    def refusal(self, scope: str) -> Rejected | None:
        """Return why no run of this scope can be admitted now, or None."""
        if self.draining.is_set():
            return draining_error()
        if self._scopes.get(scope, 0) >= self._limits.runs_per_scope or self.total >= self._limits.runs:
            return too_many_runs()
        return None

    def admit(self, scope: str) -> None:
        """Count a run, whatever the limits."""
        self._scopes[scope] = self._scopes.get(scope, 0) + 1
        self.total += 1

    def release(self, scope: str) -> None:
        """Stop counting a run that has ended, or did not begin."""
        self.total -= 1
        self._scopes[scope] -= 1
        if not self._scopes[scope]:
            del self._scopes[scope]
        if not self.total:
            self.stop_waiting()

    async def wait_until_empty(self, seconds: float) -> None:
        """Wait until no admitted run is left, at most this long."""
        if self.total:
            self._empty = asyncio.get_running_loop().create_future()
            await asyncio.wait([self._empty], timeout=seconds)

    def stop_waiting(self) -> None:
        """End a ``wait_until_empty`` early."""
        if self._empty is not None and not self._empty.done():
            self._empty.set_result(None)


class PeerRuns:
    """Counts the runs that each address without credentials is starting or has in progress.

    Loopback addresses are not counted: they are this machine, or a proxy that does not tell its clients apart.
    """

    def __init__(self, most: int) -> None:
        self._most = most
        self._counts: dict[str, int] = {}

    @contextmanager
    def admitted(self, address: str) -> Generator[Callable[[asyncio.Future[None]], None]]:
        """Count a run, from before it begins: several requests may start at once.

        The end of the block stops counting it, unless the block has passed the future of the run's end.
        """
        self._counts[address] = self._counts.get(address, 0) + 1
        ended: list[asyncio.Future[None]] = []
        try:
            yield ended.append
        finally:
            if ended:
                ended[0].add_done_callback(lambda _: self._release(address))
            else:
                self._release(address)

    def _release(self, address: str) -> None:
        self._counts[address] -= 1
        if not self._counts[address]:
            del self._counts[address]

    def refusal(self, address: str) -> Rejected | None:
        """Return why an address may not start another run now, or None."""
        if self._counts.get(address, 0) < self._most:
            return None
        message = f"{self._most} runs from this address are in progress; wait until one has ended, then try again"
        return Rejected(429, "too_many_runs", message, headers={"retry-after": "1"})


def too_many_runs() -> Rejected:
    """Return the refusal of a run for lack of capacity."""
    message = "too many runs are active; wait until one has ended, then try again"
    return Rejected(429, "too_many_runs", message, headers={"retry-after": "1"})
