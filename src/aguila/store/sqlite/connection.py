"""Layer: store. Opening the SQLite file: connections, settings, migrations, and what its errors mean.

Migrations are the numbered files in ``migrations``; ``user_version`` says how many a file has had. Each is one
transaction, so a crash leaves the old schema or the new one. A file of a newer Aguila is refused.
"""

from __future__ import annotations

import sqlite3
import time
from math import inf
from pathlib import Path
from typing import Literal

from aguila.errors import StoreUnavailable
from aguila.store.sqlite.migrations import migrate

Synchronous = Literal["NORMAL", "FULL"]

_RETRY = 0.01


def unavailable(error: sqlite3.Error) -> StoreUnavailable:
    """What to raise for an error of SQLite: locked, full, unreadable."""
    name = getattr(error, "sqlite_errorname", None)
    return StoreUnavailable(f"SQLite: {error}" + ("" if name is None else f" ({name})"))


def is_outage(error: sqlite3.Error) -> bool:
    """Whether the file, and not the statement, is at fault."""
    return isinstance(error, sqlite3.OperationalError) or type(error) is sqlite3.DatabaseError


def is_passing(error: sqlite3.Error) -> bool:
    """Whether the connection is still good: the file is only locked or full."""
    code = getattr(error, "sqlite_errorcode", sqlite3.SQLITE_IOERR)
    return code & 0xFF in (sqlite3.SQLITE_BUSY, sqlite3.SQLITE_LOCKED, sqlite3.SQLITE_FULL)


class Writing(sqlite3.Connection):
    """The connection that writes."""

    wrote_at = -inf
    """When it last wrote a part of something large, by ``time.monotonic``."""


def connect(path: Path, *, busy_seconds: float, synchronous: Synchronous, max_bytes: int | None) -> Writing:
    """The connection that writes; makes and migrates the file if needed.

    From then on it waits for no lock: that is up to ``writer``. Raises ``sqlite3.Error`` or ``StoreUnavailable``.
    """
    db = sqlite3.connect(path, timeout=busy_seconds, isolation_level=None, check_same_thread=False, factory=Writing)
    try:
        db.execute("PRAGMA auto_vacuum = INCREMENTAL")  # only heeded before the file has a first page
        _use_wal(db, busy_seconds)
        db.execute(f"PRAGMA synchronous = {synchronous}")
        db.execute("PRAGMA wal_autocheckpoint = 0")  # see checkpoint.py
        db.execute("PRAGMA journal_size_limit = 67108864")
        if max_bytes is not None:
            page = db.execute("PRAGMA page_size").fetchone()[0]
            db.execute(f"PRAGMA max_page_count = {max(1, max_bytes // page)}")
        migrate(db)
        db.execute("PRAGMA busy_timeout = 0")
    except BaseException:
        db.close()
        raise
    return db


def connect_reader(path: Path, *, busy_seconds: float) -> sqlite3.Connection:
    """A connection that only queries. Raises ``sqlite3.Error``."""
    db = sqlite3.connect(path, timeout=busy_seconds, isolation_level=None, check_same_thread=False)
    db.execute("PRAGMA query_only = ON")
    return db


def _use_wal(db: sqlite3.Connection, busy_seconds: float) -> None:
    # SQLite does not wait for its busy timeout here, and two processes may open a new file at once.
    deadline = time.monotonic() + busy_seconds
    while True:
        try:
            mode = db.execute("PRAGMA journal_mode = WAL").fetchone()[0]
        except sqlite3.OperationalError as error:
            if error.sqlite_errorcode != sqlite3.SQLITE_BUSY or time.monotonic() >= deadline:
                raise
            time.sleep(_RETRY)
        else:
            break
    if mode != "wal":
        raise StoreUnavailable(f"this file cannot be used with a write-ahead log (journal mode {mode!r})")
