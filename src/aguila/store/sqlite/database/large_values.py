"""Write and read large values in slices.

As a parameter or a result column, a value is in memory three times: with the caller, in the statement and in the record
that goes to the file. In slices it is in memory once, which is also faster.
"""

from __future__ import annotations

import sqlite3
from io import BytesIO
from time import monotonic
from typing import Any

from aguila.store.large_strings import HUGE
from aguila.store.sqlite.database.connection import WriteConnection

_PIECE = 1 << 18


def insert(db: sqlite3.Connection, statement: str, values: tuple[Any, ...], data: bytes | memoryview) -> int:
    """Run ``INSERT INTO table (..., column) VALUES (?, ...)`` with ``data`` as the last value; return the row id."""
    if len(data) <= HUGE:
        row = db.execute(statement, (*values, data)).lastrowid
    else:
        head, _, tail = statement.rpartition("?")
        row = db.execute(f"{head}zeroblob(?){tail}", (*values, len(data))).lastrowid
        view = memoryview(data)
        table, column = _parse_target(statement)
        with db.blobopen(table, column, row_id(row)) as blob:
            for start in range(0, len(view), _PIECE):
                blob.write(view[start : start + _PIECE])
                if isinstance(db, WriteConnection):
                    db.wrote_at = monotonic()
    return row_id(row)


def select_value(name: str) -> str:
    """Return SQL for a column that may be large: its value, or the length of a large one, for ``read_value``."""
    return f"CASE WHEN length({name}) > {HUGE} THEN length({name}) ELSE {name} END"


def read_value(db: sqlite3.Connection, found: bytes | int, table: str, name: str, row: int) -> bytes:
    """Return the value that ``select_value`` found; read a large one in slices."""
    if isinstance(found, bytes):
        return found
    pieces = BytesIO()
    with db.blobopen(table, name, row, readonly=True) as blob:
        while piece := blob.read(_PIECE):
            pieces.write(piece)
    return pieces.getvalue()


def _parse_target(statement: str) -> tuple[str, str]:
    head, _, _ = statement.partition(")")
    target, _, columns = head.partition("(")
    return target.split()[-1], columns.split(",")[-1].strip()


def row_id(row: int | None) -> int:
    """Return the ``lastrowid`` of an INSERT."""
    assert row is not None  # noqa: S101 - None only before the first INSERT
    return row
