"""The open state of a store, shared by everything that has opened the store."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Generic, Protocol, TypeVar

from aguila.store import refusals


class StoreEngine(Protocol):
    """The open state of a store. It belongs to the event loop on which it was opened."""

    @property
    def is_orphaned(self) -> bool:
        """Whether the event loop of this engine is closed."""
        ...

    def abandon(self) -> None:
        """Release the resources of the engine after its event loop was closed."""
        ...

    async def close(self) -> None:
        """Finish the queued writes and release the resources of the engine."""
        ...


E = TypeVar("E", bound=StoreEngine)


class SharedEngine(Generic[E]):
    """An engine that the first ``open`` makes and the last ``close`` closes.

    A store may be opened again on another event loop after the loop of its engine was closed.
    """

    def __init__(self, open_engine: Callable[[], Awaitable[E]]) -> None:
        self._open_engine = open_engine
        self._lock = asyncio.Lock()
        self._users = 0
        self.current: E | None = None

    def get(self) -> E:
        """Return the engine. Raises ``StoreUnavailable`` if the store is not open."""
        if self.current is None:
            raise refusals.not_open()
        return self.current

    async def open(self) -> None:
        """Open the engine unless it is open, and count one more user."""
        self._drop_orphan()
        async with self._lock:
            if self.current is None:
                self.current = await self._open_engine()
            self._users += 1

    async def close(self) -> None:
        """Count one user less, and close the engine if that was the last."""
        self._drop_orphan()
        async with self._lock:
            self._users = max(0, self._users - 1)
            if self.current is not None and not self._users:
                engine, self.current = self.current, None
                await engine.close()

    def _drop_orphan(self) -> None:
        if self.current is not None and self.current.is_orphaned:
            self.current.abandon()
            self.current, self._users, self._lock = None, 0, asyncio.Lock()
