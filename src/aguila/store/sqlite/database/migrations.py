"""Create the schema of a new file, and upgrade a file of an earlier schema.

``PRAGMA user_version`` is the schema of a file. ``schema.sql`` creates the current one in an empty file (version 0).
``upgrade_N.sql`` turns schema N into N + 1. Each script is one transaction: a crash leaves the old schema or the new.
"""

from __future__ import annotations

import logging
import sqlite3
from collections.abc import Iterator
from contextlib import closing
from importlib import resources
from pathlib import Path
from typing import Final

from aguila.errors import StoreUnavailable

SCHEMA: Final = 17
"""The schema that this Aguila reads and writes."""

OLDEST: Final = 9
"""The oldest schema that can be upgraded."""

_UPGRADING: Final = (
    "upgrading the SQLite file from schema %d to %d; earlier versions of Aguila cannot open it afterwards. "
    "A large file takes a while, and nothing else can write to it meanwhile"
)
_log = logging.getLogger("aguila.store")


def migrate(db: sqlite3.Connection) -> None:
    """Create the schema or bring it up to date. Raises ``StoreUnavailable`` for one that is too new or too old."""
    while (version := _version(db)) != SCHEMA:
        if version > SCHEMA:
            raise StoreUnavailable(
                f"the file has schema {version}, and this Aguila knows schemas {OLDEST} to {SCHEMA}: use a newer Aguila"
            )
        if 0 < version < OLDEST:
            raise StoreUnavailable(
                f"the file has schema {version}, and this Aguila upgrades schemas from {OLDEST} on: open the file once "
                "with Aguila of commit 05b61f3, which upgrades it to schema 9, then use this one; or start a new file"
            )
        script = "schema.sql" if version == 0 else f"upgrade_{version}.sql"
        db.execute("BEGIN IMMEDIATE")
        try:
            if _version(db) == version:  # otherwise another process has just upgraded the file
                if version > 0:
                    _log.warning(_UPGRADING, version, version + 1)
                for statement in _statements(script):
                    db.execute(statement)
                db.execute(f"PRAGMA user_version = {SCHEMA if version == 0 else version + 1}")
            db.execute("COMMIT")
        finally:
            if db.in_transaction:
                db.execute("ROLLBACK")


def read_schema(path: Path) -> int:
    """Return the schema of a file. Raises ``StoreUnavailable``."""
    try:
        with closing(sqlite3.connect(path)) as db:
            return _version(db)
    except sqlite3.Error as error:
        raise StoreUnavailable(f"{path} cannot be read: {error}") from error


def _version(db: sqlite3.Connection) -> int:
    return db.execute("PRAGMA user_version").fetchone()[0]


def _statements(script: str) -> Iterator[str]:
    # executescript() would commit the transaction that makes an upgrade atomic.
    text = resources.files("aguila.store.sqlite.database").joinpath(script).read_text(encoding="utf-8")
    statement = ""
    for line in text.splitlines(keepends=True):
        statement += line
        if sqlite3.complete_statement(statement):
            yield statement
            statement = ""
