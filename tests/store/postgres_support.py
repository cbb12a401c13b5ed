"""Test helpers for ``PostgresStore`` and its database."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import pytest
from psycopg.rows import tuple_row
from stores.postgres_admin import connect

from aguila.store import PostgresStore
from aguila.store.postgres.engine import PostgresDatabase
from aguila.store.sql.tx import Outage, Tx

SQL = Callable[..., list[tuple[Any, ...]]]
"""Run a statement that names the schema ``aguila``; return its rows."""


def make_sql(dsn: str, schema: str) -> SQL:
    """Return a function that runs statements on a schema, beside its stores."""

    def run(text: str, *values: Any) -> list[tuple[Any, ...]]:
        with connect(dsn) as db, db.cursor(row_factory=tuple_row) as cursor:
            cursor.execute(text.replace("aguila.", f"{schema}."), values or None)  # type: ignore[arg-type]
            return [] if cursor.description is None else cursor.fetchall()

    return run


def database_of(store: PostgresStore) -> PostgresDatabase:
    """Return the database of an open store: the one private attribute that tests read."""
    return store._database


class CutCommits:
    """Break the connection that writes ``count`` times: after the commit, or before it."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, store: PostgresStore, *, after: bool, count: int = 1) -> None:
        self.cuts = 0
        self.calls = 0
        database = database_of(store)
        real = database.transaction

        @contextmanager
        def transaction() -> Iterator[Tx]:
            self.calls += 1
            is_cut = self.cuts < count
            self.cuts += is_cut
            with real() as tx:
                yield tx
                if is_cut and not after:
                    raise Outage("cut by a test")
            if is_cut:
                raise Outage("cut by a test")

        monkeypatch.setattr(database, "transaction", transaction)
