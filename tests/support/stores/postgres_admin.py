"""Run statements on a PostgreSQL server beside a store, as an administrator does."""

from __future__ import annotations

from typing import Any

import psycopg
from psycopg import RawCursor
from psycopg.rows import dict_row


def connect(dsn: str, **settings: Any) -> psycopg.Connection[dict[str, Any]]:
    """Open a connection whose statements commit at once, take ``$1`` and return dicts."""
    return psycopg.connect(dsn, autocommit=True, cursor_factory=RawCursor, row_factory=dict_row, **settings)


def query(dsn: str, sql: str, *values: Any) -> list[dict[str, Any]]:
    """Run one statement; return its rows."""
    with connect(dsn) as db:
        cursor = db.execute(sql, values or None)  # type: ignore[arg-type]
        return [] if cursor.description is None else cursor.fetchall()
