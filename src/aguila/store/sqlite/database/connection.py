"""Open connections to the SQLite file, and interpret their errors."""

from __future__ import annotations

import os
import sqlite3
import time
from contextlib import suppress
from math import inf
from pathlib import Path

from aguila.errors import StoreUnavailable
from aguila.store.records import Durability
from aguila.store.sqlite.database.migrations import migrate

_RETRY = 0.01


def unavailable(error: sqlite3.Error) -> StoreUnavailable:
    """Convert an error of SQLite (locked, full, unreadable) to ``StoreUnavailable``."""
    name = getattr(error, "sqlite_errorname", None)
    return StoreUnavailable(f"SQLite: {error}" + ("" if name is None else f" ({name})"))


def is_outage(error: sqlite3.Error) -> bool:
    """Return whether the file caused the error, and not the statement."""
    return isinstance(error, sqlite3.OperationalError) or type(error) is sqlite3.DatabaseError


def is_temporary(error: sqlite3.Error) -> bool:
    """Return whether the connection is still usable: the file is only locked or full."""
    code = getattr(error, "sqlite_errorcode", sqlite3.SQLITE_IOERR)
    return code & 0xFF in (sqlite3.SQLITE_BUSY, sqlite3.SQLITE_LOCKED, sqlite3.SQLITE_FULL)


class WriteConnection(sqlite3.Connection):
    """The connection that writes."""

    wrote_at = -inf
    """The ``time.monotonic`` of the latest part of a large value."""


def connect(path: Path, *, busy_seconds: float, durability: Durability, max_bytes: int | None) -> WriteConnection:
    """Open the connection that writes; create or upgrade the file. Raises ``sqlite3.Error``, ``StoreUnavailable``.

    Its statements do not wait for locks: the writer does that itself.
    """
    _create_private(path)
    db = sqlite3.connect(
        path, timeout=busy_seconds, isolation_level=None, check_same_thread=False, factory=WriteConnection
    )
    try:
        db.execute("PRAGMA auto_vacuum = INCREMENTAL")  # has an effect only before the first page is written
        _use_wal(db, busy_seconds)
        db.execute(f"PRAGMA synchronous = {'FULL' if durability == 'power' else 'NORMAL'}")
        if durability == "power":
            db.execute("PRAGMA fullfsync = ON")  # on macOS, fsync() leaves the data in the cache of the disk
        db.execute("PRAGMA wal_autocheckpoint = 0")  # checkpoint.py does it
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


def _create_private(path: Path) -> None:
    """Create the file if it is missing, for its owner only. SQLite gives its other files the same mode.

    A file that exists must not be opened here: closing it would release the locks of this process.
    """
    with suppress(OSError):  # it exists, or SQLite reports the error
        os.close(os.open(path, os.O_RDWR | os.O_CREAT | os.O_EXCL, 0o600))


def connect_reader(path: Path, *, busy_seconds: float) -> sqlite3.Connection:
    """Open a connection that only reads. Raises ``sqlite3.Error``."""
    db = sqlite3.connect(path, timeout=busy_seconds, isolation_level=None, check_same_thread=False)
    db.execute("PRAGMA query_only = ON")
    return db


def _use_wal(db: sqlite3.Connection, busy_seconds: float) -> None:
    # SQLite ignores its busy timeout here, and two processes may create the file at the same time.
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
        raise StoreUnavailable(
            f"the file system does not support a write-ahead log (journal mode {mode!r}); use a local disk"
        )
