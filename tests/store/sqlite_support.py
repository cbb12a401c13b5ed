"""Test helpers for the internals of ``SQLiteStore``."""

from __future__ import annotations

import asyncio
import threading
from typing import Any, cast

from waiting import DEADLINE

from aguila.store import SQLiteStore
from aguila.store.sql.store import SHORT, SQLStore
from aguila.store.sql.tx import Tx
from aguila.store.sql.writer import run_one
from aguila.store.sqlite.engine import SQLiteDatabase


def database_of(store: SQLiteStore) -> SQLiteDatabase:
    """Return the database of an open store."""
    return cast("SQLiteDatabase", store.database)


async def run_sql(store: SQLStore, sql: str, *values: Any) -> list[Any]:
    """Run a statement on the writer's connection; return its rows."""
    return await store.transact(lambda tx: list(tx.rows(sql, *values)))


class BlockedWriter:
    """Block the writer's thread within a transaction until the ``async with`` block ends, so that jobs queue behind it.

    The writer and its jobs are the only private attributes that tests use.
    """

    def __init__(self, store: SQLiteStore) -> None:
        self._store = store
        self._entered = threading.Event()
        self._released = threading.Event()

    def _wait(self, tx: Tx) -> None:
        self._entered.set()
        assert self._released.wait(DEADLINE)

    async def __aenter__(self) -> None:
        self._job = self._store.writer.submit(run_one(self._wait), size=SHORT + 1)  # too long for the event loop
        assert await asyncio.to_thread(self._entered.wait, DEADLINE)

    async def __aexit__(self, *_: object) -> None:
        self._released.set()
        await self._job
