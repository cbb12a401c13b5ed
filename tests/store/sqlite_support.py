"""Test helpers for the internals of ``SQLiteStore``."""

from __future__ import annotations

import asyncio
import sqlite3
import threading

from contract.support import DEADLINE

from aguila.store import SQLiteStore
from aguila.store.sqlite.engine import Engine


def engine_of(store: SQLiteStore) -> Engine:
    """Return the engine of an open store: the one private attribute that tests read."""
    return store._engine.get()


class BlockedWriter:
    """Block the writer within a transaction until the ``async with`` block ends, so that jobs queue behind it."""

    def __init__(self, store: SQLiteStore) -> None:
        self._engine = engine_of(store)
        self._entered = threading.Event()
        self._released = threading.Event()

    def _wait(self, db: sqlite3.Connection) -> None:
        self._entered.set()
        assert self._released.wait(DEADLINE)

    async def __aenter__(self) -> None:
        self._job = self._engine.write(self._wait)
        assert await asyncio.to_thread(self._entered.wait, DEADLINE)

    async def __aexit__(self, *_: object) -> None:
        self._released.set()
        await self._job
