"""Group commit: all items that were queued during one flush are written together by the next."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any, Generic, Protocol, TypeVar

from aguila.errors import StoreUnavailable
from aguila.store.postgres.database.connections import Database

MAX_FLUSH = 8 * 1024 * 1024
"""Bytes after which a flush is full. Further items wait for the next one, which bounds memory and latency."""


class Item(Protocol):
    """An item that a lane writes."""

    @property
    def future(self) -> asyncio.Future[Any]:
        """The future of its outcome."""
        ...

    @property
    def size(self) -> int:
        """The bytes that it writes."""
        ...


I = TypeVar("I", bound=Item)  # noqa: E741


class Lane(Generic[I]):
    """A queue of items and one flush at a time. ``write`` gives each item an outcome, and never raises."""

    def __init__(self, write: Callable[[list[I]], Awaitable[None]]) -> None:
        self._write = write
        self._queue: list[I] = []
        self._task: asyncio.Task[None] | None = None
        self._is_closed = False

    def submit(self, item: I) -> asyncio.Future[Any]:
        """Queue an item; return the future of its outcome."""
        if self._is_closed:
            raise StoreUnavailable("the store is closed")
        self._queue.append(item)
        if self._task is None:
            self._task = asyncio.get_running_loop().create_task(self._flush(), name="aguila-store-flush")
        return item.future

    async def close(self) -> None:
        """Finish all items."""
        self._is_closed = True
        if self._task is not None:
            await asyncio.shield(self._task)

    async def _flush(self) -> None:
        try:
            while self._queue:
                count = size = 0
                while count < len(self._queue) and size < MAX_FLUSH:
                    size += self._queue[count].size
                    count += 1
                taken, self._queue = self._queue[:count], self._queue[count:]
                await self._write(taken)
                del taken  # free the values that were written before waiting
        finally:
            self._task = None


class Session:
    """One connection that is used for nothing else, and opened again when it is lost."""

    def __init__(self, database: Database) -> None:
        self._database = database
        self._db: Any = None

    async def fetch(self, sql: str, *args: Any) -> list[Any]:
        """Run a statement once, in a transaction of its own. Raises errors of the driver."""
        database = self._database
        db = self._db
        if db is None or db.is_closed():
            db = self._db = await database.connect()
        try:
            if not database.is_pooled:
                rows = await database.guard(db, db.fetch(sql, *args))
            else:
                async with db.transaction():
                    rows = await database.guard(db, db.fetch(sql, *args))
        except database.driver.PostgresError:
            raise
        except BaseException:  # the connection may be in the middle of a message
            self._db = None
            db.terminate()
            raise
        database.note_write()
        return rows

    async def close(self) -> None:
        """Close the connection."""
        db, self._db = self._db, None
        if db is not None:
            await self._database.drop(db)
