"""A transaction on an SQLite connection."""

from __future__ import annotations

import re
import sqlite3
from collections.abc import Callable, Iterable, Sequence
from functools import cache
from typing import Any, Final

from aguila.errors import StoreUnavailable
from aguila.store.sql.tx import Outage, Row

_NAMED: Final = {
    "NEXT_POSITION": "(SELECT coalesce(max(position), 0) + 1 FROM threads WHERE scope = $1)",
    "NEXT_RUN": "(SELECT coalesce(max(key), 0) + 1 FROM runs)",
    "NEXT_THREAD": (
        "(SELECT max(coalesce((SELECT max(key) FROM threads), 0), coalesce((SELECT max(thread) FROM trash), 0)) + 1)"
    ),
}
"""A key is never that of a removed thread whose rows are still being deleted."""


@cache
def translate(sql: str) -> str:
    """Return a statement as SQLite reads it."""
    for name, expression in _NAMED.items():
        sql = sql.replace(name, expression)
    return re.sub(r" FOR UPDATE( OF \w)?", "", re.sub(r"\$(\d+)", r"?\1", sql)).replace("aguila.", "")


class SQLiteTx:
    """Statements run at once: nothing is queued."""

    __slots__ = ("_is_dead", "connection", "lease_now", "now")

    def __init__(
        self, db: sqlite3.Connection, is_dead: Callable[[str, str | None], bool], now: float, lease_now: float
    ) -> None:
        self.connection = db
        self._is_dead = is_dead
        self.now = now
        self.lease_now = lease_now

    def is_dead(self, owner: str, lock: str | None) -> bool:
        return self._is_dead(owner, lock)

    def row(self, sql: str, *values: Any) -> Row | None:
        return self.connection.execute(translate(sql), values).fetchone()

    def rows(self, sql: str, *values: Any) -> Sequence[Row]:
        return self.connection.execute(translate(sql), values).fetchall()

    def each(self, sql: str, keys: Iterable[Sequence[Any]]) -> Sequence[Sequence[Row]]:
        statement, execute = translate(sql), self.connection.execute
        return [execute(statement, tuple(key)).fetchall() for key in keys]

    def do(self, sql: str, *values: Any) -> None:
        self.connection.execute(translate(sql), values)

    def many(self, sql: str, rows: Iterable[Sequence[Any]]) -> None:
        self.connection.executemany(translate(sql), rows)

    def lock_thread(self, scope: str, thread_id: str) -> None:
        """Nothing: there is one writing transaction at a time."""

    def lock_scope(self, scope: str) -> None:
        """Nothing: there is one writing transaction at a time."""


def unavailable(error: sqlite3.Error) -> StoreUnavailable:
    """Convert an error of SQLite: locked is an ``Outage`` that passes, full or unreadable is not."""
    name = getattr(error, "sqlite_errorname", None)
    text = f"SQLite: {error}" + ("" if name is None else f" ({name})")
    code = getattr(error, "sqlite_errorcode", sqlite3.SQLITE_IOERR) & 0xFF
    return Outage(text) if code in (sqlite3.SQLITE_BUSY, sqlite3.SQLITE_LOCKED) else StoreUnavailable(text)


def is_outage(error: sqlite3.Error) -> bool:
    """Return whether the file caused the error, and not the statement."""
    return isinstance(error, sqlite3.OperationalError) or type(error) is sqlite3.DatabaseError
