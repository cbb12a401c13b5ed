"""Layer: store. Large values into rows and out of them, slice by slice.

As a parameter or a column, a value of the size of a photo is held three times: by the caller, by the statement, and as
the record that goes into the file. In slices it is held once, and it takes less time.
"""

from __future__ import annotations

import sqlite3
from time import monotonic
from typing import Any

from aguila.codec.large import LARGE
from aguila.codec.whole import Whole
from aguila.store.sqlite.connection import Writing

_SLICE = 1 << 18


def insert(db: sqlite3.Connection, statement: str, values: tuple[Any, ...], data: bytes) -> int:
    """Run ``INSERT INTO table (..., column) VALUES (?, ...)`` with ``data`` for the last column; gives the row's id."""
    if len(data) <= LARGE:
        row = db.execute(statement, (*values, data)).lastrowid
    else:
        head, _, tail = statement.rpartition("?")
        row = db.execute(f"{head}zeroblob(?){tail}", (*values, len(data))).lastrowid
        view = memoryview(data)
        table, column = _place(statement)
        with db.blobopen(table, column, known(row)) as blob:
            for at in range(0, len(view), _SLICE):
                blob.write(view[at : at + _SLICE])
                if isinstance(db, Writing):
                    db.wrote_at = monotonic()
    return known(row)


def column(name: str) -> str:
    """SQL for a column that may be large: its value, or how many bytes it has, for ``whole``."""
    return f"CASE WHEN length({name}) > {LARGE} THEN length({name}) ELSE {name} END"


def whole(db: sqlite3.Connection, found: bytes | int, table: str, name: str, row: int) -> bytes:
    """What ``column`` found in a row, or what it found too large to be read there."""
    if isinstance(found, bytes):
        return found
    pieces = Whole(found)
    with db.blobopen(table, name, row, readonly=True) as blob:
        while piece := blob.read(_SLICE):
            pieces.write(piece)
    return pieces.getvalue()


def _place(statement: str) -> tuple[str, str]:
    head, _, _ = statement.partition(")")
    target, _, columns = head.partition("(")
    return target.split()[-1], columns.split(",")[-1].strip()


def known(row: int | None) -> int:
    """The id of a row that something was inserted into."""
    assert row is not None  # noqa: S101 - something was inserted
    return row
