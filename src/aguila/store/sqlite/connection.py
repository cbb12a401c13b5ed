"""Open connections to the SQLite file."""

from __future__ import annotations

import os
import sqlite3
import time
from contextlib import suppress
from pathlib import Path
from typing import Final

from aguila.errors import StoreUnavailable
from aguila.store.records import Durability
from aguila.store.sql.schema import VERSION, sqlite_schema
from aguila.store.sqlite.legacy import explain_old

_RETRY: Final = 0.01


def connect(path: Path, *, busy_seconds: float, durability: Durability, max_bytes: int | None) -> sqlite3.Connection:
    """Open the connection that writes; create the schema. Raises ``sqlite3.Error``, ``StoreUnavailable``.

    Its statements do not wait for locks: the writer does that itself.
    """
    _create_private(path)
    db = _open(path, busy_seconds)
    try:
        _check_version(path, db)  # before anything is written: an older file stays as it is
        db.execute("PRAGMA auto_vacuum = INCREMENTAL")  # has an effect only before the first page is written
        _use_wal(db, busy_seconds)
        db.execute(f"PRAGMA synchronous = {'FULL' if durability == 'power' else 'NORMAL'}")
        if durability == "power":
            db.execute("PRAGMA fullfsync = ON")  # on macOS, fsync() leaves the data in the cache of the disk
        db.execute("PRAGMA wal_autocheckpoint = 0")  # checkpoint.py does it
        db.execute("PRAGMA journal_size_limit = 67108864")
        db.execute("PRAGMA secure_delete = ON")  # what a user has erased leaves the file
        if max_bytes is not None:
            page = db.execute("PRAGMA page_size").fetchone()[0]
            db.execute(f"PRAGMA max_page_count = {max(1, max_bytes // page)}")
        _create_schema(path, db)
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
    db = _open(path, busy_seconds)
    db.execute("PRAGMA query_only = ON")
    return db


def _open(path: Path, busy_seconds: float) -> sqlite3.Connection:
    return sqlite3.connect(
        path, timeout=busy_seconds, isolation_level=None, check_same_thread=False, cached_statements=256
    )


def read_version(db: sqlite3.Connection) -> int:
    """Return the version of the schema of a file; 0 if it is empty."""
    return db.execute("PRAGMA user_version").fetchone()[0]


def _check_version(path: Path, db: sqlite3.Connection) -> None:
    version = read_version(db)
    if version in (0, VERSION):
        return
    if version > VERSION:
        raise StoreUnavailable(f"the file has schema {version}, and this Aguila knows {VERSION}: use a newer Aguila")
    raise explain_old(str(path), version)


def _create_schema(path: Path, db: sqlite3.Connection) -> None:
    if read_version(db) == VERSION:
        return
    db.execute("BEGIN IMMEDIATE")
    try:
        _check_version(path, db)
        if read_version(db) == 0:  # otherwise another process has just created it
            for statement in sqlite_schema():
                db.execute(statement)
            db.execute("INSERT INTO schema_info (version) VALUES (?)", (VERSION,))
            db.execute("CREATE TABLE peers (token TEXT PRIMARY KEY, port INTEGER NOT NULL)")
            db.execute(f"PRAGMA user_version = {VERSION}")
        db.execute("COMMIT")
    finally:
        if db.in_transaction:
            db.execute("ROLLBACK")


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
