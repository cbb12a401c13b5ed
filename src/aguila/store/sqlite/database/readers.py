"""The threads that read the SQLite file, each with a connection of its own."""

from __future__ import annotations

import asyncio
import sqlite3
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import Concatenate, ParamSpec, TypeVar

from aguila.errors import NotFound, StoreUnavailable
from aguila.store.sqlite.database.connection import is_outage, unavailable

T = TypeVar("T")
P = ParamSpec("P")


class Readers:
    """A pool of threads with read-only connections."""

    def __init__(self, connect: Callable[[], sqlite3.Connection], count: int) -> None:
        self._connect = connect
        self._loop = asyncio.get_running_loop()
        self._pool = ThreadPoolExecutor(count, thread_name_prefix="aguila-store-reader")
        self._connections: set[sqlite3.Connection] = set()
        self._local = threading.local()
        self._is_closed = False

    async def read(
        self, query: Callable[Concatenate[sqlite3.Connection, P], T], *args: P.args, **kwargs: P.kwargs
    ) -> T:
        """Run a query on one snapshot of the file."""
        return await self.compute(self._read, lambda db: query(db, *args, **kwargs))

    async def compute(self, function: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
        """Call a function on a thread of the pool."""
        try:
            return await self._loop.run_in_executor(self._pool, partial(function, *args, **kwargs))
        except RuntimeError as error:
            if self._is_closed:
                raise StoreUnavailable("the store is closed") from error
            raise

    def connect(self) -> sqlite3.Connection:
        """Open a connection that ``close`` closes. Raises ``sqlite3.Error``."""
        db = self._connect()
        self._connections.add(db)
        return db

    def close(self) -> None:
        """Wait for the threads and close all connections."""
        self._is_closed = True
        self._pool.shutdown()
        for db in self._connections:
            db.close()

    def _read(self, query: Callable[[sqlite3.Connection], T]) -> T:
        try:
            db: sqlite3.Connection | None = getattr(self._local, "db", None)
            if db is None:
                db = self._local.db = self.connect()
            db.execute("BEGIN")
            try:
                return query(db)
            finally:
                db.execute("COMMIT")
        except UnicodeEncodeError as error:
            raise NotFound("the id contains a lone surrogate, which no stored id does") from error
        except sqlite3.Error as error:
            if not is_outage(error):
                raise
            self._local.db = None  # the next read connects again; ``close`` closes this connection
            raise unavailable(error) from error
